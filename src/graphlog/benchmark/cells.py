"""The cells of a benchmark: a row of ``suites.toml`` at a scale, and what decides its outcome."""

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
from graphlog.downstream.pretrained import list_models, load
from graphlog.downstream.report import Model
from graphlog.encoders import LAYERS
from graphlog.encoders.encoder import EmbeddingLayer
from graphlog.errors import ConfigError, check_name, check_seeds, setting
from graphlog.files import hash_json
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
    """What a table or figure compares; the head of ``suites.toml`` says more."""

    title: str
    domains: tuple[str, ...] = ("molecule", "protein")
    """Domains it can be computed on, the usual one first."""
    stages: tuple[str, ...]
    methods: tuple[str, ...] = ()
    """See :func:`method_named`; of speed, which names none, every objective."""
    backbones: tuple[str, ...] = (GIN,)
    vary: tuple[Literal["losses", "depth", "batch_size"], ...] = ()
    losses: tuple[str, ...] = ()
    """Values of ``losses``: the losses that stay, joined by ``+``."""
    few: bool = False
    """Whether its many encoders are probed on the few data sets of the scale."""
    reference: str = REFERENCE
    """Row that the others are compared with; empty for none."""
    heads: tuple[Model, ...] = ()
    """What is fitted to the features; none: a linear model, unless the method says otherwise."""
    metrics: tuple[str, ...] = ()
    """Scores with a table each, a row a head, of data sets whose task has them; none: that of each
    data set."""
    paper: str = ""
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
    finetune: dict[str, Any]
    """Settings of fine-tuning beyond the paper's protocol."""
    finetuned: tuple[str, ...]
    probed: tuple[str, ...]
    few: tuple[str, ...] = ()
    """Data sets that suites with many encoders probe on; none: ``probed``."""
    forested: tuple[str, ...] = ()
    """Data sets small enough for a forest on fingerprints; none: all."""
    depth: tuple[int, ...]
    batch_size: tuple[int, ...]
    mapped: int
    """Graphs on the maps of Figure 4."""
    timed_steps: int


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


