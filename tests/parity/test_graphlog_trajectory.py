"""Six optimizer steps of the ``released`` recipe against those recorded from the authors' script.

The recording is in float32, so how far two correct runs may part is a matter of float32 arithmetic,
and is computed here rather than chosen: the steps are taken in float64 from weights moved by the
rounding error of a float32 sum of as many terms as the widest layer has (see :func:`tolerance`).
The first step is then fixed to 6e-6. From the second on one rectifier decides: in the masked view
of the first step unit 32 after the second layer stands at -1.7e-6 on nodes 11 and 12, which is
within rounding: it is closed here, and open in the recording. Adam's first step is the gradient's
sign, so the losses part by 0.2 per cent. With that unit open the deviation falls more than tenfold
in the three steps that follow, which is what the second test shows.
"""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from encoder_support import golden_batch, golden_encoder
from graphlog.data.store import GraphBatch
from graphlog.encoders.encoder import GraphEncoder
from graphlog.objectives.graphlog import GraphLoG, GraphLoGViews
from graphlog.prototypes import PrototypeForest
from graphlog.views.augment import MaskedView

SUM = 128
"""Terms of the longest sums in a forward pass: the hidden width of the layers' MLPs."""
UNIT_ROUNDOFF = 2.0**-24
TERMS = ("subgraph", "graph", "global")
MASKED_VIEW, NODES, UNIT, OPEN = 1, [11, 12], 32, 2e-6


def released_objective(encoder: GraphEncoder, z: dict[str, np.ndarray]) -> GraphLoG:
    config = GraphLoG.Config.parse(GraphLoG.RECIPES["released"]["objective"])
    objective = GraphLoG(config, encoder)
    head = {
        k.removeprefix("proj/proj."): torch.from_numpy(v)
        for k, v in z.items()
        if k.startswith("proj/")
    }
    objective.head.load_state_dict(head)
    return objective


def views_of_step(objective: GraphLoG, batch: GraphBatch, masked_idx: Tensor) -> GraphLoGViews:
    x = batch.x.clone()
    x[masked_idx] = torch.tensor([119, 0])
    return GraphLoGViews(
        batch, MaskedView(batch.with_attributes(x=x), masked_idx, masked_idx.new_empty(0), batch)
    )


def follow(
    golden: Path,
    z: dict[str, np.ndarray],
    dtype: torch.dtype = torch.float64,
    prepare: Callable[[GraphLoG, GraphEncoder], None] | None = None,
) -> tuple[np.ndarray, GraphLoG, GraphEncoder, np.ndarray]:
    """Return the losses of six steps, what was trained, and the node table before."""
    batch = golden_batch(golden, "chem")
    batch = batch.with_attributes(x=torch.from_numpy(z["clean_x"].astype(np.int64)))
    encoder = golden_encoder(np.load(golden / "chem_encoder_gin_3x64_random.npz")).train()
    objective = released_objective(encoder, z)
    encoder.to(dtype)
    objective.to(dtype)
    if prepare is not None:
        prepare(objective, encoder)
    start = encoder.node.weight.detach()[:120].clone().numpy()
    generator = torch.Generator().manual_seed(0)
    losses = []
    for step in range(6):
        if step == 3:
            parents = [
                torch.from_numpy(z[c]).long()
                for c in ("connection_middle_to_top", "connection_bottom_to_middle")
            ]
            vectors = [torch.from_numpy(z[f"proto{k}"]).to(dtype) for k in (2, 1, 0)]
            objective.set_forest(PrototypeForest(vectors, parents))
        if step in (0, 3):
            optimizer = torch.optim.Adam(
                [*encoder.parameters(), *objective.parameters()], lr=float(z["lr"])
            )
        masked = torch.from_numpy(z["masked_node_indices"][step]).long()
        result = objective.loss(views_of_step(objective, batch, masked), encoder, generator)
        optimizer.zero_grad()
        result.total.backward()
        optimizer.step()
        terms = [result.terms[name].item() if name in result.terms else 0.0 for name in TERMS]
        losses.append([*terms, result.total.item()])
    return np.array(losses), objective, encoder, start


