"""The tables of a report, and its pages in Markdown, CSV and LaTeX, with their figures.

Measured scores stand beside the paper's; throughput and maps are numbers.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from graphlog.benchmark.cells import (
    BASELINES,
    GIN,
    LOSSES,
    PAPER,
    REFERENCE,
    SUITES,
    UNTRAINED,
    Suite,
)
from graphlog.benchmark.folder import BenchmarkFolder
from graphlog.benchmark.stages import FIXED, VALIDATED
from graphlog.downstream.metrics import IN_PERCENT, LOWER_IS_BETTER, paired_interval
from graphlog.errors import MissingExtraError
from graphlog.files import write_text

MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"
YARDSTICK = "attrmasking"
"""The method whose throughput the others are compared with: one view, one head."""
LABELS: Mapping[str, str] = {
    **{UNTRAINED: "Untrained", "edgepred": "EdgePred", "infograph": "InfoGraph"},
    **{"attrmasking": "AttrMasking", "contextpred": "ContextPred"},
    **{"graphpartition": "GraphPartition", "graphcl": "GraphCL", "graphlog": "GraphLoG"},
    **{f"graphlog-{r}": f"GraphLoG ({r} recipe)" for r in ("default", "paper", "released")},
    "graphlog-mol": "graphlog-mol (shipped)",
    **{"infomax": "Infomax", "graphmae": "GraphMAE", "descriptorpred": "DescriptorPred"},
    **{"ecfp4": "ECFP4", "descriptors": "RDKit descriptors"},
    **{"ecfp-rf": "ECFP4 + random forest", "ecfp-lr": "ECFP4 + {linear} regression"},
    **{"gcn": "GCN", "graphsage": "GraphSAGE", "gat": "GAT", "gin": "GIN"},
    **{"bbbp": "BBBP", "tox21": "Tox21", "toxcast": "ToxCast", "sider": "SIDER"},
    **{"clintox": "ClinTox", "muv": "MUV", "hiv": "HIV", "bace": "BACE"},
    **{"depth": "Depth of the prototypes", "batch_size": "Batch size"},
    **{"roc_auc": "ROC-AUC", "average_precision": "average precision", "r2": "R²"},
    **{"rmse": "RMSE", "mae": "MAE", "pearson": "Pearson's r"},
    **{"fp32": "graphlog fp32", "bf16": "graphlog bf16"},
    **{"parse": "Parse SMILES", "collate": "Collate a batch"},
    **{"forward": "Forward, with the losses of GraphLoG", "backward": "Backward"},
    **{"optimizer": "Optimizer step", "step": "Pre-training step: the four above"},
    **{"kmeans": "Fit the prototypes (K-means)", "finetune": "Fine-tuning step"},
    "embed": "Embed",
}
"""How names are printed, in the order of their rows and columns."""
_RULES = {
    ("finetune", FIXED): "fine-tuned, last epoch",
    ("finetune", VALIDATED): "fine-tuned, epoch of the best validation score",
    ("probe", FIXED): "linear probe of frozen embeddings, C = 0.1",
    ("probe", VALIDATED): "linear probe of frozen embeddings, C chosen on the validation fold",
}
_HEADS = {VALIDATED: "linear", "kernel": "kernel", "boosting": "boosted trees"}
OTHER_PAPER = "paper (biology, 8 species)"
Places = Mapping[tuple[str, str], tuple[float, float]]
"""Means and SDs by row and column."""


def label(name: str, task: str = "classification", domain: str = "molecule") -> str:
    """Return how a name is printed; the linear model of fingerprints by its task."""
    if name in BASELINES and domain == "protein":
        name = LABELS["ecfp-lr"].replace("ECFP4", "Statistics")
    linear = "ridge" if task == "regression" else "logistic"
    return LABELS.get(name, name).format(linear=linear)


def in_order(names: Iterable[str]) -> list[str]:
    """Return known names in the order of :data:`LABELS`, then the others, numbers by size."""
    order = {name: place for place, name in enumerate(LABELS)}
    rank = lambda n: (order.get(n, len(order)), float(n) if n.isdigit() else math.inf, n)  # noqa: E731
    return sorted(set(names), key=rank)


@dataclass(frozen=True)
class Table:
    """Scores of rows on columns under one stage and selection rule, all in one metric."""

    name: str
    title: str
    heads: tuple[str, ...]
    """Heads of the columns that name a row."""
    rows: Mapping[str, tuple[str, ...]]
    """Rows and their first columns, in order."""
    metric: str
    scores: pd.DataFrame
    """Columns ``row``, ``column``, ``seed`` (empty without one) and ``value``, as printed."""
    reference: Mapping[str, str] = field(default_factory=dict[str, str])
    """Row that each is compared with, where there is one."""
    paper: Places = field(default_factory=dict[tuple[str, str], tuple[float, float]])
    """The paper's mean and SD by row and column; column ``""`` is of other data than ours."""
    kind: str = "scores"
    """``curve`` for a curve of Figure 3, ``parts`` where columns must not be averaged."""

    @property
    def percent(self) -> bool:
        """Whether scores are printed in per cent."""
        return self.metric in IN_PERCENT

    @cached_property
    def columns(self) -> list[str]:
        """The measured columns, in order."""
        return in_order(self.scores["column"])

    @cached_property
    def averages(self) -> dict[str, list[str]]:
        """Average columns and what each is taken over."""
        columns = self.columns
        if self.kind == "parts" or len(columns) < 2:
            return {}
        found = {f"Average of {len(columns)}": columns}
        if "clintox" in columns and len(columns) > 2:  # it swings most
            found["without ClinTox"] = [c for c in columns if c != "clintox"]
        return found

    @property
    def compared(self) -> str:
        """The column in which rows are compared: the average, or the only one."""
        return next(iter(self.averages), self.columns[0] if len(self.columns) == 1 else "")

    @cached_property
    def by_seed(self) -> pd.DataFrame:
        """Scores by row and seed, a column each; averages where all columns have a score."""
        wide = self.scores.set_index(["row", "seed", "column"])["value"].unstack("column")
        for head, columns in self.averages.items():
            wide[head] = wide[columns].mean(axis=1, skipna=False)
        return wide

    def at(self, row: str, column: str) -> "pd.Series[float]":
        """Return the scores of a place by seed; empty where not measured or undefined."""
        if row not in self.by_seed.index or column not in self.by_seed:
            return pd.Series(dtype="float64")
        return self.by_seed[column].loc[[row]].droplevel("row").dropna()

    def difference(self, row: str, column: str) -> "pd.Series[float]":
        """Return the difference to the reference for each seed that both have."""
        reference = self.reference.get(row, "")
        ours, other = self.at(row, column), self.at(reference, column)
        if row == reference or ours.empty or other.empty:
            return pd.Series(dtype="float64")
        if "" in ours.index:  # a row without seeds is compared with every seed
            return ours.iloc[0] - other
        return ours - other.iloc[0] if "" in other.index else (ours - other).dropna()

    def of_paper(self, row: str, column: str) -> tuple[float, float]:
        """Return the paper's mean and SD; of an average over our columns, the mean alone."""
        if column not in self.averages or (row, column) in self.paper:
            return self.paper.get((row, column), (math.nan, math.nan))
        return float(np.mean([self.of_paper(row, c)[0] for c in self.averages[column]])), math.nan

    def records(self) -> pd.DataFrame:
        """Return every number, unrounded, a row a place: measured, difference, and the paper's."""
        found: list[dict[str, Any]] = []
        for row, column in product(self.rows, [*self.columns, *self.averages, ""]):
            measured, change = spread(self.at(row, column)), spread(self.difference(row, column))
            paper = dict(zip(("paper", "paper_sd"), self.of_paper(row, column), strict=True))
            if measured["seeds"] or not math.isnan(paper["paper"]):
                place = {"table": self.name, "metric": self.metric, "row": row, "column": column}
                changed = {f"difference_{key}": value for key, value in change.items()}
                found.append({**place, **measured, **changed, **paper})
        return pd.DataFrame(found)

    def frame(self, strong: str = "{}", quoted: str = "{}") -> pd.DataFrame:
        """Return the table as it is printed, measured beside the paper's numbers.

        Args:
            strong: How the best mean of a column is marked.
            quoted: How the paper's numbers are marked.
        """
        all_columns = [*self.columns, *self.averages]
        means = self.by_seed[self.columns].groupby("row").mean()
        ascending = self.metric in LOWER_IS_BETTER
        ranks = means.dropna().rank(ascending=ascending).mean(axis=1)
        best = {c: str(row) for c, row in (means.idxmin() if ascending else means.idxmax()).items()}
        lines: list[dict[str, str]] = []
        for row, heads in self.rows.items():
            counts = [len(self.at(row, column)) for column in self.columns]
            scores = {c: self._score(self.at(row, c), max(counts)) for c in all_columns}
            scores |= {c: strong.format(scores[c]) for c in self.columns if best[c] == row}
            line = {**dict(zip(self.heads, heads, strict=True)), " ": "measured", **scores}
            line["Rank"] = f"{ranks[row]:.1f}" if row in ranks.index else DASH
            is_random = not any("" in self.at(row, column).index for column in self.columns)
            line["Seeds"] = str(max(counts)) if is_random else "not random"
            line[f"Δ to {self.reference_label} [95 % CI]"] = self.change(row, "one seed, no CI")
            line[OTHER_PAPER] = self._quoted(row, "", quoted)
            lines.append(line)
            if any(place[0] == row for place in self.paper):
                printed = {c: self._quoted(row, c, quoted) for c in all_columns}
                lines.append({" ": quoted.format("paper"), **printed})
        frame = pd.DataFrame(lines).fillna("").rename(columns=label)
        if not any(column for _, column in self.paper):
            frame = frame[frame[" "] != quoted.format("paper")].drop(columns=" ")
        if all(column for _, column in self.paper):
            frame = frame.drop(columns=OTHER_PAPER)
        if not self.reference or not self.compared:
            frame = frame.drop(columns=["Rank", *(c for c in frame.columns if c.startswith("Δ"))])
        return frame

    @property
    def reference_label(self) -> str:
        """How the reference is called."""
        references = {row.rpartition("/")[2] for row in self.reference.values()}
        if references == {SUITES["ablation"].reference}:
            return "all three"
        return label(REFERENCE if len(references) != 1 else references.pop())

    def change(self, row: str, alone: str) -> str:
        """Return the difference to the reference with its interval, or ``alone`` for one seed."""
        if row == self.reference.get(row):
            return "reference"
        found, measured = spread(self.difference(row, self.compared)), self.at(row, self.compared)
        if not found["seeds"]:
            return DASH
        mean, low, high = (self.number(found[n], signed=True) for n in ("mean", "low", "high"))
        fewer = f" ({found['seeds']} seeds)" if found["seeds"] < len(measured) else ""
        return f"{mean} ({alone})" if found["seeds"] == 1 else f"{mean} [{low}, {high}]{fewer}"

    def number(self, value: float, signed: bool = False) -> str:
        """Return a score as printed: one decimal in per cent, three otherwise."""
        text = f"{value:{'+' if signed else ''}.{1 if self.percent else 3}f}"
        return text.replace("-", MINUS)

    def _score(self, scores: "pd.Series[float]", usual: int) -> str:
        found = spread(scores)
        fewer = f" ({found['seeds']} of {usual} seeds)" if found["seeds"] < usual else ""
        return self._plus_minus(found["mean"], found["sd"]) + fewer if found["seeds"] else DASH

    def _quoted(self, row: str, column: str, markup: str) -> str:
        mean, sd = self.of_paper(row, column)
        return DASH if math.isnan(mean) else markup.format(self._plus_minus(mean, sd))

    def _plus_minus(self, mean: float, sd: float) -> str:
        return self.number(mean) + ("" if math.isnan(sd) else f" ± {self.number(sd)}")


