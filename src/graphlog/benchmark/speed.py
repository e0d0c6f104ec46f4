"""Seconds of pre-training: of each objective, of each stage of a step, and by batch size.

All sides take turns over the same graphs in one process: what else the machine does slows them
alike.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from statistics import median
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from graphlog.benchmark.cells import Cell
from graphlog.benchmark.stages import Row, Work
from graphlog.data.split import Split
from graphlog.data.store import GraphBatch, GraphStore, epoch_batches
from graphlog.downstream.finetune import SeedJob, Start, label_weights
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
_Part = tuple[str, Callable[[], Any]]
"""A stage and its work; work without a name is not timed."""


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
    config, store = cell.pretraining, work.unlabeled(cell)
    assert config is not None
    device, repetitions = choose_device(config.device), cell.setup.timed_steps
    now = _clock(device)
    order = np.random.default_rng(config.seed).permutation(len(store))
    indices = order[: config.batch_size]
    formats = ("fp32", "bf16") if has_fast_bf16(device) else ("fp32",)
    timed = {
        p: TimedObjective(store, config.updated({"precision": p}), work.progress) for p in formats
    }
    tuned = indices[: cell.finetuning.batch_size]
    sides: dict[str, list[_Part]] = {}
    for p, side in timed.items():
        tune = _finetuning(side, cell, store.subset(tuned))
        sides[p] = [*_step_parts(side, partial(store.take, indices)), ("finetune", tune)]
    sides["fp32"] += _once(timed["fp32"], store, order)
    graphs = {"finetune": len(tuned), "kmeans": min(len(store), _CLUSTERED)}
    seconds = {
        side: {s: 1000 * taken / graphs.get(s, len(indices)) for s, taken in stages.items()}
        for side, stages in _best(sides, repetitions, now).items()
    }
    for stages in seconds.values():
        stages["step"] = sum(stages[name] for name in OF_A_STEP)
    sizes = [size for size in BATCH_SIZES if size <= len(store)] or [len(store)]
    steps = {p: [(str(n), partial(timed[p].step, order[:n])) for n in sizes] for p in formats}
    curve = _best(steps, repetitions, now)
    rates = {f"batches {p}": {n: int(n) / s for n, s in curve[p].items()} for p in formats}
    for rule, values in {**seconds, **rates}.items():
        for metric, value in values.items():
            yield {"rule": rule, "metric": metric, "value": value}


def _step_parts(timed: TimedObjective, load: Callable[[], GraphBatch]) -> list[_Part]:
    """Return every part of a step of one side, then embedding, on the same graphs."""
    encoder, objective, setting = timed.job.encoder, timed.job.objective, timed.job.setting
    optimizer, batch = timed.trainer.optimizer, load()
    assert optimizer is not None
    losses = objective_loss(encoder, objective, batch, 1, setting)

    def collate() -> None:
        nonlocal batch
        batch = load()

    def forward() -> None:
        nonlocal losses
        losses = objective_loss(encoder, objective, batch, 1, setting)

    def backward() -> None:
        optimizer.zero_grad()
        losses.total.backward()

    def embed() -> None:
        encoder.eval()
        with torch.inference_mode(), autocast(setting.precision, setting.device):
            encoder(batch.to(setting.device))
        encoder.train()

    return [
        ("collate", collate),
        ("forward", forward),
        ("backward", backward),
        ("optimizer", optimizer.step),
        ("", collate),  # embedding finds no neighborhoods that the step has sorted
        ("embed", embed),
    ]


def _once(timed: TimedObjective, store: GraphStore, order: np.ndarray) -> list[_Part]:
    """Return parsing, where there are texts, and the fitting of the prototypes."""
    job, size, parts = timed.job, timed.job.config.batch_size, list[_Part]()
    if store.schema.domain == "molecule" and store.has_texts:
        texts = store.texts(order[:size])
        parts.append(("parse", lambda: read(texts, store.schema, workers=1)))
    chosen, device = order[:_CLUSTERED], job.setting.device
    with torch.no_grad():
        pieces = [store.take(chosen[k : k + size]) for k in range(0, len(chosen), size)]
        points = torch.cat([job.encoder(piece.to(device)).graph_emb for piece in pieces])
    objective, phase = deepcopy(job.objective), job.phases[-1]

    def fit() -> None:
        objective.begin_phase(
            phase, lambda limit=None: points[:limit], torch.Generator().manual_seed(0)
        )

    return [*parts, ("kmeans", fit)]


def _finetuning(timed: TimedObjective, cell: Cell, store: GraphStore) -> Callable[[], None]:
    """Return a step of fine-tuning on all graphs of ``store``, whose labels are drawn at random."""
    rows, none, job = np.arange(len(store)), np.arange(0), timed.job
    labels = np.random.default_rng(0).integers(0, 2, (len(store), 1)).astype(np.float32)
    folds = Split(rows, none, none)
    data = LabeledGraphs(
        "drawn", store, labels, ("drawn",), "classification", "roc_auc", folds, "none"
    )
    own = {"device": str(job.setting.device), "precision": job.setting.precision}
    config = cell.finetuning.updated(own)
    encoder = Encoder(deepcopy(job.encoder), config.layer or "last")
    start = Start(encoder, data, config, None, "", label_weights(data, config))
    trainer = Trainer(SeedJob(start, 0, Progress()))
    trainer.begin_phase()
    (indices,) = trainer.job.batches(0)
    return lambda: trainer.step(indices, trainer.job.load(indices))


def _best(
    sides: Mapping[str, Sequence[_Part]], repetitions: int, now: Callable[[], float]
) -> dict[str, dict[str, float]]:
    """Return the least seconds of each named part, without the first turn, which warms up."""

    def seconds(parts: Sequence[_Part]) -> dict[str, float]:
        taken: dict[str, float] = {}
        for stage, work in parts:
            began = now()
            work()
            if stage:
                taken[stage] = now() - began
        return taken

    turns = in_turns({k: lambda _, p=parts: seconds(p) for k, parts in sides.items()}, repetitions)
    return {k: {s: min(turn[s] for turn in taken) for s in taken[0]} for k, taken in turns.items()}


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
