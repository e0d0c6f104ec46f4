"""Pretext tasks, one method per module; ``--objective`` chooses from :data:`OBJECTIVES`."""

from typing import TYPE_CHECKING, Any

from graphlog.plugins import Registry

if TYPE_CHECKING:
    from graphlog.objectives.base import Objective


def _expected(name: str, part: object) -> str | None:
    from graphlog.objectives.base import Objective

    is_objective = isinstance(part, type) and issubclass(part, Objective)
    return None if is_objective else "a class derived from graphlog.objectives.base.Objective"


OBJECTIVES: "Registry[type[Objective[Any]]]" = Registry(
    "objective",
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
    },
    _expected,
)
