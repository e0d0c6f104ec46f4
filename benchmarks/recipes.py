"""The real run: recipes of GraphLoG beside the untrained encoder and ECFP4, resumable cell by cell.

Stages, each of which skips the cells that are there:

    python benchmarks/recipes.py pretrain --recipes default paper released --seeds 0 1 2 \
        --molecules 50000 --epochs 2
    python benchmarks/recipes.py probe    --datasets bbbp bace sider clintox
    python benchmarks/recipes.py select   --datasets bbbp bace sider clintox esol freesolv \
        lipophilicity --layers jk
    python benchmarks/recipes.py report   --datasets bbbp bace sider clintox

Pre-trained models go to ``--runs`` (not in git), cells to ``recipes.jsonl.gz`` in ``--results``.
"""

import argparse
import json
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import GroupKFold

import graphlog
from cells import Cells
from graphlog.data.split import group_numbers
from graphlog.domains import domain_of, schema_named
from graphlog.downstream.linear import linear_path, standardize
from graphlog.downstream.metrics import evaluate, mean_over_tasks
from graphlog.downstream.pretrained import random_encoder
from graphlog.downstream.tasks import open_labeled
from graphlog.training.log import as_progress

LAYERS = ("last", "jk")
WATCHED = (
    *("rank", "mean_cosine", "prototypes_total_2", "prototypes_used_estep_2"),
    *("prototypes_used_nearest_2", "posterior_perplexity_2"),
)


def pretrain(options: argparse.Namespace) -> None:
    """Pre-train one model a recipe and seed, resuming what was stopped."""
    for seed in options.seeds:
        for recipe in options.recipes:
            name = f"{recipe}-{options.tag}-s{seed}"
            run = options.runs / name
            if f"pretrain-{name}" in options.cells:
                continue
            start = time.perf_counter()
            encoder = graphlog.pretrain(
                options.source,
                recipe=recipe,
                seed=seed,
                run_dir=run,
                resume=run.exists(),
                epochs=options.epochs,
                batch_size=options.batch_size,
                reading={"limit": options.molecules},
                progress=as_progress(True),
                **dict(tomllib.loads("\n".join(options.set))),
            )
            rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            options.cells.add(
                f"pretrain-{name}",
                {
                    "recipe": recipe,
                    "seed": seed,
                    "seconds": time.perf_counter() - start,
                    "info": encoder.info,
                    "metrics": rows,
                },
            )


def models(options: argparse.Namespace) -> dict[str, Any]:
    """Return every finished model by name, or those asked for."""
    runs = sorted(run.parent for run in options.runs.glob("*/model.safetensors"))
    return {run.name: run for run in runs if not options.models or run.name in options.models}


def untrained(seed: int, schema: str) -> Any:
    """Return an encoder with fresh weights that reads ``schema``."""
    return random_encoder(schema=schema_named(schema), seed=seed)


def measured(options: argparse.Namespace, stage: str, call: Callable[..., Any]) -> None:
    """Add a cell for every model and readout on every data set, untrained encoders among them."""
    rivals = {f"untrained.{s}-s{seed}": None for s in options.schemas for seed in options.seeds}
    for dataset in options.datasets:
        for name, path in {**models(options), **rivals}.items():
            for layer in options.layers:
                cell = f"{stage}-{dataset}-{name}-{layer}"
                if cell not in options.cells:
                    schema, _, seed = name.removeprefix("untrained.").rpartition("-s")
                    encoder = graphlog.load(path) if path else untrained(int(seed), schema)
                    found = call(encoder, dataset, layer, name)
                    options.cells.add(cell, {"model": name, "layer": layer, **found})


def probe(options: argparse.Namespace) -> None:
    """Probe every model; fingerprints are probed once a data set."""

    def call(encoder: Any, dataset: str, layer: str, name: str) -> dict[str, Any]:
        data = open_labeled(dataset, encoder.schema)
        is_first = (name, layer) == (f"untrained.molecule-s{options.seeds[0]}", "last")
        names = options.baselines if is_first else ()
        return {"report": graphlog.probe(encoder, data, layer=layer, baselines=names).to_dict()}

    measured(options, "probe", call)


