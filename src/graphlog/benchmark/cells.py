"""The cells of a benchmark: a row of ``suites.toml`` at a scale, and what decides its outcome."""

import hashlib
import json
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, Literal

from graphlog.config import FrozenConfig
from graphlog.data.manifest import is_store
from graphlog.data.store import open_store
from graphlog.datasets import DATASETS, find_spec
from graphlog.domains import schema_named
from graphlog.domains.molecule.scaffolds import SPLITS as MOLECULE_SPLITS
from graphlog.domains.protein.domain import SPLITS as PROTEIN_SPLITS
from graphlog.downstream.finetune import FinetuneConfig
from graphlog.downstream.linear import MANY_TASKS
from graphlog.downstream.pretrained import list_models, load
from graphlog.downstream.report import Model
from graphlog.encoders import LAYERS
from graphlog.encoders.encoder import EmbeddingLayer
from graphlog.errors import ConfigError, check_name, out_of_range, setting
from graphlog.objectives import OBJECTIVES
from graphlog.training.settings import PretrainConfig, resolve_config

REFERENCE, UNTRAINED, FOREST, LINEAR, GIN = "graphlog", "untrained", "ecfp-rf", "ecfp-lr", "gin"
BASELINES = (FOREST, LINEAR)
"""Fingerprints without an encoder; of proteins, statistics of the ego-network take their place."""
FEATURES = ("ecfp4", "descriptors")
"""Features of molecules that suites with several heads compare with embeddings."""
STAGES = ("pretrain", "finetune", "probe", "map", "speed", "stage-speed")
LOSSES = {"subgraph": "L_sub", "graph": "L_graph", "global": "L_global"}
"""The three losses of GraphLoG and how the paper writes them."""
_NOT_OF_THE_OUTCOME = {"checkpoint_every_s", "log_every", "watch_every", "device"}
_SPLITS: Mapping[str, Collection[str]] = {"molecule": MOLECULE_SPLITS, "protein": PROTEIN_SPLITS}


class Suite(FrozenConfig):
    """What a table or figure compares."""

    title: str
    """Heading of its page."""
    domains: tuple[str, ...] = ("molecule", "protein")
    """Domains it can be computed on, the usual one first."""
    stages: tuple[str, ...]
    """What is done in its cells, of :data:`STAGES`."""
    methods: tuple[str, ...] = ()
    """Rows, see :func:`method_named`; of speed, which names none, every objective."""
    backbones: tuple[str, ...] = (GIN,)
    """Backbones of the encoders."""
    vary: tuple[Literal["losses", "depth", "batch_size"], ...] = ()
    """Settings of GraphLoG that get a row a value."""
    losses: tuple[str, ...] = ()
    """Values of ``losses``: the losses that stay, joined by ``+``."""
    few: bool = False
    """Whether its many encoders are probed on the few data sets of the scale."""
    reference: str = REFERENCE
    """Row that the others are compared with; empty for none."""
    heads: tuple[Model, ...] = ()
    """What is fitted to the features of each method; none: a linear model, unless the method says
    otherwise."""
    metrics: tuple[str, ...] = ()
    """Scores with a table each, a row a head, of data sets whose task has them; none: that of each
    data set."""
    paper: str = ""
    """Its table in ``paper.toml``."""
    model: str = ""
    """Shipped model whose features and network the encoders have; empty: those of the scale."""
    layer: EmbeddingLayer = "last"
    """Embedding of the probes."""
    datasets: tuple[str, ...] = ()
    """Labeled data sets; none: those of the scale."""
    splits: tuple[str, ...] = ("",)
    """Kinds of split of the labeled data sets, ``given`` for that of a column ``split``; empty:
    each one's own."""


class Setup(FrozenConfig):
    """What all cells of one domain share at one scale, so that only the method differs."""

    seeds: tuple[int, ...]
    """Of pre-training and, with the same number, of fine-tuning."""
    features: str
    """Schema of the graphs."""
    source: str
    """Data set to pre-train on, or the folder of a graph store."""
    limit: int | None = None
    """Its first rows that are used; None: all."""
    pretrain: dict[str, Any]
    """Settings of the network and of its training."""
    finetune: dict[str, Any]
    """Settings of fine-tuning beyond the paper's protocol."""
    finetuned: tuple[str, ...]
    """Data sets to fine-tune on."""
    probed: tuple[str, ...]
    """Data sets to probe on."""
    few: tuple[str, ...] = ()
    """Those of suites with many encoders; none: ``probed``."""
    forested: tuple[str, ...] = ()
    """Data sets small enough for a forest on fingerprints; none: all."""
    depth: tuple[int, ...]
    """Depths of the hierarchy of prototypes in Figure 3."""
    batch_size: tuple[int, ...]
    """Batch sizes in Figure 3."""
    mapped: int
    """Graphs on the maps of Figure 4."""
    timed_steps: int
    """Steps that the speed suite times."""


