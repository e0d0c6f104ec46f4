"""Pre-trained and untrained encoders: load them by name, and compute embeddings of graphs."""

import os
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from difflib import get_close_matches
from functools import lru_cache, partial
from pathlib import Path
from threading import RLock
from typing import Any, Literal, TypeVar, cast, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from graphlog.data.graphs import FeatureSchema
from graphlog.data.html import fields_table, html_table
from graphlog.data.store import GraphBatch, GraphStore
from graphlog.data.workers import spread_in_order
from graphlog.domains import DEFAULT_SCHEMA, Input, domain_of, schema_named
from graphlog.downstream.linear import features_of
from graphlog.encoders.encoder import (
    BATCH_SIZE,
    BATCHES,
    EmbeddingLayer,
    EncoderConfig,
    Encoding,
    GraphEncoder,
    build_encoder,
    calibrate,
    with_settings,
)
from graphlog.encoders.legacy import convert_pth
from graphlog.encoders.modelfile import read_model, save_model
from graphlog.errors import (
    ConfigError,
    ModelFileError,
    check_name,
    check_seed,
    out_of_range,
    setting,
    unknown_name,
)
from graphlog.files import folder_kind
from graphlog.inputs import InputLike, applicable_options, check_schema, read, resolve
from graphlog.training.log import Progress, as_progress
from graphlog.training.runfolder import RUNS, is_in_use
from graphlog.training.settings import (
    NumberFormat,
    Precision,
    autocast,
    check_default_device,
    choose_device,
    inference_precision,
    seed_for,
)

Key = TypeVar("Key")
_ROWS, _ROWS_WITH_FEATURES = 2048, 20_000
"""Minimum rows of a part of the input; more with features, which several processes compute."""
_NODES_AT_ONCE = 65_536
"""Maximum nodes of a batch of several graphs when nothing is trained. Larger batches would share
more environments but need more memory."""
ReadoutChoice = Literal["auto", "encoder"]
"""Readout after pre-training: ``auto`` takes that of the domain, ``encoder`` keeps it."""


