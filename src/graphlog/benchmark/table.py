"""Tables of scores: averages, ranks and paired differences, printed as text, LaTeX and records."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd
from scipy.special import stdtrit

from graphlog.benchmark.folder import NO_SEED, PROTOCOL
from graphlog.benchmark.methods import BASELINES, METHOD_LABELS, REFERENCE, YARDSTICK
from graphlog.downstream.metrics import LOWER_IS_BETTER

UNITLESS = LOWER_IS_BETTER | {"r2", "graphs_per_s", "speed"}
"""Metrics printed as they are; the others are printed in per cent."""

MINUS, DASH, DAGGER = "\N{MINUS SIGN}", "\N{EN DASH}", "\N{DAGGER}"
NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean over seeds and its spread."""

    mean: float
    sd: float
    """Sample standard deviation (n - 1); NaN for a single value."""
    count: int

    def interval(self) -> tuple[float, float]:
        r"""Return the 95 % interval :math:`\bar x \pm t_{n-1} s/\sqrt n`; NaNs if n < 2."""
        if self.count < 2:
            return math.nan, math.nan
        quantile = float(stdtrit(self.count - 1, 0.975))
        half = quantile * self.sd / math.sqrt(self.count)
        return self.mean - half, self.mean + half


def spread(scores: pd.Series) -> Spread:
    """Return mean and sample SD of scores by seed; NaN as soon as one of them is."""
    values = scores.to_numpy()
    if not len(values):
        return Spread(math.nan, math.nan, 0)
    sd = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    return Spread(float(values.mean()), sd, len(values))


def mean_over(parts: Sequence[pd.Series]) -> pd.Series:
    """Return the mean over parts for each seed that all have; empty where a part is.

    A part without seeds meets every seed.
    """
    if not parts or any(part.empty for part in parts):
        return _NOTHING
    return sum(_on_shared_seeds(parts)) / len(parts)  # pyright: ignore[reportReturnType]


def paired(scores: pd.Series, reference: pd.Series) -> pd.Series:
    """Return ``scores - reference`` for each seed that both have."""
    if scores.empty or reference.empty:
        return _NOTHING
    first, second = _on_shared_seeds([scores, reference])
    return first - second


_NOTHING = pd.Series({}, dtype="float64")
_NONE = (math.nan, math.nan)


