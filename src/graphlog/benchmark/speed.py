"""Measurement of the speed of pre-training: of objectives, stages of a step, and batch sizes.

All that is compared takes turns on the same graphs in one process, so that other load of the
machine affects all of it equally.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from itertools import chain
from statistics import median
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from graphlog.benchmark.cells import Cell
from graphlog.benchmark.stages import Row, Work
from graphlog.data.split import Split
from graphlog.data.store import GraphStore, epoch_batches
from graphlog.downstream.finetune import SeedJob, Start
from graphlog.downstream.pretrained import Encoder
from graphlog.downstream.tasks import LabeledGraphs
from graphlog.encoders.encoder import GraphEncoder
from graphlog.errors import GraphLoGError
from graphlog.inputs import read
from graphlog.training.log import Progress
from graphlog.training.pretrain import Pretraining, objective_loss
from graphlog.training.settings import PretrainConfig, autocast, choose_device, has_fast_bf16
from graphlog.training.trainer import Cursor, Trainer

OF_A_STEP = ("collate", "forward", "backward", "optimizer")
"""Stages that make up a pre-training step."""
BATCH_SIZES = (32, 64, 128, 256, 512)
"""Batch sizes whose speed is compared."""
_MAX_CLUSTERED = 2000
"""Largest number of graphs that prototypes are fitted to."""
_MAX_RESOLUTION = 1e-4
"""Largest resolution, in seconds, of a clock that can measure a stage."""
T = TypeVar("T")
Workload = Callable[[], Iterable[str]]
"""Function that yields the name of each part of its work after it; a nameless part is not timed."""


def in_turns(
    workloads: Mapping[str, Callable[[int], T]], turns: int, warmup: int = 1
) -> dict[str, list[T]]:
    """Call all workloads in each turn, with the number of the turn, and return their results.

    The order is reversed from turn to turn. Results of the first ``warmup`` turns are left out.
    """
    results: dict[str, list[T]] = {name: [] for name in workloads}
    for number in range(warmup + turns):
        for name in list(workloads)[:: 1 if number % 2 else -1]:
            result = workloads[name](number)
            if number >= warmup:
                results[name].append(result)
    return results


class TimedObjective:
    """An objective in its last phase, ready for timed steps."""

    def __init__(self, store: GraphStore, config: PretrainConfig, progress: Progress) -> None:
        """Build encoder, objective and optimizer, and begin the last phase."""
        self.job = Pretraining(store, config, progress=progress, max_embedded=_MAX_CLUSTERED)
        if self.job.objective.needs_targets:
            self.job.find_targets(None)
        self.trainer = Trainer(self.job)
        self.trainer.cursor = Cursor(phase=len(self.job.phases) - 1)
        self.trainer.begin_phase()
        self.job.progress = Progress()  # timed steps are not reported

    def step(self, indices: Any) -> float:
        """Load a batch, take one step and return the seconds of both."""
        start = time.perf_counter()
        self.trainer.step(indices, self.job.load(indices))
        device = self.job.setting.device
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    def count_views(self, indices: Any) -> float:
        """Take one step and return the number of times that it encodes each graph.

        Encoders that the objective has itself are counted too.
        """
        num_encoded: list[int] = []

        def count(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            num_encoded.append(inputs[1].batch.num_graphs)

        modules = (self.job.encoder, *self.job.objective.modules())
        encoders = [module for module in modules if isinstance(module, GraphEncoder)]
        hooks = [encoder.layers[0].register_forward_hook(count) for encoder in encoders]
        self.step(indices)
        for hook in hooks:
            hook.remove()
        return sum(num_encoded) / len(indices)


def speed_cell(cell: Cell, work: Work) -> Iterator[Row]:
    """Yield graphs per second, views, and views per second of each objective."""
    store, timed = work.unlabeled(cell), dict[str, TimedObjective]()
    for name, config in cell.together.items():
        try:
            timed[name] = TimedObjective(store, config, work.progress)
        except GraphLoGError as e:
            work.progress.say(f"{name} is left out: {e}")
    config = next(iter(cell.together.values()))
    size = min(config.batch_size, len(store))
    batches = epoch_batches(len(store), size, config.seed)[: len(store) // size]
    # the first step, which counts the views and warms up, is not timed
    views = {name: objective.count_views(batches[0]) for name, objective in timed.items()}
    workloads: dict[str, Callable[[int], float]] = {
        name: lambda number, timed=objective: timed.step(batches[(number + 1) % len(batches)])
        for name, objective in timed.items()
    }
    for name, steps in in_turns(workloads, cell.setup.timed_steps, warmup=0).items():
        rate = size / median(steps)
        values = {"graphs_per_s": rate, "views": views[name], "views_per_s": rate * views[name]}
        for metric, value in values.items():
            yield {"method": name, "metric": metric, "value": value}


def stage_cell(cell: Cell, work: Work) -> Iterator[Row]:
    """Yield the seconds of each stage per 1,000 graphs, and graphs per second by batch size."""
    config, store, turns = cell.config, work.unlabeled(cell), cell.setup.timed_steps
    device = choose_device(config.device)
    order, now = np.random.default_rng(config.seed).permutation(len(store)), _clock(device)
    indices = order[: config.batch_size]
    tuned = store.subset(indices[: cell.finetuning.batch_size])
    stages, by_batch_size = dict[str, Workload](), dict[str, Workload]()
    for precision in ("fp32", "bf16") if has_fast_bf16(device) else ("fp32",):
        timed = TimedObjective(store, config.updated({"precision": precision}), work.progress)
        step = partial(_step, timed, indices, _finetuning(timed, cell, tuned))
        stages[precision] = step
        if precision == "fp32":
            others = partial(_stages_outside_steps, timed, order)
            stages[precision] = lambda step=step, others=others: chain(step(), others())
        by_batch_size[precision] = partial(_steps_by_batch_size, timed, order)
    num_graphs = {"finetune": len(tuned), "kmeans": min(len(store), _MAX_CLUSTERED)}
    for precision, seconds in least(stages, turns, now).items():
        values = {s: 1000 * t / num_graphs.get(s, len(indices)) for s, t in seconds.items()}
        values["step"] = sum(values[stage] for stage in OF_A_STEP)
        for metric, value in values.items():
            yield {"rule": precision, "metric": metric, "value": value}
    for precision, seconds in least(by_batch_size, turns, now).items():
        for size, value in seconds.items():
            yield {"rule": f"batches {precision}", "metric": size, "value": int(size) / value}


def least(
    workloads: Mapping[str, Workload], turns: int, now: Callable[[], float]
) -> dict[str, dict[str, float]]:
    """Return the minimum over the turns of the seconds of each part of each workload.

    A first turn, which warms up, is left out. ``now`` is the clock.
    """

    def measure(workload: Workload, turn: int) -> dict[str, float]:
        seconds, start = dict[str, float](), now()
        for part in workload():
            seconds[part] = now() - start
            start = now()
        return seconds

    measured = in_turns({name: partial(measure, work) for name, work in workloads.items()}, turns)
    return {
        name: {part: min(seconds[part] for seconds in of_turns) for part in of_turns[0] if part}
        for name, of_turns in measured.items()
    }


def _step(timed: TimedObjective, indices: np.ndarray, tuning: Trainer) -> Iterator[str]:
    """Take a pre-training step, embed, and take a fine-tuning step on the same graphs."""
    encoder, objective, setting = timed.job.encoder, timed.job.objective, timed.job.setting
    optimizer = timed.trainer.optimizer
    assert optimizer is not None
    batch = timed.job.store.take(indices)
    yield "collate"
    losses = objective_loss(encoder, objective, batch, 1, setting)
    yield "forward"
    optimizer.zero_grad()
    losses.total.backward()
    yield "backward"
    optimizer.step(timed.job.config.learning_rate)
    yield "optimizer"
    batch = timed.job.store.take(indices)  # a new batch, without neighborhoods sorted by the step
    encoder.eval()
    yield ""
    with torch.inference_mode(), autocast(setting.precision, setting.device):
        encoder(batch.to(setting.device))
    yield "embed"
    encoder.train()
    (rows,) = tuning.job.batches(0)
    yield ""
    tuning.step(rows, tuning.job.load(rows))
    yield "finetune"


def _stages_outside_steps(timed: TimedObjective, order: np.ndarray) -> Iterator[str]:
    """Parse texts, if there are any, and fit the prototypes."""
    job, store = timed.job, timed.job.store
    if store.schema.domain == "molecule" and store.has_texts:
        texts = store.texts(order[: job.config.batch_size])
        yield ""
        read(texts, store.schema, workers=1)
        yield "parse"
    objective, batches = deepcopy(job.objective), np.array_split(order[:_MAX_CLUSTERED], 8)
    with torch.no_grad():
        pieces = (store.take(rows).to(job.setting.device) for rows in batches if len(rows))
        points = torch.cat([job.encoder(piece).graph_emb for piece in pieces])
    yield ""
    objective.begin_phase(
        job.phases[-1], lambda limit, calibrated: points[:limit], torch.Generator().manual_seed(0)
    )
    yield "kmeans"


def _steps_by_batch_size(timed: TimedObjective, order: np.ndarray) -> Iterator[str]:
    """Take a step with every batch size."""
    for size in [size for size in BATCH_SIZES if size <= len(order)] or [len(order)]:
        timed.step(order[:size])
        yield str(size)


def _finetuning(timed: TimedObjective, cell: Cell, store: GraphStore) -> Trainer:
    """Return fine-tuning on a single batch with all graphs of ``store`` and random labels."""
    job, empty = timed.job, np.arange(0)
    labels = np.random.default_rng(0).integers(0, 2, (len(store), 1)).astype(np.float32)
    split = Split(np.arange(len(store)), empty, empty)
    data = LabeledGraphs(
        "drawn", store, labels, ("drawn",), "classification", "roc_auc", split, "none"
    )
    config = cell.finetuning.updated(
        {"device": str(job.setting.device), "precision": job.setting.precision}
    )
    encoder = Encoder(deepcopy(job.encoder), config.layer or "last")
    trainer = Trainer(SeedJob(Start(encoder, data, config, None, ""), 0, Progress()))
    trainer.begin_phase()
    return trainer


def _clock(device: torch.device) -> Callable[[], float]:
    """Return a clock for stages.

    With a single thread it measures processor time, which other processes affect least, unless its
    resolution is too coarse for short stages (as on Windows).
    """
    if device.type == "cuda":

        def synchronized() -> float:
            torch.cuda.synchronize(device)
            return time.perf_counter()

        return synchronized
    resolution = time.get_clock_info("process_time").resolution
    is_exact = torch.get_num_threads() == 1 and resolution < _MAX_RESOLUTION
    return time.process_time if is_exact else time.perf_counter
