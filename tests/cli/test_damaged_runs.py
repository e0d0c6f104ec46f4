"""Run folders with damaged files, hostile names, closed streams: one line, code 2, no traceback."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.main import get_command

from cli_support import Cli, left_in
from graphlog.cli.console import printable
from graphlog.cli.main import VERBS, app, main
from graphlog.inputs import recall_input

DEEP = 100_000


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw with few dots: what is drawn matters, not how finely."""
    style = pytest.importorskip("graphlog.report.style")
    monkeypatch.setitem(style._STYLE, "savefig.dpi", 20)


@pytest.fixture
def run(finetuned: Path, tmp_path: Path) -> Path:
    """A copy of a fine-tuning run, to be damaged."""
    return Path(shutil.copytree(finetuned, tmp_path / "run"))


@pytest.mark.usefixtures("blank")
def test_damaged_scores_are_one_line(cli: Cli, run: Path, tmp_path: Path):
    fields = json.loads((run / "scores.json").read_text())
    wrong = {"metric": 3, "sizes": [], "tasks": [1], "rows": {"a": 1}}
    odd = ("{", "{}", "[]", '{"rows": []}', '{"rows": [{"model": 1}]}', "[" * DEEP, "\x00")
    for content in (*odd, *(json.dumps({**fields, key: wrong[key]}) for key in wrong)):
        (run / "scores.json").write_text(content)
        cli(f"info {run}").refused("scores.json")
        cli(f"plot {run} -o {tmp_path}/figures").refused("scores.json")


DAMAGED_LINES = (
    '{"step": "1", "loss": 1.0}',
    '{"step": 3, "epoch": "two", "loss": "a"}',
    '{"step": 3, "epoch": 2, "loss": [1], "alarms": 7, "phase": {}}',
    "[" * DEEP,
    "null",
)


@pytest.mark.usefixtures("coarse")
def test_damaged_lines_of_the_log_are_left_out(cli: Cli, run: Path, tmp_path: Path):
    """Five kinds of damage in one log: each figure takes most of a second."""
    with (run / "metrics.jsonl").open("a") as file:
        file.writelines(f"{line}\n" for line in DAMAGED_LINES)
    ended = cli(f"plot {run} -o {tmp_path}/figures --graphs 20")
    assert ended.code == 0, ended.err
    assert (tmp_path / "figures" / "curves.png").is_file()


@pytest.mark.usefixtures("blank")
def test_a_damaged_note_of_the_input_leaves_the_map_out(cli: Cli, run: Path, tmp_path: Path):
    assert recall_input(run) is not None
    for content in ("{}", "[]", '{"source": 3}', "[" * DEEP, '{"source": ["a"]}'):
        (run / "input.json").write_text(content)
        assert recall_input(run) is None
    ended = cli(f"plot {run} -o {tmp_path}/figures")
    assert ended.code == 0, ended.err
    assert "--input" in ended.err
    assert "embedding-map.png" not in left_in(tmp_path / "figures")


def test_deep_nesting_is_one_line(cli: Cli, run: Path, molecules: Path, tmp_path: Path):
    (run / "config.toml").write_text("a = " + "[" * DEEP)
    cli(f"info {run}").refused("config.toml")
    (tmp_path / "split.json").write_text("[" * DEEP)
    words = ["--targets", "oxygen", "--split", tmp_path / "split.json"]
    cli(f"probe {molecules} -m random", *words, "-q").refused("split.json")


@pytest.mark.usefixtures("coarse")
def test_a_target_that_looks_like_a_formula_is_drawn(
    cli: Cli, molecules: Path, pretrained: Path, tmp_path: Path
):
    name = r"$\frac{y$"
    (tmp_path / "in.csv").write_text(molecules.read_text().replace("oxygen", name, 1))
    words = f"-o {tmp_path}/run --targets {name} --split random --epochs 1 --seeds 0"
    tuned = cli(f"finetune {tmp_path}/in.csv -m {pretrained} {words} --baselines none -q")
    assert tuned.code == 0, tuned.err
    ended = cli(f"plot {tmp_path}/run -o {tmp_path}/figures --graphs 20")
    assert ended.code == 0, ended.err
    assert {"scores.png", "embedding-map.png"} <= left_in(tmp_path / "figures")


@pytest.mark.usefixtures("blank")
def test_figures_of_runs_on_three_classes_and_on_stores(
    cli: Cli, molecules: Path, pretrained: Path, tmp_path: Path
):
    head, *rows = molecules.read_text().splitlines()
    kinds = [f"{row},{k % 3}" for k, row in enumerate(rows)]
    (tmp_path / "in.csv").write_text("\n".join([f"{head},kind", *kinds]) + "\n")
    how = f"-m {pretrained} --split random --epochs 1 --seeds 0 -q --baselines none"
    make = f"featurize {molecules} -o {tmp_path}/s --schema molecule --targets oxygen -q"
    assert cli(make).code == 0
    for name, source, label in (("a", "in.csv", "kind --task multiclass"), ("b", "s", "oxygen")):
        run = tmp_path / name
        ended = cli(f"finetune {tmp_path}/{source} -o {run} {how} --targets {label}")
        assert ended.code == 0, ended.err
        ended = cli(f"plot {run} -o {run}-figures")
        assert ended.code == 0, ended.err
        assert "embedding-map.png" in left_in(tmp_path / f"{name}-figures")


@pytest.mark.usefixtures("blank")
def test_figures_of_another_run_are_not_overwritten(
    cli: Cli, finetuned: Path, pretrained: Path, tmp_path: Path
):
    figures = tmp_path / "figures"
    assert cli(f"plot {finetuned} -o {figures}").code == 0
    before = (figures / "curves.png").read_bytes()
    cli(f"plot {pretrained} -o {figures}").refused(str(finetuned), "-o")
    assert (figures / "curves.png").read_bytes() == before
    assert cli(f"plot {finetuned} -o {figures}").code == 0
    Image.new("RGB", (2, 2)).save(figures / "curves.png")
    cli(f"plot {finetuned} -o {figures}").refused("curves.png")


def test_messages_cannot_drive_the_terminal(cli: Cli, tmp_path: Path):
    ended = cli(f"info {tmp_path}/a\x1b[2Jb\u202e.safetensors")
    ended.refused("a\\x1b[2Jb\\u202e")
    assert "\x1b" not in ended.err
    assert printable("caf\xe9\t\u4f60\n") == "caf\xe9\t\u4f60\n"
    assert printable(os.fsdecode(b"\xff.csv")) == "\\udcff.csv"


@pytest.mark.skipif(os.name != "posix", reason="closes descriptors through a shell")
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&- <&-"])
def test_closed_streams_are_no_error(closed: str, tmp_path: Path):
    command = f"{sys.executable} -m graphlog models --json {closed}"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    assert subprocess.run(command, shell=True, cwd=tmp_path, env=environment).returncode == 0


def test_help_and_errors_name_the_exit_codes(capsys: pytest.CaptureFixture[str]):
    assert main(["--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Exit codes: 0 success, 1 internal error, 2 invalid input" in text


def test_the_paragraphs_of_a_help_page_fill_the_width():
    group: Any = get_command(app)
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
