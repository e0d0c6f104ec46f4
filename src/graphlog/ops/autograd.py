"""What the functions that come with a gradient of their own have in common."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

R = TypeVar("R")


def differentiable_once(backward: Callable[..., R]) -> Callable[..., R]:
    """Refuse to differentiate the gradient, of which ``backward`` says nothing.

    torch's ``once_differentiable`` stays silent where another path leads around the function, and
    the second derivative then lacks what passes through it.
    """

    @wraps(backward)
    def once(ctx: Any, *grads: Tensor) -> R:
        if torch.is_grad_enabled():  # which `create_graph` asks for
            raise RuntimeError(
                "gradients of graphlog's layers cannot be differentiated; leave out create_graph."
            )
        return backward(ctx, *grads)

    return once
