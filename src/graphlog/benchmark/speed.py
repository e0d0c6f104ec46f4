"""Throughput of pre-training: all objectives take turns over the same batches.

What else the machine does then slows all of them alike.
"""

import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median, quantiles
from typing import Any

import torch

from graphlog.benchmark.cells import CellSpec
from graphlog.benchmark.stages import CellContext, Result, describe, encoder_settings, provenance
from graphlog.data.sampler import BatchSampler
from graphlog.data.store import GraphStore
from graphlog.encoders.encoder import GraphEncoder
from graphlog.errors import GraphLoGError
from graphlog.training.config import PretrainConfig
from graphlog.training.log import Progress, Silent
from graphlog.training.pretraining import Pretraining
from graphlog.training.targets import with_targets
from graphlog.training.trainer import Cursor, Trainer

_FITTED_ON = 2000
"""Graphs that prototypes are fitted on before the clock runs."""


class TimedObjective:
    """An objective in its last phase, ready to take timed steps."""

    def __init__(self, store: GraphStore, config: PretrainConfig, progress: Progress) -> None:
        """Build encoder, objective and optimizer, and begin the last phase."""
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

    def count_views(self, indices: Any) -> dict[str, float]:
        """Take one step and return how many times it encodes a graph, and a node.

        Encoders of the objective itself count too.
        """
        encoded = {"graphs": 0, "nodes": 0}
        modules = (self.job.encoder, *self.job.objective.modules())
        with _counted([m for m in modules if isinstance(m, GraphEncoder)], encoded):
            self.step(indices)
        batch = self.job.load(indices)
        return {
            "views": encoded["graphs"] / batch.num_graphs,
            "node_views": encoded["nodes"] / batch.num_nodes,
        }


def speed_cell(spec: CellSpec, context: CellContext) -> Result:
    """Return the throughput of one objective, measured once together with all of its suite."""
    names = tuple(spec.companions)
    key = (names, spec.backbone, spec.seed)
    if key not in context.timings:
        context.timings[key] = _time_together(spec, context)
    timings = context.timings[key]
    if spec.method.name not in timings:
        raise GraphLoGError(f"objective '{spec.method.name}' cannot be computed on these graphs.")
    timed = dict(timings[spec.method.name])
    graphs, views = timed.pop("graphs"), timed.pop("views")
    seconds, rate = timed.pop("seconds"), timed.pop("graphs_per_s")
    result = provenance(spec, {"pretrain": graphs}, seconds, rate)
    throughput = {"graphs_per_s": rate, "views_per_s": rate * views, **timed}
    return {
        **result,
        "scores": {"throughput": throughput},
        "views": views,
        "metric": None,
        "together": list(names),
    }


def interleaved(
    timed: Mapping[str, TimedObjective], store: GraphStore, config: PretrainConfig, steps: int
) -> dict[str, dict[str, float]]:
    """Return graphs a second and views of each objective; they take turns over the same batches."""
    size = min(config.batch_size, len(store))
    batches = BatchSampler(len(store), size, config.seed, drop_last=True).epoch(0)
    # the first step, which warms up, is not timed
    views = {name: objective.count_views(batches[0]) for name, objective in timed.items()}
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    for number in range(steps):
        for name in list(timed)[:: 1 if number % 2 else -1]:  # none always goes first
            seconds[name].append(timed[name].step(batches[(number + 1) % len(batches)]))
    return {
        name: {"graphs_per_s": size / median(taken), **views[name], **_quartiles(taken)}
        for name, taken in seconds.items()
    }


def _time_together(spec: CellSpec, context: CellContext) -> dict[str, Result]:
    began, load = time.monotonic(), os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    store = context.unlabeled(spec)
    timed: dict[str, TimedObjective] = {}
    for name, config in spec.companions.items():
        try:
            timed[name] = TimedObjective(store, config, context.progress)
        except GraphLoGError as e:
            context.progress.say(f"{name} is left out: {e}")
    found = interleaved(timed, store, encoder_settings(spec), spec.settings.timed_steps)
    seconds = (time.monotonic() - began) / max(len(timed), 1)
    shared = {"seconds": seconds, "load": load, "graphs": describe(store, spec)}
    return {name: {**own, **shared} for name, own in found.items()}


def _quartiles(seconds: Sequence[float]) -> dict[str, float]:
    first, middle, third = quantiles(seconds, n=4) if len(seconds) > 1 else (seconds[0],) * 3
    return {"step_s": middle, "step_first_quartile_s": first, "step_third_quartile_s": third}


@contextmanager
def _counted(encoders: Sequence[GraphEncoder], encoded: dict[str, int]) -> Generator[None]:
    """Count the graphs and nodes that go through the first layer of any encoder in the block."""

    def count(module: torch.nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        batch = inputs[1].batch
        encoded["graphs"] += batch.num_graphs
        encoded["nodes"] += batch.num_nodes

    hooks = [encoder.layers[0].register_forward_hook(count) for encoder in encoders]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
