"""Graphs of a benchmark: those to pre-train on are parsed once a folder, labelled ones once a process."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from graphlog.benchmark.cells import Folder
from graphlog.benchmark.grid import CellSpec, described
from graphlog.data.schema import FeatureSchema
from graphlog.data.store import GraphStore, open_store
from graphlog.domains import SCHEMAS
from graphlog.downstream.tasks import LabelledGraphs, open_labelled
from graphlog.errors import ModelFileError
from graphlog.inputs import read
from graphlog.training.log import Progress

_KEPT = 8


class Graphs:
    """Opens the graphs that cells need."""

    def __init__(self, folder: Folder, progress: Progress) -> None:
        """Keep stores in ``folder``."""
        self.folder, self.progress = folder, progress
        self._labelled: dict[tuple[str, str], LabelledGraphs] = {}

    def unlabelled(self, spec: CellSpec) -> GraphStore:
        """Return the graphs to pre-train on, memory-mapped; the first process that needs them parses them, others wait for it."""
        frame = spec.frame
        words = json.dumps([described(frame.source), frame.limit], sort_keys=True)
        name = f"{frame.schema}-{hashlib.sha256(words.encode()).hexdigest()[:12]}"
        path = self.folder.stores / name
        with self.folder.claimed(f"store-{name}", wait=True):
            found = _opened(path)
            if found is None:
                self.progress.say(
                    f"reading {frame.source}{f' (first {frame.limit:,})' if frame.limit else ''} as {frame.schema}"
                )
                self._parse(spec, path)
                found = open_store(path)
        return found

    def labelled(self, dataset: str, schema: str) -> LabelledGraphs:
        """Return a labelled set; the last few asked for stay in memory, where a molecule takes some 200 bytes."""
        key = (dataset, schema)
        if key not in self._labelled:
            if len(self._labelled) >= _KEPT:
                del self._labelled[next(iter(self._labelled))]
            self._labelled[key] = open_labelled(dataset, _schema(schema))
        return self._labelled[key]

    def _parse(self, spec: CellSpec, path: Path) -> None:
        frame = spec.frame
        if spec.domain == "molecule":
            read(frame.source, _schema(frame.schema), store_path=path, limit=frame.limit)
            return
        whole = read(frame.source, _schema(frame.schema))  # cut and kept by the catalogue itself
        chosen = (
            whole if frame.limit is None else whole.subset(np.arange(min(frame.limit, len(whole))))
        )
        chosen.save(path)


def about(store: GraphStore, name: str) -> dict[str, Any]:
    """Return what a cell says of graphs it was computed from."""
    return {"name": name, "graphs": len(store), "digest": store.digest}


def _opened(path: Path) -> GraphStore | None:
    """Return the store at ``path``; None where there is none, or half of one."""
    try:
        return open_store(path) if path.is_dir() else None
    except ModelFileError:
        return None


def _schema(name: str) -> FeatureSchema:
    return SCHEMAS[name]
