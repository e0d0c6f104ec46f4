"""A split of any input, as rows of that input, and the file it is kept in."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphlog.data.split import DEFAULT_FRACTIONS, Split, check_fractions
from graphlog.data.store import GraphStore
from graphlog.domains import DOMAINS, Input, domain_of
from graphlog.downstream.embed import check_output, save_rejects
from graphlog.downstream.tasks import class_numbers
from graphlog.files import hash_file
from graphlog.inputs import read, resolve


def split_file(
    source: str | Path,
    path: str | Path,
    kind: str | None = None,
    *,
    fractions: Sequence[float] = DEFAULT_FRACTIONS,
    seed: int = 0,
    test_species: str | None = None,
    networks: Sequence[str] = (),
    graphs: GraphStore | None = None,
    **reading: Any,
) -> Split:
    """Split the rows of ``source``, write the split to ``path`` as JSON, and return it.

    Rejected rows are in no fold.

    Args:
        source: A file, a store, or the name of a data set.
        path: The ``.json`` file.
        kind: ``scaffold``, ``scaffold-balanced``, ``random-scaffold``, ``random``, ``stratified``,
            ``species`` or ``network``; None is what is usual for such graphs.
        fractions: Shares of train, valid and test.
        seed: Of the kinds that shuffle.
        test_species: Taxon to test on, for ``species``.
        networks: Networks that ego-networks were cut from, for ``network``.
        graphs: The graphs of ``source``, where they have been read already.
        reading: Passed to the reader (``smiles_column``, ``on_error``, ``workers``).

    Raises:
        ConfigError: If a name is unknown, or ``path`` cannot be written.
        DataError: If the source cannot be read, or does not have what the kind needs.
    """
    resolved, path = resolve(source), Path(path)
    check_output(path, (".json",), resolved)
    shares = check_fractions(fractions)
    if graphs is None:
        graphs = read(resolved, **reading)
    domain = domain_of(graphs.schema)
    every, labels = np.arange(len(graphs)), graphs.labels
    if domain.drops_unlabeled and labels is not None:
        every = every[~np.isnan(labels).all(axis=1)]
    usual = resolved.spec.split if resolved.spec is not None and resolved.spec.task else None
    kind = kind or usual or domain.default_split(graphs.subset(every), None)
    options = {
        "test_species": test_species,
        "networks": networks,
        "workers": reading.get("workers"),
    }
    folds = domain.split(
        graphs.subset(every),
        kind,
        shares,
        seed,
        source=resolved,
        classes=None if labels is None or kind != "stratified" else class_numbers(labels[every]),
        **{key: value for key, value in options.items() if value},
    )
    rows = Split(*(graphs.rows[every[part]] for part in folds))
    rows.save(path, kind, shares, _hash_of(resolved, graphs))
    save_rejects(path.absolute().parent, graphs.rejects, path.name)
    return rows


def _hash_of(source: Input, store: GraphStore) -> str:
    """Return the hash of the file that ``source`` stands for; of the graphs where there is none."""
    path = source.file
    if source.spec is not None:
        path = DOMAINS[source.spec.domain].fetch(source.spec)
    return hash_file(path) if path is not None and path.is_file() else store.digest