def spread(values: "pd.Series[float]") -> dict[str, Any]:
    r"""Return mean, sample SD, number of seeds and the interval :math:`\bar x \pm t s/\sqrt n`."""
    mean, half = paired_interval(values.to_numpy(), 0.0)
    found = {"mean": mean, "sd": float(values.std()), "seeds": len(values)}
    return {**found, "low": mean - half, "high": mean + half}


def score_tables(name: str, rows: pd.DataFrame) -> list[Table]:
    """Return the tables of a suite: one for each stage, selection rule and metric."""
    tables: list[Table] = []
    scores = rows[(rows["task"] == "") & (rows["dataset"] != "") & (rows["fold"] != "valid")]
    scores = scores[scores["metric"] != "seconds"]
    if suite_of(name).metrics:
        return _by_head(name, scores)
    is_features = scores["method"].isin(BASELINES)
    for (stage, rule), words in _RULES.items():
        encoders = scores[(scores["stage"] == stage) & (scores["rule"] == rule) & ~is_features]
        features = scores[is_features & scores["rule"].isin([rule, ""])]
        if len(encoders):
            features = features[features["dataset"].isin(encoders["dataset"])]
        elif stage == "finetune" or not is_features.all():
            continue
        part = pd.concat([encoders, features])
        for metric, here in part.groupby("metric"):
            unit = "" if metric == "roc_auc" else f"-{metric}"
            tables += _tables_of(name, f"{name}-{stage}-{rule}{unit}", words, str(metric), here)
    return tables


