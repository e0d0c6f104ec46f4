"""Seconds of pre-training, beside other objectives, torch_geometric's plain way, and the machine.

All sides take turns over the same graphs in one process: what else the machine does slows them
alike.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphlog.benchmark.cells import Cell
from graphlog.benchmark.stages import Row, Work
from graphlog.data.batch import BatchSampler, GraphBatch
from graphlog.data.schema import Attribute, is_continuous
from graphlog.data.split import Split
from graphlog.data.store import GraphStore
from graphlog.downstream.finetune import SeedJob, Start
from graphlog.downstream.pretrained import Encoder
from graphlog.downstream.tasks import LabeledGraphs
from graphlog.encoders.base import Encoding
from graphlog.encoders.encoder import GraphEncoder
from graphlog.errors import GraphLoGError
from graphlog.inputs import read
from graphlog.ops.products import perceptron
from graphlog.training.config import PretrainConfig
from graphlog.training.log import Progress, Silent
from graphlog.training.pretrain import Pretraining, objective_loss
from graphlog.training.setting import Setting, autocast, choose_device, has_fast_bf16
from graphlog.training.trainer import Cursor, NamedAdam, Trainer

OF_A_STEP = ("collate", "forward", "backward", "optimizer")
"""The stages that make up a pre-training step."""
BATCH_SIZES = (32, 64, 128, 256, 512)
"""Batch sizes of the curve."""
_CLUSTERED = 2000
"""Graphs that prototypes are fitted to, before the clock runs or under it."""
_COPIED = 2**25
"""Numbers copied: 128 MiB, more than a cache holds."""
_COARSE = 1e-4
"""Seconds between two ticks of a clock that is of no use for a stage."""
_Part = tuple[str, Callable[[], Any]]
"""A stage and its work; work without a name is not timed."""


class TimedObjective:
    """An objective in its last phase, ready to take timed steps."""

    def __init__(self, store: GraphStore, config: PretrainConfig, progress: Progress) -> None:
        """Build encoder, objective and optimizer, and begin the last phase."""
        self.job = Pretraining(store, config, progress=progress, embed_at_most=_CLUSTERED)
        if self.job.objective.needs_targets:
            self.job.find_targets(None)
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

        def count(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            encoded["graphs"] += inputs[1].batch.num_graphs
            encoded["nodes"] += inputs[1].batch.num_nodes

        modules = (self.job.encoder, *self.job.objective.modules())
        encoders = [module for module in modules if isinstance(module, GraphEncoder)]
        hooks = [encoder.layers[0].register_forward_hook(count) for encoder in encoders]
        self.step(indices)
        for hook in hooks:
            hook.remove()
        batch = self.job.load(indices)
        return {
            "views": encoded["graphs"] / batch.num_graphs,
            "node_views": encoded["nodes"] / batch.num_nodes,
        }


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
    batches = BatchSampler(len(store), size, config.seed, drop_last=True).epoch(0)
    # the first step, which warms up, is not timed
    views = {name: objective.count_views(batches[0]) for name, objective in timed.items()}
    taken: dict[str, list[float]] = {name: [] for name in timed}
    for number in range(cell.setup.timed_steps):
        for name in list(timed)[:: 1 if number % 2 else -1]:  # none always goes first
            taken[name].append(timed[name].step(batches[(number + 1) % len(batches)]))
    for name, steps in taken.items():
        rate = size / median(steps)
        found = {"graphs_per_s": rate, "views_per_s": rate * views[name]["views"], **views[name]}
        for metric, value in found.items():
            yield {"method": name, "metric": metric, "value": value}


def stage_cell(cell: Cell, work: Work) -> Iterator[Row]:
    """Yield the seconds per 1,000 graphs of every stage and side, and the machine's limits."""
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
        job, load = side.job, partial(store.take, indices)
        parts = _step_parts(job.encoder, job.objective, side.trainer.optimizer, job.setting, load)
        sides[p] = [*parts, ("finetune", _finetuning(side, cell, store.subset(tuned)))]
    sides["fp32"] += _once(timed["fp32"], store, order)
    if find_spec("torch_geometric") is not None:
        sides["torch_geometric"] = _torch_geometric(timed["fp32"], store, indices, len(tuned))
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
    found = {**seconds, "limits": _limits(timed, store, indices, seconds, repetitions, now)}
    for p, sized in curve.items():
        found[f"batches {p}"] = {n: int(n) / taken for n, taken in sized.items()}
    for rule, values in found.items():
        for metric, value in values.items():
            yield {"rule": rule, "metric": metric, "value": value}


