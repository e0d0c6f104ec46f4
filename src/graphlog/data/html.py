"""HTML with escaped text: tables for notebooks, and the common parts of pages of drawings."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

_LONGEST_TEXT = 200
"""Largest number of characters of a field that are shown below a drawing."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; font: 15px/1.4 system-ui, sans-serif }
body { margin: 2rem auto; max-width: 80rem; padding: 0 1rem }
figure > div { background: #fff; border-radius: 4px; color: #000 }
h1 { font-size: 1.6rem }
.cards { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fill, minmax(165px, 1fr)) }
.cards figure { border: 1px solid #8886; border-radius: 6px; margin: 0; padding: .4rem }
figure svg { height: auto; max-width: 100% }
figcaption { font-size: 13px; overflow-wrap: anywhere }
.cards .fields { -webkit-box-orient: vertical; -webkit-line-clamp: 3; display: -webkit-box;
  overflow: hidden }
"""


def page_head(title: str, style: str) -> str:
    """Return the start of a page, up to its heading; scripts and remote content are forbidden."""
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<meta http-equiv='Content-Security-Policy' content=\"{_POLICY}\">"
        f"<title>{title}</title><style>{_STYLE}{style}</style></head><body><h1>{title}</h1>"
    )


def html_figure(svg: str, name: str, caption: str, row: int, fields: Mapping[str, str]) -> str:
    """Return a figure: a drawing labeled ``name``, a caption in HTML, and the fields of its row.

    A field ``row`` that holds the row number is left out, since the caption has it. The tooltip
    shows the fields in full.

    Example:
        >>> html_figure("<svg/>", "C", "row 7", 7, {"row": "7"})
        "<figure><div><svg role='img' aria-label='C'/></div><figcaption>row 7</figcaption></figure>"
    """
    picture = svg.replace("<svg", f"<svg role='img' aria-label='{escape(name)}'", 1)
    shown = {k: v for k, v in fields.items() if v and (k, v) != ("row", str(row))}
    tooltip = escape("\n".join(f"{k}: {v}" for k, v in shown.items()))
    lines = "<br>".join(f"{escape(k)}: {escape(v[:_LONGEST_TEXT])}" for k, v in shown.items())
    below = f"<div class='fields' title='{tooltip}'>{lines}</div>" if shown else ""
    return (
        f"<figure>{f'<div>{picture}</div>' if svg else ''}"
        f"<figcaption>{caption}{below}</figcaption></figure>"
    )


class Table(NamedTuple):
    """A table to be displayed."""

    columns: Sequence[str]
    """Names of the columns; a table with only empty names has no heading."""
    rows: Sequence[Sequence[object]]
    """Cells of each row."""
    title: str = ""
    """Title above the table."""


def html_table(table: Table) -> str:
    """Return a table as HTML, with escaped cells.

    Example:
        >>> html_table(Table(("",), [("<b>",)]))
        '<table><tr><td>&lt;b&gt;</td></tr></table>'
    """
    caption = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    lines = ["".join(f"<td>{escape(_text(cell))}</td>" for cell in row) for row in table.rows]
    if any(table.columns):
        lines.insert(0, "".join(f"<th>{escape(name)}</th>" for name in table.columns))
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table>{caption}{body}</table>"


def fields_table(fields: Mapping[str, object], title: str = "") -> Table:
    """Return a table of names and values; values that are None are left out."""
    return Table(("", ""), [(k, v) for k, v in fields.items() if v is not None], title)


def _text(cell: object) -> str:
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return "" if cell is None else str(cell)
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:.4g}" if cell == cell else "-"
