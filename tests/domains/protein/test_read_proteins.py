"""From files of networks, an ontology and annotations to ego-networks, in Python and by command."""

import re
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from cli_support import Cli, read_table
from graphlog.api import read_proteins
from graphlog.data.store import GraphStore, open_store
from graphlog.domains.protein.labels import read_ontology
from graphlog.domains.protein.network import Interactions, build_network, ego_networks
from graphlog.domains.protein.schema import PROTEIN, ProteinOptions, species_of
from graphlog.errors import ConfigError, DataError
from protein_support import (
    HEADER,
    OBO,
    chunk_graphs,
    clustered_links,
    gaf,
    links,
    random_network,
    read_rows,
    slow_members,
    write,
)

AB, ABC = "a b 900", "a b 900, b c 900"
ALIASES = "#string_protein_id\talias\n"

Read = Callable[..., GraphStore]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """What reads a network, given as its rows, with files, given as texts."""
    return partial(read_rows, tmp_path)


def labels_by_protein(store: GraphStore) -> dict[str, float]:
    """The first label of each protein that has one."""
    pairs = zip(store.texts(), store.labels[:, 0].tolist(), strict=True)
    return {name: label for name, label in pairs if not np.isnan(label)}


def test_functions_become_labels(read: Read, tmp_path: Path) -> None:
    rows = """
        a GO:0000003 IDA
        b GO:0000022 IMP
        c1 GO:0000005 IEA
        c1 GO:0000006 IDA part_of
        a GO:0000005 IDA NOT|involved_in
        d1.2 GO:0000002 TAS
        x9 GO:0000002 IDA
        a GO:0000004 IDA
        a GO:9999999 IDA
    """
    worm = partial(read, "a b 900, b c1 800, c1 d1.2a 750, e f 200", "6239")
    functions = {"annotations": gaf(rows, "6239"), "go": OBO}
    store = worm(**functions, min_positives=1, store_path=tmp_path / "store")
    # the narrowest: `narrow` (a) and `part` (c1, through its replacement); NOT is no positive
    assert store.tasks == ("GO:0000003", "GO:0000005")
    labels = dict(zip(store.texts(), store.labels.tolist(), strict=True))
    # the last is annotated by its gene's name
    assert labels == {"6239.a": [1, 0], "6239.b": [0, 0], "6239.c1": [0, 1], "6239.d1.2a": [0, 0]}
    reasons = store.source.unmatched
    assert all("thresholds" in reject.reason for reject in store.rejects)
    assert [reject.text for reject in store.rejects] == ["6239.e", "6239.f"]
    assert store.num_rows == 6
    assert "line 8" in reasons["ID6"]
    assert "obsolete" in reasons["GO:0000004"]
    assert "not a term" in reasons["GO:9999999"]
    assert store.source.annotations["negated (NOT)"] == 1
    assert open_store(tmp_path / "store").digest == store.digest
    with pytest.raises(DataError, match="thresholds"):
        worm(on_error="fail")
    with pytest.raises(DataError, match="min_positives"):
        worm(**functions)
    kept = worm(**functions, min_positives=1, isolated="keep")
    assert {"6239.e", "6239.f"} <= set(kept.texts())


def test_terms_are_narrow_frequent_and_different(read: Read) -> None:
    network = ", ".join(f"p{a} p{b} 900" for a, b in pairwise(range(6)))
    plain = "protein\tgo_terms\np0\tA B C\np1\tA B C\np2\tA B C\np3\tA B\np4\tA B\np5\tA\n"
    quoted = re.sub(r"\t(A.*)", r',"\1"', plain).replace(" ", ", ").replace("\t", ",")
    for lists in (plain, quoted):
        store = read(network, labels=lists, min_positives=3, max_overlap=0.8)
        assert store.tasks == ("A", "C")  # B shares 5/6 with A
        assert store.labels.T.tolist() == [[1] * 6, [1, 1, 1, 0, 0, 0]]
    missing = "protein\tterms\np0\tA\n" + "".join(f"p{k}\tNA\n" for k in range(1, 6))
    store = read(network, labels=missing, min_positives=1)
    assert (store.tasks, labels_by_protein(store)) == (("A",), {"9.p0": 1})


