"""Benchmarks of seconds, without figures."""

import pytest

from benchmark_support import hide_matplotlib, tiny_scale
from graphlog.benchmark.cells import SCALES


@pytest.fixture
def no_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_matplotlib(monkeypatch)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, no_matplotlib: None) -> None:
    """The smoke scale, smaller still."""
    monkeypatch.setitem(SCALES, "smoke", tiny_scale())
