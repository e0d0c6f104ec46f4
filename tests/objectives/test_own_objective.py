"""A pretext task is one file and one line.

Training, settings and the command line know it without any other change.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from graphlog.data.store import GraphStore
from graphlog.errors import ConfigError
from graphlog.objectives import OBJECTIVES
from graphlog.training.config import read_config, resolve_config
from graphlog.training.log import Silent
from graphlog.training.pretrain import run_pretraining

FILE = Path(__file__).with_name("degree_pred.py")
TINY = {
    "encoder.dim": 16,
    "encoder.layers": 2,
    "epochs": 12,
    "batch_size": 16,
    "precision": "fp32",
    "device": "cpu",
    "learning_rate": 0.01,
}


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("degree_pred", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(OBJECTIVES, "degree-pred", module.DegreePred)  # the one line
    return module


def test_the_file_is_short() -> None:
    assert len(FILE.read_text().splitlines()) <= 60


def test_it_trains_and_comes_back(own: ModuleType, tiny_store: GraphStore, tmp_path: Path) -> None:
    config = resolve_config("degree-pred", None, {**TINY, "objective.most": 3})
    result = run_pretraining(tiny_store, config, tmp_path / "run", progress=Silent())
    assert isinstance(result.objective, own.DegreePred)
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert '"loss_degree"' in rows[0]
    assert read_config(tmp_path / "run" / "config.toml") == config
    from json import loads

    assert loads(rows[-1])["loss"] < 0.5 * loads(rows[0])["loss"]


def test_its_switches_are_checked(own: ModuleType) -> None:
    with pytest.raises(ConfigError, match=r"objective\.mots.*did you mean `objective\.most`"):
        resolve_config("degree-pred", None, {"objective.mots": 3})
    with pytest.raises(ConfigError, match="did you mean 'degree-pred'"):
        resolve_config("degre-pred")


def test_the_command_line_offers_it(
    own: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from graphlog.cli.main import main

    (tmp_path / "m.smi").write_text("\n".join(["CCO", "CCN", "c1ccccc1", "CC(=O)O"] * 4))
    words = [
        "pretrain",
        str(tmp_path / "m.smi"),
        "--objective",
        "degree-pred",
        "--epochs",
        "1",
        "--set",
        "encoder.dim=8",
    ]
    code = _exit_code(main, [*words, "--output", str(tmp_path / "run")])
    assert code == 0, capfd.readouterr().err
    assert "degree-pred" in (tmp_path / "run" / "config.toml").read_text()
    assert (
        _exit_code(
            main, [*words[:2], "--objective", "nonsense", "--output", str(tmp_path / "other")]
        )
        == 2
    )
    assert "degree-pred" in capfd.readouterr().err


def _exit_code(main, words: list[str]) -> int:
    try:
        return int(main(words) or 0)
    except SystemExit as e:
        return int(e.code or 0)


def test_the_command_line_names_every_task() -> None:
    code = (
        "from graphlog.objectives import OBJECTIVES; "
        "OBJECTIVES['degree-pred'] = 'degree_pred:DegreePred'\n"  # the one line
        "from graphlog.cli.main import main; main(['pretrain', '--help'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    words = done.stdout.replace("\u2502", " ").split()
    assert all({name, f"{name},", f"{name}."} & set(words) for name in [*OBJECTIVES, "degree-pred"])
