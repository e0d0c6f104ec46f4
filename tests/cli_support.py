"""The command line in this process: what it printed and how it ended."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from graphlog.cli.main import main

SMALL = (
    "--epochs 2 --batch-size 16 --set encoder.dim=16 --set encoder.layers=2 --precision fp32"
).split()
"""A pre-training that ends within a second."""


class Ended(NamedTuple):
    """One run of the command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What ``--json`` printed."""
        return json.loads(self.out)

    def refused(self, *words: str) -> None:
        """Check that the user was told in one line what to mend, as JSON with ``--json``."""
        assert self.code == 2, self
        assert "Traceback" not in self.err
        if self.out:
            line = self.json["error"]["message"]
        else:
            line = self.err.strip().splitlines()[-1]
            assert line.startswith("graphlog: error: "), self.err
        assert self.err.count("graphlog: error") == (not self.out), self.err
        for word in words:
            assert word.lower() in line.lower(), line


Cli = Callable[..., Ended]


def run_command(capfd: Any) -> Cli:
    """Return a function that runs the command and gives back how it ended.

    It takes the words as they are typed, in one text or in several.
    """

    def run(*texts: str | Path) -> Ended:
        capfd.readouterr()
        code = main([word for text in texts for word in str(text).split()])
        captured = capfd.readouterr()
        return Ended(code, captured.out, captured.err)

    return run


def left_in(folder: Path) -> set[str]:
    """Return the names in a folder; half-written files would show."""
    return {p.name for p in folder.iterdir()}


def read_table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_molecules(path: Path, smiles: list[str]) -> Path:
    """Write molecules with a class that depends on oxygen, a value, and a column of words."""
    rows = [f"{s},{int('O' in s)},{len(s) / 3:.2f},w{i}" for i, s in enumerate(smiles)]
    path.write_text("\n".join(["smiles,oxygen,length,word", *rows]) + "\n", encoding="utf-8")
    return path
