"""Base class of the pretext tasks, and the recipes, losses and heads that several tasks use."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from graphlog.config import FrozenConfig
from graphlog.data.graphs import FeatureSchema
from graphlog.data.store import GraphBatch
from graphlog.domains import DEFAULT_SCHEMA, DOMAINS
from graphlog.encoders.encoder import GraphEncoder, standardized
from graphlog.errors import ConfigError, setting
from graphlog.ops.collectives import Peers
from graphlog.ops.contrastive import full_precision, mean_or_zero
from graphlog.ops.dense import linear, perceptron
from graphlog.views.augment import MaskedView

Views = TypeVar("Views")
Recipes = Mapping[str, Mapping[str, Any]]
"""Settings by recipe name: ``{"objective": {...}, "encoder": {...}, "training": {...},
"schema": ..., "embedding": ...}``."""
Temperature = Annotated[float, Field(ge=1e-6, le=1e6)]
"""Temperature that divides cosines; beyond these bounds, float32 loses the quotients."""
COMPONENTS = 256
"""Number of principal components of substructure counts, which follow the targets in ``y``."""


class Phase(NamedTuple):
    """A number of consecutive epochs trained with one optimizer."""

    name: str
    epochs: int


class LossTerms(NamedTuple):
    """The loss of one training step, and the values to log."""

    total: Float[Tensor, ""]
    """Weighted sum of the terms, which is minimized."""
    terms: Mapping[str, Float[Tensor, ""]]
    """Every term of the loss by name, without its weight; all are logged."""
    watch: Mapping[str, Tensor] = {}
    """Detached scalars for the collapse monitor, such as the mean cosine of positive pairs."""


EmbedStore: TypeAlias = Callable[[int | None, bool], Float[Tensor, "M D"]]
"""Function ``embed(limit, calibrated)`` that embeds the training collection in evaluation mode.

It embeds a random sample of ``limit`` graphs, or all graphs if ``limit`` is None, in the order of
the store. With ``calibrated``, the statistics of batch normalization are first recomputed on clean
graphs; otherwise the running statistics are used, which are inaccurate after only a few steps.
"""


class Objective(nn.Module, ABC, Generic[Views]):
    """A pretext task. Its parameters are heads and prototypes; methods are given the encoder."""

    Config: ClassVar[type[FrozenConfig]] = FrozenConfig
    """Pydantic model of the settings of the task; every field needs a default."""
    RECIPES: ClassVar[Recipes] = {"default": {}}
    """Complete settings by name, for :func:`graphlog.pretrain` and ``--recipe``."""
    RECIPE_NOTES: ClassVar[Mapping[str, str]] = {}
    """A note of one line for users who choose a recipe, by the name of the recipe."""

    needs_targets: bool = False
    """Whether batches must carry the domain's standardized targets as ``y``."""
    needs_substructures: bool = False
    """Whether :data:`COMPONENTS` columns on substructures must follow the targets in ``y``."""
    masks: bool = False
    """Whether the task masks attributes, so that the schema needs codes for masked ones."""
    is_separable: bool = False
    """Whether each process may compute the loss on its own part of a batch.

    This requires that the loss draws no random numbers and never compares two graphs, and that the
    mean of the losses of the parts, which may differ in size, is the loss of the whole batch (see
    ``Team.mean``). :class:`RegressionHead` corrects for the sizes by its ``peers``.
    """

    @classmethod
    def recipe_for(cls, domain: str) -> str:
        """Return the name of the recipe for graphs of ``domain`` if the user names none."""
        return "biology" if domain == "protein" and "biology" in cls.RECIPES else "default"

    def __init__(self, config: FrozenConfig, encoder: GraphEncoder) -> None:
        """Build the heads for the width and schema of ``encoder``, which is not stored."""
        super().__init__()
        self.check_schema(encoder.schema)

    @classmethod
    def check_schema(cls, schema: FeatureSchema) -> None:
        """Raise ConfigError if the task cannot use graphs of this schema."""
        if cls.masks:
            schema.mask_row()

    def phases(self, epochs: int) -> tuple[Phase, ...]:
        """Split ``epochs`` into phases; most tasks have one."""
        return (Phase("train", epochs),)

    def phases_note(self, epochs: int) -> str | None:
        """Return a note of one line for a run of ``epochs`` epochs, or None, the default."""
        return None

    def begin_phase(self, phase: Phase, embed: EmbedStore, generator: Generator) -> None:
        """Prepare a phase, before its optimizer is built; parameters may be created here."""

    def prepare_state(self, state: Mapping[str, Tensor]) -> None:
        """Create the parameters of :meth:`begin_phase`, so that ``state`` can be loaded next."""

    def learning_rate_factors(self) -> Mapping[str, float]:
        """Return factors of the learning rate by prefix of the parameter name; the default is 1."""
        return {}

    def views(self, batch: GraphBatch, generator: Generator) -> Views:
        """Return the corrupted or correlated graphs of a batch; by default the batch itself.

        Parameters must be neither used nor changed.
        """
        return batch  # pyright: ignore[reportReturnType] - without views, `Views` is `GraphBatch`

    @abstractmethod
    def loss(self, views: Views, encoder: GraphEncoder, generator: Generator) -> LossTerms:
        """Return the loss of one step on the views of one batch."""


