"""Jumping knowledge over layers, and readout from nodes to a graph embedding (Eq. 2)."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from graphlog.data.batch import GraphBatch
from graphlog.ops.segment import segment_max, segment_mean, segment_softmax, segment_sum

JUMPS: dict[str, Callable[[list[Tensor]], Tensor]] = {
    "last": lambda outputs: outputs[-1],
    "concat": lambda outputs: torch.cat(outputs, dim=1),
    "max": lambda outputs: torch.stack(outputs).amax(dim=0),
    "sum": lambda outputs: torch.stack(outputs).sum(dim=0),
}
"""Jumping knowledge: the node embedding from the input embedding and every layer's output."""

POOLS: dict[str, Callable[[Float[Tensor, "V D"], Int[Tensor, "P"]], Float[Tensor, "N D"]]] = {
    "mean": segment_mean,
    "sum": segment_sum,
    "max": segment_max,
    "mean+centre": segment_mean,
}


def center_nodes(values: Float[Tensor, "V D"], ptr: Int[Tensor, "P"]) -> Float[Tensor, "N D"]:
    """Return the row of each graph's center, which is its node 0."""
    return values[ptr[:-1]]


class Readout(nn.Module):
    """Permutation-invariant graph embedding. Implements Eq. 2.

    ``attention`` weighs each node by the softmax, within its graph, of a learned score.
    """

    def __init__(self, kind: str, dim: int) -> None:
        super().__init__()
        self.kind = kind
        self.score = nn.Linear(dim, 1) if kind == "attention" else None

    def forward(self, node_emb: Float[Tensor, "V D"], batch: GraphBatch) -> Float[Tensor, "N D"]:
        """Return one embedding a graph."""
        if self.score is not None:
            weights = segment_softmax(self.score(node_emb), batch.ptr)
            return segment_sum(weights * node_emb, batch.ptr)
        return POOLS[self.kind](node_emb, batch.ptr)
