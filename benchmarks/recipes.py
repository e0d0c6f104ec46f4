"""The real run: recipes of GraphLoG beside the untrained encoder and ECFP4, resumable cell by cell.

Stages, each of which skips the cells that are there:

    python benchmarks/recipes.py pretrain --recipes default paper released --seeds 0 1 2 \
        --molecules 50000 --epochs 2
    python benchmarks/recipes.py probe    --datasets bbbp bace sider clintox
    python benchmarks/recipes.py select   --datasets bbbp bace sider clintox esol freesolv \
        lipophilicity --layers jk
    python benchmarks/recipes.py finetune --datasets bbbp bace sider clintox --epochs 30
    python benchmarks/recipes.py report   --datasets bbbp bace sider clintox

Pre-trained models go to ``--runs`` (not in git), cells to ``recipes.jsonl.gz`` in ``--results``.
"""

import argparse
import json
import statistics
import time
import tomllib
from pathlib import Path
from typing import Any

import graphlog
from cells import Cells
from graphlog.downstream.models import random_encoder
from graphlog.downstream.tasks import open_labeled
from graphlog.training.log import make_progress

LAYERS = ("last", "jk")
RANDOM = "random"


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
                progress=make_progress(),
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
    trained = {
        run.parent.name: run.parent for run in sorted(options.runs.glob("*/model.safetensors"))
    }
    return {
        name: path
        for name, path in trained.items()
        if options.models is None or name in options.models
    }


def untrained(seed: int, schema: str) -> Any:
    """Return an encoder with fresh weights that reads ``schema``."""
    from graphlog.domains import schema_named

    return random_encoder(schema=schema_named(schema), seed=seed)


def probe(options: argparse.Namespace) -> None:
    """Probe every model on every data set, under both readouts.

    The untrained encoder and ECFP4 are probed once a data set.
    """
    for dataset in options.datasets:
        for name, path in models(options).items():
            encoder = graphlog.load(path)
            for layer in options.layers or LAYERS:
                cell = f"probe-{dataset}-{name}-{layer}"
                if cell not in options.cells:
                    report = graphlog.probe(
                        encoder, open_labeled(dataset, encoder.schema), layer=layer, baselines=()
                    )
                    options.cells.add(
                        cell, {"model": name, "layer": layer, "report": report.to_dict()}
                    )
        for schema in ("molecule", "molecule-rich"):
            for seed in options.seeds:
                for layer in options.layers or LAYERS:
                    cell = f"probe-{dataset}-untrained.{schema}-s{seed}-{layer}"
                    if cell in options.cells:
                        continue
                    encoder = untrained(seed, schema)
                    baselines = (
                        options.baselines
                        if (schema, seed, layer) == ("molecule", 0, "last")
                        else ()
                    )
                    report = graphlog.probe(
                        encoder,
                        open_labeled(dataset, encoder.schema),
                        layer=layer,
                        baselines=baselines,
                    )
                    options.cells.add(
                        cell,
                        {
                            "model": f"untrained.{schema}-s{seed}",
                            "layer": layer,
                            "report": report.to_dict(),
                        },
                    )


def select(options: argparse.Namespace) -> None:
    """Score models and the untrained encoder by scaffold cross-validation.

    It stays inside train + validation: no test label is opened.
    """
    for dataset in options.datasets:
        rivals = {f"untrained.molecule-rich-s{seed}": None for seed in (0, 1, 2)}
        for name, path in {**models(options), **rivals}.items():
            for layer in options.layers or ["jk"]:
                cell = f"selection-{dataset}-{name}-{layer}"
                if cell in options.cells:
                    continue
                encoder = (
                    untrained(int(name[-1]), "molecule-rich")
                    if path is None
                    else graphlog.load(path)
                )
                scores = graphlog.cv_probe(encoder, dataset, layer=layer)
                options.cells.add(
                    cell,
                    {
                        "model": name,
                        "layer": layer,
                        "dataset": dataset,
                        "scores": {str(c): score for c, score in scores.items()},
                    },
                )


