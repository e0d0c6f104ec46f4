"""Molecule files of all the kinds people have, and one line for each way they can be wrong."""

import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphlog.data.tables import Row, choose_tasks, open_table
from graphlog.errors import DataError
from graphlog.files import open_text

CSV = "smiles,y\nCCO,1\nc1ccccc1,0\n"


def packed(content: bytes) -> bytes:
    """Gzip without a time stamp: test names hold the bytes, and every worker must make the same."""
    return gzip.compress(content, mtime=0)


def write(tmp_path: Path, name: str, content: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows_of(path: Path | str, **options) -> list[Row]:
    with open_table(path, **options) as table:
        return list(table.rows)


def smiles_of(path: Path | str, **options) -> list[str]:
    return [row.record for row in rows_of(path, **options)]


def refusal(path: Path | str, **options) -> str:
    with pytest.raises(DataError) as caught:
        rows_of(path, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", CSV),
        ("a.CSV", CSV),
        ("a.tsv", CSV.replace(",", "\t")),
        ("a.smi", "CCO one\nc1ccccc1 two\n"),
        ("a.smi", "smiles name\nCCO one\nc1ccccc1 two\n"),
        ("a.txt", "CCO\n\nc1ccccc1\n\n"),
        ("a.txt", CSV),
        ("a.csv.zst", packed(CSV.encode())),
        ("a.csv", CSV.replace("\n", "\r")),
        ("a.csv", "\n\n" + CSV + "\n\n"),
        ("a.csv", 'name,"smiles"\n"a, b","CCO"\n"said ""x""",c1ccccc1\n'),
        ("a.csv", 'smiles,name\nCCO,"two\nlines"\nc1ccccc1,b\n'),
        ("a.csv", "mol,CID\nCCO,1\nc1ccccc1,2\n"),
        ("a.csv", "id,Canonical SMILES\n1,CCO\n2,c1ccccc1\n"),
        ("a.csv", "smiles\nCCO\nc1ccccc1\n"),
        ("a.csv", "smiles,y,\nCCO,1,\nc1ccccc1,0,\n"),
        ("a.csv", "smiles,y\nCCO,1,,\nc1ccccc1,0\n"),
        ("a.csv", " smiles ,y\n CCO ,1\nc1ccccc1,0\n"),
        ("a.txt", "molecule\ty\nCCO\t1\nc1ccccc1\t0\n"),
        ("a.txt", "Structure\nCCO\nc1ccccc1\n"),
    ],
)
def test_files_that_can_be_read(tmp_path: Path, name: str, content: str | bytes) -> None:
    rows = rows_of(write(tmp_path, name, content))
    assert [row.record for row in rows] == ["CCO", "c1ccccc1"]
    assert [row.row for row in rows] == [0, 1]
    assert not any(row.problem for row in rows)


def test_latin1_bytes_are_read_as_latin1(tmp_path: Path) -> None:
    rows = rows_of(write(tmp_path, "a.csv", b"smiles,name\nCCO,\xe9thanol\nC,m\xc3\xa9thane\n"))
    assert [row.fields["name"] for row in rows] == ["éthanol", "méthane"]


def test_rows_wholly_blank_are_not_rows_but_an_empty_cell_is(tmp_path: Path) -> None:
    rows = rows_of(write(tmp_path, "a.csv", "smiles,y\nCCO,1\n\n,0\n\r\nC,1\n"))
    assert [(row.row, row.record) for row in rows] == [(0, "CCO"), (1, ""), (2, "C")]


def test_a_ragged_row_says_so(tmp_path: Path) -> None:
    rows = rows_of(write(tmp_path, "a.csv", "smiles,y,z\nCCO,1,2\nC,1\nCC,1,2,3\n"))
    assert [row.problem for row in rows] == [
        None,
        "has 2 cells where the header has 3",
        "has 4 cells where the header has 3",
    ]


