"""What a prediction rests on: node by node, with graphs whose label hangs on one kind of atom."""

import numpy as np
import pytest
import torch

from downstream_support import CHAINS, chain_store, classifier, tiny_encoder, tuned
from graphlog.data.graphs import FeatureSchema
from graphlog.data.split import Split
from graphlog.downstream.finetune import FinetuneConfig
from graphlog.downstream.predictor import Predictor
from graphlog.downstream.tasks import LabeledGraphs
from graphlog.errors import ConfigError
from graphlog.extras.explain import attribute
from graphlog.inputs import read


def test_contributions_are_changes_under_masking_one_node():
    predictor, store = classifier(), chain_store().subset(np.array([5, 0, 30]))
    found = attribute(predictor, store, 4)
    row = predictor.schema.node_mask
    for graph in range(3):
        whole = store[[graph]]
        expected: list[float] = []
        for node in range(whole.num_nodes):
            x = whole.x.clone()
            x[node] = torch.tensor(row, dtype=x.dtype)
            values: list[float] = []
            for member in predictor.members:
                with torch.no_grad():
                    plain, hidden = (
                        member.head.predictions(member(b))[0, 0]
                        for b in (whole, whole.with_attributes(x=x))
                    )
                values.append(float(plain - hidden))
            expected.append(float(np.mean(values)))
        np.testing.assert_allclose(found.of(graph)[:, 0], expected, atol=1e-5)
    expected_whole = predictor.predict([CHAINS[5], CHAINS[0], CHAINS[30]])
    np.testing.assert_allclose(found.predictions, expected_whole, atol=1e-5)


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_batches_do_not_matter(size: int, monkeypatch: pytest.MonkeyPatch):
    store = chain_store().subset(np.arange(12))
    expected = attribute(classifier(), store).values
    monkeypatch.setattr("graphlog.downstream.pretrained._NODES_AT_ONCE", 100)
    np.testing.assert_allclose(attribute(classifier(), store, size).values, expected, atol=1e-5)


def test_the_atoms_that_decide_the_label_stand_out():
    """The label is the number of oxygens per atom, which the mean readout can express."""
    draw = np.random.default_rng(0)
    smiles = ["".join(draw.choice(list("CCCNO"), size=draw.integers(4, 12))) for _ in range(240)]
    labels = np.array([[s.count("O") / len(s)] for s in smiles], dtype=np.float32)
    rows = np.arange(240)
    encoder, folds = tiny_encoder("jk"), Split(rows[:160], rows[160:200], rows[200:])
    store, names = read(smiles, encoder.schema), ("y",)
    data = LabeledGraphs("o", store, labels, names, "regression", "rmse", folds, "given")
    config = FinetuneConfig(epochs=10, precision="fp32", device="cpu")
    predictor = tuned(data, encoder, config=config, seeds=(0,))
    found = attribute(predictor, store.subset(rows[200:]))
    for graph, text in enumerate(smiles[200:]):
        is_oxygen = np.array([atom == "O" for atom in text])
        values = found.of(graph)[:, 0]
        if 0 < is_oxygen.sum() < len(text):
            assert values[is_oxygen].min() > values[~is_oxygen].max(), (text, values)


def test_a_store_without_graphs():
    found = attribute(classifier(), chain_store().subset(np.arange(0)))
    assert found.values.shape == (0, 1)


def test_a_schema_without_masks_is_refused(monkeypatch: pytest.MonkeyPatch):
    bare = FeatureSchema("bare", "graph", classifier().schema.node, (), "node")
    monkeypatch.setattr(Predictor, "schema", bare)
    with pytest.raises(ConfigError, match="stand for masked"):
        attribute(classifier(), chain_store())
