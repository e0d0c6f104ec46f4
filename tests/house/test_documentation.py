"""What the documentation shows must work: Python runs, commands parse, the names it gives exist."""

import contextlib
import gzip
import inspect
import io
import os
import re
import shlex
from pathlib import Path
from unittest.mock import patch

import pytest

from house_support import BLOCK, ROOT, blocks

TUTORIALS = ROOT / "docs" / "tutorials"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
PAGES = [p for p in PAGES if not {"_build", "_generated"} & set(p.parts)]
MOLECULES = (
    "smiles,active\n"
    + "\n".join(f"{'C' * (1 + i % 9)}{'O' if i % 2 else 'N'},{i % 2}" for i in range(60))
    + "\n"
)


def _with(language: str) -> list[Path]:
    return [p for p in PAGES if p.exists() and blocks(p, language)]


def _id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def run_page(page: Path, commands: bool = True) -> int:
    """Run the blocks of a page in the current folder and return how many commands there were."""
    from graphlog.cli.main import main

    namespace: dict[str, object] = {"__name__": "page"}
    done = 0
    for kind, code, shown in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, page.name, "exec", dont_inherit=True), namespace)
            assert shown in ("", printed.getvalue())
        if kind == "bash" and commands:
            for line in code.splitlines():
                words = shlex.split(line, comments=True)
                assert words[0] == "graphlog", line
                assert main(words[1:]) == 0, line
                done += 1
    return done


@patch.dict(os.environ)
@pytest.mark.parametrize("page", [p for p in _with("python") if p.parent != TUTORIALS], ids=_id)
def test_python_blocks_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
):
    from graphlog.cli.main import app, whole_parser
    from graphlog.datasets import DATASETS
    from graphlog.domains import DOMAINS
    from graphlog.encoders import LAYERS
    from graphlog.objectives import OBJECTIVES

    for table in (LAYERS, OBJECTIVES, DATASETS, DOMAINS):  # what a page adds must not outlive it
        monkeypatch.setattr(table, "data", dict(table.data))
    monkeypatch.setattr(app, "registered_commands", [*app.registered_commands])
    request.addfinalizer(whole_parser.cache_clear)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "molecules.csv").write_text(MOLECULES, encoding="utf-8")
    (tmp_path / "mydata.csv").write_text("smiles,date\nCCO,2021-05-01\n", encoding="utf-8")
    (tmp_path / "molecules.csv.gz").write_bytes(gzip.compress(MOLECULES.encode()))
    run_page(page, commands=False)


@pytest.mark.parametrize(
    "page",
    sorted(p for p in TUTORIALS.glob("*.md") if p.stem not in ("index", "plug-in")),
    ids=lambda page: page.stem,
)
def test_tutorial_works(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """From top to bottom, offline; that on plug-ins in tests/api."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHLOG_MIRROR", str(tmp_path / "no mirror"))
    assert run_page(page) > 0


def test_every_tutorial_is_listed():
    listed = (TUTORIALS / "index.md").read_text(encoding="utf-8").splitlines()
    assert {p.stem for p in TUTORIALS.glob("*.md")} - {"index"} <= set(listed)


def _commands(page: Path) -> list[str]:
    lines = [line for code in blocks(page, "bash") for line in code.splitlines()]
    found = [
        re.search(r"(?:^|;\s*|python -m )graphlog ([a-z].*?)(?:;|$|\s>\s)", line) for line in lines
    ]
    return [m[1] for m in found if m]


@pytest.mark.parametrize("page", _with("bash"), ids=_id)
def test_command_lines_parse(page: Path):
    from graphlog.cli.main import whole_parser

    root = whole_parser()
    for line in _commands(page):
        words = shlex.split(re.sub(r"\$\(.*?\)", "", line), comments=True)
        command = root
        while hasattr(command, "commands"):
            assert words[0] in command.commands, f"no such verb: graphlog {line}"
            command = command.commands[words.pop(0)]
        known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
        used = {w.split("=")[0] for w in words if re.fullmatch(r"--?[a-z][\w-]*(=.*)?", w)}
        assert used <= known, f"graphlog {line}: {sorted(used - known)} unknown"


def test_public_names_are_documented():
    import graphlog

    pages = (ROOT / "docs" / "api").glob("*.md")
    page = "\n".join(path.read_text(encoding="utf-8") for path in pages)
    missing = [n for n in graphlog.__all__ if not inspect.getdoc(getattr(graphlog, n))]
    assert missing == []
    listed = set(re.findall(r"autofunction:: graphlog\.(\w+)$", page, re.MULTILINE))
    others = {n for n in graphlog.__all__ if not n.startswith("__")} - listed
    assert {n for n in others if getattr(graphlog, n).__module__ not in page} == set()


def test_pages_link_to_what_exists():
    broken = [
        f"{_id(page)}: {target}"
        for page in PAGES
        if page.exists()
        for target in re.findall(
            r"\]\(([^)#:\s]+\.md)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")
        )
        if not (page.parent / target).exists()
    ]
    assert broken == []
