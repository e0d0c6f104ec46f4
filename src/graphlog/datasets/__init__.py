"""Named data sets, molecule files and protein networks: from a name or a path to rows, and from rows to a graph store."""

from collections.abc import Mapping

from graphlog.datasets.base import DatasetSpec
from graphlog.datasets.catalogue import MOLECULES
from graphlog.datasets.catalogue_networks import GRAPHS, PROTEIN_SETS
from graphlog.datasets.named import resolve
from graphlog.datasets.tables import Row, open_table, read_table

__all__ = ["DATASETS", "DatasetSpec", "Row", "open_table", "read_table", "resolve"]

DATASETS: Mapping[str, DatasetSpec] = {**MOLECULES, **PROTEIN_SETS, **GRAPHS}
"""Every data set by name."""
