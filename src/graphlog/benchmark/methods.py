"""The compared methods by name, and how methods, data sets, rules and scores are printed."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from graphlog.errors import unknown_name
from graphlog.objectives import OBJECTIVES

REFERENCE, MAIN_BACKBONE = "graphlog", "gin"
UNTRAINED, FOREST, LINEAR = "untrained", "ecfp-rf", "ecfp-lr"
BASELINES = (FOREST, LINEAR)
"""Rows without an encoder; on proteins, statistics of the ego-network replace the fingerprints."""
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
    "graphlog-plus": "GraphLoG (plus recipe)",
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
    if name not in known:
        raise unknown_name("method", name, known)
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
