"""Named data sets: their descriptions, and where their files come from."""

from pathlib import Path

from graphlog.datasets.catalogue import DATASETS, DatasetSpec, find_spec

__all__ = ["BUNDLED", "DATASETS", "DatasetSpec", "find_spec"]

BUNDLED = Path(__file__).parent / "bundled"
"""Folder of small data sets that come with this package."""
