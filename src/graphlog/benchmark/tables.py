"""The tables of a report, and its pages in Markdown, with figures.

Tables of scores show the paper's scores next to the measured ones.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from graphlog.benchmark.cells import (
    BASELINES,
    GIN,
    LINEAR,
    PAPER,
    SUITES,
    UNTRAINED,
    Cell,
    Request,
    Suite,
    plan_cells,
)
from graphlog.benchmark.folder import BenchmarkFolder
from graphlog.benchmark.stages import FIXED, VALIDATED
from graphlog.downstream.metrics import IN_PERCENT, LOWER_IS_BETTER, paired_interval
from graphlog.errors import MissingExtraError
from graphlog.files import write_text
from graphlog.training.settings import PretrainConfig

MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"
YARDSTICK = "attrmasking"
"""Method that the throughput of others is compared with, since it has one view and one head."""
LABELS: Mapping[str, str] = {
    **{UNTRAINED: "Untrained", "edgepred": "EdgePred", "infograph": "InfoGraph"},
    **{"attrmasking": "AttrMasking", "contextpred": "ContextPred"},
    **{"graphpartition": "GraphPartition", "graphcl": "GraphCL", "graphlog": "GraphLoG"},
    **{f"graphlog-{r}": f"GraphLoG ({r} recipe)" for r in ("default", "paper", "released")},
    "graphlog-mol": "graphlog-mol (shipped)",
    **{"infomax": "Infomax", "graphmae": "GraphMAE", "descriptorpred": "DescriptorPred"},
    **{"ecfp4": "ECFP4", "descriptors": "RDKit descriptors"},
    **{"ecfp-rf": "ECFP4 + random forest", "ecfp-lr": "ECFP4 + linear model"},
    **{"gcn": "GCN", "graphsage": "GraphSAGE", "gat": "GAT", "gin": "GIN"},
    **{"bbbp": "BBBP", "tox21": "Tox21", "toxcast": "ToxCast", "sider": "SIDER"},
    **{"clintox": "ClinTox", "muv": "MUV", "hiv": "HIV", "bace": "BACE"},
    **{"losses": "Losses", "depth": "Depth of the prototypes", "batch_size": "Batch size"},
    **{"roc_auc": "ROC-AUC", "average_precision": "average precision", "r2": "R²"},
    **{"rmse": "RMSE", "mae": "MAE", "pearson": "Pearson's r"},
    SUITES["ablation"].reference: "all three",
}
"""Printed forms of names, in the order of rows and columns."""
_RULES = {
    ("finetune", FIXED): "fine-tuned, last epoch",
    ("finetune", VALIDATED): "fine-tuned, epoch of the best validation score",
    ("probe", FIXED): "linear probe of frozen embeddings, C = 0.1",
    ("probe", VALIDATED): "linear probe of frozen embeddings, C chosen on the validation set",
}
_HEADS = {VALIDATED: "linear", "kernel": "kernel", "boosting": "boosted trees"}
OTHER_PAPER = "paper (biology, 8 species)"
PaperNumbers = Mapping[tuple[str, str], tuple[float, float]]
"""Means and standard deviations by row and column."""


def label(name: str, is_protein: bool = False) -> str:
    """Return the printed form of a name."""
    if is_protein and name in BASELINES:
        return LABELS[LINEAR].replace("ECFP4", "Statistics")
    return LABELS.get(name, name)


def in_order(names: Iterable[str]) -> list[str]:
    """Return distinct names: first those of :data:`LABELS`, then numbers by size, then others."""
    order = {name: position for position, name in enumerate(LABELS)}

    def rank(name: str) -> tuple[int, float, str]:
        number = float(name) if name.isdigit() else math.inf
        return order.get(name, len(order)), number, name

    return sorted(set(names), key=rank)


@dataclass(frozen=True)
class Table:
    """Scores of one metric under one stage and selection rule, mostly of methods on data sets."""

    suite: Suite
    name: str
    title: str
    metric: str
    scores: pd.DataFrame
    """Scores as printed, with columns ``row``, ``column``, ``seed`` (or empty) and ``value``."""
    rows: Mapping[str, tuple[str, ...]]
    """Printed names of each row, one for each of ``heads``; in the order of the rows."""
    heads: tuple[str, ...] = ("Method",)
    """Headings of the columns with the names of rows."""
    paper: PaperNumbers = field(default_factory=dict[tuple[str, str], tuple[float, float]])
    """Numbers of the paper; those with an empty column name are results on other data than ours."""
    kind: Literal["scores", "whole", "curve", "summary"] = "scores"
    """``whole`` has a summary, which is drawn instead; ``curve`` is drawn as a part of Figure 3;
    columns of a ``summary`` are neither averaged nor compared."""

    @property
    def percent(self) -> bool:
        """Whether scores are printed in percent."""
        return self.metric in IN_PERCENT

    @cached_property
    def columns(self) -> list[str]:
        """Names of the measured columns, in order."""
        return in_order(self.scores["column"])

    @cached_property
    def averages(self) -> dict[str, list[str]]:
        """Names of average columns, with the columns that each is the average of."""
        columns = self.columns
        if self.kind == "summary" or len(columns) < 2:
            return {}
        averages = {f"Average of {len(columns)}": columns}
        if "clintox" in columns and len(columns) > 2:  # its scores vary most
            averages["without ClinTox"] = [c for c in columns if c != "clintox"]
        return averages

    @property
    def compared(self) -> str:
        """Name of the column in which rows are compared: the average or the only column."""
        return next(iter(self.averages), self.columns[0] if len(self.columns) == 1 else "")

    def reference(self, row: str) -> str:
        """Return the row with the same backbone or head that ``row`` is compared with, or ""."""
        prefix, slash, _ = row.rpartition("/")
        reference = f"{prefix}{slash}{self.suite.reference}"
        return reference if reference in self.rows and self.kind != "summary" else ""

    @cached_property
    def by_seed(self) -> pd.DataFrame:
        """Scores and averages (NaN unless all columns have a score) by row and seed."""
        wide = self.scores.set_index(["row", "seed", "column"])["value"].unstack("column")
        for head, columns in self.averages.items():
            wide[head] = wide[columns].mean(axis=1, skipna=False)
        return wide

    def scores_of(self, row: str, column: str) -> "pd.Series[float]":
        """Return the scores of a row in a column by seed, without those that are undefined."""
        if row not in self.by_seed.index or column not in self.by_seed:
            return pd.Series(dtype="float64")
        return self.by_seed[column].loc[[row]].droplevel("row").dropna()

    def difference(self, row: str, column: str) -> "pd.Series[float]":
        """Return the difference to the reference row for each seed that both rows have."""
        reference = self.reference(row)
        scores, others = self.scores_of(row, column), self.scores_of(reference, column)
        if row == reference or scores.empty or others.empty:
            return pd.Series(dtype="float64")
        if "" in scores.index:  # a row without seeds is compared with every seed
            return scores.iloc[0] - others
        return scores - others.iloc[0] if "" in others.index else (scores - others).dropna()

    def paper_number(self, row: str, column: str) -> tuple[float, float]:
        """Return the paper's mean and SD; only the mean for an average that the paper lacks."""
        if column not in self.averages or (row, column) in self.paper:
            return self.paper.get((row, column), (math.nan, math.nan))
        means = [self.paper_number(row, c)[0] for c in self.averages[column]]
        return float(np.mean(means)), math.nan

    @cached_property
    def numbers(self) -> dict[tuple[str, str], dict[str, float]]:
        """Unrounded numbers by row and column: measured, differences, and the paper's."""
        numbers: dict[tuple[str, str], dict[str, float]] = {}
        for row, column in product(self.rows, [*self.columns, *self.averages, ""]):
            change = summarize(self.difference(row, column))
            paper, paper_sd = self.paper_number(row, column)
            numbers[row, column] = {
                **summarize(self.scores_of(row, column)),
                **{f"difference_{key}": value for key, value in change.items()},
                **{"paper": paper, "paper_sd": paper_sd},
            }
        return numbers

    def column(self, name: str) -> pd.DataFrame:
        """Return the numbers of one column, a line per row of the table."""
        return pd.DataFrame({row: self.numbers[row, name] for row in self.rows}).T

    def frame(self) -> pd.DataFrame:
        """Return the printed table; ``**best mean**`` and ``*number of the paper*`` are marked."""
        shown, ascending = [*self.columns, *self.averages], self.metric in LOWER_IS_BETTER
        means = pd.DataFrame({column: self.column(column)["mean"] for column in self.columns})
        ranks = means.dropna().rank(ascending=ascending).mean(axis=1)
        defined = means.dropna(axis="columns", how="all")
        best_rows = defined.idxmin() if ascending else defined.idxmax()
        best = {str(column): str(row) for column, row in best_rows.items()}
        paper_columns = {column for _, column in self.paper}
        lines: list[dict[str, str]] = []
        for row, heads in self.rows.items():
            seeds = max(int(self.numbers[row, column]["seeds"]) for column in self.columns)
            scores = {column: self._measured(row, column, seeds) for column in shown}
            scores |= {c: f"**{scores[c]}**" for c in self.columns if best.get(c) == row}
            line = dict(zip(self.heads, heads, strict=True))
            line |= {" ": "measured"} if paper_columns - {""} else {}
            line |= scores
            if self.compared and any(map(self.reference, self.rows)):
                line["Rank"] = f"{ranks[row]:.1f}" if row in ranks.index else DASH
            is_random = not any("" in self.scores_of(row, column).index for column in self.columns)
            line["Seeds"] = str(seeds) if is_random else "not random"
            if "Rank" in line:
                line[f"Δ to {label(self.suite.reference)} [95 % CI]"] = self._change(row)
            if "" in paper_columns:
                line[OTHER_PAPER] = self._from_paper(row, "")
            lines.append(line)
            if any((row, column) in self.paper for column in shown):
                paper = {column: self._from_paper(row, column) for column in shown}
                lines.append({" ": "*paper*", **paper})
        return pd.DataFrame(lines).fillna("").rename(columns=label)

    def _measured(self, row: str, column: str, num_seeds: int) -> str:
        numbers = self.numbers[row, column]
        if not (seeds := numbers["seeds"]):
            return DASH
        fewer = f" ({seeds:.0f} of {num_seeds} seeds)" if seeds < num_seeds else ""
        return self._plus_minus(numbers["mean"], numbers["sd"]) + fewer

    def _from_paper(self, row: str, column: str) -> str:
        mean, sd = self.paper_number(row, column)
        return DASH if math.isnan(mean) else f"*{self._plus_minus(mean, sd)}*"

    def _change(self, row: str) -> str:
        if row == self.reference(row):
            return "reference"
        numbers = self.numbers[row, self.compared]
        seeds = numbers["difference_seeds"]
        if not seeds:
            return DASH
        keys = ("difference_mean", "difference_low", "difference_high")
        mean, low, high = (self._number(numbers[key], "+") for key in keys)
        if seeds == 1:
            return f"{mean} (one seed, no CI)"
        fewer = f" ({seeds:.0f} seeds)" if seeds < numbers["seeds"] else ""
        return f"{mean} [{low}, {high}]{fewer}"

    def _plus_minus(self, mean: float, sd: float) -> str:
        return self._number(mean) + ("" if math.isnan(sd) else f" ± {self._number(sd)}")

    def _number(self, value: float, sign: str = "") -> str:
        return f"{value:{sign}.{1 if self.percent else 3}f}".replace("-", MINUS)