def select(options: argparse.Namespace) -> None:
    """Score every model by scaffold cross-validation inside train + validation.

    No test label is opened.
    """

    def call(encoder: Any, dataset: str, layer: str, _: str) -> dict[str, Any]:
        data = open_labeled(dataset, encoder.schema)
        known = np.concatenate([data.split.train, data.split.valid])
        graphs, labels = data.store.subset(known), data.labels[known]
        features = encoder.embed_store(graphs, layer)
        groups = group_numbers(domain_of(graphs.schema).groups(graphs))
        scores: dict[float, list[float]] = {}
        for train, held in GroupKFold(5).split(features, groups=groups):
            x = standardize(features, train)
            for c, predictions in linear_path(x, labels, train, data.task).items():
                found = evaluate(labels[held], predictions[held], data.task).scores
                scores.setdefault(c, []).append(found[data.metric])
        means = {str(c): mean_over_tasks(np.array(values)) for c, values in scores.items()}
        return {"dataset": dataset, "scores": means}

    measured(options, "selection", call)


def report(options: argparse.Namespace) -> None:
    """Print a row a model, readout and rule, a column a data set: mean and sample SD over seeds."""
    rows: list[tuple[Any, ...]] = []
    for name, cell in options.cells.named().items():
        stage, dataset, *_ = name.split("-")
        if stage not in ("probe", "finetune") or dataset not in options.datasets:
            continue
        for row in cell["report"]["rows"]:
            is_own = row["model"].startswith(("frozen encoder", "fine-tuned"))
            family = (cell["model"].rpartition("-s")[0] or cell["model"], cell["layer"])
            averaged = ", predictions of all seeds averaged" * ("mean of" in row["model"])
            key = (stage, *(family if is_own else (row["model"], "")), row["rule"] + averaged)
            rows += [(*key, dataset, 100 * s) for s in row["test"][cell["report"]["metric"]]]
    heads = ["stage", "model", "readout", "rule"]
    frame = pd.DataFrame(rows, columns=[*heads, "dataset", "score"])
    scores = frame.groupby([*heads, "dataset"])["score"].agg(["mean", "std"])
    table = spread(scores).unstack("dataset").reindex(columns=options.datasets)
    means = scores["mean"].unstack("dataset").reindex(columns=options.datasets)
    table["mean"] = means.mean(axis=1, skipna=False).round(1)
    others = means.drop(columns="clintox", errors="ignore")
    table["without ClinTox"] = others.mean(axis=1, skipna=False).round(1)
    print(table.reset_index().to_markdown(index=False, missingval=""), end="\n\n")
    watched = [
        {"pre-training": name.removeprefix("pretrain-").rpartition("-s")[0], "what": key, "v": v}
        for name, cell in options.cells.named("pretrain-").items()
        for key, v in {k: row[k] for row in cell["metrics"] for k in WATCHED if k in row}.items()
    ]
    last = pd.DataFrame(watched).groupby(["pre-training", "what"])["v"].agg(["mean", "std"])
    print(spread(last, 3).unstack("what").reset_index().to_markdown(index=False, missingval=""))


def spread(values: pd.DataFrame, digits: int = 1) -> "pd.Series[str]":
    """Return mean and sample SD as they are printed."""
    means, sds = (values[name].map(f"{{:.{digits}f}}".format) for name in ("mean", "std"))
    return means.where(values["std"].isna(), means + " ± " + sds)


def main() -> None:
    """Parse the stage and its options, and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=("pretrain", "probe", "select", "report"))
    parser.add_argument("--source", default="zinc250k", help="molecules to pre-train on")
    parser.add_argument("--tag", default="50k", help="word in the names of the runs")
    parser.add_argument("--molecules", type=int, default=50_000)
    parser.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="settings over the recipe, as TOML; give a --tag",
    )
    parser.add_argument("--recipes", nargs="+", default=["default", "paper", "released"])
    parser.add_argument(
        "--models", nargs="+", default=None, help="names of runs; all finished ones unless given"
    )
    parser.add_argument("--layers", nargs="+", default=LAYERS, choices=LAYERS)
    parser.add_argument("--schemas", nargs="+", default=["molecule", "molecule-rich"])
    parser.add_argument("--datasets", nargs="+", default=["bbbp", "bace", "sider", "clintox"])
    parser.add_argument(
        "--baselines",
        nargs="*",
        default=["ecfp-rf", "ecfp-lr"],
        help="fingerprints; forests of many targets are long",
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--runs", type=Path, default=Path("runs/recipes"))
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    options.cells = Cells(options.results / "recipes.jsonl.gz")
    {"pretrain": pretrain, "probe": probe, "select": select, "report": report}[options.stage](
        options
    )


if __name__ == "__main__":
    main()
