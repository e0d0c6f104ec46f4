"""Networks and annotations in, store of ego-networks out."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32

from graphlog.data.chunk import Reject
from graphlog.data.store import GraphStore, StoreBuilder
from graphlog.data.workers import check_workers, map_in_order
from graphlog.domains.protein.ego import ego_networks, in_batches
from graphlog.domains.protein.labels import (
    Functions,
    Names,
    annotated_functions,
    read_aliases,
    tabled_functions,
)
from graphlog.domains.protein.network import (
    NetworkFile,
    ProteinNetwork,
    build_network,
    network_files,
    read_interactions,
)
from graphlog.domains.protein.ontology import read_ontology
from graphlog.domains.protein.schema import PROTEIN, ProteinOptions
from graphlog.errors import ConfigError, DataError, unknown_name

Files = str | Path | Sequence[str | Path]
Labeller = Callable[[Sequence[str]], Functions]
Progress = Callable[[int, int], None]
"""Called as ``progress(proteins done, proteins rejected)``."""


def read_proteins(
    source: Files,
    *,
    annotations: Files | None = None,
    go: str | Path | None = None,
    go_terms: str | Path | None = None,
    aliases: Files | None = None,
    labels: str | Path | Labeller | None = None,
    species: str | int | None = None,
    on_error: Literal["skip", "fail"] = "skip",
    workers: int | None = None,
    store_path: Path | str | None = None,
    progress: Progress | None = None,
    limit: int | None = None,
    data_dir: Path | str | None = None,
    **options: Any,
) -> GraphStore:
    """Return a store with the ego-network of every protein of some networks; its text is ``<taxon>.<name>``, node 0 the centre.

    Rows are the proteins in the order of the files, sorted by name within each; behind them stand, as rejected rows, names and
    terms of annotation files that no network or ontology knows.

    Args:
        source: Network files (one a species), a folder of them, or names of data sets (``string-6239``).
        annotations: GO annotation files, from which labels are chosen.
        go: The GO graph for them: an OBO file, or a table of edges with ``go_terms`` beside it.
        go_terms: Table of terms.
        aliases: STRING's alias files, where annotations use other names than the networks.
        labels: Instead of annotations, a table of labels, or what makes labels of the proteins' names.
        species: Taxon of a network file that does not say.
        on_error: ``skip`` lists what cannot be used; ``fail`` stops at the first.
        workers: Processes that read networks, where there are many.
        store_path: Folder to write the store to; None keeps it in memory.
        progress: Called as work goes on.
        limit: Proteins of each network at most.
        data_dir: Where downloaded networks are kept.
        options: Any field of :class:`~graphlog.domains.protein.schema.ProteinOptions`.

    Raises:
        DataError: Naming file and line, if something cannot be read.
        ConfigError: If an option is unknown or does not fit.
    """
    chosen = ProteinOptions.parse(options)
    if on_error not in ("skip", "fail"):
        raise unknown_name("--on-error", on_error, ["skip", "fail"])
    if annotations is not None and labels is not None:
        raise ConfigError(
            "`annotations` and `labels` both say what the labels are; give one of them."
        )
    if (annotations is None) != (go is None):
        raise ConfigError(
            "`annotations` and `go` (the GO graph) go together; give both or neither."
        )
    files = network_files(source, data_dir)
    load = partial(_load, species=None if species is None else str(species), options=chosen)
    networks = [
        made
        for _, made in map_in_order(load, ((None, file) for file in files), check_workers(workers))
    ]
    proteins = [name for network in networks for name in network.proteins]
    _refuse_repeats(files, networks)
    functions = labels(proteins) if callable(labels) else None
    if functions is None and (annotations is not None or labels is not None):
        known: dict[str, str] = {}
        for file in _listed(aliases):
            known |= read_aliases(file)
        names = Names(proteins, known)
        if isinstance(labels, str | Path):
            functions = tabled_functions(labels, proteins, names, chosen)
        else:
            functions = annotated_functions(
                _listed(annotations),
                proteins,
                names,
                read_ontology(str(go), go_terms, chosen),
                chosen,
            )
    told = {
        "name": ", ".join(file.path.name for file in files[:5]),
        "species": [n.species for n in networks],
    }
    told |= {
        "options": chosen.model_dump(mode="json"),
        "networks": {n.species: n.counts for n in networks},
    }
    told |= {"annotations": functions.counts} if functions else {}
    with StoreBuilder(PROTEIN, store_path, functions.tasks if functions else (), told) as builder:
        tally = _Tally(builder, functions, chosen, on_error, progress)
        for network, start in zip(
            networks, accumulate((len(n.proteins) for n in networks), initial=0), strict=False
        ):
            tally.add(network, start, len(network.proteins) if limit is None else limit)
        tally.add_strays(len(proteins))
        return builder.finish(len(proteins) + (len(functions.strays) if functions else 0))


def _load(file: NetworkFile, species: str | None, options: ProteinOptions) -> ProteinNetwork:
    return build_network(read_interactions(file.path, species or file.species), options)


def _listed(files: Files | None) -> list[str | Path]:
    return [] if files is None else [files] if isinstance(files, str | Path) else list(files)


def _refuse_repeats(files: Sequence[NetworkFile], networks: Sequence[ProteinNetwork]) -> None:
    seen: dict[str, Path] = {}
    for file, network in zip(files, networks, strict=True):
        if network.species in seen:
            raise DataError(
                f"{file.path}: is of species {network.species}, as is {seen[network.species]}; give each species one file."
            )
        seen[network.species] = file.path


class _Tally:
    """Takes in networks in order: ego-networks and rejects to the builder, and counts."""

    def __init__(
        self,
        builder: StoreBuilder,
        functions: Functions | None,
        options: ProteinOptions,
        on_error: str,
        progress: Progress | None,
    ) -> None:
        self._builder, self._functions, self._options, self._on_error = (
            builder,
            functions,
            options,
            on_error,
        )
        self._progress = progress
        self._done = self._rejected = 0

    def add(self, network: ProteinNetwork, start: int, limit: int) -> None:
        """Add the ego-networks of a network whose first protein is row ``start``."""
        numbers = np.arange(min(len(network.proteins), limit))
        values: Float32[np.ndarray, "N T"] | None = (
            self._functions.values[start + numbers] if self._functions else None
        )
        lonely = (network.degrees[numbers] == 0) & (self._options.isolated == "reject")
        bare = (
            np.isnan(values).all(axis=1)
            if values is not None and self._options.labelled_only
            else np.zeros(len(numbers), dtype=np.bool_)
        )
        for number in np.flatnonzero(lonely | bare).tolist():
            reason = (
                "has no interaction that reaches the thresholds"
                if lonely[number]
                else "has no usable annotation"
            )
            self._reject(Reject(start + number, network.proteins[number], reason))
        for batch in in_batches(numbers[~(lonely | bare)]):
            chunk = ego_networks(network, batch, self._options)
            self._builder.add(
                replace(chunk, rows=start + batch, labels=None if values is None else values[batch])
            )
            self._tell(len(batch))
        self._tell(int((lonely | bare).sum()))

    def add_strays(self, start: int) -> None:
        """List, from row ``start`` on, what annotations name and nothing else knows."""
        for k, stray in enumerate(self._functions.strays if self._functions else ()):
            self._reject(Reject(start + k, stray.text, stray.reason))

    def _reject(self, reject: Reject) -> None:
        if self._on_error == "fail":
            raise DataError(
                f"{reject.text}: {reject.reason}; mend it, or go on without it (--on-error skip)."
            )
        self._builder.reject(reject)
        self._rejected += 1

    def _tell(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self._rejected)