def summarize(values: "pd.Series[float]") -> dict[str, float]:
    r"""Return mean, sample SD, number of seeds and the interval :math:`\bar x \pm t s/\sqrt n`."""
    mean, half = paired_interval(values.to_numpy(), 0.0)
    summary = {"mean": mean, "sd": float(values.std()), "seeds": len(values)}
    return {**summary, "low": mean - half, "high": mean + half}


def score_tables(name: str, rows: pd.DataFrame) -> list[Table]:
    """Return the tables of a suite, one for each split, stage, selection rule and metric."""
    suite, tables = suite_of(name), list[Table]()
    scores = rows[(rows["task"] == "") & (rows["dataset"] != "") & (rows["fold"] == "test")]
    scale = np.where(scores["metric"].isin(IN_PERCENT), 100.0, 1.0)
    scores = scores.assign(value=scores["value"] * scale, column=scores["dataset"])
    if suite.metrics:
        return _by_head(suite, name, scores)
    parts = product(scores.groupby("split"), _RULES.items())
    for (split, of_split), ((stage, rule), words) in parts:
        is_features = of_split["method"].isin(BASELINES)
        is_measured = (of_split["stage"] == stage) & (of_split["rule"] == rule)
        encoders = of_split[is_measured & ~is_features]
        features = of_split[is_features & of_split["rule"].isin([rule, ""])]
        if len(encoders):
            features = features[features["dataset"].isin(encoders["dataset"])]
        elif stage == "finetune" or not is_features.all():
            continue
        for metric, part in pd.concat([encoders, features]).groupby("metric"):
            stem, title = f"{name}-{stage}-{rule}", f"{suite.title}: {words}"
            if metric != "roc_auc":
                stem, title = f"{stem}-{metric}", f"{title}, {label(str(metric))}"
            if split:
                stem, title = f"{stem}-{split}", f"{title}, {split} split"
            part = part.assign(row=part["method"])
            is_protein = name == "biology" or name.endswith("-protein")
            names = {m: (label(m, is_protein),) for m in in_order(part["method"])}
            table = Table(suite, stem, title, str(metric), part, names)
            if suite.vary:
                tables += [_vary_table(table, v) for v in suite.vary if _is_varied(part, v).any()]
            elif set(part["backbone"]) - {GIN, ""}:
                tables += _by_backbone(table)
            else:
                paper = paper_numbers(suite.paper, table, table.columns)
                tables.append(replace(table, paper=paper))
    return tables


