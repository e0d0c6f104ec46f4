"""What can go wrong in a way the user can mend: one line saying what, where and how."""

from collections.abc import Iterable
from difflib import get_close_matches

_SHOWN = 24
"""Known names in a message; of more, the nearest."""


class GraphLoGError(ValueError):
    """Something the user can mend; the command line prints it as one line and exits with code 2."""


class DataError(GraphLoGError):
    """An input file, a graph or a label that cannot be used."""


class ConfigError(GraphLoGError):
    """An unknown name, a value out of range, or options that contradict each other."""


class ModelFileError(GraphLoGError):
    """A model, store or checkpoint that is truncated, tampered with, foreign, or from a newer format."""


class NonFiniteLossError(GraphLoGError):
    """A loss that became NaN or infinite; training stops and the last good checkpoint stays."""


class MissingExtraError(GraphLoGError):
    """An optional dependency that is not installed; names the extra that brings it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"`{package}` is not installed; mend it with: pip install 'graphlog-torch[{extra}]'"
        )


def unknown_name(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """Return the error for a name that is in no table, suggesting the nearest one that is.

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
