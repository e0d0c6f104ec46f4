"""Triton kernels for ``finetune.py``, each of which replaces an operation of several kernels.

The rows of K networks have the shape (K, N, D); the first ``real[k]`` of network ``k`` are nodes.
"""

from typing import Any

import torch
import triton
from torch import Tensor
from triton import language as tl

EPS: tl.constexpr = tl.constexpr(1e-5)
MOMENTUM: tl.constexpr = tl.constexpr(0.1)
ROWS, COLUMNS, WARPS = 256, 16, 8


@triton.jit
def _tile(values, first, k, count, width, column, end, R: tl.constexpr):
    """Return the offsets, the mask (rows before ``end``) and the values of a tile of a network."""
    row = first + tl.arange(0, R)
    place = (k * count + row)[:, None] * width + column[None, :]
    mask = (row < end)[:, None] & (column < width)[None, :]
    return place, mask, tl.load(values + place, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _sum_neighbors(
    h,
    out,
    neighbors,
    nodes,
    count,
    of_network,
    width,
    J: tl.constexpr,
    R: tl.constexpr,
    C: tl.constexpr,
):
    k = tl.program_id(2)
    row = tl.program_id(0) * R + tl.arange(0, R)
    column = tl.program_id(1) * C + tl.arange(0, C)
    inside, wide = row < count, column < width
    node = tl.load(nodes + k * of_network + row, mask=inside, other=0).to(tl.int64)
    total = tl.zeros((R, C), tl.float32)
    for j in range(J):
        jump = tl.load(neighbors + node * J + j, mask=inside, other=32767).to(tl.int32)
        exists = (jump != 32767)[:, None] & wide[None, :]
        place = (k * count + row + jump)[:, None] * width + column[None, :]
        total += tl.load(h + place, mask=exists, other=0.0).to(tl.float32)
    place = (k * count + row)[:, None] * width + column[None, :]
    tl.store(out + place, total.to(out.dtype.element_ty), mask=inside[:, None] & wide[None, :])


@triton.jit
def _bias_relu(x, b, count, width, size, B: tl.constexpr):
    offset = tl.program_id(0) * B + tl.arange(0, B)
    k = offset // (count * width)
    value = tl.load(x + offset, mask=offset < size, other=0.0).to(tl.float32)
    value += tl.load(b + k * width + offset % width, mask=offset < size, other=0.0).to(tl.float32)
    tl.store(x + offset, tl.maximum(value, 0.0).to(x.dtype.element_ty), mask=offset < size)


@triton.jit
def _bias_relu_backward(dy, y, dx, db, count, width, R: tl.constexpr, C: tl.constexpr):
    k = tl.program_id(0)
    column = tl.program_id(1) * C + tl.arange(0, C)
    total = tl.zeros((C,), tl.float32)
    for first in range(0, count, R):
        place, mask, on = _tile(y, first, k, count, width, column, count, R)
        _, _, g = _tile(dy, first, k, count, width, column, count, R)
        g = tl.where(on > 0, g, 0.0)
        tl.store(dx + place, g.to(dx.dtype.element_ty), mask=mask)
        total += tl.sum(g, 0)
    tl.store(db + k * width + column, total.to(db.dtype.element_ty), mask=column < width)


@triton.jit
def _dropped(value, seed, place, drawn_before):
    """Apply dropout of one half, which depends only on the seed and the offset of the value."""
    drawn = tl.rand(tl.load(seed), (drawn_before + place).to(tl.int32))
    return tl.where(drawn < 0.5, 0.0, 2.0 * value)


@triton.jit(do_not_specialize=["layer"])
def _norm(
    h, out, real, w, b, mean_of, rate_of, running_mean, running_var, seed, layer,
    networks, count, width,
    RELU: tl.constexpr, DROP: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(0)
    column = tl.program_id(1) * C + tl.arange(0, C)
    wide, offset = column < width, k * width + column
    n = tl.load(real + k)
    total = tl.zeros((C,), tl.float32)
    for first in range(0, n, R):
        _, _, x = _tile(h, first, k, count, width, column, n, R)
        total += tl.sum(x, 0)
    mean = total / n
    total = tl.zeros((C,), tl.float32)
    for first in range(0, n, R):
        _, mask, x = _tile(h, first, k, count, width, column, n, R)
        d = tl.where(mask, x - mean[None, :], 0.0)
        total += tl.sum(d * d, 0)
    rate = 1.0 / tl.sqrt(total / n + EPS)
    weight = tl.load(w + offset, mask=wide, other=0.0)
    bias = tl.load(b + offset, mask=wide, other=0.0)
    tl.store(mean_of + offset, mean, mask=wide)
    tl.store(rate_of + offset, rate, mask=wide)
    old = tl.load(running_mean + offset, mask=wide, other=0.0)
    tl.store(running_mean + offset, old + MOMENTUM * (mean - old), mask=wide)
    old = tl.load(running_var + offset, mask=wide, other=0.0)
    tl.store(running_var + offset, old + MOMENTUM * (total / (n - 1) - old), mask=wide)
    for first in range(0, count, R):
        place, mask, x = _tile(h, first, k, count, width, column, count, R)
        y = (x - mean[None, :]) * (rate * weight)[None, :] + bias[None, :]
        if RELU:
            y = tl.maximum(y, 0.0)
        if DROP:
            y = _dropped(y, seed, place, layer * networks * count * width)
        y = tl.where((first + tl.arange(0, R) < n)[:, None], y, 0.0)
        tl.store(out + place, y.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _gradient(
    dy, h, first, k, count, width, column, end, mean, rate, weight, bias, seed, drawn_before,
    RELU: tl.constexpr, DROP: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """Return offsets, mask, normalized rows, and gradients with respect to the ReLU's input."""
    place, mask, x = _tile(h, first, k, count, width, column, end, R)
    _, _, g = _tile(dy, first, k, count, width, column, end, R)
    x = (x - mean[None, :]) * rate[None, :]
    if DROP:
        g = _dropped(g, seed, place, drawn_before)
    if RELU:
        g = tl.where(x * weight[None, :] + bias[None, :] > 0, g, 0.0)
    return place, mask, x, g


@triton.jit(do_not_specialize=["layer"])
def _norm_backward(
    dy, h, dx, real, w, b, mean_of, rate_of, dw, db, seed, layer,
    networks, count, width,
    RELU: tl.constexpr, DROP: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(0)
    column = tl.program_id(1) * C + tl.arange(0, C)
    wide, offset = column < width, k * width + column
    n = tl.load(real + k)
    mean = tl.load(mean_of + offset, mask=wide, other=0.0)
    rate = tl.load(rate_of + offset, mask=wide, other=0.0)
    weight = tl.load(w + offset, mask=wide, other=0.0)
    bias = tl.load(b + offset, mask=wide, other=0.0)
    sum_g, sum_gx = tl.zeros((C,), tl.float32), tl.zeros((C,), tl.float32)
    drawn_before = layer * networks * count * width
    for first in range(0, n, R):
        _, _, x, g = _gradient(
            dy, h, first, k, count, width, column, n, mean, rate, weight, bias, seed,
            drawn_before, RELU, DROP, R,
        )  # fmt: skip
        sum_g += tl.sum(g, 0)
        sum_gx += tl.sum(g * x, 0)
    for first in range(0, count, R):
        place, mask, x, g = _gradient(
            dy, h, first, k, count, width, column, count, mean, rate, weight, bias, seed,
            drawn_before, RELU, DROP, R,
        )  # fmt: skip
        d = (weight * rate)[None, :] * (g - (sum_g / n)[None, :] - x * (sum_gx / n)[None, :])
        d = tl.where((first + tl.arange(0, R) < n)[:, None], d, 0.0)
        tl.store(dx + place, d.to(dx.dtype.element_ty), mask=mask)
    tl.store(db + offset, sum_g, mask=wide)
    tl.store(dw + offset, sum_gx, mask=wide)


def _sums(h: Tensor, neighbors: Tensor, nodes: Tensor) -> Tensor:
    h = h.contiguous()
    (networks, count, width), out = h.shape, torch.empty_like(h)
    grid = triton.cdiv(count, 16), triton.cdiv(width, 64), networks
    of_network = count if len(nodes) > 1 else 0
    _sum_neighbors[grid](
        h, out, neighbors, nodes, count, of_network, width, neighbors.shape[1], 16, 64
    )
    return out


class _NeighborSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, neighbors: Tensor, nodes: Tensor) -> Tensor:
        ctx.save_for_backward(neighbors, nodes)
        return _sums(h, neighbors, nodes)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return _sums(grads[0], *ctx.saved_tensors), None, None  # edges go both ways


class _BiasReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, b: Tensor) -> Tensor:
        _, count, width = x.shape
        _bias_relu[(triton.cdiv(x.numel(), 1024),)](x, b, count, width, x.numel(), 1024)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x, b)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (y, b), dy = ctx.saved_tensors, grads[0].contiguous()
        (networks, count, width), dx, db = y.shape, torch.empty_like(y), torch.empty_like(b)
        grid = networks, triton.cdiv(width, COLUMNS)
        _bias_relu_backward[grid](dy, y, dx, db, count, width, ROWS, COLUMNS, num_warps=WARPS)
        return dx, db


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, *others: Any) -> Tensor:
        real, w, b, mean_run, var_run, seed, layer, relu, drop = others
        (networks, count, width), out = h.shape, torch.empty_like(h)
        mean, rate = torch.empty_like(w), torch.empty_like(w)
        _norm[networks, triton.cdiv(width, COLUMNS)](
            h, out, real, w, b, mean, rate, mean_run, var_run, seed, layer,
            networks, count, width, relu, drop, ROWS, COLUMNS, num_warps=WARPS,
        )  # fmt: skip
        ctx.save_for_backward(h, real, w, b, mean, rate, seed)
        ctx.given = layer, relu, drop
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (h, real, w, b, mean, rate, seed), dy = ctx.saved_tensors, grads[0].contiguous()
        (networks, count, width), (layer, relu, drop) = h.shape, ctx.given
        dx, dw, db = torch.empty_like(h), torch.empty_like(w), torch.empty_like(b)
        _norm_backward[networks, triton.cdiv(width, COLUMNS)](
            dy, h, dx, real, w, b, mean, rate, dw, db, seed, layer,
            networks, count, width, relu, drop, ROWS, COLUMNS, num_warps=WARPS,
        )  # fmt: skip
        return dx, None, dw, db, None, None, None, None, None, None


neighbor_sum, bias_relu, normalized = _NeighborSum.apply, _BiasReLU.apply, _Norm.apply
