"""A decorator for the backward methods of custom autograd functions."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

R = TypeVar("R")


def differentiable_once(backward: Callable[..., R]) -> Callable[..., R]:
    """Raise an error where the gradient that ``backward`` computes would be differentiated.

    torch's ``once_differentiable`` raises no error if the output also depends on the input by
    another path; the second derivative would then silently lack the path through the function.
    """

    @wraps(backward)
    def once(ctx: Any, *grads: Tensor) -> R:
        if torch.is_grad_enabled():  # only with `create_graph`
            raise RuntimeError(
                "gradients of graphlog's layers cannot be differentiated; leave out create_graph."
            )
        return backward(ctx, *grads)

    return once
