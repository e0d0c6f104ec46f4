"""Parquet files as rows of text; needs the extra ``parquet``."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from graphlog.errors import DataError, MissingExtraError

_ROWS_A_BATCH = 4096


@contextmanager
def open_parquet(path: Path) -> Generator[tuple[list[str], Iterator[list[str]]]]:
    """Give the columns and the rows of a Parquet file, a null as empty text.

    Raises:
        MissingExtraError: If pyarrow is not installed.
        DataError: If it cannot be read.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet") from None
    library: Any = pq
    try:
        table = library.ParquetFile(path)
    except FileNotFoundError:
        raise DataError(f"no such file: {path}; check the path.") from None
    except (pa.ArrowException, OSError) as e:
        raise DataError(
            f"{path}: not a readable Parquet file ({str(e).splitlines()[0].rstrip('.')}); fetch or write it again."
        ) from None
    with table:
        yield list(table.schema_arrow.names), _rows(table, path, pa.ArrowException)


def _rows(table: Any, path: Path, failure: type[Exception]) -> Iterator[list[str]]:
    try:
        for batch in table.iter_batches(batch_size=_ROWS_A_BATCH):
            columns = [[_text(value) for value in column.to_pylist()] for column in batch.columns]
            yield from (list(row) for row in zip(*columns, strict=True))
    except (failure, OSError) as e:
        raise DataError(
            f"{path}: the Parquet data is damaged ({str(e).splitlines()[0]}); fetch it again."
        ) from None


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
