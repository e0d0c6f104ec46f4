"""Hierarchical prototypes C: how they are fitted, their chains from root to leaf, noise chains.

K-means is scikit-learn's, on the CPU wherever the embeddings live.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from graphlog.errors import ConfigError, NonFiniteLossError
from graphlog.ops.contrastive import (
    cosine_similarity,
    draw_others,
    paired_cosine_similarity,
    unit_rows,
)

CentersRule = Literal["halve", "literal"]
Space = Literal["raw", "unit"]
_ROWS_AT_ONCE = 65536
_BATCH, _ROUNDS, _SHARPNESS = 4096, 20, 0.05
"""Of the fit in equal shares."""
_EPS, _SWEEPS = 1e-6, 20
"""Of the authors' script."""


@dataclass(frozen=True, eq=False)
class PrototypeForest:
    r"""Prototypes :math:`\mathbf C = \{c^l_i\}` and who is whose child.

    Example:
        >>> layers = [torch.eye(2), torch.ones(3, 2)]
        >>> forest = PrototypeForest(layers, parents=[torch.tensor([0, 0, 1])])
        >>> forest.sizes, forest.depth
        ((2, 3), 2)
    """

    layers: Sequence[Tensor]
    """Prototype vectors of each layer, (M_l, D), roots first: index 0 is the paper's l = 1."""
    parents: Sequence[Tensor]
    """For each layer but the first, the index in the layer above of every prototype's parent,
    (M_l,)."""

    def check(self) -> None:
        """Check that the layers form trees, as those of a file need not.

        Raises:
            ValueError: If a prototype has no parent, a non-leaf no child, or a vector is zero or
                not finite.
        """
        if not self.layers or len(self.parents) != len(self.layers) - 1:
            counts = f"{len(self.layers)} layers, found {len(self.parents)}"
            raise ValueError(f"`parents` must have one entry fewer than the {counts}.")
        for level, layer in enumerate(self.layers):
            is_matrix = layer.ndim == 2 and layer.shape[0] > 0
            if not is_matrix or not bool((layer.isfinite().all(1) & (layer.norm(dim=1) > 0)).all()):
                raise ValueError(
                    f"layer {level} must be a non-empty matrix of finite, non-zero prototypes, "
                    f"found shape {tuple(layer.shape)}."
                )
        for level, parent in enumerate(self.parents, start=1):
            numbers = torch.arange(self.sizes[level - 1])
            has_one = parent.shape == (self.sizes[level],)
            if not has_one or not torch.equal(parent.unique().cpu(), numbers):
                raise ValueError(
                    f"each prototype of layer {level} needs one parent, and each of layer "
                    f"{level - 1} must have a child."
                )

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> "PrototypeForest | None":
        """Return the forest stored as ``prototypes.0``, ``parents_1``, ...; None if there is none.

        Raises:
            ValueError: If a layer has no parents.
        """
        layers: list[Tensor] = []
        while (name := f"prototypes.{len(layers)}") in state:
            layers.append(state[name])
        if not layers:
            return None
        names = [f"parents_{level}" for level in range(1, len(layers))]
        if missing := [name for name in names if name not in state]:
            raise ValueError(f"`{missing[0]}` is missing.")
        return cls(layers, [state[name] for name in names])

    @property
    def depth(self) -> int:
        """Number of layers ``Lp``."""
        return len(self.layers)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of prototypes of each layer, roots first."""
        return tuple(layer.shape[0] for layer in self.layers)

    def parent(self, level: int) -> Tensor:
        """Return the parents of layer ``level`` (1 or more) as indices into layer ``level - 1``."""
        return self.parents[level - 1]

    def detach(self) -> "PrototypeForest":
        """Return the forest with vectors that carry no gradient."""
        return PrototypeForest([layer.detach() for layer in self.layers], self.parents)


def negative_energy(
    graph_emb: Float[Tensor, "N D"], chains: Int[Tensor, "N Lp"], forest: PrototypeForest
) -> Float[Tensor, "N"]:
    r"""Return the unnormalized log-likelihood :math:`f(h, z)` of each graph with its chain.

    Implements Eq. 18, and Eq. 17 up to the constant :math:`\log Z`:

    .. math:: f(h, z) = \sum_{l=1}^{L_p} s(h, z^l) + \sum_{l=1}^{L_p - 1} s(z^l, z^{l+1}).

    Values are in ``[1 - 2 * Lp, 2 * Lp - 1]``. Differentiable in the embeddings and the prototypes.
    The chains need not follow the trees: those of :func:`corrupt_chains` do not.

    Example:
        >>> forest = PrototypeForest([torch.eye(2), torch.eye(2)], [torch.tensor([0, 1])])
        >>> negative_energy(torch.tensor([[1.0, 0.0]]), torch.tensor([[0, 0]]), forest)
        tensor([3.])
    """
    prototypes = [layer[chains[:, level]] for level, layer in enumerate(forest.layers)]
    value = graph_emb.new_zeros(graph_emb.shape[0])
    for level, prototype in enumerate(prototypes):
        value = value + paired_cosine_similarity(graph_emb, prototype)
        if level > 0:
            value = value + paired_cosine_similarity(prototypes[level - 1], prototype)
    return value


@torch.no_grad()
def sample_chains(
    graph_emb: Float[Tensor, "N D"],
    forest: PrototypeForest,
    *,
    temperature: float = 1.0,
    generator: Generator | None = None,
) -> Int[Tensor, "N Lp"]:
    r"""Draw one root-to-leaf prototype chain per graph (E-step).

    Implements Eq. 12 (Sec. 3.2) by ancestral sampling: the top layer is drawn among all roots,
    every later layer among the children :math:`\mathbb C(\hat z^{l-1}_n)` of the prototype drawn
    just above,

    .. math:: \hat z^l_n \sim \mathrm{Cat}\big(\operatorname{softmax}_c\, s(c, h_n) / \tau\big).

    The paper uses no temperature (1), at which 50 prototypes are nearly equally likely. The draw is
    not differentiated; gradients reach ``forest`` only through the M-step loss
    (:func:`~graphlog.objectives.losses.nce_loss`, Eq. 19).

    Note:
        The walk ignores the prototype-prototype terms of Eq. 18: it follows the paper, but is not
        an exact sample of the posterior that Eq. 17 implies.

    Returns:
        ``chains[n, l]``: index in layer ``l`` (0 = top) of the prototype drawn for graph ``n``.
        Consecutive entries are parent and child.

    Example:
        Two roots; the first has two leaves, the second one.

        >>> forest = PrototypeForest(
        ...     layers=[torch.tensor([[1.0, 0.0], [0.0, 1.0]]),
        ...             torch.tensor([[1.0, 0.0], [0.9, 0.4], [0.0, 1.0]])],
        ...     parents=[torch.tensor([0, 0, 1])],
        ... )
        >>> sample_chains(torch.tensor([[0.0, 2.0], [5.0, 0.0]]), forest, temperature=1e-3)
        tensor([[1, 2],
                [0, 0]])
    """
    return _walk(graph_emb, forest, lambda s: _draw((s / temperature).softmax(dim=1), generator))


@torch.no_grad()
def greedy_chains(
    graph_emb: Float[Tensor, "N D"], forest: PrototypeForest, eps: float = 0.0
) -> Int[Tensor, "N Lp"]:
    """Return the chain of nearest prototypes per graph.

    The zero-temperature limit of Eq. 12, and what the authors' script does (with an ``eps`` of 1e-6
    in the cosine's denominator).
    """
    return _walk(graph_emb, forest, lambda similarity: similarity.argmax(dim=1), eps)


def _walk(
    graph_emb: Tensor, forest: PrototypeForest, choose: Callable[[Tensor], Tensor], eps: float = 0.0
) -> Tensor:
    """Choose a root by its similarity, then one of the children of the last choice, to the leaf."""
    chains: list[Tensor] = []
    for level, centers in enumerate(forest.layers):
        similarity = cosine_similarity(graph_emb, centers, eps)
        if level > 0:
            is_child = forest.parent(level) == chains[-1][:, None]
            similarity = similarity.masked_fill(~is_child, -torch.inf)
        chains.append(choose(similarity))
    return torch.stack(chains, dim=1)


@torch.no_grad()
def balanced_assignment(
    similarity: Float[Tensor, "N K"], *, temperature: float, iterations: int = 5
) -> Float[Tensor, "N K"]:
    r"""Share graphs out among prototypes so that every prototype gets an equal part of the batch.

    Sinkhorn's iterations in log space scale the rows and columns of :math:`\exp(s / \tau)` until
    rows sum to 1 and columns to ``N / K`` (Asano et al., 2020; Caron et al., 2020). The rows come
    last and are exact. Chains drawn from the model's own softmax leave the cross-entropy without a
    gradient in expectation; this result has one where ``temperature`` is below that of the loss,
    and no prototype stays without graphs.
    """
    log_share = similarity / temperature
    target = math.log(max(similarity.shape[0], 1) / similarity.shape[1])
    for _ in range(iterations):
        log_share = log_share - log_share.logsumexp(dim=0, keepdim=True) + target
        log_share = log_share.log_softmax(dim=1)
    return log_share.exp()


def leaf_chains(leaves: Int[Tensor, "N"], forest: PrototypeForest) -> Int[Tensor, "N Lp"]:
    """Return the chain from the root to each of ``leaves``, which are indices into the last layer.

    Example:
        >>> forest = PrototypeForest([torch.eye(2), torch.ones(3, 2)], [torch.tensor([0, 0, 1])])
        >>> leaf_chains(torch.tensor([2, 1]), forest)
        tensor([[1, 2],
                [0, 1]])
    """
    chain = [leaves]
    for level in range(forest.depth - 1, 0, -1):
        chain.append(forest.parent(level)[chain[-1]])
    return torch.stack(chain[::-1], dim=1)


@torch.no_grad()
def balanced_chains(
    graph_emb: Float[Tensor, "N D"],
    forest: PrototypeForest,
    *,
    temperature: float,
    eps: float = 0.0,
) -> Int[Tensor, "N Lp"]:
    """Assign leaves by :func:`balanced_assignment` over the batch; ancestors follow from the tree.

    A departure from Eq. 12, which draws from the top down and lets prototypes fall out of use.
    """
    similarity = cosine_similarity(graph_emb, forest.layers[-1], eps)
    share = balanced_assignment(similarity, temperature=temperature)
    return leaf_chains(share.argmax(dim=1), forest)


def _draw(probabilities: Tensor, generator: Generator | None) -> Tensor:
    where = probabilities.device if generator is None else generator.device
    drawn = torch.multinomial(probabilities.to(where), num_samples=1, generator=generator)
    return drawn.squeeze(1).to(probabilities.device)


@torch.no_grad()
def corrupt_chains(
    chains: Int[Tensor, "N Lp"], forest: PrototypeForest, generator: Generator | None = None
) -> Int[Tensor, "N Lp Lp"]:
    r"""Return :math:`L_p` noise chains per chain, each with one prototype replaced.

    Implements the noise distribution :math:`p_n` of Eq. 19: each time one prototype is replaced by
    another of the same layer, all others of the layer being equally likely, whoever its parent is.
    A layer of one prototype has no other: its noise chain is the chain itself, which adds nothing
    to the difference in Eq. 19.

    Returns:
        ``noise[n, k, l]``: index in layer ``l`` of the prototype of the ``k``-th noise chain of
        graph ``n``.
    """
    replaced = draw_others(chains, torch.tensor(forest.sizes, device=chains.device), generator)
    noise = chains[:, None, :].repeat(1, forest.depth, 1)
    level = torch.arange(forest.depth, device=chains.device)
    noise[:, level, level] = replaced
    return noise


class Clusters(NamedTuple):
    """Surviving centers and the center of every point."""

    centers: Float[Tensor, "K D"]
    """Cluster means."""
    assignment: Int[Tensor, "M"]
    """Index of each point's center."""


