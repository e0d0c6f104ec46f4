"""Hierarchical prototypes and the EM steps on them (Sec. 3.2)."""

from graphlog.prototypes.e_step import greedy_chains, sample_chains
from graphlog.prototypes.energy import corrupt_chains, negative_energy
from graphlog.prototypes.forest import PrototypeForest
from graphlog.prototypes.initialise import fit_forest
from graphlog.prototypes.kmeans import Clusters, kmeans

__all__ = [
    "Clusters",
    "PrototypeForest",
    "corrupt_chains",
    "fit_forest",
    "greedy_chains",
    "kmeans",
    "negative_energy",
    "sample_chains",
]
