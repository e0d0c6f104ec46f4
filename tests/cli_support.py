"""The command line in this process: what it printed and how it ended."""

import csv
import json
import re
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from graphlog.cli.main import main

SMALL = "--epochs 2 --batch-size 16 --set encoder.dim=16 --set encoder.layers=2 --precision fp32"
"""A pre-training that ends within a second."""


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Cli:
    """The command; ``{store}`` in a line is what the fixture ``store`` gives."""

    def __init__(self, capture: Any, request: pytest.FixtureRequest) -> None:
        self.capture, self.request = capture, request

    def words(self, *texts: str | Path) -> list[str]:
        """Return the words of a line that is given in one text or several."""
        return re.sub(
            r"{(\w+)}",
            lambda name: str(self.request.getfixturevalue(name[1])),
            " ".join(map(str, texts)),
        ).split()

    def __call__(self, *texts: str | Path, code: int = 0) -> Ended:
        """Run a line and check its exit code."""
        words = self.words(*texts)
        self.capture.readouterr()
        ended = Ended(main(words), *self.capture.readouterr())
        assert ended.code == code, (words, ended)
        return ended

    def refused(self, line: str, *words: str) -> Ended:
        """Check that the user is told in one line what to mend, as JSON with ``--json``."""
        ended = self(line, code=2)
        assert "Traceback" not in ended.err
        if ended.out:
            told = ended.json["error"]["message"]
        else:
            told = ended.err.strip().splitlines()[-1]
            assert told.startswith("graphlog: error: "), ended.err
        assert ended.err.count("graphlog: error") == (not ended.out), ended.err
        for word in words:
            assert word.lower() in told.lower(), told
        return ended


@contextmanager
def short_files(size: int) -> Iterator[None]:
    """Let no file grow beyond ``size`` bytes, as on a full disk."""
    resource = pytest.importorskip("resource", reason="limits of a process are posix")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def at_most(size: float) -> Iterator[None]:
    """Check that Python never holds more than ``size`` bytes that are allocated inside."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < size
    finally:
        tracemalloc.stop()


def left_in(folder: Path | str = "") -> set[str]:
    """Return the names in a folder; half-written files would show."""
    return {p.name for p in Path(folder).iterdir()}


def read_table(path: Path | str) -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_molecules(path: Path, smiles: list[str]) -> Path:
    """Write molecules with a class that depends on oxygen, a value, and a column of words."""
    rows = [f"{s},{int('O' in s)},{len(s) / 3:.2f},w{i}" for i, s in enumerate(smiles)]
    path.write_text("\n".join(["smiles,oxygen,length,word", *rows]) + "\n", encoding="utf-8")
    return path
