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
from graphlog.datasets.download import data_root
from graphlog.domains.protein.network import ProteinNetwork, build_network, read_interactions
from graphlog.domains.protein.reading import Files, NetworkFile, as_list, network_files
from graphlog.domains.protein.schema import ProteinOptions, species_of
from graphlog.errors import ConfigError, DataError, MissingExtraError, unknown_name
from graphlog.files import beside, hash_file

KINDS = ("species", "network", "random")
"""Kinds of split of proteins."""
TRAIN_SHARE = 0.85
"""Share of the training species' proteins used for training, as in the pre-train-GNNs family; the
rest are for validation."""
COMMUNITIES = 20
"""Number of communities of a network, each with about a twentieth of the proteins."""
_HUMAN = "9606"
_VERSION = 1
"""Increase when communities are computed in another way."""


def split_proteins(
    proteins: Sequence[str],
    kind: str = "random",
    fractions: Sequence[float] = DEFAULT_FRACTIONS,
    seed: int = 0,
    *,
    test_species: str | int | None = None,
    networks: Files = (),
    data_dir: Path | str | None = None,
) -> Split:
    """Return the indices of the three folds.

    - ``species``: all proteins of one species are for testing; those of the others are shuffled and
      cut into 85 % for training and 15 % for validation (the pre-train-GNNs rule; ``fractions`` are
      ignored).
    - ``network``: METIS cuts each network into 20 communities of equal size with the fewest
      interactions between them. Whole communities, in random order, fill validation and test; the
      rest is for training. Most partners of a test protein are then in its own community and not in
      the training fold. The communities are always the same; ``seed`` assigns them to folds.
    - ``random``: proteins are shuffled.

    Args:
        proteins: Names, ``<taxon>.<name>``.
        kind: One of the above.
        fractions: Shares of train, valid and test.
        seed: Of the shuffling.
        test_species: Taxon to test on; None takes human if it is there, else the last species.
        networks: For ``network``: the files or named networks that contain the proteins.
        data_dir: Where downloaded networks and their communities are kept.

    Raises:
        ConfigError: If kind or species is unknown, or ``network`` lacks its networks.
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
        species = np.array([species_of(name) or "" for name in proteins])
        return _species_split(species, seed, None if test_species is None else str(test_species))
    if not as_list(networks):
        raise ConfigError(
            "the network split needs the network that the store was cut from: graphlog data split "
            "STORE --kind network --network FILE -o split.json, and give that split.json."
        )
    communities = _communities_of(proteins, networks, data_dir)
    return group_split(communities, fractions, "random", seed)


def find_communities(network: ProteinNetwork, count: int = COMMUNITIES) -> Int[np.ndarray, "N"]:
    """Return the community of every protein: METIS' partition into ``count`` parts.

    The result is always the same.

    Raises:
        DataError: If the network is too small.
        MissingExtraError: If METIS is not installed.
    """
    try:
        metis: Any = import_module("pymetis")
    except ImportError:
        raise MissingExtraError("pymetis", "partition") from None
    if len(network.proteins) < 2 * count:
        raise DataError(
            f"a network of {len(network.proteins)} proteins is too small for {count} communities; "
            "use a random split."
        )
    adjacency = metis.CSRAdjacency(network.offsets.tolist(), network.partners.tolist())
    _, communities = metis.part_graph(count, adjacency=adjacency, options=metis.Options(seed=0))
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
    proteins: Sequence[str], networks: Files, data_dir: Path | str | None
) -> Int[np.ndarray, "N"]:
    community: dict[str, int] = {}
    for k, file in enumerate(network_files(networks, data_dir)):
        names, numbers = _cached_communities(file, data_dir)
        community |= {name: COMMUNITIES * k + c for name, c in zip(names, numbers, strict=True)}
    missing = next((name for name in proteins if name not in community), None)
    if missing is not None:
        raise DataError(
            f"'{missing}' is in none of the networks; name those that its ego-network was cut from."
        )
    return np.array([community[name] for name in proteins], dtype=np.int64)


def _cached_communities(
    file: NetworkFile, data_dir: Path | str | None
) -> tuple[Sequence[str], Sequence[int]]:
    """Return proteins and communities of a network, from the data root if they are there."""
    options = ProteinOptions.parse(file.options)
    described = options.model_dump(mode="json")
    inputs = [_VERSION, file.species, COMMUNITIES, described, hash_file(file.path)]
    key = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]
    path = data_root(data_dir) / "stores" / f"communities-{key}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        cached = json.loads(path.read_text(encoding="utf-8"))
        return cached["proteins"], cached["communities"]
    network = build_network(read_interactions(file.path, file.species), options)
    communities = find_communities(network).tolist()
    with suppress(OSError):  # without a writable data root they are computed again next time
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"proteins": network.proteins, "communities": communities}
        with beside(path) as partial:
            partial.write_text(json.dumps(content), encoding="utf-8")
    return network.proteins, communities