def _tables_of(name: str, stem: str, words: str, metric: str, scores: pd.DataFrame) -> list[Table]:
    """Return the tables of one stage, rule and metric."""
    suite, title = suite_of(name), f"{suite_of(name).title}: {words}"
    split = ", " + scores["split"] if scores["split"].nunique() > 1 else ""
    value = scores["value"] * (100.0 if metric in IN_PERCENT else 1.0)
    scores = scores.assign(column=scores["dataset"] + split, row=scores["method"], value=value)
    task = "classification" if metric in IN_PERCENT else "regression"
    domain = "protein" if name == "biology" or name.endswith("-protein") else "molecule"
    names = {method: label(method, task, domain) for method in in_order(scores["method"])}
    test, other = (scores[scores["fold"].eq("test") == is_test] for is_test in (True, False))
    if suite.vary:
        return [
            t for v in suite.vary for t in _variants(suite, v, stem, title, metric, test, names)
        ]
    if set(test["backbone"]) - {GIN, ""}:
        return _backbones(suite, stem, title, metric, test, names)
    rows = {method: (text,) for method, text in names.items()}
    paper = of_paper(suite.paper, metric, test["column"])
    whole = Table(
        stem, title, ("Method",), rows, metric, test, _references(rows, suite.reference), paper
    )
    if other.empty:
        return [whole]
    halves = other["fold"].str.removeprefix("test_").str.replace("_", " ")
    other = other.assign(column=other["column"] + ", " + halves)
    head = f"{title}, the two halves of the test set"
    fields = (f"{stem}-halves", head, ("Method",), rows, metric, other)
    return [whole, Table(*fields, kind="parts")]