def test_a_smiles_of_a_megabyte_and_nul_bytes_arrive(tmp_path: Path) -> None:
    rows = rows_of(write(tmp_path, "a.csv", b"smiles,y\n" + b"C" * 1_000_000 + b",1\nC\0C,2\n"))
    assert [len(row.record) for row in rows] == [1_000_000, 3]


def test_a_cxsmiles_extension_belongs_to_the_smiles(tmp_path: Path) -> None:
    rows = rows_of(write(tmp_path, "a.smi", "CC |$R1;$| some name\nCCO other name\n"))
    assert [row.record for row in rows] == ["CC |$R1;$|", "CCO"]
    assert [row.fields["name"] for row in rows] == ["some name", "other name"]


def test_columns_are_kept_by_name(tmp_path: Path) -> None:
    with open_table(write(tmp_path, "a.csv", "id,smiles,y\n7,CCO,1\n")) as table:
        assert (table.columns, table.record_column) == (("id", "smiles", "y"), "smiles")
        assert next(table.rows).fields == {"id": "7", "smiles": "CCO", "y": "1"}


def test_the_smiles_column_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "smiles,drug\nC,CCO\n")
    assert smiles_of(path, wanted="drug") == ["CCO"]
    assert smiles_of(write(tmp_path, "b.csv", "what,y\nCCO,1\n"), wanted="WHAT") == ["CCO"]


def test_a_header_can_be_given(tmp_path: Path) -> None:
    assert smiles_of(
        write(tmp_path, "a.csv", '"CCO","x"\n"C","y"\n'), header=("smiles", "name")
    ) == ["CCO", "C"]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    for content in (
        CSV.encode(),
        b"CCO\nc1ccccc1\n",
        packed(CSV.encode()),
        CSV.replace(",", "\t").encode(),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))
        assert smiles_of("-") == ["CCO", "c1ccccc1"]
        assert not sys.stdin.closed


