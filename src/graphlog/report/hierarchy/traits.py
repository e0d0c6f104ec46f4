"""What sets a group of graphs apart from its collection: sizes, descriptors, fragments, labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from graphlog.data.store import GraphStore
from graphlog.errors import DataError

_PROPERTIES = {
    "MolWt": "molecular weight",
    "MolLogP": "logP",
    "TPSA": "polar surface area",
    "NumHDonors": "hydrogen-bond donors",
    "NumHAcceptors": "hydrogen-bond acceptors",
    "NumRotatableBonds": "rotatable bonds",
    "NumAromaticRings": "aromatic rings",
    "NumAliphaticRings": "aliphatic rings",
    "FractionCSP3": "sp3 carbons, share",
    "qed": "drug-likeness (QED)",
}
_FRAGMENTS = {
    "fr_halogen": "halogen",
    "fr_amide": "amide",
    "fr_ester": "ester",
    "fr_ether": "ether",
    "fr_nitro": "nitro group",
    "fr_nitrile": "nitrile",
    "fr_sulfonamd": "sulfonamide",
    "fr_sulfide": "thioether",
    "fr_COO": "carboxylic acid",
    "fr_Al_OH": "aliphatic hydroxyl",
    "fr_phenol": "phenol",
    "fr_NH2": "primary amine",
    "fr_aniline": "aniline",
    "fr_urea": "urea",
    "fr_ketone": "ketone",
    "fr_piperzine": "piperazine",
    "fr_piperdine": "piperidine",
    "fr_morpholine": "morpholine",
    "fr_pyridine": "pyridine",
    "fr_imidazole": "imidazole",
    "fr_thiazole": "thiazole",
    "fr_thiophene": "thiophene",
    "fr_furan": "furan",
    "fr_tetrazole": "tetrazole",
    "fr_bicyclic": "fused rings",
}
_CLEAR = 0.3
"""Deviations from the mean of the collection from which a trait is told: between a small and a medium effect in Cohen's words."""
_FEWEST = 5
"""Members with a known value below which a mean says nothing."""
_MOST = 5
_SIGNIFICANT = 3.0


@dataclass(frozen=True)
class Feature:
    """A column of values, one a graph."""

    name: str
    """What it is."""
    kind: Literal["mean", "share"]
    """``share`` where values are 0 or 1."""
    values: Float[np.ndarray, "N"]
    """NaN where unknown."""

    @cached_property
    def overall(self) -> tuple[float, float]:
        """Mean and standard deviation of the known values; a deviation of 0 where there are none."""
        known = self.values[~np.isnan(self.values)]
        return (float(known.mean()), float(known.std())) if len(known) else (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Trait:
    """How a group differs from its collection in one feature."""

    name: str
    """The feature."""
    kind: Literal["mean", "share"]
    """What the two numbers are."""
    here: float
    """Of the group."""
    overall: float
    """Of the collection."""
    effect: float
    """Their difference in standard deviations of the collection."""


def features_of(store: GraphStore) -> list[Feature]:
    """Return what is known of the graphs of ``store`` that a person would ask for: few thousand graphs take seconds."""
    nodes, edges = (
        store.num_nodes.astype(np.float64),
        store.num_edges / (2.0 if store.undirected else 1.0),
    )
    features = [
        Feature(_counted(store, "nodes"), "mean", nodes),
        Feature("edges a node", "mean", edges / np.maximum(nodes, 1)),
    ]
    if store.schema.domain == "molecule":
        features = [features[0], *_chemistry(store)]
    return features + _labels(store)


def traits_of(features: Sequence[Feature], members: Int[np.ndarray, "_"]) -> list[Trait]:
    """Return the features in which the graphs ``members`` differ clearly from all, the clearest first, at most five.

    A difference counts if it is at least 0.3 standard deviations, and three times what a random group of that size
    would differ by.

    Example:
        >>> rings = Feature("rings", "mean", np.repeat([1.0, 3.0], 10))
        >>> [(t.name, t.here, t.overall, t.effect) for t in traits_of([rings], np.arange(10, 20))]
        [('rings', 3.0, 2.0, 1.0)]
    """
    found: list[Trait] = []
    for feature in features:
        here = feature.values[members]
        here = here[~np.isnan(here)]
        overall, spread = feature.overall
        if len(here) < _FEWEST or spread == 0:
            continue
        effect = (float(here.mean()) - overall) / spread
        if abs(effect) >= max(_CLEAR, _SIGNIFICANT / np.sqrt(len(here))):
            found.append(Trait(feature.name, feature.kind, float(here.mean()), overall, effect))
    return sorted(found, key=lambda trait: -abs(trait.effect))[:_MOST]


def _counted(store: GraphStore, what: str) -> str:
    return {"molecule": "heavy atoms", "protein": "proteins in the ego-network"}.get(
        store.schema.domain, what
    )


def _chemistry(store: GraphStore) -> list[Feature]:
    from graphlog.domains.molecule import descriptors

    try:
        texts = store.texts()
    except DataError:  # a store without SMILES
        return []
    table = descriptors(texts, [*_PROPERTIES, *_FRAGMENTS]).astype(np.float64)
    count = len(_PROPERTIES)
    properties = [Feature(name, "mean", table[:, k]) for k, name in enumerate(_PROPERTIES.values())]
    present = np.where(np.isnan(table[:, count:]), np.nan, table[:, count:] > 0)
    return properties + [
        Feature(f"with {name}", "share", present[:, k])
        for k, name in enumerate(_FRAGMENTS.values())
    ]


def _labels(store: GraphStore) -> list[Feature]:
    if store.labels is None:
        return []
    features: list[Feature] = []
    classes: dict[str, list[str]] = store.source.get("classes", {})
    for name, column in zip(store.tasks, store.labels.T.astype(np.float64), strict=True):
        if name in classes:  # numbers of classes are no quantities
            shares = (
                np.where(np.isnan(column), np.nan, column == k) for k in range(len(classes[name]))
            )
            features += [
                Feature(f"label {name} = {c}", "share", share)
                for c, share in zip(classes[name], shares, strict=True)
            ]
            continue
        is_binary = bool(np.isin(column[~np.isnan(column)], (0.0, 1.0)).all())
        features.append(Feature(f"label {name}", "share" if is_binary else "mean", column))
    return features