def _read_toml(name: str) -> dict[str, Any]:
    return tomllib.loads(files("graphlog.benchmark").joinpath(name).read_text(encoding="utf-8"))


PAPER = _read_toml("paper.toml")
"""The numbers of the paper."""
_TABLES = _read_toml("suites.toml")
SUITES = {name: Suite.parse(table, f"{name}.") for name, table in _TABLES["suites"].items()}
"""Every suite by name."""
SCALES: dict[str, dict[str, Setup]] = {
    scale: {domain: Setup.parse(table, f"{scale}.{domain}.") for domain, table in domains.items()}
    for scale, domains in _TABLES["scales"].items()
}
"""What the cells share, by scale and domain."""


@dataclass(frozen=True, slots=True)
class Method:
    """One row of a table."""

    name: str
    """As typed by the user."""
    kind: Literal["pretrained", "shipped", "untrained", "features"]
    """Where its encoder comes from; ``features`` has none."""
    objective: str = ""
    """Pretext task of a pre-trained one."""
    recipe: str = "default"
    """Whose switches of the objective it takes; encoder and training are the scale's."""


def method_named(name: str) -> Method:
    """Return a method by name.

    It is ``untrained``, fingerprints, a shipped model, any objective, or ``graphlog-<recipe>``.

    Raises:
        ConfigError: If there is none of that name; the nearest is suggested.

    Example:
        >>> method_named("graphlog-paper").recipe
        'paper'
    """
    known = {UNTRAINED: Method(UNTRAINED, "untrained")}
    known |= {features: Method(features, "features") for features in (*BASELINES, *FEATURES)}
    known |= {model: Method(model, "shipped") for model in list_models()}
    known |= {task: Method(task, "pretrained", task) for task in OBJECTIVES}
    for recipe in OBJECTIVES[REFERENCE].RECIPES:  # the recipe of the paper's losses has its name
        own = REFERENCE if recipe == REFERENCE else f"{REFERENCE}-{recipe}"
        known[own] = Method(own, "pretrained", REFERENCE, recipe)
    check_name("method", name, known)
    return known[name]


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asks for; None takes the suite's or the scale's own."""

    suite: str
    """Name of the table or figure."""
    scale: str = "small"
    """``smoke``, ``small`` or ``paper``."""
    methods: Sequence[str] | None = None
    datasets: Sequence[str] | None = None
    """Labeled data sets to evaluate on."""
    seeds: Sequence[int] | None = None
    backbones: Sequence[str] | None = None
    domain: str | None = None
    """``molecule`` or ``protein``, for suites that have both."""
    stages: Sequence[str] | None = None
    """Part of the work, of :data:`STAGES`."""
    source: str | None = None
    """Data set or graph store to pre-train on, all of it."""
    split: str | None = None
    """Kind of split of the labeled data sets."""
    device: str = "auto"
    precision: str = "auto"


@dataclass(frozen=True)
class Cell:
    """One piece of work. Cells of the same :attr:`hash` have the same outcome."""

    request: Request
    domain: str
    setup: Setup
    stage: str
    method: Method
    backbone: str = ""
    """Empty without an encoder."""
    seed: int | None = None
    """None where nothing is random."""
    variant: str = ""
    """Setting that the suite varies, such as ``depth=3``; mostly empty."""
    dataset: str = ""
    split: str = ""
    """Kind of split of the data set; empty: its own."""
    share: float = 1.0
    """Share of the pre-training graphs that it is trained on."""
    pretraining: PretrainConfig | None = None
    """Settings of the encoder: how it is pre-trained, or would be."""
    together: Mapping[str, PretrainConfig] = field(default_factory=dict[str, PretrainConfig])
    """Settings of all methods that are timed in turns."""

    @property
    def table(self) -> str:
        """Name of the table its rows belong to; each domain has its own."""
        suite = self.request.suite
        is_usual = self.domain == SUITES[suite].domains[0]
        return suite if is_usual else f"{suite}-{self.domain}"

    @property
    def labels(self) -> dict[str, str]:
        """What identifies its rows in the table."""
        seed = "" if self.seed is None else str(self.seed)
        method = {} if self.stage == "speed" else {"method": self.method.name}
        place = {"variant": self.variant, "dataset": self.dataset, "seed": seed}
        place["split"] = self.split
        head = {"scale": self.request.scale, "stage": self.stage}
        return {**head, **method, "backbone": self.backbone, **place}

    @property
    def title(self) -> str:
        """Name in messages."""
        seed = "" if self.seed is None else f"seed {self.seed}"
        method = f"{len(self.together)} methods" if self.together else self.method.name
        words = (self.stage, method, self.backbone, self.variant, self.dataset, self.split, seed)
        return " ".join(word for word in words if word)

    @property
    def finetuning(self) -> FinetuneConfig:
        """Settings of fine-tuning."""
        request = self.request
        precision = "fp32" if request.precision == "auto" else request.precision
        own = {**self.setup.finetune, "device": request.device, "precision": precision}
        return FinetuneConfig.parse({"protocol": "paper", **own})

    @cached_property
    def origin(self) -> dict[str, Any]:
        """What decides the encoder, and the graphs that it is calibrated on."""
        config, setup = self.pretraining, self.setup
        if config is None:
            return {}
        source = {**identity(setup.source), "limit": setup.limit}
        if self.method.kind == "shipped":
            return {"source": source, "model": self.method.name}
        if self.method.kind == "untrained":
            network = {"encoder": _decisive(config.encoder), "schema": config.schema}
            return {"source": source, "untrained": network, "seed": config.seed}
        part = {} if self.share == 1.0 else {"share": self.share}
        return {"source": {**source, **part}, "pretrain": _decisive(config)}

    @property
    def model(self) -> str:
        """Folder of the pre-trained model that it makes or needs; empty where there is none."""
        return _hash(self.origin) if self.method.kind == "pretrained" else ""

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Everything that decides the outcome and differs from the defaults."""
        setup, decided = self.setup, {"stage": self.stage, "seed": self.seed, **self.origin}
        if self.dataset:
            split = {"split": self.split} if self.split else {}
            decided["dataset"] = {**identity(self.dataset), **split}
        if self.method.kind == "features":
            decided |= {"method": self.method.name, "features": setup.features}
        match self.stage:
            case "finetune":
                decided["finetune"] = _decisive(self.finetuning)
            case "probe":
                suite = SUITES[self.request.suite]
                decided |= {"layer": suite.layer}
                decided |= {"heads": list(suite.heads)} if suite.heads else {}
            case "map":
                decided["mapped"] = setup.mapped
            case "speed" | "stage-speed":
                timed = {name: _decisive(config) for name, config in self.together.items()}
                decided |= {"steps": setup.timed_steps, "together": timed}
            case _:
                pass
        return decided

    @cached_property
    def hash(self) -> str:
        """Short hash of :attr:`settings`."""
        return _hash(self.settings)


