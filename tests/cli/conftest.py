"""A small file, store, pre-trained run and fine-tuned run, made once by the command itself."""

from pathlib import Path

import pytest

from cli_support import SMALL, write_molecules
from graphlog.cli.main import main


def _made(line: str) -> None:
    assert main([*line.split(), "--quiet"]) == 0


@pytest.fixture(scope="session")
def molecules(tmp_path_factory: pytest.TempPathFactory, tiny_smiles: list[str]) -> Path:
    """96 rows, one of them no molecule."""
    chosen = [*tiny_smiles, "CC(", *("N" + "C" * n + "O" * (n % 2) for n in range(1, 64))]
    return write_molecules(tmp_path_factory.mktemp("input") / "molecules.csv", chosen)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory, molecules: Path) -> Path:
    """The molecules as a store of the ``molecule`` schema."""
    path = tmp_path_factory.mktemp("store") / "molecules.store"
    _made(f"featurize {molecules} -o {path} --schema molecule --workers 1")
    return path


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Path:
    """A finished pre-training run on the store."""
    run = tmp_path_factory.mktemp("pretrained") / "run"
    _made(f"pretrain {store} -o {run} {SMALL}")
    return run


@pytest.fixture(scope="session")
def finetuned(tmp_path_factory: pytest.TempPathFactory, molecules: Path, pretrained: Path) -> Path:
    """A finished fine-tuning run on the file."""
    run = tmp_path_factory.mktemp("finetuned") / "run"
    choices = "--targets oxygen --split random --epochs 2 --seeds 0,1 --baselines none"
    _made(f"finetune {molecules} -m {pretrained} -o {run} {choices}")
    return run
