"""``graphlog benchmark`` as typed."""

import json
from pathlib import Path

import pytest

from benchmark_support import hide_matplotlib, own_objective, tiny_scale
from cli_support import Cli, run_command
from graphlog.benchmark.cells import SCALES
from graphlog.data.graphs import FeatureSchema
from graphlog.errors import DataError
from graphlog.objectives import OBJECTIVES

QUICK = "--scale smoke --seeds 0 --threads 1"


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setitem(SCALES, "smoke", tiny_scale())
    hide_matplotlib(monkeypatch)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return run_command(capfd)


def test_an_objective_of_ones_own_appears(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OBJECTIVES, "degree-pred", own_objective().DegreePred)  # the one line
    words = f"benchmark molecules -o {tmp_path} {QUICK} --methods degree-pred,ecfp-lr --json"
    ended = cli(words)
    assert ended.code == 0, ended.err
    assert (ended.json["cells"], ended.json["computed"], ended.json["failed"]) == (4, 4, 0)
    assert "[1/4] pretrain degree-pred gin seed 0: " in ended.err
    assert "degree-pred" in (tmp_path / "report" / "molecules.md").read_text()
    again = cli(f"benchmark report -o {tmp_path} --json")
    assert again.code == 0
    assert str(tmp_path / "report" / "index.md") in again.json["files"]


def test_a_dry_run_computes_nothing(cli: Cli, tmp_path: Path) -> None:
    words = f"benchmark molecules -o {tmp_path}/b {QUICK} --methods attrmasking --dry-run"
    ended = cli(words)
    assert ended.code == 0, ended.err
    assert "pretrain attrmasking gin seed 0" in ended.out
    assert "finished" in ended.out
    assert not (tmp_path / "b").exists()
    told = cli(words, "--json").json
    assert [cell["stage"] for cell in told["cells"]] == ["pretrain", "finetune", "probe"]
    assert not any(cell["finished"] for cell in told["cells"])


def test_failures_end_with_one_line(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Picky(own_objective().DegreePred):
        @classmethod
        def check_schema(cls, schema: FeatureSchema) -> None:
            raise DataError("not with these graphs.")

    monkeypatch.setitem(OBJECTIVES, "picky", Picky)
    words = f"benchmark molecules -o {tmp_path} {QUICK} --methods picky,untrained --json"
    ended = cli(words)
    assert ended.code == 2
    assert json.loads(ended.out)["computed"] == 2
    last = ended.err.strip().splitlines()[-1]
    assert last.startswith("graphlog: error: 3 of 5 cells failed")
    assert "failures.jsonl" in last
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("molecule", "did you mean 'molecules'"),
        ("molecules --seeds a", "whole numbers"),
        ("report", "holds no cells yet"),
        ("molecules --split scafold", "did you mean 'scaffold'"),
        ("biology --source string-623", "did you mean 'string-6239'"),
    ],
)
def test_bad_words_are_refused(cli: Cli, tmp_path: Path, words: str, answer: str) -> None:
    cli(f"benchmark {words} -o {tmp_path}/b").refused(answer)
    assert not (tmp_path / "b").exists()
