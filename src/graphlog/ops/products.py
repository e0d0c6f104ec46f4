"""Matrix products over the rows of a batch, computed where the processor is fastest."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

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

    Under autocast it computes in the lower precision, as the two layers themselves would.

    Args:
        x: Rows.
        first: The linear layer that holds :math:`W_1` and :math:`b_1`.
        second: The linear layer that holds :math:`W_2` and :math:`b_2`.
    """
    names = ("weight", "bias")
    learned = (layer.get_parameter(name) for layer in (first, second) for name in names)
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
    @once_differentiable
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
    @once_differentiable
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
    @once_differentiable
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
