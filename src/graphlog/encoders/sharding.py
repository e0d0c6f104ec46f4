"""The part of a batch that one of several processes embeds, and the whole of what they embed."""

from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from graphlog.data.batch import GraphBatch
from graphlog.ops.collectives import Peers


class Shard:
    """Neighboring graphs of a batch with about equal shares of its nodes; alone, all of it."""

    def __init__(self, batch: GraphBatch, peers: Peers | None) -> None:
        """Cut the batch, which is the same in every process.

        Args:
            batch: All graphs.
            peers: The processes that share it; None leaves all to this one.
        """
        self.batch, self.peers = batch, peers
        self._nodes, self._graphs = [batch.num_nodes], [batch.num_graphs]
        if peers is None:
            return
        ends = torch.arange(1, peers.size, device=batch.ptr.device) * batch.num_nodes
        inner = torch.searchsorted(batch.ptr, torch.div(ends, peers.size, rounding_mode="floor"))
        cuts = [0, *inner.tolist(), batch.num_graphs]
        self._graphs = [b - a for a, b in pairwise(cuts)]
        self._nodes = batch.ptr[cuts].diff().tolist()
        self.batch = batch.part(cuts[peers.rank], cuts[peers.rank + 1])

    def all_nodes(self, values: Float[Tensor, "V *D"]) -> Float[Tensor, "W *D"]:
        """Return the rows of the nodes of the whole batch."""
        return values if self.peers is None else self.peers.gather(values, self._nodes)

    def all_graphs(self, values: Float[Tensor, "N *D"]) -> Float[Tensor, "M *D"]:
        """Return the rows of the graphs of the whole batch."""
        return values if self.peers is None else self.peers.gather(values, self._graphs)

    def dropout(
        self, values: Float[Tensor, "V D"], rate: float, training: bool
    ) -> Float[Tensor, "V D"]:
        """Set a share of the values to zero; each is drawn as if one process had all rows."""
        if self.peers is None or not training or rate == 0:
            return F.dropout(values, rate, training)
        scale = values.new_empty(sum(self._nodes), values.shape[1]).bernoulli_(1 - rate)
        first = sum(self._nodes[: self.peers.rank])
        return values * scale.div_(1 - rate)[first : first + values.shape[0]]
