"""The public functions; each command of the command line calls one of them and prints."""

import os
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from graphlog.config import merge
from graphlog.data.graphs import FeatureSchema, Reject, save_rejects, write_rejects
from graphlog.data.manifest import is_store
from graphlog.data.store import GraphStore, check_free, open_store
from graphlog.data.tables import ColumnNames
from graphlog.data.workers import device_for, using
from graphlog.domains import DEFAULT_SCHEMA, Input, domain_of, schema_named
from graphlog.downstream.predictor import Predictor
from graphlog.downstream.pretrained import Encoder, load, rows_per_part
from graphlog.downstream.writers import (
    Results,
    Written,
    check_rejects,
    choose_format,
    write_aligned,
)
from graphlog.errors import ConfigError, setting
from graphlog.inputs import (
    InputLike,
    domain_name,
    note_salts,
    read,
    reiterable,
    remember_input,
    rereadable,
    resolve,
    rows_of,
    schema_for,
    stream,
)
from graphlog.processes import is_first
from graphlog.training.log import Callback, Progress, as_progress, check_callbacks
from graphlog.training.pretrain import run_pretraining
from graphlog.training.runfolder import check_usable
from graphlog.training.settings import (
    Precision,
    PretrainConfig,
    read_config,
    resolve_config,
    settings_tables,
)

Model = str | Path | Encoder
"""An encoder, or its name or path for :func:`load`."""


def read_molecules(
    source: InputLike,
    *,
    schema: str | FeatureSchema | None = None,
    targets: ColumnNames | None = None,
    **options: Any,
) -> GraphStore:
    """Read molecules into a graph store; its ``rejects`` are the rows that cannot be read.

    Args:
        source: A table (CSV, TSV, SMILES list, Parquet, Excel), SDF file, ``-`` (standard input),
            the name of a data set, a store folder, SMILES or RDKit molecules, or a data frame.
        schema: ``molecule-cip`` (default), ``molecule``, ``molecule-rich``, ``molecule-isotopes``.
        targets: Columns of labels; ``auto`` uses all numeric ones, None those of a data set.
        options: ``smiles_column``, ``sheet``, ``decimal``, ``standardize``, ``exclude``,
            ``on_error``, ``workers``, ``store_path``, ``overwrite``, ``progress``,
            ``keep_texts``, ``limit`` and ``data_dir``, as for
            :class:`graphlog.domains.molecule.domain.MoleculeReading`.

    Raises:
        DataError: If the source or a label cannot be read, or most rows of a table are bad.
        ConfigError: If a name or an option is invalid.

    Example:
        >>> read_molecules(["CCO", "C1CC"], schema="molecule").rejects[0].reason
        'RDKit cannot parse: unclosed ring'
    """
    resolved = resolve(source)
    if resolved.store is not None and schema is None:
        return read(resolved, **options)
    if not isinstance(schema, FeatureSchema):
        schema = schema_named(schema or DEFAULT_SCHEMA)
    return read(resolved, schema, domain="molecule", targets=targets, **options)


def read_graphs(
    source: InputLike, *, schema: FeatureSchema | GraphStore | None = None, **options: Any
) -> GraphStore:
    """Read graphs of any kind into a store; its ``rejects`` are the graphs that cannot be used.

    Args:
        source: A folder of ``edges.csv``, ``nodes.csv`` and ``graphs.csv``; a ``.jsonl`` file with
            one graph per line; a folder or zip file of TUDataset; a text file of the GIN family;
            the name of a data set (``mutag``); or a store.
        schema: Schema of the attributes, such as that of a model, or another store, whose numbers
            of classes are used too; None infers it.
        options: ``kinds``, ``directed``, ``on_error``, ``store_path``, ``progress``, ``limit`` and
            ``data_dir``, as for :class:`graphlog.domains.graph.domain.GraphReading`.

    Raises:
        DataError: If the input, or most of its graphs, cannot be read.
        ConfigError: If an option is invalid.
    """
    if isinstance(schema, GraphStore):
        return read(source, schema.schema, domain="graph", like=schema, **options)
    return read(source, schema, domain="graph", **options)


