"""Count the files of the package, and those whose functions run in one command.

    python benchmarks/files_visited.py [--source src]

The numbers of docs/decisions/0008-one-house.md. Imports alone do not count as a visit.
"""

import argparse
import cProfile
import pstats
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

MOLECULES = "smiles,active\n" + "".join(f"{'C' * (1 + i % 9)}O,{i % 2}\n" for i in range(60))
TINY = ["--epochs", "2", "--batch-size", "16", "--set", "encoder.dim=8", "--quiet"]


def visited_by(run: Callable[[], object], package: Path) -> set[str]:
    """Return the files of ``package`` in which a function was called during ``run``."""
    profile = cProfile.Profile()
    profile.runcall(run)
    called = {file for file, _, name in pstats.Stats(profile).stats if name != "<module>"}
    return {file for file in called if Path(file).is_relative_to(package)}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", default="src", help="folder that holds the package")
    package = Path(parser.parse_args().source).resolve() / "graphlog"
    sys.path.insert(0, str(package.parent))
    from graphlog.cli.main import main as command

    modules = list(package.rglob("*.py"))
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in modules)
    packages = sum(path.name == "__init__.py" for path in modules)
    print(f"files {len(modules)}, lines {lines:,}, packages {packages}")
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "molecules.csv"
        table.write_text(MOLECULES, encoding="utf-8")
        cell = "--scale smoke --methods untrained --datasets bbbp --seeds 0 --stages probe".split()
        jobs = {
            "embed from a CSV": ["embed", str(table), "-m", "random", "--workers", "1", "-o"],
            "pretrain": ["pretrain", str(table), *TINY, "--workers", "1", "-o"],
            "benchmark, one cell": ["benchmark", "molecules", *cell, "-o"],
        }
        for name, words in jobs.items():
            with redirect_stdout(sys.stderr):
                if command([*words, f"{folder}/first-{words[0]}.npz"]):  # imports what it needs
                    sys.exit(f"`graphlog {words[0]}` failed; what it visited would say nothing")
                again = [*words, f"{folder}/second-{words[0]}.npz"]
                files = visited_by(lambda again=again: command(again), package)
            print(f"{name}: {len(files)} files")


if __name__ == "__main__":
    main()
