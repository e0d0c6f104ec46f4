"""Kinds of graphs: one package per domain, registered in ``DOMAINS``.

The domains are imported on first use, so that processes that only parse SMILES do not load torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
