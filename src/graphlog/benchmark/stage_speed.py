"""Seconds of each stage of the work, beside torch_geometric's plain way and the machine's limits.

All sides take turns over the same graphs in one process, and the best of several repetitions
counts.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import nn

from graphlog.benchmark.cells import CellSpec
from graphlog.benchmark.methods import DOMAIN_LABELS
from graphlog.benchmark.plain_gin import PlainGIN, collating, finetuning, parse
from graphlog.benchmark.speed import TimedObjective
from graphlog.benchmark.stage_tables import OF_A_STEP
from graphlog.benchmark.stages import CellContext, Result, describe, encoder_settings, provenance
from graphlog.data.batch import GraphBatch
from graphlog.data.split import Split
from graphlog.data.store import GraphStore
from graphlog.downstream.encoder import Encoder
from graphlog.downstream.finetune_seed import FinetuneConfig, SeedJob, Start
from graphlog.downstream.tasks import LabeledGraphs
from graphlog.inputs import read
from graphlog.ops.products import perceptron
from graphlog.training.log import Silent
from graphlog.training.optim import NamedAdam
from graphlog.training.precision import autocast, choose_device, has_fast_bf16
from graphlog.training.pretraining import objective_loss
from graphlog.training.trainer import Setting, Trainer

BATCH_SIZES = (32, 64, 128, 256, 512)
"""Batch sizes of the curve."""
_CLUSTERED = 2000
"""Graphs that prototypes are fitted to."""
_COPIED = 2**25
"""Numbers copied: 128 MiB, more than a cache holds."""
_COARSE = 1e-4
"""Seconds between two ticks of a clock that is of no use for a stage."""
_WAY = (
    "torch_geometric: `from_smiles`, `Batch`, and a GIN of `GINEConv` of the same size, with the "
    "same losses, in fp32; it has no prototypes to fit."
)
_ABSENT = "torch_geometric is not installed here, so its columns are empty."
_Part = tuple[str, Callable[[], Any]]
"""A stage and its work; work without a name is not timed."""


def stage_cell(spec: CellSpec, context: CellContext) -> Result:
    """Return the seconds per 1,000 graphs of every stage and side, and the machine's limits."""
    began, config, store = time.monotonic(), encoder_settings(spec), context.unlabeled(spec)
    device, repetitions = choose_device(config.device), spec.settings.timed_steps
    clock, now = _clock(device)
    order = np.random.default_rng(config.seed).permutation(len(store))
    indices = order[: config.batch_size]
    formats = ("fp32", "bf16") if has_fast_bf16(device) else ("fp32",)
    timed = {
        p: TimedObjective(store, config.updated({"precision": p}), context.progress)
        for p in formats
    }
    tuned = indices[: spec.settings.finetuning["batch_size"]]
    sides = {p: _ours(side, store, indices) for p, side in timed.items()}
    for p in formats:
        sides[p].append(("finetune", _finetuning(timed[p], spec, store.subset(tuned))))
    sides["fp32"] += _once(timed["fp32"], store, order)
    is_installed = find_spec("torch_geometric") is not None
    if is_installed:
        plain = _torch_geometric(timed["fp32"], store, indices, len(tuned))
        sides["torch_geometric"] = plain
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
    scores = {**seconds, "limits": _limits(timed, store, indices, seconds, repetitions, now)}
    scores |= {
        f"batches {p}": {n: int(n) / taken for n, taken in sized.items()}
        for p, sized in curve.items()
    }
    notes = [
        f"Stages, {DOMAIN_LABELS[spec.plan.domain]}: seconds of the {clock}, best of "
        f"{repetitions}; batches of {len(indices)}, in fine-tuning {len(tuned)}, prototypes of "
        f"{graphs['kmeans']:,} graphs.",
        _WAY if is_installed else _ABSENT,
        "Share of matrix products: 24 D² operations a layer and encoded node, forward and "
        "backward, at the measured rate. Memory copy counts what is read and what is written.",
    ]
    result = provenance(spec, {"pretrain": describe(store, spec)}, time.monotonic() - began, None)
    return {**result, "scores": scores, "metric": None, "notes": notes}


