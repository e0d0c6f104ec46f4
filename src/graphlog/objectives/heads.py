"""Heads: masked attributes (Hu et al., 2020) and descriptors, predicted from embeddings."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from graphlog.data.schema import FeatureSchema
from graphlog.domains import DOMAINS
from graphlog.encoders.base import standardized
from graphlog.errors import ConfigError, setting
from graphlog.ops.collectives import Peers
from graphlog.ops.contrastive import full_precision, mean_or_zero
from graphlog.ops.products import linear, perceptron
from graphlog.views.augment import MaskedView

AttributeColumns = Literal["first", "all"]
COMPONENTS = 256
"""Columns that stand for the counts of substructures, after the targets."""


class AttributeHead(nn.Module):
    """A linear map from embeddings to masked attributes: classes, or continuous values.

    Where several evidence channels stand side by side on a masked edge (biology), "the first" is
    the first that the edge has, not the first column.
    """

    def __init__(
        self, width: int, schema: FeatureSchema, columns: AttributeColumns = "first"
    ) -> None:
        """Build the head.

        Args:
            width: Entries of a node's embedding.
            schema: Says what is masked.
            columns: Predict the first masked column or all of them.
        """
        super().__init__()
        masked = schema.node if schema.masked == "node" else schema.edge
        self.masked = schema.masked
        channels = evidence_channels(schema) if self.masked == "edge" else ()
        # marks of a self-loop or a masked edge carry no information
        informative = channels or tuple(range(len(masked)))
        self.finds_first_set = columns == "first" and len(channels) > 1
        self.positions = (
            informative if self.finds_first_set or columns == "all" else informative[:1]
        )
        self.columns = tuple(masked[k] for k in self.positions)
        self.linear = nn.Linear(width, sum(max(c.cardinality, 1) for c in self.columns))

    def loss(self, node_emb: Float[Tensor, "V D"], view: MaskedView) -> Float[Tensor, ""]:
        """Return the mean loss over masked items and columns.

        The loss is cross-entropy, or the squared error of continuous columns.

        Args:
            node_emb: Node embeddings of the masked view; those of an edge are the sum of its two
                ends.
            view: The masked nodes or directed edges, and the clean graphs, which hold the answers.
        """
        clean = view.clean
        if self.masked == "node":
            emb, answers = node_emb[view.node_idx], clean.x[view.node_idx]
        else:
            source, target = clean.edge_index[:, view.edge_idx]
            emb, answers = node_emb[source] + node_emb[target], clean.edge_attr[view.edge_idx]
        scores = full_precision(linear(emb, self.linear))
        if self.finds_first_set:
            first = answers[:, list(self.positions)].argmax(dim=1)
            return mean_or_zero(F.cross_entropy(scores, first, reduction="none"))
        losses: list[Tensor] = []
        parts = scores.split([max(c.cardinality, 1) for c in self.columns], dim=1)
        for k, column, part in zip(self.positions, self.columns, parts, strict=True):
            if column.is_categorical:
                losses.append(F.cross_entropy(part, answers[:, k].long(), reduction="none"))
            else:
                wanted = standardized(answers[:, k : k + 1], (column,)).to(part)
                losses.append((part - wanted).square().squeeze(1))
        return torch.stack([mean_or_zero(each) for each in losses]).mean()


def evidence_channels(schema: FeatureSchema) -> tuple[int, ...]:
    """Return the edge columns that mark neither a self-loop nor a mask; none if there are codes."""
    if any(c.is_categorical for c in schema.edge):
        return ()
    special = [row for row in (schema.edge_mask, schema.self_loop) if row is not None]
    return tuple(k for k in range(len(schema.edge)) if not any(row[k] for row in special))


class ProjectionHead(nn.Sequential):
    """The two-layer network between embeddings and what is compared by a contrast."""

    def __init__(self, width: int) -> None:
        super().__init__(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, input: Float[Tensor, "R D"]) -> Float[Tensor, "R D"]:
        """Return what is compared."""
        return perceptron(input, self[0], self[2])


class RegressionHead(nn.Module):
    """A two-layer net from graph embeddings to standardized values."""

    peers: Peers | None = None
    """The processes that each hold some graphs of a batch; None where this one has them all."""

    def __init__(self, width: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, outputs))

    def forward(self, graph_emb: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """Return the predicted values."""
        return perceptron(graph_emb, self.net[0], self.net[2])

    def loss(
        self,
        graph_emb: Float[Tensor, "N D"],
        targets: Float[Tensor, "N K"] | None,
        robust: bool = False,
    ) -> Float[Tensor, ""]:
        """Return the mean squared (``robust``: Huber, linear beyond 1) error over known targets.

        Args:
            graph_emb: Graph embeddings.
            targets: Standardized targets, NaN where unknown.
            robust: Which of the two.

        Returns:
            The mean; with ``peers``, what this process adds to it, times their number.

        Raises:
            ConfigError: If the batch carries no targets, or others.
        """
        predicted = full_precision(self(graph_emb))
        if targets is None or targets.shape != predicted.shape:
            columns = "none" if targets is None else f"{targets.shape[1]} columns"
            raise ConfigError(
                f"the batch must carry {predicted.shape[1]} descriptors as labels, found {columns};"
                " use run_pretraining."
            )
        known = ~targets.isnan()
        answers = torch.where(known, targets, 0.0).to(predicted)
        each = (
            F.smooth_l1_loss(predicted, answers, reduction="none")
            if robust
            else (predicted - answers).square()
        )
        error, count = (each * known).sum(), known.sum()
        if self.peers is not None:
            error, count = error * self.peers.size, self.peers.total(count)
        return error / count.clamp_min(1)


def target_count(schema: FeatureSchema, given: int | None) -> int:
    """Return how many targets a graph has.

    Args:
        schema: Whose domain has descriptors.
        given: Columns of the vectors that stand in their place; None if there are none.

    Raises:
        ConfigError: If the domain has no descriptors and no vectors are given.
    """
    if given is not None:
        return given
    domain = DOMAINS.get(schema.domain)
    if domain is None or not domain.targets:
        raise ConfigError(
            f"graphs of schema '{schema.name}' have no descriptors to predict; give vectors of "
            f"your own ({setting('targets_from')}), or choose an objective that needs none."
        )
    return len(domain.targets)


def descriptor_losses(
    descriptors: RegressionHead,
    substructures: RegressionHead | None,
    graph_emb: Float[Tensor, "N D"],
    targets: Float[Tensor, "N K"] | None,
    robust: bool,
) -> dict[str, Float[Tensor, ""]]:
    """Return the loss of the descriptors and, where ``substructures`` is given, of its columns.

    Args:
        descriptors: Predicts the targets of the domain.
        substructures: Predicts the :data:`COMPONENTS` columns that follow them.
        graph_emb: Graph embeddings.
        targets: Both, standardized.
        robust: Huber's error in place of the squared one.
    """
    if substructures is None or targets is None:
        return {"descriptor": descriptors.loss(graph_emb, targets, robust)}
    return {
        "descriptor": descriptors.loss(graph_emb, targets[:, :-COMPONENTS], robust),
        "substructure": substructures.loss(graph_emb, targets[:, -COMPONENTS:], robust),
    }
