"""Seconds of one GraphLoG pre-training step, ours beside torch_geometric's way, in turns.

python benchmarks/step.py --out benchmarks/results

The other side is our GIN written the usual way, with torch_geometric's ``MessagePassing``, in fp32:
one message an edge and layer. Its weights are copied from ours, and nothing is measured unless both
compute the same thing.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch_geometric.nn import MessagePassing, global_mean_pool
from torch_geometric.utils import add_self_loops

from graphlog.api import read_molecules
from graphlog.benchmark.speed import TimedObjective, in_turns
from graphlog.data.graphs import Attribute
from graphlog.data.store import GraphBatch, GraphStore
from graphlog.encoders.encoder import AttributeTable, Encoding, GraphEncoder
from graphlog.training.log import Progress
from graphlog.training.settings import PretrainConfig, choose_device, has_fast_bf16, resolve_config
from machine import machine

PRODUCTS = (
    *("addmm", "addmm_", "mm", "bmm", "baddbmm", "linear", "matmul", "mkldnn_linear", "dot"),
    *("_addmm_activation", "_linear_pointwise"),
)
TOLERANCE = 1e-4


class ColumnEmbeddings(nn.Module):
    """One embedding table a column, summed."""

    def __init__(self, table: AttributeTable, columns: Sequence[Attribute]) -> None:
        """Copy the tables, which ours holds stacked in one matrix."""
        super().__init__()
        parts = table.weight.detach().split([c.cardinality for c in columns])
        self.tables = nn.ModuleList(
            nn.Embedding.from_pretrained(p.clone(), freeze=False) for p in parts
        )

    def forward(self, codes: Tensor) -> Tensor:
        """Return the sum of the looked-up rows."""
        return torch.stack([table(codes[:, i]) for i, table in enumerate(self.tables)]).sum(0)


class PlainGIN(MessagePassing):
    """GIN of neighbors plus embedded edges, self-loop included."""

    def __init__(self, layer: nn.Module, columns: Sequence[Attribute]) -> None:
        """Copy one of our layers."""
        super().__init__(aggr="add")
        self.edges = ColumnEmbeddings(layer.edge, columns)
        linear = [nn.Linear(m.in_features, m.out_features) for m in (layer.lift, layer.lower)]
        for copy, ours in zip(linear, (layer.lift, layer.lower), strict=True):
            copy.load_state_dict(ours.state_dict())
        self.mlp = nn.Sequential(linear[0], nn.ReLU(), linear[1])

    def forward(self, h: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Return the node embeddings after one round of messages."""
        return self.mlp(self.propagate(edge_index, x=h, edge_emb=self.edges(edge_attr)))

    def message(self, x_j: Tensor, edge_emb: Tensor) -> Tensor:
        """Return the message of each edge."""
        return x_j + edge_emb


class Reference(nn.Module):
    """The encoder that the comparison runs beside ours: same weights, interface and results."""

    def __init__(self, encoder: GraphEncoder) -> None:
        """Copy a GIN encoder whose readout is the mean of the last layer."""
        super().__init__()
        self.schema, self.dim = encoder.schema, encoder.dim
        self.nodes = ColumnEmbeddings(encoder.node, self.schema.node)
        self.layers = nn.ModuleList(PlainGIN(layer, self.schema.edge) for layer in encoder.layers)
        self.norms = deepcopy(encoder.norms)

    def forward(self, batch: GraphBatch) -> Encoding:
        """Return the embeddings of every node and graph."""
        like = {"dtype": batch.edge_attr.dtype, "device": batch.x.device}
        loop = torch.tensor(self.schema.self_loop, **like).expand(batch.num_nodes, -1)
        edge_index, _ = add_self_loops(batch.edge_index, num_nodes=batch.num_nodes)
        edge_attr = torch.cat([batch.edge_attr, loop])
        h = self.nodes(batch.x)
        for number, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            h = norm(layer(h, edge_index, edge_attr))
            if number < len(self.layers) - 1:
                h = torch.relu(h)
        return Encoding(lambda: h, global_mean_pool(h, batch.batch))


