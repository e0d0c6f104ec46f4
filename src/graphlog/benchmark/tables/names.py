"""Names and orders of rows and columns, as the paper has them and as they are printed."""

from collections.abc import Iterable, Mapping

MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"

METHODS: Mapping[str, str] = {
    "untrained": "Untrained",
    "edgepred": "EdgePred",
    "infograph": "InfoGraph",
    "attrmasking": "AttrMasking",
    "contextpred": "ContextPred",
    "graphpartition": "GraphPartition",
    "graphcl": "GraphCL",
    "graphlog": "GraphLoG",
    "graphlog-paper": "GraphLoG (paper recipe)",
    "graphlog-released": "GraphLoG (released recipe)",
    "graphlog-plus": "GraphLoG (plus recipe)",
    "infomax": "Infomax",
    "graphmae": "GraphMAE",
    "descriptorpred": "DescriptorPred",
    "ecfp-rf": "ECFP4 + random forest",
    "ecfp-lr": "ECFP4 + logistic regression",
}
"""Methods in the order of their rows: the paper's, then those outside it, then fingerprints."""

DATASETS: Mapping[str, str] = {
    "bbbp": "BBBP",
    "tox21": "Tox21",
    "toxcast": "ToxCast",
    "sider": "SIDER",
    "clintox": "ClinTox",
    "muv": "MUV",
    "hiv": "HIV",
    "bace": "BACE",
}
BACKBONES: Mapping[str, str] = {"gcn": "GCN", "graphsage": "GraphSAGE", "gat": "GAT", "gin": "GIN"}
RULES: Mapping[str, str] = {
    "last": "last epoch",
    "best-valid": "epoch of the best validation score",
    "fixed-C": "fixed C",
    "validated-C": "C chosen on the validation fold",
}
STAGES: Mapping[str, str] = {"finetune": "fine-tuned", "probe": "linear probe of frozen embeddings"}
LOSSES: Mapping[str, str] = {"subgraph": "L_sub", "graph": "L_graph", "global": "L_global"}
"""The three losses of GraphLoG, as Table 4 heads its columns."""
PLACES: Mapping[str, str] = {"molecule": "molecules", "protein": "biology"}
"""Each domain and what its suites are called."""
METRICS: Mapping[str, str] = {
    "roc_auc": "ROC-AUC",
    "average_precision": "average precision",
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R²",
}
VARIED: Mapping[str, str] = {"depth": "depth of the prototypes", "batch_size": "batch size"}


def in_order(found: Iterable[str], known: Mapping[str, str]) -> list[str]:
    """Return the names found: the known ones in their order, the others sorted behind.

    Example:
        >>> in_order({"zzz", "gin", "gcn"}, BACKBONES)
        ['gcn', 'gin', 'zzz']
    """
    names = set(found)
    return [name for name in known if name in names] + sorted(names - known.keys())


def label(name: str, known: Mapping[str, str]) -> str:
    """Return how a name is printed; an unknown one as it is."""
    return known.get(name, name)
