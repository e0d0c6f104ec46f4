"""Named sets of ego-networks: made once, whoever asks first; opened, not made, after that."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from graphlog.api import read_proteins
from graphlog.datasets import DATASETS
from graphlog.domains import schema_named
from graphlog.domains.protein import reading
from graphlog.domains.protein.reading import first_of_each_species, open_named_proteins, parts
from graphlog.downstream.tasks import open_labeled, split_file
from graphlog.errors import ConfigError, DataError
from graphlog.inputs import fetch_dataset, read_streamed
from graphlog.report.describe import describe_dataset
from protein_support import clustered_links, write

HUMAN = "mirror/bio/string/9606.protein.links.detailed.v12.0.txt.gz"


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """A mirror with one small network under the name of human's, and how often it was cut."""
    (tmp_path / HUMAN).parent.mkdir(parents=True)
    write(tmp_path / HUMAN, clustered_links(2, 5, "9606"))
    monkeypatch.setenv("GRAPHLOG_MIRROR", str(tmp_path / "mirror"))
    monkeypatch.setenv("GRAPHLOG_DATA", str(tmp_path / "root"))
    calls: list[int] = []
    whole = reading.read_proteins

    def counting(*given, **named):
        calls.append(1)
        return whole(*given, **named)

    monkeypatch.setattr(reading, "read_proteins", counting)
    return lambda: len(calls)


def test_a_store_is_made_once_by_however_many_at_a_time(counted: Callable[[], int]) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: open_named_proteins("string-9606"), range(4)))
    assert counted() == 1
    assert {store.digest for store in found} == {found[0].digest}
    assert len(found[0]) == 10
    assert open_named_proteins("string-9606").path == found[0].path


def test_a_damaged_store_is_made_again(counted: Callable[[], int]) -> None:
    path = open_named_proteins("string-9606").path
    (path / "endpoints.bin").write_bytes(b"")
    assert len(open_named_proteins("string-9606")[:].ptr) == 11
    assert counted() == 2


def test_another_input_makes_another_store(counted: Callable[[], int], tmp_path: Path) -> None:
    first = open_named_proteins("string-9606").path
    write(tmp_path / HUMAN, clustered_links(3, 5, "9606"))
    second = open_named_proteins("string-9606")
    assert second.path != first
    assert len(second) == 15


def test_options_of_a_named_network_and_of_a_labeled_set(counted: Callable[[], int]) -> None:
    wide = read_proteins("string-9606", radius=3, limit=2)
    assert wide.num_nodes.min() > read_proteins("string-9606", limit=2).num_nodes.min()
    with pytest.raises(ConfigError, match="is cut and labeled is fixed"):
        read_proteins("worm-go40", radius=2)
    with pytest.raises(ConfigError, match="`smiles_column` is for molecules"):
        read_proteins("string-9606", smiles_column="smiles")
    with pytest.raises(ConfigError, match="did you mean 'worm-go40'"):
        open_named_proteins("worm-go4")


def test_every_species_has_an_address() -> None:
    named = [spec for name, spec in DATASETS.items() if name.startswith("string-")]
    assert len(named) == 50
    for spec in named:
        assert str(spec.url).startswith("https://stringdb-downloads.org/")
    every = parts(DATASETS["go-8"])
    assert len(every) == 8 + 1 + 8 + 8  # networks, the ontology, annotations, aliases
    assert all(part.url and part.url.startswith("https://") for part in every)


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRAPHLOG_MIRROR", str(tmp_path))
    monkeypatch.setenv("GRAPHLOG_DATA", str(tmp_path / "root"))
    with pytest.raises(
        DataError,
        match=r"'worm-go40' has no public address; put it at bio/celegans_go40_labels.csv.gz",
    ):
        open_named_proteins("worm-go40")
    assert describe_dataset("worm-go40")["here"] == "no"


def test_worm_go40(mirror: Path) -> None:
    data = open_labeled("worm-go40", schema_named("protein"))
    assert len(data.store) == 6642
    assert len(data.targets) == 40
    assert data.labels.sum() == 7986
    assert data.sizes == {"train": 5313, "valid": 664, "test": 665, "rejected": 0}
    assert any("negative or unknown" in note for note in data.notes)
    pool = open_named_proteins("worm-go40")
    assert len(pool) == 10_735
    assert fetch_dataset("worm-go40") == pool.path
    assert describe_dataset("worm-go40")["here"] == "yes"
    chosen = open_labeled("worm-go40", schema_named("protein"), targets=["GO:0006412"])
    assert chosen.targets == ("GO:0006412",)


def test_proteins_beyond_a_limit_are_no_rejects(counted: Callable[[], int]) -> None:
    with read_streamed("string-9606", schema_named("protein"), limit=5) as store:
        assert (len(store), store.num_output_rows, store.output_status()) == (5, 5, ["ok"] * 5)


def test_worm_network_is_worm_go40_split_by_communities(mirror: Path, tmp_path: Path) -> None:
    pytest.importorskip("pymetis")
    data = open_labeled("worm-network", schema_named("protein"))
    assert (len(data.store), len(data.targets), data.split_name) == (6642, 40, "network (seed 0)")
    folds = split_file("worm-network", tmp_path / "split.json")
    assert {name: len(part) for name, part in folds._asdict().items()} == {
        name: data.sizes[name] for name in folds._fields
    }


def test_yeast_complexes(mirror: Path) -> None:
    data = open_labeled("yeast-complexes", schema_named("protein"))
    assert (len(data.store), len(data.targets)) == (556, 31)
    assert len(open_named_proteins("yeast-complexes")) == 5232
    channels = data.store[:].edge_attr.numpy()[:, :7].any(axis=0)
    # co-expression; experimental: physical and genetic
    assert np.flatnonzero(channels).tolist() == [3, 4]


def test_worm_yeast(mirror: Path) -> None:
    store = open_named_proteins("worm-yeast")
    assert (len(store), store.tasks) == (15_967, ("in_complex",))
    assert np.nansum(store.labels) == 2241


def test_a_limit_is_of_each_species(counted: Callable[[], int], tmp_path: Path) -> None:
    whole = open_named_proteins("string-9606")
    assert read_proteins("string-9606", limit=3).texts() == whole.texts([0, 1, 2])
    files = [tmp_path / f"{taxon}.protein.links.detailed.txt" for taxon in ("9606", "4932")]
    for file in files:
        write(file, clustered_links(2, 5, file.name.split(".")[0]))
    mixed = read_proteins(files)
    first = mixed.subset(first_of_each_species(mixed, 2)).texts()
    assert [name.split(".")[0] for name in first] == ["9606", "9606", "4932", "4932"]
