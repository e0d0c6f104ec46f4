"""The folder of a benchmark: one table a suite, one number a row, and what the cells left behind.

A table is replaced in one piece whenever a cell is finished, under a lock, so that processes may
share a folder and may be killed at any time.
"""

import gzip
import json
import time
import zlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from graphlog.benchmark.cells import SUITES, Cell
from graphlog.errors import ConfigError, DataError
from graphlog.files import Identity, acquire_lock, identity_of, release_lock, replacing, writing

LABELS = ("scale", "stage", "method", "backbone", "variant", "dataset", "split", "seed")
"""Columns that say which cell a row belongs to; empty where they do not apply."""
COLUMNS = (
    *LABELS,
    *("rule", "fold", "task", "metric", "value"),
    *("prototypes", "calibrated_on", "cell", "details"),
)
"""Columns of a table.

``value`` is a score (of a selection ``rule``, on a ``fold``, of one ``task`` or the mean of all), a
loss, a rate or a time. ``prototypes`` are the sizes of the layers of the encoder's hierarchy, empty
where it has none; ``calibrated_on`` the graphs whose statistics its batch norms hold; ``cell`` the
hash of what decides the outcome. ``details`` is on the row of the seconds alone: settings, data,
versions and machine as JSON.
"""
_SUFFIX = ".csv.gz"


class BenchmarkFolder:
    """A folder in which a benchmark is computed; the first cell creates it.

    Raises:
        ConfigError: If there is a file of that name.
    """

    def __init__(self, path: Path) -> None:
        if path.exists() and not path.is_dir():
            raise ConfigError(f"{path} is a file; name a folder for the benchmark.")
        self.path = path
        self.models, self.runs, self.stores = path / "models", path / "runs", path / "stores"
        self.maps, self.locks = path / "maps", path / "locks"
        self.failures = path / "failures.jsonl"
        self._read: dict[Path, tuple[Identity, pd.DataFrame]] = {}

    @staticmethod
    def is_at(path: Path) -> bool:
        """Return whether a benchmark was computed in the folder ``path``."""
        return any(path.glob(f"*{_SUFFIX}"))

    def make(self) -> None:
        """Create the folders."""
        with writing(self.path):
            for folder in (self.models, self.runs, self.stores, self.maps, self.locks):
                folder.mkdir(parents=True, exist_ok=True)

    def names(self) -> list[str]:
        """Return the names of the tables of known suites, in the order of the suites."""
        known = [name for suite in SUITES for name in (suite, f"{suite}-protein")]
        return [name for name in known if (self.path / f"{name}{_SUFFIX}").exists()]

    def pages(self) -> list[str]:
        """Return the names of the tables to be shown.

        Raises:
            DataError: If there are none.
        """
        if not (names := self.names()):
            raise DataError(
                f"{self.path} holds no cells yet; run `graphlog benchmark SUITE -o DIR` first."
            )
        return names

    def rows(self, name: str) -> pd.DataFrame:
        """Return the rows of a table; none where there is no such table.

        Raises:
            DataError: If the file is damaged or is not a table of a benchmark.
        """
        path = self.path / f"{name}{_SUFFIX}"
        if not path.exists():
            return pd.DataFrame(columns=list(COLUMNS)).astype({"value": "float64"})
        state = identity_of(path)
        if self._read.get(path, (None,))[0] != state:
            self._read[path] = (state, _read_table(path))
        return self._read[path][1]

    def is_finished(self, cell: Cell) -> bool:
        """Return whether the rows of a cell are known, under its own labels or others."""
        return any((self.rows(name)["cell"] == cell.hash).any() for name in self.names())

    def has(self, cell: Cell) -> bool:
        """Return whether a cell is finished; the rows of an equal one are entered for it too."""
        for name in dict.fromkeys([cell.table, *self.names()]):
            rows = self.rows(name)
            rows = rows[rows["cell"] == cell.hash]
            if rows.empty:
                continue
            if name != cell.table or not _of(rows, cell.labels).any():
                first = dict(rows.iloc[0][list(LABELS)])  # of one cell, whichever
                self._put(cell, rows[_of(rows, first)])
            return True
        return False

    def write(
        self, cell: Cell, rows: Sequence[Mapping[str, Any]], details: Mapping[str, Any]
    ) -> None:
        """Add the rows of a finished cell to its table, in place of older ones of the same labels.

        Raises:
            ConfigError: If its encoder was calibrated on other graphs than those of other rows.
        """
        frame = pd.DataFrame([{**dict.fromkeys(COLUMNS, ""), **row} for row in rows])
        text = json.dumps({**details, "settings": cell.settings}, sort_keys=True)
        frame["details"] = [text if metric == "seconds" else "" for metric in frame["metric"]]
        self._put(cell, frame)

    def _put(self, cell: Cell, rows: pd.DataFrame) -> None:
        rows = rows.assign(**cell.labels, cell=cell.hash)
        with self.claimed(f"table-{cell.table}", wait=True):
            self._read.clear()  # no time of a file tells for sure that it is still the same
            before = self.rows(cell.table)
            whole = pd.concat(
                [before[~_of(before, cell.labels)], rows.astype({"value": "float64"})]
            )
            check_calibration(whole["calibrated_on"], self.path / f"{cell.table}{_SUFFIX}")
            whole = whole.sort_values(list(LABELS), kind="stable", ignore_index=True)
            with replacing(self.path / f"{cell.table}{_SUFFIX}") as unfinished:
                unfinished.write_bytes(gzip.compress(whole.to_csv(index=False).encode(), mtime=0))

    def fail(self, cell: Cell, error: Exception) -> None:
        """Append a cell that could not be computed to the list of failures."""
        fields = {"cell": cell.title, "error": str(error), "kind": type(error).__name__}
        line = json.dumps({**fields, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z")}) + "\n"
        with writing(self.failures), self.failures.open("a", encoding="utf-8") as file:
            file.write(line)  # a single short write: processes do not mix their lines

    @contextmanager
    def claimed(self, name: str, *, wait: bool = False) -> Generator[bool]:
        """Hold the lock ``name`` in the block; yield False or ``wait`` if another process holds it.

        The operating system frees the lock of a process that dies.
        """
        with writing(self.locks):
            lock = acquire_lock(self.locks / f"{name}.lock", wait=wait)
        try:
            yield lock is not None
        finally:
            if lock is not None:
                release_lock(lock)


def check_calibration(names: Iterable[str], where: Path) -> None:
    """Refuse encoders of one table that were calibrated on different graphs: none can be compared.

    Raises:
        ConfigError: If two names differ.
    """
    stores = sorted(set(names) - {""})
    if len(stores) > 1:
        raise ConfigError(
            f"{where}: rows calibrated on {stores[0]} and on {stores[1]} cannot be in one table;"
            " name another folder with -o."
        )


def _of(rows: pd.DataFrame, labels: Mapping[str, str]) -> "pd.Series[bool]":
    """Return which rows have these labels."""
    return pd.concat([rows[name] == value for name, value in labels.items()], axis=1).all(axis=1)


def _read_table(path: Path) -> pd.DataFrame:
    try:
        rows = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(
            f"{path} is damaged ({error}); restore it, or delete it and run the suite again."
        ) from None
    if list(rows.columns) != list(COLUMNS):
        raise DataError(f"{path} is not a table of this version; name another folder.")
    return rows.assign(value=[float(text or "nan") for text in rows["value"]])  # to the last bit