def _by_head(suite: Suite, name: str, scores: pd.DataFrame) -> list[Table]:
    """Return a table per split and metric, with a row for each kind of features and head."""
    scores = scores[scores["rule"].isin(_HEADS)]
    scores = scores.assign(row=scores["rule"] + "/" + scores["method"])
    methods = in_order(scores["method"])
    rows = {
        f"{rule}/{method}": (label(method), words)
        for method, (rule, words) in product(methods, _HEADS.items())
        if f"{rule}/{method}" in set(scores["row"])
    }
    tables: list[Table] = []
    for split, metric in product(dict.fromkeys(scores["split"]), suite.metrics):
        part = scores[(scores["split"] == split) & (scores["metric"] == metric)]
        title = f"{suite.title}: {label(metric)}, {split} split"
        fields = (suite, f"{name}-{split}-{metric}", title, metric, part, rows)
        tables += [Table(*fields, ("Features", "Head"))] if len(part) else []
    return tables


def _is_varied(scores: pd.DataFrame, varied: str) -> "pd.Series[bool]":
    return scores["variant"].str.startswith(f"{varied}=")


def _vary_table(table: Table, varied: str) -> Table:
    """Return the table with rows for the values of one varied setting, then the other methods."""
    suite, is_varied = table.suite, _is_varied(table.scores, varied)
    scores = table.scores[is_varied | (table.scores["variant"] == "")]
    scores = scores.assign(row=scores["variant"].where(is_varied, scores["method"]))
    values = {row.partition("=")[2] for row in scores["row"] if "=" in row}
    order = [value for value in suite.losses if value in values] or in_order(values)
    rows = {f"{varied}={value}": (value.replace("+", " + "),) for value in order}
    rows |= {method: name for method, name in table.rows.items() if method in set(scores["row"])}
    table = replace(table, scores=scores, rows=rows, heads=(label(varied),))
    if varied == "losses":
        return replace(table, paper=paper_numbers(suite.paper, table, prefix="losses="))
    stem, title = f"{table.name}-{varied}", f"{table.title}, {label(varied).lower()}"
    paper = paper_numbers(f"{suite.paper}_{varied}", table, prefix=f"{varied}=")
    return replace(table, name=stem, title=title, paper=paper, kind="curve")


