"""How long cells will take: from those that are finished, else from a few steps timed now."""

from collections.abc import Iterable
from statistics import fmean

from graphlog.benchmark.grid import CellSpec
from graphlog.datasets import DATASETS

_UNKNOWN_ROWS = 10_000
"""Taken where a catalogue does not say how many graphs a set has."""


class Estimate:
    """Seconds a unit of work, learnt from finished cells; the closer kin, the more they count."""

    def __init__(self) -> None:
        """Know nothing."""
        self._rates: dict[tuple[str | None, ...], list[float]] = {}

    def learn(self, spec: CellSpec, seconds: float | None) -> None:
        """Take in what a cell took."""
        if seconds is None:
            return
        for kin in _kinships(spec):
            self._rates.setdefault(kin, []).append(seconds / work(spec))

    def seconds(self, spec: CellSpec) -> float | None:
        """Return what one cell will take; None where nothing like it has been seen."""
        for kin in _kinships(spec):
            if kin in self._rates:
                return fmean(self._rates[kin]) * work(spec)
        return None

    def knows_well(self, spec: CellSpec) -> bool:
        """Return whether a cell of the same backbone, variant and method, or data set, has been seen."""
        return _kinships(spec)[0] in self._rates

    def of(self, cells: Iterable[CellSpec]) -> float:
        """Return what the cells will take that anything is known of."""
        return sum(seconds for spec in cells if (seconds := self.seconds(spec)) is not None)

    def knows(self, spec: CellSpec) -> bool:
        """Return whether there is anything to estimate a cell by."""
        return self.seconds(spec) is not None


def work(spec: CellSpec) -> float:
    """Return how much there is to do in a cell, in units that compare within a stage: graphs passed through the network, or fits."""
    if spec.stage == "pretrain" and spec.pretraining is not None:
        return float((spec.frame.limit or rows_of(spec.frame.source)) * spec.pretraining.epochs)
    rows = rows_of(spec.dataset) if spec.dataset else spec.frame.mapped
    if spec.finetuning is not None:
        return float(rows * spec.finetuning.epochs)
    tasks = max(DATASETS[spec.dataset].num_tasks, 1) if spec.dataset else 1
    return rows * (1.0 + 0.2 * tasks)


def rows_of(name: str) -> int:
    """Return the rows of a data set by the catalogue."""
    return DATASETS[name].rows or _UNKNOWN_ROWS


def in_words(seconds: float) -> str:
    """Return a duration as people say it.

    Example:
        >>> in_words(4), in_words(200), in_words(8000)
        ('4 s', '3:20 min', '2:13 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}:{rest:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d} h"


def _kinships(spec: CellSpec) -> list[tuple[str | None, ...]]:
    """Return groups of cells that take alike, the narrowest first."""
    method = (
        spec.method.name if spec.stage in ("pretrain", "speed") or spec.backbone is None else None
    )
    varied = (
        ",".join(f"{name}={value}" for name, value in spec.variant)
        if spec.stage == "pretrain"
        else None
    )
    own = [spec.stage, spec.scale, spec.domain]
    narrow = (*own, spec.backbone, method, varied, spec.dataset)
    return [
        narrow,
        (*own, spec.backbone, method, spec.dataset),
        (*own, spec.backbone, method),
        (*own, spec.backbone),
        tuple(own),
    ]
