"""What a terminal shows: tables and help that fit it, and words, names to copy perhaps, whole."""

import inspect
import io
import re
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from rich.cells import cell_len

from graphlog.cli.command import Command
from graphlog.cli.main import main, whole_parser
from graphlog.data.html import Table

Show = Callable[..., list[str]]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch) -> Show:
    """Return the lines that a call prints on a terminal of so many columns."""

    def run(width: int, call: Callable[[], object]) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr(sys, "stdout", screen := Terminal())
        call()
        text = re.sub("\x1b\\[[0-9;]*m", "", screen.getvalue())
        return [line for line in text.splitlines() if line.strip()]

    return run


PLAIN = Command(quiet=False, as_json=False)
NAME = "a-name-to-copy-and-paste"
TABLE = Table(
    ("name", "size", "what"), [(NAME, 1234567, "words of a text that goes on " * 3), ("b", 2, "c")]
)


def test_text_is_wrapped_at_spaces_and_numbers_stay_whole(show: Show):
    lines = show(60, lambda: PLAIN.result({}, TABLE))
    assert max(map(len, lines)) <= 60
    assert NAME in lines[2]
    assert "1,234,567" in lines[2]
    words = " ".join(" ".join(line.split()) for line in lines[2:-1])
    assert set(words.split()) == {NAME, "1,234,567", *str(TABLE.rows[0][2]).split()}
    assert lines[2].index("words") == len(lines[3]) - len(lines[3].lstrip())


def test_a_table_that_does_not_fit_is_written_a_record_a_block(show: Show):
    lines = show(40, lambda: PLAIN.result({}, TABLE))
    assert lines[0] == f"name  {NAME}"
    assert lines[1] == "size  1,234,567"
    assert max(map(len, lines)) <= 40
    assert lines[-1] == "what  c"


def test_wide_characters_are_counted_as_two_columns(show: Show):
    words = ["分子量"] * 12
    lines = show(40, lambda: PLAIN.summary({"名前": " ".join(words), "note": "b"}))
    assert max(map(cell_len, lines)) <= 40
    assert " ".join(lines[:-1]).split() == ["名前", *words]
    assert {cell_len(line[: len(line) - len(line.lstrip())]) for line in lines[1:-1]} == {6}
    assert lines[0].index("分") == 4  # after two characters of two columns, and a gap


def test_the_value_of_a_field_that_is_one_word_is_never_cut(show: Show):
    path = "/a/" + "long/" * 20 + "path"
    lines = show(40, lambda: PLAIN.summary({"path": path, "note": "a few words " * 5}))
    assert lines[0] == f"path  {path}"
    assert max(map(len, lines[1:])) <= 40


def test_a_table_of_one_column_is_printed_as_it_is(show: Show):
    path = "/a folder/" + "long/" * 20 + "path"
    assert show(40, lambda: PLAIN.result({}, Table(("",), [(path,)]))) == [path]


def test_data_sets_fit_a_terminal_and_programs_get_all(show: Show):
    lines = show(80, lambda: main(["data", "list", "-q"]))
    assert max(map(len, lines)) <= 80
    assert "license" not in lines[0]
    assert not any("string-9031" in line for line in lines)
    assert sum("string-TAXON" in line for line in lines) == 1
    assert "license" in show(120, lambda: main(["data", "list", "-q"]))[0]
    listed = io.StringIO()
    for words in (["--json"], []):
        listed.truncate(0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdout", listed)
            assert main(["data", "list", "-q", *words]) == 0
        assert "string-9031" in listed.getvalue()


def commands() -> Iterator[tuple[str, Any]]:
    """Yield all commands with their names."""
    group = whole_parser()
    for name, command in group.commands.items():
        yield from [(name, command)] if name != "data" else command.commands.items()


def choices(hint: Any) -> Iterator[str]:
    """Yield the values that a type names."""
    if get_origin(hint) is Literal:
        yield from get_args(hint)
    elif isinstance(hint, type) and issubclass(hint, Enum):
        yield from (value.value for value in hint)
    else:
        for part in get_args(hint):
            yield from choices(part)


def test_help_names_every_choice_in_words(show: Show):
    for name, command in commands():
        hints = get_type_hints(inspect.unwrap(command.callback))
        for param in command.params:
            assert not re.search(r"\w\|\w+\|", param.metavar or ""), (name, param.name)
            for choice in choices(hints[param.name]):
                word = rf"(?<![\w-]){re.escape(choice)}(?![\w-])"
                assert re.search(word, f"{param.help} {param.metavar}"), (name, param.name, choice)


def test_help_shows_options_in_panels_without_types(show: Show):
    text = "\n".join(show(80, lambda: main(["finetune", "--help"])))
    assert max(map(len, text.splitlines())) <= 80
    assert not re.search("<[a-z]", text)
    heads = re.findall("╭─ (.*?) ─", text)
    own = ["Labels and split", "Reading the input", "Computing", "Output"]
    assert heads == ["Arguments", "Options", *own]
    assert re.search(r"Output.*--resume.*--quiet.*--help", text, re.DOTALL)
    for verb, default in (("pretrain", "auto"), ("embed", "fp32")):
        said = " ".join(show(80, partial(main, [verb, "-h"])))
        assert f"auto, fp32 or bf16 (default: {default})" in re.sub("[│ ]+", " ", said)


def test_panels_of_one_verb_come_before_those_that_verbs_share(show: Show):
    heads = re.findall("╭─ (.*?) ─", "\n".join(show(80, lambda: main(["featurize", "--help"]))))
    assert heads.index("Options") < heads.index("Proteins") < heads.index("Reading the input")
    assert "<bool>" not in "".join(show(80, lambda: main(["--help"])))
