"""Several splits of the same graphs: their folds, one report of all, and pooled predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from jaxtyping import Float

from graphlog.data.split import Split
from graphlog.downstream.metrics import means_of_known
from graphlog.downstream.probe_run import Held
from graphlog.downstream.report import Report, ScoreRow
from graphlog.downstream.tasks import LabeledGraphs
from graphlog.errors import ConfigError


def in_other_folds(data: LabeledGraphs, seeds: Sequence[int]) -> list[LabeledGraphs]:
    """Return the same graphs in the folds of each seed.

    Raises:
        ConfigError: If there are fewer than two seeds, or the folds do not depend on them.
    """
    if len(seeds) < 2 or len(set(seeds)) < len(seeds):
        raise ConfigError(
            f"several splits need two or more different `seeds`, found {list(seeds)}."
        )
    given = (data.split, data.split_name)
    drawn = [
        given if data.draw is None else data.draw(data.store, data.labels, int(s)) for s in seeds
    ]
    for (one, name), (other, _) in combinations(drawn, 2):
        if all(map(np.array_equal, one, other)):
            raise ConfigError(
                f"the {name} split is the same with every seed; choose one that shuffles with "
                "`split`, such as random-scaffold (molecules) or random."
            )
    return [replace(data, split=folds, split_name=name) for folds, name in drawn]


def report_of_splits(reports: Sequence[Report], seeds: Sequence[int]) -> Report:
    """Return one report of several splits of the same graphs, a value a split in every row.

    Args:
        reports: One a split, with the same rows.
        seeds: Of the splits.
    """
    first = reports[0]
    shared = [note for note in first.notes if all(note in r.notes for r in reports)]
    own = [
        f"seed {seed}: {note}"
        for seed, report in zip(seeds, reports, strict=True)
        for note in report.notes
        if note not in shared
    ]
    kind = first.split.removesuffix(f" (seed {seeds[0]})")
    sizes = {name: round(float(np.mean([r.sizes[name] for r in reports]))) for name in first.sizes}
    skipped = {
        fold: [
            task for task in first.tasks if any(task in r.skipped.get(fold, ()) for r in reports)
        ]
        for fold in {fold: None for report in reports for fold in report.skipped}
    }
    return replace(
        first,
        split=f"{kind} (seeds {', '.join(map(str, seeds))})",
        sizes=sizes,
        skipped=skipped,
        rows=tuple(_row_of_splits(rows) for rows in zip(*(r.rows for r in reports), strict=True)),
        notes=(*shared, *own),
        splits=len(reports),
    )


def _row_of_splits(rows: Sequence[ScoreRow]) -> ScoreRow:
    first = rows[0]
    per_task = means_of_known(np.array([list(row.per_task.values()) for row in rows], np.float64))
    return replace(
        first,
        test=_joined([row.test for row in rows]),
        valid=_joined([row.valid for row in rows]),
        per_task=dict(zip(first.per_task, per_task.tolist(), strict=True)),
        halves={half: _joined([row.halves[half] for row in rows]) for half in first.halves},
        detail={key: [row.detail[key] for row in rows] for key in first.detail},
    )


def _joined(scores: Sequence[Mapping[str, list[float]]]) -> dict[str, list[float]]:
    return {metric: [v for s in scores for v in s[metric]] for metric in scores[0]}


def pooled(splits: Sequence[LabeledGraphs], values: Sequence[Float[np.ndarray, "H T"]]) -> Held:
    """Return the validation and the test folds of several splits as two folds.

    Args:
        splits: The same graphs in different folds.
        values: Of each split, predictions of the validation and then of the test fold.
    """
    first = splits[0]
    folds = [(s.split.valid, s.split.test) for s in splits]
    graphs = [np.concatenate(fold) for fold in zip(*folds, strict=True)]
    parts = [np.split(v, [len(valid)]) for v, (valid, _) in zip(values, folds, strict=True)]
    joined = np.concatenate([np.concatenate(part) for part in zip(*parts, strict=True)])
    # a target may have one class in the training fold of some splits
    labels = np.where(np.isnan(joined), np.nan, first.labels[np.concatenate(graphs)])
    rows = np.arange(len(joined))
    split = Split(rows[:0], rows[: len(graphs[0])], rows[len(graphs[0]) :])
    return Held(replace(first, labels=labels, split=split), joined)
