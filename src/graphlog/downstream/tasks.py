"""What is to be predicted: labelled graphs, the kind of task, the metric, and the folds, checked before any training."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from graphlog.data.schema import FeatureSchema
from graphlog.data.split import DEFAULT_FRACTIONS, Split, random_split, stratified_split
from graphlog.data.store import GraphStore, is_store
from graphlog.datasets import DATASETS
from graphlog.datasets.base import named_spec
from graphlog.datasets.splits import split_dataset
from graphlog.domains.graph.reading import is_graphs
from graphlog.domains.protein.folds import split_proteins
from graphlog.downstream.metrics import TaskKind, check_metric
from graphlog.downstream.protocol.classes import class_numbers, is_multiclass, one_hot_classes
from graphlog.downstream.sources import Source, is_named, name_of, open_graphs
from graphlog.errors import ConfigError, DataError, unknown_name
from graphlog.files import hash_file

TaskChoice = Literal["auto", "classification", "regression", "multiclass"]
_HALVES_SEED = 42
"""Of the two halves of a test fold; the family's."""
SplitChoice = Any
"""A kind of split, the path of a split file, or a Split of input rows."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelledGraphs:
    """Graphs with labels and folds, ready to be learnt from."""

    name: str
    """Name or path of the input."""
    store: GraphStore
    """The graphs."""
    labels: Float[np.ndarray, "M T"]
    """Labels in the input's units, NaN where missing."""
    targets: tuple[str, ...]
    """Names of the label columns."""
    task: TaskKind
    """Kind of task, the same for all targets."""
    metric: str
    """The score that decides."""
    split: Split
    """Folds as graph indices of ``store``."""
    split_name: str
    """How the folds were made."""
    notes: tuple[str, ...] = field(default=())
    """What is unusual about labels and folds."""

    @property
    def sizes(self) -> dict[str, int]:
        """Number of graphs of each fold and of rejected rows."""
        folds = {name: len(part) for name, part in zip(self.split._fields, self.split, strict=True)}
        if self.store.schema.domain == "protein":  # rows without a label are no rejects
            return {**folds, "rejected": len(self.store.rejects)}
        return {**folds, "rejected": self.store.num_rows - len(self.store)}

    @property
    def halves(self) -> dict[str, Int[np.ndarray, "_"]]:
        """Two random halves of the test fold, as places in it: what the biology of the pre-train-GNNs family reports; else none."""
        if self.store.schema.domain != "protein":
            return {}
        first, second, rest = random_split(len(self.split.test), (0.5, 0.5, 0.0), _HALVES_SEED)
        return {"test_first_half": first, "test_second_half": np.concatenate([second, rest])}


def open_labelled(
    source: Source,
    schema: FeatureSchema,
    *,
    targets: Sequence[str] | None = None,
    task: TaskChoice = "auto",
    metric: str | None = None,
    split: SplitChoice = None,
    fractions: Sequence[float] = DEFAULT_FRACTIONS,
    split_seed: int = 0,
    **reading: Any,
) -> LabelledGraphs:
    """Read ``source`` with its labels, decide the task and the metric, and split.

    Args:
        source: A path, the name of a data set (whose targets, task and split are known), or a store with labels.
        schema: Features the model reads.
        targets: Label columns; None takes the known ones.
        task: Kind of task; ``auto`` is the known one, else classification where all labels are 0 or 1.
        metric: The score that decides; None takes the data set's, else ROC-AUC or RMSE.
        split: A kind (``scaffold``, ...), a split file, or a Split of input rows; None takes the data set's, else ``scaffold``.
        fractions: Shares of train, valid and test.
        split_seed: Seed of the kinds that shuffle.
        reading: Passed to ``read_molecules``.

    Raises:
        DataError: If labels are missing altogether, are text, or do not fit the task.
        ConfigError: If a target, task, metric or split is unknown.
    """
    spec = named_spec(source, DATASETS)
    known = spec is not None and spec.task is not None and not targets
    if not targets and not known and not isinstance(source, GraphStore):
        _refuse_unnamed_targets(source)
    if is_named(source) and targets and schema.domain == "molecule":
        reading["targets"] = list(targets)
    store, unlabelled = open_graphs(source, schema, **reading), ()
    labels, names = select_targets(store, targets)
    if schema.domain == "protein":
        store, labels, unlabelled = _labelled_only(store, labels)
    asked = spec.task if spec and known and spec.task and task == "auto" else task
    if is_multiclass(asked, store, names):
        labels, names, kind, notes = *one_hot_classes(labels, names, store), "multiclass", []
    else:
        kind, notes = decide_task(labels, names, asked)
    usual = spec.metric if spec and known and kind == spec.task else None
    choice = split if split is not None else (spec.split if spec else "scaffold")
    if schema.domain == "protein" and choice == "scaffold" and split is None:
        choice = "random"
    if schema.domain == "graph" and choice == "scaffold" and split is None:
        choice = "random" if kind == "regression" else "stratified"
    networks = spec.networks if spec else ()
    file = Path(source) if isinstance(source, str | Path) and Path(source).is_file() else None
    sha256 = hash_file(file) if file is not None and str(choice).endswith(".json") else None
    canonical = spec is not None and spec.canonical_split
    folds, split_name = split_graphs(
        store,
        choice,
        fractions,
        split_seed,
        canonical=canonical,
        networks=networks,
        labels=labels,
        sha256=sha256,
    )
    return LabelledGraphs(
        name=name_of(source),
        store=store,
        labels=labels,
        targets=names,
        task=kind,
        metric=check_metric(metric or usual, kind),
        split=folds,
        split_name=split_name,
        notes=(*notes, *unlabelled, *fold_notes(labels, names, kind, folds)),
    )


