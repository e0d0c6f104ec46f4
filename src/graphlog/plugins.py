"""Registries of named parts, to which installed packages can add by Python entry points."""

import warnings
from collections import UserDict
from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from functools import cache, cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, distributions
from typing import Any, TypeVar

from graphlog.errors import ConfigError, MissingPluginError

T = TypeVar("T")

GROUPS: Mapping[str, str] = {
    "objective": "graphlog.objectives",
    "backbone": "graphlog.backbones",
    "domain": "graphlog.domains",
    "data set": "graphlog.datasets",
    "verb": "graphlog.verbs",
}
"""Name of the entry-point group of each kind of part."""


class Registry(UserDict[str, T]):
    """Mapping of names to parts: those of graphlog, of installed packages, and added by a program.

    A part given as the text ``module:name`` and the part of an installed package are imported when
    they are first looked up, so that listing names is fast. A package cannot replace a part of
    graphlog. The ``kind`` is a key of :data:`GROUPS`. The function ``fits`` gets the name and the
    part of a package, and returns None if it can be used, else a description of what it should be.
    """

    def __init__(
        self, kind: str, parts: Mapping[str, T | str], fits: Callable[[str, object], str | None]
    ) -> None:
        super().__init__()
        self.kind = kind
        self.data: dict[str, Any] = dict(parts)
        self._fits = fits
        self._built_in = frozenset(parts)
        self._broken: dict[str, str] = {}

    @cached_property
    def _installed(self) -> dict[str, EntryPoint]:
        """The entry points of installed packages by name."""
        installed: dict[str, EntryPoint] = {}
        for point in _entry_points():
            if point.group != GROUPS[self.kind]:
                continue
            first = installed.get(point.name)
            if point.name in self._built_in or (first is not None and first.value != point.value):
                owner = "graphlog" if first is None else _package(first)
                warnings.warn(
                    f"the {self.kind} '{point.name}' of the package {_package(point)} is not used: "
                    f"{owner} has one of that name.",
                    stacklevel=2,
                )
            elif first is None:
                installed[point.name] = point
        return installed

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self.data or name in self._installed)

    def __iter__(self) -> Iterator[str]:
        return iter({**self.data, **self._installed})

    def __len__(self) -> int:
        return len({**self.data, **self._installed})

    def __getitem__(self, name: str) -> T:
        """Return a part, imported on first use; raise a ConfigError if it cannot be used."""
        if name not in self.data and name in self._installed:
            self.data[name] = self._load(name)
        part = self.data[name]
        if isinstance(part, str):
            module, _, attribute = part.partition(":")
            part = self.data[name] = getattr(import_module(module), attribute)
        return part

    def items(self) -> ItemsView[str, T]:
        """Return the names and parts that can be used; warn once of each one that cannot."""
        return self._usable().items()

    def values(self) -> ValuesView[T]:
        """Return the parts that can be used; warn once of each one that cannot."""
        return self._usable().values()

    def _usable(self) -> dict[str, T]:
        parts: dict[str, T] = {}
        for name in self:
            is_reported = name in self._broken
            try:
                parts[name] = self[name]
            except ConfigError as e:
                if not is_reported:
                    warnings.warn(str(e), stacklevel=3)
        return parts

    def package(self, name: str) -> dict[str, str]:
        """Return ``{kind: package}`` for a part of an installed package, ``{}`` for other parts."""
        point = self._installed.get(name)
        return {} if point is None else {self.kind: _package(point)}

    def check_installed(self, name: str, packages: Mapping[str, str]) -> None:
        """Raise a MissingPluginError if a part is missing; ``packages`` is from :meth:`package`."""
        if name not in self and self.kind in packages:
            raise MissingPluginError(self.kind, name, packages[self.kind])

    def _load(self, name: str) -> T:
        point = self._installed[name]
        if name not in self._broken:
            try:
                part = point.load()
                expected = self._fits(name, part)
            except Exception as e:  # the import of a package can raise anything
                reason = f"{type(e).__name__}: {e}"
            else:
                if expected is None:
                    return part
                reason = f"{part!r} is not {expected}"
            self._broken[name] = (
                f"the {self.kind} '{name}' of the package {_package(point)} cannot be used "
                f"({reason}); update or remove {_package(point)}."
            )
        raise ConfigError(self._broken[name])


@cache
def _entry_points() -> list[EntryPoint]:
    """Return the entry points of :data:`GROUPS` in all installed packages."""
    points = (point for package in distributions() for point in package.entry_points)
    return [point for point in points if point.group in GROUPS.values()]


def _package(point: EntryPoint) -> str:
    return "?" if point.dist is None else point.dist.name
