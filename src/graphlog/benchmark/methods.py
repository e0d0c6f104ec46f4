"""What is compared and how it is printed: methods, data sets, rules, scores, and the scales."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any, Literal

from graphlog.errors import check_name
from graphlog.objectives import OBJECTIVES

REFERENCE, MAIN_BACKBONE = "graphlog", "gin"
UNTRAINED, FOREST, LINEAR = "untrained", "ecfp-rf", "ecfp-lr"
BASELINES = (FOREST, LINEAR)
"""Rows without an encoder; on proteins, statistics of the ego-network replace the fingerprints."""
YARDSTICK = "attrmasking"
"""The method whose throughput the others are compared with: one view, one head."""
PAPER: Mapping[str, Any] = tomllib.loads(
    files("graphlog.benchmark").joinpath("paper.toml").read_text(encoding="utf-8")
)
"""The numbers of the paper."""
COMPARED = tuple(PAPER["table_1"]["rows"])
"""The rows of the paper's Tables 1 and 2, in its order."""
ACROSS_BACKBONES = tuple(PAPER["table_3"]["rows"])
"""The rows of Table 3."""
LOSSES = {"subgraph": "L_sub", "graph": "L_graph", "global": "L_global"}
"""The three losses of GraphLoG and how Table 4 heads them."""
ABLATED = tuple(PAPER["table_4"]["rows"])
"""The rows of Table 4, named by the losses that stay."""
CONFIGURATIONS = ("subgraph", "subgraph+graph", "subgraph+graph+global")
"""The panels (a) to (c) of Figure 4."""

METHOD_LABELS: Mapping[str, str] = {
    "untrained": "Untrained",
    "edgepred": "EdgePred",
    "infograph": "InfoGraph",
    "attrmasking": "AttrMasking",
    "contextpred": "ContextPred",
    "graphpartition": "GraphPartition",
    "graphcl": "GraphCL",
    "graphlog": "GraphLoG",
    "graphlog-default": "GraphLoG (default recipe)",
    "graphlog-paper": "GraphLoG (paper recipe)",
    "graphlog-released": "GraphLoG (released recipe)",
    "infomax": "Infomax",
    "graphmae": "GraphMAE",
    "descriptorpred": "DescriptorPred",
    "ecfp-rf": "ECFP4 + random forest",
    "ecfp-lr": "ECFP4 + logistic regression",
}
"""Methods in the order of their rows: the paper's, then the others, then fingerprints."""
STATISTICS_LABEL = "Statistics + logistic regression"
"""Name of the baselines on proteins."""
DATASET_LABELS: Mapping[str, str] = {
    name.lower(): name
    for name in ("BBBP", "Tox21", "ToxCast", "SIDER", "ClinTox", "MUV", "HIV", "BACE")
}
BACKBONE_LABELS: Mapping[str, str] = {n.lower(): n for n in ("GCN", "GraphSAGE", "GAT", "GIN")}
RULE_LABELS: Mapping[str, str] = {
    "last": "last epoch",
    "best-valid": "epoch of the best validation score",
    "fixed-C": "fixed C",
    "validated-C": "C chosen on the validation fold",
}
"""Selection rules of fine-tuning and of linear probes."""
STAGE_LABELS: Mapping[str, str] = {
    "finetune": "fine-tuned",
    "probe": "linear probe of frozen embeddings",
}
DOMAIN_LABELS: Mapping[str, str] = {"molecule": "molecules", "protein": "biology"}
METRIC_LABELS: Mapping[str, str] = {
    "roc_auc": "ROC-AUC",
    "average_precision": "average precision",
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R²",
}
VARIED_LABELS: Mapping[str, str] = {"depth": "depth of the prototypes", "batch_size": "batch size"}
OF_A_STEP = ("collate", "forward", "backward", "optimizer")
"""The stages that make up a pre-training step."""
STEP_LABELS: Mapping[str, str] = {
    "parse": "Parse SMILES",
    "collate": "Collate a batch",
    "forward": "Forward, with the losses of GraphLoG",
    "backward": "Backward",
    "optimizer": "Optimizer step",
    "step": "Pre-training step: the four above",
    "kmeans": "Fit the prototypes (K-means)",
    "finetune": "Fine-tuning step",
    "embed": "Embed",
}
SIDE_LABELS: Mapping[str, str] = {
    "fp32": "graphlog fp32",
    "bf16": "graphlog bf16",
    "torch_geometric": "torch_geometric fp32",
}
LIMIT_LABELS: Mapping[str, tuple[str, str]] = {
    f"{kind}-{precision}": (f"{words}, {precision}", unit)
    for precision in ("fp32", "bf16")
    for kind, words, unit in (
        ("product", "Matrix product, nodes x D by D x 2D, of torch", "GFLOP/s"),
        ("layer", "Both products of a GIN layer, as graphlog computes them", "GFLOP/s"),
        ("share", "Matrix products at the faster rate, share of a step", "%"),
    )
} | {"copy": ("Memory copy", "GB/s")}


@dataclass(frozen=True, slots=True)
class Method:
    """One row of a table."""

    name: str
    """As typed by the user."""
    kind: Literal["pretrained", "untrained", "baseline"]
    """Whether an encoder is pre-trained, left as initialized, or there is none."""
    objective: str = ""
    """The pretext task of a pre-trained one."""
    recipe: str | None = None
    """Whose switches of the objective it takes; encoder, schema and training are the scale's."""

    def recipe_for(self, domain: str) -> str:
        """Return the recipe for graphs of ``domain``."""
        return self.recipe or OBJECTIVES[self.objective].recipe_for(domain)


def method_named(name: str) -> Method:
    """Return a method: one without pre-training, ``graphlog-<recipe>``, or any objective.

    Raises:
        ConfigError: If there is none of that name; the nearest is suggested.

    Example:
        >>> method_named("graphlog-paper").recipe
        'paper'
    """
    known = {UNTRAINED: Method(UNTRAINED, "untrained")}
    known |= {baseline: Method(baseline, "baseline") for baseline in BASELINES}
    known |= {task: Method(task, "pretrained", task) for task in OBJECTIVES if task != REFERENCE}
    for recipe in OBJECTIVES[REFERENCE].RECIPES:  # the recipe of the paper's losses has its name
        own = REFERENCE if recipe == REFERENCE else f"{REFERENCE}-{recipe}"
        known[own] = Method(own, "pretrained", REFERENCE, recipe)
    check_name("method", name, known)
    return known[name]


def loss_weights(losses: str) -> dict[str, float]:
    """Return the overrides that leave GraphLoG with the named losses of the paper alone.

    Example:
        >>> sorted(name for name in loss_weights("graph+global"))
        ['objective.attribute_weight', 'objective.descriptor_weight', 'objective.subgraph_weight']
    """
    absent = [loss for loss in LOSSES if loss not in losses.split("+")]
    return {f"objective.{loss}_weight": 0.0 for loss in ("attribute", "descriptor", *absent)}


def in_order(names: Iterable[str], labels: Mapping[str, str]) -> list[str]:
    """Return known names in the order of ``labels``, then the others sorted.

    Example:
        >>> in_order({"zzz", "gin", "gcn"}, BACKBONE_LABELS)
        ['gcn', 'gin', 'zzz']
    """
    unique = set(names)
    return [name for name in labels if name in unique] + sorted(unique - labels.keys())


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
_CENTER = {"readout": "mean+center"}
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
