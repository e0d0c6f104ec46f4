"""Run folders with damaged files, hostile names, closed streams: one line, code 2, no traceback."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import graphlog
from cli_support import Cli, left_in
from graphlog.cli.command import printable
from graphlog.cli.main import VERBS, whole_parser
from graphlog.inputs import recall_input
from graphlog.report.describe import describe

DEEP = 100_000


@pytest.fixture
def run(cli: Cli, finetuned: Path) -> Path:
    """A copy of a fine-tuning run in the folder of the test, to be damaged."""
    return Path(shutil.copytree(finetuned, "run"))


def test_damaged_scores_are_one_line(cli: Cli, run: Path):
    fields = json.loads((run / "scores.json").read_text())
    wrong = {"metric": 3, "sizes": [], "tasks": [1], "rows": {"a": 1}}
    odd = ("{", "{}", "[]", '{"rows": []}', '{"rows": [{"model": 1}]}', "[" * DEEP, "\x00")
    for content in (*odd, *(json.dumps({**fields, key: wrong[key]}) for key in wrong)):
        (run / "scores.json").write_text(content)
        cli.refused("info run", "scores.json")


DAMAGED_LINES = (
    '{"step": "1", "loss": 1.0}',
    '{"step": 3, "epoch": "two", "loss": "a"}',
    '{"step": 3, "epoch": 2, "loss": [1], "alarms": 7, "phase": {}}',
    "[" * DEEP,
    "null",
)


@pytest.mark.usefixtures("coarse")
def test_damaged_lines_of_the_log_are_left_out(cli: Cli, run: Path):
    """Five kinds of damage in one log: each figure takes most of a second."""
    with (run / "metrics.jsonl").open("a") as file:
        file.writelines(f"{line}\n" for line in DAMAGED_LINES)
    cli("plot run -o figures --graphs 20")
    assert "curves.png" in left_in("figures")


@pytest.mark.usefixtures("blank")
def test_a_damaged_note_of_the_input_leaves_the_map_out(cli: Cli, run: Path):
    assert recall_input(run) is not None
    for content in ("{}", "[]", '{"source": 3}', "[" * DEEP, '{"source": ["a"]}'):
        (run / "input.json").write_text(content)
        assert recall_input(run) is None
    assert "--input" in cli("plot run -o figures").err
    assert "embedding-map.png" not in left_in("figures")


def test_deep_nesting_is_one_line(cli: Cli, run: Path):
    (run / "config.toml").write_text("a = " + "[" * DEEP)
    cli.refused("info run", "config.toml")
    Path("split.json").write_text("[" * DEEP)
    words = "probe {molecules} -m random --targets oxygen --split split.json -q"
    cli.refused(words, "split.json")


TUNE = "-m {pretrained} --split random --epochs 1 --seeds 0 --baselines none -q"


@pytest.mark.usefixtures("coarse")
def test_a_target_that_looks_like_a_formula_is_drawn(cli: Cli, molecules: Path):
    name = r"$\frac{y$"
    Path("in.csv").write_text(molecules.read_text().replace("oxygen", name, 1))
    cli(f"finetune in.csv -o run --targets {name}", TUNE)
    cli("plot run -o figures --graphs 20")
    assert "embedding-map.png" in left_in("figures")


@pytest.mark.usefixtures("blank")
def test_figures_of_runs_on_three_classes_and_on_stores(cli: Cli, molecules: Path):
    head, *rows = molecules.read_text().splitlines()
    kinds = [f"{row},{k % 3}" for k, row in enumerate(rows)]
    Path("in.csv").write_text("\n".join([f"{head},kind", *kinds]) + "\n")
    cli("featurize {molecules} -o s --schema molecule --targets oxygen -q")
    cli("finetune in.csv -o a --targets kind --task multiclass", TUNE)
    cli("finetune s -o b --targets oxygen", TUNE)
    for run in ("a", "b"):
        cli(f"plot {run} -o {run}-figures --graphs 20")
        assert "embedding-map.png" in left_in(f"{run}-figures")


def test_messages_cannot_drive_the_terminal(cli: Cli):
    ended = cli.refused("info a\x1b[2Jb\u202e.safetensors", "a\\x1b[2Jb\\u202e")
    assert "\x1b" not in ended.err
    assert printable("caf\xe9\t\u4f60\n") == "caf\xe9\t\u4f60\n"
    assert printable(os.fsdecode(b"\xff.csv")) == "\\udcff.csv"


@pytest.mark.skipif(os.name != "posix", reason="closes descriptors through a shell")
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&- <&-"])
def test_closed_streams_are_no_error(closed: str, tmp_path: Path):
    command = f"{sys.executable} -m graphlog --help {closed}"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    assert subprocess.run(command, shell=True, cwd=tmp_path, env=environment).returncode == 0


def test_what_standard_output_cannot_encode_is_escaped(cli: Cli, molecules: Path):
    table = Path("named.csv")
    table.write_text(molecules.read_text().replace("oxygen", "\u0394", 1), encoding="utf-8")
    cli("featurize named.csv -o named --targets \u0394 --workers 1")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "graphlog", "info", "named"]
    done = subprocess.run(words, capture_output=True, env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u0394" in done.stdout


def test_tables_are_utf_8_whatever_standard_output_encodes(tmp_path: Path):
    named = "smiles,name\nCCO,\u00e9\nCCN,\U0001f600\n"
    (tmp_path / "in.csv").write_text(named, encoding="utf-8")
    words = "neighbors in.csv --in in.csv -m random -o - -k 1 --format jsonl".split()
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "graphlog", *words]
    done = subprocess.run(command, capture_output=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.decode("utf-8").splitlines()]
    assert {row["name"] for row in rows} == {"\u00e9", "\U0001f600"}


def test_help_names_the_exit_codes(cli: Cli):
    text = " ".join(cli("--help").out.split())
    assert "Exit codes: 0 success, 1 internal error, 2 invalid input" in text


def test_the_paragraphs_of_a_help_page_fill_the_width():
    group: Any = whole_parser()
    commands = [*group.commands.items(), *group.commands["data"].commands.items()]
    assert len(commands) == len(VERBS) + 5
    for name, command in commands:
        assert command.help, name
        for paragraph in command.help.split("\n\n"):
            assert "\n" not in paragraph, name


def test_info_tells_what_a_shipped_model_is(cli: Cli):
    shipped = cli("info graphlog-mol").out
    for word in ("license", "CC BY-SA 3.0", "limits", "few metals", "trained on", "ChEMBL"):
        assert word in shipped


def test_notes_beside_a_model_replace_only_what_they_name(tmp_path: Path):
    encoder, path = graphlog.random_encoder(), tmp_path / "mine.safetensors"
    encoder.info |= {"license": "MIT", "training_data": "my molecules"}
    encoder.save(path)
    path.with_suffix(".md").write_text("# Mine\n\n| license | BSD |\n")
    found = describe(path)
    assert (found["license"], found["trained on"]) == ("BSD", "my molecules")


@pytest.mark.usefixtures("coarse")
def test_names_of_files_need_not_be_utf_8(cli: Cli, molecules: Path, pretrained: Path):
    odd = os.fsdecode(b"\xff")
    shutil.copy(molecules, f"{odd}.csv")
    shutil.copytree(pretrained, f"pre{odd}")
    cli(f"data split {odd}.csv -o {odd}.json --kind random")
    labels = f"--targets oxygen --split {odd}.json --baselines none"
    cli(f"probe {odd}.csv -m pre{odd} -o run{odd} {labels}")
    cli(f"plot run{odd} -o figures --graphs 20")
    cli(f"predict {odd}.csv -m run{odd} -o {odd}.parquet")
    cli(f"prototypes pre{odd} --input {odd}.csv -o tree")
    with open(f"{odd}.parquet", "rb") as file:
        predicted = pd.read_parquet(file)
    assert predicted["smiles"].tolist() == pd.read_csv(molecules)["smiles"].tolist()
    is_read = predicted["graphlog_status"] == "ok"
    assert is_read.sum() > 90
    assert predicted["predicted_oxygen"].notna().equals(is_read)
    assert len(pd.read_csv("tree/members.csv")) == len(predicted)
