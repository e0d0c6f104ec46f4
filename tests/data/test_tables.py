"""Tables of all the kinds people have and spreadsheets export; a line for each way to be wrong."""

import bz2
import gzip
import io
import lzma
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pytest
from rdkit import Chem

import graphlog
from cli_support import at_most
from downstream_support import CHAINS, tiny_encoder
from graphlog.data.tables import Row, choose_tasks, open_table
from graphlog.errors import ConfigError, DataError
from graphlog.files import open_text, zstd
from memory_support import megabytes_for

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


READABLE = [
    ("a.csv", CSV),
    ("a.CSV", CSV),
    ("a.tsv", CSV.replace(",", "\t")),
    ("a.smi", "CCO one\nc1ccccc1 two\n"),
    ("a.smi", "smiles name\nCCO one\nc1ccccc1 two\n"),
    ("a.txt", "CCO\n\nc1ccccc1\n\n"),
    ("a.txt", CSV),
    ("a.csv", CSV.replace(",", "|")),
    ("a.csv", CSV.replace(",", ";")),
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
    # a separator in a heading
    ("a.csv", 'smiles;IC50, nM\nCCO;1\nc1ccccc1;"0,5"\n'),
    ("a.txt", "id, own;smiles\n1;CCO\n2;c1ccccc1\n"),
    ("a.csv", '"SMILES; canonical",y\nCCO,1\nc1ccccc1,0\n'),
    ("a.txt", '"SMILES, canonical",y\nCCO,1\nc1ccccc1,0\n'),
    ("a.csv", "SMILES|x,y\nCCO,1\nc1ccccc1,0\n"),
    ("a.csv", '"IC50\n(nM)";smiles\n1;CCO\n2;c1ccccc1\n'),
    # lines of blanks
    ("a.csv", "smiles\n  \nCCO\n \t\r\nc1ccccc1\n  "),
    ("a.csv", "smiles,y\n  \nCCO,1\n\t\nc1ccccc1,0\n"),
    ("a.tsv", "smiles\ty\nCCO\t1\n  \nc1ccccc1\t0\n"),
    ("a.csv", 'smiles,name\nCCO,a\nc1ccccc1,"b\n'),  # nothing is lost
]


@pytest.mark.parametrize(("name", "content"), READABLE)
def test_files_that_can_be_read(tmp_path: Path, name: str, content: str | bytes) -> None:
    rows = rows_of(write(tmp_path, name, content))
    assert [row.record for row in rows] == ["CCO", "c1ccccc1"]
    assert [row.row for row in rows] == [0, 1]
    assert not any(row.problem for row in rows)


SHORT, LONG = (f"has {n} cells where the header has 3" for n in (2, 4))
ROWS = [
    # Latin-1 and UTF-8
    (b"smiles,name\nCCO,\xe9thanol\nC,m\xc3\xa9thane\n", ["CCO|éthanol|None", "C|méthane|None"]),
    (b"smiles,y\nCCO,1\n\n,0\n\r\nC,1\n", ["CCO|1|None", "|0|None", "C|1|None"]),
    (b"smiles,y,z\nCCO,1,2\nC,1\nCC,1,2,3\n", ["CCO|1|2|None", f"C|1||{SHORT}", f"CC|1|2|{LONG}"]),
    (b"smiles,y\nC\0C,2\n", ["C\0C|2|None"]),
    (b"smiles\ty\n\t\nC\t1\n", ["||None", "C|1|None"]),
    (b'smiles\n""\nC\n', ["|None", "C|None"]),
    (b"id,smiles\n7,CCO\n", ["7|CCO|None"]),
    (b"CC |$R1;$| a name\nCCO other\n", ["CC |$R1;$||a name|None", "CCO|other|None"]),
    (b"smiles name y\nC 2\nCC |$R1;$| b 3\n", [f"C|2||{SHORT}", "CC |$R1;$||b|3|None"]),
]


@pytest.mark.parametrize(("content", "expected"), ROWS)
def test_what_rows_hold(tmp_path: Path, content: bytes, expected: list[str]) -> None:
    ending = "smi" if b"$" in content else "tsv" if b"\t" in content else "csv"
    rows = rows_of(write(tmp_path, f"a.{ending}", content))
    assert [row.row for row in rows] == list(range(len(expected)))
    assert ["|".join([*row.fields.values(), str(row.problem)]) for row in rows] == expected


