"""From network, ontology and annotation files to a store; and how such files can be wrong."""

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from graphlog.api import read_proteins
from graphlog.data.store import GraphStore, open_store
from graphlog.domains.protein.labels import Functions, read_labels, read_ontology
from graphlog.domains.protein.schema import ProteinOptions
from graphlog.errors import ConfigError, DataError
from protein_support import HEADER, OBO, gaf, links, write


def test_functions_become_labels(tmp_path: Path) -> None:
    pairs = [("a", "b", 900), ("b", "c1", 800), ("c1", "d1.2a", 750), ("e", "f", 200)]
    network = write(tmp_path / "6239.protein.links.detailed.txt", links(pairs, "6239"))
    rows = [
        ("a", "GO:0000003", "IDA", ""),
        ("b", "GO:0000022", "IMP", ""),
        ("c1", "GO:0000005", "IEA", ""),
        ("c1", "GO:0000006", "IDA", "part_of"),
        ("a", "GO:0000005", "IDA", "NOT|involved_in"),
        ("d1.2", "GO:0000002", "TAS", ""),
        ("x9", "GO:0000002", "IDA", ""),
        ("a", "GO:0000004", "IDA", ""),
        ("a", "GO:9999999", "IDA", ""),
    ]
    annotations = write(tmp_path / "a.gaf", gaf(rows).replace("taxon:9", "taxon:6239"))
    functions = {"annotations": annotations, "go": write(tmp_path / "go.obo", OBO)}
    store = read_proteins(network, **functions, min_positives=1, store_path=tmp_path / "store")
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
        read_proteins(network, on_error="fail")
    with pytest.raises(DataError, match="min_positives"):
        read_proteins(network, **functions)
    kept = read_proteins(network, **functions, min_positives=1, isolated="keep")
    assert {"6239.e", "6239.f"} <= set(kept.texts())


def test_terms_are_narrow_frequent_and_different(tmp_path: Path) -> None:
    names = [f"p{k}" for k in range(6)]
    network = write(tmp_path / "9.txt", links([(a, b, 900) for a, b in pairwise(names)]))
    rows = [f"p{k}\tA {'B' if k < 5 else ''} {'C' if k < 3 else ''}\n" for k in range(6)]
    lists = write(tmp_path / "sets.tsv", "protein\tgo_terms\n" + "".join(rows))
    store = read_proteins(network, labels=lists, min_positives=3, max_overlap=0.8)
    quoted = lists.read_text().replace("\tA", ',"A').replace("\n", '"\n').replace(" ", ", ")
    quoted = write(tmp_path / "sets.csv", quoted.replace('\tgo_terms"', ",go_terms"))
    again = read_proteins(network, labels=quoted, min_positives=3, max_overlap=0.8)
    np.testing.assert_array_equal(again.labels, store.labels)
    assert store.tasks == ("A", "C")  # B shares 5/6 with A
    assert store.labels[:, 1].tolist() == [1, 1, 1, 0, 0, 0]


def test_table_of_labels_and_several_species(tmp_path: Path) -> None:
    for taxon in ("9", "10"):
        write(
            tmp_path / f"{taxon}.protein.links.detailed.txt",
            links([("a", "b", 900), ("b", "c", 900)], taxon),
        )
    labels = write(tmp_path / "labels.csv", "protein,f,g\n9.a,1,0\n10.b,,1\nzzz,0,1\n")
    store = read_proteins(tmp_path, labels=labels, limit=2)
    assert store.texts() == ["10.a", "10.b", "9.a", "9.b"]
    np.testing.assert_array_equal(
        store.labels, [[np.nan, np.nan], [np.nan, 1], [1, 0], [np.nan, np.nan]]
    )
    assert [*store.source.unmatched] == ["zzz"]
    twice = write(tmp_path / "twice.csv", "protein,f\n9.a,1\n9.a,0\n")
    with pytest.raises(DataError, match=r"line 3.*one line"):
        read_proteins(tmp_path, labels=twice)
    wrong = write(tmp_path / "wrong.csv", "protein,f\n9.a,yes\n")
    with pytest.raises(DataError, match="line 2: a label must be 0, 1 or empty, found 'yes'"):
        read_proteins(tmp_path, labels=wrong)


