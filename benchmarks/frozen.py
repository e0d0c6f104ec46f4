r"""What representations of molecules are worth: linear models on frozen features (docs/results.md).

    python benchmarks/frozen.py test --models mol=graphlog-mol ecfp4 descriptors \
        untrained0=random-0 untrained1=random-1 --collection runs/stores/near
    python benchmarks/frozen.py rows
    python benchmarks/frozen.py compare mol untrained0 --of test

Protocols: ``valid`` fits the training set and scores the validation set at each C, to choose
between models; ``test`` scores the test set of the scaffold split, at C = 0.1 and at the C that
the validation set chooses; ``splits`` does so on ten random scaffold splits; ``crossed`` scores
five scaffold folds of training and validation set at each C; ``labels`` fits 50 to 800 random
molecules of the training set, C chosen by cross-validation among them, five draws; ``finetune``
trains encoder and head on 100 and 400 of these, an untrained one from scratch.

A model is ``NAME=PATH``, ``NAME=random-SEED`` (untrained), ``ecfp4`` or ``descriptors``. Batch norm
of untrained networks takes its statistics from ``--collection``, the store that the others were
pre-trained on. Predictions are kept in ``--work``, a file a protocol, data set and model, and are
not computed again. ``rows`` scores them, and means of the logits (regressions: of the predictions)
of up to three representations, into rows.csv.gz; it refuses encoders calibrated on different
stores. ``compare`` prints a difference with a 95 % interval of paired bootstraps over molecules.
"""

import argparse
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

CLASSIFICATION = ("bbbp", "bace", "clintox", "sider", "tox21", "toxcast", "hiv", "muv")
REGRESSION = ("esol", "freesolv", "lipophilicity")
MANY_TARGETS, SHORT_GRID = 100, (0.01, 0.1)
"""A set of hundreds of targets chooses between two values of C: each costs minutes."""
SIZES, SIZES_FINETUNED, DRAWS, SPLITS = (50, 100, 200, 400, 800), (100, 400), 5, 10
FEW_GRID = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)
"""Few labels want penalties at both ends, by the kind of features."""
FEATURES = ("ecfp4", "descriptors")
Fit = tuple[str, float, np.ndarray, np.ndarray]
"""Rule, split or number of labels; C (NaN: fine-tuned); the rows held out and their predictions."""
COLUMNS = ["protocol", "dataset", "model", "case", "task", "collection", "c", "labels", "predicted"]


def descriptors(smiles: list[str]) -> np.ndarray:
    """Return RDKit's descriptors but those that are not finite for every molecule, and ``SPS``."""
    molecules = map(Chem.MolFromSmiles, smiles)
    values = pd.DataFrame([Descriptors.CalcMolDescriptors(m, missingVal=0.0) for m in molecules])
    is_left_out = values.columns.str.contains("^Ipc$|^SPS$|^BCUT2D_|Partial")
    finite = np.nan_to_num(values.loc[:, ~is_left_out].to_numpy(dtype=np.float64))
    return finite.clip(-1e6, 1e6).astype(np.float32)


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
    if place.startswith("random-"):
        seed, graphs = int(place.removeprefix("random-")), open_store(options.collection)
        encoder = random_encoder(schema=data.store.schema, layer="jk", seed=seed, graphs=graphs)
    else:
        encoder = graphlog.load(place)
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
    labels, task, split = data.labels, data.task, data.split
    grid = SHORT_GRID if len(data.targets) > MANY_TARGETS else GRID
    if protocol == "finetune":
        for case, draw, known in few(split.train, SIZES_FINETUNED, 3):  # each draw is a seed
            own = replace(data, split=Split(known, split.valid, split.test))
            config = FinetuneConfig(precision="bf16")
            fitted = finetune(features, own, baselines=(), config=config, seeds=(draw,))
            yield case, np.nan, split.test, fitted.predict(data.store.subset(split.test))
    elif protocol == "labels":
        for case, draw, known in few(split.train, SIZES, DRAWS):
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


def few(
    train: np.ndarray, sizes: Sequence[int], draws: int
) -> Iterator[tuple[str, int, np.ndarray]]:
    """Yield the name, the draw and the rows of random parts of the training set."""
    for draw in range(draws):
        order = np.random.default_rng(draw).permutation(train)
        yield from ((f"{n} {draw}", draw, order[:n]) for n in sizes if n <= len(order))


