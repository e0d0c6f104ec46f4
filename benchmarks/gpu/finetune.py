"""Fine-tune by the paper's protocol on a GPU, all networks of a data set in the same steps.

    python benchmarks/gpu/finetune.py prepare TASKS --datasets bbbp muv    # needs RDKit and data
    python benchmarks/gpu/finetune.py check TASKS --datasets bbbp
    python benchmarks/gpu/finetune.py train TASKS OUT --datasets bbbp muv:1 --arms mine=MODEL new=

The training is that of ``graphlog finetune DATASET -m MODEL --protocol paper --precision bf16``,
with the heads, order of the graphs, loss, optimizer and learning rates of the library. Two things
differ: the random numbers of dropout, and the initial running statistics, whose influence is gone
after two epochs. A step is one CUDA graph for the networks of all arms and seeds (five seeds, or
the number after the name of the data set), each on its own 32 molecules. The data sets run
concurrently. An arm without a model has an untrained network for each seed. Pooling, heads and
scores use TensorFloat-32 for matrix products. When a data set is finished, the ROC-AUC on the
validation and test sets after every epoch is written.
"""

import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import pandas as pd
import torch
from padded import Replayed, recordable, wide
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from graphlog.data.graphs import FeatureSchema, ragged_ranges
from graphlog.data.store import epoch_batches
from graphlog.domains.base import schema_named
from graphlog.downstream.finetune import FinetuneConfig
from graphlog.downstream.predictor import Head
from graphlog.downstream.tasks import LabeledGraphs, open_labeled
from graphlog.encoders.encoder import EncoderConfig, GraphEncoder, build_encoder, expand_attributes
from graphlog.encoders.modelfile import tensors_below
from graphlog.training.settings import global_seed, seed_for
from graphlog.training.trainer import NamedAdam

NO_NEIGHBOR = np.iinfo(np.int16).max
"""Marks the places in ``Task.neighbors`` that have no neighbor."""
EPS, MOMENTUM = 1e-5, 0.1
FIRST_STEPS = 6
"""Number of steps of the first epoch in which kernels are compiled and CUDA graphs recorded."""


class Task(NamedTuple):
    """A data set as arrays; an empty node and an empty graph are added at the end."""

    codes: np.ndarray
    """Index in ``node_rows`` of each node; the empty node has the last index."""
    neighbors: np.ndarray
    """Number of each neighbor minus that of the node, itself first; padded with ``NO_NEIGHBOR``."""
    edge_counts: np.ndarray
    """Number of edges of each row of ``edge_rows`` that end at each node, with self-loops."""
    first: np.ndarray
    """First node of each graph."""
    sizes: np.ndarray
    node_rows: np.ndarray
    """Indicator columns of the distinct node attributes; the last row is zeros."""
    edge_rows: np.ndarray
    """Indicator columns of the distinct edge attributes; the last row is the self-loop."""
    labels: np.ndarray
    """0, 1, or NaN where the label is missing or the training set has one class only."""
    train: np.ndarray
    held_out: np.ndarray
    """Validation set, then test set."""
    valid: int
    """Size of the validation set."""

    @classmethod
    def of(cls, data: LabeledGraphs) -> Self:
        """Return a data set as arrays."""
        arrays, schema = data.store.contents.arrays, data.store.schema
        nodes, edges = (arrays[f"{kind}_offsets"].astype(np.int64) for kind in ("node", "edge"))
        sizes, count = np.diff(nodes), int(nodes[-1])
        first = np.repeat(nodes[:-1], np.diff(edges))
        ends = np.asarray(arrays["endpoints"]).astype(np.int64).reshape(-1, 2) + first[:, None]
        node, neighbor = np.concatenate([ends, ends[:, ::-1]]).T
        kinds = len(arrays["edge_table"])
        edge_counts = np.zeros((count + 1, kinds + 1), np.uint8)
        bonds = np.tile(np.asarray(arrays["edge_codes"]).astype(np.int64), 2)
        np.add.at(edge_counts, (node, bonds), 1)
        edge_counts[:-1, -1] = 1
        order = np.argsort(node, kind="stable")
        degree = np.bincount(node, minlength=count)
        neighbors = np.full((count + 1, 1 + degree.max()), NO_NEIGHBOR, np.int16)
        neighbors[:-1, 0] = 0
        place = 1 + ragged_ranges(np.zeros_like(degree), degree)
        neighbors[node[order], place] = (neighbor - node)[order]
        codes = np.append(np.asarray(arrays["node_codes"]), len(arrays["node_table"]))
        indicators = [
            expand_attributes(torch.tensor(np.asarray(table)), columns, torch.float32).numpy()
            for table, columns in (
                (arrays["node_table"], schema.node),
                (np.vstack([arrays["edge_table"], schema.self_loop]), schema.edge),
            )
        ]
        labels, split = data.reliable_labels.astype(np.float32), data.split
        return cls(
            codes.astype(np.int64),
            neighbors,
            edge_counts,
            nodes,
            np.append(sizes, 0),
            np.pad(indicators[0], ((0, 1), (0, 0))),
            indicators[1],
            np.pad(labels, ((0, 1), (0, 0)), constant_values=np.nan),
            split.train,
            np.concatenate([split.valid, split.test]),
            len(split.valid),
        )


