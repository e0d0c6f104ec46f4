"""Folds of proteins: by species, by communities of the network, or at random."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from graphlog.data.split import DEFAULT_FRACTIONS, Split, check_fractions, group_split, random_split
from graphlog.data.store import GraphStore, is_store
from graphlog.datasets.base import named_spec
from graphlog.datasets.catalogue_networks import LABELLED_SETS
from graphlog.datasets.download import data_root
from graphlog.domains.protein.network import (
    NetworkFile,
    ProteinNetwork,
    build_network,
    network_files,
    read_interactions,
)
from graphlog.domains.protein.schema import ProteinOptions, species_of
from graphlog.errors import ConfigError, DataError, MissingExtraError, unknown_name
from graphlog.files import beside, hash_file

KINDS = ("species", "network", "random")
"""Kinds of split of proteins."""
TRAIN_SHARE = 0.85
"""Share of the training species' proteins to learn from; the rest are for validation, as in the pre-train-GNNs family."""
COMMUNITIES = 20
"""Communities a network is cut into, of about equal size: a twentieth of the proteins each."""
_HUMAN = "9606"
_RULE = 1
"""Goes up when communities are found in another way."""


def split_proteins(
    proteins: Sequence[str],
    kind: str = "random",
    fractions: Sequence[float] = DEFAULT_FRACTIONS,
    seed: int = 0,
    *,
    test_species: str | int | None = None,
    networks: str | Path | Sequence[str | Path] = (),
) -> Split:
    """Return the indices of the three folds.

    - ``species``: every protein of one species is for testing; those of the others are shuffled and cut into 85 % to learn
      from and 15 % for validation (the pre-train-GNNs rule; ``fractions`` have no say).
    - ``network``: METIS cuts each network into 20 communities of equal size with the fewest interactions between them; whole
      communities, in random order, fill validation and test, the rest is for training. Most partners of a test protein are
      then in its own community and not in the training fold. The cut is always the same; ``seed`` deals it out.
    - ``random``: proteins are shuffled.

    Args:
        proteins: Names, ``<taxon>.<name>``.
        kind: One of the above.
        fractions: Shares of train, valid and test.
        seed: Of what is shuffled.
        test_species: Taxon to test on; None takes human where it is there, else the last species.
        networks: For ``network``: the files or named networks that hold the proteins.

    Raises:
        ConfigError: If the kind is unknown, a species is not there, or ``network`` lacks its networks.
        DataError: If there is nothing to train on, or a protein is in none of the networks.
    """
    if kind not in KINDS:
        raise unknown_name("split of proteins", kind, KINDS)
    check_fractions(fractions)
    if not len(proteins):
        raise DataError("there are no proteins to split; give at least one.")
    if kind == "random":
        return random_split(len(proteins), fractions, seed)
    if kind == "species":
        return _species_split(
            [species_of(name) for name in proteins],
            seed,
            None if test_species is None else str(test_species),
        )
    listed = [networks] if isinstance(networks, str | Path) else list(networks)
    if not listed:
        raise ConfigError(
            "the network split needs the network that the store was cut from: graphlog data split STORE --kind network "
            "--network FILE -o split.json, and give that split.json."
        )
    return group_split(_communities_of(proteins, listed), fractions, "random", seed)


