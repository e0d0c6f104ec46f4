"""A verb of the command line, of graphlog or of another package."""

from collections.abc import Callable
from typing import NamedTuple

START, DATA, TRAIN, USE, LOOK = "Start here", "Data", "Train", "Use an encoder", "Look at results"
PANELS = (START, DATA, TRAIN, USE, LOOK)
"""Headings of ``graphlog --help``, in order; a package may have its own, which come last."""


class Verb(NamedTuple):
    """A function as a command: its parameters are options, and its docstring is its help."""

    run: Callable[..., None]
    panel: str
    """Heading under which it is listed."""
    example: str
    """Command line shown at the end of its help."""
