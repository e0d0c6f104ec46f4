"""The compared methods by name, and how methods, data sets, rules and scores are printed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from graphlog.errors import unknown_name
from graphlog.objectives import OBJECTIVES

REFERENCE, MAIN_BACKBONE = "graphlog", "gin"
UNTRAINED, FOREST, LINEAR = "untrained", "ecfp-rf", "ecfp-lr"
BASELINES = (FOREST, LINEAR)
"""Rows without an encoder; on proteins, statistics of the ego-network replace the fingerprints."""
COMPARED = (
    UNTRAINED,
    "edgepred",
    "infograph",
    "attrmasking",
    "contextpred",
    "graphpartition",
    "graphcl",
    REFERENCE,
)
"""The rows of the paper's Tables 1 and 2, in its order."""
ACROSS_BACKBONES = (UNTRAINED, "edgepred", "attrmasking", "contextpred", "graphcl", REFERENCE)
"""The rows of Table 3."""
FOUR_BACKBONES = ("gcn", "graphsage", "gat", "gin")
LOSSES = {"subgraph": "L_sub", "graph": "L_graph", "global": "L_global"}
"""The three losses of GraphLoG and how Table 4 heads them."""
ABLATED = (
    "subgraph",
    "graph",
    "global",
    "subgraph+graph",
    "subgraph+global",
    "graph+global",
    "subgraph+graph+global",
)
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
DATASET_LABELS: Mapping[str, str] = {
    "bbbp": "BBBP",
    "tox21": "Tox21",
    "toxcast": "ToxCast",
    "sider": "SIDER",
    "clintox": "ClinTox",
    "muv": "MUV",
    "hiv": "HIV",
    "bace": "BACE",
}
BACKBONE_LABELS: Mapping[str, str] = {
    "gcn": "GCN",
    "graphsage": "GraphSAGE",
    "gat": "GAT",
    "gin": "GIN",
}
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
    methods = [Method(UNTRAINED, "untrained"), *(Method(name, "baseline") for name in BASELINES)]
    methods += [Method(name, "pretrained", name) for name in OBJECTIVES if name != REFERENCE]
    methods += [
        Method(_name_of(recipe), "pretrained", REFERENCE, recipe)
        for recipe in OBJECTIVES[REFERENCE].RECIPES
    ]
    known = {method.name: method for method in methods}
    if name not in known:
        raise unknown_name("method", name, known)
    return known[name]


def _name_of(recipe: str) -> str:
    """Return how a recipe of GraphLoG is called: the paper's losses by the method's own name."""
    return REFERENCE if recipe == REFERENCE else f"{REFERENCE}-{recipe}"


def loss_weights(losses: str) -> dict[str, float]:
    """Return the overrides that leave GraphLoG with the named losses of the paper alone.

    Example:
        >>> sorted(name for name in loss_weights("graph+global"))
        ['objective.attribute_weight', 'objective.descriptor_weight', 'objective.subgraph_weight']
    """
    absent = [loss for loss in LOSSES if loss not in losses.split("+")]
    return {f"objective.{loss}_weight": 0.0 for loss in ("attribute", "descriptor", *absent)}


def label(name: str, labels: Mapping[str, str]) -> str:
    """Return how a name is printed; an unknown one as it is."""
    return labels.get(name, name)


def in_order(names: Iterable[str], labels: Mapping[str, str]) -> list[str]:
    """Return known names in the order of ``labels``, then the others sorted.

    Example:
        >>> in_order({"zzz", "gin", "gcn"}, BACKBONE_LABELS)
        ['gcn', 'gin', 'zzz']
    """
    unique = set(names)
    return [name for name in labels if name in unique] + sorted(unique - labels.keys())
