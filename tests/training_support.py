"""A small pre-training job tests kill and restart: graphs of known families, no chemistry."""

import json
import multiprocessing
import os
import shutil
import socket
from collections.abc import Callable
from functools import cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from graphlog.data.graphs import Attribute, FeatureSchema, GraphChunk
from graphlog.data.store import GraphStore, StoreBuilder
from graphlog.encoders.modelfile import KEY
from graphlog.objectives.base import LossTerms
from graphlog.objectives.graphlog import GraphLoG
from graphlog.training.log import Progress, read_metrics
from graphlog.training.pretrain import run_pretraining
from graphlog.training.settings import PretrainConfig, resolve_config

SCHEMA = FeatureSchema(
    name="families",
    domain="graph",
    node=(Attribute("kind", 31), Attribute("mark", 4)),
    edge=(Attribute("bond", 6),),
    masked="node",
    node_mask=(30.0, 3.0),
    edge_mask=(5.0,),
    self_loop=(4.0,),
)
SMALL = {
    "epochs": 3,
    "batch_size": 32,
    "log_every": 3,
    "watch_every": 5,
    "encoder.dim": 16,
    "encoder.layers": 2,
    "precision": "fp32",
}


PRELOADED = ["training_support", "benchmark_support", "sklearn.cluster"]
PRELOADED += ["graphlog.domains.molecule.domain", "pandas.io.formats.style", "tabulate"]
"""What takes long to import, in part when it is first used."""


def families(num_graphs: int = 160, seed: int = 0) -> GraphStore:
    """Random trees; the family of a graph decides which node kinds it is made of."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(4, 16, num_graphs)
    parents = np.concatenate(
        [[int(draw.integers(0, child)) for child in range(1, size)] for size in sizes]
    )
    children = np.concatenate([np.arange(1, size) for size in sizes])
    family = np.repeat(draw.integers(0, 5, num_graphs), sizes)
    nodes, edges = len(family), len(children)
    chunk = GraphChunk(
        node_counts=sizes,
        edge_counts=sizes - 1,
        x=np.stack([family * 6 + draw.integers(0, 6, nodes), draw.integers(0, 3, nodes)], axis=1),
        edge_index=np.stack([parents, children]),
        edge_attr=draw.integers(0, 4, (edges, 1)),
        rows=np.arange(num_graphs),
    )
    builder = StoreBuilder(SCHEMA)
    builder.add(chunk)
    return builder.finish()


def small_config(recipe: str = "graphlog", **overrides: Any) -> PretrainConfig:
    """Settings of a job of about a second."""
    return resolve_config("graphlog", recipe, {**SMALL, "schema": "families", **overrides})


@cache
def _finished() -> TemporaryDirectory[str]:
    folder = TemporaryDirectory()
    run_pretraining(families(64), small_config(epochs=2), Path(folder.name) / "run")
    return folder


@cache
def undisturbed(**overrides: Any) -> dict[str, Any]:
    """Return what the small job ends with when it is left alone: what others must end with."""
    with TemporaryDirectory() as folder:
        run_pretraining(families(), small_config(**overrides), Path(folder) / "run")
        return outcome(Path(folder) / "run")


def finished(path: Path) -> Path:
    """Return a copy of a finished run of two epochs on 64 graphs."""
    return shutil.copytree(Path(_finished().name) / "run", path)


def job(run: str, overrides: dict[str, Any], resume: bool, recipe: str = "graphlog") -> None:
    """Run the job from start or checkpoint to its end; the body of a process to be killed."""
    torch.set_num_threads(1)
    run_pretraining(families(), small_config(recipe, **overrides), Path(run), resume=resume)


def server() -> Any:
    """Start processes by forking from one that imported but never computed: quick, good as new."""
    here, paths = str(Path(__file__).parent), os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if here not in paths:  # the server learns where to import from by its environment alone
        os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, paths)])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def spawn(task: Callable[..., object], *args: object) -> BaseProcess:
    process: BaseProcess = server().Process(target=task, args=args)
    process.start()
    return process


def outcome(run: Path) -> dict[str, Any]:
    """Everything a finished run leaves that must not depend on interruptions."""
    rows = [
        {k: v for k, v in row.items() if k != "graphs_per_s"}
        for row in read_metrics(run / "metrics.jsonl")
    ]
    state = described(max((run / "checkpoint").glob("step-*.safetensors")))
    return {
        "model": described(run / "model.safetensors")["sha256"],
        "state": state["sha256"],
        "cursor": state["fields"]["cursor"],
        "rows": rows,
    }


def described(path: Path) -> dict[str, Any]:
    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()[KEY])


def blow_up(monkeypatch: pytest.MonkeyPatch, call: int, value: float) -> None:
    """Make the subgraph loss of the ``call``-th step non-finite."""
    true_loss, calls = GraphLoG.loss, iter(range(1, 10**6))

    def loss(self: GraphLoG, *args: Any) -> LossTerms:
        losses = true_loss(self, *args)
        if next(calls) != call:
            return losses
        bad = losses.terms["subgraph"] * value
        return LossTerms(losses.total + bad, {**losses.terms, "subgraph": bad}, losses.watch)

    monkeypatch.setattr(GraphLoG, "loss", loss)


def _member(rank: int, size: int, port: int, task: Callable[..., Any], out: str, args: Any) -> None:
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()}, MASTER_ADDR="127.0.0.1")
    torch.set_num_threads(1)
    try:
        found = task(rank, *args)
    except Exception as e:
        found = f"{type(e).__name__}: {e}"
    torch.save(found, f"{out}/{rank}.pt")


def together(size: int, folder: Path, task: Callable[..., Any], *args: Any) -> list[Any]:
    """Return what ``task(rank, *args)`` returns, or raises, in each of ``size`` processes."""
    folder.mkdir(exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    members = [spawn(_member, rank, size, port, task, str(folder), args) for rank in range(size)]
    for member in members:
        member.join(200)
    assert [member.exitcode for member in members] == [0] * size
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(size)]


class After(Progress):
    def __init__(self, steps: int, act: Callable[[], object]) -> None:
        self.left, self.act = steps, act

    def advance(self, graphs: int) -> None:
        self.left -= 1
        if self.left == 0:
            self.act()


class Heard(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)
