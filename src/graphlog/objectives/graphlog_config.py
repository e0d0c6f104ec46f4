"""GraphLoG's settings, one wherever paper and released script differ, and its recipes."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from graphlog.config import FrozenConfig
from graphlog.encoders.encoder import EmbeddingLayer
from graphlog.objectives.base import chemistry, comparison
from graphlog.objectives.global_semantic import Candidates
from graphlog.objectives.heads import AttributeColumns
from graphlog.objectives.local_instance import Anchors, LocalForm, Positive
from graphlog.prototypes.fit import CentersRule, Space
from graphlog.views.masking import MaskedColumns

GlobalForm = Literal["nce", "cross-entropy"]


class GraphLoGConfig(FrozenConfig):
    """What GraphLoG is made of; recipes are bundles of these settings."""

    local_epochs: int = Field(1, ge=0)
    """Epochs with the local losses alone, before prototypes are fitted (Algorithm 1); at least 1
    where there are prototypes. Without any local weight, the two losses of Eq. 9 are used."""
    graph_weight: float = Field(1.0, ge=0)
    """Weight of the graph loss (Eq. 6); 0 leaves it out."""
    subgraph_weight: float = Field(1.0, ge=0)
    """Weight of the subgraph loss (Eq. 7); 0 leaves it out."""
    global_weight: float = Field(0.1, ge=0)
    """Weight of the prototype loss (Eq. 19); 0 leaves out prototypes and the joint phase."""
    attribute_weight: float = Field(1.0, ge=0)
    """Weight of predicting the masked attributes, which is not in the paper; 0 leaves it out."""
    attribute_columns: AttributeColumns = "first"
    """Predict the first masked column (the atom type; of an edge with several kinds of evidence,
    the first that it has) or all of them."""
    descriptor_weight: float = Field(0.0, ge=0)
    """Weight of predicting descriptors from the graph embedding, which is not in the paper; 0
    leaves it out."""
    descriptor_layer: EmbeddingLayer = "last"
    """Predict them from all layers' means, or from the graph embedding of the last layer."""
    descriptor_hidden: int | None = Field(None, ge=1)
    """Width of the layer between embedding and descriptors; None: that of the embedding."""
    descriptor_robust: bool = False
    """Huber's error of descriptors in place of the squared one."""
    substructure_weight: float = Field(0.0, ge=0)
    """Weight of predicting the components of the counts of substructures beside the descriptors; 0
    leaves it out."""

    mask_rate: float = Field(0.3, ge=0, lt=1)
    """Share of a graph's nodes (or edges) whose attributes are masked."""
    mask_rate_max: float | None = Field(None, ge=0, lt=1)
    """Every graph draws its share between ``mask_rate`` and this; None: all have ``mask_rate``."""
    drop_rate: float = Field(0.0, ge=0, lt=1)
    """Share of a graph's nodes that its view lacks, one connected subgraph; 0 drops none."""
    masked_columns: MaskedColumns = "all"
    """``first``: only the first column gets its mask code, the others 0 (script: chirality
    "unspecified")."""

    local_form: LocalForm = "infonce"
    """``margin``: differences of cosines with one drawn negative (Eqs. 6-7); ``infonce``:
    softmax over all negatives (script)."""
    temperature: float = Field(0.1, gt=0)
    """Divides cosines in every softmax loss."""
    subgraph_anchors: Anchors = "all"
    """Nodes whose subgraphs are anchors: all (paper) or the masked ones (script; for edges:
    nodes touching a masked edge)."""
    subgraph_positive: Positive = "own"
    """Positive of a subgraph: itself (paper) or any masked node of its graph (script)."""
    cosine_eps: float = Field(0.0, ge=0)
    """Added to the denominators of cosines and softmaxes (script: 1e-6)."""
    projection_head: bool = False
    """Compare a two-layer projection of the embeddings instead of the embeddings (script);
    prototypes live in the projected space too."""
    local_heads: bool = False
    """Compare projections of graphs and of nodes, each with a head of its own, in the local losses
    only, so that the embedding itself need not be invariant."""
    skip_symmetric: bool = False
    """Leave out negatives of a node that the encoder cannot tell from it; as negatives they put
    a floor under the subgraph loss."""

    depth: int = Field(3, ge=1)
    """Layers of prototypes."""
    centers: int = Field(50, ge=1)
    """Centers of each clustering."""
    min_members: int = Field(2, ge=1)
    """Clusters with fewer members are discarded."""
    centers_rule: CentersRule = "halve"
    """Centers of a layer of few points: at most half as many, or ``literal``, which discards
    every upper layer."""
    initialization: Literal["balanced", "kmeans", "competitive"] = "balanced"
    """Equal shares for the prototypes of every layer, so that none above the leaves stands empty;
    K-means (paper); or moving averages and rival-penalized competition (script)."""
    min_roots: int = Field(4, ge=1)
    """Prototypes of the top layer, as far as the layer below has that many; K-means may leave
    more."""
    kmeans_space: Space = "raw"
    """Cluster embeddings as they are or scaled to length 1. Prototypes much shorter than the
    embeddings are moved by their own length in a few steps and fall out of use."""
    kmeans_sample: int = Field(20_000, ge=0)
    """Graphs that the prototypes are fitted on; 0: all of them."""
    competitive_passes: int = Field(5, ge=1)
    """Passes over the collection of the competitive initialization."""
    competitive_decay: float = Field(0.95, gt=0, lt=1)
    """Weight of the old center in every move of the competitive initialization."""

    e_step: Literal["balanced", "sample", "greedy"] = "balanced"
    """``balanced``: leaves get equal shares of the batch (Sinkhorn), ancestors follow from the
    tree; ``sample``: draw chains (Eq. 12); ``greedy``: the nearest prototype down (script)."""
    e_step_temperature: float = Field(0.05, gt=0)
    """Temperature of the assignment. The paper's is 1. Chains drawn at the temperature of the
    cross-entropy leave it without a gradient in expectation."""
    prototype_temperature: float | None = Field(None, gt=0)
    """Divides the cosines of the cross-entropy over prototypes; None: ``temperature`` does."""
    prototype_rate: float = Field(10.0, gt=0)
    """Learning rate of the prototypes, as a multiple of the others'."""
    global_form: GlobalForm = "cross-entropy"
    """``nce``: difference of energies with noise chains (Eq. 19); ``cross-entropy``: softmax
    over prototypes."""
    prototype_candidates: Candidates = "layer"
    """Candidates of the cross-entropy: the whole layer, or only the children of the prototype
    above (script)."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.subgraph_positive == "masked" and (
            self.subgraph_anchors != "masked" or self.local_form != "infonce"
        ):
            raise ValueError(
                "`subgraph_positive='masked'` needs `subgraph_anchors='masked'`"
                " and `local_form='infonce'`"
            )
        if self.mask_rate_max is not None and self.mask_rate_max < self.mask_rate:
            raise ValueError("`mask_rate_max` must not be below `mask_rate`")
        weights = (
            self.graph_weight,
            self.subgraph_weight,
            self.global_weight,
            self.attribute_weight,
            self.descriptor_weight,
        )
        if sum(weights) == 0:
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
    "graph_weight": 1.0,
    "subgraph_weight": 1.0,
    "global_weight": 1.0,
    "attribute_weight": 0.0,
    "masked_columns": "all",
    "local_form": "margin",
    "subgraph_anchors": "all",
    "subgraph_positive": "own",
    "cosine_eps": 0.0,
    "projection_head": False,
    "depth": 3,
    "centers": 50,
    "min_members": 2,
    "centers_rule": "halve",
    "initialization": "kmeans",
    "min_roots": 1,
    "kmeans_space": "raw",
    "kmeans_sample": 0,
    "e_step": "sample",
    "e_step_temperature": 1.0,
    "prototype_rate": 1.0,
    "global_form": "nce",
}
"""The equations to the letter; the one rule that cannot be followed to the letter is
``centers_rule``."""

RELEASED: Mapping[str, Any] = {
    "graph_weight": 1.0,
    "subgraph_weight": 1.0,
    "global_weight": 0.1,
    "attribute_weight": 0.0,
    "masked_columns": "first",
    "local_form": "infonce",
    "temperature": 0.04,
    "subgraph_anchors": "masked",
    "subgraph_positive": "masked",
    "cosine_eps": 1e-6,
    "projection_head": True,
    "depth": 3,
    "centers": 50,
    "min_members": 2,
    "initialization": "competitive",
    "kmeans_sample": 0,
    "competitive_passes": 5,
    "competitive_decay": 0.95,
    "e_step": "greedy",
    "e_step_temperature": 0.04,
    "prototype_rate": 1.0,
    "global_form": "cross-entropy",
    "prototype_candidates": "siblings",
}
"""The authors' script to the letter."""

