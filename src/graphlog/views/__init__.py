"""Correlated and corrupted views of a batch of graphs; none of them has parameters."""