def _by_head(name: str, scores: pd.DataFrame) -> list[Table]:
    """Return a table a split and metric, a row for every kind of features under every head."""
    suite, tables = suite_of(name), list[Table]()
    scores = scores[scores["rule"].isin(_HEADS)]
    names = {method: label(method) for method in in_order(scores["method"])}
    there = set(zip(scores["method"], scores["rule"], strict=True))
    heads = {
        f"{rule}/{method}": (text, words)
        for method, text in names.items()
        for rule, words in _HEADS.items()
        if (method, rule) in there
    }
    scores = scores.assign(row=scores["rule"] + "/" + scores["method"], column=scores["dataset"])
    to = _references(heads, suite.reference)
    for split, metric in product(dict.fromkeys(scores["split"]), suite.metrics):
        part = scores[(scores["split"] == split) & (scores["metric"] == metric)]
        if len(part):
            part = part.assign(value=part["value"] * (100.0 if metric in IN_PERCENT else 1.0))
            words = f"{suite.title}: {label(metric)}, {split} split"
            fields = (f"{name}-{split}-{metric}", words, ("Features", "Head"), heads, metric, part)
            tables.append(Table(*fields, to))
    return tables


def _variants(
    suite: Suite,
    varied: str,
    stem: str,
    title: str,
    metric: str,
    test: pd.DataFrame,
    names: Mapping[str, str],
) -> list[Table]:
    """Return the rows of one varied setting, and below the rows without it."""
    is_varied = test["variant"].str.startswith(f"{varied}=")
    if not is_varied.any():
        return []
    test = test.assign(row=test["variant"].where(is_varied, test["method"]))
    test = test[is_varied | (test["variant"] == "")]
    values = in_order(test["variant"].str.partition("=")[2].loc[is_varied])
    if varied == "losses":
        values = [losses for losses in suite.losses if losses in values]
        heads, kind, paper = tuple(LOSSES.values()), "scores", suite.paper
        marks = {v: tuple("✓" * (loss in v.split("+")) for loss in LOSSES) for v in values}
    else:
        heads, kind, paper = (label(varied),), "curve", f"{suite.paper}_{varied}"
        stem, title = f"{stem}-{varied}", f"{title}, {label(varied).lower()}"
        marks = {v: (v,) for v in values}
    blanks = ("",) * (len(heads) - 1)
    rows = {f"{varied}={v}": mark for v, mark in marks.items()}
    rows |= {m: (text, *blanks) for m, text in names.items() if m in set(test["row"])}
    printed = {(f"{varied}={row}", c): n for (row, c), n in of_paper(paper, metric).items()}
    to = _references(rows, suite.reference)
    return [Table(stem, title, heads, rows, metric, test, to, printed, kind)]


