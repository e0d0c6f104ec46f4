"""Sheets as Markdown, LaTeX (booktabs) and CSV."""

import csv
import io
import math
from typing import Any

from graphlog.benchmark.tables.sheet import Item, Sheet

_LATEX = {
    "\\": r"\textbackslash{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "±": r"$\pm$",
    "\N{MINUS SIGN}": "$-$",
    "\N{EN DASH}": "--",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "≥": r"$\geq$",
    "✓": r"$\checkmark$",
    "Δ": r"$\Delta$",
    "…": r"\ldots{}",
    "²": r"\textsuperscript{2}",
}


def markdown(sheet: Sheet) -> str:
    """Return a sheet as a Markdown section.

    Example:
        >>> print(markdown(Sheet("s", "Scores", ("Method", "BACE"), ((Item("ours"), Item("80.0", strong=True)),))))
        ## Scores
        <BLANKLINE>
        | Method | BACE |
        |:--|--:|
        | ours | **80.0** |
        <BLANKLINE>
    """
    aligned = [":--" if i < sheet.named else "--:" for i in range(len(sheet.heads))]
    lines = [
        f"## {sheet.title}",
        "",
        _markdown_row(map(escape_markdown, sheet.heads)),
        "|" + "|".join(aligned) + "|",
        *(_markdown_row(map(_markdown_item, row)) for row in sheet.rows),
        "",
    ]
    if sheet.notes:
        lines += [*(f"- {escape_markdown(note)}" for note in sheet.notes), ""]
    return "\n".join(lines)


def latex(sheet: Sheet) -> str:
    """Return a sheet as a LaTeX table; it needs the packages booktabs and amssymb."""
    rows: list[str] = []
    for place, row in enumerate(sheet.rows):
        if place in sheet.rules:
            rows.append(r"\midrule")
        rows.append(" & ".join(map(_latex_item, row)) + r" \\")
    notes = [rf"\\ {{\footnotesize {escape_latex(note)}}}" for note in sheet.notes]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape_latex(sheet.title)}}}",
            rf"\label{{tab:{sheet.name}}}",
            rf"\begin{{tabular}}{{{'l' * sheet.named}{'r' * (len(sheet.heads) - sheet.named)}}}",
            r"\toprule",
            " & ".join(map(escape_latex, sheet.heads)) + r" \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            *notes,
            r"\end{table}",
            "",
        ]
    )


def comma_separated(sheet: Sheet) -> str:
    """Return the numbers of a sheet as CSV, one a line, unrounded; what is unknown is empty."""
    out = io.StringIO()
    fields = list(dict.fromkeys(key for record in sheet.records for key in record))
    writer = csv.DictWriter(out, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {key: _plain(value) for key, value in record.items()} for record in sheet.records
    )
    return out.getvalue()


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


def _markdown_row(fields: Any) -> str:
    return "| " + " | ".join(fields) + " |"


def _markdown_item(item: Item) -> str:
    mark = "**" if item.strong else "*" if item.quoted else ""
    return f"{mark}{escape_markdown(item.text)}{mark}" if item.text else ""


def _latex_item(item: Item) -> str:
    text = escape_latex(item.text)
    if not text:
        return ""
    return rf"\textbf{{{text}}}" if item.strong else rf"\textit{{{text}}}" if item.quoted else text


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else repr(value)
    return "" if value is None else value