def identity(source: str) -> dict[str, str]:
    """Return the name of a data set or a graph store and the hashes of its contents.

    Raises:
        ConfigError: If there is none of that name.
    """
    if is_store(source):
        return {"name": Path(source).name, "digest": open_store(source).digest}
    spec = find_spec(source)
    smiles = next(iter(spec.details.get("sha256_smiles", ())), spec.sha256)
    digests = [smiles, spec.details.get("sha256_label_file")]
    return {"name": source, "sha256": "+".join(digest for digest in digests if digest)}


def plan_cells(request: Request) -> list[Cell]:
    """Return the cells of a suite, seed after seed, so that early tables are complete.

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
    names = request.methods or suite.methods
    if "speed" in suite.stages and not names:
        names = _objectives(setup.features)
    methods = [method_named(name) for name in dict.fromkeys(names)]
    for method in methods:
        if method.kind == "features" and (method.name in FEATURES) != bool(suite.heads):
            raise ConfigError(
                f"method '{method.name}' is not for suite '{request.suite}'; choose "
                f"{' or '.join(FEATURES if suite.heads else BASELINES)}."
            )
        if method.kind == "shipped" and method.name != suite.model:
            raise ConfigError(
                f"method '{method.name}' is a shipped model, whose network is not that of the "
                "other rows; compare it in suite 'adme'."
            )
    if domain == "protein" and request.methods is None:
        methods = [method for method in methods if method.name != FOREST]
    stages = [stage for stage in suite.stages if stage in (request.stages or STAGES)]
    start = Cell(request, domain, setup, "", methods[0] if methods else method_named(REFERENCE))
    planned = (cell for cell in _cells(start, suite, methods) if cell.stage in stages)
    cells = {tuple(cell.labels.values()): cell for cell in planned}
    if not cells:
        raise ConfigError(
            f"nothing to do: suite '{request.suite}' has no cell for these methods, data sets and "
            "stages."
        )
    return list(cells.values())


def _cells(start: Cell, suite: Suite, methods: Sequence[Method]) -> Iterator[Cell]:
    setup, backbones = start.setup, start.request.backbones or suite.backbones
    for seed in setup.seeds[:1] if "map" in suite.stages else setup.seeds:
        if "speed" in suite.stages:
            yield from _timings(start, methods, backbones, seed)
            continue
        for varied in suite.vary:
            for value in suite.losses if varied == "losses" else getattr(setup, varied):
                yield from _scored(_varied(start, varied, value, seed))
        for method in methods:
            if method.kind == "features":
                yield from _featured(replace(start, method=method), seed)
                continue
            for backbone in backbones if method.kind != "shipped" else ("",):
                cell = _encoder(start, method, backbone or GIN, seed)
                if backbone:
                    yield from _scored(cell)
                elif seed == setup.seeds[0]:  # nothing of it is random
                    yield from _scored(replace(cell, backbone="", seed=None))


def _encoder(
    start: Cell, method: Method, backbone: str, seed: int, changes: Mapping[str, Any] | None = None
) -> Cell:
    """Return the pre-training of ``method``, with some settings changed."""
    request, setup = start.request, start.setup
    overrides = {"encoder.backbone": backbone, "schema": setup.features, "embedding": "jk"}
    overrides |= {**setup.pretrain, "seed": seed, "device": request.device}
    overrides |= {"precision": request.precision, **(changes or {})}
    trained = (method.objective, method.recipe) if method.kind == "pretrained" else (None, None)
    config = resolve_config(*trained, overrides, start.domain)
    cell = replace(start, stage="pretrain", method=method, backbone=backbone, seed=seed)
    return replace(cell, pretraining=config)


def _varied(start: Cell, name: str, value: str | int, seed: int) -> Cell:
    """Return the pre-training of GraphLoG with one setting changed.

    The rows of an ablation take the same steps with one optimizer, which is never restarted, since
    those without prototypes have no second phase to restart it in. So do all batch sizes: a larger
    one sees the graphs more often, a smaller one sees a share of them.
    """
    method, share = method_named(REFERENCE), 1.0
    usual = _encoder(start, method, GIN, seed).pretraining
    assert usual is not None
    match name:
        case "losses":
            kept = str(value).split("+")
            absent = ["attribute", "descriptor", *(loss for loss in LOSSES if loss not in kept)]
            changes: dict[str, Any] = {f"objective.{loss}_weight": 0.0 for loss in absent}
            changes["training.fresh_moments"] = False
        case "batch_size":
            times = max(round(int(value) / usual.batch_size), 1)
            share = min(int(value) / usual.batch_size, 1.0)
            local = usual.options["local_epochs"] * times
            changes = {"batch_size": value, "epochs": usual.epochs * times}
            changes["objective.local_epochs"] = local
        case _:
            changes = {f"objective.{name}": value}
    cell = _encoder(start, method, GIN, seed, changes)
    return replace(cell, variant=f"{name}={value}", share=share)


def _scored(cell: Cell) -> Iterator[Cell]:
    """Yield a pre-training, where there is anything to train, and what is done with it."""
    if cell.method.kind == "pretrained":
        yield cell
    for stage, datasets in (("finetune", cell.setup.finetuned), ("probe", cell.setup.probed)):
        for dataset, split in product(datasets, _splits(cell)):
            yield replace(cell, stage=stage, dataset=dataset, split=split)
    yield replace(cell, stage="map")


def _featured(start: Cell, seed: int) -> Iterator[Cell]:
    """Yield the probes of fingerprints; a linear one is deterministic.

    A forest of many targets has one seed.
    """
    setup = start.setup
    for dataset in dict.fromkeys([*setup.finetuned, *setup.probed]):
        is_forest = start.method.name == FOREST
        if is_forest and setup.forested and dataset not in setup.forested:
            continue
        is_first = seed == setup.seeds[0]
        if is_first or (is_forest and DATASETS[dataset].num_tasks <= MANY_TASKS):
            drawn = seed if is_forest else None
            for split in _splits(start):
                yield replace(start, stage="probe", dataset=dataset, split=split, seed=drawn)


def _splits(cell: Cell) -> Sequence[str]:
    request = cell.request
    return SUITES[request.suite].splits if request.split is None else [request.split]


def _timings(
    start: Cell, methods: Sequence[Method], backbones: Sequence[str], seed: int
) -> Iterator[Cell]:
    """Yield the throughput of all objectives, and the seconds of GraphLoG's stages under GIN."""
    timed = [method for method in methods if method.kind == "pretrained"]
    for backbone in backbones:
        cells = [_encoder(start, method, backbone, seed) for method in timed]
        together = {c.method.name: c.pretraining for c in cells if c.pretraining is not None}
        if cells:
            yield replace(cells[0], stage="speed", together=together)
        for cell in cells:
            if cell.method.name == REFERENCE and backbone == GIN:
                yield replace(cell, stage="stage-speed")


