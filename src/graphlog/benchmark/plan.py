"""The suites: which cells make each table and figure of the paper."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from graphlog.benchmark.cells import STAGES, CellSpec, Planner, Variant, identity
from graphlog.benchmark.methods import (
    ABLATED,
    ACROSS_BACKBONES,
    BASELINES,
    COMPARED,
    CONFIGURATIONS,
    FOUR_BACKBONES,
    LINEAR,
    MAIN_BACKBONE,
    REFERENCE,
    UNTRAINED,
    loss_weights,
    method_named,
)
from graphlog.benchmark.scales import Domain, scale_named
from graphlog.data.manifest import is_store
from graphlog.data.store import open_store
from graphlog.datasets import DATASETS
from graphlog.domains import SCHEMAS
from graphlog.domains.molecule.domain import SPLITS as MOLECULE_SPLITS
from graphlog.domains.protein.folds import KINDS as PROTEIN_SPLITS
from graphlog.encoders import LAYERS
from graphlog.errors import ConfigError, unknown_name
from graphlog.objectives import OBJECTIVES


@dataclass(frozen=True, slots=True)
class Request:
    """Options of the user; None takes the suite's own."""

    suite: str
    scale: str = "small"
    methods: Sequence[str] | None = None
    datasets: Sequence[str] | None = None
    seeds: Sequence[int] | None = None
    backbones: Sequence[str] | None = None
    domain: str | None = None
    stages: Sequence[str] | None = None
    source: str | None = None
    """Data set or graph store to pre-train on."""
    split: str | None = None
    """Kind of split of the labeled data sets."""
    device: str = "auto"
    precision: str = "auto"


def plan_cells(request: Request) -> list[CellSpec]:
    """Return the cells of a suite, seed after seed, so that early tables are complete.

    Raises:
        ConfigError: If a name is unknown; the nearest one is suggested.
    """
    if request.suite not in SUITES:
        raise unknown_name("suite", request.suite, SUITES)
    for stage in request.stages or ():
        if stage not in STAGES:
            raise unknown_name("stage", stage, STAGES)
    cells = {spec.key: spec for spec in SUITES[request.suite](_resolve(request))}
    if not cells:
        raise ConfigError(
            f"nothing to do: suite '{request.suite}' has no cell for these methods and data sets."
        )
    return [spec for spec in cells.values() if not request.stages or spec.stage in request.stages]


def _tables(plan: Planner) -> Iterator[CellSpec]:
    """Tables 1 to 3: methods, each under every backbone asked for, and fingerprints."""
    for seed in plan.seeds:
        for method in plan.methods:
            for backbone in plan.backbones if method.kind != "baseline" else ():
                yield from plan.evaluations(plan.pretrain_cell(method, backbone, seed))
    for method in plan.methods:
        if method.kind == "baseline":
            yield from plan.baseline_cells(method)


def _ablation(plan: Planner) -> Iterator[CellSpec]:
    """Table 4: GraphLoG with some of its losses, beside the rows without pre-training."""
    for seed in plan.seeds:
        for losses in ABLATED:
            yield from plan.evaluations(_with_losses(plan, losses, seed))
    yield from _tables(plan)


def _sensitivity(plan: Planner) -> Iterator[CellSpec]:
    """Figure 3: GraphLoG at several depths and batch sizes, beside the rows without pre-training.

    All points take the same number of steps in each phase: a larger batch sees the graphs more
    often, a smaller one sees a share of them.
    """
    method, scale = method_named(REFERENCE), plan.settings
    for seed in plan.seeds:
        usual = plan.pretraining(method, MAIN_BACKBONE, seed)
        for depth in scale.depths:
            variant, changes = (("depth", depth),), {"objective.depth": depth}
            yield from plan.evaluations(
                plan.pretrain_cell(method, MAIN_BACKBONE, seed, variant, changes)
            )
        for size in scale.batch_sizes:
            times = max(round(size / usual.batch_size), 1)
            changes = {
                "training.batch_size": size,
                "training.epochs": usual.epochs * times,
                "objective.local_epochs": usual.options["local_epochs"] * times,
            }
            variant, share = (("batch_size", size),), min(size / usual.batch_size, 1.0)
            yield from plan.evaluations(
                plan.pretrain_cell(method, MAIN_BACKBONE, seed, variant, changes, share)
            )
    yield from _tables(plan)


def _maps(plan: Planner) -> Iterator[CellSpec]:
    """Figure 4: the embeddings of three configurations, one seed."""
    for losses in CONFIGURATIONS:
        trained = _with_losses(plan, losses, plan.seeds[0])
        yield trained
        yield plan.map_cell(trained)


def _speed(plan: Planner) -> Iterator[CellSpec]:
    """Throughput of every objective."""
    for backbone in plan.backbones:
        for seed in plan.seeds:
            for method in plan.methods:
                if method.kind == "pretrained":
                    yield plan.speed_cell(method, backbone, seed)


def _with_losses(plan: Planner, losses: str, seed: int) -> CellSpec:
    """Return the pre-training with ``losses``.

    Before any clustering, an epoch is trained with the local ones among them, or with both where
    there are none, as in Section 3.2 of the paper. The optimizer is never restarted, since rows
    without prototypes have no second phase to restart it in.
    """
    changes = {**loss_weights(losses), "training.fresh_moments": False}
    variant: Variant = (("losses", losses),)
    return plan.pretrain_cell(method_named(REFERENCE), MAIN_BACKBONE, seed, variant, changes)


