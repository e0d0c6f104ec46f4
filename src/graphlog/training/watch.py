"""The collapse monitor: how much of the embedding space is in use, and early alarms."""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from graphlog.encoders.encoder import GraphEncoder
from graphlog.ops.collectives import Peers

ROWS = 1024
"""Graph embeddings that one look takes into account."""
REPEATS = 2
"""Looks in a row that must agree before an alarm is said, so that one odd batch says nothing."""
RANK_FLOOR = 20 / 300
"""Effective rank, as a share of the width, under which the embeddings count as collapsed."""
OCCUPANCY_FLOOR = 0.2
"""Share of a layer's prototypes that must be in use by a batch, by nearest prototype; of as many
as the batch has graphs, where those are fewer."""
PERPLEXITY_CEILING = 0.8
"""Share of a layer's prototypes above which the posterior is as good as uniform."""
SOLVED_LOSS = 0.1
"""Prototype loss under which every graph has one certain chain."""
ASSIGNMENT_GAP = 1e-4
"""Nats between assignment and model under which the two count as the same distribution."""
FEWEST_PROTOTYPES = 5
"""Smaller layers are not judged."""


def effective_rank(embeddings: Float[Tensor, "N D"]) -> float:
    r"""Return RankMe of the centered embeddings.

    :math:`\exp(-\sum_k p_k \log p_k)` with normalized singular values :math:`p_k`: 1 where all
    graphs lie on a line, at most ``min(N - 1, D)``, 0 where all are equal. Singular values are
    taken from the smaller Gram matrix, in float64.
    """
    centered = embeddings.double() - embeddings.double().mean(dim=0)
    gram = centered.T @ centered if centered.shape[0] > centered.shape[1] else centered @ centered.T
    singular = torch.linalg.eigvalsh(gram).clamp_min(0).sqrt()
    total = singular.sum()
    # rounding leaves eigenvalues of about eps * the largest where the true ones are zero
    if total <= 1e-6 * embeddings.double().norm() or total == 0:
        return 0.0
    share = singular[singular > 1e-7 * singular.max()] / total
    return float(torch.exp(-(share * share.log()).sum()))


def alignment(first: Float[Tensor, "N D"], second: Float[Tensor, "N D"]) -> float:
    """Return the mean squared distance of a graph's two views on the unit sphere; 0 is best.

    Wang & Isola (2020).
    """
    gap = torch.nn.functional.normalize(first, dim=1) - torch.nn.functional.normalize(second, dim=1)
    return float(gap.square().sum(dim=1).mean())


def uniformity(embeddings: Float[Tensor, "N D"]) -> float:
    r"""Return :math:`\log E \exp(-2 \|u - v\|^2)` over pairs on the unit sphere; 0 is collapse.

    Wang & Isola (2020).
    """
    unit = torch.nn.functional.normalize(embeddings, dim=1)
    squared = (2 - 2 * unit @ unit.T).clamp_min(0)
    upper = torch.triu_indices(len(unit), len(unit), offset=1, device=unit.device)
    return float(squared[upper[0], upper[1]].mul(-2).exp().mean().log())


def mean_cosine(embeddings: Float[Tensor, "N D"]) -> float:
    """Return the mean cosine of two different graphs; near 1 the embeddings share one direction."""
    unit = torch.nn.functional.normalize(embeddings, dim=1)
    n = len(unit)
    return float((unit.sum(dim=0).square().sum() - n) / (n * (n - 1)))


