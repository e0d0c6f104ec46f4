"""Proteins as a domain: graphs are ego-networks in interaction networks, groups are species."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int
from pydantic import TypeAdapter

from graphlog.data.graphs import FeatureSchema
from graphlog.data.split import DEFAULT_FRACTIONS, Split, check_fractions, group_split, random_split
from graphlog.data.store import GraphStore, bad_row
from graphlog.datasets import DatasetSpec
from graphlog.datasets.catalogue import data_root
from graphlog.domains.base import BaselineFeatures, Domain, Input, Reading
from graphlog.domains.protein.network import (
    STATISTICS,
    ProteinNetwork,
    build_network,
    ego_statistics,
    read_interactions,
)
from graphlog.domains.protein.reading import (
    Files,
    NetworkFile,
    ProteinReading,
    as_list,
    first_of_each_species,
    network_files,
    open_named_proteins,
    parts,
    read_proteins,
)
from graphlog.domains.protein.schema import CUTTING, PROTEIN, ProteinOptions, details_of, species_of
from graphlog.errors import (
    ConfigError,
    DataError,
    GraphLoGError,
    check_name,
    optional,
    setting,
    unknown_name,
)
from graphlog.files import hash_file, hash_json, open_text, write_json

SPLITS = ("species", "network", "random")
"""Kinds of split of proteins."""
TRAIN_SHARE = 0.85
"""Share of the training species' proteins used for training, as in the pre-train-GNNs family; the
rest are for validation."""
COMMUNITIES = 20
"""Number of communities of a network, each with about a twentieth of the proteins."""
_HUMAN = "9606"
_COMMUNITIES_VERSION = 2
"""Increase when communities are computed in another way."""
_NUMBERS = TypeAdapter(dict[str, int])


class ProteinDomain(Domain):
    """Protein networks to the ego-network of every protein."""

    name = "protein"
    records = "proteins"
    text_name = "protein"
    node_name = "proteins in the ego-network"
    schemas = {PROTEIN.name: PROTEIN}  # noqa: RUF012 - constant
    targets = STATISTICS
    feature_sets = {"statistics": STATISTICS}  # noqa: RUF012 - constant
    finds_repeats = False
    keeps_stores = True
    reads_memory = True
    test_halves = True
    wide_edges = True
    reading = ProteinReading

    # Input

    def read(self, source: Input, schema: FeatureSchema | None, reading: Reading) -> GraphStore:
        """Return the ego-network of every protein of a named set or of network files.

        Named sets (``worm-go40``, ``string-6239``) are cut once and kept in the data root.
        """
        assert isinstance(reading, ProteinReading)
        spec = source.spec
        if spec is None:
            files = () if source.path is None else (source.path,)
            return read_proteins(files if source.records is None else source.records, reading)
        if reading.own and details_of(spec).networks:
            raise ConfigError(
                f"how '{source.name}' is cut and labeled is fixed; to use other options "
                f"({', '.join(reading.own)}), name its networks."
            )
        if reading.own:
            cutting = details_of(spec).options.updated(
                reading.cutting.model_dump(exclude_unset=True)
            )
            return read_proteins(spec.name, replace(reading, cutting=cutting))
        store = open_named_proteins(spec.name, reading)
        first = next(store.iter_rejects(), None)
        if first is not None and reading.on_error == "fail":
            raise bad_row(first.text, first.reason, first.row)
        if reading.limit is not None:
            store = store.subset(first_of_each_species(store, reading.limit))
        if reading.store_path is None:
            return store
        return store.save(reading.store_path, reading.overwrite)

    def verify(self, path: Path, spec: DatasetSpec) -> bool:
        """Return whether a file is complete and begins as ``spec`` says."""
        try:
            with open_text(path) as lines:
                header = " ".join(next(lines, "").split())
                # read to the end: a truncated archive is an error only there
                return header.startswith(details_of(spec).begins) and sum(1 for _ in lines) > 0
        except DataError:
            return False

    def fetch(self, spec: DatasetSpec, data_dir: Path | str | None = None) -> Path:
        """Return the file of a network, or the store of a labeled set."""
        if details_of(spec).networks:
            return Path(str(open_named_proteins(spec.name, Reading(data_dir=data_dir)).path))
        return super().fetch(spec, data_dir)

    def parts(self, spec: DatasetSpec) -> list[DatasetSpec]:
        """Return the networks, tables and ontologies that a labeled set is made from."""
        return parts(spec) if details_of(spec).networks else []

    def cutting_of(self, source: Input | GraphStore) -> dict[str, Any]:
        """Return how the ego-networks of a store or a named set were cut."""
        cutting: Mapping[str, Any] = {}
        store = source if isinstance(source, GraphStore) else source.store
        if store is not None:
            cutting = store.source.cutting
        elif isinstance(source, Input) and source.spec is not None:
            cutting = details_of(source.spec).options.model_dump(mode="json")
        return {name: cutting[name] for name in CUTTING if name in cutting}

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
        """Return folds of the proteins.

        See :func:`split_proteins` for the kinds; its networks are by default those of ``source``.
        """
        if not networks and source is not None:
            spec = source.spec
            named = () if spec is None else details_of(spec).networks or (spec.name,)
            networks = named or (() if source.path is None else (source.path,))
        return split_proteins(
            store.texts(),
            kind,
            fractions,
            seed,
            test_species=test_species,
            networks=networks,
            cutting=store.source.cutting or None,
        )

    def groups(self, store: GraphStore) -> list[str | None]:
        """Return the species of each protein; None where its name has none."""
        return [species_of(name) for name in store.texts()]

    def reading_notes(self, store: GraphStore) -> list[str]:
        """Say what a label of 0 means."""
        return ["label 0 is negative or unknown, as in the pre-train-GNNs family"]

    # What is known about graphs without learning

    def feature_set(self, name: str, store: GraphStore) -> BaselineFeatures:
        """Return the ego-network statistics."""
        self.check_feature_sets([name])
        note = "proteins have no fingerprints: statistics take their place"
        return BaselineFeatures("ego-network statistics", ego_statistics(store), note=note)

    def targets_version(self) -> str:
        """Return the version of the ego-network statistics."""
        return "ego-network statistics 1"

    def graph_targets(self, store: GraphStore) -> Float32[np.ndarray, "M 18"]:
        """Return the ego-network statistics, which need no text."""
        return ego_statistics(store)

    def downstream_readout(self, readout: str) -> str:
        """Return ``mean+center`` in place of ``mean``.

        Pre-training pools the mean only, fine-tuning reads mean and center: the rule of the
        pre-train-GNNs family. The readout has no weights, so any encoder can be given it.
        """
        return "mean+center" if readout == "mean" else readout

    def describe(self, store: GraphStore) -> dict[str, Any]:
        """Return the number of proteins of each species, and of those with labels."""
        species = Counter(species_of(name) or "none named" for name in store.texts())
        counts = ", ".join(f"{count:,} of {taxon}" for taxon, count in species.items())
        if store.labels is None:
            return {"proteins": counts}
        labeled = int((~np.isnan(store.labels).all(axis=1)).sum())
        return {"proteins": counts, "labeled": labeled}


def split_proteins(
    proteins: Sequence[str],
    kind: str = "random",
    fractions: Sequence[float] = DEFAULT_FRACTIONS,
    seed: int = 0,
    *,
    test_species: str | int | None = None,
    networks: Files = (),
    cutting: Mapping[str, Any] | None = None,
    data_dir: Path | str | None = None,
) -> Split:
    """Return the indices of the training, validation and test sets.

    - ``species``: all proteins of one species are for testing; those of the others are shuffled and
      cut into 85 % for training and 15 % for validation (the pre-train-GNNs rule; ``fractions`` are
      ignored).
    - ``network``: METIS cuts each network into 20 communities of equal size with the fewest
      interactions between them. Whole communities, in random order, fill validation and test; the
      rest is for training. Most partners of a test protein are then in its own community and not in
      the training set. The communities are always the same; ``seed`` assigns them to sets.
    - ``random``: proteins are shuffled.

    Args:
        proteins: Names, ``<taxon>.<name>``.
        kind: One of the above.
        fractions: Fractions of train, valid and test.
        seed: Of the shuffling.
        test_species: Taxon to test on; None takes human if it is there, else the last species.
        networks: For ``network``: the files or named networks that contain the proteins.
        cutting: For ``network``: how they were cut, ``store.source.cutting``; None is as usual.
        data_dir: Where downloaded networks and their communities are kept.

    Raises:
        ConfigError: If kind or species is unknown, or ``network`` lacks its networks.
        DataError: If there is nothing to train on, or a protein is in none of the networks.
    """
    check_name("split of proteins", kind, SPLITS)
    check_fractions(fractions)
    if not len(proteins):
        raise DataError("there are no proteins to split; give at least one.")
    if kind == "random":
        return random_split(len(proteins), fractions, seed)
    if kind == "species":
        species = np.array([species_of(name) or "" for name in proteins])
        return _species_split(species, seed, None if test_species is None else str(test_species))
    if not as_list(networks):
        raise ConfigError(
            "the network split needs the network that the store was cut from: make a split file "
            f"with graphlog data split (its {setting('networks')}), and give that file.",
            option="networks",
        )
    files = network_files(networks, data_dir)
    if cutting is not None:
        files = [file._replace(options=ProteinOptions.parse(cutting)) for file in files]
    communities = _communities_of(proteins, files, data_dir)
    return group_split(communities, fractions, "random", seed)


def find_communities(network: ProteinNetwork) -> Int[np.ndarray, "N"]:
    """Return the community of every protein, always the same: METIS' partition into 20 parts."""
    with optional("pymetis", "partition"):
        import pymetis as metis
    if len(network.proteins) < 2 * COMMUNITIES:
        raise DataError(
            f"a network of {len(network.proteins)} proteins is too small for {COMMUNITIES} "
            "communities; use a random split."
        )
    adjacency = metis.CSRAdjacency(network.offsets.tolist(), network.partners.tolist())
    _, communities = metis.part_graph(
        COMMUNITIES, adjacency=adjacency, options=metis.Options(seed=0)
    )
    return np.array(communities, dtype=np.int64)