def deviation(losses: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Relative deviation of every loss; 0 where both are 0, as the global term before step 4."""
    return np.abs(losses - reference) / np.where(reference == 0, 1.0, np.abs(reference))


def tolerance(golden: Path, z: dict[str, np.ndarray]) -> np.ndarray:
    r"""Twice the largest deviation of 5 float64 runs from weights within rounding of each other.

    A float32 sum of ``n`` terms errs by about :math:`\sqrt n` unit roundoffs, so every weight is
    moved by a normal deviate of that size.
    """

    def moved(seed: int) -> Callable[[GraphLoG, GraphEncoder], None]:
        def move(objective: GraphLoG, encoder: GraphEncoder) -> None:
            generator = torch.Generator().manual_seed(seed)
            with torch.no_grad():
                for p in [*encoder.parameters(), *objective.parameters()]:
                    deviate = torch.randn(p.shape, generator=generator, dtype=p.dtype)
                    p.mul_(1 + math.sqrt(SUM) * UNIT_ROUNDOFF * deviate)

        return move

    exact = follow(golden, z)[0]
    runs = [deviation(follow(golden, z, prepare=moved(seed))[0], exact) for seed in range(5)]
    return 2 * np.max(runs, axis=0)


def open_the_unit(_: GraphLoG, encoder: GraphEncoder) -> None:
    """Lift the undecided unit above 0 in the masked view of the first step, by less than 4e-6."""
    passes = []

    def lift(module: torch.nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        passes.append(output.shape)
        if len(passes) != 1 + MASKED_VIEW:
            return output
        assert output[NODES, UNIT].abs().max() < OPEN
        raised = torch.zeros_like(output)
        raised[NODES, UNIT] = 2 * OPEN
        return output + raised

    encoder.config = encoder.config.updated({"sharing": "off"})  # a row a node, for `lift`
    encoder.norms[1].register_forward_hook(lift)


@pytest.fixture(scope="module")
def recorded(golden: Path) -> dict[str, np.ndarray]:
    return dict(np.load(golden / "graphlog_trajectory.npz"))


@pytest.fixture(scope="module")
def allowed(golden: Path, recorded: dict[str, np.ndarray]) -> np.ndarray:
    return tolerance(golden, recorded)


def test_six_steps(golden: Path, recorded: dict[str, np.ndarray], allowed: np.ndarray):
    losses, objective, encoder, start = follow(golden, recorded, torch.float32)
    assert (deviation(losses, recorded["losses_intra_inter_proto_total"]) <= allowed).all()
    assert allowed[0].max() < 1e-5
    weights = [getattr(objective.config, f"{name}_weight") for name in TERMS]
    assert weights == list(recorded["weights_alpha_beta_gamma"])
    compare_final(objective, encoder, recorded, start)


@pytest.mark.parametrize(
    "change",
    [{"temperature": 0.041}, {"subgraph_positive": "own"}, {"prototype_candidates": "layer"}],
)
def test_other_settings_are_outside_the_tolerance(
    golden: Path, recorded: dict[str, np.ndarray], allowed: np.ndarray, change: dict[str, float]
):
    def alter(objective: GraphLoG, _: GraphEncoder) -> None:
        objective.config = objective.config.updated(change)

    losses = follow(golden, recorded, prepare=alter)[0]
    assert (deviation(losses, recorded["losses_intra_inter_proto_total"]) > allowed).any()


def test_what_parts_the_paths_is_one_undecided_unit(golden: Path, recorded: dict[str, np.ndarray]):
    wanted = recorded["losses_intra_inter_proto_total"]
    closed = deviation(follow(golden, recorded)[0], wanted)
    losses, objective, encoder, start = follow(golden, recorded, prepare=open_the_unit)
    opened = deviation(losses, wanted)
    assert (opened[1:4, :2] < 0.1 * closed[1:4, :2]).all()
    compare_final(objective, encoder, recorded, start)


def compare_final(
    objective: GraphLoG, encoder: GraphEncoder, z: dict[str, np.ndarray], start: np.ndarray
) -> None:
    """The same weights have moved, by as much, and nearly the same way."""
    ours, theirs = (
        encoder.node.weight.detach()[:120].numpy() - start,
        z["final/x_embedding1.weight"] - start,
    )
    assert np.array_equal(np.abs(ours).max(axis=1) > 0, np.abs(theirs).max(axis=1) > 0)
    assert np.corrcoef(ours.ravel(), theirs.ravel())[0, 1] > 0.95
    for k in range(3):
        ours, theirs = (
            p - z[f"proto{k}"]
            for p in (objective.prototypes[2 - k].detach().numpy(), z[f"final_proto{k}"])
        )
        assert np.corrcoef(ours.ravel(), theirs.ravel())[0, 1] > 0.97
        assert np.abs(ours).max() == pytest.approx(np.abs(theirs).max(), rel=1e-3)
    for name, ours in (
        ("mean", encoder.norms[2].running_mean),
        ("var", encoder.norms[2].running_var),
    ):
        theirs = z[f"final/batch_norms.2.running_{name}"]
        assert np.abs(ours.numpy() - theirs).max() < 0.03 * np.abs(theirs).max()
