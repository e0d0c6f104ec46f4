"""Graphs that occur more than once in labeled data, which makes scores too good."""

import numpy as np

from graphlog.domains import domain_of
from graphlog.downstream.subtrees import same_structure
from graphlog.downstream.tasks import LabeledGraphs


def repeat_notes(data: LabeledGraphs) -> list[str]:
    """Return what a reader of scores must know about graphs that occur more than once.

    Only graphs all of whose attributes are categories are compared.
    """
    schema = data.store.schema
    if not all(column.is_categorical for column in (*schema.node, *schema.edge)):
        return []
    records, kind = domain_of(schema).records, same_structure(data.store)
    has_label = np.flatnonzero(np.isfinite(data.labels).any(axis=1))
    train, test = (np.intersect1d(f, has_label) for f in (data.split.train, data.split.test))
    known = np.isin(kind[test], kind[train]).sum()
    notes: list[str] = []
    if known:
        notes.append(
            f"{known:,} of {len(test):,} {records} of the test fold have the structure of one of "
            "the train fold: scores are too good for new ones; remove repeated rows"
        )
    different = _with_different_labels(kind, data.labels)
    if different:
        notes.append(
            f"{different:,} structures occur more than once with different labels; check these rows"
        )
    return notes


def _with_different_labels(kind: np.ndarray, labels: np.ndarray) -> int:
    """Return how many structures have two labels of one target that differ."""
    differs = np.zeros(int(kind.max(initial=-1)) + 1, dtype=bool)
    for column in labels.T:
        known = ~np.isnan(column)
        lowest, highest = np.full(len(differs), np.inf), np.full(len(differs), -np.inf)
        np.minimum.at(lowest, kind[known], column[known])
        np.maximum.at(highest, kind[known], column[known])
        differs |= highest > lowest
    return int(differs.sum())
