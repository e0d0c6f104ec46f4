"""Reading INPUT for verbs that train or split: progress shown, rejected rows told and listed."""

from pathlib import Path
from typing import Any

import numpy as np

from graphlog.cli.console import Console
from graphlog.cli.progress import reading_progress
from graphlog.data.schema import FeatureSchema
from graphlog.data.store import GraphStore, is_store, open_store
from graphlog.datasets.featurize import read_molecules
from graphlog.datasets.graphs import is_graphs
from graphlog.datasets.networks.stores import open_proteins
from graphlog.downstream.sources import domain_of, open_graphs
from graphlog.errors import ConfigError


def read_graphs(
    source: str,
    schema: str,
    console: Console,
    *,
    limit: int | None = None,
    like: FeatureSchema | None = None,
    **reading: Any,
) -> GraphStore:
    """Return the graphs of a store, or those of a file or data set in ``schema``; named proteins are in their own.

    Any graphs are read in the schema ``like``, or in what is found out about them.
    """
    if is_store(source):
        store = open_store(source)
        return store if limit is None else store.subset(np.arange(min(limit, len(store))))
    with reading_progress(console) as progress:
        if is_graphs(source):
            store = open_graphs(source, like, progress=progress, limit=limit, **reading)
        elif schema == "protein" or domain_of(source) == "protein":
            store = open_proteins(source, progress=progress, limit=limit, **reading)
        else:
            store = read_molecules(source, schema=schema, progress=progress, limit=limit, **reading)
    console.say(
        f"read {len(store):,} graphs from {source}; {len(store.rejects):,} of {store.num_rows:,} rows rejected"
    )
    return store


def refuse_existing_run(folder: Path, resume: bool, overwrite: bool) -> None:
    """Refuse a run folder before its input is read, which may take long.

    Raises:
        ConfigError: If there is a run and neither ``resume`` nor ``overwrite`` is given, or both are.
    """
    if resume and overwrite:
        raise ConfigError("--resume and --overwrite contradict each other; choose one.")
    if (folder / "config.toml").is_file() and not (resume or overwrite):
        raise ConfigError(
            f"run folder {folder} exists; continue it with --resume or replace it with --overwrite."
        )
