"""Read labeled graphs, choose their task, metric and split, and check them; write split files."""

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from functools import partial, reduce
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Bool, Float, Int, Int64

from graphlog.data.graphs import FeatureSchema, Reject, save_rejects
from graphlog.data.split import DEFAULT_FRACTIONS, Split, check_fractions, random_split
from graphlog.data.store import GraphStore
from graphlog.data.tables import ColumnNames, listed
from graphlog.domains import DOMAINS, Input, domain_of
from graphlog.downstream.label_checks import (
    SET_NAMES,
    OnRepeats,
    drop_outside_range,
    merge_repeats,
    repeat_kinds,
    repeat_notes,
    unusual_labels,
    with_repeats,
)
from graphlog.downstream.metrics import (
    IN_STANDARD_DEVIATIONS,
    Evaluation,
    TaskKind,
    check_metric,
    evaluate,
    learnable,
    mean_over_tasks,
)
from graphlog.downstream.writers import check_output
from graphlog.errors import (
    ConfigError,
    DataError,
    check_choice,
    check_name,
    check_seed,
    column_name,
    setting,
)
from graphlog.files import hash_file, link_target, storable
from graphlog.inputs import InputLike, read, resolve, salt_notes

TaskChoice = Literal["auto", "classification", "regression", "multiclass"]
LABELING = (
    "task metric fractions split_seed weights on_repeats labels_range smiles_column standardize "
    "sheet decimal workers on_error limit data_dir"
).split()
"""Options of :func:`open_labeled` and of readers, which calls separate from other settings."""
_HELD_OUT = (0.9, 0.1, 0.0)
"""Fractions of a training set that is divided to get a validation set."""
SplitChoice = Any
"""A kind of split, the path of a split file, or an argument of :meth:`Split.of`."""
_MAX_CLASSES = 1000
_MAX_SPREAD_RATIO = 10.0
"""Ratio of two targets' standard deviations above which a note says that one dominates."""
_MIN_TEST_LABELS = 20
"""Number of labels in a test set below which a note says that the score is uncertain."""


