"""Named ego-networks as stores: cut once, kept in the data root under a key that says of what and how, opened in milliseconds."""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Int

from graphlog.data.store import GraphStore, open_store
from graphlog.datasets.base import DatasetSpec, named_spec
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
from graphlog.domains.protein.reading import read_proteins
from graphlog.domains.protein.schema import ProteinOptions, species_of
from graphlog.errors import ConfigError, DataError, ModelFileError, unknown_name
from graphlog.files import hash_file

_RULE = 1
"""Goes up when ego-networks are cut or labelled in another way, so that stores of before are made again."""


def open_named_proteins(
    name: str,
    data_dir: Path | str | None = None,
    progress: Callable[[int, int], None] | None = None,
    workers: int | None = None,
) -> GraphStore:
    """Return the ego-networks of a named network or labelled set; cut at the first call, opened at later ones.

    Labels are NaN throughout for proteins that nothing is known of; they are there to pre-train on.

    Raises:
        ConfigError: If there is none of that name.
        DataError: If a file it is made from can be found nowhere.
    """
    if name not in PROTEIN_SETS:
        raise unknown_name("network or set of proteins", name, PROTEIN_SETS)
    spec = PROTEIN_SETS[name]
    files = {part.name: fetch(part, data_dir) for part in parts(spec)}
    folder = data_root(data_dir) / "stores"
    path = folder / f"{name}-{_key(spec, files)}"
    found = _opened(path)
    if found is not None:
        return found
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder / f".{name}.lock"):
            found = _opened(path)  # another process may have made it while this one waited
            if found is None:
                if path.exists():
                    shutil.rmtree(path)  # damaged: its inputs are here, so it is made again
                networks, reading = list(spec.networks or (name,)), _reading(spec, files)
                found = read_proteins(
                    networks,
                    **reading,
                    data_dir=data_dir,
                    store_path=path,
                    progress=progress,
                    workers=workers,
                )
            return found
    except OSError as e:
        raise DataError(
            f"{folder}: cannot be written ({e.strerror}); choose another folder with --data-dir or $GRAPHLOG_DATA."
        ) from None


def open_proteins(
    source: str | Path | Sequence[str | Path],
    *,
    targets: object = None,
    smiles_column: str | None = None,
    on_error: Literal["skip", "fail"] = "skip",
    limit: int | None = None,
    store_path: Path | str | None = None,
    data_dir: Path | str | None = None,
    progress: Callable[[int, int], None] | None = None,
    workers: int | None = None,
    **reading: Any,
) -> GraphStore:
    """Return the ego-networks of a named set (``worm-go40``, ``string-6239``), cut once and kept, or those of network files.

    Args:
        source: Name of a set or network, network files, or a folder of them.
        targets: None: networks have no label columns.
        smiles_column: None: networks have no SMILES.
        on_error: ``skip`` lists what cannot be used; ``fail`` stops at the first.
        limit: Proteins of each network at most.
        store_path: Folder to write the store to.
        data_dir: Where downloads and stores of named sets are kept.
        progress: Called as ``progress(proteins done, proteins rejected)``.
        workers: Processes that read networks.
        reading: Of files: ``annotations``, ``go``, ``aliases``, ``labels``, ``species`` and any field of
            :class:`~graphlog.domains.protein.schema.ProteinOptions`, as for :func:`graphlog.domains.protein.read_proteins`.

    Raises:
        ConfigError: If a column of SMILES is asked for, or a named set is to be read otherwise than by its own rule.
    """
    if smiles_column is not None:
        raise ConfigError("networks have no column of SMILES; leave --smiles-column out.")
    if targets:
        raise ConfigError(
            "networks have no label columns; give --labels or --annotations, and choose targets when fine-tuning."
        )
    spec = named_spec(source, PROTEIN_SETS)
    if spec is None or (reading and not spec.networks):
        reading = {
            **(spec.options if spec else {}),
            **reading,
            "on_error": on_error,
            "limit": limit,
            "store_path": store_path,
        }
        return read_proteins(
            source, **reading, data_dir=data_dir, progress=progress, workers=workers
        )
    if reading:
        raise ConfigError(
            f"how '{source}' is cut and labelled is fixed; for other options ({', '.join(reading)}) name its networks."
        )
    found = open_named_proteins(spec.name, data_dir, progress, workers)
    if on_error == "fail" and found.rejects:
        raise DataError(
            f"{found.rejects[0].text}: {found.rejects[0].reason}; mend it, or go on without it (--on-error skip)."
        )
    found = found if limit is None else found.subset(first_of_each(found, limit))
    return found if store_path is None else found.save(store_path)


def parts(spec: DatasetSpec) -> list[DatasetSpec]:
    """Return every file that a network or labelled set is made from, the one that is the set's own first."""
    own = [replace(spec, networks=(), label_file=None)] if spec.path else []
    others = [NETWORKS[name] for name in spec.networks]
    if spec.label_file:
        others.append(next(s for s in LABELLED_SETS.values() if s.path == spec.label_file))
    if spec.labelling == "go":
        taxa = [name.removeprefix("string-") for name in spec.networks]
        others += [GO_GRAPH, *map(annotation_file, taxa), *map(alias_file, taxa)]
    return [*own, *others]


def find_parts(spec: DatasetSpec, data_dir: Path | str | None = None) -> list[Path] | None:
    """Return the files of :func:`parts` if all are on this machine; else None.

    Raises:
        DataError: If the mirror holds another file under the name of one.
    """
    found = [find_local(part, data_dir) for part in parts(spec)]
    return None if None in found else [path for path in found if path is not None]


def _reading(spec: DatasetSpec, files: dict[str, Path]) -> dict[str, Any]:
    match spec.labelling:
        case "go":
            taxa = [name.removeprefix("string-") for name in spec.networks]
            return {
                **spec.options,
                "annotations": [files[f"gaf-{taxon}"] for taxon in taxa],
                "aliases": [files[f"aliases-{taxon}"] for taxon in taxa],
                "go": files[GO_GRAPH.name],
            }
        case "complexes":
            return {
                **spec.options,
                "labels": partial(complex_membership, files[spec.name], files["yeast-complexes"]),
            }
        case "table":
            return {**spec.options, "labels": files[spec.name]}
        case _:
            return dict(spec.options)


def _key(spec: DatasetSpec, files: dict[str, Path]) -> str:
    hashes = {name: hash_file(path) for name, path in sorted(files.items())}
    options = ProteinOptions.parse(spec.options).model_dump(mode="json")
    told = [_RULE, spec.name, spec.labelling, options, hashes]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def first_of_each(store: GraphStore, limit: int) -> Int[np.ndarray, "M"]:
    """Return the first ``limit`` proteins of each species, in their order."""
    species = np.array([species_of(name) or "" for name in store.texts()])
    return np.sort(
        np.concatenate([np.flatnonzero(species == taxon)[:limit] for taxon in np.unique(species)])
    )


def _opened(path: Path) -> GraphStore | None:
    try:
        return open_store(path)
    except ModelFileError:
        return None


@contextmanager
def _alone(lock: Path) -> Generator[None]:
    """Let one process at a time through; the kernel drops the lock of one that dies."""
    handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if (
            sys.platform != "win32"
        ):  # elsewhere two may cut the same store; the last one to finish puts its own in place
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
