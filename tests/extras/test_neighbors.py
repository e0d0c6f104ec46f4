"""Nearest neighbors: those of largest cosine, and an index that is kept safely."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from openpyxl import Workbook

import graphlog
from cli_support import read_table, short_files
from downstream_support import CHAINS, tiny_encoder, write_csv
from graphlog.encoders.modelfile import read_tensors, write_tensors
from graphlog.errors import ConfigError, DataError, GraphLoGError, ModelFileError
from graphlog.extras.neighbors import Index, neighbors, neighbors_file
from graphlog.files import hash_file
from graphlog.ops.contrastive import unit_rows

LIBRARY = ["not one", *CHAINS]


@pytest.fixture(params=[True, False], ids=["exact", "approximate"])
def exact(request: pytest.FixtureRequest) -> bool:
    if not request.param:
        pytest.importorskip("usearch")
    return request.param


def test_neighbors_are_those_of_largest_cosine(exact: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("graphlog.extras.neighbors._ROWS_PER_BLOCK", 7)
    encoder, queries = tiny_encoder(), ["CCCCO", "C(C", "c1ccccc1"]
    found = neighbors(encoder, queries, LIBRARY, 5, exact=exact)
    asked, known = (unit_rows(torch.tensor(encoder.embed(v))).numpy() for v in (queries, LIBRARY))
    cosines = np.nan_to_num(asked @ known.T, nan=-2)
    # half precision in the approximate index: 1e-3; ties may stand in another order
    tolerance = 1e-6 if exact else 2e-3
    for query in (0, 2):
        best = np.sort(cosines[query])[::-1][:5]
        np.testing.assert_allclose(found.similarity[query], best, atol=tolerance)
        np.testing.assert_allclose(cosines[query, found.rows[query]], best, atol=tolerance)
    assert found.rows[1].tolist() == [-1] * 5
    assert np.isnan(found.similarity[1]).all()
    assert neighbors(encoder, CHAINS, LIBRARY, 5, exact=exact).similarity.max() <= 1
    assert [text == "ok" for text in found.status] == [True, False, True]


def test_a_small_library_gives_fewer():
    found = neighbors(tiny_encoder(), ["CCO"], ["CCO", "C"], 10)
    assert found.rows.tolist() == [[0, 1]]
    np.testing.assert_allclose(found.similarity[0, 0], 1, atol=1e-6)
    with pytest.raises(ConfigError, match="`k` must be 1 or more"):
        neighbors(tiny_encoder(), ["CCO"], ["CCO"], 0)
    with pytest.raises(DataError, match="no row that can be read"):
        neighbors(tiny_encoder(), ["CCO"], ["x"])


def test_an_index_is_saved_and_guarded(tmp_path: Path, exact: bool):
    encoder, folder = tiny_encoder(), tmp_path / "index"
    index = Index.build(encoder, LIBRARY, exact=exact)
    index.save(folder)
    again = Index.load(folder)
    assert (len(again), again.is_exact) == (len(CHAINS), exact)
    before, after = (i.query(encoder, CHAINS[:6], 3) for i in (index, again))
    np.testing.assert_array_equal(before.rows, after.rows)
    np.testing.assert_array_equal(before.similarity, after.similarity)
    assert again.record(3) == ({"row": "3", "smiles": LIBRARY[3]}, LIBRARY[3])
    with pytest.raises(ConfigError, match="another model"):
        again.query(tiny_encoder(seed=1), ["CCO"])
    with pytest.raises(ConfigError, match="exists; remove it"):
        index.save(folder)
    for name in ("vectors.npy" if exact else "graph.usearch", "index.safetensors"):
        (folder / name).write_bytes((folder / name).read_bytes()[:-1] + b"x")
        with pytest.raises(ModelFileError, match=f"{name}.* damaged"):
            Index.load(folder)
    with pytest.raises(DataError, match="is not an index"):
        Index.load(tmp_path)


def test_an_index_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    index = Index.build(tiny_encoder(), ["CCO"])
    with short_files(150), pytest.raises(GraphLoGError, match=r"cannot write .*File too large"):
        index.save("index")
    with pytest.raises(ConfigError, match=r"\. exists; remove it"):
        index.save(".")
    with pytest.raises(ConfigError, match="`k` must be"):
        neighbors_file(tiny_encoder(), ["CCN"], ["CCO"], "near.csv", 0, save="index")
    assert list(tmp_path.iterdir()) == []
    index.save(tmp_path / "index")
    assert len(Index.load(tmp_path / "index")) == 1


def test_the_slower_of_two_that_save_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    index, out = Index.build(tiny_encoder(), ["CCO"]), tmp_path / "index"

    def overtaken(*parts: Any):
        write_tensors(*parts)
        out.mkdir()
        (out / "vectors.npy").touch()

    monkeypatch.setattr("graphlog.extras.neighbors.write_tensors", overtaken)
    with pytest.raises(ConfigError, match="index exists; remove it"):
        index.save(out)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


SHAPE = b"\x93NUMPY\x01\x00v\x00{'descr': '<i8', 'fortran_order': False, 'shape': (3,\0}"
RECORDS = np.frombuffer(b"\n".join([b"[{}, 2]"] * 4), np.uint8)
BYTES = (b"", b"x", b"\x93NUMPY\x01\x00", b"\x80\x04N.", SHAPE + b" " * 99)
VECTORS = (np.ones((4, 8), np.float32), np.ones(3, np.float32), np.ones((3, 8), np.float64))
ROWS = ([-1, 0, 1], [0, 0, 1], [0, 1, 4], [0, 1], [[0, 1, 3]], [0.0, 1.0, 3.0], [])


@pytest.mark.parametrize(
    "changes",
    [
        {"layer": None},
        {"layer": "other"},
        {"model": None},
        *({"vectors": content} for content in (*VECTORS, *BYTES)),
        {"exact": None, "graph": b"x" * 99},
        {"records": None},
        {"records": RECORDS[:20]},
        {"rows": None},
        *({"rows": np.array(rows)} for rows in ROWS),
    ],
    ids=lambda changes: str(changes).replace("\n", ""),
)
def test_parts_of_a_signed_index_that_contradict_are_refused(tmp_path: Path, changes: Any):
    _changed(tmp_path / "index", **changes)
    with pytest.raises(ModelFileError, match="contradict"):
        Index.load(tmp_path / "index")


@pytest.mark.parametrize(
    "starts",
    [None, [0, 2, 3, 4], [0, 1], [1, 2, 3], [0, 3, 3], [0, 1, 2], [[0, 2, 3]], [0.0, 2, 3]],
)
def test_starts_of_a_signed_graph(tmp_path: Path, starts: Any):
    pytest.importorskip("usearch")
    _changed(tmp_path / "whole", is_exact=False, starts=np.array([0, 2, 3]))
    assert len(Index.load(tmp_path / "whole")) == 3
    changed = None if starts is None else np.array(starts)
    _changed(tmp_path / "index", is_exact=False, starts=changed)
    with pytest.raises(ModelFileError, match="contradict"):
        Index.load(tmp_path / "index")


def _changed(folder: Path, *, is_exact: bool = True, **changes: Any):
    """Write an index of three graphs with other parts (None: without), signed."""
    library = ["CCO", "CCN", "bad", "CCC" if is_exact else "OCC"]
    Index.build(tiny_encoder(), library, exact=is_exact).save(folder)
    about, tensors = read_tensors(folder / "index.safetensors", "index")
    del about["sha256"]
    for name, value in changes.items():
        if name in ("vectors", "graph"):
            file = folder / {"vectors": "vectors.npy", "graph": "graph.usearch"}[name]
            file.write_bytes(value) if isinstance(value, bytes) else np.save(file, value)
            about["vectors"] = hash_file(file)
            continue
        parts: dict[str, Any] = about if name in about else tensors
        parts.pop(name)
        if value is not None:
            parts[name] = torch.tensor(value) if parts is tensors else value
    write_tensors(folder / "index.safetensors", "index", about, tensors)


def test_vectors_of_another_width_are_of_another_model(tmp_path: Path):
    _changed(tmp_path / "index", vectors=np.ones((3, 2), np.float32))
    with pytest.raises(ConfigError, match="another model"):
        Index.load(tmp_path / "index").query(tiny_encoder(), ["CCO"])


@pytest.mark.parametrize("line", ["{}", "[1, 2]", "[{}, 2]", "x", "[" * 5000])
def test_records_of_a_signed_index(tmp_path: Path, line: str):
    records = np.frombuffer("\n".join([line] * 4).encode(), np.uint8)
    _changed(tmp_path / "index", records=records)
    with pytest.raises(ModelFileError, match="record 2 of the index is damaged"):
        Index.load(tmp_path / "index").record(2)


@pytest.mark.parametrize("book_is_library", [True, False])
def test_a_workbook_beside_another_table(tmp_path: Path, book_is_library: bool):
    """A sheet is named of the workbook, a column of the table that has it."""
    book, table, out = Workbook(), write_csv(tmp_path / "m.csv", CHAINS), tmp_path / "out.csv"
    for title, header in (("notes", "text"), ("data", "structure")):
        sheet = book.create_sheet(title)
        for cell in (header, "CCO"):
            sheet.append([cell])
    book.save(tmp_path / "m.xlsx")
    files = (table, tmp_path / "m.xlsx")
    query, library = files if book_is_library else files[::-1]
    named = {"sheet": "data", "smiles_column": "structure"}
    neighbors_file(tiny_encoder(), query, library, out, 1, **named)
    assert len(read_table(out)) == (len(CHAINS) if book_is_library else 1)
    book.remove(book["data"])
    book.remove(book["Sheet"])
    book["notes"]["A1"] = "smiles"
    book.save(tmp_path / "single.xlsx")
    files = (tmp_path / "single.xlsx", tmp_path / "m.xlsx")
    query, library = files if book_is_library else files[::-1]
    neighbors_file(tiny_encoder(), query, library, out, 1, **named)
    assert len(read_table(out)) == 1


def test_an_index_may_be_of_another_layer_than_the_models():
    encoder, library = tiny_encoder(), ["CCO", "CCN"]
    index = Index.build(encoder, library, layer="jk", exact=True)
    assert (encoder.layer, index.layer) == ("last", "jk")
    assert index.vectors.shape[1] == encoder.width("jk")
    own, other = (neighbors(encoder, ["C"], library, layer=k).similarity for k in (None, "jk"))
    assert not np.allclose(own, other)


def test_of_equal_neighbors_the_earlier_rows_come_first(
    exact: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("graphlog.extras.neighbors._ROWS_PER_BLOCK", 4)
    library = ["bad", "CCO", "CCC", "CCO", "OCC", "CCO", "CCN", "CCO"]
    found = neighbors(tiny_encoder(), ["CCO", "CCN"], library, 4, exact=exact, batch_size=3)
    assert found.rows[0].tolist() == [1, 3, 4, 5]
    assert found.rows[1, 0] == 6
    assert (np.diff(found.similarity, axis=1) <= 0).all()


def test_rows_that_repeat_hide_no_others(tmp_path: Path):
    """Equal vectors in a graph link to each other alone: most others could not be reached."""
    pytest.importorskip("usearch")
    encoder, repeated = tiny_encoder(), CHAINS[3:6]
    library = [*CHAINS, *repeated * 200]
    index = Index.build(encoder, library, exact=False, batch_size=100)
    index.save(tmp_path / "index")
    index, whole = Index.load(tmp_path / "index"), Index.build(encoder, library, exact=True)
    for queries, k in ((CHAINS, 1), (CHAINS, 205), (CHAINS[:1], len(library))):
        found, expected = (one.query(encoder, queries, k) for one in (index, whole))
        np.testing.assert_allclose(found.similarity, expected.similarity, atol=2e-3)
        assert (np.diff(np.sort(found.rows, axis=1), axis=1) > 0).all()
    first = index.query(encoder, CHAINS, 1).rows[:, 0]
    np.testing.assert_array_equal(first, np.arange(len(CHAINS)))
    of_repeated = index.query(encoder, repeated, 201).rows
    expected = [[at, *range(len(CHAINS) + at - 3, len(library), 3)] for at in (3, 4, 5)]
    np.testing.assert_array_equal(of_repeated, expected)


@pytest.mark.parametrize("queries", [1, 3])
def test_where_a_graph_leads_to_too_few_all_are_compared(queries: int):
    graphs = pytest.importorskip("usearch.index")
    vectors = np.random.default_rng(0).normal(size=(800, 16)).astype(np.float32)
    vectors[:500] = vectors[0]  # as equal ones do, it cuts the others off
    graph = graphs.Index(ndim=16, metric="cos", dtype="f16")
    graph.add(np.arange(800, dtype=np.uint64), vectors, threads=1)
    assert len(graph.search(vectors[600], 700).keys) < 700
    index = Index("", "jk", graph, np.arange(800), [], starts=np.arange(801))
    rows, cosines = index.nearest(vectors[600 : 600 + queries], 700)
    unit = unit_rows(torch.tensor(vectors)).numpy()
    best = np.sort(unit[600 : 600 + queries] @ unit.T, axis=1)[:, :-701:-1]
    np.testing.assert_allclose(cosines, best, atol=2e-3)
    assert [len(set(own)) for own in rows.tolist()] == [700] * queries


def test_vectors_that_are_not_finite_are_the_farthest():
    vectors = np.eye(4, dtype=np.float32)
    vectors[1] = np.nan
    index = Index("", "jk", vectors, np.arange(4), [b"[{}, 2]"] * 4)
    rows, cosines = index.nearest(np.stack([vectors[1], vectors[2]]), 4)
    assert rows.tolist() == [[0, 1, 2, 3], [2, 0, 3, 1]]
    np.testing.assert_array_equal(cosines, [[np.nan] * 4, [1, 0, 0, np.nan]])


def test_an_approximate_index_leaves_out_vectors_that_are_not_finite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("usearch")
    encoder = tiny_encoder()
    embed = type(encoder).embed_batches

    def damaged(*args: Any, **options: Any):
        for graphs, values in embed(*args, **options):
            values[:3] = np.nan
            yield graphs, values

    with monkeypatch.context() as patch:
        patch.setattr(type(encoder), "embed_batches", damaged)
        index = Index.build(encoder, CHAINS, exact=False, batch_size=100)
        with pytest.raises(DataError, match=r"no embedding of .* is finite"):
            Index.build(encoder, CHAINS[:3], exact=False)
        lost = index.query(encoder, CHAINS[:3], 2)
        neighbors_file(encoder, CHAINS[:1], index, tmp_path / "near.jsonl", k=1)
    assert json.loads((tmp_path / "near.jsonl").read_text())["neighbor_similarity"] is None
    np.testing.assert_array_equal(index.rows, np.arange(3, len(CHAINS)))
    found = index.query(encoder, CHAINS, 1)
    np.testing.assert_array_equal(found.rows[3:, 0], index.rows)
    assert np.isfinite(found.similarity).all()
    assert lost.rows.tolist() == [[3, 4]] * 3
    assert np.isnan(lost.similarity).all()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have names in UTF-8 only")
def test_an_index_may_be_in_a_folder_whose_name_is_not_utf8(tmp_path: Path, exact: bool):
    folder = tmp_path / os.fsdecode(b"not-utf8-\xff")
    folder.mkdir()
    index = Index.build(tiny_encoder(), CHAINS, exact=exact)
    index.save(folder / "index")
    assert len(Index.load(folder / "index")) == len(CHAINS)


def test_queries_are_standardized_as_the_library_was(tmp_path: Path):
    """Whether it is an index, a store or a table: a salt is then the same as its parent."""
    encoder, salt, parent = tiny_encoder(), "CCN.Cl", {"standardize": "parent"}
    table, index, out = write_csv(tmp_path / "lib.csv", [salt]), tmp_path / "i", tmp_path / "o.csv"
    store = graphlog.featurize(table, tmp_path / "s", schema="molecule", **parent)
    neighbors_file(encoder, salt, table, out, 1, save=index, **parent)
    for library in (index, store.path, store):
        for reading in ({}, parent):
            neighbors_file(encoder, "CCN", library, out, 1, **reading)
            assert float(read_table(out)[0]["neighbor_similarity"]) == pytest.approx(1, abs=1e-6)
            assert neighbors(encoder, [salt], library, 1).similarity[0, 0] > 1 - 1e-6
    with pytest.raises(ConfigError, match="read it with `standardize='parent'`, as the mol"):
        neighbors(encoder, graphlog.read_molecules(["CCN"], schema="molecule"), index)


def test_a_query_may_be_longer_than_the_name_of_a_file(tmp_path: Path):
    chain = "C" * 300
    neighbors_file(tiny_encoder(), chain, ["CCO", chain], tmp_path / "out.csv", 1)
    assert [row["neighbor_row"] for row in read_table(tmp_path / "out.csv")] == ["1"]


def test_a_library_may_number_its_rows_itself(tmp_path: Path):
    numbers = [str(100 + k) for k in range(len(CHAINS))]
    library = tmp_path / "lib.csv"
    library.write_text("row,smiles\n" + "".join(map("{},{}\n".format, numbers, CHAINS)))
    neighbors_file(tiny_encoder(), [CHAINS[3]], library, tmp_path / "out.csv", 1)
    (found,) = read_table(tmp_path / "out.csv")
    assert (found["neighbor_row"], found["graphlog_neighbor_row"]) == ("3", "103")


def test_files_of_neighbors(tmp_path: Path):
    encoder, asked, out = tiny_encoder(), ["CCO", "bad one", "CCN"], tmp_path / "out.csv"
    library = write_csv(tmp_path / "lib.csv", LIBRARY, id=[f"m{k}" for k in range(len(LIBRARY))])
    queries, index = (
        write_csv(tmp_path / "q.csv", asked, name=["<u>", "v", "w"]),
        tmp_path / "index",
    )
    expected = neighbors(encoder, asked, LIBRARY, 2)
    written = neighbors_file(encoder, queries, library, out, 2, save=index)
    assert (written.rows, written.rejected) == (3, 1)
    rows = read_table(out)
    assert list(rows[0]) == [
        *("smiles", "name", "neighbor_rank", "neighbor_similarity", "neighbor_row"),
        *("neighbor_smiles", "neighbor_id", "graphlog_status"),
    ]
    assert [row["name"] for row in rows] == ["<u>", "<u>", "v", "w", "w"]
    assert [row["neighbor_rank"] for row in rows] == ["1", "2", "", "1", "2"]
    assert [int(row["neighbor_row"]) for row in rows[:2]] == expected.rows[0].tolist()
    assert rows[0]["neighbor_id"] == f"m{expected.rows[0, 0]}"
    assert rows[2]["graphlog_status"] not in ("", "ok")
    assert [row["row"] for row in read_table(tmp_path / "rejects.csv")] == ["1"]
    neighbors_file(encoder, queries, index, tmp_path / "out.jsonl", 2)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["neighbor_row"] for line in lines] == [
        int(row["neighbor_row"]) if row["neighbor_row"] else None for row in rows
    ]
    neighbors_file(encoder, queries, index, tmp_path / "out.html", 2)
    page = (tmp_path / "out.html").read_text()
    assert page.count("<figure>") == 3 + 4
    assert page.count("<svg") == 2 + 4
    assert "&lt;u&gt;" in page
    assert "name='viewport'" in page
    cards = page.split("<figure>")[1:]
    assert "<b>query</b> &middot; row&nbsp;0<" in cards[0]
    row = expected.rows[0, 0]
    assert f"&middot; row&nbsp;{row}<" in cards[1]
    assert f"aria-label='{LIBRARY[row]}'" in cards[1]
    assert f"title='smiles: {LIBRARY[row]}\nid: m{row}'" in cards[1]  # what the lines may cut
    with pytest.raises(ConfigError, match="is an index already"):
        neighbors_file(encoder, queries, index, out, save=tmp_path / "new")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"layer": "jk"}, "`layer='jk'` does not fit the index, which is of layer 'last'; drop it"),
        ({"exact": False}, "`exact=False` does not fit the index, which is exact; drop it"),
    ],
)
def test_a_saved_index_decides_layer_and_search(tmp_path: Path, wrong: Any, told: str):
    encoder, out, folder = tiny_encoder(), tmp_path / "out.csv", tmp_path / "index"
    index = Index.build(encoder, CHAINS, layer="last", exact=True)
    index.save(folder)
    with pytest.raises(ConfigError, match=told):
        neighbors(encoder, ["CCO"], index, 1, **wrong)
    with pytest.raises(ConfigError, match=told):
        neighbors_file(encoder, "CCO", folder, out, 1, **wrong)
    neighbors_file(encoder, "CCO", folder, out, 1, layer="last", exact=True)


def test_query_and_library_are_never_written_over(tmp_path: Path):
    query, library = (write_csv(tmp_path / f"{n}.csv", CHAINS[:3]) for n in ("query", "library"))
    linked = tmp_path / "linked.csv"
    linked.symlink_to(library)
    before = query.read_bytes()
    for out in (query, library, linked):
        with pytest.raises(ConfigError, match="is the input itself and would be lost"):
            neighbors_file(tiny_encoder(), str(query), library, out, 1)
    assert query.read_bytes() == library.read_bytes() == before


def test_one_molecule_on_the_command_line(capfd: pytest.CaptureFixture[str]):
    neighbors_file(tiny_encoder(), "CCO", CHAINS, "-", 1)
    head, line = capfd.readouterr().out.splitlines()
    assert head.startswith("row,smiles,neighbor_rank")
    assert line.startswith("0,CCO,1,1.0,")
    with pytest.raises(DataError, match="not a file, data set or molecule"):
        neighbors_file(tiny_encoder(), "nowhere.csv", CHAINS, "-", 1)


def test_two_tables_may_name_their_columns_differently(tmp_path: Path):
    library, out, name = tmp_path / "library.csv", tmp_path / "out.csv", "Structure (canonical)"
    library.write_text(f"{name},key\n" + "".join(f"{s},{s}\n" for s in CHAINS))
    queries = write_csv(tmp_path / "q.csv", ["CCO", "CCN"], name=["a", "b"])
    neighbors_file(tiny_encoder(), queries, library, out, 1, smiles_column=name)
    assert [row["neighbor_key"] for row in read_table(out)] == ["CCO", "CCN"]
    neighbors_file(tiny_encoder(), library, queries, out, 1, smiles_column=name)
    assert len(read_table(out)) == len(CHAINS)
    with pytest.raises(DataError, match="no column 'strucure'"):
        neighbors_file(tiny_encoder(), queries, library, out, 1, smiles_column="strucure")
