"""The folder of a benchmark and its long-form table, one row a number.

A finished cell is a small file of rows; :meth:`BenchmarkFolder.merge` collects such files into one
compressed table a suite. Every file is replaced in one piece, so that processes may share a folder
and may be killed at any time.
"""

import json
import math
import time
import zlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd

from graphlog.benchmark.cells import NOT_OF_THE_OUTCOME, CellSpec
from graphlog.benchmark.methods import BASELINES
from graphlog.datasets import DATASETS
from graphlog.downstream.report import json_ready
from graphlog.errors import ConfigError, DataError, ModelFileError
from graphlog.files import acquire_lock, replacing, writing

PROTOCOL = 2
"""Number of the measuring protocol.

1: fine-tuning of a few epochs without decay, statistics of batch norm calibrated for untrained
encoders only, rows of Table 4 with unequal starts. 2: the same for all rows.
"""
NO_SEED = -1
"""Stands for the seed of what is not random."""
COLUMNS = (
    *("cell", "suite", "scale", "changes", "domain", "stage", "method", "backbone", "variant"),
    *("dataset", "seed", "protocol", "rule", "fold", "task", "metric", "value", "details"),
)
"""Columns of a table.

``cell`` to ``protocol`` say which cell a row belongs to. ``value`` is a score (of the selection
``rule``, on a ``fold``, of one ``task`` or the mean of all), a loss, a rate or a time. ``details``
is on the row of the seconds alone: settings, data, versions and machine as JSON.
"""
_NUMBERS: dict[str, Any] = {"seed": "Int64", "protocol": "int64", "value": "float64"}
_TEXTS: dict[str, Any] = {name: str for name in COLUMNS if name not in _NUMBERS}
_TYPES = {**_TEXTS, **_NUMBERS}
_HEAD = COLUMNS[: COLUMNS.index("protocol")]
_IDENTITY = [name for name in _HEAD if name not in ("cell", "suite")]
_SUFFIX = ".csv.gz"


