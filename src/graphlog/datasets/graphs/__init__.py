"""Collections of any graphs: folders of tables, JSON lines, TUDataset and GIN files, named sets; read into a store."""

from graphlog.datasets.graphs.reading import read_graphs
from graphlog.datasets.graphs.sources import is_graphs

__all__ = ["is_graphs", "read_graphs"]