def _on_shared_seeds(parts: Sequence[pd.Series]) -> list[pd.Series]:
    drawn = [set(part.index) for part in parts if NO_SEED not in part.index]
    seeds = sorted(set.intersection(*drawn)) if drawn else [NO_SEED]
    return [
        pd.Series(part.iloc[0], index=seeds) if NO_SEED in part.index else part.loc[seeds]
        for part in parts
    ]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table."""

    key: str
    heads: tuple[str, ...]
    """Its first columns."""
    label: str = ""
    """Its name in figures; empty: its heads."""
    group: int = 0
    """Rows of different groups are separated by a rule in figures."""

    @property
    def name(self) -> str:
        """How figures call it."""
        return self.label or ", ".join(self.heads)


@dataclass(frozen=True)
class Table:
    """Scores of rows on columns under one stage and selection rule, all in one metric."""

    topic: str
    """Page that it belongs to."""
    name: str
    kind: str
    """What it shows.

    ``methods``, ``halves``, ``backbones``, ``ablation``, ``depth``, ``batch_size``, ``speed``,
    ``stages``, ``limits`` or ``batch-rates``.
    """
    title: str
    heads: tuple[str, ...]
    """Heads of the columns that name a row."""
    rows: tuple[Row, ...]
    columns: Mapping[str, str]
    """Columns and how they are printed."""
    metric: str
    rule: str
    """Selection rule."""
    scores: pd.DataFrame
    """Columns ``row``, ``column``, ``seed``, ``value`` (as printed), ``cell``, ``protocol``."""
    paper: Mapping[tuple[str, str], tuple[float, float]] = field(default_factory=dict[Any, Any])
    """The paper's mean and SD by row and column, printed as rows of their own.

    Column ``""`` has the average that the paper prints of these columns.
    """
    paper_rows: Mapping[str, tuple[float, float]] = field(default_factory=dict[Any, Any])
    """The paper's number of a whole row, where its data differ; printed as a column."""
    paper_head: str = "paper"
    """How the paper's numbers are labeled."""
    reference: str | None = None
    """Row that the others are compared with."""
    reference_label: str = METHOD_LABELS[REFERENCE]
    averaged: bool = True
    """Whether the columns may be averaged: data sets may, halves and backbones may not."""
    notes: tuple[str, ...] = ()

    @cached_property
    def _by_place(self) -> dict[Any, pd.Series]:
        groups = self.scores.groupby(["row", "column"], sort=False)
        return {place: part.set_index("seed")["value"].sort_index() for place, part in groups}

    @cached_property
    def _averages(self) -> dict[tuple[str, ...], pd.Series]:
        return {}

    @cached_property
    def old_rows(self) -> frozenset[str]:
        """Rows of encoders with a score of an older protocol."""
        old = self.scores.loc[self.scores["protocol"] < PROTOCOL, "row"]
        return frozenset(old) - set(BASELINES)

    @cached_property
    def is_mixed(self) -> bool:
        """Whether only some rows of encoders were measured under an older protocol."""
        encoders = set(self.scores["row"]) - set(BASELINES)
        return bool(self.old_rows) and not encoders <= self.old_rows

    @property
    def is_primary(self) -> bool:
        """Whether the rule takes no look at the validation fold."""
        return self.rule in ("last", "fixed-C", "")

    @property
    def percent(self) -> bool:
        """Whether scores are printed in per cent."""
        return self.metric not in UNITLESS

    @property
    def compares(self) -> bool:
        """Whether rows are ranked and compared with the reference."""
        return self.averaged and self.reference is not None and len(self.rows) > 1

    def at(self, row: str, column: str) -> pd.Series:
        """Return the scores of a place by seed; empty where not measured."""
        return self._by_place.get((row, column), _NOTHING)

    def measured(self, row: str) -> list[str]:
        """Return the columns that a row has scores of."""
        return [column for column in self.columns if not self.at(row, column).empty]

    def averages(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return the heads of the average columns and the columns that each leaves out."""
        count = len(self.columns)
        if not self.averaged or count < 2:
            return []
        whole: tuple[str, tuple[str, ...]] = (f"Average of {count}", ())
        if "clintox" not in self.columns or count == 2:
            return [whole]
        return [whole, (f"without {self.columns['clintox']}", ("clintox",))]  # it swings most

    def average(self, row: str, without: Sequence[str] = ()) -> pd.Series:
        """Return the mean over columns for each seed that has them all."""
        if (row, *without) not in self._averages:
            parts = [self.at(row, c) for c in self.columns if c not in without]
            self._averages[row, *without] = mean_over(parts)
        return self._averages[row, *without]

    def average_of_paper(self, row: str, without: Sequence[str] = ()) -> float:
        """Return the mean of the paper's numbers over our columns; NaN where it lacks one."""
        if not without and (row, "") in self.paper:
            return self.paper[row, ""][0]
        means = [self.paper.get((row, c), _NONE)[0] for c in self.columns if c not in without]
        return sum(means) / len(means) if means else math.nan

    def difference(self, row: str, column: str | None = None) -> Spread:
        """Return the paired difference to the reference, in one column or in the average of all."""
        if self.reference is None or row == self.reference:
            return spread(_NOTHING)
        if column is None:
            return spread(paired(self.average(row), self.average(self.reference)))
        return spread(paired(self.at(row, column), self.at(self.reference, column)))

    @cached_property
    def means(self) -> pd.DataFrame:
        """Mean over seeds of every row and column; NaN where not measured or undefined."""
        return pd.DataFrame(
            {c: {r.key: spread(self.at(r.key, c)).mean for r in self.rows} for c in self.columns}
        )

    def speed_ratios(self) -> pd.DataFrame:
        """Return how many times as fast as AttrMasking under the same backbone each row is."""
        yardsticks = [f"{YARDSTICK}/{row.key.rpartition('/')[2]}" for row in self.rows]
        return self.means.div(self.means.reindex(yardsticks).set_axis(self.means.index))

    def ranks(self) -> Mapping[str, float]:
        """Return the mean rank over the columns of every row measured in full, 1 for the best."""
        complete = self.means.dropna()
        if len(complete) < 2 or not len(complete.columns):
            return {}
        ranks = complete.rank(ascending=self.metric in LOWER_IS_BETTER, method="average")
        return {str(row): float(rank) for row, rank in ranks.mean(axis=1).items()}

    def best(self, column: str) -> str | None:
        """Return the row with the best mean in a column."""
        known = self.means[column].dropna()
        if known.empty:
            return None
        return str(known.idxmin() if self.metric in LOWER_IS_BETTER else known.idxmax())


@dataclass(frozen=True, slots=True)
class Markup:
    """How a format marks and escapes text."""

    escape: Callable[[str], str]
    strong: str
    quoted: str


def table_frame(table: Table, markup: Markup) -> pd.DataFrame:
    """Return a table of scores as texts in a format: measured beside printed numbers."""
    if table.kind == "speed":
        return _speed_frame(table)
    if table.metric == "speed":
        return _measured_frame(table, markup)
    ranks = table.ranks() if table.compares else {}
    best = {(table.best(column), column) for column in table.columns}
    quoted = {row for row, _ in table.paper}
    lines: list[list[str]] = []
    for row in table.rows:
        key, heads = row.key, row.heads
        usual = max((len(table.at(key, column)) for column in table.columns), default=0)
        scores: list[str] = []
        for column in table.columns:
            text = markup.escape(_score(table, table.at(key, column), usual))
            scores.append(markup.strong.format(text) if (key, column) in best else text)
        rank = [f"{ranks[key]:.1f}" if key in ranks else DASH] if table.compares else []
        texts = [*_averages(table, key, usual), *rank, _seeds(table, key)]
        texts += [_change(table, key)] if table.compares else []
        mark = f" {DAGGER}" if key in table.old_rows and table.is_mixed else ""
        line = [heads[0] + mark, *heads[1:], *(["measured"] if quoted else [])]
        line = [*map(markup.escape, line), *scores, *map(markup.escape, texts)]
        if table.paper_rows:
            line += _quoted(table, [table.paper_rows.get(key)], markup)
        lines.append(line)
        if key in quoted:
            line = [""] * len(heads) + [markup.quoted.format(markup.escape(table.paper_head))]
            line += _quoted(table, [table.paper.get((key, c)) for c in table.columns], markup)
            means = [table.average_of_paper(key, without) for _, without in table.averages()]
            line += _quoted(table, [(mean, math.nan) for mean in means], markup)
            lines.append(line + [""] * (len(lines[-1]) - len(line)))
    averages = [head for head, _ in table.averages()]
    compared = [f"Δ to {table.reference_label} [95 % CI]"] if table.compares else []
    heads = [*table.heads, *([""] if quoted else []), *table.columns.values(), *averages]
    heads += [*(["Rank"] if table.compares else []), "Seeds", *compared]
    heads += [table.paper_head] if table.paper_rows else []
    return pd.DataFrame(lines, columns=[markup.escape(head) for head in heads])


def table_records(table: Table) -> pd.DataFrame:
    """Return the numbers of a table, unrounded, one a row."""
    records: list[tuple[Any, ...]] = []

    def add(row: str, source: str, column: str, value: Spread) -> None:
        interval = value.interval()
        count = None if source == "paper" else value.count
        place = (table.name, table.metric, row, source, column)
        records.append((*place, value.mean, value.sd, count, *interval))

    for row in (row.key for row in table.rows):
        for column in table.columns:
            add(row, "measured", column, spread(table.at(row, column)))
            if (row, column) in table.paper:
                add(row, "paper", column, Spread(*table.paper[row, column], 0))
        for head, without in table.averages():
            add(row, "measured", head, spread(table.average(row, without)))
            if table.paper:
                mean = table.average_of_paper(row, without)
                add(row, "paper", head, Spread(mean, math.nan, 0))
        if row in table.paper_rows:
            add(row, "paper", table.paper_head, Spread(*table.paper_rows[row], 0))
        if table.compares and row != table.reference:
            source = f"difference to {table.reference}"
            for column in table.columns:
                add(row, source, column, table.difference(row, column))
            if len(table.columns) > 1:
                add(row, source, f"Average of {len(table.columns)}", table.difference(row))
    columns = ["table", "metric", "row", "source", "column", "mean", "sd", "seeds"]
    frame = pd.DataFrame(records, columns=[*columns, "ci95_low", "ci95_high"])
    return frame.astype({"seeds": "Int64"})


def table_latex(table: Table) -> str:
    """Return a table as LaTeX; it needs the packages booktabs and amssymb."""
    named = len(table.heads) + bool(table.paper)
    frame = table_frame(table, LATEX)
    return frame.to_latex(
        index=False,
        escape=False,
        caption=escape_latex(table.title),
        label=f"tab:{table.name}",
        column_format="l" * named + "r" * (len(frame.columns) - named),
    )


def number(value: float, table: Table, signed: bool = False) -> str:
    """Return a score as printed: one decimal in per cent, three otherwise."""
    return f"{value:{'+' if signed else ''}.{1 if table.percent else 3}f}".replace("-", MINUS)


def change(table: Table, difference: Spread, alone: str) -> str:
    """Return a difference with its interval, or with the words ``alone`` where one seed has none.

    Args:
        table: The table, which decides the number of decimals.
        difference: Mean and interval over seeds.
        alone: Stands for the interval.
    """
    low, high = difference.interval()
    mean = number(difference.mean, table, signed=True)
    if math.isnan(low):
        return f"{mean} ({alone})"
    return f"{mean} [{number(low, table, signed=True)}, {number(high, table, signed=True)}]"


def escape_latex(text: str) -> str:
    r"""Return text as LaTeX prints it.

    Example:
        >>> escape_latex("best_valid: 70.1 ± 0.4 %")
        'best\\_valid: 70.1 $\\pm$ 0.4 \\%'
    """
    return "".join(_LATEX.get(character, character) for character in text)


def escape_markdown(text: str) -> str:
    """Return text whose bars, stars and underscores stay what they are."""
    return "".join(f"\\{c}" if c in "|*_\\<" else c for c in text)


_LATEX = {
    "\\": r"\textbackslash{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{c: f"${c}$" for c in "<>|"},
    "±": r"$\pm$",
    MINUS: "$-$",
    DASH: "--",
    DAGGER: r"$\dagger$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "✓": r"$\checkmark$",
    "Δ": r"$\Delta$",
    "…": r"\ldots{}",
    "²": r"\textsuperscript{2}",
}
MARKDOWN = Markup(escape_markdown, "**{}**", "*{}*")
LATEX = Markup(escape_latex, r"\textbf{{{}}}", r"\textit{{{}}}")


def _averages(table: Table, row: str, usual: int) -> list[str]:
    """Return the averages of a row, or why there are none."""
    texts: list[str] = []
    for _, without in table.averages():
        average = table.average(row, without)
        wanted = [column for column in table.columns if column not in without]
        measured = [column for column in table.measured(row) if column in wanted]
        if len(average):
            texts.append(_score(table, average, usual))
        elif len(measured) == len(wanted):
            texts.append("no seed in common")
        else:
            counts = f" ({len(measured)} of {len(wanted)})" if measured else ""
            texts.append(NOT_MEASURED + counts)
    return texts


def _quoted(
    table: Table, printed: Sequence[tuple[float, float] | None], markup: Markup
) -> list[str]:
    """Return numbers of the paper, a dash where there is none."""
    return [
        markup.escape(DASH)
        if numbers is None or math.isnan(numbers[0])
        else markup.quoted.format(markup.escape(_plus_minus(table, *numbers)))
        for numbers in printed
    ]


def _score(table: Table, scores: pd.Series, usual: int) -> str:
    if scores.empty:
        return NOT_MEASURED
    summary = spread(scores)
    if math.isnan(summary.mean):
        return f"undefined ({scores.isna().sum()} of {summary.count})"
    fewer = f" ({summary.count} seed{'s' * (summary.count > 1)})" if summary.count < usual else ""
    return _plus_minus(table, summary.mean, summary.sd) + fewer


def _plus_minus(table: Table, mean: float, sd: float) -> str:
    return number(mean, table) + ("" if math.isnan(sd) else f" ± {number(sd, table)}")


def _seeds(table: Table, row: str) -> str:
    entries = [table.at(row, column) for column in table.measured(row)]
    if not entries:
        return "0"
    counts = sorted({len(scores) for scores in entries if NO_SEED not in scores.index})
    if not counts:
        return "not random"
    text = str(counts[0]) if len(counts) == 1 else f"{counts[0]}{DASH}{counts[-1]}"
    return f"{text} (no SD)" if counts == [1] else text


def _change(table: Table, row: str) -> str:
    """Return the paired difference of a row to the reference."""
    if row == table.reference:
        return "reference"
    difference = table.difference(row)
    if math.isnan(difference.mean):
        return NOT_MEASURED
    text = change(table, difference, alone="one seed, no CI")
    seeds = max(len(table.average(key)) for key in (row, str(table.reference)))
    fewer = 1 < difference.count < seeds
    return text + (f" ({difference.count} of {seeds} seeds)" if fewer else "")


def _speed_frame(table: Table) -> pd.DataFrame:
    ratio = table.speed_ratios()
    lines: list[list[str]] = []
    for row in table.rows:
        texts: list[str] = []
        for column in table.columns:
            rate = spread(table.at(row.key, column))
            share = float(ratio[column][row.key])
            sd = "" if rate.count < 2 else f" ± {rate.sd:,.0f}"
            texts.append(f"{rate.mean:,.0f}{sd}" if rate.count else DASH)
            texts.append(DASH if math.isnan(share) else f"{share:.2f}")
        runs = len(table.at(row.key, next(iter(table.columns))))
        lines.append([*row.heads, *texts, str(runs)])
    rates = [(head, f"to {METHOD_LABELS[YARDSTICK]}") for head in table.columns.values()]
    heads = [*table.heads, *(head for pair in rates for head in pair), "Runs"]
    return pd.DataFrame(lines, columns=heads)


def _measured_frame(table: Table, markup: Markup) -> pd.DataFrame:
    """Return plain numbers, to three digits."""

    def text(row: str, column: str) -> str:
        measured = spread(table.at(row, column))
        numbers = [measured.mean, measured.sd][: min(measured.count, 2)]
        return " ± ".join(f"{n:,.0f}" if n >= 100 else f"{n:.3g}" for n in numbers) or DASH

    lines = [[*row.heads, *(text(row.key, c) for c in table.columns)] for row in table.rows]
    heads = [*table.heads, *table.columns.values()]
    return pd.DataFrame(
        [list(map(markup.escape, line)) for line in lines], columns=list(map(markup.escape, heads))
    )
