"""The contract of a pretext task, what the compared methods share, and heads that several use."""

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
from graphlog.domains import DOMAINS, USUAL_SCHEMA
from graphlog.encoders.encoder import GraphEncoder, standardized
from graphlog.errors import ConfigError, setting
from graphlog.ops.collectives import Peers
from graphlog.ops.contrastive import full_precision, mean_or_zero
from graphlog.ops.dense import linear, perceptron
from graphlog.views.augment import MaskedView

Views = TypeVar("Views")
Recipes = Mapping[str, Mapping[str, Any]]
"""Named bundles: ``{"objective": {...}, "encoder": {...}, "training": {...}, "schema": ...,
"embedding": ...}``."""
Temperature = Annotated[float, Field(ge=1e-6, le=1e6)]
"""Divides cosines; beyond these bounds float32 leaves nothing of them."""
COMPONENTS = 256
"""Columns that stand for the counts of substructures, after the targets."""


class Phase(NamedTuple):
    """A stretch of epochs trained with one optimizer."""

    name: str
    epochs: int


class LossTerms(NamedTuple):
    """What a step minimizes and what it reports."""

    total: Float[Tensor, ""]
    """The weighted sum that is minimized."""
    terms: Mapping[str, Float[Tensor, ""]]
    """Every term, unweighted; all are logged."""
    watch: Mapping[str, Tensor] = {}
    """Detached scalars for the collapse monitor (positive and negative cosine, prototypes in use,
    perplexity)."""


EmbedStore: TypeAlias = Callable[[int | None, bool], Float[Tensor, "M D"]]
"""Embeds the collection being trained on, in the order of its store, or a sample of that size.

The encoder is in evaluation mode meanwhile. Where the second argument is true, batch norm has the
statistics of the collection, about those of each training batch; else those kept so far, which
after a few steps are far from them.
"""


class Objective(nn.Module, ABC, Generic[Views]):
    """A pretext task; its parameters are heads and prototypes, the encoder is passed in."""

    Config: ClassVar[type[FrozenConfig]] = FrozenConfig
    """The pydantic model of its switches; every field has a default. Here there are none."""
    RECIPES: ClassVar[Recipes] = {"default": {}}
    """Whole set-ups by name, for :func:`graphlog.pretrain` and ``--recipe``."""
    RECIPE_NOTES: ClassVar[Mapping[str, str]] = {}
    """What to tell whoever chooses a recipe, in one line."""

    needs_targets: bool = False
    """Whether batches must carry the domain's standardized targets as ``y``."""
    needs_substructures: bool = False
    """Whether components of the counts of substructures must follow the targets in ``y``."""
    masks: bool = False
    """Whether attributes are masked: the schema must have a row that stands for "masked"."""
    is_separable: bool = False
    """Whether the loss draws nothing and never looks at two graphs together; most do.

    Its mean over processes that each have some graphs of a batch, not all equally many, must also
    be the loss of the batch (see ``Team.mean``); ``RegressionHead`` corrects by ``peers``.
    """

    @classmethod
    def recipe_for(cls, domain: str) -> str:
        """Return the recipe for graphs of ``domain`` where the user names none."""
        return "biology" if domain == "protein" and "biology" in cls.RECIPES else "default"

    def __init__(self, config: FrozenConfig, encoder: GraphEncoder) -> None:
        """Build the heads for this encoder's width and schema; the encoder is not kept."""
        super().__init__()
        self.check_schema(encoder.schema)

    @classmethod
    def check_schema(cls, schema: FeatureSchema) -> None:
        """Raise ConfigError where the task cannot use graphs of this schema."""
        if cls.masks:
            schema.mask_row()

    def phases(self, epochs: int) -> tuple[Phase, ...]:
        """Split ``epochs`` into phases; most tasks have one."""
        return (Phase("train", epochs),)

    def phases_note(self, epochs: int) -> str | None:
        """Return what to tell, in one line, whoever trains for ``epochs``; default: nothing."""
        return None

    def begin_phase(self, phase: Phase, embed: EmbedStore, generator: Generator) -> None:
        """Prepare a phase (GraphLoG: K-means); parameters may be created, the optimizer follows."""

    def prepare_state(self, state: Mapping[str, Tensor]) -> None:
        """Create the parameters that ``begin_phase`` made, so that ``state`` can be loaded next."""

    def learning_rate_factors(self) -> Mapping[str, float]:
        """Return multiples of the learning rate for parameters whose names start so; default: 1."""
        return {}

    def views(self, batch: GraphBatch, generator: Generator) -> Views:
        """Return the corrupted or correlated graphs of a batch; default: the batch as it is.

        No parameter is touched.
        """
        return batch  # pyright: ignore[reportReturnType] - tasks without views are of `GraphBatch`

    @abstractmethod
    def loss(self, views: Views, encoder: GraphEncoder, generator: Generator) -> LossTerms:
        """Return the loss of one step on views of one batch."""


