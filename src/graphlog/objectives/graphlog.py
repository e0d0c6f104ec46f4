"""GraphLoG (Xu et al., 2021): local and global structure, learned by online EM (Algorithm 1)."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Generator, Tensor, nn

from graphlog.config import FrozenConfig
from graphlog.data.graphs import MaskedColumns
from graphlog.data.store import GraphBatch
from graphlog.encoders.encoder import GraphEncoder
from graphlog.objectives.base import (
    COMPONENTS,
    AttributeHead,
    EmbedStore,
    LossTerms,
    Objective,
    Phase,
    ProjectionHead,
    Recipes,
    RegressionHead,
    Temperature,
    chemistry_recipe,
    comparison_recipe,
    descriptor_losses,
    target_count,
)
from graphlog.objectives.losses import (
    Anchors,
    Candidates,
    LocalForm,
    PairLoss,
    Positive,
    graph_loss,
    nce_loss,
    prototype_cross_entropy,
    prototype_statistics,
    subgraph_loss,
)
from graphlog.ops.colors import refine_colors
from graphlog.ops.contrastive import full_precision
from graphlog.prototypes import (
    CentersRule,
    PrototypeForest,
    Space,
    balanced_chains,
    corrupt_chains,
    fit_balanced_forest,
    fit_competitive,
    fit_forest,
    greedy_chains,
    sample_chains,
)
from graphlog.views.augment import MaskedView, mask_attributes


class GraphLoGConfig(FrozenConfig):
    """Settings of GraphLoG.

    Below, "paper" marks a choice of Xu et al. (2021), and "script" one of their released script.
    """

    local_epochs: int = Field(1, ge=0)
    """Epochs with only the local losses, before prototypes are fitted (Algorithm 1); at least 1 if
    ``global_weight`` is above 0. If all other weights are 0, these epochs minimize Eq. 9."""
    graph_weight: float = Field(1.0, ge=0)
    """Weight of the graph loss (Eq. 6); 0 omits it."""
    subgraph_weight: float = Field(1.0, ge=0)
    """Weight of the subgraph loss (Eq. 7); 0 omits it."""
    global_weight: float = Field(0.1, ge=0)
    """Weight of the global loss (Eq. 19); 0 omits the prototypes and the joint phase."""
    attribute_weight: float = Field(1.0, ge=0)
    """Weight of predicting the first masked attribute: the atom type, or the first kind of evidence
    of an edge (not in the paper); 0 omits it."""
    descriptor_weight: float = Field(0.0, ge=0)
    """Weight of predicting descriptors from ``jk`` embeddings (not in the paper); 0 omits it."""
    substructure_weight: float = Field(0.0, ge=0)
    """Weight of predicting components of substructure counts besides descriptors; 0 omits it."""
    target_columns: int | None = Field(None, ge=1)
    """Width of the vectors to predict instead of descriptors; set by ``targets_from``."""

    mask_rate: float = Field(0.3, ge=0, lt=1)
    """Share of the nodes (or edges) of a graph whose attributes are masked."""
    masked_columns: MaskedColumns = "all"
    """Columns that get their mask code. With ``first`` (script), later categorical columns get 0
    (an unspecified chirality)."""

    local_form: LocalForm = "infonce"
    """``margin``: difference of the cosines of a positive and a drawn negative (Eqs. 6-7);
    ``expected-margin``: the same with the mean over all negatives; ``infonce``: cross-entropy of a
    softmax over all negatives (script)."""
    temperature: Temperature = 0.1
    """Temperature that divides cosines in every softmax loss."""
    subgraph_anchors: Anchors = "all"
    """Nodes whose subgraphs are anchors: all (paper), or those that are masked or touch a masked
    edge (script)."""
    subgraph_positive: Positive = "own"
    """Positive of a node: itself (paper), or any masked node of its graph (script)."""
    cosine_eps: float = Field(0.0, ge=0)
    """Constant added to the denominators of cosines and softmaxes (script: 1e-6)."""
    projection_head: bool = False
    """Whether all losses compare two-layer projections of the embeddings (script); the prototypes
    are then in the projected space too."""
    skip_symmetric: bool = False
    """Whether nodes that the encoder cannot distinguish are not negatives of each other; as
    negatives they would keep the subgraph loss above a positive bound. Only for ``infonce``."""

    depth: int = Field(3, ge=1)
    """Number of layers of prototypes."""
    centers: int = Field(50, ge=1)
    """Number of centers of each clustering."""
    min_members: int = Field(2, ge=1)
    """Smallest number of members of a cluster; smaller clusters are discarded."""
    centers_rule: CentersRule = "halve"
    """Limit of the number of centers in a layer: half the number of points, or with ``literal`` the
    number of points, which discards every upper layer."""
    initialization: Literal["balanced", "kmeans", "competitive"] = "balanced"
    """How prototypes are fitted: with equal shares in every layer, so that none above the leaves is
    unused; by K-means (paper); or by moving averages and rival-penalized competition (script)."""
    min_roots: int = Field(4, ge=1)
    """Number of roots, if the layer below has as many prototypes; K-means may keep more."""
    kmeans_space: Space = "raw"
    """Whether K-means clusters the embeddings themselves or scaled to length 1. Prototypes that are
    much shorter than the embeddings move by their own length in a few steps and become unused."""
    kmeans_sample: Annotated[int, Field(ge=2)] | Literal["all"] = 20_000
    """Number of graphs to which the prototypes are fitted."""
    competitive_passes: int = Field(5, ge=1)
    """Passes of the competitive initialization over the graphs."""
    competitive_decay: float = Field(0.95, gt=0, lt=1)
    """Weight of the old center in each update of the competitive initialization."""

    e_step: Literal["balanced", "sample", "greedy"] = "balanced"
    """How graphs get chains: in equal shares of the batch for the leaves (Sinkhorn), by sampling
    (Eq. 12), or as the nearest prototype of each layer from the top (script)."""
    e_step_temperature: Temperature = 0.05
    """Temperature of the assignment (paper: 1). If chains are drawn at the temperature of the
    cross-entropy, the expectation of its gradient is zero."""
    prototype_temperature: Temperature | None = None
    """Temperature of the cross-entropy over prototypes; None takes ``temperature``."""
    prototype_rate: float = Field(10.0, gt=0)
    """Learning rate of the prototypes, as a multiple of that of the other parameters."""
    global_form: Literal["nce", "cross-entropy"] = "cross-entropy"
    """``nce``: energies against noise (Eq. 19); ``cross-entropy``: softmax over prototypes."""
    prototype_candidates: Candidates = "layer"
    """Prototypes in that softmax: the whole layer, or the children of the one above (script)."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.subgraph_positive == "masked" and (
            self.subgraph_anchors != "masked" or self.local_form != "infonce"
        ):
            raise ValueError(
                "`subgraph_positive='masked'` needs `subgraph_anchors='masked'`"
                " and `local_form='infonce'`"
            )
        if self.skip_symmetric and self.local_form != "infonce":
            raise ValueError(
                "`skip_symmetric=True`, which the recipe 'graphlog' sets, needs "
                "`local_form='infonce'`; set it to false"
            )
        local = self.graph_weight + self.subgraph_weight + self.attribute_weight
        if local + self.global_weight + self.descriptor_weight == 0:
            raise ValueError("at least one of the loss weights must be above 0")
        if self.substructure_weight > 0 and self.descriptor_weight == 0:
            raise ValueError("`substructure_weight` needs a `descriptor_weight` above 0")
        if self.global_weight > 0 and self.local_epochs == 0:
            raise ValueError(
                "`local_epochs` must be at least 1: clusters of an untrained network mean nothing;"
                " or set `global_weight=0`"
            )
        return self


