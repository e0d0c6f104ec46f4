"""The tree of prototypes of a model, where graphs stand in it, and their places on a plane."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int

from graphlog.data.store import GraphStore
from graphlog.downstream.pretrained import Encoder, evaluating, ranges_of
from graphlog.encoders.novelty import Novelty, fit_novelty
from graphlog.errors import ConfigError, ModelFileError, setting
from graphlog.objectives.base import ProjectionHead
from graphlog.ops.contrastive import cosine_similarity, unit_rows
from graphlog.prototypes import PrototypeForest, fit_balanced_forest, greedy_chains, leaf_chains
from graphlog.training.log import Progress
from graphlog.training.settings import Precision, seed_for

_FITTED_TO = 50_000
"""Graphs that a tree is fitted to."""


@dataclass(frozen=True, slots=True)
class Assignments:
    """Where ``N`` graphs stand in a hierarchy of ``Lp`` layers."""

    paths: Int[np.ndarray, "N Lp"]
    """Prototype of each layer, roots first (see :attr:`Hierarchy.by_leaf`)."""
    similarities: Float[np.ndarray, "N Lp"]
    """Cosine of the graph and each prototype of its path."""
    novelty: Float[np.ndarray, "N"] | None
    """Percentile, 0 to 100, among the graphs that the model was trained on or the tree fitted to;
    None where the model does not know them."""
    oddest: Int[np.ndarray, "K"]
    """The graphs by distance from those, farthest first; none where it does not know them."""


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Prototypes and the space they live in: the last layer's graph embedding, behind the head."""

    model: Encoder
    """What embeds."""
    forest: PrototypeForest
    """The prototypes, roots first."""
    head: Callable[[torch.Tensor], torch.Tensor] | None
    """What stands between embedding and prototypes, if anything: projection or standardization."""
    novelty: Novelty | None
    """What novelty is judged by; None where the model has none."""
    by_leaf: bool = False
    """Whether a graph's path is its nearest leaf and that leaf's ancestors, as balanced assignments
    have it, or the walk of Eq. 12 at temperature 0, at each step to the nearest child."""

    @classmethod
    def of(cls, model: Encoder) -> Self | None:
        """Return the hierarchy of a model; None where its file holds no prototypes.

        Raises:
            ModelFileError: If it holds prototypes but not the head they were trained behind.
        """
        try:
            forest = PrototypeForest.from_state(
                {name: tensor.to(model.device) for name, tensor in model.extra.items()}
            )
            if forest is None:
                return None
            forest.check()
        except ValueError as e:
            raise ModelFileError(f"the prototypes stored with the model are damaged: {e}") from None
        novelty = Novelty.of(model.extra, model.width("jk"))
        settings = model.info.get("settings", {}).get("objective", {})
        by_leaf = settings.get("e_step") == "balanced"
        if not settings.get("projection_head", "head.0.weight" in model.extra):
            return cls(model, forest, None, novelty, by_leaf)
        head = ProjectionHead(forest.layers[0].shape[1])
        weights = {
            name.removeprefix("head."): tensor
            for name, tensor in model.extra.items()
            if name.startswith("head.")
        }
        try:
            head.load_state_dict(weights)
        except RuntimeError:
            raise ModelFileError(
                "the model has prototypes but not the projection head they were trained with; "
                "use the model of the pre-training run."
            ) from None
        return cls(model, forest, head.to(model.device).eval(), novelty, by_leaf)

    @classmethod
    def fitted(
        cls,
        model: Encoder,
        store: GraphStore,
        *,
        depth: int = 3,
        centers: int = 50,
        seed: int = 0,
        **computing: Any,
    ) -> Self:
        """Return a tree fitted to the embeddings of ``store``, with equal shares for its leaves.

        It serves any encoder, whatever it was trained by; of large stores a sample is used.

        Args:
            model: The encoder.
            store: The collection.
            depth: Layers of the tree.
            centers: Leaves.
            seed: Of the sample and the clusterings.
            computing: As for :meth:`Encoder.embed_store`.

        Raises:
            ConfigError: If there are fewer than two graphs.
        """
        rows = sample_rows(len(store), _FITTED_TO, seed)
        emb = torch.from_numpy(model.embed_store(store.subset(rows), "last", **computing))
        # embeddings of most encoders share a large common part, which cosines would see first
        mean, deviation = emb.mean(dim=0), emb.std(dim=0, unbiased=False)
        scale = torch.where(deviation > 1e-6 * deviation.max(), deviation, 1.0)

        def head(emb: torch.Tensor) -> torch.Tensor:
            return (emb - mean) / scale

        forest = fit_balanced_forest(
            head(emb),
            depth=depth,
            centers=centers,
            generator=torch.Generator().manual_seed(seed_for(seed, "hierarchy")),
        )
        with evaluating(model):
            novelty = fit_novelty(model.network, store, seed)
        return cls(model, forest, head, novelty, by_leaf=True)

    @property
    def parents(self) -> list[Int[np.ndarray, "_"]]:
        """For each layer but the first, the parent of each prototype in the layer above."""
        return [parent.cpu().numpy() for parent in self.forest.parents]

    def embed(
        self, store: GraphStore, precision: Precision = "fp32", progress: Progress | None = None
    ) -> Float[np.ndarray, "N D"]:
        """Return the graphs of ``store`` in the space of the prototypes."""
        values = self.model.embed_store(store, "last", precision=precision, progress=progress)
        return self._projected(values).cpu().numpy()

    def assign(
        self,
        store: GraphStore,
        *,
        batch_size: int = 2048,
        precision: Precision = "fp32",
        progress: Progress | None = None,
    ) -> Assignments:
        """Return path, similarities and novelty of every graph; memory is a few numbers a graph."""
        depth = self.forest.depth
        paths = np.empty((len(store), depth), dtype=np.int64)
        similarities = np.empty((len(store), depth), dtype=np.float32)
        distances = np.empty(len(store))
        network, width = self.model.network, self.model.width("last")
        for graphs, values in self.model.embed_batches(
            ranges_of(store, batch_size),
            batch_size=batch_size,
            function=network.embed_twice,
            precision=precision,
            progress=progress,
            total=len(store),
        ):
            emb = self._projected(values[:, :width])
            cosines = [cosine_similarity(emb, layer) for layer in self.forest.layers]
            if self.by_leaf:
                chains = leaf_chains(cosines[-1].argmax(dim=1), self.forest)
            else:
                chains = greedy_chains(emb, self.forest)
            paths[graphs] = chains.cpu().numpy()
            for level, cosine in enumerate(cosines):
                own = cosine.gather(1, chains[:, level, None])[:, 0]
                similarities[graphs, level] = own.cpu().numpy()
            if self.novelty is not None:
                distances[graphs] = self.novelty.distances(values[:, width:])
        if self.novelty is None:
            return Assignments(paths, similarities, None, np.empty(0, dtype=np.int64))
        percentiles = self.novelty.percentiles(distances)
        return Assignments(paths, similarities, percentiles, np.argsort(-distances, kind="stable"))

    def _projected(self, values: Float[np.ndarray, "N D"]) -> torch.Tensor:
        emb = torch.from_numpy(values).to(self.forest.layers[0].device)
        if self.head is None:
            return emb
        with torch.no_grad():
            return self.head(emb)


