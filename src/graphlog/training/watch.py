"""The collapse monitor: measures of the embeddings during pre-training, and alarms."""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from graphlog.encoders.encoder import GraphEncoder
from graphlog.ops.collectives import Peers

ROWS = 1024
"""Number of graph embeddings that the measures are computed from."""
PAIRED_ROWS = 4096
"""Largest number of graph embeddings that are compared in pairs, which takes memory and time."""
REPEATS = 2
"""Consecutive measurements that must fail before an alarm; one batch is not enough."""
RANK_FLOOR = 20 / 300
"""Effective rank, as a share of the width, below which embeddings count as collapsed."""
OCCUPANCY_FLOOR = 0.2
"""Smallest share of a layer's prototypes that are nearest to a graph of the batch. If the batch has
fewer graphs than the layer has prototypes, the share is relative to the number of graphs."""
PERPLEXITY_CEILING = 0.8
"""Perplexity, as a share of the prototypes, above which a posterior counts as uniform."""
SOLVED_LOSS = 0.1
"""Prototype loss below which the chain of every graph counts as certain."""
FEWEST_PROTOTYPES = 5
"""Number of prototypes below which a layer is not checked."""


def effective_rank(embeddings: Float[Tensor, "N D"]) -> float:
    r"""Return RankMe of the centered embeddings.

    :math:`\exp(-\sum_k p_k \log p_k)` with normalized singular values :math:`p_k`: 1 if all
    embeddings lie on a line, at most ``min(N - 1, D)``, 0 if all are equal. Singular values are
    computed from the smaller Gram matrix in float64.
    """
    centered = embeddings.double() - embeddings.double().mean(dim=0)
    gram = centered.T @ centered if centered.shape[0] > centered.shape[1] else centered @ centered.T
    singular = torch.linalg.eigvalsh(gram).clamp_min(0).sqrt()
    total = singular.sum()
    # eigenvalues that are 0 become about eps * the largest by rounding
    if total <= 1e-6 * embeddings.double().norm() or total == 0:
        return 0.0
    share = singular[singular > 1e-7 * singular.max()] / total
    return float(torch.exp(-(share * share.log()).sum()))


def alignment(first: Float[Tensor, "N D"], second: Float[Tensor, "N D"]) -> float:
    """Return the mean squared distance of the two views of a graph on the unit sphere.

    It is 0 at best (Wang & Isola 2020).
    """
    difference = F.normalize(first, dim=1) - F.normalize(second, dim=1)
    return float(difference.square().sum(dim=1).mean())


def uniformity(embeddings: Float[Tensor, "N D"]) -> float:
    r"""Return :math:`\log E \exp(-2 \|u - v\|^2)` over pairs on the unit sphere.

    It is 0 if all embeddings are equal (Wang & Isola 2020). Of many, the first
    :data:`PAIRED_ROWS` are used.
    """
    unit = F.normalize(embeddings[:PAIRED_ROWS], dim=1)
    own = _is_not_zero(unit)  # squared lengths
    squared = (own[:, None] + own - 2 * unit @ unit.T).clamp_min(0)
    upper = torch.triu_indices(len(unit), len(unit), offset=1, device=unit.device)
    return float(squared[upper[0], upper[1]].mul(-2).exp().mean().log())


def mean_cosine(embeddings: Float[Tensor, "N D"]) -> float:
    """Return the mean cosine of pairs of graphs; near 1, all embeddings have one direction.

    The cosine of an embedding of zeros with any other is 0.
    """
    unit = F.normalize(embeddings, dim=1)
    n, own = len(unit), _is_not_zero(unit).sum()
    return float((unit.sum(dim=0).square().sum() - own) / (n * (n - 1)))


def _is_not_zero(unit: Float[Tensor, "N D"]) -> Float[Tensor, "N"]:
    return unit.any(dim=1).to(unit.dtype)


