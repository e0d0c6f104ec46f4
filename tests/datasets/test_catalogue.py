"""Every named data set: found, verified, with the rows, columns and labels it promises."""

import re
from pathlib import Path

import numpy as np
import pytest

from graphlog.api import read_molecules
from graphlog.datasets import BUNDLED as PACKAGED
from graphlog.datasets import DATASETS
from graphlog.domains import DOMAINS
from graphlog.domains.records import TableReading, details_of, hash_smiles
from graphlog.errors import DataError
from graphlog.inputs import fetch_dataset, resolve

MOLECULES = {name: spec for name, spec in DATASETS.items() if spec.domain == "molecule"}
BUNDLED = ("nci5k", "wehi10k", "chembl2321810")
LARGE = ("zinc2m", "zinc250k", "muv", "hiv", "toxcast", "qm8")


@pytest.mark.parametrize("spec", MOLECULES.values(), ids=lambda s: s.name)
def test_specs_are_complete(spec):
    assert DATASETS[spec.name] is spec
    assert re.fullmatch(r"[a-z][a-z0-9]*(-adme)?", spec.name)
    assert re.fullmatch(r"[0-9a-f]{64}", spec.sha256)
    assert all(re.fullmatch(r"[0-9a-f]{64}", h) for h in details_of(spec).sha256_smiles)
    is_two_files = "/adme/" in spec.path  # published as one file a fold
    assert (spec.url is None) == (spec.name in BUNDLED or is_two_files)
    assert spec.url is None or spec.url.startswith("https://")
    assert (spec.task is None) == (spec.metric is None) == (spec.num_tasks == 0)
    assert spec.num_tasks == len(spec.tasks) or not spec.tasks


MIRRORED = [
    pytest.param(name, marks=pytest.mark.slow if name in LARGE else ())
    for name in MOLECULES
    if name not in BUNDLED
]


@pytest.mark.parametrize("name", MIRRORED)
def test_a_data_set_of_the_mirror(name: str, mirror: Path):
    check(name)
    path = Path(DATASETS[name].path)
    assert fetch_dataset(name) in (mirror / path, PACKAGED / path.name)


@pytest.mark.parametrize("name", ["esol", *BUNDLED])
def test_a_data_set_that_comes_with_the_package_or_rdkit(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.delenv("GRAPHLOG_MIRROR", raising=False)
    if name in ("esol", "chembl2321810"):
        assert fetch_dataset(name, data_dir=tmp_path) == PACKAGED / f"{name}.csv.gz"
    check(name)


def check(name: str) -> None:
    spec = DATASETS[name]
    with DOMAINS["molecule"].open(resolve(name), TableReading()) as table:
        rows = list(table.rows)
    assert len(rows) == spec.rows
    assert not any(row.problem for row in rows)
    assert hash_smiles(row.record for row in rows) == details_of(spec).sha256_smiles[0]
    assert len(table.tasks) == spec.num_tasks
    assert tuple(table.tasks.values()) == spec.tasks or not spec.tasks


def test_labels_come_with_the_name(mirror: Path):
    store = read_molecules("clintox", limit=100)
    assert store.tasks == ("FDA_APPROVED", "CT_TOX")
    assert np.nansum(store.labels, axis=0).tolist() == [96, 4]
    assert read_molecules("clintox", targets=["CT_TOX"], limit=10).tasks == ("CT_TOX",)


def test_a_file_in_the_way_of_a_name_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("bbbp").write_text("CCO\n")
    with pytest.raises(DataError, match="cannot tell what kind of file"):
        read_molecules("bbbp")