def product_operations(layers: int, dim: int, nodes: float) -> float:
    r"""Return the operations of GIN's matrix products, forward and backward, for ``nodes``.

    Each layer multiplies :math:`V \times D` by :math:`D \times 2D` and back, at two operations a
    number and weight; the gradients of weights and of inputs take as many again, each.
    """
    return 3 * layers * 2 * (2 * nodes * dim * 2 * dim)


class _Learner:
    """One side at work: every part of a step, then embedding, on the same graphs."""

    def __init__(
        self,
        encoder: Any,
        objective: Any,
        optimizer: NamedAdam,
        setting: Setting,
        load: Callable[[], GraphBatch],
    ) -> None:
        self.encoder, self.objective, self.optimizer = encoder, objective, optimizer
        self.setting, self.load = setting, load
        self.batch = load()
        self.losses = self._losses()

    def parts(self) -> list[_Part]:
        return [
            ("collate", self._collate),
            ("forward", self._forward),
            ("backward", self._backward),
            ("optimizer", self.optimizer.step),
            ("", self._collate),  # embedding finds no neighborhoods that the step has sorted
            ("embed", self._embed),
        ]

    def _losses(self) -> Any:
        return objective_loss(self.encoder, self.objective, self.batch, 1, self.setting)

    def _collate(self) -> None:
        self.batch = self.load()

    def _forward(self) -> None:
        self.losses = self._losses()

    def _backward(self) -> None:
        self.optimizer.zero_grad()
        self.losses.total.backward()

    def _embed(self) -> None:
        self.encoder.eval()
        with torch.inference_mode(), autocast(self.setting.precision, self.setting.device):
            self.encoder(self.batch.to(self.setting.device))
        self.encoder.train()


def _ours(timed: TimedObjective, store: GraphStore, indices: np.ndarray) -> list[_Part]:
    job, optimizer = timed.job, timed.trainer.optimizer
    if optimizer is None:
        raise ValueError("a timed objective has an optimizer")
    load = partial(store.take, indices)
    return _Learner(job.encoder, job.objective, optimizer, job.setting, load).parts()


def _once(timed: TimedObjective, store: GraphStore, order: np.ndarray) -> list[_Part]:
    """Return parsing, where there are texts, and the fitting of the prototypes."""
    job, size, parts = timed.job, timed.job.config.batch_size, list[_Part]()
    if _has_smiles(store):
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


def _finetuning(timed: TimedObjective, spec: CellSpec, store: GraphStore) -> Callable[[], None]:
    """Return a step of fine-tuning on all graphs of ``store``, whose labels are drawn at random."""
    rows, none, job = np.arange(len(store)), np.arange(0), timed.job
    labels = np.random.default_rng(0).integers(0, 2, (len(store), 1)).astype(np.float32)
    folds = Split(rows, none, none)
    data = LabeledGraphs(
        "drawn", store, labels, ("drawn",), "classification", "roc_auc", folds, "none"
    )
    own = {"device": str(job.setting.device), "precision": job.setting.precision}
    config = FinetuneConfig.parse({"protocol": "paper", **spec.settings.finetuning, **own})
    encoder = Encoder(deepcopy(job.encoder), config.layer or "last")
    trainer = Trainer(SeedJob(Start(encoder, data, config, None, ""), 0, Silent()), Silent())
    trainer.begin_phase()
    (indices,) = trainer.job.batches(0)
    return lambda: trainer.step(indices, trainer.job.load(indices))