def hierarchy_of(model: Encoder, name: str) -> Hierarchy:
    """Return the hierarchy of a model that must have one.

    Args:
        model: The model.
        name: What to call it.

    Raises:
        ConfigError: If it has none.
    """
    hierarchy = Hierarchy.of(model)
    if hierarchy is None:
        objective = model.info.get("objective")
        why = "was not pre-trained" if objective is None else f"was pre-trained with '{objective}'"
        if objective == "graphlog":
            why = "was stopped before its prototypes were fitted, or its recipe has none"
        raise ConfigError(
            f"{name} has no prototypes: it {why}; name a model that has some, or add "
            f"{setting('fit', True)}.",
            option="fit",
        )
    return hierarchy


def project(embeddings: Float[np.ndarray, "N D"], seed: int = 0) -> Float[np.ndarray, "N 2"]:
    """Return a t-SNE map under cosine distance; principal components for fewer than five rows.

    openTSNE is used where it is installed, else scikit-learn; both start from the principal
    components.
    """
    unit = unit_rows(torch.tensor(embeddings)).double().numpy()
    if len(unit) < 5:
        left, scale, _ = np.linalg.svd(unit - unit.mean(axis=0), full_matrices=False)
        plane = (left * scale)[:, :2]
        return np.pad(plane, ((0, 0), (0, 2 - plane.shape[1])))
    settings: dict[str, Any] = {"perplexity": min(30.0, (len(unit) - 1) / 3), "random_state": seed}
    try:
        from openTSNE import TSNE
    except ImportError:
        from sklearn import manifold

        layout = manifold.TSNE(init="pca", learning_rate="auto", **settings).fit_transform(unit)
        return np.asarray(layout, dtype=np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layout: Any = TSNE(initialization="pca", n_jobs=1, **settings).fit(unit)
        return np.asarray(layout, dtype=np.float64)


def sample_rows(total: int, limit: int, seed: int = 0) -> npt.NDArray[np.int64]:
    """Return at most ``limit`` of ``total`` row numbers, drawn without replacement, sorted."""
    if total <= limit:
        return np.arange(total)
    return np.sort(np.random.default_rng(seed).choice(total, size=limit, replace=False))
