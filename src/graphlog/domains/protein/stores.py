"""Named ego-networks as stores: cut once, kept in the data root, opened in milliseconds later."""

import hashlib
import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from jaxtyping import Int

from graphlog.data.store import GraphStore, open_store
from graphlog.datasets.base import DatasetSpec
from graphlog.datasets.catalogue_networks import (
    GO_GRAPH,
    LABELLED_SETS,
    NETWORKS,
    PROTEIN_SETS,
    alias_file,
    annotation_file,
)
from graphlog.datasets.download import data_root, fetch, find_local
from graphlog.domains.protein.labels import complex_membership
from graphlog.domains.protein.reading import Progress, read_proteins, verify_file
from graphlog.domains.protein.schema import ProteinOptions, species_of
from graphlog.errors import DataError, ModelFileError, unknown_name
from graphlog.files import hash_file

_VERSION = 1
"""Increase when ego-networks are cut or labelled in another way, so that stores are built again."""


def open_named_proteins(
    name: str,
    data_dir: Path | str | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
) -> GraphStore:
    """Return the ego-networks of a named network or labelled set; only the first call cuts them.

    The labels of proteins without annotation are NaN; they are there to pre-train on.

    Args:
        name: Name of the network or set.
        data_dir: Where downloads and stores are kept.
        progress: Called as work goes on.
        workers: Processes that read networks.

    Raises:
        ConfigError: If there is none of that name.
        DataError: If a file that it is made from cannot be found.
    """
    if name not in PROTEIN_SETS:
        raise unknown_name("network or set of proteins", name, PROTEIN_SETS)
    spec = PROTEIN_SETS[name]
    files = {part.name: fetch(part, data_dir, verify_file) for part in parts(spec)}
    folder = data_root(data_dir) / "stores"
    path = folder / f"{name}-{_key(spec, files)}"
    store = _open(path)
    if store is not None:
        return store
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{name}.lock"):
            store = _open(path)  # another process may have built it meanwhile
            if store is None:
                if path.exists():
                    shutil.rmtree(path)  # damaged; all it is made from is here
                store = read_proteins(
                    list(spec.networks or (name,)),
                    **_reading_options(spec, files),
                    data_dir=data_dir,
                    store_path=path,
                    progress=progress,
                    workers=workers,
                )
            return store
    except OSError as e:
        raise DataError(
            f"{folder}: cannot be written ({e.strerror}); choose another folder with --data-dir "
            "or $GRAPHLOG_DATA."
        ) from None


def parts(spec: DatasetSpec) -> list[DatasetSpec]:
    """Return every file that a network or labelled set is made from, its own file first."""
    own = [replace(spec, networks=(), label_file=None)] if spec.path else []
    others = [NETWORKS[name] for name in spec.networks]
    if spec.label_file:
        others.append(next(s for s in LABELLED_SETS.values() if s.path == spec.label_file))
    if spec.labelling == "go":
        others += [GO_GRAPH, *map(annotation_file, _taxa(spec)), *map(alias_file, _taxa(spec))]
    return [*own, *others]


def find_parts(spec: DatasetSpec, data_dir: Path | str | None = None) -> list[Path] | None:
    """Return the files of :func:`parts` if all are on this machine; else None.

    Raises:
        DataError: If the mirror holds another file under the name of one.
    """
    paths = [find_local(part, data_dir, verify_file) for part in parts(spec)]
    return [path for path in paths if path is not None] if None not in paths else None


def first_of_each_species(store: GraphStore, limit: int) -> Int[np.ndarray, "M"]:
    """Return the first ``limit`` proteins of each species, in their order."""
    species = np.array([species_of(name) or "" for name in store.texts()])
    firsts = [np.flatnonzero(species == taxon)[:limit] for taxon in np.unique(species)]
    return np.sort(np.concatenate(firsts))


def _taxa(spec: DatasetSpec) -> list[str]:
    return [name.removeprefix("string-") for name in spec.networks]


def _reading_options(spec: DatasetSpec, files: dict[str, Path]) -> dict[str, Any]:
    options = dict(spec.options)
    match spec.labelling:
        case "go":
            options["annotations"] = [files[f"gaf-{taxon}"] for taxon in _taxa(spec)]
            options["aliases"] = [files[f"aliases-{taxon}"] for taxon in _taxa(spec)]
            options["go"] = files[GO_GRAPH.name]
        case "complexes":
            tables = files[spec.name], files["yeast-complexes"]
            options["labels"] = partial(complex_membership, *tables)
        case "table":
            options["labels"] = files[spec.name]
        case _:
            pass
    return options


def _key(spec: DatasetSpec, files: dict[str, Path]) -> str:
    hashes = {name: hash_file(path) for name, path in sorted(files.items())}
    options = ProteinOptions.parse(spec.options).model_dump(mode="json")
    inputs = [_VERSION, spec.name, spec.labelling, options, hashes]
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]


def _open(path: Path) -> GraphStore | None:
    try:
        return open_store(path)
    except ModelFileError:
        return None
