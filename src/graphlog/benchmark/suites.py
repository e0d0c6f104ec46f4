"""The suites: which cells make each table and figure of the paper."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from graphlog.benchmark.grid import STAGES, Bench, CellSpec, Variant
from graphlog.benchmark.methods import (
    ABLATED,
    COMPARED,
    CONFIGURATIONS,
    FINGERPRINTS,
    FOREST,
    LINEAR,
    UNTRAINED,
    Method,
    method_named,
    methods_named,
    weights_of,
)
from graphlog.benchmark.scales import Domain, scale_named
from graphlog.datasets import DATASETS
from graphlog.domains import SCHEMAS
from graphlog.encoders import LAYERS
from graphlog.errors import ConfigError, unknown_name
from graphlog.objectives import OBJECTIVES

REFERENCE, MAIN_BACKBONE = "graphlog", "gin"
FOUR_BACKBONES = ("gcn", "graphsage", "gat", "gin")
ACROSS_BACKBONES = (UNTRAINED, "edgepred", "attrmasking", "contextpred", "graphcl", REFERENCE)
"""The rows of Table 3."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for; None takes the suite's own."""

    suite: str
    scale: str = "small"
    methods: Sequence[str] | None = None
    datasets: Sequence[str] | None = None
    seeds: Sequence[int] | None = None
    backbones: Sequence[str] | None = None
    domain: str | None = None
    stages: Sequence[str] | None = None
    device: str = "auto"
    precision: str = "auto"


@dataclass(frozen=True, slots=True)
class Plan:
    """A request, looked up in every table."""

    bench: Bench
    methods: tuple[Method, ...]
    backbones: tuple[str, ...]
    seeds: tuple[int, ...]
    finetuned: tuple[str, ...]
    probed: tuple[str, ...]

    def judged(self, trained: CellSpec) -> Iterator[CellSpec]:
        """Yield a pre-training cell, where there is anything to train, and the cells that judge it."""
        if trained.method.kind == "pretrained":
            yield trained
        yield from self.bench.scored_cells("finetune", trained, self.finetuned)
        yield from self.bench.scored_cells("probe", trained, self.probed)


def cells_of(request: Request) -> list[CellSpec]:
    """Return the cells of a suite in the order in which they are best computed: seed after seed, so that early tables are whole.

    Raises:
        ConfigError: If a name is in no table; the nearest one is suggested.
    """
    if request.suite not in SUITES:
        raise unknown_name("suite", request.suite, SUITES)
    for stage in request.stages or ():
        if stage not in STAGES:
            raise unknown_name("stage", stage, STAGES)
    plan = _looked_up(request)
    cells = {spec.key: spec for spec in SUITES[request.suite](plan)}
    if not cells:
        raise ConfigError(
            f"nothing to do: suite '{request.suite}' has no cell for these methods and data sets."
        )
    return [spec for spec in cells.values() if not request.stages or spec.stage in request.stages]


def _tables(plan: Plan) -> Iterator[CellSpec]:
    """Tables 1 to 3: methods, each under every backbone asked for, and fingerprints."""
    for seed in plan.seeds:
        for method in plan.methods:
            for backbone in plan.backbones if method.kind != "fingerprint" else ():
                yield from plan.judged(plan.bench.pretrain_cell(method, backbone, seed))
    for method in plan.methods:
        if method.kind == "fingerprint":
            datasets = dict.fromkeys([*plan.finetuned, *plan.probed])
            small = plan.bench.frame.forested
            suited = [d for d in datasets if method.name != FOREST or small is None or d in small]
            yield from plan.bench.fingerprint_cells(method, suited, plan.seeds)


def _ablation(plan: Plan) -> Iterator[CellSpec]:
    """Table 4: GraphLoG with some of its losses."""
    for seed in plan.seeds:
        for losses in ABLATED:
            yield from plan.judged(_with_losses(plan, losses, seed))


def _sensitivity(plan: Plan) -> Iterator[CellSpec]:
    """Figure 3: GraphLoG at several depths of the hierarchy and batch sizes."""
    frame = plan.bench.frame
    points = [("depth", "objective.depth", value) for value in frame.depths]
    points += [("batch_size", "training.batch_size", value) for value in frame.batch_sizes]
    for seed in plan.seeds:
        for name, setting, value in points:
            variant: Variant = ((name, value),)
            yield from plan.judged(
                plan.bench.pretrain_cell(
                    method_named(REFERENCE), MAIN_BACKBONE, seed, variant, {setting: value}
                )
            )


def _maps(plan: Plan) -> Iterator[CellSpec]:
    """Figure 4: the embeddings of three configurations, one seed."""
    for losses in CONFIGURATIONS:
        trained = _with_losses(plan, losses, plan.seeds[0])
        yield trained
        yield plan.bench.map_cell(trained)


