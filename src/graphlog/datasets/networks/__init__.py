"""Protein networks and their annotations as files: STRING, Gene Ontology, tables of labels; and the store made of them."""

from graphlog.datasets.networks.annotations import Annotation, read_annotations
from graphlog.datasets.networks.ontology import read_ontology
from graphlog.datasets.networks.proteins import read_proteins
from graphlog.datasets.networks.string import read_interactions

__all__ = ["Annotation", "read_annotations", "read_interactions", "read_ontology", "read_proteins"]
