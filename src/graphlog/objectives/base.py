"""The contract of a pretext task, and what the compared methods share."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from graphlog.config import FrozenConfig
from graphlog.data.batch import GraphBatch
from graphlog.data.schema import FeatureSchema
from graphlog.encoders.encoder import GraphEncoder
from graphlog.ops.contrastive import full_precision, mean_or_zero

Views = TypeVar("Views")
Recipes = Mapping[str, Mapping[str, Any]]
"""Named bundles: ``{"objective": {...}, "encoder": {...}, "training": {...}, "schema": ...,
"embedding": ...}``."""


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
    """Detached scalars for the collapse watch (positive and negative cosine, prototypes in use,
    perplexity)."""


@runtime_checkable
class EmbedStore(Protocol):
    """Embeds the collection being trained on."""

    def __call__(self, limit: int | None = None) -> Float[Tensor, "M D"]:
        """Return graph embeddings in evaluation mode, in store order (``limit``: a sample)."""
        ...


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
        """Raise ConfigError where the task cannot use graphs of this schema; default: never."""

    def phases(self, epochs: int) -> tuple[Phase, ...]:
        """Split ``epochs`` into phases; most tasks have one."""
        return (Phase("train", epochs),)

    def phases_note(self, epochs: int) -> str | None:
        """Return what to tell, in one line, whoever trains for ``epochs``; default: nothing."""
        return None

    def begin_phase(self, phase: Phase, embed: EmbedStore, generator: torch.Generator) -> None:
        """Prepare a phase (GraphLoG: K-means); parameters may be created, the optimizer follows."""

    def prepare_state(self, state: Mapping[str, Tensor]) -> None:
        """Create the parameters that ``begin_phase`` made, so that ``state`` can be loaded next."""

    def learning_rate_factors(self) -> Mapping[str, float]:
        """Return multiples of the learning rate for parameters whose names start so; default: 1."""
        return {}

    def views(self, batch: GraphBatch, generator: torch.Generator) -> Views:
        """Return the corrupted or correlated graphs of a batch; default: the batch as it is.

        No parameter is touched.
        """
        return batch  # pyright: ignore[reportReturnType] - tasks without views are of `GraphBatch`

    @abstractmethod
    def loss(self, views: Views, encoder: GraphEncoder, generator: torch.Generator) -> LossTerms:
        """Return the loss of one step on views of one batch."""


_ENCODER: Mapping[str, Any] = {
    "backbone": "gin",
    "layers": 5,
    "dim": 300,
    "jk": "last",
    "readout": "mean",
    "dropout": 0.0,
}


def chemistry(**objective: Any) -> dict[str, Any]:
    """Return a recipe with what measured best for molecules where one clean view is enough."""
    training = {
        "epochs": 10,
        "batch_size": 256,
        "learning_rate": 1e-3,
        "schedule": "cosine",
        "warmup": 0.02,
        "average": 0.999,
        "fresh_moments": False,
    }
    return {**comparison(**objective), "training": training}


def comparison(**objective: Any) -> dict[str, Any]:
    """Return a recipe with the encoder and training that all methods are compared with."""
    training = {"epochs": 11, "batch_size": 512, "learning_rate": 1e-3}
    return {
        "objective": objective,
        "encoder": _ENCODER,
        "training": training,
        "schema": "molecule-cip",
        "embedding": "jk",
    }


def published(schema: str = "molecule", **objective: Any) -> dict[str, Any]:
    """Return a recipe with encoder and training of Hu et al. (2020): 100 epochs, batch 256."""
    training = {"epochs": 100, "batch_size": 256, "learning_rate": 1e-3}
    return {
        "objective": objective,
        "encoder": _ENCODER,
        "training": training,
        "schema": schema,
        "embedding": "last",
    }


def tell_apart(
    positive: Float[Tensor, "P"], negative: Float[Tensor, "Q"], negative_weight: float = 1.0
) -> LossTerms:
    r"""Return binary cross-entropy.

    :math:`\mathrm{mean}\,\log(1 + e^{-s^+}) + w\,\mathrm{mean}\,\log(1 + e^{s^-})`.

    Args:
        positive: Scores of right pairs; none count as 0.
        negative: Scores of wrong pairs.
        negative_weight: The factor :math:`w`.
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