def chemistry_recipe(**objective: Any) -> dict[str, Any]:
    """Return a recipe with the training settings that measured best for descriptor prediction."""
    training = {"epochs": 10, "batch_size": 256, "schedule": "cosine", "warmup": 0.02}
    training |= {"average": 0.999, "fresh_moments": False}
    return {**comparison_recipe(**objective), "training": training}


def comparison_recipe(**objective: Any) -> dict[str, Any]:
    """Return a recipe with the default training settings, with which all methods are compared."""
    return {"objective": objective, "schema": DEFAULT_SCHEMA, "embedding": "jk"}


def published_recipe(schema: str = "molecule", **objective: Any) -> dict[str, Any]:
    """Return a recipe with the training settings of Hu et al. (2020)."""
    training = {"epochs": 100, "batch_size": 256}
    return {"objective": objective, "training": training, "schema": schema, "embedding": "last"}


def pair_cross_entropy(positive: Float[Tensor, "P"], negative: Float[Tensor, "Q"]) -> LossTerms:
    r"""Return the binary cross-entropy of the scores of positive and negative pairs.

    It is :math:`\mathrm{mean}\,\log(1 + e^{-s^+}) + \mathrm{mean}\,\log(1 + e^{s^-})`, where the
    mean over no pairs is 0.
    """
    positive, negative = full_precision(positive), full_precision(negative)
    positive_loss = mean_or_zero(F.softplus(-positive))
    negative_loss = mean_or_zero(F.softplus(negative))
    with torch.no_grad():
        hits = (positive > 0).sum() + (negative <= 0).sum()
        accuracy = hits / max(positive.shape[0] + negative.shape[0], 1)
    return LossTerms(
        positive_loss + negative_loss,
        {"positive": positive_loss, "negative": negative_loss},
        {"accuracy": accuracy},
    )


def row_products(x: Float[Tensor, "R D"], y: Float[Tensor, "R D"]) -> Float[Tensor, "R"]:
    """Return the inner product of each row of ``x`` with the same row of ``y``."""
    return (full_precision(x) * full_precision(y)).sum(dim=1)


