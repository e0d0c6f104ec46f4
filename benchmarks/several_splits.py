r"""What representations of molecules are worth over several random scaffold splits.

    python benchmarks/several_splits.py probe --models mol=graphlog-mol ecfp4 descriptors \
        untrained=random-0 --calibration runs/stores/near
    python benchmarks/several_splits.py report
    python benchmarks/several_splits.py seen --collection runs/stores/near

``probe`` draws ``--splits`` random scaffold splits of each data set: whole groups of molecules with
one scaffold, in random order, fill the folds. A linear model is fitted to each training fold for
each representation, its penalty chosen by the validation fold, and scored on the test fold, as are
the means of the logits (regressions: of the predictions) of all combinations of three. Models are
those of ``selection.py``. Finished data sets are kept in ``--work``/rows.jsonl; ``report`` writes
several-splits.csv.gz and .md to ``--results``: means over data sets of each split, then mean and
standard deviation over splits, and of the differences, split by split, with intervals. Scores of
several ``--work``, one a seed of pre-training, are averaged. ``seen`` prints which share of
the test molecules is in ``--collection``, a store, by SMILES: mean, least and greatest over splits.
"""

import argparse
import json
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from few_labels import CLASSIFICATION, PLUS, Row, spread
from graphlog.data.split import Split
from graphlog.data.store import open_store
from graphlog.domains import schema_named
from graphlog.downstream.linear import GRID, linear_path, standardize
from graphlog.downstream.metrics import paired_interval
from graphlog.downstream.tasks import LabeledGraphs, open_labeled
from selection import REGRESSION, features_of, mean_prediction, rows_of, score_of, write_rows

QUESTIONS = (
    ("mol", "untrained"),
    ("mol", "ecfp4"),
    ("mol", "descriptors"),
    ("mol + ecfp4 + descriptors", "ecfp4 + descriptors"),
)
"""Fixed before any of these splits was scored."""
TEST_TO_TRAIN = 0.1 / 0.8
"""Sizes of the folds."""


def probe(options: argparse.Namespace) -> None:
    """Score every representation, and means of up to three, on every split."""
    (work,) = options.work
    done = {r["dataset"] for r in rows_of(work)}
    work.mkdir(parents=True, exist_ok=True)
    for dataset in (d for d in options.datasets if d not in done):
        start = time.perf_counter()
        schema = schema_named(options.schema)
        data = open_labeled(dataset, schema, split="random-scaffold", workers=1)
        pairs = (spec.partition("=")[::2] for spec in options.models)
        features = {name: features_of(name, place, data, options) for name, place in pairs}
        rows: list[Row] = []
        for seed in range(options.splits):
            rows += scored(dataset, data, features, seed)
        with (work / "rows.jsonl").open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        print(dataset, len(rows), f"{time.perf_counter() - start:.0f} s", flush=True)


def folds_of(data: LabeledGraphs, seed: int) -> Split:
    """Return the folds of one split."""
    draw = data.draw
    return data.split if draw is None else draw(data.store, data.labels, seed)[0]


def scored(dataset: str, data: LabeledGraphs, features: dict[str, Any], seed: int) -> list[Row]:
    """Return the rows of one split."""
    folds = folds_of(data, seed)
    valid, test = data.labels[folds.valid], data.labels[folds.test]
    chosen: dict[str, tuple[float, np.ndarray]] = {}
    for name, values in features.items():
        dense = isinstance(values, np.ndarray)  # bits are fitted as they are
        x = standardize(values, folds.train) if dense else values
        path = linear_path(x, data.labels, folds.train, data.task, GRID, 1)
        best = max(path, key=lambda c: score_of(dataset, valid, path[c][folds.valid]))
        chosen[name] = best, path[best][folds.test]
    rows: list[Row] = []
    for number in (1, 2, 3):
        for names in combinations(chosen, number):
            predicted = mean_prediction(dataset, [chosen[name][1] for name in names])
            row = {"dataset": dataset, "split": seed, "model": PLUS.join(names)}
            c = chosen[names[0]][0] if number == 1 else None
            rows.append({**row, "c": c, "score": round(score_of(dataset, test, predicted), 3)})
    return rows


