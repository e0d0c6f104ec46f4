"""Domain of proteins: graphs are ego-networks of interaction networks, groups are species."""

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
"""Names of the kinds of split of proteins."""
TRAIN_SHARE = 0.85
"""Fraction of the proteins of the training species in the training set, as in the pre-train-GNNs
family; the others are the validation set."""
COMMUNITIES = 20
"""Number of communities of a network, all of about the same size."""
_HUMAN = "9606"
"""Taxon of human, the default test species."""
_COMMUNITIES_VERSION = 2
"""Version of the computation of communities; a new version ignores stored communities."""
_COMMUNITY_FILE = TypeAdapter(dict[str, int])


class ProteinDomain(Domain):
    """Domain that cuts the ego-network of every protein out of protein networks."""

    name = "protein"
    records = "proteins"
    text_name = "protein"
    node_name = "proteins in the ego-network"
    group_name = "species"
    schemas = {PROTEIN.name: PROTEIN}  # noqa: RUF012 - constant
    targets = STATISTICS
    feature_sets = {"statistics": STATISTICS}  # noqa: RUF012 - constant
    finds_repeats = False
    keeps_stores = True
    reads_memory = True
    wide_edges = True
    reading = ProteinReading

    # Input

    def read(self, source: Input, schema: FeatureSchema | None, reading: Reading) -> GraphStore:
        """Return the ego-network of every protein of a named set or of network files.

        Named sets (``worm-go40``, ``string-6239``) are cut once, and stored in the data root.
        """
        assert isinstance(reading, ProteinReading)
        spec = source.spec
        if spec is None:
            files = () if source.path is None else (source.path,)
            return read_proteins(files if source.records is None else source.records, reading)
        if reading.protein_options:
            details = details_of(spec)
            if details.networks:
                raise ConfigError(
                    f"how '{source.name}' is cut and labeled is fixed; to use other options "
                    f"({', '.join(reading.protein_options)}), name its networks."
                )
            cutting = details.options.updated(reading.cutting.model_dump(exclude_unset=True))
            return read_proteins(spec.name, replace(reading, cutting=cutting))
        store = open_named_proteins(spec.name, reading)
        reject = next(store.iter_rejects(), None)
        if reject is not None and reading.on_error == "fail":
            raise bad_row(reject.text, reject.reason, reject.row)
        if reading.limit is not None:
            store = store.subset(first_of_each_species(store, reading.limit))
        if reading.store_path is None:
            return store
        return store.save(reading.store_path, reading.overwrite)

    def verify(self, path: Path, spec: DatasetSpec) -> bool:
        """Return whether a file can be read to its end and has the expected first line."""
        try:
            with open_text(path) as lines:
                header = " ".join(next(lines, "").split())
                # a truncated archive raises an error only at its end
                return header.startswith(details_of(spec).begins) and sum(1 for _ in lines) > 0
        except DataError:
            return False

    def fetch(self, spec: DatasetSpec, data_dir: Path | str | None = None) -> Path:
        """Return the path of the file of a network, or of the store of a labeled set."""
        if details_of(spec).networks:
            return Path(str(open_named_proteins(spec.name, Reading(data_dir=data_dir)).path))
        return super().fetch(spec, data_dir)

    def parts(self, spec: DatasetSpec) -> list[DatasetSpec]:
        """Return the networks, tables and ontologies that a labeled set is made from."""
        return parts(spec) if details_of(spec).networks else []

    def cutting_options(self, source: Input | GraphStore) -> dict[str, Any]:
        """Return the options by which the ego-networks of a store or a named set are cut."""
        if isinstance(source, Input) and source.spec is not None:
            cutting = details_of(source.spec).options.model_dump(mode="json")
        else:
            store = source.store if isinstance(source, Input) else source
            cutting = {} if store is None else store.source.cutting
        return {name: cutting[name] for name in CUTTING if name in cutting}

    # Splits

    def default_split(self, store: GraphStore, task: str | None) -> str:
        """Return ``species`` without a task if there are several species, else ``random``."""
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
        """Return the training, validation and test sets by :func:`split_proteins`.

        Its networks are by default those of ``source``.
        """
        if not networks and source is not None:
            if source.spec is not None:
                networks = details_of(source.spec).networks or (source.spec.name,)
            elif source.path is not None:
                networks = (source.path,)
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
        """Return the species of each protein; None if its name has none."""
        return [species_of(name) for name in store.texts()]

    def reading_notes(self, store: GraphStore) -> list[str]:
        """Return a note on the meaning of label 0."""
        return ["label 0 is negative or unknown, as in the pre-train-GNNs family"]

    # Descriptions and features without learning

    def feature_set(self, name: str, store: GraphStore) -> BaselineFeatures:
        """Return the ego-network statistics."""
        self.check_feature_sets([name])
        note = "proteins have no fingerprints: statistics take their place"
        return BaselineFeatures("ego-network statistics", ego_statistics(store), note=note)

    def targets_version(self) -> str:
        """Return the version of the ego-network statistics."""
        return "ego-network statistics 1"

    def graph_targets(self, store: GraphStore) -> Float32[np.ndarray, "M 18"]:
        """Return the ego-network statistics, which are computed from the graphs alone."""
        return ego_statistics(store)

    def downstream_readout(self, readout: str) -> str:
        """Return ``mean+center`` instead of ``mean``.

        As in the pre-train-GNNs family, pre-training reads the mean of the nodes, and fine-tuning
        the mean and the center. The readout has no weights, so every encoder can use it.
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

    - ``species``: the test set is all proteins of one species. Those of the other species are
      shuffled; 85 % are the training set and 15 % the validation set, as in the pre-train-GNNs
      family. ``fractions`` are ignored.
    - ``network``: METIS cuts each network into 20 communities of equal size, with the fewest
      interactions between them. Whole communities in random order fill the validation and the test
      set; the others are the training set. Most partners of a test protein are then in its own
      community, and not in the training set. The communities are always the same; ``seed``
      determines their order.
    - ``random``: proteins are shuffled.

    Args:
        proteins: Names, ``<taxon>.<name>``.
        kind: One of the above.
        fractions: Fractions of the training, validation and test sets.
        seed: Seed of the shuffling.
        test_species: Taxon of the test set; None takes human, or else the last species.
        networks: Files or named networks that contain the proteins, for ``network``.
        cutting: Options by which the ego-networks were cut (``store.source.cutting``), for
            ``network``; None takes the defaults.
        data_dir: Folder of downloaded networks and of their communities.

    Raises:
        ConfigError: If the kind or species is unknown, or ``networks`` are missing.
        DataError: If there is no protein, a protein is in none of the networks, or the training
            set would be empty.
    """
    check_name("split of proteins", kind, SPLITS)
    check_fractions(fractions)
    if not len(proteins):
        raise DataError("there are no proteins to split; give at least one.")
    if kind == "random":
        return random_split(len(proteins), fractions, seed)
    if kind == "species":
        return _species_split(proteins, seed, test_species)
    if not networks:
        raise ConfigError(
            "the network split needs the network that the store was cut from: make a split file "
            f"with graphlog data split (its {setting('networks')}), and give that file.",
            option="networks",
        )
    files = network_files(networks, data_dir)
    if cutting is not None:
        files = [file._replace(options=ProteinOptions.parse(cutting)) for file in files]
    species = {species_of(name) for name in proteins}
    default_species = species.pop() if len(species) == 1 else None
    communities: dict[str, int] = {}
    for k, file in enumerate(files):
        numbers = _stored_communities(file, default_species, data_dir)
        communities |= {name: COMMUNITIES * k + number for name, number in numbers.items()}
    missing = next((name for name in proteins if name not in communities), None)
    if missing is not None:
        raise DataError(
            f"'{missing}' is in none of the networks; name those that its ego-network was cut from."
        )
    groups = np.array([communities[name] for name in proteins], dtype=np.int64)
    return group_split(groups, fractions, "random", seed)


