"""From a suite to the list of its cells: what each is, what decides its outcome, and what it waits for."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphlog.benchmark.methods import FINGERPRINTS, FOREST, Method
from graphlog.benchmark.scales import Domain, Frame
from graphlog.datasets import DATASETS
from graphlog.downstream.baselines import MANY_TASKS
from graphlog.downstream.finetune import FinetuneConfig
from graphlog.errors import unknown_name
from graphlog.training.config import PretrainConfig, resolve_config

STAGES = ("pretrain", "finetune", "probe", "map", "speed")
NOT_OF_THE_OUTCOME = {"checkpoint_every_s", "log_every", "watch_every", "device"}
"""Settings that two cells of the same work may differ in."""
Variant = tuple[tuple[str, str | int | float | bool], ...]


@dataclass(frozen=True, slots=True, eq=False)
class CellSpec:
    """One cell to be computed. Two cells with the same ``config_hash`` have the same outcome, whatever they are called."""

    stage: str
    """``pretrain``, ``finetune``, ``probe``, ``map`` or ``speed``."""
    suite: str
    scale: str
    domain: Domain
    frame: Frame
    method: Method
    backbone: str | None
    """None for fingerprints."""
    variant: Variant
    """What the suite varies; mostly nothing."""
    dataset: str | None
    seed: int | None
    """None where nothing is drawn."""
    config: Mapping[str, Any]
    """Everything that decides the outcome, defaults included."""
    config_hash: str
    """sha256 of what of it differs from the defaults, so that a setting born later changes no hash."""
    pretraining: PretrainConfig | None = None
    """Settings of the encoder: how it is pre-trained, or would be."""
    finetuning: FinetuneConfig | None = None
    settings_for: Callable[[Method], PretrainConfig] | None = None
    """Settings of another method in the same place, for those that are timed together."""
    model: str = ""
    """Name of the folder of the pre-trained model that it makes or needs; empty where there is none."""

    @property
    def key(self) -> str:
        """Name of the cell's file without suffix."""
        words = [str(value) for pair in self.variant for value in pair]
        seed = [] if self.seed is None else [f"s{self.seed}"]
        named = [
            self.stage,
            self.scale,
            self.method.name,
            self.backbone,
            *words,
            self.dataset,
            *seed,
            self.config_hash[:8],
        ]
        return "-".join(word for word in named if word)

    @property
    def command(self) -> str:
        """What anyone may type to have this cell computed among those of its suite; folder, seeds and order of the runs leave no trace."""
        domain = " --domain protein" if self.domain == "protein" and self.suite != "biology" else ""
        return f"graphlog benchmark {self.suite} -o DIR --scale {self.scale}{domain}"

    @property
    def work_key(self) -> str:
        """Name of the work itself: equal for cells of the same outcome. Clocks are read by one process at a time."""
        if self.stage == "speed":
            return "speed"
        return f"{self.stage}-{self.config_hash[:16]}"

    @property
    def title(self) -> str:
        """What a line of progress calls it."""
        varied = [f"{name}={value}" for name, value in self.variant]
        words = [
            self.stage,
            self.method.name,
            self.backbone,
            *varied,
            self.dataset,
            None if self.seed is None else f"seed {self.seed}",
        ]
        return " ".join(word for word in words if word)


