"""Named sets of ego-networks: made once, whoever asks first; opened, not made, after that."""

from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from graphlog.api import read_proteins
from graphlog.datasets import DATASETS
from graphlog.domains.protein import reading
from graphlog.domains.protein.labels import Functions, read_annotations, read_ontology
from graphlog.domains.protein.reading import first_of_each_species, open_named_proteins, parts
from graphlog.domains.protein.schema import PROTEIN, ProteinOptions
from graphlog.downstream.tasks import open_labeled, split_file
from graphlog.errors import ConfigError, DataError
from graphlog.files import hash_file
from graphlog.inputs import fetch_dataset, read_streamed
from graphlog.report.describe import describe_dataset
from protein_support import clustered_links, gaf, write

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
    data = open_labeled("worm-go40", PROTEIN)
    assert len(data.store) == 6642
    assert len(data.targets) == 40
    assert data.labels.sum() == 7986
    assert data.sizes == {"train": 5313, "valid": 664, "test": 665, "rejected": 0}
    assert any("negative or unknown" in note for note in data.notes)
    pool = open_named_proteins("worm-go40")
    assert len(pool) == 10_735
    assert fetch_dataset("worm-go40") == pool.path
    assert describe_dataset("worm-go40")["here"] == "yes"
    chosen = open_labeled("worm-go40", PROTEIN, targets=["GO:0006412"])
    assert chosen.targets == ("GO:0006412",)


def test_annotations_of_the_worm_give_its_published_labels(mirror: Path, tmp_path: Path) -> None:
    worm, bio = open_named_proteins("worm-go40"), mirror / "bio"
    annotated = pd.read_csv(bio / "celegans_go_annotations.tsv.gz", sep="\t", na_filter=False)
    annotated = annotated[["protein", "go_id", "evidence", "qualifier"]]
    rows = annotated.to_csv(sep=" ", header=False, index=False)
    annotations = write(tmp_path / "worm.gaf", gaf(rows, "6239"))
    ontology = read_ontology(write(tmp_path / "go.obo", obo_of_tables(bio)))
    functions = Functions(worm.texts())
    read_annotations(functions, [annotations], ontology, ProteinOptions())
    assert functions.tasks == worm.tasks
    np.testing.assert_array_equal(functions.values, worm.labels)


def obo_of_tables(bio: Path) -> str:
    """The Gene Ontology that the mirror holds as two tables."""
    branches = {"BP": "biological_process", "MF": "molecular_function", "CC": "cellular_component"}
    terms = pd.read_csv(bio / "go_terms_2022-07.tsv.gz", sep="\t", index_col="go_id")
    terms = terms[terms.aspect.isin(branches)]
    edges = pd.read_csv(bio / "go_edges_2022-07.tsv.gz", sep="\t")
    edges = edges[edges.parent.isin(terms.index)]
    kinds = ("relationship: " + edges.relation.str.replace(" ", "_")).where(
        edges.relation != "isa", "is_a:"
    )
    broader = defaultdict[str, list[str]](list)
    for child, kind, parent in zip(edges.child, kinds, edges.parent, strict=True):
        broader[child].append(f"{kind} {parent}")
    stanzas = [
        "\n".join([f"[Term]\nid: {term}\nnamespace: {branches[aspect]}", *broader[term], ""])
        for term, aspect in terms.aspect.items()
    ]
    return "\n".join(["format-version: 1.2", *stanzas])


def test_proteins_beyond_a_limit_are_no_rejects(counted: Callable[[], int]) -> None:
    with read_streamed("string-9606", PROTEIN, limit=5) as store:
        assert (len(store), store.num_output_rows, store.output_status()) == (5, 5, ["ok"] * 5)


@pytest.mark.usefixtures("counted")
def test_worm_network_is_worm_go40_split_by_communities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With small files in the place of its own."""
    pytest.importorskip("pymetis")
    labels = "".join(f"c{c:02d}p{k:02d},{k % 2},{c % 2}\n" for c in range(20) for k in range(5))
    texts = dict.fromkeys(("worm-network", "worm-go40"), f"protein,odd,other\n{labels}")
    for name, text in (*texts.items(), ("string-6239", clustered_links(20, 6, "6239"))):
        path = tmp_path / "mirror" / str(DATASETS[name].path)
        path.parent.mkdir(exist_ok=True)
        own = {"sha256": hash_file(write(path, text))}
        monkeypatch.setitem(DATASETS, name, DATASETS[name].updated(own))
    data, usual = (open_labeled(f"worm-{name}", PROTEIN) for name in ("network", "go40"))
    np.testing.assert_array_equal(data.labels, usual.labels)
    assert (len(data.store), data.store.texts()) == (100, usual.store.texts())
    assert data.split_name == "network (seed 0)"
    folds = split_file("worm-network", tmp_path / "split.json")
    assert {name: len(part) for name, part in folds._asdict().items()} == {
        name: data.sizes[name] for name in folds._fields
    }


def test_yeast_complexes(mirror: Path) -> None:
    data = open_labeled("yeast-complexes", PROTEIN)
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
