"""The contract of a domain: who turns raw records into graphs, and which records belong together."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from graphlog.data.chunk import GraphChunk
from graphlog.data.schema import FeatureSchema


class Domain(ABC):
    """Turns records of one kind (a SMILES, a protein) into graphs; stateless, so any process may do it."""

    name: str
    """``molecule``, ``protein``, ...: the ``domain`` of its schemas."""
    schemas: Mapping[str, FeatureSchema]
    """What its graphs can look like, by name; the first is the default."""

    @abstractmethod
    def featurize(self, records: Sequence[str], schema: FeatureSchema) -> tuple[GraphChunk, list[tuple[int, str]]]:
        """Return the graphs of ``records`` and ``(position, reason)`` of each record that is none."""

    @abstractmethod
    def group_keys(self, records: Sequence[str]) -> list[str | None]:
        """Return what must not be torn apart by a split (a scaffold, a species); None where a record has none."""
