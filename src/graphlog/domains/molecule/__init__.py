"""Molecules: SMILES in, graphs out. Only this package loads RDKit, and only when first needed."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
