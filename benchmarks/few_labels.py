r"""What representations of molecules are worth with 50 to 800 labels.

    python benchmarks/few_labels.py probe --models mol=graphlog-mol mol1=runs/mol-s1 ecfp4 \
        descriptors untrained=random-0 --calibration runs/stores/near
    python benchmarks/few_labels.py finetune --models mol=graphlog-mol untrained=random-0 \
        --calibration runs/stores/near
    python benchmarks/few_labels.py report --candidates mol mol1

From the training fold of a scaffold split, ``--draws`` random orders of the molecules are drawn;
the first 50, 100, ... of each are labeled, all others are not. ``probe`` fits a linear model to
each representation, its penalty chosen by five-fold cross-validation of the loss among the labeled
molecules alone, and scores the test fold. ``A + B`` is the mean of the logits (regressions: of the
predictions) of the models on A and B. A target of which one class alone is labeled has the score of
a constant. ``finetune`` trains encoder and head with the default protocol, an untrained encoder
from scratch. Models are those of ``selection.py``. Finished cells are kept, a line each, in
``--work``/rows.jsonl; ``report`` writes few-labels.csv.gz, .md and .png to ``--results``. Models
of one ``--group``, one a seed of pre-training, share a row, as the candidates do.
"""

import argparse
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from sklearn.model_selection import KFold

from graphlog.data.split import Split
from graphlog.domains import schema_named
from graphlog.downstream.finetune import finetune
from graphlog.downstream.finetune_seed import FinetuneConfig
from graphlog.downstream.linear import Features, linear_path, standardize
from graphlog.downstream.metrics import TaskKind
from graphlog.downstream.tasks import LabeledGraphs, open_labeled
from selection import (
    DESCRIPTORS,
    FINGERPRINTS,
    REGRESSION,
    encoder_of,
    features_of,
    mean_prediction,
    rows_of,
    score_of,
    write_rows,
)

CLASSIFICATION = ("bbbp", "bace", "clintox", "sider", "tox21", "hiv")
SIZES = (50, 100, 200, 400, 800)
SIZES_FINETUNED = (100, 400)
GRID = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)
"""Few labels want penalties at both ends, by the kind of features."""
PRETRAINED, PLUS = "pre-trained", " + "
DRAWN_FUSED = (
    "pre-trained + descriptors",
    "pre-trained + ecfp4 + descriptors",
    "ecfp4 + descriptors",
)
_SMALLEST = 1e-7

Row = dict[str, Any]
Curve = dict[int, np.ndarray]


def orders(data: LabeledGraphs, draws: int) -> list[np.ndarray]:
    """Return random orders of the training fold, one a draw."""
    return [np.random.default_rng(d).permutation(data.split.train) for d in range(draws)]


def fit(
    features: Features, labels: np.ndarray, train: np.ndarray, task: TaskKind, grid: Iterable[float]
) -> dict[float, np.ndarray]:
    """Return the predictions for all rows at each C; a target that has one class is a constant."""
    scaled = standardize(features, train) if isinstance(features, np.ndarray) else features
    path = linear_path(scaled, labels, train, task, tuple(grid), 1)
    constant = np.nan_to_num(np.nanmean(labels[train], axis=0), nan=0.5)
    return {c: np.where(np.isnan(p), constant, p) for c, p in path.items()}


def chosen_c(features: Features, labels: np.ndarray, task: TaskKind, draw: int) -> float:
    """Return the C whose held-out loss is least over five folds of these rows."""
    losses = dict.fromkeys(GRID, 0.0)
    everything = np.arange(len(labels))
    for train, held in KFold(5, shuffle=True, random_state=draw).split(everything):
        for c, predicted in fit(features, labels, train, task, GRID).items():
            p, y = predicted[held].astype(np.float64), labels[held]
            if task == "regression":
                loss = np.square(p - y)
            else:
                p = p.clip(_SMALLEST, 1 - _SMALLEST)
                loss = -np.where(y == 1, np.log(p), np.log(1 - p))
            losses[c] += float(np.where(np.isnan(y), 0.0, loss).sum())
    return min(losses, key=lambda c: losses[c])


