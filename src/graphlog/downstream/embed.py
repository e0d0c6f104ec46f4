"""Files whose row i is row i of the input: embeddings, and what all such outputs share."""

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from graphlog.data.chunk import Reject, is_reject_list, rejects_owner, write_rejects
from graphlog.data.schema import FeatureSchema
from graphlog.data.workers import device_for, using
from graphlog.domains import Input, domain_of
from graphlog.downstream.encoder import Encoder, rows_at_once
from graphlog.downstream.models import load
from graphlog.downstream.writers import TEXTS, WRITERS, Results
from graphlog.errors import ConfigError, MissingExtraError, setting, unknown_name
from graphlog.files import put, scratch_folder, writing
from graphlog.inputs import InputLike, Part, rereadable, resolve, rows_of, stream, temporary_folder
from graphlog.training.log import Progress
from graphlog.training.setting import Precision

REJECTS = "rejects.csv"
"""The list of rows that could not be used, beside the output."""


@dataclass(frozen=True, slots=True)
class Written:
    """What was written for an input."""

    path: Path
    """The file; ``-`` for standard output."""
    rows: int
    """Rows of input and output."""
    rejected: int
    """Rows that could not be used: NaN or empty, with the reason in the status column."""
    rejects: Path | None
    """The list of them beside the file; None if every row could be used."""
    content: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the columns are: width and layer of embeddings, or targets and task."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values."""
        return {
            "output": str(self.path),
            "rows": self.rows,
            "rejected": self.rejected,
            **self.content,
            "rejects": None if self.rejects is None else str(self.rejects),
        }


def write_aligned(
    results: Results, source: Input, schema: FeatureSchema, out: Path, format: str, **content: Any
) -> Written:
    """Write results to ``out``, whole or not at all, and list the rejected rows beside it.

    Args:
        results: Of every row, part by part.
        source: What they are about.
        schema: Features the model reads.
        out: The output, ``-`` for standard output.
        format: What :func:`choose_format` chose for it.
        content: What the results are, for :attr:`Written.content`.
    """
    rows, rejects, listed = 0, list[Reject](), None

    def counted() -> Iterator[tuple[Part, np.ndarray]]:
        nonlocal rows
        for part, values in results.parts:
            rows += len(part.status)
            rejects.extend(part.rejects)
            yield part, values

    is_stream = is_standard_output(out)
    records = domain_of(schema).sdf_writer(source) if format == "sdf" else None
    scratch: AbstractContextManager[Path] = temporary_folder() if is_stream else scratch_folder(out)
    with scratch as folder, writing(out):
        finished = WRITERS[format](replace(results, parts=counted(), records=records), folder)
        if is_stream:
            _copy_to_standard_output(finished)
        else:
            listed = save_rejects(out.parent, rejects, out.name)
            put(finished, out)
    return Written(out, rows, len(rejects), listed, content)


def embed_file(
    encoder: str | Path | Encoder,
    source: InputLike,
    out: str | Path,
    *,
    layer: str | None = None,
    with_features: Sequence[str] = (),
    batch_size: int = 2048,
    precision: Precision = "fp32",
    device: str = "cpu",
    engine: str = "local",
    progress: Progress | None = None,
    format: str | None = None,
    **reading: Any,
) -> Written:
    """Write the embeddings of ``source`` to ``out``, whole or not at all, in bounded memory.

    Tables (``.csv``, ``.jsonl``, ``.parquet``, ``.sdf``) hold the columns of the input, the
    embedding and ``graphlog_status``; the embedding is a column ``e0``, ``e1``, ... per dimension
    in CSV, and one cell ``embedding`` in the others unless features are joined. ``.npz`` holds
    ``embeddings`` (float32, one row per input row), ``names``, ``status``, ``row`` and the columns
    of the input; ``.npy`` the array alone.

    Args:
        encoder: An encoder, a model file, a run folder, the name of a shipped model, or ``random``.
        source: A path, the name of a data set, a store, or a list of SMILES.
        out: The file; its ending decides the format. ``-`` is standard output.
        layer: ``jk`` or ``last``; None takes the model's own.
        with_features: Features to join, as for :meth:`Encoder.embed`, each a column of its name.
        batch_size: Graphs per forward pass.
        precision: Format of matrix products.
        device: Where to load an encoder that is named: ``auto``, ``cpu`` or ``cuda``.
        engine: ``local``, or ``ray``: see :func:`graphlog.data.workers.using`.
        progress: Follows the graphs.
        format: ``csv``, ``jsonl``, ``parquet``, ``npz``, ``npy`` or ``sdf``, whatever the ending.
        reading: Options of the reader (``smiles_column``, ``on_error``, ...); the column of SMILES
            is by default that of fine-tuning or probing.

    Raises:
        ConfigError: If the ending of ``out`` is unknown.
        DataError: If the source cannot be read.
    """
    model, out = load(encoder, device=device_for(engine, device), source=source), Path(out)
    domain_of(model.schema).check_feature_sets(with_features)
    given = resolve(source, model.schema)
    chosen = choose_format(out, format, given)  # before standard input is copied
    with using(engine, model.device.type), rereadable(given) as found:
        how, at_once = model.reading_of(found, reading), rows_at_once(batch_size, with_features)
        with stream(found, model.schema, at_once, **how) as parts:
            embedded = model.embed_batches(
                ((part, part.store) for part in parts),
                layer,
                batch_size,
                with_features=with_features,
                precision=precision,
                progress=progress,
                total=rows_of(found, reading.get("limit")),
            )
            names = model.feature_names(layer, with_features)
            results = Results(
                ((part, part.aligned(values)) for part, values in embedded),
                names,
                "embeddings",
                None if with_features else "embedding",
            )
            about = {"width": len(names), "layer": layer or model.layer}
            return write_aligned(results, found, model.schema, out, chosen, **about)