@dataclass(frozen=True, slots=True, eq=False)
class LabeledGraphs:
    """Graphs with labels and a split, ready for training."""

    name: str
    """Name or path of the input."""
    store: GraphStore
    """The graphs that have a label."""
    labels: Float[np.ndarray, "M T"]
    """Labels in the units of the input, NaN where missing."""
    targets: tuple[str, ...]
    """Names of the label columns."""
    task: TaskKind
    """Kind of task, the same for all targets."""
    metric: str
    """Metric of the reported scores."""
    split: Split
    """Training, validation and test set, as indices of the graphs in ``store``; graphs of weight 0
    are removed from the training set."""
    split_name: str
    """Description of how the split was made."""
    notes: tuple[str, ...] = field(default=())
    """Notes on unusual labels."""
    weights: Float[np.ndarray, "M"] | None = None
    """Weight of each graph in the training loss; None weights all graphs equally."""
    draw: Callable[..., tuple[Split, str]] | None = field(default=None, repr=False)
    """Function of store, labels and seed that returns another split and its description; None if
    the split cannot be drawn again."""
    rows: Int[np.ndarray, "M"] | None = None
    """Row of each graph in the input; None stands for ``store.output_rows``."""
    rejects: Sequence[Reject] = ()
    """Input rows that could not be used; empty for a view of a store."""
    digest: str = ""
    """Hash of all graphs that were read, including those without a label."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", self.digest or self.store.digest)
        if self.weights is not None:
            train = self.split.train
            split = self.split._replace(train=train[self.weights[train] > 0])
            object.__setattr__(self, "split", split)

    @property
    def sizes(self) -> dict[str, int]:
        """Number of graphs in each set of the split, and of rejected rows."""
        sizes = {name: len(graphs) for name, graphs in self.split._asdict().items()}
        return {**sizes, "rejected": len(self.rejects)}

    @property
    def records(self) -> str:
        """Plural noun for the graphs: molecules, proteins or graphs."""
        return domain_of(self.store.schema).records

    def unusable_targets(self, part: str) -> list[str]:
        """Return the targets that cannot be learned from ``train``, or scored on another set."""
        y = self.labels[getattr(self.split, part)]
        needs_values = self.task == "regression" and part != "train"
        usable = np.isfinite(y).any(axis=0) if needs_values else learnable(y)
        return [self.targets[t] for t in np.flatnonzero(~usable).tolist()]

    @property
    def taught(self) -> Bool[np.ndarray, "T"]:
        """Mask of the targets that can be learned from the training set."""
        return learnable(self.labels[self.split.train])

    @property
    def reliable_labels(self) -> Float[np.ndarray, "M T"]:
        """Labels for scoring predictions: NaN for targets that cannot be learned.

        In multiclass tasks, graphs of classes that do not occur in the training set are NaN.
        """
        untaught = np.broadcast_to(~self.taught, self.labels.shape)
        if self.task == "multiclass":
            untaught = (untaught & (self.labels == 1)).any(axis=1, keepdims=True)
        return np.where(untaught, np.nan, self.labels)

    @property
    def label_notes(self) -> list[str]:
        """Notes on unusual labels in the training, validation and test set."""
        labels, names, split = self.labels, self.targets, self.split
        notes: list[str] = []
        unused = len(labels) - len(reduce(np.union1d, split))
        if unused:
            why = "" if self.weights is None else ", among them those of weight 0"
            notes.append(f"{unused:,} of {len(labels):,} graphs are in no part of the split{why}")
        one = "only one class" if self.task != "regression" else "only one value"
        for part, graphs in split._asdict().items():
            unusable_targets = self.unusable_targets(part)
            labeled = {names[t] for t in np.flatnonzero(np.isfinite(labels[graphs]).any(axis=0))}
            effect = "skipped" if part == "train" else "left out of its mean"
            for lack, has_labels in ((one, True), ("no label", False)):
                targets = [name for name in unusable_targets if (name in labeled) == has_labels]
                if targets:
                    notes.append(
                        f"{lack} in the {SET_NAMES[part]} set, so {effect}: "
                        f"target{'s' if len(targets) > 1 else ''} {listed(targets, 5)}"
                    )
        spreads = {n: s for n, s in zip(names, self.deviations, strict=True) if np.isfinite(s)}
        is_mean = self.criterion != self.metric and len(spreads) > 1
        if is_mean and max(spreads.values()) > _MAX_SPREAD_RATIO * min(spreads.values()):
            notes.append(
                f"the target {max(spreads, key=spreads.__getitem__)}, whose labels vary most, "
                f"dominates the mean {self.metric.upper()} over targets: see the scores by task; "
                "choices on the validation set weigh all targets alike"
            )
        train, valid, test = (np.isfinite(labels[graphs]).sum(axis=0) for graphs in split)
        few = np.flatnonzero(test < _MIN_TEST_LABELS)
        if len(few):
            shown = [f"{names[t]} {train[t]}, {valid[t]}, {test[t]}" for t in few[:3]]
            more = f"; and {len(few) - 3} more" if len(few) > 3 else ""
            notes.append(
                f"fewer than {_MIN_TEST_LABELS} labels in the test set, so scores are uncertain "
                f"(labels in train, valid, test): {'; '.join(shown)}{more}"
            )
        return notes

    @property
    def valid_kinds(self) -> Int[np.ndarray, "V"]:
        """Group number of each graph in the validation set; repeats of a graph have the same."""
        kinds = repeat_kinds(self.store)
        return self.split.valid if kinds is None else kinds[self.split.valid]

    @property
    def repeat_notes(self) -> list[str]:
        """Notes on graphs that occur more than once."""
        return repeat_notes(self.store, self.labels, [self.split])

    def evaluate(
        self, predictions: Float[np.ndarray, "M T"], graphs: Int[np.ndarray, "B"]
    ) -> Evaluation:
        """Return the scores on ``graphs`` (indices); ``predictions`` has a row for every graph.

        Targets that cannot be learned from the training set are left out of every mean.
        """
        labels = self.labels[graphs]
        if self.task != "multiclass":
            labels = np.where(self.taught, labels, np.nan)
        return evaluate(labels, predictions[graphs], self.task)

    def score(self, predictions: Float[np.ndarray, "M T"], part: str) -> float:
        """Return the :attr:`criterion` on the ``train``, ``valid`` or ``test`` set."""
        evaluation = self.evaluate(predictions, getattr(self.split, part))
        if self.criterion == self.metric:
            return evaluation.scores[self.metric]
        return mean_over_tasks(np.array(evaluation.per_task[self.metric]) / self.deviations)

    @property
    def criterion(self) -> str:
        """Metric by which epochs, penalties and models are chosen.

        For several targets, errors are divided by each target's standard deviation; otherwise the
        target with the largest unit would decide their mean.
        """
        is_several = len(self.targets) > 1
        return IN_STANDARD_DEVIATIONS.get(self.metric, self.metric) if is_several else self.metric

    @property
    def deviations(self) -> Float[np.ndarray, "T"]:
        """Standard deviation of each target's training labels; NaN if it cannot be learned."""
        labels = np.asarray(self.labels[self.split.train], dtype=np.float64)
        taught, deviations = self.taught, np.full(labels.shape[1], np.nan)
        deviations[taught] = np.nanstd(labels[:, taught], axis=0)
        return deviations

    @property
    def train_graphs(self) -> GraphStore:
        """The graphs of the training set."""
        return self.store.subset(np.sort(self.split.train))