def read_proteins(source: str | Path | Sequence[str | Path], **options: Any) -> GraphStore:
    """Read the ego-network of every protein of a data set (``worm-go40``) or of network files.

    Args:
        source: Name of a data set or network, network files (one per species), or their folder.
        options: ``annotations``, ``go``, ``aliases``, ``labels``, ``species``, ``on_error``,
            ``limit`` and others, as for :class:`graphlog.domains.protein.reading.ProteinReading`.

    Raises:
        DataError: If a file cannot be read.
        ConfigError: If an option is unknown or does not apply.
    """
    is_single = isinstance(source, str | Path)
    networks = source if is_single else Input(name=f"{len(source)} networks", records=source)
    return read(networks, domain="protein", **options)


def featurize(
    source: InputLike,
    output: str | Path,
    *,
    domain: str | None = None,
    schema: str | None = None,
    like: Model | GraphStore | None = None,
    overwrite: bool = False,
    engine: str = "local",
    **options: Any,
) -> GraphStore:
    """Read any input into a store folder; ``rejects.csv`` next to it lists the rejected rows.

    Args:
        source: See :data:`graphlog.inputs.InputLike`; of proteins also several files, ``"a,b"``.
        output: The store folder.
        domain: ``molecule``, ``protein`` or ``graph``; None uses that of the input.
        schema: Name of a predefined schema; None uses that of the default recipe, or infers one.
        like: Model or store whose schema to use instead.
        overwrite: Whether to replace a store at ``output``.
        engine: ``local`` or ``ray``; see :func:`graphlog.data.workers.using`.
        options: Options of the reader of the domain, such as ``smiles_column`` or ``radius``.

    Raises:
        ConfigError: If ``output`` exists, or an option does not apply.
        DataError: If the input cannot be read.
    """
    output = Path(output)
    if not overwrite:
        check_free(output)
    folder = output.absolute().parent
    check_rejects(folder, output.name, source)
    chosen = None if schema is None else schema_named(schema)
    names = source.split(",") if isinstance(source, str) and not os.path.exists(source) else []
    if len(names) > 1 and (domain or (chosen and chosen.domain)) == "protein":
        resolved = Input(name=str(source), domain="protein", records=[n.strip() for n in names])
    else:
        resolved = resolve(source)
    if like is not None:
        if schema is not None:
            raise ConfigError(
                f"{setting('like')} and {setting('schema')} both choose the features; drop one.",
                option="schema",
            )
        if isinstance(like, str | Path) and is_store(like):
            like = open_store(like)
        model = like if isinstance(like, GraphStore) else load(like)
        chosen = model.schema
        if isinstance(model, GraphStore):
            cutting = domain_of(chosen).cutting_options(model)
            options |= {"like": model} if chosen.domain == "graph" else {}
        else:
            cutting = model.info.get("cutting", {})
        default = domain_of(chosen).cutting_options(resolved)
        changed = {name: value for name, value in cutting.items() if default.get(name) != value}
        options = {**changed, **{name: v for name, v in options.items() if v is not None}}
    elif chosen is None and domain in (None, schema_named(DEFAULT_SCHEMA).domain):
        chosen = schema_for(resolved, DEFAULT_SCHEMA)
    is_open = domain is None and like is None and schema is None
    options |= {"domain": domain, "store_path": output, "overwrite": overwrite}
    with using(engine):
        graphs = read(resolved, chosen, domain_is_open=is_open, **options)
    unmatched = enumerate(graphs.source.unmatched.items(), start=graphs.num_rows)
    others = (Reject(row, text, reason) for row, (text, reason) in unmatched)
    write_rejects(folder, chain(graphs.iter_rejects(), others), output.name)
    return graphs


