"""The methods GraphLoG is compared with, one a file, each with the settings of its source."""

from graphlog.objectives.baselines.attr_masking import AttrMasking
from graphlog.objectives.baselines.context_pred import ContextPred
from graphlog.objectives.baselines.descriptor_pred import DescriptorPred
from graphlog.objectives.baselines.edge_pred import EdgePred
from graphlog.objectives.baselines.graph_partition import GraphPartition
from graphlog.objectives.baselines.graphcl import GraphCL
from graphlog.objectives.baselines.graphmae import GraphMAE
from graphlog.objectives.baselines.infograph import InfoGraph
from graphlog.objectives.baselines.infomax import Infomax

__all__ = [
    "AttrMasking",
    "ContextPred",
    "DescriptorPred",
    "EdgePred",
    "GraphCL",
    "GraphMAE",
    "GraphPartition",
    "InfoGraph",
    "Infomax",
]
