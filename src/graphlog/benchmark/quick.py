"""A first guess at how long cells take, from a few steps timed now, where nothing like them has been finished yet."""

import time
from collections.abc import Callable, Iterable

import numpy as np
import torch

from graphlog.benchmark.estimate import Estimate, rows_of
from graphlog.benchmark.grid import CellSpec, is_baseline
from graphlog.benchmark.stages.speed import Pace
from graphlog.data.store import GraphStore
from graphlog.datasets import DATASETS
from graphlog.domains import SCHEMAS
from graphlog.domains.protein.stores import find_parts, open_named_proteins
from graphlog.downstream.head import Head, copy_with_dropout
from graphlog.downstream.linear import GRID, linear_path
from graphlog.encoders.encoder import GraphEncoder, build_encoder
from graphlog.errors import GraphLoGError
from graphlog.inputs import read
from graphlog.training.log import Silent
from graphlog.training.precision import choose_device

BUNDLED = "nci5k"
_GRAPHS, _BATCH, _FIT_ROWS = 256, 64, 500
_EVALUATED = 0.2
"""Share of a labelled set that is scored after each epoch, at about a third of the price of training on it."""
_MAP_S, _FOREST_ROW_S = 0.008, 1e-3
"""Seconds a point of t-SNE, and a row and target of a forest of 300 trees, on one core."""


def guess(cells: Iterable[CellSpec], estimate: Estimate, store: GraphStore | None = None) -> None:
    """Teach ``estimate`` about the cells that it knows nothing of.

    Args:
        cells: Cells that are left.
        estimate: What finished cells have taught already.
        store: Graphs like those of the benchmark; None takes bundled molecules, or proteins that are on this machine.
    """
    clock = _Clock(store)
    for spec in cells:
        if estimate.knows_well(spec):
            continue
        try:
            seconds = clock.seconds(spec)
        except GraphLoGError:
            continue  # the cell itself will say what is wrong
        if seconds is not None:
            estimate.learn(spec, seconds)


class _Clock:
    """Times each kind of step once."""

    def __init__(self, store: GraphStore | None) -> None:
        self._stores: dict[str, GraphStore] = {} if store is None else {store.schema.name: store}
        self._sizes: dict[str, int] = {}
        self._forward: dict[str, float] = {}

    def seconds(self, spec: CellSpec) -> float | None:
        rows = rows_of(spec.dataset) if spec.dataset else spec.frame.mapped
        if is_baseline(spec):
            targets = max(DATASETS[str(spec.dataset)].num_tasks, 1)
            return (
                rows * targets * _FOREST_ROW_S
                if spec.method.name == "ecfp-rf"
                else rows * targets * 1e-3
            )
        store = self._store(spec)
        if store is None or spec.pretraining is None:
            return None
        if spec.stage in ("pretrain", "speed"):
            return self._pretraining(spec, store)
        forward, backward = self._tuning(spec, store)
        if spec.finetuning is not None:
            share = 1 - _EVALUATED
            return (
                rows
                * spec.finetuning.epochs
                * (share * (forward + backward) + _EVALUATED * forward)
            )
        if spec.stage == "map":
            return rows * (forward + _MAP_S)
        return rows * (forward + self._fit(spec, store))

    def _store(self, spec: CellSpec) -> GraphStore | None:
        schema = spec.frame.schema
        if schema not in self._stores:
            if SCHEMAS[schema].domain == "molecule":
                self._stores[schema] = read(BUNDLED, SCHEMAS[schema], limit=_GRAPHS, workers=1)
            elif (
                spec.frame.source in DATASETS
                and find_parts(DATASETS[spec.frame.source]) is not None
            ):  # nothing is downloaded to guess
                every = open_named_proteins(spec.frame.source)
                self._sizes[spec.frame.source] = len(every)
                self._stores[schema] = every.subset(
                    np.random.default_rng(0).permutation(len(every))[:_GRAPHS]
                )
            else:
                return None
        return self._stores[schema]

    def _pretraining(self, spec: CellSpec, store: GraphStore) -> float:
        config = spec.pretraining
        if config is None:
            raise ValueError("no settings of pre-training")
        size = min(config.batch_size, _BATCH, len(store))
        pace = Pace(store, config, Silent())
        pace.step(np.arange(size))
        graphs = (
            spec.frame.limit or self._sizes.get(spec.frame.source) or rows_of(spec.frame.source)
        ) * config.epochs
        if spec.stage == "speed":
            graphs = config.batch_size * (spec.frame.timed_steps + 1)
        return graphs * _least(lambda: pace.step(np.arange(size))) / size

    def _tuning(self, spec: CellSpec, store: GraphStore) -> tuple[float, float]:
        """Return seconds a graph of a forward and of a backward pass."""
        config = spec.pretraining
        if config is None:
            raise ValueError("no settings of an encoder")
        key = f"{config.encoder.model_dump_json()}"
        device = choose_device(config.device)
        size = min(32, len(store))
        if key not in self._forward:
            encoder = copy_with_dropout(build_encoder(config.encoder, store.schema), 0.5).to(device)
            head = Head(encoder.embedding_width("last"), 1, "classification").to(device)
            self._forward[key] = (
                _least(lambda: _pass(encoder, head, store, size, backward=False)) / size
            )
            self._forward[f"{key} and back"] = (
                _least(lambda: _pass(encoder, head, store, size, backward=True)) / size
            )
        forward = self._forward[key]
        return forward, max(self._forward[f"{key} and back"] - forward, 0.0)

    def _fit(self, spec: CellSpec, store: GraphStore) -> float:
        """Return seconds a row of the linear models of a probe."""
        config = spec.pretraining
        if config is None:
            raise ValueError("no settings of an encoder")
        width = build_encoder(config.encoder, store.schema).embedding_width(spec.frame.probe_layer)
        key = f"fit of {width}"
        if key not in self._forward:
            features = np.random.default_rng(0).normal(size=(_FIT_ROWS, width)).astype(np.float32)
            labels = (features[:, :1] + features[:, 1:2] ** 2 > 1).astype(np.float32)
            rows = np.arange(_FIT_ROWS)
            began = time.perf_counter()
            linear_path(features, labels, rows, "classification", GRID)
            self._forward[key] = (time.perf_counter() - began) / _FIT_ROWS
        return self._forward[key] * max(DATASETS[str(spec.dataset)].num_tasks, 1)


def _pass(
    encoder: GraphEncoder, head: Head, store: GraphStore, size: int, *, backward: bool
) -> None:
    with torch.set_grad_enabled(backward):
        batch = store[:size].to(next(encoder.parameters()).device)
        total = head(encoder.embed_graphs(batch, "last")).sum()
        if backward:
            total.backward()


def _least(step: Callable[[], object], times: int = 2) -> float:
    """Return the least seconds of a few calls: what a busy machine adds is no part of the work."""
    found: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        step()
        found.append(time.perf_counter() - began)
    return min(found)
