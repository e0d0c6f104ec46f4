"""Seconds of one GraphLoG pre-training step, ours beside torch_geometric's way, in turns.

python benchmarks/step.py --out benchmarks/results
python benchmarks/step.py --domain protein --out benchmarks/results
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from copy import deepcopy
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from graphlog.api import read_molecules
from graphlog.data.batch import GraphBatch
from graphlog.data.store import GraphStore
from graphlog.domains.protein.reading import open_named_proteins
from graphlog.encoders.encoder import GraphEncoder, build_encoder
from graphlog.objectives import OBJECTIVES
from graphlog.objectives.base import Objective, Phase
from graphlog.training.config import PretrainConfig, resolve_config
from graphlog.training.log import Silent
from graphlog.training.pretrain import objective_loss, run_pretraining
from graphlog.training.setting import Setting, choose_device, has_fast_bf16
from graphlog.training.trainer import NamedAdam
from pyg_reference import ProteinReference, ReferenceEncoder, largest_difference

DEFAULTS: dict[str, dict[str, Any]] = {
    "molecule": {
        "steps": 12,
        "warmup": 2,
        "batch_size": 512,
        "graphs": 16_384,
        "pretrain_graphs": 8_192,
        "recipe": "released",
    },
    "protein": {
        "steps": 8,
        "warmup": 1,
        "batch_size": 64,
        "graphs": 2_048,
        "pretrain_graphs": 0,
        "recipe": "paper",
        "name": "string-6239",
    },
}
REFERENCES = {"molecule": ReferenceEncoder, "protein": ProteinReference}
PRODUCTS = (
    "addmm",
    "addmm_",
    "mm",
    "bmm",
    "baddbmm",
    "linear",
    "matmul",
    "mkldnn_linear",
    "_addmm_activation",
    "_linear_pointwise",
    "dot",
)
INSTRUCTION_SETS = {"avx2", "avx512f", "avx512_bf16", "amx_bf16"}
TOLERANCE = 1e-4


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--domain", choices=DEFAULTS, default="molecule")
    parser.add_argument("--steps", type=int, help="measured steps of each side")
    parser.add_argument("--warmup", type=int, help="steps of each side before measuring")
    parser.add_argument(
        "--batch-size", type=int, help="on proteins the other side needs some 60 MB a graph"
    )
    parser.add_argument("--graphs", type=int, help="graphs the batches are drawn from")
    parser.add_argument(
        "--pretrain-graphs", type=int, help="graphs of a whole run of ours; 0 leaves it out"
    )
    parser.add_argument("--set", dest="name", help="named network, or set of molecules")
    parser.add_argument("--recipe")
    parser.add_argument("--dim", type=int, default=300)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--bf16",
        choices=("auto", "always", "never"),
        default="auto",
        help="auto: where the hardware computes in it",
    )
    parser.add_argument(
        "--out", type=Path, help="folder for step-<machine>.json; standard output otherwise"
    )
    options = parser.parse_args()
    for name, value in DEFAULTS[options.domain].items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def graphs(options: argparse.Namespace) -> tuple[GraphStore, str]:
    """Return graphs to measure on and the name of their data set.

    Molecules are real ones of ZINC where there is a mirror, else those in RDKit's wheel.
    """
    count = max(options.graphs, options.pretrain_graphs)
    if options.domain == "molecule":
        bundled = "zinc250k" if os.environ.get("GRAPHLOG_MIRROR") else "wehi10k"
        name = options.name or bundled
        return read_molecules(name, schema="molecule", limit=count, keep_texts=False), name
    every = open_named_proteins(options.name)
    # proteins stand by name in a network's store: a random sample mixes a batch as in training
    order = np.random.default_rng(0).permutation(len(every))
    return every.subset(order[: min(count, len(every))]), options.name


class Learner(NamedTuple):
    """What a step changes."""

    encoder: Any
    objective: Objective[Any]
    optimizer: NamedAdam


def train_step(learner: Learner, batch: GraphBatch, step: int, setting: Setting) -> None:
    losses = objective_loss(learner.encoder, learner.objective, batch, step, setting)
    learner.optimizer.zero_grad()
    losses.total.backward()
    learner.optimizer.step()


def learner(encoder: Any, objective: Objective[Any]) -> Learner:
    """Join one side's encoder with its own copy of the objective."""
    named = [
        *((f"encoder.{n}", p) for n, p in encoder.named_parameters()),
        *((f"objective.{n}", p) for n, p in objective.named_parameters()),
    ]
    return Learner(encoder.train(), objective.train(), NamedAdam(named, 1e-3))


