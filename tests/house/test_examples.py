"""Every script in examples/ runs, without a warning."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from house_support import ROOT


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_example_runs(script: Path, tmp_path: Path):
    command = [sys.executable, str(script)]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert "Warning" not in done.stderr