def fit_forest(
    embeddings: Float[Tensor, "M D"],
    *,
    depth: int,
    centers: int,
    generator: Generator,
    centers_rule: CentersRule = "halve",
    min_members: int = 2,
    min_roots: int = 1,
    space: Space = "raw",
) -> PrototypeForest:
    """Return prototypes fitted layer by layer.

    K-means on the embeddings, then on the centers of the layer below, ``depth`` times. After each
    clustering, centers with fewer than ``min_members`` members are discarded and their members
    re-attached to the nearest survivor. Printed as it is, the paper's rule has no upper layer: 50
    centers on the at most 50 points of the layer below leave one member each, and all are
    discarded. Hence ``centers_rule``:

    - ``"halve"``: at most half as many centers as points; where still no cluster is large enough (a
      single point, say), one prototype at the mean of the points is kept, so that a few graphs are
      enough;
    - ``"literal"``: as many as asked for or as there are points; an error where that discards
      everything.

    Where these leave fewer than ``min_roots`` prototypes in the top layer, that many are fitted, as
    far as the layer below has them, and none discarded. The ``"unit"`` space is that of directions,
    which cosine similarity compares.

    Raises:
        ConfigError: If there are fewer than two graphs, all embeddings are zero, or the literal
            rule leaves a layer empty.
        NonFiniteLossError: If an embedding is not finite.
    """
    check_embeddings(embeddings)
    points = embeddings.detach()
    layers: list[Tensor] = []
    parents: list[Tensor] = []
    for level in range(depth):
        points = unit_rows(points) if space == "unit" else points
        available = points.shape[0]
        fewest = min(min_roots if level == depth - 1 else 1, available)
        wanted = min(centers, available if centers_rule == "literal" else max(1, available // 2))
        fitted = drop_small(points, kmeans(points, wanted, generator), min_members)
        if fitted.centers.shape[0] == 0 and centers_rule == "literal":
            raise ConfigError(
                f"`centers_rule='literal'` discards all prototypes {level} layers above the bottom:"
                f" {wanted} centers on {available} points leave none with {min_members} members;"
                " use 'halve' or fewer `centers`."
            )
        if fitted.centers.shape[0] == 0:
            fitted = Clusters(points.mean(dim=0, keepdim=True), fitted.assignment)
        if fitted.centers.shape[0] < fewest:
            fitted = drop_small(points, kmeans(points, fewest, generator), 1)
        layers.insert(0, _with_directions(fitted.centers, points))
        parents.insert(0, fitted.assignment)
        points = layers[0]
    # the last assignment is that of the graphs themselves, which are no part of the forest
    return PrototypeForest(layers, parents[:-1])


def check_embeddings(embeddings: Float[Tensor, "M D"]) -> None:
    """Raise where no prototypes can be fitted.

    Raises:
        ConfigError: If there are fewer than two embeddings, or all are 0.
        NonFiniteLossError: If one is not finite.
    """
    if embeddings.shape[0] < 2:
        raise ConfigError(
            f"prototypes need at least 2 graphs, found {embeddings.shape[0]};"
            " use a larger collection or `global_weight=0`."
        )
    if not bool(torch.isfinite(embeddings).all()):
        raise NonFiniteLossError(
            "graph embeddings are not finite when prototypes are fitted; lower the learning rate."
        )
    if not embeddings.any():
        raise ConfigError(
            "the embeddings have collapsed: this encoder gives 0 for every graph; train it longer "
            "before prototypes are fitted."
        )


def kmeans(points: Float[Tensor, "M D"], num_centers: int, generator: Generator) -> Clusters:
    """Return K-means clusters of the points, some possibly empty, from a k-means++ start.

    The result depends on the points, the generator and the library versions only: scikit-learn runs
    on one thread, because its sums over several depend on which one finishes first.
    """
    # heavy, and not needed by most imports of this module
    from sklearn.cluster import KMeans  # pyright: ignore[reportUnknownVariableType]
    from sklearn.exceptions import ConvergenceWarning  # pyright: ignore[reportUnknownVariableType]
    from threadpoolctl import threadpool_limits

    seed = int(torch.randint(2**31 - 1, (1,), generator=generator, device=generator.device))
    model = KMeans(num_centers, n_init=1, max_iter=100, random_state=seed)  # pyright: ignore[reportArgumentType]
    with threadpool_limits(limits=1), warnings.catch_warnings():
        # fewer distinct points than centers: the empty clusters are dropped afterwards
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(points.detach().cpu().numpy())
    centers = torch.from_numpy(model.cluster_centers_).to(points)
    return Clusters(centers, torch.from_numpy(model.labels_).long().to(points.device))


def drop_small(points: Float[Tensor, "M D"], clusters: Clusters, min_members: int) -> Clusters:
    """Return the clusters with at least ``min_members`` points.

    Orphans move to the nearest surviving center. Centers are not moved by it. No survivor at all
    gives no centers and every point the assignment 0.
    """
    counts = torch.bincount(clusters.assignment, minlength=clusters.centers.shape[0])
    kept = counts >= min_members
    centers = clusters.centers[kept]
    if centers.shape[0] == 0:
        return Clusters(centers, torch.zeros_like(clusters.assignment))
    renumbered = (kept.cumsum(0) - 1)[clusters.assignment]
    orphan = ~kept[clusters.assignment]
    renumbered[orphan] = nearest(points[orphan], centers)
    return Clusters(centers, renumbered)


def nearest(points: Float[Tensor, "M D"], centers: Float[Tensor, "K D"]) -> Int[Tensor, "M"]:
    """Return the nearest center of each point in Euclidean distance, the first of equals."""
    half_norm = 0.5 * centers.square().sum(dim=1)
    parts = [(half_norm - chunk @ centers.T).argmin(dim=1) for chunk in points.split(_ROWS_AT_ONCE)]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.long, device=points.device)


@torch.no_grad()
def fit_balanced_forest(
    embeddings: Float[Tensor, "M D"],
    *,
    depth: int = 3,
    centers: int = 50,
    roots: int = 4,
    generator: Generator,
) -> PrototypeForest:
    """Return a tree of ``centers`` leaves that hold about equally many graphs.

    Sizes of layers grow geometrically from ``roots`` to ``centers``, as far as there are graphs. A
    leaf that is nearest to no graph is dropped, so every leaf is the nearest of some graph. Above
    the leaves, prototypes have equally many children, give or take one. What all embeddings share
    does not count for the shares, while prototypes are compared with graphs by the plain cosine:
    give the embeddings as they will be compared.

    Raises:
        ConfigError: If there are fewer than two graphs, or all are embedded at 0.
        NonFiniteLossError: If an embedding is not finite.
    """
    check_embeddings(embeddings)
    # of equal length, so that a few long embeddings do not draw all centers to them
    points = unit_rows(embeddings) * embeddings.norm(dim=1).mean()
    layers, parents = list[Tensor](), list[Tensor]()
    for level in reversed(range(depth)):
        share = level / (depth - 1) if depth > 1 else 1.0
        wanted = round(roots * (centers / roots) ** share) if centers > roots else centers
        if level == depth - 1:
            num = min(wanted, points.shape[0] // 2)
            vectors = _balanced_centers(points, num, generator)
            near = cosine_similarity(points, vectors).argmax(dim=1)
            used, groups = near.unique(return_inverse=True)
            vectors = vectors[used]
        else:
            vectors, groups = _equal_groups(points, min(wanted, points.shape[0]), generator)
        layers.insert(0, vectors)
        parents.insert(0, groups)
        points = vectors
    # the last entry is the leaf of every graph, which is no part of the tree
    return PrototypeForest(layers, parents[:-1])


def _balanced_centers(points: Tensor, num: int, generator: Generator) -> Tensor:
    """Start from K-means, and move each center to the mean of its balanced share, over and over.

    Shares go by the cosines of what is left of the points without their mean, of equal length: what
    most encoders give all graphs alike makes all cosines nearly equal, and then every share the
    whole. The centers returned are means of points as they are.
    """
    own = points - points.mean(dim=0)
    own = unit_rows(own) * own.norm(dim=1).mean()
    centers = kmeans(own, num, generator).centers
    for _ in range(_ROUNDS):
        sums, weights = torch.zeros_like(centers), centers.new_zeros(num, 1)
        order = torch.randperm(own.shape[0], generator=generator, device=generator.device)
        for chunk in own[order.to(own.device)].split(_BATCH):
            share = balanced_assignment(cosine_similarity(chunk, centers), temperature=_SHARPNESS)
            sums += share.T @ chunk
            weights += share.sum(dim=0)[:, None]
        centers = sums / weights.clamp_min(1e-12)
    used, near = cosine_similarity(own, centers).argmax(dim=1).unique(return_inverse=True)
    sums = points.new_zeros(len(used), points.shape[1]).index_add(0, near, points)
    return _with_directions(sums / near.bincount()[:, None], points)


def _equal_groups(
    points: Tensor, num: int, generator: Generator
) -> tuple[Float[Tensor, "K D"], Int[Tensor, "M"]]:
    """Group a few points by cosine, sizes differing by one at most: the groups' means and members.

    Start from K-means, assign points and move centers to the means of their members in turns.
    """
    from scipy.optimize import linear_sum_assignment

    centers = kmeans(points, num, generator).centers
    places = torch.arange(points.shape[0], device=points.device) % num
    group = torch.full_like(places, -1)
    for _ in range(_ROUNDS):
        before, cosine = group, cosine_similarity(points, centers)
        chosen = linear_sum_assignment(cosine[:, places].cpu().numpy(), maximize=True)[1]
        group = places[torch.from_numpy(chosen).to(places.device)]
        centers = torch.zeros_like(centers).index_add(0, group, points)
        centers = _with_directions(centers / group.bincount()[:, None], points)
        if torch.equal(group, before):
            break
    return centers, group


def _with_directions(centers: Tensor, points: Tensor) -> Tensor:
    """Replace a center in the middle of all points, which has no direction."""
    length = points.norm(dim=1)
    vague = centers.norm(dim=1, keepdim=True) <= 1e-5 * length.mean()
    return torch.where(vague, points[length.argmax()], centers)


@torch.no_grad()
def fit_competitive(
    embeddings: Float[Tensor, "M D"],
    *,
    depth: int,
    centers: int,
    generator: Generator,
    batch_size: int = 512,
    passes: int = 5,
    decay: float = 0.95,
    min_members: int = 2,
) -> PrototypeForest:
    """Return prototypes initialized as in the authors' script, from centers uniform in [0, 1).

    The bottom layer has ``centers`` of them, which move by averages that keep a share of ``decay``
    in every step of ``passes`` passes; the ``depth - 1`` layers above are found by rival-penalized
    competition: a departure from the
    paper's K-means, kept for the ``released`` recipe only. Both are sequential by nature; the loops
    run over batches and over at most a few dozen prototypes, never over graphs. Bottom centers with
    fewer than ``min_members`` members, in all passes together, are dropped.

    Raises:
        ConfigError: If no bottom center has that many members.
    """
    (num, width), where = embeddings.shape, generator.device
    start = [
        torch.rand(centers, width, generator=generator, device=where, dtype=torch.float32).to(
            embeddings
        )
        for _ in range(depth)
    ]
    prototypes, counts = start[0], torch.zeros(centers, dtype=torch.long, device=embeddings.device)
    for _ in range(passes):
        order = torch.randperm(num, generator=generator, device=where).to(embeddings.device)
        batches = embeddings[order].split(batch_size)
        prototypes, counts = moving_average_pass(batches, prototypes, counts, decay)
    prototypes = prototypes[counts >= min_members]
    if prototypes.shape[0] == 0:
        raise ConfigError(
            f"no prototype won {min_members} of {num} graphs;"
            " use a larger collection or `global_weight=0`."
        )
    layers, parents = [prototypes], list[Tensor]()
    for level in range(1, depth):
        above, parent = compete(layers[0], start[level], decay)
        layers.insert(0, above)
        parents.insert(0, parent)
    return PrototypeForest(layers, parents)


def moving_average_pass(
    batches: Sequence[Float[Tensor, "_ D"]],
    prototypes: Float[Tensor, "K D"],
    counts: Int[Tensor, "K"],
    decay: float = 0.95,
) -> tuple[Float[Tensor, "K D"], Int[Tensor, "K"]]:
    """Return prototypes and their numbers of members over all passes, after one more.

    Each batch moves its winners toward the mean of their members; ``decay`` is the weight of where
    they were.
    """
    for batch in batches:
        winner = cosine_similarity(batch, prototypes, _EPS).argmax(dim=1)
        members = torch.bincount(winner, minlength=prototypes.shape[0])
        sums = torch.zeros_like(prototypes).index_add(0, winner, batch)
        moved = decay * prototypes + (1 - decay) * (sums / members.clamp_min(1)[:, None])
        prototypes = torch.where(members[:, None] > 0, moved, prototypes)
        counts = counts + members
    return prototypes, counts


def compete(
    points: Float[Tensor, "M D"], initial: Float[Tensor, "K D"], decay: float = 0.95
) -> tuple[Float[Tensor, "Kept D"], Int[Tensor, "M"]]:
    """Return the centers that won a point in the last of 20 sweeps, and each point's winner.

    Rival-penalized competitive learning: point after point, the center of largest dot product moves
    toward the point and the runner-up away from it (the old centers have the weights ``decay`` and
    ``2 - decay``). As in the script, the runner-up is the largest after the winner's product is set
    to 0, so where all others are negative the winner is its own rival.
    """
    centers = initial.clone()
    winners = [0] * points.shape[0]
    for _ in range(_SWEEPS):
        for k, point in enumerate(points):
            score = centers @ point
            winner = int(score.argmax())
            score[winner] = 0.0
            rival = int(score.argmax())
            centers[winner] = decay * centers[winner] + (1 - decay) * point
            centers[rival] = (2 - decay) * centers[rival] - (1 - decay) * point
            winners[k] = winner
    kept, parent = torch.tensor(winners, device=points.device).unique(return_inverse=True)
    return centers[kept], parent
