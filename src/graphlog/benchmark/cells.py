"""The cells (units of work) of a benchmark, planned from ``suites.toml``, and their settings."""

import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

from graphlog.config import FrozenConfig
from graphlog.data.manifest import is_store
from graphlog.data.store import open_store
from graphlog.data.tables import listed
from graphlog.datasets import DATASETS, find_spec
from graphlog.domains import schema_named
from graphlog.domains.molecule.scaffolds import SPLITS as MOLECULE_SPLITS
from graphlog.domains.protein.domain import SPLITS as PROTEIN_SPLITS
from graphlog.downstream.finetune import FinetuneConfig
from graphlog.downstream.linear import MANY_TASKS
from graphlog.downstream.pretrained import list_models, load, model_path
from graphlog.downstream.report import Model
from graphlog.encoders import LAYERS
from graphlog.encoders.encoder import EmbeddingLayer
from graphlog.errors import ConfigError, check_name, check_seeds, setting
from graphlog.files import hash_file, hash_json
from graphlog.objectives import OBJECTIVES
from graphlog.training.settings import PretrainConfig, resolve_config

REFERENCE, UNTRAINED, FOREST, LINEAR, GIN = "graphlog", "untrained", "ecfp-rf", "ecfp-lr", "gin"
BASELINES = (FOREST, LINEAR)
"""Baselines without an encoder: fingerprints; for proteins, statistics of the ego-network."""
FEATURES = ("ecfp4", "descriptors")
"""Features of molecules that suites with several heads compare with embeddings."""
STAGES = ("pretrain", "finetune", "probe", "map", "speed")
LOSSES = {"subgraph": "L_sub", "graph": "L_graph", "global": "L_global"}
"""The three losses of GraphLoG and their symbols in the paper."""
_WITHOUT_EFFECT = {"checkpoint_every_s", "log_every", "watch_every", "device"}
"""Settings that do not change the outcome of a cell."""
_SPLITS: Mapping[str, Collection[str]] = {"molecule": MOLECULE_SPLITS, "protein": PROTEIN_SPLITS}


class Suite(FrozenConfig):
    """The rows and columns that a table or figure compares; see also the top of ``suites.toml``."""

    title: str
    domains: tuple[str, ...] = ("molecule", "protein")
    """Domains that the suite can be computed for, the default first."""
    stages: tuple[str, ...]
    methods: tuple[str, ...] = ()
    """Names for :func:`method_named`; empty in a suite of speed: every objective."""
    backbones: tuple[str, ...] = (GIN,)
    vary: tuple[Literal["losses", "depth", "batch_size"], ...] = ()
    """Settings of GraphLoG that the suite varies."""
    losses: tuple[str, ...] = ()
    """Values of the varied setting ``losses``: the losses that remain, joined by ``+``."""
    few: bool = False
    """Whether the encoders, which are many, are probed on the data sets ``few`` of the scale."""
    reference: str = REFERENCE
    """Row that the others are compared with; empty for none."""
    heads: tuple[Model, ...] = ()
    """Models that are fitted to the features; empty: a linear model or that of the method."""
    metrics: tuple[str, ...] = ()
    """Metrics with a table each, which has a row per head and the data sets whose task has the
    metric; empty: the usual metric of each data set."""
    paper: str = ""
    """Table of ``paper.toml`` with the same rows; empty for none."""
    model: str = ""
    """Shipped model whose schema and network untrained encoders have; empty: those of the scale.
    Only a suite with such a model also takes model files as methods."""
    layer: EmbeddingLayer = "last"
    """Embedding that is probed."""
    datasets: tuple[str, ...] = ()
    """Labeled data sets; empty: those of the scale."""
    splits: tuple[str, ...] = ("",)
    """Kinds of split of the labeled data sets: ``given`` for the column ``split``, an empty text
    for the default of each data set."""


