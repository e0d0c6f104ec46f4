"""Pretext tasks: one file is one method; the table below is what ``--objective`` chooses from."""

from collections import UserDict
from importlib import import_module
from typing import Any


class _Objectives(UserDict[str, Any]):
    """Classes by name; ``module:class`` is imported at its first look-up: help needs no torch."""

    def __getitem__(self, name: str) -> Any:
        if isinstance(kind := self.data[name], str):
            module, _, class_name = kind.partition(":")
            kind = self.data[name] = getattr(import_module(module), class_name)
        return kind


OBJECTIVES = _Objectives(
    {
        "graphlog": "graphlog.objectives.graphlog:GraphLoG",
        "attrmasking": "graphlog.objectives.attr_masking:AttrMasking",
        "contextpred": "graphlog.objectives.context_pred:ContextPred",
        "descriptorpred": "graphlog.objectives.descriptor_pred:DescriptorPred",
        "edgepred": "graphlog.objectives.edge_pred:EdgePred",
        "graphpartition": "graphlog.objectives.graph_partition:GraphPartition",
        "graphcl": "graphlog.objectives.graphcl:GraphCL",
        "graphmae": "graphlog.objectives.graphmae:GraphMAE",
        "infograph": "graphlog.objectives.infograph:InfoGraph",
        "infomax": "graphlog.objectives.infomax:Infomax",
    }
)
