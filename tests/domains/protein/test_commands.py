"""Proteins on the command line: from files to a store, and every wrong thing in one line."""

from pathlib import Path

import pytest

from cli_support import Cli, read_table
from graphlog import open_store
from protein_support import OBO, clustered_links, gaf, links, write


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A network, the GO graph, and annotations of which some are of no use."""
    network = links("a b 900, b c 800, c d 500, d e 300")
    write(tmp_path / "9.protein.links.detailed.txt", network)
    write(tmp_path / "go.obo", OBO)
    rows = """
        a GO:0000003 IDA
        b GO:0000003 IDA NOT
        c GO:0000004 IDA
        c GO:9 IDA
        zz GO:0000005 IDA
        b GO:0000005 IDA
    """
    write(tmp_path / "notes.gaf", gaf(rows))
    return tmp_path


def test_featurize_proteins(cli: Cli, files: Path) -> None:
    ended = cli(
        "featurize 9.protein.links.detailed.txt --domain protein -o s --json --score 400 "
        "--annotations notes.gaf --go go.obo --min-positives 1 "
        "--terms 2 --max-overlap 0.9 --radius 2 --neighbors 5 --nodes 3 "
        "--channel-score coexpression=450"
    )
    assert (ended.json["graphs"], ended.json["rejected rows"], ended.json["labeled"]) == (4, 1, 2)
    assert ended.json["names not found"] == 3
    store = open_store(files / "s")
    assert store.tasks == ("GO:0000003", "GO:0000005")
    assert store.num_nodes.tolist() == [3, 3, 3, 3]
    assert store.source.cutting["channel_score"] == {"coexpression": 450}
    reasons = {row["input"]: row["reason"] for row in read_table(files / "rejects.csv")}
    assert {*reasons} == {"9.e", "ID4", "GO:0000004", "GO:9"}
    assert "in no network" in reasons["ID4"]
    assert ended.json["proteins"] == "4 of 9" in cli("info s").out


def test_a_table_of_labels(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path / "9.protein.links.detailed.txt", clustered_links(2, 3))
    rows = "".join(f"c{c:02d}p{k:02d},{c}\n" for c in range(2) for k in range(3))
    write(tmp_path / "labels.csv", "protein,odd\n" + rows)
    cli("featurize 9.protein.links.detailed.txt --domain protein --labels labels.csv -o s -q")
    assert open_store(tmp_path / "s").tasks == ("odd",)


def test_the_catalogue_names_proteins(cli: Cli) -> None:
    listed = {row["name"]: row for row in cli("data list --json").json}
    names = "string-6239 string-9606 worm-go40 yeast-complexes worm-yeast go-8"
    assert {*names.split()} <= set(listed)
    assert listed["worm-go40"]["tasks"] == 40
    found = cli("data info worm-yeast --json").json
    assert found["made from"] == ["worm-yeast", "string-6239", "yeast-bionic", "yeast-complexes"]
    told = " ".join(cli("featurize --help").out.split())
    assert "--annotations" in told
    assert "graphlog featurize 6239.protein.links.detailed" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--go go.obo", "give either --labels | --annotations and --go"),
        ("--annotations notes.gaf --go go.obo", "no term has 100 positive | lower min_positives"),
        ("--annotations go.obo --go go.obo", "go.obo | not a GAF file"),
        ("--annotations notes.gaf --go notes.gaf", "notes.gaf | not an OBO file"),
        ("--annotations notes.gaf --labels notes.gaf --go go.obo", "give either --labels"),
        ("--score 2000", "score | 1000"),
        ("--channel-score smell=3", "no channel 'smell'"),
        ("--channel-score x", "--channel-score | textmining=500"),
        ("--channel-score 1001", "1 to 1000"),
        ("--radius 0", "radius"),
        ("--species 10", "of species 9, not of species 10"),
        ("--on-error fail", "9.d | thresholds | --on-error skip"),
        ("--targets x", "no label columns"),
        ("--smiles-column x", "--smiles-column is for molecules"),
    ],
)
def test_contradicting_options(cli: Cli, files: Path, words: str, told: str) -> None:
    line = f"featurize 9.protein.links.detailed.txt --domain protein -o s -q {words}"
    cli.refused(line, *told.split(" | "))
    assert not (files / "s").exists()


def test_more_bad_input(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path / "9.txt", links("a b 900"))
    (tmp_path / "empty").mkdir()
    read = "featurize --domain protein -o s -q"
    cli.refused(f"{read} absent.txt", "absent.txt")
    cli.refused(f"{read} string-6293", "did you mean 'string-6239'")
    for source in ("empty", "empty,9.txt"):
        cli.refused(f"{read} {source}", "empty: holds no network file")
    cli.refused(f"{read} 9.txt,9.txt", "each species one file")
    cli.refused("featurize 9.txt -o s --score 3", "--score is for proteins", "--domain protein")


def test_ego_networks_of_one_node_and_of_thousands(cli: Cli, tmp_path: Path) -> None:
    spokes = "".join(f"hub p{k} 900, " for k in range(3000))
    write(tmp_path / "9.txt", links(f"{spokes} far away 100"))
    wide = "--neighbors 5000 --nodes 5000 --isolated keep --limit 3 -q"
    cli("featurize 9.txt --domain protein -o s", wide)
    store = open_store(tmp_path / "s")
    assert store.texts() == ["9.away", "9.far", "9.hub"]
    assert store.num_nodes.tolist() == [1, 1, 3001]
    cli("embed s -m random -o z.npz -q")