class Encoder(nn.Module):
    """A network with its default embedding layer and a description of its training."""

    def __init__(
        self,
        network: GraphEncoder,
        layer: str = "jk",
        info: Mapping[str, Any] | None = None,
        extra: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Wrap a network.

        Args:
            network: The network.
            layer: Default embedding layer.
            info: Description in the model file: objective, recipe, number of graphs, and so on.
            extra: Tensors that are saved with it, such as prototypes.
        """
        super().__init__()
        self.network = network
        self.training = network.training
        self.layer = check_layer(layer)
        self.info: dict[str, Any] = dict(info or {})
        self.extra: dict[str, Tensor] = dict(extra or {})

    def _repr_html_(self) -> str:
        keys = ("name", "objective", "recipe", "graphs", "epochs")
        config = self.config
        fields: dict[str, Any] = {
            **{key: self.info.get(key) for key in keys},
            "schema": self.schema.name,
            "backbone": config.backbone,
            "layers": config.layers,
            "embedding": f"{self.layer}, {self.width()} columns",
            "parameters": sum(p.numel() for p in self.parameters()),
        }
        return html_table(fields_table(fields, "Encoder"))

    @property
    def config(self) -> EncoderConfig:
        """Settings of the network."""
        return self.network.config

    @property
    def schema(self) -> FeatureSchema:
        """The features that the network reads."""
        return self.network.schema

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return next(self.network.parameters()).device

    def head_layer(self, layer: str | None = None) -> EmbeddingLayer:
        """Return the embedding layer for models that predict labels.

        None takes ``last`` if this is the encoder's default layer, else the domain's (molecules:
        ``jk+sum``).
        """
        default = "last" if self.layer == "last" else domain_of(self.schema).head_layer
        return check_layer(layer or default)

    def width(self, layer: str | None = None) -> int:
        """Return the number of columns of an embedding."""
        return self.network.embedding_width(check_layer(layer or self.layer))

    def feature_names(
        self, layer: str | None = None, with_features: Sequence[str] = ()
    ) -> list[str]:
        """Return the names of the columns of :meth:`embed`: ``e0``, ``e1``, ..., then features.

        Raises:
            ConfigError: If a name in ``with_features`` is unknown.
        """
        domain = domain_of(self.schema)
        domain.check_feature_sets(with_features)
        added = (column for name in with_features for column in domain.feature_sets[name])
        return [*(f"e{k}" for k in range(self.width(layer))), *added]

    def forward(self, batch: GraphBatch | Any) -> Encoding:
        """Return node and graph embeddings of the final layer (Eq. 5), with gradients.

        Args:
            batch: Graphs of a store, ``store[a:b]``, or of torch_geometric: a ``Batch``, one
                ``Data``, or a list of them, whose order of graphs and nodes is kept.
        """
        if not isinstance(batch, GraphBatch):
            batch = read(batch, self.schema, on_error="fail")[:]
        elif batch.schema is not None:
            check_schema(batch.schema, self.schema)
        return self.network(batch.to(self.device))

    def embed(
        self,
        source: InputLike,
        layer: str | None = None,
        batch_size: int = 2048,
        *,
        with_features: Sequence[str] = (),
        precision: Precision = "fp32",
        progress: Progress | bool | None = None,
        **reading: Any,
    ) -> Float[np.ndarray, "M W"]:
        """Return one float32 row per input row; NaN where a molecule or graph cannot be read.

        Args:
            source: A list, array or column of SMILES, a path, the name of a data set, a store, or
                graphs of torch_geometric. At most half of the rows of a table may be unreadable.
            layer: ``jk`` (means of all layers and the log node count), ``last`` (the paper's) or
                ``jk+sum`` (``jk`` and the sums of all layers); None takes the model's own.
            batch_size: Graphs per forward pass.
            with_features: Features that need no training, as additional columns named by
                :meth:`feature_names`: ``ecfp4``, ``descriptors``; for proteins ``statistics``.
            precision: Format of matrix products; ``auto`` is bf16 where the hardware has it.
            progress: Shows the progress.
            reading: Options of ``read_molecules`` (``smiles_column``, ``workers``, ``on_error``);
                the column of SMILES is by default that of fine-tuning or probing.

        Example:
            >>> import graphlog
            >>> graphlog.load("random").embed(["CCO", "not a molecule"], layer="last").shape
            (2, 300)
        """
        self.feature_names(layer, with_features)  # refuses unknown names before reading
        return self.embed_store(
            self.graphs_of(source, reading),
            layer,
            batch_size,
            with_features=with_features,
            precision=precision,
            progress=progress,
            aligned=True,
        )

    def graphs_of(self, source: InputLike, reading: Mapping[str, Any] | None = None) -> GraphStore:
        """Return the graphs of an input, read with the options of :meth:`reading_of`."""
        resolved = resolve(source, self.schema)
        return read(resolved, self.schema, **self.reading_of(resolved, reading or {}))

    def reading_of(self, source: Input, reading: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options for reading ``source`` like the data that the model was trained on.

        The model may store the name of the SMILES column, how molecules were standardized, and how
        ego-networks were cut. A column or cutting options in ``reading`` have precedence; a stored
        column that the input lacks is ignored. If ego-networks are, or are to be, cut otherwise, a
        warning is given. Labels are not read, unless ``reading`` contains ``targets`` (None for
        all).

        Raises:
            ConfigError: If molecules are, or are to be, standardized otherwise.
        """
        reading, store = self._cut_alike(source, dict(reading)), source.store
        is_named = reading.get("smiles_column") is not None
        column = None if is_named else self.info.get("smiles_column")
        wanted = {"sheet": reading.get("sheet"), "smiles_column": column}
        if column and "smiles_column" in applicable_options(source, self.schema, wanted):
            reading["smiles_column"] = column
        if store is None and domain_of(self.schema).reads_targets:
            reading.setdefault("targets", ())
        return with_standardization(source, reading, self.info.get("standardize"), "the model")

    def _cut_alike(self, source: Input, reading: dict[str, Any]) -> dict[str, Any]:
        """Return the reading options, with those that cut ego-networks as the model's were cut."""
        wanted: dict[str, Any] = self.info.get("cutting", {})
        cutting = domain_of(self.schema).cutting_options(source)
        is_cut = bool(cutting)
        if not is_cut:
            cutting = {k: v for k, v in reading.items() if k in wanted and v is not None}
        differing = [name for name, value in cutting.items() if wanted.get(name, value) != value]
        if differing:
            theirs, ours = (
                ", ".join(f"{name} {options[name]}" for name in differing)
                for options in (cutting, wanted)
            )
            warnings.warn(
                f"{source.name}: ego-networks are cut with {theirs}, those that the model was "
                f"trained on with {ours}, so predictions may be wrong; featurize the network with "
                f"{setting('like', 'MODEL')}",
                stacklevel=4,
            )
        return reading if is_cut or source.store is not None else {**reading, **wanted, **cutting}

    def embed_store(
        self,
        store: GraphStore,
        layer: str | None = None,
        batch_size: int = 2048,
        *,
        with_features: Sequence[str] = (),
        precision: Precision = "fp32",
        progress: Progress | bool | None = None,
        aligned: bool = False,
    ) -> Float[np.ndarray, "M W"]:
        """Return one float32 row per graph; ``aligned``: per input row, NaN if it has no graph."""
        rows = store.num_output_rows if aligned else len(store)
        width = len(self.feature_names(layer, with_features))
        embeddings = np.full((rows, width), np.nan, dtype=np.float32)
        for graphs, values in self.embed_batches(
            ranges_of(store, batch_size, with_features),
            layer,
            batch_size,
            with_features=with_features,
            precision=precision,
            progress=progress,
            total=len(store),
        ):
            embeddings[store.output_rows[graphs] if aligned else graphs] = values
        return embeddings

    def embed_batches(
        self,
        parts: Iterable[tuple[Key, GraphStore]],
        layer: str | None = None,
        batch_size: int = 2048,
        *,
        with_features: Sequence[str] = (),
        function: Callable[[GraphBatch], Tensor] | None = None,
        precision: Precision = "fp32",
        progress: Progress | bool | None = None,
        total: int = 0,
    ) -> Iterator[tuple[Key, Float[np.ndarray, "B W"]]]:
        """Yield the key of each part of a collection and the embeddings of its graphs.

        Args:
            parts: Keys and graphs, such as the :func:`ranges_of` a store.
            layer: ``jk``, ``jk+sum`` or ``last``; None takes the model's own.
            batch_size: Graphs per forward pass.
            with_features: Names of additional features.
            function: Function to compute instead of the embedding; returns a row per graph.
            precision: Format of matrix products.
            progress: Shows the progress.
            total: Number of graphs in all parts, if it is known.
        """
        bar, chosen = as_progress(progress), check_layer(layer or self.layer)
        run = function or partial(self.network.embed_graphs, layer=chosen)
        number_format = inference_precision(precision, self.device, bar.say)
        work = partial(_values, run, number_format, self.device)
        with evaluating(self), bar.shown(total, "embedding"):
            for key, store, values in each_part(work, parts, self.width(chosen), batch_size, bar):
                added = [features_of(store, name) for name in with_features]
                columns = [np.asarray(features, dtype=np.float32) for features in added]
                yield key, np.concatenate([values, *columns], axis=1) if columns else values

    def save(self, path: str | Path) -> None:
        """Write a ``.safetensors`` file."""
        save_model(Path(path), self.network, {**self.info, "embedding": self.layer}, self.extra)

    @classmethod
    def read(cls, path: str | Path) -> "Encoder":
        """Read the encoder of a ``.safetensors`` file.

        Raises:
            ModelFileError: If the file is missing, damaged, no model, or of a newer format.
        """
        loaded = read_model(Path(path))
        return cls(loaded.encoder, loaded.info.get("embedding", "last"), loaded.info, loaded.extra)

    def with_readout(self, readout: ReadoutChoice = "auto") -> "Encoder":
        """Return an encoder with the same weights and the readout that its domain uses for labels.

        For proteins, this concatenates the mean over the ego-network with the embedding of its
        center. A readout has no weights. With ``encoder``, the readout does not change.
        """
        wanted = domain_of(self.schema).downstream_readout(self.config.readout)
        if readout == "encoder" or wanted == self.config.readout:
            return self
        network = with_settings(self.network, readout=wanted)
        return Encoder(network, self.layer, self.info, self.extra).train(self.training)

    def copy(self) -> "Encoder":
        """Return a copy that does not share its weights."""
        return Encoder(deepcopy(self.network), self.layer, self.info, self.extra)


def with_standardization(
    source: Input, reading: Mapping[str, Any], wanted: str | None, whose: str
) -> dict[str, Any]:
    """Return the reading options with the standardization ``wanted``; None requires none.

    ``whose`` names the model or index with that standardization, for the error.

    Raises:
        ConfigError: If the molecules were, or are to be, standardized otherwise.
    """
    store = source.store
    current = reading.get("standardize") if store is None else store.source.standardize
    if wanted is None or current == wanted:
        return dict(reading)
    if current is None and store is None:
        return {**reading, "standardize": wanted}
    how = "as they are written" if current is None else f"with {setting('standardize', current)}"
    raise ConfigError(
        f"{source.name} is read {how}; read it with {setting('standardize', wanted)}, as the "
        f"molecules of {whose} were.",
        option="standardize",
    )


def check_layer(layer: str) -> EmbeddingLayer:
    """Return ``layer`` if it is the name of an embedding layer.

    Raises:
        ConfigError: If it is not.
    """
    check_name("embedding layer", layer, get_args(EmbeddingLayer))
    return cast(EmbeddingLayer, layer)


def each_part(
    work: Callable[[GraphBatch], np.ndarray],
    parts: Iterable[tuple[Key, GraphStore]],
    width: int,
    batch_size: int,
    bar: Progress,
) -> Iterator[tuple[Key, GraphStore, np.ndarray]]:
    """Apply ``work`` to the batches of every part, and yield the part with its rows.

    ``work`` returns a row of ``width`` numbers per graph.

    Raises:
        ConfigError: If ``batch_size`` is not a whole number from 1.
    """
    if batch_size < 1 or batch_size % 1:
        raise out_of_range("batch_size", "a whole number from 1", batch_size)
    pieces = (
        ((key, store), [store[graphs] for graphs in batch_ranges(store.num_nodes, batch_size)])
        for key, store in parts
    )
    for (key, store), rows in spread_in_order(partial(_rows, work, width), pieces, 1):
        yield key, store, rows
        bar.advance(len(store))


def _rows(
    work: Callable[[GraphBatch], np.ndarray], width: int, batches: list[GraphBatch]
) -> np.ndarray:
    if not batches:
        return np.empty((0, width), dtype=np.float32)
    return np.concatenate([work(batch) for batch in batches])


def rows_per_part(batch_size: int, features: Sequence[str]) -> int:
    """Return the minimum number of rows in a part of an input."""
    return max(batch_size, _ROWS_WITH_FEATURES if features else _ROWS)


def ranges_of(
    store: GraphStore, batch_size: int, features: Sequence[str] = ()
) -> Iterator[tuple[slice, GraphStore]]:
    """Yield ranges of consecutive graphs of a store, each with a view of these graphs."""
    step = rows_per_part(batch_size, features)
    for start in range(0, len(store), step):
        graphs = np.arange(start, min(start + step, len(store)))
        yield slice(start, start + len(graphs)), store.subset(graphs)


def batch_ranges(sizes: Int[np.ndarray, "N"], batch_size: int) -> Iterator[slice]:
    """Yield ranges of consecutive graphs for batches, given the number of nodes of each graph.

    A batch has at most ``batch_size`` graphs, and fewer if they would have too many nodes.
    """
    before = np.concatenate([[0], np.cumsum(sizes)])
    start = 0
    while start < len(sizes):
        fitting = int(np.searchsorted(before, before[start] + _NODES_AT_ONCE, side="right")) - 1
        stop = min(max(fitting, start + 1), start + batch_size, len(sizes))
        yield slice(start, stop)
        start = stop


def _values(
    function: Callable[[GraphBatch], Tensor],
    number_format: NumberFormat,
    device: torch.device,
    batch: GraphBatch,
) -> Float[np.ndarray, "B W"]:
    with torch.inference_mode(), autocast(number_format, device):
        return function(batch.to(device)).float().cpu().numpy()


_evaluated: dict[nn.Module, tuple[int, bool]] = {}
"""Number of :func:`evaluating` blocks that a module is in, and its mode before the first one."""
# garbage collection inside a block may end another one of the same thread
_evaluated_lock = RLock()


@contextmanager
def evaluating(module: nn.Module) -> Generator[None]:
    """Put ``module`` into evaluation mode inside the block, and restore its mode afterwards.

    Blocks may overlap, as in several threads: the last one to end restores the mode.
    """
    modules = list(module.modules())
    with _evaluated_lock:
        for m in modules:
            blocks, mode = _evaluated.get(m, (0, m.training))
            _evaluated[m] = blocks + 1, mode
            m.training = False
    try:
        yield
    finally:
        with _evaluated_lock:
            for m in modules:
                blocks, mode = _evaluated.pop(m)
                if blocks > 1:
                    _evaluated[m] = blocks - 1, mode
                else:
                    m.training = mode


SHIPPED = Path(__file__).parents[1] / "models"
"""Folder of the models that come with the package."""
RANDOM = "random"


def list_models() -> dict[str, Path]:
    """Return the files of the models that come with the package, by name."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.safetensors"))}


def load(
    model: str | Path | Encoder,
    *,
    device: str = "cpu",
    seed: int = 0,
    source: InputLike | None = None,
) -> Encoder:
    """Return the encoder with this name or path.

    Args:
        model: A ``.safetensors`` file, a run folder, the name of a shipped model, ``random`` (the
            untrained encoder of the default recipe), or an encoder, which is returned unchanged.
        device: ``auto``, ``cpu`` or ``cuda``.
        seed: Seed of the initial weights of ``random``.
        source: Input that the encoder will be used on; ``random`` takes its schema, if it has one.

    Raises:
        ModelFileError: If the file or folder exists but contains no usable model.
        ConfigError: If there is no model with this name.
    """
    if isinstance(model, Encoder):
        return model
    if str(model) != RANDOM:
        return Encoder.read(model_path(model, others=(RANDOM,))).to(choose_device(device))
    default, graphs = schema_named(DEFAULT_SCHEMA), None
    resolved = None if source is None else resolve(source)
    if resolved and (resolved.store is not None or resolved.domain not in (None, default.domain)):
        graphs = read(resolved)
        if graphs.schema == default:  # then the network does not depend on the graphs
            graphs = None
    return random_encoder(seed=seed, graphs=graphs).to(choose_device(device))


def convert(old: str | Path, path: str | Path) -> Encoder:
    """Convert a checkpoint of pre-train-GNNs (chemistry or biology) without running its code.

    Args:
        old: The ``.pth`` file.
        path: The ``.safetensors`` file.

    Raises:
        ConfigError: If ``path`` is the same file as ``old``.
        ModelFileError: If ``old`` is not such a checkpoint.
    """
    old, path = Path(old), Path(path)
    if path.exists() and old.exists() and path.samefile(old):
        raise ConfigError(f"{path} is the checkpoint itself and would be lost; name another file.")
    converted = convert_pth(old)
    save_model(path, converted.encoder, converted.info, converted.extra)
    return load(path)


def model_path(model: str | Path, has_head: bool = False, others: Sequence[str] = ()) -> Path:
    """Return the ``.safetensors`` file for a path or name; ``has_head`` requires a prediction head.

    ``others`` are names without a file to suggest if the name is unknown.

    Raises:
        ModelFileError: If it is a file or folder without a model.
        ConfigError: If there is no model with this name (a similar one is suggested), or it is
            ``random``.
    """
    try:
        path = Path(model)
    except TypeError:
        raise ConfigError(
            "a model is a file, a run folder, the name of a shipped model or what was loaded of "
            f"one, found {type(model).__name__}."
        ) from None
    if os.path.isdir(path):
        if (path / "model.safetensors").is_file():
            return path / "model.safetensors"
        advice = "Name a run folder or a model file."
        kind = folder_kind(path)
        if kind == "search":
            advice = f"It is of tune; name the run in it: {path / 'best'}."
        elif is_in_use(path):
            advice = "It is being written; wait for the run to end."
        elif kind == "probe":
            advice = f"It was interrupted; probe again with {setting('overwrite', True)}."
        elif kind in RUNS and (path / "config.toml").is_file():
            advice = f"It was interrupted; continue it with {setting('resume', True)}."
        raise ModelFileError(
            f"{path} holds no model.safetensors: it is not a finished run folder. {advice}"
        )
    if os.path.isfile(path):
        if path.suffix in {".pth", ".pt"}:
            raise ModelFileError(
                f"{path} is an old checkpoint; convert it first: graphlog convert {path} "
                f"-o {path.stem}.safetensors"
            )
        return path
    shipped = list_models()
    if str(model) in shipped:
        return shipped[str(model)]
    if str(model) == RANDOM:
        raise ConfigError(
            f"'{RANDOM}' is an untrained encoder, without a file to describe or a head to predict "
            f"with; train one first: graphlog finetune INPUT -m {RANDOM} -o RUN"
        )
    if path.suffix or len(path.parts) > 1:
        message = f"no such model file or run folder: {path}{_nearest_file(path)}"
        raise ModelFileError(message, option="model", file=path)
    names = [] if has_head else [*shipped, *others]
    near = get_close_matches(str(model), names, n=1, cutoff=0.5)
    if not near and (file := _nearest_file(path)).startswith("; did"):
        raise ConfigError(f"unknown model '{model}'{file}", option="model")
    if has_head:
        raise ConfigError(
            f"unknown model '{model}'; name a run folder or file of fine-tuning or probing.",
            option="model",
        )
    raise unknown_name("model", str(model), names, "model")


def random_encoder(
    config: EncoderConfig | Mapping[str, Any] | None = None,
    schema: FeatureSchema | str | None = None,
    *,
    layer: str | None = None,
    seed: int = 0,
    graphs: GraphStore | None = None,
) -> Encoder:
    """Return an untrained encoder whose batch norms have the statistics of real graphs.

    Otherwise an untrained network would be scored with the initial statistics, 0 and 1.

    Args:
        config: Settings of the network, an object or a dictionary; None takes the defaults.
        schema: Features to read, or their name; None: those of ``graphs``, or ``molecule-cip``.
        layer: Default embedding layer; None takes ``jk``.
        seed: Seed of the initial weights and of the sample of graphs.
        graphs: Unlabeled graphs to compute the statistics of; None takes bundled molecules.
    """
    check_default_device()
    if isinstance(config, FeatureSchema):
        raise ConfigError(
            "`config` is for settings of the network; give a schema as `schema=`.", option="config"
        )
    if not isinstance(config, EncoderConfig):
        config = EncoderConfig.parse(config or {})
    if schema is None and graphs is not None:
        schema = graphs.schema
    if not isinstance(schema, FeatureSchema):
        schema = schema_named(schema or DEFAULT_SCHEMA)
    if graphs is not None and graphs.schema != schema:
        raise ConfigError(
            f"the graphs have schema '{graphs.schema.name}', the encoder is to read "
            f"'{schema.name}'; name the same.",
            option="schema",
        )
    seed = check_seed("seed", seed)
    network = build_encoder(
        config, schema, torch.Generator().manual_seed(seed_for(seed, "encoder"))
    )
    if graphs is None:
        graphs = bundled_graphs(schema)
    if graphs is None:
        raise ConfigError(
            f"an untrained encoder of schema '{schema.name}' needs graphs to take its statistics "
            "from."
        )
    calibrate(network, graphs, seed)
    network.eval()
    return Encoder(network, layer or "jk", {"name": RANDOM, "seed": seed})


@lru_cache(maxsize=4)
def bundled_graphs(schema: FeatureSchema) -> GraphStore | None:
    """Return the graphs that come with the package for batch norm; None if there are none."""
    return domain_of(schema).calibration_graphs(schema, BATCHES * BATCH_SIZE)


def untrained_like(
    encoder: Encoder, train_graphs: GraphStore, seed: int, layer: str | None = None
) -> Encoder:
    """Return an untrained encoder with the same settings, on the same device, for comparison.

    A pre-trained encoder has the batch norm statistics of its pre-training data, which are not
    available here. The statistics of the untrained one are therefore those of the graphs that come
    with the package, not of the labeled data it is scored on; :func:`statistics_note` says so. If
    there are none of this schema, they are those of ``train_graphs``.
    """
    graphs = bundled_graphs(encoder.schema)
    untrained = random_encoder(
        encoder.config,
        encoder.schema,
        layer=layer or encoder.layer,
        seed=seed,
        graphs=train_graphs if graphs is None else graphs,
    )
    return untrained.to(encoder.device)


def statistics_note(encoder: Encoder) -> str:
    """Return a note for reports: which graphs the statistics of :func:`untrained_like` are of."""
    graphs = bundled_graphs(encoder.schema)
    source = (
        "the unlabeled graphs of the training set"
        if graphs is None
        else f"{len(graphs):,} unlabeled graphs that come with the package"
    )
    return f"the batch norms of the untrained encoder use statistics of {source}"


def _nearest_file(path: Path) -> str:
    """Return the end of an error message: the model or folder whose name is similar to ``path``."""
    paths = path.parent.iterdir() if path.parent.is_dir() else []
    siblings = [p.name for p in paths if p.suffix == ".safetensors" or p.is_dir()]
    near = get_close_matches(path.name, siblings, n=1, cutoff=0.6)
    return f"; did you mean {path.parent / near[0]}?" if near else "; check the path."
