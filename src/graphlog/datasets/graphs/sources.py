"""Which reader a name, a folder or a file of graphs is for."""

from pathlib import Path
from typing import Any

from graphlog.data.store import is_store
from graphlog.datasets.download import fetch
from graphlog.datasets.graphs.catalogue import GRAPHS
from graphlog.datasets.graphs.collection import Collection
from graphlog.datasets.graphs.folder import find_tables, open_folder
from graphlog.datasets.graphs.gin import ENDINGS as GIN_ENDINGS
from graphlog.datasets.graphs.gin import looks_like_gin, open_gin
from graphlog.datasets.graphs.jsonlines import ENDINGS as JSON_ENDINGS
from graphlog.datasets.graphs.jsonlines import open_jsonlines
from graphlog.datasets.graphs.tudataset import find_parts, open_tudataset
from graphlog.errors import DataError, unknown_name


def is_graphs(source: Any) -> bool:
    """Return whether ``source`` is the path or name of a collection of graphs, not of molecules, proteins, or a store."""
    if not isinstance(source, str | Path) or str(source) == "-":
        return False
    path = Path(source)
    if not path.exists():
        return str(source) in GRAPHS
    if path.is_dir():
        is_run = (path / "config.toml").is_file()
        return (
            not is_store(path)
            and not is_run
            and bool(find_tables(path) or _json_files(path) or find_parts(path))
        )
    if path.name.endswith(JSON_ENDINGS) or path.suffix == ".zip":
        return True
    return path.name.endswith(GIN_ENDINGS) and looks_like_gin(path)


def open_collection(source: str | Path, data_dir: Path | str | None = None) -> Collection:
    """Return the graphs that ``source`` names.

    Raises:
        ConfigError: If there is neither such a file nor such a data set.
        DataError: If it is in none of the known formats, or cannot be fetched.
    """
    path = Path(source)
    if not path.exists():
        if str(source) not in GRAPHS:
            raise unknown_name("file, folder or set of graphs", str(source), GRAPHS)
        path = fetch(GRAPHS[str(source)], data_dir)
    if path.is_dir() and find_tables(path):
        return open_folder(path)
    if path.is_dir() and (files := _json_files(path)):
        if len(files) > 1:
            raise DataError(f"{path}: holds {len(files)} JSON-lines files; name the one to read.")
        return open_jsonlines(files[0])
    if path.is_dir() or path.suffix == ".zip":
        if path.is_dir() and not find_parts(path):
            raise DataError(
                f"{path}: holds no graphs: neither edges.csv, nor a .jsonl file, nor NAME_A.txt and NAME_graph_indicator.txt."
            )
        return open_tudataset(path)
    if path.name.endswith(JSON_ENDINGS):
        return open_jsonlines(path)
    if looks_like_gin(path):
        return open_gin(path)
    raise DataError(
        f"{path}: is no file of graphs; known are .jsonl, TUDataset's .zip, and GIN's .txt."
    )


def _json_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.name.endswith(JSON_ENDINGS))
