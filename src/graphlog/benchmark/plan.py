"""The suites: which cells make each table and figure of the paper."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphlog.benchmark.cells import STAGES, CellSpec, Planner, Variant, identity
from graphlog.benchmark.methods import (
    ABLATED,
    ACROSS_BACKBONES,
    BACKBONE_LABELS,
    BASELINES,
    COMPARED,
    CONFIGURATIONS,
    LINEAR,
    MAIN_BACKBONE,
    REFERENCE,
    SCALES,
    UNTRAINED,
    loss_weights,
    method_named,
)
from graphlog.data.manifest import is_store
from graphlog.data.store import open_store
from graphlog.datasets import DATASETS
from graphlog.domains import schema_named
from graphlog.domains.molecule.domain import SPLITS as MOLECULE_SPLITS
from graphlog.domains.protein.domain import SPLITS as PROTEIN_SPLITS
from graphlog.encoders import LAYERS
from graphlog.errors import ConfigError, check_name
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
    _check("suite", [request.suite], SUITES)
    _check("stage", request.stages, STAGES)
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
    for seed in plan.seeds:
        usual = plan.pretraining(method_named(REFERENCE), MAIN_BACKBONE, seed)
        for depth in plan.settings.depths:
            variant: Variant = (("depth", depth),)
            yield from plan.evaluations(_varied(plan, seed, variant, {"objective.depth": depth}))
        for size in plan.settings.batch_sizes:
            times = max(round(size / usual.batch_size), 1)
            changes = {
                "training.batch_size": size,
                "training.epochs": usual.epochs * times,
                "objective.local_epochs": usual.options["local_epochs"] * times,
            }
            variant, share = (("batch_size", size),), min(size / usual.batch_size, 1.0)
            yield from plan.evaluations(_varied(plan, seed, variant, changes, share))
    yield from _tables(plan)


def _maps(plan: Planner) -> Iterator[CellSpec]:
    """Figure 4: the embeddings of three configurations, one seed."""
    for losses in CONFIGURATIONS:
        trained = _with_losses(plan, losses, plan.seeds[0])
        yield trained
        yield plan.map_cell(trained)


def _speed(plan: Planner) -> Iterator[CellSpec]:
    """Throughput of every objective, and the seconds of the stages of GraphLoG under GIN."""
    for backbone in plan.backbones:
        for seed in plan.seeds:
            for method in plan.methods:
                if method.kind == "pretrained":
                    yield plan.speed_cell(method, backbone, seed)
                if method.name == REFERENCE and backbone == MAIN_BACKBONE:
                    yield plan.stage_cell(method, backbone, seed)


def _with_losses(plan: Planner, losses: str, seed: int) -> CellSpec:
    """Return the pre-training with ``losses``.

    Before any clustering, an epoch is trained with the local ones among them, or with both where
    there are none, as in Section 3.2 of the paper. The optimizer is never restarted, since rows
    without prototypes have no second phase to restart it in.
    """
    changes = {**loss_weights(losses), "training.fresh_moments": False}
    return _varied(plan, seed, (("losses", losses),), changes)


def _varied(
    plan: Planner, seed: int, variant: Variant, changes: Mapping[str, Any], share: float = 1.0
) -> CellSpec:
    """Return the pre-training of GraphLoG with some settings changed."""
    reference = method_named(REFERENCE)
    return plan.pretrain_cell(reference, MAIN_BACKBONE, seed, variant, changes, share)


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
_OWN_DOMAIN = {"molecules": "molecule", "biology": "protein"}
_SPLITS: Mapping[str, Collection[str]] = {"molecule": MOLECULE_SPLITS, "protein": PROTEIN_SPLITS}
_MANY_ENCODERS = ("backbones", "sensitivity")
_ONE_METHOD = ("ablation", "sensitivity", "embedding-map")


def _resolve(request: Request) -> Planner:
    suite = request.suite
    _check("scale", [request.scale], SCALES)
    _check("backbone", request.backbones, LAYERS)
    scale, domain = SCALES[request.scale], _domain(request)
    settings, changes = scale.domains[domain], list[str]()
    if request.datasets:
        chosen = tuple(dict.fromkeys(request.datasets))
        settings = replace(settings, finetuned=chosen, probed=chosen, forested=None)
    elif suite in _MANY_ENCODERS and settings.probed_across is not None:
        settings = replace(settings, probed=settings.probed_across)
    if request.source is not None:
        _check_source(request.source, domain, settings.schema)
        settings = replace(settings, source=request.source, limit=None)
        changes.append(f"source={identity(request.source)['name']}")
    if request.split is not None:
        _check(f"split of {domain}s", [request.split], _SPLITS[domain])
        settings = replace(settings, split=request.split)
        changes.append(f"split={request.split}")
    if suite in _ONE_METHOD:
        if request.methods is not None:
            raise ConfigError(f"suite '{suite}' is about {REFERENCE} alone; leave out `methods`.")
        if request.backbones is not None:
            raise ConfigError(
                f"suite '{suite}' is computed with {MAIN_BACKBONE}; leave out `backbones`."
            )
    seeds = tuple(scale.seeds if request.seeds is None else dict.fromkeys(request.seeds))
    if not seeds or min(seeds) < 0:
        raise ConfigError(
            f"`seeds` must be whole numbers from 0, at least one, found {list(seeds)}."
        )
    methods = request.methods
    if methods is None:
        methods = _default_methods(suite, domain, settings.schema)
    usual = BACKBONE_LABELS if suite == "backbones" else (MAIN_BACKBONE,)
    return Planner(
        suite=suite,
        scale=request.scale,
        changes=" ".join(changes),
        domain=domain,
        settings=settings,
        methods=tuple(method_named(name) for name in dict.fromkeys(methods)),
        backbones=tuple(request.backbones or usual),
        seeds=seeds,
        device=request.device,
        precision=request.precision,
    )


def _default_methods(suite: str, domain: str, schema: str) -> tuple[str, ...]:
    if suite == "speed":
        return tuple(name for name in OBJECTIVES if _supports(name, schema))
    baselines = BASELINES if domain == "molecule" else (LINEAR,)
    if suite in _ONE_METHOD:
        return (UNTRAINED, *baselines)
    return (*(ACROSS_BACKBONES if suite == "backbones" else COMPARED), *baselines)


def _supports(objective: str, schema: str) -> bool:
    """Return whether an objective can be pre-trained on graphs of ``schema``."""
    try:
        OBJECTIVES[objective].check_schema(schema_named(schema))
    except ConfigError:
        return False
    return True


def _check(kind: str, names: Iterable[str] | None, known: Collection[str]) -> None:
    """Raise ConfigError for the first name that is not known."""
    for name in names or ():
        check_name(kind, name, known)


def _check_source(source: str, domain: str, schema: str) -> None:
    """Raise ConfigError unless ``source`` has graphs of the suite's domain and schema."""
    if not is_store(source):
        known = [name for name, spec in DATASETS.items() if spec.domain == domain]
        _check(f"{domain} data set (or graph store)", [source], known)
    elif (found := open_store(source).schema.name) != schema:
        raise ConfigError(f"{source} has graphs of schema '{found}', the suite needs '{schema}'.")


def _domain(request: Request) -> str:
    """Return the domain: the suite's own, the one asked for, or that of the data sets named.

    Raises:
        ConfigError: If a data set is unknown, unlabeled, or of another domain.
    """
    asked = [request.domain] if request.domain is not None else []
    _check("domain of a benchmark", asked, _SPLITS)
    domains = {*asked, *filter(None, [_OWN_DOMAIN.get(request.suite)])}
    labeled = {
        name: spec
        for name, spec in DATASETS.items()
        if spec.task is not None and spec.domain in _SPLITS
    }
    for name in request.datasets or ():
        if name in DATASETS and name not in labeled:
            known = ", ".join(sorted(labeled))
            raise ConfigError(f"data set '{name}' has no labels to evaluate on. Known: {known}")
        _check("data set", [name], labeled)
        domains.add(labeled[name].domain)
    if len(domains) > 1:
        both = " and ".join(sorted(domains))
        raise ConfigError(
            f"suite, `domain` and `datasets` ask for {both} graphs at once; choose one."
        )
    return next(iter(domains), "molecule")