def _torch_geometric(
    timed: TimedObjective, store: GraphStore, indices: np.ndarray, tuned: int
) -> list[_Part]:
    job, load = timed.job, collating(store.take(indices))
    encoder, objective = PlainGIN(job.encoder).to(job.setting.device), deepcopy(job.objective)
    named = [*encoder.named_parameters(), *objective.named_parameters(prefix="objective")]
    side = _Learner(encoder, objective, NamedAdam(named, 1e-3), job.setting, load)
    finetune = finetuning(job.encoder, partial(load, tuned), job.setting.device)
    parsed = [("parse", partial(parse, store.texts(indices)))] if _has_smiles(store) else []
    return [*side.parts(), ("finetune", finetune), *parsed]


def _has_smiles(store: GraphStore) -> bool:
    return store.schema.domain == "molecule" and store.has_texts


def _limits(
    timed: Mapping[str, TimedObjective],
    store: GraphStore,
    indices: np.ndarray,
    seconds: Mapping[str, Mapping[str, float]],
    repetitions: int,
    now: Callable[[], float],
) -> dict[str, float]:
    """Return GFLOP/s, GB/s and the share of a step, in per cent, that products would take."""
    job = timed["fp32"].job
    nodes, dim = store.take(indices).num_nodes, job.encoder.config.dim
    device = job.setting.device
    target, source = (torch.ones(_COPIED, device=device) for _ in range(2))
    parts: list[_Part] = [("copy", partial(target.copy_, source))]
    for precision in timed:
        kind = torch.bfloat16 if precision == "bf16" else torch.float32
        x, w = (torch.randn(*s, device=device, dtype=kind) for s in ((nodes, dim), (dim, 2 * dim)))
        lift, lower = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        lift, lower = (m.to(device, kind).requires_grad_(False) for m in (lift, lower))
        parts.append((f"product-{precision}", partial(torch.mm, x, w)))
        parts.append((f"layer-{precision}", partial(perceptron, x, lift, lower)))
    best = _best({"": parts}, repetitions, now)[""]
    operations = 4 * nodes * dim**2
    found = {"copy": 8 * _COPIED / best["copy"] / 1e9}
    for precision, objective in timed.items():
        found[f"product-{precision}"] = operations / best[f"product-{precision}"] / 1e9
        found[f"layer-{precision}"] = 2 * operations / best[f"layer-{precision}"] / 1e9
        rate = 1e9 * max(found[f"product-{precision}"], found[f"layer-{precision}"])
        encoded = objective.count_views(indices)["node_views"] * nodes
        products = product_operations(len(job.encoder.layers), dim, encoded)
        step = seconds[precision]["step"] * len(indices) / 1000
        found[f"share-{precision}"] = 100 * products / rate / step
    return found


def _best(
    sides: Mapping[str, Sequence[_Part]], repetitions: int, now: Callable[[], float]
) -> dict[str, dict[str, float]]:
    """Return the least seconds of each named part; the sides take turns, and neither always begins.

    The first turn warms up and does not count.
    """
    taken: dict[str, dict[str, list[float]]] = {side: {} for side in sides}
    for number in range(repetitions + 1):
        for side in list(sides)[:: 1 if number % 2 else -1]:
            for stage, work in sides[side]:
                began = now()
                work()
                seconds = now() - began
                if number and stage:
                    taken[side].setdefault(stage, []).append(seconds)
    return {
        side: {stage: min(values) for stage, values in stages.items()}
        for side, stages in taken.items()
    }


def _clock(device: torch.device) -> tuple[str, Callable[[], float]]:
    """Return what is counted: of one thread the processor's seconds, which other jobs touch least.

    A clock of the processor too coarse for short stages (Windows') is not used.
    """
    if device.type == "cuda":

        def synchronized() -> float:
            torch.cuda.synchronize(device)
            return time.perf_counter()

        return "clock", synchronized
    if torch.get_num_threads() == 1 and time.get_clock_info("process_time").resolution < _COARSE:
        return "processor", time.process_time
    return "clock", time.perf_counter