def cross_validated_c(features: Any, labels: np.ndarray, task: Any, draw: int) -> float:
    """Return the C whose held-out loss is least over five folds of these rows."""
    losses = dict.fromkeys(FEW_GRID, 0.0)
    folds = KFold(5, shuffle=True, random_state=draw)
    for train, held in folds.split(np.arange(len(labels))):
        for c, predicted in path_of(features, labels, train, task, FEW_GRID).items():
            miss = np.abs(predicted[held].astype(np.float64) - labels[held])
            likely = (1 - miss).clip(1e-7, 1 - 1e-7)
            losses[c] += np.nansum(miss**2 if task == "regression" else -np.log(likely))
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
                arrays |= {f"c/{case}": c, f"labels/{case}": data.labels[held]}
                arrays[f"predicted/{case}"] = predicted.astype(np.float32)
            np.savez_compressed(file, **arrays)
            print(file, flush=True)


def score(task: Any, labels: np.ndarray, predicted: np.ndarray) -> float:
    """Return ROC-AUC or R2 in points."""
    metric = "r2" if task == "regression" else "roc_auc"
    return 100 * evaluate(labels, predicted, task).scores[metric]


def kept(work: Path) -> pd.DataFrame:
    """Return what is kept, a row a model and case.

    Raises:
        SystemExit: If encoders were calibrated on different collections.
    """
    rows: list[tuple[Any, ...]] = []
    for file in sorted(work.glob("* *.npz")):
        arrays, names = dict(np.load(file)), file.stem.split(" ", 2)
        about = (str(arrays["task"]), str(arrays["collection"]))
        for case in (key.removeprefix("c/") for key in arrays if key.startswith("c/")):
            values = (arrays[f"{of}/{case}"] for of in ("labels", "predicted"))
            rows.append((*names, case, *about, float(arrays[f"c/{case}"]), *values))
    found = pd.DataFrame(rows, columns=COLUMNS)
    encoders = found[found["collection"] != ""].drop_duplicates("collection")
    if len(encoders) > 1:
        raise SystemExit(
            f"{' and '.join(encoders['model'] + ' on ' + encoders['dataset'])} were calibrated on "
            "different collections: no table can hold both; compute one of them again."
        )
    return found


def write_rows(work: Path) -> pd.DataFrame:
    """Score what is kept, alone and fused, into rows.csv.gz."""
    rows: list[dict[str, Any]] = []
    for _, models in kept(work).groupby(COLUMNS[:2], sort=False):
        for number in (1, 2, 3):
            for names in combinations(sorted(set(models["model"])), number):
                if sum(name not in FEATURES for name in names) > 1:
                    continue
                for _, parts in models[models["model"].isin(names)].groupby("case", sort=False):
                    row = parts.iloc[0][["protocol", "dataset", "case"]].to_dict()
                    row |= {"model": " + ".join(names)}
                    row |= {"c": parts["c"].iloc[0] if number == 1 else None}
                    row |= {"collection": parts["collection"].max()[:12]}
                    rows.append({**row, "score": round(score(*fused(parts, names)), 3)})
    table = pd.DataFrame(rows)
    table.to_csv(work / "rows.csv.gz", index=False)
    return table


def fused(models: pd.DataFrame, names: Sequence[str]) -> tuple[str, np.ndarray, np.ndarray]:
    """Return task, labels and the mean prediction of some of the models of a case."""
    first, parts = models.iloc[0], models.set_index("model")["predicted"]
    return first["task"], first["labels"], fuse([parts[name] for name in names], first["task"])


def compare(work: Path, protocol: str, ours: str, theirs: str, resamples: int = 300) -> None:
    """Print the difference of two models (``A + B`` is fused), with an interval, case by case."""
    means: dict[str, list[np.ndarray]] = {}
    found, names = kept(work), [side.split(" + ") for side in (ours, theirs)]
    for _, models in found[found["protocol"] == protocol].groupby("dataset", sort=False):
        if not {*names[0], *names[1]} <= {*models["model"]}:
            continue
        draw = np.random.default_rng(0)
        for case, parts in models.groupby("case", sort=False):
            (task, labels, a), (_, _, b) = (fused(parts, side) for side in names)
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