def _speed(plan: Plan) -> Iterator[CellSpec]:
    """Throughput of every objective."""
    timed = [method for method in plan.methods if method.kind == "pretrained"]
    for backbone in plan.backbones:
        for seed in plan.seeds:
            for method in timed:
                yield plan.bench.speed_cell(method, [m.name for m in timed], backbone, seed)


def _with_losses(plan: Plan, losses: str, seed: int) -> CellSpec:
    variant: Variant = (("losses", losses),)
    return plan.bench.pretrain_cell(
        method_named(REFERENCE), MAIN_BACKBONE, seed, variant, weights_of(losses)
    )


SUITES: Mapping[str, Callable[[Plan], Iterator[CellSpec]]] = {
    "molecules": _tables,
    "biology": _tables,
    "backbones": _tables,
    "ablation": _ablation,
    "sensitivity": _sensitivity,
    "embedding-map": _maps,
    "speed": _speed,
}
"""Every suite by name."""
_OWN_DOMAIN: Mapping[str, Domain] = {"molecules": "molecule", "biology": "protein"}
_DOMAINS: Mapping[str, Domain] = {"molecule": "molecule", "protein": "protein"}
_MANY_ENCODERS = ("backbones", "sensitivity")
_WITHOUT_METHODS = ("ablation", "sensitivity", "embedding-map")


def _looked_up(request: Request) -> Plan:
    scale = scale_named(request.scale)
    domain = _domain(request)
    frame = scale.frames[domain]
    if request.datasets:
        named = tuple(dict.fromkeys(request.datasets))
        frame = replace(frame, finetuned=named, probed=named, probed_across=None, forested=None)
    if request.methods is not None and request.suite in _WITHOUT_METHODS:
        raise ConfigError(
            f"suite '{request.suite}' is about {REFERENCE} alone; leave out --methods."
        )
    for backbone in request.backbones or ():
        if backbone not in LAYERS:
            raise unknown_name("backbone", backbone, LAYERS)
    if request.backbones is not None and request.suite in _WITHOUT_METHODS:
        raise ConfigError(
            f"suite '{request.suite}' is computed with {MAIN_BACKBONE}; leave out --backbones."
        )
    seeds = tuple(scale.seeds if request.seeds is None else dict.fromkeys(request.seeds))
    if not seeds or min(seeds) < 0:
        raise ConfigError(
            f"`seeds` must be whole numbers from 0, at least one, found {list(seeds)}."
        )
    methods = (
        _default_methods(request.suite, domain, frame.schema)
        if request.methods is None
        else request.methods
    )
    usual = FOUR_BACKBONES if request.suite == "backbones" else (MAIN_BACKBONE,)
    return Plan(
        bench=Bench(request.suite, request.scale, domain, frame, request.device, request.precision),
        methods=methods_named(methods),
        backbones=tuple(request.backbones or usual),
        seeds=seeds,
        finetuned=frame.finetuned,
        probed=frame.probed
        if request.suite not in _MANY_ENCODERS or frame.probed_across is None
        else frame.probed_across,
    )


def _default_methods(suite: str, domain: Domain, schema: str) -> tuple[str, ...]:
    if suite == "speed":
        return tuple(name for name in OBJECTIVES if _serves(name, schema))
    if suite == "backbones":
        return ACROSS_BACKBONES
    return (*COMPARED, *(FINGERPRINTS if domain == "molecule" else (LINEAR,)))


def _serves(objective: str, schema: str) -> bool:
    """Return whether graphs of ``schema`` can be pre-trained on with an objective's usual settings."""
    try:
        OBJECTIVES[objective].check_schema(SCHEMAS[schema])
    except ConfigError:
        return False
    return True


def _domain(request: Request) -> Domain:
    """Return the domain: the suite's own, the one asked for, or that of the data sets named.

    Raises:
        ConfigError: If a data set is unknown, unlabelled, or of another domain.
    """
    if request.domain is not None and request.domain not in _DOMAINS:
        raise unknown_name("domain of a benchmark", request.domain, _DOMAINS)
    wanted: set[str] = {
        d for d in (_OWN_DOMAIN.get(request.suite), request.domain) if d is not None
    }
    labelled = {
        name: spec
        for name, spec in DATASETS.items()
        if spec.task is not None and spec.domain in _DOMAINS
    }
    for name in request.datasets or ():
        if name not in DATASETS:
            raise unknown_name("data set", name, labelled)
        if name not in labelled:
            raise ConfigError(
                f"data set '{name}' has no labels that a benchmark can judge by. Known: {', '.join(sorted(labelled))}"
            )
        wanted.add(labelled[name].domain)
    if len(wanted) > 1:
        raise ConfigError(
            f"suite, --domain and --datasets ask for {' and '.join(sorted(wanted))} graphs at once; choose one."
        )
    return _DOMAINS[next(iter(wanted), "molecule")]
