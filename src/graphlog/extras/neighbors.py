"""Nearest neighbors among the embeddings of a library, as a table or a page of drawings."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch.nn import functional as F

from graphlog.data.graphs import FeatureSchema, save_rejects
from graphlog.data.html import html_figure, page_head
from graphlog.data.store import GraphStore
from graphlog.domains import Draws, Input, domain_of
from graphlog.domains.records import RecordDomain
from graphlog.downstream.pretrained import Encoder, check_layer, load, ranges_of, standardized_alike
from graphlog.downstream.writers import (
    STATUS,
    Written,
    check_output,
    copy_to_standard_output,
    free_names,
    is_standard_output,
)
from graphlog.encoders.encoder import EmbeddingLayer
from graphlog.encoders.modelfile import digest_of, read_tensors, write_tensors
from graphlog.errors import (
    ConfigError,
    DataError,
    MissingExtraError,
    ModelFileError,
    check_choice,
    optional,
    out_of_range,
    setting,
)
from graphlog.files import (
    CsvTable,
    create_text,
    hash_file,
    link_target,
    replacing,
    scratch_folder,
    writing,
)
from graphlog.inputs import (
    InputLike,
    has_column,
    read,
    read_streamed,
    rereadable,
    resolve,
    temporary_folder,
)
from graphlog.training.log import Progress
from graphlog.training.settings import Precision

EXACT_BELOW = 100_000
"""Library rows up to which every one is compared: a query takes milliseconds."""
_FILE, _ARRAY, _GRAPH = "index.safetensors", "vectors.npy", "graph.usearch"
_ROWS_AT_ONCE, _QUERIES_AT_ONCE = 16_384, 1024

Fields = Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Neighbors:
    """The nearest library rows of every query row, the nearest first."""

    rows: Int[np.ndarray, "Q K"]
    """Rows of the library; -1 for a query that cannot be read."""
    similarity: Float[np.ndarray, "Q K"]
    """Cosine of the two embeddings; NaN for a query that cannot be read."""
    status: list[str]
    """``ok``, or why a query could not be read."""


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """The embeddings of a library, scaled to unit length, and what its rows hold."""

    model: str
    """Digest of the encoder it was built with."""
    layer: EmbeddingLayer
    """Embedding that is compared."""
    vectors: Any
    """An array with a row for each graph, or a graph of usearch, with each distinct vector once."""
    rows: Int[np.ndarray, "N"]
    """Row of the library of each graph; of a graph of usearch, vector by vector."""
    records: Sequence[bytes] = field(repr=False)
    """Columns and text of every row of the library, as JSON."""
    standardize: str | None = None
    """How its molecules were changed before they were read; queries are changed alike."""
    starts: Int[np.ndarray, "V+1"] | None = None
    """Where in ``rows`` those of each vector of a graph of usearch start and, last, end."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def is_exact(self) -> bool:
        """Whether every row is compared; else neighbors are found through a graph of vectors."""
        return isinstance(self.vectors, np.ndarray)

    @classmethod
    def build(
        cls,
        encoder: Encoder,
        library: InputLike,
        *,
        layer: str | None = None,
        exact: bool | None = None,
        batch_size: int = 2048,
        precision: Precision = "fp32",
        progress: Progress | None = None,
        **reading: Any,
    ) -> "Index":
        """Embed a library and return its index; rows that cannot be read are left out.

        Args:
            encoder: What embeds.
            library: A path, the name of a data set, a store, or a list of SMILES.
            layer: ``jk``, ``jk+sum`` or ``last``; None takes the model's own.
            exact: Compare every row; None does so up to :data:`EXACT_BELOW` rows. A larger library
                gets an approximate index (HNSW), which needs the extra ``search``.
            batch_size: Graphs per forward pass.
            precision: Format of matrix products.
            progress: Follows the batches.
            reading: Options of the reader (``smiles_column``, ``limit``, ...).

        Raises:
            DataError: If the library cannot be read or has no row that can.
            MissingExtraError: If the library is large and ``usearch`` is not installed.
        """
        given, chosen = resolve(library, encoder.schema), check_layer(layer or encoder.layer)
        reading = encoder.reading_of(given, reading)
        with rereadable(given) as found, read_streamed(found, encoder.schema, **reading) as store:
            if not len(store):
                raise DataError(f"{found.name} has no row that can be read; name another library.")
            shape = len(store), encoder.width(chosen)
            is_exact = len(store) <= EXACT_BELOW if exact is None else exact
            computing: dict[str, Any] = {"precision": precision, "progress": progress}
            parts = _embeddings(encoder, store, chosen, batch_size, **computing)
            places, starts = np.array(store.output_rows), None
            if is_exact:
                vectors = np.empty(shape, dtype=np.float32)
                for graphs, values in parts:
                    vectors[graphs] = _unit(values)
            else:
                vectors, order, starts = _graph(parts, *shape)
                places = places[order]
            domain = domain_of(encoder.schema)
            fields = domain.rows(found, store, domain.reading.of(reading))
            rows = zip(fields, store.output_texts(), strict=True)
            records = [json.dumps([dict(own), text]).encode() for own, text in rows]
            about = (records, store.source.standardize, starts)
            return cls(model_digest(encoder), chosen, vectors, places, *about)

    def query(
        self,
        encoder: Encoder,
        source: InputLike,
        k: int = 10,
        *,
        batch_size: int = 2048,
        precision: Precision = "fp32",
        progress: Progress | None = None,
        **reading: Any,
    ) -> Neighbors:
        """Return the nearest library rows of every row of ``source``.

        Args:
            encoder: The model that the index was built with.
            source: A path, the name of a data set, a store, or a list of SMILES.
            k: Neighbors of each row; fewer where the library is smaller.
            batch_size: Graphs per forward pass.
            precision: Format of matrix products.
            progress: Follows the batches.
            reading: Options of the reader.

        Raises:
            ConfigError: If the index is of another model, or ``k`` is below 1.
        """
        if k < 1:
            raise out_of_range("k", "1 or more", k)
        self.check_model(encoder)
        given = resolve(source, encoder.schema)
        reading = standardized_alike(given, reading, self.standardize, "the library")
        store = encoder.graphs_of(given, reading)
        k, total, places = min(k, len(self)), store.num_output_rows, store.output_rows
        rows = np.full((total, k), -1, dtype=np.int64)
        similarity = np.full((total, k), np.nan, dtype=np.float32)
        computing: dict[str, Any] = {"precision": precision, "progress": progress}
        for graphs, values in _embeddings(encoder, store, self.layer, batch_size, **computing):
            nearest, similarity[places[graphs]] = self.nearest(values, k)
            rows[places[graphs]] = self.rows[nearest]
        return Neighbors(rows, similarity, store.output_status())

    def nearest(
        self, embeddings: Float[np.ndarray, "Q W"], k: int
    ) -> tuple[Int[np.ndarray, "Q K"], Float[np.ndarray, "Q K"]]:
        """Return positions in :attr:`rows` and cosines of the ``k`` nearest, nearest first."""
        queries, k = _unit(embeddings), min(k, len(self))
        if self.is_exact:
            parts = np.array_split(queries, len(queries) // _QUERIES_AT_ONCE + 1)
            positions, cosines = zip(
                *(_exact(self.vectors, part, k) for part in parts), strict=True
            )
            return np.concatenate(positions), np.concatenate(cosines).clip(-1, 1)  # rounding
        starts = np.asarray(self.starts)
        nodes, distances = _approximate(self.vectors, queries, min(k, len(starts) - 1))
        if nodes.size and not 0 <= int(nodes.min()) <= int(nodes.max()) < len(starts) - 1:
            raise ModelFileError("the graph of the index names rows that it lacks; build it again.")
        # numbers of vectors are in the order of their first rows
        nearest = np.lexsort((nodes, distances))
        nodes, distances = (np.take_along_axis(a, nearest, axis=1) for a in (nodes, distances))
        counts = starts[nodes + 1] - starts[nodes]
        # of each vector the rows that are still wanted: k in all
        taken = (k - counts.cumsum(axis=1) + counts).clip(0, counts).ravel()
        skipped = (starts[nodes].ravel() - taken.cumsum() + taken).repeat(taken)
        positions = skipped + np.arange(len(skipped))
        cosines = (1 - distances).clip(-1, 1).ravel().repeat(taken)
        return positions.reshape(-1, k), cosines.reshape(-1, k)

    def check_model(self, encoder: Encoder) -> None:
        """Refuse an encoder that the index was not built with.

        Raises:
            ConfigError: If it is another.
        """
        width = self.vectors.shape[1] if self.is_exact else self.vectors.ndim
        if self.model != model_digest(encoder) or width != encoder.width(self.layer):
            raise ConfigError(
                "the index was built with another model, and embeddings of two models cannot be "
                "compared; name the model it was built with, or build it again."
            )

    def record(self, row: int) -> tuple[Fields, str]:
        """Return the columns of a library row, and the text of its graph, empty if unknown."""
        try:
            fields, text = json.loads(self.records[row])
        except (ValueError, TypeError, RecursionError):
            fields, text = None, None
        if not isinstance(fields, dict) or not isinstance(text, str):
            raise ModelFileError(f"record {row} of the index is damaged; build the index again.")
        return fields, text

    def save(self, folder: str | Path) -> None:
        """Write the index to a new folder, whole or not at all.

        Raises:
            ConfigError: If the folder holds something.
        """
        out = Path(folder)
        check_new(out)
        with scratch_folder(out) as scratch, writing(out):
            new = scratch / "index"
            new.mkdir()
            file = new / (_ARRAY if self.is_exact else _GRAPH)
            if self.is_exact:
                with file.open("wb") as array:  # numpy's own way hides why it fails
                    vectors = np.ascontiguousarray(self.vectors)
                    header = np.lib.format.header_data_from_array_1_0(vectors)
                    np.lib.format.write_array_header_1_0(array, header)
                    array.write(vectors.data)
            else:
                self.vectors.save(str(file))
            about = {"model": self.model, "layer": self.layer, "exact": self.is_exact}
            about |= {"vectors": hash_file(file), "standardize": self.standardize}
            records = bytearray(b"\n".join(self.records))
            tensors = {
                "rows": torch.tensor(self.rows),
                "records": torch.frombuffer(records, dtype=torch.uint8),
            }
            if self.starts is not None:
                tensors["starts"] = torch.tensor(self.starts)
            write_tensors(new / _FILE, "index", about, tensors)
            try:
                new.replace(out)
            except OSError:
                check_new(out)  # another process may have been faster
                raise

    @classmethod
    def load(cls, folder: str | Path) -> "Index":
        """Return the index that :meth:`save` wrote; its vectors stay on disk.

        Raises:
            DataError: If there is none.
            ModelFileError: If it is damaged or of a newer format.
            MissingExtraError: If it is approximate and ``usearch`` is not installed.
        """
        path = Path(folder)
        if not (path / _FILE).is_file():
            raise DataError(
                f"{path} is not an index; build one: graphlog neighbors ... --save {path}"
            )
        about, tensors = read_tensors(path / _FILE, "index")
        file = path / (_ARRAY if about.get("exact") else _GRAPH)
        if not file.is_file() or hash_file(file) != about.get("vectors"):
            raise ModelFileError(f"{file} is damaged or missing; build the index again.")
        try:
            if about["exact"]:
                vectors, starts = np.load(file, mmap_mode="r"), None
                ends = np.arange(len(vectors) + 1)
            else:
                vectors = _usearch().restore(str(file), view=True)
                starts = ends = tensors["starts"].numpy()
            records = tensors["records"].numpy().tobytes().split(b"\n")
            layer = check_layer(about["layer"])
            digest, rows, standardize = (
                about["model"],
                tensors["rows"].numpy(),
                about["standardize"],
            )
            index = cls(str(digest), layer, vectors, rows, records, standardize, starts)
            is_array = index.is_exact
            if not (
                (ends.dtype, ends.shape) == (np.int64, (len(vectors) + 1,))
                and (rows.dtype, rows.shape) == (np.int64, (int(ends[-1]),))
                and ends[0] == 0 < np.diff(ends).min()
                and len(np.unique(rows)) == len(rows) > 0
                and 0 <= int(rows.min()) <= int(rows.max()) < len(records)
                and (not is_array or (vectors.dtype, vectors.ndim) == (np.float32, 2))
                and isinstance(standardize, str | None)
            ):
                raise ValueError
        except MissingExtraError:
            raise
        except Exception:  # whatever files that were signed anew make of these calls
            raise ModelFileError(
                f"{path}: its files contradict each other; build the index again."
            ) from None
        return index


def check_new(folder: Path) -> None:
    """Refuse to write an index where something is.

    Raises:
        ConfigError: If the folder holds something, or the one it is to be in does not exist.
    """
    # the current folder, which has no name here, cannot be put in place whole
    if folder.exists() and (not folder.name or not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} exists; remove it, or name another folder for the index.")
    if not folder.absolute().parent.is_dir():
        raise ConfigError(
            f"there is no folder {folder.absolute().parent}; create it, or choose another one."
        )


def model_digest(encoder: Encoder) -> str:
    """Return a hash of all that decides the embeddings of an encoder."""
    about = {"schema": encoder.schema.name, "config": encoder.config.model_dump()}
    return digest_of(encoder.network.state_dict(), about)


def _embeddings(
    encoder: Encoder, store: GraphStore, layer: EmbeddingLayer, batch_size: int, **computing: Any
) -> Iterator[tuple[slice, Float[np.ndarray, "B W"]]]:
    parts = ranges_of(store, batch_size)
    return encoder.embed_batches(parts, layer, batch_size, total=len(store), **computing)


def _unit(embeddings: Float[np.ndarray, "B W"]) -> Float[np.ndarray, "B W"]:
    return F.normalize(torch.tensor(embeddings, dtype=torch.float32)).numpy()


def _usearch() -> Any:
    with optional("usearch", "search"):
        from usearch.index import Index as Graph  # pyright: ignore[reportMissingImports]
    return Graph


def _graph(
    parts: Iterator[tuple[slice, Float[np.ndarray, "B W"]]], total: int, width: int
) -> tuple[Any, Int[np.ndarray, "N"], Int[np.ndarray, "V+1"]]:
    """Return a graph of distinct vectors, all rows vector by vector, and where each one's start.

    Equal vectors would link to each other alone and cut others off. Equal are those that the graph,
    which holds two bytes a number, could not tell apart: float32 differs by batch in its last bits.
    """
    graph = _usearch()(ndim=width, metric="cos", dtype="f16")
    # two of ten million vectors share a hash of 64 bits with a chance of 3 in a million
    weights = np.random.default_rng(0).integers(2**64, size=width, dtype=np.uint64)
    known: dict[int, int] = {}
    numbers = np.empty(total, dtype=np.int64)
    for rows, values in parts:
        vectors, before = _unit(values).astype(np.float16), len(known)
        hashes = (vectors.view(np.uint16) @ weights).tolist()
        numbers[rows] = [known.setdefault(one, len(known)) for one in hashes]
        nodes, first = np.unique(numbers[rows], return_index=True)
        is_new = nodes >= before
        graph.add(nodes[is_new].astype(np.uint64), vectors[first[is_new]])
    # of vectors that threads add side by side, links to a few are lost
    for keys in np.array_split(np.arange(len(known), dtype=np.uint64), len(known) // 16384 + 1):
        vectors = np.asarray(graph.get(keys)).reshape(len(keys), width)
        lost = np.resize(graph.search(vectors, 1).keys, len(keys)) != keys
        if lost.any():
            graph.remove(keys[lost])
            graph.add(keys[lost], vectors[lost], threads=1)
    starts = np.append(0, np.bincount(numbers).cumsum())
    return graph, numbers.argsort(kind="stable"), starts


def _approximate(
    graph: Any, queries: Float[np.ndarray, "Q W"], count: int
) -> tuple[Int[np.ndarray, "Q M"], Float[np.ndarray, "Q M"]]:
    """Return the nearest of a graph, and their distances; -1 and NaN where it has fewer."""
    nodes = np.full((len(queries), count), -1, dtype=np.int64)
    distances = np.full(nodes.shape, np.nan, dtype=np.float32)
    asked = np.arange(len(queries))
    for exact in (False, True):  # all are compared where links do not lead to enough
        found = graph.search(queries[asked], count, exact=exact)
        # usearch answers one query without counts and unused places
        is_full = np.broadcast_to(getattr(found, "counts", len(found.keys)), asked.shape) == count
        for result, own in ((nodes, found.keys), (distances, found.distances)):
            result[asked[is_full]] = np.resize(own, (len(asked), count))[is_full]
        asked = asked[~is_full]
        if not len(asked):
            break
    return nodes, distances


def _exact(
    vectors: Float[np.ndarray, "N W"], queries: Float[np.ndarray, "Q W"], k: int
) -> tuple[Int[np.ndarray, "Q K"], Float[np.ndarray, "Q K"]]:
    """Return the ``k`` nearest, block by block of the library; ties go to the earlier row."""
    best = np.empty((len(queries), 0), dtype=np.float32)
    places = np.empty((len(queries), 0), dtype=np.int64)
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        cosines = queries @ vectors[start : start + _ROWS_AT_ONCE].T
        cosines[np.isnan(cosines)] = -np.inf  # of embeddings that are not finite: the farthest
        here = np.broadcast_to(np.arange(start, start + cosines.shape[1]), cosines.shape)
        best, places = np.hstack([best, cosines]), np.hstack([places, here])
        # sorting those that are near enough takes a third of the time of sorting all
        width = min(k, best.shape[1])
        rows, columns = np.nonzero(best >= np.partition(best, -width, axis=1)[:, -width, None])
        order = columns[np.lexsort((-best[rows, columns], rows))]
        starts = np.searchsorted(rows, np.arange(len(queries)))
        order = order[starts[:, None] + np.arange(width)]
        best, places = (np.take_along_axis(a, order, axis=1) for a in (best, places))
    best[np.isinf(best)] = np.nan
    return places, best


ENDINGS = (".csv", ".jsonl", ".html")
MOST_ON_A_PAGE = 200
"""Queries that a page shows; more would make it slow to open."""
_SIZE = (180, 130)
_STYLE = """
section { border-top: 1px solid #8886; margin-top: 1.5rem; padding-top: .5rem }
figure > div { min-height: 130px; text-align: center }
section figure:first-child { border-width: 3px }
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
    index, source = _opened(library, layer, exact)
    encoder = load(model, device=device, source=source)
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
        reading: Options of the reader, for query and library; a ``smiles_column`` or ``sheet`` that
            one of them lacks is that of the other.

    Raises:
        ConfigError: If the output cannot be written, or the index is of another model.
        DataError: If query or library cannot be read.
    """
    path, (index, source) = Path(out), _opened(library, layer, exact)
    is_file = not is_standard_output(path)
    kind = format or (path.suffix.lower().removeprefix(".") if is_file else "csv")
    if format is not None:
        check_choice("format", format, [ending[1:] for ending in ENDINGS])
    if is_file:
        endings = ENDINGS if format is None else (path.suffix.lower(),)
        check_output(path, endings, query, library)
    if save is not None:
        if index is not None:
            raise ConfigError(
                f"the library is an index already; drop {setting('save')}.", option="save"
            )
        check_new(Path(save))
    encoder = load(model, device=device, source=source)
    computing: dict[str, Any] = {
        "batch_size": batch_size,
        "precision": precision,
        "progress": progress,
    }
    with rereadable(resolve(_molecule_or_source(query, encoder), encoder.schema)) as found:
        theirs: dict[str, Any] = reading
        if index is not None:
            index.check_model(encoder)
            standardize = index.standardize
        else:
            source = resolve(source, encoder.schema)
            theirs, reading = _readings(source, found, encoder.schema, reading)
            standardize = None if source.store is None else source.store.source.standardize
        reading = encoder.reading_of(found, reading)
        reading = standardized_alike(found, reading, standardize, "the library")
        store = read(found, encoder.schema, **reading)
        if index is None:
            index = Index.build(encoder, source, layer=layer, exact=exact, **computing, **theirs)
        result = index.query(encoder, store, k, **computing)
        domain = domain_of(encoder.schema)
        fields = list(domain.rows(found, store, domain.reading.of(reading)))
    with ExitStack() as opened:
        if is_file:
            unfinished = opened.enter_context(replacing(link_target(path)))
        else:
            unfinished = opened.enter_context(temporary_folder()) / "neighbors"
        with create_text(unfinished) as file:
            if kind == "html":
                file.writelines(_page(encoder, index, fields, store.output_texts(), result))
            else:
                _write_table(file, index, fields, result, kind)
        if not is_file:
            copy_to_standard_output(unfinished)
    rejects = save_rejects(path.parent, store.output_rejects, path.name) if is_file else None
    if save is not None:  # last: where there is an index, a command that was killed is refused
        index.save(save)
    content = {
        "library": len(index),
        "neighbors": result.rows.shape[1],
        "search": "exact" if index.is_exact else "approximate",
        "index": None if save is None else str(save),
    }
    return Written(path, len(fields), store.num_output_rows - len(store), rejects, content)


def _opened(
    library: InputLike | Index, layer: str | None, exact: bool | None
) -> tuple[Index | None, Any]:
    """Return the index that a library is or names, or None and what is yet to be embedded."""
    if isinstance(library, str | os.PathLike) and os.path.isfile(Path(library) / _FILE):
        library = Index.load(Path(library))
    if not isinstance(library, Index):
        return None, library
    search = "exact" if library.is_exact else "approximate"
    for option, wanted, own, found in (
        ("layer", layer, library.layer, f"of layer '{library.layer}'"),
        ("exact", exact, library.is_exact, search),
    ):
        if wanted not in (None, own):
            raise ConfigError(
                f"{setting(option, wanted)} does not fit the index, which is {found}; drop it, or "
                "build another index.",
                option=option,
            )
    return library, None


def _readings(
    library: Input, query: Input, schema: FeatureSchema, reading: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return how to read each: what only one of them has, a sheet or a column, is of that one."""
    both, own = (library, query), [dict(reading), dict(reading)]
    has = [one.file is not None and one.file.suffix.lower() == ".xlsx" for one in both]
    if has[0] != has[1]:
        own[has.index(False)]["sheet"] = None
    if (column := reading.get("smiles_column")) is not None:
        has = [
            has_column(one, schema, column, options.get("sheet"))
            for one, options in zip(both, own, strict=True)
        ]
        if has[0] != has[1]:
            own[has.index(False)]["smiles_column"] = None
    return own


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
                f"{query[:80]!r} is not a file, data set or molecule ({rejects[0].reason}); "
                "check the path."
            ) from None
        return [query]


def _nearest(result: Neighbors, query: int) -> list[tuple[int, int, float]]:
    """Return rank, library row and cosine of the neighbors of a query; none if it is unreadable."""
    rows, cosines = result.rows[query].tolist(), result.similarity[query].tolist()
    found = zip(range(1, len(rows) + 1), rows, cosines, strict=True)
    return [hit for hit in found if hit[1] >= 0]


def _write_table(
    file: Any, index: Index, fields: Sequence[Fields], result: Neighbors, kind: str
) -> None:
    """Write a table, a line for each query and neighbor."""
    first, last = index.record(0)[0], index.record(len(index) - 1)[0]
    # a list or store has no columns but numbers of rows, which `neighbor_row` repeats
    is_numbered = first.get("row") == "0" and last.get("row") == str(len(index) - 1)
    library = [name for name in first if not (is_numbered and name == "row")]
    own = list(fields[0]) if fields else []
    added = ["neighbor_rank", "neighbor_similarity", "neighbor_row"]
    added = free_names([*added, *(f"neighbor_{name}" for name in library), STATUS], own)
    table = CsvTable(file)
    if kind == "csv":
        table.writerow([*own, *added])
    for number, (query, status) in enumerate(zip(fields, result.status, strict=True)):
        lines: list[list[Any]] = [
            [rank, float(f"{cosine:.6g}"), row, *(index.record(row)[0][name] for name in library)]
            for rank, row, cosine in _nearest(result, number)
        ]
        for values in lines or [[None] * (len(added) - 1)]:
            cells = [*query.values(), *values, status]
            if kind == "csv":
                table.writerow(cells)
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
    near = {row: index.record(row) for row in np.unique(result.rows[:shown]).tolist() if row >= 0}
    drawings = _drawings(encoder, {*texts[:shown], *(text for _, text in near.values())})

    def card(head: str, row: int, fields: Fields, text: str) -> str:
        caption = f"{head} &middot; row&nbsp;{row}"
        return html_figure(drawings.get(text, ""), text, caption, row, fields)

    search = "exact" if index.is_exact else "approximate"
    yield page_head(title, _STYLE) + f"<p>{len(index):,} library rows, {search} search."
    if shown < len(fields):
        yield f" The page shows the first {shown:,} of {len(fields):,} queries; a .csv has all."
    for query in range(shown):
        status = result.status[query]
        note = "query" if status == "ok" else f"query: {escape(status)}"
        yield "<section><div class='cards'>" + card(
            f"<b>{note}</b>", query, fields[query], texts[query]
        )
        for rank, row, cosine in _nearest(result, query):
            yield card(f"<b>{rank}</b> &middot; similarity {cosine:.3f}", row, *near[row])
        yield "</div></section>\n"
    yield "</body></html>\n"


def _drawings(encoder: Encoder, texts: set[str]) -> dict[str, str]:
    """Return an ``<svg>`` of each text, where graphs are made of texts and can be drawn."""
    domain, known = domain_of(encoder.schema), sorted(texts - {""})
    if not known or not isinstance(domain, RecordDomain) or not isinstance(domain, Draws):
        return {}
    store = read(known, encoder.schema)
    return dict(zip(store.texts(), domain.draw(store, range(len(store)), *_SIZE), strict=True))
