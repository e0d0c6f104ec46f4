"""HTML, everything escaped: what notebooks show, and what pages of drawings have in common."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

_SHOWN = 200
"""Characters of a long text."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; font: 15px/1.4 system-ui, sans-serif }
body { margin: 2rem auto; max-width: 80rem; padding: 0 1rem }
figure div { background: #fff; border-radius: 4px; color: #000 }
"""


def page_head(title: str, style: str) -> str:
    """Return the beginning of a page, up to its heading; nothing on it can run or be fetched."""
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f"<meta http-equiv='Content-Security-Policy' content=\"{_POLICY}\">"
        f"<title>{title}</title><style>{_STYLE}{style}</style></head><body><h1>{title}</h1>"
    )


def html_lines(fields: Mapping[str, str]) -> str:
    """Return a line for each field that is not empty; of long texts the beginning."""
    return "".join(f"<br>{escape(k)}: {escape(v[:_SHOWN])}" for k, v in fields.items() if v)


class Table(NamedTuple):
    """Rows under the names of their columns, to be shown."""

    columns: Sequence[str]
    """Empty names: the columns have none."""
    rows: Sequence[Sequence[object]]
    title: str = ""


def html_table(table: Table) -> str:
    """Return a table; cells are text.

    Example:
        >>> html_table(Table(("",), [("<b>",)]))
        '<table><tr><td>&lt;b&gt;</td></tr></table>'
    """
    caption = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    named = table.columns if any(table.columns) else ()
    head = "".join(f"<th>{escape(name)}</th>" for name in named)
    lines = ["".join(f"<td>{escape(_text(cell))}</td>" for cell in row) for row in table.rows]
    body = "".join(f"<tr>{line}</tr>" for line in ([head] if head else []) + lines)
    return f"<table>{caption}{body}</table>"


def fields_table(fields: Mapping[str, object], title: str = "") -> Table:
    """Return a table of names and values; what is None is left out."""
    return Table(("", ""), [(k, v) for k, v in fields.items() if v is not None], title)


def _text(cell: object) -> str:
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return "" if cell is None else str(cell)
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:.4g}" if cell == cell else "-"
