"""Tables of scores as texts, LaTeX and records: measured beside printed numbers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from graphlog.benchmark.methods import METHOD_LABELS
from graphlog.benchmark.pivots import Spread, Table, spread
from graphlog.benchmark.table import NO_SEED
from graphlog.benchmark.tables import YARDSTICK, speed_ratio

MINUS, DASH, DAGGER = "\N{MINUS SIGN}", "\N{EN DASH}", "\N{DAGGER}"
NOT_MEASURED = "not measured"


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
    for key, heads in ((row.key, row.heads) for row in table.rows):
        mark = f" {DAGGER}" if key in table.old_rows and table.is_mixed else ""
        scores = [
            (markup.strong if (key, column) in best else "{}").format(markup.escape(text))
            for column, text in zip(table.columns, _scores(table, key), strict=True)
        ]
        texts = _averages(table, key)
        if table.compares:
            texts += [f"{ranks[key]:.1f}" if key in ranks else DASH, _seeds(table, key)]
            texts += [_change(table, key)]
        else:
            texts += [_seeds(table, key)]
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


def _scores(table: Table, row: str) -> list[str]:
    usual = _most_seeds(table, row)
    return [_score(table, table.at(row, column), usual) for column in table.columns]


def _averages(table: Table, row: str) -> list[str]:
    """Return the averages of a row, or why there are none."""
    texts: list[str] = []
    for _, without in table.averages():
        average = table.average(row, without)
        wanted = [column for column in table.columns if column not in without]
        measured = [column for column in table.measured(row) if column in wanted]
        if len(average):
            texts.append(_score(table, average, _most_seeds(table, row)))
        elif len(measured) == len(wanted):
            texts.append("no seed in common")
        else:
            counts = f" ({len(measured)} of {len(wanted)})" if measured else ""
            texts.append(NOT_MEASURED + counts)
    return texts


def _most_seeds(table: Table, row: str) -> int:
    return max((len(table.at(row, column)) for column in table.columns), default=0)


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
    ratio = speed_ratio(table)
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