SUITES: Mapping[str, Callable[[Planner], Iterable[CellSpec]]] = {
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
_SPLITS: Mapping[Domain, Iterable[str]] = {"molecule": MOLECULE_SPLITS, "protein": PROTEIN_SPLITS}
_DOMAINS: Mapping[str, Domain] = {"molecule": "molecule", "protein": "protein"}
_MANY_ENCODERS = ("backbones", "sensitivity")
_ONE_METHOD = ("ablation", "sensitivity", "embedding-map")


def _resolve(request: Request) -> Planner:
    suite, scale = request.suite, scale_named(request.scale)
    domain = _domain(request)
    settings = scale.domains[domain]
    if request.datasets:
        chosen = tuple(dict.fromkeys(request.datasets))
        settings = replace(
            settings, finetuned=chosen, probed=chosen, probed_across=None, forested=None
        )
    changes: dict[str, str] = {}
    if request.source is not None:
        _check_source(request.source, domain, settings.schema)
        settings = replace(settings, source=request.source, limit=None)
        changes["source"] = identity(request.source)["name"]
    if request.split is not None:
        known = _SPLITS[domain]
        if request.split not in known:
            raise unknown_name(f"split of {domain}s", request.split, known)
        settings = replace(settings, split=request.split)
        changes["split"] = request.split
    if suite in _ONE_METHOD:
        if request.methods is not None:
            raise ConfigError(f"suite '{suite}' is about {REFERENCE} alone; leave out --methods.")
        if request.backbones is not None:
            raise ConfigError(
                f"suite '{suite}' is computed with {MAIN_BACKBONE}; leave out --backbones."
            )
    for backbone in request.backbones or ():
        if backbone not in LAYERS:
            raise unknown_name("backbone", backbone, LAYERS)
    seeds = tuple(scale.seeds if request.seeds is None else dict.fromkeys(request.seeds))
    if not seeds or min(seeds) < 0:
        raise ConfigError(
            f"`seeds` must be whole numbers from 0, at least one, found {list(seeds)}."
        )
    methods = request.methods
    if methods is None:
        methods = _default_methods(suite, domain, settings.schema)
    usual = FOUR_BACKBONES if suite == "backbones" else (MAIN_BACKBONE,)
    across = settings.probed_across if suite in _MANY_ENCODERS else None
    return Planner(
        suite=suite,
        scale=request.scale,
        changes=" ".join(f"{name}={value}" for name, value in changes.items()),
        domain=domain,
        settings=settings,
        methods=tuple(method_named(name) for name in dict.fromkeys(methods)),
        backbones=tuple(request.backbones or usual),
        seeds=seeds,
        finetuned=settings.finetuned,
        probed=settings.probed if across is None else across,
        device=request.device,
        precision=request.precision,
    )


def _default_methods(suite: str, domain: Domain, schema: str) -> tuple[str, ...]:
    baselines = BASELINES if domain == "molecule" else (LINEAR,)
    if suite == "speed":
        return tuple(name for name in OBJECTIVES if _supports(name, schema))
    if suite == "embedding-map":
        return ()
    if suite in _ONE_METHOD:
        return (UNTRAINED, *baselines)
    return (*(ACROSS_BACKBONES if suite == "backbones" else COMPARED), *baselines)


def _supports(objective: str, schema: str) -> bool:
    """Return whether an objective can be pre-trained on graphs of ``schema``."""
    try:
        OBJECTIVES[objective].check_schema(SCHEMAS[schema])
    except ConfigError:
        return False
    return True


def _check_source(source: str, domain: Domain, schema: str) -> None:
    """Raise ConfigError unless ``source`` has graphs of the suite's domain and schema."""
    if is_store(source):
        found = open_store(source).schema.name
        if found != schema:
            raise ConfigError(
                f"{source} has graphs of schema '{found}', the suite needs '{schema}'."
            )
        return
    known = {name: spec for name, spec in DATASETS.items() if spec.domain == domain}
    if source not in known:
        raise unknown_name(f"{domain} data set (or graph store)", source, known)


def _domain(request: Request) -> Domain:
    """Return the domain: the suite's own, the one asked for, or that of the data sets named.

    Raises:
        ConfigError: If a data set is unknown, unlabeled, or of another domain.
    """
    if request.domain is not None and request.domain not in _DOMAINS:
        raise unknown_name("domain of a benchmark", request.domain, _DOMAINS)
    domains = {_OWN_DOMAIN.get(request.suite), request.domain} - {None}
    labelled = {
        name: spec
        for name, spec in DATASETS.items()
        if spec.task is not None and spec.domain in _DOMAINS
    }
    for name in request.datasets or ():
        if name not in DATASETS:
            raise unknown_name("data set", name, labelled)
        if name not in labelled:
            known = ", ".join(sorted(labelled))
            raise ConfigError(f"data set '{name}' has no labels to evaluate on. Known: {known}")
        domains.add(labelled[name].domain)
    if len(domains) > 1:
        both = " and ".join(sorted(map(str, domains)))
        raise ConfigError(
            f"suite, --domain and --datasets ask for {both} graphs at once; choose one."
        )
    return _DOMAINS[next(iter(domains), None) or "molecule"]
