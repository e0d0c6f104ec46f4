"""Losses, prototypes and mask sizes against numbers recorded from the authors' script."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from graphlog.objectives.losses import PairLoss, graph_loss, prototype_cross_entropy, subgraph_loss
from graphlog.prototypes import PrototypeForest, compete, greedy_chains, moving_average_pass
from graphlog.views.augment import num_masked

each_precision = pytest.mark.parametrize(
    ("suffix", "dtype", "tolerance"), [("f32", torch.float32, 1e-5), ("f64", torch.float64, 1e-10)]
)
each_temperature = pytest.mark.parametrize("k", range(3))
EPS = 1e-6


def load(golden: Path, name: str) -> dict[str, np.ndarray]:
    return dict(np.load(golden / f"graphlog_{name}.npz"))


def close(found: Tensor, wanted: np.ndarray, tolerance: float) -> bool:
    gap = found.detach().double() - torch.from_numpy(np.asarray(wanted)).double()
    return float(gap.abs().max()) <= tolerance


def leaves(values: dict[str, np.ndarray], dtype: torch.dtype, *names: str) -> list[Tensor]:
    return [torch.from_numpy(values[n]).to(dtype).requires_grad_() for n in names]


def node_ranges(values: dict[str, np.ndarray]) -> Tensor:
    return torch.from_numpy(np.concatenate([[0], np.bincount(values["batch"]).cumsum()]))


def subgraph(
    z: dict[str, np.ndarray], nodes: Tensor, views: Tensor, k: int, positive: str
) -> PairLoss:
    """The released form of the subgraph loss at the ``k``-th recorded temperature."""
    masked = torch.from_numpy(z["masked_node_indices"]).long()
    how = {"form": "infonce", "anchors": "masked", "positive": positive, "eps": EPS}
    tau = float(z["tau"][k])
    return subgraph_loss(nodes, views, node_ranges(z), masked, temperature=tau, **how)


@each_precision
@each_temperature
def test_subgraph_loss_and_gradients(
    golden: Path, suffix: str, dtype: torch.dtype, tolerance: float, k: int
):
    z = load(golden, "local_losses")
    nodes, views = leaves(z, dtype, "node_reps", "node_modify_reps")
    found = subgraph(z, nodes, views, k, "masked")
    found.loss.backward()
    assert close(found.loss, z[f"intra_loss_{suffix}"][k], tolerance)
    assert close(nodes.grad, z[f"intra_grad_node_reps_{suffix}"][k], tolerance)
    assert close(views.grad, z[f"intra_grad_node_modify_reps_{suffix}"][k], tolerance)
    of_itself = subgraph(z, nodes, views, k, "own").loss
    assert close(of_itself, z["intra_loss_own_node_positive_f64"][k], tolerance)


@each_precision
@each_temperature
def test_graph_loss_and_gradients(
    golden: Path, suffix: str, dtype: torch.dtype, tolerance: float, k: int
):
    z = load(golden, "local_losses")
    graphs, views = leaves(z, dtype, "graph_reps", "graph_modify_reps")
    found = graph_loss(graphs, views, form="infonce", temperature=float(z["tau"][k]), eps=EPS)
    found.loss.backward()
    assert close(found.loss, z[f"inter_loss_{suffix}"][k], tolerance)
    assert close(graphs.grad, z[f"inter_grad_graph_reps_{suffix}"][k], tolerance)
    assert close(views.grad, z[f"inter_grad_graph_modify_reps_{suffix}"][k], tolerance)


@each_precision
@each_temperature
def test_prototype_loss_chains_and_gradients(
    golden: Path, suffix: str, dtype: torch.dtype, tolerance: float, k: int
):
    z = load(golden, "proto_loss")
    names = ("top", "middle", "bottom")
    graphs, *layers = leaves(z, dtype, "graph_reps", *(f"proto_{n}" for n in names))
    parents = [
        torch.from_numpy(z[c]).long()
        for c in ("connection_middle_to_top", "connection_bottom_to_middle")
    ]
    forest = PrototypeForest(layers, parents)
    chains = greedy_chains(graphs, forest, EPS)
    assert torch.equal(chains, torch.from_numpy(z["chain_top_middle_bottom"]).long())
    loss = prototype_cross_entropy(
        graphs, chains, forest, temperature=float(z["tau"][k]), candidates="siblings", eps=EPS
    )
    loss.backward()
    assert close(loss, z[f"proto_loss_{suffix}"][k], tolerance)
    assert close(graphs.grad, z[f"grad_graph_reps_{suffix}"][k], tolerance)
    for layer, name in zip(layers, names, strict=True):
        assert close(layer.grad, z[f"grad_proto_{name}_{suffix}"][k], tolerance)


@pytest.mark.parametrize("depth", [1, 2])
def test_prototype_loss_of_shallower_forests(golden: Path, depth: int):
    z = load(golden, "proto_loss")
    layers = [torch.from_numpy(z[f"proto_{n}"]).double() for n in ("middle", "bottom")][-depth:]
    parents = [torch.from_numpy(z["connection_bottom_to_middle"]).long()][: depth - 1]
    forest = PrototypeForest(layers, parents)
    graphs = torch.from_numpy(z["graph_reps"]).double()
    chains = greedy_chains(graphs, forest, EPS)
    for tau, wanted in zip(z["tau"], z[f"proto_loss_depth{depth}_f64"], strict=True):
        loss = prototype_cross_entropy(
            graphs, chains, forest, temperature=float(tau), candidates="siblings", eps=EPS
        )
        assert close(loss, wanted, 1e-10)


@pytest.mark.parametrize("case", ["positive", "signed"])
def test_initial_prototypes(golden: Path, case: str):
    recorded = load(golden, "proto_init")
    decay = float(recorded["decay_ratio"])
    z = {k.removeprefix(f"{case}/"): v for k, v in recorded.items()}
    initial, batches = torch.from_numpy(z["initial"]), list(torch.from_numpy(z["batches"]))
    prototypes, counts = initial[0], torch.zeros(10, dtype=torch.long)
    for k in range(5):
        prototypes, counts = moving_average_pass(batches, prototypes, counts, decay)
        assert close(prototypes, z["bottom_after_each_pass"][k], 1e-5)
        assert counts.tolist() == z["bottom_counts_after_each_pass"][k].tolist()
    points = prototypes[counts >= 2]
    assert close(points, z["bottom_selected"], 1e-5)
    for level in (2, 3):
        points, parent = compete(points, initial[level - 1], decay)
        assert close(points, z[f"level{level}_prototypes"], 1e-5)
        assert parent.tolist() == z[f"level{level}_connection"].tolist()


def test_number_of_masked_nodes(golden: Path):
    z = load(golden, "mask_size")
    for rate, wanted in zip(z["rate"], z["num_masked"], strict=True):
        assert num_masked(torch.from_numpy(z["num_nodes"]), float(rate)).tolist() == wanted.tolist()
