"""docs/equations.md says where each equation lives; the docstrings must say the same."""

import ast
import re

from house_support import ROOT, definitions, dotted, modules, tree

NUMBERS = r"Eqs?\. \d+(?:(?:-|, and | and |, )(?:Eqs?\. )?\d+)*"
IMPLEMENTS = re.compile(rf"Implements (?:[^.]{{1,60}}? of )?({NUMBERS})")
SECTION = re.compile(rf"^## ({NUMBERS}): .*\n((?:(?!^## ).*\n)*)", re.MULTILINE)
TAG = re.compile(r"\\tag\{(\d+)\}")
HOME = re.compile(r"`(graphlog[\w.]+)`")


def _numbers(text: str) -> set[int]:
    """``17-18, 20`` means 17, 18 and 20."""
    numbers: set[int] = set()
    for part in re.split(r",|and", text):
        ends = [int(n) for n in re.findall(r"\d+", part)]
        numbers |= set(range(ends[0], ends[-1] + 1)) if ends else set()
    return numbers


def _claimed() -> dict[str, set[int]]:
    """Equations that the docstring of each function, class or module says it implements."""
    claims: dict[str, set[int]] = {}
    for path in modules():
        module = dotted(path)
        for name, node in [(module, tree(path)), *definitions(tree(path), module)]:
            for match in IMPLEMENTS.findall(" ".join((ast.get_docstring(node) or "").split())):
                claims.setdefault(name, set()).update(_numbers(match))
    return claims


def _listed() -> dict[str, set[int]]:
    """Equations that the page gives each home."""
    page = (ROOT / "docs" / "equations.md").read_text(encoding="utf-8")
    homes: dict[str, set[int]] = {}
    for numbers, text in SECTION.findall(page):
        for home in HOME.findall(text):
            homes.setdefault(home, set()).update(_numbers(numbers))
    return homes


def test_page_and_docstrings_agree():
    assert _listed() == _claimed()


def test_every_equation_is_shown_once_and_in_its_section():
    page = (ROOT / "docs" / "equations.md").read_text(encoding="utf-8")
    shown = [
        (_numbers(numbers), {int(n) for n in TAG.findall(text)})
        for numbers, text in SECTION.findall(page)
    ]
    assert all(numbers == tags for numbers, tags in shown)
    assert [n for numbers, _ in shown for n in sorted(numbers)] == list(range(1, 21))
