"""Linear layers and batch normalization, computed by the fastest kernels of the processor."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from graphlog.ops.autograd import differentiable_once
from graphlog.ops.collectives import Peers

_ONEDNN = (
    torch.backends.cpu.get_cpu_capability() == "AVX512"
    and torch.backends.mkldnn.is_available()
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)
"""Whether to call oneDNN directly. In float32, torch calls MKL, which uses only half of the vector
unit of processors that are not from Intel; in bfloat16, it does not let oneDNN add the bias."""


def perceptron(
    x: Float[Tensor, "R D"], first: nn.Module, second: nn.Module
) -> Float[Tensor, "R O"]:
    r"""Return :math:`W_2 \max(W_1 x + b_1, 0) + b_2` for every row ``x``.

    ``first`` and ``second`` are linear layers. Under autocast the result is computed in the lower
    precision, as by the layers themselves.
    """
    names = ("weight", "bias")
    parameters = (getattr(layer, name) for layer in (first, second) for name in names)
    return _Perceptron.apply(x, *parameters)  # pyright: ignore[reportReturnType]


def linear(x: Float[Tensor, "R D"], layer: nn.Linear) -> Float[Tensor, "R O"]:
    """Return ``layer(x)``, under autocast in the lower precision."""
    return _Linear.apply(x, layer.weight, layer.bias)  # pyright: ignore[reportReturnType]


def add_product(
    total: Float[Tensor, "V D"], left: Float[Tensor, "V K"], right: Float[Tensor, "K D"]
) -> Float[Tensor, "V D"]:
    """Add ``left @ right`` to ``total`` in place, in the precision of ``total``, and return it."""
    left, right = left.to(total.dtype), right.to(total.dtype)
    return _AddProduct.apply(total, left, right)  # pyright: ignore[reportReturnType]


def matmul(left: Float[Tensor, "R K"], right: Float[Tensor, "K O"]) -> Float[Tensor, "R O"]:
    """Return ``left @ right`` without support for gradients."""
    return _product(left, right.t())


class _AddProduct(torch.autograd.Function):
    """``addmm_`` with padded rows in bfloat16; differentiable once."""

    @staticmethod
    def forward(ctx: Any, total: Tensor, left: Tensor, right: Tensor) -> Tensor:
        if left.dtype == torch.bfloat16:
            left = _padded(left)
        ctx.save_for_backward(left, right)
        ctx.mark_dirty(total)
        rows = total.shape[0]
        if left.shape[0] == rows:
            return total.addmm_(left, right)
        return total.add_((left @ right)[:rows])

    @staticmethod
    @differentiable_once
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor | None, ...]:
        left, right = ctx.saved_tensors
        rows = grads[0].shape[0]
        grad = grads[0] if left.shape[0] == rows else _padded(grads[0])
        d_left = (grad @ right.t())[:rows] if ctx.needs_input_grad[1] else None
        d_right = left.t() @ grad if ctx.needs_input_grad[2] else None
        return grads[0], d_left, d_right


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows, ctx.has_bias = x.shape[0], bias is not None
        if bias is None:
            x, weight = _as_autocast(x, weight)
        else:
            x, weight, bias = _as_autocast(x, weight, bias)
        with torch.autocast(x.device.type, enabled=False):
            x = _padded(x)
            ctx.save_for_backward(x, weight)
            # resized, since a slice would be a view, which the caller could not change in place
            return _product(x, weight, bias).resize_(rows, weight.shape[0])

    @staticmethod
    @differentiable_once
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        rows, grad = grads[0].shape[0], _padded(grads[0])
        d_x = _product(grad, weight.t())[:rows] if ctx.needs_input_grad[0] else None
        d_bias = grad.sum(0) if ctx.has_bias else None
        return d_x, _product(grad.t(), x.t()), d_bias


class _Perceptron(torch.autograd.Function):
    """Perceptron that stores the input and the hidden layer for the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
        rows, (x, w1, b1, w2, b2) = x.shape[0], _as_autocast(x, w1, b1, w2, b2)
        with torch.autocast(x.device.type, enabled=False):
            x = _padded(x)
            hidden = _product(x, w1, b1, relu=True)
            ctx.save_for_backward(x, hidden, w1, w2)
            # resized, since a slice would be a view, which the caller could not change in place
            return _product(hidden, w2, b2).resize_(rows, w2.shape[0])

    @staticmethod
    @differentiable_once
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor | None, ...]:
        x, hidden, w1, w2 = ctx.saved_tensors
        rows, grad = grads[0].shape[0], _padded(grads[0])
        d_hidden = _product(grad, w2.t())
        torch.ops.aten.threshold_backward.grad_input(d_hidden, hidden, 0, grad_input=d_hidden)
        d_x = _product(d_hidden, w1.t())[:rows] if ctx.needs_input_grad[0] else None
        d_w1 = _product(x.t(), d_hidden.t()).t()  # fewer rows than columns is faster
        return d_x, d_w1, d_hidden.sum(0), _product(grad.t(), hidden.t()), grad.sum(0)


