"""The folder of a benchmark: a table per suite with one number per row, models, stores and maps.

Whenever a cell is finished, its table is replaced atomically, under a lock. So processes may share
a folder and may be killed at any time.
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
"""Columns that identify the cell of a row; empty if they do not apply."""
COLUMNS = (
    *LABELS,
    *("rule", "fold", "task", "metric", "value"),
    *("prototypes", "calibrated_on", "cell", "details"),
)
"""Columns of a table.

``value`` is a score (under a selection ``rule``, on the set ``fold``, of one ``task`` or the mean
of all), a loss, a rate or a time. ``prototypes`` has the sizes of the layers of the encoder's
hierarchy, empty if it has none; ``calibrated_on`` names the graphs that its batch norms were
calibrated on; ``cell`` is the hash of the settings that determine the outcome. ``details`` is given
only in the row with the metric ``seconds``: settings, versions and machine as JSON.
"""
_SUFFIX = ".csv.gz"


class BenchmarkFolder:
    """A folder in which a benchmark is computed.

    Raises:
        ConfigError: If there is a file with that name.
    """

    def __init__(self, path: Path) -> None:
        if path.exists() and not path.is_dir():
            raise ConfigError(f"{path} is a file; name a folder for the benchmark.")
        self.path = path
        self.models, self.runs, self.stores = path / "models", path / "runs", path / "stores"
        self.maps, self.locks = path / "maps", path / "locks"
        self.failures = path / "failures.jsonl"
        self._read: dict[Path, tuple[Identity, pd.DataFrame]] = {}  # tables that were read

    @staticmethod
    def is_at(path: Path) -> bool:
        """Return whether ``path`` is the folder of a benchmark with finished cells."""
        return path.is_dir() and bool(BenchmarkFolder(path).names())

    def make(self) -> None:
        """Create the folder and its subfolders."""
        with writing(self.path):
            for folder in (self.models, self.runs, self.stores, self.maps, self.locks):
                folder.mkdir(parents=True, exist_ok=True)

    def names(self) -> list[str]:
        """Return the names of the existing tables, in the order of the suites."""
        possible = [name for suite in SUITES for name in (suite, f"{suite}-protein")]
        return [name for name in possible if (self.path / f"{name}{_SUFFIX}").exists()]

    def pages(self) -> list[str]:
        """Return the names of the existing tables, each of which becomes a page of the report.

        Raises:
            DataError: If there are no tables.
        """
        if not (names := self.names()):
            raise DataError(
                f"{self.path} holds no cells yet; run `graphlog benchmark SUITE -o DIR` first."
            )
        return names

    def rows(self, name: str) -> pd.DataFrame:
        """Return the rows of a table; no rows if the table does not exist.

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
        """Return whether any table has the rows of the cell, or of a cell with the same hash."""
        return any((self.rows(name)["cell"] == cell.hash).any() for name in self.names())

    def has(self, cell: Cell) -> bool:
        """Return whether a cell is finished; copy the rows of a cell with the same hash to it."""
        for name in dict.fromkeys([cell.table, *self.names()]):
            rows = self.rows(name)
            rows = rows[rows["cell"] == cell.hash]
            if rows.empty:
                continue
            if name != cell.table or not _with_labels(rows, cell.labels).any():
                labels = dict(rows.iloc[0][list(LABELS)])  # of any one cell with this hash
                self._put(cell, rows[_with_labels(rows, labels)])
            return True
        return False

    def write(
        self, cell: Cell, rows: Sequence[Mapping[str, Any]], details: Mapping[str, Any]
    ) -> None:
        """Add the rows of a finished cell to its table; they replace rows with the same labels.

        Raises:
            ConfigError: If other rows have another scale, or encoders calibrated on other graphs.
        """
        frame = pd.DataFrame([{**dict.fromkeys(COLUMNS, ""), **row} for row in rows])
        text = json.dumps({**details, "settings": cell.settings}, sort_keys=True)
        frame["details"] = [text if metric == "seconds" else "" for metric in frame["metric"]]
        self._put(cell, frame)

    def _put(self, cell: Cell, rows: pd.DataFrame) -> None:
        rows = rows.assign(**cell.labels, cell=cell.hash)
        with self.claimed(f"table-{cell.table}", wait=True):
            self._read.clear()  # an unchanged time does not prove that the file is unchanged
            table = self.rows(cell.table)
            # a cell of speed has rows of several methods; those of methods not timed now are kept
            replaced = _with_labels(table, cell.labels) & table["method"].isin(rows["method"])
            # a row without a method describes the machine of the rows of its cell
            replaced &= (table["method"] != "") | ~table["cell"].isin(table["cell"][~replaced])
            table = pd.concat([table[~replaced], rows.astype({"value": "float64"})])
            path = self.path / f"{cell.table}{_SUFFIX}"
            check_alike("of scale", table["scale"], path)
            check_alike("calibrated on", table["calibrated_on"], path)
            table = table.sort_values(list(LABELS), kind="stable", ignore_index=True)
            with replacing(path) as unfinished:
                unfinished.write_bytes(gzip.compress(table.to_csv(index=False).encode(), mtime=0))

    def fail(self, cell: Cell, error: Exception) -> None:
        """Append a cell that could not be computed to the list of failures."""
        fields = {"cell": cell.title, "error": str(error), "kind": type(error).__name__}
        line = json.dumps({**fields, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z")}) + "\n"
        with writing(self.failures), self.failures.open("a", encoding="utf-8") as file:
            file.write(line)  # one short write, so that lines of several processes do not mix

    @contextmanager
    def claimed(self, name: str, *, wait: bool = False) -> Generator[bool]:
        """Hold the lock ``name`` in the block and yield True.

        If another process holds it, wait, or yield False without ``wait``. The operating system
        releases the lock of a process that dies.
        """
        with writing(self.locks):
            lock = acquire_lock(self.locks / f"{name}.lock", wait=wait)
        try:
            yield lock is not None
        finally:
            if lock is not None:
                release_lock(lock)


def check_alike(what: str, values: Iterable[str], where: Path) -> None:
    """Check that all rows of a table agree in ``what``, or have no value.

    Raises:
        ConfigError: If two values differ, since such rows cannot be compared.
    """
    found = sorted(set(values) - {""})
    if len(found) > 1:
        raise ConfigError(
            f"{where}: rows {what} {found[0]} and {what} {found[1]} cannot be in one table;"
            " name another folder with -o."
        )


def _with_labels(rows: pd.DataFrame, labels: Mapping[str, str]) -> "pd.Series[bool]":
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
    # float() is exact to the last bit, the default parser of pandas is not
    return rows.assign(value=[float(text or "nan") for text in rows["value"]])
