"""A split of any input, as rows of that input, and the file it is kept in."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphlog.data.split import DEFAULT_FRACTIONS, Split, check_fractions
from graphlog.data.store import GraphStore
from graphlog.datasets import DATASETS, resolve
from graphlog.datasets.base import named_spec
from graphlog.datasets.splits import split_dataset
from graphlog.domains import SCHEMAS
from graphlog.domains.protein.domain import split_store
from graphlog.downstream.embed import check_output
from graphlog.downstream.sources import domain_of, open_graphs
from graphlog.downstream.tasks import split_graphs
from graphlog.files import hash_file


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
    """Split the rows of ``source``, write the split to ``path`` as JSON, and return it; rejected rows are in no fold.

    Args:
        source: A file, a store, or the name of a data set.
        path: The ``.json`` file.
        kind: ``scaffold``, ``scaffold-balanced``, ``random-scaffold``, ``random``, ``stratified``, ``species`` or ``network``; None is
            what is usual for such graphs: ``scaffold`` for molecules, ``species`` for proteins of several, else ``random``.
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
    name, path = str(source), Path(path)
    check_output(path, (".json",), name)
    shares = check_fractions(fractions)
    if graphs is None:
        graphs = open_graphs(
            name, SCHEMAS["protein" if domain_of(name) == "protein" else "molecule"], **reading
        )
    if graphs.schema.domain == "protein":
        kind, folds = split_store(
            graphs, name, kind, shares, seed, test_species=test_species, networks=networks
        )
    elif graphs.schema.domain == "graph":
        kind = kind or "random"
        folds, _ = split_graphs(graphs, kind, shares, seed, labels=graphs.labels)
    else:
        kind = kind or "scaffold"
        spec = named_spec(name, DATASETS)
        canonical = spec is not None and spec.canonical_split
        folds = split_dataset(graphs.texts(), kind, shares, seed, reading.get("workers"), canonical)
    rows = Split(*(graphs.rows[part] for part in folds))
    rows.save(path, kind, shares, _hash_of(name, graphs))
    return rows


def _hash_of(source: str, store: GraphStore) -> str:
    """Return the hash of the file that ``source`` stands for; of the graphs where there is none."""
    path = resolve(source) if named_spec(source, DATASETS) else Path(source)
    return hash_file(path) if path.is_file() else store.digest
