"""The tree of prototypes: where graphs stand in it; size, typical graphs and traits of a group."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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

_FITTED_TO = 50_000
"""Graphs that a tree is fitted to."""
_CLEAR = 0.3
"""Smallest effect of a trait, in standard deviations: between small and medium (Cohen)."""
_FEWEST = 5
"""Members with a known value below which a mean says nothing."""
_MOST = 8
_TYPICAL_SHARE = 0.5
"""Share of the members from which a group is named by what they have."""
_SIGNIFICANT = 0.05
"""Largest q-value of a trait (Benjamini and Hochberg)."""
WIDTH, HEIGHT = 200, 140
"""Size of a drawing, in pixels."""


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
    """The graphs by novelty and distance, farthest first; none where it does not know them."""


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
    fitted_to: tuple[str | None, int] = (None, 0)
    """Digest of the collection that novelty was fitted to, and the seed of that fit."""

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
        return cls(model, forest, head, novelty, True, (store.digest, seed))

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
        """Return path, similarities and novelty of every graph; memory is a few numbers a graph.

        In the collection that novelty was fitted to, each graph is judged by a fit that has not
        seen it.
        """
        depth = self.forest.depth
        paths = np.empty((len(store), depth), dtype=np.int64)
        similarities = np.empty((len(store), depth), dtype=np.float32)
        distances, percentiles = np.empty((2, len(store)))
        judges = [] if self.novelty is None else [self.novelty]
        judge_of, (digest, seed) = np.zeros(len(store), dtype=np.int64), self.fitted_to
        if judges and store.digest == digest:
            with evaluating(self.model):
                other, rows = refit_novelty(self.model.network, store, seed)
            assert other is not None  # as many graphs as the first was fitted to
            judges.append(other)
            judge_of[rows] = 1
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
            for number, judge in enumerate(judges):
                mine = judge_of[graphs] == number
                found = judge.distances(values[mine, width:])
                distances[graphs][mine] = found
                percentiles[graphs][mine] = judge.percentiles(found)
        if not judges:
            return Assignments(paths, similarities, None, np.empty(0, dtype=np.int64))
        # halves that differ by one graph end at other percentiles
        highest = min(float(judge.percentiles(np.array([np.inf]))[0]) for judge in judges)
        oddest = np.lexsort((-distances, -np.minimum(percentiles, highest)))
        return Assignments(paths, similarities, percentiles, oddest)

    def _projected(self, values: Float[np.ndarray, "N D"]) -> torch.Tensor:
        first = self.forest.layers[0]
        # a center's embedding stands behind that of its graph, and training saw the latter alone
        emb = torch.from_numpy(values[:, : first.shape[1]]).to(first.device)
        if self.head is None:
            return emb
        with torch.no_grad():
            return self.head(emb)


def hierarchy_of(model: Encoder, name: str) -> Hierarchy:
    """Return the hierarchy of a model that must have one, and is called ``name``.

    Raises:
        ConfigError: If it has none.
    """
    hierarchy = Hierarchy.of(model)
    if hierarchy is None:
        objective = model.info.get("objective")
        why = "was not pre-trained" if objective is None else f"was pre-trained with '{objective}'"
        if objective == "graphlog":
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
    """Return a t-SNE map under cosine distance; principal components for fewer than five rows."""
    unit = unit_rows(torch.tensor(embeddings)).double().numpy()
    if len(unit) < 5:
        left, scale, _ = np.linalg.svd(unit - unit.mean(axis=0), full_matrices=False)
        plane = (left * scale)[:, :2]
        return np.pad(plane, ((0, 0), (0, 2 - plane.shape[1])))
    from sklearn.manifold import TSNE  # takes a while to import

    layout = TSNE(perplexity=min(30.0, (len(unit) - 1) / 3), random_state=seed)
    return layout.fit_transform(unit).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Trait:
    """How a group differs from its collection in one feature."""

    name: str
    """The feature."""
    kind: Literal["mean", "share"]
    """What the two numbers are."""
    here: float
    """Of the group."""
    overall: float
    """Of the collection."""
    effect: float
    """Their difference in standard deviations of the collection."""
    q: float
    """Share of false findings among the traits that are at least as unlikely by chance."""


def features_of(store: GraphStore) -> list[GraphFeature]:
    """Return sizes, descriptors and labels of the graphs; a few thousand take seconds."""
    return domain_of(store.schema).features(store) + _labels(store)


def traits_of(
    features: Sequence[GraphFeature], groups: Sequence[Int[np.ndarray, "_"]]
) -> list[list[Trait]]:
    """Return for each group the features in which it differs most clearly from all graphs.

    A difference counts if it is at least 0.3 standard deviations and its q-value, over all groups
    and features, by Wilcoxon's rank test (shares: the hypergeometric law), is at most 0.05; eight
    are kept of each group, which is given by its members.

    Example:
        >>> rings = GraphFeature("rings", "mean", np.repeat([1.0, 3.0], 10))
        >>> [[t.name, t.here, t.overall, t.effect] for t in traits_of([rings], [np.arange(10)])[0]]
        [['rings', 1.0, 2.0, -1.0]]
    """
    tests: list[tuple[int, GraphFeature, float]] = []
    chances: list[float] = []
    for feature in features:
        is_share, scores = feature.kind == "share", feature.values
        if not is_share:
            scores = rankdata(scores, nan_policy="omit")  # one value far away must not decide
        everyone = _known(scores)
        if not len(everyone) or everyone.min() == everyone.max():
            continue
        usual = 0.0 if is_share else mode(everyone).mode
        for number, members in enumerate(groups):
            if len(here := _known(scores[members])) >= _FEWEST:
                chances.append(_chance(everyone, here, usual, is_share))
                mean = float(_known(feature.values[members]).mean())
                tests.append((number, feature, mean))
    traits: list[list[Trait]] = [[] for _ in groups]
    q_values = false_discovery_control(chances).tolist() if tests else []
    for (number, feature, here), q in zip(tests, q_values, strict=True):
        overall, spread = feature.overall
        effect = (here - overall) / spread
        if abs(effect) >= _CLEAR and q <= _SIGNIFICANT:
            traits[number].append(Trait(feature.name, feature.kind, here, overall, effect, q))
    return [sorted(found, key=lambda trait: -abs(trait.effect))[:_MOST] for found in traits]


def _known(values: Float[np.ndarray, "N"]) -> Float[np.ndarray, "K"]:
    return values[~np.isnan(values)]


def _chance(
    everyone: Float[np.ndarray, "N"], here: Float[np.ndarray, "K"], usual: float, is_share: bool
) -> float:
    """Return the two-sided p-value of a group's share or ranks, were it drawn from all at random.

    Shares are hypergeometric; the mean rank of a sample without replacement is taken as normal
    (Wilcoxon's test). Where nearly all have the ``usual`` rank and few others are expected in the
    group, it is not: how many there are has to be unlikely as well.
    """
    total, count, chance = len(everyone), len(here), 0.0
    if count == total:
        return 1.0
    if not is_share:
        deviation = everyone.std(ddof=1) * np.sqrt((1 - count / total) / count)
        chance = 2 * norm.sf(abs(here.mean() - everyone.mean()) / deviation)
    others = int((everyone != usual).sum())
    if is_share or count * others < _FEWEST * total:
        law, found = hypergeom(total, others, count), int((here != usual).sum())
        chance = max(chance, min(1.0, 2 * min(law.cdf(found), law.sf(found - 1))))
    return float(chance)


def _labels(store: GraphStore) -> list[GraphFeature]:
    if store.labels is None:
        return []
    features: list[GraphFeature] = []
    classes = store.source.classes
    for name, column in zip(store.tasks, store.labels.T.astype(np.float64), strict=True):
        if name in classes:  # numbers of classes are no quantities
            for number, label in enumerate(classes[name]):
                share = np.where(np.isnan(column), np.nan, column == number)
                features.append(GraphFeature(f"label {name} = {label}", "share", share))
            continue
        is_binary = bool(np.isin(column[~np.isnan(column)], (0.0, 1.0)).all())
        features.append(GraphFeature(f"label {name}", "share" if is_binary else "mean", column))
    return features


TYPICAL = 6
"""Graphs shown of each prototype."""


@dataclass(frozen=True, slots=True)
class Node:
    """One prototype and the graphs whose path leads through it."""

    path: tuple[int, ...]
    """Its number in each layer from the root on; the last is its own."""
    members: int
    """Graphs that pass through it."""
    similarity: float | None
    """Mean cosine of its members to it; None where it has none."""
    novelty: float | None
    """Mean novelty of its members; None where it has none or novelty is not known."""
    typical: tuple[tuple[int, float], ...]
    """The members nearest to it, none of them a repeat: their place in the store, and cosine."""
    traits: list[Trait]
    """What sets its members apart from the collection, judged by the sample."""
    common: CommonPart | None
    """The largest part that all typical members have, where the domain knows one."""
    children: tuple["Node", ...]
    """Prototypes of the layer below that belong to it, those with most members first."""

    @property
    def name(self) -> str:
        """Its path as ``members.csv`` writes it, such as ``2/5/17``."""
        return path_name(self.path)

    def walk(self) -> Iterator["Node"]:
        """Yield it and everything below it, each parent before its children."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def title(self) -> str:
        """Up to two traits, as ``nitrile, low logP``: what most members have, then the clearest."""
        clearest: dict[str, str] = {}  # a ring is a fragment and a ring system: named once
        for trait in sorted(self.traits, key=lambda trait: not _is_typical(trait)):
            what = trait.name.removeprefix("label ").removeprefix("with ").removeprefix("ring ")
            clearest.setdefault(what, _in_short(trait, what))
        return ", ".join([*clearest.values()][:2])


def _is_typical(trait: Trait) -> bool:
    return trait.kind == "share" and trait.effect > 0 and trait.here >= _TYPICAL_SHARE


def _in_short(trait: Trait, what: str) -> str:
    """Return a trait in a few words: ``nitrile`` where most members have one, ``more nitrile``."""
    is_more, is_label = trait.effect > 0, trait.name.startswith("label ")
    if trait.kind == "mean":
        is_count = not is_label and what.endswith("s")  # a plural names what is counted
        more, less = ("many", "few") if is_count else ("high", "low")
        return f"{more if is_more else less} {what}"
    if is_more:
        return what if _is_typical(trait) else f"more {what}"
    return f"less {what}" if trait.here > 0 else f"no {what}"


def path_name(path: Sequence[int]) -> str:
    """Return a path as one text: numbers from the root on, parted by slashes."""
    return "/".join(map(str, path))


def layer_names(depth: int) -> list[str]:
    """Return what the layers of a tree are called where they are drawn, roots first."""
    names = ["roots", *(f"layer {level}" for level in range(2, depth)), "leaves"]
    return names[len(names) - depth :]


def build_tree(
    hierarchy: Hierarchy,
    assignments: Assignments,
    store: GraphStore,
    features: Sequence[GraphFeature],
    sample: Int[np.ndarray, "_"],
) -> list[Node]:
    """Return the roots, those with most members first.

    Args:
        hierarchy: The prototypes.
        assignments: Where every graph of the collection stands.
        store: The collection.
        features: Values for the graphs of ``sample``.
        sample: Which graphs of the collection those are, ascending.
    """
    parents, domain = hierarchy.parents, domain_of(store.schema)
    layers: list[list[tuple[int, ...]]] = [[(k,) for k in range(hierarchy.forest.sizes[0])]]
    for above in parents:
        layers.append([(*layers[-1][parent], own) for own, parent in enumerate(above.tolist())])
    paths = [path for layer in layers for path in layer]
    stand = assignments.paths[sample]
    groups = [np.flatnonzero(stand[:, len(path) - 1] == path[-1]) for path in paths]
    traits = dict(zip(paths, traits_of(features, groups), strict=True))

    def build(path: tuple[int, ...]) -> Node:
        level, own = len(path) - 1, path[-1]
        members = np.flatnonzero(assignments.paths[:, level] == own)
        similarities, novelty = assignments.similarities[members, level], assignments.novelty
        nearest = np.argsort(-similarities, kind="stable")[: 8 * TYPICAL]
        shown = nearest[first_of_each(store, members[nearest])[:TYPICAL]]
        typical = members[shown].tolist()
        common = None
        if isinstance(domain, Draws):
            common = domain.common_part(store, typical, WIDTH, HEIGHT)
        below = np.flatnonzero(parents[level] == own).tolist() if level < len(parents) else ()
        children = [build((*path, child)) for child in below]
        return Node(
            path=path,
            members=len(members),
            similarity=float(similarities.mean()) if len(members) else None,
            novelty=None if novelty is None or not len(members) else float(novelty[members].mean()),
            typical=tuple(zip(typical, similarities[shown].tolist(), strict=True)),
            traits=traits[path],
            common=common,
            children=tuple(sorted(children, key=lambda node: -node.members)),
        )

    roots = [build(path) for path in layers[0]]
    return sorted(roots, key=lambda node: -node.members)


def names_of(store: GraphStore, graphs: Sequence[int]) -> list[str | None]:
    """Return the text of each graph (a SMILES, a protein); None where the store has no texts."""
    try:
        return list(store.texts(list(graphs)))
    except DataError:
        return [None] * len(graphs)


def first_of_each(store: GraphStore, graphs: Int[np.ndarray, "K"]) -> Int[np.ndarray, "D"]:
    """Return the places in ``graphs`` of those that repeat none before them.

    Molecules repeat each other where their parents have one structure, as salts of one base do;
    where structures cannot be compared, graphs of one text do.
    """
    found = store.subset(graphs)
    kinds = repeat_kinds(found)
    if kinds is None:
        kinds = group_numbers(names_of(found, range(len(found))))
    return np.sort(np.unique(kinds, return_index=True)[1])
