"""The ZINC sets out of the published MOSES package: its three files joined, and two reproducible samples of them."""

import gzip
import json
import random
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from graphlog.errors import DataError
from graphlog.files import beside, hash_file

_SHA256 = "7f4450e3ebecebe79c3a2a55950c93daddee071120daf64a163d03481e811d34"
_PARTS = tuple(f"moses/dataset/data/{part}.csv.gz" for part in ("train", "test", "test_scaffolds"))
_SAMPLES = {"zinc10k": 10_000, "zinc250k": 250_000}
_TIMEOUT_S = 60


def unpack_molsets(
    index: str, target: Path, download: Callable[[str, Path, Callable[[Path], bool]], None]
) -> None:
    """Write the data set that ``target`` is named after, from the wheel that the package index lists with the pinned hash.

    Args:
        index: Address of the package's description (JSON) on the index.
        target: ``zinc10k.smi.gz``, ``zinc250k.smi.gz`` or ``zinc2m.smi.gz``.
        download: Fetches an address into a file and checks it.

    Raises:
        DataError: If the index does not list the wheel.
    """
    wheel = target.with_name("molsets.whl")
    if not wheel.is_file() or not _is_right(wheel):
        download(_address(index), wheel, _is_right)
    smiles = list(_smiles(wheel))
    size = _SAMPLES.get(target.name.partition(".")[0])
    if size is not None:
        order = list(range(len(smiles)))
        random.Random(0).shuffle(order)
        smiles = [smiles[k] for k in sorted(order[:size])]
    with (
        beside(target) as unfinished,
        gzip.open(unfinished, "wt", encoding="ascii", compresslevel=6) as f,
    ):
        f.writelines(f"{text}\n" for text in smiles)


def _address(index: str) -> str:
    with urllib.request.urlopen(index, timeout=_TIMEOUT_S) as answer:
        listed: list[dict[str, Any]] = json.load(answer)["urls"]
    for file in listed:
        if file["digests"]["sha256"] == _SHA256:
            return file["url"]
    raise DataError(
        f"{index}: no longer lists the pinned wheel (sha256 {_SHA256[:12]}…); set $GRAPHLOG_MIRROR to a copy of the data."
    )


def _is_right(path: Path) -> bool:
    return hash_file(path) == _SHA256


def _smiles(wheel: Path) -> Iterator[str]:
    with zipfile.ZipFile(wheel) as files:
        for part in _PARTS:
            with files.open(part) as packed, gzip.open(packed, "rt", encoding="ascii") as lines:
                next(lines)
                yield from (line.strip().partition(",")[0] for line in lines)