def fitted_objective(
    config: PretrainConfig, encoder: GraphEncoder, batches: list[GraphBatch], device: torch.device
) -> Objective[Any]:
    """Build the objective with its prototypes, so that the joint phase computes all losses."""
    kind = OBJECTIVES[config.objective]
    objective = kind(kind.Config.parse(config.options), encoder).to(device)

    def embed(limit: int | None = None) -> torch.Tensor:
        with torch.no_grad():
            found = torch.cat([encoder.eval()(b.to(device)).graph_emb for b in batches])
        return found[:limit] if limit else found

    objective.begin_phase(Phase("joint", 1), embed, torch.Generator().manual_seed(0))
    return objective.to(device)


def timed(step: Callable[[], object], device: torch.device) -> tuple[float, float]:
    """Seconds of one call, the device's work included, and the processor's seconds of it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    started, computed = time.perf_counter(), time.process_time()
    step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started, time.process_time() - computed


def product_share(step: Callable[[], object], device: torch.device) -> float:
    """Share of matrix products in the operators' own time, over one step."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    with profile(activities=activities) as seen:
        step()
    field = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    rows = [(e.key.split("::")[-1], getattr(e, field)) for e in seen.key_averages()]
    return sum(t for name, t in rows if name in PRODUCTS) / max(sum(t for _, t in rows), 1e-9)


