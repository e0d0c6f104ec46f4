"""From options to the settings of a run: file, named options and ``--set``, with contradictions refused."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphlog.config import merge, parse_override, read_toml
from graphlog.errors import ConfigError

_TRAINING = ("epochs", "batch_size", "precision", "device", "seed")
_FIXED_BY_FILE = {"objective.name": "--objective", "recipe": "--recipe"}


def gather_settings(file: Path | None, named: Mapping[str, Any], pairs: Sequence[str]) -> dict[str, Any]:
    """Return nested settings: those of ``file``, overlaid by the options given.

    Args:
        file: A TOML file of settings, or None.
        named: Options by the dotted name of what they set; None where not given.
        pairs: ``key=value`` texts of ``--set``.

    Raises:
        ConfigError: If two options set one key differently, or an option names another objective or recipe than the file.
    """
    given: dict[str, Any] = {_full_name(k): v for k, v in named.items() if v is not None}
    chosen: dict[str, tuple[Any, str]] = {k: (v, "its own option") for k, v in given.items()}
    for pair in pairs:
        path, value = parse_override(pair)
        key = _full_name(".".join(path))
        if key in chosen and chosen[key][0] != value:
            raise ConfigError(f"`{key}` is set twice: {chosen[key][0]!r} by {chosen[key][1]} and {value!r} by --set; give it once.")
        chosen[key] = (value, "--set")
    base = {} if file is None else read_toml(file)
    for key, option in _FIXED_BY_FILE.items():
        there = _look_up(base, key)
        if key in chosen and there is not None and chosen[key][0] != there:
            raise ConfigError(f"{option} {chosen[key][0]} contradicts {file}, which says {there!r}; drop one of the two.")
    for key, (value, _) in chosen.items():
        base = merge(base, _nested(key, value))
    return base


def _full_name(key: str) -> str:
    if key == "objective":
        return "objective.name"
    return f"training.{key}" if key in _TRAINING else key


def _nested(key: str, value: Any) -> dict[str, Any]:
    head, _, rest = key.partition(".")
    return {head: _nested(rest, value) if rest else value}


def _look_up(tables: Mapping[str, Any], key: str) -> Any:
    head, _, rest = key.partition(".")
    value = tables.get(head)
    if not rest:
        return value
    return _look_up(value, rest) if isinstance(value, Mapping) else value  # pyright: ignore[reportUnknownArgumentType]
