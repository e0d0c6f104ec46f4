"""Choosing between encoders without the test sets, and opening those once.

    python benchmarks/selection.py valid --models mol=runs/mol-s0 untrained=random-0 ecfp4
    python benchmarks/selection.py cv    --models mol=runs/mol-s0 untrained=random-0 ecfp4
    python benchmarks/selection.py test  --models mol=runs/mol-s0 untrained=random-0 ecfp4
    python benchmarks/selection.py report --reference untrained --candidate mol mol1

``valid`` fits a linear model to each training fold and scores the validation fold: the way to
choose where molecules of the training folds were pre-trained on. ``cv`` is five-fold cross-
validation by scaffold inside train + validation: BBBP, BACE, SIDER, Tox21, the 40 targets of
ToxCast with the most labels there, 9,000 molecules of HIV, and R2 of the three regressions.
``test`` fits a linear model to the training fold of all eight classification sets and the three
regressions. A model is ``NAME=PATH``, ``NAME=random-SEED`` (untrained, with batch norm statistics
of --calibration), ``ecfp4``, ``descriptors`` (RDKit's), or, for ``test`` alone, ``ecfp4-forest``:
a random forest, which has no penalty, on the fingerprints. Finished cells are kept: each is a line
of ``--work``/rows.jsonl, with the predictions beside it. ``report`` writes rows.csv.gz and
tables.md to ``--results``: fused rows are the mean of the logits (regressions: of the predictions)
of the linear models that they name. Scores of several candidates, one a seed of pre-training, are
averaged. Intervals are 95 % of paired bootstraps over the molecules of
each test fold.
"""

import argparse
import csv
import gzip
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rdkit import Chem
from rdkit.Chem import Descriptors
from sklearn.model_selection import GroupKFold

import graphlog
from graphlog.data.store import open_store
from graphlog.domains import schema_named
from graphlog.domains.molecule import morgan_fingerprints, scaffold_groups
from graphlog.downstream.encoder import Encoder
from graphlog.downstream.linear import (
    FIXED_C,
    GRID,
    forest_predictions,
    linear_path,
    sparse_bits,
    standardize,
)
from graphlog.downstream.metrics import better, evaluate
from graphlog.downstream.models import random_encoder
from graphlog.downstream.tasks import LabeledGraphs, open_labeled

CLASSIFICATION = ("bbbp", "bace", "clintox", "sider", "tox21", "toxcast", "hiv", "muv")
REGRESSION = ("esol", "freesolv", "lipophilicity")
QUANTUM = ("qm7", "qm8")
"""Regressions of properties that depend on the shape in space; no part of the means."""
SETS = (*CLASSIFICATION, *REGRESSION, *QUANTUM)
SELECTED_ON = ("bbbp", "bace", "sider", "tox21", "toxcast", "hiv", *REGRESSION)
CV_TARGETS, CV_MOLECULES = 40, 9_000
MANY_TARGETS, SHORT_GRID = 100, (0.01, 0.1)
"""A set of hundreds of targets chooses between two values of C: each costs minutes."""
FINGERPRINTS, DESCRIPTORS, FOREST = "ecfp4", "descriptors", "ecfp4-forest"
FUSED = f"with {FINGERPRINTS}, fused"
Models = tuple[tuple[str, ...], ...]
"""One entry a seed: the models whose predictions are averaged."""


def encoder_of(place: str, schema: str, calibration: Path) -> Encoder:
    """Return the encoder at ``place``, or an untrained one calibrated on ``calibration``."""
    if place.startswith("random-"):
        seed = int(place.removeprefix("random-"))
        graphs = open_store(calibration)
        return random_encoder(schema=schema_named(schema), layer="jk", seed=seed, graphs=graphs)
    return graphlog.load(place)


def descriptors(smiles: list[str]) -> np.ndarray:
    """Return RDKit's descriptors but those that are not finite for every molecule, and ``SPS``."""
    names = [
        name
        for name, _ in Descriptors.descList
        if name not in ("Ipc", "SPS") and not name.startswith("BCUT2D_") and "Partial" not in name
    ]
    out = np.zeros((len(smiles), len(names)), dtype=np.float32)
    for row, text in enumerate(smiles):
        values = Descriptors.CalcMolDescriptors(Chem.MolFromSmiles(text), missingVal=0.0)
        out[row] = np.clip(np.nan_to_num([values[name] for name in names]), -1e6, 1e6)
    return out


def features_of(name: str, place: str, data: LabeledGraphs, options: argparse.Namespace) -> Any:
    """Return dense embeddings or descriptors, or sparse bits, of every molecule of ``data``."""
    if name == DESCRIPTORS:
        return descriptors(data.store.texts())
    if name == FINGERPRINTS:
        return sparse_bits(morgan_fingerprints(data.store.texts()))
    return encoder_of(place, options.schema, options.calibration).embed_store(data.store)