class Network(NamedTuple):
    """The initial weights of one network of a stack, with its arm and seed."""

    arm: str
    seed: int
    encoder: GraphEncoder


class Batches(NamedTuple):
    """The T batches of an epoch, for each of K networks, or for all networks (K = 1)."""

    rows: Tensor
    """Graphs, (K, T, B); padded with -1."""
    nodes: Tensor
    """Nodes, (K, T, N); padded with the empty node of the data set."""
    member: Tensor
    """Number of each node's graph within its batch, (K, T, N); B for padding."""


def neighbor_sum(h: Tensor, neighbors: Tensor, nodes: Tensor) -> Tensor:
    """Return the sum over the neighbors of each node, including the node itself."""
    jumps = neighbors[nodes.long()].long()
    exists = jumps < NO_NEIGHBOR
    source = torch.where(exists, torch.arange(h.shape[1], device=h.device)[:, None] + jumps, 0)
    network = torch.arange(len(h), device=h.device)[:, None, None]
    return (h[network, source.expand(len(h), -1, -1)] * exists[..., None]).sum(2)


def bias_relu(x: Tensor, b: Tensor) -> Tensor:
    """Return the ReLU of ``x`` plus a bias."""
    return (x + b).relu()


def normalized(
    h: Tensor,
    real: Tensor,
    w: Tensor,
    b: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    seed: Tensor,
    layer: int,
    relu: bool,
    drop: bool,
) -> Tensor:
    """Normalize the first ``real`` rows of each network, and update the running statistics.

    The result goes through the ReLU and a dropout of one half, if asked for; the dropout depends on
    ``seed`` and ``layer``.
    """
    m = (torch.arange(h.shape[1], device=h.device) < real[:, None])[..., None]
    n, x = real[:, None, None], h.float()
    mean = (x * m).sum(1, keepdim=True) / n
    centered = (x - mean) * m
    squares = centered.square().sum(1, keepdim=True)
    y = centered * ((squares / n + EPS).rsqrt() * w) + b
    y = (y.relu() if relu else y) * m
    if drop:
        random = torch.Generator(h.device).manual_seed(int(seed) + layer)
        y = 2 * y * torch.empty_like(y).bernoulli_(0.5, generator=random)
    with torch.no_grad():
        running_mean.lerp_(mean, MOMENTUM)
        running_var.lerp_(squares / (n - 1), MOMENTUM)
    return y.to(h.dtype)