def labeled(
    source: InputLike | LabeledGraphs, schema: FeatureSchema, **labeling: Any
) -> LabeledGraphs:
    """Return ``source`` if it has labels and a split, else the result of :func:`open_labeled`."""
    if not isinstance(source, LabeledGraphs):
        return open_labeled(source, schema, **labeling)
    if late := [name for name, value in labeling.items() if value is not None]:
        raise ConfigError(
            f"`{late[0]}` is for input that is yet to be read; these graphs have labels and split: "
            "choose it in `open_labeled`."
        )
    return source


def open_labeled(
    source: InputLike,
    schema: FeatureSchema,
    *,
    targets: ColumnNames | None = None,
    task: TaskChoice = "auto",
    metric: str | None = None,
    split: SplitChoice = None,
    fractions: Sequence[float] = DEFAULT_FRACTIONS,
    split_seed: int = 0,
    weights: Hashable | None = None,
    on_repeats: OnRepeats = "keep",
    labels_range: Sequence[float] | None = None,
    **reading: Any,
) -> LabeledGraphs:
    """Read ``source`` with its labels, choose the task and the metric, and split the graphs.

    Args:
        source: A path, the name of a data set (whose targets, task and split are known), or a store
            with labels.
        schema: Features the model reads.
        targets: Label columns; None takes the known ones.
        task: Kind of task; ``auto`` takes the known one, else classification if all labels are 0
            or 1, else regression.
        metric: Metric of the scores; None takes the data set's, else ROC-AUC, RMSE or accuracy.
        split: A kind (``scaffold``, ...), a split file, or a Split of input rows; None takes the
            data set's, else the domain's. If there is no validation set, a tenth of the training
            set becomes one. Rows without any label are in none of the sets.
        fractions: Shares of the training, validation and test set.
        split_seed: Seed of the kinds of splits that shuffle.
        weights: Column with the weight of each row in the training loss; weight 0 leaves it out.
        on_repeats: How to handle graphs that occur more than once (molecules are compared by their
            parents): ``keep`` all of them (random splits put repeats of a molecule into one set),
            take the ``mean`` of their labels, weighted by ``weights``, which are summed, ``drop``
            all but the first label of each target, or ``fail``. Proteins are not compared.
        labels_range: Lowest and highest label; others are removed, and a note lists them.
        reading: Options of ``read_molecules``.

    Raises:
        DataError: If there are no labels, they are text or do not fit the task (quantities for
            classification, classes for regression), or weights are missing or negative.
        ConfigError: If a target, task, metric or split is unknown.
    """
    check_choice("on_repeats", on_repeats, get_args(OnRepeats))
    split_seed = check_seed("split_seed", split_seed)
    if weights is not None:
        weights = column_name("weights", weights)
    targets = _target_names(targets, weights)
    resolved = resolve(source, schema)
    domain, spec = domain_of(schema), resolved.spec
    known_task = None if spec is None or targets else spec.task
    if resolved.columns is not None and not targets:
        reading["targets"] = "auto"
    elif resolved.store is None and domain.label_columns and known_task is None and not targets:
        raise ConfigError(
            f"which columns of {resolved.name} are to be predicted? Name them with "
            f"{setting('targets')}.",
            option="targets",
        )
    elif resolved.store is None and targets and (domain.label_columns or domain.reads_targets):
        reading["targets"] = [*targets, *([weights] if weights else [])]
    whole = store = read(resolved, schema, **reading)
    labels, names = select_targets(store, targets, weights)
    row_weights = None
    if weights is not None:
        check_name("column of weights", weights, list(store.tasks))
        row_weights = select_targets(store, [weights])[0][:, 0]
    notes = [*store.source.notes, *domain.reading_notes(store)]
    notes += salt_notes(store.rows[domain.salts(store)], len(store))
    input_rows, num_rows = store.output_rows, store.num_output_rows
    if labels_range is not None:
        labels, outside = drop_outside_range(labels, names, store.rows, labels_range)
        notes += outside
    if resolved.columns is not None and not targets:
        notes.append(f"all numeric columns are used as labels: {', '.join(names)}")
    store, labels, input_rows, row_weights = _labeled(store, labels, input_rows, row_weights)
    if unlabeled := len(whole) - len(store):
        notes.append(
            f"{unlabeled:,} of {len(whole):,} {domain.records} have no label and are in no part of "
            "the split"
        )
        if spec is not None and targets:
            notes.append(
                f"the split is made for these targets; it is not that of all of {spec.name}"
            )
    if row_weights is not None:
        check_weights(row_weights, f"column '{weights}'", store.rows)
    wanted = known_task if known_task is not None and task == "auto" else task
    labels, names, kind, task_notes = _choose_task(labels, names, wanted, store)
    notes += task_notes
    as_read = labels, names, store.rows
    if on_repeats != "keep":
        labels, row_weights, repeats = merge_repeats(labels, store, on_repeats, kind, row_weights)
        notes += repeats
        store, labels, input_rows, row_weights = _labeled(store, labels, input_rows, row_weights)
    if kind == "regression":  # the mean of repeats may hide an unusual label
        checked = as_read if on_repeats == "mean" else (labels, names, store.rows)
        notes += unusual_labels(*checked)
    usual_metric = spec.metric if spec is not None and kind == known_task else None
    if split is None:
        split = (spec.split if spec else None) or domain.default_split(store, kind)
    draw = partial(_split_graphs, resolved, split, fractions, input_rows, num_rows, whole.digest)
    sets, split_name = draw(store, labels, split_seed)
    return LabeledGraphs(
        name=resolved.name,
        store=store,
        labels=labels,
        targets=names,
        task=kind,
        metric=check_metric(metric or usual_metric, kind),
        split=sets,
        split_name=split_name,
        notes=tuple(notes),
        weights=row_weights,
        draw=draw,
        rows=input_rows,
        rejects=whole.output_rejects,
        digest=whole.digest,
    )