@pytest.mark.skipif(os.name != "posix", reason="limits of a process are posix")
def test_a_parquet_file_of_one_long_text_repeated_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """One text of a million letters in 3,000 rows: 3 GB as text, a few kilobytes on disk."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    def table_of(length: int, rows: int) -> Path:
        indices = pa.array([0] * rows, pa.int32())
        column = pa.DictionaryArray.from_arrays(indices, pa.array(["C" * length]))
        parquet.write_table(pa.table({"smiles": column}), tmp_path / "bomb.parquet")
        return tmp_path / "bomb.parquet"

    path = table_of(1_000_000, 3000)
    code = (
        "import resource; from pathlib import Path; from itertools import islice\n"
        "from graphlog.data.tables import open_table\n"
        "import pyarrow.compute, pyarrow.parquet, resource\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"with open_table(Path({str(path)!r})) as table:\n"
        "    lengths = [len(row.record) for row in islice(table.rows, 200)]\n"
        "assert set(lengths) == {1_000_000}, lengths\n"
        "grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before\n"
        "assert grown < 600_000, grown  # kilobytes\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "a cell of 1,048,577 bytes" in refusal(table_of(1_048_577, 2))


def test_a_parquet_file_that_expands_too_far_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("graphlog.data.tables._WHOLE_GROUP", 1 << 20)  # a smaller bomb is enough
    table = pa.table({"smiles": ["C" * 1000] * 4000})
    path = tmp_path / "bomb.parquet"
    parquet.write_table(table, path, compression="zstd", use_dictionary=False)
    assert "more than 200 times" in refusal(path)
    parquet.write_table(table, path, compression=None, use_dictionary=False)
    assert len(rows_of(path)) == 4000


def test_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(
        pa.table({"smiles": ["CCO", None], "y": [1.5, None]}), tmp_path / "a.parquet"
    )
    rows = rows_of(tmp_path / "a.parquet")
    assert [(row.record, row.fields["y"]) for row in rows] == [("CCO", "1.5"), ("", "")]
    whole = (tmp_path / "a.parquet").read_bytes()
    assert "not a readable Parquet file" in refusal(write(tmp_path, "b.parquet", whole[:-20]))
    assert "no such file" in refusal(tmp_path / "c.parquet")


def test_a_parquet_file_with_a_text_that_is_not_utf8(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    raw = pyarrow.array([b"CCO", b"C\xb1O"], pyarrow.binary())
    table = pyarrow.table({"smiles": raw.view(pyarrow.string())})
    for use_dictionary in (True, False):
        parquet.write_table(table, tmp_path / "a.parquet", use_dictionary=use_dictionary)
        assert "the Parquet data is damaged" in refusal(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.smi", "\n\n", "is empty"),
        ("a.csv", "smiles,y\n", "has a header but no rows"),
        ("a.smi", "smiles\n", "has a header but no rows"),
        ("a.csv", "name,y\nCCO,1\n", "no SMILES column found; name one with `smiles_column`"),
        (
            "a.csv",
            "smiles,canonical_smiles\nC,C\n",
            "more than one column may hold SMILES: smiles, canonical_smiles",
        ),
        ("a.csv", "smiles,smiles\nC,C\n", "more than one column"),
        ("a.csv", "name;y\nCCO;1\n", "separated by semicolons, not commas"),
        ("a.csv", "name\ty\nCCO\t1\n", "name it .tsv"),
        ("a.tsv", "name,y\nCCO,1\n", "name it .csv"),
        ("a.csv", 'smiles,y\n"CCO,1\n' + "C,1\n" * 2000, "is never closed"),
        ("a.sdf", "whatever", "cannot tell what kind of file this is"),
    ],
)
def test_files_that_cannot_be_read(
    tmp_path: Path, name: str, content: str | bytes, expected: str
) -> None:
    path = write(tmp_path, name, content)
    message = refusal(path)
    assert expected in message
    assert str(path) in message
    assert message.isprintable()


def test_names_that_are_wrong(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", CSV)
    assert "no column 'smilse'; did you mean 'smiles'? Columns: smiles, y" in refusal(
        path, wanted="smilse"
    )
    assert "no such file" in refusal(tmp_path / "missing")


def test_a_file_without_line_ends_is_not_read_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphlog.files.LONGEST_LINE", 1000)
    path = write(tmp_path, "a.smi", "C" * 5000)
    with pytest.raises(DataError, match="more than 1,000 characters"), open_text(path) as lines:
        list(lines)


@pytest.mark.parametrize(("name", "parts"), [("a.csv", ","), ("a.tsv", "\t"), ("a.smi", " ")])
def test_no_column_hides_another_of_its_name(tmp_path: Path, name: str, parts: str) -> None:
    lines = [["smiles", "v", "v", "v.2"], ["CCO", "1", "2", "3"]]
    with open_table(
        write(tmp_path, name, "".join(parts.join(line) + "\n" for line in lines))
    ) as table:
        assert next(table.rows).fields == {"smiles": "CCO", "v": "1", "v.3": "2", "v.2": "3"}
        with pytest.raises(DataError, match="'v' is given more than once"):
            choose_tasks(table, ["v"], [])


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zst"])
def test_a_decompression_bomb_is_read_in_bounded_pieces(tmp_path: Path, kind: str) -> None:
    import tracemalloc

    lines = 20_000_000
    module = {"gz": gzip, "bz2": bz2, "xz": lzma}.get(kind)
    module = pytest.importorskip("zstandard") if module is None else module
    parts = 40 if kind == "bz2" else 1  # which packs long repeats slowly, block by block
    content = module.compress(b"C\n" * (lines // parts)) * parts
    path = write(tmp_path, f"a.smi.{kind}", content)
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    with open_text(path) as stream:
        for _, line in zip(range(20_000), stream, strict=False):
            assert line == "C\n"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 << 20
