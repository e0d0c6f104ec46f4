"""Six optimiser steps of the ``released`` recipe against those recorded from the authors' script, in float32.

The first step agrees to rounding; from the second on the two paths part, by 0.2 per cent there, and the reason is one rectifier. In
the masked view of the first step unit 32 after the second layer stands at -1.7e-6 on nodes 11 and 12, where rounding of float32
decides its sign: closed with us, open in the recording. The loss does not feel it, its gradient does by up to 1 per cent, and Adam's
first step is the gradient's sign. With that unit open, and everything else in float64, four steps agree to 1e-4, tighter than the
recording promises, and the prototypes at the end within its 1e-3. The new Adam of the fourth step makes steps of 1e-3 of what is left.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from graphlog.data.batch import GraphBatch
from graphlog.encoders.encoder import GraphEncoder
from graphlog.encoders.legacy import encoder_from_weights
from graphlog.objectives.graphlog import GraphLoG, GraphLoGViews
from graphlog.prototypes import PrototypeForest
from graphlog.views.masking import MaskedView

NEAR = (1e-5, 3e-3, 1e-2, 3e-2, 3e-2, 6e-2)
"""Largest relative difference of any loss, step by step, as we round."""
NEAR_WITH_THE_UNIT_OPEN = (1e-5, 1e-4, 1e-4, 1e-4, 5e-3, 1e-2)
"""The same, where the one undecided unit is as the recording had it."""
MASKED_VIEW, NODES, UNIT, OPEN = 1, [11, 12], 32, 2e-6


def recorded_batch(golden: Path, clean_x: np.ndarray) -> GraphBatch:
    z = np.load(golden / "chem_batch.npz")
    batch = torch.from_numpy(z["batch"]).long()
    ptr = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(batch).cumsum(0)])
    x, edge_index, edge_attr = (
        torch.from_numpy(a.astype(np.int64)) for a in (clean_x, z["edge_index"], z["edge_attr"])
    )
    return GraphBatch(x, edge_index, edge_attr, batch, ptr)


def recorded_encoder(golden: Path) -> GraphEncoder:
    z = np.load(golden / "chem_encoder_gin_3x64_random.npz")
    weights = {
        k.removeprefix("weight/"): torch.from_numpy(z[k])
        for k in z.files
        if k.startswith("weight/")
    }
    return encoder_from_weights(weights, "gin").train()


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
        batch, MaskedView(batch.with_attributes(x=x), masked_idx, masked_idx.new_empty(0))
    )


def follow(
    golden: Path, z: dict[str, np.ndarray], near: tuple[float, ...], double: bool = False
) -> tuple[GraphLoG, GraphEncoder, np.ndarray]:
    """Take the six steps, compare every loss, and return what was trained, and the node embeddings' rows before."""
    batch, encoder = recorded_batch(golden, z["clean_x"]), recorded_encoder(golden)
    objective = released_objective(encoder, z)
    if double:
        encoder.double()
        objective.double()
        open_the_unit(encoder)
    start = encoder.node.weight.detach()[:120].clone().numpy()
    generator = torch.Generator().manual_seed(0)
    for step in range(6):
        if step == 3:
            parents = [
                torch.from_numpy(z[c]).long()
                for c in ("connection_middle_to_top", "connection_bottom_to_middle")
            ]
            vectors = [
                torch.from_numpy(z[f"proto{k}"]).to(encoder.node.weight.dtype) for k in (2, 1, 0)
            ]
            objective.set_forest(PrototypeForest(vectors, parents))
        if step in (0, 3):
            optimiser = torch.optim.Adam(
                [*encoder.parameters(), *objective.parameters()], lr=float(z["lr"])
            )
        masked = torch.from_numpy(z["masked_node_indices"][step]).long()
        found = objective.loss(views_of_step(objective, batch, masked), encoder, generator)
        optimiser.zero_grad()
        found.total.backward()
        optimiser.step()
        terms = [
            found.terms[n].item() if n in found.terms else 0.0
            for n in ("subgraph", "graph", "global")
        ]
        wanted = z["losses_intra_inter_proto_total"][step]
        assert np.allclose([*terms, found.total.item()], wanted, rtol=near[step], atol=0), step
    return objective, encoder, start


def open_the_unit(encoder: GraphEncoder) -> None:
    """Lift the undecided unit above 0 in the masked view of the first step; that is by less than 4e-6, of values around 1."""
    passes = []

    def lift(module: torch.nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        passes.append(output.shape)
        if len(passes) != 1 + MASKED_VIEW:
            return output
        assert output[NODES, UNIT].abs().max() < OPEN
        raised = torch.zeros_like(output)
        raised[NODES, UNIT] = 2 * OPEN
        return output + raised

    encoder.norms[1].register_forward_hook(lift)


def test_six_steps(golden: Path) -> None:
    z = dict(np.load(golden / "graphlog_trajectory.npz"))
    objective, encoder, start = follow(golden, z, NEAR)
    weights = [
        objective.config.subgraph_weight,
        objective.config.graph_weight,
        objective.config.global_weight,
    ]
    assert weights == list(z["weights_alpha_beta_gamma"])
    compare_final(objective, encoder, z, start)


def test_what_parts_the_paths_is_one_undecided_unit(golden: Path) -> None:
    z = dict(np.load(golden / "graphlog_trajectory.npz"))
    objective, encoder, start = follow(golden, z, NEAR_WITH_THE_UNIT_OPEN, double=True)
    compare_final(objective, encoder, z, start)
    for k in range(3):
        assert (
            np.abs(objective.prototypes[2 - k].detach().numpy() - z[f"final_proto{k}"]).max() < 1e-3
        )


def compare_final(
    objective: GraphLoG, encoder: GraphEncoder, z: dict[str, np.ndarray], start: np.ndarray
) -> None:
    """The same weights have moved, by as much, and nearly the same way; the running statistics are those of twelve passes."""
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