def chemistry(**objective: Any) -> dict[str, Any]:
    """Return a recipe with what measured best for molecules where one clean view is enough."""
    training = {"epochs": 10, "batch_size": 256, "schedule": "cosine", "warmup": 0.02}
    training |= {"average": 0.999, "fresh_moments": False}
    return {**comparison(**objective), "training": training}


def comparison(**objective: Any) -> dict[str, Any]:
    """Return a recipe with the training by default, by which all methods are compared."""
    return {"objective": objective, "schema": USUAL_SCHEMA, "embedding": "jk"}


def published(schema: str = "molecule", **objective: Any) -> dict[str, Any]:
    """Return a recipe with the training of Hu et al. (2020): 100 epochs, batch 256."""
    training = {"epochs": 100, "batch_size": 256}
    return {"objective": objective, "training": training, "schema": schema, "embedding": "last"}


def tell_apart(
    positive: Float[Tensor, "P"], negative: Float[Tensor, "Q"], negative_weight: float = 1.0
) -> LossTerms:
    r"""Return binary cross-entropy.

    :math:`\mathrm{mean}\,\log(1 + e^{-s^+}) + w\,\mathrm{mean}\,\log(1 + e^{s^-})` of the scores
    of right and of wrong pairs; none count as 0.
    """
    positive, negative = full_precision(positive), full_precision(negative)
    right, wrong = mean_or_zero(F.softplus(-positive)), mean_or_zero(F.softplus(negative))
    with torch.no_grad():
        hits = (positive > 0).sum() + (negative <= 0).sum()
        accuracy = hits / max(positive.shape[0] + negative.shape[0], 1)
    return LossTerms(
        right + negative_weight * wrong,
        {"positive": right, "negative": wrong},
        {"accuracy": accuracy},
    )


def row_products(x: Float[Tensor, "R D"], y: Float[Tensor, "R D"]) -> Float[Tensor, "R"]:
    """Return the inner product of each row with the same row of the other."""
    return (full_precision(x) * full_precision(y)).sum(dim=1)


class AttributeHead(nn.Module):
    """A linear map from embeddings to the first masked attribute: its class, or its value.

    Where several evidence channels stand side by side on a masked edge (biology), the class is the
    first channel that the edge has.
    """

    def __init__(self, width: int, schema: FeatureSchema) -> None:
        super().__init__()
        masked = schema.node if schema.masked == "node" else schema.edge
        self.masked = schema.masked
        self.positions = (evidence_channels(schema) if self.masked == "edge" else ()) or (0,)
        self.column = masked[self.positions[0]]
        self.linear = nn.Linear(width, max(len(self.positions), self.column.cardinality))

    def loss(self, node_emb: Float[Tensor, "V D"], view: MaskedView) -> Float[Tensor, ""]:
        """Return the mean loss over masked items: cross-entropy, or squared error of a number.

        The embedding of an edge is the sum of those of its two ends in the masked view.
        """
        clean = view.clean
        if self.masked == "node":
            emb, answers = node_emb[view.node_idx], clean.x[view.node_idx]
        else:
            source, target = clean.edge_index[:, view.edge_idx]
            emb, answers = node_emb[source] + node_emb[target], clean.edge_attr[view.edge_idx]
        scores = full_precision(linear(emb, self.linear))
        answers = answers[:, list(self.positions)]
        if answers.shape[1] > 1:
            classes = answers.argmax(dim=1)
        elif self.column.is_categorical:
            classes = answers[:, 0].long()
        else:
            wanted = standardized(answers, (self.column,)).to(scores)
            return mean_or_zero((scores - wanted).square().squeeze(1))
        return mean_or_zero(F.cross_entropy(scores, classes, reduction="none"))


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
    """A net with 512 hidden units from ``jk`` embeddings to standardized values."""

    peers: Peers | None = None
    """The processes that each hold some graphs of a batch; None where this one has them all."""

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
        """Return the mean of Huber's error (linear beyond 1) over targets that are not NaN.

        With ``peers`` it is what this process adds to the mean, times their number.
        """
        predicted = full_precision(self(graph_emb))
        known = ~targets.isnan()
        answers = torch.where(known, targets, 0.0).to(predicted)
        each = F.smooth_l1_loss(predicted, answers, reduction="none")
        error, count = (each * known).sum(), known.sum()
        if self.peers is not None:
            error, count = error * self.peers.size, self.peers.total(count)
        return error / count.clamp_min(1)


def target_count(schema: FeatureSchema) -> int:
    """Return how many descriptors the domain has.

    Raises:
        ConfigError: If it has none.
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
    """Return the loss of the descriptors and, where ``substructures`` is given, of its columns.

    These are the last :data:`COMPONENTS` of the standardized targets.
    """
    assert targets is not None, "batches carry targets where an objective needs them"
    if substructures is None:
        return {"descriptor": descriptors.loss(graph_emb, targets)}
    return {
        "descriptor": descriptors.loss(graph_emb, targets[:, :-COMPONENTS]),
        "substructure": substructures.loss(graph_emb, targets[:, -COMPONENTS:]),
    }