class AttributeHead(nn.Module):
    """A linear map from embeddings to the class or the value of the first masked attribute.

    If the masked edges have several 0/1 columns of evidence (proteins), the class is the first kind
    of evidence that the edge has.
    """

    def __init__(self, width: int, schema: FeatureSchema) -> None:
        super().__init__()
        masked = schema.node if schema.masked == "node" else schema.edge
        self.masked = schema.masked
        self.columns = (evidence_channels(schema) if self.masked == "edge" else ()) or (0,)
        self.attribute = masked[self.columns[0]]
        self.linear = nn.Linear(width, max(len(self.columns), self.attribute.cardinality))

    def loss(self, node_emb: Float[Tensor, "V D"], view: MaskedView) -> Float[Tensor, ""]:
        """Return the mean over masked items of the cross-entropy, or squared error of a number.

        The embedding of an edge is the sum of the embeddings of its two ends in the masked view.
        """
        clean = view.clean
        if self.masked == "node":
            emb, answers = node_emb[view.node_idx], clean.x[view.node_idx]
        else:
            source, target = clean.edge_index[:, view.edge_idx]
            emb, answers = node_emb[source] + node_emb[target], clean.edge_attr[view.edge_idx]
        scores = full_precision(linear(emb, self.linear))
        answers = answers[:, list(self.columns)]
        if answers.shape[1] > 1:
            classes = answers.argmax(dim=1)
        elif self.attribute.is_categorical:
            classes = answers[:, 0].long()
        else:
            values = standardized(answers, (self.attribute,)).to(scores)
            return mean_or_zero((scores - values).square().squeeze(1))
        return mean_or_zero(F.cross_entropy(scores, classes, reduction="none"))


def evidence_channels(schema: FeatureSchema) -> tuple[int, ...]:
    """Return the indices of the edge columns that mark neither a self-loop nor a masked edge.

    There are none if a column is categorical.
    """
    if any(c.is_categorical for c in schema.edge):
        return ()
    special = [row for row in (schema.edge_mask, schema.self_loop) if row is not None]
    return tuple(k for k in range(len(schema.edge)) if not any(row[k] for row in special))


class ProjectionHead(nn.Sequential):
    """A two-layer network that projects embeddings before a contrastive loss compares them."""

    def __init__(self, width: int) -> None:
        super().__init__(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, input: Float[Tensor, "R D"]) -> Float[Tensor, "R D"]:
        """Return the projections."""
        return perceptron(input, self[0], self[2])


class RegressionHead(nn.Module):
    """A network with 512 hidden units from ``jk`` embeddings to standardized values."""

    peers: Peers | None = None
    """Processes that each hold some graphs of a batch; None if this process holds all of them."""

    def __init__(self, encoder: GraphEncoder, outputs: int) -> None:
        super().__init__()
        width = encoder.embedding_width("jk")
        self.net = nn.Sequential(nn.Linear(width, 512), nn.ReLU(), nn.Linear(512, outputs))

    def forward(self, graph_emb: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """Return the predicted values."""
        return perceptron(graph_emb, self.net[0], self.net[2])

    def loss(
        self, graph_emb: Float[Tensor, "N D"], targets: Float[Tensor, "N K"]
    ) -> Float[Tensor, ""]:
        """Return the mean Huber loss (linear beyond an error of 1) over targets that are not NaN.

        With ``peers`` it is scaled so that its mean over processes is the loss of the whole batch.
        """
        predicted = full_precision(self(graph_emb))
        known = ~targets.isnan()
        answers = torch.where(known, targets, 0.0).to(predicted)
        losses = F.smooth_l1_loss(predicted, answers, reduction="none")
        error, count = (losses * known).sum(), known.sum()
        if self.peers is not None:
            error, count = error * self.peers.size, self.peers.total(count)
        return error / count.clamp_min(1)


def target_count(schema: FeatureSchema) -> int:
    """Return the number of descriptors that the domain of the schema computes.

    Raises:
        ConfigError: If the domain has no descriptors.
    """
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
) -> dict[str, Float[Tensor, ""]]:
    """Return the losses of the two heads on the standardized targets.

    The last :data:`COMPONENTS` targets are those of ``substructures``, if that head exists.
    """
    assert targets is not None, "batches have targets if `needs_targets` is set"
    if substructures is None:
        return {"descriptor": descriptors.loss(graph_emb, targets)}
    return {
        "descriptor": descriptors.loss(graph_emb, targets[:, :-COMPONENTS]),
        "substructure": substructures.loss(graph_emb, targets[:, -COMPONENTS:]),
    }