def _target_names(targets: ColumnNames | None, weights: str | None) -> list[str] | None:
    """Return the names in ``targets`` as a list of texts, None for None; refuse repeated names."""
    if targets is None:
        return None
    # names may be numbers, and the list the index of a data frame
    names = [targets] if isinstance(targets, str) else [str(name) for name in targets]
    if twice := [name for name in names if names.count(name) > 1]:
        raise DataError(
            f"label column '{twice[0]}' is given more than once; give each once.", option="targets"
        )
    if weights in names:
        raise ConfigError(
            f"column '{weights}' is named as a target and as the weights; drop one.",
            option="weights",
        )
    return names


def _labeled(
    store: GraphStore,
    labels: Float[np.ndarray, "M T"],
    rows: Int[np.ndarray, "M"],
    weights: Float[np.ndarray, "M"] | None = None,
) -> tuple[
    GraphStore, Float[np.ndarray, "L T"], Int[np.ndarray, "L"], Float[np.ndarray, "L"] | None
]:
    """Return the graphs that have a label, with their labels, input rows and weights."""
    known = np.flatnonzero(np.isfinite(labels).any(axis=1))
    if len(known) == len(store):
        return store, labels, rows, weights
    weights = None if weights is None else weights[known]
    return store.subset(known), labels[known], rows[known], weights


def select_targets(
    store: GraphStore, wanted: Sequence[str] | None, excluded: str | None = None
) -> tuple[Float[np.ndarray, "M T"], tuple[str, ...]]:
    """Return the ``wanted`` label columns of a store (None: all but ``excluded``), and their names.

    Raises:
        DataError: If the store has no labels.
        ConfigError: If it has no such column.
    """
    if store.labels is None or not store.tasks:
        if domain_of(store.schema).label_columns:
            raise DataError(
                "the store has no labels; make it again from its table, and name the columns to "
                f"predict with {setting('targets')}.",
                option="targets",
            )
        raise DataError("the input has no labels; give its graphs labels and read it again.")
    names = list(store.tasks)
    for name in wanted or ():
        check_name("target", name, names)
    columns = [names.index(name) for name in (wanted or names) if name != excluded]
    return store.labels[:, columns], tuple(names[c] for c in columns)


