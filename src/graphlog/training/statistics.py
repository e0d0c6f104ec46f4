"""Statistics of batch normalization, taken in the same way for every encoder, trained or not."""

import numpy as np
import torch
from torch import nn

from graphlog.data.sampler import BatchSampler
from graphlog.data.store import GraphStore
from graphlog.encoders.encoder import GraphEncoder

BATCHES, BATCH_SIZE = 20, 64
"""Graphs the statistics are taken from."""


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
