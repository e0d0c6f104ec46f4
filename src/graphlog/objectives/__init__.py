"""Pretext tasks: one file is one method; the table below is what ``--objective`` chooses from."""

from typing import Any

from graphlog.objectives.base import LossTerms, Objective, Phase
from graphlog.objectives.graphlog import GraphLoG

OBJECTIVES: dict[str, type[Objective[Any]]] = {
    "graphlog": GraphLoG,
}

__all__ = ["OBJECTIVES", "GraphLoG", "LossTerms", "Objective", "Phase"]
