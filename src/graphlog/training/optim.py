"""The optimizer, and its state as named tensors."""

import math
from collections.abc import Iterable, Mapping
from typing import Literal

import torch
from torch import Tensor, nn

MOMENTS = ("step", "exp_avg", "exp_avg_sq")

Schedule = Literal["constant", "cosine"]


def scheduled_rate(
    rate: float, schedule: Schedule, step: int, steps: int, warmup: float = 0.0
) -> float:
    """Return the step size of step ``step``, counted from 0, of ``steps``.

    Over the first ``warmup`` of the run it rises in a line, its first value above 0; the schedule
    is that of the rest.

    Example:
        >>> [round(scheduled_rate(1.0, "cosine", step, 4), 3) for step in range(5)]
        [1.0, 0.854, 0.5, 0.146, 0.0]
        >>> [round(scheduled_rate(1.0, "cosine", step, 10, 0.2), 3) for step in (0, 1, 2, 6, 10)]
        [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    done = min(step / steps, 1.0)
    if done < warmup:
        return rate * min((step + 1) / (warmup * steps), 1.0)
    done = (done - warmup) / (1 - warmup)
    return rate if schedule == "constant" else rate * (1 + math.cos(math.pi * done)) / 2


class NamedAdam:
    """Adam over named parameters, whose state is ``{"<parameter>/<moment>": tensor}``."""

    def __init__(
        self,
        parameters: Iterable[tuple[str, nn.Parameter]],
        learning_rate: float,
        factors: Mapping[str, float] | None = None,
        weight_decay: float = 0.0,
    ) -> None:
        """Collect the parameters that take gradients.

        Args:
            parameters: Parameters by name.
            learning_rate: Step size.
            factors: Multiples of it for the parameters whose names start so.
            weight_decay: Of AdamW; 0, as in the paper, is plain Adam.
        """
        self.parameters = {name: p for name, p in parameters if p.requires_grad}
        groups: dict[float, list[nn.Parameter]] = {1.0: []}
        for name, p in self.parameters.items():
            own = [f for prefix, f in (factors or {}).items() if name.startswith(prefix)]
            groups.setdefault(own[0] if own else 1.0, []).append(p)
        self.factors = [factor for factor, members in groups.items() if members]
        kind = torch.optim.AdamW if weight_decay > 0 else torch.optim.Adam
        self.adam = kind(
            [{"params": groups[f], "lr": f * learning_rate} for f in self.factors],
            lr=learning_rate,
            weight_decay=weight_decay,
            fused=all(
                p.is_floating_point() and p.device.type in {"cpu", "cuda"}
                for p in self.parameters.values()
            ),
        )

    def zero_grad(self) -> None:
        """Forget the gradients."""
        self.adam.zero_grad(set_to_none=True)

    def step(self, learning_rate: float | None = None, skipped: Tensor | None = None) -> None:
        """Apply one update, from now on with step size ``learning_rate`` where it is given.

        Args:
            learning_rate: None keeps it.
            skipped: Whether nothing is to change, known to the device alone; None: no.
        """
        if learning_rate is not None:
            for group, factor in zip(self.adam.param_groups, self.factors, strict=True):
                group["lr"] = factor * learning_rate
        # what a gradient scaler would set: the kernel looks at it, and the CPU need not
        self.adam.found_inf = None if skipped is None else skipped.float()  # pyright: ignore[reportAttributeAccessIssue]
        self.adam.step()

    def state(self) -> dict[str, Tensor]:
        """Return the moments of every parameter that has been updated at least once."""
        touched = {
            name: self.adam.state[p] for name, p in self.parameters.items() if p in self.adam.state
        }
        return {
            f"{name}/{moment}": moments[moment]
            for name, moments in touched.items()
            for moment in MOMENTS
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take over moments written by :meth:`state`; parameters not named there start fresh.

        The tensors are copied into newly allocated memory: kernels may round differently on memory
        that is aligned differently, which would break the exactness of a resumed run.
        """
        for name, parameter in self.parameters.items():
            if f"{name}/step" not in state:
                continue
            moments = {
                m: torch.empty_like(state[f"{name}/{m}"], device=parameter.device) for m in MOMENTS
            }
            for moment, tensor in moments.items():
                tensor.copy_(state[f"{name}/{moment}"])
            self.adam.state[parameter] = moments


class WeightAverage:
    r"""Holds :math:`a \leftarrow d a + (1 - d) w` of every parameter, taken after each step.

    Early on :math:`d = (1 + t) / (10 + t)` where that is smaller than the decay, so that the
    initial weights are soon forgotten.
    """

    def __init__(self, decay: float) -> None:
        """Start with nothing; ``decay`` is the largest :math:`d`, between 0 and 1."""
        self.decay = decay
        self._averages: dict[str, Tensor] = {}

    @torch.no_grad()
    def update(self, parameters: Iterable[tuple[str, nn.Parameter]], step: int) -> None:
        """Take in the weights after ``step``, counted from 1; a new parameter starts as it is."""
        decay = min(self.decay, (1 + step) / (10 + step))
        averages: list[Tensor] = []
        weights: list[Tensor] = []
        for name, parameter in parameters:
            if name in self._averages:
                averages.append(self._averages[name])
                weights.append(parameter.detach())
            else:
                self._averages[name] = parameter.detach().clone()
        if averages:
            torch._foreach_lerp_(averages, weights, 1 - decay)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]

    @torch.no_grad()
    def copy_to(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> None:
        """Set the parameters to their averages."""
        for name, parameter in parameters:
            if name in self._averages:
                parameter.copy_(self._averages[name])

    def state(self) -> dict[str, Tensor]:
        """Return the averages by name."""
        return dict(self._averages)

    def load_state(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        """Continue from what :meth:`state` returned, in memory of its own."""
        self._averages = {name: tensor.to(device, copy=True) for name, tensor in state.items()}