GRAPHLOG: Mapping[str, Any] = {"attribute_weight": 0.0, "skip_symmetric": True}
"""The paper's three losses alone, mended, on any graph: prototypes stay in use, no negative is
impossible to tell from its anchor. Heads and stronger views did not help frozen probes."""

CHEMISTRY: Mapping[str, Any] = {
    "graph_weight": 0.0,
    "subgraph_weight": 0.0,
    "global_weight": 0.01,
    "attribute_weight": 0.0,
    "descriptor_weight": 1.0,
    "descriptor_layer": "jk",
    "descriptor_hidden": 512,
    "descriptor_robust": True,
    "substructure_weight": 0.5,
}
"""Outside the paper: descriptors lead, prototypes follow the embedding. Without a local term a step
needs one view, so it takes half the time."""

RECIPES: Mapping[str, Mapping[str, Any]] = {
    "default": chemistry(**CHEMISTRY),
    "graphlog": comparison(**GRAPHLOG),
    "paper": {**comparison(**PAPER), "schema": "molecule", "embedding": "last"},
    "released": {**comparison(**RELEASED), "schema": "molecule", "embedding": "last"},
}
"""Whole set-ups by name, for :func:`graphlog.pretrain` and ``--recipe``."""

RECIPE_NOTES: Mapping[str, str] = {
    "paper": "the equations as printed have collapsed embeddings among their optima"
    " (effective rank 2 of 300 was measured); see the docs.",
    "released": "the authors' script tends to end with all graphs in one chain of prototypes,"
    " its global term switched off; see the docs.",
}
"""What to tell whoever chooses a recipe, in one line."""
