"""The optimiser, and its state as named tensors."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

MOMENTS = ("step", "exp_avg", "exp_avg_sq")


class NamedAdam:
    """Adam over named parameters, whose state reads and writes as ``{"<parameter>/<moment>": tensor}``."""

    def __init__(self, parameters: Iterable[tuple[str, nn.Parameter]], learning_rate: float) -> None:
        """Collect the parameters that take gradients; no weight decay, as in the paper."""
        self.parameters = {name: p for name, p in parameters if p.requires_grad}
        self.adam = torch.optim.Adam(list(self.parameters.values()), lr=learning_rate, fused=_fusable(self.parameters.values()))

    def zero_grad(self) -> None:
        """Forget the gradients."""
        self.adam.zero_grad(set_to_none=True)

    def step(self) -> None:
        """Apply one update."""
        self.adam.step()

    def state(self) -> dict[str, Tensor]:
        """Return the moments of every parameter that has been updated at least once."""
        touched = {name: self.adam.state[p] for name, p in self.parameters.items() if p in self.adam.state}
        return {f"{name}/{moment}": moments[moment] for name, moments in touched.items() for moment in MOMENTS}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take over moments written by :meth:`state`; parameters not named there start fresh.

        The tensors are copied into newly allocated memory: kernels may round differently on memory
        that is aligned differently, which would break the exactness of a resumed run.
        """
        for name, parameter in self.parameters.items():
            if f"{name}/step" not in state:
                continue
            moments = {m: torch.empty_like(state[f"{name}/{m}"], device=parameter.device) for m in MOMENTS}
            for moment, tensor in moments.items():
                tensor.copy_(state[f"{name}/{moment}"])
            self.adam.state[parameter] = moments


def _fusable(parameters: Iterable[Tensor]) -> bool:
    return all(p.is_floating_point() and p.device.type in {"cpu", "cuda"} for p in parameters)
