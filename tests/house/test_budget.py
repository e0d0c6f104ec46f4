"""The one size that is a rule: no file of the package is longer than 500 lines."""

from house_support import dotted, modules

MAX_FILE = 500


def test_no_file_is_too_long():
    lengths = {dotted(p): len(p.read_text(encoding="utf-8").splitlines()) for p in modules()}
    assert {name: n for name, n in lengths.items() if n > MAX_FILE} == {}
