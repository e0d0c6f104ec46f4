"""Graphs of any kind as a domain: no fixed schema, no texts, no groups."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from graphlog.data.schema import FeatureSchema
from graphlog.data.store import GraphStore
from graphlog.datasets import DatasetSpec
from graphlog.domains.base import Domain, Input
from graphlog.errors import DataError


class GraphDomain(Domain):
    """Graphs in a folder of tables, JSON lines, TUDataset or GIN's text; attributes are inferred."""

    name = "graph"

    def recognizes(self, path: Path) -> bool:
        """Return whether a file or folder is in one of the formats."""
        from graphlog.domains.graph.reading import is_graphs

        return is_graphs(path)

    def read(
        self,
        source: Input,
        schema: FeatureSchema | None = None,
        *,
        targets: Any = None,
        on_error: str = "skip",
        workers: int | None = None,
        limit: int | None = None,
        store_path: Path | str | None = None,
        data_dir: Path | str | None = None,
        progress: Callable[[int, int], None] | None = None,
        like: GraphStore | None = None,
        kinds: Mapping[str, str] | None = None,
        directed: bool = False,
    ) -> GraphStore:
        """Return any graphs as a store; see :func:`graphlog.domains.graph.reading.read_graphs`."""
        from graphlog.domains.graph.reading import read_graphs

        return read_graphs(
            source.name if source.spec is not None else Path(str(source.path)),
            schema=like or schema,
            kinds=kinds,
            directed=directed,
            on_error=on_error,
            store_path=store_path,
            progress=progress,
            limit=limit,
            data_dir=data_dir,
        )

    def verify(self, path: Path, spec: DatasetSpec) -> bool:
        """Return whether a zip is whole and holds a TUDataset of that many graphs."""
        from graphlog.domains.graph.tudataset import open_tudataset

        try:
            return sum(1 for _ in open_tudataset(path).read()) == spec.rows
        except DataError:
            return False

    def default_split(self, store: GraphStore, task: str | None) -> str:
        """Return ``stratified`` where classes are predicted, else ``random``."""
        return "random" if task in (None, "regression") else "stratified"
