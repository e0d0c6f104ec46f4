"""``metrics.jsonl``: one row of averages every few steps, exact across restarts."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


class Meter:
    """Running sums of the scalars of each step, kept where they were computed and read out once a row."""

    def __init__(self) -> None:
        """Start empty."""
        self._sums: dict[str, Tensor] = {}

    def add(self, scalars: Mapping[str, Tensor]) -> None:
        """Add one step's scalars; sums and counts are float64."""
        for name, value in scalars.items():
            pair = torch.stack([value.detach().double(), torch.ones_like(value, dtype=torch.float64)])
            self._sums[name] = self._sums[name] + pair if name in self._sums else pair

    def read(self) -> dict[str, float]:
        """Return the means since the last call and start anew."""
        names = list(self._sums)
        if not names:
            return {}
        pairs = torch.stack(list(self._sums.values())).tolist()
        self._sums = {}
        return {name: total / count for name, (total, count) in zip(names, pairs, strict=True)}

    def state(self) -> dict[str, Tensor]:
        """Return the sums, in the order in which they appeared."""
        return dict(self._sums)

    def load_state(self, state: Mapping[str, Tensor], order: list[str], device: torch.device) -> None:
        """Take over sums written by :meth:`state`."""
        self._sums = {name: state[name].to(device) for name in order}


class MetricsFile:
    """An append-only file of JSON rows, each carrying the ``step`` it ends at."""

    def __init__(self, path: Path, keep_until_step: int) -> None:
        """Open ``path``; rows after ``keep_until_step`` belong to steps that will be repeated and are cut off."""
        rows = [row for row in read_metrics(path) if row["step"] <= keep_until_step]
        partial = path.with_name(path.name + ".partial")
        partial.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        os.replace(partial, path)
        self._file = path.open("a", encoding="utf-8")

    def write(self, row: Mapping[str, Any]) -> None:
        """Append a row; it survives the death of the process at once."""
        self._file.write(json.dumps(dict(row)) + "\n")
        self._file.flush()

    def sync(self) -> None:
        """Force the rows onto the disk, so that no checkpoint is ahead of them."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the rows of ``metrics.jsonl``; a last line cut short by a kill is left out."""
    if not path.exists():
        return []
    rows: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(row, dict) and "step" in row:
            rows.append(row)  # pyright: ignore[reportUnknownArgumentType]
    return rows