def select_targets(
    store: GraphStore, wanted: Sequence[str] | None
) -> tuple[Float[np.ndarray, "M T"], tuple[str, ...]]:
    """Return the columns ``wanted`` of a store's labels (None: all) and their names.

    Raises:
        DataError: If the store has no labels.
        ConfigError: If it has no such column.
    """
    if store.labels is None or not store.tasks:
        raise DataError("the input has no labels; name the columns to predict with --targets.")
    names = list(store.tasks)
    for name in wanted or ():
        if name not in names:
            raise unknown_name("target", name, names)
    columns = [names.index(name) for name in (wanted or names)]
    return np.asarray(store.labels, dtype=np.float32)[:, columns], tuple(names[c] for c in columns)


def _labelled_only(
    store: GraphStore, labels: Float[np.ndarray, "M T"]
) -> tuple[GraphStore, Float[np.ndarray, "K T"], tuple[str, ...]]:
    """Return the ego-networks with a label: the others, many, are there to pre-train on. A 0 says "no" or "not known to"."""
    known = np.flatnonzero(~np.isnan(labels).all(axis=1))
    notes = ["label 0 is negative or unknown, as in the pre-train-GNNs family"]
    if len(known) == len(store):
        return store, labels, tuple(notes)
    notes.append(
        f"{len(store) - len(known):,} of {len(store):,} proteins have no label and are in no fold"
    )
    return store.subset(known), labels[known], tuple(notes)


def decide_task(
    labels: Float[np.ndarray, "M T"], names: Sequence[str], task: str = "auto"
) -> tuple[TaskKind, list[str]]:
    """Return the kind of task and notes on unusual columns.

    Example:
        >>> decide_task(np.array([[0.0], [1.0], [np.nan]]), ["toxic"])
        ('classification', [])

    Raises:
        DataError: If a column has no label at all, or labels do not fit the task.
        ConfigError: If the task is unknown, or targets are of two kinds and no task is chosen.
    """
    if task not in {"auto", "classification", "regression"}:
        raise unknown_name("task", task, ["auto", "classification", "regression"])
    values = {
        name: np.unique(column[~np.isnan(column)])
        for name, column in zip(names, labels.T, strict=True)
    }
    for name, found in values.items():
        if not len(found):
            raise DataError(
                f"target '{name}' has no label in any usable row; fill it in or leave it out of --targets."
            )
    other = {name: found for name, found in values.items() if not np.isin(found, (0, 1)).all()}
    kind: TaskKind = (
        "classification"
        if task == "classification" or (task == "auto" and not other)
        else "regression"
    )
    if other and (
        kind == "classification" or all(set(found.tolist()) == {-1, 1} for found in values.values())
    ):
        name, found = next(iter(other.items()))
        bad = ", ".join(f"{v:g}" for v in found[~np.isin(found, (0, 1))][:3])
        advice = "recode it, or choose --task regression"
        raise DataError(
            f"target '{name}': classes must be 0 or 1 (empty where unknown), found {bad}; {advice}."
        )
    classes = [name for name, found in values.items() if found.tolist() == [0, 1]]
    if task == "auto" and other and classes:
        found = f"target '{classes[0]}' holds classes and target '{next(iter(other))}' numbers"
        raise ConfigError(
            f"{found}; name targets of one kind, or choose --task regression to take all as numbers."
        )
    constant = [name for name, found in values.items() if len(found) == 1]
    if len(constant) == len(values):
        what = "one class" if kind == "classification" else "one value"
        raise DataError(
            f"every label of target '{constant[0]}' is {values[constant[0]][0]:g}: {what} only, so there is nothing to learn."
        )
    notes = [
        f"target '{name}' has one value only ({values[name][0]:g}) and is left out of every mean"
        for name in constant
    ]
    if (
        task == "auto"
        and kind == "regression"
        and all(len(v) <= 10 and np.array_equal(v, v.round()) for v in values.values())
    ):
        notes.append(
            "few whole numbers are taken as quantities; for classes choose --task multiclass, or make one 0/1 column a class"
        )
    return kind, notes


