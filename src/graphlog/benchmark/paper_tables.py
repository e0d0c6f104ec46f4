"""The tables of the paper as pivots of the long-form table of results."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from graphlog.benchmark.methods import (
    ABLATED,
    ACROSS_BACKBONES,
    BACKBONE_LABELS,
    BASELINES,
    COMPARED,
    DATASET_LABELS,
    DOMAIN_LABELS,
    LIMIT_LABELS,
    LOSSES,
    MAIN_BACKBONE,
    METHOD_LABELS,
    PAPER,
    REFERENCE,
    RULE_LABELS,
    SCALES,
    SIDE_LABELS,
    STAGE_LABELS,
    STATISTICS_LABEL,
    STEP_LABELS,
    UNTRAINED,
    VARIED_LABELS,
    in_order,
)
from graphlog.benchmark.table import UNITLESS, Row, Table

HALVES = {"test_first_half": "first half", "test_second_half": "second half"}
RATES = {"rate": "Graphs/s", "views": "Views/s"}
"""Throughput in graphs, and in encoded views of graphs."""
_LIKE_RULE = {
    "last": "fixed-C",
    "best-valid": "validated-C",
    "fixed-C": "last",
    "validated-C": "best-valid",
}
"""Rules that correspond: without or with a look at the validation fold."""
_OTHER_DATA = (
    f"Paper: {PAPER['source']}, {PAPER['runs']} runs, pre-trained on 395,000 protein ego-networks "
    "and fine-tuned on 40 functions of eight species, tested on another species: other data and "
    "another split than here. Compare orders and differences, not levels."
)
_DEFAULT_RECIPE = (
    "GraphLoG is its recipe `graphlog`, the paper's three losses; in the oldest rows it predicted "
    "masked attributes too. `graphlog-paper` and `graphlog-released` are the equations and the "
    "authors' script, `graphlog-default` predicts descriptors."
)


def score_tables(rows: pd.DataFrame) -> list[Table]:
    """Return every table that the results of one scale have scores for, in the paper's order."""
    scores = rows[
        rows["stage"].isin(list(STAGE_LABELS)) & (rows["dataset"] != "") & (rows["task"] == "")
    ]
    scores = scores[scores["rule"] != ""]
    tables: list[Table] = []
    for domain in DOMAIN_LABELS:
        here = scores[scores["domain"] == domain]
        for stage in STAGE_LABELS:
            encoders = here[(here["stage"] == stage) & ~here["method"].isin(BASELINES)]
            for rule in in_order(encoders["rule"], RULE_LABELS):
                view = _View(domain, stage, rule, _under_rule(here, stage, rule))
                tables += [*view.methods(), *view.backbones(), *view.ablation()]
                tables += [table for name in VARIED_LABELS for table in view.sensitivity(name)]
    return tables


def _under_rule(scores: pd.DataFrame, stage: str, rule: str) -> pd.DataFrame:
    """Return the scores of encoders under a rule, and those of baselines under the like rule."""
    is_baseline = scores["method"].isin(BASELINES)
    encoders = scores[~is_baseline & (scores["stage"] == stage) & (scores["rule"] == rule)]
    preferred = [rule, _LIKE_RULE.get(rule, rule)]
    baselines = scores[is_baseline].assign(
        rank=lambda part: part["rule"].map(lambda r: ([*preferred, r].index(r), r))
    )
    best = baselines["rank"] == baselines["cell"].map(baselines.groupby("cell")["rank"].min())
    return pd.concat([encoders, baselines[best].drop(columns="rank")])


