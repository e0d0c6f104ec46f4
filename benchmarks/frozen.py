r"""Measure linear models on frozen representations of molecules (docs/results.md).

    python benchmarks/frozen.py test --models mol=graphlog-mol ecfp4 descriptors \
        untrained0=random-0 untrained1=random-1 --collection runs/stores/near
    python benchmarks/frozen.py rows
    python benchmarks/frozen.py compare mol untrained0 --of test

The protocols are:

- ``valid``: fit the training set and score the validation set at each C, to choose between models;
- ``test``: score the test set of the scaffold split, at C = 0.1 and at the C with the best
  validation score;
- ``splits``: score the test sets of ten random scaffold splits at the C with the best validation
  score;
- ``crossed``: score five scaffold folds of the training and validation sets at each C;
- ``labels``: fit 50 to 800 random molecules of the training set, with C chosen by cross-validation
  on them; five draws;
- ``finetune``: train encoder and head on 100 and 400 random molecules of the training set; three
  draws.

A model is ``NAME=PATH``, ``NAME=random-SEED`` (untrained), ``ecfp4`` or ``descriptors``. Untrained
networks take the statistics of batch normalization from ``--collection``, which must be the store
that the other models were pre-trained on. The predictions of a protocol, data set and model are one
file in ``--work``; existing files are not computed again. ``rows`` writes their scores to
rows.csv.gz, and those of the means of up to three representations: means of the logits, or of the
predictions of a regression. It fails if encoders were calibrated on different stores. ``compare``
prints the difference of two models with a 95 % interval of paired bootstraps over molecules.
"""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

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

DATASETS = ("bbbp", "bace", "clintox", "sider", "tox21", "toxcast", "hiv", "muv")
DATASETS += ("esol", "freesolv", "lipophilicity")
MANY_TARGETS, SHORT_GRID = 100, (0.01, 0.1)
"""Data sets with more targets try only two values of C, each of which takes minutes."""
SIZES, SIZES_FINETUNED, DRAWS, SPLITS = (50, 100, 200, 400, 800), (100, 400), 5, 10
FEW_GRID = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)
"""Values of C for few labels, where some features need much larger penalties than others."""
FEATURES = ("ecfp4", "descriptors")
Fit = tuple[str, float, np.ndarray, np.ndarray]
"""Name of the fit, C (NaN if fine-tuned), held-out rows and their predictions."""
COLUMNS = ["protocol", "dataset", "model", "case", "task", "collection", "c", "labels", "predicted"]


def descriptors(smiles: list[str]) -> np.ndarray:
    """Return RDKit's descriptors without ``SPS`` and those that are not always finite."""
    molecules = map(Chem.MolFromSmiles, smiles)
    values = pd.DataFrame([Descriptors.CalcMolDescriptors(m, missingVal=0.0) for m in molecules])
    is_left_out = values.columns.str.contains("^Ipc$|^SPS$|^BCUT2D_|Partial")
    finite = np.nan_to_num(values.loc[:, ~is_left_out].to_numpy(dtype=np.float64))
    return finite.clip(-1e6, 1e6).astype(np.float32)


def features_of(name: str, place: str, data: LabeledGraphs, options: Namespace) -> tuple[Any, str]:
    """Return features, and the digest of the store that the encoder is calibrated on, or ``""``.

    The features are embeddings, descriptors or sparse bits; for fine-tuning, the encoder itself.
    """
    if name == "descriptors":
        return descriptors(data.store.texts()), ""
    if name == "ecfp4":
        return sparse_bits(morgan_fingerprints(data.store.texts())), ""
    if place.startswith("random-"):
        seed, graphs = int(place.removeprefix("random-")), open_store(options.collection)
        encoder = random_encoder(schema=data.store.schema, layer="jk", seed=seed, graphs=graphs)
    else:
        encoder = graphlog.load(place)
    if encoder.schema.name != data.store.schema.name:
        raise SystemExit(f"{name} reads the schema {encoder.schema.name}; name it with --schema.")
    digest = encoder.info.get("data_digest") or open_store(options.collection).digest
    if options.protocol == "finetune":
        return encoder, digest
    return encoder.embed_store(data.store, options.layer), digest