def _setup(request: Request, suite: Suite, domain: str) -> Setup:
    """Return what the cells share, as far as the user did not ask for something else."""
    setup = SCALES[request.scale][domain]
    changes: dict[str, Any] = {}
    if request.datasets or suite.datasets:
        chosen = tuple(dict.fromkeys(request.datasets or suite.datasets))
        changes |= {"finetuned": chosen, "probed": chosen, "forested": ()}
    elif suite.few and setup.few:
        changes["probed"] = setup.few
    if request.source is not None:
        _check_source(request.source, domain, setup.features)
        changes |= {"source": request.source, "limit": None}
    if request.split is not None:
        known = {*_SPLITS[domain], *suite.splits} - {""}
        _check(f"split of {domain}s", [request.split], known)
    if suite.model:
        encoder = load(suite.model)
        network = {f"encoder.{k}": v for k, v in encoder.config.model_dump().items()}
        changes |= {"features": encoder.schema.name, "pretrain": {**setup.pretrain, **network}}
    if request.seeds is not None:
        changes["seeds"] = tuple(dict.fromkeys(request.seeds))
        if not changes["seeds"] or min(changes["seeds"]) < 0:
            raise out_of_range(
                "seeds", "whole numbers from 0, at least one", list(changes["seeds"])
            )
    return setup.updated(changes)


