"""Errors caused by input: each message is one line that says what, where and how to fix it."""

from collections.abc import Callable, Collection, Generator, Hashable, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from operator import index
from os import PathLike, fspath
from typing import Any, SupportsIndex

_MOST_NAMES = 24
"""Largest number of known names in a message; of more, the most similar ones are listed."""
SEED_LIMIT = 1 << 32
"""Number that every seed must be below; scikit-learn accepts no larger seeds."""


def in_python(name: str, value: object = None) -> str:
    """Return a setting in the spelling of Python.

    Example:
        >>> in_python("resume", True)
        '`resume=True`'
    """
    return f"`{name}`" if value is None else f"`{name}={value!r}`"


WORDING: ContextVar[Callable[[str, object], str]] = ContextVar("wording", default=in_python)
"""Function that spells a setting in messages: ``resume=True`` in Python, ``--resume`` in a command.

The command line replaces it for the duration of one command."""


def setting(name: str, value: object = None) -> str:
    """Return a setting, with its value if one is given, in the spelling of the user's interface."""
    return WORDING.get()(name, value)


class GraphLoGError(ValueError):
    """Base of all errors caused by input; the command line prints one line and exits with 2.

    Args:
        message: What is wrong, where, and how to fix it; its lines are joined to one.
        option: Python name of the setting that is wrong or missing.
        file: The file that caused the error.
        row: The row of the input that caused the error, counted from 0.
    """

    def __init__(
        self,
        message: str,
        *,
        option: str | None = None,
        file: str | PathLike[str] | None = None,
        row: int | None = None,
    ) -> None:
        super().__init__(r"\n".join(message.splitlines()))  # names of columns may have lines
        self.option, self.row = option, row
        self.file = None if file is None else fspath(file)


class DataError(GraphLoGError):
    """An input file, a graph or a label that cannot be used."""


class ConfigError(GraphLoGError):
    """An unknown name, a value out of range, or options that contradict each other."""


class ModelFileError(GraphLoGError):
    """A model, store or checkpoint that is damaged, of another program, or of a newer format."""


class NonFiniteLossError(GraphLoGError):
    """A loss became NaN or infinite; training stops and the last good checkpoint is kept."""


class ProcessLostError(GraphLoGError):
    """Another process of the same run has ended, does not answer, or could not start."""


class TrainingInterrupted(GraphLoGError):  # noqa: N818 - a request, not an error
    """Training was stopped by Ctrl-C or SIGTERM; the message says how to continue.

    The state was saved first. A second signal stops immediately and keeps the last checkpoint.
    """


class MissingExtraError(GraphLoGError):
    """An optional dependency is missing; the message names the extra that installs it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"`{package}` is not installed; run: pip install 'graphlog-torch[{extra}]'"
        )


@contextmanager
def optional(package: str, extra: str) -> Generator[None]:
    """Raise a :class:`MissingExtraError` if the block cannot import ``package``."""
    try:
        yield
    except ImportError:
        raise MissingExtraError(package, extra) from None


class MissingPluginError(ConfigError):
    """A plug-in's package is not installed; the message names the package."""

    def __init__(self, kind: str, name: str, package: str) -> None:
        super().__init__(
            f"the {kind} '{name}' comes with the package {package}, which is not installed; run: "
            f"pip install {package}"
        )


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or the error's class name if it is empty."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def out_of_range(option: str, allowed: str, found: object) -> ConfigError:
    """Return the error for a setting whose value is not allowed.

    Example:
        >>> print(out_of_range("k", "at least 1", 0))
        `k` must be at least 1, found 0.
    """
    return ConfigError(f"{setting(option)} must be {allowed}, found {found}.", option=option)


def unknown_name(
    kind: str, name: str, known: Iterable[str], option: str | None = None
) -> ConfigError:
    """Return the error for an unknown name of a ``kind``, suggesting the nearest known one.

    Example:
        >>> print(unknown_name("backbone", "ginn", ["gin", "gcn"]))
        unknown backbone 'ginn'; did you mean 'gin'? Known: gcn, gin
    """
    choices = sorted(known)
    near = get_close_matches(name.lower(), choices, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? Known" if near else "known"
    shown, more = choices, ""
    if len(choices) > _MOST_NAMES:
        shown = sorted(get_close_matches(name.lower(), choices, n=_MOST_NAMES, cutoff=0.0))
        more = f" and {len(choices) - _MOST_NAMES} more"
    message = f"unknown {kind} '{name}'; {hint}: {', '.join(shown)}{more}"
    return ConfigError(message, option=option)


def check_name(kind: str, name: object, known: Collection[str], option: str | None = None) -> None:
    """Raise the error of :func:`unknown_name` unless ``name`` is one of the ``known`` names."""
    if not isinstance(name, str) or name not in known:
        raise unknown_name(kind, str(name), known, option)


def check_list(option: str, names: Collection[str]) -> None:
    """Raise a :class:`ConfigError` if a list of names is one text, whose letters are no names."""
    if isinstance(names, str):
        correct = "()" if names == "none" else f"['{names}']"
        raise ConfigError(
            f"{setting(option)} is a list of names, found '{names}'; write {correct}.",
            option=option,
        )


def column_name(option: str, name: Hashable | Collection[object]) -> str:
    """Return the name of a column as text; raise a ConfigError for a list, an array or a column.

    Data frames may use numbers or tuples as names.
    """
    if isinstance(name, Collection) and not isinstance(name, str | tuple):
        raise ConfigError(
            f"{setting(option)} is the name of a column, found {type(name).__name__}; name one "
            "of the input.",
            option=option,
        )
    return str(name)


def check_choice(option: str, value: object, known: Collection[str]) -> None:
    """Raise a :class:`ConfigError` unless the value of a setting is one of the ``known`` ones."""
    check_name(setting(option), value, known, option)


def check_seeds(option: str, seeds: Iterable[SupportsIndex], at_least: int = 1) -> tuple[int, ...]:
    """Return the seeds as integers; raise a ConfigError unless they are valid and different."""
    try:
        numbers = tuple(map(index, seeds))
    except TypeError:  # text, fractions or None
        numbers = ()
    are_seeds = all(0 <= seed < SEED_LIMIT for seed in numbers)
    if len(numbers) < at_least or not are_seeds or len(set(numbers)) < len(numbers):
        allowed = f"{at_least} or more different whole numbers from 0 to {SEED_LIMIT - 1}"
        raise out_of_range(option, allowed, seeds)
    return numbers


def check_seed(option: str, seed: Any) -> int:
    """Return the seed as an integer; raise a ConfigError for None or a number out of range."""
    try:
        number = index(seed)
    except TypeError:  # also for some types that have the method __index__, such as arrays
        number = -1
    if not 0 <= number < SEED_LIMIT:
        raise out_of_range(option, f"a whole number from 0 to {SEED_LIMIT - 1}", seed)
    return number
