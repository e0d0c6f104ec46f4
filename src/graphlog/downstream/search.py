"""Nearest neighbors among the embeddings of a library: built once, saved, asked many times."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from graphlog.config import read_json
from graphlog.domains import domain_of
from graphlog.downstream.encoder import Encoder, check_layer
from graphlog.errors import ConfigError, DataError, MissingExtraError, ModelFileError
from graphlog.files import hash_file, scratch_folder, writing
from graphlog.inputs import InputLike, read, read_streamed, rereadable, resolve
from graphlog.training.log import Progress
from graphlog.training.precision import Precision

EXACT_BELOW = 100_000
"""Library rows up to which every one is compared: a query takes milliseconds."""
_FORMAT, _KIND, _ABOUT = 1, "graphlog index", "index.json"
_VECTORS, _GRAPH = "vectors.npy", "graph.usearch"
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


class Index:
    """The embeddings of a library, scaled to unit length, and what its rows hold."""

    def __init__(
        self,
        about: Mapping[str, Any],
        vectors: Any,
        rows: Int[np.ndarray, "N"],
        records: list[bytes],
    ) -> None:
        """Take over what :meth:`build` or :meth:`load` has made."""
        self.about = dict(about)
        """The model's digest, layer, width, number of rows, and whether search is exact."""
        self._vectors, self._rows, self._records = vectors, rows, records

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def is_exact(self) -> bool:
        """Whether every row is compared; else neighbors are found through a graph of rows."""
        return bool(self.about["exact"])

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
            layer: ``jk`` or ``last``; None takes the model's own.
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
        given = resolve(library, encoder.schema)
        with rereadable(given) as found, read_streamed(found, encoder.schema, **reading) as store:
            if not len(store):
                raise DataError(f"{found.name} has no row that can be read; name another library.")
            chosen = check_layer(layer or encoder.layer)
            about = {
                "model": model_digest(encoder),
                "layer": chosen,
                "width": encoder.width(chosen),
                "rows": store.num_output_rows,
                "exact": len(store) <= EXACT_BELOW if exact is None else exact,
            }
            is_exact, shape = about["exact"], (len(store), encoder.width(chosen))
            vectors: Any = (
                np.empty(shape, dtype=np.float32)
                if is_exact
                else _usearch()(ndim=shape[1], metric="cos", dtype="f16")  # two bytes a number
            )
            for graphs, values in encoder.embed_batches(
                store, chosen, batch_size, precision=precision, progress=progress
            ):
                unit = unit_rows(values)
                if is_exact:
                    vectors[graphs] = unit
                else:
                    vectors.add(np.arange(graphs.start, graphs.stop, dtype=np.uint64), unit)
            fields = domain_of(encoder.schema).rows(found, store, **reading)
            rows = zip(fields, store.output_texts(), strict=True)
            records = [json.dumps([dict(own), text]).encode() for own, text in rows]
            return cls(about, vectors, np.array(store.output_rows), records)

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
            raise ConfigError(f"`k` must be 1 or more, found {k}.")
        self.check_model(encoder)
        store = read(source, encoder.schema, **reading)
        k, total = min(k, len(self)), store.num_output_rows
        rows = np.full((total, k), -1, dtype=np.int64)
        similarity = np.full((total, k), np.nan, dtype=np.float32)
        for graphs, values in encoder.embed_batches(
            store, self.about["layer"], batch_size, precision=precision, progress=progress
        ):
            places = store.output_rows[graphs]
            found, similarity[places] = self.nearest(values, k)
            rows[places] = self._rows[found]
        return Neighbors(rows, similarity, store.output_status())

    def nearest(
        self, embeddings: Float[np.ndarray, "Q W"], k: int
    ) -> tuple[Int[np.ndarray, "Q K"], Float[np.ndarray, "Q K"]]:
        """Return positions and cosines of the ``k`` nearest vectors of the index, nearest first.

        Raises:
            ConfigError: If the embeddings have another width.
        """
        if embeddings.shape[1] != self.about["width"]:
            raise ConfigError(
                f"the index holds embeddings of width {self.about['width']}, found "
                f"{embeddings.shape[1]}."
            )
        queries = unit_rows(np.asarray(embeddings, dtype=np.float32))
        if self.is_exact:
            blocks = [
                _exact(self._vectors, queries[start : start + _QUERIES_AT_ONCE], k)
                for start in range(0, len(queries), _QUERIES_AT_ONCE)
            ]
            nothing = (np.empty((0, k), np.int64), np.empty((0, k), np.float32))
            positions, cosines = zip(*(blocks or [nothing]), strict=True)
            return np.concatenate(positions), np.concatenate(cosines)
        matches = self._vectors.search(queries, k)
        positions = np.asarray(matches.keys, dtype=np.int64).reshape(len(queries), k)
        distances = np.asarray(matches.distances, dtype=np.float32).reshape(len(queries), k)
        return positions, 1 - distances

    def check_model(self, encoder: Encoder) -> None:
        """Refuse an encoder that the index was not built with.

        Raises:
            ConfigError: If it is another.
        """
        if self.about["model"] != model_digest(encoder):
            raise ConfigError(
                "the index was built with another model, and embeddings of two models cannot be "
                "compared; name the model it was built with, or build it again."
            )

    def record(self, row: int) -> tuple[Fields, str]:
        """Return the columns of a library row, and the text of its graph, empty if unknown."""
        fields, text = json.loads(self._records[row])
        return fields, text

    def save(self, folder: str | Path) -> None:
        """Write the index to a new folder, whole or not at all.

        Raises:
            ConfigError: If the folder exists.
        """
        out = Path(folder)
        check_new(out)
        with scratch_folder(out) as scratch, writing(out):
            new = scratch / "index"
            new.mkdir()
            if self.is_exact:
                np.save(new / _VECTORS, self._vectors)
            else:
                self._vectors.save(str(new / _GRAPH))
            np.save(new / "rows.npy", self._rows)
            (new / "records.jsonl").write_bytes(b"".join(r + b"\n" for r in self._records))
            sums = {path.name: hash_file(path) for path in sorted(new.iterdir())}
            about = {"kind": _KIND, "format": _FORMAT, **self.about, "sha256": sums}
            (new / _ABOUT).write_text(json.dumps(about, indent=1), encoding="utf-8")
            os.replace(new, out)

    @classmethod
    def load(cls, folder: str | Path) -> "Index":
        """Return the index that :meth:`save` wrote; its vectors stay on disk.

        Raises:
            DataError: If there is none.
            ModelFileError: If it is damaged or of a newer format.
            MissingExtraError: If it is approximate and ``usearch`` is not installed.
        """
        path = Path(folder)
        if not is_index(path):
            raise DataError(f"{path} is no index; build one: graphlog neighbors ... --save {path}")
        about = read_json(path / _ABOUT)
        if about.get("format") != _FORMAT:
            raise ModelFileError(
                f"{path}: format {about.get('format')} of an index is not known to this version; "
                "upgrade graphlog, or build the index again."
            )
        sums: dict[str, str] = about.pop("sha256")
        for name, known in sums.items():
            if not (path / name).is_file() or hash_file(path / name) != known:
                raise ModelFileError(f"{path / name} is damaged or missing; build the index again.")
        if about["exact"]:
            vectors = np.load(path / _VECTORS, mmap_mode="r")
        else:
            vectors = _usearch().restore(str(path / _GRAPH), view=True)
        records = (path / "records.jsonl").read_bytes().split(b"\n")[:-1]
        return cls(about, vectors, np.load(path / "rows.npy"), records)