PAPER: Mapping[str, Any] = {
    "global_weight": 1.0,
    "attribute_weight": 0.0,
    "local_form": "margin",
    "initialization": "kmeans",
    "min_roots": 1,
    "kmeans_sample": "all",
    "e_step": "sample",
    "e_step_temperature": 1.0,
    "prototype_rate": 1.0,
    "global_form": "nce",
}
"""Settings of the paper that differ from the defaults. Its equations are followed exactly; only its
rule for the number of centers (``centers_rule``) cannot be."""

RELEASED: Mapping[str, Any] = {
    "attribute_weight": 0.0,
    "masked_columns": "first",
    "temperature": 0.04,
    "subgraph_anchors": "masked",
    "subgraph_positive": "masked",
    "cosine_eps": 1e-6,
    "projection_head": True,
    "initialization": "competitive",
    "kmeans_sample": "all",
    "e_step": "greedy",
    "e_step_temperature": 0.04,
    "prototype_rate": 1.0,
    "prototype_candidates": "siblings",
}
"""Settings of the authors' script that differ from the defaults."""

GRAPHLOG: Mapping[str, Any] = {"attribute_weight": 0.0, "skip_symmetric": True}
"""Modified losses of the paper, for any graphs: prototypes stay in use, and no negative is
indistinguishable from its anchor. Heads and stronger views did not help frozen probes."""