def split_store(
    store: GraphStore,
    source: str,
    kind: str | None,
    fractions: Sequence[float],
    seed: int,
    *,
    test_species: str | None = None,
    networks: Sequence[str] = (),
) -> tuple[str, Split]:
    """Return the kind and the folds, as graph indices, of the ego-networks of ``source``; unlabelled ones of a labelled set are in none.

    Args:
        store: The ego-networks.
        source: What they were read from, where the network is looked up unless ``networks`` names it.
        kind: As :func:`split_proteins` knows them; None takes the named set's own, else ``species`` for several, else ``random``.
        fractions: Shares of train, valid and test.
        seed: Of what is shuffled.
        test_species: Taxon to test on.
        networks: Files or named networks that the ego-networks were cut from.
    """
    known = (
        np.arange(len(store))
        if store.labels is None
        else np.flatnonzero(~np.isnan(store.labels).all(axis=1))
    )
    proteins = store.texts(known)
    spec = named_spec(source, LABELLED_SETS)
    usual = (
        spec.split
        if spec
        else "species"
        if len({species_of(name) for name in proteins}) > 1
        else "random"
    )
    chosen = kind or usual
    named = spec.networks if spec else ()
    where = tuple(networks) or named or (() if is_store(source) else (source,))
    folds = split_proteins(
        proteins, chosen, fractions, seed, test_species=test_species, networks=where
    )
    return chosen, Split(*(known[part] for part in folds))


def communities(network: ProteinNetwork, count: int = COMMUNITIES) -> Int[np.ndarray, "N"]:
    """Return the community of every protein: METIS' partition into ``count`` parts, the same every time.

    Raises:
        MissingExtraError: If METIS is not installed.
    """
    try:
        metis: Any = import_module("pymetis")
    except ImportError:
        raise MissingExtraError("pymetis", "partition") from None
    if len(network.proteins) < 2 * count:
        raise DataError(
            f"a network of {len(network.proteins)} proteins is too small for {count} communities; split it at random."
        )
    adjacency = metis.CSRAdjacency(network.offsets.tolist(), network.partners.tolist())
    _, found = metis.part_graph(count, adjacency=adjacency, options=metis.Options(seed=0))
    return np.array(found, dtype=np.int64)


def _species_split(species: Sequence[str | None], seed: int, wanted: str | None) -> Split:
    found = np.array([taxon or "" for taxon in species])
    known = list(dict.fromkeys(found.tolist()))
    if wanted is not None and wanted not in known:
        raise unknown_name("species", wanted, known)
    if len(known) < 2:
        raise ConfigError(
            f"the species split needs two species or more, found {known[0] or 'none named'}; choose network or random."
        )
    test = wanted or (_HUMAN if _HUMAN in known else known[-1])
    others = np.flatnonzero(found != test)
    learn, check, left = random_split(
        len(others), (TRAIN_SHARE, 1 - TRAIN_SHARE, 0.0), seed
    )  # `left`: by rounding
    return Split(
        others[learn], others[np.concatenate([check, left])], np.flatnonzero(found == test)
    )


def _communities_of(proteins: Sequence[str], sources: Sequence[str | Path]) -> Int[np.ndarray, "N"]:
    place: dict[str, int] = {}
    for k, file in enumerate(network_files(sources)):
        names, found = _remembered(file)
        place |= dict(zip(names, (COMMUNITIES * k + found).tolist(), strict=True))
    missing = next((name for name in proteins if name not in place), None)
    if missing is not None:
        raise DataError(
            f"'{missing}' is in none of the networks given; name the ones its ego-network was cut from."
        )
    return np.array([place[name] for name in proteins], dtype=np.int64)


def _remembered(file: NetworkFile) -> tuple[tuple[str, ...], Int[np.ndarray, "N"]]:
    """Return a network's proteins and their communities, kept in the data root: reading a network takes seconds."""
    options = ProteinOptions.parse(file.options)
    told = [_RULE, file.species, COMMUNITIES, options.model_dump(mode="json"), hash_file(file.path)]
    key = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
    path = data_root() / "stores" / f"communities-{key}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(path.read_text(encoding="utf-8"))
        return tuple(kept["proteins"]), np.array(kept["communities"], dtype=np.int64)
    network = build_network(read_interactions(file.path, file.species), options)
    found = communities(network)
    with suppress(OSError):  # a root that cannot be written to costs time only
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside(path) as unfinished:
            unfinished.write_text(
                json.dumps({"proteins": network.proteins, "communities": found.tolist()}),
                encoding="utf-8",
            )
    return network.proteins, found
