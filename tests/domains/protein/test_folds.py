"""Folds of proteins: whole species, whole communities, always the same."""

import json
from pathlib import Path

import numpy as np
import pytest

from cli_support import Cli
from graphlog.api import read_proteins
from graphlog.data.split import Split
from graphlog.domains.protein.domain import find_communities, split_proteins
from graphlog.domains.protein.network import build_network, read_interactions
from graphlog.errors import ConfigError, DataError
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


def test_species_that_are_not_there() -> None:
    with pytest.raises(ConfigError, match="two species or more"):
        split_proteins(names(t9=5), "species")
    with pytest.raises(ConfigError, match="unknown species '8'"):
        split_proteins(names(t9=5, t6=5), "species", test_species=8)
    with pytest.raises(ConfigError, match="did you mean 'species'"):
        split_proteins(names(t9=5), "specie")
    with pytest.raises(DataError, match="no proteins"):
        split_proteins([], "random")


def test_communities_are_found_and_kept_whole(tmp_path: Path) -> None:
    file = write(tmp_path / "9.protein.links.detailed.txt", clustered_links(20, 12))
    network = build_network(read_interactions(file))
    found = find_communities(network)
    cluster = np.array([int(name[3:5]) for name in network.proteins])
    agreeing = sum(np.bincount(found[cluster == c]).max() for c in range(20))
    assert agreeing >= 0.95 * len(found)
    split = split_proteins(network.proteins, "network", networks=file)
    assert (
        split.test.tolist()
        == split_proteins(network.proteins, "network", networks=file).test.tolist()
    )  # from the data root
    assert not set(found[split.test]) & set(found[split.train])
    assert [len(part) for part in split] == pytest.approx([192, 24, 24], abs=16)
    assert (
        split_proteins(network.proteins, "network", seed=1, networks=file).test.tolist()
        != split.test.tolist()
    )


def test_fewer_partners_of_a_test_protein_are_learned_from(tmp_path: Path) -> None:
    file = write(tmp_path / "9.protein.links.detailed.txt", clustered_links(20, 12))
    network = build_network(read_interactions(file))
    source = np.repeat(np.arange(len(network.proteins)), network.degrees)

    def share(split: Split) -> float:
        learned, tested = (
            np.isin(np.arange(len(network.proteins)), part) for part in (split.train, split.test)
        )
        return float(learned[network.partners[tested[source]]].mean())

    assert share(split_proteins(network.proteins, "network", networks=file)) < 0.2
    assert share(split_proteins(network.proteins, "random")) > 0.6


def test_a_network_split_says_what_it_lacks(tmp_path: Path) -> None:
    small = write(tmp_path / "9.protein.links.detailed.txt", links([("a", "b", 900)]))
    with pytest.raises(DataError, match="too small for 20 communities"):
        split_proteins(["9.a", "9.b"], "network", networks=small)
    with pytest.raises(ConfigError, match="`networks`"):
        split_proteins(["9.a", "9.b"], "network")
    file = write(tmp_path / "8.protein.links.detailed.txt", clustered_links(20, 3, "8"))
    with pytest.raises(DataError, match=r"'9.a' is in none of the networks"):
        split_proteins(["9.a"], "network", networks=file)


def test_the_command_line_writes_rows_of_the_input(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path / "8.protein.links.detailed.txt", clustered_links(20, 4, "8"))
    write(
        tmp_path / "9.protein.links.detailed.txt",
        clustered_links(20, 4, "9") + links([("zz", "zy", 100)], "9").split("\n", 1)[1],
    )
    store = read_proteins(tmp_path, store_path=tmp_path / "both.store")
    assert (
        cli("data", "split", tmp_path / "both.store", "-o", tmp_path / "s.json", "--quiet").code
        == 0
    )
    found = json.loads((tmp_path / "s.json").read_text())
    assert found["kind"] == "species"
    texts = dict(zip(store.rows.tolist(), store.texts(), strict=True))
    assert {texts[row].split(".")[0] for row in found["test"]} == {"9"}
    both = (
        f"{tmp_path / '8.protein.links.detailed.txt'},{tmp_path / '9.protein.links.detailed.txt'}"
    )
    words = f"data split {tmp_path}/both.store --kind network -o {tmp_path}/n.json --json".split()
    assert cli(*words, "--network", both).json["kind"] == "network"
    cli(*words).refused("--network")
    assert Split.load(tmp_path / "n.json", store.num_rows)
