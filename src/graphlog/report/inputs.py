"""What a run was trained on, remembered in its folder so that its pictures can be drawn without asking again."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from graphlog.datasets import DATASETS
from graphlog.datasets.base import named_spec
from graphlog.files import beside

_FILE = "input.json"


def remember_input(run: Path, source: str, **reading: Any) -> None:
    """Write down which input ``run`` was trained on and how it was read (``limit``, ``smiles_column``), if the disk lets us.

    A run must not fail for want of this note, nor an error of the run be hidden by one of the note.
    """
    where = source if named_spec(source, DATASETS) or source == "-" else str(Path(source).resolve())
    with suppress(OSError), beside(run / _FILE) as unfinished:
        unfinished.write_text(json.dumps({"source": where, **reading}, indent=1), encoding="utf-8")


def recall_input(run: Path) -> tuple[str, dict[str, Any]] | None:
    """Return the input that ``run`` was trained on and how it was read; None where it does not say or the input is gone."""
    try:
        found = json.loads((run / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    source = found.pop("source")
    if source == "-" or not (named_spec(source, DATASETS) or Path(source).exists()):
        return None
    return source, {key: value for key, value in found.items() if value is not None}
