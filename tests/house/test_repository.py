"""What must not be in the repository: paths of one machine, and in the library unpickling."""

import ast
import re

from house_support import ROOT, dotted, modules, repository_texts, tree

PICKLERS = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "shelve", "marshal", "joblib"}
# Put together here, so that this file does not contain what it looks for.
FOREIGN = re.compile(
    "|".join(rf"(?<![\w.~$}}])/{folder}/\w" for folder in ("work", "opt", "root", "home"))
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