def test_rows_between_two_quotes_of_a_tsv_are_not_lost_silently(tmp_path: Path) -> None:
    lines = ["smiles\tname", "C\ta", 'CO\t"b', "CN\tc", 'CC\td"', "CF\te\n"]
    with pytest.warns(UserWarning, match="cell of data row 1 holds 3 lines with tabs; if these"):
        assert smiles_of(write(tmp_path, "a.tsv", "\n".join(lines))) == ["C", "CO", "CF"]


def test_a_long_cell(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", f"smiles,name\nCCO,{'x' * 200_000}\nC,b\n")
    assert [len(row.fields["name"]) for row in rows_of(path)] == [200_000, 1]


def test_a_table_that_was_closed_has_no_more_rows(tmp_path: Path) -> None:
    with open_table(write(tmp_path, "a.csv", "id,smiles,y\n7,CCO,1\n8,CCN,0\n")) as table:
        assert (table.columns, table.record_column) == (("id", "smiles", "y"), "smiles")
        assert next(table.rows).fields == {"id": "7", "smiles": "CCO", "y": "1"}
    assert list(table.rows) == []


def test_columns_can_be_named(tmp_path: Path) -> None:
    assert smiles_of(write(tmp_path, "a.csv", "smiles,drug\nC,CCO\n"), wanted="drug") == ["CCO"]
    assert smiles_of(write(tmp_path, "a.csv", "what,y\nCCO,1\n"), wanted="WHAT") == ["CCO"]
    path = write(tmp_path, "a.csv", '"CCO","x"\n"C","y"\n')
    assert smiles_of(path, header=("smiles", "name")) == ["CCO", "C"]
    message = refusal(write(tmp_path, "a.csv", CSV), wanted="smilse")
    assert "no column 'smilse'; did you mean 'smiles'? Columns: smiles, y" in message


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = (CSV, "CCO\nc1ccccc1\n", CSV.replace(",", "\t"))
    for content in (*map(str.encode, texts), packed(CSV.encode())):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))
        assert smiles_of("-") == ["CCO", "c1ccccc1"]
        assert not sys.stdin.closed


@pytest.fixture
def parquet(tmp_path: Path) -> Callable[..., Path]:
    """What writes a Parquet file of these columns."""
    pa, library = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    def write_columns(columns: dict[str, Any], **options: Any) -> Path:
        library.write_table(pa.table(columns), tmp_path / "a.parquet", **options)
        return tmp_path / "a.parquet"

    return write_columns


@pytest.mark.skipif(os.name != "posix", reason="limits of a process are posix")
def test_a_parquet_file_of_one_long_text_repeated_is_read_in_bounded_memory(parquet) -> None:
    """One text of a million letters in 3,000 rows: 3 GB as text, a few kilobytes on disk."""
    pa = pytest.importorskip("pyarrow")

    def repeated(length: int, rows: int) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), ["C" * length])

    path = parquet({"smiles": repeated(1_000_000, 3000)})
    prepare = (
        "from pathlib import Path; from itertools import islice\n"
        "import pyarrow.compute, pyarrow.parquet\n"
        "from graphlog.data.tables import open_table"
    )
    code = (
        "with open_table(Path(sys.argv[1])) as table:\n"
        "    assert {len(row.record) for row in islice(table.rows, 200)} == {1_000_000}"
    )
    assert megabytes_for(prepare, code, path) < 600
    assert "a cell of 1,048,577 bytes" in refusal(parquet({"smiles": repeated(1_048_577, 2)}))


