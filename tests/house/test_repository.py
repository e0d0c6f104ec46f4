"""What must not be in the repository: paths of one machine, and in the library unpickling."""

import ast
import re

import pytest

from house_support import ROOT, dotted, modules, repository_texts, tree

UNSAFE = re.compile(
    r"\b(?:c?[pP]ickle|_pickle|cloudpickle|dill|shelve|marshal|joblib)"
    r"(?:\.|\b.* import .*\b)(?:load|Unpickler|open)"
    r"|torch\.load\((?!.*weights_only=True)|allow_pickle=True|(?<![.\w])(?:eval|exec)\((?!'[^']*'\))"
)
# Put together here, so that this file does not contain what it looks for.
FOREIGN = re.compile(
    "|".join(rf"(?<![\w.~$}}])/{folder}/\w" for folder in ("work", "opt", "root", "home"))
)


def test_no_paths_of_one_machine():
    found = [
        f"{p.relative_to(ROOT)}: {m[0]}"
        for p in repository_texts()
        if (m := FOREIGN.search(p.read_text(encoding="utf-8")))
    ]
    assert found == []


def test_nothing_is_unpickled():
    """Each statement is one line of what ``unparse`` returns."""
    found = [
        f"{dotted(path)}: {line}"
        for path in modules()
        for line in ast.unparse(tree(path)).splitlines()
        if UNSAFE.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        *("pickle.load(f)", "x = joblib.load(p)", "from dill import loads", "shelve.open(p)"),
        *("torch.load(p)", "torch.load(p, weights_only=False)", "np.load(p, allow_pickle=True)"),
        *("from joblib import dump, load", "pickle.Unpickler(f)", "eval(text)", "exec('x' + code)"),
    ],
)
def test_unpickling_is_seen(line: str):
    assert UNSAFE.search(line)
    assert not UNSAFE.search("torch.load(p, map_location='cpu', weights_only=True); model.eval()")
