"""Errors caused by input: each message is one line that says what, where and how to fix it."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

_SHOWN = 24
"""At most so many known names are listed, the nearest ones."""


class GraphLoGError(ValueError):
    """Base of all errors caused by input; the command line prints one line and exits with 2."""


class DataError(GraphLoGError):
    """An input file, a graph or a label that cannot be used."""


class ConfigError(GraphLoGError):
    """An unknown name, a value out of range, or options that contradict each other."""


class ModelFileError(GraphLoGError):
    """A model, store or checkpoint that is damaged, foreign, or of a newer format."""


class NonFiniteLossError(GraphLoGError):
    """A loss became NaN or infinite; training stops and the last good checkpoint is kept."""


class ProcessLostError(GraphLoGError):
    """Another process of the same run has ended, does not answer, or has refused to start."""


class MissingExtraError(GraphLoGError):
    """An optional dependency is missing; the message names the extra that installs it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"`{package}` is not installed; run: pip install 'graphlog-torch[{extra}]'"
        )


class MissingPluginError(ConfigError):
    """A part of another package is asked for; the message names the package to install."""

    def __init__(self, kind: str, name: str, package: str) -> None:
        super().__init__(
            f"the {kind} '{name}' comes with the package {package}, which is not installed; run: "
            f"pip install {package}"
        )


def unknown_name(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """Return the error for an unknown name, suggesting the nearest known one.

    Example:
        >>> print(unknown_name("backbone", "ginn", ["gin", "gcn"]))
        unknown backbone 'ginn'; did you mean 'gin'? Known: gcn, gin
    """
    choices = sorted(known)
    near = get_close_matches(name.lower(), choices, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? " if near else ""
    shown = (
        choices
        if len(choices) <= _SHOWN
        else sorted(get_close_matches(name.lower(), choices, n=_SHOWN, cutoff=0.0))
    )
    more = f" and {len(choices) - len(shown)} more" if len(shown) < len(choices) else ""
    return ConfigError(f"unknown {kind} '{name}'; {hint}Known: {', '.join(shown)}{more}")


def check_name(kind: str, name: object, known: Collection[str]) -> None:
    """Raise what :func:`unknown_name` returns unless ``name`` is one of those ``known``."""
    if name not in known:
        raise unknown_name(kind, str(name), known)