class _View:
    """The scores of one domain, stage and selection rule."""

    def __init__(self, domain: str, stage: str, rule: str, scores: pd.DataFrame) -> None:
        self.domain, self.stage, self.rule, self.scores = domain, stage, rule, scores
        self.place = DOMAIN_LABELS[domain]
        self.encoders = scores[~scores["method"].isin(BASELINES)]
        self.plain = self.encoders[self.encoders["variant"] == ""]
        self.paper_head = "paper" if stage == "finetune" else "paper (fine-tuned)"

    def methods(self) -> list[Table]:
        """Return Table 1 (molecules) or 2 (biology): methods on data sets."""
        if self.plain.empty:
            return []
        scores = self._under(MAIN_BACKBONE)
        rows = self._method_rows(scores, COMPARED)
        if self.domain == "molecule":
            title = "Table 1. Molecular properties"
            tables = self._tables("molecules", "methods", "molecules", title, rows, scores)
            return [self._with_table_1(table) for table in tables]
        usual = {
            name
            for scale in SCALES.values()
            for settings in scale.domains.values()
            for name in (*settings.finetuned, *settings.probed)
        }
        title, notes = "Table 2. Biological functions", (_DEFAULT_RECIPE, _OTHER_DATA)
        apart = self.encoders["dataset"].isin(usual).any()
        own = scores[scores["dataset"].isin(usual)] if apart else scores
        tables: list[Table] = []
        for table in self._tables("biology", "methods", "biology", title, rows, own):
            table = replace(table, notes=notes, **_paper_column("table_2", table.metric))
            tables += [table, *_halves(table, own)]
        others = scores[~scores["dataset"].isin(usual)] if apart else scores[:0]
        title += ", other splits and species"
        for table in self._tables("biology", "methods", "biology-others", title, rows, others):
            note = "No average: each column is a question of its own."
            table = replace(table, averaged=False, reference=None, notes=(note,))
            tables += [table, *_halves(table, others)]
        return tables

    def backbones(self) -> list[Table]:
        """Return Table 3: averages of each method under each backbone, then all data sets."""
        backbones = in_order(self.plain["backbone"], BACKBONE_LABELS)
        if backbones in ([], [MAIN_BACKBONE]):
            return []
        # data sets measured on the main backbone alone would make its average another one
        shared = self.plain.loc[self.plain["backbone"] != MAIN_BACKBONE, "dataset"].unique()
        counts = self.plain.groupby("method")["backbone"].nunique()
        several = {*ACROSS_BACKBONES, *counts[counts > 1].index, *BASELINES}
        name = f"{self.place}-backbones"
        by_backbone: list[Table] = []
        for backbone in backbones:
            scores = self._under(backbone)
            rows = [r for r in self._method_rows(scores, ACROSS_BACKBONES) if r.key in several]
            title = f"Table 3. Methods under {BACKBONE_LABELS.get(backbone, backbone)}"
            by_backbone += self._tables(
                "backbones", "methods", f"{name}-{backbone}", title, rows, scores, datasets=shared
            )
        metrics = dict.fromkeys(table.metric for table in by_backbone)
        parts = [[table for table in by_backbone if table.metric == m] for m in metrics]
        return [*(self._summary(name, part) for part in parts), *by_backbone]

    def ablation(self) -> list[Table]:
        """Return Table 4: GraphLoG with some of its losses."""
        rows: dict[str, Row] = {}
        for losses in ABLATED:
            ticks = tuple("✓" if loss in losses.split("+") else "" for loss in LOSSES)
            group = min(losses.count("+"), 1) + (losses == ABLATED[-1])
            rows[f"losses={losses}"] = Row(losses, ticks, losses.replace("+", " + "), group)
        note = (
            "The rows have the paper's losses alone; in the oldest results, the row `GraphLoG` "
            "predicted masked attributes too."
        )
        names = ("ablation", "ablation", f"{self.place}-ablation")
        title, heads = "Table 4. GraphLoG with some of its losses", tuple(LOSSES.values())
        beside = (REFERENCE, UNTRAINED, *BASELINES)
        tables = self._variants(names, title, heads, rows, beside, "table_4", ABLATED[-1])
        notes = (note, _OTHER_DATA)
        return [replace(t, reference_label="all three", notes=notes) for t in tables]

    def sensitivity(self, name: str) -> list[Table]:
        """Return one curve of Figure 3: the score for each value of a setting."""
        variants = self.encoders.loc[self.encoders["method"] == REFERENCE, "variant"]
        variants = variants[variants.str.fullmatch(f"{name}=[0-9.]+")]
        values = variants.str.removeprefix(f"{name}=")
        rows = {f"{name}={v}": Row(v, (v,)) for v in sorted(values.unique(), key=float)}
        head, word = VARIED_LABELS[name].capitalize(), name.replace("_", "-")
        names = ("sensitivity", name, f"{self.place}-sensitivity-{word}")
        title, beside, paper = f"Figure 3. {head}", (UNTRAINED, *BASELINES), f"figure_3_{name}"
        return self._variants(names, title, (head,), rows, beside, paper, None)

    def _variants(
        self,
        names: tuple[str, str, str],
        title: str,
        heads: tuple[str, ...],
        variants: Mapping[str, Row],
        beside: Sequence[str],
        paper: str,
        reference: str | None,
    ) -> list[Table]:
        """Return tables of GraphLoG's variants, with some measured plain methods below.

        ``names`` are topic, kind and name; ``paper`` has the same rows in the paper.
        """
        here = self.encoders
        varied = here[
            (here["method"] == REFERENCE)
            & (here["backbone"] == MAIN_BACKBONE)
            & here["variant"].isin(list(variants))
        ]
        if varied.empty:
            return []
        varied = varied.assign(row=varied["variant"].str.replace("^.*=", "", regex=True))
        plain = self._under(MAIN_BACKBONE)
        measured = set(plain["row"])
        blanks = ("",) * (len(heads) - 1)
        group = max(row.group for row in variants.values()) + 1
        below = [self._method_row(m, group, blanks) for m in beside if m in measured]
        plain = plain[plain["row"].isin(beside) & plain["dataset"].isin(varied["dataset"])]
        rows, scores = [*variants.values(), *below], pd.concat([varied, plain])
        return [
            replace(t, heads=heads, notes=(_OTHER_DATA,), **_paper_column(paper, t.metric))
            for t in self._tables(*names, title, rows, scores, reference)
        ]

    def _under(self, backbone: str) -> pd.DataFrame:
        """Return the scores of methods under a backbone and of baselines, a row a method."""
        scores = self.scores
        scores = scores[(scores["variant"] == "") & scores["backbone"].isin([backbone, ""])]
        return scores.assign(row=scores["method"])

    def _method_rows(self, scores: pd.DataFrame, always: Sequence[str]) -> list[Row]:
        """Return the paper's methods, measured or not, then the others that were measured."""
        groups = dict.fromkeys(always, 1) | {always[0]: 0, always[-1]: 2}
        groups |= dict.fromkeys(BASELINES, 3)
        baselines = BASELINES if self.domain == "molecule" else ()
        methods = in_order([*always, *scores["method"], *baselines], METHOD_LABELS)
        return [self._method_row(method, groups.get(method, 2)) for method in methods]

    def _method_row(self, method: str, group: int, blanks: tuple[str, ...] = ()) -> Row:
        name = METHOD_LABELS.get(method, method)
        if method in BASELINES and self.domain == "protein":
            name = STATISTICS_LABEL
        return Row(method, (name, *blanks), name, group)

    def _tables(
        self,
        topic: str,
        kind: str,
        name: str,
        title: str,
        rows: Sequence[Row],
        scores: pd.DataFrame,
        reference: str | None = REFERENCE,
        datasets: Iterable[str] | None = None,
    ) -> list[Table]:
        """Return a table of rows on data sets for each metric.

        The data sets are those that encoders were scored on, unless ``datasets`` names them.
        """
        scores = scores[(scores["fold"] == "test") & scores["row"].isin([r.key for r in rows])]
        encoders = scores[~scores["method"].isin(BASELINES)]
        if datasets is not None:
            encoders = self.encoders[self.encoders["dataset"].isin(list(datasets))]
        title = title if topic == self.place else f"{title}, {self.place}"  # pages of both domains
        tables: list[Table] = []
        for metric in sorted(encoders["metric"].unique(), key=lambda m: (m != "roc_auc", m)):
            measured = encoders.loc[encoders["metric"] == metric, "dataset"]
            columns = in_order(measured, DATASET_LABELS)
            part = scores[(scores["metric"] == metric) & scores["dataset"].isin(columns)]
            unit = [] if metric == "roc_auc" else [metric.replace("_", "-")]
            rule = RULE_LABELS.get(self.rule, self.rule)
            table = Table(
                topic=topic,
                name="-".join([name, self.stage, self.rule.lower(), *unit]),
                kind=kind,
                title=f"{title}: {STAGE_LABELS[self.stage]}, {rule}",
                heads=("Method",),
                rows=tuple(rows),
                columns={c: DATASET_LABELS.get(c, c) for c in columns},
                metric=metric,
                rule=self.rule,
                scores=_printed(part.assign(column=part["dataset"]), metric),
                reference=reference,
            )
            tables.append(table)
        return tables

    def _with_table_1(self, table: Table) -> Table:
        paper, eight = PAPER["table_1"], PAPER["table_1"]["columns"]
        printed = _paper_places(paper, table.columns) if table.metric == "roc_auc" else {}
        if printed and set(table.columns) == set(eight):
            printed |= {(row, ""): (mean, float("nan")) for row, mean in paper["average"].items()}
        absent = [DATASET_LABELS[name] for name in eight if name not in table.columns]
        notes = [f"Not measured of the paper's eight: {', '.join(absent)}."] if absent else []
        notes += [
            f"Paper: {PAPER['source']}, Table 1, {PAPER['runs']} runs, fine-tuned; averages of "
            "other columns than its eight are derived.",
            _DEFAULT_RECIPE,
            "Fingerprints are not trained further: a forest has one score under every rule; "
            "logistic regression has C = 0.1 beside the last epoch, C by validation beside the "
            "best one.",
        ]
        return replace(table, paper=printed, paper_head=self.paper_head, notes=tuple(notes))

    def _summary(self, name: str, tables: Sequence[Table]) -> Table:
        """Return methods on backbones: the averages over data sets of one table a backbone."""
        first = tables[0]
        columns = [table.name.removeprefix(f"{name}-").partition("-")[0] for table in tables]
        records: list[dict[str, Any]] = []
        for backbone, table in zip(columns, tables, strict=True):
            for row, scores in table.scores.groupby("row"):
                place = {"row": row, "column": backbone, "cell": scores["cell"].iloc[0]}
                place["protocol"] = scores["protocol"].min()
                averages = table.average(str(row)).items()
                records += [{**place, "seed": seed, "value": value} for seed, value in averages]
        rows = {row.key: row for table in tables for row in table.rows}
        over = ", ".join(dict.fromkeys(head for t in tables for head in t.columns.values()))
        labels = {c: BACKBONE_LABELS.get(c, c) for c in columns}
        return replace(
            first,
            name=first.name.replace(f"{name}-{columns[0]}", name),
            kind="backbones",
            title=first.title.replace(labels[columns[0]], "each backbone"),
            rows=tuple(rows[key] for key in in_order(rows, METHOD_LABELS)),
            columns=labels,
            scores=pd.DataFrame(records, columns=list(first.scores.columns)),
            paper=_paper_places(PAPER["table_3"], columns),
            paper_head=f"{self.paper_head}, biology",
            averaged=False,
            notes=(
                f"Averages over {over}, per seed; none where one of them was not measured.",
                _OTHER_DATA,
            ),
        )


