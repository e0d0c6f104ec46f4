"""Named data sets: what is known about each, and where its file comes from."""

from pathlib import Path

from graphlog.datasets.catalogue import DATASETS, DatasetSpec, find_spec

__all__ = ["BUNDLED", "DATASETS", "DatasetSpec", "find_spec"]

BUNDLED = Path(__file__).parent / "bundled"
"""Files of small data sets that come with this package."""
