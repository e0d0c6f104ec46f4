"""Pretext tasks: one file is one method; the table below is what ``--objective`` chooses from."""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphlog.objectives.base import Objective


class ObjectiveTable(MutableMapping[str, Any]):
    """Pretext tasks by name; each is loaded when it is looked up, so that help can name them all without loading torch."""

    def __init__(self, places: Mapping[str, str]) -> None:
        """Take the place of each task, ``module:class``."""
        self._known: dict[str, Any] = dict(places)

    def __getitem__(self, name: str) -> Any:
        """Return the class of a task."""
        if isinstance(found := self._known[name], str):
            module, _, kind = found.partition(":")
            self._known[name] = found = getattr(import_module(module), kind)
        return found

    def __setitem__(self, name: str, kind: Any) -> None:
        """Add a task: its class, or the place of it."""
        self._known[name] = kind

    def __delitem__(self, name: str) -> None:
        """Forget a task."""
        del self._known[name]

    def __contains__(self, name: object) -> bool:
        """Return whether there is a task of this name."""
        return name in self._known

    def __iter__(self) -> Iterator[str]:
        """Return the names."""
        return iter(self._known)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._known)


OBJECTIVES: "MutableMapping[str, type[Objective[Any]]]" = ObjectiveTable(
    {
        "graphlog": "graphlog.objectives.graphlog:GraphLoG",
        "attrmasking": "graphlog.objectives.baselines.attr_masking:AttrMasking",
        "contextpred": "graphlog.objectives.baselines.context_pred:ContextPred",
        "descriptorpred": "graphlog.objectives.baselines.descriptor_pred:DescriptorPred",
        "edgepred": "graphlog.objectives.baselines.edge_pred:EdgePred",
        "graphpartition": "graphlog.objectives.baselines.graph_partition:GraphPartition",
        "graphcl": "graphlog.objectives.baselines.graphcl:GraphCL",
        "graphmae": "graphlog.objectives.baselines.graphmae:GraphMAE",
        "infograph": "graphlog.objectives.baselines.infograph:InfoGraph",
        "infomax": "graphlog.objectives.baselines.infomax:Infomax",
    }
)
