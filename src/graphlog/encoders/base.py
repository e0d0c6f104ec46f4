"""What an encoder returns, and the contract of one message-passing layer."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from graphlog.data.batch import GraphBatch


class Encoding(NamedTuple):
    """Embeddings of a batch (Eq. 5): of every node's neighbourhood, and of every graph."""

    node_emb: Float[Tensor, "V D"]
    """Subgraph embeddings ``h_v``."""
    graph_emb: Float[Tensor, "N D"]
    """Graph embeddings ``h_G``."""


class MessagePassing(nn.Module, ABC):
    """One layer of Eq. 1: new node embeddings from the old ones and the edges' attributes."""

    @abstractmethod
    def forward(self, h: Float[Tensor, "V D"], batch: GraphBatch) -> Float[Tensor, "V D"]:
        """Return the node embeddings after one round of messages."""