def areas(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the ROC-AUC of each network, as a mean over the targets with both classes.

    ``outputs`` is (K, M, T); ``labels`` is (M, T), with NaN for missing labels.
    """
    known, positive = ~labels.isnan(), (labels == 1).double().T
    value = torch.where(known, outputs.double(), torch.inf).mT.contiguous()
    ordered = value.sort(dim=2).values
    rank = torch.searchsorted(ordered, value) + torch.searchsorted(ordered, value, right=True) + 1
    p = positive.sum(1)
    pairs = p * (known.sum(0) - p)
    area = ((rank / 2 * positive).sum(2) - p * (p + 1) / 2) / pairs
    return area.where(pairs > 0, torch.nan).nanmean(1)


class Stack:
    """Networks that are trained on one data set in the same steps."""

    def __init__(
        self,
        task: Task,
        networks: Sequence[Network],
        config: FinetuneConfig,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """Put data and weights on the device."""
        self.networks, self.config, self.dtype = networks, config, dtype
        self.host, self.device, self.size = task, device, config.batch_size
        self.task = {
            k: torch.as_tensor(v, device=device) for k, v in task._asdict().items() if k != "valid"
        }
        for kind in ("node", "edge"):
            self.task[f"{kind}_rows"] = F.pad(
                rows := self.task[f"{kind}_rows"], (0, 0, 0, -len(rows) % 8)
            )
        self.weights = {name: nn.Parameter(t.to(device)) for name, t in self._initial().items()}
        width = self.weights["norm0.weight"].shape
        layers = range(len(networks[0].encoder.layers))
        self.running = [
            (torch.zeros(width, device=device), torch.ones(width, device=device)) for _ in layers
        ]
        self.optimizer = recordable(NamedAdam(self.weights.items()), device)
        self.rate = torch.tensor(config.learning_rate, device=device)
        self.seed = torch.tensor(seed_for(networks[0].seed, "dropout") % 2**62, device=device)
        orders = [self.order(epoch) for epoch in range(config.epochs)]
        self.places = max(map(self._places, orders))
        self.batches = self.cut(orders[0], self.places)
        held_out = self._in_batches(task.held_out)[None]
        self.held_out_batches = self.cut(held_out, self._places(held_out))
        shape = len(networks), held_out[0].size, task.labels.shape[1]
        self.outputs = torch.zeros(shape, device=device)
        self.losses = torch.zeros(len(networks), dtype=torch.float64, device=device)
        self.numbers = torch.arange(
            max(v.rows.shape[1] for v in (self.batches, self.held_out_batches)), device=device
        )
        self.sums, self.relu, self.norm = neighbor_sum, bias_relu, normalized
        self.train_step, self.predict_step, self.stream = self._train_step, self._predict_step, None
        if device.type == "cuda":
            import fused

            self.sums, self.relu, self.norm = fused.neighbor_sum, fused.bias_relu, fused.normalized
            index = torch.zeros(1, dtype=torch.int64, device=device)
            # Large data sets, which take longest, get a higher priority than the others.
            first = -2 if len(task.train) > 50_000 else -1 if len(task.train) > 20_000 else 0
            self.train_step = Replayed(self._train_step, index, first)
            self.predict_step = Replayed(self._predict_step, index.clone(), first)
            self.stream = torch.cuda.Stream(priority=first)
        self.scores: list[Tensor] = []

    def _initial(self) -> dict[str, Tensor]:
        """Return the initial weights, stacked over the networks.

        They are padded with zeros as by :func:`padded.wide`; gradients of the padding are zero.
        """
        networks: list[dict[str, Tensor]] = []
        for _, seed, encoder in self.networks:
            with global_seed(seed_for(seed, "finetune"), "head"):
                targets = self.host.labels.shape[1]
                head = Head(encoder.config.dim, targets, "classification", 0, self.config.dropout)
            gap = 0, -encoder.config.dim % 8
            weights = {"node": F.pad(encoder.node.weight, gap)}
            for number, (layer, norm) in enumerate(zip(encoder.layers, encoder.norms, strict=True)):
                weights[f"edge{number}"] = F.pad(layer.edge.weight, gap)
                for name, part in (("lift", layer.lift), ("lower", layer.lower), ("norm", norm)):
                    weight = wide(part.weight, torch.float32)
                    matrix = weight.dim() == 2
                    weights[f"{name}{number}.weight"] = weight.T if matrix else weight[None]
                    if name != "lower":
                        weights[f"{name}{number}.bias"] = wide(part.bias, torch.float32)[None]
            weights["head.weight"] = F.pad(head.linear.weight, gap).T
            weights["head.bias"] = head.linear.bias[None]
            networks.append(weights)
        return {
            name: torch.stack([weights[name] for weights in networks]).detach().contiguous()
            for name in networks[0]
        }

    def _in_batches(self, rows: np.ndarray) -> np.ndarray:
        return np.pad(rows, (0, -len(rows) % self.size), constant_values=-1).reshape(-1, self.size)

    def _places(self, rows: np.ndarray) -> int:
        return -(-int(self.host.sizes[rows].sum(2).max()) // 32) * 32

    def order(self, epoch: int) -> np.ndarray:
        """Return the graphs of each step of an epoch (from 0) for each network, (K, T, B)."""
        train = self.host.train
        by_seed = {
            seed: np.concatenate(
                epoch_batches(len(train), self.size, seed_for(seed, "order") % 2**32, epoch + 1)
            )
            for seed in {network.seed for network in self.networks}
        }
        return np.stack([self._in_batches(train[by_seed[n.seed]]) for n in self.networks])

    def cut(self, rows: np.ndarray, places: int) -> Batches:
        """Return the batches of the graphs ``rows`` (K, T, B), with ``places`` nodes each."""
        graphs = torch.from_numpy(rows).to(self.device)
        ends = self.task["sizes"][graphs].cumsum(2)
        place = torch.arange(places, device=self.device).expand(*ends.shape[:2], -1).contiguous()
        member = torch.searchsorted(ends, place, right=True)
        graph = F.pad(graphs, (0, 1), value=-1).gather(2, member)
        begins = F.pad(ends, (1, 0)).gather(2, member)
        nodes = self.task["first"][graph] + torch.where(member < self.size, place - begins, 0)
        return Batches(graphs, nodes.int(), member.byte())

    def outputs_of(
        self, batches: Batches, index: Tensor, dtype: torch.dtype, learns: bool
    ) -> Tensor:
        """Return the logits (K, B, T) of a step.

        The last linear map of a layer has no bias, because normalization would remove it.
        """
        task, depth, networks = self.task, len(self.running), len(self.networks)
        w = {k: v if k[:4] in ("norm", "head") else v.to(dtype) for k, v in self.weights.items()}
        rows, nodes, member = (v.index_select(1, index)[:, 0] for v in batches)
        real = (member < self.size).sum(1, dtype=torch.int32)
        drops = self.config.dropout > 0
        edges = task["edge_counts"][nodes.long()].to(dtype)
        edges = F.pad(edges, (0, len(task["edge_rows"]) - edges.shape[2])).expand(networks, -1, -1)
        kinds = torch.arange(len(task["node_rows"]), device=nodes.device)
        hot = (task["codes"][nodes.long()][..., None] == kinds).to(dtype).expand(networks, -1, -1)
        h = torch.bmm(hot, task["node_rows"].to(dtype) @ w["node"])
        for layer, running in enumerate(self.running):
            edge = task["edge_rows"].to(dtype) @ w[f"edge{layer}"]
            total = torch.baddbmm(self.sums(h, task["neighbors"], nodes), edges, edge)
            hidden = torch.bmm(total, w[f"lift{layer}.weight"])
            h = torch.bmm(self.relu(hidden, w[f"lift{layer}.bias"]), w[f"lower{layer}.weight"])
            scale, shift = (w[f"norm{layer}.{name}"] for name in ("weight", "bias"))
            inner = layer < depth - 1
            if learns:
                h = self.norm(h, real, scale, shift, *running, self.seed, layer, inner, drops)
            else:
                h = (h - running[0]) * ((running[1] + EPS).rsqrt() * scale) + shift
                h = h.relu() if inner else h
        belongs = member[:, None] == torch.arange(self.size, device=nodes.device)[:, None]
        total = torch.bmm(belongs.float().expand(networks, -1, -1), h.float())
        emb = total / task["sizes"][rows].clamp_min(1)[..., None]
        return torch.bmm(emb, w["head.weight"]) + w["head.bias"]

    def _train_step(self, index: Tensor) -> None:
        self.optimizer.zero_grad()
        self.seed += 1
        logits = self.outputs_of(self.batches, index, self.dtype, learns=True).double()
        labels = self.task["labels"][self.batches.rows.index_select(1, index)[:, 0]]
        present, known = ~labels.isnan(), labels.nan_to_num(0.0).double()
        losses = F.binary_cross_entropy_with_logits(logits, known, reduction="none") * present
        losses = losses.sum((1, 2)) / present.sum((1, 2)).clamp_min(1)
        losses.sum().backward()
        self.optimizer.step(self.rate)
        self.losses.copy_(losses.detach())

    @torch.no_grad()
    def _predict_step(self, index: Tensor) -> None:
        places = index * self.size + torch.arange(self.size, device=index.device)
        self.outputs.index_copy_(
            1, places, self.outputs_of(self.held_out_batches, index, torch.float32, learns=False)
        )

    def begin(self) -> None:
        """Take the first steps of the first epoch, which compile and record the kernels."""
        for number in self.numbers[:FIRST_STEPS].split(1):
            self.train_step(number)
            self.predict_step(number)

    def epoch(self, epoch: int) -> None:
        """Train to the end of an epoch (from 0), and append its scores (2, K) to ``scores``."""
        self.rate.fill_(self.config.learning_rate_at(epoch + 1))
        for old, new in zip(self.batches, self.cut(self.order(epoch), self.places), strict=True):
            old.copy_(new)
        taken = 0 if epoch else FIRST_STEPS
        for number in self.numbers[taken : self.batches.rows.shape[1]].split(1):
            self.train_step(number)
        for number in self.numbers[: self.held_out_batches.rows.shape[1]].split(1):
            self.predict_step(number)
        labels = self.task["labels"][self.task["held_out"]]
        parts = self.host.valid, len(labels) - self.host.valid
        folds = zip(
            self.outputs[:, : len(labels)].split(parts, 1), labels.split(parts), strict=True
        )
        self.scores.append(torch.stack([areas(outputs, known) for outputs, known in folds]))


def rows_of(name: str, stack: Stack) -> pd.DataFrame:
    """Return the scores of each network after each epoch, numbered from 1."""
    rows = [
        (name, arm, seed, epoch + 1, *scores[:, k].tolist())
        for k, (arm, seed, _) in enumerate(stack.networks)
        for epoch, scores in enumerate(torch.stack(stack.scores).cpu())
    ]
    return pd.DataFrame(rows, columns=["dataset", "model", "seed", "epoch", "valid", "test"])


def network_of(path: str, schema: FeatureSchema, seed: int) -> GraphEncoder:
    """Return the network of a model file or of weights of ``pretrain.py``, or an untrained one."""
    network = build_encoder(
        EncoderConfig(), schema, torch.Generator().manual_seed(seed_for(seed, "encoder"))
    )
    if path:
        tensors = load_file(path)
        weights = tensors_below(tensors, "encoder.") or tensors_below(tensors, "model.")
        network.load_state_dict(
            {name: t.to(network.state_dict()[name].dtype) for name, t in weights.items()}
        )
    return network


def task_of(folder: Path, name: str) -> Task:
    """Read a data set that ``prepare`` has written."""
    with np.load(folder / f"{name}.npz") as file:
        return Task(*(file[field] for field in Task._fields[:-1]), int(file["valid"]))


def check(folder: Path, datasets: Sequence[str]) -> None:
    """Compare a step on the GPU, without dropout, with the operations of this file on the CPU."""
    config, schema = FinetuneConfig(protocol="paper", dropout=0.0), schema_named("molecule")
    networks = [Network("", seed, network_of("", schema, seed)) for seed in (0, 1)]
    for name in datasets:
        places = [("cpu", torch.float32), ("cuda", torch.float32), ("cuda", torch.bfloat16)]
        wanted, *others = (
            Stack(task_of(folder, name), networks, config, torch.device(device), dtype)
            for device, dtype in places
        )
        for stack in (wanted, *others):
            stack.optimizer.step = lambda rate: None
            stack._train_step(torch.tensor([1], device=stack.device))
        for stack in others:
            gaps = [
                float(
                    (v.grad.cpu() - wanted.weights[k].grad).norm() / wanted.weights[k].grad.norm()
                )
                for k, v in stack.weights.items()
            ]
            loss = (stack.losses.cpu() - wanted.losses).abs().max()
            print(name, stack.dtype, f"loss {loss:.0e}, gradients {max(gaps):.0e}", flush=True)


def train(
    folder: Path,
    out: Path,
    arms: Mapping[str, str],
    datasets: Mapping[str, int],
    seconds: float,
    epochs: int,
    schedule: str,
    device: torch.device,
) -> None:
    """Train on each data set with the given number of seeds; write its scores when it ends."""
    ends, schema = time.monotonic() + seconds, schema_named("molecule")
    config = FinetuneConfig.parse({"protocol": "paper", "epochs": epochs, "schedule": schedule})
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    torch.backends.cuda.matmul.allow_tf32 = True
    out.mkdir(exist_ok=True)
    stacks: dict[str, Stack] = {}
    for name, seeds in datasets.items():
        networks = [
            Network(arm, seed, network_of(path, schema, seed))
            for arm, path in arms.items()
            for seed in range(seeds)
        ]
        stacks[name] = Stack(task_of(folder, name), networks, config, device, dtype)
        stacks[name].begin()
    if device.type == "cuda":
        torch.cuda.synchronize()  # the following epochs use other streams

    def work(name: str) -> None:
        stack, began = stacks[name], time.monotonic()
        with torch.cuda.stream(stack.stream) if stack.stream else nullcontext():
            for epoch in range(epochs):
                stack.epoch(epoch)
                if epoch % 10 == 9:
                    seen = [round(v, 4) for v in stack.scores[-1].mean(1).tolist()]
                    print(name, epoch + 1, seen, f"{time.monotonic() - began:.1f} s", flush=True)
                if time.monotonic() > ends:
                    break
            rows_of(name, stack).to_csv(out / f"{name}.csv", index=False)

    with ThreadPoolExecutor(len(stacks)) as pool:
        for done in [pool.submit(work, name) for name in stacks]:
            done.result()


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "check", "train"])
    parser.add_argument("tasks", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--datasets", nargs="+", required=True, metavar="NAME[:SEEDS]")
    parser.add_argument("--arms", nargs="+", default=["from scratch="], metavar="NAME=[FILE]")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--schedule", default="step", help="of the rate; constant in Hu et al.")
    parser.add_argument("--device", default="cuda")
    o = parser.parse_args()
    if o.what == "prepare":
        o.tasks.mkdir(exist_ok=True)
        for name in o.datasets:
            task = Task.of(open_labeled(name, schema_named("molecule")))
            np.savez_compressed(o.tasks / f"{name}.npz", **task._asdict())
    elif o.what == "check":
        check(o.tasks, o.datasets)
    else:
        arms = dict(arm.rsplit("=", 1) for arm in o.arms)
        parts = (name.partition(":") for name in o.datasets)
        datasets = {name: int(seeds or 5) for name, _, seeds in parts}
        train(
            o.tasks, o.out, arms, datasets, o.seconds, o.epochs, o.schedule, torch.device(o.device)
        )


if __name__ == "__main__":
    main()