def test_table_of_labels_and_several_species(read: Read) -> None:
    both = partial(read, ABC, "10", "9")
    store = both(labels="protein,f,g\n9.a,1,0\n10.b,,1\nzzz,0,1\n", limit=2)
    assert store.texts() == ["10.a", "10.b", "9.a", "9.b"]
    np.testing.assert_array_equal(
        store.labels, [[np.nan, np.nan], [np.nan, 1], [1, 0], [np.nan, np.nan]]
    )
    assert [*store.source.unmatched] == ["zzz"]
    with pytest.raises(DataError, match=r"line 3.*one line"):
        both(labels="protein,f\n9.a,1\n9.a,0\n")
    with pytest.raises(DataError, match="line 2: a label must be 0, 1 or empty, found 'yes'"):
        both(labels="protein,f\n9.a,yes\n")
    with pytest.raises(DataError, match=r"its own name, found \(no name\), protein"):
        both(labels=",protein,f\n0,9.a,1\n")


@pytest.mark.parametrize("taxon", ["9", ""])
def test_a_year_in_the_name_of_a_file_is_no_species(tmp_path: Path, taxon: str) -> None:
    path = write(tmp_path / "2024.links.txt", links(AB, taxon))
    if taxon:
        assert read_proteins(path).texts() == ["9.a", "9.b"]
    else:
        with pytest.raises(DataError, match="does not tell the species"):
            read_proteins(path)


def test_labels_are_called_as_in_the_header(read: Read) -> None:
    store = read(AB, labels="Protein,TF,tf,go:1|2\na,1,0,\nb,0,1,1\n")
    assert store.tasks == ("TF", "tf", "go:1|2")
    np.testing.assert_array_equal(store.labels, [[1, 0, np.nan], [0, 1, 1]])


def test_a_name_of_several_species_labels_none(tmp_path: Path) -> None:
    for taxon, rows in (("9", ABC), ("10", ABC), ("11", "c d 900")):
        write(tmp_path / f"{taxon}.protein.links.detailed.txt", links(rows, taxon))
    aliases = write(tmp_path / "aliases", f"{ALIASES}9.a\tx\n10.b\tx\n10.c\ty\n")
    labels = write(tmp_path / "labels", "protein,f\na,1\n9.a,0\nd,1\nx,1\ny,0\n")
    store = read_proteins(tmp_path, labels=labels, aliases=aliases)
    assert labels_by_protein(store) == {"9.a": 0, "11.d": 1, "10.c": 0}
    assert store.source.unmatched == {
        "a": f"{labels}, line 2: has labels but fits 2 species; write 10.a or 9.a",
        "x": f"{labels}, line 5: has labels but fits 2 species; write 10.b or 9.a",
    }


def test_annotations_are_of_the_species_they_tell(read: Read, tmp_path: Path) -> None:
    aliases = [
        write(tmp_path / f"{taxon}.txt", f"{ALIASES}{taxon}.{name}\talso\n")
        for taxon, name in (("9", "b"), ("10", "c"))
    ]
    both = partial(read, ABC, "10", "9", go=OBO, aliases=aliases, min_positives=1)
    lines = gaf("a GO:0000003 IDA \n also GO:0000003 IDA \n z GO:0000003 IDA").splitlines()
    lines[2] = lines[2].replace("taxon:9", "taxon:9|taxon:10")
    lines[3] = lines[3].replace("taxon:9", "taxon:7").replace("x|z", "a")
    store = both(annotations="\n".join(lines))
    assert labels_by_protein(store) == {"9.a": 1, "9.b": 1}
    assert [*store.source.unmatched] == ["ID2"]  # of another species, though an a
    with pytest.warns(UserWarning, match="no line is of species 10, 9; .* of taxon 55 are taken"):
        store = both(annotations=gaf("a GO:0000003 IDA \n 10.b GO:0000003 IDA", "55"))
    assert labels_by_protein(store) == {"10.b": 1}
    [reason] = store.source.unmatched.values()
    assert "line 2: is annotated but fits 2 species" in reason