def find_communities(network: ProteinNetwork) -> Int[np.ndarray, "N"]:
    """Return the community of every protein by METIS, the same in every call."""
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


def _species_split(proteins: Sequence[str], seed: int, test_species: str | int | None) -> Split:
    species = np.array([species_of(name) or "" for name in proteins])
    known = list(dict.fromkeys(species.tolist()))
    if test_species is None:
        test_species = _HUMAN if _HUMAN in known else known[-1]
    elif str(test_species) not in known:
        raise unknown_name("species", str(test_species), known)
    if len(known) < 2:
        found = known[0] or "names without any"
        raise ConfigError(
            f"the species split needs two species or more, found {found}; use network or random."
        )
    is_test = species == str(test_species)
    others = np.flatnonzero(~is_test)
    # rounding may leave a protein for the third set; it joins the validation set
    train, *rest = random_split(len(others), (TRAIN_SHARE, 1 - TRAIN_SHARE, 0.0), seed)
    return Split(others[train], others[np.concatenate(rest)], np.flatnonzero(is_test))


def _stored_communities(
    file: NetworkFile, default_species: str | None, data_dir: Path | str | None
) -> dict[str, int]:
    """Return the community of each protein; they are computed once and stored in the data root.

    ``default_species`` is the species of a file that does not contain it.
    """
    options = file.options.model_dump(mode="json")
    species = file.species or default_species
    inputs = [_COMMUNITIES_VERSION, species, COMMUNITIES, options, hash_file(file.path)]
    path = data_root(data_dir) / "stores" / f"communities-{hash_json(inputs)[:16]}.json"
    with suppress(OSError, ValueError):
        return _COMMUNITY_FILE.validate_json(path.read_bytes())
    interactions = read_interactions(file.path, file.species, default_species)
    network = build_network(interactions, file.options)
    communities = dict(zip(network.proteins, find_communities(network).tolist(), strict=True))
    # if the data root cannot be written, they are computed again next time
    with suppress(OSError, GraphLoGError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, communities)
    return communities


DOMAIN = ProteinDomain()
"""Domain of proteins, as registered in :data:`graphlog.domains.DOMAINS`."""