class Setup(FrozenConfig):
    """Settings that all cells of one domain share at one scale, so that only methods differ."""

    seeds: tuple[int, ...]
    """Seeds of pre-training; fine-tuning uses the seed of its pre-training."""
    features: str
    """Schema of the graphs."""
    source: str
    """Data set to pre-train on, or the folder of a graph store."""
    limit: int | None = None
    """Number of rows of ``source`` that are used, from the first; None: all."""
    pretrain: dict[str, Any]
    finetune: dict[str, Any]
    """Settings of fine-tuning beyond the paper's protocol."""
    finetuned: tuple[str, ...]
    """Data sets for fine-tuning."""
    probed: tuple[str, ...]
    """Data sets for probing."""
    few: tuple[str, ...] = ()
    """Data sets for probing in suites with many encoders; empty: ``probed``."""
    forested: tuple[str, ...] = ()
    """Data sets small enough for a random forest on fingerprints; empty: all."""
    depth: tuple[int, ...]
    """Values of the varied setting ``depth``."""
    batch_size: tuple[int, ...]
    """Values of the varied setting ``batch_size``."""
    mapped: int
    """Number of graphs on the maps of Figure 4."""
    timed_steps: int
    """Number of steps of each timed objective."""


def _read_toml(name: str) -> dict[str, Any]:
    return tomllib.loads(files("graphlog.benchmark").joinpath(name).read_text(encoding="utf-8"))


PAPER = _read_toml("paper.toml")
"""Results of the paper."""
_TABLES = _read_toml("suites.toml")
SUITES = {name: Suite.parse(table, f"{name}.") for name, table in _TABLES["suites"].items()}
"""All suites by name."""
SCALES: dict[str, dict[str, Setup]] = {
    scale: {domain: Setup.parse(table, f"{scale}.{domain}.") for domain, table in domains.items()}
    for scale, domains in _TABLES["scales"].items()
}
"""Shared settings of cells, by scale and domain."""


class Method(NamedTuple):
    """One row of a table."""

    name: str
    """Name that the user types."""
    kind: Literal["pretrained", "saved", "untrained", "features"]
    """Origin of the encoder: ``saved`` reads it from a file, ``features`` has none."""
    objective: str | None = None
    """Pretext task of a pre-trained encoder."""
    recipe: str | None = None
    """Recipe of its options of the objective; encoder and training are those of the scale."""


def method_named(name: str) -> Method:
    """Return a method by its name.

    It is ``untrained``, fingerprints, a shipped model, an objective, or ``graphlog-<recipe>``;
    otherwise a model file or run folder.

    Raises:
        ConfigError: If no method or file has that name; the nearest name is suggested.
        ModelFileError: If it is a path without a model.

    Example:
        >>> method_named("graphlog-paper").recipe
        'paper'
    """
    methods = {UNTRAINED: Method(UNTRAINED, "untrained")}
    methods |= {features: Method(features, "features") for features in (*BASELINES, *FEATURES)}
    methods |= {model: Method(model, "saved") for model in list_models()}
    methods |= {task: Method(task, "pretrained", task, "default") for task in OBJECTIVES}
    for recipe in OBJECTIVES[REFERENCE].RECIPES:  # the method `graphlog` has the recipe `graphlog`
        method = REFERENCE if recipe == REFERENCE else f"{REFERENCE}-{recipe}"
        methods[method] = Method(method, "pretrained", REFERENCE, recipe)
    if name not in methods:
        with suppress(ConfigError):  # it names no file either
            model_path(name)
            return Method(name, "saved")
    check_name("method", name, methods)
    return methods[name]


