"""The contract of a domain, all that differs between kinds of graphs, and the table of domains.

The domains of the table load when they are first looked up: they lie above this file.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import (
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    SupportsIndex,
    runtime_checkable,
)

import numpy as np
from jaxtyping import Float, Float32, Int, Num
from scipy.sparse import csr_matrix

from graphlog.data.graphs import FeatureSchema
from graphlog.data.split import Split, random_split, stratified_split
from graphlog.data.store import ON_ERROR, GraphStore
from graphlog.data.workers import check_workers
from graphlog.datasets import DatasetSpec
from graphlog.datasets.catalogue import HasDataSets
from graphlog.errors import (
    ConfigError,
    check_choice,
    check_list,
    check_name,
    column_name,
    out_of_range,
    setting,
)
from graphlog.files import hash_file
from graphlog.plugins import Registry


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Input:
    """What a user named, resolved once by :func:`graphlog.inputs.resolve`.

    Exactly one of ``path``, ``spec``, ``records``, ``columns`` and ``store`` is set.
    """

    name: str
    """What messages and reports call it."""
    domain: str | None = None
    """Name of the domain that reads it; None where the schema decides."""
    path: Path | None = None
    """A file or folder that exists, or ``Path("-")`` for standard input."""
    spec: DatasetSpec | None = None
    """A data set of the catalogue."""
    records: Sequence[Any] | None = None
    """Records in memory: SMILES for molecules; network files for proteins."""
    columns: Mapping[str, Sequence[Any]] | None = None
    """The columns of a data frame."""
    store: GraphStore | None = None
    """Graphs that need no reading."""
    is_converted: bool = False
    """Whether ``store`` was made of the graphs of torch_geometric that were given."""

    @property
    def is_stream(self) -> bool:
        """Whether it can be read only once: standard input or a named pipe."""
        return self.path is not None and (str(self.path) == "-" or self.path.is_fifo())

    @property
    def file(self) -> Path | None:
        """The regular file it is; None for anything else."""
        return self.path if self.path is not None and self.path.is_file() else None

    def hashes(self) -> list[str]:
        """Return the sha256 of the file, data set or store that it is, if that is known."""
        if self.file is not None:
            return [hash_file(self.file)]
        if self.store is not None:
            return [self.store.digest]
        return [self.spec.sha256] if self.spec is not None and self.spec.sha256 else []


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """How an input is read; a domain with options of its own extends it."""

    targets: str | Sequence[str] | None = None
    """Columns of labels; ``auto``: every column of numbers; None: those of a data set, if any."""
    on_error: str = "skip"
    """``skip`` lists rows that cannot be used and goes on; ``fail`` stops at the first."""
    workers: int | None = None
    """Processes; None takes every core, and none for inputs too small to gain by it."""
    limit: int | None = None
    """Rows to read at most (of proteins: of each network)."""
    store_path: Path | str | None = None
    """Folder to write the store to; None keeps it in memory."""
    overwrite: bool = True
    """Whether to replace a store at ``store_path``."""
    data_dir: Path | str | None = None
    """Where downloaded data sets are kept."""
    progress: Callable[[int, int], None] | None = None
    """Called as ``progress(rows done, rows rejected)``."""
    choices: ClassVar[Mapping[str, Sequence[str]]] = {"on_error": ON_ERROR}
    """The values that an option may have, besides None."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for option, known in self.choices.items():
            if (value := getattr(self, option)) is not None:
                check_choice(option, value, known)
        check_workers(self.workers)
        if not self.overwrite and self.store_path is None:
            raise ConfigError(
                f"{setting('overwrite', False)} is for a store that is written; give "
                "`store_path`, or drop it.",
                option="overwrite",
            )
        is_whole = isinstance(self.limit, SupportsIndex)
        if self.limit is not None and not (is_whole and 1 <= self.limit <= sys.maxsize):
            raise out_of_range("limit", f"a whole number from 1 to {sys.maxsize}", self.limit)

    @classmethod
    def names(cls) -> frozenset[str]:
        """Return the names of the options that :meth:`of` takes."""
        return frozenset(option.name for option in fields(cls))

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Return these options; those that are None are as usual, names of columns become texts.

        Raises:
            ConfigError: If a value is not valid.
        """
        given = {name: value for name, value in options.items() if value is not None}
        if "smiles_column" in given:
            given["smiles_column"] = column_name("smiles_column", given["smiles_column"])
        if not isinstance(targets := given.get("targets", ""), str):
            given["targets"] = tuple(map(str, targets))
        return cls(**given)


@dataclass(frozen=True, eq=False)
class GraphFeature:
    """One number a graph that a person understands, for describing groups of graphs."""

    name: str
    """Such as ``heavy atoms``."""
    kind: Literal["mean", "share"]
    """Whether groups are described by its mean, or by the share of graphs in which it is 1."""
    values: Float[np.ndarray, "M"]
    """Value of each graph; NaN where unknown."""

    @cached_property
    def overall(self) -> tuple[float, float]:
        """Mean and standard deviation of the known values; 0 where there are none."""
        known = self.values[~np.isnan(self.values)]
        return (float(known.mean()), float(known.std())) if len(known) else (0.0, 0.0)


class CommonPart(NamedTuple):
    """What several graphs have in common."""

    nodes: int
    """Its number of nodes."""
    text: str
    """How it is written, such as a SMILES."""
    drawing: str
    """An ``<svg>`` that shows it."""


@dataclass(frozen=True, slots=True, eq=False)
class BaselineFeatures:
    """Features that need no learning, for the baseline rows of a report."""

    name: str
    """Such as ``ECFP4``; rows are called ``<name> + logistic regression`` and the like."""
    values: Num[np.ndarray, "M F"]
    """One row a graph."""
    binary: bool = False
    """Whether they are 0 or 1: not standardized, and fit for a random forest."""
    note: str = ""
    """What the report should say about them."""


@runtime_checkable
class Draws(Protocol):
    """A domain whose graphs have drawings of their own; others are drawn as nodes and edges."""

    def draw(
        self,
        store: GraphStore,
        graphs: Sequence[int],
        width: int,
        height: int,
        weights: Sequence[Float[np.ndarray, "_"]] | None = None,
    ) -> list[str]:
        """Return an ``<svg>`` of each graph, empty where it fails.

        Args:
            store: The graphs.
            graphs: Which of them.
            width: Of a drawing, in pixels.
            height: Of a drawing, in pixels.
            weights: Weights of the nodes of each graph, from -1 to 1, to color them by.
        """
        ...

    def common_part(
        self, store: GraphStore, graphs: Sequence[int], width: int, height: int
    ) -> CommonPart | None:
        """Return the largest part that all of ``graphs`` have; None where none is known."""
        ...


class Domain(HasDataSets, ABC):
    """One kind of graph; stateless, so that any process may use it.

    A subclass sets ``name`` and implements :meth:`read`; everything else has a default. It may also
    implement :class:`Draws`. Registering an instance in :data:`graphlog.domains.DOMAINS` makes
    every verb and every public call work with it.
    """

    name: str
    """``molecule``, ``protein``, ``graph``: the ``domain`` of its schemas."""
    records: str = "graphs"
    """What one input holds, in the plural, for messages."""
    text_name: str = "text"
    """Name of the column that holds the text of a graph where a table is made of a store."""
    node_name: str = "nodes"
    """What the nodes of a graph are, in the plural."""
    schemas: Mapping[str, FeatureSchema] = {}
    """Fixed schemas by name, the default first; empty where the input decides the schema."""
    targets: tuple[str, ...] = ()
    """Names of descriptors: what a record tells without labels, to be predicted from its graph."""
    feature_sets: Mapping[str, tuple[str, ...]] = {}
    """Features that need no learning, to be joined to an embedding: their columns by name.

    Those named first are the baseline of reports.
    """
    head_layer: str = "jk"
    """The embedding that models of labels are fitted to, unless the model is known by ``last``."""
    shuffled_split: str | None = None
    """The kind of split that is drawn several times where none is named; None: the usual one."""
    reads_memory: bool = False
    """Whether :meth:`read` takes lists and data frames."""
    label_columns: bool = False
    """Whether labels are columns of the input that must be named; else the input brings them."""
    reads_targets: bool = False
    """Whether only the columns of labels that are named need be read."""
    keeps_repeats_together: bool = False
    """Whether random folds keep graphs with the same parent in one fold."""
    finds_repeats: bool = True
    """Whether graphs of one structure are the same record, listed more than once."""
    test_halves: bool = False
    """Whether scores of two random halves of the test set are reported too."""
    keeps_stores: bool = False
    """Whether named data sets are kept as stores, so that reading one copies nothing."""
    wide_edges: bool = False
    """What ``edge_mode="auto"`` and ``batch_norm="auto"`` of an encoder mean.

    False is ``add`` and True (chemistry of the pre-train-GNNs family), True is ``concat`` and False
    (its biology).
    """
    example: str | None = None
    """A labeled data set to suggest as the next step after pre-training."""
    reading: type[Reading] = Reading
    """What :meth:`read` can be told."""

    # Input

    def recognizes(self, path: Path) -> bool:
        """Return whether a file or folder is this domain's by its name or first lines."""
        return False

    @abstractmethod
    def read(self, source: Input, schema: FeatureSchema | None, reading: Reading) -> GraphStore:
        """Return the graphs of ``source``; unusable rows are in ``rejects`` of the store.

        Args:
            source: Anything but a store.
            schema: Schema of the graphs; None takes the default, or infers one.
            reading: How, as an object of the domain's :attr:`reading`.

        Raises:
            DataError: If the input cannot be read.
            ConfigError: If an option does not fit.
        """

    def rows(
        self, source: Input, store: GraphStore, reading: Reading
    ) -> Iterator[Mapping[str, str]]:
        """Yield the columns of every row of ``source``, to be repeated beside predictions.

        By default they are the row number and the texts of the store.
        """
        texts = {reject.row: reject.text for reject in store.output_rejects}
        if store.has_texts:
            texts |= dict(zip(store.output_rows.tolist(), store.texts(), strict=True))
        for row in range(store.num_output_rows):
            named = {self.text_name: texts.get(row, "")} if store.has_texts else {}
            yield {"row": str(row), **named}

    def sdf_writer(
        self, source: Input
    ) -> Callable[[Iterable[tuple[str, Mapping[str, str]]]], Iterator[str]]:
        """Return what makes SDF records of the text and the data fields of each row of ``source``.

        Raises:
            ConfigError: If graphs of this domain are no molecules.
            DataError: If the store lacks what structures are made from.
        """
        raise ConfigError(f"{self.records} have no structure for SDF; choose another format.")

    def cutting_of(self, source: Input | GraphStore) -> dict[str, Any]:
        """Return the options by which graphs were cut out of larger ones, of a store or data set.

        Empty where graphs are read as they are, or where ``source`` does not tell.
        """
        return {}

    # Folds

    def default_split(self, store: GraphStore, task: str | None) -> str:
        """Return the kind of split for graphs whose data set names none.

        Args:
            store: The graphs.
            task: ``classification``, ``multiclass`` or ``regression``; None: nothing is predicted.
        """
        return "random"

    def split(
        self,
        store: GraphStore,
        kind: str,
        fractions: Sequence[float],
        seed: int,
        *,
        source: Input | None = None,
        classes: Int[np.ndarray, "M"] | None = None,
        **options: Any,
    ) -> Split:
        """Return train, validation and test graphs as indices of ``store``.

        Args:
            store: The graphs.
            kind: ``random``, ``stratified`` (needs ``classes``), or a kind of the domain's own.
            fractions: Fractions of the three sets.
            seed: Of the kinds that shuffle.
            source: What the graphs were read from.
            classes: Class of each graph.
            options: Of the domain's own kinds, such as ``test_species``.

        Raises:
            ConfigError: If the kind is unknown.
        """
        if kind == "random":
            return random_split(len(store), fractions, seed)
        if kind == "stratified" and classes is not None:
            return stratified_split(classes, fractions, seed)
        raise ConfigError(
            f"graphs of schema '{store.schema.name}' have no groups to split by; choose random, "
            "stratified or a split file."
        )

    def parents(self, store: GraphStore) -> GraphStore:
        """Return the graphs by which repeats are recognized, one for each: by default themselves.

        Of molecules they are those of the parents, so that a salt repeats its base.
        """
        return store

    def reading_notes(self, store: GraphStore) -> list[str]:
        """Return what a reader of scores should know about how graphs were read."""
        return []

    def groups(self, store: GraphStore) -> list[str | None] | None:
        """Return the group (a scaffold) each graph shares with its relatives, None for one alone.

        None for all where the domain knows no groups.
        """
        return None

    # What is known about graphs without learning

    def describe(self, store: GraphStore) -> dict[str, Any]:
        """Return what ``graphlog info`` is to add to its counts."""
        return {}

    def features(self, store: GraphStore) -> list[GraphFeature]:
        """Return numbers people understand, to describe groups of graphs by: at least sizes."""
        nodes, edges = store.num_nodes, store.num_edges / (2.0 if store.undirected else 1.0)
        return [
            GraphFeature(self.node_name, "mean", nodes.astype(np.float64)),
            GraphFeature("edges a node", "mean", edges / np.maximum(nodes, 1)),
        ]

    def feature_set(self, name: str, store: GraphStore) -> BaselineFeatures:
        """Return the features that :attr:`feature_sets` names, one row a graph.

        Raises:
            ConfigError: If there are none of that name.
            DataError: If the store lacks what they are computed from.
        """
        self.check_feature_sets([name])
        raise NotImplementedError(f"domain '{self.name}' names features that it cannot compute")

    def feature_counts(self, store: GraphStore) -> csr_matrix | None:
        """Return how often each substructure occurs in each graph; None if the domain counts none.

        Kernel models compare graphs by these counts as well as by their embeddings.

        Raises:
            DataError: If the store lacks what they are counted in.
        """
        return None

    def check_feature_sets(self, names: Sequence[str]) -> None:
        """Refuse a name that :attr:`feature_sets` lacks, before any work.

        Raises:
            ConfigError: If there is one; says which names there are.
        """
        check_list("with_features", names)
        if names and not self.feature_sets:
            raise ConfigError(f"{self.records} have no features to add to an embedding.")
        for name in names:
            check_name(f"features of {self.records}", name, self.feature_sets)
        if len(set(names)) < len(names):
            raise ConfigError(f"features are named twice: {', '.join(names)}; name each once.")

    def calibration_graphs(self, schema: FeatureSchema, limit: int) -> GraphStore | None:
        """Return up to ``limit`` graphs that come with the package, for batch norm statistics."""
        return None

    def downstream_readout(self, readout: str) -> str:
        """Return the readout of an encoder used downstream whose pre-training used ``readout``."""
        return readout

    def node_fields(
        self, schema: FeatureSchema, x: Num[np.ndarray, "V F"]
    ) -> Mapping[str, Sequence[str]]:
        """Return columns that tell a person what nodes are: by default their categories.

        A code that stands for none is "".

        Args:
            schema: Of the nodes.
            x: Attributes of the nodes.
        """
        categories = {k: dict(enumerate(a.values)) for k, a in enumerate(schema.node) if a.values}
        return {
            schema.node[k].name: [names.get(code, "") for code in x[:, k].tolist()]
            for k, names in categories.items()
        }

    # Descriptors

    def targets_version(self) -> str:
        """Return the version of the code that computes targets; other versions' are not reused."""
        return ""

    def target_values(self, records: Sequence[str]) -> Float32[np.ndarray, "N K"]:
        """Return the value of every target of each record; a NaN row where a record cannot be read.

        Raises:
            ConfigError: If this domain has no targets.
        """
        raise ConfigError(
            f"domain '{self.name}' has no descriptors to predict; choose an objective that needs "
            "none."
        )

    def graph_targets(self, store: GraphStore) -> Float32[np.ndarray, "M K"] | None:
        """Return the value of every target of each graph where the graphs alone tell them.

        None where they are computed from the texts, by :meth:`target_values`.
        """
        return None

    def substructure_counts(self, records: Sequence[str]) -> csr_matrix:
        """Return log counts of small substructures of each record, hashed: a sparse CSR matrix.

        Raises:
            ConfigError: If this domain counts none.
        """
        raise ConfigError(
            f"domain '{self.name}' counts no substructures; set objective.substructure_weight = 0."
        )


