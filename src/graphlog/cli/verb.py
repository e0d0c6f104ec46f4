"""A verb of the command line, of graphlog or of another package."""

from typing import NamedTuple

from graphlog.cli.console import Command

START, DATA, TRAIN, USE, LOOK = "Start here", "Data", "Train", "Use an encoder", "Look at results"
PANELS = (START, DATA, TRAIN, USE, LOOK)
"""Headings of ``graphlog --help``, in order; a package may have its own, which come last."""


class Verb(NamedTuple):
    """A command and its place in the help."""

    command: type[Command]
    panel: str
    """Heading under which it is listed."""
    example: str
    """Command line shown at the end of its help."""
