"""Sizes that keep the code readable; see "Limits" in CONTRIBUTING.md."""

import ast
from statistics import median

from house_support import Function, definitions, dotted, modules, tree

MAX_FILE, MEDIAN_FILE, MAX_FUNCTION, MAX_PACKAGE = 400, 120, 50, 12


def _lines(function: Function) -> int:
    """Lines of a function's body. Its signature (the options of a verb) and docstring (a formula) may be as long as need be."""
    body = (
        function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    )
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_no_file_is_too_long():
    lengths = {dotted(p): len(p.read_text(encoding="utf-8").splitlines()) for p in modules()}
    assert {name: n for name, n in lengths.items() if n > MAX_FILE} == {}
    assert median(lengths.values()) <= MEDIAN_FILE


def test_no_function_is_too_long():
    long = {
        name: _lines(node)
        for path in modules()
        for name, node in definitions(tree(path), dotted(path))
        if not isinstance(node, ast.ClassDef) and _lines(node) > MAX_FUNCTION
    }
    assert long == {}


def test_no_package_holds_too_many_files():
    counts: dict[str, int] = {}
    for path in modules():
        if path.name != "__init__.py":
            counts[str(path.parent)] = counts.get(str(path.parent), 0) + 1
    assert {package: n for package, n in counts.items() if n > MAX_PACKAGE} == {}
