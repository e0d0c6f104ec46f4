r"""Measure pre-training on TU data sets by the 10-fold protocol of InfoGraph and GraphCL.

    python benchmarks/tu.py run --sets mutag ptc imdb-binary enzymes imdb-multi proteins nci1
    python benchmarks/tu.py report

A cell is a data set, a method and a seed; it is one line of JSON in ``results/tu.jsonl.gz``, and
finished cells are skipped. Each seed has its own pre-training, without labels, and its own folds.
The network is InfoGraph's: GIN with 3 layers of 32, 20 epochs, batches of 128. The learning rate is
always 1e-3, and no setting is tuned to a data set. The weights of the last epoch are used.
"""

import gzip
import json
import os
import platform
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import graphlog
from graphlog.downstream.fold_probe import fold_probe
from graphlog.downstream.pretrained import random_encoder
from graphlog.encoders.encoder import EncoderConfig

INSTRUCTION_SETS = {"avx2", "avx512f", "avx512_bf16", "amx_bf16"}
RESULTS = Path(__file__).parent / "results"
SETS = ("mutag", "ptc", "imdb-binary", "enzymes", "imdb-multi", "proteins", "nci1")
NAMES = {
    "wl": "WL subtree counts",
    "untrained": "untrained GIN",
    "graphlog": "GraphLoG",
    "infograph": "InfoGraph",
    "graphcl": "GraphCL",
}
"""Titles of the rows; subtree counts are measured in the cell of the untrained encoder."""
METHODS, SEEDS = ("untrained", "graphlog", "infograph", "graphcl"), range(5)
NETWORK = {"backbone": "gin", "layers": 3, "dim": 32}
TRAINING = {"epochs": 20, "batch_size": 128, "learning_rate": 1e-3, "precision": "fp32"}
PAPER = {
    "InfoGraph (paper)": {
        "mutag": "89.01 ± 1.13",
        "ptc": "61.65 ± 1.43",
        "imdb-binary": "73.03 ± 0.87",
        "imdb-multi": "49.69 ± 0.53",
    },
    "InfoGraph (GraphCL's paper)": {
        "mutag": "89.01 ± 1.13",
        "imdb-binary": "73.03 ± 0.87",
        "proteins": "74.44 ± 0.31",
        "nci1": "76.20 ± 1.06",
    },
    "GraphCL (paper)": {
        "mutag": "86.80 ± 1.34",
        "imdb-binary": "71.14 ± 0.44",
        "proteins": "74.39 ± 0.45",
        "nci1": "77.87 ± 0.41",
    },
}
"""Accuracies as printed by Sun et al. (ICLR 2020) and You et al. (NeurIPS 2020)."""


def run(sets: list[str], cells: Path) -> None:
    """Measure the missing cells and append them to the file ``cells``."""
    done = set(pd.read_json(cells, lines=True)["name"]) if cells.exists() else set[str]()
    for name in sets:
        store = graphlog.read_graphs(name)
        for seed in SEEDS:
            for method in METHODS:
                if (cell := f"{name}-{method}-s{seed}") not in done:
                    result = measure(store, method, seed)
                    head = {"name": cell, "set": name, "seed": seed, "machine": machine()}
                    with gzip.open(cells, "at", encoding="utf-8") as file:
                        file.write(json.dumps({**head, **result}) + "\n")
                    print(cell, *(f"{100 * row['accuracy']:.2f}" for row in result["rows"]))


def machine() -> dict[str, Any]:
    """Return the processor and the versions of Python and packages."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    cpu = {name.strip(): value for name, _, value in (line.partition(":") for line in lines)}
    return {
        "cpu": cpu.get("model name", platform.processor()).strip(),
        "instruction_sets": sorted(INSTRUCTION_SETS.intersection(cpu.get("flags", "").split())),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "torch_geometric", "rdkit", "numpy")},
    }


def measure(store: graphlog.GraphStore, method: str, seed: int) -> dict[str, Any]:
    """Return the results of one cell: pre-train, embed and cross-validate."""
    start, names = time.perf_counter(), [method]
    if method == "untrained":
        names.append("wl")
        network = EncoderConfig.parse(NETWORK)
        encoder = random_encoder(network, store.schema, layer="jk", seed=seed, graphs=store)
    else:
        options = {"seed": seed, "embedding": "jk", "device": "cpu", **TRAINING}
        encoder = graphlog.pretrain(store, method, encoder=NETWORK, **options)
    trained = time.perf_counter()
    baselines = tuple(names[1:])
    report = fold_probe(encoder, store, classifier="svm", seeds=(seed,), baselines=baselines)
    rows = [
        {"method": name, "accuracy": row.mean("accuracy"), "rule": row.rule}
        | {"folds": row.detail["folds"][0], "c": row.detail["c"][0]}
        for name, row in zip(names, report.rows, strict=True)
    ]
    seconds = {"pretrain": trained - start, "protocol": time.perf_counter() - trained}
    settings = {"encoder": NETWORK, "training": TRAINING, "embedding": "jk", "classifier": "svm"}
    about = {"graphs": len(store), "digest": store.digest, "seconds": seconds}
    return {**about, "rows": rows, "settings": settings}


def table(cells: Path) -> str:
    """Return the table of accuracies: mean ± sample SD over seeds, and the number of seeds."""
    rows = pd.read_json(cells, lines=True).explode("rows", ignore_index=True)
    rows = rows[["set"]].join(pd.DataFrame(rows["rows"].tolist()))
    scores = (100 * rows["accuracy"]).groupby([rows["method"], rows["set"]])
    texts = scores.agg(lambda s: f"{s.mean():.2f} ± {s.std():.2f} ({len(s)})").unstack()
    lines = {
        f"{NAMES[name]} (*measured*)": texts.loc[name] for name in NAMES if name in texts.index
    }
    lines |= {f"*{name}*": printed for name, printed in PAPER.items()}
    whole = pd.DataFrame(lines).T.reindex(columns=[name for name in SETS if name in texts])
    whole = whole.rename_axis("10-fold accuracy (%)").reset_index().fillna("")
    return whole.to_markdown(index=False)


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["run", "report"])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.stage == "run":
        run(options.sets, RESULTS / "tu.jsonl.gz")
    else:
        text = table(RESULTS / "tu.jsonl.gz") + "\n"
        (RESULTS / "tu.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
