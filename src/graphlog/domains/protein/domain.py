"""Proteins as a domain: graphs are ego-networks in interaction networks, groups are species."""

from collections import Counter
from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int

from graphlog.data.schema import FeatureSchema
from graphlog.data.split import Split
from graphlog.data.store import GraphStore
from graphlog.datasets import DatasetSpec
from graphlog.datasets.download import find_local
from graphlog.domains.base import BaselineFeatures, Domain, Input
from graphlog.domains.protein.folds import split_proteins
from graphlog.domains.protein.network import STATISTICS, ego_statistics
from graphlog.domains.protein.reading import (
    first_of_each_species,
    open_named_proteins,
    parts,
    read_proteins,
    verify_file,
)
from graphlog.domains.protein.schema import PROTEIN, ProteinOptions, details_of, species_of
from graphlog.errors import ConfigError, DataError

_SHARED_OPTIONS = ("workers", "data_dir", "progress")


class ProteinDomain(Domain):
    """Protein networks to the ego-network of every protein."""

    name = "protein"
    records = "proteins"
    text_name = "protein"
    node_name = "proteins in the ego-network"
    schemas = {PROTEIN.name: PROTEIN}  # noqa: RUF012 - constant
    targets = STATISTICS
    feature_sets = {"statistics": STATISTICS}  # noqa: RUF012 - constant
    drops_unlabeled = True
    reads_memory = True
    test_halves = True
    wide_edges = True

    # Input

    def read(
        self,
        source: Input,
        schema: FeatureSchema | None = None,
        *,
        targets: object = None,
        on_error: str = "skip",
        limit: int | None = None,
        store_path: Path | str | None = None,
        **options: Any,
    ) -> GraphStore:
        """Return the ego-network of every protein of a named set or of network files.

        Named sets (``worm-go40``, ``string-6239``) are cut once and kept in the data root.

        Args:
            source: A named set or network, a network file, a folder of them, or a list of files.
            schema: Always that of ego-networks.
            targets: Must be empty: networks have no label columns.
            on_error: ``skip`` lists what cannot be used; ``fail`` stops at the first.
            limit: Largest number of proteins of each network.
            store_path: Folder to write the store to.
            options: As for :func:`~graphlog.domains.protein.reading.read_proteins`; named sets take
                ``workers``, ``data_dir`` and ``progress`` only.

        Raises:
            ConfigError: If targets are named, or a named set is to be read in another way.
            DataError: If something cannot be read.
        """
        if targets:
            raise ConfigError(
                "networks have no label columns; give --labels or --annotations, and choose "
                "targets when fine-tuning."
            )
        spec = source.spec
        changed = [name for name in options if name not in _SHARED_OPTIONS]
        if spec is None or (changed and not details_of(spec).networks):
            files = list(source.records or ()) or (str(source.path) if spec is None else spec.name)
            options = {**(details_of(spec).options if spec else {}), **options, "limit": limit}
            return read_proteins(files, on_error=on_error, store_path=store_path, **options)
        if changed:
            raise ConfigError(
                f"how '{source.name}' is cut and labeled is fixed; to use other options "
                f"({', '.join(changed)}), name its networks."
            )
        store = open_named_proteins(spec.name, **options)
        if on_error == "fail" and store.rejects:
            first = store.rejects[0]
            raise DataError(
                f"{first.text}: {first.reason}; fix it, or skip such rows with --on-error skip."
            )
        store = store if limit is None else store.subset(first_of_each_species(store, limit))
        return store if store_path is None else store.save(store_path)

    def reading_options(self) -> frozenset[str]:
        """Return the options of :meth:`read`."""
        cutting = {*signature(read_proteins).parameters, *ProteinOptions.model_fields} - {"source"}
        return super().reading_options() | cutting - {"options"}

    def fetch(self, spec: DatasetSpec, data_dir: Path | str | None = None) -> Path:
        """Return the file of a network, or the store of a labeled set."""
        if details_of(spec).networks:
            return Path(str(open_named_proteins(spec.name, data_dir).path))
        return super().fetch(spec, data_dir)

    def verify(self, path: Path, spec: DatasetSpec) -> bool:
        """Return whether a file is complete and begins as ``spec`` says."""
        return verify_file(path, spec)

    def find(self, spec: DatasetSpec, data_dir: Path | str | None = None) -> list[Path] | None:
        """Return the files that a data set is made from if all are on this machine; else None."""
        paths = [find_local(part, data_dir, verify_file) for part in parts(spec)]
        return None if None in paths else [path for path in paths if path is not None]

    def parts(self, spec: DatasetSpec) -> list[DatasetSpec]:
        """Return the networks, tables and ontologies that a labeled set is made from."""
        return parts(spec) if details_of(spec).networks else []

    # Folds

    def default_split(self, store: GraphStore, task: str | None) -> str:
        """Return ``species`` for proteins of several species to be divided, else ``random``."""
        if task is not None or len({species_of(name) for name in store.texts()}) < 2:
            return "random"
        return "species"

    def split(
        self,
        store: GraphStore,
        kind: str,
        fractions: Sequence[float],
        seed: int,
        *,
        source: Input | None = None,
        classes: Int[np.ndarray, "M"] | None = None,
        test_species: str | int | None = None,
        networks: Sequence[str | Path] = (),
        **options: Any,
    ) -> Split:
        """Return folds of the proteins that have labels, or of all if none have.

        See :func:`~graphlog.domains.protein.folds.split_proteins` for the kinds.

        Args:
            store: The ego-networks.
            kind: ``species``, ``network`` or ``random``.
            fractions: Shares of train, valid and test.
            seed: Of what is shuffled.
            source: What they were read from, which names the networks unless ``networks`` does.
            classes: Not used.
            test_species: Taxon to test on, for ``species``.
            networks: Files or named networks that the ego-networks were cut from, for ``network``.
            options: None are known.
        """
        used = np.arange(len(store))
        if store.labels is not None and not np.isnan(store.labels).all():
            used = np.flatnonzero(~np.isnan(store.labels).all(axis=1))
        if not networks and source is not None:
            spec = source.spec
            named = () if spec is None else details_of(spec).networks or (spec.name,)
            networks = named or (() if source.path is None else (source.path,))
        folds = split_proteins(
            store.texts(used), kind, fractions, seed, test_species=test_species, networks=networks
        )
        return Split(*(used[fold] for fold in folds))

    def groups(self, store: GraphStore) -> list[str | None]:
        """Return the species of each protein; None where its name has none."""
        return [species_of(name) for name in store.texts()]

    # What is known about graphs without learning

    def baseline_features(self, store: GraphStore) -> BaselineFeatures:
        """Return the ego-network statistics."""
        note = "proteins have no fingerprints: statistics take their place"
        return BaselineFeatures("ego-network statistics", ego_statistics(store), note=note)

    def feature_set(self, name: str, store: GraphStore) -> BaselineFeatures:
        """Return the ego-network statistics."""
        return (
            self.baseline_features(store)
            if name == "statistics"
            else super().feature_set(name, store)
        )

    def targets_version(self) -> str:
        """Return the version of the ego-network statistics."""
        return "ego-network statistics 1"

    def graph_targets(self, store: GraphStore) -> Float32[np.ndarray, "M 18"]:
        """Return the ego-network statistics, which need no text."""
        return ego_statistics(store)

    def downstream_readout(self, readout: str) -> str:
        """Return ``mean+centre`` in place of ``mean``.

        Pre-training pools the mean only, fine-tuning reads mean and center: the rule of the
        pre-train-GNNs family. The readout has no weights, so any encoder can be given it.
        """
        return "mean+centre" if readout == "mean" else readout

    def describe(self, store: GraphStore) -> dict[str, Any]:
        """Return the number of proteins of each species, and of those with labels."""
        species = Counter(species_of(name) or "none named" for name in store.texts())
        counts = ", ".join(f"{count:,} of {taxon}" for taxon, count in species.items())
        if store.labels is None:
            return {"proteins": counts}
        labeled = int((~np.isnan(store.labels).all(axis=1)).sum())
        return {"proteins": counts, "labelled": labeled}


DOMAIN = ProteinDomain()
"""What the table of domains looks up."""
