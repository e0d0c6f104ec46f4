"""Every script in examples/ runs, without a warning."""

import json
import os
import runpy
from pathlib import Path

import pytest

from house_support import ROOT
from training_support import spawn


def run_script(script: str, folder: str) -> None:
    """Run a script in ``folder`` and keep what it prints: the body of a process."""
    os.chdir(folder)
    for number, name in ((1, "stdout"), (2, "stderr")):
        with open(name, "w") as file:
            os.dup2(file.fileno(), number)
    runpy.run_path(script, run_name="__main__")


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_example_runs(script: Path, tmp_path: Path):
    """In a process forked from one that has imported PyTorch, which takes longer than the rest."""
    process = spawn(run_script, str(script), str(tmp_path))
    process.join(280)
    process.kill()
    errors = (tmp_path / "stderr").read_text(encoding="utf-8")
    assert process.exitcode == 0, errors
    assert (tmp_path / "stdout").stat().st_size > 0
    assert "Warning" not in errors


def test_the_notebook_was_run_from_top_to_bottom_and_is_small():
    """``make notebook`` runs it; here is what a reader finds in the file."""
    path = ROOT / "examples" / "quickstart.ipynb"
    assert path.stat().st_size < 50_000
    cells = [c for c in json.loads(path.read_text("utf-8"))["cells"] if c["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    shown = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in shown} <= {"execute_result", "stream"}
    assert not [output for output in shown if output.get("name") == "stderr"]