def _halves(table: Table, scores: pd.DataFrame) -> list[Table]:
    """Return the scores on the two halves of the test set, where they were kept apart."""
    scores = scores[
        scores["fold"].isin(list(HALVES))
        & scores["dataset"].isin(list(table.columns))
        & (scores["metric"] == table.metric)
    ]
    if scores.empty:
        return []
    columns = [f"{column}, {words}" for column in table.columns for words in HALVES.values()]
    named = scores.assign(column=scores["dataset"] + ", " + scores["fold"].map(HALVES))
    halves = replace(
        table,
        name=f"{table.name}-halves",
        kind="halves",
        title=f"{table.title}, the two halves of the test set",
        columns={column: column for column in columns},
        scores=_printed(named, table.metric),
        paper_rows={},
        reference=None,
        averaged=False,
        notes=(),
    )
    return [halves]


def _printed(scores: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return scores by row, column and seed in printed units."""
    factor = 1.0 if metric in UNITLESS else 100.0
    columns = ["row", "column", "seed", "value", "cell", "protocol"]
    return scores.assign(value=scores["value"] * factor)[columns]


def _paper_places(
    printed: Mapping[str, Any], columns: Iterable[str]
) -> dict[tuple[str, str], tuple[float, float]]:
    """Return the paper's numbers by row and column."""
    return {
        (row, column): tuple(numbers)
        for row, values in printed["rows"].items()
        for column, numbers in zip(printed["columns"], values, strict=True)
        if column in columns
    }


def _paper_column(table: str, metric: str) -> dict[str, Any]:
    """Return the paper's numbers of whole rows, which are of other data than ours."""
    if metric != "roc_auc":
        return {}
    rows = {row: tuple(values[0]) for row, values in PAPER[table]["rows"].items()}
    return {"paper_rows": rows, "paper_head": "paper (biology, 8 species)"}


def speed_tables(rows: pd.DataFrame, details: Mapping[str, Mapping[str, Any]]) -> list[Table]:
    """Return the throughput of pre-training of each domain."""
    rates = rows[
        rows["stage"].isin(["speed", "pretrain"])
        & (rows["suite"] == "speed")
        & (rows["metric"] == "graphs_per_s")
        & (rows["rule"] == "")
    ]
    rates = rates.assign(row=rates["method"] + "/" + rates["backbone"], column="rate")
    views = {cell: fields["views"] for cell, fields in details.items() if fields.get("views")}
    nodes = rows[rows["metric"] == "node_views"]
    views |= dict(zip(nodes["cell"], nodes["value"], strict=True))
    times = rates["cell"].map(views).astype("float64")
    encoded = rates.assign(column="views", value=rates["value"] * times)
    rates = pd.concat([rates, encoded.dropna(subset=["value"])])
    tables: list[Table] = []
    for domain, place in DOMAIN_LABELS.items():
        here = rates[rates["domain"] == domain]
        if here.empty:
            continue
        lines: list[Row] = []
        for group, backbone in enumerate(in_order(here["backbone"], BACKBONE_LABELS)):
            under = BACKBONE_LABELS.get(backbone, backbone)
            for method in in_order(here["method"][here["backbone"] == backbone], METHOD_LABELS):
                name = METHOD_LABELS.get(method, method)
                lines.append(Row(f"{method}/{backbone}", (name, under), name, group))
        note = "Views are encoded copies of a graph; of a part of one, its share of the nodes."
        table = Table(
            topic="speed",
            name=f"speed-{place}",
            kind="speed",
            title=f"Pre-training throughput, {place}",
            heads=("Method", "Backbone"),
            rows=tuple(lines),
            columns={c: head for c, head in RATES.items() if c in set(here["column"])},
            metric="graphs_per_s",
            rule="",
            scores=_printed(here, "graphs_per_s"),
            averaged=False,
            notes=(note,),
        )
        tables.append(table)
    return tables


def stage_tables(rows: pd.DataFrame) -> list[Table]:
    """Return, for each domain, the stages, the machine's limits, and the step by batch size."""
    own = rows[(rows["stage"] == "stage-speed") & (rows["rule"] != "")]
    own = own.assign(row=own["metric"], column=own["rule"])
    tables: list[Table] = []
    for domain, place in DOMAIN_LABELS.items():
        here = own[own["domain"] == domain]
        if here.empty:
            continue

        seconds = here[here["rule"].isin(list(SIDE_LABELS))]
        limits = here[here["rule"] == "limits"]
        batches = here[here["rule"].str.startswith("batches ")]
        rates = seconds.assign(column="rate " + seconds["rule"], value=1000 / seconds["value"])
        columns: dict[str, str] = {}
        for side, label in SIDE_LABELS.items():
            if side != "bf16" or side in set(seconds["rule"]):
                columns |= {side: f"{label}: s per 1,000 graphs", f"rate {side}": "graphs/s"}
        sides = {c: SIDE_LABELS[c.removeprefix("batches ")] for c in batches["column"].unique()}
        stages = [Row(s, (t,)) for s, t in STEP_LABELS.items() if s in set(seconds["row"])]
        limited = [Row(s, t) for s, t in LIMIT_LABELS.items() if s in set(limits["row"])]
        sizes = [Row(size, (size,)) for size in sorted(set(batches["row"]), key=int)]
        title, measured = "Pre-training step by batch size, graphs/s", {"limits": "Measured"}
        parts: list[tuple[str, str, tuple[str, ...], list[Row], dict[str, str], pd.DataFrame]] = [
            ("stages", "Stages", ("Stage",), stages, columns, pd.concat([seconds, rates])),
            ("limits", "Limits of the machine", ("What", "Unit"), limited, measured, limits),
            ("batch-rates", title, ("Batch size",), sizes, sides, batches),
        ]
        for kind, title, heads, lines, columns, scores in parts:
            names = ("speed", f"speed-{kind}-{place}", kind, f"{title}, {place}", heads)
            content = (tuple(lines), columns, "speed", "", scores)
            tables.append(Table(*names, *content, averaged=False))
    return tables
