"""Runs that nothing disturbs, made once: what others must end with."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from graphlog.training.pretrain import run_pretraining
from training_support import families, outcome, small_config


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[float], dict[str, Any]]:
    """Return what the small job ends with when checkpoints are so many seconds apart."""

    @cache
    def ended(every_s: float) -> dict[str, Any]:
        run = tmp_path_factory.mktemp("undisturbed") / "run"
        run_pretraining(families(), small_config(checkpoint_every_s=every_s), run)
        return outcome(run)

    return ended