def probe(options: argparse.Namespace) -> None:
    """Score linear models on every representation, for all sets, sizes and draws."""
    done = {(r["dataset"], r["model"]) for r in rows_of(options.work) if r["stage"] == "probe"}
    for dataset in options.datasets:
        todo = [m for m in options.models if (dataset, m.partition("=")[0]) not in done]
        if not todo:
            continue
        data = open_labeled(dataset, schema_named(options.schema), workers=1)
        drawn = orders(data, options.draws)
        used = np.unique(np.concatenate([order[: SIZES[-1]] for order in drawn]))
        rows = np.concatenate([used, data.split.test])
        inside = replace(data, store=data.store.subset(rows))
        places = {int(row): at for at, row in enumerate(used)}
        held = np.arange(len(used), len(rows))
        for spec in todo:
            name, _, place = spec.partition("=")
            features, found = features_of(name, place, inside, options), list[Row]()
            for draw, order in enumerate(drawn):
                for size in (n for n in SIZES if n <= len(order)):
                    labeled = np.array([places[int(row)] for row in order[:size]])
                    labels = data.labels[rows]
                    c, predicted = predict(features, labels, labeled, held, data.task, draw)
                    keep_predictions(options.work, (dataset, size, draw, name), predicted)
                    row = {"c": c, "score": score_of(dataset, labels[held], predicted)}
                    found.append(row_of("probe", dataset, size, draw, name, row))
            keep(options.work, found)


def predict(
    features: Features,
    labels: np.ndarray,
    labeled: np.ndarray,
    held: np.ndarray,
    task: TaskKind,
    draw: int,
) -> tuple[float, np.ndarray]:
    """Return the chosen C and the predictions for the test fold from these labeled molecules."""
    c = chosen_c(features[labeled], labels[labeled], task, draw)
    both = np.concatenate([labeled, held])
    train = np.arange(len(labeled))
    return c, fit(features[both], labels[both], train, task, (c,))[c][len(labeled) :]


def row_of(stage: str, dataset: str, size: int, draw: int, model: str, found: Row) -> Row:
    """Return a row of the file of rows."""
    cell = {"stage": stage, "dataset": dataset, "labels": size, "draw": draw, "model": model}
    return {**cell, "c": found.get("c"), "score": round(found["score"], 3)}


def predictions_file(work: Path, cell: tuple[str, int, int, str]) -> Path:
    """Return where the predictions of a cell lie."""
    dataset, size, draw, model = cell
    return work / "predictions" / f"{dataset}-{size}-{draw}-{model}.npy"


def keep_predictions(work: Path, cell: tuple[str, int, int, str], predictions: np.ndarray) -> None:
    """Write the predictions of a cell, which fused rows are made of."""
    path = predictions_file(work, cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, predictions.astype(np.float32))


def fine_tuned(options: argparse.Namespace) -> None:
    """Score fine-tuned models; each draw of labeled molecules is one seed."""
    done = {
        (r["dataset"], r["labels"], r["draw"], r["model"])
        for r in rows_of(options.work)
        if r["stage"] == "finetune"
    }
    config = FinetuneConfig(precision="bf16")
    for dataset in options.datasets:
        data = open_labeled(dataset, schema_named(options.schema), workers=1)
        for spec in options.models:
            name, _, place = spec.partition("=")
            encoder = encoder_of(place, options.schema, options.calibration)
            for draw, order in enumerate(orders(data, options.draws)):
                for size in (n for n in SIZES_FINETUNED if n <= len(order)):
                    if (dataset, size, draw, name) in done:
                        continue
                    folds = Split(order[:size], data.split.valid, data.split.test)
                    labeled = replace(data, split=folds)
                    report = finetune(encoder, labeled, config, seeds=(draw,), baselines=()).report
                    metric = "r2" if data.task == "regression" else "roc_auc"
                    found = {"score": 100 * report.rows[0].test[metric][0]}
                    keep(options.work, [row_of("finetune", dataset, size, draw, name, found)])