def split_graphs(
    store: GraphStore,
    split: SplitChoice,
    fractions: Sequence[float],
    seed: int,
    canonical: bool = False,
    networks: Sequence[str] = (),
    labels: Float[np.ndarray, "M T"] | None = None,
    sha256: str | None = None,
) -> tuple[Split, str]:
    """Return folds as graph indices of ``store`` and what to call them.

    Rows that a split file names but that could not be read are left out of its folds.

    Args:
        store: The graphs.
        split: A kind, a split file, or a Split of input rows.
        fractions: Shares of train, valid and test.
        seed: Of the kinds that shuffle.
        canonical: Whether to take scaffolds of canonical SMILES.
        networks: Networks that ego-networks were cut from, for the split ``network``.
        labels: Classes, for the split ``stratified``.
        sha256: Hash of the input, which a split file must have been made for; None where there is no file to compare with.

    Raises:
        ConfigError: If the kind is unknown.
        DataError: If a file is malformed, or a fold is empty.
    """
    if not isinstance(split, str | Path):
        folds, name = (
            _graphs_of_rows(store, Split(*(np.asarray(part, dtype=np.int64) for part in split))),
            "given",
        )
    elif str(split).endswith(".json"):
        folds, name = (
            _graphs_of_rows(store, Split.load(split, num_rows=store.num_rows, sha256=sha256)),
            f"file {split}",
        )
    elif split == "random":
        folds, name = random_split(len(store), fractions, seed), f"random (seed {seed})"
    elif split == "stratified" and labels is not None:
        folds, name = (
            stratified_split(class_numbers(labels), fractions, seed),
            f"stratified (seed {seed})",
        )
    elif store.schema.domain == "graph":
        raise ConfigError(
            f"graphs of schema '{store.schema.name}' have no groups to split by; choose random, stratified or a split file."
        )
    elif store.schema.domain == "protein":
        folds = split_proteins(store.texts(), str(split), tuple(fractions), seed, networks=networks)
        name = f"{split} (seed {seed})"
    else:
        folds = split_dataset(
            store.texts(), str(split), tuple(fractions), seed, canonical=canonical
        )
        name = str(split) if split == "scaffold" else f"{split} (seed {seed})"
    for part, indices in zip(folds._fields, folds, strict=True):
        if not len(indices):
            found = f"the {part} fold is empty ({name} split of {len(store)} usable rows)"
            raise DataError(f"{found}; give more rows, other fractions or another split.")
    return folds, name


def fold_notes(
    labels: Float[np.ndarray, "M T"], names: Sequence[str], task: TaskKind, split: Split
) -> list[str]:
    """Return one line for each fold in which some targets have one class, or no label, only."""
    notes: list[str] = []
    for fold, names_out in folds_lacking(labels, names, task, split).items():
        lack = "one class or none" if task != "regression" else "no label"
        shown = ", ".join(names_out[:5]) + (
            f" and {len(names_out) - 5} more" if len(names_out) > 5 else ""
        )
        effect = "cannot be learnt" if fold == "train" else "are left out of its mean"
        notes.append(
            f"{fold} fold: {len(names_out)} of {len(names)} targets have {lack} there and {effect}: {shown}"
        )
    return notes


def folds_lacking(
    labels: Float[np.ndarray, "M T"], names: Sequence[str], task: TaskKind, split: Split
) -> dict[str, list[str]]:
    """Return, for each fold, the targets that cannot be judged (train: learnt) in it."""
    lacking: dict[str, list[str]] = {}
    for fold, indices in zip(split._fields, split, strict=True):
        y = labels[indices]
        has = (
            [np.any(y == 0, axis=0), np.any(y == 1, axis=0)]
            if task != "regression"
            else [np.any(~np.isnan(y), axis=0)]
        )
        unusable = np.flatnonzero(~np.all(has, axis=0))
        if len(unusable):
            lacking[fold] = [names[int(t)] for t in unusable]
    return lacking


def _refuse_unnamed_targets(source: Source) -> None:
    """Refuse a file whose targets are not named; the folder of a store brings its own."""
    if not is_graphs(source) and not is_store(source):
        raise ConfigError(
            f"which columns of {name_of(source)} are to be predicted? Name them with --targets a,b."
        )


def _graphs_of_rows(store: GraphStore, rows: Split) -> Split:
    graph_of_row = np.full(store.num_rows, -1, dtype=np.int64)
    graph_of_row[store.rows] = np.arange(len(store))

    def graphs(wanted: Int[np.ndarray, "_"]) -> Int[np.ndarray, "_"]:
        if len(wanted) and not 0 <= wanted.min() <= wanted.max() < store.num_rows:
            raise ConfigError(
                f"the split names row {wanted.max()}; the input has rows 0 to {store.num_rows - 1}."
            )
        found = graph_of_row[wanted]
        return found[found >= 0]

    return Split(*(graphs(part) for part in rows))
