"""The readout of proteins downstream: the mean over the ego-network and, beside it, the centre."""

from typing import Literal

import torch

from graphlog.domains import domain_of
from graphlog.downstream.encoder import Encoder
from graphlog.encoders.encoder import GraphEncoder

ReadoutChoice = Literal["auto", "encoder"]


def judged(encoder: Encoder, readout: ReadoutChoice = "auto") -> Encoder:
    """Return the encoder as it is to be judged: with ``auto``, one that pools the mean of an ego-network shows its centre too.

    Pre-training pools the mean only, fine-tuning reads mean and centre: the rule of the pre-train-GNNs family. The readout has
    no weights, so that any encoder of proteins can be given it; ``encoder`` leaves it as it was trained.
    """
    network = encoder.network
    if (
        readout == "encoder"
        or (wanted := domain_of(network.schema).downstream_readout(network.config.readout))
        == network.config.readout
    ):
        return encoder
    with torch.random.fork_rng(devices=[]):  # its first weights are thrown away at once
        centred = GraphEncoder(network.config.updated({"readout": wanted}), network.schema)
    centred.load_state_dict(network.state_dict())
    made = Encoder(centred.to(encoder.device), encoder.layer, encoder.info, encoder.extra)
    return made.train(encoder.training)
