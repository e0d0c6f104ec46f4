"""Scaffolds and scaffold splits of the eight classification sets equal the reference code's."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rdkit import Chem

from graphlog.api import read_molecules
from graphlog.data.split import Split
from graphlog.data.tables import open_table
from graphlog.datasets import DATASETS
from graphlog.domains import DOMAINS
from graphlog.domains.molecule.scaffolds import scaffold_split, scaffolds
from graphlog.domains.records import TableReading, details_of
from graphlog.inputs import resolve


def sha256(indices: "np.ndarray") -> str:
    return hashlib.sha256(",".join(map(str, indices.tolist())).encode()).hexdigest()


def check(split: Split, expected: dict[str, dict[str, object]]) -> None:
    for part in split._fields:
        indices = getattr(split, part)
        assert len(indices) == expected[part]["n"]
        assert indices[:20].tolist() == expected[part]["first20"]
        assert sha256(indices) == expected[part]["sha256"]
        assert sha256(np.sort(indices)) == expected[part]["sorted_sha256"]


def kept_smiles(smiles: list[str], expected: dict[str, Any]) -> list[str]:
    """Return the SMILES that the reference kept; its loader may drop unparsable rows first."""
    unparsable = set(expected["rows_not_parsed_by_rdkit"])
    raising = {row for row, _ in expected["rows_whose_featurisation_raises"]}
    if expected["reference_checks_for_none"]:
        return [s for row, s in enumerate(smiles) if row not in unparsable | raising]
    parsed = [s for row, s in enumerate(smiles) if row not in unparsable]
    return [s for row, s in enumerate(parsed) if row not in raising]


LARGE = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("sider", "tox21", "toxcast", "hiv", "muv")
]


@pytest.fixture(scope="module")
def splits(golden: Path) -> dict[str, Any]:
    return json.loads((golden / "moleculenet_scaffold_split.json").read_text())


@pytest.fixture(scope="module")
def small(golden: Path) -> dict[str, Any]:
    recorded = dict(np.load(golden / "chem_split_small.npz"))
    return recorded | {"smiles": [str(s) for s in recorded["smiles"]]}


@pytest.mark.parametrize("name", ["bbbp", "clintox", "bace", *LARGE])
def test_scaffold_split_of_a_data_set(name: str, splits: dict[str, Any]):
    expected, canonical = splits[f"{name}@downstream"], details_of(DATASETS[name]).canonical_split
    assert canonical == (expected["smiles_used"] == "RDKit canonical SMILES")
    with DOMAINS["molecule"].open(resolve(name), TableReading()) as table:
        smiles = kept_smiles([row.record for row in table.rows], expected)
    check(scaffold_split(smiles, canonical=canonical), expected)


@pytest.mark.parametrize(("name", "file"), [("bbbp", "BBBP"), ("clintox", "clintox")])
def test_scaffold_split_of_a_file_as_published(
    name: str, file: str, splits: dict[str, Any], mirror: Path
):
    expected = splits[f"{name}@raw"]
    with open_table(mirror / "chem" / "raw" / f"{file}.csv.gz") as table:
        smiles = kept_smiles([row.record for row in table.rows], expected)
    check(scaffold_split(smiles, canonical=True), expected)


def test_labels_of_a_data_set_are_the_recorded_ones(splits: dict[str, Any]):
    expected = splits["tox21@downstream"]
    store = read_molecules("tox21", workers=1, keep_texts=False)
    signs = np.where(store.labels == 0, -1, store.labels)
    labels = np.where(np.isnan(signs), 0, signs).astype(np.int8)
    assert hashlib.sha256(labels.tobytes()).hexdigest() == expected["labels_int8_sha256"]
    assert store.num_rows - len(store) == len(expected["rows_not_parsed_by_rdkit"])


def test_scaffolds_are_the_recorded_ones(small: dict[str, Any]):
    # as this RDKit writes them: another may turn a double bond's marks round
    recorded = [Chem.CanonSmiles(str(s)) for s in small["scaffold"]]
    assert [Chem.CanonSmiles(s) for s in scaffolds(small["smiles"])] == recorded


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("{}_80", {"fractions": (0.8, 0.1, 0.1)}),
        ("{}_70", {"fractions": (0.7, 0.15, 0.15)}),
        ("random_{}_seed0", {"kind": "random", "seed": 0}),
        ("random_{}_seed42", {"kind": "random", "seed": 42}),
    ],
)
def test_small_split_is_the_recorded_one(key: str, options: Any, small: dict[str, Any]):
    for part, indices in scaffold_split(small["smiles"], **options)._asdict().items():
        assert indices.tolist() == small[key.format(part)].tolist()


def test_groups_do_not_depend_on_the_number_of_workers(
    small: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("graphlog.data.workers._TEXTS_A_PIECE", 50)
    one, two = (np.concatenate(scaffold_split(small["smiles"], workers=n)) for n in (1, 2))
    np.testing.assert_array_equal(one, two)