def cells(options: argparse.Namespace, stage: str, names: tuple[str, ...]) -> Iterator[Any]:
    """Yield what is not there yet: data set, its graphs, model, place."""
    done = {(r["stage"], r["dataset"], r["model"]) for r in rows_of(options.work)}
    for dataset in names:
        data = None
        for spec in options.models:
            name, _, place = spec.partition("=")
            if dataset in options.datasets and (stage, dataset, name) not in done:
                data = data or open_labeled(dataset, schema_named(options.schema), workers=1)
                yield dataset, data, name, place


def cv(options: argparse.Namespace) -> None:
    """Score every model by cross-validation inside train + validation."""
    for dataset, data, name, place in cells(options, "cv", SELECTED_ON):
        start = time.perf_counter()
        known = np.sort(np.concatenate([data.split.train, data.split.valid]))
        if len(known) > CV_MOLECULES and dataset == "hiv":
            known = np.sort(np.random.default_rng(0).permutation(known)[:CV_MOLECULES])
        if data.task == "regression":
            data = replace(data, metric="r2")
        if len(data.targets) > CV_TARGETS:
            counts = np.isfinite(data.labels[known]).sum(axis=0)
            kept = np.sort(np.argsort(-counts, kind="stable")[:CV_TARGETS])
            targets = tuple(data.targets[k] for k in kept)
            data = replace(data, labels=data.labels[:, kept], targets=targets)
        inside = replace(data, store=data.store.subset(known))
        features = features_of(name, place, inside, options)
        score = cross_validated(features, data, known, options.jobs)
        seconds = round(time.perf_counter() - start, 1)
        keep(options, "cv", dataset, name, data.metric, FIXED_C, "fixed", score, seconds)


def cross_validated(features: Any, data: LabeledGraphs, known: np.ndarray, jobs: int) -> float:
    """Return the mean score over five scaffold folds; ``features`` are those of ``known``."""
    groups, labels = scaffold_groups(data.store.texts(known)), data.labels[known]
    scores: list[float] = []
    for train, held in GroupKFold(5).split(features, groups=groups):
        dense = isinstance(features, np.ndarray)  # bits are fitted as they are
        scaled = standardize(features, train) if dense else features
        fitted = linear_path(scaled, labels, train, data.task, (FIXED_C,), jobs)[FIXED_C]
        scores.append(evaluate(labels[held], fitted[held], data.task).scores[data.metric])
    return float(np.mean(scores))


def valid(options: argparse.Namespace) -> None:
    """Fit every model to the training folds and score it on the validation folds."""
    for dataset, data, name, place in cells(options, "valid", SETS):
        start = time.perf_counter()
        known = np.concatenate([data.split.train, data.split.valid])
        train, held = np.arange(len(data.split.train)), np.arange(len(data.split.train), len(known))
        inside = replace(data, store=data.store.subset(known))
        features, labels = features_of(name, place, inside, options), data.labels[known]
        if isinstance(features, np.ndarray):
            features = standardize(features, train)
        path = linear_path(features, labels, train, data.task, GRID, options.jobs)
        metric = "r2" if data.task == "regression" else "roc_auc"
        seconds = round(time.perf_counter() - start, 1)
        for c, fitted in sorted(path.items()):
            score = evaluate(labels[held], fitted[held], data.task).scores[metric]
            rule = "fixed" if c == FIXED_C else "grid"
            keep(options, "valid", dataset, name, metric, c, rule, score, seconds)


def test(options: argparse.Namespace) -> None:
    """Fit every model to the training folds and keep its predictions for the other two."""
    for dataset, data, name, place in cells(options, "test", SETS):
        start = time.perf_counter()
        path = predictions_of(name, place, data, options)
        valid, held = data.split.valid, data.split.test
        metric = "r2" if data.task == "regression" else "roc_auc"
        judged = {
            c: evaluate(data.labels[valid], p[valid], data.task).scores[metric]
            for c, p in path.items()
        }
        best = min(path)
        for c in sorted(path):
            if better(metric, judged[c], judged[best]):
                best = c
        folder = options.work / "predictions"
        folder.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(
            folder / f"{dataset}-{name}.npz",
            fixed=path[FIXED_C][held],
            validated=path[best][held],
            labels=data.labels[held],
        )
        seconds = round(time.perf_counter() - start, 1)
        for rule, c in (("validated", best), ("fixed", FIXED_C)):
            scores = evaluate(data.labels[held], path[c][held], data.task).scores
            for key, value in scores.items():
                keep(options, "test", dataset, name, key, c, rule, value, seconds)


