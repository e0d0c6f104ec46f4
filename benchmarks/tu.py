r"""TU sets without labels under the 10-fold protocol, one JSON a cell.

GraphLoG, InfoGraph, GraphCL and the untrained encoder.

    python benchmarks/tu.py run --sets mutag ptc imdb-binary enzymes imdb-multi proteins nci1 \
        --seeds 0 1 2 3 4
    python benchmarks/tu.py report

Every seed pre-trains anew and deals the folds anew. Cells that are there are skipped. The network
is InfoGraph's: GIN, 3 layers of 32, 20 epochs, batches of 128; the step size is 1e-3 throughout,
and nothing is tuned to a set. The embedding is that of the last epoch.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import graphlog
from cells import Cells
from graphlog.downstream.fold_probe import fold_probe
from graphlog.downstream.pretrained import random_encoder
from graphlog.encoders.base import EncoderConfig

SETS = ("mutag", "ptc", "imdb-binary", "enzymes", "imdb-multi", "proteins", "nci1")
METHODS = ("untrained", "graphlog", "infograph", "graphcl")
NETWORK = {"backbone": "gin", "layers": 3, "dim": 32}
TRAINING = {
    "epochs": 20,
    "batch_size": 128,
    "learning_rate": 1e-3,
    "precision": "fp32",
    "device": "cpu",
}
PAPER = {
    "InfoGraph (paper)": {
        "mutag": (89.01, 1.13),
        "ptc": (61.65, 1.43),
        "imdb-binary": (73.03, 0.87),
        "imdb-multi": (49.69, 0.53),
    },
    "InfoGraph (GraphCL's paper)": {
        "mutag": (89.01, 1.13),
        "imdb-binary": (73.03, 0.87),
        "proteins": (74.44, 0.31),
        "nci1": (76.20, 1.06),
    },
    "GraphCL (paper)": {
        "mutag": (86.80, 1.34),
        "imdb-binary": (71.14, 0.44),
        "proteins": (74.39, 0.45),
        "nci1": (77.87, 0.41),
    },
}
"""Sun et al. (ICLR 2020) and You et al. (NeurIPS 2020), as printed; without sets not reported."""
NOTES = (
    "Measured: mean and sample SD over pre-training seeds (number in brackets), each with its "
    "own folds; SVM with a Gaussian kernel on",
    "standardized embeddings, C from 1e-3 to 1e3 by inner 5-fold cross-validation. Papers: SD "
    "over five runs; their code looks at the",
    "accuracy after several epochs and step sizes, ours at the last epoch of one setting. PTC "
    "is PTC_MR. Sets without node",
    "labels (IMDB) read the degree. Empty: not reported there, or not measured yet.",
)
NAMES = {
    "wl": "WL subtree counts",
    "untrained": "untrained GIN",
    "graphlog": "GraphLoG",
    "infograph": "InfoGraph",
    "graphcl": "GraphCL",
}


def run(options: argparse.Namespace) -> None:
    """Compute the missing cells, small sets first."""
    cells = Cells(options.results / "tu.jsonl.gz")
    for name in options.sets:
        store = graphlog.read_graphs(name)
        for seed in options.seeds:
            for method in options.methods:
                cell = f"{name}-{method}-s{seed}"
                if cell not in cells:
                    found = measure(store, name, method, seed, options.classifier)
                    cells.add(cell, found)
                    scores = [round(100 * row["accuracy"], 2) for row in found["rows"]]
                    print(f"{cell}: {scores}", flush=True)


def measure(
    store: graphlog.GraphStore, name: str, method: str, seed: int, classifier: str
) -> dict[str, Any]:
    """Return one cell: pre-train, embed, cross-validate.

    That of the untrained encoder holds the subtree counts too.
    """
    start = time.perf_counter()
    if method == "untrained":
        encoder = random_encoder(
            EncoderConfig.parse(NETWORK), store.schema, layer="jk", seed=seed, graphs=store
        )
    else:
        encoder = graphlog.pretrain(
            store, method, seed=seed, embedding="jk", encoder=NETWORK, **TRAINING
        )
    trained = time.perf_counter()
    report = fold_probe(
        encoder,
        store,
        classifier=classifier,
        seeds=(seed,),
        baselines=("wl",) if method == "untrained" else (),
    )
    rows = [
        {"method": method if k == 0 else "wl", "accuracy": row.mean("accuracy"), "rule": row.rule}
        | {"folds": row.detail["folds"][0], "c": row.detail["c"][0]}
        for k, row in enumerate(report.rows)
    ]
    seconds = {"pretrain": trained - start, "protocol": time.perf_counter() - trained}
    settings = {
        "encoder": NETWORK,
        "training": TRAINING,
        "embedding": "jk",
        "classifier": classifier,
    }
    return {
        "set": name,
        "seed": seed,
        "graphs": len(store),
        "digest": store.digest,
        "rows": rows,
        "seconds": seconds,
        "settings": settings,
    }


def report(options: argparse.Namespace) -> None:
    """Write ``tu.md``: a row a method, a column a set; mean and sample SD over seeds."""
    cells = Cells(options.results / "tu.jsonl.gz").named().values()
    rows = [(row["method"], c["set"], 100 * row["accuracy"]) for c in cells for row in c["rows"]]
    frame = pd.DataFrame(rows, columns=["method", "set", "accuracy"])
    found = frame.groupby(["method", "set"])["accuracy"].agg(["mean", "std", "count"])
    texts = {place: f"{m:.2f} ± {sd:.2f} ({n:.0f})" for place, (m, sd, n) in found.T.items()}
    sets = [name for name in SETS if name in set(frame["set"])]
    lines = [f"| 10-fold accuracy (%) | {' | '.join(sets)} |", "|---" * (len(sets) + 1) + "|"]
    for method, name in NAMES.items():
        shown = [texts.get((method, s), "") for s in sets]
        lines.append(f"| {name} (*measured*) | {' | '.join(shown)} |")
    for name, printed in PAPER.items():
        shown = [f"{printed[s][0]:.2f} ± {printed[s][1]:.2f}" if s in printed else "" for s in sets]
        lines.append(f"| *{name}* | {' | '.join(shown)} |")
    options.results.joinpath("tu.md").write_text("\n".join([*lines, "", *NOTES, ""]))
    print("\n".join(lines))


def main() -> None:
    """Run one stage."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=["run", "report"])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=[*SETS, "nci109"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--classifier", default="svm", choices=["svm", "logistic"])
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    {"run": run, "report": report}[options.stage](options)


if __name__ == "__main__":
    main()
