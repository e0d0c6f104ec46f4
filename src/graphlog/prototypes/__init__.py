"""Hierarchical prototypes and the EM steps on them (Sec. 3.2)."""
