"""GraphLoG (Xu et al., 2021): local and global structure by online EM (Algorithm 1)."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn

from graphlog.config import FrozenConfig
from graphlog.data.batch import GraphBatch
from graphlog.data.schema import FeatureSchema
from graphlog.encoders.encoder import GraphEncoder
from graphlog.objectives.attribute_head import attribute_head
from graphlog.objectives.base import EmbedStore, LossTerms, Objective, Phase
from graphlog.objectives.descriptor_head import DescriptorHead
from graphlog.objectives.global_semantic import (
    assignment_gap,
    nce_loss,
    prototype_cross_entropy,
    prototype_statistics,
)
from graphlog.objectives.graphlog_config import RECIPE_NOTES, RECIPES, GraphLoGConfig
from graphlog.objectives.local_instance import graph_loss, subgraph_loss
from graphlog.ops.colours import refine_colours
from graphlog.ops.contrastive import full_precision
from graphlog.prototypes.competitive import fit_competitive
from graphlog.prototypes.e_step import balanced_chains, greedy_chains, sample_chains
from graphlog.prototypes.energy import corrupt_chains
from graphlog.prototypes.forest import PrototypeForest
from graphlog.prototypes.initialise import fit_forest
from graphlog.views.augment import drop_subgraphs
from graphlog.views.masking import MaskedView, mask_attributes, mask_row
from graphlog.views.sampling import uniform
from graphlog.views.subgraphs import induced_part


class GraphLoGViews(NamedTuple):
    """A batch and its correlated counterpart."""

    clean: GraphBatch
    """The graphs as they are."""
    view: MaskedView
    """The same graphs, or what is left of them, with masked attributes."""
    part: GraphBatch | None = None
    """What is left of the graphs, unmasked, where a subgraph was dropped."""
    present_idx: Int[Tensor, "B"] | None = None
    """Nodes of ``clean`` that are left."""


def projection_head(width: int) -> nn.Sequential:
    """Return the two-layer network between embeddings and prototypes."""
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))


class GraphLoG(Objective[GraphLoGViews]):
    """The objective of Algorithm 1.

    A ``local`` phase (Eq. 8) is followed by K-means and a ``joint`` phase (Eqs. 8 and 20).
    Its parameters are the prototypes and, where switched on, the projection head and those that
    predict attributes and descriptors. All are kept with a run, none is part of the encoder.
    """

    Config: ClassVar[type[FrozenConfig]] = GraphLoGConfig
    RECIPES: ClassVar[Mapping[str, Mapping[str, Any]]] = RECIPES
    RECIPE_NOTES: ClassVar[Mapping[str, str]] = RECIPE_NOTES

    def __init__(self, config: GraphLoGConfig, encoder: GraphEncoder) -> None:
        super().__init__(config, encoder)
        self.config = config
        self.schema = encoder.schema
        self.check_schema(self.schema)
        width = encoder.dim
        self.head = projection_head(width) if config.projection_head else None
        self.graph_head = projection_head(width) if config.local_heads else None
        self.node_head = projection_head(width) if config.local_heads else None
        self.attributes = (
            attribute_head(width, self.schema, config.attribute_columns)
            if config.attribute_weight > 0
            else None
        )
        self.descriptors = (
            DescriptorHead(width, width, self.schema) if config.descriptor_weight > 0 else None
        )
        self.prototypes = nn.ParameterList()

    @property
    def needs_targets(self) -> bool:
        """Whether descriptors are predicted too."""
        return self.descriptors is not None

    @classmethod
    def check_schema(cls, schema: FeatureSchema) -> None:
        """Raise ConfigError where graphs of this schema have no row that stands for "masked"."""
        mask_row(schema)

    @property
    def forest(self) -> PrototypeForest | None:
        """The prototypes as they stand, or None before the joint phase."""
        if not self.prototypes:
            return None
        parents = [self.get_buffer(f"parents_{level}") for level in range(1, len(self.prototypes))]
        return PrototypeForest(list(self.prototypes), parents, validate=False)

    def set_forest(self, forest: PrototypeForest) -> None:
        """Make copies of these prototypes the parameters of the global loss; the tree is fixed."""
        for level in range(1, len(self.prototypes)):
            delattr(self, f"parents_{level}")
        self.prototypes = nn.ParameterList(
            nn.Parameter(layer.detach().clone()) for layer in forest.layers
        )
        for level in range(1, forest.depth):
            self.register_buffer(f"parents_{level}", forest.parent(level).clone())

    def prepare_state(self, state: Mapping[str, Tensor]) -> None:
        """Create the prototypes in ``state``, for ``load_state_dict`` to fill."""
        forest = PrototypeForest.from_state(state, validate=False)
        if forest is not None:
            self.set_forest(forest)

    def phases(self, epochs: int) -> tuple[Phase, ...]:
        """Return the local phase and the joint one (Algorithm 1).

        A phase without epochs is left out. The local phase is there whatever the weights: before
        it, the statistics of batch normalisation are not those of any graph, and clusters of such
        embeddings mean nothing.
        """
        c = self.config
        local = epochs if c.global_weight == 0 else min(c.local_epochs, epochs)
        return tuple(
            p for p in (Phase("local", local), Phase("joint", epochs - local)) if p.epochs > 0
        )

    def begin_phase(self, phase: Phase, embed: EmbedStore, generator: torch.Generator) -> None:
        """Fit the prototypes to the embeddings of the encoder when the joint phase begins."""
        if phase.name != "joint":
            return
        c = self.config
        emb = full_precision(embed(c.kmeans_sample or None))
        if self.head is not None:
            with torch.no_grad():
                emb = torch.cat([self.head(part) for part in emb.split(8192)])
        if c.initialisation == "competitive":
            forest = fit_competitive(
                emb,
                depth=c.depth,
                centres=c.centres,
                generator=generator,
                passes=c.competitive_passes,
                decay=c.competitive_decay,
                min_members=c.min_members,
            )
        else:
            forest = fit_forest(
                emb,
                depth=c.depth,
                centres=c.centres,
                generator=generator,
                centres_rule=c.centres_rule,
                min_members=c.min_members,
                min_roots=c.min_roots,
                space=c.kmeans_space,
            )
        self.set_forest(forest)

    def learning_rate_factors(self) -> Mapping[str, float]:
        """Return that of the prototypes, which follow the embeddings."""
        return {"prototypes": self.config.prototype_rate}

    def views(self, batch: GraphBatch, generator: torch.Generator) -> GraphLoGViews:
        """Return the batch and its correlated counterpart (Eq. 5)."""
        c = self.config
        part, present_idx = None, None
        if c.drop_rate > 0:
            dropped = drop_subgraphs(batch, c.drop_rate, generator)
            present_idx, part = (~dropped).nonzero().squeeze(1), induced_part(batch, ~dropped).batch
        rate: float | Tensor = c.mask_rate
        if c.mask_rate_max > c.mask_rate:
            share = uniform(batch.num_graphs, generator, batch.ptr.device)
            rate = c.mask_rate + (c.mask_rate_max - c.mask_rate) * share
        source = batch if part is None else part
        masked = mask_attributes(source, self.schema, rate, generator, c.masked_columns)
        return GraphLoGViews(batch, masked, part, present_idx)

    def loss(
        self, views: GraphLoGViews, encoder: GraphEncoder, generator: torch.Generator
    ) -> LossTerms:
        """Return the local losses (Eq. 9) and, once there are prototypes, the global one.

        Implements Eq. 9, Eq. 20 and the loop of Algorithm 1; the M-step is
        the optimiser step on the total. Without weights the total is the paper's plain sum.
        """
        forest, weights = self.forest, self._weights()
        clean = encoder(views.clean)
        graph_emb = _project(self.head, clean.graph_emb)
        terms: dict[str, Tensor] = {}
        watch: dict[str, Tensor] = {}
        if weights["graph"] + weights["subgraph"] + weights["attribute"] > 0:
            view = encoder(views.view.batch)
            if weights["graph"] > 0:
                pair = (clean.graph_emb, view.graph_emb)
                if self.graph_head is None:
                    pair = (graph_emb, _project(self.head, view.graph_emb))
                else:
                    pair = tuple(full_precision(self.graph_head(emb)) for emb in pair)
                self._add_graph_term(*pair, generator, terms, watch)
            if weights["subgraph"] > 0:
                colours = None
                if self.config.skip_symmetric:
                    batch = views.clean
                    colours = refine_colours(
                        batch.x, batch.edge_index, batch.edge_attr, len(encoder.layers)
                    )
                self._add_subgraph_term(
                    clean.node_emb, view.node_emb, views, colours, generator, terms, watch
                )
            if self.attributes is not None:
                terms["attribute"] = self.attributes.loss(
                    view.node_emb,
                    views.part or views.clean,
                    views.view.node_idx,
                    views.view.edge_idx,
                )
        if forest is not None and weights["global"] > 0:
            self._add_global_term(graph_emb, forest, generator, terms, watch)
        if self.descriptors is not None:
            terms["descriptor"] = self.descriptors.loss(clean.graph_emb, views.clean.y)
        total = torch.stack([weights[name] * term for name, term in terms.items()]).sum()
        return LossTerms(total, terms, watch)

    def _weights(self) -> dict[str, float]:
        c = self.config
        names = ("graph", "subgraph", "attribute", "descriptor", "global")
        weights: dict[str, float] = {name: getattr(c, f"{name}_weight") for name in names}
        if self.forest is None and sum(weights.values()) == weights["global"]:
            weights |= {"graph": 1.0, "subgraph": 1.0}  # the local phase of Algorithm 1 (Eq. 9)
        return weights

    def _add_graph_term(
        self,
        graph_emb: Tensor,
        view_emb: Tensor,
        generator: torch.Generator,
        terms: dict[str, Tensor],
        watch: dict[str, Tensor],
    ) -> None:
        c = self.config
        with torch.autocast(graph_emb.device.type, enabled=False):
            result = graph_loss(
                graph_emb,
                view_emb,
                form=c.local_form,
                temperature=c.temperature,
                eps=c.cosine_eps,
                generator=generator,
            )
        terms["graph"] = result.loss
        watch["cos_graph_pos"], watch["cos_graph_neg"] = result.positive, result.negative

    def _add_subgraph_term(
        self,
        node_emb: Tensor,
        view_emb: Tensor,
        views: GraphLoGViews,
        colours: Tensor | None,
        generator: torch.Generator,
        terms: dict[str, Tensor],
        watch: dict[str, Tensor],
    ) -> None:
        c, head = self.config, self.head if self.node_head is None else self.node_head
        masked_idx, present_idx = views.view.node_idx, views.present_idx
        rows = masked_idx if c.subgraph_anchors == "masked" else None
        node_emb, view_emb = _project(head, node_emb), _project(head, view_emb, rows)
        if (
            present_idx is not None
        ):  # rows of the clean graphs; dropped nodes, never looked at, are 0
            masked_idx = present_idx[masked_idx]
            view_emb = torch.zeros_like(node_emb).index_copy(0, present_idx, view_emb)
        with torch.autocast(node_emb.device.type, enabled=False):
            result = subgraph_loss(
                node_emb,
                view_emb,
                views.clean.ptr,
                masked_idx,
                form=c.local_form,
                temperature=c.temperature,
                eps=c.cosine_eps,
                anchors=c.subgraph_anchors,
                positive=c.subgraph_positive,
                present_idx=present_idx,
                colours=colours,
                generator=generator,
            )
        terms["subgraph"] = result.loss
        watch["cos_node_pos"], watch["cos_node_neg"] = result.positive, result.negative

    def _add_global_term(
        self,
        graph_emb: Tensor,
        forest: PrototypeForest,
        generator: torch.Generator,
        terms: dict[str, Tensor],
        watch: dict[str, Tensor],
    ) -> None:
        c = self.config
        temperature = c.e_step_temperature or c.temperature
        with torch.autocast(graph_emb.device.type, enabled=False):
            fixed = graph_emb.detach()
            if c.e_step == "balanced":
                chains = balanced_chains(
                    fixed, forest.detach(), temperature=temperature, eps=c.cosine_eps
                )
            elif c.e_step == "greedy":
                chains = greedy_chains(fixed, forest.detach(), c.cosine_eps)
            else:
                chains = sample_chains(
                    fixed, forest.detach(), temperature=temperature, generator=generator
                )
            if c.global_form == "nce":
                terms["global"] = nce_loss(
                    graph_emb, chains, corrupt_chains(chains, forest, generator), forest
                )
            else:
                terms["global"] = prototype_cross_entropy(
                    graph_emb,
                    chains,
                    forest,
                    temperature=c.prototype_temperature or c.temperature,
                    candidates=c.prototype_candidates,
                    eps=c.cosine_eps,
                )
                watch["assignment_gap"] = assignment_gap(
                    fixed,
                    chains,
                    forest.detach(),
                    temperature=c.prototype_temperature or c.temperature,
                    draw_temperature=temperature if c.e_step == "sample" else None,
                )
            watch.update(
                prototype_statistics(fixed, chains, forest.detach(), temperature=temperature)
            )


def _project(head: nn.Module | None, emb: Tensor, rows: Tensor | None = None) -> Tensor:
    """Project embeddings in full precision; with ``rows``, those alone, the others become zero."""
    if head is None:
        return full_precision(emb)
    if rows is None:
        return full_precision(head(emb))
    projected = full_precision(head(emb[rows]))
    return projected.new_zeros(emb.shape[0], projected.shape[1]).index_copy(0, rows, projected)