def _species_split(species: np.ndarray, seed: int, test: str | None) -> Split:
    known = list(dict.fromkeys(species.tolist()))
    if test is not None and test not in known:
        raise unknown_name("species", test, known)
    if len(known) < 2:
        found = known[0] or "names without any"
        raise ConfigError(
            f"the species split needs two species or more, found {found}; use network or random."
        )
    is_test = species == (test or (_HUMAN if _HUMAN in known else known[-1]))
    others = np.flatnonzero(~is_test)
    # rounding may leave a protein for the third fold; it joins the second
    train, *rest = random_split(len(others), (TRAIN_SHARE, 1 - TRAIN_SHARE, 0.0), seed)
    return Split(others[train], others[np.concatenate(rest)], np.flatnonzero(is_test))


def _communities_of(
    proteins: Sequence[str], files: Sequence[NetworkFile], data_dir: Path | str | None
) -> Int[np.ndarray, "N"]:
    taxa = {species_of(name) for name in proteins}
    usual = taxa.pop() if len(taxa) == 1 else None
    community: dict[str, int] = {}
    for k, file in enumerate(files):
        found = _communities_in(file, usual, data_dir)
        community |= {name: COMMUNITIES * k + number for name, number in found.items()}
    missing = next((name for name in proteins if name not in community), None)
    if missing is not None:
        raise DataError(
            f"'{missing}' is in none of the networks; name those that its ego-network was cut from."
        )
    return np.array([community[name] for name in proteins], dtype=np.int64)


def _communities_in(
    file: NetworkFile, usual: str | None, data_dir: Path | str | None
) -> dict[str, int]:
    """Return the community of each protein, from the data root if it is there.

    They are of the species ``usual`` where the file does not tell.
    """
    described = file.options.model_dump(mode="json")
    inputs = [
        _COMMUNITIES_VERSION,
        file.species or usual,
        COMMUNITIES,
        described,
        hash_file(file.path),
    ]
    path = data_root(data_dir) / "stores" / f"communities-{hash_json(inputs)[:16]}.json"
    with suppress(OSError, ValueError):
        return _NUMBERS.validate_json(path.read_bytes())
    network = build_network(read_interactions(file.path, file.species, usual), file.options)
    found = dict(zip(network.proteins, find_communities(network).tolist(), strict=True))
    # without a writable data root they are computed again next time
    with suppress(OSError, GraphLoGError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, found)
    return found


DOMAIN = ProteinDomain()
"""What the table of domains looks up."""
