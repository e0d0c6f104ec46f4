"""Nearest neighbors as a table, or as a page with drawings."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from html import escape
from pathlib import Path
from typing import Any

from graphlog.data.html import html_lines, page_head
from graphlog.data.schema import FeatureSchema
from graphlog.domains import Input, domain_of
from graphlog.domains.records import RecordDomain
from graphlog.downstream.embed import Written, check_output, is_standard_output, save_rejects
from graphlog.downstream.encoder import Encoder
from graphlog.downstream.models import load, load_for
from graphlog.downstream.search import Index, Neighbors, check_new, is_index
from graphlog.downstream.writers import STATUS, free_names
from graphlog.errors import ConfigError, DataError
from graphlog.files import CsvTable, replacing
from graphlog.inputs import InputLike, has_column, read, rereadable, resolve
from graphlog.training.log import Progress
from graphlog.training.precision import Precision

ENDINGS = (".csv", ".jsonl", ".html")
MOST_ON_A_PAGE = 200
"""Queries that a page shows; more would make it slow to open."""
_SIZE = (180, 130)
Fields = Mapping[str, str]
_STYLE = """
section { border-top: 1px solid #8886; margin-top: 1.5rem; padding-top: .5rem }
.cards { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fill, minmax(190px, 1fr)) }
figure { border: 1px solid #8886; border-radius: 6px; margin: 0; overflow-wrap: anywhere;
  padding: .4rem }
figure div { min-height: 130px; text-align: center }
figcaption { font-size: 13px } section figure:first-child { border-width: 3px }
"""


def neighbors(
    model: Encoder | str | Path,
    query: InputLike,
    library: InputLike | Index,
    k: int = 10,
    *,
    device: str = "cpu",
    exact: bool | None = None,
    layer: str | None = None,
    **options: Any,
) -> Neighbors:
    """Return the nearest rows of a library for every row of a query, by cosine of embeddings.

    Args:
        model: An encoder, a model file, a run folder, the name of a shipped model, or ``random``.
        query: A path, the name of a data set, a store, or a list of SMILES.
        library: The same, the folder of a saved index, or an :class:`Index`.
        k: Neighbors of each row.
        device: Where to load a model that is named.
        exact: As for :meth:`Index.build`.
        layer: As for :meth:`Index.build`.
        options: ``batch_size``, ``precision``, ``progress`` and the reader's, for both.

    Example:
        >>> found = neighbors("random", ["CCO"], ["c1ccccc1", "CCO", "CCCO"], 2)
        >>> found.rows[0].tolist()
        [1, 2]
    """
    index, source = _opened(library)
    encoder = load(model, device=device) if index else load_for(model, source, device=device)
    if index is None:
        index = Index.build(encoder, source, layer=layer, exact=exact, **options)
    return index.query(encoder, query, k, **options)


def neighbors_file(
    model: Encoder | str | Path,
    query: InputLike,
    library: InputLike | Index,
    out: str | Path,
    k: int = 10,
    *,
    save: str | Path | None = None,
    device: str = "cpu",
    exact: bool | None = None,
    layer: str | None = None,
    batch_size: int = 2048,
    precision: Precision = "fp32",
    progress: Progress | None = None,
    format: str | None = None,
    **reading: Any,
) -> Written:
    """Write the nearest rows of a library for every row of a query, one line a pair.

    A line has the columns of the query, ``neighbor_rank``, ``neighbor_similarity``,
    ``neighbor_row``, ``neighbor_<column>`` for each column of the library, and
    ``graphlog_status``. A query that cannot be read has one line.

    Args:
        model: As for :func:`neighbors`.
        query: As for :func:`neighbors`; a text that is no file is read as one molecule.
        library: As for :func:`neighbors`.
        out: ``.csv``, ``.jsonl`` or ``.html`` (with drawings); ``-`` is standard output.
        k: Neighbors of each row.
        save: Folder to write the index to, for other queries.
        device: Where to load a model that is named.
        exact: As for :meth:`Index.build`.
        layer: As for :meth:`Index.build`.
        batch_size: Graphs per forward pass.
        precision: Format of matrix products.
        progress: Follows the batches.
        format: ``csv``, ``jsonl`` or ``html``, whatever the ending.
        reading: Options of the reader, for query and library; a ``smiles_column`` that one of them
            lacks is that of the other.

    Raises:
        ConfigError: If the output cannot be written, or the index is of another model.
        DataError: If query or library cannot be read.
    """
    path, (index, source) = Path(out), _opened(library)
    kind = _format(path, format)
    if save is not None:
        if index is not None:
            raise ConfigError("the library is an index already; drop `save`.")
        check_new(Path(save))
    encoder = load(model, device=device) if index else load_for(model, source, device=device)
    computing: dict[str, Any] = {
        "batch_size": batch_size,
        "precision": precision,
        "progress": progress,
    }
    with rereadable(resolve(_molecule_or_source(query, encoder), encoder.schema)) as found:
        if index is None:
            source = resolve(source, encoder.schema)
            theirs, reading = _readings(reading, source, found, encoder.schema)
            index = Index.build(encoder, source, layer=layer, exact=exact, **computing, **theirs)
            if save is not None:
                index.save(save)
        index.check_model(encoder)
        store = read(found, encoder.schema, **reading)
        result = index.query(encoder, store, k, **computing)
        fields = list(domain_of(encoder.schema).rows(found, store, **reading))
    is_file = not is_standard_output(path)
    with ExitStack() as opened:
        file: Any = sys.stdout
        if is_file:
            unfinished = opened.enter_context(replacing(path))
            how: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace"}
            file = opened.enter_context(unfinished.open("w", newline="", **how))
        if kind == "html":
            file.writelines(_page(encoder, index, fields, store.output_texts(), result))
        else:
            _write_table(file, index, fields, result, kind)
    rejects = save_rejects(path.parent, store.output_rejects, path.name) if is_file else None
    content = {
        "library": len(index),
        "neighbors": result.rows.shape[1],
        "search": "exact" if index.is_exact else "approximate",
        "index": None if save is None else str(save),
    }
    return Written(path, len(fields), store.num_output_rows - len(store), rejects, content)


def _opened(library: Any) -> tuple[Index | None, Any]:
    """Return the index that a library is, or None and what is to be indexed."""
    if isinstance(library, Index):
        return library, None
    is_path = isinstance(library, str | os.PathLike)
    if is_path and is_index(Path(library)):
        return Index.load(Path(library)), None
    return None, library


def _readings(
    reading: Mapping[str, Any], library: Input, query: Input, schema: FeatureSchema
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return how to read library and query: by the column that is named, if they have it."""
    column = reading.get("smiles_column")
    has = [column and has_column(source, schema, column) for source in (library, query)]
    found = {**reading, "smiles_column": None}
    first, second = (dict(reading) if has_it or not any(has) else found for has_it in has)
    return first, second