@torch.no_grad()
def largest_difference(encoder: GraphEncoder, reference: Reference, batch: GraphBatch) -> float:
    """Return the largest difference of the outputs in evaluation mode over the largest value."""
    ours, theirs = encoder.eval()(batch), reference.eval()(batch)
    pairs = zip(ours, theirs, strict=True)
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def product_share(step: Callable[[], object], device: torch.device) -> float:
    """Share of matrix products in the operators' own time, over one step."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    with profile(activities=activities) as seen:
        step()
    field = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    rows = [(e.key.split("::")[-1], getattr(e, field)) for e in seen.key_averages()]
    return sum(t for name, t in rows if name in PRODUCTS) / max(sum(t for _, t in rows), 1e-9)


def seconds_of(step: Callable[[int], object], number: int) -> tuple[float, float]:
    """Return the seconds of the clock and of the processor that one step takes."""
    began = time.perf_counter(), time.process_time()
    step(number)
    return time.perf_counter() - began[0], time.process_time() - began[1]


def summary(seconds: Sequence[float], graphs: int) -> dict[str, Any]:
    """Return median, quartiles and all values."""
    first, _, third = quantiles(seconds, n=4) if len(seconds) > 1 else (seconds[0],) * 3
    quartiles = {"first_quartile_s": first, "third_quartile_s": third}
    rate = graphs / median(seconds)
    return {"median_s": median(seconds), **quartiles, "graphs_per_s": rate, "steps_s": seconds}


def measure(
    options: argparse.Namespace, config: PretrainConfig, store: GraphStore, device: torch.device
) -> dict[str, Any]:
    """Interleave the sides over the same batches and return their times."""
    size = min(options.batch_size, len(store))
    batches = [np.arange(s, s + size) for s in range(0, len(store) - size + 1, size)][:16]
    fp32 = config.updated({"precision": "fp32"})
    sides = {name: TimedObjective(store, fp32, Progress()) for name in ("ours_fp32", "pyg_fp32")}
    other = sides["pyg_fp32"]
    ours, other.job.encoder = other.job.encoder, Reference(other.job.encoder).to(device)
    batch = store.take(batches[0]).to(device)
    if (difference := largest_difference(ours, other.job.encoder, batch)) > TOLERANCE:
        sys.exit(f"the encoders differ by {difference:.1e} of the largest value: not measured")
    other.job.encoder.train()
    other.trainer.begin_phase()  # again, with the other encoder
    if options.bf16 == "always" or (options.bf16 == "auto" and has_fast_bf16(device)):
        bf16 = config.updated({"precision": "bf16"})
        sides["ours_bf16"] = TimedObjective(store, bf16, Progress())
    steps: dict[str, Callable[[int], float]] = {
        name: lambda number, side=side: side.step(batches[number % len(batches)])
        for name, side in sides.items()
    }
    result: dict[str, Any] = {"relative_difference": difference, "batch_size": size}
    timed = {name: partial(seconds_of, step) for name, step in steps.items()}
    both = in_turns(timed, options.steps, options.warmup)
    for prefix, clock in (("", 0), ("cpu_", 1)):
        seconds = {name: [pair[clock] for pair in pairs] for name, pairs in both.items()}
        result |= {f"{prefix}{name}": summary(taken, size) for name, taken in seconds.items()}
        for name in seconds.keys() - {"pyg_fp32"}:
            pairs = zip(seconds["pyg_fp32"], seconds[name], strict=True)
            result[f"{prefix}ratio_{name}"] = median(theirs / own for theirs, own in pairs)
    for name, step in steps.items():
        result[f"matmul_share_{name}"] = product_share(partial(step, 0), device)
    return result


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=12, help="measured steps of each side")
    parser.add_argument("--warmup", type=int, default=2, help="steps of each side before these")
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--graphs", type=int, default=16_384, help="that batches are drawn from")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="auto")
    parser.add_argument("--bf16", choices=("auto", "always", "never"), default="auto")
    parser.add_argument("--out", type=Path, help="folder of steps.jsonl; none: print")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = choose_device(options.device)
    settings = {"schema": "molecule", "device": str(device)}
    config = resolve_config("graphlog", "released", settings)
    # real molecules of ZINC where there is a mirror, else those in RDKit's wheel
    source = "zinc250k" if os.environ.get("GRAPHLOG_MIRROR") else "wehi10k"
    store = read_molecules(source, schema="molecule", limit=options.graphs, keep_texts=False)
    load = os.getloadavg()[0]
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    result: dict[str, Any] = {
        "command": " ".join(["python", "benchmarks/step.py", *sys.argv[1:]]),
        "machine": {**machine(), "threads": torch.get_num_threads(), "gpu": gpu},
        "source": source,
        "nodes_a_graph": float(store.num_nodes.mean()),
        "edges_a_graph": float(store.num_edges.mean()),
        "load_before": load,
        "idle": load < 0.5,
        "recipe": config.recipe,
        **measure(options, config, store, device),
        "load_after": os.getloadavg()[0],
    }
    if options.out is None:
        print(json.dumps(result, indent=1))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "steps.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")
    print({k: round(v, 2) for k, v in result.items() if "ratio" in k or "matmul" in k})


if __name__ == "__main__":
    main()
