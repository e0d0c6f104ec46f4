"""Scores of the two halves of a test fold of proteins, which the family reports one of."""

from collections.abc import Sequence

import numpy as np

from graphlog.downstream.metrics import evaluate
from graphlog.downstream.tasks import LabelledGraphs


def half_scores(
    data: LabelledGraphs, predictions: Sequence[np.ndarray]
) -> dict[str, dict[str, list[float]]]:
    """Return, for each half of the test fold and each metric, one score a seed; nothing where the graphs are no proteins.

    Args:
        data: What is judged on.
        predictions: Of the whole test fold, one array a seed.
    """
    labels = data.labels[data.split.test]
    return {
        name: _by_metric([evaluate(labels[rows], p[rows], data.task).scores for p in predictions])
        for name, rows in data.halves.items()
    }


def _by_metric(scores: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    return {metric: [s[metric] for s in scores] for metric in scores[0]}