class BenchmarkFolder:
    """A folder in which a benchmark is computed.

    Args:
        path: The folder; the first cell creates it.

    Raises:
        ConfigError: If there is a file of that name.
    """

    def __init__(self, path: Path) -> None:
        if path.exists() and not path.is_dir():
            raise ConfigError(f"{path} is a file; name a folder for the benchmark.")
        self.path = path
        self.rows, self.models, self.runs = path / "rows", path / "models", path / "runs"
        self.stores, self.maps, self.locks = path / "stores", path / "maps", path / "locks"
        self.failures = path / "failures.jsonl"
        self.old_cells = path / "cells"
        """Folder of one JSON file a cell, as version 0.1 wrote them."""
        self._finished: set[str] = set()
        self._index: dict[str, dict[str, Any]] = {}
        self._indexed: tuple[Any, ...] = ()

    @staticmethod
    def is_at(path: Path) -> bool:
        """Return whether a benchmark was computed in the folder ``path``."""
        folders = (path / "rows", path / "cells")
        return any(folder.is_dir() for folder in folders) or any(path.glob(f"*{_SUFFIX}"))

    def make(self) -> None:
        """Create the folders."""
        with writing(self.path):
            for folder in (self.rows, self.models, self.runs, self.stores, self.maps, self.locks):
                folder.mkdir(parents=True, exist_ok=True)

    def model(self, name: str) -> Path:
        """Return the model file of that name."""
        return self.models / name / "model.safetensors"

    def is_finished(self, spec: CellSpec) -> bool:
        """Return whether a cell is finished, under its own name or that of another suite.

        A cell with other settings, of an older protocol or in a damaged file is not.
        """
        return self._is_written(spec) or self._equal_cell(spec) is not None

    def has(self, spec: CellSpec) -> bool:
        """Return whether a cell is finished; the result of an equal cell is entered for it too."""
        if spec.key in self._finished:
            return True
        if not self._is_written(spec):
            equal = self._equal_cell(spec)
            if equal is None:
                return False
            self._write_rows(spec, equal)
        self._finished.add(spec.key)
        return True

    def write(self, spec: CellSpec, result: Mapping[str, Any]) -> None:
        """Write the rows of a finished cell in one piece."""
        fields = {**result, "config": spec.config, "config_hash": spec.config_hash}
        self._write_rows(spec, _frame(_cell_rows({**fields, "protocol": PROTOCOL})))

    def fail(self, spec: CellSpec, error: Exception) -> None:
        """Append a cell that could not be computed to the list of failures."""
        fields = {"cell": spec.key, "error": str(error), "kind": type(error).__name__}
        line = json.dumps({**fields, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z")}) + "\n"
        with writing(self.failures), self.failures.open("a", encoding="utf-8") as file:
            file.write(line)  # a single short write: processes do not mix their lines

    @contextmanager
    def claimed(self, name: str, *, wait: bool = False) -> Generator[bool]:
        """Hold the lock ``name`` in the block; yield False if another process holds it.

        The operating system frees the lock of a process that dies.

        Args:
            name: Name of the lock.
            wait: Wait for the other process instead.
        """
        with writing(self.locks):
            lock = acquire_lock(self.locks / f"{name}.lock", wait=wait)
        try:
            yield lock is not None
        finally:
            if lock is not None:
                lock.release()

    def load(self) -> pd.DataFrame:
        """Return the rows of all finished cells; where a cell was written twice, the newer ones.

        Raises:
            DataError: If a file is damaged or is not a table of a benchmark.
            ModelFileError: If a file is of a newer format.
        """
        files = (*self._tables(), *sorted(self.rows.glob("*.csv")))
        parts = [self._read_json_cells(), *map(_read_csv, files)]
        rows = pd.concat([part.assign(file=number) for number, part in enumerate(parts)])
        newest = rows["file"] == rows.groupby("cell")["file"].transform("max")
        rows = rows[newest].drop(columns="file").astype(_TYPES)
        return rows.sort_values("cell", kind="stable", ignore_index=True)

    def merge(self) -> None:
        """Collect the rows of finished cells into one compressed table a suite.

        JSON cells of version 0.1 are imported and moved to ``cells.imported``.
        """
        if not any(self.rows.glob("*.csv")) and not self._json_cells():
            return
        self.make()
        with self.claimed("table", wait=True):
            rows, old = sorted(self.rows.glob("*.csv")), self._json_cells()
            with writing(self.path):
                for path in self.old_cells.glob("*.npz"):
                    path.replace(self.maps / path.name)
            for suite, part in self.load().groupby("suite"):
                with replacing(self.path / f"{suite}{_SUFFIX}") as unfinished:
                    part.to_csv(unfinished, index=False, compression={"method": "gzip", "mtime": 0})
            with writing(self.path):
                for path in rows:
                    path.unlink()
                for path in old:
                    moved = self.path / "cells.imported" / path.name
                    moved.parent.mkdir(exist_ok=True)
                    path.replace(moved)
            with suppress(OSError):
                self.old_cells.rmdir()  # unless it holds something else

    def _tables(self) -> list[Path]:
        return sorted(self.path.glob(f"*{_SUFFIX}"))

    def _json_cells(self) -> list[Path]:
        return sorted(self.old_cells.glob("*.json"))

    def _read_json_cells(self) -> pd.DataFrame:
        return _frame([row for path in self._json_cells() for row in _read_json(path)])

    def _is_written(self, spec: CellSpec) -> bool:
        # first the cell's own file: it is removed only after the table that holds it is in place
        path = self.rows / f"{spec.key}.csv"
        rows = _rows_or_none(path)
        outcome = self._details().get(spec.key) if rows is None else cell_details(rows)
        return outcome is not None and _is_outcome(outcome, spec)

    def _equal_cell(self, spec: CellSpec) -> pd.DataFrame | None:
        """Return the rows of a cell of the same outcome; None if there is none."""
        for path in sorted(self.rows.glob(f"{spec.stage}-*-{spec.config_hash[:8]}.csv")):
            rows = _rows_or_none(path)
            if rows is not None and _is_outcome(cell_details(rows), spec):
                return rows
        for cell, details in self._details().items():
            if _is_outcome(details, spec):
                everything = self.load()
                return everything[everything["cell"] == cell]
        return None

    def _write_rows(self, spec: CellSpec, rows: pd.DataFrame) -> None:
        """Write rows, those of an equal cell too, as those of ``spec``."""
        plan, (details,) = spec.plan, map(json.loads, rows.loc[rows["details"] != "", "details"])
        details |= {"command": plan.command}
        rows = rows.assign(
            cell=spec.key,
            suite=plan.suite,
            scale=plan.scale,
            changes=plan.changes,
            domain=plan.domain,
            stage=spec.stage,
            method=spec.method.name,
            backbone=spec.backbone or "",
            variant=_text(dict(spec.variant)),
            dataset=spec.dataset or "",
            seed=pd.array([spec.seed] * len(rows), dtype="Int64"),
            details=rows["details"].map(lambda text: _dump(details) if text else ""),
        )
        with replacing(self.rows / f"{spec.key}.csv") as unfinished:
            rows.to_csv(unfinished, index=False)

    def _details(self) -> dict[str, dict[str, Any]]:
        """Return the details of the cells in the tables, which are read again when they change."""
        files = [path for path in (*self._tables(), self.old_cells) if path.exists()]
        state = tuple((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in files)
        if state != self._indexed:
            parts = [self._read_json_cells(), *map(_read_csv, self._tables())]
            self._index = {
                cell: fields for part in parts for cell, fields in _by_cell(part).items()
            }
            self._indexed = state
        return self._index


def _cell_rows(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a cell as rows of the long-form table.

    What does not identify, score or time it becomes its details.
    """
    head = {name: _text(fields.get(name)) for name in _HEAD if name != "seed"}
    head |= {"seed": fields.get("seed"), "protocol": fields["protocol"]}
    metric = fields.get("metric")
    rows: list[dict[str, Any]] = []
    for rule, values in (fields.get("scores") or {}).items():
        for name, value in values.items():
            if name == "per_task":
                rows += [
                    {"rule": rule, "fold": "test", "task": task, "metric": metric, "value": score}
                    for task, score in value.items()
                ]
            elif metric is None:
                rows.append({"rule": rule, "metric": name, "value": value})
            else:
                rows.append({"rule": rule, "fold": name, "metric": metric, "value": value})
    if fields.get("graphs_per_s") is not None:
        rows.append({"metric": "graphs_per_s", "value": fields["graphs_per_s"]})
    outside = {*_HEAD, "protocol", "scores", "metric", "seconds", "graphs_per_s"}
    details = {name: value for name, value in fields.items() if name not in outside}
    rows.append({"metric": "seconds", "value": fields.get("seconds"), "details": _dump(details)})
    return [{**head, **row} for row in rows]


def _frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    blank = dict.fromkeys(_TEXTS, "")
    frame = pd.DataFrame([{**blank, **row} for row in rows], columns=list(COLUMNS))
    return frame.astype(_TYPES)


def cell_details(rows: pd.DataFrame) -> dict[str, Any]:
    """Return settings, data, versions and machine of the cell that ``rows`` belong to."""
    return next(iter(_by_cell(rows).values()))


def newest_cells(rows: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, dict[str, Any]]]:
    """Return the rows to show and the details of their cells.

    Of two results for the same place, the one of the newer protocol counts, and of two timings the
    one taken in turns with more methods.

    Raises:
        DataError: If two cells hold the same place with different settings.
    """
    details = _by_cell(rows)
    rows = rows.assign(seed=rows["seed"].fillna(NO_SEED).astype("int64"))
    rows.loc[rows["method"].isin(BASELINES), "backbone"] = ""
    heads = rows.drop_duplicates("cell")
    together = [len(details[str(cell)].get("together") or ()) for cell in heads["cell"]]
    order = [*_IDENTITY, "protocol", "together"]
    heads = heads.assign(together=together)[["cell", "suite", *order]].sort_values(order)
    best = heads.drop_duplicates(_IDENTITY, keep="last")
    equals = heads.merge(best[order], on=order)
    equals = equals[equals.duplicated(order, keep=False)]
    if len(equals):
        cell, other = equals["cell"].iloc[:2]
        raise DataError(
            f"{cell} and {other} are the same cell with different settings; delete the rows of "
            f"one from {equals['suite'].iloc[0]}{_SUFFIX}."
        )
    keep = set(best["cell"])
    return rows[rows["cell"].isin(keep)], {c: found for c, found in details.items() if c in keep}


def _by_cell(rows: pd.DataFrame) -> dict[str, dict[str, Any]]:
    rows = rows[rows["details"] != ""]
    columns = (rows[name] for name in ("cell", "details", "protocol", "suite", "seed"))
    return {
        cell: {**json.loads(text), "protocol": int(protocol), "suite": suite, "seed": seed}
        for cell, text, protocol, suite, seed in zip(*columns, strict=True)
    }


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={value[name]}" for name in sorted(value))
    return "" if value is None else str(value)


def _dump(details: Mapping[str, Any]) -> str:
    return json.dumps(json_ready(details), sort_keys=True, separators=(",", ":"))


def _read_csv(path: Path) -> pd.DataFrame:
    try:
        rows = pd.read_csv(path, dtype=str, keep_default_na=False)
        header = list(rows.columns)
        if header == list(COLUMNS):
            values = [float(text) if text else math.nan for text in rows["value"]]  # every bit
            seeds = [int(text) if text else None for text in rows["seed"]]
            columns = {"value": values, "seed": pd.array(seeds, dtype="Int64")}
            rows = rows.assign(**columns).astype(_NUMBERS)
            if set(rows["cell"]) != set(_by_cell(rows)):
                raise ValueError("a cell is cut off")
            return rows
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(
            f"{path} is damaged ({error}); restore it, or delete it and run the suite again."
        ) from None
    if set(COLUMNS) <= set(header):
        raise ModelFileError(f"{path} was written by a newer graphlog; update graphlog.")
    raise DataError(f"{path} is not a table of a benchmark; move it elsewhere.")


def _rows_or_none(path: Path) -> pd.DataFrame | None:
    try:
        return _read_csv(path) if path.is_file() else None
    except DataError:
        return None


def _read_json(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a cell as version 0.1 wrote it."""
    try:
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if fields["format"] != "graphlog-cell":
            problem = f"{path} is not a cell of a benchmark (format {fields['format']!r})"
            raise DataError(f"{problem}; move it elsewhere.")
        if fields["version"] > 1:
            raise ModelFileError(f"{path} was written by a newer graphlog; update graphlog.")
        dataset = fields["dataset"]
        known = dataset is None or dataset in DATASETS
        fields["domain"] = fields.get("domain") or ("molecule" if known else "protein")
        fields |= {"cell": path.stem, "protocol": 1, "stage": fields["stage"]}
        del fields["format"], fields["version"]
        return _cell_rows(fields)
    except (json.JSONDecodeError, UnicodeDecodeError, AttributeError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is not a whole cell ({type(error).__name__}: {error}); "
            "delete it and run the suite again."
        ) from None


def _is_outcome(details: Mapping[str, Any], spec: CellSpec) -> bool:
    """Return whether a finished cell is the outcome of ``spec``.

    Settings that did not exist when it was computed do not matter: their defaults change nothing.
    """
    return (
        details.get("config_hash") == spec.config_hash
        and (details["protocol"] == PROTOCOL or spec.backbone is None)
        and _agree(details.get("config", {}), spec.config)
    )


def _agree(before: Any, now: Any) -> bool:
    """Return whether two settings are equal wherever both decide the outcome."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        shared = before.keys() & now.keys() - NOT_OF_THE_OUTCOME
        return all(_agree(before[key], now[key]) for key in shared)
    return json.dumps(before) == json.dumps(now) or before == now
