"""Every tutorial works from top to bottom, offline."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from house_support import ROOT
from plugin_support import install_example, run_with

TUTORIALS = ROOT / "docs" / "tutorials"
PAGES = sorted(p for p in TUTORIALS.glob("*.md") if p.stem not in ("index", "plug-in"))
BLOCK = re.compile(
    r"^```(python|bash)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL
)


def run_page(page: Path) -> int:
    """Run the blocks of a page in the current folder and return how many commands there were."""
    from graphlog.cli.main import main

    namespace: dict[str, object] = {"__name__": "page"}
    commands = 0
    for kind, code, shown in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, page.name, "exec", dont_inherit=True), namespace)
            assert shown in ("", printed.getvalue())
            continue
        for line in code.splitlines():
            words = shlex.split(line, comments=True)
            assert words[0] == "graphlog", line
            assert main(words[1:]) == 0, line
            commands += 1
    return commands


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_tutorial_works(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHLOG_MIRROR", str(tmp_path / "no mirror"))
    assert run_page(page) > 0


def test_tutorial_on_plug_ins_works(tmp_path: Path):
    site = tmp_path / "site"
    site.mkdir()
    install_example(site)
    code = (
        "import sys; from pathlib import Path; sys.path[:0] = sys.argv[1:3]; "
        "from test_tutorials import run_page; print(run_page(Path(sys.argv[3])))"
    )
    folders = (ROOT / "tests", Path(__file__).parent)
    assert run_with(site, tmp_path, code, *folders, TUTORIALS / "plug-in.md") == "4"


def test_every_tutorial_is_listed():
    listed = (TUTORIALS / "index.md").read_text(encoding="utf-8").splitlines()
    assert {p.stem for p in TUTORIALS.glob("*.md")} - {"index"} <= set(listed)