CHEMISTRY: Mapping[str, Any] = {
    "graph_weight": 0.0,
    "subgraph_weight": 0.0,
    "global_weight": 0.01,
    "attribute_weight": 0.0,
    "descriptor_weight": 1.0,
    "substructure_weight": 0.5,
}
"""Prediction of descriptors with a small global loss (not in the paper). Without a local loss, a
step needs no second view and takes half the time."""


class GraphLoGViews(NamedTuple):
    """A batch and its correlated counterpart."""

    clean: GraphBatch
    """The original graphs."""
    view: MaskedView | None = None
    """The same graphs with masked attributes; None if no loss uses them."""


class GraphLoG(Objective[GraphLoGViews]):
    """The objective of Algorithm 1.

    A ``local`` phase (Eq. 8) is followed by the fit of the prototypes and a ``joint`` phase (Eqs. 8
    and 20). The parameters are the prototypes and the heads that the settings ask for; they are
    stored with a run, and none is part of the encoder.
    """

    Config: ClassVar[type[FrozenConfig]] = GraphLoGConfig
    masks = True
    RECIPES: ClassVar[Recipes] = {
        "default": chemistry_recipe(**CHEMISTRY),
        "graphlog": comparison_recipe(**GRAPHLOG),
        "paper": {**comparison_recipe(**PAPER), "schema": "molecule", "embedding": "last"},
        "released": {**comparison_recipe(**RELEASED), "schema": "molecule", "embedding": "last"},
    }
    RECIPE_NOTES: ClassVar[Mapping[str, str]] = {
        "default": "unless set otherwise, the recipe 'default' leaves GraphLoG's local losses out:"
        " the encoder learns to predict descriptors (recipe 'graphlog' trains the losses).",
        "paper": "the equations as printed have collapsed embeddings among their optima"
        " (effective rank 2 of 300 was measured); see the docs.",
        "released": "the authors' script tends to end with all graphs in one chain of prototypes,"
        " where its global loss has no effect; see the docs.",
    }

    def __init__(self, config: GraphLoGConfig, encoder: GraphEncoder) -> None:
        super().__init__(config, encoder)
        self.config, self.schema = config, encoder.schema
        width = encoder.dim
        self.head = ProjectionHead(width) if config.projection_head else None
        self.attributes = AttributeHead(width, self.schema) if config.attribute_weight > 0 else None
        self.descriptors, self.substructures = None, None
        if config.descriptor_weight > 0:
            targets = config.target_columns or target_count(self.schema)
            self.descriptors = RegressionHead(encoder, targets)
            if config.substructure_weight > 0:
                self.substructures = RegressionHead(encoder, COMPONENTS)
        self.needs_targets = self.descriptors is not None
        self.needs_substructures = self.substructures is not None
        self.prototypes = nn.ParameterList()

    @classmethod
    def recipe_for(cls, domain: str) -> str:
        """Return ``default`` for molecules, which have descriptors, else ``graphlog``."""
        return "default" if domain == "molecule" else "graphlog"

    @property
    def forest(self) -> PrototypeForest | None:
        """The current prototypes; None before the joint phase."""
        if not self.prototypes:
            return None
        parents = [self.get_buffer(f"parents_{level}") for level in range(1, len(self.prototypes))]
        return PrototypeForest(list(self.prototypes), parents)

    def set_forest(self, forest: PrototypeForest) -> None:
        """Replace the prototypes by trainable copies of those of ``forest``; the tree is fixed."""
        for level in range(1, len(self.prototypes)):
            delattr(self, f"parents_{level}")
        self.prototypes = nn.ParameterList(
            nn.Parameter(layer.detach().clone()) for layer in forest.layers
        )
        for level, parent in enumerate(forest.parents, start=1):
            self.register_buffer(f"parents_{level}", parent.clone())

    def prepare_state(self, state: Mapping[str, Tensor]) -> None:
        """Create the prototypes that ``state`` contains, so that it can be loaded next."""
        forest = PrototypeForest.from_state(state)
        if forest is not None:
            self.set_forest(forest)

    def phases(self, epochs: int) -> tuple[Phase, ...]:
        """Return the local and the joint phase (Algorithm 1), without phases of no epochs.

        The local phase exists whatever the weights: the clusters of an untrained network, whose
        statistics of batch normalization are not those of any graphs, mean nothing.
        """
        c = self.config
        local = epochs if c.global_weight == 0 else min(c.local_epochs, epochs)
        phases = (Phase("local", local), Phase("joint", epochs - local))
        return tuple(phase for phase in phases if phase.epochs > 0)

    def phases_note(self, epochs: int) -> str | None:
        """Return a note if no prototypes will be learned, or if their loss has no gradient."""
        c = self.config
        if c.global_weight > 0 and epochs <= c.local_epochs:
            return (
                f"no prototypes will be learned: epochs = {epochs} leaves none after the local "
                f"ones (objective.local_epochs = {c.local_epochs}); train for {c.local_epochs + 1} "
                "or more."
            )
        is_own = c.e_step_temperature == (c.prototype_temperature or c.temperature)
        if c.global_weight > 0 and c.global_form != "nce" and c.e_step == "sample" and is_own:
            return (
                "prototypes are drawn from the model's own distribution, so the prototype loss has "
                "no gradient at the top layer in expectation: set objective.e_step = 'balanced'."
            )
        return None

    def begin_phase(self, phase: Phase, embed: EmbedStore, generator: Generator) -> None:
        """Fit the prototypes to the embeddings at the beginning of the joint phase."""
        if phase.name != "joint":
            return
        c = self.config
        limit = None if c.kmeans_sample == "all" else c.kmeans_sample
        emb = full_precision(embed(limit, c.initialization != "competitive"))
        if self.head is not None:
            with torch.no_grad():
                emb = torch.cat([self.head(part) for part in emb.split(8192)])
        common: Any = {"depth": c.depth, "centers": c.centers, "generator": generator}
        if c.initialization == "balanced":
            forest = fit_balanced_forest(emb, roots=c.min_roots, **common)
        elif c.initialization == "kmeans":
            forest = fit_forest(
                emb,
                centers_rule=c.centers_rule,
                min_members=c.min_members,
                min_roots=c.min_roots,
                space=c.kmeans_space,
                **common,
            )
        else:
            forest = fit_competitive(
                emb,
                passes=c.competitive_passes,
                decay=c.competitive_decay,
                min_members=c.min_members,
                **common,
            )
        self.set_forest(forest)

    def learning_rate_factors(self) -> Mapping[str, float]:
        """Return ``prototype_rate`` for the prototypes."""
        return {"prototypes": self.config.prototype_rate}

    def views(self, batch: GraphBatch, generator: Generator) -> GraphLoGViews:
        """Return the batch and its correlated counterpart (Eq. 5)."""
        c = self.config
        weights = self._weights()
        if weights["graph"] + weights["subgraph"] + weights["attribute"] == 0:
            return GraphLoGViews(batch)  # no loss compares graphs with their views
        masked = mask_attributes(batch, self.schema, c.mask_rate, generator, c.masked_columns)
        return GraphLoGViews(batch, masked)

    def loss(self, views: GraphLoGViews, encoder: GraphEncoder, generator: Generator) -> LossTerms:
        """Return the local losses (Eq. 9) and, once prototypes are fitted, the global loss.

        Implements Eq. 9, Eq. 20 and the body of the loop of Algorithm 1, whose M-step is the
        optimizer step on the total: the plain sum of the paper if all weights are 1.
        """
        weights, terms, watch = self._weights(), dict[str, Tensor](), dict[str, Tensor]()
        embedding = None
        if self.descriptors is None:
            clean = encoder(views.clean)
        else:
            clean, embedding = encoder.encode_and_embed(views.clean)
        if views.view is not None:
            view = encoder(views.view.batch)
            if weights["graph"] > 0:
                pair = self._graph_term(clean.graph_emb, view.graph_emb, generator)
                terms["graph"] = pair.loss
                watch |= {"cos_graph_pos": pair.positive, "cos_graph_neg": pair.negative}
            if weights["subgraph"] > 0:
                pair = self._subgraph_term(clean.node_emb, view.node_emb, views, encoder, generator)
                terms["subgraph"] = pair.loss
                watch |= {"cos_node_pos": pair.positive, "cos_node_neg": pair.negative}
            if self.attributes is not None:
                terms["attribute"] = self.attributes.loss(view.node_emb, views.view)
        if (forest := self.forest) is not None and weights["global"] > 0:
            emb = _project(self.head, clean.graph_emb)
            with torch.autocast(emb.device.type, enabled=False):
                terms["global"], statistics = self._global_term(emb, forest, generator)
            watch |= statistics
        if self.descriptors is not None and embedding is not None:
            y = views.clean.y
            terms |= descriptor_losses(self.descriptors, self.substructures, embedding, y)
        total = torch.stack([weights[name] * term for name, term in terms.items()]).sum()
        return LossTerms(total, terms, watch)

    def _weights(self) -> dict[str, float]:
        c = self.config
        names = ("graph", "subgraph", "attribute", "descriptor", "substructure", "global")
        weights: dict[str, float] = {name: getattr(c, f"{name}_weight") for name in names}
        if self.forest is None and sum(weights.values()) == weights["global"]:
            weights |= {"graph": 1.0, "subgraph": 1.0}  # the local phase of Algorithm 1 (Eq. 9)
        return weights

    def _graph_term(self, graph_emb: Tensor, view_emb: Tensor, generator: Generator) -> PairLoss:
        c = self.config
        graph_emb, view_emb = _project(self.head, graph_emb), _project(self.head, view_emb)
        with torch.autocast(graph_emb.device.type, enabled=False):
            return graph_loss(
                graph_emb,
                view_emb,
                form=c.local_form,
                temperature=c.temperature,
                eps=c.cosine_eps,
                generator=generator,
            )

    def _subgraph_term(
        self,
        node_emb: Tensor,
        view_emb: Tensor,
        views: GraphLoGViews,
        encoder: GraphEncoder,
        generator: Generator,
    ) -> PairLoss:
        c, clean, colors = self.config, views.clean, None
        assert views.view is not None, "the subgraph loss needs views"
        masked_idx = views.view.node_idx
        if c.skip_symmetric:
            colors = refine_colors(
                clean.x,
                clean.edge_attr,
                clean.adjacency,
                rounds=len(encoder.layers),
                with_degrees=encoder.needs_degrees,
            )
        rows = masked_idx if c.subgraph_anchors == "masked" else None
        node_emb, view_emb = _project(self.head, node_emb), _project(self.head, view_emb, rows)
        with torch.autocast(node_emb.device.type, enabled=False):
            return subgraph_loss(
                node_emb,
                view_emb,
                clean.ptr,
                masked_idx,
                form=c.local_form,
                temperature=c.temperature,
                eps=c.cosine_eps,
                anchors=c.subgraph_anchors,
                positive=c.subgraph_positive,
                colors=colors,
                generator=generator,
                host_ptr=clean.host_ptr,
            )

    def _global_term(
        self, emb: Tensor, forest: PrototypeForest, generator: Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Assign chains to the graphs (E-step); return the global loss, and values to log."""
        c, tau = self.config, self.config.e_step_temperature
        if c.e_step == "balanced":
            chains = balanced_chains(emb, forest, temperature=tau, eps=c.cosine_eps)
        elif c.e_step == "greedy":
            chains = greedy_chains(emb, forest, c.cosine_eps)
        else:
            chains = sample_chains(emb, forest, temperature=tau, generator=generator)
        watch = prototype_statistics(emb, chains, forest, temperature=tau)
        if c.global_form == "nce":
            noise = corrupt_chains(chains, forest, generator)
            return nce_loss(emb, chains, noise, forest), watch
        loss = prototype_cross_entropy(
            emb,
            chains,
            forest,
            temperature=c.prototype_temperature or c.temperature,
            candidates=c.prototype_candidates,
            eps=c.cosine_eps,
        )
        return loss, watch


def _project(head: nn.Module | None, emb: Tensor, rows: Tensor | None = None) -> Tensor:
    """Return projections in full precision; with ``rows``, all other rows are zero."""
    if head is None:
        return full_precision(emb)
    if rows is None:
        return full_precision(head(emb))
    projected = full_precision(head(emb[rows]))
    return projected.new_zeros(emb.shape[0], projected.shape[1]).index_copy(0, rows, projected)
