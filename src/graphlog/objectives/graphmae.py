"""GraphMAE: reconstruct masked attributes by a message-passing decoder (Hou et al., 2022)."""

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
from graphlog.objectives.base import (
    LossTerms,
    Objective,
    Recipes,
    comparison_recipe,
    published_recipe,
)
from graphlog.ops.contrastive import full_precision, mean_or_zero, paired_cosine_similarity
from graphlog.ops.dense import linear
from graphlog.views.augment import MaskedView, mask_attributes


class GraphMAEConfig(FrozenConfig):
    """Settings of GraphMAE; the recipe ``paper`` has those of the authors' script for molecules."""

    mask_rate: float = Field(0.25, ge=0, lt=1)
    """Share of the nodes of a graph whose attributes are masked; at least one is masked."""
    masked_columns: MaskedColumns = "all"
    """Columns that get their mask code. With ``first``, as in the authors' script, the others get
    0."""
    exponent: float = Field(2.0, ge=1)
    """Exponent of the cosine error. A larger one gives less weight to attributes that are already
    reconstructed well. The paper tries 1 to 3, and its script uses 1."""


def scaled_cosine_error(
    predicted: Float[Tensor, "A K"], answers: Float[Tensor, "A K"], exponent: float
) -> Float[Tensor, ""]:
    r"""Return the mean of :math:`(1 - \cos(z, x))^\gamma` over rows, or 0 without rows."""
    error = 1.0 - paired_cosine_similarity(predicted, answers)
    return mean_or_zero(error.clamp_min(0.0).pow(exponent))


class GraphMAE(Objective[MaskedView]):
    """A masked autoencoder: the encoder, one layer of GIN, and a cosine error on masked nodes.

    The first attribute of the masked nodes is reconstructed. Their embeddings are set to zero
    before decoding, so that the decoder sees only their neighbors. The decoding layer of the
    authors returns one number per atom type; here it has the width of the encoder, and a linear map
    follows.
    """

    Config: ClassVar[type[FrozenConfig]] = GraphMAEConfig
    RECIPES: ClassVar[Recipes] = {
        "default": comparison_recipe(),
        "paper": published_recipe(masked_columns="first", exponent=1.0),
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
        """Raise ConfigError if the schema does not mask nodes."""
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
        """Return the scaled cosine error on the masked nodes."""
        hidden = linear(self.activation(encoder(views.batch).node_emb), self.bridge)
        hidden = hidden.index_fill(0, views.node_idx, 0.0)
        edges = Neighborhood(views.batch, self.schema, encoder.node.weight.dtype)
        decoded = self.decoder(hidden, edges)[views.node_idx]
        predicted = full_precision(linear(decoded, self.output))
        masked = views.clean.x[views.node_idx][:, :1]
        answers = expand_attributes(masked, self.columns, predicted.dtype)
        loss = scaled_cosine_error(predicted, answers, self.config.exponent)
        return LossTerms(loss, {"attribute": loss})
