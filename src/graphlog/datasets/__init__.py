"""Named data sets and molecule files: from a name or a path to rows, and from rows to a graph store."""

from collections.abc import Mapping

from graphlog.datasets.base import DatasetSpec
from graphlog.datasets.catalogue import MOLECULES
from graphlog.datasets.named import resolve
from graphlog.datasets.networks.species import NETWORKS
from graphlog.datasets.tables import Row, open_table, read_table

__all__ = ["DATASETS", "DatasetSpec", "Row", "open_table", "read_table", "resolve"]

DATASETS: Mapping[str, DatasetSpec] = {**MOLECULES, **NETWORKS}
"""Every data set by name."""
