r"""What representations of molecules are worth: linear models on frozen features (docs/results.md).

    python benchmarks/frozen.py test --models mol=graphlog-mol ecfp4 descriptors \
        untrained0=random-0 untrained1=random-1 --collection runs/stores/near
    python benchmarks/frozen.py rows
    python benchmarks/frozen.py compare mol untrained0 --of test

Protocols: ``valid`` fits the training fold and scores the validation fold at each C, to choose
between models; ``test`` scores the test fold of the scaffold split, at C = 0.1 and at the C that
the validation fold chooses; ``splits`` does so on ten random scaffold splits; ``crossed`` scores
five scaffold folds of training and validation fold at each C; ``labels`` fits 50 to 800 random
molecules of the training fold, C chosen by cross-validation among them, five draws; ``finetune``
trains encoder and head on 100 and 400 of these, an untrained one from scratch.

A model is ``NAME=PATH``, ``NAME=random-SEED`` (untrained), ``ecfp4`` or ``descriptors``. Batch norm
of untrained networks takes its statistics from ``--collection``, the store that the others were
pre-trained on. Predictions are kept in ``--work``, a file a protocol, data set and model, and are
not computed again. ``rows`` scores them, and means of the logits (regressions: of the predictions)
of up to three representations, into rows.csv.gz; it refuses encoders calibrated on different
stores. ``compare`` prints a difference with a 95 % interval of paired bootstraps over molecules.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rdkit import Chem
from rdkit.Chem import Descriptors
from sklearn.model_selection import GroupKFold, KFold

import graphlog
from graphlog.data.split import Split, group_numbers
from graphlog.data.store import open_store
from graphlog.domains import domain_of, schema_named
from graphlog.domains.molecule import morgan_fingerprints
from graphlog.downstream.finetune import FinetuneConfig, finetune
from graphlog.downstream.linear import FIXED_C, GRID, fuse, linear_path, sparse_bits, standardize
from graphlog.downstream.metrics import evaluate
from graphlog.downstream.pretrained import random_encoder
from graphlog.downstream.tasks import LabeledGraphs, open_labeled

CLASSIFICATION = ("bbbp", "bace", "clintox", "sider", "tox21", "toxcast", "hiv", "muv")
REGRESSION = ("esol", "freesolv", "lipophilicity")
QUANTUM = ("qm7", "qm8")
"""Regressions of properties that depend on the shape in space; no part of the means."""
MANY_TARGETS, SHORT_GRID = 100, (0.01, 0.1)
"""A set of hundreds of targets chooses between two values of C: each costs minutes."""
SIZES, SIZES_FINETUNED, DRAWS, SPLITS = (50, 100, 200, 400, 800), (100, 400), 5, 10
FEW_GRID = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)
"""Few labels want penalties at both ends, by the kind of features."""
FEATURES = ("ecfp4", "descriptors")


class Fit(NamedTuple):
    """One fit of one model: what it is called, its C and its predictions for the held rows."""

    case: str
    """Rule, split or number of labels and draw."""
    c: float
    """NaN of a fine-tuned one."""
    held: np.ndarray
    predicted: np.ndarray


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


def encoder_at(place: str, schema: str, collection: Path) -> Any:
    """Return the encoder at ``place``, or an untrained one calibrated on the collection."""
    if not place.startswith("random-"):
        return graphlog.load(place)
    seed, graphs = int(place.removeprefix("random-")), open_store(collection)
    return random_encoder(schema=schema_named(schema), layer="jk", seed=seed, graphs=graphs)


def features_of(
    name: str, place: str, data: LabeledGraphs, options: argparse.Namespace
) -> tuple[Any, str]:
    """Return embeddings, descriptors or sparse bits, and the store that batch norm is of.

    To be fine-tuned, the encoder itself is returned.
    """
    if name == "descriptors":
        return descriptors(data.store.texts()), ""
    if name == "ecfp4":
        return sparse_bits(morgan_fingerprints(data.store.texts())), ""
    encoder = encoder_at(place, options.schema, options.collection)
    if encoder.schema.name != data.store.schema.name:
        raise SystemExit(f"{name} reads the schema {encoder.schema.name}; name it with --schema.")
    known = encoder.info.get("data_digest") or open_store(options.collection).digest
    if options.protocol == "finetune":
        return encoder, known
    return encoder.embed_store(data.store, options.layer), known


def path_of(
    features: Any, labels: np.ndarray, train: np.ndarray, task: Any, grid: Sequence[float]
) -> dict[float, np.ndarray]:
    """Return the predictions for all rows at each C; a target that has one class is a constant."""
    scaled = standardize(features, train) if isinstance(features, np.ndarray) else features
    path = linear_path(scaled, labels, train, task, tuple(grid))
    constant = np.nan_to_num(np.nanmean(labels[train], axis=0), nan=0.5)
    return {c: np.where(np.isnan(p), constant, p) for c, p in path.items()}


def fits(protocol: str, features: Any, data: LabeledGraphs) -> Iterator[Fit]:
    """Yield the fits of one representation."""
    labels, task = data.labels, data.task
    if protocol == "finetune":
        for draw, order in enumerate(orders(data)[:3]):  # each draw is a seed
            for size in (n for n in SIZES_FINETUNED if n <= len(order)):
                own = replace(data, split=Split(order[:size], data.split.valid, data.split.test))
                how = {"config": FinetuneConfig(precision="bf16"), "seeds": (draw,)}
                fitted = finetune(features, own, baselines=(), **how)
                held = data.split.test
                predicted = fitted.predict(data.store.subset(held))
                yield Fit(f"{size} {draw}", np.nan, held, predicted)
        return
    grid = SHORT_GRID if len(data.targets) > MANY_TARGETS else GRID
    if protocol == "labels":
        for draw, order in enumerate(orders(data)):
            for size in (n for n in SIZES if n <= len(order)):
                known, held = order[:size], data.split.test
                c = cross_validated_c(features[known], labels[known], task, draw)
                both = np.concatenate([known, held])
                path = path_of(features[both], labels[both], np.arange(size), task, (c,))
                yield Fit(f"{size} {draw}", c, held, path[c][size:])
        return
    if protocol == "crossed":
        known = np.concatenate([data.split.train, data.split.valid])
        groups = group_numbers(domain_of(data.store.schema).groups(data.store.subset(known)))
        for fold, (train, held) in enumerate(GroupKFold(5).split(known, groups=groups)):
            path = path_of(features, labels, known[train], task, grid)
            for c, predicted in path.items():
                yield Fit(f"C = {c}, fold {fold}", c, known[held], predicted[known[held]])
        return
    for seed in range(SPLITS if protocol == "splits" else 1):
        folds = data.draw(data.store, labels, seed)[0] if data.draw else data.split
        path = path_of(features, labels, folds.train, task, grid)
        if protocol == "valid":
            for c, predicted in path.items():
                yield Fit(f"C = {c}", c, folds.valid, predicted[folds.valid])
            return
        best = max(path, key=lambda c: score(task, labels[folds.valid], path[c][folds.valid]))
        yield Fit(f"validated {seed}", best, folds.test, path[best][folds.test])
        if protocol == "test":
            yield Fit("fixed 0", FIXED_C, folds.test, path[FIXED_C][folds.test])


def orders(data: LabeledGraphs) -> list[np.ndarray]:
    """Return random orders of the training fold, one a draw."""
    return [np.random.default_rng(d).permutation(data.split.train) for d in range(DRAWS)]


def cross_validated_c(features: Any, labels: np.ndarray, task: Any, draw: int) -> float:
    """Return the C whose held-out loss is least over five folds of these rows."""
    losses = dict.fromkeys(FEW_GRID, 0.0)
    folds = KFold(5, shuffle=True, random_state=draw)
    for train, held in folds.split(np.arange(len(labels))):
        for c, predicted in path_of(features, labels, train, task, FEW_GRID).items():
            p, y = predicted[held].astype(np.float64), labels[held]
            if task == "regression":
                loss = np.square(p - y)
            else:
                p = p.clip(1e-7, 1 - 1e-7)
                loss = -np.where(y == 1, np.log(p), np.log(1 - p))
            losses[c] += float(np.where(np.isnan(y), 0.0, loss).sum())
    return min(losses, key=lambda c: losses[c])


def measure(options: argparse.Namespace) -> None:
    """Compute the predictions that are not there."""
    options.work.mkdir(parents=True, exist_ok=True)
    for dataset in options.datasets:
        data = None
        for name, _, place in (spec.partition("=") for spec in options.models):
            file = options.work / f"{options.protocol} {dataset} {name}.npz"
            if file.exists():
                continue
            split = "random-scaffold" if options.protocol == "splits" else "scaffold"
            data = data or open_labeled(dataset, schema_named(options.schema), split=split)
            features, collection = features_of(name, place, data, options)
            arrays: dict[str, Any] = {"collection": collection, "task": data.task}
            for case, c, held, predicted in fits(options.protocol, features, data):
                arrays[f"c/{case}"], arrays[f"labels/{case}"] = c, data.labels[held]
                arrays[f"predicted/{case}"] = predicted.astype(np.float32)
            np.savez_compressed(file, **arrays)
            print(file, flush=True)


def score(task: str, labels: np.ndarray, predicted: np.ndarray) -> float:
    """Return ROC-AUC or R2 in points."""
    metric = "r2" if task == "regression" else "roc_auc"
    kind: Any = "regression" if task == "regression" else "classification"
    return 100 * evaluate(labels, predicted, kind).scores[metric]


def kept(work: Path) -> dict[tuple[str, str], dict[str, Mapping[str, np.ndarray]]]:
    """Return what is kept, by protocol and data set, then by model.

    Raises:
        SystemExit: If encoders of one table were calibrated on different collections.
    """
    found: dict[tuple[str, str], dict[str, Mapping[str, np.ndarray]]] = {}
    for file in sorted(work.glob("* *.npz")):
        protocol, dataset, model = file.stem.split(" ", 2)
        found.setdefault((protocol, dataset), {})[model] = dict(np.load(file))
    collections = {
        str(arrays["collection"]): f"{model} on {dataset}"
        for (_, dataset), models in found.items()
        for model, arrays in models.items()
        if str(arrays["collection"])
    }
    if len(collections) > 1:
        raise SystemExit(
            f"{' and '.join(collections.values())} were calibrated on different collections: "
            "no table can hold both; compute one of them again."
        )
    return found


def write_rows(work: Path) -> pd.DataFrame:
    """Score what is kept, alone and fused, into rows.csv.gz."""
    rows: list[dict[str, Any]] = []
    for (protocol, dataset), models in kept(work).items():
        for number in (1, 2, 3):
            for names in combinations(sorted(models), number):
                if sum(name not in FEATURES for name in names) > 1:
                    continue
                parts = [models[name] for name in names]
                for case in (k.partition("/")[2] for k in parts[0] if k.startswith("c/")):
                    task = str(parts[0]["task"])
                    predicted = [p[f"predicted/{case}"] for p in parts]
                    value = score(task, parts[0][f"labels/{case}"], fuse(predicted, task))
                    row = {"protocol": protocol, "dataset": dataset, "case": case}
                    row["model"] = " + ".join(names)
                    row["c"] = float(parts[0][f"c/{case}"]) if number == 1 else None
                    row["collection"] = max(str(p["collection"]) for p in parts)[:12]
                    rows.append({**row, "score": round(value, 3)})
    table = pd.DataFrame(rows)
    table.to_csv(work / "rows.csv.gz", index=False)
    return table


def compare(work: Path, protocol: str, ours: str, theirs: str, resamples: int = 300) -> None:
    """Print the difference of two models (``A + B`` is fused), with an interval, case by case."""
    means: dict[str, list[np.ndarray]] = {}
    names = [side.split(" + ") for side in (ours, theirs)]
    for (found, _), models in kept(work).items():
        if found != protocol or not models.keys() >= {*names[0], *names[1]}:
            continue
        sides = [[models[name] for name in side] for side in names]
        first, draw = sides[0][0], np.random.default_rng(0)
        task = str(first["task"])
        for case in (k.partition("/")[2] for k in first if k.startswith("c/")):
            labels = first[f"labels/{case}"]
            a, b = (fuse([p[f"predicted/{case}"] for p in side], task) for side in sides)
            drawn = [np.arange(len(labels))]
            drawn += [draw.integers(0, len(labels), len(labels)) for _ in range(resamples)]
            values = [score(task, labels[r], a[r]) - score(task, labels[r], b[r]) for r in drawn]
            means.setdefault(f"{task}, {case}", []).append(np.array(values))
    for case, values in means.items():
        mean = np.mean(values, axis=0)
        low, high = np.quantile(mean[1:], (0.025, 0.975))
        print(f"{case}, {len(values)} sets: {mean[0]:+.1f} ({low:+.1f} to {high:+.1f})")


def main() -> None:
    """Parse the protocol and its options, and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    protocols = ("valid", "test", "splits", "crossed", "labels", "finetune")
    parser.add_argument("protocol", choices=(*protocols, "rows", "compare"))
    parser.add_argument("sides", nargs="*", help="of compare: two models")
    parser.add_argument("--of", choices=protocols, default="test", help="of compare")
    parser.add_argument("--models", nargs="+", default=[], metavar="NAME=PLACE")
    parser.add_argument("--datasets", nargs="+", default=[*CLASSIFICATION, *REGRESSION])
    parser.add_argument("--schema", default="molecule-cip")
    parser.add_argument("--layer", choices=("jk", "last"), help="default: that of the model")
    parser.add_argument("--collection", type=Path, default=Path("runs/stores/near"))
    parser.add_argument("--work", type=Path, default=Path("runs/frozen"))
    options = parser.parse_args()
    if options.protocol == "rows":
        write_rows(options.work)
    elif options.protocol == "compare":
        compare(options.work, options.of, *options.sides)
    else:
        measure(options)


if __name__ == "__main__":
    main()
