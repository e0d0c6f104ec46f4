"""Self-supervised graph representation learning with local and global structure (GraphLoG)."""

import os

import lazy_loader

# In bf16 oneDNN builds and keeps a kernel for every new number of rows, of which graph batches have
# thousands; its default of 1,024 kernels holds gigabytes. Read when torch first computes.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")

__version__ = "0.2.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
