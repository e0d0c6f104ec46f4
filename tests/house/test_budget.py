"""Sizes that keep the code readable."""

import ast

from house_support import Function, definitions, dotted, modules, tree

MAX_FILE, MAX_FUNCTION = 500, 60


def _lines(function: Function) -> int:
    """Lines of the body alone: a signature with many options or a docstring may be long."""
    body = function.body
    if ast.get_docstring(function, clean=False) is not None:
        body = body[1:]
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_no_file_is_too_long():
    lengths = {dotted(p): len(p.read_text(encoding="utf-8").splitlines()) for p in modules()}
    assert {name: n for name, n in lengths.items() if n > MAX_FILE} == {}


def test_no_function_is_too_long():
    lengths = {
        name: _lines(node)
        for path in modules()
        for name, node in definitions(tree(path), dotted(path))
        if not isinstance(node, ast.ClassDef)
    }
    assert {name: n for name, n in lengths.items() if n > MAX_FUNCTION} == {}