def test_a_parquet_file_that_expands_too_far_is_refused(
    parquet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphlog.data.tables._WHOLE_GROUP", 1 << 20)  # a smaller bomb is enough
    columns = {"smiles": ["C" * 1000] * 4000}
    path = parquet(columns, compression="zstd", use_dictionary=False)
    assert "more than 200 times" in refusal(path)
    assert len(rows_of(parquet(columns, compression=None, use_dictionary=False))) == 4000


def test_parquet(parquet) -> None:
    path = parquet({"smiles": ["CCO", None], "y": [1.5, None]})
    assert [(row.record, row.fields["y"]) for row in rows_of(path)] == [("CCO", "1.5"), ("", "")]
    path.write_bytes(path.read_bytes()[:-20])
    assert "not a readable Parquet file" in refusal(path)
    path.unlink()
    assert "no such file" in refusal(path)


@pytest.mark.parametrize("use_dictionary", [True, False])
def test_a_parquet_file_with_a_text_that_is_not_utf8(parquet, use_dictionary: bool) -> None:
    pa = pytest.importorskip("pyarrow")
    raw = pa.array([b"CCO", b"C\xb1O"], pa.binary())
    path = parquet({"smiles": raw.view(pa.string())}, use_dictionary=use_dictionary)
    assert "not a readable Parquet file" in refusal(path)


SEPARATE = "separate columns by commas in a .csv, by tabs in a .tsv"
UNREADABLE = [
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
    ("a.csv", "name;y\nCCO;1\n", "Columns: name;y"),
    ("a.csv", "name\ty\nCCO\t1\n", SEPARATE),
    ("a.tsv", "name,y\nCCO,1\n", SEPARATE),
    ("a.csv", 'smiles,y\n"CCO,1\n' + "C,1\n" * 2000, "is never closed"),
    ("a.tsv", 'smiles\tname\nCCO\t"x\nC\ty\nCC\tz\n', "data row 0 is never closed"),
    ("a.sdf", "whatever", "cannot tell what kind of file this is"),
    ("a.json", "[]", "files of graphs: .jsonl, .ndjson, .zip, or a folder of tables"),
    ("a.json", "[]", ".xlsx or .sdf (those of text also .gz, .bz2, .xz, .zst, .zstd)"),
    ("a.csv", "# by x\nsmiles,y\nC,1\n", "first line must name the columns"),
    ("a.csv.zip", "PK\3\4", "is a zip archive; unpack it"),
    ("a.XLS", "", "is not read; save it as .xlsx"),
    ("a.cdxml", "", "is not read; export it as SDF or SMILES"),
    ("a.csv", "PK\3\4", "is a zip archive or an Excel file; unpack it, or name it .xlsx"),
    ("edges.csv", "graph,source,target\na,0,1\n", "tables of graphs; name their folder"),
]


@pytest.mark.parametrize(("name", "content", "expected"), UNREADABLE)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: str, expected: str) -> None:
    path = write(tmp_path, name, content)
    message = refusal(path)
    assert expected in message
    assert str(path) in message
    assert message.isprintable()


