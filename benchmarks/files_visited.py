"""Count the files of the package, and the files whose functions are called by one command.

    python benchmarks/files_visited.py

These are the numbers in docs/decisions/0008-one-house.md. Importing a file does not count.
"""

import cProfile
import pstats
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import graphlog
from graphlog.cli.main import main as command

MOLECULES = "smiles,active\n" + "".join(f"{'C' * (1 + i % 9)}O,{i % 2}\n" for i in range(60))
TINY = ["--epochs", "2", "--batch-size", "16", "--set", "encoder.dim=8", "--quiet"]


def files_visited(run: Callable[[], object], package: Path) -> set[str]:
    """Return the files of ``package`` with a function that ``run`` calls."""
    profile = cProfile.Profile()
    profile.runcall(run)
    called = {file for file, _, name in pstats.Stats(profile).stats if name != "<module>"}
    return {file for file in called if Path(file).is_relative_to(package)}


def main() -> None:
    package = Path(graphlog.__file__).parent
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
                # The first run does the imports, which would otherwise count as calls.
                if command([*words, f"{folder}/first-{words[0]}.npz"]):
                    sys.exit(f"`graphlog {words[0]}` failed, so its files cannot be counted")
                again = [*words, f"{folder}/second-{words[0]}.npz"]
                files = files_visited(lambda again=again: command(again), package)
            print(f"{name}: {len(files)} files")


if __name__ == "__main__":
    main()
