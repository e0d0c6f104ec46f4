"""Cells of a benchmark as typed values: one JSON file is one score of one method on one data set with one seed."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphlog.datasets import DATASETS
from graphlog.errors import DataError, ModelFileError

FORMAT, VERSION = "graphlog-cell", 1
FEATURE_BASELINES = ("ecfp-rf", "ecfp-lr")
"""Methods without an encoder: they are the same whatever the backbone and however an encoder would be tuned."""

Scalar = str | int | float | bool
Variant = tuple[tuple[str, Scalar], ...]
"""What a suite varies, as sorted (name, value) pairs; empty for a plain run."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One file of the cells folder."""

    path: Path
    stage: str
    """``pretrain``, ``finetune``, ``probe``, ``map`` or ``speed``."""
    suite: str
    scale: str
    method: str
    backbone: str | None
    """None for feature baselines."""
    variant: Variant
    dataset: str | None
    domain: str
    """``molecule`` or ``protein``."""
    seed: int | None
    """None where nothing is drawn."""
    metric: str
    scores: Mapping[str, Any]
    """Per selection rule: ``test``, ``valid`` and further folds."""
    raw: Mapping[str, Any]
    """Everything else of the file."""

    def score(self, rule: str, fold: str = "test") -> float | None:
        """Return a score; None where the cell has no such rule or fold, NaN where the score is undefined."""
        found = self.scores.get(rule, {})
        if fold not in found:
            return None
        return math.nan if found[fold] is None else float(found[fold])

    @property
    def identity(self) -> tuple[Any, ...]:
        """What no second cell of the same scale may share."""
        return (
            self.scale,
            self.domain,
            self.stage,
            self.method,
            self.backbone,
            self.variant,
            self.dataset,
            self.seed,
        )


def read_cells(folder: Path) -> list[Cell]:
    """Return the cells of a folder in the order of their names.

    Of two timings of one objective, the one that was taken in turns with more others counts.

    Raises:
        DataError: If the folder is missing, a file is no cell, or two cells claim the same place with different settings.
        ModelFileError: If a cell is of a newer format.
    """
    if not folder.is_dir():
        raise DataError(
            f"{folder} is no folder of cells; run `graphlog benchmark SUITE -o DIR` first and name DIR."
        )
    cells: dict[tuple[Any, ...], Cell] = {}
    for path in sorted(folder.glob("*.json")):
        cell = _read(path)
        other = cells.setdefault(cell.identity, cell)
        if len(_company(other)) != len(_company(cell)):
            cells[cell.identity] = max(other, cell, key=lambda c: len(_company(c)))
            continue
        if other.raw.get("config_hash") != cell.raw.get("config_hash"):
            raise DataError(
                f"{other.path} and {path.name} hold the same cell with different settings; remove the one not wanted."
            )
    return list(cells.values())


def _company(cell: Cell) -> list[str]:
    """Return the objectives that one was timed in turns with; none in other stages."""
    return cell.raw.get("together") or []


def _read(path: Path) -> Cell:
    try:
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if fields["format"] != FORMAT:
            raise DataError(
                f"{path} is no cell of a benchmark (format {fields['format']!r}); move it elsewhere."
            )
        if fields["version"] > VERSION:
            raise ModelFileError(
                f"{path} is of format version {fields['version']}, this graphlog reads up to {VERSION}; update graphlog."
            )
        return _typed(path, fields)
    except (json.JSONDecodeError, UnicodeDecodeError, AttributeError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is not a whole cell ({type(error).__name__}: {error}); delete it and run the suite again."
        ) from None


def _typed(path: Path, fields: Mapping[str, Any]) -> Cell:
    method, dataset = str(fields["method"]), fields["dataset"]
    return Cell(
        path=path,
        stage=fields["stage"],
        suite=fields["suite"],
        scale=fields["scale"],
        method=method,
        backbone=None if method in FEATURE_BASELINES else fields["backbone"],
        variant=tuple(sorted((fields.get("variant") or {}).items())),
        dataset=dataset,
        domain=fields.get("domain") or _domain(dataset),
        seed=fields["seed"],
        metric=fields.get("metric") or "roc_auc",
        scores=fields.get("scores") or {},
        raw=fields,
    )


def _domain(dataset: str | None) -> str:
    """Return the domain of a data set whose cell does not say: the named ones are molecules."""
    return "molecule" if dataset is None or dataset in DATASETS else "protein"
