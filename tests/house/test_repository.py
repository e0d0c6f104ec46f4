"""What must not be in the repository.

Foreign paths, and in the library unpickling, assertions and placeholders.
"""

import ast
import re

import pytest

from house_support import ROOT, dotted, modules, repository_texts, tree

PICKLERS = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "shelve", "marshal", "joblib"}
# Put together here, so that this file does not contain what it looks for.
FOREIGN = re.compile(
    "|".join(rf"(?<![\w.~$}}])/{folder}/\w" for folder in ("work", "opt", "root", "home"))
)
TALK = re.compile(
    "|".join(
        (
            r"this ses" + "sion",
            "sub-?" + r"agent",
            "language " + "model",
            "TO" + "DO",
            "FIX" + "ME",
            "XX" + "X",
        )
    )
)


def _name(node: ast.expr) -> str:
    return ast.unparse(node)


def test_no_paths_of_one_machine():
    found = [
        f"{p.relative_to(ROOT)}: {m[0]}"
        for p in repository_texts()
        if (m := FOREIGN.search(p.read_text(encoding="utf-8")))
    ]
    assert found == []


def test_no_talk_of_how_it_was_written():
    found = [
        f"{p.relative_to(ROOT)}: {m[0]}"
        for p in repository_texts()
        if (m := TALK.search(p.read_text(encoding="utf-8")))
    ]
    assert found == []


def test_nothing_is_unpickled():
    problems: list[str] = []
    for path in modules():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PICKLERS:
                loaders = sorted(
                    a.name for a in node.names if a.name.startswith("load") or a.name == "Unpickler"
                )
                problems += [
                    f"{dotted(path)}: from {node.module} import {name}" for name in loaders
                ]
            elif isinstance(node, ast.Call):
                keywords = {k.arg: _name(k.value) for k in node.keywords}
                called = _name(node.func)
                module, _, function = called.rpartition(".")
                if module in PICKLERS and (
                    function.startswith("load") or function in {"Unpickler", "open"}
                ):
                    problems.append(f"{dotted(path)}:{node.lineno}: {called}")
                if called == "torch.load" and keywords.get("weights_only") != "True":
                    problems.append(
                        f"{dotted(path)}:{node.lineno}: torch.load without weights_only=True"
                    )
                if keywords.get("allow_pickle") == "True":
                    problems.append(f"{dotted(path)}:{node.lineno}: allow_pickle=True")
                literal = all(isinstance(a, ast.Constant) for a in node.args)
                if called in {"eval", "exec"} and not literal:
                    problems.append(f"{dotted(path)}:{node.lineno}: {called}()")
    assert problems == []


def test_no_assert_in_the_library():
    found = [
        f"{dotted(p)}:{n.lineno}"
        for p in modules()
        for n in ast.walk(tree(p))
        if isinstance(n, ast.Assert)
    ]
    assert found == []


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "CITATION.cff",
        "LICENSE",
        "constraints.txt",
        ".ci/run",
        "benchmarks/gpu/QUEUE.md",
    ],
)
def test_house_files_exist(name: str):
    assert (ROOT / name).stat().st_size > 0
