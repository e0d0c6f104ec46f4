"""Tables of scores as texts, LaTeX and records: measured beside printed numbers."""

import math
from collections.abc import Callable, Mapping, Sequence
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
    ranks = table.ranks() if table.compares else {}
    best = {column: table.best(column) for column in table.columns}
    quoted = {row for row, _ in table.paper}
    lines: list[list[str]] = []
    for row in table.rows:
        mark = f" {DAGGER}" if row.key in table.old_rows and table.is_mixed else ""
        heads = [markup.escape(head) for head in row.heads]
        heads[0] += mark
        lines.append(
            [
                *heads,
                *(["measured"] if quoted else []),
                *_measured(table, row.key, best, ranks, markup),
            ]
        )
        if row.key in quoted:
            blanks = [""] * len(row.heads)
            head = markup.quoted.format(markup.escape(table.paper_head))
            lines.append([*blanks, head, *_quoted(table, row.key, markup)])
    averages = [head for head, _ in table.averages()]
    compared = [f"Δ to {table.reference_label} [95 % CI]"] if table.compares else []
    heads = [*table.heads, *([""] if quoted else []), *table.columns.values(), *averages]
    heads += [*(["Rank"] if table.compares else []), "Seeds", *compared]
    heads += [table.paper_head] if table.paper_rows else []
    return pd.DataFrame(lines, columns=[markup.escape(head) for head in heads])


def table_records(table: Table) -> pd.DataFrame:
    """Return the numbers of a table, unrounded, one a row."""
    records: list[dict[str, Any]] = []

    def add(row: str, source: str, column: str, value: Spread) -> None:
        low, high = (math.nan, math.nan) if source.startswith("paper") else value.interval()
        record: dict[str, Any] = {"table": table.name, "metric": table.metric, "row": row}
        record |= {"source": source, "column": column, "mean": value.mean, "sd": value.sd}
        seeds = None if source.startswith("paper") else value.count
        records.append({**record, "seeds": seeds, "ci95_low": low, "ci95_high": high})

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
    frame = pd.DataFrame(records)
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
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
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


def _measured(
    table: Table,
    row: str,
    best: Mapping[str, str | None],
    ranks: Mapping[str, float],
    markup: Markup,
) -> list[str]:
    usual = max((len(table.at(row, column)) for column in table.columns), default=0)
    texts: list[str] = []
    for column in table.columns:
        text = markup.escape(_score(table, table.at(row, column), usual))
        texts.append(markup.strong.format(text) if best[column] == row else text)
    for _, without in table.averages():
        average = table.average(row, without)
        text = _score(table, average, usual) if len(average) else _no_average(table, row, without)
        texts.append(markup.escape(text))
    texts += (
        [f"{ranks[row]:.1f}" if row in ranks else markup.escape(DASH)] if table.compares else []
    )
    texts.append(markup.escape(_seeds(table, row)))
    texts += [markup.escape(_change(table, row))] if table.compares else []
    if table.paper_rows:
        texts.append(_paper_number(table, table.paper_rows.get(row), markup))
    return texts


def _quoted(table: Table, row: str, markup: Markup) -> list[str]:
    texts = [_paper_number(table, table.paper.get((row, c)), markup) for c in table.columns]
    for _, without in table.averages():
        mean = table.average_of_paper(row, without)
        texts.append(_paper_number(table, None if math.isnan(mean) else (mean, math.nan), markup))
    return texts + [""] * (1 + 2 * table.compares + bool(table.paper_rows))


def _paper_number(table: Table, printed: tuple[float, float] | None, markup: Markup) -> str:
    if printed is None:
        return markup.escape(DASH)
    return markup.quoted.format(markup.escape(_plus_minus(table, *printed)))


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


def _no_average(table: Table, row: str, without: Sequence[str]) -> str:
    """Return why a row has no average."""
    wanted = [column for column in table.columns if column not in without]
    measured = [column for column in table.measured(row) if column in wanted]
    if len(measured) == len(wanted):
        return "no seed in common"
    return f"{NOT_MEASURED} ({len(measured)} of {len(wanted)})" if measured else NOT_MEASURED


def _seeds(table: Table, row: str) -> str:
    entries = [table.at(row, column) for column in table.measured(row)]
    if not entries:
        return "0"
    if all(NO_SEED in scores.index for scores in entries):
        return "not random"
    counts = sorted({len(scores) for scores in entries if NO_SEED not in scores.index})
    text = str(counts[0]) if len(counts) == 1 else f"{counts[0]}{DASH}{counts[-1]}"
    return f"{text} (no SD)" if counts == [1] else text


def _change(table: Table, row: str) -> str:
    """Return the paired difference of a row to the reference."""
    if row == table.reference:
        return "reference"
    difference = table.difference(row)
    if math.isnan(difference.mean):
        return NOT_MEASURED
    low, high = difference.interval()
    mean = number(difference.mean, table, signed=True)
    if math.isnan(low):
        return f"{mean} (one seed, no CI)"
    text = f"{mean} [{number(low, table, True)}, {number(high, table, True)}]"
    seeds = max(len(table.average(key)) for key in (row, str(table.reference)))
    return text + (f" ({difference.count} of {seeds} seeds)" if difference.count < seeds else "")


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
