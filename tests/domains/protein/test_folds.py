"""Folds of proteins: whole species, whole communities, always the same."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_support import Cli
from graphlog.api import read_proteins
from graphlog.data.split import Split
from graphlog.datasets.catalogue import data_root
from graphlog.domains import DOMAINS
from graphlog.domains.protein.domain import find_communities, split_proteins
from graphlog.domains.protein.network import ProteinNetwork, build_network, read_interactions
from graphlog.domains.protein.schema import ProteinOptions
from graphlog.errors import DataError, GraphLoGError
from protein_support import clustered_links, links, write

pytest.importorskip("pymetis")


def names(**count: int) -> list[str]:
    return [f"{taxon.lstrip('t')}.p{k}" for taxon, n in count.items() for k in range(n)]


def test_species_are_kept_whole_and_the_others_cut_85_to_15() -> None:
    proteins = names(t6239=101, t4932=40, t9606=30)
    split = split_proteins(proteins, "species")
    assert {proteins[k].split(".")[0] for k in split.test} == {"9606"}
    assert [len(part) for part in split] == [119, 22, 30]
    assert sorted(np.concatenate(split).tolist()) == list(range(171))
    assert {proteins[k].split(".")[0] for k in split.valid} == {"6239", "4932"}
    other = split_proteins(proteins, "species", test_species=4932)
    assert {proteins[k].split(".")[0] for k in other.test} == {"4932"}
    assert split_proteins(names(t1=5, t2=5), "species").test.tolist() == list(range(5, 10))


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ProteinNetwork]:
    """The file of a network of twenty dense clusters, and the network."""
    path = tmp_path_factory.mktemp("clusters") / "9.protein.links.detailed.txt"
    write(path, clustered_links(20, 12))
    return path, build_network(read_interactions(path))


@pytest.mark.parametrize(
    ("proteins", "options", "told"),
    [
        (names(t9=5), {"kind": "species"}, "two species or more"),
        (names(t9=5, t6=5), {"kind": "species", "test_species": 8}, "unknown species '8'"),
        (names(t9=5), {"kind": "specie"}, "did you mean 'species'"),
        (names(t9=5), {"kind": "network"}, "`networks`"),
        ([], {"kind": "random"}, "no proteins"),
    ],
)
def test_what_cannot_be_split_is_refused(
    proteins: list[str], options: dict[str, Any], told: str
) -> None:
    with pytest.raises(GraphLoGError, match=told):
        split_proteins(proteins, **options)


def test_communities_are_found_and_kept_whole(clusters: tuple[Path, ProteinNetwork]) -> None:
    file, network = clusters
    found = find_communities(network)
    cluster = np.array([int(name[3:5]) for name in network.proteins])
    agreeing = sum(np.bincount(found[cluster == c]).max() for c in range(20))
    assert agreeing >= 0.95 * len(found)
    split, again, other = (
        split_proteins(network.proteins, "network", seed=seed, networks=file) for seed in (0, 0, 1)
    )
    assert split.test.tolist() == again.test.tolist() != other.test.tolist()
    assert not set(found[split.test]) & set(found[split.train])
    assert [len(part) for part in split] == pytest.approx([192, 24, 24], abs=16)
    source = np.repeat(np.arange(len(found)), network.degrees)

    def learned_partners(split: Split) -> float:
        learned, tested = (
            np.isin(np.arange(len(found)), part) for part in (split.train, split.test)
        )
        return float(learned[network.partners[tested[source]]].mean())

    assert learned_partners(split) < 0.2
    assert learned_partners(split_proteins(network.proteins, "random")) > 0.6


def test_communities_are_those_of_the_network_as_the_store_was_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHLOG_DATA", str(tmp_path / "data"))
    strong = [f"p{k:03d} p{k + 1:03d} 900" for k in range(0, 80, 2)]
    # below the usual threshold, other proteins are partners
    weak = [f"p{k:03d} p{(k + 40) % 80:03d} 500" for k in range(40)]
    path = write(tmp_path / "9.protein.links.detailed.txt", links(",".join(strong + weak)))
    store = read_proteins(path, score=400)
    cut = build_network(read_interactions(path), ProteinOptions(score=400))
    found = find_communities(cut)
    split = DOMAINS["protein"].split(store, "network", (0.8, 0.1, 0.1), 0, networks=[path])
    assert not set(found[split.test]) & set(found[split.train])
    usual = split_proteins(store.texts(), "network", networks=path)
    assert set(found[usual.test]) & set(found[usual.train])


def test_a_network_that_does_not_tell_its_species_has_that_of_the_store(
    clusters: tuple[Path, ProteinNetwork], tmp_path: Path
) -> None:
    file, network = clusters
    plain = write(tmp_path / "net.txt", file.read_text().replace("9.c", "c"))
    wanted = split_proteins(network.proteins, "network", networks=file)
    split = split_proteins(network.proteins, "network", networks=plain, data_dir=tmp_path)
    assert [fold.tolist() for fold in split] == [fold.tolist() for fold in wanted]


@pytest.mark.parametrize("content", ["[]", '{"8.p00_0": "one"}', "[" * 100_000, "\udcff"])
def test_damaged_communities_of_the_data_root_are_computed_again(
    clusters: tuple[Path, ProteinNetwork], content: str
) -> None:
    file, network = clusters
    split = split_proteins(network.proteins, "network", networks=file)
    (kept,) = data_root().glob("stores/communities-*.json")
    kept.write_text(content, errors="surrogateescape")
    again = split_proteins(network.proteins, "network", networks=file)
    assert again.test.tolist() == split.test.tolist()


def test_a_network_split_says_what_it_lacks(tmp_path: Path) -> None:
    small = write(tmp_path / "9.protein.links.detailed.txt", links("a b 900"))
    with pytest.raises(DataError, match="too small for 20 communities"):
        split_proteins(["9.a", "9.b"], "network", networks=small)
    file = write(tmp_path / "8.protein.links.detailed.txt", clustered_links(20, 3, "8"))
    with pytest.raises(DataError, match=r"'9.a' is in none of the networks"):
        split_proteins(["9.a"], "network", networks=file)


def test_the_command_line_writes_rows_of_the_input(cli: Cli, tmp_path: Path) -> None:
    texts = clustered_links(20, 4, "8"), clustered_links(20, 4, "9")
    weak = links("zz zy 100").split("\n", 1)[1]
    first = write(tmp_path / "8.protein.links.detailed.txt", texts[0])
    second = write(tmp_path / "9.protein.links.detailed.txt", texts[1] + weak)
    store = read_proteins(tmp_path, store_path=tmp_path / "both.store")
    cli("data split both.store -o s.json --quiet")
    found = json.loads((tmp_path / "s.json").read_text())
    assert found["kind"] == "species"
    names_of = dict(zip(store.rows.tolist(), store.texts(), strict=True))
    assert {names_of[row].split(".")[0] for row in found["test"]} == {"9"}
    by_network = "data split both.store --kind network -o n.json --json"
    told = cli(f"{by_network} --network {first.name},{second.name}").json
    assert told["kind"] == "network"
    cli.refused(by_network, "--network")
    assert Split.load(tmp_path / "n.json", store.num_rows)