@dataclass(frozen=True, slots=True)
class Request:
    """A suite and the selected part of it; None selects the default of the suite or scale."""

    suite: str
    """Name of the table or figure."""
    scale: str = "small"
    """Size of the work: ``smoke``, ``small`` or ``paper``."""
    methods: Sequence[str] | None = None
    datasets: Sequence[str] | None = None
    """Labeled data sets to evaluate on."""
    seeds: Sequence[int] | None = None
    backbones: Sequence[str] | None = None
    domain: str | None = None
    """``molecule`` or ``protein``, for suites that can be computed for both."""
    stages: Sequence[str] | None = None
    """Stages to compute, of :data:`STAGES`."""
    source: str | None = None
    """Data set or graph store to pre-train on, in full."""
    split: str | None = None
    """Kind of split of the labeled data sets."""
    device: str = "auto"
    precision: str = "auto"


@dataclass(frozen=True)
class Cell:
    """One unit of work; cells with the same :attr:`hash` have the same outcome."""

    request: Request
    domain: str
    setup: Setup
    method: Method
    stage: str = ""
    backbone: str = ""
    """Backbone of the encoder; empty without an encoder."""
    seed: int | None = None
    """Random seed; None if nothing is random."""
    variant: str = ""
    """Varied setting, such as ``depth=3``; empty in most suites."""
    dataset: str = ""
    """Labeled data set; empty for none."""
    split: str = ""
    """Kind of split of the data set; empty: its default."""
    share: float = 1.0
    """Share of the pre-training graphs that the encoder is trained on."""
    pretraining: PretrainConfig | None = None
    """Settings of the encoder and of its pre-training, if it is trained."""
    together: Mapping[str, PretrainConfig] = field(default_factory=dict[str, PretrainConfig])
    """Settings of the methods that are timed in turns, by name; empty in other stages."""

    @property
    def suite(self) -> Suite:
        """Suite of the cell."""
        return SUITES[self.request.suite]

    @property
    def table(self) -> str:
        """Name of the table for the rows of the cell; each domain has its own table."""
        is_default = self.domain == self.suite.domains[0]
        return self.request.suite if is_default else f"{self.request.suite}-{self.domain}"

    @property
    def labels(self) -> dict[str, str]:
        """Values of label columns that identify the rows of the cell in the table."""
        labels = {
            "scale": self.request.scale,
            "stage": self.stage,
            "method": self.method.name,
            "backbone": self.backbone,
            "variant": self.variant,
            "dataset": self.dataset,
            "seed": "" if self.seed is None else str(self.seed),
            "split": self.split,
        }
        if self.stage == "speed":  # it has rows of several methods
            del labels["method"]
        return labels

    @property
    def title(self) -> str:
        """Name of the cell in messages."""
        seed = "" if self.seed is None else f"seed {self.seed}"
        method = f"{len(self.together)} methods" if self.together else self.method.name
        words = (self.stage, method, self.backbone, self.variant, self.dataset, self.split, seed)
        return " ".join(word for word in words if word)

    @property
    def config(self) -> PretrainConfig:
        """Settings of the encoder; the cell must have one."""
        assert self.pretraining is not None
        return self.pretraining

    @property
    def finetuning(self) -> FinetuneConfig:
        """Settings of fine-tuning."""
        request = self.request
        precision = "fp32" if request.precision == "auto" else request.precision
        computing = {"device": request.device, "precision": precision}
        return FinetuneConfig.parse({"protocol": "paper", **self.setup.finetune, **computing})

    @cached_property
    def origin(self) -> dict[str, Any]:
        """Settings that determine the encoder and the graphs that it is calibrated on."""
        if self.pretraining is None:
            return {}
        source: dict[str, Any] = {**identity(self.setup.source), "limit": self.setup.limit}
        if self.method.kind == "saved":
            return {"source": source, "model": hash_file(model_path(self.method.name))}
        config = self.pretraining
        if self.method.kind == "untrained":
            network = {"encoder": _effective(config.encoder), "schema": config.schema}
            return {"source": source, "untrained": network, "seed": config.seed}
        source |= {} if self.share == 1.0 else {"share": self.share}
        return {"source": source, "pretrain": _effective(config)}

    @property
    def model(self) -> str:
        """Folder name of the pre-trained model that the cell makes or uses; empty if none."""
        return hash_json(self.origin)[:16] if self.method.kind == "pretrained" else ""

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All settings that determine the outcome and are not the defaults."""
        setup, settings = self.setup, {"stage": self.stage, "seed": self.seed, **self.origin}
        if self.dataset:
            split = {"split": self.split} if self.split else {}
            settings["dataset"] = {**identity(self.dataset), **split}
        if self.method.kind == "features":
            settings |= {"method": self.method.name, "features": setup.features}
        if self.stage == "finetune":
            settings["finetune"] = _effective(self.finetuning)
        if self.stage == "probe":
            settings["layer"] = self.suite.layer
            settings |= {"heads": list(self.suite.heads)} if self.suite.heads else {}
        if self.stage == "map":
            settings["mapped"] = setup.mapped
        if self.stage == "speed":
            timed = {name: _effective(config) for name, config in self.together.items()}
            settings |= {"steps": setup.timed_steps, "together": timed}
        return settings

    @cached_property
    def hash(self) -> str:
        """Short hash of :attr:`settings`."""
        return hash_json(self.settings)[:16]


def identity(source: str) -> dict[str, str]:
    """Return the name of a data set or graph store and the hashes of its contents.

    Raises:
        ConfigError: If no data set has that name.
    """
    if is_store(source):
        return {"name": Path(source).name, "digest": open_store(source).digest}
    spec = find_spec(source)
    smiles = next(iter(spec.details.get("sha256_smiles", ())), spec.sha256)
    digests = [smiles, spec.details.get("sha256_label_file")]
    return {"name": source, "sha256": "+".join(digest for digest in digests if digest)}


def plan_cells(request: Request) -> list[Cell]:
    """Return the cells of a suite, one seed after the other, so that early tables are complete.

    Raises:
        ConfigError: If a name is unknown; the nearest one is suggested.
    """
    _check("suite", [request.suite], SUITES)
    _check("stage", request.stages, STAGES)
    _check("scale", [request.scale], SCALES)
    _check("backbone", request.backbones, LAYERS)
    suite = SUITES[request.suite]
    domain = _domain(request, suite)
    setup = _setup(request, suite, domain)
    if suite.vary and (request.methods is not None or request.backbones is not None):
        raise ConfigError(
            f"suite '{request.suite}' is about {REFERENCE} with {GIN} only; leave out "
            f"{setting('methods')} and {setting('backbones')}.",
            option="methods",
        )
    template = Cell(request, domain, setup, method_named(REFERENCE))
    stages = [stage for stage in suite.stages if stage in (request.stages or STAGES)]
    for option in ("split", "datasets"):
        if getattr(request, option) is not None and not {"finetune", "probe"} & {*stages}:
            raise ConfigError(
                f"{setting(option)} changes nothing in suite '{request.suite}', whose stages here "
                f"are {listed(stages) or 'none'}; drop it.",
                option=option,
            )
    cells: dict[tuple[str, ...], Cell] = {}
    for row in _rows(template, _methods(request, suite, setup, domain)):
        for cell in [row] if row.stage else _scoring_cells(row):
            if cell.stage in stages:
                cells.setdefault(tuple(cell.labels.values()), cell)
    if not cells:
        raise ConfigError(
            f"nothing to do: suite '{request.suite}' has no cell for these methods, data sets and "
            "stages."
        )
    return list(cells.values())


def _methods(request: Request, suite: Suite, setup: Setup, domain: str) -> list[Method]:
    names = list(request.methods or suite.methods)
    if domain == "protein" and request.methods is None and FOREST in names:
        names.remove(FOREST)
    if not names and "speed" in suite.stages:  # all objectives that support the schema
        for name, objective in OBJECTIVES.items():
            with suppress(ConfigError):
                objective.check_schema(schema_named(setup.features))
                names.append(name)
    methods = [method_named(name) for name in dict.fromkeys(names)]
    for name, kind, *_ in methods:
        known = FEATURES if suite.heads else BASELINES
        if (kind == "saved" and not suite.model) or (kind == "features" and name not in known):
            raise ConfigError(
                f"method '{name}' is not for suite '{request.suite}', which has other methods; "
                f"choose one of {', '.join(suite.methods)}.",
                option="methods",
            )
        if kind == "saved" and (schema := load(name).schema.name) != setup.features:
            raise ConfigError(
                f"{name} reads graphs of schema '{schema}', the suite has '{setup.features}'.",
                option="methods",
            )
    return methods


def _rows(template: Cell, methods: Sequence[Method]) -> Iterator[Cell]:
    """Yield a cell for each row of the tables, backbone and seed; only those of speed have a stage.

    The cell of a suite of speed times all methods together.
    """
    suite, setup = template.suite, template.setup
    backbones = template.request.backbones or suite.backbones
    for seed in setup.seeds[:1] if "map" in suite.stages else setup.seeds:
        template = replace(template, seed=seed)
        if "speed" in suite.stages:
            pretrained = [replace(template, method=m) for m in methods if m.kind == "pretrained"]
            for backbone in backbones if pretrained else ():
                timed = [_with_encoder(replace(row, backbone=backbone)) for row in pretrained]
                together = {row.method.name: row.config for row in timed}
                yield replace(timed[0], stage="speed", together=together)
            continue
        for varied in suite.vary:
            for value in suite.losses if varied == "losses" else getattr(setup, varied):
                yield _varied(template, varied, value)
        for method in methods:
            row = replace(template, method=method)
            match method.kind:
                case "features":  # of models of features, only forests are random
                    yield row if method.name == FOREST else replace(row, seed=None)
                case "saved":  # nothing is random but the graphs of calibration
                    row = _with_encoder(replace(row, backbone=GIN, seed=0))
                    yield replace(row, backbone="", seed=None)
                case _:
                    yield from (_with_encoder(replace(row, backbone=b)) for b in backbones)


def _with_encoder(row: Cell, changes: Mapping[str, Any] | None = None) -> Cell:
    """Return the cell with the settings of its encoder, some of which are changed."""
    request, setup = row.request, row.setup
    overrides = {"encoder.backbone": row.backbone, "schema": setup.features, "embedding": "jk"}
    overrides |= {**setup.pretrain, "seed": row.seed, "device": request.device}
    overrides |= {"precision": request.precision, **(changes or {})}
    config = resolve_config(row.method.objective, row.method.recipe, overrides, row.domain)
    return replace(row, pretraining=config)


def _varied(template: Cell, name: str, value: str | int) -> Cell:
    """Return the row of GraphLoG with one setting changed.

    All rows take the same number of steps. The optimizer of an ablation is never restarted, since
    rows without prototypes have no second phase in which to restart it. An encoder sees each graph
    more often with a larger batch size, and only a share of the graphs with a smaller one.
    """
    row = replace(template, backbone=GIN, variant=f"{name}={value}")
    default = _with_encoder(row).config
    changes, share = dict[str, Any](), 1.0
    if name == "losses":
        kept = str(value).split("+")
        absent = ["attribute", "descriptor", *(loss for loss in LOSSES if loss not in kept)]
        changes = {f"objective.{loss}_weight": 0.0 for loss in absent}
        changes["training.fresh_moments"] = False
    elif name == "batch_size":
        times = max(round(int(value) / default.batch_size), 1)
        share = min(int(value) / default.batch_size, 1.0)
        changes = {"batch_size": value, "epochs": default.epochs * times}
        changes["objective.local_epochs"] = default.options["local_epochs"] * times
    else:
        changes = {f"objective.{name}": value}
    return _with_encoder(replace(row, share=share), changes)


def _scoring_cells(row: Cell) -> Iterator[Cell]:
    """Yield the cells of a row of scores: pre-training (if needed), fine-tuning, probes, map."""
    setup, split = row.setup, row.request.split
    splits = row.suite.splits if split is None else [split]
    if row.method.kind == "features":
        for dataset in dict.fromkeys([*setup.finetuned, *setup.probed]):
            if row.method.name == FOREST:
                if setup.forested and dataset not in setup.forested:
                    continue
                # a forest of many tasks is computed with the first seed only
                if DATASETS[dataset].num_tasks > MANY_TASKS and row.seed != setup.seeds[0]:
                    continue
            for split in splits:
                yield replace(row, stage="probe", dataset=dataset, split=split)
        return
    if row.method.kind == "pretrained":
        yield replace(row, stage="pretrain")
    for stage, datasets in (("finetune", setup.finetuned), ("probe", setup.probed)):
        for dataset, split in product(datasets, splits):
            yield replace(row, stage=stage, dataset=dataset, split=split)
    yield replace(row, stage="map")


def _domain(request: Request, suite: Suite) -> str:
    """Return the domain that is named, that of the named data sets, or the default of the suite."""
    labeled = {n: s for n, s in DATASETS.items() if s.task is not None and s.domain in _SPLITS}
    named = [] if request.domain is None else [request.domain]
    _check("domain of a benchmark", named, _SPLITS)
    _check("labeled data set", request.datasets, labeled)
    domains = {*named, *(labeled[name].domain for name in request.datasets or ())}
    domains = domains or {suite.domains[0]}
    if len(domains) > 1 or not domains <= set(suite.domains):
        raise ConfigError(
            f"suite '{request.suite}' is of {' or '.join(suite.domains)} graphs; "
            f"{setting('domain')} and {setting('datasets')} ask for "
            f"{' and '.join(sorted(domains))}: choose one.",
            option="domain",
        )
    return domains.pop()


def _setup(request: Request, suite: Suite, domain: str) -> Setup:
    """Return the shared settings of the cells, with those that the user has changed."""
    setup = SCALES[request.scale][domain]
    if suite.model:
        encoder = load(suite.model)
        network = {f"encoder.{k}": v for k, v in encoder.config.model_dump().items()}
        setup = setup.updated(
            {"features": encoder.schema.name, "pretrain": {**setup.pretrain, **network}}
        )
    changes: dict[str, Any] = {}
    if datasets := tuple(dict.fromkeys(request.datasets or suite.datasets)):
        changes |= {"finetuned": datasets, "probed": datasets, "forested": ()}
    elif suite.few and setup.few:
        changes["probed"] = setup.few
    if (source := request.source) is not None:
        if not is_store(source):
            known = [name for name, spec in DATASETS.items() if spec.domain == domain]
            _check(f"{domain} data set (or graph store)", [source], known)
        elif (schema := open_store(source).schema.name) != setup.features:
            raise ConfigError(
                f"{source} has graphs of schema '{schema}', the suite needs '{setup.features}'."
            )
        changes |= {"source": source, "limit": None}
    if request.split is not None:
        known = {*_SPLITS[domain], *suite.splits} - {""}
        _check(f"split of {domain}s", [request.split], known)
    if request.seeds is not None:
        changes["seeds"] = check_seeds("seeds", tuple(dict.fromkeys(request.seeds)))
    return setup.updated(changes)


def _check(kind: str, names: Iterable[str] | None, known: Collection[str]) -> None:
    for name in names or ():
        check_name(kind, name, known)


def _effective(config: FrozenConfig) -> dict[str, Any]:
    """Return the settings that determine the outcome and are not the defaults.

    Since defaults are left out, a new setting changes no hash, and finished cells stay finished.
    """
    excluded = _WITHOUT_EFFECT & set(type(config).model_fields)
    settings = config.model_dump(mode="json", exclude_defaults=True, exclude=excluded)
    if isinstance(config, PretrainConfig):
        options = OBJECTIVES[config.objective].Config.parse(config.options, "objective.")
        settings["options"] = options.model_dump(mode="json", exclude_defaults=True)
    return settings
