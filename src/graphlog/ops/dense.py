"""Linear layers and batch normalization of the rows of a batch, where the processor is fastest."""

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
"""Whether to call oneDNN by name. In float32 torch calls MKL, which leaves half of the vector unit
of processors that are not Intel's unused; in bfloat16 it calls oneDNN, but not to add a bias."""


def perceptron(
    x: Float[Tensor, "R D"], first: nn.Module, second: nn.Module
) -> Float[Tensor, "R O"]:
    r"""Return :math:`W_2 \max(W_1 x + b_1, 0) + b_2` of every row ``x``.

    The weights are those of two linear layers. Under autocast it computes in the lower precision,
    as the layers themselves would.
    """
    names = ("weight", "bias")
    learned = (getattr(layer, name) for layer in (first, second) for name in names)
    return _Perceptron.apply(x, *learned)  # pyright: ignore[reportReturnType]


def linear(x: Float[Tensor, "R D"], layer: nn.Linear) -> Float[Tensor, "R O"]:
    """Return ``layer(x)``, under autocast in the lower precision."""
    return _Linear.apply(x, layer.weight, layer.bias)  # pyright: ignore[reportReturnType]


def add_product(
    total: Float[Tensor, "V D"], left: Float[Tensor, "V K"], right: Float[Tensor, "K D"]
) -> Float[Tensor, "V D"]:
    """Add ``left @ right`` to ``total`` in place and return it; in its precision."""
    left, right = left.to(total.dtype), right.to(total.dtype)
    return _AddProduct.apply(total, left, right)  # pyright: ignore[reportReturnType]


def matmul(left: Float[Tensor, "R K"], right: Float[Tensor, "K O"]) -> Float[Tensor, "R O"]:
    """Return ``left @ right``, of which no gradient is wanted."""
    return _product(left, right.t())


class _AddProduct(torch.autograd.Function):
    """As ``addmm_``, but in bfloat16 with few numbers of rows; differentiable once."""

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
    """A linear layer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows, ctx.has_bias = x.shape[0], bias is not None
        x, weight, *biases = _in_format_of_autocast(x, weight, *(() if bias is None else (bias,)))
        with torch.autocast(x.device.type, enabled=False):
            x = _padded(x)
            ctx.save_for_backward(x, weight)
            # no view, since a caller may change what it gets in place
            return _product(x, weight, biases[0] if biases else None).resize_(rows, weight.shape[0])

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
    """Keeps the input and the hidden layer, whose gradient is cut off in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
        rows, (x, w1, b1, w2, b2) = x.shape[0], _in_format_of_autocast(x, w1, b1, w2, b2)
        with torch.autocast(x.device.type, enabled=False):
            x = _padded(x)
            hidden = _product(x, w1, b1, relu=True)
            ctx.save_for_backward(x, hidden, w1, w2)
            # no view, since a caller may change what it gets in place
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
        d_w1 = _product(x.t(), d_hidden.t()).t()  # fewer rows than columns: faster than transposed
        return d_x, d_w1, d_hidden.sum(0), _product(grad.t(), hidden.t()), grad.sum(0)


def _in_format_of_autocast(x: Tensor, *others: Tensor) -> list[Tensor]:
    device = x.device.type
    if not torch.is_autocast_enabled(device):
        return [x, *others]
    return [t.to(torch.get_autocast_dtype(device)) for t in (x, *others)]


def _by_name(x: Tensor) -> bool:
    return _ONEDNN and x.device.type == "cpu" and x.dtype in (torch.float32, torch.bfloat16)


def _padded(x: Tensor) -> Tensor:
    """Return ``x`` with rows of zeros below it, so that few numbers of rows occur.

    For each, oneDNN compiles kernels of its own, about a megabyte, and keeps them. Fewer than 64
    rows are added, or at most one in 32 where that is more.
    """
    rows = x.shape[0]
    step = max(64, 2 ** rows.bit_length() // 64)
    total = -(-rows // step) * step
    if total == rows or not _by_name(x):
        return x
    padded = x.new_empty(total, x.shape[1])
    padded[:rows] = x
    padded[rows:] = 0
    return padded


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None, relu: bool = False) -> Tensor:
    """Return ``x @ weight.T + bias``, with ``relu`` its positive part."""
    if _by_name(x) and x.numel() > 0 and (x.dtype == torch.float32 or bias is not None):
        activation = "relu" if relu else "none"
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, activation, [], "")
    out = F.linear(x, weight, bias)
    return F.relu(out, inplace=True) if relu else out


