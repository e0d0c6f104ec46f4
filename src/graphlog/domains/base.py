"""The contract of a domain: who turns raw records into graphs, and which records belong together."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float32

from graphlog.data.chunk import GraphChunk
from graphlog.data.schema import FeatureSchema
from graphlog.errors import ConfigError


class Domain(ABC):
    """Turns records of one kind (a SMILES, a protein) into graphs; stateless, so any process may do it."""

    name: str
    """``molecule``, ``protein``, ...: the ``domain`` of its schemas."""
    schemas: Mapping[str, FeatureSchema]
    """What its graphs can look like, by name; the first is the default."""
    targets: tuple[str, ...] = ()
    """Names of what a record tells by itself, to be predicted from its graph; none where there is nothing of the kind."""

    @abstractmethod
    def featurize(
        self, records: Sequence[str], schema: FeatureSchema
    ) -> tuple[GraphChunk, list[tuple[int, str]]]:
        """Return the graphs of ``records`` and ``(position, reason)`` of each record that is none."""

    @abstractmethod
    def group_keys(self, records: Sequence[str]) -> list[str | None]:
        """Return what must not be torn apart by a split (a scaffold, a species); None where a record has none."""

    def targets_version(self) -> str:
        """Return the version of what works the targets out; values kept from another are not used."""
        return ""

    def target_values(self, records: Sequence[str]) -> Float32[np.ndarray, "N K"]:
        """Return the value of every target of each record; a NaN row where a record cannot be read.

        Raises:
            ConfigError: If this domain has no targets.
        """
        raise ConfigError(
            f"domain '{self.name}' has no descriptors to predict; choose an objective that needs none."
        )