def path_of(
    features: Any, labels: np.ndarray, train: np.ndarray, task: Any, grid: Sequence[float]
) -> dict[float, np.ndarray]:
    """Return the predictions for all rows at each C; a target with one class gets a constant."""
    scaled = standardize(features, train) if isinstance(features, np.ndarray) else features
    path = linear_path(scaled, labels, train, task, tuple(grid))
    constant = np.nan_to_num(np.nanmean(labels[train], axis=0), nan=0.5)
    return {c: np.where(np.isnan(p), constant, p) for c, p in path.items()}


def fits(protocol: str, features: Any, data: LabeledGraphs) -> Iterator[Fit]:
    """Yield the fits of one representation under a protocol."""
    labels, task, split = data.labels, data.task, data.split
    grid = SHORT_GRID if len(data.targets) > MANY_TARGETS else GRID
    if protocol == "finetune":
        for case, draw, known in subsets(split.train, SIZES_FINETUNED, 3):
            subset = replace(data, split=Split(known, split.valid, split.test))
            config = FinetuneConfig(precision="bf16")
            fitted = finetune(features, subset, baselines=(), config=config, seeds=(draw,))
            yield case, np.nan, split.test, fitted.predict(data.store.subset(split.test))
    elif protocol == "labels":
        for case, draw, known in subsets(split.train, SIZES, DRAWS):
            c = cross_validated_c(features[known], labels[known], task, draw)
            both = np.concatenate([known, split.test])
            path = path_of(features[both], labels[both], np.arange(len(known)), task, (c,))
            yield case, c, split.test, path[c][len(known) :]
    elif protocol == "crossed":
        known = np.concatenate([split.train, split.valid])
        groups = group_numbers(domain_of(data.store.schema).groups(data.store.subset(known)))
        for fold, (train, held) in enumerate(GroupKFold(5).split(known, groups=groups)):
            for c, predicted in path_of(features, labels, known[train], task, grid).items():
                yield f"C = {c}, fold {fold}", c, known[held], predicted[known[held]]
    elif protocol == "valid":
        for c, predicted in path_of(features, labels, split.train, task, grid).items():
            yield f"C = {c}", c, split.valid, predicted[split.valid]
    else:
        for seed in range(SPLITS if protocol == "splits" else 1):
            train, valid, test = data.draw(data.store, labels, seed)[0] if data.draw else split
            path = path_of(features, labels, train, task, grid)
            best = max(path, key=lambda c: score(task, labels[valid], path[c][valid]))
            yield f"validated {seed}", best, test, path[best][test]
            if protocol == "test":
                yield "fixed 0", FIXED_C, test, path[FIXED_C][test]


def subsets(
    train: np.ndarray, sizes: Sequence[int], draws: int
) -> Iterator[tuple[str, int, np.ndarray]]:
    """Yield random subsets of the training set: name, number of the draw, and rows."""
    for draw in range(draws):
        order = np.random.default_rng(draw).permutation(train)
        yield from ((f"{n} {draw}", draw, order[:n]) for n in sizes if n <= len(order))


def cross_validated_c(features: Any, labels: np.ndarray, task: Any, draw: int) -> float:
    """Return the C with the smallest held-out loss in five-fold cross-validation."""
    losses = dict.fromkeys(FEW_GRID, 0.0)
    folds = KFold(5, shuffle=True, random_state=draw)
    for train, held in folds.split(np.arange(len(labels))):
        for c, predicted in path_of(features, labels, train, task, FEW_GRID).items():
            error = np.abs(predicted[held].astype(np.float64) - labels[held])
            probability = (1 - error).clip(1e-7, 1 - 1e-7)
            losses[c] += np.nansum(error**2 if task == "regression" else -np.log(probability))
    return min(losses, key=lambda c: losses[c])


def measure(options: Namespace) -> None:
    """Compute the predictions that are not in ``--work`` yet."""
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
                arrays |= {f"c/{case}": c, f"labels/{case}": data.labels[held]}
                arrays[f"predicted/{case}"] = predicted.astype(np.float32)
            np.savez_compressed(file, **arrays)
            print(file, flush=True)


def score(task: Any, labels: np.ndarray, predicted: np.ndarray) -> float:
    """Return ROC-AUC or R2, in percent."""
    metric = "r2" if task == "regression" else "roc_auc"
    return 100 * evaluate(labels, predicted, task).scores[metric]


