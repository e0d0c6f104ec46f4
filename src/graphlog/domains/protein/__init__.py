"""Proteins: ego-networks cut out of interaction networks, and Gene Ontology functions as labels."""

from graphlog.domains.protein.domain import ProteinDomain, species_of
from graphlog.domains.protein.ego import ego_networks
from graphlog.domains.protein.network import Interactions, ProteinNetwork, build_network
from graphlog.domains.protein.options import ProteinOptions
from graphlog.domains.protein.schema import CHANNELS, PROTEIN

__all__ = [
    "CHANNELS",
    "PROTEIN",
    "Interactions",
    "ProteinDomain",
    "ProteinNetwork",
    "ProteinOptions",
    "build_network",
    "ego_networks",
    "species_of",
]