def seen(options: argparse.Namespace) -> None:
    """Print how many test molecules a collection holds."""
    collection = set(open_store(options.collection).texts())
    for dataset in options.datasets:
        schema = schema_named(options.schema)
        data = open_labeled(dataset, schema, split="random-scaffold", workers=1)
        inside = np.array([text in collection for text in data.store.texts()])
        splits = [folds_of(data, seed) for seed in range(options.splits)]
        shares = [100 * inside[folds.test].mean() for folds in splits]
        print(f"{dataset}: {np.mean(shares):.0f} % ({min(shares):.0f} to {max(shares):.0f})")


def report(options: argparse.Namespace) -> None:
    """Write raw rows and tables."""
    rows: list[Row] = [
        {"run": k, **row} for k, work in enumerate(options.work) for row in rows_of(work)
    ]
    lines: list[str] = []
    for metric, sets in (("ROC-AUC", CLASSIFICATION), ("R2", REGRESSION)):
        scores: dict[tuple[str, str], np.ndarray] = {}
        for dataset in sets:
            for model in dict.fromkeys(r["model"] for r in rows):
                found = [r for r in rows if (r["dataset"], r["model"]) == (dataset, model)]
                splits = sorted({r["split"] for r in found})
                each = [[r["score"] for r in found if r["split"] == k] for k in splits]
                scores[model, dataset] = np.mean(each, axis=1)
        models = list(dict.fromkeys(r["model"] for r in rows))
        for model in models:
            scores[model, "mean"] = np.mean([scores[model, d] for d in sets], axis=0)
        columns = [*sets, "mean"]
        lines += ["", f"### {metric} (%)", "", f"| | {' | '.join(columns)} |"]
        lines += ["|" + "---|" * (len(columns) + 1)]
        lines += [row_of(model, [scores[model, d] for d in columns]) for model in models]
        for ours, theirs in QUESTIONS:
            differences = [scores[ours, d] - scores[theirs, d] for d in columns]
            lines.append(row_of(f"({ours}) - ({theirs})", differences, "+"))
            lines.append(row_of_intervals(differences))
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "several-splits.md").write_text("\n".join(lines).lstrip() + "\n")
    write_rows(options.results / "several-splits.csv.gz", rows)


def row_of(name: str, values: list[np.ndarray], sign: str = "") -> str:
    """Return a row of a table: means and standard deviations over splits."""
    cells = [spread(v, sign) for v in values]
    return f"| {name} | {' | '.join(cells)} |"


def row_of_intervals(differences: list[np.ndarray]) -> str:
    """Return a row of 95 % intervals that allow for the molecules that splits share."""
    cells: list[str] = []
    for values in differences:
        mean, half = paired_interval(values, TEST_TO_TRAIN)
        cells.append(f"{mean - half:+.1f} to {mean + half:+.1f}")
    return f"| 95 % interval | {' | '.join(cells)} |"


def main() -> None:
    """Parse the stage and its options, and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=("probe", "report", "seen"))
    parser.add_argument("--models", nargs="+", default=[], metavar="NAME=PLACE")
    parser.add_argument("--datasets", nargs="+", default=[*REGRESSION, *CLASSIFICATION])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--schema", default="molecule-cip")
    parser.add_argument("--calibration", type=Path, default=Path("runs/stores/druglike"))
    parser.add_argument("--work", nargs="+", type=Path, default=[Path("runs/several-splits")])
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results/selection"))
    parser.add_argument("--collection", type=Path, default=Path("runs/stores/near"))
    options = parser.parse_args()
    {"probe": probe, "report": report, "seen": seen}[options.stage](options)


if __name__ == "__main__":
    main()
