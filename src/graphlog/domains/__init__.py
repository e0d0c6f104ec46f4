"""Kinds of graphs: one package a domain, registered in ``DOMAINS``.

The domains load on first use: processes that only parse SMILES need no torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
