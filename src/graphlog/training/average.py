"""A moving average of the weights: what a run ends with is steadier than its last step."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn


class WeightAverage:
    r"""Holds :math:`a \leftarrow d a + (1 - d) w` of every named parameter, taken after each step.

    Early on :math:`d = (1 + t) / (10 + t)` where that is smaller than the decay, so that the initial weights are soon forgotten.
    """

    def __init__(self, decay: float) -> None:
        """Start with nothing; ``decay`` is the largest :math:`d`, between 0 and 1."""
        self.decay = decay
        self._kept: dict[str, Tensor] = {}

    @torch.no_grad()
    def update(self, parameters: Iterable[tuple[str, nn.Parameter]], step: int) -> None:
        """Take in the weights after ``step`` (counted from 1); a parameter that was not there before starts as it is."""
        decay = min(self.decay, (1 + step) / (10 + step))
        kept: list[Tensor] = []
        given: list[Tensor] = []
        for name, parameter in parameters:
            if name in self._kept:
                kept.append(self._kept[name])
                given.append(parameter.detach())
            else:
                self._kept[name] = parameter.detach().clone()
        if kept:
            torch._foreach_lerp_(kept, given, 1 - decay)

    @torch.no_grad()
    def copy_to(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> None:
        """Set the parameters to their averages."""
        for name, parameter in parameters:
            if name in self._kept:
                parameter.copy_(self._kept[name])

    def state(self) -> dict[str, Tensor]:
        """Return the averages by name."""
        return dict(self._kept)

    def load_state(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        """Take over what :meth:`state` returned, in memory of its own."""
        self._kept = {name: tensor.to(device, copy=True) for name, tensor in state.items()}