class CollapseWatch:
    """Looks at the graph embeddings of the last steps every so often, without a pass of its own.

    It listens to the encoder, so it serves every objective that embeds whole graphs. What it has
    seen is part of the checkpoint: a resumed run logs the same numbers.
    """

    def __init__(self, encoder: GraphEncoder, every: int, batch_size: int) -> None:
        """Look every ``every`` steps (0: never) at up to :data:`ROWS` graphs."""
        self.every = every
        self.dim = encoder.dim
        self._batch_size = batch_size
        self._window = min(max(every, 1), -(-ROWS // batch_size))
        self._seen: deque[tuple[Tensor, ...]] = deque(maxlen=self._window)
        self._calls: list[Tensor] = []
        self._listening = False
        self._streak: dict[str, int] = {}
        self._floors: dict[str, float] = {}
        self._hook = encoder.whole.register_forward_hook(self._listen)

    def close(self) -> None:
        """Stop listening, so that the trained encoder carries no trace of the watch."""
        self._hook.remove()

    def due(self, step: int) -> bool:
        """Return whether there is a look after ``step`` (counted from 1)."""
        return self.every > 0 and step % self.every == 0

    def before_step(self, step: int) -> None:
        """Listen during ``step`` if its embeddings will be looked at."""
        self._calls = []
        self._listening = self.every > 0 and (-step) % self.every < self._window

    def after_step(self, num_graphs: int, peers: Peers | None = None) -> None:
        """Keep the embeddings of the step: both views where the objective has two.

        ``peers`` have embedded the other graphs of the batch, in about equal shares.
        """
        calls, self._calls, self._listening = self._calls, [], False
        if not calls:
            return
        if peers is not None:
            shares = np.array_split(np.arange(num_graphs), peers.size)
            calls = [peers.all_rows(calls[0], [len(share) for share in shares])]
        views = calls[:1]
        if len(calls) > 1 and calls[0].shape == calls[1].shape:
            views = calls[:2]
        elif calls[0].shape[0] == 2 * num_graphs:
            views = calls[0].split(num_graphs)
        self._seen.append(tuple(views))

    def look(self, means: Mapping[str, float]) -> tuple[dict[str, float], list[str]]:
        """Return what the watch logs, and the alarms that have just become certain."""
        values = self._measure()
        for name, value in means.items():
            if name.startswith("loss"):
                self._floors[name] = min(value, self._floors.get(name, value))
                values[f"floor_{name}"] = self._floors[name]
        said: list[str] = []
        rows = sum(len(views[0]) for views in self._seen)
        known = {**means, **values}
        for name, rings, line in _alarms(known, self.dim, rows, self._batch_size):
            streak = self._streak.get(name, 0)
            if streak < REPEATS:  # else said before
                self._streak[name] = streak + 1 if rings else 0
                if self._streak[name] == REPEATS:
                    said.append(f"alarm: {line}")
        return values, said

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return tensors and JSON-ready fields for a checkpoint."""
        tensors = {f"{i}.{j}": t for i, views in enumerate(self._seen) for j, t in enumerate(views)}
        return tensors, {"seen": len(self._seen), "streak": self._streak, "floors": self._floors}

    def load_state(
        self, tensors: Mapping[str, Tensor], fields: Mapping[str, Any], device: torch.device
    ) -> None:
        """Take over what :meth:`state` returned."""
        self._seen.clear()
        for i in range(fields["seen"]):
            names = [f"{i}.0", f"{i}.1"] if f"{i}.1" in tensors else [f"{i}.0"]
            self._seen.append(tuple(tensors[name].to(device) for name in names))
        self._streak, self._floors = dict(fields["streak"]), dict(fields["floors"])

    def _listen(self, _module: torch.nn.Module, _inputs: object, output: object) -> None:
        if self._listening and isinstance(output, Tensor):
            self._calls.append(output.detach().float())

    @torch.no_grad()
    def _measure(self) -> dict[str, float]:
        if sum(len(views[0]) for views in self._seen) < 3:
            return {}
        embeddings = torch.cat([views[0] for views in self._seen])
        values = {
            "rank": effective_rank(embeddings),
            "uniformity": uniformity(embeddings),
            "mean_cosine": mean_cosine(embeddings),
        }
        if pairs := [views for views in self._seen if len(views) == 2]:
            first, second = (torch.cat(each) for each in zip(*pairs, strict=True))
            values["alignment"] = alignment(first, second)
        return values


def _alarms(
    values: Mapping[str, float], dim: int, rows: int, batch_size: int
) -> Iterator[tuple[str, bool, str]]:
    """Yield name, ringing and line of every alarm that can be judged from ``values``."""
    floor = RANK_FLOOR * dim
    if (rank := values.get("rank")) is not None and rows > 4 * floor:
        yield (
            "rank",
            rank < floor,
            f"collapse: effective rank {rank:.1f} of {dim} (alarm below {floor:.0f}); "
            "the embeddings use few directions",
        )
    # below 0 it is a difference of energies, which has no such floor
    if values.get("floor_loss_global", -1.0) >= 0:
        loss = values["loss_global"]
        yield (
            "loss_global",
            loss < SOLVED_LOSS,
            f"prototype loss {loss:.3f} (alarm below {SOLVED_LOSS}): the E-step is solved, "
            "and the global loss has no effect",
        )
    gap = values.get("assignment_gap")
    if gap is not None and values["prototypes_total_0"] > 1:  # any two agree on a single one
        yield (
            "assignment_gap",
            gap < ASSIGNMENT_GAP,
            "prototypes are assigned by the model's own distribution "
            f"(divergence {gap:.0e}), so the prototype loss has no gradient: "
            "set objective.e_step = 'balanced'",
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