def test_isoforms_of_the_worm_alone_are_found_by_their_gene(read: Read) -> None:
    rows, table = "d1.2a d1.2b 900, d1.2b x 900", "protein,f\nd1.2a,1.0\nd1.2,0.0\nx,NA\nx,\n"
    for text in (table, "protein,f\nd1.2,0\nd1.2a,1\n"):
        store = read(rows, "6239", labels=text)
        assert labels_by_protein(store) == {"6239.d1.2a": 1, "6239.d1.2b": 0}
    fish = read(rows, "7955", labels=table)
    assert labels_by_protein(fish) == {"7955.d1.2a": 1}
    assert [*fish.source.unmatched] == ["d1.2"]
    with pytest.raises(DataError, match=r"line 3: 'd1\.2' has labels already"):
        read(rows, "6239", labels="protein,f\nd1.2,0\nd1.2,1\n")


def test_annotations_of_the_strain_of_yeast_are_of_yeast(read: Read) -> None:
    told = gaf("a GO:0000003 IDA", "559292")
    store = read(AB, "4932", go=OBO, annotations=told, min_positives=1)
    assert labels_by_protein(store) == {"4932.a": 1}


def test_evidence_codes_are_known_in_any_case(read: Read) -> None:
    told = gaf("a GO:0000003 ida \n b GO:0000003 iea")
    annotated = partial(read, AB, go=OBO, annotations=told, min_positives=1)
    assert labels_by_protein(annotated()) == {"9.a": 1}
    assert labels_by_protein(annotated(evidence=["ida"])) == {"9.b": 1}
    message = r"`evidence`: there is no evidence 'IEB' \(known: EXP, IDA"
    with pytest.raises(ConfigError, match=message):
        annotated(evidence=["ieb"])


def test_spellings_of_an_ontology(tmp_path: Path) -> None:
    text = OBO.replace("[Term]\nid: GO:0000003", "[Term] ! a comment\nid: GO:0000003")
    text = text.replace("is_a: GO:0000001 !", "is_a: GO:0000001!").replace(
        "part_of GO", "part_of  GO"
    )
    moved = "\n[Term]\nid: GO:000000{}\nis_obsolete: true\nreplaced_by: GO:000000{}\n"
    moved = "".join(moved.format(*pair) for pair in ((7, 6), (8, 9), (9, 8)))
    plain, found = (
        read_ontology(write(tmp_path / "go.obo", one))
        for one in (OBO, text.replace("\n[Typedef]", f"{moved}\n[Typedef]"))
    )
    assert (found.terms, found.branches) == (plain.terms, plain.branches)
    assert (found.parents != plain.parents).nnz == 0
    assert found.numbers == {**plain.numbers, "GO:0000007": plain.numbers["GO:0000005"]}
    assert found.obsolete == plain.obsolete | {"GO:0000008", "GO:0000009"}


def test_evidence_by_kind(tmp_path: Path) -> None:
    rows = "A,B,ppi,1\nB,A,coexpression,0.8\nA,C,genetic_interaction,0.2\n"
    table = write(tmp_path / "y.csv", "gene1,gene2,network,weight\n" + rows)
    store = read_proteins(table, species=4932, score=500)
    assert store.texts() == ["4932.A", "4932.B"]
    assert store[0].edge_attr[0].tolist() == [0, 0, 0, 1, 1, 0, 0, 0, 0]


