"""Which column of a table holds the records."""

import re
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from typing import NamedTuple

from graphlog.errors import DataError

_SHOWN = 20


class RecordColumn(NamedTuple):
    """How a domain recognizes the column of a table that holds its records."""

    what: str = "SMILES"
    """What the records are, for messages."""
    sure: frozenset[str] = frozenset({"smiles", "smile", "smi", "mol", "cxsmiles"})
    """Names that can hold nothing else, in lower case, words joined by underscores."""
    word: str = "smiles"
    """A first or last word that says the same."""
    likely: tuple[str, ...] = ()
    """Names that are taken where none of the above is there."""

    def is_name(self, name: str) -> bool:
        """Return whether a column of this name holds the records by its name alone.

        Example:
            >>> names = ("SMILES", "Structure (SMILES)", "mol", "mol_id")
            >>> [RecordColumn().is_name(n) for n in names]
            [True, True, True, False]
        """
        plain = _plain(name)
        return plain in self.sure or plain.endswith(self.word) or plain.split("_")[0] == self.word

    def find(self, columns: Sequence[str], wanted: str | None, where: str) -> int:
        """Return the index of the column.

        Args:
            columns: The header.
            wanted: Its name, where the user gave one; upper and lower case may differ.
            where: The file, for messages.

        Raises:
            DataError: If there is none, or more than one; lists what there is.
        """
        if wanted is not None:
            return _named(columns, wanted, where)
        matches = [k for k, name in enumerate(columns) if self.is_name(name)]
        if not matches:
            matches = [k for k, name in enumerate(columns) if _plain(name) in self.likely]
        if len(matches) == 1:
            return matches[0]
        if matches:
            names = ", ".join(columns[k] for k in matches)
            raise DataError(
                f"{where}: more than one column may hold {self.what}: {names}; choose one with "
                "--smiles-column."
            )
        raise DataError(
            f"{where}: no {self.what} column found; name one with --smiles-column (or, if the file "
            f"has no header, save it as .smi). Columns: {listed(columns)}"
        )


SMILES = RecordColumn(
    likely=("molecule", "structure", "compound_structure", "ligand", "drug", "compound")
)
"""The column of SMILES."""


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "_", name.strip().lower()).strip("_")


def _named(columns: Sequence[str], wanted: str, where: str) -> int:
    exact = [k for k, name in enumerate(columns) if name.strip() == wanted.strip()]
    matches = exact or [k for k, name in enumerate(columns) if _plain(name) == _plain(wanted)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise DataError(
            f"{where}: {len(matches)} columns are named '{wanted}'; rename all but one."
        )
    raise no_such_column(columns, wanted, where)


def no_such_column(columns: Sequence[str], wanted: str, where: str) -> DataError:
    """Return the error for a column that is not there, with the nearest one that is."""
    near = get_close_matches(wanted, columns, n=1, cutoff=0.6)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return DataError(f"{where}: no column '{wanted}'; {hint}Columns: {listed(columns)}")


def listed(columns: Sequence[str]) -> str:
    """Return the names for a message: on one line, printable, the first 20."""
    shown = [
        (name if name.isprintable() else ascii(name)[1:-1])[:60] or "(no name)"
        for name in columns[:_SHOWN]
    ]
    more = len(columns) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def distinct(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names with repeated ones numbered, so that no column hides another.

    Example:
        >>> distinct(["smiles", "v", "v", "v.2"])
        ('smiles', 'v', 'v.3', 'v.2')
    """
    seen = Counter[str]()
    taken = set(columns)
    names: list[str] = []
    for name in columns:
        seen[name] += 1
        free = name
        while seen[name] > 1 and free in taken:
            free = f"{name}.{seen[name]}"
            seen[name] += free in taken
        taken.add(free)
        names.append(free)
    return tuple(names)


def repeated(columns: Sequence[str]) -> set[str]:
    """Return the names that stand in a header more than once."""
    return {name for name, count in Counter(columns).items() if count > 1}