def test_a_smiles_of_a_megabyte_arrives_and_lines_without_end_are_not_read_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "a.csv", "smiles,y\n" + "C" * 1_000_000 + ",1\n")
    assert [len(smiles) for smiles in smiles_of(path)] == [1_000_000]
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
            choose_tasks(table, ["v"])


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zst"])
def test_a_decompression_bomb_is_read_in_bounded_pieces(tmp_path: Path, kind: str) -> None:
    lines = 5_000_000
    module = {"gz": gzip, "bz2": bz2, "xz": lzma, "zst": zstd}[kind]
    if module is None:
        pytest.skip("needs the extra `zstd`")
    parts = 10 if kind == "bz2" else 1  # which packs long repeats slowly, block by block
    content = module.compress(b"C\n" * (lines // parts)) * parts
    path = write(tmp_path, f"a.smi.{kind}", content)
    assert path.stat().st_size < 20_000
    with at_most(10 << 20), open_text(path) as stream:
        for _, line in zip(range(20_000), stream, strict=False):
            assert line == "C\n"


def test_a_workbook_that_expands_is_read_row_by_row(tmp_path: Path) -> None:
    """Also beyond the range of cells that its sheet names, as by some exporters: A1 alone."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["smiles"])
    book.save(tmp_path / "small.xlsx")
    row = b'<row><c t="inlineStr"><is><t>CCO</t></is></c></row>'
    with (
        zipfile.ZipFile(tmp_path / "small.xlsx") as small,
        zipfile.ZipFile(tmp_path / "a.xlsx", "w", zipfile.ZIP_DEFLATED) as large,
    ):
        for name in small.namelist():
            content = small.read(name)
            if name.endswith("sheet1.xml"):
                content = content.replace(b"</sheetData>", row * 300_000 + b"</sheetData>")
            large.writestr(name, content)
    assert (tmp_path / "a.xlsx").stat().st_size < 100_000
    # these rows are 15 MB of XML alone
    with open_table(tmp_path / "a.xlsx") as table, at_most(5 << 20):
        for found, _ in zip(table.rows, range(2_000), strict=False):
            assert found.record == "CCO"


def book(path: Path, **sheets: list[list[object]]) -> Path:
    made = openpyxl.Workbook()
    made.remove(made.active)
    for title, rows in sheets.items():
        sheet = made.create_sheet(title)
        for row in rows:
            sheet.append(row)
    made.save(path)
    return path


def replaced(path: Path, old: bytes, new: bytes) -> None:
    """Write an archive anew with other bytes in its files."""
    with zipfile.ZipFile(path) as whole:
        parts = {name: whole.read(name) for name in whole.namelist()}
    with zipfile.ZipFile(path, "w") as changed:
        for name, content in parts.items():
            changed.writestr(name, content.replace(old, new))


def test_a_sheet_of_several_must_be_named(tmp_path: Path) -> None:
    data = [["smiles", "y"], ["CCO", 1.5], ["CCN", 2]]
    path = book(tmp_path / "b.xlsx", notes=[["smiles"], ["C"]], data=data, empty=[])
    with pytest.raises(DataError, match=r"has 2 sheets: notes, data; choose one with `sheet`"):
        graphlog.read_molecules(path)
    with pytest.raises(DataError, match=r"no sheet 'x'; sheets: notes, data, empty"):
        graphlog.read_molecules(path, sheet="x")
    replaced(path, b'sheetId="1" state="visible"', b'sheetId="1" state="hidden"')
    assert graphlog.read_molecules(path).texts() == ["CCO", "CCN"]
    hidden = book(tmp_path / "hidden.xlsx", data=data, shown=[])
    replaced(hidden, b'sheetId="1" state="visible"', b'sheetId="1" state="hidden"')
    assert graphlog.read_molecules(hidden).texts() == ["CCO", "CCN"]
    store = graphlog.read_molecules(path, sheet="data", targets=["y"])
    assert (store.texts(), store.labels.ravel().tolist()) == (["CCO", "CCN"], [1.5, 2])
    assert len(tiny_encoder().embed(path, sheet="notes")) == 1
    path = path.rename(tmp_path / "b.xlsm")
    written = graphlog.embed_file(tiny_encoder(), path, tmp_path / "out.csv", sheet="data")
    assert written.rows == 2
    assert "CCO,1.5," in (tmp_path / "out.csv").read_text()


@pytest.mark.parametrize("dimension", [b"A1:B3", b"A1"])
def test_cells_beyond_the_headings_are_left_out(dimension: bytes, tmp_path: Path) -> None:
    path = book(tmp_path / "b.xlsx", Sheet1=[["smiles"], ["CC", "a note"], ["CCO"]])
    replaced(path, b'ref="A1:B3"', b'ref="%s"' % dimension)
    rows = [(row.fields, row.problem) for row in rows_of(path)]
    assert rows == [({"smiles": "CC"}, None), ({"smiles": "CCO"}, None)]


def test_a_formula_without_a_stored_value_is_no_missing_label(tmp_path: Path) -> None:
    """As programs write it that do not compute; Excel stores what a formula gives."""
    rows = [[" smiles", "y ", "z"], ["CCO", 1, None], ["CCN", "=B2*2", "x"]]
    path = book(tmp_path / "b.xlsx", Sheet1=rows)
    assert graphlog.read_molecules(path).texts() == ["CCO", "CCN"]
    with pytest.raises(DataError, match=r"row 1: label 'y' .*, found '=B2\*2'.* save .* in Excel"):
        graphlog.read_molecules(path, targets=["y"])
    replaced(path, b'<c r="B3">', b'<c r="B3" t="str">')  # one that gives an empty text
    labels = graphlog.read_molecules(path, targets=["y"]).labels
    np.testing.assert_array_equal(labels, [[1], [np.nan]])


def test_blank_rows_within_a_sheet_count_as_in_pandas_and_empty_sheets_do_not(
    tmp_path: Path,
) -> None:
    rows = [[], ["smiles", "y"], ["CC", 1], [], [None, None], ["CCO", 2], []]
    path = book(tmp_path / "b.xlsx", Sheet1=[], Sheet2=rows, Sheet3=[])
    graphs = graphlog.read_molecules(path, targets=["y"])
    assert (graphs.rows.tolist(), graphs.num_rows) == ([0, 3], 4)
    assert [(r.row, r.reason) for r in graphs.rejects] == [(1, "empty"), (2, "empty")]
    assert len(pd.read_excel(path, "Sheet2", skiprows=1)) == 4


@pytest.mark.parametrize("source", ["a.csv", ["CC"]])
def test_what_has_no_sheets_says_so(source: object, tmp_path: Path) -> None:
    if isinstance(source, str):
        source = tmp_path / source
        source.write_text("smiles\nCC\n")
    with pytest.raises(ConfigError, match="is not an Excel file"):
        graphlog.read_molecules(source, sheet="data")


@pytest.mark.parametrize("source", ["a.sdf", ["CC"], "nci5k"])
def test_what_offers_no_choice_of_columns_says_so(source: Any, tmp_path: Path) -> None:
    if source == "a.sdf":
        source = write(tmp_path, source, Chem.MolToMolBlock(Chem.MolFromSmiles("CC")) + "$$$$\n")
    with pytest.raises(ConfigError, match="cannot be chosen; drop `smiles_column`"):
        graphlog.read_molecules(source, smiles_column="structure")
    if source == "nci5k":
        assert len(graphlog.read_molecules(source, smiles_column="smiles", limit=2)) == 2


@pytest.mark.parametrize("mark", [";", ",", "\t", "|"])
@pytest.mark.parametrize("name", ["a.csv", "a.txt"])
def test_what_excel_writes_into_text_is_understood(mark: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    lines = [f"sep={mark}", "id;smiles;y", "1;CCO;1.5", "2;CCN;#N/A"]
    path.write_text("\r\n".join(lines).replace(";", mark))
    store = graphlog.read_molecules(path, targets=["y"])
    assert (store.rows.tolist(), store.texts()) == ([0, 1], ["CCO", "CCN"])
    np.testing.assert_array_equal(store.labels[:, 0], [1.5, np.nan])
    path.write_text("sep=;\n")
    with pytest.raises(DataError, match="is empty"):
        graphlog.read_molecules(path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_is_read_and_said(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("smiles,naïve\r\nCCO,1.5\r\n".encode(encoding))
    with pytest.warns(UserWarning, match="read as UTF-16 text"):
        store = graphlog.read_molecules(path, targets=["naïve"])
    assert (store.texts(), store.labels.tolist()) == (["CCO"], [[1.5]])


def test_running_numbers_are_not_found_as_labels(tmp_path: Path, parquet) -> None:
    twice = write(tmp_path, "a.csv", "id,smiles,id,,,y\n1,CCO,5,7,9,1.5\n")
    index = parquet({"smiles": ["CCO"], "y": [1.5], "__index_level_0__": [3]})
    for path in (twice, index):
        assert graphlog.read_molecules(path, targets="auto").tasks == ("y",)


def commas(path: Path, *cells: str) -> Path:
    rows = [f"{smiles};{cell}" for smiles, cell in zip(CHAINS, cells, strict=False)]
    path.write_text("\n".join(["smiles;y", *rows]) + "\n")
    return path


DECIMALS = [
    (("3", "0,79", "-1,5e-3", "", "2,125"), None, [3, 0.79, -0.0015, np.nan, 2.125]),
    (("1,234", "2,5"), None, [1.234, 2.5]),
    (("1,234", "2,567"), ",", [1.234, 2.567]),
    (("1", "2"), None, [1, 2]),
    (("1.234", "2"), None, [1.234, 2]),
]


@pytest.mark.parametrize(("cells", "decimal", "labels"), DECIMALS)
def test_decimal_commas(
    cells: tuple[str, ...], decimal: str | None, labels: list[float], tmp_path: Path
) -> None:
    path = commas(tmp_path / "a.csv", *cells)
    store = graphlog.read_molecules(path, targets=["y"], decimal=decimal)
    np.testing.assert_array_equal(store.labels[:, 0], labels)
    if decimal is None:
        said = any("decimal commas" in note for note in store.source.notes)
        assert said == any("," in cell for cell in cells)
        auto = graphlog.read_molecules(path, targets="auto")
        np.testing.assert_array_equal(auto.labels[:, 0], labels)


def test_numbers_in_a_sheet_have_no_decimal_mark(tmp_path: Path) -> None:
    rows = [["smiles", "y"], ["CCO", 5.514], ["CCN", "4,68"], ["CCC", "1,234"], ["C", 7]]
    path = book(tmp_path / "b.xlsx", Sheet1=rows)
    for decimal in (None, ","):
        store = graphlog.read_molecules(path, targets=["y"], decimal=decimal)
        assert store.labels.ravel().tolist() == [5.514, 4.68, 1.234, 7]


POINTS = [
    # a column, and whether its points may stand between thousands
    (("909", "4.461", "27.651", "15"), True),
    (("909", "4.461", "27.651", "15.2"), False),
    (("0.461", "4.461", "15"), False),
    (("1.234", "2.345"), False),
    (("1234", "15", "4.461"), False),
]


@pytest.mark.parametrize(("cells", "doubtful"), POINTS)
def test_points_that_may_stand_between_thousands_are_told(
    cells: tuple[str, ...], doubtful: bool, tmp_path: Path
) -> None:
    path = commas(tmp_path / "a.csv", *cells)
    for decimal in (None, "."):
        store = graphlog.read_molecules(path, targets=["y"], decimal=decimal)
        np.testing.assert_array_equal(store.labels[:, 0], [*map(float, cells)])
        said = any("'4.461' is read as 4.461; if its point" in n for n in store.source.notes)
        assert said == (doubtful and decimal is None)


UNCLEAR = "'1,234' may have a decimal comma or a thousands separator"
AS_COMMA = "must be a number.* write a decimal point as a comma"
AS_POINT = "must be a number.* write a decimal comma as a point"
THOUSANDS = "must be a number.* remove the thousands separators"
MIXED = [
    (("1,234", "2,567"), None, UNCLEAR),
    (("0,79", "1.5"), None, AS_COMMA),
    (("1.5", "0,79"), None, AS_POINT),
    (("1.5", "2"), ",", AS_COMMA),
    (("1,5", "2"), ".", AS_POINT),
    (("1,234.5", "2"), None, THOUSANDS),
    (("1,234,567", "2"), None, THOUSANDS),
    (("0,5", "1.234,5"), None, THOUSANDS),
    (("1,234", "2"), ".", THOUSANDS),
    (("1.234", "2"), ",", THOUSANDS),
    (("1", "2024-03-05 00:00:00"), None, r"found \S+ \S+; enter the number again .Excel may"),
    (("1", "#DIV/0!"), None, "found '#DIV/0!'; correct the formula or empty the cell, or choose"),
    (("1", "63.7 %"), None, "found '63.7 %'; leave out the percent sign, or choose"),
]


@pytest.mark.parametrize(("cells", "decimal", "message"), MIXED)
def test_mixed_or_ambiguous_decimals_are_refused(
    cells: tuple[str, ...], decimal: str | None, message: str, tmp_path: Path
) -> None:
    path = commas(tmp_path / "a.csv", *cells)
    with pytest.raises(DataError, match=message):
        graphlog.read_molecules(path, targets=["y"], decimal=decimal)


def test_a_name_of_two_lines_makes_no_message_of_two(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'smiles,"y\n(nM)"\nCCO,x\n')
    with pytest.raises(DataError, match=r"label 'y\\n\(nM\)' must be a number") as caught:
        graphlog.read_molecules(path, targets=["y\n(nM)"])
    assert str(caught.value).isprintable()