def check_weights(weights: Float[np.ndarray, "M"], name: str, rows: Int[np.ndarray, "M"]) -> None:
    """Refuse weights that are missing or negative; the error names the first such row."""
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        raise DataError(
            f"weights must be numbers from 0; {name} has none in row {rows[bad[0]]} ({len(bad)} "
            "such rows): fill them in."
        )


def decide_task(
    labels: Float[np.ndarray, "M T"],
    names: Sequence[str],
    task: str = "auto",
    words: Mapping[str, Sequence[str]] | None = None,
) -> tuple[TaskKind, list[str]]:
    """Return the kind of task and notes on unusual columns; ``words`` name the classes of targets.

    Example:
        >>> decide_task(np.array([[0.0], [1.0], [np.nan]]), ["toxic"])
        ('classification', [])

    Raises:
        DataError: If a column has no label at all, or labels do not fit the task.
        ConfigError: If the task is unknown, or targets are of two kinds and no task is chosen.
    """
    check_name("task", task, get_args(TaskChoice))
    values = {
        name: np.unique(column[~np.isnan(column)])
        for name, column in zip(names, labels.T, strict=True)
    }
    if empty := [name for name, distinct in values.items() if not len(distinct)]:
        raise DataError(
            f"target '{empty[0]}' has no label in any usable row; fill it in or leave it out of "
            f"{setting('targets')}.",
            option="targets",
        )
    numbers = [name for name, distinct in values.items() if not np.isin(distinct, (0, 1)).all()]
    classes = [name for name, distinct in values.items() if distinct.tolist() == [0, 1]]
    are_signs = all(distinct.tolist() == [-1, 1] for distinct in values.values())
    words, as_numbers = words or {}, ""
    if all(map(_are_numbers, words.values())):
        as_numbers = f", or choose {setting('task', 'regression')} to take all as numbers"
    if numbers and (task == "classification" or (task == "auto" and are_signs)):
        others = np.setdiff1d(values[numbers[0]], (0, 1))
        bad = ", ".join(f"{v:g}" for v in others[:3])
        raise DataError(
            f"target '{numbers[0]}': classes must be 0 or 1 (empty where unknown), found {bad}; "
            f"recode it{as_numbers}."
        )
    if task == "auto" and numbers and classes:
        raise ConfigError(
            f"target '{classes[0]}' holds classes and target '{numbers[0]}' numbers; name targets "
            f"of one kind{as_numbers}.",
            option="task",
        )
    is_regression = task == "regression" or (task == "auto" and bool(numbers))
    kind: TaskKind = "regression" if is_regression else "classification"
    constant = {
        name: words[name][int(distinct[0])] if words.get(name) else f"{distinct[0]:g}"
        for name, distinct in values.items()
        if len(distinct) == 1
    }
    if len(constant) == len(values):
        single = "one class" if kind == "classification" else "one value"
        raise DataError(
            f"every label of target '{names[0]}' is {constant[names[0]]}: {single} only, so there "
            "is nothing to learn."
        )
    notes = [
        f"target '{name}' has one value only ({value}) and is left out of every mean"
        for name, value in constant.items()
    ]
    are_few = all(len(v) <= 10 and np.array_equal(v, v.round()) for v in values.values())
    if task == "auto" and kind == "regression" and are_few:
        notes.append(
            "The labels are a few integers; treated as regression. For classes choose "
            f"{setting('task', 'multiclass')}, or make one 0/1 column per class."
        )
    return kind, notes