def _as_autocast(*tensors: Tensor) -> Sequence[Tensor]:
    """Return the tensors in the precision of autocast, if it is enabled."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    return [t.to(torch.get_autocast_dtype(device)) for t in tensors]


def _uses_onednn(x: Tensor) -> bool:
    return _ONEDNN and x.device.type == "cpu" and x.dtype in (torch.float32, torch.bfloat16)


def _padded(x: Tensor) -> Tensor:
    """Return ``x`` with rows of zeros appended, so that few different numbers of rows occur.

    For each number of rows, oneDNN compiles kernels of about a megabyte and caches them. Fewer than
    64 rows are added, or at most one for 32 rows of ``x`` if that is more.
    """
    rows = x.shape[0]
    step = max(64, 2 ** rows.bit_length() // 64)
    total = -(-rows // step) * step
    if total == rows or not _uses_onednn(x):
        return x
    padded = x.new_empty(total, x.shape[1])
    padded[:rows] = x
    padded[rows:] = 0
    return padded


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None, relu: bool = False) -> Tensor:
    """Return ``x @ weight.T + bias``, or its positive part with ``relu``."""
    if _uses_onednn(x) and x.numel() > 0 and (x.dtype == torch.float32 or bias is not None):
        activation = "relu" if relu else "none"
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, activation, [], "")
    out = F.linear(x, weight, bias)
    return F.relu(out, inplace=True) if relu else out


class Moments(NamedTuple):
    """Statistics of the columns of a matrix, over the rows of all processes."""

    rows: int
    mean: Float[Tensor, "D"]
    variance: Float[Tensor, "D"]
    """Variance of each column, divided by the number of rows."""


@torch.no_grad()
def shared_moments(
    x: Float[Tensor, "R D"], counts: Float[Tensor, "R"] | None = None, peers: Peers | None = None
) -> Moments:
    """Return the mean and variance of every column over the rows of all ``peers``.

    Each row counts once, or as often as ``counts`` says.
    """
    moments = x.new_zeros(3, x.shape[1], dtype=torch.float64)
    dtype = torch.promote_types(x.dtype, torch.float32)
    if x.shape[0] and counts is None:
        moments[0] = x.shape[0]
        moments[1], moments[2] = torch.batch_norm_update_stats(x.to(dtype), None, None, 0.0)  # pyright: ignore
    elif x.shape[0] and counts is not None:
        moments[0] = counts.sum()
        share = (counts / moments[0, 0]).to(dtype)
        with torch.autocast(x.device.type, enabled=False):  # as in torch's batch normalization
            mean = share @ x.to(dtype)
            moments[1], moments[2] = mean, share @ (x - mean).square_()
    if peers is not None:
        gathered = peers.all_rows(moments, [3] * peers.size).view(peers.size, 3, -1)
        rows, means, variances = gathered.unbind(1)
        total = rows.sum(0)
        mean = (rows * means).sum(0) / total.clamp_min(1)
        variance = (rows * (variances + (means - mean).square())).sum(0) / total.clamp_min(1)
        moments = torch.stack([total, mean, variance])
    return Moments(int(moments[0, 0]), moments[1].to(dtype), moments[2].to(dtype))


def normalize(
    x: Float[Tensor, "R D"],
    moments: Moments,
    weight: Float[Tensor, "D"],
    bias: Float[Tensor, "D"],
    eps: float,
    counts: Float[Tensor, "R"] | None = None,
    peers: Peers | None = None,
) -> Float[Tensor, "R D"]:
    """Return ``x`` batch-normalized by the moments of :func:`shared_moments`, with gradients."""
    return _Normalize.apply(x, weight, bias, moments, eps, counts, peers)  # pyright: ignore[reportReturnType]


class _Normalize(torch.autograd.Function):
    """Batch normalization with a gradient that sums over the rows of all processes."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        moments: Moments,
        eps: float,
        counts: Tensor | None,
        peers: Peers | None,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, moments.mean, moments.variance, counts)
        ctx.count, ctx.eps, ctx.peers = moments.rows, eps, peers
        if x.shape[0] == 0:
            return x.clone()
        return F.batch_norm(x, moments.mean, moments.variance, weight, bias, False, 0.0, eps)

    @staticmethod
    @differentiable_once
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance, counts = ctx.saved_tensors
        dy = grads[0].contiguous()
        sums = torch.zeros(2, weight.shape[0], dtype=weight.dtype, device=weight.device)
        if x.shape[0]:
            _, sums[0], sums[1] = torch.ops.aten.native_batch_norm_backward(
                dy, x, weight, mean, variance, None, None, False, ctx.eps, [False, True, True]
            )
        means = (sums if ctx.peers is None else ctx.peers.total(sums)) / ctx.count
        rate = (variance + ctx.eps).rsqrt()
        # dx = w r (dy - n (mean(dy) + xhat mean(dy xhat))), where xhat = (x - m) r, r = `rate`, and
        # n are the counts; means[0] is mean(dy xhat), and means[1] is mean(dy)
        slope = -weight * rate * rate * means[0]
        shift = -weight * rate * means[1] - slope * mean
        through_moments = torch.addcmul(shift, x.to(weight.dtype), slope)
        if counts is not None:
            through_moments.mul_(counts[:, None])
        dx = through_moments.addcmul_(dy.to(weight.dtype), weight * rate)
        return dx.to(x.dtype), sums[0], sums[1], None, None, None, None
