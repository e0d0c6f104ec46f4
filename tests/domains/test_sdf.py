"""SDF files whose records lie about their size, and files that are damaged."""

from pathlib import Path

import numpy as np
import pytest
from rdkit import Chem

import graphlog
from graphlog.data.tables import Row
from graphlog.domains.molecule.sdf import drawn_records, open_sdf, records_like
from graphlog.errors import DataError
from memory_support import megabytes_for

ETHANOL = Chem.MolToMolBlock(Chem.MolFromSmiles("CCO")) + "$$$$\n"
AMINE = Chem.MolToMolBlock(Chem.MolFromSmiles("CCN"), forceV3000=True) + "> <id>\n7\n\n$$$$\n"
HEAD = "\n     RDKit\n\n  0  0  0  0  0  0  0  0  0  0999 V3000\nM  V30 BEGIN CTAB\n"
CLAIMS = {
    "atoms": "M  V30 COUNTS 99999999 1 0 0 0\n",
    "bonds": "M  V30 COUNTS 1 99999999 0 0 0\n",
    "spaces": "M  V30 COUNTS    00099999999   0 0 0 0\n",
    "on the next line": "M  V30 COUNTS -\nM  V30 99999999 1 0 0 0\n",
    "word cut in two": "M  V30 COU-\nM  V30 NTS 99999999 1 0 0 0\n",
    "number cut in two": "M  V30 COUNTS 9999-\nM  V30 9999 1 0 0 0\n",
}
UNREAD = "RDKit cannot parse this SDF record"


def rows_of(folder: Path, text: str, **options: str) -> list[Row]:
    """Write a file of this text and return its rows."""
    (folder / "a.sdf").write_text(text, **options)
    with open_sdf(folder / "a.sdf") as table:
        return list(table.rows)


@pytest.mark.parametrize("ending", ["M  END\n$$$$\n", "$$$$\n"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("claim", CLAIMS)
def test_a_record_that_claims_more_than_it_holds(
    claim: str, line_end: str, ending: str, tmp_path: Path
) -> None:
    text = ETHANOL + HEAD + CLAIMS[claim] + ending + AMINE + "\n\n"
    rows = rows_of(tmp_path, text, newline=line_end)
    found = [(row.record, row.problem, row.fields["id"]) for row in rows]
    assert found == [("CCO", None, ""), ("", UNREAD, ""), ("CCN", None, "7")]


def test_no_name_and_no_text_of_a_field_hides_another_or_ends_a_record(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    names = ("a>b", "a)b", "c\nd", "_id", "_Name", "", "z")
    texts = ["1", "$$$$ 2", "3\n\n4", "5", "6", "7", ">  <z>"]
    fields = {"name": "$$$$", **dict(zip(names, texts, strict=True))}
    rows = [("CCO", fields), ("CC", dict.fromkeys(fields, "x"))]
    text = "".join(drawn_records(rows))
    for _ in range(2):  # what was read is written again, with its coordinates
        found = rows_of(tmp_path, text)
        assert [row.record for row in found] == ["CCO", "CC"]
        fields = {name: text.strip() for name, text in found[0].fields.items()}
        assert fields == {
            **{"smiles": "CCO", "name": "$$$$", "name.2": "$$$$", "a)b": "1", "a)b.2": "$$$$ 2"},
            **{"c d": "3\n4", "_id": "5", "_Name.2": "6", "unnamed": "7", "z": ">  <z>"},
        }
        kept = [name for name in fields if name not in ("smiles", "name.2")]
        rows = [(row.record, {name: row.fields[name] for name in kept}) for row in found]
        text = "".join(list(records_like(tmp_path / "a.sdf", rows)))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_molecules_and_data_fields_stay_as_they_are(line_end: str, tmp_path: Path) -> None:
    hydrogens = (
        Chem.MolToMolBlock(Chem.AddHs(Chem.MolFromSmiles("CCO"))) + "> <y>\n5.1\n5.3\n\n$$$$\n"
    )
    rows = rows_of(tmp_path, hydrogens + AMINE, newline=line_end)
    text = "".join(records_like(tmp_path / "a.sdf", [(row.record, row.fields) for row in rows]))
    blocks = [record.partition("M  END")[0] for record in (hydrogens, AMINE)]
    assert [record.partition("M  END")[0] for record in text.split("$$$$\n")[:2]] == blocks
    assert ">  <y>\n5.1\n5.3\n\n" in text


def test_the_claimed_atoms_take_no_memory(tmp_path: Path) -> None:
    text = ETHANOL + HEAD + CLAIMS["atoms"]
    assert [row.record or row.problem for row in rows_of(tmp_path, text)] == ["CCO", UNREAD]
    prepare = "from pathlib import Path; from graphlog.domains.molecule.sdf import open_sdf"
    code = "with open_sdf(Path(sys.argv[1])) as table: assert len(list(table.rows)) == 2"
    assert megabytes_for(prepare, code, tmp_path / "a.sdf") < 200


def test_what_a_late_record_adds_is_a_column_and_latin_1_is_read(tmp_path: Path) -> None:
    late = ETHANOL.replace(
        "$$$$", "> <y>\n0.5\n\n> <y (>1)>\n2\n\n> <Lösung>\ngrün\nund \xe4\n\n$$$$"
    )
    rows = rows_of(tmp_path, ETHANOL * 300 + late, encoding="latin-1")
    found = [(row.fields["y (>1)"], row.fields["Lösung"]) for row in rows]
    assert found[-2:] == [("", ""), ("2", "grün\nund ä")]
    store = graphlog.read_molecules(tmp_path / "a.sdf", targets=["y"])
    assert store.labels[-2:, 0].tolist() == pytest.approx([np.nan, 0.5], nan_ok=True)


TWICE, QUERY = (
    "data field 'id' is given more than once",
    "a query (such as a list of elements), not a molecule",
)
RECORDS = [
    (AMINE.replace("$$$$", "> <id>\n8\n\n$$$$"), TWICE),
    (AMINE.replace("$$$$", "> <id>\n7\n\n$$$$"), None),
    *(
        (f"{Chem.MolToMolBlock(Chem.MolFromSmarts(smarts))}$$$$\n", problem)
        for smarts, problem in {
            "[C,N]": QUERY,
            "[!C]-C": QUERY,
            "C-,=C": QUERY,
            "*~C": None,
        }.items()
    ),
]


@pytest.mark.parametrize(("record", "problem"), RECORDS)
def test_what_a_record_leaves_open_is_refused(
    record: str, problem: str | None, tmp_path: Path
) -> None:
    assert [row.problem for row in rows_of(tmp_path, record)] == [problem]


def test_utf_16_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a.sdf: UTF-16 text; save it as UTF-8"):
        rows_of(tmp_path, ETHANOL + AMINE, encoding="utf-16")


def test_a_record_that_ends_too_early_takes_no_other_with_it(tmp_path: Path) -> None:
    cut = ETHANOL.splitlines(keepends=True)
    cut.insert(5, "$$$$\n")
    rows = rows_of(tmp_path, "".join(cut) + AMINE)
    assert [row.record for row in rows] == ["", "", "CCN"]
