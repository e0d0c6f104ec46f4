"""The cells of a benchmark: what each one is, what decides its outcome, and what it needs first."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from graphlog.benchmark.methods import FOREST, MAIN_BACKBONE, Method, ScaleSettings
from graphlog.data.manifest import is_store
from graphlog.data.store import open_store
from graphlog.datasets import DATASETS, find_spec
from graphlog.downstream.finetune import FinetuneConfig
from graphlog.downstream.linear import MANY_TASKS
from graphlog.objectives import OBJECTIVES
from graphlog.training.config import PretrainConfig, resolve_config

STAGES = ("pretrain", "finetune", "probe", "map", "speed", "stage-speed")
NOT_OF_THE_OUTCOME = {"checkpoint_every_s", "log_every", "watch_every", "device"}
"""Settings in which two cells of the same outcome may differ."""
Variant = tuple[tuple[str, str | int | float | bool], ...]


@dataclass(frozen=True, slots=True, eq=False)
class CellSpec:
    """One cell to compute. Cells of the same ``config_hash`` have the same outcome."""

    plan: "Planner"
    stage: str
    """``pretrain``, ``finetune``, ``probe``, ``map``, ``speed`` or ``stage-speed``."""
    method: Method
    backbone: str | None
    """None for fingerprints."""
    variant: Variant
    """What the suite varies; mostly nothing."""
    dataset: str | None
    seed: int | None
    """None where nothing is random."""
    config: Mapping[str, Any]
    """Everything that decides the outcome, defaults included."""
    config_hash: str
    """sha256 of the part that differs from the defaults, so that a new setting changes no hash."""
    origin: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The part of the configuration that decides the encoder."""
    pretraining: PretrainConfig | None = None
    """Settings of the encoder: how it is pre-trained, or would be."""
    finetuning: FinetuneConfig | None = None
    share: float = 1.0
    """Share of the pre-training graphs that is used."""
    model: str = ""
    """Folder of the pre-trained model that the cell makes or needs; empty where there is none."""
    companions: Mapping[str, PretrainConfig] = field(default_factory=dict[str, PretrainConfig])
    """Settings of all methods that are timed together with this one."""

    @property
    def settings(self) -> ScaleSettings:
        """What it shares with all cells of its domain and scale."""
        return self.plan.settings

    @property
    def key(self) -> str:
        """Identifier of the cell in tables and file names."""
        words = [str(value) for pair in self.variant for value in pair]
        seed = None if self.seed is None else f"s{self.seed}"
        place = [self.plan.scale, self.method.name, self.backbone, *words, self.dataset, seed]
        return "-".join(word for word in (self.stage, *place, self.config_hash[:8]) if word)

    @property
    def work_key(self) -> str:
        """Name of the work, equal for cells of the same outcome; one process times at a time."""
        is_timed = self.stage in ("speed", "stage-speed")
        return "speed" if is_timed else f"{self.stage}-{self.config_hash[:16]}"

    @property
    def title(self) -> str:
        """Name of the cell in progress messages."""
        varied = [f"{name}={value}" for name, value in self.variant]
        seed = None if self.seed is None else f"seed {self.seed}"
        words = [self.stage, self.method.name, self.backbone, *varied, self.dataset, seed]
        return " ".join(word for word in words if word)


