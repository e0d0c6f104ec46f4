"""The tables of the paper as pivots of the long-form table of results."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pandas as pd

from graphlog.benchmark.methods import (
    ABLATED,
    BACKBONE_LABELS,
    BASELINES,
    DATASET_LABELS,
    DOMAIN_LABELS,
    LOSSES,
    MAIN_BACKBONE,
    METHOD_LABELS,
    REFERENCE,
    RULE_LABELS,
    STAGE_LABELS,
    STATISTICS_LABEL,
    UNTRAINED,
    VARIED_LABELS,
    in_order,
    label,
)
from graphlog.benchmark.pivots import UNITLESS, Row, Table
from graphlog.benchmark.scales import SCALES

PAPER: Mapping[str, Any] = tomllib.loads(
    files("graphlog.benchmark").joinpath("paper.toml").read_text(encoding="utf-8")
)
"""The numbers of the paper."""
HALVES = {"test_first_half": "first half", "test_second_half": "second half"}
YARDSTICK = "attrmasking"
"""The method whose throughput the others are compared with: one view, one head."""
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
            for rule in in_order(encoders["rule"].unique(), RULE_LABELS):
                view = _View(domain, stage, rule, _under_rule(here, stage, rule))
                tables += [*view.methods(), *view.backbones(), *view.ablation()]
                tables += [table for name in VARIED_LABELS for table in view.sensitivity(name)]
    return tables


def _under_rule(scores: pd.DataFrame, stage: str, rule: str) -> pd.DataFrame:
    """Return the scores of encoders under a rule, and those of baselines under the like rule."""
    is_baseline = scores["method"].isin(BASELINES)
    baselines = scores[is_baseline]
    rules = baselines.groupby("cell")["rule"].agg(set)
    candidates = (rule, _LIKE_RULE.get(rule, rule))
    chosen = {
        cell: next((r for r in candidates if r in known), min(known))
        for cell, known in rules.items()
    }
    baselines = baselines[baselines["rule"] == baselines["cell"].map(chosen)]
    encoders = scores[~is_baseline & (scores["stage"] == stage) & (scores["rule"] == rule)]
    return pd.concat([encoders, baselines])


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
        rows = self._method_rows(MAIN_BACKBONE, tuple(PAPER["table_1"]["rows"]))
        if self.domain == "molecule":
            tables = self._tables(
                "molecules", "methods", "molecules", "Table 1. Molecular properties", rows
            )
            return [self._with_table_1(table) for table in tables]
        usual = {
            name
            for scale in SCALES.values()
            for settings in scale.domains.values()
            for name in (*settings.finetuned, *settings.probed)
        }
        title, notes = "Table 2. Biological functions", (_DEFAULT_RECIPE, _OTHER_DATA)
        is_usual = self.scores["dataset"].isin(usual)
        own = self._only(rows, is_usual) if is_usual[self.encoders.index].any() else rows
        tables: list[Table] = []
        for table in self._tables("biology", "methods", "biology", title, own):
            table = replace(table, notes=notes, **_paper_column("table_2", table.metric))
            tables += [table, *self._halves(table, own)]
        if own is rows:
            return tables
        title = "Table 2. Biological functions, other splits and species"
        for table in self._tables(
            "biology", "methods", "biology-others", title, self._only(rows, ~is_usual)
        ):
            note = "No average: each column is a question of its own."
            table = replace(table, averaged=False, reference=None, notes=(note,))
            tables += [table, *self._halves(table, rows)]
        return tables

    def backbones(self) -> list[Table]:
        """Return Table 3: averages of each method under each backbone, then all data sets."""
        backbones = in_order(set(self.plain["backbone"]), BACKBONE_LABELS)
        if backbones in ([], [MAIN_BACKBONE]):
            return []
        # data sets measured on the main backbone alone would make its average another one
        others = (
            self.plain.loc[self.plain["backbone"] != MAIN_BACKBONE, "dataset"].unique().tolist()
        )
        shared = self.scores["dataset"].isin(others)
        counts = self.plain.groupby("method")["backbone"].nunique()
        always = tuple(PAPER["table_3"]["rows"])
        several = {*always, *counts[counts > 1].index, *BASELINES}
        title = "Table 3. Methods under each backbone"
        name = f"{self.place}-backbones"
        by_backbone: list[Table] = []
        for backbone in backbones:
            rows = self._only(self._method_rows(backbone, always), shared)
            rows = {row: scores for row, scores in rows.items() if row.key in several}
            under = title.replace("each backbone", label(backbone, BACKBONE_LABELS))
            by_backbone += self._tables(
                "backbones", "methods", f"{name}-{backbone}", under, rows, datasets=others
            )
        summaries: list[Table] = []
        for metric in dict.fromkeys(table.metric for table in by_backbone):
            parts = [table for table in by_backbone if table.metric == metric]
            summaries.append(self._summary(name, parts))
        return [*summaries, *by_backbone]

    def ablation(self) -> list[Table]:
        """Return Table 4: GraphLoG with some of its losses."""
        variants = {losses: self._varied(f"losses={losses}") for losses in ABLATED}
        if all(scores.empty for scores in variants.values()):
            return []
        rows: dict[Row, pd.DataFrame] = {}
        for losses, scores in variants.items():
            ticks = tuple("✓" if loss in losses.split("+") else "" for loss in LOSSES)
            group = min(losses.count("+"), 1) + (losses == ABLATED[-1])
            rows[Row(losses, ticks, losses.replace("+", " + "), group)] = scores
        datasets = pd.concat(variants.values())["dataset"].unique().tolist()
        rows |= self._only(self._reference_rows(("",) * 2, group=3), datasets)
        title = "Table 4. GraphLoG with some of its losses"
        tables = self._tables(
            "ablation", "ablation", f"{self.place}-ablation", title, rows, ABLATED[-1]
        )
        note = (
            "The rows have the paper's losses alone; in the oldest results, the row `GraphLoG` "
            "predicted masked attributes too."
        )
        return [
            replace(
                table,
                heads=tuple(LOSSES.values()),
                reference_label="all three",
                notes=(note, _OTHER_DATA),
                **_paper_column("table_4", table.metric),
            )
            for table in tables
        ]

    def sensitivity(self, name: str) -> list[Table]:
        """Return one curve of Figure 3: the score for each value of a setting."""
        here = self.encoders[self.encoders["method"] == REFERENCE]
        variants = here.loc[here["variant"].str.fullmatch(f"{name}=[0-9.]+"), "variant"].unique()
        values = sorted((v.partition("=")[2] for v in variants), key=float)
        if not values:
            return []
        rows = {Row(value, (value,)): self._varied(f"{name}={value}") for value in values}
        datasets = pd.concat(rows.values())["dataset"].unique().tolist()
        rows |= self._only(self._reference_rows((), group=1), datasets)
        head, word = VARIED_LABELS[name].capitalize(), name.replace("_", "-")
        tables = self._tables(
            "sensitivity", name, f"{self.place}-sensitivity-{word}", f"Figure 3. {head}", rows, None
        )
        return [
            replace(
                table,
                heads=(head,),
                notes=(_OTHER_DATA,),
                **_paper_column(f"figure_3_{name}", table.metric),
            )
            for table in tables
        ]

    def _method_rows(self, backbone: str, always: Sequence[str]) -> dict[Row, pd.DataFrame]:
        """Return the paper's methods, measured or not, then the others that were measured."""
        under = self.scores[
            (self.scores["variant"] == "") & self.scores["backbone"].isin([backbone, ""])
        ]
        baselines = BASELINES if self.domain == "molecule" else ()
        rows: dict[Row, pd.DataFrame] = {}
        for method in in_order({*always, *under["method"], *baselines}, METHOD_LABELS):
            paper_group = 0 if method == always[0] else 1 if method in always[1:-1] else 2
            group = 3 if method in BASELINES else paper_group
            name = self._method_label(method)
            rows[Row(method, (name,), name, group)] = under[under["method"] == method]
        return rows

    def _method_label(self, method: str) -> str:
        if method in BASELINES and self.domain == "protein":
            return STATISTICS_LABEL
        return label(method, METHOD_LABELS)

    def _reference_rows(self, blanks: tuple[str, ...], group: int) -> dict[Row, pd.DataFrame]:
        """Return GraphLoG itself and the rows without pre-training, for tables of variants."""
        plain = self.scores[
            (self.scores["variant"] == "") & self.scores["backbone"].isin([MAIN_BACKBONE, ""])
        ]
        rows: dict[Row, pd.DataFrame] = {}
        own = (REFERENCE,) if blanks else ()
        for method in (*own, UNTRAINED, *BASELINES):
            scores = plain[plain["method"] == method]
            name = self._method_label(method)
            if not scores.empty:
                rows[Row(method, (name, *blanks), name, group)] = scores
        return rows

    def _varied(self, variant: str) -> pd.DataFrame:
        here = self.encoders
        return here[
            (here["method"] == REFERENCE)
            & (here["backbone"] == MAIN_BACKBONE)
            & (here["variant"] == variant)
        ]

    @staticmethod
    def _only(rows: Mapping[Row, pd.DataFrame], keep: Any) -> dict[Row, pd.DataFrame]:
        """Return rows with the scores of some data sets alone: their names, or a mask."""
        if isinstance(keep, pd.Series):
            return {row: scores[keep.reindex(scores.index)] for row, scores in rows.items()}
        return {row: scores[scores["dataset"].isin(keep)] for row, scores in rows.items()}

    def _tables(
        self,
        topic: str,
        kind: str,
        name: str,
        title: str,
        rows: Mapping[Row, pd.DataFrame],
        reference: str | None = REFERENCE,
        datasets: Sequence[str] | None = None,
    ) -> list[Table]:
        """Return a table of rows on data sets for each metric.

        The data sets are those that encoders were scored on, unless ``datasets`` names them.
        """
        scores = pd.concat([part.assign(row=row.key) for row, part in rows.items()])
        scores = scores[scores["fold"] == "test"].assign(column=scores["dataset"])
        encoders = scores[~scores["method"].isin(BASELINES)]
        if datasets is not None:
            encoders = self.encoders[self.encoders["dataset"].isin(datasets)]
        title = title if topic == self.place else f"{title}, {self.place}"  # pages of both domains
        tables: list[Table] = []
        for metric in sorted(encoders["metric"].unique(), key=lambda m: (m != "roc_auc", m)):
            measured = set(encoders.loc[encoders["metric"] == metric, "dataset"])
            columns = in_order(measured, DATASET_LABELS)
            part = scores[(scores["metric"] == metric) & scores["dataset"].isin(columns)]
            unit = [] if metric == "roc_auc" else [metric.replace("_", "-")]
            table = Table(
                topic=topic,
                name="-".join([name, self.stage, self.rule.lower(), *unit]),
                kind=kind,
                title=f"{title}: {STAGE_LABELS[self.stage]}, {label(self.rule, RULE_LABELS)}",
                heads=("Method",),
                rows=tuple(rows),
                columns={c: label(c, DATASET_LABELS) for c in columns},
                metric=metric,
                rule=self.rule,
                scores=_printed(part, metric),
                reference=reference,
            )
            tables.append(table)
        return tables

    def _with_table_1(self, table: Table) -> Table:
        names = PAPER["table_1"]["columns"]
        printed = {
            (row, column): tuple(numbers)
            for row, values in PAPER["table_1"]["rows"].items()
            for column, numbers in zip(names, values, strict=True)
            if column in table.columns and table.metric == "roc_auc"
        }
        absent = [DATASET_LABELS[name] for name in names if name not in table.columns]
        notes = [f"Not measured of the paper's eight: {', '.join(absent)}."] if absent else []
        notes += [
            f"Paper: {PAPER['source']}, Table 1, {PAPER['runs']} runs, fine-tuned; averages of "
            "other columns than its eight are derived.",
            _DEFAULT_RECIPE,
            "Fingerprints are not trained further: a forest has one score under every rule; "
            "logistic regression has C = 0.1 beside the last epoch, C by validation beside the "
            "best one.",
        ]
        return replace(
            table,
            paper=printed,
            paper_average=PAPER["table_1"]["average"],
            paper_head=self.paper_head,
            notes=tuple(notes),
        )

    def _halves(self, table: Table, rows: Mapping[Row, pd.DataFrame]) -> list[Table]:
        """Return the scores on the two halves of the test set, where they were kept apart."""
        scores = pd.concat([part.assign(row=row.key) for row, part in rows.items()])
        scores = scores[
            scores["fold"].isin(list(HALVES))
            & scores["dataset"].isin(list(table.columns))
            & (scores["metric"] == table.metric)
        ]
        if scores.empty:
            return []
        columns = [f"{column}, {words}" for column in table.columns for words in HALVES.values()]
        named = scores["dataset"] + ", " + scores["fold"].map(HALVES)
        return [
            replace(
                table,
                name=f"{table.name}-halves",
                kind="halves",
                title=f"{table.title}, the two halves of the test set",
                columns={column: column for column in columns},
                scores=_printed(scores.assign(column=named), table.metric),
                paper_rows={},
                reference=None,
                averaged=False,
                notes=(),
            )
        ]

    def _summary(self, name: str, tables: Sequence[Table]) -> Table:
        """Return methods on backbones: the averages over data sets of one table a backbone."""
        first = tables[0]
        columns = [table.name.removeprefix(f"{name}-").partition("-")[0] for table in tables]
        records: list[dict[str, Any]] = []
        for backbone, table in zip(columns, tables, strict=True):
            cells = table.scores.drop_duplicates("row").set_index("row")
            for row in table.rows:
                for seed, value in table.average(row.key).items():
                    record = {"row": row.key, "column": backbone, "seed": seed, "value": value}
                    protocol = table.scores.loc[table.scores["row"] == row.key, "protocol"].min()
                    record |= {"cell": cells.loc[row.key, "cell"], "protocol": protocol}
                    records.append(record)
        rows = {row.key: row for table in tables for row in table.rows}
        names = PAPER["table_3"]["columns"]
        printed = {
            (row, column): tuple(numbers)
            for row, values in PAPER["table_3"]["rows"].items()
            for column, numbers in zip(names, values, strict=True)
            if column in columns
        }
        over = ", ".join(dict.fromkeys(name for t in tables for name in t.columns.values()))
        return replace(
            first,
            name=first.name.replace(f"{name}-{columns[0]}", name),
            kind="backbones",
            title=first.title.replace(label(columns[0], BACKBONE_LABELS), "each backbone"),
            rows=tuple(rows[key] for key in in_order(rows, METHOD_LABELS)),
            columns={c: label(c, BACKBONE_LABELS) for c in columns},
            scores=pd.DataFrame(records, columns=list(first.scores.columns)),
            paper=printed,
            paper_head=f"{self.paper_head}, biology",
            averaged=False,
            notes=(
                f"Averages over {over}, per seed; none where one of them was not measured.",
                _OTHER_DATA,
            ),
        )