def test_labels_are_called_as_in_the_header(tmp_path: Path) -> None:
    network = write(tmp_path / "9.txt", links([("a", "b", 900)]))
    table = write(tmp_path / "labels.csv", "Protein,TF,tf,go:1|2\na,1,0,\nb,0,1,1\n")
    store = read_proteins(network, labels=table)
    assert store.tasks == ("TF", "tf", "go:1|2")
    np.testing.assert_array_equal(store.labels, [[1, 0, np.nan], [0, 1, 1]])


@pytest.fixture
def two_species(tmp_path: Path) -> Path:
    """A folder with networks of two species whose proteins have the same names."""
    folder = tmp_path / "two"
    folder.mkdir()
    for taxon in ("9", "10"):
        text = links([("a", "b", 900), ("b", "c", 900)], taxon)
        write(folder / f"{taxon}.protein.links.detailed.txt", text)
    return folder


def labels_by_protein(store: GraphStore) -> dict[str, float]:
    """The first label of each protein that has one."""
    pairs = zip(store.texts(), store.labels[:, 0].tolist(), strict=True)
    return {name: label for name, label in pairs if not np.isnan(label)}


def test_a_name_of_several_species_labels_none(two_species: Path, tmp_path: Path) -> None:
    write(two_species / "11.protein.links.detailed.txt", links([("c", "d", 900)], "11"))
    listed = "9.a\tx\n10.b\tx\n10.c\ty\n"
    aliases = write(tmp_path / "aliases.txt", f"#string_protein_id\talias\n{listed}")
    labels = write(tmp_path / "labels.csv", "protein,f\na,1\n9.a,0\nd,1\nx,1\ny,0\n")
    store = read_proteins(two_species, labels=labels, aliases=aliases)
    assert labels_by_protein(store) == {"9.a": 0, "11.d": 1, "10.c": 0}
    assert store.source.unmatched == {
        "a": f"{labels}, line 2: has labels but fits 2 species; write 10.a or 9.a",
        "x": f"{labels}, line 5: has labels but fits 2 species; write 10.b or 9.a",
    }


def test_annotations_are_of_the_species_they_tell(two_species: Path, tmp_path: Path) -> None:
    aliases = [
        write(tmp_path / f"{taxon}.txt", f"#string_protein_id\talias\n{taxon}.{name}\talso\n")
        for taxon, name in (("9", "b"), ("10", "c"))
    ]
    lines = gaf([(name, "GO:0000003", "IDA", "") for name in ("a", "also", "z")]).splitlines()
    lines[2] = lines[2].replace("taxon:9", "taxon:9|taxon:10")
    lines[3] = lines[3].replace("taxon:9", "taxon:7").replace("x|z", "a")
    given = {"go": write(tmp_path / "go.obo", OBO), "aliases": aliases, "min_positives": 1}
    of_nine = write(tmp_path / "9.gaf", "\n".join(lines))
    store = read_proteins(two_species, annotations=of_nine, **given)
    assert labels_by_protein(store) == {"9.a": 1, "9.b": 1}
    assert [*store.source.unmatched] == ["ID2"]  # of another species, though an a
    strain = gaf([("a", "GO:0000003", "IDA", ""), ("10.b", "GO:0000003", "IDA", "")])
    of_strain = write(tmp_path / "strain.gaf", strain.replace("taxon:9", "taxon:55"))
    with pytest.warns(UserWarning, match="no line is of species 10, 9; .* of taxon 55 are taken"):
        store = read_proteins(two_species, annotations=of_strain, **given)
    assert labels_by_protein(store) == {"10.b": 1}
    [reason] = store.source.unmatched.values()
    assert "line 2: is annotated but fits 2 species" in reason


