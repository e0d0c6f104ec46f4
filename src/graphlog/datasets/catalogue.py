"""Catalog of data sets: their contents, how they are scored, and where their files are.

A file is taken from the cache, a mirror or its public address; only verified files are used.
"""

import gzip
import json
import os
import random
import re
import tomllib
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from graphlog.config import FrozenConfig
from graphlog.errors import DataError, GraphLoGError, check_name
from graphlog.files import hash_file, put, replacing, scratch_folder, write_text, writing
from graphlog.plugins import Registry


class DatasetSpec(FrozenConfig):
    """A data set of the catalog. A mirror and the local cache have the same folders."""

    name: str
    """Name by which it is used."""
    description: str
    """Description in one line."""
    domain: str
    """Name of the domain that reads it."""
    rows: int = 0
    """Number of data rows, including rejected ones; 0 if unknown."""
    path: str = ""
    """Path of the file in a mirror, in the cache or in RDKit's folder of data; empty for a set that
    is made from other sets."""
    sha256: str = ""
    """SHA-256 of that file; empty if the domain checks the content instead."""
    origin: Literal["file", "molsets", "rdkit"] = "file"
    """Whether ``url`` is the address of the file (``file``) or of a package that contains it
    (``molsets``), or the file comes with RDKit."""
    url: str | None = None
    """Public address of its publisher's file or package; None if there is none."""
    license: str
    """Terms of use."""
    source: str
    """Publisher."""
    tasks: tuple[str, ...] = ()
    """Names of the label columns; if empty with a ``task``, all columns but that of the records."""
    num_tasks: int = 0
    """Number of label columns."""
    task: Literal["classification", "regression", "multiclass"] | None = None
    """Kind of the labels; None without labels."""
    metric: Literal["roc_auc", "rmse", "mae", "accuracy"] | None = None
    """Score that is usually reported."""
    split: str = "scaffold"
    """Kind of split that is usual."""
    details: dict[str, Any] = Field(default_factory=dict)
    """Fields that only its domain reads, such as those of
    :class:`~graphlog.domains.records.TableDetails`."""