def _split_graphs(
    source: Input,
    split: SplitChoice,
    fractions: Sequence[float],
    input_rows: Int[np.ndarray, "M"],
    num_rows: int,
    digest: str,
    store: GraphStore,
    labels: Float[np.ndarray, "M T"],
    seed: int,
) -> tuple[Split, str]:
    """Return a split as graph indices of ``store``, and its description.

    Split files and given splits list rows of the input, which has ``num_rows``; ``input_rows`` maps
    graphs to rows. Listed rows that could not be read or have no label are left out. ``digest`` is
    the hash of all graphs that were read.
    """
    kind = None
    if not isinstance(split, str | Path):
        sets, name = _graphs_of_rows(input_rows, Split.of(split, num_rows)), "given"
    elif str(split).endswith(".json"):
        hashes = source.hashes()
        known = [*hashes, digest] if hashes else ()
        rows = Split.load(split, num_rows, known, strict=source.file is not None)
        kind = json.loads(Path(split).read_text(encoding="utf-8")).get("kind")
        kind = kind if isinstance(kind, str) else None
        sets = _graphs_of_rows(input_rows, rows)
        file = storable(str(split))
        name = file if kind is None else f"{kind.partition(' (')[0]} ({file})"
    else:
        kind = str(split)
        if Path(kind).suffix:
            raise ConfigError(
                f"{setting('split', kind)}: a file of a split ends in .json and holds lists of "
                "rows from 0, train, valid and test; write it so, or choose a kind of split.",
                option="split",
            )
        sets = _draw_split(store, labels, kind, tuple(fractions), seed, source)
        name = kind if kind == "scaffold" else f"{kind} (seed {seed})"
    if len(sets.train) > 1 and not len(sets.valid) and len(sets.test):
        sets, held_out = _hold_out_a_tenth(sets, kind, store, labels, seed)
        name = f"{name} (validation set: {held_out}, of its training set)"
    for part, graphs in sets._asdict().items():
        if not len(graphs):
            raise DataError(
                f"the {part} set is empty ({name} split of {len(store)} usable rows); give more "
                "rows, other fractions or another split."
            )
    return sets, name


def _hold_out_a_tenth(
    sets: Split, kind: str | None, store: GraphStore, labels: Float[np.ndarray, "M T"], seed: int
) -> tuple[Split, str]:
    """Return a split whose validation set is taken from its training set, and a description of it.

    The training set is divided by the same ``kind`` of split; at random if the kind is unknown or
    would leave the validation set empty.
    """
    train = store.subset(sets.train)
    source = Input(name="training set", store=train)
    for used in dict.fromkeys((kind or "random", "random")):
        with suppress(ConfigError, DataError):  # the kind is unknown, or its groups are too large
            parts = _draw_split(train, labels[sets.train], used, _HELD_OUT, seed, source)
            if len(parts.valid):
                break
    else:  # fewer than ten graphs
        used, parts = "random", random_split(len(train), (0.5, 0.5, 0.0), seed)
    rest = np.concatenate([parts.train, parts.test])  # shares are rounded down, so one may be left
    held_out = f"{len(parts.valid):,} graphs, {used}"
    return Split(sets.train[rest], sets.train[parts.valid], sets.test), held_out


def _draw_split(
    store: GraphStore,
    labels: Float[np.ndarray, "M T"] | None,
    kind: str,
    fractions: Sequence[float],
    seed: int,
    source: Input,
    **options: Any,
) -> Split:
    """Return a split drawn by the domain of the graphs.

    Random splits of molecules keep repeats (molecules with the same parent) in one set, except for
    known data sets, whose splits are drawn as published.
    """
    domain, classes = domain_of(store.schema), None
    if kind == "stratified" and labels is not None:
        classes = class_numbers(labels)
    is_random = kind in ("random", "stratified") and domain.keeps_repeats_together
    kinds = repeat_kinds(store) if is_random and source.spec is None else None
    if kinds is not None:
        first = np.sort(np.unique(kinds, return_index=True)[1])
        of_first = None if classes is None else classes[first]
        sets = domain.split(store.subset(first), kind, fractions, seed, classes=of_first, **options)
        if all(len(graphs) or not share for graphs, share in zip(sets, fractions, strict=True)):
            return with_repeats(sets, kinds)
        # there are too few different molecules for three sets; a note will say that they repeat
    return domain.split(store, kind, fractions, seed, source=source, classes=classes, **options)


def without_validation_set(data: LabeledGraphs) -> LabeledGraphs:
    """Return the data with the graphs of the validation set in the training set."""
    train, valid, test = data.split
    return replace(data, split=Split(np.union1d(train, valid), valid[:0], test))


def with_validation_set(data: LabeledGraphs, seed: int) -> LabeledGraphs:
    """Return the data with a tenth of the training set, drawn at random, as validation set.

    Repeats of a molecule stay in one set, if there are ten different molecules.

    Raises:
        DataError: If fewer targets or classes can be learned from the rest.
    """
    sets, _ = _hold_out_a_tenth(data.split, None, data.store, data.labels, seed)
    drawn = replace(data, split=sets)
    if lost := np.flatnonzero(data.taught & ~drawn.taught).tolist():
        raise DataError(
            f"seed {seed} drew a validation set without which the target {data.targets[lost[0]]} "
            f"has too few labels to learn from; choose other seeds, or drop "
            f"{setting('resample_validation')}."
        )
    return drawn


