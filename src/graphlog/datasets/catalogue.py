"""The data sets by name: what is in each, where it is, how it is scored, and its hashes."""

import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Literal

from pydantic import Field

from graphlog.config import FrozenConfig
from graphlog.errors import check_name
from graphlog.plugins import Registry


class DatasetSpec(FrozenConfig):
    """One data set. Files have the same layout in the mirror and in the local cache."""

    name: str
    """As typed by the user."""
    description: str
    """One line."""
    domain: str
    """Name of the domain that reads it."""
    rows: int = 0
    """Data rows, rejected ones included; 0 where unknown."""
    path: str = ""
    """File below the mirror or the cache, or below RDKit's own folders; empty for a set that is
    made of others."""
    sha256: str = ""
    """Hash of that file; empty where its content is checked by the domain instead."""
    origin: Literal["file", "molsets", "rdkit-data", "rdkit-contrib"] = "file"
    """Whether ``url`` is the file or the package that holds it, or the file comes with RDKit."""
    url: str | None = None
    """Public address of the file as its publisher gives it."""
    license: str
    """Terms of use."""
    source: str
    """Who published it."""
    tasks: tuple[str, ...] = ()
    """Label columns; empty with a ``task``: every column but that of the records."""
    num_tasks: int = 0
    """Number of label columns."""
    task: Literal["classification", "regression", "multiclass"] | None = None
    """What the labels are; None without labels."""
    metric: Literal["roc_auc", "rmse", "mae", "accuracy"] | None = None
    """The score it is usually reported in."""
    split: str = "scaffold"
    """How it is usually split."""
    details: dict[str, Any] = Field(default_factory=dict)
    """What its domain needs to read it, such as
    :class:`~graphlog.domains.records.TableDetails`."""


def load_catalogue(text: str) -> tuple[dict[str, DatasetSpec], dict[str, DatasetSpec]]:
    """Return the data sets of a catalogue, and the files that others are made of, by name.

    Args:
        text: TOML; see the head of ``catalogue.toml``.
    """
    tables = tomllib.loads(text)
    sets: dict[str, DatasetSpec] = {}
    parts: dict[str, DatasetSpec] = {}
    for table in tables["dataset"]:
        fields = {**tables["defaults"].get(table.get("like"), {}), **table}
        for filled in _each(fields):
            is_part = filled.pop("part", False)
            filled.setdefault("num_tasks", len(filled.get("tasks", ())))
            known = {k: v for k, v in filled.items() if k in DatasetSpec.model_fields}
            (parts if is_part else sets)[filled["name"]] = DatasetSpec.parse(known)
    return sets, parts


def _each(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the fields once, or once for every key (and value) of ``each``, names filled in."""
    each = fields.pop("each", [fields.get("key", "")])
    pairs = each.items() if isinstance(each, Mapping) else ((key, "") for key in each)
    for key, value in pairs:
        words = {k: v for k, v in fields.items() if isinstance(v, str)}
        words |= {"key": key, "value": value}
        words["name"] = words["name"].format(**words)
        yield _filled(fields, words)


def _filled(value: Any, words: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return value.format(**words)
    if isinstance(value, list):
        return [_filled(v, words) for v in value]
    return {k: _filled(v, words) for k, v in value.items()} if isinstance(value, dict) else value


def _fits(name: str, part: object) -> str | None:
    fits = isinstance(part, DatasetSpec) and part.name == name
    return None if fits else f"a graphlog.datasets.DatasetSpec named '{name}'"


_SETS, PARTS = load_catalogue(
    files("graphlog.datasets").joinpath("catalogue.toml").read_text(encoding="utf-8")
)
DATASETS: Registry[DatasetSpec] = Registry("data set", _SETS, _fits)
"""Every data set by name; what is added here is found by every verb and every call. ``PARTS`` are
the files that labeled sets of proteins are made of."""


def find_spec(name: str) -> DatasetSpec:
    """Return what is known about a data set.

    Raises:
        ConfigError: If there is none of that name; suggests the nearest.
    """
    check_name("data set", name, DATASETS)
    return DATASETS[name]
