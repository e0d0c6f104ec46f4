"""``--excel-safe`` as typed: cells of the input that start like formulas."""

from pathlib import Path

import pytest

from cli_support import Cli, read_table

TABLE = "smiles,name,=cmd\nCCO,=1+1,-1.5\n=CC,plain,+x\nCCN,-CC,1\n"


@pytest.mark.parametrize("safe", [True, False])
def test_formulas_of_the_input_become_text_only_where_asked(
    cli: Cli, tmp_path: Path, pretrained: Path, safe: bool
):
    (tmp_path / "in.csv").write_text(TABLE, encoding="utf-8")
    out, words = tmp_path / "out.csv", f"-m {pretrained} --workers 1 --quiet"
    mark = "'" if safe else ""
    ended = cli(f"embed {tmp_path}/in.csv -o {out}", words, "--excel-safe" if safe else "")
    assert ended.code == 0, ended.err
    rows = read_table(out)
    assert [row["name"] for row in rows] == [f"{mark}=1+1", "plain", f"{mark}-CC"]
    assert [row[f"{mark}=cmd"] for row in rows] == ["-1.5", f"{mark}+x", "1"]
    assert all(
        float(row["e0"]) == float(row["e0"]) for row in rows if row["graphlog_status"] == "ok"
    )
    (rejected,) = read_table(tmp_path / "rejects.csv")
    assert rejected["input"] == f"{mark}=CC"
    again = cli(f"embed {tmp_path}/in.csv -o {out}", words)  # the option ends with its command
    assert again.code == 0
    assert read_table(out)[0]["name"] == "=1+1"


def test_neighbors_of_the_input_are_neutral_too(cli: Cli, tmp_path: Path, pretrained: Path):
    (tmp_path / "in.csv").write_text(TABLE, encoding="utf-8")
    out, library = tmp_path / "near.csv", tmp_path / "in.csv"
    words = f"-m {pretrained} -k 1 --workers 1 --quiet --excel-safe"
    ended = cli(f"neighbors {library} --in {library} -o {out}", words)
    assert ended.code == 0, ended.err
    assert [row["name"] for row in read_table(out)] == ["'=1+1", "plain", "'-CC"]
