"""The interface of a domain, which holds all that differs between kinds of graphs, and ``DOMAINS``.

The domains in ``DOMAINS`` are imported when they are first looked up, since they import this file.
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
    """An input that the user named, as resolved by :func:`graphlog.inputs.resolve`.

    Exactly one of ``path``, ``spec``, ``records``, ``columns`` and ``store`` is set.
    """

    name: str
    """Name of the input in messages and reports."""
    domain: str | None = None
    """Name of the domain that reads the input; None if the schema decides."""
    path: Path | None = None
    """Existing file or folder, or ``Path("-")`` for standard input."""
    spec: DatasetSpec | None = None
    """Data set of the catalog."""
    records: Sequence[Any] | None = None
    """Records in memory: SMILES for molecules; network files for proteins."""
    columns: Mapping[str, Sequence[Any]] | None = None
    """Columns of a data frame."""
    store: GraphStore | None = None
    """Graphs that were already read."""
    is_converted: bool = False
    """Whether ``store`` was converted from graphs of torch_geometric."""
    location: Path | None = None
    """Absolute path of what can be read again, also from another working directory."""

    @property
    def is_stream(self) -> bool:
        """Whether the input can be read only once: standard input or a named pipe."""
        return self.path is not None and (str(self.path) == "-" or self.path.is_fifo())

    @property
    def file(self) -> Path | None:
        """Path of the input if it is a regular file, else None."""
        return self.path if self.path is not None and self.path.is_file() else None

    def hashes(self) -> list[str]:
        """Return a list with the sha256 of the file, store or data set; empty if it is unknown."""
        if self.file is not None:
            return [hash_file(self.file)]
        if self.store is not None:
            return [self.store.digest]
        return [self.spec.sha256] if self.spec is not None and self.spec.sha256 else []


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """Options of reading an input; a domain with further options extends this class."""

    targets: str | Sequence[str] | None = None
    """Label columns; ``auto``: every column of numbers; None: those of a data set, if any."""
    on_error: str = "skip"
    """``skip`` lists the rows that cannot be used and continues; ``fail`` stops at the first."""
    workers: int | None = None
    """Number of processes; None uses every core, or a single process for small inputs."""
    limit: int | None = None
    """Largest number of rows to read (for proteins: of each network)."""
    store_path: Path | str | None = None
    """Folder to write the store to; None keeps the store in memory."""
    overwrite: bool = True
    """Whether to replace an existing store at ``store_path``."""
    data_dir: Path | str | None = None
    """Folder of downloaded data sets."""
    progress: Callable[[int, int], None] | None = None
    """Function that is called as ``progress(rows done, rows rejected)``."""
    choices: ClassVar[Mapping[str, Sequence[str]]] = {"on_error": ON_ERROR}
    """Allowed values of options other than None, by option."""

    def __post_init__(self) -> None:
        """Check the values of the options."""
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
        """Return the names of the options that :meth:`of` accepts."""
        return frozenset(option.name for option in fields(cls))

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Return an object with these options; None stands for the default.

        Names of columns are converted to strings.

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
    """One interpretable number per graph, for the description of groups of graphs."""

    name: str
    """Name of the feature, such as ``heavy atoms``."""
    kind: Literal["mean", "share"]
    """How a group is described: by the mean, or by the share of graphs whose value is 1."""
    values: Float[np.ndarray, "M"]
    """Value of each graph; NaN where unknown."""

    @cached_property
    def overall(self) -> tuple[float, float]:
        """Mean and standard deviation of the known values; 0 where there are none."""
        known = self.values[~np.isnan(self.values)]
        return (float(known.mean()), float(known.std())) if len(known) else (0.0, 0.0)


class CommonPart(NamedTuple):
    """Largest subgraph that several graphs have in common."""

    nodes: int
    """Number of nodes of the subgraph."""
    text: str
    """Text form of the subgraph, such as a SMILES."""
    drawing: str
    """Drawing of the subgraph as an ``<svg>`` element."""


@dataclass(frozen=True, slots=True, eq=False)
class BaselineFeatures:
    """Features that are computed without learning, for the baseline rows of a report."""

    name: str
    """Name such as ``ECFP4``; rows are named ``<name> + logistic regression`` and the like."""
    values: Num[np.ndarray, "M F"]
    """Features of each graph, one row per graph."""
    binary: bool = False
    """Whether the features are 0 or 1: they are not standardized and suit a random forest."""
    note: str = ""
    """Note on the features for the report; may be empty."""


@runtime_checkable
class Draws(Protocol):
    """A domain that draws its graphs itself; other graphs are drawn as nodes and edges."""

    def draw(
        self,
        store: GraphStore,
        graphs: Sequence[int],
        width: int,
        height: int,
        weights: Sequence[Float[np.ndarray, "_"]] | None = None,
    ) -> list[str]:
        """Return an ``<svg>`` element of each graph, empty if the graph cannot be drawn.

        Args:
            store: Graph store.
            graphs: Indices of the graphs to draw.
            width: Width of a drawing in pixels.
            height: Height of a drawing in pixels.
            weights: Weights of the nodes of each graph, from -1 to 1, which are shown as colors.
        """
        ...

    def common_part(
        self, store: GraphStore, graphs: Sequence[int], width: int, height: int
    ) -> CommonPart | None:
        """Return the largest subgraph that all of ``graphs`` contain; None if none is found."""
        ...


class Domain(HasDataSets, ABC):
    """One kind of graph; it has no state, so that any process can use it.

    A subclass sets ``name`` and implements :meth:`read`; everything else has a default. It may also
    implement :class:`Draws`. All commands and public functions work with a domain that is
    registered in :data:`graphlog.domains.DOMAINS`.
    """

    name: str
    """Name such as ``molecule``, ``protein`` or ``graph``: the ``domain`` of the schemas."""
    records: str = "graphs"
    """Plural noun for the records of an input, for messages."""
    text_name: str = "text"
    """Column name for the texts of graphs, unless a store has its own."""
    node_name: str = "nodes"
    """Plural noun for the nodes of a graph, for messages."""
    group_name: str = "group"
    """Noun for a group of graphs (:meth:`groups`), for figures."""
    schemas: Mapping[str, FeatureSchema] = {}
    """Fixed schemas by name, the default first; empty if the input decides the schema."""
    targets: tuple[str, ...] = ()
    """Names of descriptors: numbers computed from a record, which a model learns to predict."""
    feature_sets: Mapping[str, tuple[str, ...]] = {}
    """Sets of features that are computed without learning: the names of their columns by name.

    They can be joined to an embedding. The first set is the baseline of reports.
    """
    head_layer: str = "jk"
    """Embedding that downstream models use, unless the encoder's own embedding is ``last``."""
    shuffled_split: str | None = None
    """Default kind of split when several splits are drawn; None uses the default of one split."""
    reads_memory: bool = False
    """Whether :meth:`read` accepts lists and data frames."""
    label_columns: bool = False
    """Whether the user must name label columns; if False, the input itself defines the labels."""
    reads_targets: bool = False
    """Whether :meth:`read` can read just the label columns that are named."""
    keeps_repeats_together: bool = False
    """Whether random splits put all graphs with the same parent into the same set."""
    finds_repeats: bool = True
    """Whether graphs with the same structure count as repeats of one record."""
    keeps_stores: bool = False
    """Whether named data sets are kept as stores, which can be opened without a copy."""
    wide_edges: bool = False
    """Meaning of ``edge_mode="auto"`` and ``batch_norm="auto"`` of an encoder.

    If False, they mean ``add`` and True (chemistry of the pre-train-GNNs family); if True,
    ``concat`` and False (its biology).
    """
    example: str | None = None
    """Labeled data set to suggest as the next step after pre-training."""
    reading: type[Reading] = Reading
    """Class of the options of :meth:`read`."""

    # Input

    def recognizes(self, path: Path) -> bool:
        """Return whether this domain reads a file or folder, by its name or first lines."""
        return False

    @abstractmethod
    def read(self, source: Input, schema: FeatureSchema | None, reading: Reading) -> GraphStore:
        """Return the graphs of ``source``; unusable rows are in ``rejects`` of the store.

        Args:
            source: Any input but a store.
            schema: Schema of the graphs; None uses the default, or infers one.
            reading: Options, an instance of the class :attr:`reading`.

        Raises:
            DataError: If the input cannot be read.
            ConfigError: If an option does not apply.
        """

    def text_column(self, store: GraphStore) -> str:
        """Return the column name for the texts of a store."""
        return store.source.text_name or self.text_name

    def rows(
        self, source: Input, store: GraphStore, reading: Reading
    ) -> Iterator[Mapping[str, str]]:
        """Yield the columns of every row of ``source``, which a table of predictions repeats.

        By default they are the row number and the text of the graph, if the store has texts.
        """
        texts = {reject.row: reject.text for reject in store.output_rejects}
        if store.has_texts:
            texts |= dict(zip(store.output_rows.tolist(), store.texts(), strict=True))
        name = self.text_column(store)
        for row in range(store.num_output_rows):
            named = {name: texts.get(row, "")} if store.has_texts else {}
            yield {"row": str(row), **named}

    def sdf_writer(
        self, source: Input
    ) -> Callable[[Iterable[tuple[str, Mapping[str, str]]]], Iterator[str]]:
        """Return a function from the text and data fields of each row of ``source`` to SDF records.

        Raises:
            ConfigError: If graphs of this domain are not molecules.
            DataError: If the store has no texts to make structures from.
        """
        raise ConfigError(f"{self.records} have no structure for SDF; choose another format.")

    def cutting_options(self, source: Input | GraphStore) -> dict[str, Any]:
        """Return the options with which the graphs of ``source`` were cut out of larger graphs.

        The result is empty if the graphs were not cut, or if the options are unknown.
        """
        return {}

    # Splits

    def default_split(self, store: GraphStore, task: str | None) -> str:
        """Return the kind of split for graphs whose data set does not name one.

        Args:
            store: Graphs to split.
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
        """Return the training, validation and test graphs as indices of ``store``.

        Args:
            store: Graphs to split.
            kind: ``random``, ``stratified`` (needs ``classes``), or a kind that the domain adds.
            fractions: Fractions of the three sets.
            seed: Random seed of the kinds that shuffle.
            source: Input that the graphs were read from.
            classes: Class of each graph.
            options: Options of the kinds that the domain adds, such as ``test_species``.

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
        """Return one graph for each graph, by which repeats are recognized.

        By default these are the graphs themselves. For molecules they are the graphs of the
        parents, so that a salt is a repeat of its base.
        """
        return store

    def reading_notes(self, store: GraphStore) -> list[str]:
        """Return notes on how the graphs were read, for reports with scores."""
        return []

    def salts(self, store: GraphStore) -> Int[np.ndarray, "S"]:
        """Return the graphs of records with several fragments, such as salts."""
        return np.empty(0, dtype=np.int64)

    def groups(self, store: GraphStore) -> list[str | None] | None:
        """Return the group of each graph (such as a scaffold); None for a graph without a group.

        The result is None if the domain has no groups.
        """
        return None

    # Properties that are computed without learning

    def describe(self, store: GraphStore) -> dict[str, Any]:
        """Return further entries for the output of ``graphlog info``."""
        return {}

    def features(self, store: GraphStore) -> list[GraphFeature]:
        """Return interpretable numbers per graph, at least the sizes, to describe groups with."""
        nodes, edges = store.num_nodes, store.num_edges / (2.0 if store.undirected else 1.0)
        return [
            GraphFeature(self.node_name, "mean", nodes.astype(np.float64)),
            GraphFeature("edges a node", "mean", edges / np.maximum(nodes, 1)),
        ]

    def feature_set(self, name: str, store: GraphStore) -> BaselineFeatures:
        """Return the features of one of :attr:`feature_sets`, one row per graph.

        Raises:
            ConfigError: If no set has that name.
            DataError: If the store lacks the texts that they are computed from.
        """
        self.check_feature_sets([name])
        raise NotImplementedError(f"domain '{self.name}' names features that it cannot compute")

    def feature_counts(self, store: GraphStore) -> csr_matrix | None:
        """Return the number of times that each substructure occurs in each graph.

        Kernel models compare graphs by these counts as well as by their embeddings. The result is
        None if the domain does not count substructures.

        Raises:
            DataError: If the store lacks the texts that they are computed from.
        """
        return None

    def check_feature_sets(self, names: Sequence[str]) -> None:
        """Check that :attr:`feature_sets` has these names and that none is repeated.

        Raises:
            ConfigError: If a name is unknown or repeated; the message lists the known names.
        """
        check_list("with_features", names)
        if names and not self.feature_sets:
            raise ConfigError(f"{self.records} have no features to add to an embedding.")
        for name in names:
            check_name(f"features of {self.records}", name, self.feature_sets)
        if len(set(names)) < len(names):
            raise ConfigError(f"features are named twice: {', '.join(names)}; name each once.")

    def calibration_graphs(self, schema: FeatureSchema, limit: int) -> GraphStore | None:
        """Return up to ``limit`` graphs of the package for batch norm statistics, or None."""
        return None

    def downstream_readout(self, readout: str) -> str:
        """Return the readout for downstream use of an encoder pre-trained with ``readout``."""
        return readout

    def node_fields(
        self, schema: FeatureSchema, x: Num[np.ndarray, "V F"]
    ) -> Mapping[str, Sequence[str]]:
        """Return columns of texts that describe the nodes: by default the names of categories.

        A code without a name becomes an empty text.

        Args:
            schema: Schema of the nodes.
            x: Attributes of the nodes.
        """
        categories = {k: dict(enumerate(a.values)) for k, a in enumerate(schema.node) if a.values}
        return {
            schema.node[k].name: [names.get(code, "") for code in x[:, k].tolist()]
            for k, names in categories.items()
        }

    # Descriptors

    def targets_version(self) -> str:
        """Return the version of the code for targets; targets of other versions are not used."""
        return ""

    def target_values(self, records: Sequence[str]) -> Float32[np.ndarray, "N K"]:
        """Return the values of all targets, a row per record; NaN for a record that is unreadable.

        Raises:
            ConfigError: If this domain has no targets.
        """
        raise ConfigError(
            f"domain '{self.name}' has no descriptors to predict; choose an objective that needs "
            "none."
        )

    def graph_targets(self, store: GraphStore) -> Float32[np.ndarray, "M K"] | None:
        """Return the values of all targets, a row per graph, computed from the graphs alone.

        The result is None if targets are computed from texts, by :meth:`target_values`.
        """
        return None

    def substructure_counts(self, records: Sequence[str]) -> csr_matrix:
        """Return hashed log counts of small substructures, a row per record.

        Raises:
            ConfigError: If this domain does not count substructures.
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
"""All domains by name."""
DEFAULT_SCHEMA = "molecule-cip"
"""Name of the schema that records are read with by default."""


def register(domain: Domain) -> None:
    """Add a domain to ``DOMAINS``, so that all commands and public functions work with it."""
    DOMAINS[domain.name] = domain


def domain_of(schema: FeatureSchema) -> Domain:
    """Return the domain that graphs of a schema belong to.

    Raises:
        ConfigError: If the domain is not registered.
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
        ConfigError: If no schema has that name.
    """
    schemas = {name: s for domain in DOMAINS.values() for name, s in domain.schemas.items()}
    check_name("schema", name, schemas)
    return schemas[name]


def _draw(store: GraphStore, graphs: Sequence[int], width: int, height: int) -> list[str] | None:
    domain = domain_of(store.schema)
    return domain.draw(store, graphs, width, height) if isinstance(domain, Draws) else None


GraphStore.drawn_by = _draw