def _printed(scores: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return scores by row, column and seed in printed units."""
    factor = 1.0 if metric in UNITLESS else 100.0
    columns = ["row", "column", "seed", "value", "cell", "protocol"]
    return scores.assign(value=scores["value"] * factor)[columns]


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
    views = rates["cell"].map(_views(rows, details))
    tables: list[Table] = []
    for domain, place in DOMAIN_LABELS.items():
        here = rates[rates["domain"] == domain]
        if here.empty:
            continue
        keys = here["method"] + "/" + here["backbone"]
        parts = [here.assign(row=keys, column="rate")]
        parts.append(
            here.assign(row=keys, column="views", value=here["value"] * views).dropna(
                subset=["value"]
            )
        )
        scores = pd.concat(parts)
        lines: list[Row] = []
        for group, backbone in enumerate(in_order(here["backbone"], BACKBONE_LABELS)):
            methods = here.loc[here["backbone"] == backbone, "method"]
            for method in in_order(methods, METHOD_LABELS):
                heads = (label(method, METHOD_LABELS), label(backbone, BACKBONE_LABELS))
                lines.append(Row(f"{method}/{backbone}", heads, heads[0], group))
        table = Table(
            topic="speed",
            name=f"speed-{place}",
            kind="speed",
            title=f"Pre-training throughput, {place}",
            heads=("Method", "Backbone"),
            rows=tuple(lines),
            columns={c: head for c, head in RATES.items() if c in set(scores["column"])},
            metric="graphs_per_s",
            rule="",
            scores=_printed(scores, "graphs_per_s"),
            averaged=False,
            notes=(
                "Views are encoded copies of a graph; of a part of one, its share of the nodes.",
            ),
        )
        tables.append(table)
    return tables


def speed_ratio(table: Table) -> pd.DataFrame:
    """Return how many times as fast as AttrMasking under the same backbone each row is."""
    yardsticks = [f"{YARDSTICK}/{row.key.rpartition('/')[2]}" for row in table.rows]
    return table.means.div(table.means.reindex(yardsticks).set_axis(table.means.index))


def _views(rows: pd.DataFrame, details: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return how many views of a graph each timed cell encodes in a step."""
    views = {cell: fields["views"] for cell, fields in details.items() if fields.get("views")}
    nodes = rows[rows["metric"] == "node_views"]
    return {**views, **dict(zip(nodes["cell"], nodes["value"], strict=True))}


def timing(rows: pd.DataFrame, details: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Return seconds and throughput of every stage, method and backbone.

    Work that several suites share is counted once.
    """
    hashes = rows["cell"].map({cell: fields["config_hash"] for cell, fields in details.items()})
    rows = rows[rows["metric"].isin(["seconds", "graphs_per_s"]) & (rows["rule"] == "")]
    rows = rows.assign(hash=hashes).drop_duplicates(["hash", "metric"])
    keys = ["stage", "method", "backbone"]
    table = rows.pivot_table(index=keys, columns="metric", values="value", aggfunc="mean")
    table["cells"] = rows[rows["metric"] == "seconds"].groupby(keys).size()
    return table.reset_index()
