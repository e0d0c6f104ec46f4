"""What views of graphs hold against what was recorded from the published transforms."""

from pathlib import Path

import numpy as np
import pytest
import torch

from encoder_support import golden_batch, seeded
from graphlog.data.store import GraphBatch
from graphlog.domains.molecule import MOLECULE
from graphlog.encoders.legacy import PROTEIN
from graphlog.inputs import read
from graphlog.objectives.base import evidence_channels
from graphlog.ops.sparse import segment_sum
from graphlog.views.augment import mask_edges_around
from graphlog.views.sampling import edge_pairs, induced_part, non_edges, rings


@pytest.fixture(scope="module")
def chem(golden: Path) -> dict[str, np.ndarray]:
    return dict(np.load(golden / "chem_pretext.npz"))


@pytest.fixture(scope="module")
def bio(golden: Path) -> dict[str, np.ndarray]:
    return dict(np.load(golden / "bio_pretext.npz"))


@pytest.fixture(scope="module")
def molecules(chem: dict[str, np.ndarray]) -> GraphBatch:
    return read(map(str, chem["smiles"]), MOLECULE, on_error="fail")[:]


def _sizes(batch: GraphBatch, nodes: torch.Tensor) -> tuple[list[int], list[int]]:
    """Return the nodes and directed edges of the subgraph that some nodes of each graph induce."""
    part = induced_part(batch, nodes)[0]
    edges = torch.bincount(part.batch[part.edge_index[0]], minlength=batch.num_graphs)
    return part.sizes.tolist(), edges.tolist()


def test_substructures_and_contexts_of_molecules(
    chem: dict[str, np.ndarray], molecules: GraphBatch
):
    rows = chem["context_k5_l4_l7"].astype(np.int64)
    kinds = molecules.x[:, 0]
    for turn in range(3):  # several roots were recorded for every molecule
        mine = np.stack([rows[rows[:, 0] == mol][turn] for mol in range(molecules.num_graphs)])
        roots = molecules.ptr[:-1] + torch.from_numpy(mine[:, 1])
        substructure, context = rings(molecules, roots, hops=5, inner=4, outer=7)
        found = {"center_atomidx": kinds[roots].tolist()}
        parts = {"substruct": substructure, "context": context, "overlap": substructure & context}
        for name, nodes in parts.items():
            found[f"{name}_nodes"], found[f"{name}_edges"] = _sizes(molecules, nodes)
            found[f"{name}_atomidx_sum"] = segment_sum(
                (kinds * nodes).float(), molecules.ptr
            ).tolist()
        del found["overlap_edges"]  # not recorded
        columns = chem["context_columns"].tolist()
        # without a context the recorded transform leaves context and overlap out
        has_context = mine[:, columns.index("has_context")] == 1
        assert (np.array(found["context_nodes"]) > 0).tolist() == has_context.tolist()
        for name, values in found.items():
            assert (
                np.array(values)[has_context].tolist()
                == mine[has_context, columns.index(name)].tolist()
            ), name
            if name.startswith(("substruct", "center")):
                assert values == mine[:, columns.index(name)].tolist(), name


def test_number_of_negative_pairs(chem: dict[str, np.ndarray], molecules: GraphBatch):
    _, num_nodes, num_directed, num_negative = chem["negative_edge"].T
    assert molecules.sizes.tolist() == num_nodes.tolist()
    pairs = edge_pairs(molecules)
    counts = torch.bincount(molecules.batch[pairs[0]], minlength=molecules.num_graphs)
    assert (2 * counts).tolist() == num_directed.tolist()
    graph = molecules.batch[non_edges(molecules, counts, seeded())[0]]
    assert torch.bincount(graph, minlength=molecules.num_graphs).tolist() == num_negative.tolist()


def test_masked_atoms_and_the_bonds_around_them(chem: dict[str, np.ndarray], molecules: GraphBatch):
    graph = np.repeat(np.arange(molecules.num_graphs), np.diff(chem["mask_atom_ptr"]))
    nodes = (
        torch.from_numpy(chem["mask_atom_indices"].astype(np.int64))
        + molecules.ptr[:-1][torch.from_numpy(graph)]
    )
    assert molecules.x[nodes].tolist() == chem["mask_node_label"].tolist()
    x = molecules.x.clone()
    x[nodes] = torch.tensor([119, 0])
    assert x.tolist() == chem["masked_x"].tolist()
    masked, edge_idx = mask_edges_around(molecules, MOLECULE, nodes)
    assert masked.edge_attr.tolist() == chem["masked_edge_attr"].tolist()
    owner = np.repeat(np.arange(molecules.num_graphs), np.diff(chem["mask_edge_ptr"]))
    starts = torch.from_numpy(chem["masked_edge_attr_ptr"].astype(np.int64))[:-1]
    recorded = (
        torch.from_numpy(chem["connected_edge_indices"].astype(np.int64))
        + starts[torch.from_numpy(owner)]
    )
    assert sorted(set(recorded.tolist())) == [e for e in edge_idx.tolist() if e % 2 == 0]
    assert molecules.edge_attr[recorded].tolist() == chem["mask_edge_label"].tolist()


def test_contexts_of_ego_networks(golden: Path, bio: dict[str, np.ndarray]):
    batch = golden_batch(golden, "bio")
    columns = bio["context_columns"].tolist()
    rows = bio["context_l1_1_center"].astype(np.int64)
    roots = batch.ptr[:-1] + torch.from_numpy(rows[:, columns.index("center")])
    substructure, context = rings(batch, roots, hops=0, inner=1, outer=0)
    assert batch.sizes.tolist() == rows[:, columns.index("num_nodes")].tolist()
    assert (substructure & context).equal(context)
    for name, nodes in (("substruct", substructure), ("context", context)):
        sizes, edges = _sizes(batch, nodes)
        assert sizes == rows[:, columns.index(f"{name}_nodes")].tolist()
        assert edges == rows[:, columns.index(f"{name}_edges")].tolist()
    assert _sizes(batch, context)[0] == rows[:, columns.index("overlap_nodes")].tolist()


def test_the_answer_of_a_masked_edge_is_its_first_channel(golden: Path, bio: dict[str, np.ndarray]):
    channels = list(evidence_channels(PROTEIN))
    assert channels == list(range(7))
    labels = torch.from_numpy(bio["mask_edge_label"].astype(np.float32))
    assert labels[:, channels].argmax(dim=1).tolist() == bio["edge_type_target_argmax"].tolist()
    batch = golden_batch(golden, "bio")
    number = int(bio["mask_graph"])
    with np.load(golden / "bio_batch.npz") as arrays:
        clean = torch.from_numpy(arrays["edge_attr_unmasked"].astype(np.float32))
    first = int((batch.batch[batch.edge_index[0]] < number).sum())
    edges = first + torch.from_numpy(bio["masked_edge_idx"].astype(np.int64))
    assert clean[edges].tolist() == labels.tolist()
    after = clean[first : first + bio["edge_attr_after"].shape[0]].clone()
    assert len(edges) == int(0.15 * (len(after) // 2) + 1)
    after[torch.cat([edges, edges + 1]) - first] = torch.tensor(PROTEIN.edge_mask)
    assert after.tolist() == bio["edge_attr_after"].tolist()