def test_isoforms_of_the_worm_alone_are_found_by_their_gene(tmp_path: Path) -> None:
    rows = [("d1.2a", "d1.2b", 900), ("d1.2b", "x", 900)]
    worm, fish = (
        write(tmp_path / f"{taxon}.protein.links.detailed.txt", links(rows, taxon))
        for taxon in ("6239", "7955")
    )
    table = write(tmp_path / "labels.csv", "protein,f\nd1.2a,1.0\nd1.2,0.0\nx,NA\nx,\n")
    for text in (table.read_text(), "protein,f\nd1.2,0\nd1.2a,1\n"):
        store = read_proteins(worm, labels=write(table, text))
        assert labels_by_protein(store) == {"6239.d1.2a": 1, "6239.d1.2b": 0}
    store = read_proteins(fish, labels=table)
    assert labels_by_protein(store) == {"7955.d1.2a": 1}
    assert [*store.source.unmatched] == ["d1.2"]
    with pytest.raises(DataError, match=r"line 3: 'd1\.2' has labels already"):
        read_proteins(worm, labels=write(table, "protein,f\nd1.2,0\nd1.2,1\n"))


def test_annotations_of_the_strain_of_yeast_are_of_yeast(tmp_path: Path) -> None:
    network = write(tmp_path / "4932.txt", links([("a", "b", 900)], "4932"))
    told = gaf([("a", "GO:0000003", "IDA", "")]).replace("taxon:9", "taxon:559292")
    given = {"annotations": write(tmp_path / "a.gaf", told), "min_positives": 1}
    store = read_proteins(network, go=write(tmp_path / "go.obo", OBO), **given)
    assert labels_by_protein(store) == {"4932.a": 1}


def test_evidence_codes_are_known_in_any_case(tmp_path: Path) -> None:
    network = write(tmp_path / "9.txt", links([("a", "b", 900)]))
    rows = [("a", "GO:0000003", "ida", ""), ("b", "GO:0000003", "iea", "")]
    given = {"annotations": write(tmp_path / "a.gaf", gaf(rows)), "min_positives": 1}
    given["go"] = write(tmp_path / "go.obo", OBO)
    assert labels_by_protein(read_proteins(network, **given)) == {"9.a": 1}
    store = read_proteins(network, **given, evidence=["ida"])
    assert labels_by_protein(store) == {"9.b": 1}
    with pytest.raises(
        ConfigError, match=r"`evidence`: there is no evidence 'IEB' \(known: EXP, IDA"
    ):
        read_proteins(network, **given, evidence=["ieb"])


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
    text = links([("a", "b", 900), ("b", "c", 800)])
    found = read_proteins(write(tmp_path / "9.csv", LAYOUTS[layout](text)))
    expected = read_proteins(write(tmp_path / "9.txt", text))
    assert found.texts() == expected.texts() == ["9.a", "9.b", "9.c"]
    np.testing.assert_array_equal(found[:].edge_attr, expected[:].edge_attr)


GOOD = links([("a", "b", 900)])
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
    HEADER.replace(" ", ",") + "\n9.a,9.b,0,0,0,1,0,0,0, 900\n9.a,9.c,0,0,0,1,0,0,0,x\n": (
        "line 3: a score must be a whole number from 0 to 1000, found 'x'"
    ),
    SHORT + '"ppi,2\n': "line 2: unexpected end of data; fix its quotes",
    SHORT + "ppi,2\n": "line 2: a weight must be a number from 0 to 1, found '2'",
    SHORT + "smell,1\n": "line 2: unknown evidence 'smell'",
    HEADER.replace(" ", ",") + "\na,b,0,0,0,1,0,0,0,900\n": "its taxon id, as in `species='6239'`",
}


@pytest.mark.parametrize("text", BAD_NETWORKS, ids=[*BAD_NETWORKS.values()])
def test_bad_networks_are_named_by_file_and_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match=BAD_NETWORKS[text]) as caught:
        read_proteins(write(tmp_path / "net.txt", text))
    assert "net.txt" in str(caught.value)


