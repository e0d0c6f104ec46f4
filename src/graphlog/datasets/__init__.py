"""Named data sets: what is known about each, and where its file comes from."""

from graphlog.datasets.catalogue import DATASETS, DatasetSpec, find_spec

__all__ = ["DATASETS", "DatasetSpec", "find_spec"]
