"""Pretext tasks: one file is one method; the table below is what ``--objective`` chooses from."""

from typing import Any

from graphlog.objectives.base import LossTerms, Objective, Phase
from graphlog.objectives.baselines import (
    AttrMasking,
    ContextPred,
    DescriptorPred,
    EdgePred,
    GraphCL,
    GraphMAE,
    GraphPartition,
    InfoGraph,
    Infomax,
)
from graphlog.objectives.graphlog import GraphLoG

OBJECTIVES: dict[str, type[Objective[Any]]] = {
    "graphlog": GraphLoG,
    "attrmasking": AttrMasking,
    "contextpred": ContextPred,
    "descriptorpred": DescriptorPred,
    "edgepred": EdgePred,
    "graphpartition": GraphPartition,
    "graphcl": GraphCL,
    "graphmae": GraphMAE,
    "infograph": InfoGraph,
    "infomax": Infomax,
}

__all__ = ["OBJECTIVES", "GraphLoG", "LossTerms", "Objective", "Phase"]
