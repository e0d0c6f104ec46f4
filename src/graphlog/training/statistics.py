"""What an encoder is told about clean graphs: statistics of batch norms, and what is usual."""

import numpy as np
import torch
from torch import nn

from graphlog.data.sampler import BatchSampler
from graphlog.data.store import GraphStore
from graphlog.encoders.encoder import GraphEncoder
from graphlog.encoders.novelty import FEWEST, Novelty

BATCHES, BATCH_SIZE = 20, 64
"""Graphs the statistics are taken from."""
_JUDGED = 20_000
"""Graphs that novelty is fitted to."""
_AT_ONCE = 512


def calibrate(network: GraphEncoder, graphs: GraphStore, seed: int = 0) -> None:
    """Set the running statistics of every batch norm to their averages over clean graphs.

    During training they follow corrupted views under weights that keep changing; what is used
    afterwards are whole graphs under the final weights. The network is in evaluation mode
    afterwards.

    Args:
        network: Its weights stay.
        graphs: Unlabeled; up to 20 batches of 64 are drawn.
        seed: Decides which.
    """
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm1d)]
    momenta = [norm.momentum for norm in norms]
    network.eval()
    if not norms:
        return
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # cumulative average
        norm.train()
    with torch.no_grad():
        for indices in BatchSampler(len(graphs), BATCH_SIZE, seed).epoch(0)[:BATCHES]:
            batch = graphs.take(np.sort(indices))
            if batch.num_nodes > 1:  # one value has no variance
                network(batch.to(next(network.parameters()).device))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


def fit_novelty(network: GraphEncoder, graphs: GraphStore, seed: int = 0) -> Novelty | None:
    """Return what is usual among ``graphs`` as ``network`` embeds them; None for fewer than 20.

    Args:
        network: In evaluation mode.
        graphs: The collection; of large ones, 20,000 are drawn.
        seed: Decides which.
    """
    rows = np.arange(len(graphs))
    if len(rows) > _JUDGED:
        rows = np.sort(np.random.default_rng(seed).choice(rows, _JUDGED, replace=False))
    device = next(network.parameters()).device
    parts = np.array_split(rows, -(-len(rows) // _AT_ONCE)) if len(rows) >= FEWEST else []
    if not parts:
        return None
    with torch.no_grad():
        found = [network.embed_graphs(graphs.take(part).to(device), "jk") for part in parts]
    return Novelty.fit(torch.cat(found).float().cpu().numpy(), seed)
