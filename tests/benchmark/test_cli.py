"""``graphlog benchmark`` as typed."""

import json
from pathlib import Path

import pytest

from cli_support import Cli
from encoder_support import DegreePred
from graphlog.benchmark import Request
from graphlog.benchmark.cells import plan_cells
from graphlog.data.graphs import FeatureSchema
from graphlog.errors import DataError
from graphlog.objectives import OBJECTIVES

pytestmark = pytest.mark.usefixtures("tiny")

QUICK = "--scale smoke --seeds 0 --threads 1"


def test_a_dry_run_computes_nothing(cli: Cli, tmp_path: Path) -> None:
    words = f"benchmark molecules -o {tmp_path}/b {QUICK} --methods attrmasking --dry-run"
    ended = cli(words)
    assert "pretrain attrmasking gin seed 0" in ended.out
    assert "finished" in ended.out
    assert not (tmp_path / "b").exists()
    told = cli(words, "--json").json
    assert [cell["stage"] for cell in told["cells"]] == ["pretrain", "finetune", "probe"]
    assert not any(cell["finished"] for cell in told["cells"])


class Picky(DegreePred):
    @classmethod
    def check_schema(cls, schema: FeatureSchema) -> None:
        raise DataError("not with these graphs.")


def test_an_objective_of_ones_own_that_fails_stops_no_other_and_appears_once_it_is_mended(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OBJECTIVES, "degree-pred", Picky)
    words = f"benchmark molecules -o {tmp_path} {QUICK} --methods degree-pred,ecfp-lr --json"
    ended = cli(words, code=2)
    assert ended.json["computed"] == 1
    last = ended.err.strip().splitlines()[-1]
    assert last.startswith("graphlog: error: 3 of 4 cells failed")
    assert "failures.jsonl" in last
    assert "Traceback" not in ended.err
    lines = (tmp_path / "failures.jsonl").read_text().splitlines()
    # what hangs on it is not listed too
    assert [json.loads(line)["error"] for line in lines] == ["not with these graphs."]

    monkeypatch.setitem(OBJECTIVES, "degree-pred", DegreePred)  # the one line
    ended = cli(words)
    assert (ended.json["cells"], ended.json["computed"], ended.json["failed"]) == (4, 3, 0)
    assert "[1/4] pretrain degree-pred gin seed 0: " in ended.err
    assert "degree-pred" in (tmp_path / "report" / "molecules.md").read_text()
    assert "degree-pred" in plan_cells(Request("speed", "smoke", seeds=[0]))[0].together
    cli.refused(f"benchmark speed -o {tmp_path} --methods degre-pred", "did you mean 'degree-pred'")
    again = cli(f"benchmark report -o {tmp_path} --json")
    assert str(tmp_path / "report" / "index.md") in again.json["files"]
