"""Named ego-networks as stores: cut once, kept in the data root, opened in milliseconds later."""

import hashlib
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from jaxtyping import Int

from graphlog.data.store import GraphStore, open_store
from graphlog.datasets import DATASETS, DatasetSpec
from graphlog.datasets.catalogue import PARTS
from graphlog.datasets.download import data_root, fetch
from graphlog.domains.protein.labels import complex_membership
from graphlog.domains.protein.reading import Progress, read_proteins, verify_file
from graphlog.domains.protein.schema import PROTEIN, ProteinOptions, details_of, species_of
from graphlog.errors import DataError, ModelFileError, unknown_name
from graphlog.files import hash_file

_ONTOLOGY = "go-graph"
_VERSION = 1
"""Increase when ego-networks are cut or labeled in another way, so that stores are built again."""


def open_named_proteins(
    name: str,
    data_dir: Path | str | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
) -> GraphStore:
    """Return the ego-networks of a named network or labeled set; only the first call cuts them.

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
    known = {n: spec for n, spec in DATASETS.items() if spec.domain == PROTEIN.domain}
    if name not in known:
        raise unknown_name("network or set of proteins", name, known)
    spec = known[name]
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
                    list(details_of(spec).networks or (name,)),
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
    """Return every file that a network or labeled set is made from, its own file first."""
    details = details_of(spec)
    own = [spec.updated({"details": {}})] if spec.path else []
    others = [DATASETS[name] for name in details.networks]
    if details.label_file:
        others.append(next(s for s in DATASETS.values() if s.path == details.label_file))
    if details.labelling == "go":
        names = [_ONTOLOGY]
        names += [f"{kind}-{taxon}" for kind in ("gaf", "aliases") for taxon in _taxa(spec)]
        others += [PARTS[name] for name in names]
    return [*own, *others]


def first_of_each_species(store: GraphStore, limit: int) -> Int[np.ndarray, "M"]:
    """Return the first ``limit`` proteins of each species, in their order."""
    species = np.array([species_of(name) or "" for name in store.texts()])
    firsts = [np.flatnonzero(species == taxon)[:limit] for taxon in np.unique(species)]
    return np.sort(np.concatenate(firsts))


def _taxa(spec: DatasetSpec) -> list[str]:
    return [name.removeprefix("string-") for name in details_of(spec).networks]


def _reading_options(spec: DatasetSpec, files: dict[str, Path]) -> dict[str, Any]:
    details = details_of(spec)
    options = dict(details.options)
    match details.labelling:
        case "go":
            options["annotations"] = [files[f"gaf-{taxon}"] for taxon in _taxa(spec)]
            options["aliases"] = [files[f"aliases-{taxon}"] for taxon in _taxa(spec)]
            options["go"] = files[_ONTOLOGY]
        case "complexes":
            tables = files[spec.name], files["yeast-complexes"]
            options["labels"] = partial(complex_membership, *tables)
        case "table":
            options["labels"] = files[spec.name]
        case _:
            pass
    return options


def _key(spec: DatasetSpec, files: dict[str, Path]) -> str:
    details = details_of(spec)
    hashes = {name: hash_file(path) for name, path in sorted(files.items())}
    options = ProteinOptions.parse(details.options).model_dump(mode="json")
    inputs = [_VERSION, spec.name, details.labelling, options, hashes]
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]


def _open(path: Path) -> GraphStore | None:
    try:
        return open_store(path)
    except ModelFileError:
        return None