def mean_held_out(
    splits: Sequence[Split], predictions: Sequence[Float[np.ndarray, "M T"]]
) -> Float[np.ndarray, "M T"]:
    """Return the mean of the predictions of a graph by those models in whose validation set it is.

    Args:
        splits: Split of each model.
        predictions: Predictions of each model for the graphs of its validation set; the others are
            not used.

    Returns:
        NaN for graphs that are in none of the validation sets.
    """
    total, models = np.zeros_like(predictions[0]), np.zeros((len(predictions[0]), 1))
    for split, values in zip(splits, predictions, strict=True):
        total[split.valid] += values[split.valid]
        models[split.valid] += 1
    return np.divide(total, models, out=np.full_like(total, np.nan), where=models > 0)


def check_learnable(data: LabeledGraphs) -> None:
    """Refuse a training set from which no target can be learned.

    Raises:
        DataError: If every target has one class or value, or no label, or all weights are 0.
    """
    if data.weights is not None and not len(data.split.train):
        raise DataError("all weights of the training set are 0: nothing to learn.")
    if len(data.unusable_targets("train")) == len(data.targets):
        lack = "one class only" if data.task != "regression" else "one value only, or none,"
        raise DataError(
            f"every target has {lack} in the training set ({data.split_name} split): nothing to "
            "learn; choose another split."
        )


def _graphs_of_rows(input_rows: Int[np.ndarray, "M"], rows: Split) -> Split:
    """Return a split of input rows as graph indices, without rows that have no graph."""
    last = max(part.max(initial=-1) for part in (input_rows, *rows))
    graph_of_row = np.full(last + 1, -1, dtype=np.int64)
    graph_of_row[input_rows] = np.arange(len(input_rows))
    sets = (graph_of_row[part] for part in rows)
    return Split(*(graphs[graphs >= 0] for graphs in sets))


def split_file(
    source: str | Path,
    path: str | Path,
    kind: str | None = None,
    *,
    fractions: Sequence[float] = DEFAULT_FRACTIONS,
    seed: int = 0,
    test_species: str | None = None,
    networks: Sequence[str] = (),
    **reading: Any,
) -> Split:
    """Split the rows of ``source``, write the split to ``path`` as JSON, and return it.

    Rejected rows are in no part of the split. If labels are read (of a data set, of a store, or
    those named by ``targets``), rows without any label are not either.

    Args:
        source: A file, a store, or the name of a data set.
        path: The ``.json`` file.
        kind: ``scaffold``, ``scaffold-balanced``, ``random-scaffold``, ``random``, ``stratified``,
            ``species`` or ``network``; None takes the usual kind for the data set or the domain.
        fractions: Shares of the training, validation and test set.
        seed: Seed of the kinds of splits that shuffle.
        test_species: Taxon of the test set, for ``species``.
        networks: Networks that ego-networks were cut from, for ``network``.
        reading: Options of the reader (``smiles_column``, ``on_error``, ``workers``).

    Raises:
        ConfigError: If a name is unknown, or ``path`` cannot be written.
        DataError: If the source cannot be read, or lacks what this kind of split needs.
    """
    resolved, path, seed = resolve(source), Path(path), check_seed("seed", seed)
    check_output(path, (".json",), resolved)
    shares, graphs = check_fractions(fractions), read(resolved, **reading)
    store, labels, input_rows, spec = graphs, graphs.labels, graphs.output_rows, resolved.spec
    if labels is not None:
        store, labels, input_rows, _ = _labeled(graphs, labels, input_rows)
    usual = spec.split if spec is not None and spec.task else None
    kind = kind or usual or domain_of(graphs.schema).default_split(store, None)
    workers = reading.get("workers")
    options = {"test_species": test_species, "networks": networks, "workers": workers}
    given = {key: value for key, value in options.items() if value}
    for option, needed in (("test_species", "species"), ("networks", "network")):
        if option in given and kind != needed:
            message = f"{setting(option)} is for {setting('kind', needed)}; drop it."
            raise ConfigError(message, option=option)
    sets = _draw_split(store, labels, kind, shares, seed, resolved, **given)
    rows = Split(*(input_rows[graphs_of_set] for graphs_of_set in sets))
    file = resolved.file
    if spec is not None:
        file = DOMAINS[spec.domain].fetch(spec, reading.get("data_dir"))
    digest = hash_file(file) if file is not None and file.is_file() else graphs.digest
    rows.save(link_target(path), kind, shares, digest)
    save_rejects(path.absolute().parent, graphs.rejects, path.name)
    return rows