class CollapseWatch:
    """Measures the graph embeddings of the latest steps at regular intervals.

    It reads them by a forward hook of the encoder, without a pass of its own, and so works for
    every objective that embeds whole graphs. Its state is part of the checkpoint, so that a resumed
    run logs the same numbers.
    """

    def __init__(self, encoder: GraphEncoder, every: int, batch_size: int) -> None:
        """Measure at least :data:`ROWS` graphs, if possible, every ``every`` steps (0: never)."""
        self.every = every
        self.dim = encoder.dim
        self._batch_size = batch_size
        self._window = min(max(every, 1), -(-ROWS // batch_size))
        self._recent: deque[tuple[Tensor, ...]] = deque(maxlen=self._window)
        self._outputs: list[Tensor] = []
        self._is_collecting = False
        self._streak: dict[str, int] = {}
        self._floors: dict[str, float] = {}
        self._hook = encoder.whole.register_forward_hook(self._collect)

    def close(self) -> None:
        """Remove the hook from the encoder."""
        self._hook.remove()

    def due(self, step: int) -> bool:
        """Return whether embeddings are measured after ``step`` (counted from 1)."""
        return self.every > 0 and step % self.every == 0

    def before_step(self, step: int) -> None:
        """Collect the embeddings of ``step`` if they will be measured."""
        self._outputs = []
        self._is_collecting = self.every > 0 and (-step) % self.every < self._window

    def after_step(self, num_graphs: int, peers: Peers | None = None) -> None:
        """Store the embeddings of the step: of both views if the objective has two.

        If there are ``peers``, each has embedded an equal share of the ``num_graphs`` graphs.
        """
        outputs, self._outputs, self._is_collecting = self._outputs, [], False
        if not outputs:
            return
        if peers is not None:
            shares = np.array_split(np.arange(num_graphs), peers.size)
            outputs = [peers.all_rows(outputs[0], [len(share) for share in shares])]
        views = outputs[:1]
        if len(outputs) > 1 and outputs[0].shape == outputs[1].shape:
            views = outputs[:2]
        elif outputs[0].shape[0] == 2 * num_graphs:
            views = outputs[0].split(num_graphs)
        self._recent.append(tuple(views))

    def look(self, means: Mapping[str, float]) -> tuple[dict[str, float], list[str]]:
        """Return values for the log, and alarms that have not been raised before."""
        values = self._measure()
        for name, value in means.items():
            if name.startswith("loss"):
                self._floors[name] = min(value, self._floors.get(name, value))
                values[f"floor_{name}"] = self._floors[name]
        alarms: list[str] = []
        rows = sum(len(views[0]) for views in self._recent)
        for name, is_bad, line in _checks({**means, **values}, self.dim, rows, self._batch_size):
            streak = self._streak.get(name, 0)
            if streak < REPEATS:  # else raised before
                self._streak[name] = streak + 1 if is_bad else 0
                if self._streak[name] == REPEATS:
                    alarms.append(f"alarm: {line}")
        return values, alarms

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return tensors and JSON-ready fields for a checkpoint."""
        tensors = {
            f"{i}.{j}": t for i, views in enumerate(self._recent) for j, t in enumerate(views)
        }
        return tensors, {"seen": len(self._recent), "streak": self._streak, "floors": self._floors}

    def load_state(
        self, tensors: Mapping[str, Tensor], fields: Mapping[str, Any], device: torch.device
    ) -> None:
        """Restore the result of :meth:`state`."""
        self._recent.clear()
        for i in range(fields["seen"]):
            names = [f"{i}.0", f"{i}.1"] if f"{i}.1" in tensors else [f"{i}.0"]
            self._recent.append(tuple(tensors[name].to(device) for name in names))
        self._streak, self._floors = dict(fields["streak"]), dict(fields["floors"])

    def _collect(self, _module: torch.nn.Module, _inputs: object, output: object) -> None:
        if self._is_collecting and isinstance(output, Tensor):
            self._outputs.append(output.detach().float())

    @torch.no_grad()
    def _measure(self) -> dict[str, float]:
        if sum(len(views[0]) for views in self._recent) < 3:
            return {}
        embeddings = torch.cat([views[0] for views in self._recent])
        values = {
            "rank": effective_rank(embeddings),
            "uniformity": uniformity(embeddings),
            "mean_cosine": mean_cosine(embeddings),
        }
        if pairs := [views for views in self._recent if len(views) == 2]:
            first, second = (torch.cat(each) for each in zip(*pairs, strict=True))
            values["alignment"] = alignment(first, second)
        return values


def _checks(
    values: Mapping[str, float], dim: int, rows: int, batch_size: int
) -> Iterator[tuple[str, bool, str]]:
    """Yield name, whether it failed, and message of each check that ``values`` allow."""
    floor = RANK_FLOOR * dim
    if (rank := values.get("rank")) is not None and rows > 4 * floor:
        yield (
            "rank",
            rank < floor,
            f"collapse: effective rank {rank:.1f} of {dim} (alarm below {floor:.0f}); "
            "the embeddings use few directions",
        )
    # a loss below 0 is a difference of energies, which has no lower bound
    if values.get("floor_loss_global", -1.0) >= 0:
        loss = values["loss_global"]
        yield (
            "loss_global",
            loss < SOLVED_LOSS,
            f"prototype loss {loss:.3f} (alarm below {SOLVED_LOSS}): the E-step is solved, "
            "and the global loss has no effect",
        )
    prefix = "prototypes_total_"
    for name, total in values.items():
        if not name.startswith(prefix) or total < FEWEST_PROTOTYPES:
            continue
        level = name.removeprefix(prefix)
        used = values[f"prototypes_used_nearest_{level}"]
        floor = OCCUPANCY_FLOOR * min(total, batch_size)
        yield (
            f"occupancy_{level}",
            used < floor,
            f"the graphs use only {used:.1f} of {total:.0f} prototypes of layer {level} "
            f"(alarm below {floor:.1f})",
        )
        spread = values[f"posterior_perplexity_{level}"]
        yield (
            f"perplexity_{level}",
            spread > PERPLEXITY_CEILING * total,
            f"the E-step spreads over {spread:.1f} of {total:.0f} prototypes of layer "
            f"{level} (alarm above {PERPLEXITY_CEILING:.0%}) and carries little information: "
            "set objective.e_step_temperature to a smaller positive number",
        )