def _backbones(
    suite: Suite, stem: str, title: str, metric: str, test: pd.DataFrame, names: Mapping[str, str]
) -> list[Table]:
    """Return the averages of each method under each backbone, then all data sets."""
    there = set(zip(test["backbone"], test["method"], strict=True))
    places = [(b, m) for b in in_order(test["backbone"]) for m in names if (b, m) in there]
    rows = {f"{b}/{m}": (label(b) or DASH, names[m]) for b, m in places}
    to = _references(rows, suite.reference)
    part = test.assign(row=test["backbone"] + "/" + test["method"])
    whole = Table(stem, title, ("Backbone", "Method"), rows, metric, part, to, kind="whole")
    averages = whole.by_seed[whole.compared].dropna().rename("value").reset_index()
    averages[["column", "row"]] = averages["row"].str.split("/", expand=True)
    averages = averages[averages["column"] != ""]
    shown = {m: (text,) for m, text in names.items() if m in set(averages["row"])}
    paper = of_paper(suite.paper, metric, averages["column"])
    head = f"{title}, averages over {', '.join(label(c) for c in whole.columns)}"
    fields = (f"{stem}-summary", head, ("Method",), shown, metric, averages)
    return [Table(*fields, {}, paper, "parts"), whole]


def _references(rows: Iterable[str], reference: str) -> dict[str, str]:
    """Return the row that each is compared with: ``reference``, under the same backbone or head."""
    to = {row: "".join([*row.rpartition("/")[:2], reference]) for row in rows}
    return {row: other for row, other in to.items() if other in to}


def of_paper(table: str, metric: str, columns: Iterable[str] = ()) -> Places:
    """Return the paper's numbers by row and column; those of one column are of other data."""
    if metric != "roc_auc" or table not in PAPER:
        return {}
    printed, shown = PAPER[table], {"", *columns}
    heads = [""] if printed["columns"] == ["biology"] else printed["columns"]
    found = {
        (row, column): (mean, sd)
        for row, values in printed["rows"].items()
        for column, (mean, sd) in zip(heads, values, strict=True)
        if column in shown
    }
    if "average" in printed and shown == {"", *heads}:
        found |= {(r, "Average of 8"): (mean, math.nan) for r, mean in printed["average"].items()}
    return found


def suite_of(name: str) -> Suite:
    """Return the suite of a table."""
    return SUITES[name.removesuffix("-protein")]


