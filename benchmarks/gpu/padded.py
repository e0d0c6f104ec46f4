"""Graphs in a fixed number of places, so that every training step is one CUDA graph.

On a GPU a step of separate kernels keeps one processor busy for four times as long as the GPU.
Where all shapes are the same in every step, all its kernels are launched at once. Written anew for
that are what a batch is cut from, GIN on padded rows, and batch normalization that leaves out the
empty ones; weights, losses, heads, prototypes and the order of graphs are the library's.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphlog.data.graphs import ragged_ranges
from graphlog.data.store import GraphStore
from graphlog.encoders.encoder import GraphEncoder, expand_attributes
from graphlog.ops.colors import refine_colors
from graphlog.training.trainer import NamedAdam


class Collection(NamedTuple):
    """Every graph of a store in as many places as the largest needs."""

    codes: Tensor
    """Distinct row of attributes of each node, (M, S); the last where there is no node."""
    sizes: Tensor
    ends: Tensor
    """The two nodes of each edge, (M, E, 2)."""
    bonds: Tensor
    """Distinct row of attributes of each edge, (M, E); the last where there is no edge."""
    kinds: Tensor
    """First node of the graph that an encoder cannot tell from each, (M, S); or (1, S) of zeros."""
    node_rows: Tensor
    """Indicator columns of the distinct rows; the last but one is the mask's, the last zeros."""
    edge_rows: Tensor
    """Those of edges; the last but one is the self-loop's."""


class Batch(NamedTuple):
    """``B`` graphs, ``S`` places each."""

    codes: Tensor
    real: Tensor
    """Whether a place holds a node, (B, S)."""
    sizes: Tensor
    matrix: Tensor
    """Adjacency with self-loops, (B, S, S)."""
    edge_counts: Tensor
    """How many edges of each distinct row end at each node, (B, S, K)."""
    kinds: Tensor


