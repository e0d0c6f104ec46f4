"""Where graphs stand in the tree of prototypes, against the definitions written out in NumPy."""

import numpy as np
import pytest
import torch

import graphlog
from downstream_support import CHAINS, MOLECULE, chain_store, tiny_encoder
from graphlog.downstream.pretrained import Encoder
from graphlog.encoders.novelty import Novelty, fit_novelty
from graphlog.errors import ModelFileError
from graphlog.inputs import read
from graphlog.report.hierarchy import Hierarchy, hierarchy_of
from report_support import SMALL, pretrained


@pytest.fixture(params=["default", "released"])
def trained(request: pytest.FixtureRequest) -> Encoder:
    return pretrained(request.param)


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return (a / np.linalg.norm(a, axis=1, keepdims=True)) @ (
        b / np.linalg.norm(b, axis=1, keepdims=True)
    ).T


def test_every_graph_has_the_path_that_the_e_step_gives_it(trained: Encoder):
    hierarchy = hierarchy_of(trained, "it")
    places, whole = (hierarchy.assign(chain_store(), batch_size=size) for size in (7, 48))
    np.testing.assert_array_equal(places.paths, whole.paths)
    np.testing.assert_allclose(places.novelty, whole.novelty, atol=0.1)
    emb = trained.embed(CHAINS, "last")
    if hierarchy.head is not None:
        with torch.no_grad():
            emb = hierarchy.head(torch.from_numpy(emb)).numpy()
    np.testing.assert_allclose(hierarchy.embed(chain_store()), emb, atol=1e-5)
    layers = [layer.numpy() for layer in hierarchy.forest.layers]
    assert hierarchy.by_leaf == (trained.info["recipe"] == "default")
    for n in range(len(CHAINS)):
        cosines = [_cosines(emb[n : n + 1], layer)[0] for layer in layers]
        path = places.paths[n]
        if hierarchy.by_leaf:
            assert cosines[-1][path[-1]] >= cosines[-1].max() - 1e-5
            for level, parent in enumerate(hierarchy.parents):
                assert path[level] == parent[path[level + 1]]
        else:
            candidates = np.arange(len(layers[0]))
            for level, cosine in enumerate(cosines):
                assert path[level] in candidates
                assert cosine[path[level]] >= cosine[candidates].max() - 1e-5
                if level + 1 < len(layers):
                    candidates = np.flatnonzero(hierarchy.parents[level] == path[level])
        for level, cosine in enumerate(cosines):
            assert places.similarities[n, level] == pytest.approx(cosine[path[level]], abs=1e-5)


def test_prototypes_do_not_see_the_center_beside_the_mean():
    """The readout of an embedding has no weights, and training sees the mean in both."""
    how = {**SMALL, "encoder.readout": "mean+center", "recipe": "released"}
    centered = graphlog.pretrain(CHAINS, schema="molecule", **how)
    found, expected = (
        hierarchy_of(model, "it").assign(chain_store())
        for model in (centered, pretrained("released"))
    )
    np.testing.assert_array_equal(found.paths, expected.paths)
    np.testing.assert_allclose(found.similarities, expected.similarities, atol=1e-5)


def test_novelty_is_judged_by_the_graphs_of_the_training_or_of_the_fit(trained: Encoder):
    judge = Novelty.of(trained.extra, trained.width("jk"))
    distances = judge.distances(trained.embed(CHAINS, "jk"))
    new = chain_store().subset(np.arange(len(CHAINS)))  # a view is another collection
    places = hierarchy_of(trained, "it").assign(new)
    np.testing.assert_allclose(places.novelty, judge.percentiles(distances), atol=0.1)
    np.testing.assert_allclose(
        distances[places.by_novelty], np.sort(distances)[::-1], rtol=1e-3, atol=1e-3
    )
    other = chain_store().subset(np.arange(24))
    fitted = Hierarchy.fitted(trained, other, centers=4, depth=2)
    own = fit_novelty(trained.network, other)
    np.testing.assert_array_equal(fitted.novelty.quantiles, own.quantiles)


STRANGE = "[Pt+2].[NH3].[NH3].[Cl-].[Cl-]"


@pytest.mark.parametrize("seed", range(4))
def test_no_graph_is_judged_by_a_fit_that_has_seen_it(trained: Encoder, seed: int):
    store = read([*CHAINS, STRANGE], MOLECULE)
    tree = Hierarchy.fitted(trained, store, centers=4, depth=2, seed=seed)
    places = tree.assign(store)
    assert places.novelty[-1] >= 96  # beyond all of its half
    assert places.by_novelty[0] == len(CHAINS)
    # half of the graphs are those that the fit for other collections has not seen
    alone = tree.assign(store.subset(np.arange(len(store)))).novelty
    assert np.isclose(alone, places.novelty, atol=0.1).sum() >= len(store) // 2
    assert not np.allclose(alone, places.novelty, atol=0.1)


def test_the_graphs_of_a_run_are_judged_by_a_fit_that_has_not_seen_them():
    graphs = [*CHAINS, STRANGE]
    for seed in (0, 1, 2):
        model = graphlog.pretrain(graphs, schema="molecule", seed=seed, **SMALL)
        places = hierarchy_of(model, "it").assign(read(graphs, MOLECULE))
        assert places.novelty[-1] >= 96  # beyond all of its half


def test_the_shipped_model_has_its_prototypes_without_the_heads_of_its_training():
    hierarchy = hierarchy_of(graphlog.load("graphlog-mol"), "graphlog-mol")
    assert hierarchy.forest.depth == 3
    assert hierarchy.head is None


def test_prototypes_without_the_head_they_stand_behind_are_refused():
    model = pretrained("released")
    kept = {name: tensor for name, tensor in model.extra.items() if not name.startswith("head.")}
    with pytest.raises(ModelFileError, match="projection head"):
        Hierarchy.of(Encoder(model.network, model.layer, model.info, kept))


def test_heads_of_another_shape_do_not_keep_the_prototypes_from_being_read(trained: Encoder):
    other = {**trained.extra, "attributes.linear.weight": torch.zeros(3, 3)}
    again = Hierarchy.of(Encoder(trained.network, trained.layer, trained.info, other))
    np.testing.assert_array_equal(
        again.assign(chain_store()).paths, hierarchy_of(trained, "it").assign(chain_store()).paths
    )


def test_prototypes_fitted_twice_are_the_same():
    fitted = Hierarchy.fitted(tiny_encoder(), chain_store(), centers=8, depth=2)
    again = Hierarchy.fitted(tiny_encoder(), chain_store(), centers=8, depth=2)
    assert fitted.forest.depth == 2
    np.testing.assert_array_equal(
        fitted.assign(chain_store()).paths, again.assign(chain_store()).paths
    )
