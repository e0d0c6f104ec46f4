"""What a run was trained on, remembered in its folder so that its pictures can be drawn without asking again."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from graphlog.data.store import GraphStore, open_store
from graphlog.datasets import DATASETS
from graphlog.datasets.featurize import read_molecules
from graphlog.datasets.networks.stores import open_proteins

_FILE = "input.json"


def remember_input(run: Path, source: str, **reading: Any) -> None:
    """Write down which input ``run`` was trained on and how it was read (``limit``, ``smiles_column``), if the disk lets us.

    A run must not fail for want of this note, nor an error of the run be hidden by one of the note.
    """
    where = source if source in DATASETS or source == "-" else str(Path(source).resolve())
    unfinished = run / f"{_FILE}.partial"
    with contextlib.suppress(OSError):
        unfinished.write_text(json.dumps({"source": where, **reading}, indent=1), encoding="utf-8")
        os.replace(unfinished, run / _FILE)
        return
    with contextlib.suppress(OSError):
        unfinished.unlink(missing_ok=True)


def recall_input(run: Path, schema: str) -> GraphStore | None:
    """Return the graphs that ``run`` was trained on; None where it does not say or they are gone."""
    try:
        found = json.loads((run / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    source = found.pop("source")
    if source == "-" or not (source in DATASETS or Path(source).exists()):
        return None
    if (Path(source) / "manifest.json").is_file():
        store = open_store(source)
        return store if found.get("limit") is None else store.subset(range(min(found["limit"], len(store))))
    if schema == "protein":
        return open_proteins(source, **found)
    return read_molecules(source, schema=schema, **found)