def collection(
    store: GraphStore, masked: Sequence[float], rounds: int, device: torch.device
) -> Collection:
    """Put the graphs on the device; kinds are told apart where there are ``rounds``."""
    arrays, schema = store.contents.arrays, store.schema
    rows = np.arange(len(store)) if store.indices is None else store.indices
    tables = [np.asarray(arrays[f"{kind}_table"]) for kind in ("node", "edge")]
    (node_counts, nodes), (edge_counts, edges) = (
        _elements(arrays[f"{kind}_offsets"].astype(np.int64), rows) for kind in ("node", "edge")
    )
    places = -(-int(node_counts.max()) // 4) * 4
    parts = [
        _padded(np.asarray(arrays["node_codes"])[nodes], node_counts, places, len(tables[0]) + 1),
        node_counts,
        _padded(np.asarray(arrays["endpoints"])[edges], edge_counts, None, 0),
        _padded(np.asarray(arrays["edge_codes"])[edges], edge_counts, None, len(tables[1]) + 1),
        _kinds(store, places, rounds, device) if rounds else np.zeros((1, places), np.uint8),
    ]
    special, columns = (masked, schema.self_loop), (schema.node, schema.edge)
    shown = [
        expand_attributes(torch.tensor(np.vstack([table, row])), own, torch.float32)
        for table, row, own in zip(tables, special, columns, strict=True)
    ]
    tensors = [*map(torch.from_numpy, parts), *(F.pad(rows, (0, 0, 0, 1)) for rows in shown)]
    return Collection(*(tensor.to(device) for tensor in tensors))


def _elements(offsets: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of elements of the graphs, and where each element stands."""
    counts = offsets[rows + 1] - offsets[rows]
    return counts, ragged_ranges(offsets[rows], counts)


def _padded(values: np.ndarray, counts: np.ndarray, width: int | None, fill: int) -> np.ndarray:
    """Return ragged rows in a rectangle."""
    kind = np.uint8 if max(values.max(initial=0), fill) < 256 else np.int16
    out = np.full((len(counts), width or int(counts.max()), *values.shape[1:]), fill, kind)
    graph = np.repeat(np.arange(len(counts)), counts)
    out[graph, ragged_ranges(np.zeros_like(counts), counts)] = values
    return out


def _kinds(store: GraphStore, places: int, rounds: int, device: torch.device) -> np.ndarray:
    parts: list[np.ndarray] = []
    for first in range(0, len(store), 16384):
        batch = store.take(np.arange(first, min(first + 16384, len(store)))).to(device)
        color = refine_colors(batch.x, batch.edge_attr, batch.adjacency, rounds)
        square = color.new_zeros(batch.num_graphs, places)
        place = torch.arange(len(color), device=color.device) - batch.ptr[:-1][batch.batch]
        square[batch.batch, place] = color
        alike = square[:, :, None] == square[:, None, :]
        parts.append(alike.byte().argmax(2).to(torch.int16).cpu().numpy())
    return np.concatenate(parts)


def cut(c: Collection, index: Tensor, dtype: torch.dtype) -> Batch:
    """Return the graphs at ``index``."""
    device, count, places = index.device, index.shape[0], c.codes.shape[1]
    codes, sizes = c.codes[index].long(), c.sizes[index]
    real = torch.arange(places, device=device) < sizes[:, None]
    bonds, kinds = c.bonds[index].long(), c.edge_rows.shape[0]
    there = bonds < kinds - 1
    first = torch.arange(count, device=device)[:, None] * places
    ends, one = c.ends[index].long().unbind(2), there.to(dtype).flatten()
    # what is padded goes to a place behind all others
    matrix = torch.zeros(count * places * places + 1, dtype=dtype, device=device)
    counts = torch.zeros(count * places * kinds + 1, dtype=dtype, device=device)
    for u, v in (ends, ends[::-1]):
        at = torch.where(there, (first + u) * places + v, matrix.shape[0] - 1)
        matrix.scatter_add_(0, at.flatten(), one)
        at = torch.where(there, (first + u) * kinds + bonds, counts.shape[0] - 1)
        counts.scatter_add_(0, at.flatten(), one)
    loops, own = real.to(dtype), (torch.arange(kinds, device=device) == kinds - 2).to(dtype)
    return Batch(
        codes,
        real,
        sizes,
        matrix[:-1].view(count, places, places) + torch.diag_embed(loops),
        counts[:-1].view(count, places, kinds) + loops[:, :, None] * own,
        c.kinds[index] if len(c.kinds) > 1 else c.kinds.expand(count, -1),
    )


def norm_forward(
    h: Tensor, m: Tensor, n: Tensor, w: Tensor, b: Tensor, eps: float, relu: bool
) -> tuple[Tensor, ...]:
    """Normalize the real rows ``m`` of each view, with the ReLU behind it."""
    x = h.float()
    mean = (x * m).sum(1, keepdim=True) / n
    centered = (x - mean) * m
    variance = centered.square().sum(1, keepdim=True) / n
    rate = (variance + eps).rsqrt()
    y = centered * (rate * w) + b
    return ((y.relu() if relu else y) * m).to(h.dtype), mean, variance, rate


def norm_backward(
    dy: Tensor,
    h: Tensor,
    m: Tensor,
    n: Tensor,
    mean: Tensor,
    rate: Tensor,
    w: Tensor,
    b: Tensor,
    relu: bool,
) -> tuple[Tensor, ...]:
    """Return the gradients of the rows, of the weight and of the bias."""
    x, g = (h.float() - mean) * rate, dy.float() * m
    if relu:
        g = torch.where(x * w + b > 0, g, 0.0)
    db, dw = g.sum(1, keepdim=True), (g * x).sum(1, keepdim=True)
    dx = (w * rate) * (g - db / n - x * (dw / n)) * m
    return dx.to(h.dtype), dw.sum((0, 1)), db.sum((0, 1))


FUSED: dict[int, tuple[Callable[..., tuple[Tensor, ...]], ...]] = {}
"""The two as compiled for a number of rows, see :func:`fuse`."""


def fuse(rows: int) -> None:
    """Compile normalization for ``rows`` a view; as it is, it takes half of a step."""
    torch._dynamo.reset()  # of one function, few shapes are kept
    FUSED.clear()
    FUSED[rows] = tuple(torch.compile(f, dynamic=False) for f in (norm_forward, norm_backward))


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, *others: Any) -> tuple[Tensor, ...]:
        m, n, w, b, eps, relu = others
        forward = FUSED.get(h.shape[1], (norm_forward,))[0]
        out, mean, variance, rate = forward(h, m, n, w, b, eps, relu)
        ctx.save_for_backward(h, m, n, mean, rate, w, b)
        ctx.relu = relu
        ctx.mark_non_differentiable(mean, variance)
        return out, mean, variance

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        dy = grads[0].contiguous()
        backward = FUSED.get(dy.shape[1], (norm_backward,))[-1]
        dx, dw, db = backward(dy, *ctx.saved_tensors, ctx.relu)
        return dx, None, None, dw, db, None, None


def wide(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a weight with zeros up to multiples of eight, on which tensor cores are fast."""
    gap = [(-n) % 8 for n in weight.shape]
    return F.pad(weight, [0, gap[1], 0, gap[0]] if weight.dim() == 2 else [0, gap[0]]).to(dtype)


def encode(
    encoder: GraphEncoder,
    c: Collection,
    batch: Batch,
    codes: Tensor,
    dtype: torch.dtype,
    learns: bool,
) -> Tensor:
    """Return the node embeddings of each view in ``codes`` (V, B, S): (V, B, S, D), zeros if empty.

    Where it ``learns``, views are normalized each by itself, and running statistics follow them one
    after the other; else the running statistics normalize.
    """
    (views, count, places), kinds = codes.shape, torch.arange(len(c.node_rows), device=codes.device)
    m = batch.real.reshape(1, -1, 1).float()
    n = m.sum()
    table = wide(c.node_rows @ encoder.node.weight, dtype)
    hot = F.pad((codes[..., None] == kinds).to(dtype), (0, table.shape[0] - len(kinds)))
    h = (hot.flatten(0, 2) @ table).view(views * count, places, -1)
    matrix = batch.matrix.expand(views, -1, -1, -1).flatten(0, 1)
    counts = batch.edge_counts.expand(views, -1, -1, -1).flatten(0, 2)
    width, last = encoder.config.dim, len(encoder.layers) - 1
    for number, (layer, norm) in enumerate(zip(encoder.layers, encoder.norms, strict=True)):
        edge = wide(c.edge_rows @ layer.edge.weight, dtype)
        total = torch.bmm(matrix, h).flatten(0, 1)
        total = total + F.pad(counts, (0, edge.shape[0] - counts.shape[1])) @ edge
        up, down = (
            (wide(part.weight, dtype), wide(part.bias, dtype)) for part in (layer.lift, layer.lower)
        )
        h = F.linear(F.linear(total, *up).relu(), *down).view(views, count * places, -1)
        w, b = wide(norm.weight, torch.float32), wide(norm.bias, torch.float32)
        if learns:
            h, mean, variance = _Norm.apply(h, m, n, w, b, norm.eps, number < last)
            with torch.no_grad():
                for view in range(views):
                    norm.running_mean.lerp_(mean[view, 0, :width], norm.momentum)
                    norm.running_var.lerp_(variance[view, 0, :width] * n / (n - 1), norm.momentum)
        else:
            rate = (wide(norm.running_var, torch.float32) + norm.eps).rsqrt() * w
            h = (h.float() - wide(norm.running_mean, torch.float32)) * rate + b
            h = ((h.relu() if number < last else h) * m).to(dtype)
        h = h.view(views * count, places, -1)
    return h.view(views, count, places, -1)[..., :width]


def means(h: Tensor, batch: Batch) -> Tensor:
    """Return the mean over the nodes of each graph of each view, in float32."""
    return (h.float() * batch.real[:, :, None]).sum(2) / batch.sizes[:, None].clamp_min(1)


def project(head: nn.Sequential | None, x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what is compared by a contrast, in float32."""
    if head is None:
        return x.float()
    first, second = head[0], head[2]
    hidden = F.linear(x.to(dtype), first.weight.to(dtype), first.bias.to(dtype)).relu()
    return F.linear(hidden, second.weight.to(dtype), second.bias.to(dtype)).float()


def recordable(optimizer: NamedAdam, device: torch.device) -> NamedAdam:
    """Return an optimizer whose steps may be recorded."""
    for group in optimizer.adam.param_groups:
        group["capturable"] = device.type == "cuda"
    return optimizer


class Replayed:
    """A step that is recorded once and then launched as a whole."""

    def __init__(self, step: Callable[[Tensor], None], index: Tensor, priority: int = 0) -> None:
        """Take a step on the graphs at an index of always the same length, as ``index``.

        Kernels of a lower ``priority`` go first.
        """
        self._step, self._index, self._stream = step, index, torch.cuda.Stream(priority=priority)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._warm = 0

    def __call__(self, index: Tensor) -> None:
        """Take the step; the first few are taken as they are, since kernels are made in them."""
        if self._warm < 4:
            self._warm += 1
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                self._step(index)
            torch.cuda.current_stream().wait_stream(self._stream)
            return
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, stream=self._stream):
                self._step(self._index)
        self._index.copy_(index)
        self._graph.replay()