def read_predictions(work: Path) -> pd.DataFrame:
    """Return the stored predictions, one row for each data set, model and fit.

    Raises:
        SystemExit: If encoders were calibrated on different collections.
    """
    rows: list[tuple[Any, ...]] = []
    for file in sorted(work.glob("* *.npz")):
        arrays, names = dict(np.load(file)), file.stem.split(" ", 2)
        about = (str(arrays["task"]), str(arrays["collection"]))
        for case in (key.removeprefix("c/") for key in arrays if key.startswith("c/")):
            values = arrays[f"labels/{case}"], arrays[f"predicted/{case}"]
            rows.append((*names, case, *about, float(arrays[f"c/{case}"]), *values))
    table = pd.DataFrame(rows, columns=COLUMNS)
    encoders = table[table["collection"] != ""].drop_duplicates("collection")
    if len(encoders) > 1:
        raise SystemExit(
            f"{' and '.join(encoders['model'] + ' on ' + encoders['dataset'])} were calibrated on "
            "different collections: no table can hold both; compute one of them again."
        )
    return table


def write_rows(work: Path) -> pd.DataFrame:
    """Write the scores of the stored predictions, single and averaged, to rows.csv.gz."""
    rows: list[dict[str, Any]] = []
    for _, models in read_predictions(work).groupby(COLUMNS[:2], sort=False):
        for number in (1, 2, 3):
            for names in combinations(sorted(set(models["model"])), number):
                if sum(name not in FEATURES for name in names) > 1:
                    continue
                for _, parts in models[models["model"].isin(names)].groupby("case", sort=False):
                    row = parts.iloc[0][["protocol", "dataset", "case"]].to_dict()
                    row["model"] = " + ".join(names)
                    row["c"] = parts["c"].iloc[0] if number == 1 else None
                    row["collection"] = parts["collection"].max()[:12]
                    rows.append({**row, "score": round(score(*averaged(parts, names)), 3)})
    table = pd.DataFrame(rows)
    table.to_csv(work / "rows.csv.gz", index=False)
    return table


def averaged(models: pd.DataFrame, names: Sequence[str]) -> tuple[str, np.ndarray, np.ndarray]:
    """Return the task, the labels and the mean prediction of the named models for one fit."""
    first, parts = models.iloc[0], models.set_index("model")["predicted"]
    return first["task"], first["labels"], fuse([parts[name] for name in names], first["task"])


def compare(work: Path, protocol: str, ours: str, theirs: str, resamples: int = 300) -> None:
    """Print the difference of two models for each fit; ``A + B`` is the mean of two models."""
    differences: dict[str, list[np.ndarray]] = {}
    table, names = read_predictions(work), [side.split(" + ") for side in (ours, theirs)]
    for _, models in table[table["protocol"] == protocol].groupby("dataset", sort=False):
        if not {*names[0], *names[1]} <= {*models["model"]}:
            continue
        draw = np.random.default_rng(0)
        for case, parts in models.groupby("case", sort=False):
            (task, labels, a), (_, _, b) = (averaged(parts, side) for side in names)
            drawn = [np.arange(len(labels))]
            drawn += [draw.integers(0, len(labels), len(labels)) for _ in range(resamples)]
            values = [score(task, labels[r], a[r]) - score(task, labels[r], b[r]) for r in drawn]
            differences.setdefault(f"{task}, {case}", []).append(np.array(values))
    for case, values in differences.items():
        mean = np.mean(values, axis=0)
        low, high = np.quantile(mean[1:], (0.025, 0.975))
        print(f"{case}, {len(values)} sets: {mean[0]:+.1f} ({low:+.1f} to {high:+.1f})")


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    protocols = ("valid", "test", "splits", "crossed", "labels", "finetune")
    parser.add_argument("protocol", choices=(*protocols, "rows", "compare"))
    parser.add_argument("sides", nargs="*", help="for compare: two models")
    parser.add_argument("--of", choices=protocols, default="test", help="for compare: protocol")
    parser.add_argument("--models", nargs="+", default=[], metavar="NAME=PLACE")
    parser.add_argument("--datasets", nargs="+", default=DATASETS)
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