def _choose_task(
    labels: Float[np.ndarray, "M T"], names: tuple[str, ...], task: str, store: GraphStore
) -> tuple[Float[np.ndarray, "M C"], tuple[str, ...], TaskKind, list[str]]:
    """Return the label columns to learn, their names, the kind of task, and notes.

    In multiclass tasks there is one 0/1 column for each class.
    """
    first, *others = names
    words = {name: [str(word) for word in store.source.classes.get(name, ())] for name in names}
    notes = [note for name, classes in words.items() for note in _equal_codes(name, classes)]
    if task == "multiclass" and others:
        raise ConfigError(
            f"task 'multiclass' is for one target, found {len(names)}; name it with "
            f"{setting('targets')}.",
            option="targets",
        )
    if task == "multiclass" or (task == "auto" and not others and len(words[first]) > 2):
        return *_one_hot(labels, first, words[first]), "multiclass", notes
    for name, classes in words.items():
        is_many = len(classes) > 2
        if is_many if task != "regression" else not _are_numbers(classes):
            shown = ", ".join(classes[:3]) + (", ..." if len(classes) > 3 else "")
            wanted = "numbers" if task == "regression" else "two"
            alone = f"name it alone with {setting('targets')}, and " if others else ""
            choice = setting("task", "multiclass" if is_many else "classification")
            raise DataError(
                f"the labels of target '{name}' are {len(classes)} classes ({shown}), not "
                f"{wanted}; {alone if is_many else ''}choose {choice}."
            )
    kind, more_notes = decide_task(labels, names, task, words)
    return labels, names, kind, notes + more_notes


def _are_numbers(classes: Sequence[str]) -> bool:
    """Return whether the classes are written as their numbers in the input, or have no names."""
    return list(classes) == [str(k) for k in range(len(classes))]


def _equal_codes(target: str, classes: Sequence[str]) -> list[str]:
    """Return a note for each group of class names that are the same number, such as 1 and 01."""
    by_number: dict[Decimal, list[str]] = {}
    for name in classes:
        with suppress(InvalidOperation, TypeError):  # a text, or a NaN that cannot be compared
            by_number.setdefault(Decimal(name), []).append(name)
    return [
        f"target '{target}': {' and '.join(names)} are the same number but {len(names)} classes; "
        "write each class in one way"
        for names in by_number.values()
        if len(names) > 1
    ]


def _one_hot(
    labels: Float[np.ndarray, "M 1"], target: str, words: Sequence[str]
) -> tuple[Float[np.ndarray, "M C"], tuple[str, ...]]:
    """Return a 0/1 column for each class and names such as ``label=4``; unlabeled rows are NaN.

    ``words`` are the names of the classes 0, 1, ...; if empty, the numbers are the names.
    """
    numbers = np.unique(labels[~np.isnan(labels)])
    if not np.array_equal(numbers, numbers.round()) or len(numbers) > _MAX_CLASSES:
        raise DataError(
            f"target '{target}' holds numbers, not classes; choose "
            f"{setting('task', 'regression')}.",
            option="task",
        )
    if len(numbers) < 2:
        raise DataError(
            f"every label of target '{target}' is one class, or missing, so there is nothing "
            "to learn."
        )
    columns = np.arange(len(words)) if words else numbers
    one_hot = (labels == columns).astype(np.float32)
    one_hot[np.isnan(labels[:, 0])] = np.nan
    return one_hot, tuple(f"{target}={words[int(c)] if words else int(c)}" for c in columns)


def class_numbers(labels: Float[np.ndarray, "M T"]) -> Int64[np.ndarray, "M"]:
    """Return a number for each row; rows with equal labels, also missing ones, have the same."""
    numbers = np.unique(np.nan_to_num(labels, nan=-1.0), axis=0, return_inverse=True)[1]
    return numbers.reshape(-1).astype(np.int64)
