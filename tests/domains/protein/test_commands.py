"""Proteins on the command line: from files to a store, and every wrong thing in one line."""

from pathlib import Path

import pytest

from cli_support import SMALL, Cli, read_table, run_command
from graphlog import open_store
from protein_support import HEADER, OBO, clustered_links, links, write

TABLE = "protein\tgo_id\tevidence\tqualifier\n"


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Cli:
    return run_command(capfd)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A network, the GO graph, and annotations of which some are of no use."""
    write(
        tmp_path / "9.protein.links.detailed.txt",
        links([("a", "b", 900), ("b", "c", 800), ("c", "d", 500), ("d", "e", 300)]),
    )
    write(tmp_path / "go.obo", OBO)
    rows = [
        "a\tGO:0000003\tIDA\t",
        "b\tGO:0000003\tIDA\tNOT",
        "c\tGO:0000004\tIDA\t",
        "c\tGO:9\tIDA\t",
        "zz\tGO:0000005\tIDA\t",
    ]
    write(tmp_path / "notes.tsv", TABLE + "\n".join([*rows, "b\tGO:0000005\tIDA\t"]) + "\n")
    return tmp_path


def test_featurize_proteins(cli: Cli, files: Path) -> None:
    ended = cli(
        f"featurize {files}/9.protein.links.detailed.txt --domain protein -o {files}/s --json "
        f"--score 400 --annotations {files}/notes.tsv --go {files}/go.obo --min-positives 1 "
        "--terms 2 --max-overlap 0.9 --radius 2 --neighbors 5 --nodes 3 "
        "--channel-score coexpression=450"
    )
    assert ended.code == 0, ended.err
    assert (ended.json["graphs"], ended.json["rejected rows"], ended.json["labeled"]) == (4, 4, 2)
    assert ended.json["proteins"] == "4 of 9"
    store = open_store(files / "s")
    assert store.tasks == ("GO:0000003", "GO:0000005")
    assert store.num_nodes.tolist() == [3, 3, 3, 3]
    assert store.source.cutting["channel_score"] == {"coexpression": 450}
    reasons = {row["input"]: row["reason"] for row in read_table(files / "rejects.csv")}
    assert "thresholds" in reasons["9.e"]
    assert "in no network" in reasons["zz"]
    assert "obsolete" in reasons["GO:0000004"]
    assert "not a term" in reasons["GO:9"]
    assert "4 of 9" in cli("info", files / "s").out


def test_proteins_beyond_the_limit_are_not_rejected(cli: Cli, tmp_path: Path) -> None:
    network = write(tmp_path / "9.protein.links.detailed.txt", clustered_links(4, 6))
    assert cli(f"featurize {network} --domain protein -o {tmp_path}/s --limit 5").code == 0
    found = cli(f"info {tmp_path}/s --json").json
    assert (found["graphs"], found["input rows"], found["rejected rows"]) == (5, 5, 0)


def test_what_is_featurized_is_trained_on(cli: Cli, tmp_path: Path) -> None:
    network = write(tmp_path / "9.protein.links.detailed.txt", clustered_links(4, 6))
    rows = "".join(f"c{c:02d}p{k:02d},{c % 2}\n" for c in range(4) for k in range(6))
    labels = write(tmp_path / "labels.csv", "protein,odd\n" + rows)
    words = f"featurize {network} --domain protein --labels {labels} -o {tmp_path}/s -q"
    assert cli(words).code == 0
    assert cli(f"pretrain {tmp_path}/s -o {tmp_path}/run -q", *SMALL).code == 0
    words = f"finetune {tmp_path}/s -m {tmp_path}/run -o {tmp_path}/tuned --targets odd"
    ended = cli(words, "--split random --epochs 1 --seeds 0 --json")
    assert ended.code == 0, ended.err
    assert "test_first_half" in ended.json["rows"][0]["halves"]
    assert "ego-network statistics" in ended.json["rows"][-1]["model"]


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
        ("--go {go}", "go together"),
        ("--annotations {notes} --go {go}", "no term has 100 positive | lower min_positives"),
        ("--annotations {go} --go {go}", "go.obo | neither a GAF file"),
        ("--annotations {notes} --go {notes}", "notes.tsv | not an OBO file"),
        ("--annotations {notes} --labels {notes} --go {go}", "give one of them"),
        ("--score 2000", "score | 1000"),
        ("--channel-score smell=3", "no channel 'smell'"),
        ("--channel-score x", "--channel-score | textmining=500"),
        ("--channel-score 1001", "1 to 1000"),
        ("--radius 0", "radius"),
        ("--species 10", "of species 9, not 10"),
        ("--on-error fail", "9.d | thresholds | --on-error skip"),
        ("--targets x", "no label columns"),
        ("--smiles-column x", "--smiles-column is for molecules"),
    ],
)
def test_contradicting_options(cli: Cli, files: Path, words: str, told: str) -> None:
    network = f"{files}/9.protein.links.detailed.txt --domain protein -o {files}/s -q"
    ended = cli(
        f"featurize {network}", words.format(go=files / "go.obo", notes=files / "notes.tsv")
    )
    ended.refused(*told.split(" | "))
    assert not (files / "s").exists()


def test_more_bad_input(cli: Cli, tmp_path: Path) -> None:
    network = write(tmp_path / "9.txt", links([("a", "b", 900)]))
    bad = write(tmp_path / "net.txt", links([("a", "b", 900)]) + "9.a 9.b 0 0 0 0 0 0 0 1001\n")
    protein = f"--domain protein -o {tmp_path}/s -q"
    cli(f"featurize {tmp_path}/absent.txt", protein).refused("absent.txt")
    cli("featurize string-9999", protein).refused("string-9999", "did you mean")
    (tmp_path / "empty").mkdir()
    cli(f"featurize {tmp_path}/empty", protein).refused("holds no network file")
    told = cli(f"featurize {network} -o {tmp_path}/s --score 3")
    told.refused("--score is for proteins", "--domain protein")
    cli(f"featurize {network},{network}", protein).refused("each species one file")
    cli(f"featurize {bad}", protein).refused("net.txt", "line 4", "from 0 to 1000")


def test_self_loops_repeats_and_one_direction_only_are_counted_not_refused(
    cli: Cli, tmp_path: Path
) -> None:
    pairs = ("9.a 9.a", "9.a 9.b", "9.a 9.b", "9.c 9.a")
    lines = [HEADER, *(f"{pair} 0 0 0 900 0 0 0 900" for pair in pairs)]
    network = write(tmp_path / "9.txt", "\n".join(lines) + "\n")
    found = cli(f"featurize {network} --domain protein -o {tmp_path}/s --json").json
    counts = found["source"]["networks"]["9"]
    assert (found["graphs"], counts["self-loops left out"], counts["interactions"]) == (3, 1, 2)


def test_ego_networks_of_one_node_and_of_thousands(cli: Cli, tmp_path: Path) -> None:
    spokes = links([("hub", f"p{k}", 900) for k in range(3000)] + [("far", "away", 100)])
    network = write(tmp_path / "9.txt", spokes)
    wide = "--neighbors 5000 --nodes 5000 --isolated keep --limit 3 -q"
    assert cli(f"featurize {network} --domain protein -o {tmp_path}/s", wide).code == 0
    store = open_store(tmp_path / "s")
    assert store.texts() == ["9.away", "9.far", "9.hub"]
    assert store.num_nodes.tolist() == [1, 1, 3001]
    assert cli(f"embed {tmp_path}/s -m random -o {tmp_path}/z.npz -q").code == 0