@torch.inference_mode(mode=False)  # training needs gradients, also if the caller does not
def pretrain(
    source: InputLike,
    objective: str | None = None,
    recipe: str | None = None,
    *,
    seed: int | None = None,
    run_dir: str | Path | None = None,
    init: Model | None = None,
    resume: bool = False,
    overwrite: bool = False,
    config: PretrainConfig | Mapping[str, Any] | str | Path | None = None,
    progress: Progress | bool | None = None,
    callbacks: Sequence[Callback | str] | Callback = (),
    reading: Mapping[str, Any] | None = None,
    **overrides: Any,
) -> Encoder:
    """Train an encoder on graphs without labels.

    Args:
        source: A store, a path, the name of a data set, or a list of SMILES.
        objective: Name of the pretext task; by default that of ``config``, or ``graphlog``.
        recipe: Name of predefined settings. The default for molecules predicts descriptors and
            substructures; ``graphlog`` trains the losses of GraphLoG.
        seed: Seed of initial weights, order, masks and samples; by default that of ``config``, or
            0.
        run_dir: Folder for log, checkpoints and model; None keeps everything in memory.
        init: Encoder to start from, which is copied; its network settings replace the default ones.
            It has no effect on a run that is resumed.
        resume: Whether to continue from the last checkpoint in ``run_dir``, with its settings.
        overwrite: Whether to replace the run in ``run_dir``.
        config: Settings to start from: an object, nested tables, or a TOML file.
        progress: Progress display; True shows a bar.
        callbacks: Objects whose method ``on_row(row)`` receives every row of the log;
            ``tensorboard``, ``wandb`` or ``mlflow`` by name.
        reading: Options of ``read_molecules`` (``smiles_column``, ``workers``, ``limit``, ...).
        overrides: Any setting: ``epochs=3``, ``encoder={"dim": 64}``, or ``**{"encoder.dim": 64}``.

    Returns:
        The trained encoder, in evaluation mode.

    Example:
        >>> small = {"dim": 8, "layers": 2}
        >>> pretrain(["CCO", "CCN", "c1ccccc1"], epochs=2, batch_size=2, encoder=small).config.dim
        8
    """
    folder = None if run_dir is None else Path(run_dir)
    checked: Sequence[Callback | str] = ()
    if is_first():  # before the input is read, which may take a long time
        checked = check_callbacks(callbacks)
        if folder is not None:
            check_usable(folder, "pretrain", resume, overwrite, init)
    progress = as_progress(progress)
    origin = config if isinstance(config, str | Path) else setting("config")
    if resume and folder is not None and (folder / "config.toml").is_file():
        if init is not None:
            init = None
            progress.say(f"{setting('init')} has no effect: the run in {folder} is continued")
        if config is None:
            origin = folder / "config.toml"
            config = read_config(origin)
    tables = settings_tables(config)
    for name, given, configured in (
        ("objective", objective, tables["objective"].get("name")),
        ("recipe", recipe, tables.get("recipe")),
    ):
        if given is not None and configured not in (None, given):
            raise ConfigError(
                f"{setting(name, given)} contradicts {origin}, which says {configured!r}; "
                "drop one.",
                option=name,
            )
    resolved = resolve(source)
    start = None if init is None else load(init).copy()
    defaults = {} if start is None else {"encoder": start.config.model_dump()}
    changes = overrides if seed is None else {**overrides, "seed": seed}
    tables, backbone = merge(defaults, tables), settings_tables(changes)["encoder"].get("backbone")
    if backbone not in (None, tables.get("encoder", {}).get("backbone", "gin")):
        tables["encoder"].pop("layer", None)  # these settings are for the other backbone
    tables = merge(tables, changes)
    settings = resolve_config(
        objective, recipe, tables, domain_name(resolved, tables.get("schema"))
    )
    options: dict[str, Any] = dict(reading or {})
    if resolved.path is not None:
        options.setdefault("progress", progress)
    if "schema" in overrides:  # not that of a config file, which may be the input's own schema
        schema_named(overrides["schema"])
    schema = schema_for(resolved, settings.schema) if start is None else start.schema
    store = read(resolved, None if resolved.store is not None else schema, **options)
    if tables.get("schema") not in (None, store.schema.name):
        progress.say(
            f"the settings say schema '{settings.schema}', the data have '{store.schema.name}'. "
            "Using the data's schema"
        )
    if resolved.store is None:
        rejected = f"{len(store.rejects):,} of {store.num_rows:,} rows rejected"
        progress.say(f"read {len(store):,} graphs from {resolved.name}; {rejected}")

    def describe(run: Path) -> None:
        remember_input(run, resolved, **options)
        save_rejects(run, store.rejects, run.name)

    result = run_pretraining(
        store,
        settings,
        folder,
        init=None if start is None else start.network,
        progress=progress,
        callbacks=checked,
        resume=resume,
        overwrite=overwrite,
        describe=describe,
    )
    return Encoder(
        result.encoder, result.info.get("embedding", settings.embedding), result.info, result.extra
    )


