"""Molecules as graphs, read from SMILES. Only this package imports RDKit, and only on first use."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
