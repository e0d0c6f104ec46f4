"""GraphMAE: rebuild masked attributes through a message-passing decoder (Hou et al., 2022)."""

from typing import ClassVar

from jaxtyping import Float
from pydantic import Field
from torch import Generator, Tensor, nn

from graphlog.config import FrozenConfig
from graphlog.data.graphs import FeatureSchema, MaskedColumns
from graphlog.data.store import GraphBatch
from graphlog.encoders.encoder import (
    EncoderConfig,
    GraphEncoder,
    Neighborhood,
    expand_attributes,
    table_rows,
)
from graphlog.encoders.layers import GIN
from graphlog.errors import ConfigError
from graphlog.objectives.base import LossTerms, Objective, Recipes, comparison, published
from graphlog.ops.contrastive import full_precision, mean_or_zero, paired_cosine_similarity
from graphlog.ops.dense import linear
from graphlog.views.augment import MaskedView, mask_attributes


class GraphMAEConfig(FrozenConfig):
    """Switches of GraphMAE; recipe ``paper`` takes those of the authors' script for chemistry."""

    mask_rate: float = Field(0.25, ge=0, lt=1)
    """Share of a graph's nodes whose attributes are masked; at least one is."""
    masked_columns: MaskedColumns = "all"
    """``first``: only the first column gets its mask code, the others 0 (source)."""
    exponent: float = Field(2.0, ge=1)
    """Power of the cosine error: larger ones look away from what is rebuilt well already. The
    paper tries 1 to 3, its script takes 1."""


def scaled_cosine_error(
    rebuilt: Float[Tensor, "A K"], answers: Float[Tensor, "A K"], exponent: float
) -> Float[Tensor, ""]:
    r"""Return the mean of :math:`(1 - \cos(z, x))^\gamma` over rows; no rows count as 0."""
    error = 1.0 - paired_cosine_similarity(rebuilt, answers)
    return mean_or_zero(error.clamp_min(0.0).pow(exponent))


class GraphMAE(Objective[MaskedView]):
    """A masked autoencoder.

    Encoder, re-masking, one layer of GIN, cosine error on the first column of the masked nodes.
    The embeddings of masked nodes are set to zero before decoding, so that only their surroundings
    speak. The authors' decoding layer ends in as many numbers as there are atom types; here a layer
    of the encoder's width and a linear map to them take its place.
    """

    Config: ClassVar[type[FrozenConfig]] = GraphMAEConfig
    RECIPES: ClassVar[Recipes] = {
        "default": comparison(),
        "paper": published(masked_columns="first", exponent=1.0),
    }

    def __init__(self, config: GraphMAEConfig, encoder: GraphEncoder) -> None:
        super().__init__(config, encoder)
        self.config, self.schema = config, encoder.schema
        self.columns = self.schema.node[:1]
        shape = EncoderConfig(dim=encoder.config.dim).resolve_auto(self.schema.domain)
        self.activation = nn.PReLU()
        self.bridge = nn.Linear(encoder.dim, shape.dim, bias=False)
        self.decoder = GIN(shape, self.schema)
        self.output = nn.Linear(shape.dim, table_rows(self.columns))

    @classmethod
    def check_schema(cls, schema: FeatureSchema) -> None:
        """Raise ConfigError where graphs of this schema have no node attributes to hide."""
        if schema.masked != "node":
            raise ConfigError(
                f"GraphMAE rebuilds masked nodes, and schema '{schema.name}' masks"
                f" {schema.masked}s; use attrmasking."
            )
        schema.mask_row()

    def views(self, batch: GraphBatch, generator: Generator) -> MaskedView:
        """Return the batch with masked attributes."""
        c = self.config
        return mask_attributes(batch, self.schema, c.mask_rate, generator, c.masked_columns)

    def loss(self, views: MaskedView, encoder: GraphEncoder, generator: Generator) -> LossTerms:
        """Return the scaled cosine error of the masked nodes."""
        hidden = linear(self.activation(encoder(views.batch).node_emb), self.bridge)
        hidden = hidden.index_fill(0, views.node_idx, 0.0)
        near = Neighborhood(views.batch, self.schema, encoder.node.weight.dtype)
        rebuilt = full_precision(linear(self.decoder(hidden, near)[views.node_idx], self.output))
        hid = views.clean.x[views.node_idx][:, :1]
        answers = expand_attributes(hid, self.columns, rebuilt.dtype)
        loss = scaled_cosine_error(rebuilt, answers, self.config.exponent)
        return LossTerms(loss, {"attribute": loss})