def test_other_names_are_found_where_they_are_clear(tmp_path: Path) -> None:
    network = write(tmp_path / "9.txt", links([("a", "b", 900), ("b", "c", 900)]))
    listed = "9.a\tx\n9.b\ty\n9.c\ty\n9.b\t9.a\n8.q\tz\n"
    aliases = write(tmp_path / "aliases.txt", f"#string_protein_id\talias\n{listed}")
    labels = write(tmp_path / "labels.csv", "gene,t\nx,1\ny,1\nz,1\nb,0\n")
    store = read_proteins(network, labels=labels, aliases=aliases)
    assert dict(zip(store.texts(), store.labels[:, 0].tolist(), strict=True)) == {
        "9.a": 1,
        "9.b": 0,
        "9.c": pytest.approx(np.nan, nan_ok=True),
    }
    assert {*store.source.unmatched} == {"y", "z"}
    with pytest.raises(DataError, match=r"9.txt: 'y': .*line 3: has labels but is in no network"):
        read_proteins(network, labels=labels, aliases=aliases, on_error="fail")
    plain = read_proteins(network, labels=labels)
    assert {*plain.source.unmatched} == {"x", "y", "z"}


def test_nothing_to_read_is_told() -> None:
    with pytest.raises(DataError, match="no network to read; name at least one file"):
        read_proteins([])


def test_what_the_command_line_cannot_ask_for(tmp_path: Path) -> None:
    network = write(tmp_path / "9.txt", links([("a", "b", 900)]))
    with pytest.raises(ConfigError, match="did you mean 'radius'"):
        read_proteins(network, radios=2)
    cut_off = OBO.replace("is_a: GO:0000001", "is_a: GO:0000004")
    with pytest.raises(DataError, match=r"line 8.*not there or obsolete"):
        read_ontology(write(tmp_path / "bad.obo", cut_off))


def test_worm_reproduces_the_published_derivation(mirror: Path, tmp_path: Path) -> None:
    bio = mirror / "bio"
    annotated = pd.read_csv(bio / "celegans_go_annotations.tsv.gz", sep="\t", na_filter=False)
    columns = annotated[["protein", "go_id", "evidence", "qualifier"]]
    store = read_proteins(
        "string-6239",
        annotations=write(
            tmp_path / "worm.gaf",
            gaf(columns.itertuples(index=False)).replace("taxon:9\t", "taxon:6239\t"),
        ),
        go=write(tmp_path / "go.obo", obo_of_tables(bio)),
        neighbors=10,
    )
    assert len(store) == 10_735
    labels, names = bio / "celegans_go40_labels.csv.gz", store.texts()
    table = Functions(names)
    read_labels(table, labels, ProteinOptions())
    assert store.tasks == table.tasks
    np.testing.assert_array_equal(store.labels, table.values)


def obo_of_tables(bio: Path) -> str:
    """The Gene Ontology that the mirror holds as two tables."""
    branches = {"BP": "biological_process", "MF": "molecular_function", "CC": "cellular_component"}
    terms = pd.read_csv(bio / "go_terms_2022-07.tsv.gz", sep="\t", index_col="go_id")
    terms = terms[terms.aspect.isin(branches)]
    edges = pd.read_csv(bio / "go_edges_2022-07.tsv.gz", sep="\t")
    edges = edges[edges.parent.isin(terms.index)]
    edges["text"] = ("relationship: " + edges.relation.str.replace(" ", "_") + " ").where(
        edges.relation != "isa", "is_a: "
    ) + edges.parent
    broader = edges.groupby("child").text.agg("\n".join)
    stanzas = [
        f"[Term]\nid: {term}\nnamespace: {branches[aspect]}\n{broader.get(term, '')}\n"
        for term, aspect in terms.aspect.items()
    ]
    return "\n".join(["format-version: 1.2", *stanzas])
