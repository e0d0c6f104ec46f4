"""Seconds of pre-training: of each objective, of each stage of a step, and by batch size.

All sides take turns over the same graphs in one process: what else the machine does slows them
alike.
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
"""The stages that make up a pre-training step."""
BATCH_SIZES = (32, 64, 128, 256, 512)
"""Batch sizes of the curve."""
_CLUSTERED = 2000
"""Graphs that prototypes are fitted to, before the clock runs or under it."""
_COARSE = 1e-4
"""Seconds between two ticks of a clock that is of no use for a stage."""
T = TypeVar("T")
Side = Callable[[], Iterable[str]]
"""Does its parts in turn and yields the name of each when it is done; empty: it is not timed."""


def in_turns(
    sides: Mapping[str, Callable[[int], T]], turns: int, warmup: int = 1
) -> dict[str, list[T]]:
    """Call every side with the number of each turn and return its results; none always begins.

    Those of the first ``warmup`` turns are left out.
    """
    found: dict[str, list[T]] = {name: [] for name in sides}
    for number in range(warmup + turns):
        for name in list(sides)[:: 1 if number % 2 else -1]:
            result = sides[name](number)
            if number >= warmup:
                found[name].append(result)
    return found


class TimedObjective:
    """An objective in its last phase, ready to take timed steps."""

    def __init__(self, store: GraphStore, config: PretrainConfig, progress: Progress) -> None:
        """Build encoder, objective and optimizer, and begin the last phase."""
        self.job = Pretraining(store, config, progress=progress, embed_at_most=_CLUSTERED)
        if self.job.objective.needs_targets:
            self.job.find_targets(None)
        self.trainer = Trainer(self.job)
        self.trainer.cursor = Cursor(phase=len(self.job.phases) - 1)
        self.trainer.begin_phase()
        self.job.progress = Progress()  # its steps are not to be followed

    def step(self, indices: Any) -> float:
        """Take one step, loading of the batch included, and return its seconds."""
        began = time.perf_counter()
        self.trainer.step(indices, self.job.load(indices))
        device = self.job.setting.device
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - began

    def count_views(self, indices: Any) -> float:
        """Take one step and return how many times it encodes a graph.

        Encoders of the objective itself count too.
        """
        encoded: list[int] = []

        def count(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            encoded.append(inputs[1].batch.num_graphs)

        modules = (self.job.encoder, *self.job.objective.modules())
        encoders = [module for module in modules if isinstance(module, GraphEncoder)]
        hooks = [encoder.layers[0].register_forward_hook(count) for encoder in encoders]
        self.step(indices)
        for hook in hooks:
            hook.remove()
        return sum(encoded) / len(indices)


def speed_cell(cell: Cell, work: Work) -> Iterator[Row]:
    """Yield graphs a second and views of each objective; they take turns over the same batches."""
    store, timed = work.unlabeled(cell), dict[str, TimedObjective]()
    for name, config in cell.together.items():
        try:
            timed[name] = TimedObjective(store, config, work.progress)
        except GraphLoGError as e:
            work.progress.say(f"{name} is left out: {e}")
    config = next(iter(cell.together.values()))
    size = min(config.batch_size, len(store))
    batches = epoch_batches(len(store), size, config.seed)[: len(store) // size]
    # the first step, which warms up, is not timed
    views = {name: objective.count_views(batches[0]) for name, objective in timed.items()}
    sides: dict[str, Callable[[int], float]] = {
        name: lambda number, side=side: side.step(batches[(number + 1) % len(batches)])
        for name, side in timed.items()
    }
    for name, steps in in_turns(sides, cell.setup.timed_steps, warmup=0).items():
        rate = size / median(steps)
        counted = {"views": views[name], "views_per_s": rate * views[name]}
        for metric, value in {"graphs_per_s": rate, **counted}.items():
            yield {"method": name, "metric": metric, "value": value}


def stage_cell(cell: Cell, work: Work) -> Iterator[Row]:
    """Yield the seconds per 1,000 graphs of every stage and side, and the rates by batch size."""
    config, store, turns = cell.config, work.unlabeled(cell), cell.setup.timed_steps
    device = choose_device(config.device)
    order, now = np.random.default_rng(config.seed).permutation(len(store)), _clock(device)
    indices = order[: config.batch_size]
    tuned = store.subset(indices[: cell.finetuning.batch_size])
    formats = ("fp32", "bf16") if has_fast_bf16(device) else ("fp32",)
    stages, curves = dict[str, Side](), dict[str, Side]()
    for precision in formats:
        side = TimedObjective(store, config.updated({"precision": precision}), work.progress)
        step = partial(_step, side, indices, _finetuning(side, cell, tuned))
        stages[precision] = step
        if precision == "fp32":
            once = partial(_once, side, order)
            stages[precision] = lambda step=step, once=once: chain(step(), once())
        curves[precision] = partial(_batches, side, order)
    graphs = {"finetune": len(tuned), "kmeans": min(len(store), _CLUSTERED)}
    for precision, found in least(stages, turns, now).items():
        seconds = {s: 1000 * t / graphs.get(s, len(indices)) for s, t in found.items()}
        seconds["step"] = sum(seconds[part] for part in OF_A_STEP)
        for metric, value in seconds.items():
            yield {"rule": precision, "metric": metric, "value": value}
    for precision, found in least(curves, turns, now).items():
        for size, seconds in found.items():
            yield {"rule": f"batches {precision}", "metric": size, "value": int(size) / seconds}


def least(
    sides: Mapping[str, Side], turns: int, now: Callable[[], float]
) -> dict[str, dict[str, float]]:
    """Return the least seconds of each part of each side; the first turn warms up."""

    def seconds(side: Side) -> dict[str, float]:
        taken, began = dict[str, float](), now()
        for part in side():
            taken[part] = now() - began
            began = now()
        return taken

    found = in_turns({k: lambda _, side=side: seconds(side) for k, side in sides.items()}, turns)
    return {
        k: {part: min(turn[part] for turn in taken) for part in taken[0] if part}
        for k, taken in found.items()
    }


def _step(side: TimedObjective, indices: np.ndarray, tuning: Trainer) -> Iterator[str]:
    """Take a step of one side, one of fine-tuning, and embed, all on the same graphs."""
    encoder, objective, setting = side.job.encoder, side.job.objective, side.job.setting
    optimizer = side.trainer.optimizer
    assert optimizer is not None
    batch = side.job.store.take(indices)
    yield "collate"
    losses = objective_loss(encoder, objective, batch, 1, setting)
    yield "forward"
    optimizer.zero_grad()
    losses.total.backward()
    yield "backward"
    optimizer.step(side.job.config.learning_rate)
    yield "optimizer"
    batch = side.job.store.take(indices)  # without the neighborhoods that the step has sorted
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


def _once(side: TimedObjective, order: np.ndarray) -> Iterator[str]:
    """Parse, where there are texts, and fit the prototypes."""
    job, store = side.job, side.job.store
    if store.schema.domain == "molecule" and store.has_texts:
        texts = store.texts(order[: job.config.batch_size])
        yield ""
        read(texts, store.schema, workers=1)
        yield "parse"
    objective, batches = deepcopy(job.objective), np.array_split(order[:_CLUSTERED], 8)
    with torch.no_grad():
        pieces = (store.take(rows).to(job.setting.device) for rows in batches if len(rows))
        points = torch.cat([job.encoder(piece).graph_emb for piece in pieces])
    yield ""
    objective.begin_phase(
        job.phases[-1], lambda limit, calibrated: points[:limit], torch.Generator().manual_seed(0)
    )
    yield "kmeans"


def _batches(side: TimedObjective, order: np.ndarray) -> Iterator[str]:
    """Take a step at every batch size."""
    for size in [size for size in BATCH_SIZES if size <= len(order)] or [len(order)]:
        side.step(order[:size])
        yield str(size)


def _finetuning(timed: TimedObjective, cell: Cell, store: GraphStore) -> Trainer:
    """Return fine-tuning on all graphs of ``store`` at once, whose labels are drawn at random."""
    rows, none, job = np.arange(len(store)), np.arange(0), timed.job
    labels = np.random.default_rng(0).integers(0, 2, (len(store), 1)).astype(np.float32)
    folds = Split(rows, none, none)
    data = LabeledGraphs(
        "drawn", store, labels, ("drawn",), "classification", "roc_auc", folds, "none"
    )
    own = {"device": str(job.setting.device), "precision": job.setting.precision}
    config = cell.finetuning.updated(own)
    encoder = Encoder(deepcopy(job.encoder), config.layer or "last")
    trainer = Trainer(SeedJob(Start(encoder, data, config, None, ""), 0, Progress()))
    trainer.begin_phase()
    return trainer


def _clock(device: torch.device) -> Callable[[], float]:
    """Return a clock: of one thread, seconds of the processor, which other jobs touch least.

    A clock of the processor too coarse for short stages (Windows') is not used.
    """
    if device.type == "cuda":

        def synchronized() -> float:
            torch.cuda.synchronize(device)
            return time.perf_counter()

        return synchronized
    if torch.get_num_threads() == 1 and time.get_clock_info("process_time").resolution < _COARSE:
        return time.process_time
    return time.perf_counter