def _fits(name: str, part: object) -> str | None:
    fits = isinstance(part, Domain) and part.name == name
    return None if fits else f"an object derived from graphlog.domains.Domain named '{name}'"


DOMAINS: Registry[Domain] = Registry(
    "domain",
    {name: f"graphlog.domains.{name}.domain:DOMAIN" for name in ("molecule", "protein", "graph")},
    _fits,
)
"""Every domain by name."""
USUAL_SCHEMA = "molecule-cip"
"""Schema that records are read with where none is named."""


def register(domain: Domain) -> None:
    """Make a domain known to every verb and every public call."""
    DOMAINS[domain.name] = domain


def domain_of(schema: FeatureSchema) -> Domain:
    """Return the domain that graphs of a schema belong to.

    Raises:
        ConfigError: If it is not registered.
    """
    if schema.domain not in DOMAINS:
        known = ", ".join(sorted(DOMAINS))
        raise ConfigError(
            f"no installed package provides the domain '{schema.domain}' that graphs of schema "
            f"'{schema.name}' belong to; install the one that made them. Known: {known}"
        )
    return DOMAINS[schema.domain]


def schema_named(name: str) -> FeatureSchema:
    """Return a fixed schema of any domain.

    Raises:
        ConfigError: If there is none of that name.
    """
    schemas = {name: s for domain in DOMAINS.values() for name, s in domain.schemas.items()}
    check_name("schema", name, schemas)
    return schemas[name]


def _draw(store: GraphStore, graphs: Sequence[int], width: int, height: int) -> list[str] | None:
    domain = domain_of(store.schema)
    return domain.draw(store, graphs, width, height) if isinstance(domain, Draws) else None


GraphStore.drawn_by = _draw
