"""Pad graphs to a fixed number of nodes, so that every training step is one CUDA graph.

Launching the kernels of a step one by one takes a CPU four times as long as the GPU works. If all
shapes are the same in every step, all kernels of a step can be launched together. This module has
its own padded batches, GIN on padded rows, and batch normalization that ignores empty rows. The
weights, losses, heads, prototypes and the order of the graphs are those of the library.
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
    """The graphs of a store, padded to ``S`` nodes and ``E`` edges, the largest numbers."""

    codes: Tensor
    """Index in ``node_rows`` of each node, (M, S); the last index marks an empty place."""
    sizes: Tensor
    """Number of nodes of each graph, (M,)."""
    ends: Tensor
    """The two nodes of each edge, (M, E, 2)."""
    bonds: Tensor
    """Index in ``edge_rows`` of each edge, (M, E); the last index marks an empty place."""
    kinds: Tensor
    """First node that the encoder cannot distinguish from each node, (M, S), or zeros, (1, S)."""
    node_rows: Tensor
    """Indicator columns of the distinct node attributes, then of the mask, then zeros."""
    edge_rows: Tensor
    """Indicator columns of the distinct edge attributes, then of the self-loop, then zeros."""


class Batch(NamedTuple):
    """``B`` graphs with ``S`` places for nodes each; other fields are as in a collection."""

    codes: Tensor
    real: Tensor
    """Whether a place contains a node, (B, S)."""
    sizes: Tensor
    matrix: Tensor
    """Adjacency with self-loops, (B, S, S)."""
    edge_counts: Tensor
    """Number of edges of each row of ``edge_rows`` that end at each node, (B, S, K)."""
    kinds: Tensor


def collection(
    store: GraphStore, masked: Sequence[float], rounds: int, device: torch.device
) -> Collection:
    """Return the graphs on the device; ``kinds`` are found by ``rounds`` of refinement, if any."""
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
    indicators = [
        expand_attributes(torch.tensor(np.vstack([table, row])), attributes, torch.float32)
        for table, row, attributes in zip(tables, special, columns, strict=True)
    ]
    tensors = [*map(torch.from_numpy, parts), *(F.pad(rows, (0, 0, 0, 1)) for rows in indicators)]
    return Collection(*(tensor.to(device) for tensor in tensors))


def _elements(offsets: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of elements of each graph, and the positions of all elements."""
    counts = offsets[rows + 1] - offsets[rows]
    return counts, ragged_ranges(offsets[rows], counts)


def _padded(values: np.ndarray, counts: np.ndarray, width: int | None, fill: int) -> np.ndarray:
    """Return ragged rows as a rectangular array, padded with ``fill``."""
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
        same = square[:, :, None] == square[:, None, :]
        parts.append(same.byte().argmax(2).to(torch.int16).cpu().numpy())
    return np.concatenate(parts)


def cut(c: Collection, index: Tensor, dtype: torch.dtype) -> Batch:
    """Return the graphs at ``index`` as a batch."""
    device, count, places = index.device, index.shape[0], c.codes.shape[1]
    codes, sizes = c.codes[index].long(), c.sizes[index]
    real = torch.arange(places, device=device) < sizes[:, None]
    bonds, kinds = c.bonds[index].long(), c.edge_rows.shape[0]
    exists = bonds < kinds - 1
    first = torch.arange(count, device=device)[:, None] * places
    ends, one = c.ends[index].long().unbind(2), exists.to(dtype).flatten()
    # Padding is added to an extra last element, which is cut off below.
    matrix = torch.zeros(count * places * places + 1, dtype=dtype, device=device)
    counts = torch.zeros(count * places * kinds + 1, dtype=dtype, device=device)
    for u, v in (ends, ends[::-1]):
        cell = torch.where(exists, (first + u) * places + v, matrix.shape[0] - 1)
        matrix.scatter_add_(0, cell.flatten(), one)
        cell = torch.where(exists, (first + u) * kinds + bonds, counts.shape[0] - 1)
        counts.scatter_add_(0, cell.flatten(), one)
    loops, is_loop = real.to(dtype), (torch.arange(kinds, device=device) == kinds - 2).to(dtype)
    return Batch(
        codes,
        real,
        sizes,
        matrix[:-1].view(count, places, places) + torch.diag_embed(loops),
        counts[:-1].view(count, places, kinds) + loops[:, :, None] * is_loop,
        c.kinds[index] if len(c.kinds) > 1 else c.kinds.expand(count, -1),
    )


def norm_forward(
    h: Tensor, m: Tensor, n: Tensor, w: Tensor, b: Tensor, eps: float, relu: bool
) -> tuple[Tensor, ...]:
    """Normalize the ``n`` rows with mask ``m`` of each view, then apply the ReLU if ``relu``.

    Return the result, the mean, the variance and the inverse standard deviation.
    """
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
    """Return the gradients with respect to the rows, the weight and the bias."""
    x, g = (h.float() - mean) * rate, dy.float() * m
    if relu:
        g = torch.where(x * w + b > 0, g, 0.0)
    db, dw = g.sum(1, keepdim=True), (g * x).sum(1, keepdim=True)
    dx = (w * rate) * (g - db / n - x * (dw / n)) * m
    return dx.to(h.dtype), dw.sum((0, 1)), db.sum((0, 1))


FUSED: dict[int, tuple[Callable[..., tuple[Tensor, ...]], ...]] = {}
"""Compiled :func:`norm_forward` and :func:`norm_backward` by number of rows."""


def fuse(rows: int) -> None:
    """Compile the normalization of ``rows`` rows per view; otherwise it takes half of a step."""
    torch._dynamo.reset()  # torch compiles one function for a few shapes only
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
    """Pad a weight with zeros to multiples of eight, on which tensor cores are fast."""
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
    """Return the node embeddings (V, B, S, D) of the views ``codes`` (V, B, S).

    With ``learns`` each view is normalized by its own statistics, which update the running
    statistics view by view; otherwise the running statistics are used. Embeddings of empty places
    are zero.
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
    """Return the projections that the contrastive losses compare, in float32."""
    if head is None:
        return x.float()
    first, second = head[0], head[2]
    hidden = F.linear(x.to(dtype), first.weight.to(dtype), first.bias.to(dtype)).relu()
    return F.linear(hidden, second.weight.to(dtype), second.bias.to(dtype)).float()


def recordable(optimizer: NamedAdam, device: torch.device) -> NamedAdam:
    """Make the steps of an optimizer recordable in a CUDA graph, and return the optimizer."""
    for group in optimizer.adam.param_groups:
        group["capturable"] = device.type == "cuda"
    return optimizer


class Replayed:
    """A step that is recorded as a CUDA graph and then replayed."""

    def __init__(self, step: Callable[[Tensor], None], index: Tensor, priority: int = 0) -> None:
        """Prepare a step, which is a function of an index tensor with the shape of ``index``.

        Kernels with a lower ``priority`` run first.
        """
        self._step, self._index, self._stream = step, index, torch.cuda.Stream(priority=priority)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._warm = 0

    def __call__(self, index: Tensor) -> None:
        """Take a step; the first four are not recorded, because kernels are compiled in them."""
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
