"""Immutable settings that can be read from TOML; the error for an unknown key suggests a name."""

import json
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from graphlog.errors import ConfigError, DataError, out_of_range, setting


class FrozenConfig(BaseModel):
    """Base class of all settings: immutable, without unknown keys, booleans are not numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_bool_as_number(cls, value: object, field: ValidationInfo) -> object:
        annotation = cls.model_fields[str(field.field_name)].annotation
        types = {annotation, *get_args(annotation)}
        if isinstance(value, bool) and types & {int, float} and bool not in types:
            raise ValueError(f"must be a number, found {value}")
        return value

    @classmethod
    def parse(cls, values: Mapping[str, Any], where: str = "") -> Self:
        """Return validated settings; messages prefix names with ``where``, such as ``objective.``.

        Raises:
            ConfigError: If a key is unknown or a value is not allowed.
        """
        try:
            return cls.model_validate(dict(values))
        except ValidationError as e:
            raise _first_problem(cls, e, where) from None

    def updated(self, values: Mapping[str, Any], where: str = "") -> Self:
        """Return a validated copy in which ``values`` are replaced."""
        return self.parse({**self.model_dump(), **values}, where)


def _first_problem(cls: type[FrozenConfig], error: ValidationError, where: str) -> ConfigError:
    problem, *others = error.errors()
    key = str(problem["loc"][0]) if problem["loc"] else ""
    option = f"{where}{key}".rstrip(".")  # without a key, the problem concerns several settings
    if problem["type"] == "extra_forbidden":
        near = get_close_matches(key, cls.model_fields, n=1, cutoff=0.4)
        hint = f"did you mean `{where}{near[0]}`? " if near else ""
        known = ", ".join(sorted(cls.model_fields))
        message = f"unknown setting `{where}{key}`; {hint}Known: {known}"
    elif problem["type"] == "value_error":  # raised by our validators, which name the value
        message = f"{setting(option)}: {problem['msg'].removeprefix('Value error, ')}"
    else:
        of_types = [problem, *(o for o in others if o["loc"][:1] == problem["loc"][:1])]
        wanted = [o["msg"].lower().removeprefix("input should be ") for o in of_types]
        message = f"{setting(option)} must be {' or '.join(wanted)}, found {problem['input']!r}"
    return ConfigError(message, option=option)


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file; raise a ConfigError if it is missing or not TOML."""
    try:
        return tomllib.loads(_read_text(path))
    except FileNotFoundError:
        raise ConfigError(f"no such file: {path}; check the path.", file=path) from None
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"{path}: not a valid TOML file ({e})") from None


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; raise a DataError if it is missing or not JSON."""
    try:
        return json.loads(_read_text(path))
    except FileNotFoundError:
        raise DataError(f"no such file: {path}; check the path.", file=path) from None
    except (OSError, ValueError, RecursionError) as e:
        raise DataError(f"{path}: not a valid JSON file ({e})") from None


def _read_text(path: Path) -> str:
    """Return the text of a file; refuse a device, which may never end."""
    if path.exists() and not (path.is_file() or path.is_fifo()):
        raise ValueError("it is not a file")
    return path.read_text(encoding="utf-8")


def parse_override(text: str) -> tuple[list[str], Any]:
    """Split ``encoder.dim=64`` into the path of the setting and its TOML value or plain text.

    Example:
        >>> parse_override("objective.depth=4")
        (['objective', 'depth'], 4)
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise out_of_range("settings", "such as key=value", repr(text))
    try:
        parsed = tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    except (ValueError, RecursionError) as e:  # too many digits, nested too deeply
        message = f"{setting('settings', key)}: its value cannot be read ({e})."
        raise ConfigError(message, option="settings") from None
    return key.strip().split("."), parsed


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` updated with ``changes``; nested tables are merged, not replaced."""
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            value = merge(old, value)
        merged[key] = value
    return merged