def _by_backbone(table: Table) -> list[Table]:
    """Return a summary (averages of methods by backbone) and the table with all data sets."""
    scores = table.scores.assign(row=table.scores["backbone"] + "/" + table.scores["method"])
    rows = {
        f"{backbone}/{method}": (label(backbone) or DASH, *name)
        for backbone, (method, name) in product(in_order(scores["backbone"]), table.rows.items())
        if f"{backbone}/{method}" in set(scores["row"])
    }
    whole = replace(table, scores=scores, rows=rows, heads=("Backbone", "Method"), kind="whole")
    averages = whole.by_seed[whole.compared].dropna().rename("value").reset_index()
    averages[["column", "row"]] = averages["row"].str.split("/", expand=True)
    averages = averages[averages["column"] != ""]
    shown = {method: name for method, name in table.rows.items() if method in set(averages["row"])}
    title = f"{table.title}, averages over {', '.join(label(c) for c in whole.columns)}"
    summary = replace(table, name=f"{table.name}-summary", title=title, kind="summary")
    paper = paper_numbers(table.suite.paper, table, averages["column"])
    return [replace(summary, scores=averages, rows=shown, paper=paper), whole]


def paper_numbers(
    name: str, table: Table, columns: Iterable[str] = (), prefix: str = ""
) -> PaperNumbers:
    """Return the paper's numbers by row and column.

    The column name is empty for results on biology, since the paper used other data. Row names get
    the ``prefix``. Columns other than ``columns`` are left out.
    """
    if table.metric != "roc_auc" or name not in PAPER:
        return {}
    paper, shown = PAPER[name], {"", *columns}
    heads = [""] if paper["columns"] == ["biology"] else paper["columns"]
    numbers = {
        (f"{prefix}{row}", column): (mean, sd)
        for row, values in paper["rows"].items()
        for column, (mean, sd) in zip(heads, values, strict=True)
        if column in shown
    }
    if "average" in paper and shown == {"", *heads}:
        numbers |= {(r, "Average of 8"): (mean, math.nan) for r, mean in paper["average"].items()}
    return numbers