def _load() -> tuple[dict[str, DatasetSpec], dict[str, DatasetSpec]]:
    """Return the data sets of the catalog, and the files that other sets are made from, by name."""
    text = files("graphlog.datasets").joinpath("catalogue.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    sets: dict[str, DatasetSpec] = {}
    parts: dict[str, DatasetSpec] = {}
    for table in tables["dataset"]:
        fields = {**tables["defaults"].get(table.get("like"), {}), **table}
        for filled in _fill_in(fields):
            is_part = filled.pop("part", False)
            filled.setdefault("num_tasks", len(filled.get("tasks", ())))
            known = {k: v for k, v in filled.items() if k in DatasetSpec.model_fields}
            (parts if is_part else sets)[filled["name"]] = DatasetSpec.parse(known)
    return sets, parts


def _fill_in(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the fields once, or for every key (and value) of ``each``, with ``{word}`` replaced.

    Words must have no quotes and no backslashes.
    """
    each = fields.pop("each", [fields.get("key", "")])
    for key, value in (each if isinstance(each, dict) else dict.fromkeys(each, "")).items():
        words = {**fields, "name": fields["name"].format(key=key), "key": key, "value": value}
        text = re.sub(r"\{(\w+)\}", lambda match, words=words: words[match[1]], json.dumps(fields))
        yield json.loads(text)


def _fits(name: str, part: object) -> str | None:
    fits = isinstance(part, DatasetSpec) and part.name == name
    return None if fits else f"a graphlog.datasets.DatasetSpec named '{name}'"


_SETS, PARTS = _load()
DATASETS: Registry[DatasetSpec] = Registry("data set", _SETS, _fits)
"""All data sets by name, to which a program may add its own; ``PARTS`` are the files from which
labeled sets of proteins are made."""


def find_spec(name: str) -> DatasetSpec:
    """Return a data set of the catalog.

    Raises:
        ConfigError: If the name is unknown; the message suggests similar ones.
    """
    check_name("data set", name, DATASETS)
    return DATASETS[name]


_TIMEOUT_S = 60
_BLOCK = 1 << 20
_LARGEST = 4 << 30
"""Largest number of bytes of a download, far more than any data set; a server may never end."""
_MOSES_SHA256 = "7f4450e3ebecebe79c3a2a55950c93daddee071120daf64a163d03481e811d34"
_MOSES_SAMPLES = {"zinc10k": 10_000, "zinc250k": 250_000}
"""Number of molecules of each data set that is a random sample of MOSES."""


def data_root(data_dir: Path | str | None = None) -> Path:
    """Return the folder of downloads: ``data_dir``, ``$GRAPHLOG_DATA`` or the platform's cache."""
    chosen = data_dir or os.environ.get("GRAPHLOG_DATA")
    if chosen:
        return Path(chosen).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("graphlog", appauthor=False)


class HasDataSets:
    """The part of a domain that finds the files of data sets; a domain may override its parts."""

    def verify(self, path: Path, spec: DatasetSpec) -> bool:
        """Return whether a file has the content that ``spec`` describes, if no sha256 is pinned."""
        return True

    def bundled(self, spec: DatasetSpec) -> Path | None:
        """Return the file of a data set that comes with an installed package; else None."""
        return None

    def parts(self, spec: DatasetSpec) -> list[DatasetSpec]:
        """Return the files from which a data set is made; none if it is one file."""
        return []

    def find(self, spec: DatasetSpec, data_dir: Path | str | None = None) -> list[Path] | None:
        """Return the files of a data set if all are on this machine; else None."""
        files = self.parts(spec) or [spec]
        paths = [path for file in files if (path := self._local(file, data_root(data_dir)))]
        return paths if len(paths) == len(files) else None

    def fetch(self, spec: DatasetSpec, data_dir: Path | str | None = None) -> Path:
        """Return the verified file of a data set; download it if necessary.

        Raises:
            DataError: If the file cannot be found, or has not the expected content.
        """
        root, mirror, url = data_root(data_dir), os.environ.get("GRAPHLOG_MIRROR", ""), spec.url
        if (local := self._local(spec, root)) is not None:
            return local
        if spec.origin == "rdkit":
            raise DataError(
                f"data set '{spec.name}' comes with RDKit, but this RDKit has no {spec.path} as "
                "pinned; pip install -U rdkit"
            )
        if "://" in mirror:
            address, target = f"{mirror.rstrip('/')}/{spec.path}", root / spec.path
            with _blame_network(spec, mirror):
                download(address, target, lambda path: self._is_valid(path, spec))
            return target
        if url is None:
            raise DataError(
                f"data set '{spec.name}' has no public address; put it at {spec.path} below "
                f"$GRAPHLOG_MIRROR{_about_mirror(spec)}."
            )
        target = _public_path(spec, root)
        get = _unpack_moses if spec.origin == "molsets" else download
        with _blame_network(spec, url):
            get(url, target, lambda path: self.verify(path, spec))
        write_text(_hash_path(target), hash_file(target))
        return target

    def _local(self, spec: DatasetSpec, root: Path) -> Path | None:
        """Return the verified file of a data set; None if it is not on this machine."""
        mirror, public = os.environ.get("GRAPHLOG_MIRROR", ""), _public_path(spec, root)
        bundled = self.bundled(spec)
        if bundled is not None and self._is_valid(bundled, spec):
            return bundled
        if spec.origin == "rdkit":
            return None
        if self._is_valid(root / spec.path, spec):
            return root / spec.path
        if public.is_file() and self.verify(public, spec):
            stored_hash = _hash_path(public)
            if not stored_hash.is_file() or stored_hash.read_bytes() == hash_file(public).encode():
                return public
        path = Path(mirror) / spec.path
        if not mirror or "://" in mirror or not path.is_file():
            return None
        if self._is_valid(path, spec):
            return path
        raise DataError(
            f"{path}: is not the file of data set '{spec.name}' (its SHA-256 is not "
            f"{spec.sha256[:12]}…); replace it."
        )

    def _is_valid(self, path: Path, spec: DatasetSpec) -> bool:
        if not path.is_file():
            return False
        return hash_file(path) == spec.sha256 if spec.sha256 else self.verify(path, spec)


def download(url: str, target: Path, is_valid: Callable[[Path], bool]) -> None:
    """Download ``url`` to ``target``, which is created only if the file is complete and valid.

    Files that an interrupted download has left are removed.

    Raises:
        DataError: If ``is_valid`` returns False for the file.
        GraphLoGError: If the file cannot be written.
        OSError: If the address cannot be read.
    """
    request = urllib.request.Request(url, headers={"User-Agent": "graphlog"})
    if not url.startswith(("https://", "http://", "file://")):
        raise DataError(f"{url}: must be an https, http or file address.")
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with _OPENER.open(request, timeout=_TIMEOUT_S) as source, scratch_folder(target) as folder:
        unfinished, size = folder / target.name, 0
        with writing(target):
            unfinished.touch()
        while block := source.read(_BLOCK):
            size += len(block)
            if size > _LARGEST:
                raise DataError(
                    f"{url}: the download has more than {_LARGEST:,} bytes, larger than any data "
                    "set; nothing was kept. Try another $GRAPHLOG_MIRROR."
                )
            with writing(target), unfinished.open("ab") as f:
                f.write(block)
        if not is_valid(unfinished):
            reason = "its SHA-256 differs"
            with unfinished.open("rb") as f:
                if re.match(rb"\s*<(!doctype )?html", f.read(_BLOCK), re.IGNORECASE):
                    reason = "it is a web page"
            if left := getattr(source, "length", None):
                reason = f"it ended early, after {size:,} of {size + left:,} bytes"
            raise DataError(
                f"{url}: the downloaded file is not the expected one ({reason}); nothing was kept. "
                "Try again, or another $GRAPHLOG_MIRROR."
            )
        with writing(target):
            put(unfinished, target)


class _NoFtp(urllib.request.FTPHandler):
    """Handler that refuses redirects to FTP addresses; urllib itself refuses those to files."""

    def ftp_open(self, req: Any) -> Any:
        raise urllib.error.URLError(f"redirected to {req.full_url}, which is not a web address")


_OPENER = urllib.request.build_opener(_NoFtp)


@contextmanager
def _blame_network(spec: DatasetSpec, url: str) -> Generator[None]:
    try:
        yield
    except GraphLoGError:
        raise
    except (HTTPException, OSError, ValueError) as e:  # ValueError: not a valid address
        reason = getattr(e, "reason", None) or e
        raise DataError(
            f"data set '{spec.name}' is not here and cannot be fetched from {url} ({reason}). "
            f"Offline, put it at {spec.path} below $GRAPHLOG_MIRROR{_about_mirror(spec)}, or use "
            "esol (with labels) or nci5k (without), which need no download."
        ) from None


def _about_mirror(spec: DatasetSpec) -> str:
    """Return why the folder of the mirror does not give the file; empty if none is set."""
    mirror = os.environ.get("GRAPHLOG_MIRROR", "")
    if not mirror or "://" in mirror:
        return ""
    reason = f"has no {spec.path}" if Path(mirror).is_dir() else "is no folder"
    return f" ({mirror}, which {reason})"


def _public_path(spec: DatasetSpec, root: Path) -> Path:
    """Return the path in the cache of the file from the public address."""
    ending = (spec.url or "").rpartition("/")[2].partition(".")[2]
    return root / "public" / f"{spec.name}.{'smi.gz' if spec.origin == 'molsets' else ending}"


def _hash_path(public: Path) -> Path:
    """Return the path of the stored SHA-256 of a public file, whose own hash is not pinned."""
    return public.with_name(f"{public.name}.sha256")


def _unpack_moses(url: str, target: Path, is_valid: Callable[[Path], bool]) -> None:
    """Write the data set that ``target`` is named after, from the package with the pinned hash."""
    wheel = target.with_name("molsets.whl")
    if not wheel.is_file() or hash_file(wheel) != _MOSES_SHA256:
        download(url, wheel, lambda path: hash_file(path) == _MOSES_SHA256)
    smiles: list[str] = []
    with zipfile.ZipFile(wheel) as files:
        for part in ("train", "test", "test_scaffolds"):
            path = f"moses/dataset/data/{part}.csv.gz"
            with files.open(path) as packed, gzip.open(packed, "rt", encoding="ascii") as lines:
                smiles += [line.strip().partition(",")[0] for line in lines][1:]
    if size := _MOSES_SAMPLES.get(target.name.partition(".")[0]):
        order = list(range(len(smiles)))
        random.Random(0).shuffle(order)
        smiles = [smiles[k] for k in sorted(order[:size])]
    with replacing(target) as unfinished:
        with gzip.open(unfinished, "wt", encoding="ascii", compresslevel=6) as f:
            f.writelines(f"{text}\n" for text in smiles)
        if not is_valid(unfinished):
            raise DataError(
                f"{url}: does not hold the file of data set '{target.name}' (its SHA-256 differs); "
                "set $GRAPHLOG_MIRROR to a copy of it."
            )
