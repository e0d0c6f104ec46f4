"""Which column of a table holds the molecules."""

from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches

from graphlog.errors import DataError

_SURE = frozenset({"smiles", "smile", "smi", "mol", "cxsmiles"})
_LIKELY = ("molecule", "structure", "compound_structure", "ligand", "drug", "compound")
_SHOWN = 20


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def is_smiles_name(name: str) -> bool:
    """Return whether a column of this name holds SMILES by its name alone.

    Example:
        >>> [is_smiles_name(n) for n in ("SMILES", "canonical_smiles", "mol", "molecule", "mol_id")]
        [True, True, True, False, False]
    """
    plain = _plain(name)
    words = plain.split("_")
    return plain in _SURE or plain.endswith("smiles") or words[0] == "smiles"


def find_smiles_column(columns: Sequence[str], wanted: str | None, where: str) -> int:
    """Return the index of the SMILES column.

    Args:
        columns: The header.
        wanted: Its name, where the user gave one; upper and lower case may differ.
        where: The file, for messages.

    Raises:
        DataError: If there is none, or more than one; lists what there is.
    """
    if wanted is not None:
        return _named(columns, wanted, where)
    found = [k for k, name in enumerate(columns) if is_smiles_name(name)]
    if not found:
        found = [k for k, name in enumerate(columns) if _plain(name) in _LIKELY]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(columns[k] for k in found)
        raise DataError(
            f"{where}: more than one column may hold SMILES: {names}; choose one with --smiles-column."
        )
    raise DataError(
        f"{where}: no SMILES column found; name one with --smiles-column (or, if the file has no header, save it as .smi). "
        f"Columns: {listed(columns)}"
    )


def _named(columns: Sequence[str], wanted: str, where: str) -> int:
    exact = [k for k, name in enumerate(columns) if name.strip() == wanted.strip()]
    found = exact or [k for k, name in enumerate(columns) if _plain(name) == _plain(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise DataError(f"{where}: {len(found)} columns are named '{wanted}'; rename all but one.")
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
    """Return the names with those that stand in the header before numbered, so that no column hides another.

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