def measure(
    options: argparse.Namespace, config: PretrainConfig, store: GraphStore, device: torch.device
) -> dict[str, Any]:
    """Interleave the sides over the same batches and return their times."""
    size = min(options.batch_size, len(store))
    starts = [
        i * size % max(len(store) - size + 1, 1) for i in range(max(4, min(16, len(store) // size)))
    ]
    batches = [store[s : s + size] for s in starts]
    encoder = build_encoder(config.encoder, store.schema, 0).to(device)
    reference = REFERENCES[options.domain](encoder).to(device)
    difference = largest_difference(encoder, reference, batches[0].to(device))
    if difference > TOLERANCE:
        sys.exit(
            f"the two encoders differ by {difference:.1e} of the largest value; "
            "nothing was measured"
        )
    objective = fitted_objective(config, encoder, batches, device)
    sides: dict[str, tuple[Learner, Setting]] = {
        "ours_fp32": (learner(deepcopy(encoder), deepcopy(objective)), Setting(0, device, "fp32")),
        "pyg_fp32": (learner(reference, deepcopy(objective)), Setting(0, device, "fp32")),
    }
    if options.bf16 == "always" or (options.bf16 == "auto" and has_fast_bf16(device)):
        sides["ours_bf16"] = (
            learner(deepcopy(encoder), deepcopy(objective)),
            Setting(0, device, "bf16"),
        )
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    cpu_seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(options.warmup + options.steps):
        for name, (side, setting) in list(sides.items())[
            :: 1 if number % 2 else -1
        ]:  # neither side always goes first
            # a fresh take, so that no side profits from neighborhoods that another one has sorted
            batch = store[starts[number % len(starts)] : starts[number % len(starts)] + size]
            spent, computed = timed(
                lambda b=batch, s=side, w=setting, n=number: train_step(s, b, n, w), device
            )
            if number >= options.warmup:
                seconds[name].append(spent)
                cpu_seconds[name].append(computed)
    shares = {
        f"matmul_share_{name}": product_share(
            lambda s=side, w=setting: train_step(s, store[:size], 0, w), device
        )
        for name, (side, setting) in sides.items()
    }
    return {
        "relative_difference": difference,
        "batch_size": size,
        **{k: summary(v, size) for k, v in seconds.items()},
        **{f"cpu_{k}": summary(v, size) for k, v in cpu_seconds.items()},
        **ratios(seconds),
        **{f"cpu_{k}": v for k, v in ratios(cpu_seconds).items()},
        **shares,
    }


def summary(seconds: list[float], graphs: int) -> dict[str, Any]:
    """Median, quartiles and all values."""
    first, _, third = quantiles(seconds, n=4) if len(seconds) > 1 else (seconds[0],) * 3
    middle = median(seconds)
    return {
        "median_s": middle,
        "first_quartile_s": first,
        "third_quartile_s": third,
        "graphs_per_s": graphs / middle,
        "steps_s": seconds,
    }


def ratios(seconds: dict[str, list[float]]) -> dict[str, float]:
    """How many times faster than torch_geometric's way: median over steps of the ratio in one."""
    base = seconds["pyg_fp32"]
    return {
        f"ratio_{k}": median(b / s for b, s in zip(base, v, strict=True))
        for k, v in seconds.items()
        if k != "pyg_fp32"
    }


class Stopwatch(Silent):
    """Notes when each step of a run ended, by phase."""

    def __init__(self) -> None:
        """Start with nothing noted."""
        self.phase = ""
        self.marks: dict[str, list[tuple[float, int]]] = {}

    def stage(self, text: str) -> None:
        """Note the phase."""
        self.phase = text

    def advance(self, graphs: int) -> None:
        """Note the end of a step."""
        self.marks.setdefault(self.phase, []).append((time.perf_counter(), graphs))

    def rate(self, phase: str) -> float:
        """Graphs a second from the end of the first step to the end of the last.

        Checkpoints and watch are included.
        """
        marks = self.marks[phase]
        return sum(n for _, n in marks[1:]) / max(marks[-1][0] - marks[0][0], 1e-9)


def whole_run(
    options: argparse.Namespace, config: PretrainConfig, store: GraphStore, precision: str
) -> dict[str, float]:
    """Pre-train for one local and one joint epoch with all that a run does; return the rates."""
    watch = Stopwatch()
    settings = config.updated(
        {
            "epochs": 2,
            "precision": precision,
            "batch_size": options.batch_size,
            "device": options.device,
        }
    )
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run_pretraining(
            store.subset(range(min(options.pretrain_graphs, len(store)))),
            settings,
            Path(folder) / "run",
            progress=watch,
        )
    return {
        "joint_graphs_per_s": watch.rate(list(watch.marks)[-1]),
        "whole_s": time.perf_counter() - started,
    }


def machine(device: torch.device) -> dict[str, Any]:
    """Where this was measured."""
    cpu = next(
        (
            line.split(":")[1].strip()
            for line in _lines("/proc/cpuinfo")
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    flags = {
        w for line in _lines("/proc/cpuinfo") if line.startswith("flags") for w in line.split()
    }
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    packages = {name: version(name) for name in ("torch", "torch_geometric", "rdkit", "numpy")}
    return {
        "cpu": cpu,
        "instruction_sets": sorted(flags & INSTRUCTION_SETS),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": gpu,
        "python": platform.python_version(),
        **packages,
    }


def _lines(path: str) -> list[str]:
    file = Path(path)
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def publish(result: dict[str, Any], out: Path | None, name: str) -> None:
    """Write a result to ``out/name.json`` and print its ratios; without a folder, print it all."""
    text = json.dumps(result, indent=1)
    if out is None:
        print(text)
        return
    out.mkdir(parents=True, exist_ok=True)
    target = out / f"{name}.json"
    target.write_text(text + "\n", encoding="utf-8")
    print(
        target,
        {
            k: round(v, 2)
            for k, v in result.items()
            if k.startswith(("ratio", "cpu_ratio", "matmul"))
        },
    )


def main() -> None:
    options = parse_arguments()
    torch.set_num_threads(options.threads)
    device = choose_device(options.device)
    settings = {"encoder": {"dim": options.dim, "layers": options.layers}}
    config = resolve_config("graphlog", options.recipe, {**settings, "schema": options.domain})
    store, source = graphs(options)
    load = os.getloadavg()[0]
    result: dict[str, Any] = {
        "command": " ".join(["python", "benchmarks/step.py", *sys.argv[1:]]),
        "machine": machine(device),
        "source": source,
        "nodes_a_graph": float(store.num_nodes.mean()),
        "edges_a_graph": float(store.num_edges.mean()),
        "load_before": load,
        "idle": load < 0.5,
        "recipe": options.recipe,
        **measure(options, config, store, device),
    }
    if options.pretrain_graphs:
        side = "ours_bf16" if "ours_bf16" in result else "ours_fp32"
        run = whole_run(options, config, store, side.removeprefix("ours_"))
        share = run["joint_graphs_per_s"] / result[side]["graphs_per_s"]
        result["pretrain"] = {**run, "share_of_bare_step": share}
    result["load_after"] = os.getloadavg()[0]
    prefix = "" if options.domain == "molecule" else f"{options.domain}-"
    publish(result, options.out, f"{prefix}step-{device.type}")


if __name__ == "__main__":
    main()
