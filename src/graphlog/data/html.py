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
    """Return the beginning of a page, up to its heading; nothing on it can run or be fetched."""
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<meta http-equiv='Content-Security-Policy' content=\"{_POLICY}\">"
        f"<title>{title}</title><style>{_STYLE}{style}</style></head><body><h1>{title}</h1>"
    )


def html_figure(svg: str, name: str, caption: str, row: int, fields: Mapping[str, str]) -> str:
    """Return a drawing called ``name`` over a caption, which is HTML, and the fields of its row.

    The number of the row, which lists have in place of columns, is left to the caption. A hover
    tells the fields in full.

    Example:
        >>> html_figure("<svg/>", "C", "row 7", 7, {"row": "7"})
        "<figure><div><svg role='img' aria-label='C'/></div><figcaption>row 7</figcaption></figure>"
    """
    picture = svg.replace("<svg", f"<svg role='img' aria-label='{escape(name)}'", 1)
    known = {k: v for k, v in fields.items() if v and (k, v) != ("row", str(row))}
    told = escape("\n".join(f"{k}: {v}" for k, v in known.items()))
    lines = "<br>".join(f"{escape(k)}: {escape(v[:_SHOWN])}" for k, v in known.items())
    below = f"<div class='fields' title='{told}'>{lines}</div>" if known else ""
    return (
        f"<figure>{f'<div>{picture}</div>' if svg else ''}"
        f"<figcaption>{caption}{below}</figcaption></figure>"
    )


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