def finetune(options: argparse.Namespace) -> None:
    """Fine-tune every model on every data set with all seeds.

    So too the untrained encoder of the default recipe.
    """
    for dataset in options.datasets:
        for name, path in {**models(options), RANDOM: RANDOM}.items():
            for layer in options.layers or ["last"]:
                cell = f"finetune-{dataset}-{name}-{layer}"
                if cell in options.cells:
                    continue
                run = options.runs / "finetune" / f"{dataset}-{name}-{layer}"
                report = graphlog.finetune(
                    str(path),
                    dataset,
                    seeds=options.seeds,
                    epochs=options.epochs,
                    layer=layer,
                    run_dir=run,
                    resume=run.exists(),
                    progress=make_progress(),
                ).report
                options.cells.add(
                    cell,
                    {
                        "model": name,
                        "layer": layer,
                        "epochs": options.epochs,
                        "report": report.to_dict(),
                    },
                )


def report(options: argparse.Namespace) -> None:
    """Print a row a model, readout and rule, a column a data set: mean and sample SD over seeds."""
    scores: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for name, cell in options.cells.named().items():
        stage, dataset, *_ = name.split("-")
        if stage not in {"probe", "finetune"} or dataset not in options.datasets:
            continue
        family, _, _ = (
            cell["model"].rpartition("-s") if "-s" in cell["model"] else (cell["model"], "", "")
        )
        for row in cell["report"]["rows"]:
            own = row["model"].startswith(("frozen encoder", "fine-tuned"))
            rule = (
                f"{row['rule']}, predictions of all seeds averaged"
                if "mean of" in row["model"]
                else row["rule"]
            )
            key = (stage, family if own else row["model"], cell["layer"] if own else "", rule)
            scores.setdefault(key, {}).setdefault(dataset, []).extend(
                row["test"][cell["report"]["metric"]]
            )
    head = ["stage", "model", "readout", "rule", *options.datasets, "mean", "without ClinTox"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for key, found in sorted(scores.items()):
        means = {d: 100 * statistics.fmean(v) for d, v in found.items()}
        cells = [
            f"{means[d]:.1f}{_spread(found[d])}" if d in means else "" for d in options.datasets
        ]
        whole = len(means) == len(options.datasets)
        others = [m for d, m in means.items() if d != "clintox"]
        averages = (
            [f"{statistics.fmean(means.values()):.1f}", f"{statistics.fmean(others):.1f}"]
            if whole
            else ["", ""]
        )
        lines.append(f"| {' | '.join([*key, *cells, *averages])} |")
    print("\n".join([*lines, "", *watched(options.cells)]))


def watched(cells: Cells) -> list[str]:
    """Return what the collapse watch last saw of each recipe: mean and sample SD over its seeds."""
    columns = (
        "rank",
        "mean_cosine",
        "prototypes_total_2",
        "prototypes_used_estep_2",
        "prototypes_used_nearest_2",
        "posterior_perplexity_2",
    )
    found: dict[str, list[dict[str, float]]] = {}
    for name, cell in cells.named("pretrain-").items():
        rows = cell["metrics"]
        last = {key: row[key] for row in rows for key in columns if key in row}
        found.setdefault(name.removeprefix("pretrain-").rpartition("-s")[0], []).append(last)
    lines = [f"| pre-training | seeds | {' | '.join(columns)} |", "|" + "---|" * (2 + len(columns))]
    for name, runs in found.items():
        values = {key: [run[key] for run in runs if key in run] for key in columns}
        cells = [
            f"{statistics.fmean(v):.3g}" + (f" ± {statistics.stdev(v):.2g}" if len(v) > 1 else "")
            if v
            else ""
            for v in values.values()
        ]
        lines.append(f"| {name} | {len(runs)} | {' | '.join(cells)} |")
    return lines


def _spread(values: list[float]) -> str:
    return f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""


def main() -> None:
    """Parse the stage and its options, and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=("pretrain", "probe", "select", "finetune", "report"))
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
    parser.add_argument("--layers", nargs="+", default=None, choices=LAYERS)
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
    {
        "pretrain": pretrain,
        "probe": probe,
        "select": select,
        "finetune": finetune,
        "report": report,
    }[options.stage](options)


if __name__ == "__main__":
    main()