def is_standard_output(out: Path) -> bool:
    """Return whether ``out`` is ``-``."""
    return str(out) == "-"


def choose_format(out: Path, format: str | None = None, source: Input | str | None = None) -> str:
    """Return the format of an output, after refusing one that could not or should not be written.

    Args:
        out: The file; ``-`` is standard output.
        format: A key of :data:`~graphlog.downstream.writers.WRITERS`; None goes by the ending of
            the file, and is ``csv`` for standard output.
        source: What is read.

    Raises:
        ConfigError: If the format is unknown or does not fit, or as :func:`check_output`.
        MissingExtraError: If the format needs a package that is not installed.
    """
    is_stream = is_standard_output(out)
    chosen = format or ("csv" if is_stream else out.suffix.removeprefix(".").lower())
    if chosen not in WRITERS and format is not None:
        raise unknown_name("format", format, WRITERS)
    if is_stream and chosen not in TEXTS:
        raise ConfigError(
            f"{chosen} is no text and cannot go to standard output; choose {', '.join(TEXTS)}, or "
            f"name a file with {setting('out')}.",
            option="out",
        )
    if not is_stream:
        endings = tuple(f".{name}" for name in WRITERS)
        check_output(out, endings if format is None else (out.suffix.lower(),), source)
    if chosen == "parquet":
        try:
            import pyarrow  # noqa: F401  # pyright: ignore[reportUnusedImport]
        except ImportError:
            raise MissingExtraError("pyarrow", "parquet") from None
    return chosen


def check_output(out: Path, formats: tuple[str, ...], source: Input | str | None = None) -> None:
    """Refuse an output file that could not or should not be written, before any work.

    Raises:
        ConfigError: If its ending is none of ``formats``, its folder does not exist, it is a
            folder or ``source`` itself, or a ``rejects.csv`` beside it is no list of rejected rows.
    """
    if out.suffix.lower() not in formats:
        raise ConfigError(
            f"{out}: the format of a file is told by its ending; use {', '.join(formats)}.",
            option="out",
        )
    if out.is_dir():
        raise ConfigError(f"{out} is a folder; name a file.")
    if not out.absolute().parent.is_dir():
        raise ConfigError(
            f"there is no folder {out.absolute().parent}; make it, or choose another place."
        )
    if _is_input(out, source):
        raise ConfigError(
            f"{out} is the input itself and would be lost; name another file with "
            f"{setting('out')}.",
            option="out",
        )
    check_rejects(out.absolute().parent, out.name, source)


def _copy_to_standard_output(file: Path) -> None:
    sys.stdout.flush()
    binary = getattr(sys.stdout, "buffer", None)  # a notebook's has none
    if binary is None:
        with file.open(encoding="utf-8", newline="") as text:
            shutil.copyfileobj(text, sys.stdout)
        return
    with file.open("rb") as finished:
        shutil.copyfileobj(finished, binary)
    binary.flush()


def rejects_of_output(folder: Path, output: str) -> Path:
    """Return where the rejected rows of ``output`` are listed.

    That is ``rejects.csv``, unless it lists those of another output in the same folder.
    """
    shared, own = folder / REJECTS, folder / f"{output}.{REJECTS}"
    if own.exists():
        return own
    foreign = is_reject_list(shared) and rejects_owner(shared) not in (None, output)
    return own if foreign else shared


def save_rejects(folder: Path, rejects: list[Reject], output: str) -> Path | None:
    """List the rejected rows of ``output``, or empty a list that is out of date.

    Returns:
        The list; None if no row was rejected.
    """
    path = rejects_of_output(folder, output)
    if rejects or path.exists():
        write_rejects(path, rejects, output)
    return path if rejects else None


def check_rejects(folder: Path, output: str, source: Input | str | None = None) -> None:
    """Refuse to list rejected rows of ``output`` in the input, or in a file that is no such list.

    Raises:
        ConfigError: If they would be.
    """
    path = rejects_of_output(folder, output)
    if not path.exists():
        return
    reason = None if is_reject_list(path) else "holds something else"
    if _is_input(path, source):
        reason = "is the input"
    if reason:
        raise ConfigError(
            f"rejected rows would be listed in {path}, which {reason}; rename it, or write "
            "elsewhere."
        )


def _is_input(path: Path, source: Input | str | None) -> bool:
    given = source.path if isinstance(source, Input) else None if source is None else Path(source)
    return given is not None and given.exists() and path.exists() and path.samefile(given)
