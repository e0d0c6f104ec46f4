"""Predict descriptors, which need no label, from the embedding of a graph."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from graphlog.data.schema import FeatureSchema
from graphlog.domains import DOMAINS
from graphlog.errors import ConfigError
from graphlog.ops.collectives import Peers
from graphlog.ops.contrastive import full_precision
from graphlog.ops.products import perceptron

COMPONENTS = 256
"""Columns that stand for the counts of substructures, after the targets."""


def target_names(schema: FeatureSchema) -> tuple[str, ...]:
    """Return the targets of the schema's domain.

    Raises:
        ConfigError: If there are none.
    """
    domain = DOMAINS.get(schema.domain)
    if domain is None or not domain.targets:
        raise ConfigError(
            f"graphs of schema '{schema.name}' have no descriptors to predict;"
            " choose an objective that needs none."
        )
    return domain.targets


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


class DescriptorHead(RegressionHead):
    """Predicts all standardized targets of the domain."""

    def __init__(self, width: int, hidden: int, schema: FeatureSchema) -> None:
        """Raise ConfigError where the schema's domain has no targets."""
        super().__init__(width, hidden, len(target_names(schema)))
