"""Nearest neighbors: those of largest cosine, and an index that is kept safely."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cli_support import read_table, short_files
from downstream_support import CHAINS, tiny_encoder, write_csv
from graphlog.encoders.modelfile import read_tensors, write_tensors
from graphlog.errors import ConfigError, DataError, GraphLoGError, ModelFileError
from graphlog.extras.neighbors import Index, neighbors, neighbors_file
from graphlog.files import hash_file
from graphlog.ops.contrastive import unit_rows

LIBRARY = ["not one", *CHAINS]


@pytest.mark.parametrize("exact", [True, False])
def test_neighbors_are_those_of_largest_cosine(exact: bool, monkeypatch: pytest.MonkeyPatch):
    if not exact:
        pytest.importorskip("usearch")
    monkeypatch.setattr("graphlog.extras.neighbors._ROWS_AT_ONCE", 7)
    encoder = tiny_encoder()
    queries = ["CCCCO", "C(C", "c1ccccc1"]
    found = neighbors(encoder, queries, LIBRARY, 5, exact=exact)
    unit = unit_rows(torch.tensor(encoder.embed(LIBRARY))).numpy()
    cosines = np.nan_to_num(
        unit_rows(torch.tensor(encoder.embed(queries))).numpy() @ unit.T, nan=-2
    )
    for query in (0, 2):
        # half precision in the approximate index: 1e-3; ties may stand in another order
        tolerance = 1e-6 if exact else 2e-3
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


@pytest.mark.parametrize("exact", [True, False])
def test_an_index_is_saved_and_guarded(tmp_path: Path, exact: bool):
    if not exact:
        pytest.importorskip("usearch")
    encoder = tiny_encoder()
    index = Index.build(encoder, LIBRARY, exact=exact)
    index.save(tmp_path / "index")
    again = Index.load(tmp_path / "index")
    assert (len(again), again.is_exact) == (len(CHAINS), exact)
    before, after = (i.query(encoder, CHAINS[:6], 3) for i in (index, again))
    np.testing.assert_array_equal(before.rows, after.rows)
    np.testing.assert_array_equal(before.similarity, after.similarity)
    assert again.record(3) == ({"row": "3", "smiles": LIBRARY[3]}, LIBRARY[3])
    with pytest.raises(ConfigError, match="another model"):
        again.query(tiny_encoder(seed=1), ["CCO"])
    with pytest.raises(ConfigError, match="exists; remove it"):
        index.save(tmp_path / "index")
    for name in ("vectors.npy" if exact else "graph.usearch", "index.safetensors"):
        file = tmp_path / "index" / name
        file.write_bytes(file.read_bytes()[:-1] + b"x")
        with pytest.raises(ModelFileError, match=f"{name}.* damaged"):
            Index.load(tmp_path / "index")
    with pytest.raises(DataError, match="is not an index"):
        Index.load(tmp_path)


def test_an_index_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_of_two_that_save_one_index_the_slower_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, out = Index.build(tiny_encoder(), ["CCO"]), tmp_path / "index"

    def overtaken(*parts: Any) -> None:
        write_tensors(*parts)
        out.mkdir()
        (out / "vectors.npy").touch()

    monkeypatch.setattr("graphlog.extras.neighbors.write_tensors", overtaken)
    with pytest.raises(ConfigError, match="index exists; remove it"):
        index.save(out)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


HEADER = (
    b"\x93NUMPY\x01\x00v\x00{'descr': '<i8', 'fortran_order': False, 'shape': (3,\0}" + b" " * 99
)
_RECORDS = np.frombuffer(b"\n".join([b"[{}, 2]"] * 4), np.uint8)


@pytest.mark.parametrize(
    "changes",
    [
        {"layer": None},
        {"layer": "other"},
        {"model": None},
        {"vectors": np.ones((4, 8), np.float32)},
        {"vectors": np.ones(3, np.float32)},
        {"vectors": np.ones((3, 8), np.float64)},
        *({"vectors": content} for content in (b"", b"x", b"\x93NUMPY\x01\x00", b"\x80\x04N.")),
        {"vectors": HEADER},
        {"exact": None, "graph": b"x" * 99},
        {"records": None},
        {"records": _RECORDS[:20]},
        {"rows": None},
        *({"rows": np.array(rows)} for rows in ([-1, 0, 1], [0, 0, 1], [0, 1, 4], [0, 1])),
        *({"rows": np.array(rows)} for rows in ([[0, 1, 3]], [0.0, 1.0, 3.0], [])),
    ],
    ids=lambda changes: str(changes).replace("\n", ""),
)
def test_a_signed_index_whose_parts_contradict_each_other(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    _changed(tmp_path / "index", **changes)
    with pytest.raises(ModelFileError, match="contradict"):
        Index.load(tmp_path / "index")


def _changed(folder: Path, **changes: Any) -> None:
    """Write an index of three graphs with other parts (None: without), signed."""
    Index.build(tiny_encoder(), ["CCO", "CCN", "bad", "CCC"]).save(folder)
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
            parts[name] = torch.tensor(value) if name in ("rows", "records") else value
    write_tensors(folder / "index.safetensors", "index", about, tensors)


def test_vectors_of_another_width_are_of_another_model(tmp_path: Path) -> None:
    _changed(tmp_path / "index", vectors=np.ones((3, 2), np.float32))
    with pytest.raises(ConfigError, match="another model"):
        Index.load(tmp_path / "index").query(tiny_encoder(), ["CCO"])


@pytest.mark.parametrize("line", ["{}", "[1, 2]", "[{}, 2]", "x", "[" * 5000])
def test_records_of_a_signed_index(tmp_path: Path, line: str) -> None:
    records = np.frombuffer("\n".join([line] * 4).encode(), np.uint8)
    _changed(tmp_path / "index", records=records)
    with pytest.raises(ModelFileError, match="record 2 of the index is damaged"):
        Index.load(tmp_path / "index").record(2)


def test_a_query_may_be_longer_than_the_name_of_a_file(tmp_path: Path):
    chain = "C" * 300
    neighbors_file(tiny_encoder(), chain, ["CCO", chain], tmp_path / "out.csv", 1)
    assert [row["neighbor_row"] for row in read_table(tmp_path / "out.csv")] == ["1"]


def test_files_of_neighbors(tmp_path: Path):
    encoder = tiny_encoder()
    library = write_csv(
        tmp_path / "library.csv", LIBRARY, id=[f"m{k}" for k in range(len(LIBRARY))]
    )
    queries = write_csv(tmp_path / "q.csv", ["CCO", "bad one", "CCN"], name=["<u>", "v", "w"])
    expected = neighbors(encoder, ["CCO", "bad one", "CCN"], LIBRARY, 2)
    written = neighbors_file(
        encoder, queries, library, tmp_path / "out.csv", 2, save=tmp_path / "index"
    )
    assert (written.rows, written.rejected) == (3, 1)
    rows = read_table(tmp_path / "out.csv")
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
    neighbors_file(encoder, queries, tmp_path / "index", tmp_path / "out.jsonl", 2)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["neighbor_row"] for line in lines] == [
        int(row["neighbor_row"]) if row["neighbor_row"] else None for row in rows
    ]
    neighbors_file(encoder, queries, tmp_path / "index", tmp_path / "out.html", 2)
    page = (tmp_path / "out.html").read_text()
    assert page.count("<figure>") == 3 + 4
    assert page.count("<svg") == 2 + 4
    assert "&lt;u&gt;" in page
    with pytest.raises(ConfigError, match="is an index already"):
        neighbors_file(
            encoder, queries, tmp_path / "index", tmp_path / "o.csv", save=tmp_path / "new"
        )


def test_a_saved_index_decides_layer_and_search(tmp_path: Path) -> None:
    encoder, out = tiny_encoder(), tmp_path / "out.csv"
    index = Index.build(encoder, CHAINS, layer="last", exact=True)
    index.save(tmp_path / "index")
    for wrong, told in (
        ({"layer": "jk"}, "`layer='jk'` does not fit the index, which is of layer 'last'; drop it"),
        ({"exact": False}, "`exact=False` does not fit the index, which is exact; drop it"),
    ):
        with pytest.raises(ConfigError, match=told):
            neighbors(encoder, ["CCO"], index, 1, **wrong)
        with pytest.raises(ConfigError, match=told):
            neighbors_file(encoder, "CCO", tmp_path / "index", out, 1, **wrong)
    neighbors_file(encoder, "CCO", tmp_path / "index", out, 1, layer="last", exact=True)


def test_query_and_library_are_never_written_over(tmp_path: Path) -> None:
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


def test_two_tables_may_name_their_columns_differently(tmp_path: Path) -> None:
    library = tmp_path / "library.csv"
    library.write_text("Structure (canonical),key\n" + "".join(f"{s},{s}\n" for s in CHAINS))
    queries = write_csv(tmp_path / "q.csv", ["CCO", "CCN"], name=["a", "b"])
    found = {}
    for query, other in ((queries, library), (library, queries)):
        out = tmp_path / "out.csv"
        neighbors_file(tiny_encoder(), query, other, out, 1, smiles_column="Structure (canonical)")
        found[query.name] = read_table(out)
    assert [row["neighbor_key"] for row in found["q.csv"]] == ["CCO", "CCN"]
    assert len(found["library.csv"]) == len(CHAINS)
    with pytest.raises(DataError, match="no column 'strucure'"):
        neighbors_file(tiny_encoder(), queries, library, out, 1, smiles_column="strucure")
