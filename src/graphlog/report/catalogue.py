"""The named data sets as rows of a table."""

from typing import Any

from graphlog.datasets import DATASETS
from graphlog.datasets.base import DatasetSpec
from graphlog.datasets.download import find_local
from graphlog.datasets.named import find_spec
from graphlog.datasets.networks.stores import find_parts, parts
from graphlog.errors import DataError


def describe_datasets() -> list[dict[str, Any]]:
    """Return what is known about every data set, in the order of the catalogue."""
    return [describe_dataset(name) for name in DATASETS]


def describe_dataset(name: str) -> dict[str, Any]:
    """Return what is known about one data set and where on this machine it is.

    Raises:
        ConfigError: If there is none of that name.
    """
    spec = find_spec(name)
    here, where = _whereabouts(spec)
    return {
        "name": spec.name,
        "description": spec.description,
        "rows": spec.rows,
        "tasks": spec.num_tasks,
        "kind": spec.task or "no labels",
        "metric": spec.metric,
        "split": spec.split,
        "task names": list(spec.tasks),
        "licence": spec.licence,
        "source": spec.source,
        "url": spec.url,
        "made from": [part.name for part in parts(spec)] if spec.networks else [],
        "sha256": spec.sha256_file,
        "sha256 of its SMILES": spec.sha256_smiles,
        "here": here,
        "path": where,
    }


def _whereabouts(spec: DatasetSpec) -> tuple[str, str | None]:
    try:
        if spec.networks:
            files = find_parts(spec)
            return ("no", None) if files is None else ("yes", ", ".join(map(str, files)))
        found = find_local(spec)
    except DataError:
        return "another file", None
    if found is None:
        return "no", None
    return ("with RDKit" if spec.origin.startswith("rdkit") else "yes"), str(found)