def product_operations(layers: int, dim: int, nodes: float) -> float:
    r"""Return the operations of GIN's matrix products, forward and backward, for ``nodes``.

    Each layer multiplies :math:`V \times D` by :math:`D \times 2D` and back, at two operations a
    number and weight; the gradients of weights and of inputs take as many again, each.
    """
    return 3 * layers * 2 * (2 * nodes * dim * 2 * dim)


def _step_parts(
    encoder: Any, objective: Any, optimizer: Any, setting: Setting, load: Callable[[], GraphBatch]
) -> list[_Part]:
    """Return every part of a step of one side, then embedding, on the same graphs."""
    batch = load()
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
    parts = _step_parts(encoder, objective, NamedAdam(named, 1e-3), job.setting, load)
    finetune = finetuning(job.encoder, partial(load, tuned), job.setting.device)
    parsed = [("parse", partial(parse, store.texts(indices)))] if _has_smiles(store) else []
    return [*parts, ("finetune", finetune), *parsed]


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


def parse(texts: Sequence[str]) -> list[Any]:
    """Return a ``Data`` for each SMILES."""
    from torch_geometric.utils import from_smiles

    return [from_smiles(text) for text in texts]


def collating(graphs: GraphBatch) -> Callable[..., GraphBatch]:
    """Return what joins the first ``count`` of ``graphs`` (by default all) to a batch."""
    from torch_geometric.data import Batch

    from graphlog.pyg import to_pyg

    apart: list[Any] = to_pyg(graphs)
    for graph in apart:
        del graph.codes  # not to be collated: torch_geometric's own graphs have none

    def collate(count: int | None = None) -> GraphBatch:
        joined: Any = Batch.from_data_list(apart[:count])
        return GraphBatch(joined.x, joined.edge_index, joined.edge_attr, joined.batch, joined.ptr)

    return collate


def finetuning(
    encoder: GraphEncoder, load: Callable[[], GraphBatch], device: torch.device
) -> Callable[[], None]:
    """Return a step of fine-tuning a GIN of the size of ``encoder`` on a batch, with one label."""
    network, head = PlainGIN(encoder).to(device), nn.Linear(encoder.dim, 1).to(device)
    optimizer = torch.optim.Adam([*network.parameters(), *head.parameters()])
    labels = torch.arange(load().num_graphs, device=device) % 2

    def step() -> None:
        outputs = head(network(load().to(device)).graph_emb)[:, 0]
        loss = F.binary_cross_entropy_with_logits(outputs, labels.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


class _Columns(nn.Module):
    """The sum of an embedding a column, or a linear layer where columns are continuous."""

    def __init__(self, columns: tuple[Attribute, ...], dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(len(columns), dim) if is_continuous(columns) else None
        coded = columns if self.linear is None else ()
        self.tables = nn.ModuleList(nn.Embedding(c.cardinality, dim) for c in coded)

    def forward(self, values: Tensor) -> Tensor:
        if self.linear is not None:
            return self.linear(values)
        return torch.stack([t(values[:, i]) for i, t in enumerate(self.tables)]).sum(0)


class PlainGIN(GraphEncoder):
    """A GIN as torch_geometric's users write it, of the size of an encoder of ours."""

    def __init__(self, encoder: GraphEncoder) -> None:
        from torch_geometric.nn import GINEConv, global_mean_pool

        nn.Module.__init__(self)  # an encoder to objectives, with nothing of ours inside
        self.config, self.pool = encoder.config, global_mean_pool
        self.schema, self.dim = encoder.schema, encoder.dim
        dim, count = encoder.dim, len(encoder.layers)
        self.node = _Columns(self.schema.node, dim)
        self.edges = nn.ModuleList(_Columns(self.schema.edge, dim) for _ in range(count))
        self.layers = nn.ModuleList(
            GINEConv(nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim)))
            for _ in range(count)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(dim) for _ in range(count))

    def forward(self, batch: GraphBatch) -> Encoding:
        """Return the embeddings of every node and graph."""
        h = self.node(batch.x)
        for number, conv in enumerate(self.layers):
            h = self.norms[number](conv(h, batch.edge_index, self.edges[number](batch.edge_attr)))
            if number < len(self.layers) - 1:
                h = torch.relu(h)
        return Encoding(lambda: h, self.pool(h, batch.batch, batch.num_graphs))
