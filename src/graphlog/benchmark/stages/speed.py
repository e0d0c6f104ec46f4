"""Throughput of pre-training: all objectives over the same batches, taking turns, so that a busy machine slows all alike."""

import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median, quantiles
from typing import Any

import torch

from graphlog.benchmark.grid import CellSpec
from graphlog.benchmark.methods import method_named
from graphlog.benchmark.sources import about
from graphlog.benchmark.stages.common import Found, Workplace, facts, settings_of
from graphlog.data.sampler import BatchSampler
from graphlog.data.store import GraphStore
from graphlog.encoders.encoder import GraphEncoder
from graphlog.errors import GraphLoGError
from graphlog.training.config import PretrainConfig
from graphlog.training.log import Progress, Silent
from graphlog.training.pretrain import Pretraining
from graphlog.training.targets import with_targets
from graphlog.training.trainer import Cursor, Trainer

_FITTED_ON = 2000
"""Graphs that prototypes are fitted on before the clock runs."""


class Pace:
    """An objective in its last phase, ready to take steps."""

    def __init__(self, store: GraphStore, config: PretrainConfig, progress: Progress) -> None:
        """Build encoder, objective and optimiser, and begin the last phase."""
        self.job = Pretraining(store, config, progress=progress, embed_at_most=_FITTED_ON)
        if self.job.objective.needs_targets:
            self.job.store = with_targets(store, progress)
        self.trainer = Trainer(self.job, Silent())
        self.trainer.cursor = Cursor(phase=len(self.job.phases) - 1)
        self.trainer.begin_phase()

    def step(self, indices: Any) -> float:
        """Take one step, loading of the batch included, and return its seconds."""
        began = time.perf_counter()
        self.trainer.step(indices, self.job.load(indices))
        device = self.job.setting.device
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - began

    def views_of_step(self, indices: Any) -> dict[str, float]:
        """Take one step and return how many encoded copies of a graph, and of a node, it takes; the objective's own encoders count too."""
        passed = {"graphs": 0, "nodes": 0}
        encoders = [
            m
            for m in (self.job.encoder, *self.job.objective.modules())
            if isinstance(m, GraphEncoder)
        ]
        with _counted(encoders, passed):
            self.step(indices)
        batch = self.job.load(indices)
        return {
            "views": passed["graphs"] / batch.num_graphs,
            "node_views": passed["nodes"] / batch.num_nodes,
        }


def speed_cell(spec: CellSpec, workplace: Workplace) -> Found:
    """Return the throughput of one objective; it is measured with all others of its suite once, and they are remembered."""
    names = tuple(str(name) for name in spec.config["together"])
    key = (names, spec.backbone, spec.seed)
    if key not in workplace.measured:
        began, load = time.monotonic(), os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        store = workplace.graphs.unlabelled(spec)
        paces = _paces(spec, names, store, workplace)
        found = interleaved(paces, store, settings_of(spec), spec.frame.timed_steps)
        shared = {
            "seconds": (time.monotonic() - began) / max(len(paces), 1),
            "load": load,
            "graphs": about(store, spec.frame.source),
        }
        workplace.measured[key] = {name: {**own, **shared} for name, own in found.items()}
    measured = workplace.measured[key]
    if spec.method.name not in measured:
        raise GraphLoGError(f"objective '{spec.method.name}' cannot be computed on these graphs.")
    own = dict(measured[spec.method.name])
    told = facts(spec, {"pretrain": own.pop("graphs")}, own.pop("seconds"), own.pop("graphs_per_s"))
    views = own.pop("views")
    scores = {
        "throughput": {
            "graphs_per_s": told["graphs_per_s"],
            "views_per_s": (told["graphs_per_s"] or 0.0) * views,
            **own,
        }
    }
    return {
        **told,
        "scores": scores,
        "views": views,
        "metric": None,
        "task": None,
        "together": list(names),
    }


def interleaved(
    paces: Mapping[str, Pace], store: GraphStore, config: PretrainConfig, steps: int
) -> dict[str, dict[str, float]]:
    """Return graphs a second and views of each objective, all taking turns over the same batches; none always goes first."""
    batches = BatchSampler(
        len(store), min(config.batch_size, len(store)), config.seed, drop_last=True
    ).epoch(0)
    views = {
        name: pace.views_of_step(batches[0]) for name, pace in paces.items()
    }  # the first step, which warms up, is not timed
    seconds: dict[str, list[float]] = {name: [] for name in paces}
    for number in range(steps):
        for name in list(paces)[:: 1 if number % 2 else -1]:
            seconds[name].append(paces[name].step(batches[(number + 1) % len(batches)]))
    size = len(batches[0])
    return {
        name: {"graphs_per_s": size / median(taken), **views[name], **_spread(taken)}
        for name, taken in seconds.items()
    }


def _paces(
    spec: CellSpec, names: Sequence[str], store: GraphStore, workplace: Workplace
) -> dict[str, Pace]:
    """Return every objective that graphs of this schema can serve, those that cannot left out."""
    if spec.settings_for is None:
        raise ValueError("a cell of speed knows how its companions are set up")
    paces: dict[str, Pace] = {}
    for name in names:
        try:
            paces[name] = Pace(store, spec.settings_for(method_named(name)), Silent())
        except GraphLoGError as e:
            workplace.progress.say(f"{name} is left out: {e}")
    return paces


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    first, middle, third = quantiles(seconds, n=4) if len(seconds) > 1 else (seconds[0],) * 3
    return {"step_s": middle, "step_first_quartile_s": first, "step_third_quartile_s": third}


@contextmanager
def _counted(encoders: Sequence[GraphEncoder], passed: dict[str, int]) -> Generator[None]:
    """Count the graphs and nodes that go through the first layer of any of the encoders inside the block."""

    def count(module: torch.nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        batch = inputs[1].batch
        passed["graphs"] += batch.num_graphs
        passed["nodes"] += batch.num_nodes

    hooks = [encoder.layers[0].register_forward_hook(count) for encoder in encoders]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