@dataclass(frozen=True, slots=True)
class Planner:
    """A request with every name resolved; makes the cells of its suite."""

    suite: str
    scale: str
    changes: str
    """Source and split, where they are not the scale's own; mostly empty."""
    domain: str
    settings: ScaleSettings
    methods: tuple[Method, ...] = ()
    backbones: tuple[str, ...] = (MAIN_BACKBONE,)
    seeds: tuple[int, ...] = (0,)
    device: str = "auto"
    precision: str = "auto"

    @property
    def command(self) -> str:
        """Command that computes the suite."""
        other = self.domain == "protein" and self.suite != "biology"
        domain = " --domain protein" if other else ""
        changes = "".join(f" --{change.replace('=', ' ')}" for change in self.changes.split())
        return f"graphlog benchmark {self.suite} -o DIR --scale {self.scale}{domain}{changes}"

    def pretraining(
        self, method: Method, backbone: str, seed: int, changes: Mapping[str, Any] | None = None
    ) -> PretrainConfig:
        """Return how ``method`` is pre-trained at this scale; of an untrained one, its encoder."""
        scale = self.settings
        encoder = {**scale.encoder, "backbone": backbone}
        overrides: dict[str, Any] = {f"encoder.{name}": value for name, value in encoder.items()}
        overrides |= {"schema": scale.schema, "embedding": "jk", **scale.training, "seed": seed}
        overrides |= {"device": self.device, "precision": self.precision, **(changes or {})}
        if method.kind != "pretrained":
            return resolve_config(overrides=overrides)
        return resolve_config(method.objective, method.recipe_for(self.domain), overrides)

    def pretrain_cell(
        self,
        method: Method,
        backbone: str,
        seed: int,
        variant: Variant = (),
        changes: Mapping[str, Any] | None = None,
        share: float = 1.0,
    ) -> CellSpec:
        """Return the cell of one pre-training.

        An untrained method has no such cell to compute; its result serves :meth:`evaluations`.
        """
        config = self.pretraining(method, backbone, seed, changes)
        if method.kind == "untrained":
            fields = ("encoder", "schema", "embedding", "seed")
            origin = {"untrained": {name: getattr(config, name) for name in fields}}
        else:
            source = {**identity(self.settings.source), "limit": self.settings.limit}
            part = {} if share == 1.0 else {"share": share}
            origin = {"source": {**source, **part}, "pretrain": config}
        decided = _decided("pretrain", seed, origin)
        cell = CellSpec(self, "pretrain", method, backbone, variant, None, seed, *decided)
        model = cell.config_hash[:16] if method.kind == "pretrained" else ""
        return replace(cell, origin=origin, pretraining=config, share=share, model=model)

    def evaluations(self, trained: CellSpec) -> Iterator[CellSpec]:
        """Yield a pre-training cell, where there is anything to train, and its evaluations."""
        if trained.method.kind == "pretrained":
            yield trained
        precision = "fp32" if self.precision == "auto" else self.precision
        own = {**self.settings.finetuning, "device": self.device, "precision": precision}
        tuning = FinetuneConfig.parse({"protocol": "paper", **own})
        for dataset in self.settings.finetuned:
            config = {"dataset": self._labeled(dataset), "finetune": tuning}
            cell = _following("finetune", trained, config)
            yield replace(cell, dataset=dataset, finetuning=tuning)
        for dataset in self.settings.probed:
            config = {"dataset": self._labeled(dataset), "layer": self.settings.probe_layer}
            yield replace(_following("probe", trained, config), dataset=dataset)

    def baseline_cells(self, method: Method) -> Iterator[CellSpec]:
        """Yield the cells of a model on fingerprints, on every data set that suits it.

        The linear one is deterministic, and a forest of many targets has one seed.
        """
        scale = self.settings
        for dataset in dict.fromkeys([*scale.finetuned, *scale.probed]):
            seeds: Sequence[int | None] = (None,)
            if method.name == FOREST:
                if scale.forested is not None and dataset not in scale.forested:
                    continue
                many = DATASETS[dataset].num_tasks > MANY_TASKS
                seeds = self.seeds[:1] if many else self.seeds
            config = {"features": method.name, "schema": scale.schema}
            config |= {"dataset": self._labeled(dataset)}
            for seed in seeds:
                decided = _decided("probe", seed, config)
                yield CellSpec(self, "probe", method, None, (), dataset, seed, *decided)

    def map_cell(self, trained: CellSpec) -> CellSpec:
        """Return the cell of the map of ``trained``."""
        return _following("map", trained, {"graphs": self.settings.mapped})

    def speed_cell(self, method: Method, backbone: str, seed: int) -> CellSpec:
        """Return the cell of the throughput of ``method``, measured in turns with all others."""
        timed = [m for m in self.methods if m.kind == "pretrained"]
        config = {"together": [m.name for m in timed], "steps": self.settings.timed_steps}
        cell = _following("speed", self.pretrain_cell(method, backbone, seed), config)
        companions = {m.name: self.pretraining(m, backbone, seed) for m in timed}
        return replace(cell, model="", companions=companions)

    def stage_cell(self, method: Method, backbone: str, seed: int) -> CellSpec:
        """Return the cell of the seconds of every stage of ``method``."""
        settings = self.settings
        config = {"steps": settings.timed_steps, "finetune": dict(settings.finetuning)}
        cell = _following("stage-speed", self.pretrain_cell(method, backbone, seed), config)
        return replace(cell, model="")

    def _labeled(self, dataset: str) -> dict[str, Any]:
        """Return what identifies a labeled data set and its folds."""
        split = self.settings.split
        return {**identity(dataset), **({"split": split} if split else {})}


def identity(source: str) -> dict[str, Any]:
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


def _following(stage: str, trained: CellSpec, config: Mapping[str, Any]) -> CellSpec:
    """Return a cell that needs the encoder of ``trained``."""
    whole, digest = _decided(stage, trained.seed, {**trained.origin, **config})
    return replace(trained, stage=stage, config=whole, config_hash=digest)


def _decided(stage: str, seed: int | None, config: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return what decides the outcome of a cell, and its hash."""
    whole = {"stage": stage, "seed": seed, **config}
    decisive = json.dumps(_plain(whole, complete=False), sort_keys=True)
    return _plain(whole, complete=True), hashlib.sha256(decisive.encode()).hexdigest()


def _plain(value: Any, complete: bool) -> Any:
    """Return ``value`` as JSON: all settings, or the decisive ones that differ from defaults."""
    if hasattr(value, "model_dump"):
        outside = set[str]() if complete else NOT_OF_THE_OUTCOME & set(type(value).model_fields)
        plain = value.model_dump(mode="json", exclude_defaults=not complete, exclude=outside)
        if isinstance(value, PretrainConfig) and not complete:
            options = OBJECTIVES[value.objective].Config.parse(value.options, "objective.")
            plain["options"] = options.model_dump(mode="json", exclude_defaults=True)
        return plain
    if isinstance(value, Mapping):
        return {str(k): _plain(v, complete) for k, v in value.items()}
    return value
