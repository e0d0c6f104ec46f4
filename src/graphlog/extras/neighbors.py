"""Nearest neighbors by embedding in a library of graphs, as a table or as a page of drawings."""

import json
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
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
from graphlog.downstream.pretrained import (
    Encoder,
    check_layer,
    load,
    ranges_of,
    with_standardization,
)
from graphlog.downstream.writers import (
    STATUS,
    Written,
    check_output,
    check_standard_output,
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
    storable,
    writing,
)
from graphlog.inputs import (
    InputLike,
    applicable_options,
    read,
    read_streamed,
    reiterable,
    rereadable,
    resolve,
    temporary_folder,
)
from graphlog.training.log import Progress
from graphlog.training.settings import Precision

EXACT_BELOW = 100_000
"""Largest number of library rows that are all compared by default; a query takes milliseconds."""
_FILE, _ARRAY, _GRAPH = "index.safetensors", "vectors.npy", "graph.usearch"
"""Files of an index: its description, and its vectors as an array or as a search graph."""
_ROWS_PER_BLOCK, _QUERIES_PER_BLOCK = 16_384, 1024
"""Library rows and queries whose cosines are computed in one matrix product."""

Fields = Mapping[str, str]
"""The columns of one row of a table, by name."""


@dataclass(frozen=True, slots=True, eq=False)
class Neighbors:
    """The nearest library rows of every query row, nearest first."""

    rows: Int[np.ndarray, "Q K"]
    """Rows of the library; -1 for a query that cannot be read."""
    similarity: Float[np.ndarray, "Q K"]
    """Cosine of the two embeddings; NaN if a query cannot be read or one is not finite."""
    status: list[str]
    """``ok`` for each query that was read, the reason for each that could not be read."""


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """The embeddings of a library, scaled to unit length, and the columns of its rows.

    An exact index compares a query with every vector. An approximate index searches a graph of the
    distinct vectors (HNSW, by the package usearch).
    """

    model: str
    """Digest of the encoder that computed the embeddings."""
    layer: EmbeddingLayer
    """Kind of embedding that is compared."""
    vectors: Any
    """Array with a row for each graph (exact), or search graph with each distinct vector once."""
    rows: Int[np.ndarray, "N"]
    """Library row of each graph. In an approximate index, they are grouped by vector."""
    records: Sequence[bytes] = field(repr=False)
    """Columns and text of every row of the library, as JSON."""
    standardize: str | None = None
    """Standardization of the molecules of the library, which queries get too."""
    starts: Int[np.ndarray, "V+1"] | None = None
    """Offsets in ``rows`` of each vector of an approximate index, and the end; None if exact."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def is_exact(self) -> bool:
        """Whether a query is compared with every row."""
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
        """Embed a library and return its index.

        Rows that cannot be read are left out; an approximate index also leaves out graphs whose
        embedding is not finite.

        Args:
            encoder: The encoder.
            library: A path, the name of a data set, a store, or a list of SMILES.
            layer: ``jk``, ``jk+sum`` or ``last``; None uses the layer stored in the model.
            exact: Whether to compare every row; None does so up to :data:`EXACT_BELOW` rows. An
                approximate index (HNSW) needs the extra ``search``.
            batch_size: Graphs per forward pass.
            precision: Number format of matrix products.
            progress: Progress display, updated after every batch.
            reading: Options of the reader (``smiles_column``, ``limit``, ...).

        Raises:
            DataError: If the library cannot be read, or no row of it can be used.
            MissingExtraError: If the index is approximate and ``usearch`` is not installed.
        """
        given, layer = resolve(library, encoder.schema), check_layer(layer or encoder.layer)
        reading = encoder.reading_of(given, reading)
        with rereadable(given) as source, read_streamed(source, encoder.schema, **reading) as store:
            if not len(store):
                raise DataError(f"{source.name} has no row that can be read; name another library.")
            shape = len(store), encoder.width(layer)
            is_exact = len(store) <= EXACT_BELOW if exact is None else exact
            computing: dict[str, Any] = {"precision": precision, "progress": progress}
            parts = _embeddings(encoder, store, layer, batch_size, **computing)
            library_rows, starts = np.array(store.output_rows), None
            if is_exact:
                vectors = np.empty(shape, dtype=np.float32)
                for graphs, values in parts:
                    vectors[graphs] = _unit(values)
            else:
                vectors, order, starts = _build_graph(parts, *shape)
                library_rows = library_rows[order]
                if not len(order):
                    raise DataError(
                        f"no embedding of {source.name} is finite; name another model or library."
                    )
            domain = domain_of(encoder.schema)
            fields = domain.rows(source, store, domain.reading.of(reading))
            rows = zip(fields, store.output_texts(), strict=True)
            records = [json.dumps([dict(columns), text]).encode() for columns, text in rows]
            digest, standardize = model_digest(encoder), store.source.standardize
            return cls(digest, layer, vectors, library_rows, records, standardize, starts)

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
            k: Neighbors of each row; fewer if the library is smaller.
            batch_size: Graphs per forward pass.
            precision: Number format of matrix products.
            progress: Progress display, updated after every batch.
            reading: Options of the reader.

        Raises:
            ConfigError: If the index was built with another model, or ``k`` is below 1.
        """
        if k < 1:
            raise out_of_range("k", "1 or more", k)
        self.check_model(encoder)
        given = resolve(source, encoder.schema)
        reading = with_standardization(given, reading, self.standardize, "the library")
        store = encoder.graphs_of(given, reading)
        shape = store.num_output_rows, min(k, len(self))
        rows = np.full(shape, -1, dtype=np.int64)
        similarity = np.full(shape, np.nan, dtype=np.float32)
        computing: dict[str, Any] = {"precision": precision, "progress": progress}
        for graphs, values in _embeddings(encoder, store, self.layer, batch_size, **computing):
            positions, cosines = self.nearest(values, k)
            rows[store.output_rows[graphs]] = self.rows[positions]
            similarity[store.output_rows[graphs]] = cosines
        return Neighbors(rows, similarity, store.output_status())

    def nearest(
        self, embeddings: Float[np.ndarray, "Q W"], k: int
    ) -> tuple[Int[np.ndarray, "Q K"], Float[np.ndarray, "Q K"]]:
        """Return positions in :attr:`rows` and cosines of the ``k`` nearest graphs, nearest first.

        Embeddings that are not finite have a cosine of NaN and come last.
        """
        queries, k = _unit(embeddings), min(k, len(self))
        if self.is_exact:
            parts = np.array_split(queries, len(queries) // _QUERIES_PER_BLOCK + 1)
            positions, cosines = zip(
                *(_exact(self.vectors, part, k) for part in parts), strict=True
            )
            # rounding may make a cosine larger than 1
            return np.concatenate(positions), np.concatenate(cosines).clip(-1, 1)
        starts = np.asarray(self.starts)
        is_finite = np.isfinite(queries).all(axis=1)
        # usearch has no order for NaN: these queries get the first vectors, as in an exact index
        nodes = np.tile(np.arange(min(k, len(starts) - 1)), (len(queries), 1))
        distances = np.full(nodes.shape, np.nan, dtype=np.float32)
        nodes[is_finite], distances[is_finite] = _approximate(
            self.vectors, queries[is_finite], nodes.shape[1]
        )
        if nodes.size and not 0 <= int(nodes.min()) <= int(nodes.max()) < len(starts) - 1:
            raise ModelFileError("the graph of the index names rows that it lacks; build it again.")
        # of equal distances, the vector with the smaller number has the earlier library rows
        order = np.lexsort((nodes, distances))
        nodes = np.take_along_axis(nodes, order, axis=1)
        distances = np.take_along_axis(distances, order, axis=1)
        # take the rows of each vector in turn until there are k
        counts = starts[nodes + 1] - starts[nodes]
        taken = (k - counts.cumsum(axis=1) + counts).clip(0, counts).ravel()
        shifts = (starts[nodes].ravel() - taken.cumsum() + taken).repeat(taken)
        positions = shifts + np.arange(len(shifts))
        cosines = (1 - distances).clip(-1, 1).ravel().repeat(taken)
        return positions.reshape(-1, k), cosines.reshape(-1, k)

    def check_model(self, encoder: Encoder) -> None:
        """Raise ConfigError if the index was built with another encoder."""
        width = self.vectors.shape[1] if self.is_exact else self.vectors.ndim
        if self.model != model_digest(encoder) or width != encoder.width(self.layer):
            raise ConfigError(
                "the index was built with another model, and embeddings of two models cannot be "
                "compared; name the model it was built with, or build it again."
            )

    def record(self, row: int) -> tuple[Fields, str]:
        """Return the columns of a library row, and the text of its graph (empty if unknown)."""
        try:
            fields, text = json.loads(self.records[row])
        except (ValueError, TypeError, RecursionError):
            fields, text = None, None
        if not isinstance(fields, dict) or not isinstance(text, str):
            raise ModelFileError(f"record {row} of the index is damaged; build the index again.")
        return fields, text

    def save(self, folder: str | Path) -> None:
        """Write the index to a new folder; an error leaves no folder behind.

        Raises:
            ConfigError: If the folder exists and is not empty.
        """
        out = Path(folder)
        check_new(out)
        with scratch_folder(out) as scratch, writing(out):
            new = scratch / "index"
            new.mkdir()
            file = new / (_ARRAY if self.is_exact else _GRAPH)
            if self.is_exact:
                with file.open("wb") as array:  # numpy.save would hide the reason of an error
                    vectors = np.ascontiguousarray(self.vectors)
                    header = np.lib.format.header_data_from_array_1_0(vectors)
                    np.lib.format.write_array_header_1_0(array, header)
                    array.write(vectors.data)
            else:
                with _utf8_path(file) as path:
                    self.vectors.save(path)
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
                check_new(out)  # another process may have created the folder
                raise

    @classmethod
    def load(cls, folder: str | Path) -> "Index":
        """Return the index that :meth:`save` wrote; its vectors are memory-mapped.

        Raises:
            DataError: If the folder holds no index.
            ModelFileError: If the index is damaged or has a newer format.
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
                with _utf8_path(file) as name:
                    vectors = _usearch().restore(name, view=True)
                starts = ends = tensors["starts"].numpy()
            records = tensors["records"].numpy().tobytes().split(b"\n")
            layer, rows = check_layer(about["layer"]), tensors["rows"].numpy()
            digest, standardize = about["model"], about["standardize"]
            index = cls(str(digest), layer, vectors, rows, records, standardize, starts)
            if not (
                (ends.dtype, ends.shape) == (np.int64, (len(vectors) + 1,))
                and (rows.dtype, rows.shape) == (np.int64, (int(ends[-1]),))
                and ends[0] == 0 < np.diff(ends).min()
                and len(np.unique(rows)) == len(rows) > 0
                and 0 <= int(rows.min()) <= int(rows.max()) < len(records)
                and (not index.is_exact or (vectors.dtype, vectors.ndim) == (np.float32, 2))
                and isinstance(standardize, str | None)
            ):
                raise ValueError
        except MissingExtraError:
            raise
        except Exception:  # files changed and signed again can raise any error in these calls
            raise ModelFileError(
                f"{path}: its files contradict each other; build the index again."
            ) from None
        return index


def check_new(folder: Path) -> None:
    """Check that an index can be written to a folder.

    Raises:
        ConfigError: If the folder exists and is not empty, or its parent folder does not exist.
    """
    # a finished folder is moved into place, which is impossible for the current folder (".")
    if folder.exists() and (not folder.name or not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} exists; remove it, or name another folder for the index.")
    if not folder.absolute().parent.is_dir():
        raise ConfigError(
            f"there is no folder {folder.absolute().parent}; create it, or choose another one."
        )


def model_digest(encoder: Encoder) -> str:
    """Return a hash of the schema, settings and weights of an encoder."""
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


@contextmanager
def _utf8_path(file: Path) -> Generator[str]:
    """Yield a path of ``file`` that is valid UTF-8, as usearch requires."""
    if str(file) == storable(str(file)):
        yield str(file)
        return
    descriptor = os.open(file.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{descriptor}/{file.name}"
    finally:
        os.close(descriptor)


def _build_graph(
    parts: Iterator[tuple[slice, Float[np.ndarray, "B W"]]], total: int, width: int
) -> tuple[Any, Int[np.ndarray, "N"], Int[np.ndarray, "V+1"]]:
    """Return a search graph of distinct vectors, the graphs grouped by vector, and the offsets.

    Vectors that are not finite are left out. Equal vectors are added once, because they would be
    linked with each other only. They are compared in the float16 of the search graph: as float32,
    those of equal graphs in different batches differ in their last bits.
    """
    graph = _usearch()(ndim=width, metric="cos", dtype="f16")
    # among ten million vectors, the probability that two have the same 64-bit hash is 3e-6
    weights = np.random.default_rng(0).integers(2**64, size=width, dtype=np.uint64)
    number_of_hash: dict[int, int] = {}
    numbers = np.full(total, -1, dtype=np.int64)
    for graphs, values in parts:
        vectors, before = _unit(values).astype(np.float16), len(number_of_hash)
        finite = np.flatnonzero(np.isfinite(vectors).all(axis=1))
        vectors = vectors[finite]
        hashes = (vectors.view(np.uint16) @ weights).tolist()
        found = [number_of_hash.setdefault(h, len(number_of_hash)) for h in hashes]
        numbers[graphs.start + finite] = found
        nodes, first = np.unique(np.array(found, dtype=np.int64), return_index=True)
        is_new = nodes >= before
        graph.add(nodes[is_new].astype(np.uint64), vectors[first[is_new]])
    # several threads add vectors at the same time, and a few vectors get no link to them
    count = len(number_of_hash)
    for keys in np.array_split(np.arange(count, dtype=np.uint64), count // 16384 + 1):
        vectors = np.asarray(graph.get(keys)).reshape(len(keys), width)
        lost = np.resize(graph.search(vectors, 1).keys, len(keys)) != keys
        if lost.any():
            graph.remove(keys[lost])
            graph.add(keys[lost], vectors[lost], threads=1)
    order = numbers.argsort(kind="stable")[np.count_nonzero(numbers < 0) :]
    starts = np.append(0, np.bincount(numbers[order]).cumsum())
    return graph, order, starts


def _approximate(
    graph: Any, queries: Float[np.ndarray, "Q W"], count: int
) -> tuple[Int[np.ndarray, "Q M"], Float[np.ndarray, "Q M"]]:
    """Return the nearest vectors and their distances; -1 and NaN if fewer than ``count`` exist."""
    nodes = np.full((len(queries), count), -1, dtype=np.int64)
    distances = np.full(nodes.shape, np.nan, dtype=np.float32)
    pending = np.arange(len(queries))
    for exact in (False, True):  # compare all vectors if the links lead to too few
        if not len(pending):
            break
        found = graph.search(queries[pending], count, exact=exact)
        # for a single query, usearch returns no counts, and no more places than it has found
        is_full = np.broadcast_to(getattr(found, "counts", len(found.keys)), pending.shape) == count
        for result, values in ((nodes, found.keys), (distances, found.distances)):
            result[pending[is_full]] = np.resize(values, (len(pending), count))[is_full]
        pending = pending[~is_full]
    return nodes, distances


def _exact(
    vectors: Float[np.ndarray, "N W"], queries: Float[np.ndarray, "Q W"], k: int
) -> tuple[Int[np.ndarray, "Q K"], Float[np.ndarray, "Q K"]]:
    """Return the ``k`` nearest vectors, and their cosines; ties go to the earlier row."""
    best = np.empty((len(queries), 0), dtype=np.float32)
    positions = np.empty((len(queries), 0), dtype=np.int64)
    for start in range(0, len(vectors), _ROWS_PER_BLOCK):
        cosines = queries @ vectors[start : start + _ROWS_PER_BLOCK].T
        cosines[np.isnan(cosines)] = -np.inf  # embeddings that are not finite are the farthest
        block = np.broadcast_to(np.arange(start, start + cosines.shape[1]), cosines.shape)
        best, positions = np.hstack([best, cosines]), np.hstack([positions, block])
        # sorting only the candidates takes a third of the time of sorting all
        width = min(k, best.shape[1])
        rows, columns = np.nonzero(best >= np.partition(best, -width, axis=1)[:, -width, None])
        order = columns[np.lexsort((-best[rows, columns], rows))]
        starts = np.searchsorted(rows, np.arange(len(queries)))
        order = order[starts[:, None] + np.arange(width)]
        best, positions = (np.take_along_axis(a, order, axis=1) for a in (best, positions))
    best[np.isinf(best)] = np.nan
    return positions, best


ENDINGS = (".csv", ".jsonl", ".html")
MOST_ON_A_PAGE = 200
"""Largest number of queries shown on a page; more would make it slow to open."""
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
        library: As for ``query``, or the folder of a saved index, or an :class:`Index`.
        k: Neighbors of each row.
        device: Device to load the model to, if it is given by name.
        exact: As for :meth:`~graphlog.extras.neighbors.Index.build`.
        layer: As for :meth:`~graphlog.extras.neighbors.Index.build`.
        options: ``batch_size``, ``precision``, ``progress`` and options of the reader, for query
            and library.

    Example:
        >>> found = neighbors("random", ["CCO"], ["c1ccccc1", "CCO", "CCCO"], 2)
        >>> found.rows[0].tolist()
        [1, 2]
    """
    index, source = _index_or_source(library, layer, exact)
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
    """Write the nearest rows of a library for every row of a query, one line per pair.

    A line has the columns of the query, ``neighbor_rank``, ``neighbor_similarity``,
    ``neighbor_row``, ``neighbor_<column>`` for each column of the library, and
    ``graphlog_status``. A query that cannot be read has one line.

    Args:
        model: As for :func:`neighbors`.
        query: As for :func:`neighbors`; a text that is not the name of a file or data set is read
            as one molecule.
        library: As for :func:`neighbors`.
        out: ``.csv``, ``.jsonl`` or ``.html`` (with drawings); ``-`` is standard output.
        k: Neighbors of each row.
        save: Folder to write the index to, for other queries.
        device: Device to load the model to, if it is given by name.
        exact: As for :meth:`~graphlog.extras.neighbors.Index.build`.
        layer: As for :meth:`~graphlog.extras.neighbors.Index.build`.
        batch_size: Graphs per forward pass.
        precision: Number format of matrix products.
        progress: Progress display, updated after every batch.
        format: ``csv``, ``jsonl`` or ``html``; by default the ending of ``out``.
        reading: Options of the reader, for query and library. If only one of them has the column
            ``smiles_column``, or is a workbook with a ``sheet``, the option applies only to it.

    Raises:
        ConfigError: If the output cannot be written, or the index was built with another model.
        DataError: If query or library cannot be read.
    """
    path, (index, source) = Path(out), _index_or_source(library, layer, exact)
    is_file = not is_standard_output(path)
    kind = format or (path.suffix.lower().removeprefix(".") if is_file else "csv")
    if format is not None:
        check_choice("format", format, [ending[1:] for ending in ENDINGS])
    if is_file:
        endings = ENDINGS if format is None else (path.suffix.lower(),)
        check_output(path, endings, query, library)
    else:
        check_standard_output()
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
    with rereadable(resolve(_molecule_or_source(query, encoder), encoder.schema)) as queries:
        library_reading: dict[str, Any] = reading
        if index is not None:
            index.check_model(encoder)
            standardize = index.standardize
        else:
            source = resolve(source, encoder.schema)
            library_reading, reading = _readings(source, queries, encoder.schema, reading)
            standardize = None if source.store is None else source.store.source.standardize
        reading = encoder.reading_of(queries, reading)
        reading = with_standardization(queries, reading, standardize, "the library")
        store = read(queries, encoder.schema, **reading)
        if index is None:
            options: dict[str, Any] = {**computing, **library_reading}
            index = Index.build(encoder, source, layer=layer, exact=exact, **options)
        result = index.query(encoder, store, k, **computing)
        domain = domain_of(encoder.schema)
        fields = list(domain.rows(queries, store, domain.reading.of(reading)))
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
    if save is not None:  # written last, so that a command that was killed can be repeated
        index.save(save)
    content = {
        "library": len(index),
        "neighbors": result.rows.shape[1],
        "search": "exact" if index.is_exact else "approximate",
        "index": None if save is None else str(save),
    }
    return Written(path, len(fields), store.num_output_rows - len(store), rejects, content)


def _index_or_source(
    library: InputLike | Index, layer: str | None, exact: bool | None
) -> tuple[Index | None, Any]:
    """Return the index of a library and None, or, if it is not an index, None and the library."""
    if isinstance(library, str | os.PathLike) and os.path.isfile(Path(library) / _FILE):
        library = Index.load(Path(library))
    if not isinstance(library, Index):
        return None, reiterable(library)
    search = "exact" if library.is_exact else "approximate"
    for option, wanted, actual, kind in (
        ("layer", layer, library.layer, f"of layer '{library.layer}'"),
        ("exact", exact, library.is_exact, search),
    ):
        if wanted not in (None, actual):
            raise ConfigError(
                f"{setting(option, wanted)} does not fit the index, which is {kind}; drop it, or "
                "build another index.",
                option=option,
            )
    return library, None


def _readings(
    library: Input, query: Input, schema: FeatureSchema, reading: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the options of the reader for library and query, each without those of the other."""
    readings = [applicable_options(one, schema, reading) for one in (library, query)]
    # the reader refuses options that fit neither
    neither = {key: reading[key] for key in reading if not any(key in one for one in readings)}
    return [{**one, **neither} for one in readings]


def _molecule_or_source(query: Any, encoder: Encoder) -> Any:
    """Return the query, or a list of one molecule if it is a text that names no file or data."""
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
    """Return rank, library row and cosine of each neighbor; empty if the query was not read."""
    rows, cosines = result.rows[query].tolist(), result.similarity[query].tolist()
    ranked = zip(range(1, len(rows) + 1), rows, cosines, strict=True)
    return [neighbor for neighbor in ranked if neighbor[1] >= 0]


def _write_table(
    file: Any, index: Index, fields: Sequence[Fields], result: Neighbors, kind: str
) -> None:
    """Write a table, a line for each pair of a query and a neighbor."""
    first, last = index.record(0)[0], index.record(len(index) - 1)[0]
    # the column "row" of a list or store only numbers the rows, as `neighbor_row` does
    is_numbered = first.get("row") == "0" and last.get("row") == str(len(index) - 1)
    library = [name for name in first if not (is_numbered and name == "row")]
    names = list(fields[0]) if fields else []
    added = ["neighbor_rank", "neighbor_similarity", "neighbor_row"]
    added = free_names([*added, *(f"neighbor_{name}" for name in library), STATUS], names)
    table = CsvTable(file)
    if kind == "csv":
        table.writerow([*names, *added])
    for number, (query, status) in enumerate(zip(fields, result.status, strict=True)):
        lines: list[list[Any]] = []
        for rank, row, cosine in _nearest(result, number):
            similarity = None if np.isnan(cosine) else float(f"{cosine:.6g}")  # JSON has no NaN
            columns = index.record(row)[0]
            lines.append([rank, similarity, row, *(columns[name] for name in library)])
        for values in lines or [[None] * (len(added) - 1)]:
            cells = [*query.values(), *values, status]
            if kind == "csv":
                table.writerow(cells)
            else:
                line = dict(zip([*names, *added], cells, strict=True))
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _page(
    encoder: Encoder,
    index: Index,
    fields: Sequence[Fields],
    texts: Sequence[str],
    result: Neighbors,
) -> Iterator[str]:
    """Yield a page with a section for each query: drawings of the query and of its neighbors."""
    shown = min(len(fields), MOST_ON_A_PAGE)
    title = f"Nearest neighbors of {shown:,} {'query' if shown == 1 else 'queries'}"
    rows = np.unique(result.rows[:shown]).tolist()
    neighbor_of_row = {row: index.record(row) for row in rows if row >= 0}
    drawings = _drawings(encoder, {*texts[:shown], *(t for _, t in neighbor_of_row.values())})

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
            head = f"<b>{rank}</b> &middot; similarity {cosine:.3f}"
            yield card(head, row, *neighbor_of_row[row])
        yield "</div></section>\n"
    yield "</body></html>\n"


def _drawings(encoder: Encoder, texts: set[str]) -> dict[str, str]:
    """Return an ``<svg>`` for each text, by text; empty if such graphs cannot be drawn."""
    domain, records = domain_of(encoder.schema), sorted(texts - {""})
    if not records or not isinstance(domain, RecordDomain) or not isinstance(domain, Draws):
        return {}
    store = read(records, encoder.schema)
    return dict(zip(store.texts(), domain.draw(store, range(len(store)), *_SIZE), strict=True))