class Method(NamedTuple):
    """One row of a table."""

    name: str
    """As typed by the user."""
    kind: Literal["pretrained", "shipped", "untrained", "features"]
    """Where its encoder comes from; ``features`` has none."""
    objective: str | None = None
    """Pretext task of a pre-trained one."""
    recipe: str | None = None
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
    known |= {task: Method(task, "pretrained", task, "default") for task in OBJECTIVES}
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
    method: Method
    stage: str = ""
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
    def suite(self) -> Suite:
        """The suite that it belongs to."""
        return SUITES[self.request.suite]

    @property
    def table(self) -> str:
        """Name of the table its rows belong to; each domain has its own."""
        is_usual = self.domain == self.suite.domains[0]
        return self.request.suite if is_usual else f"{self.request.suite}-{self.domain}"

    @property
    def labels(self) -> dict[str, str]:
        """What identifies its rows in the table."""
        found = {"scale": self.request.scale, "stage": self.stage, "method": self.method.name}
        if self.stage == "speed":  # of all methods
            del found["method"]
        seed = "" if self.seed is None else str(self.seed)
        place = {"backbone": self.backbone, "variant": self.variant, "dataset": self.dataset}
        return {**found, **place, "seed": seed, "split": self.split}

    @property
    def title(self) -> str:
        """Name in messages."""
        seed = "" if self.seed is None else f"seed {self.seed}"
        method = f"{len(self.together)} methods" if self.together else self.method.name
        words = (self.stage, method, self.backbone, self.variant, self.dataset, self.split, seed)
        return " ".join(word for word in words if word)

    @property
    def config(self) -> PretrainConfig:
        """Settings of the encoder of a cell that has one."""
        assert self.pretraining is not None
        return self.pretraining

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
        if self.pretraining is None:
            return {}
        source: dict[str, Any] = {**identity(self.setup.source), "limit": self.setup.limit}
        if self.method.kind == "shipped":
            return {"source": source, "model": self.method.name}
        config = self.pretraining
        if self.method.kind == "untrained":
            network = {"encoder": _decisive(config.encoder), "schema": config.schema}
            return {"source": source, "untrained": network, "seed": config.seed}
        source |= {} if self.share == 1.0 else {"share": self.share}
        return {"source": source, "pretrain": _decisive(config)}

    @property
    def model(self) -> str:
        """Folder of the pre-trained model that it makes or needs; empty where there is none."""
        return hash_json(self.origin)[:16] if self.method.kind == "pretrained" else ""

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Everything that decides the outcome and differs from the defaults."""
        setup, decided = self.setup, {"stage": self.stage, "seed": self.seed, **self.origin}
        if self.dataset:
            split = {"split": self.split} if self.split else {}
            decided["dataset"] = {**identity(self.dataset), **split}
        if self.method.kind == "features":
            decided |= {"method": self.method.name, "features": setup.features}
        if self.stage == "finetune":
            decided["finetune"] = _decisive(self.finetuning)
        if self.stage == "probe":
            decided["layer"] = self.suite.layer
            decided |= {"heads": list(self.suite.heads)} if self.suite.heads else {}
        if self.stage == "map":
            decided["mapped"] = setup.mapped
        if self.stage in ("speed", "stage-speed"):
            timed = {name: _decisive(config) for name, config in self.together.items()}
            decided |= {"steps": setup.timed_steps, "together": timed}
        return decided

    @cached_property
    def hash(self) -> str:
        """Short hash of :attr:`settings`."""
        return hash_json(self.settings)[:16]


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
    start = Cell(request, domain, setup, method_named(REFERENCE))
    stages = [stage for stage in suite.stages if stage in (request.stages or STAGES)]
    for option in ("split", "datasets"):
        if getattr(request, option) is not None and not {"finetune", "probe"} & {*stages}:
            raise ConfigError(
                f"{setting(option)} changes nothing in suite '{request.suite}', whose stages here "
                f"are {listed(stages) or 'none'}; drop it.",
                option=option,
            )
    cells: dict[tuple[str, ...], Cell] = {}
    for row in _rows(start, _methods(request, suite, setup, domain)):
        for cell in _timed(row) if row.together else _scored(row):
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
    if not names and "speed" in suite.stages:  # every objective that can learn from such graphs
        for name, objective in OBJECTIVES.items():
            with suppress(ConfigError):
                objective.check_schema(schema_named(setup.features))
                names.append(name)
    methods = [method_named(name) for name in dict.fromkeys(names)]
    for name, kind, *_ in methods:
        known = {"shipped": (suite.model,), "features": FEATURES if suite.heads else BASELINES}
        if kind in known and name not in known[kind]:
            raise ConfigError(
                f"method '{name}' is not for suite '{request.suite}', which has other "
                f"{'models' if kind == 'shipped' else 'features'}; choose one of "
                f"{', '.join(suite.methods)}.",
                option="methods",
            )
    return methods


def _rows(start: Cell, methods: Sequence[Method]) -> Iterator[Cell]:
    """Yield every row of the tables under every backbone and seed, with its encoder."""
    suite, setup = start.suite, start.setup
    backbones = start.request.backbones or suite.backbones
    for seed in setup.seeds[:1] if "map" in suite.stages else setup.seeds:
        if "speed" in suite.stages:
            pretrained = [method for method in methods if method.kind == "pretrained"]
            for backbone in backbones if pretrained else ():
                timed = {m.name: _encoder(start, m, backbone, seed) for m in pretrained}
                together = {name: cell.config for name, cell in timed.items()}
                yield replace(timed.get(REFERENCE, timed[pretrained[0].name]), together=together)
            continue
        for varied in suite.vary:
            for value in suite.losses if varied == "losses" else getattr(setup, varied):
                yield _varied(start, varied, value, seed)
        for method in methods:
            match method.kind:
                case "features":  # a linear model of them is not random
                    yield replace(
                        start, method=method, seed=seed if method.name == FOREST else None
                    )
                case "shipped":  # nothing of it is random
                    cell = _encoder(start, method, GIN, setup.seeds[0])
                    yield replace(cell, backbone="", seed=None)
                case _:
                    yield from (_encoder(start, method, b, seed) for b in backbones)


def _encoder(
    start: Cell, method: Method, backbone: str, seed: int, changes: Mapping[str, Any] | None = None
) -> Cell:
    """Return a row with the encoder of ``method``, with some settings changed."""
    request, setup = start.request, start.setup
    overrides = {"encoder.backbone": backbone, "schema": setup.features, "embedding": "jk"}
    overrides |= {**setup.pretrain, "seed": seed, "device": request.device}
    overrides |= {"precision": request.precision, **(changes or {})}
    config = resolve_config(method.objective, method.recipe, overrides, start.domain)
    return replace(start, method=method, backbone=backbone, seed=seed, pretraining=config)


def _varied(start: Cell, name: str, value: str | int, seed: int) -> Cell:
    """Return the row of GraphLoG with one setting changed.

    The rows of an ablation take the same steps with one optimizer, which is never restarted, since
    those without prototypes have no second phase to restart it in. So do all batch sizes: a larger
    one sees the graphs more often, a smaller one sees a share of them.
    """
    usual = _encoder(start, start.method, GIN, seed).config
    changes, share = dict[str, Any](), 1.0
    if name == "losses":
        kept = str(value).split("+")
        absent = ["attribute", "descriptor", *(loss for loss in LOSSES if loss not in kept)]
        changes = {f"objective.{loss}_weight": 0.0 for loss in absent}
        changes["training.fresh_moments"] = False
    elif name == "batch_size":
        times = max(round(int(value) / usual.batch_size), 1)
        share = min(int(value) / usual.batch_size, 1.0)
        changes = {"batch_size": value, "epochs": usual.epochs * times}
        changes["objective.local_epochs"] = usual.options["local_epochs"] * times
    else:
        changes = {f"objective.{name}": value}
    cell = _encoder(start, start.method, GIN, seed, changes)
    return replace(cell, variant=f"{name}={value}", share=share)


def _scored(row: Cell) -> Iterator[Cell]:
    """Yield a pre-training, where there is anything to train, and what is done with it."""
    setup, asked = row.setup, row.request.split
    splits = row.suite.splits if asked is None else [asked]
    if row.method.kind == "features":
        for dataset in dict.fromkeys([*setup.finetuned, *setup.probed]):
            if row.method.name == FOREST:
                if setup.forested and dataset not in setup.forested:
                    continue
                # a forest of many targets has one seed
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


def _timed(row: Cell) -> Iterator[Cell]:
    """Yield the throughput of all objectives, and the seconds of GraphLoG's stages under GIN."""
    first = method_named(next(iter(row.together)))
    yield replace(row, stage="speed", method=first, pretraining=row.together[first.name])
    if row.method.name == REFERENCE and row.backbone == GIN:
        yield replace(row, stage="stage-speed", together={})


def _domain(request: Request, suite: Suite) -> str:
    """Return the domain: the one asked for, that of the data sets named, or the suite's own."""
    labeled = {n: s for n, s in DATASETS.items() if s.task is not None and s.domain in _SPLITS}
    asked = [] if request.domain is None else [request.domain]
    _check("domain of a benchmark", asked, _SPLITS)
    _check("labeled data set", request.datasets, labeled)
    found = {*asked, *(labeled[name].domain for name in request.datasets or ())}
    found = found or {suite.domains[0]}
    if len(found) > 1 or not found <= set(suite.domains):
        raise ConfigError(
            f"suite '{request.suite}' is of {' or '.join(suite.domains)} graphs; "
            f"{setting('domain')} and {setting('datasets')} ask for "
            f"{' and '.join(sorted(found))}: choose one.",
            option="domain",
        )
    return found.pop()


def _setup(request: Request, suite: Suite, domain: str) -> Setup:
    """Return what the cells share, as far as the user did not ask for something else."""
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
