"""Proteins: ego-networks cut out of interaction networks, and Gene Ontology functions as labels."""
