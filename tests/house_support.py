"""Reading the repository as text and as syntax trees, for the tests of its own rules."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "graphlog"

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
"""A block of code, with the output shown below it, or nothing."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
TEXT = {".py", ".md", ".toml", ".txt", ".cff", ".yaml", ".yml", ".json", ".cfg", ""}


def modules() -> list[Path]:
    return sorted(p for p in SOURCE.rglob("*.py") if "__pycache__" not in p.parts)


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of code of a page in one language."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [code for kind, code, _ in found if kind == language]


def dotted(path: Path) -> str:
    """``graphlog.data.store`` for the file that defines it."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """Every function and class below ``node`` with its dotted name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}.{child.name}"
            yield name, child
            yield from definitions(child, name)


def python(*words: str | Path, given: str = "", cwd: Path | None = None, **variables: str) -> str:
    """Return what a new Python prints that runs these words, with more environment variables."""
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        input=given,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def repository_texts() -> list[Path]:
    """Text files that are, or are about to be, part of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:  # an unpacked archive has no history
        candidates = [
            p for p in ROOT.rglob("*") if not {".venv", "_build", "__pycache__"} & set(p.parts)
        ]
    else:
        candidates = [ROOT / line for line in listed.stdout.splitlines()]
    return sorted(p for p in candidates if p.is_file() and p.suffix in TEXT)
