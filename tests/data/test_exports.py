"""Tables as spreadsheets and instruments export them: sheets, UTF-16, decimal commas."""

import zipfile
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest

import graphlog
from downstream_support import CHAINS, tiny_encoder
from graphlog.errors import ConfigError, DataError


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
    store = graphlog.read_molecules(path, sheet="data", targets=["y"])
    assert (store.texts(), store.labels.ravel().tolist()) == (["CCO", "CCN"], [1.5, 2])
    assert len(tiny_encoder().embed(path, sheet="notes")) == 1
    written = graphlog.embed_file(tiny_encoder(), path, tmp_path / "out.csv", sheet="data")
    assert written.rows == 2
    assert "CCO,1.5," in (tmp_path / "out.csv").read_text()


def test_cells_beyond_the_headings_are_kept_or_their_row_is_told(tmp_path: Path) -> None:
    path = book(tmp_path / "b.xlsx", Sheet1=[["smiles"], ["CC", "a note"], ["CCO"]])
    assert graphlog.read_molecules(path).texts() == ["CC", "CCO"]
    replaced(path, b'ref="A1:B3"', b'ref="A1"')
    graphs = graphlog.read_molecules(path)
    assert graphs.texts() == ["CCO"]
    (reject,) = graphs.rejects
    assert (reject.row, reject.reason) == (0, "has 2 cells where the header has 1")


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


UNCLEAR = "'1,234' may have a decimal comma or a comma between thousands"
AS_COMMA = "must be a number.* write a decimal point as a comma"
AS_POINT = "must be a number.* write a decimal comma as a point"
THOUSANDS = "must be a number.* take out what stands between thousands"
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
]


@pytest.mark.parametrize(("cells", "decimal", "message"), MIXED)
def test_mixed_or_ambiguous_decimals_are_refused(
    cells: tuple[str, ...], decimal: str | None, message: str, tmp_path: Path
) -> None:
    path = commas(tmp_path / "a.csv", *cells)
    with pytest.raises(DataError, match=message):
        graphlog.read_molecules(path, targets=["y"], decimal=decimal)
