"""Hierarchical prototypes and the EM steps on them (Sec. 3.2)."""

from graphlog.prototypes.e_step import (
    balanced_assignment,
    balanced_chains,
    greedy_chains,
    leaf_chains,
    sample_chains,
)
from graphlog.prototypes.energy import corrupt_chains, negative_energy
from graphlog.prototypes.forest import PrototypeForest
from graphlog.prototypes.initialize import fit_forest
from graphlog.prototypes.kmeans import Clusters, kmeans

__all__ = [
    "Clusters",
    "PrototypeForest",
    "balanced_assignment",
    "balanced_chains",
    "corrupt_chains",
    "fit_forest",
    "greedy_chains",
    "kmeans",
    "leaf_chains",
    "negative_energy",
    "sample_chains",
]
