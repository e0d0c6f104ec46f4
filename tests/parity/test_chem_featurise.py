"""Codes of 300 SMILES equal those of the reference code; what it refused has a named code."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphlog.data.graphs import GraphChunk
from graphlog.domains.molecule import MOLECULE, featurize_smiles


@pytest.fixture(scope="module")
def recorded(golden: Path) -> dict[str, Any]:
    return dict(np.load(golden / "chem_featurise.npz"))


@pytest.fixture(scope="module")
def featurized(recorded: dict[str, Any]) -> tuple[GraphChunk, Any]:
    return featurize_smiles([str(s) for s in recorded["smiles"]], MOLECULE)


@pytest.fixture(scope="module")
def made(featurized: tuple[GraphChunk, Any]) -> dict[int, tuple[np.ndarray, ...]]:
    """Return x, edge_index and edge_attr by position, each bond as (begin, end), (end, begin)."""
    chunk, _ = featurized
    nodes = np.split(chunk.x, np.cumsum(chunk.node_counts)[:-1])
    ends = np.split(chunk.edge_index, np.cumsum(chunk.edge_counts)[:-1], axis=1)
    attributes = np.split(chunk.edge_attr, np.cumsum(chunk.edge_counts)[:-1])
    expanded = [np.stack([e, e[::-1]], axis=2).reshape(2, -1) for e in ends]
    return {
        int(row): (nodes[k], expanded[k], np.repeat(attributes[k], 2, axis=0))
        for k, row in enumerate(chunk.rows)
    }


def test_codes_are_exact(recorded: dict[str, Any], made: dict[int, Any]):
    fine = np.flatnonzero(recorded["error"] == "")
    assert len(fine) == 287
    for k in fine.tolist():
        (v, w), (e, f) = recorded["node_ptr"][k : k + 2], recorded["edge_ptr"][k : k + 2]
        wanted = (recorded["x"][v:w], recorded["edge_index"][:, e:f], recorded["edge_attr"][e:f])
        for ours, theirs in zip(made[k], wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs, err_msg=str(recorded["smiles"][k]))


def test_what_the_reference_refuses_goes_through_with_a_named_code(
    recorded: dict[str, Any], made: dict[int, Any]
):
    refused = np.flatnonzero(recorded["error"] == "ValueError").tolist()
    assert len(refused) == 8
    for k in refused:
        x, _, edge_attr = made[k]
        named = (x[:, 0] == 118).any() or (x[:, 1] == 3).any() or (edge_attr[:, 0] == 6).any()
        assert named, recorded["smiles"][k]


def test_what_rdkit_refuses_is_rejected_with_a_reason(
    recorded: dict[str, Any], featurized: tuple[GraphChunk, Any], made: dict[int, Any]
):
    _, rejects = featurized
    refused = np.isin(recorded["error"], ["MolFromSmiles:None", "empty"])
    expected = set(np.flatnonzero(refused).tolist())
    assert {position for position, _ in rejects} == expected
    assert expected.isdisjoint(made)
    for position, reason in rejects:
        if recorded["error"][position] == "empty":
            assert reason == "empty"
        else:
            assert reason.startswith("RDKit cannot parse: ")
