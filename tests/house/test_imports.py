"""Who may import whom, and what must not be imported early."""

import ast
import re
import runpy
from pathlib import Path

import pytest

from house_support import ROOT, SOURCE, dotted, modules, python, tree

SCRIPTS = sorted({*(ROOT / "benchmarks").rglob("*.py")} - {ROOT / "benchmarks/gpu/fused.py"})
"""All but the kernels, whose compiler comes with torch for GPUs alone."""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_benchmark_finds_what_it_imports(script: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(script.parent)
    runpy.run_path(str(script))


def test_modules_are_imported_by_name_in_plug_ins_alone():
    """Import-linter cannot see what a text names."""
    names = {"import_module", "__import__"}
    found = {
        dotted(path)
        for path in modules()
        for node in ast.walk(tree(path))
        if (isinstance(node, ast.Name) and node.id in names)
        or (isinstance(node, ast.Attribute) and node.attr in names)
    }
    assert found == {"graphlog.plugins"}


def test_nothing_but_the_front_door_knows_the_extras():
    """Not even late, inside a function; import-linter keeps them above all other layers."""
    named = [
        f"{dotted(path)}:{node.lineno}"
        for path in modules()
        if SOURCE / "extras" not in path.parents and "extras" in path.read_text(encoding="utf-8")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Call)
        and "graphlog.extras" in ast.unparse(node)
    ]
    assert named == []


def test_extras_are_made_of_documented_modules():
    page = (ROOT / "docs" / "api" / "index.md").read_text(encoding="utf-8")
    documented = {"graphlog", *re.findall(r"^ +(graphlog[.\w]+)$", page, re.MULTILINE)}
    for path in (SOURCE / "extras").glob("*.py"):
        found = [n for n in ast.walk(tree(path)) if isinstance(n, ast.ImportFrom)]
        ours = [n for n in found if n.module and n.module.startswith("graphlog")]
        names = {(n.module, a.name) for n in ours for a in n.names}
        assert {f"{m}.{n}" for m, n in names if n.startswith("_")} == set()
        modules = {m if m != "graphlog.cli" else f"{m}.{n}" for m, n in names}
        assert modules <= documented, path


def test_the_core_works_without_the_extras_and_embeds_without_scikit_learn():
    code = (
        "import sys\n"
        "sys.modules['graphlog.extras'] = None\n"
        "import contextlib, io, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "import graphlog\n"
        "from graphlog.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()) as said:\n    code = main(['--help'])\n"
        "assert code == 0\n"
        "assert 'pretrain' in said.getvalue() and 'neighbors' not in said.getvalue()\n"
        "assert graphlog.load('graphlog-mol').embed(['CCO']).shape == (1, 1801)\n"
        "print(*sys.modules)"
    )
    loaded = set(python("-c", code).split())
    assert {"sklearn", "pandas", "scipy.stats", "scipy.optimize"} & loaded == set()