def _format(out: Path, format: str | None) -> str:
    if is_standard_output(out):
        return format or "csv"
    endings = ENDINGS if format is None else (out.suffix.lower(),)
    check_output(out, endings)
    return format or out.suffix.lower().removeprefix(".")


def _molecule_or_source(query: Any, encoder: Encoder) -> Any:
    """Return a text that names nothing as a list of one molecule, if it is one."""
    if not isinstance(query, str) or query == "-":
        return query
    try:
        return resolve(query, encoder.schema)
    except (ConfigError, DataError):
        if domain_of(encoder.schema).name != "molecule":
            raise
        rejects = read([query], encoder.schema).rejects
        if rejects:
            raise DataError(
                f"{query[:80]!r} is no file, no data set and no molecule ({rejects[0].reason}); "
                "check the path."
            ) from None
        return [query]


def _write_table(
    file: Any, index: Index, fields: Sequence[Fields], result: Neighbors, kind: str
) -> None:
    """Write a table, a line for each query and neighbor."""
    library = [name for name in index.record(0)[0] if name != "row"]
    own = list(fields[0]) if fields else []
    added = ["neighbor_rank", "neighbor_similarity", "neighbor_row"]
    added = free_names([*added, *(f"neighbor_{name}" for name in library), STATUS], own)
    table = CsvTable(file)
    if kind == "csv":
        table.writerow([*own, *added])
    for query, status, rows, cosines in zip(
        fields, result.status, result.rows, result.similarity, strict=True
    ):
        found = [row for row in rows.tolist() if row >= 0]
        lines: list[list[Any]] = [
            [rank, float(f"{cosine:.6g}"), row, *(index.record(row)[0][name] for name in library)]
            for rank, (row, cosine) in enumerate(zip(found, cosines, strict=False), 1)
        ]
        for values in lines or [[None] * (len(added) - 1)]:
            cells = [*query.values(), *values, status]
            if kind == "csv":
                table.writerow(["" if cell is None else str(cell) for cell in cells])
            else:
                line = dict(zip([*own, *added], cells, strict=True))
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _page(
    encoder: Encoder,
    index: Index,
    fields: Sequence[Fields],
    texts: Sequence[str],
    result: Neighbors,
) -> Iterator[str]:
    """Yield a page of a section a query: the query, then its neighbors, drawn."""
    shown = min(len(fields), MOST_ON_A_PAGE)
    title = f"Nearest neighbors of {shown:,} {'query' if shown == 1 else 'queries'}"
    rows = [[int(row) for row in found if row >= 0] for found in result.rows[:shown]]
    near = {row: index.record(row) for found in rows for row in found}
    drawings = _drawings(encoder, {*texts[:shown], *(text for _, text in near.values())})
    search = "exact" if index.is_exact else "approximate"
    yield page_head(title, _STYLE) + f"<p>{len(index):,} library rows, {search} search."
    if shown < len(fields):
        yield f" The page shows the first {shown:,} of {len(fields):,} queries; a .csv has all."
    for query, text, status, found, cosines in zip(
        fields, texts, result.status, rows, result.similarity, strict=False
    ):
        note = "query" if status == "ok" else f"query: {escape(status)}"
        yield "<section><div class='cards'>" + _card(f"<b>{note}</b>", query, drawings.get(text))
        for rank, (row, cosine) in enumerate(zip(found, cosines, strict=False), 1):
            own, drawn = near[row][0], drawings.get(near[row][1])
            yield _card(f"<b>{rank}</b> &middot; similarity {cosine:.3f}", own, drawn)
        yield "</div></section>\n"
    yield "</body></html>\n"


def _card(head: str, fields: Fields, drawing: str | None) -> str:
    picture = f"<div>{drawing}</div>" if drawing else ""
    return f"<figure>{picture}<figcaption>{head}{html_lines(fields)}</figcaption></figure>"


def _drawings(encoder: Encoder, texts: set[str]) -> dict[str, str]:
    """Return an ``<svg>`` of each text, where graphs are made of texts and can be drawn."""
    domain = domain_of(encoder.schema)
    if not isinstance(domain, RecordDomain):
        return {}
    store = read(sorted(texts - {""}), encoder.schema)
    drawn = domain.draw(store, range(len(store)), *_SIZE) if len(store) else []
    return dict(zip(store.texts(), drawn or (), strict=False)) if len(store) else {}
