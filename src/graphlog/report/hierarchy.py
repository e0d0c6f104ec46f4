"""The tree of prototypes: paths of graphs; size, typical graphs and traits of each prototype."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.stats import false_discovery_control, hypergeom, mode, norm, rankdata

from graphlog.data.split import group_numbers
from graphlog.data.store import GraphStore, sample_rows
from graphlog.domains import domain_of
from graphlog.domains.base import CommonPart, Draws, GraphFeature
from graphlog.domains.repeats import repeat_kinds
from graphlog.downstream.pretrained import Encoder, evaluating, ranges_of
from graphlog.encoders.modelfile import tensors_below
from graphlog.encoders.novelty import Novelty, fit_novelty, refit_novelty
from graphlog.errors import ConfigError, DataError, ModelFileError, setting
from graphlog.objectives.base import ProjectionHead
from graphlog.ops.contrastive import cosine_similarity, unit_rows
from graphlog.prototypes import PrototypeForest, fit_balanced_forest, greedy_chains, leaf_chains
from graphlog.training.log import Progress
from graphlog.training.settings import Precision, seed_for

_MAX_FITTED = 50_000
"""Largest number of graphs that a tree is fitted to; larger collections are sampled."""
_MIN_EFFECT = 0.3
"""Smallest effect of a trait, in standard deviations: between small and medium (Cohen)."""
_MIN_KNOWN = 5
"""Smallest number of members with a known value for which a feature is tested."""
_MAX_TRAITS = 8
"""Largest number of traits that are kept for a group."""
_TYPICAL_SHARE = 0.5
"""Smallest share of the members with a feature for which the feature alone names the group."""
_SIGNIFICANT = 0.05
"""Largest q-value of a trait (Benjamini and Hochberg)."""
WIDTH, HEIGHT = 200, 140
"""Size of a drawing, in pixels."""


@dataclass(frozen=True, slots=True)
class Assignments:
    """Paths of ``N`` graphs in a hierarchy of ``Lp`` layers."""

    paths: Int[np.ndarray, "N Lp"]
    """Number of the prototype in each layer, roots first (see :attr:`Hierarchy.by_leaf`)."""
    similarities: Float[np.ndarray, "N Lp"]
    """Cosine of the graph and each prototype of its path."""
    novelty: Float[np.ndarray, "N"] | None
    """Percentile, 0 to 100, of the distance of each graph among the graphs that the model was
    trained on or the tree was fitted to; None if the model does not describe these."""
    by_novelty: Int[np.ndarray, "K"]
    """The graphs by decreasing novelty, then distance; empty if novelty is None."""


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Prototypes, and how graphs are embedded to compare them: by the last layer, then the head."""

    model: Encoder
    """The encoder."""
    forest: PrototypeForest
    """The prototypes, roots first."""
    head: Callable[[torch.Tensor], torch.Tensor] | None
    """Function applied to embeddings: projection head, or standardization of a fitted tree."""
    novelty: Novelty | None
    """Model of novelty; None if the encoder has none."""
    by_leaf: bool = False
    """Whether the path of a graph is its nearest leaf and the ancestors of this leaf, as for
    balanced assignments. Otherwise the path starts at the nearest root and goes on to the nearest
    child in each layer (Eq. 12 at temperature 0)."""
    fitted_to: tuple[str | None, int] = (None, 0)
    """Digest of the collection that novelty was fitted to, and the seed of that fit."""

    @classmethod
    def of(cls, model: Encoder) -> Self | None:
        """Return the hierarchy of a model, or None if its file has no prototypes.

        Raises:
            ModelFileError: If the prototypes are damaged, or their projection head is missing.
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
        novelty, head = Novelty.of(model.extra, model.width("jk")), None
        settings = model.info.get("settings", {}).get("objective", {})
        if settings.get("projection_head", "head.0.weight" in model.extra):
            head = ProjectionHead(forest.layers[0].shape[1])
            try:
                head.load_state_dict(tensors_below(model.extra, "head."))
            except RuntimeError:
                raise ModelFileError(
                    "the model has prototypes but not the projection head they were trained with; "
                    "use the model of the pre-training run."
                ) from None
            head.to(model.device).eval()
        fitted_to = model.info.get("data_digest"), model.info.get("seed", 0)
        return cls(model, forest, head, novelty, settings.get("e_step") == "balanced", fitted_to)

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
        """Return a tree fitted to the embeddings of ``store``, with leaves of similar size.

        This works with any encoder. Large stores are sampled.

        Args:
            model: The encoder.
            store: The collection.
            depth: Number of layers of the tree.
            centers: Number of leaves.
            seed: Seed of the sample and of the clusterings.
            computing: As for :meth:`Encoder.embed_store`.

        Raises:
            ConfigError: If there are fewer than two graphs.
        """
        rows = sample_rows(len(store), _MAX_FITTED, seed)
        emb = torch.from_numpy(model.embed_store(store.subset(rows), "last", **computing))
        # most encoders add a large constant to all embeddings, which would dominate the cosines
        mean, sd = emb.mean(dim=0), emb.std(dim=0, unbiased=False)
        scale = torch.where(sd > 1e-6 * sd.max(), sd, 1.0)

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
        return cls(model, forest, head, novelty, True, (store.digest, seed))

    @property
    def parents(self) -> list[Int[np.ndarray, "_"]]:
        """Parent of each prototype in the layer above it, for each layer except the first."""
        return [parent.cpu().numpy() for parent in self.forest.parents]

    def embed(
        self, store: GraphStore, precision: Precision = "fp32", progress: Progress | None = None
    ) -> Float[np.ndarray, "N D"]:
        """Return the embeddings of graphs, after the head, to compare them with the prototypes."""
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
        """Return the path, the similarities and the novelty of every graph.

        In the collection that novelty was fitted to, two fits to different halves are used, so that
        the novelty of a graph is never computed by a fit that includes this graph.
        """
        depth = self.forest.depth
        paths = np.empty((len(store), depth), dtype=np.int64)
        similarities = np.empty((len(store), depth), dtype=np.float32)
        distances, percentiles = np.empty((2, len(store)))
        fits = [] if self.novelty is None else [self.novelty]
        fit_of_graph, (digest, seed) = np.zeros(len(store), dtype=np.int64), self.fitted_to
        if fits and store.digest == digest:
            with evaluating(self.model):
                other, rows = refit_novelty(self.model.network, store, seed)
            assert other is not None  # the collection is the same, so that it is large enough
            fits.append(other)
            fit_of_graph[rows] = 1
        network, width = self.model.network, self.model.width("last")
        for graphs, values in self.model.embed_batches(
            ranges_of(store, batch_size),
            batch_size=batch_size,
            function=network.embed_last_and_all,
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
                similarity = cosine.gather(1, chains[:, level, None])[:, 0]
                similarities[graphs, level] = similarity.cpu().numpy()
            for number, fit in enumerate(fits):
                is_judged = fit_of_graph[graphs] == number
                distance = fit.distances(values[is_judged, width:])
                distances[graphs][is_judged] = distance
                percentiles[graphs][is_judged] = fit.percentiles(distance)
        if not fits:
            return Assignments(paths, similarities, None, np.empty(0, dtype=np.int64))
        # the largest percentile depends on the size of the half, so that it is cut to the smaller
        highest = min(float(fit.percentiles(np.array([np.inf]))[0]) for fit in fits)
        by_novelty = np.lexsort((-distances, -np.minimum(percentiles, highest)))
        return Assignments(paths, similarities, percentiles, by_novelty)

    def _projected(self, values: Float[np.ndarray, "N D"]) -> torch.Tensor:
        first = self.forest.layers[0]
        # drop the embedding of the center node, if there is one: prototypes are trained without it
        emb = torch.from_numpy(values[:, : first.shape[1]]).to(first.device)
        if self.head is None:
            return emb
        with torch.no_grad():
            return self.head(emb)


def hierarchy_of(model: Encoder, name: str) -> Hierarchy:
    """Return the hierarchy of a model, which an error calls ``name``.

    Raises:
        ConfigError: If the model has no prototypes.
    """
    hierarchy = Hierarchy.of(model)
    if hierarchy is None:
        objective = model.info.get("objective")
        why = "was not pre-trained" if objective is None else f"was pre-trained with '{objective}'"
        if "pretrained" in model.info:
            why = "is a predictor, which keeps none"
        elif objective == "graphlog":
            why = (
                "was stopped before its prototypes were fitted, had too few epochs, or has none "
                "by its recipe"
            )
        raise ConfigError(
            f"{name} has no prototypes: it {why}; name a model that has some, or add "
            f"{setting('fit', True)}.",
            option="fit",
        )
    return hierarchy


def project(embeddings: Float[np.ndarray, "N D"], seed: int = 0) -> Float[np.ndarray, "N 2"]:
    """Return a t-SNE map under cosine distance.

    Fewer than five rows, or rows of only one direction, are placed by principal components.
    """
    unit = unit_rows(torch.tensor(embeddings)).double().numpy()
    if len(unit) < 5 or not np.ptp(unit, axis=0).any():  # t-SNE would end the process
        left, scale, _ = np.linalg.svd(unit - unit.mean(axis=0), full_matrices=False)
        plane = (left * scale)[:, :2]
        return np.pad(plane, ((0, 0), (0, 2 - plane.shape[1])))
    from sklearn.manifold import TSNE  # slow to import

    layout = TSNE(perplexity=min(30.0, (len(unit) - 1) / 3), random_state=seed)
    return layout.fit_transform(unit).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Trait:
    """Difference between a group and its collection in one feature."""

    name: str
    """Name of the feature."""
    kind: Literal["mean", "share"]
    """Whether ``here`` and ``overall`` are means or shares."""
    here: float
    """Value of the group."""
    overall: float
    """Value of the whole collection."""
    effect: float
    """Difference of the two, in standard deviations of the collection."""
    q: float
    """q-value: false discovery rate among all traits with a q-value of at most this."""


def features_of(store: GraphStore) -> list[GraphFeature]:
    """Return sizes, descriptors and labels of graphs; this takes seconds for a few thousand."""
    features = [*domain_of(store.schema).features(store)]
    if store.labels is None:
        return features
    classes = store.source.classes
    for name, column in zip(store.tasks, store.labels.T.astype(np.float64), strict=True):
        if name in classes:  # the numbers of classes have no meaning as quantities
            for number, label in enumerate(classes[name]):
                share = np.where(np.isnan(column), np.nan, column == number)
                features.append(GraphFeature(f"label {name} = {label}", "share", share))
            continue
        is_binary = bool(np.isin(column[~np.isnan(column)], (0.0, 1.0)).all())
        features.append(GraphFeature(f"label {name}", "share" if is_binary else "mean", column))
    return features


def traits_of(
    features: Sequence[GraphFeature], groups: Sequence[Int[np.ndarray, "_"]]
) -> list[list[Trait]]:
    """Return for each group of positions the features in which it differs most from all graphs.

    A difference is a trait if it is at least 0.3 standard deviations and its q-value is at most
    0.05. The q-value is over all groups and features; the test is Wilcoxon's rank test, or the
    hypergeometric test for shares. At most eight traits are returned for a group.

    Example:
        >>> rings = GraphFeature("rings", "mean", np.repeat([1.0, 3.0], 10))
        >>> [[t.name, t.here, t.overall, t.effect] for t in traits_of([rings], [np.arange(10)])[0]]
        [['rings', 1.0, 2.0, -1.0]]
    """
    tests: list[tuple[int, GraphFeature, float]] = []
    p_values: list[float] = []
    for feature in features:
        is_share, scores = feature.kind == "share", feature.values
        if not is_share:
            scores = rankdata(scores, nan_policy="omit")  # ranks are robust to outliers
        known = _known(scores)
        if not len(known) or known.min() == known.max():
            continue
        usual = 0.0 if is_share else mode(known).mode
        for number, members in enumerate(groups):
            if len(here := _known(scores[members])) >= _MIN_KNOWN:
                p_values.append(_p_value(known, here, usual, is_share))
                mean = float(_known(feature.values[members]).mean())
                tests.append((number, feature, mean))
    traits: list[list[Trait]] = [[] for _ in groups]
    q_values = false_discovery_control(p_values).tolist() if tests else []
    for (number, feature, here), q in zip(tests, q_values, strict=True):
        overall, sd = feature.overall
        effect = (here - overall) / sd
        if abs(effect) >= _MIN_EFFECT and q <= _SIGNIFICANT:
            traits[number].append(Trait(feature.name, feature.kind, here, overall, effect, q))
    return [sorted(group, key=lambda trait: -abs(trait.effect))[:_MAX_TRAITS] for group in traits]


def _known(values: Float[np.ndarray, "N"]) -> Float[np.ndarray, "K"]:
    return values[~np.isnan(values)]


def _p_value(
    known: Float[np.ndarray, "N"], here: Float[np.ndarray, "K"], usual: float, is_share: bool
) -> float:
    """Return the two-sided p-value of a group, if it were drawn from the collection at random.

    ``known`` are the ranks of the collection, ``here`` those of the group, and ``usual`` is the
    most frequent one; shares have 0 and 1 instead of ranks, and the test is hypergeometric. The
    mean rank of a sample without replacement is taken as normal (Wilcoxon's test). This is not true
    if nearly all graphs have the ``usual`` rank and few others are expected in the group; then the
    number of others is tested too, and the larger p-value is returned.
    """
    total, count, p = len(known), len(here), 0.0
    if count == total:
        return 1.0
    if not is_share:
        standard_error = known.std(ddof=1) * np.sqrt((1 - count / total) / count)
        p = 2 * norm.sf(abs(here.mean() - known.mean()) / standard_error)
    others = int((known != usual).sum())
    if is_share or count * others < _MIN_KNOWN * total:
        distribution, found = hypergeom(total, others, count), int((here != usual).sum())
        p = max(p, min(1.0, 2 * min(distribution.cdf(found), distribution.sf(found - 1))))
    return float(p)


TYPICAL = 6
"""Largest number of typical graphs of a prototype."""


@dataclass(frozen=True, slots=True)
class Node:
    """One prototype and the graphs whose path contains it (its members)."""

    path: tuple[int, ...]
    """Numbers of its ancestors in their layers, from the root on, then its own number."""
    members: int
    """Number of members."""
    similarity: float | None
    """Mean cosine of the members and the prototype; None without members."""
    novelty: float | None
    """Mean novelty of the members; None without members, or if novelty is unknown."""
    typical: tuple[tuple[int, float], ...]
    """The members nearest to the prototype, without repeats: position in the store, and cosine."""
    traits: list[Trait]
    """Differences between the members and the collection, computed on the sample."""
    common: CommonPart | None
    """Largest part that all typical members have; None if the domain has no such part."""
    children: tuple["Node", ...]
    """Its children in the layer below, those with most members first."""
    title_length: int = 2
    """Largest number of traits in the title."""

    @property
    def name(self) -> str:
        """The path as a text, such as ``2/5/17``, as in ``members.csv``."""
        return path_name(self.path)

    def walk(self) -> Iterator["Node"]:
        """Yield this node and all nodes below it, each parent before its children."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def title(self) -> str:
        """The first traits in a few words, such as ``nitrile, low logP``.

        Features that most members have come first, then the largest effects.
        """
        words: dict[str, str] = {}  # a ring can be a fragment and a ring system; it is named once
        for trait in sorted(self.traits, key=lambda trait: not _is_typical(trait)):
            feature = trait.name.removeprefix("label ").removeprefix("with ").removeprefix("ring ")
            words.setdefault(feature, _in_words(trait, feature))
        return ", ".join([*words.values()][: self.title_length])


def _is_typical(trait: Trait) -> bool:
    """Return whether most members have a feature, and more of them than in the collection."""
    return trait.kind == "share" and trait.effect > 0 and trait.here >= _TYPICAL_SHARE


def _in_words(trait: Trait, feature: str) -> str:
    """Return a trait in words: ``nitrile`` if most members have one, else ``more nitrile``."""
    is_more, is_label = trait.effect > 0, trait.name.startswith("label ")
    if trait.kind == "mean":
        is_count = not is_label and feature.endswith("s")  # a plural such as "rings" is a count
        more, less = ("many", "few") if is_count else ("high", "low")
        return f"{more if is_more else less} {feature}"
    if is_more:
        return feature if _is_typical(trait) else f"more {feature}"
    return f"less {feature}" if trait.here > 0 else f"no {feature}"


def with_different_titles(siblings: Sequence[Node]) -> list[Node]:
    """Return siblings, those of equal title with up to two more traits in their titles."""
    for length in (3, 4):
        counts = Counter(node.title for node in siblings)
        siblings = [
            replace(node, title_length=length) if counts[node.title] > 1 else node
            for node in siblings
        ]
    return list(siblings)


def path_name(path: Sequence[int]) -> str:
    """Return a path as one text: numbers from the root on, separated by slashes."""
    return "/".join(map(str, path))


def layer_names(depth: int) -> list[str]:
    """Return the names of the layers of a tree in figures, roots first."""
    names = ["roots", *(f"layer {level}" for level in range(2, depth)), "leaves"]
    return names[len(names) - depth :]


def build_tree(
    hierarchy: Hierarchy,
    assignments: Assignments,
    store: GraphStore,
    features: Sequence[GraphFeature],
    sample: Int[np.ndarray, "_"],
) -> list[Node]:
    """Return the roots of the tree with all nodes below them, those with most members first.

    Args:
        hierarchy: The prototypes.
        assignments: The path of every graph of the collection.
        store: The collection.
        features: Values of the graphs of ``sample``.
        sample: Positions in the collection of the graphs that traits are computed on, ascending.
    """
    parents, domain = hierarchy.parents, domain_of(store.schema)
    layers: list[list[tuple[int, ...]]] = [[(k,) for k in range(hierarchy.forest.sizes[0])]]
    for layer in parents:
        layers.append([(*layers[-1][parent], k) for k, parent in enumerate(layer.tolist())])
    paths = [path for layer in layers for path in layer]
    sample_paths = assignments.paths[sample]
    groups = [np.flatnonzero(sample_paths[:, len(path) - 1] == path[-1]) for path in paths]
    traits = dict(zip(paths, traits_of(features, groups), strict=True))

    def build(path: tuple[int, ...]) -> Node:
        level, number = len(path) - 1, path[-1]
        members = np.flatnonzero(assignments.paths[:, level] == number)
        similarities, novelty = assignments.similarities[members, level], assignments.novelty
        nearest = np.argsort(-similarities, kind="stable")[: 8 * TYPICAL]
        shown = nearest[first_of_each(store, members[nearest])[:TYPICAL]]
        typical = members[shown].tolist()
        common = None
        if isinstance(domain, Draws):
            common = domain.common_part(store, typical, WIDTH, HEIGHT)
        is_leaf = level == len(parents)
        children = () if is_leaf else np.flatnonzero(parents[level] == number).tolist()
        return Node(
            path=path,
            members=len(members),
            similarity=float(similarities.mean()) if len(members) else None,
            novelty=None if novelty is None or not len(members) else float(novelty[members].mean()),
            typical=tuple(zip(typical, similarities[shown].tolist(), strict=True)),
            traits=traits[path],
            common=common,
            children=tuple(siblings([(*path, child) for child in children])),
        )

    def siblings(paths: Sequence[tuple[int, ...]]) -> list[Node]:
        nodes = sorted(map(build, paths), key=lambda node: -node.members)
        return with_different_titles(nodes)

    return siblings(layers[0])


def names_of(store: GraphStore, graphs: Sequence[int]) -> list[str | None]:
    """Return the text of each graph (a SMILES, a protein); None if the store has no texts."""
    try:
        return list(store.texts(list(graphs)))
    except DataError:
        return [None] * len(graphs)


def first_of_each(store: GraphStore, graphs: Int[np.ndarray, "K"]) -> Int[np.ndarray, "D"]:
    """Return the positions in ``graphs`` of those that do not repeat an earlier one.

    Molecules repeat each other if their parents have the same structure, such as the salts of one
    base. If structures cannot be compared, graphs with the same text repeat each other.
    """
    subset = store.subset(graphs)
    kinds = repeat_kinds(subset)
    if kinds is None:
        kinds = group_numbers(names_of(subset, range(len(subset))))
    return np.sort(np.unique(kinds, return_index=True)[1])
