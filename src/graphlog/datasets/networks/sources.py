"""Which files a user means by a path, a folder, or the name of a network."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from graphlog.datasets.download import fetch
from graphlog.datasets.networks.species import NETWORKS, TAXA
from graphlog.errors import DataError, unknown_name

_NETWORK_FILE = "protein.links"


class NetworkFile(NamedTuple):
    """One network."""

    path: Path
    """Its file."""
    species: str | None = None
    """Its taxon, where it is known although the file does not say."""
    options: Mapping[str, Any] = {}
    """How a named network is usually read."""


def network_files(
    source: str | Path | Sequence[str | Path], data_dir: Path | str | None = None
) -> list[NetworkFile]:
    """Return the network files of ``source``, names of data sets resolved, the files of a folder sorted.

    Raises:
        DataError: If a folder holds none, or there is nothing to read.
        ConfigError: If a name is unknown.
    """
    listed = [source] if isinstance(source, str | Path) else list(source)
    files = [file for one in listed for file in _files(one, data_dir)]
    if not files:
        raise DataError("there is no network to read; give at least one file.")
    return files


def _files(source: str | Path, data_dir: Path | str | None) -> list[NetworkFile]:
    path = Path(source)
    if path.is_dir():
        found = [NetworkFile(p) for p in sorted(path.iterdir()) if _NETWORK_FILE in p.name]
        if not found:
            raise DataError(
                f"{path}: holds no network file (*{_NETWORK_FILE}.detailed*); name the files themselves."
            )
        return found
    if str(source) in NETWORKS and not path.exists():
        spec = NETWORKS[str(source)]
        return [NetworkFile(fetch(spec, data_dir), TAXA.get(spec.name), spec.options)]
    if not path.exists() and not path.suffix:
        raise unknown_name("network file or data set", str(source), NETWORKS)
    return [NetworkFile(path)]
