"""From options to the settings of a run: named options, ``--set`` and a file, with contradictions refused."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphlog.config import merge, parse_override, read_toml
from graphlog.errors import ConfigError

_OF_TRAINING = ("epochs", "batch_size", "precision", "device", "seed", "learning_rate")
_NOT_BESIDE_A_FILE = {"objective.name": "--objective", "recipe": "--recipe"}


def options_given(named: Mapping[str, Any], pairs: Sequence[str]) -> dict[str, Any]:
    """Return the settings chosen on the command line, by dotted name.

    Args:
        named: Value of each option by the name of what it sets; None where it was not given.
        pairs: ``key=value`` texts of ``--set``.

    Raises:
        ConfigError: If one key is given two values.
    """
    given = {key: value for key, value in named.items() if value is not None}
    for pair in pairs:
        path, value = parse_override(pair)
        key = ".".join(path)
        if key in given and given[key] != value:
            raise ConfigError(
                f"`{key}` is set twice, to {given[key]!r} and by --set to {value!r}; give it once."
            )
        given[key] = value
    return given


def pretraining_settings(
    file: Path | None,
    named: Mapping[str, Any],
    pairs: Sequence[str],
    beneath: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the tables of a pre-training run: those of ``file`` laid over ``beneath``, overlaid by the options.

    Raises:
        ConfigError: If options contradict each other, or name another objective or recipe than the file.
    """
    pairs = [_in_full(pair) for pair in pairs]
    given = options_given({_in_full(key): value for key, value in named.items()}, pairs)
    tables = merge(beneath or {}, {} if file is None else read_toml(file))
    for key, option in _NOT_BESIDE_A_FILE.items():
        there = _look_up(tables, key)
        if key in given and there not in (None, given[key]):
            raise ConfigError(
                f"{option} {given[key]} contradicts {file}, which says {there!r}; drop one of the two."
            )
    for key, value in given.items():
        tables = merge(tables, _nested(key, value))
    return tables


def _in_full(key: str) -> str:
    """Return the key under which the settings keep what users may call by a shorter name."""
    name, equals, value = key.partition("=")
    name = name.strip()
    full = (
        f"training.{name}"
        if name in _OF_TRAINING
        else "objective.name"
        if name == "objective"
        else name
    )
    return f"{full}{equals}{value}"


def _nested(key: str, value: Any) -> dict[str, Any]:
    head, _, rest = key.partition(".")
    return {head: _nested(rest, value) if rest else value}


def _look_up(tables: Mapping[str, Any], key: str) -> Any:
    head, _, rest = key.partition(".")
    value = tables.get(head)
    return _look_up(value, rest) if rest and isinstance(value, Mapping) else value  # pyright: ignore[reportUnknownArgumentType]