LAYOUTS = {
    "commas": lambda text: text.replace(" ", ","),
    "commas and blanks": lambda text: text.replace(" ", ", ") + " \n",
    "tabs and blanks": lambda text: text.replace(" ", " \t "),
    "semicolons": lambda text: text.replace(" ", ";"),
    "quotes": lambda text: re.sub(r"[^ \n]+", r'"\g<0>"', text).replace(" ", ", ") + "\n",
    "tabs and quotes": lambda text: re.sub(r"[9a-z]\S+", r'"\g<0>"', text).replace(" ", "\t"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_one_network(tmp_path: Path, layout: str) -> None:
    text = links("a b 900, b c 800")
    found = read_proteins(write(tmp_path / "9.csv", LAYOUTS[layout](text)))
    expected = read_proteins(write(tmp_path / "9.txt", text))
    assert found.texts() == expected.texts() == ["9.a", "9.b", "9.c"]
    np.testing.assert_array_equal(found[:].edge_attr, expected[:].edge_attr)


GOOD, COMMAS = links(AB), HEADER.replace(" ", ",") + "\n"
SHORT = "gene1,gene2,network,weight\na,b,"
BAD_NETWORKS = {
    "protein1 protein2 combined_score\n": "no column neighborhood",
    HEADER + "\n": "no interaction",
    GOOD + "9.a 9.b 1 2\n": "line 4: has 4 fields",
    GOOD + "9.a 9.b 0 0 0 0 0 0 0 1001\n": "line 4: a score must .* 0 to 1000, found '1001'",
    GOOD + "9.a 9.b 0 0 0 x 0 0 0 900\n": "line 4: a score must be a whole number",
    GOOD
    + "\n9.a 10.b 0 0 0 1 0 0 0 900\n": "line 5: protein '10.b' is of species 10, not of species 9",
    GOOD + "9.a  0 0 0 1 0 0 0 900\n": "line 4: a protein has no name",
    COMMAS + "9.a,9.b,0,0,0,1,0,0,0, 900\n9.a,9.c,0,0,0,1,0,0,0,x\n": (
        "line 3: a score must be a whole number from 0 to 1000, found 'x'"
    ),
    SHORT + '"ppi,2\n': "line 2: unexpected end of data; fix its quotes",
    SHORT + "ppi,2\n": "line 2: a weight must be a number from 0 to 1, found '2'",
    SHORT + "smell,1\n": "line 2: unknown evidence 'smell'",
    COMMAS + "a,b,0,0,0,1,0,0,0,900\n": "its taxon id, as in `species='6239'`",
}


@pytest.mark.parametrize("text", BAD_NETWORKS, ids=[*BAD_NETWORKS.values()])
def test_bad_networks_are_named_by_file_and_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match=BAD_NETWORKS[text]) as caught:
        read_proteins(write(tmp_path / "net.txt", text))
    assert "net.txt" in str(caught.value)


def test_other_names_are_found_where_they_are_clear(read: Read) -> None:
    aliases = f"{ALIASES}9.a\tx\n9.b\ty\n9.c\ty\n9.b\t9.a\n8.q\tz\n"
    labeled = partial(read, ABC, labels="gene,t\nx,1\ny,1\nz,1\nb,0\n")
    store = labeled(aliases=aliases)
    assert labels_by_protein(store) == {"9.a": 1, "9.b": 0}
    assert store.texts() == ["9.a", "9.b", "9.c"]
    assert {*store.source.unmatched} == {"y", "z"}
    with pytest.raises(
        DataError, match=r"9\S*.txt: 'y': .*line 3: has labels but is in no network"
    ):
        labeled(aliases=aliases, on_error="fail")
    assert {*labeled().source.unmatched} == {"x", "y", "z"}


def test_what_the_command_line_cannot_ask_for(read: Read, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no network to read; name at least one file"):
        read_proteins([])
    with pytest.raises(ConfigError, match="did you mean 'radius'"):
        read(AB, radios=2)
    cut_off = OBO.replace("is_a: GO:0000001", "is_a: GO:0000004")
    with pytest.raises(DataError, match=r"line 8.*not there or obsolete"):
        read_ontology(write(tmp_path / "bad.obo", cut_off))


@pytest.mark.parametrize(
    ("radius", "neighbors", "nodes"),
    [(1, 100, 500), (1, 3, 500), (2, 4, 500), (3, 2, 7), (2, 100, 5)],
)
def test_ego_networks_equal_those_cut_one_by_one(radius: int, neighbors: int, nodes: int) -> None:
    network, graph = random_network(40, 400, seed=radius)
    options = ProteinOptions(radius=radius, neighbors=neighbors, nodes=nodes, isolated="keep")
    together = (np.arange(1), np.arange(1, 40))  # by which no graph is changed
    found = [g for some in together for g in chunk_graphs(ego_networks(network, some, options))]
    for center, (size, ends, attributes) in enumerate(found):
        members = slow_members(graph, center, radius, neighbors, nodes)
        assert size == len(members)
        expected = {}
        for a, b, data in nx.subgraph(graph, members).edges(data=True):
            pair = sorted((members.index(a), members.index(b)))
            expected[tuple(pair)] = (data["channels"] > 0).astype(int).tolist()
        pairs = zip(ends.T.tolist(), attributes[:, :7].astype(int).tolist(), strict=True)
        assert {tuple(pair): row for pair, row in pairs} == expected
        assert len(expected) == ends.shape[1]
        assert not attributes[:, 7:].any()


def test_repeats_directions_and_self_loops_are_one_interaction() -> None:
    pairs = np.array([[0, 1], [1, 0], [0, 1], [2, 2], [1, 2], [1, 2]])  # 1, 2: two channels
    scores = np.zeros((6, 8), dtype=np.int64)
    scores[:, 3] = [0, 300, 0, 900, 900, 900]
    scores[0, 6] = 800
    scores[:, 7] = [800, 700, 100, 900, 650, 650]
    network = build_network(Interactions("9", ("9.a", "9.b", "9.c"), pairs, scores))
    assert network.counts["self-loops left out"] == 1
    assert network.counts["interactions"] == 1
    assert network.counts["listed in one direction only"] == 1
    assert network.degrees.tolist() == [1, 1, 0]
    [(size, ends, attributes)] = chunk_graphs(
        ego_networks(network, np.array([0]), ProteinOptions())
    )
    assert (size, ends.tolist()) == (2, [[0], [1]])
    assert attributes[0].tolist() == [0, 0, 0, 1, 0, 0, 1, 0, 0]  # what any of the lines says


def test_thresholds_by_channel() -> None:
    scores = np.array([[0, 0, 0, 500, 0, 0, 0, 900], [0, 0, 0, 300, 0, 0, 900, 900]])
    given = Interactions("9", ("9.a", "9.b", "9.c"), np.array([[0, 1], [0, 2]]), scores)
    strict = ProteinOptions(channel_score={"textmining": 1000, "coexpression": 400})
    assert build_network(given, ProteinOptions(channel_score=400)).counts["interactions"] == 2
    assert build_network(given, strict).degrees.tolist() == [1, 1, 0]
    assert build_network(given, ProteinOptions(score=901)).counts["interactions"] == 0
    with pytest.raises(ConfigError, match="no channel 'text'"):
        ProteinOptions.parse({"channel_score": {"text": 1}})


def test_isolated_proteins_are_graphs_of_one_node_if_kept() -> None:
    network, _ = random_network(10, 6, seed=0)
    isolated, joined = np.flatnonzero(network.degrees == 0)[0], np.flatnonzero(network.degrees)[0]
    chunk = ego_networks(network, np.array([isolated, joined]), ProteinOptions())
    chunk.check(PROTEIN)
    assert chunk.node_counts[0] == 1
    assert chunk.texts == [network.proteins[isolated], network.proteins[joined]]
    assert [species_of(name) for name in ("6239.2RSSE.1", "YAL001C", ".x")] == ["6239", None, None]


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
    assert "SMILES" not in cli("data info worm-yeast").out
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