class Moments(NamedTuple):
    """Statistics of the rows of all processes together."""

    rows: int
    mean: Float[Tensor, "D"]
    variance: Float[Tensor, "D"]
    """Divided by the number of rows."""


@torch.no_grad()
def shared_moments(
    x: Float[Tensor, "R D"], counts: Float[Tensor, "R"] | None = None, peers: Peers | None = None
) -> Moments:
    """Return the mean and variance of every column of the rows that ``peers`` hold together.

    Each row counts once, or as often as ``counts`` says.
    """
    own = x.new_zeros(3, x.shape[1], dtype=torch.float64)
    single = torch.promote_types(x.dtype, torch.float32)
    if x.shape[0] and counts is None:
        own[0] = x.shape[0]
        own[1], own[2] = torch.batch_norm_update_stats(x.to(single), None, None, 0.0)  # pyright: ignore
    elif x.shape[0] and counts is not None:
        own[0] = counts.sum()
        share = (counts / own[0, 0]).to(single)
        with torch.autocast(x.device.type, enabled=False):  # as torch's own batch norm
            mean = share @ x.to(single)
            own[1], own[2] = mean, share @ (x - mean).square_()
    if peers is not None:
        every = peers.all_rows(own, [3] * peers.size).view(peers.size, 3, -1)
        rows, means, variances = every.unbind(1)
        total = rows.sum(0)
        mean = (rows * means).sum(0) / total.clamp_min(1)
        variance = (rows * (variances + (means - mean).square())).sum(0) / total.clamp_min(1)
        own = torch.stack([total, mean, variance])
    return Moments(int(own[0, 0]), own[1].to(single), own[2].to(single))


def normalize(
    x: Float[Tensor, "R D"],
    moments: Moments,
    weight: Float[Tensor, "D"],
    bias: Float[Tensor, "D"],
    eps: float,
    counts: Float[Tensor, "R"] | None = None,
    peers: Peers | None = None,
) -> Float[Tensor, "R D"]:
    """Return batch normalization by :func:`shared_moments`, through which gradients flow."""
    return _Normalize.apply(x, weight, bias, moments, eps, counts, peers)  # pyright: ignore[reportReturnType]


class _Normalize(torch.autograd.Function):
    """Normalization whose gradient sums over the rows of all processes."""

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
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance, counts = ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated again, through the moments too
            assert ctx.peers is None, "of several processes, gradients are taken once"
            share = (x.new_ones(x.shape[0]) if counts is None else counts.to(x.dtype)) / ctx.count

            def scaled(x: Tensor, weight: Tensor) -> Tensor:
                centered = x - share @ x
                return centered * (share @ centered.square() + ctx.eps).rsqrt() * weight

            pull = torch.func.vjp(scaled, x, weight)[1]
            return *pull(grads[0]), grads[0].sum(0), None, None, None, None
        dy = grads[0].contiguous()
        own = torch.zeros(2, weight.shape[0], dtype=weight.dtype, device=weight.device)
        if x.shape[0]:
            _, own[0], own[1] = torch.ops.aten.native_batch_norm_backward(
                dy, x, weight, mean, variance, None, None, False, ctx.eps, [False, True, True]
            )
        over_all = (own if ctx.peers is None else ctx.peers.total(own)) / ctx.count
        rate = (variance + ctx.eps).rsqrt()
        # dx = w r (dy - n (mean(dy) + xhat mean(dy xhat))) with xhat = (x - m) r, n the count
        slope = -weight * rate * rate * over_all[0]
        shift = -weight * rate * over_all[1] - slope * mean
        through_moments = torch.addcmul(shift, x.to(weight.dtype), slope)
        if counts is not None:
            through_moments.mul_(counts[:, None])
        dx = through_moments.addcmul_(dy.to(weight.dtype), weight * rate)
        return dx.to(x.dtype), own[0], own[1], None, None, None, None
