"""How large the experiments are: every number of every scale, in one table."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class ScaleSettings:
    """What all methods of one domain share at one scale, so that only the method differs."""

    schema: str
    """Features of the graphs."""
    source: str
    """Data set to pre-train on, or the folder of a graph store."""
    limit: int | None
    """Its first rows that are used; None: all."""
    encoder: Mapping[str, Any]
    """Settings of the network, the backbone apart."""
    training: Mapping[str, Any]
    """Epochs, batch size and step size of pre-training."""
    finetuning: Mapping[str, Any]
    """Settings of fine-tuning, beyond the paper's protocol."""
    finetuned: tuple[str, ...]
    """Data sets to fine-tune on."""
    probed: tuple[str, ...]
    """Data sets to probe on."""
    split: str | None = None
    """Kind of split of the labeled data sets; None: each one's own."""
    probed_across: tuple[str, ...] | None = None
    """Data sets that the many encoders of Table 3 and Figure 3 are probed on; None: ``probed``."""
    forested: tuple[str, ...] | None = None
    """Data sets small enough for a forest on fingerprints; None: all."""
    probe_layer: Literal["jk", "last"] = "last"
    """Embedding of the linear probes: the paper's graph embedding, or ``jk``, six times as wide."""
    depths: tuple[int, ...] = (1, 2, 3, 4, 5)
    """Depths of the hierarchy of prototypes in Figure 3."""
    batch_sizes: tuple[int, ...] = (32, 64, 128, 256, 512)
    """Batch sizes in Figure 3."""
    mapped: int = 3000
    """Graphs on the maps of Figure 4."""
    timed_steps: int = 15
    """Steps of each objective that the speed suite times."""


@dataclass(frozen=True, slots=True)
class Scale:
    """One size of the whole undertaking."""

    seeds: tuple[int, ...]
    """Of pre-training and, with the same number, of fine-tuning."""
    domains: Mapping[str, ScaleSettings]
    """One a domain."""


EIGHT = ("bbbp", "tox21", "toxcast", "sider", "clintox", "muv", "hiv", "bace")
"""The paper's data sets in its order."""
FOUR = ("bbbp", "sider", "clintox", "bace")
"""The small ones, on which the paper chose its settings."""

_SMALL = ScaleSettings(
    schema="molecule",
    source="zinc250k",
    limit=50_000,
    encoder={"layers": 5, "dim": 128},
    training={"epochs": 2, "batch_size": 256, "learning_rate": 1e-3},
    finetuning={"epochs": 10, "batch_size": 32, "layer": "last"},
    finetuned=FOUR,
    probed=EIGHT,
    probed_across=FOUR,
    forested=("bbbp", "tox21", "sider", "clintox", "bace"),
    probe_layer="last",
)
_PAPER = ScaleSettings(
    schema="molecule",
    source="zinc2m",
    limit=None,
    encoder={"layers": 5, "dim": 300},
    training={"epochs": 11, "batch_size": 512, "learning_rate": 1e-3},
    finetuning={"epochs": 100, "batch_size": 32, "layer": "last"},
    finetuned=EIGHT,
    probed=EIGHT,
    batch_sizes=(32, 64, 128, 256, 512, 1024),
    mapped=5000,
)
_SMOKE = ScaleSettings(
    schema="molecule",
    source="wehi10k",
    limit=512,
    encoder={"layers": 2, "dim": 16},
    training={"epochs": 2, "batch_size": 64, "learning_rate": 1e-3},
    finetuning={"epochs": 2, "batch_size": 32, "layer": "last"},
    finetuned=("chembl2321810",),
    probed=("chembl2321810",),
    depths=(1, 3),
    batch_sizes=(32, 64),
    mapped=200,
    timed_steps=3,
)
_WORM: Mapping[str, Any] = {
    "schema": "protein",
    "source": "string-6239",
    "finetuned": ("worm-go40",),
    "probed": ("worm-go40",),
    "probed_across": None,
    "forested": None,
}
_CENTER = {"readout": "mean+centre"}
"""Proteins are embedded by their whole ego-network and its center, as in pre-train-GNNs."""

SCALES: Mapping[str, Scale] = {
    "smoke": Scale(
        seeds=(0, 1),
        domains={
            "molecule": _SMOKE,
            "protein": replace(_SMOKE, **_WORM, limit=256, encoder={**_SMOKE.encoder, **_CENTER}),
        },
    ),
    "small": Scale(
        seeds=(0, 1, 2),
        domains={
            "molecule": _SMALL,
            "protein": replace(
                _SMALL,
                **_WORM,
                limit=None,
                encoder={"layers": 5, "dim": 64, **_CENTER},
                batch_sizes=(64, 128, 256, 512),
            ),
        },
    ),
    "paper": Scale(
        seeds=(0, 1, 2, 3, 4),
        domains={
            "molecule": _PAPER,
            "protein": replace(_PAPER, **_WORM, encoder={**_PAPER.encoder, **_CENTER}),
        },
    ),
}
"""Minutes on bundled data; hours on two cores; the paper's protocol.

Proteins are those of the worm, split at random, unless ``--source``, ``--datasets`` and ``--split``
name others; the paper pre-trains on 50 species.
"""
