"""Proteins as a domain: records are names in a network, graphs are their ego-networks, groups are species."""

from collections.abc import Sequence

import numpy as np

from graphlog.data.chunk import GraphChunk
from graphlog.data.schema import FeatureSchema
from graphlog.domains.base import Domain
from graphlog.domains.protein.ego import ego_networks
from graphlog.domains.protein.network import ProteinNetwork
from graphlog.domains.protein.schema import PROTEIN, ProteinOptions
from graphlog.errors import DataError


class ProteinDomain(Domain):
    """Names of proteins to their ego-networks in ``network``; names are ``<taxon>.<name>``, as STRING writes them."""

    name = "protein"
    schemas = {PROTEIN.name: PROTEIN}  # noqa: RUF012 - as constant as the schema in it

    def __init__(
        self, network: ProteinNetwork | None = None, options: ProteinOptions | None = None
    ) -> None:
        self.network = network
        self.options = options or ProteinOptions()

    def featurize(
        self, records: Sequence[str], schema: FeatureSchema = PROTEIN
    ) -> tuple[GraphChunk, list[tuple[int, str]]]:
        """Return the ego-networks of the proteins, and ``(position, reason)`` of each that has none.

        Raises:
            DataError: If there is no network to look in.
        """
        if self.network is None:
            raise DataError(
                "ego-networks are cut out of a network; give ProteinDomain one, or read a file with read_proteins."
            )
        number = {name: k for k, name in enumerate(self.network.proteins)}
        degrees, rejected, rows, proteins = self.network.degrees, [], [], []
        for position, record in enumerate(records):
            protein = number.get(record)
            if protein is None:
                rejected.append((position, "is not in the network"))
            elif not degrees[protein] and self.options.isolated == "reject":
                rejected.append((position, "has no interaction that reaches the thresholds"))
            else:
                rows.append(position)
                proteins.append(protein)
        chunk = ego_networks(self.network, np.array(proteins, dtype=np.int64), self.options)
        return GraphChunk(
            node_counts=chunk.node_counts,
            edge_counts=chunk.edge_counts,
            x=chunk.x,
            edge_index=chunk.edge_index,
            edge_attr=chunk.edge_attr,
            rows=np.array(rows, dtype=np.int64),
            texts=chunk.texts,
        ), rejected

    def group_keys(self, records: Sequence[str]) -> list[str | None]:
        """Return the species of each protein; None where the name has none."""
        return [species_of(record) for record in records]