def is_index(path: Path) -> bool:
    """Return whether a folder holds an index."""
    try:
        return (path / _ABOUT).is_file() and read_json(path / _ABOUT).get("kind") == _KIND
    except (DataError, AttributeError):
        return False


def check_new(folder: Path) -> None:
    """Refuse to write an index where something is.

    Raises:
        ConfigError: If the folder exists, or the one it is to be in does not.
    """
    if folder.exists():
        raise ConfigError(f"{folder} exists; remove it, or name another folder for the index.")
    if not folder.absolute().parent.is_dir():
        raise ConfigError(
            f"there is no folder {folder.absolute().parent}; make it, or choose another place."
        )


def model_digest(encoder: Encoder) -> str:
    """Return a hash of all that decides the embeddings of an encoder."""
    about = [encoder.schema.name, repr(encoder.config)]
    total = hashlib.sha256(json.dumps(about).encode())
    for name, tensor in sorted(encoder.network.state_dict().items()):
        total.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    return total.hexdigest()


def unit_rows(values: Float[np.ndarray, "B W"]) -> Float[np.ndarray, "B W"]:
    """Return the rows at unit length, so that their products are cosines; zero rows stay zero."""
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    return values / np.maximum(lengths, np.finfo(np.float32).tiny)


def _usearch() -> Any:
    try:
        from usearch.index import Index as Graph  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise MissingExtraError("usearch", "search") from None
    return Graph


def _exact(
    vectors: Float[np.ndarray, "N W"], queries: Float[np.ndarray, "Q W"], k: int
) -> tuple[Int[np.ndarray, "Q K"], Float[np.ndarray, "Q K"]]:
    """Return the ``k`` nearest, block by block of the library; ties go to the earlier row."""
    best = np.empty((len(queries), 0), dtype=np.float32)
    places = np.empty((len(queries), 0), dtype=np.int64)
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        cosines = queries @ vectors[start : start + _ROWS_AT_ONCE].T
        here = np.broadcast_to(np.arange(start, start + cosines.shape[1]), cosines.shape)
        best, places = np.hstack([best, cosines]), np.hstack([places, here])
        order = np.argsort(-best, axis=1, kind="stable")[:, :k]
        best, places = (np.take_along_axis(a, order, axis=1) for a in (best, places))
    return places, best