def suite_of(name: str) -> Suite:
    """Return the suite of a table."""
    return SUITES[name.removesuffix("-protein")]


def speed_frame(rates: pd.DataFrame) -> pd.DataFrame:
    """Return the throughput of pre-training of each backbone and method."""
    index = ["backbone", "method"]
    rates = rates[rates["metric"] == "graphs_per_s"]
    mean = rates.groupby(index).agg(rate=("value", "mean"), seeds=("seed", "nunique"))
    yardsticks = mean.reindex([(backbone, YARDSTICK) for backbone, _ in mean.index])
    mean.insert(1, "ratio", mean["rate"].to_numpy() / yardsticks["rate"].to_numpy())
    ordered = product(in_order(rates["backbone"]), in_order(rates["method"]))
    mean = mean.loc[[row for row in ordered if row in mean.index]]
    mean = mean.rename(index=label).rename_axis(["Backbone", "Method"])
    mean.columns = ["Graphs/s", f"to {label(YARDSTICK)}", "Seeds"]
    return mean.reset_index()


def map_frame(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the measures of the maps of Figure 4, with a row for each seed."""
    part = rows[rows["rule"] == "quality"]
    part = part.assign(losses=part["variant"].str.removeprefix("losses="))
    index = ["losses", "seed"]
    wide = part.pivot(index=index, columns="metric", values="value")
    sizes = part.groupby(index)["prototypes"].first()
    wide.insert(0, "prototypes learned", sizes.replace("", "none"))
    return wide.rename(columns=lambda name: name.replace("_", " ")).reset_index()


_LEGEND = (
    "Scores are those of the test set, in percent where the metric allows: mean ± sample standard "
    "deviation over seeds. **Bold**: best measured mean of the column. *Italics*: printed in the "
    "paper. A seed without a defined score (a set has one class) is left out; the count is shown.",
    "Averages are taken per seed over the data sets shown. Rank: mean over the data sets of the "
    "rank among the rows measured in full; 1 is best.",
    "Δ: the row's average minus the reference's with the same seed, mean over seeds, with a 95 % "
    "Student-t interval. A row without seeds is compared with every seed.",
    "Fingerprints are not fine-tuned. A forest has one score under every rule. Their linear model "
    "has C = 0.1 in tables of the last epoch, and C by validation in tables of the best epoch.",
)
_OTHER_DATA = (
    f"Paper: {PAPER['source']}, {PAPER['runs']} runs, pre-trained on 395,000 protein ego-networks "
    "and fine-tuned on 40 functions of eight species, tested on another species: other data and "
    "another split than here. Compare rankings and differences, not absolute values."
)


def write_pages(folder: BenchmarkFolder, out: Path) -> list[Path]:
    """Write a page per table of results, with figures, and ``index.md``.

    The files depend on the tables only; pages of scores contain no times. Without matplotlib, the
    index has a note that no figures were drawn.

    Returns:
        The files written, in order, the index last.

    Raises:
        DataError: If there are no finished cells, or a file cannot be read.
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
        tables, numbers = score_tables(name, rows), dict[str, pd.DataFrame]()
        if len(rates := rows[(rows["stage"] == "speed") & (rows["method"] != "")]):
            numbers["Pre-training throughput"] = speed_frame(rates)
        if (rows["rule"] == "quality").any():
            numbers[title] = map_frame(rows)
        frames = {table.title: table.frame() for table in tables} | numbers
        if not frames:  # only models were pre-trained so far
            continue
        lines = [f"# {title}", ""]
        for head, frame in frames.items():
            lines += [f"## {head}", "", _markdown(frame), ""]
            for path in (path for path in drawn.get(head, ()) if path.suffix == ".png"):
                lines += [f"![{head}]({path.name})", ""]
        lines += ["<!-- notes -->", "## How to read this page", ""]
        lines += [f"- {note}" for note in [*(_LEGEND if tables else ()), *_notes(name, rows)]]
        write_text(out / f"{name}.md", "\n".join(lines) + "\n")
        written += [*(path for paths in drawn.values() for path in paths), out / f"{name}.md"]
        head, frame = next(iter(frames.items()))
        index += [f"## {title}", "", f"{head}:", "", _markdown(frame)]
        index += ["", f"[All tables and figures]({name}.md)", ""]
    write_text(out / "index.md", "\n".join(index))
    return [*written, out / "index.md"]


def _markdown(frame: pd.DataFrame) -> str:
    return frame.to_markdown(index=False, floatfmt=",.4g", missingval=DASH)


def _notes(name: str, rows: pd.DataFrame) -> list[str]:
    """Return notes on data, settings, machine, versions and command of a page, without times."""
    suite, notes = suite_of(name), list[str]()
    if names := set(rows["calibrated_on"]) - {""}:
        notes.append(
            "Graphs of pre-training, on which batch norms of all encoders are calibrated, "
            f"untrained ones too: {names.pop()}."
        )
    cells = [json.loads(text) for text in rows["details"].unique() if text]
    settings = [cell["settings"] for cell in cells]
    pretraining = [s["pretrain"] for s in settings if "pretrain" in s]
    default = PretrainConfig.parse({}).model_dump()  # settings lack what is as in the defaults
    usual = {k: default[k] for k in ("epochs", "batch_size", "learning_rate", "precision")}
    network = {k: default["encoder"][k] for k in ("layers", "dim")}
    details = {
        "Pre-training": [
            {k: s.get(k, usual[k]) for k in usual} | network | s.get("encoder", {})
            for s in pretraining
        ],
        "Fine-tuning": [s["finetune"] for s in settings if "finetune" in s],
        "Machine": [cell["machine"] for cell in cells],
        "Versions": [cell["versions"] for cell in cells],
    }
    for head, values in details.items():
        texts = {", ".join(f"{k} {v}" for k, v in value.items()) for value in values} - {""}
        notes += [f"{head}: {'; '.join(sorted(texts))}."] if texts else []
    if suite.paper and suite.paper != "table_1":
        notes.append(_OTHER_DATA)
    elif suite.paper:
        notes.append(
            f"Paper: {PAPER['source']}, Table 1, {PAPER['runs']} runs, fine-tuned; averages of "
            "other columns than its eight are derived."
        )
    commands = (f"`{command}`" for command in _commands(name, rows))
    return [*notes, f"Command: {'; '.join(commands)}."]


def _commands(name: str, rows: pd.DataFrame) -> list[str]:
    """Return the commands that compute the rows of a page, one for each split asked for."""
    suite, scale = name.removesuffix("-protein"), str(rows["scale"].iloc[0])
    command = f"graphlog benchmark {suite} -o DIR --scale {scale}"
    domain = None if suite == name else "protein"
    command += f" --domain {domain}" if domain else ""
    cells = plan_cells(Request(suite, scale, domain=domain))
    is_scored = rows["dataset"] != ""
    splits = set(rows["split"][is_scored])
    if splits in (set(), {cell.split for cell in cells if cell.dataset}):
        return [command + _options(suite, cells, rows)]
    return [
        command
        + _options(suite, cells, rows[~is_scored | (rows["split"] == split)])
        + (f" --split {split}" if split else "")
        for split in sorted(splits)
    ]


def _options(suite: str, cells: Sequence[Cell], rows: pd.DataFrame) -> str:
    """Return the options that select the parts of a suite that rows are of, if not all ``cells``.

    A source is not named, since only the name of the folder of a store is known.
    """
    planned = {
        "method": {method for cell in cells for method in cell.together or [cell.method.name]},
        "dataset": {cell.dataset for cell in cells},
        "seed": {cell.labels["seed"] for cell in cells},
        "backbone": {cell.backbone for cell in cells},
        "stage": {cell.stage for cell in cells},
    }
    if SUITES[suite].vary:  # the methods and backbones of such a suite cannot be chosen
        del planned["method"], planned["backbone"]
    options = ""
    for column, names in planned.items():
        computed = set(rows[column]) - {""}
        # pre-training has no rows if no method needs it
        if computed and computed - {"pretrain"} != names - {"", "pretrain"}:
            options += f" --{column}s {','.join(in_order(computed))}"
    settings = [json.loads(text)["settings"] for text in rows["details"].unique() if text]
    usual = [cell.origin["source"] for cell in cells if cell.pretraining]
    if any("source" in s and s["source"] not in usual for s in settings):
        options += " --source SOURCE"
    return options