def embed(
    encoder: Model,
    source: InputLike,
    layer: str | None = None,
    engine: str = "local",
    **options: Any,
) -> Float[np.ndarray, "M W"]:
    """Return one float32 embedding per input row; NaN where a row cannot be read.

    Args:
        encoder: An encoder, a model file, a run folder, the name of a shipped model, or ``random``.
        source: A list of SMILES, a path, the name of a data set, a store, or graphs of
            torch_geometric.
        layer: ``jk``, ``jk+sum`` or ``last``; None uses that of the model.
        engine: ``local`` or ``ray``; see :func:`graphlog.data.workers.using`.
        options: Other arguments of :meth:`~graphlog.downstream.pretrained.Encoder.embed`, such as
            ``with_features`` and ``smiles_column``.

    Raises:
        DataError: If the source cannot be read, or more than half of the rows of a table are bad.
        ConfigError: If a model or an option is unknown.
        ModelFileError: If the model cannot be read.
    """
    source = reiterable(source)
    model = load(encoder, source=source)
    with using(engine, model.device.type):
        return model.embed(source, layer, **options)


def embed_file(
    encoder: Model,
    source: InputLike,
    out: str | Path,
    *,
    layer: str | None = None,
    with_features: Sequence[str] = (),
    batch_size: int = 2048,
    precision: Precision = "fp32",
    device: str = "cpu",
    engine: str = "local",
    progress: Progress | None = None,
    format: str | None = None,
    **reading: Any,
) -> Written:
    """Write the embeddings of ``source`` to the file ``out``, atomically and in bounded memory.

    Tables (``.csv``, ``.jsonl``, ``.parquet``, ``.sdf``) hold the columns of the input, the
    embedding and ``graphlog_status``. In CSV, the embedding has a column ``e0``, ``e1``, ... per
    dimension; in the others it is one cell ``embedding``, unless features are added. ``.npz`` holds
    ``embeddings`` (float32, one row per input row), ``names``, ``status``, ``row`` and the columns
    of the input; ``.npy`` only the array.

    Args:
        encoder: An encoder, a model file, a run folder, the name of a shipped model, or ``random``.
        source: A path, the name of a data set, a store, or a list of SMILES.
        out: The file; its extension decides the format. ``-`` is standard output.
        layer: ``jk``, ``jk+sum`` or ``last``; None uses that of the model.
        with_features: Additional features in columns of their names, as for
            :meth:`~graphlog.downstream.pretrained.Encoder.embed`.
        batch_size: Number of graphs per forward pass.
        precision: Number format of matrix products.
        device: Device for an encoder that is loaded: ``auto``, ``cpu`` or ``cuda``.
        engine: ``local`` or ``ray``; see :func:`graphlog.data.workers.using`.
        progress: Progress display.
        format: ``csv``, ``jsonl``, ``parquet``, ``npz``, ``npy`` or ``sdf``; None: by extension.
        reading: Options of the reader (``smiles_column``, ``on_error``, ...); the column of SMILES
            is by default that of fine-tuning or probing.

    Raises:
        ConfigError: If the extension of ``out`` is unknown.
        DataError: If the source cannot be read.
    """
    source, out = reiterable(source), Path(out)
    model = load(encoder, device=device_for(engine, device), source=source)
    names = model.feature_names(layer, with_features)
    resolved = resolve(source, model.schema)
    chosen = choose_format(out, format, resolved)  # before standard input is copied
    bar = as_progress(progress)
    with using(engine, model.device.type), rereadable(resolved) as readable:
        options = model.reading_of(readable, reading)
        at_once = rows_per_part(batch_size, with_features)
        with stream(readable, model.schema, at_once, **options) as parts:
            embedded = model.embed_batches(
                note_salts(parts, bar.say),
                layer,
                batch_size,
                with_features=with_features,
                precision=precision,
                progress=bar,
                total=rows_of(readable, reading.get("limit")),
            )
            results = Results(
                ((part, part.aligned(values)) for part, values in embedded),
                names,
                "embeddings",
                None if with_features else "embedding",
            )
            about = {"width": len(names), "layer": layer or model.layer}
            return write_aligned(results, readable, model.schema, out, chosen, **about)