def speed_frames(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the throughput of pre-training, the stages, and batch sizes."""
    frames: dict[str, pd.DataFrame] = {}
    rates = rows[(rows["stage"] == "speed") & (rows["method"] != "")]
    if len(rates):
        index = ["backbone", "method"]
        wide = rates.pivot_table(index=[*index, "seed"], columns="metric", values="value")
        mean = wide.groupby(index).mean().reindex(columns=["graphs_per_s", "views_per_s"])
        yardsticks = mean.reindex([(backbone, YARDSTICK) for backbone, _ in mean.index])
        ratio = mean["graphs_per_s"].to_numpy() / yardsticks["graphs_per_s"].to_numpy()
        mean = mean.assign(ratio=ratio, seeds=wide.groupby(index).size())
        order = [(b, m) for b in in_order(rates["backbone"]) for m in in_order(rates["method"])]
        mean = mean.loc[[place for place in order if place in mean.index]]
        mean.index = pd.MultiIndex.from_tuples([(label(b), label(m)) for b, m in mean.index])
        mean.index.names = ["Backbone", "Method"]
        mean.columns = ["Graphs/s", "Views/s", f"to {label(YARDSTICK)}", "Seeds"]
        frames["Pre-training throughput"] = mean.reset_index()
    own = rows[(rows["stage"] == "stage-speed") & (rows["rule"] != "")]
    sides = [side for side in in_order(own["rule"]) if side in ("fp32", "bf16")]
    for title, kept in (
        ("Stages, seconds for 1,000 graphs", sides),
        ("Pre-training step by batch size, graphs/s", [f"batches {side}" for side in sides]),
    ):
        part = own[own["rule"].isin(kept)]
        if len(part):
            wide = part.pivot_table(index="metric", columns="rule", values="value")
            wide = wide.reindex(index=in_order(part["metric"]))
            wide = wide[[rule for rule in kept if rule in wide.columns]]
            wide.index = pd.Index([label(key) for key in wide.index], name="What")
            wide.columns = [label(c.removeprefix("batches ")) for c in wide.columns]
            frames[title] = wide.reset_index()
    return frames


def map_frame(rows: pd.DataFrame) -> pd.DataFrame:
    """Return what the maps of Figure 4 say in numbers."""
    part = rows[rows["rule"] == "quality"]
    wide = part.pivot(index="variant", columns="metric", values="value")
    sizes = part.groupby("variant")["prototypes"].first()
    wide.insert(0, "prototypes learned", sizes.replace("", "none"))
    wide.index = pd.Index([str(v).removeprefix("losses=") for v in wide.index], name="losses")
    return wide.rename(columns=lambda name: name.replace("_", " ")).reset_index()


_LEGEND = (
    "Scores are of the test fold, in per cent where the metric allows: mean ± sample standard "
    "deviation over seeds. **Bold**: best measured mean of the column. *Italics*: printed in the "
    "paper. A seed whose score is undefined (a fold of one class) is left out and the count shown.",
    "Averages are taken per seed over the data sets shown. Rank: mean over the data sets of the "
    "rank among the rows measured in full, 1 is best.",
    "Δ: the row's average minus the reference's with the same seed, mean over seeds, with a 95 % "
    "Student-t interval. A row without seeds is compared with every seed.",
    "Fingerprints are not trained further: a forest has one score under every rule; their linear "
    "model has C = 0.1 beside the last epoch, C by validation beside the best one.",
)
_OTHER_DATA = (
    f"Paper: {PAPER['source']}, {PAPER['runs']} runs, pre-trained on 395,000 protein ego-networks "
    "and fine-tuned on 40 functions of eight species, tested on another species: other data and "
    "another split than here. Compare orders and differences, not levels."
)


def write_pages(folder: BenchmarkFolder, out: Path) -> list[Path]:
    """Write one page a table of results (Markdown, CSV, LaTeX, figures) and ``index.md``.

    The files depend on the tables alone; pages of scores hold nothing that was timed. Without
    matplotlib the index says that no figures were drawn.

    Returns:
        The files written, in order, the index last.

    Raises:
        DataError: If there are no cells, or a file cannot be used.
    """
    names, index, written = folder.pages(), ["# Benchmark", ""], list[Path]()
    out.mkdir(parents=True, exist_ok=True)
    figures: Mapping[str, Mapping[str, list[Path]]] = {}
    try:
        from graphlog.benchmark.figures import draw_pages

        figures = draw_pages(folder, out)
    except MissingExtraError as error:
        index += [f"Figures were not drawn: {error}", ""]
    for name in names:
        rows, title, drawn = folder.rows(name), suite_of(name).title, figures.get(name, {})
        tables = score_tables(name, rows)
        numbers = speed_frames(rows)
        if (rows["rule"] == "quality").any():
            numbers[title] = map_frame(rows)
        frames = {table.title: table.frame("**{}**", "*{}*") for table in tables} | numbers
        if not frames:  # nothing but pre-training so far
            continue
        lines = [f"# {title}", ""]
        for head, frame in frames.items():
            lines += [f"## {head}", "", _markdown(frame), ""]
            for path in (path for path in drawn.get(head, ()) if path.suffix == ".png"):
                lines += [f"![{head}]({path.name})", ""]
        lines += ["<!-- notes -->", "## How to read this page", ""]
        legend = _LEGEND if tables else ()
        lines += [f"- {note}" for note in [*legend, *_notes(name, rows)]]
        written += [path for paths in drawn.values() for path in paths]
        files = {"md": "\n".join(lines) + "\n"}
        files["tex"] = "\n".join(
            frame.to_latex(index=False, escape=True, caption=head)
            for head, frame in ({table.title: table.frame() for table in tables} | numbers).items()
        )
        records = [table.records() for table in tables] or list(frames.values())
        files["csv"] = pd.concat(records).to_csv(index=False)
        for kind, text in files.items():
            write_text(out / f"{name}.{kind}", text)
            written.append(out / f"{name}.{kind}")
        head, frame = next(iter(frames.items()))
        index += [f"## {title}", "", f"{head}:", "", _markdown(frame)]
        index += ["", f"[All tables and figures]({name}.md)", ""]
    write_text(out / "index.md", "\n".join(index))
    return [*written, out / "index.md"]


def _markdown(frame: pd.DataFrame) -> str:
    return frame.to_markdown(index=False, floatfmt=",.4g", missingval=DASH)


def _notes(name: str, rows: pd.DataFrame) -> list[str]:
    """Return data, settings, machine, versions and command of a page; nothing that was timed."""
    suite = suite_of(name)
    cells = [json.loads(text) for text in rows["details"].unique() if text]
    found: dict[str, set[str]] = {}

    def add(head: str, values: Mapping[str, Any]) -> None:
        text = ", ".join(f"{k} {v}" for k, v in values.items() if not isinstance(v, dict))
        found.setdefault(head, set()).add(text)

    for cell in cells:
        settings = cell["settings"]
        if "pretrain" in settings:
            kept = ("epochs", "batch_size", "learning_rate", "precision")
            pretrain = {k: v for k, v in settings["pretrain"].items() if k in kept}
            add("Pre-training", pretrain | settings["pretrain"].get("encoder", {}))
        if "finetune" in settings:
            add("Fine-tuning", settings["finetune"])
        add("Machine", cell["machine"])
        add("Versions", cell["versions"])
    notes = [f"{head}: {'; '.join(sorted(texts))}." for head, texts in found.items()]
    notes += [f"Note: {text}" for text in sorted({t for c in cells for t in c.get("notes", ())})]
    if names := set(rows["calibrated_on"]) - {""}:
        about = "Graphs of pre-training, on which batch norms of all encoders are calibrated"
        notes.insert(0, f"{about}, untrained ones too: {names.pop()}.")
    if suite.paper and suite.paper != "table_1":
        notes.append(_OTHER_DATA)
    elif suite.paper:
        notes.append(
            f"Paper: {PAPER['source']}, Table 1, {PAPER['runs']} runs, fine-tuned; averages of "
            "other columns than its eight are derived."
        )
    domain = " --domain protein" if name.endswith("-protein") else ""
    scales = sorted(set(rows["scale"]))
    command = name.removesuffix("-protein")
    runs = (f"`graphlog benchmark {command} -o DIR --scale {s}{domain}`" for s in scales)
    return [*notes, f"Command: {'; '.join(runs)}."]