def predictions_of(
    name: str, place: str, data: LabeledGraphs, options: argparse.Namespace
) -> dict[float, np.ndarray]:
    """Return the predictions for every molecule at each C; those of a forest stand at the fixed."""
    train, jobs = data.split.train, options.jobs
    if name == FOREST:
        bits = morgan_fingerprints(data.store.texts())
        return {FIXED_C: forest_predictions(bits, data.labels, train, data.task, jobs=jobs)}
    features = features_of(name, place, data, options)
    if isinstance(features, np.ndarray):
        features = standardize(features, train)
    grid = SHORT_GRID if len(data.targets) > MANY_TARGETS else GRID
    return linear_path(features, data.labels, train, data.task, grid, jobs)


def keep(options: argparse.Namespace, *values: Any) -> None:
    """Append one row to the file of rows."""
    names = ("stage", "dataset", "model", "metric", "c", "rule", "score", "seconds")
    row = dict(zip(names, values, strict=True))
    options.work.mkdir(parents=True, exist_ok=True)
    with (options.work / "rows.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(row, flush=True)


def rows_of(work: Path) -> list[dict[str, Any]]:
    """Return the rows that are there."""
    path = work / "rows.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def fused(work: Path, dataset: str, names: tuple[str, ...], rule: str) -> tuple[Any, Any]:
    """Return labels and the mean logits (or values) of several models on a test fold."""
    kept = [np.load(work / "predictions" / f"{dataset}-{name}.npz") for name in names]
    return kept[0]["labels"], mean_prediction(dataset, [k[rule] for k in kept])


def mean_prediction(dataset: str, predictions: list[np.ndarray]) -> np.ndarray:
    """Return the mean of the logits, of regressions of the values."""
    parts = [p.astype(np.float64) for p in predictions]
    if dataset in CLASSIFICATION:
        parts = [np.log((p + 1e-9) / (1 - p + 1e-9)) for p in parts]
    return np.mean(parts, axis=0)


def score_of(dataset: str, labels: Any, predictions: Any) -> float:
    """Return ROC-AUC or R2 in points."""
    is_value = dataset not in CLASSIFICATION
    task, metric = ("regression", "r2") if is_value else ("classification", "roc_auc")
    return 100 * evaluate(labels, predictions, task).scores[metric]


def difference(
    work: Path, dataset: str, rule: str, ours: Models, theirs: Models, resamples: int
) -> np.ndarray:
    """Return bootstrapped differences of a test score, in points; the first is of all rows.

    Of several models on a side, one a seed, the scores are averaged.
    """
    both = [[fused(work, dataset, names, rule) for names in side] for side in (ours, theirs)]
    labels = both[0][0][0]
    draw = np.random.default_rng(0)
    found: list[float] = []
    for number in range(resamples + 1):
        rows = draw.integers(0, len(labels), len(labels)) if number else np.arange(len(labels))
        a, b = (mean_of([score_of(dataset, y[rows], p[rows]) for y, p in s]) for s in both)
        found.append(a - b)
    return np.array(found)


def combined(options: argparse.Namespace) -> dict[str, Models]:
    """Return what the rows beside those of single models are made of: one entry a seed."""
    seeds, reference = tuple(options.candidate), options.reference
    rows = {
        "mean of the seeds": tuple((name,) for name in seeds),
        FUSED: tuple((FINGERPRINTS, name) for name in seeds),
        f"with {DESCRIPTORS}, fused": tuple((DESCRIPTORS, name) for name in seeds),
        f"with {FINGERPRINTS} and {DESCRIPTORS}, fused": tuple(
            (FINGERPRINTS, DESCRIPTORS, name) for name in seeds
        ),
        f"{FINGERPRINTS} and {DESCRIPTORS}, fused": ((FINGERPRINTS, DESCRIPTORS),),
        f"{reference}, fused": ((FINGERPRINTS, reference),),
        "all seeds averaged": (seeds,),
        "all seeds averaged, fused": ((FINGERPRINTS, *seeds),),
    }
    only_of_several = ("mean of the seeds", "all seeds averaged", "all seeds averaged, fused")
    return {k: v for k, v in rows.items() if len(seeds) > 1 or k not in only_of_several}


def report(options: argparse.Namespace) -> None:
    """Write the raw rows, the tables, and the answers to the three questions."""
    rows, lines = rows_of(options.work), list[str]()
    names = list(dict.fromkeys(r["model"] for r in rows))
    stages = (("valid", "fixed"), ("cv", "fixed"), ("test", "fixed"), ("test", "validated"))
    for stage, rule in stages:
        scores: dict[tuple[str, str], float] = {}
        for r in rows:
            if (r["stage"], r["rule"]) == (stage, rule) and r["metric"] in {"roc_auc", "r2"}:
                scores[r["model"], r["dataset"]] = 100 * r["score"]
        also = combined(options) if stage == "test" else {}
        for label, models in also.items():
            for d in SETS:
                if all((name, d) in scores for part in models for name in part):
                    found = [score_of(d, *fused(options.work, d, m, rule)) for m in models]
                    scores[label, d] = mean_of(found)
        lines += ["", f"### {stage}, {rule} C", "", *table([*names, *also], scores)]
    ours, baseline = tuple((name,) for name in options.candidate), ((FINGERPRINTS,),)
    questions = (
        (f"pre-trained - {options.reference}", ours, ((options.reference,),)),
        (f"pre-trained - {FINGERPRINTS}", ours, baseline),
        (f"fused - {FINGERPRINTS}", combined(options)[FUSED], baseline),
    )
    lines += ["", "### Differences on the test folds", "", *answers(options, questions)]
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "tables.md").write_text("\n".join(lines).lstrip() + "\n")
    write_rows(options.results / "rows.csv.gz", rows)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows of the same keys as a compressed table."""
    with gzip.open(path, "wt", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def table(models: list[str], scores: dict[tuple[str, str], float]) -> list[str]:
    """Return a table, a row a model, with means over the sets that every model has."""
    found = {d for _, d in scores}
    sets = [d for d in CLASSIFICATION if d in found]
    others, quantum = ([d for d in kind if d in found] for kind in (REGRESSION, QUANTUM))
    columns = [*sets, "mean", "without ClinTox", *(f"{d} R2" for d in others), "mean R2"]
    columns += [f"{d} R2" for d in quantum]
    lines = [f"| model | {' | '.join(columns)} |", "|" + "---|" * (len(columns) + 1)]
    for model in models:
        got = {d: scores.get((model, d), float("nan")) for d in (*sets, *others, *quantum)}
        if not np.isfinite(list(got.values())).any():
            continue
        values = [got[d] for d in sets]
        values += [mean_of(values), mean_of([got[d] for d in sets if d != "clintox"])]
        values += [got[d] for d in others] + [mean_of([got[d] for d in others])]
        values += [got[d] for d in quantum]
        lines.append(f"| {model} | {' | '.join(f'{v:.1f}' for v in values)} |")
    return lines


def mean_of(values: list[float]) -> float:
    """Return the mean, or NaN of nothing."""
    return float(np.mean(values)) if values else float("nan")


def answers(options: argparse.Namespace, questions: Any) -> list[str]:
    """Return a row for each difference, rule and mean over sets."""
    work = options.work
    lines = ["| difference | C | over | points | 95 % interval |", "|---|---|---|---|---|"]
    for label, ours, theirs in questions:
        for rule in ("fixed", "validated"):
            draws: dict[str, np.ndarray] = {}
            for d in SETS:
                used = {name for part in (*ours, *theirs) for name in part}
                files = [work / "predictions" / f"{d}-{name}.npz" for name in used]
                if all(f.exists() for f in files):
                    draws[d] = difference(work, d, rule, ours, theirs, options.resamples)
            sets = [d for d in CLASSIFICATION if d in draws]
            groups = {
                f"mean of {len(sets)} sets": sets,
                "without ClinTox": [d for d in sets if d != "clintox"],
                "mean R2": [d for d in REGRESSION if d in draws],
            }
            for over, members in groups.items():
                if members:
                    mean = np.mean([draws[d] for d in members], axis=0)
                    low, high = np.quantile(mean[1:], (0.025, 0.975))
                    interval = f"{low:+.1f} to {high:+.1f}"
                    lines.append(f"| {label} | {rule} | {over} | {mean[0]:+.1f} | {interval} |")
    return lines


def main() -> None:
    """Parse the stage and its options, and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=("valid", "cv", "test", "report"))
    parser.add_argument("--models", nargs="+", default=[], metavar="NAME=PLACE")
    parser.add_argument("--datasets", nargs="+", default=[*CLASSIFICATION, *REGRESSION])
    parser.add_argument("--schema", default="molecule-cip")
    parser.add_argument("--calibration", type=Path, default=Path("runs/stores/druglike"))
    parser.add_argument("--candidate", nargs="+", default=["mol"], help="one model a seed")
    parser.add_argument("--reference", default="untrained")
    parser.add_argument("--resamples", type=int, default=300, help="bootstraps a difference")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path("runs/selection"))
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results/selection"))
    options = parser.parse_args()
    {"valid": valid, "cv": cv, "test": test, "report": report}[options.stage](options)


if __name__ == "__main__":
    main()