def _domain(request: Request, suite: Suite) -> str:
    """Return the domain: the one asked for, that of the data sets named, or the suite's own."""
    asked = [] if request.domain is None else [request.domain]
    _check("domain of a benchmark", asked, _SPLITS)
    labeled = {n: s for n, s in DATASETS.items() if s.task is not None and s.domain in _SPLITS}
    for name in request.datasets or ():
        if name in DATASETS and name not in labeled:
            known = ", ".join(sorted(labeled))
            raise ConfigError(f"data set '{name}' has no labels to evaluate on. Known: {known}")
        _check("data set", [name], labeled)
        asked.append(labeled[name].domain)
    found = set(asked) or {suite.domains[0]}
    if len(found) > 1 or not found <= set(suite.domains):
        raise ConfigError(
            f"suite '{request.suite}' is of {' or '.join(suite.domains)} graphs; "
            f"{setting('domain')} and "
            f"{setting('datasets')} ask for {' and '.join(sorted(found))}: choose one.",
            option="domain",
        )
    return found.pop()


def _objectives(features: str) -> list[str]:
    """Return the objectives that can be pre-trained on graphs of a schema."""
    found: list[str] = []
    for name, kind in OBJECTIVES.items():
        try:
            kind.check_schema(schema_named(features))
        except ConfigError:
            continue
        found.append(name)
    return found


def _check(kind: str, names: Iterable[str] | None, known: Collection[str]) -> None:
    """Raise ConfigError for the first name that is not known."""
    for name in names or ():
        check_name(kind, name, known)


def _check_source(source: str, domain: str, features: str) -> None:
    """Raise ConfigError unless ``source`` has graphs of the suite's domain and schema."""
    if not is_store(source):
        known = [name for name, spec in DATASETS.items() if spec.domain == domain]
        _check(f"{domain} data set (or graph store)", [source], known)
    elif (found := open_store(source).schema.name) != features:
        raise ConfigError(f"{source} has graphs of schema '{found}', the suite needs '{features}'.")


def _decisive(config: FrozenConfig) -> dict[str, Any]:
    """Return the settings that decide the outcome and are not the defaults.

    A setting that is new changes no hash, and finished cells stay finished.
    """
    outside = _NOT_OF_THE_OUTCOME & set(type(config).model_fields)
    plain = config.model_dump(mode="json", exclude_defaults=True, exclude=outside)
    if isinstance(config, PretrainConfig):
        options = OBJECTIVES[config.objective].Config.parse(config.options, "objective.")
        plain["options"] = options.model_dump(mode="json", exclude_defaults=True)
    return plain


def _hash(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