def predict(
    predictor: str | Path | Predictor, source: InputLike, engine: str = "local", **options: Any
) -> Any:
    """Return one prediction per input row and target; NaN where a row cannot be read.

    Predictions are probabilities (classification) or values in the unit of the labels (regression),
    as an array of shape (rows, targets), or as a data frame if the source is one.

    Args:
        predictor: A predictor, or a run folder of fine-tuning or probing.
        source: A list of SMILES, a path, the name of a data set, a store, or a data frame.
        engine: ``local`` or ``ray``; see :func:`graphlog.data.workers.using`.
        options: Other arguments of :meth:`~graphlog.downstream.predictor.Predictor.predict`, such
            as ``batch_size`` and ``smiles_column``.

    Raises:
        DataError: If the source cannot be read, or more than half of the rows of a table are bad.
        ModelFileError: If the predictor cannot be read.
    """
    model = load_predictor(predictor)
    with using(engine, model.device.type):
        return model.predict(source, **options)


def predict_file(
    predictor: str | Path | Predictor,
    source: InputLike,
    out: str | Path,
    *,
    device: str = "cpu",
    engine: str = "local",
    **options: Any,
) -> Written:
    """Write the columns of the input and the predictions of each row to a file.

    Args:
        predictor: A predictor, or a run folder of fine-tuning or probing.
        source: A path, ``-``, the name of a data set, a store, or a list of SMILES.
        out: The file; its extension decides the format. ``-`` is standard output.
        device: Device for a predictor that is loaded: ``auto``, ``cpu`` or ``cuda``.
        engine: ``local`` or ``ray``; see :func:`graphlog.data.workers.using`.
        options: Other arguments of :meth:`~graphlog.downstream.predictor.Predictor.predict_file`,
            such as ``interval`` and ``format``.

    Raises:
        ConfigError: If the extension of ``out`` is unknown, or intervals are not available.
        DataError: If the source cannot be read, or more than half of the rows of a table are bad.
    """
    model = load_predictor(predictor, device_for(engine, device))
    with using(engine, model.device.type):
        return model.predict_file(source, Path(out), **options)


def load_predictor(predictor: str | Path | Predictor, device: str = "cpu") -> Predictor:
    """Load a predictor.

    Args:
        predictor: A run folder of fine-tuning or probing, its ``model.safetensors``, or a
            predictor, which is returned unchanged.
        device: ``auto``, ``cpu`` or ``cuda``.

    Raises:
        ModelFileError: If the file or folder contains no usable predictor.
        ConfigError: If an encoder is given, which has no head.
    """
    if isinstance(predictor, Encoder):
        raise ConfigError("an encoder has no head to predict with; train one: graphlog.finetune.")
    return predictor if isinstance(predictor, Predictor) else Predictor.load(predictor, device)