@dataclass(frozen=True, slots=True)
class Bench:
    """What all cells of one suite in one run have in common."""

    suite: str
    scale: str
    domain: Domain
    frame: Frame
    device: str = "auto"
    precision: str = "auto"

    def settings(
        self, method: Method, backbone: str, seed: int, changes: Mapping[str, Any]
    ) -> PretrainConfig:
        """Return how ``method`` is pre-trained in the frame of this scale; an untrained one is given the frame alone."""
        frame = self.frame
        overrides: dict[str, Any] = {
            f"encoder.{name}": value
            for name, value in {**frame.encoder, "backbone": backbone}.items()
        }
        overrides |= {"schema": frame.schema, "embedding": "jk", **frame.training, "seed": seed}
        overrides |= {"device": self.device, "precision": self.precision, **changes}
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
    ) -> CellSpec:
        """Return the cell of one pre-training."""
        settings = self.settings(method, backbone, seed, changes or {})
        return self._cell(
            "pretrain",
            method,
            backbone,
            variant,
            None,
            seed,
            self._origin(method, settings),
            settings,
        )

    def scored_cells(
        self, stage: str, trained: CellSpec, datasets: Sequence[str]
    ) -> Iterator[CellSpec]:
        """Yield the cells that judge the encoder of ``trained`` on data sets."""
        settings = trained.pretraining
        if settings is None:
            raise ValueError("a cell without an encoder cannot be judged by one")
        origin = self._origin(trained.method, settings)
        for dataset in datasets:
            tuning = None
            if stage == "finetune":
                tuning = FinetuneConfig.parse(
                    {
                        "protocol": "paper",
                        **self.frame.finetuning,
                        "device": self.device,
                        "precision": "fp32" if self.precision == "auto" else self.precision,
                    }
                )
            own = {
                "dataset": described(dataset),
                **({} if tuning else {"layer": self.frame.probe_layer}),
            }
            yield self._cell(
                stage,
                trained.method,
                trained.backbone,
                trained.variant,
                dataset,
                trained.seed,
                {**origin, **own},
                settings,
                tuning,
            )

    def fingerprint_cells(
        self, method: Method, datasets: Sequence[str], seeds: Sequence[int]
    ) -> Iterator[CellSpec]:
        """Yield the cells of a fingerprint with a model on it; the linear one draws nothing, forests of many targets have one seed."""
        for dataset in datasets:
            many = dataset in DATASETS and DATASETS[dataset].num_tasks > MANY_TASKS
            drawn: Sequence[int | None] = (
                (None,) if method.name != FOREST else seeds[:1] if many else seeds
            )
            for seed in drawn:
                config = {
                    "features": method.name,
                    "schema": self.frame.schema,
                    "dataset": described(dataset),
                }
                yield self._cell("probe", method, None, (), dataset, seed, config)

    def map_cell(self, trained: CellSpec) -> CellSpec:
        """Return the cell of the map of ``trained``."""
        settings = trained.pretraining
        if settings is None:
            raise ValueError("a cell without an encoder has no map")
        config = {**self._origin(trained.method, settings), "graphs": self.frame.mapped}
        return self._cell(
            "map",
            trained.method,
            trained.backbone,
            trained.variant,
            None,
            trained.seed,
            config,
            settings,
        )

    def speed_cell(
        self, method: Method, together: Sequence[str], backbone: str, seed: int
    ) -> CellSpec:
        """Return the cell of the throughput of ``method``, which is measured in turns with others."""
        settings = self.settings(method, backbone, seed, {})
        config = {
            **self._origin(method, settings),
            "together": list(together),
            "steps": self.frame.timed_steps,
        }
        cell = self._cell("speed", method, backbone, (), None, seed, config, settings)
        return replace(cell, settings_for=lambda other: self.settings(other, backbone, seed, {}))

    def _origin(self, method: Method, settings: PretrainConfig) -> dict[str, Any]:
        """Return what decides an encoder: an untrained one is drawn, whatever would have been its training."""
        if method.kind == "untrained":
            kept = {
                "encoder": settings.encoder,
                "schema": settings.schema,
                "embedding": settings.embedding,
                "seed": settings.seed,
            }
            return {"untrained": kept}
        return {
            "source": {**described(self.frame.source), "limit": self.frame.limit},
            "pretrain": settings,
        }

    def _cell(
        self,
        stage: str,
        method: Method,
        backbone: str | None,
        variant: Variant,
        dataset: str | None,
        seed: int | None,
        config: Mapping[str, Any],
        pretraining: PretrainConfig | None = None,
        finetuning: FinetuneConfig | None = None,
    ) -> CellSpec:
        whole = {
            "stage": stage,
            "seed": seed,
            **config,
            **({"finetune": finetuning} if finetuning else {}),
        }
        model = ""
        if method.kind == "pretrained" and pretraining is not None and stage != "speed":
            origin = self._origin(method, pretraining)
            model = _hash({"stage": "pretrain", "seed": seed, **origin})[:16]
        return CellSpec(
            stage=stage,
            suite=self.suite,
            scale=self.scale,
            domain=self.domain,
            frame=self.frame,
            method=method,
            backbone=backbone,
            variant=variant,
            dataset=dataset,
            seed=seed,
            config=_plain(whole, complete=True),
            config_hash=_hash(whole),
            pretraining=pretraining,
            finetuning=finetuning,
            model=model,
        )


def described(name: str) -> dict[str, Any]:
    """Return the name of a data set and the hashes of what it is made of.

    Raises:
        ConfigError: If there is none of that name.
    """
    if name not in DATASETS:
        raise unknown_name("data set", name, DATASETS)
    spec = DATASETS[name]
    digests = [spec.sha256_smiles or spec.sha256_file, spec.sha256_label_file]
    return {"name": name, "sha256": "+".join(d for d in digests if d)}


def is_baseline(spec: CellSpec) -> bool:
    """Return whether a cell has no encoder."""
    return spec.method.name in FINGERPRINTS


def _hash(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(
        json.dumps(_plain(values, complete=False), sort_keys=True).encode()
    ).hexdigest()


def _plain(value: Any, complete: bool) -> Any:
    """Return ``value`` as JSON; of settings, all of them or those that decide the outcome and are not at their defaults."""
    if hasattr(value, "model_dump"):
        outside = set[str]() if complete else NOT_OF_THE_OUTCOME & set(type(value).model_fields)
        return value.model_dump(mode="json", exclude_defaults=not complete, exclude=outside)
    if isinstance(value, Mapping):
        return {str(k): _plain(v, complete) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return value