def keep(work: Path, rows: list[Row]) -> None:
    """Append rows to the file of rows."""
    work.mkdir(parents=True, exist_ok=True)
    with (work / "rows.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    for row in rows:
        print(row, flush=True)


def fused_rows(options: argparse.Namespace, rows: list[Row]) -> list[Row]:
    """Return a row for every cell and combination of models that are fused."""
    found: list[Row] = []
    cells = {(r["dataset"], r["labels"], r["draw"], r["model"]) for r in rows if r["c"]}
    for dataset in dict.fromkeys(r["dataset"] for r in rows):
        data = open_labeled(dataset, schema_named(options.schema), workers=1)
        labels = data.labels[data.split.test]
        for cell in sorted({c[:3] for c in cells if c[0] == dataset}):
            for parts in combinations_of(options):
                if not all((*cell, name) in cells for name in parts):
                    continue
                files = [predictions_file(options.work, (*cell, name)) for name in parts]
                predicted = mean_prediction(dataset, [np.load(f) for f in files])
                row = {"score": score_of(dataset, labels, predicted)}
                found.append(row_of("probe", *cell, PLUS.join(parts), row))
    return found


def combinations_of(options: argparse.Namespace) -> list[tuple[str, ...]]:
    """Return the models whose predictions are fused."""
    others = [(FINGERPRINTS,), (DESCRIPTORS,), (FINGERPRINTS, DESCRIPTORS)]
    ours = [(name, *rest) for name in options.candidates for rest in others]
    return [*ours, (options.reference, FINGERPRINTS), (FINGERPRINTS, DESCRIPTORS)]


def curve(rows: list[Row], models: tuple[str, ...], sets: tuple[str, ...]) -> Curve:
    """Return, for each number of labels, the mean over ``sets`` of each draw, in their order.

    Scores of several models, one a seed of pre-training, are averaged. A size that a set lacks is
    left out.
    """
    cells: dict[tuple[int, int], list[float]] = {}
    for r in rows:
        if r["model"] in models and r["dataset"] in sets:
            cells.setdefault((r["labels"], r["draw"]), []).append(r["score"])
    curves: dict[int, list[float]] = {}
    for (size, _), scores in sorted(cells.items()):
        if len(scores) == len(sets) * len(models):
            curves.setdefault(size, []).append(float(np.mean(scores)))
    return {size: np.array(means) for size, means in curves.items()}


def report(options: argparse.Namespace) -> None:
    """Write the raw rows, the tables of means and differences, and the figure."""
    rows = rows_of(options.work)
    rows += fused_rows(options, rows)
    groups, lines, panels = groups_of(options, rows), list[str](), dict[str, dict[str, Curve]]()
    kinds = {"ROC-AUC": CLASSIFICATION, "R2": REGRESSION}
    for stage in ("probe", "finetune"):
        for metric, sets in kinds.items():
            found = [r for r in rows if r["stage"] == stage]
            used = tuple(d for d in sets if d in {r["dataset"] for r in found})
            trained = {r["model"] for r in found}
            members = {k: tuple(m for m in models if m in trained) for k, models in groups.items()}
            curves = {k: curve(found, models, used) for k, models in members.items() if models}
            curves = {k: v for k, v in curves.items() if v}
            if curves:
                lines += table(f"{stage}, {metric}, mean of {', '.join(used)}", curves)
                panels.setdefault(metric, curves)
    options.results.mkdir(parents=True, exist_ok=True)
    draw_panels(options.results / "few-labels.png", panels)
    (options.results / "few-labels.md").write_text("\n".join(lines).lstrip() + "\n")
    write_rows(options.results / "few-labels.csv.gz", rows)


def groups_of(options: argparse.Namespace, rows: list[Row]) -> dict[str, tuple[str, ...]]:
    """Return the models of each row of the tables, one a seed of pre-training."""
    groups = {PRETRAINED: tuple(options.candidates)}
    groups |= {
        name: tuple(m.split(",")) for name, _, m in (g.partition("=") for g in options.group)
    }
    grouped = {name for members in groups.values() for name in members}
    names = dict.fromkeys(r["model"] for r in rows if PLUS not in r["model"])
    groups |= {name: (name,) for name in names if name not in grouped}
    fused = combinations_of(options)
    for rest in [parts[1:] for parts in fused if parts[0] == options.candidates[0]]:
        members = tuple(PLUS.join((name, *rest)) for name in options.candidates)
        groups[PLUS.join((PRETRAINED, *rest))] = members
    return groups | {PLUS.join(p): (PLUS.join(p),) for p in fused if p[0] not in grouped}


def table(title: str, curves: dict[str, Curve]) -> list[str]:
    """Return a table of means and spreads over draws, and of differences to the first row."""
    sizes = sorted({n for found in curves.values() for n in found})
    head = ["", f"### {title}", "", f"| | {' | '.join(f'{n} labels' for n in sizes)} |"]
    lines = [*head, "|" + "---|" * (len(sizes) + 1)]
    for name, found in curves.items():
        cells = [spread(found[n]) if n in found else "" for n in sizes]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    first, ours = next(iter(curves.items()))
    for name, found in list(curves.items())[1:]:
        cells = [
            f"{spread(ours[n] - found[n], '+')}" if n in found and n in ours else "" for n in sizes
        ]
        lines.append(f"| {first} - {name} | {' | '.join(cells)} |")
    return lines


def spread(values: np.ndarray, sign: str = "") -> str:
    """Return mean and standard deviation."""
    return f"{values.mean():{sign}.1f} ± {values.std(ddof=1):.1f}"


def draw_panels(path: Path, panels: dict[str, dict[str, Curve]]) -> None:
    """Draw a line a model over the number of labels, one panel a score."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(panels), figsize=(9, 4.6), layout="constrained")
    for ax, (metric, curves) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        drawn = {k: v for k, v in curves.items() if PLUS not in k or k in DRAWN_FUSED}
        for number, (name, found) in enumerate(drawn.items()):
            sizes, means = list(found), [v.mean() for v in found.values()]
            ours = name.startswith(PRETRAINED)
            style = {"linestyle": "--" if PLUS in name else "-", "linewidth": 2.2 if ours else 1.2}
            color = "black" if name == PRETRAINED else f"C{number - 1}"
            ax.plot(sizes, means, marker="o", markersize=4, label=name, color=color, **style)
        ax.set(xscale="log", xlabel="labeled molecules", ylabel=f"{metric} on the test fold (%)")
        ticks = sorted({n for found in drawn.values() for n in found})
        ax.set_xticks(ticks, [str(n) for n in ticks])
        ax.minorticks_off()
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    handles, names = np.atleast_1d(axes)[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    """Parse the stage and its options, and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=("probe", "finetune", "report"))
    parser.add_argument("--models", nargs="+", default=[], metavar="NAME=PLACE")
    parser.add_argument("--datasets", nargs="+", default=[*CLASSIFICATION, *REGRESSION])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--schema", default="molecule-cip")
    parser.add_argument("--calibration", type=Path, default=Path("runs/stores/druglike"))
    parser.add_argument("--candidates", nargs="+", default=["mol"], help="one model a seed")
    parser.add_argument("--group", action="append", default=[], metavar="NAME=MODEL,MODEL")
    parser.add_argument("--reference", default="untrained")
    parser.add_argument("--work", type=Path, default=Path("runs/few-labels"))
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results/selection"))
    options = parser.parse_args()
    {"probe": probe, "finetune": fine_tuned, "report": report}[options.stage](options)


if __name__ == "__main__":
    main()
