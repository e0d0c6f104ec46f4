"""The contract of a pretext task: views of a batch, a loss on them, and what happens between phases."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphlog.config import FrozenConfig
from graphlog.data.batch import GraphBatch
from graphlog.data.schema import FeatureSchema
from graphlog.encoders.encoder import GraphEncoder

Views = TypeVar("Views")


class Phase(NamedTuple):
    """A stretch of epochs trained with one optimiser."""

    name: str
    epochs: int


class LossTerms(NamedTuple):
    """What a step minimises and what it reports."""

    total: Float[Tensor, ""]
    """The weighted sum that is minimised."""
    terms: Mapping[str, Float[Tensor, ""]]
    """Every term, unweighted; all are logged."""
    watch: Mapping[str, Tensor] = {}
    """Detached scalars for the collapse watch (positive and negative cosine, prototypes in use, perplexity)."""


@runtime_checkable
class EmbedStore(Protocol):
    """Embeds the collection being trained on."""

    def __call__(self, limit: int | None = None) -> Float[Tensor, "M D"]:
        """Return graph embeddings in evaluation mode, without gradients, in store order (a seeded subset if limited)."""
        ...


class Objective(nn.Module, ABC, Generic[Views]):
    """A pretext task. Its parameters are heads, discriminators and prototypes; the encoder is passed in."""

    Config: ClassVar[type[FrozenConfig]]
    """The pydantic model of its switches; every field has a default."""
    RECIPES: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}}
    """Named bundles: ``{"objective": {...}, "encoder": {...}, "training": {...}, "schema": ..., "embedding": ...}``."""

    @property
    def needs_targets(self) -> bool:
        """Whether batches must carry, as ``y``, the standardised targets of the schema's domain; most tasks need no such thing."""
        return False

    @abstractmethod
    def __init__(self, config: Any, encoder: GraphEncoder) -> None:
        """Build the heads for this encoder's width and schema; the encoder is not kept."""
        super().__init__()

    @classmethod
    def check_schema(cls, schema: FeatureSchema) -> None:
        """Raise ConfigError where graphs of this schema cannot serve the task; the default accepts all."""

    def phases(self, epochs: int) -> tuple[Phase, ...]:
        """Split ``epochs`` into phases; most tasks have one."""
        return (Phase("train", epochs),)

    def begin_phase(self, phase: Phase, embed: EmbedStore, generator: torch.Generator) -> None:
        """Prepare a phase (GraphLoG: K-means); parameters may be born here, the optimiser is made after."""

    def prepare_state(self, state: Mapping[str, Tensor]) -> None:
        """Create the parameters that ``state`` holds and a new objective lacks (those born in ``begin_phase``), to be loaded next."""

    @abstractmethod
    def views(self, batch: GraphBatch, generator: torch.Generator) -> Views:
        """Return the corrupted or correlated graphs of a batch, without touching any parameter."""

    @abstractmethod
    def loss(self, views: Views, encoder: GraphEncoder, generator: torch.Generator) -> LossTerms:
        """Return the loss of one step on views of one batch."""
