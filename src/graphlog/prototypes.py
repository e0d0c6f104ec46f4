"""Hierarchical prototypes (Sec. 3.2): their fit, chains from root to leaf, and noise chains.

K-means is that of scikit-learn and runs on the CPU, whatever the device of the embeddings.
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
_CHUNK_ROWS = 65536
"""Number of points whose distances to the centers are computed at the same time."""
_BALANCED_BATCH, _BALANCED_ROUNDS, _BALANCED_TEMPERATURE = 4096, 20, 0.05
"""Constants of :func:`fit_balanced_forest`: graphs per batch, iterations, temperature."""
_SCRIPT_EPS, _SCRIPT_SWEEPS = 1e-6, 20
"""Constants of :func:`fit_competitive`, from the authors' script."""


@dataclass(frozen=True, eq=False)
class PrototypeForest:
    r"""Prototypes :math:`\mathbf C = \{c^l_i\}` and the trees that they form.

    Example:
        >>> layers = [torch.eye(2), torch.ones(3, 2)]
        >>> forest = PrototypeForest(layers, parents=[torch.tensor([0, 0, 1])])
        >>> forest.sizes, forest.depth
        ((2, 3), 2)
    """

    layers: Sequence[Tensor]
    """Prototypes of each layer, of shape (M_l, D), roots first: index 0 is the paper's l = 1."""
    parents: Sequence[Tensor]
    """For each layer but the first, the index of the parent of each prototype in the layer above,
    of shape (M_l,)."""

    def check(self) -> None:
        """Check that the layers form trees; those read from a file may not.

        Raises:
            ValueError: If a prototype has no parent, a non-leaf no child, or a vector is zero or
                not finite.
        """
        if not self.layers or len(self.parents) != len(self.layers) - 1:
            counts = f"{len(self.layers)} layers, found {len(self.parents)}"
            raise ValueError(f"`parents` must have one entry fewer than the {counts}.")
        for level, layer in enumerate(self.layers):
            is_valid = layer.ndim == 2 and layer.shape[0] > 0
            if not (is_valid and layer.isfinite().all() and (layer.norm(dim=1) > 0).all()):
                raise ValueError(
                    f"layer {level} must be a non-empty matrix of finite, non-zero prototypes, "
                    f"found shape {tuple(layer.shape)}."
                )
        for level, parent in enumerate(self.parents, start=1):
            all_above = torch.arange(self.sizes[level - 1])
            has_shape = parent.shape == (self.sizes[level],)
            if not has_shape or not torch.equal(parent.unique().cpu(), all_above):
                raise ValueError(
                    f"each prototype of layer {level} needs one parent, and each of layer "
                    f"{level - 1} must have a child."
                )

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> "PrototypeForest | None":
        """Return the forest stored as ``prototypes.0``, ``parents_1``, ..., or None without any.

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


def negative_energy(
    graph_emb: Float[Tensor, "N D"], chains: Int[Tensor, "N Lp"], forest: PrototypeForest
) -> Float[Tensor, "N"]:
    r"""Return the unnormalized log-likelihood :math:`f(h, z)` of each graph with its chain.

    Implements Eq. 18, and Eq. 17 up to the constant :math:`\log Z`:

    .. math:: f(h, z) = \sum_{l=1}^{L_p} s(h, z^l) + \sum_{l=1}^{L_p - 1} s(z^l, z^{l+1}).

    Values are in ``[1 - 2 * Lp, 2 * Lp - 1]`` and differentiable with respect to the embeddings and
    the prototypes. The chains may leave the trees, as those of :func:`corrupt_chains` do.

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

    The paper has no temperature (``temperature=1``), so that 50 prototypes are nearly equally
    likely. Sampling is not differentiated: gradients reach ``forest`` only through the loss of the
    M-step (:func:`~graphlog.objectives.losses.nce_loss`, Eq. 19).

    Note:
        As in the paper, sampling ignores the terms of Eq. 18 between prototypes. A chain is
        therefore not an exact sample of the posterior distribution that Eq. 17 implies.

    Returns:
        ``chains[n, l]``: index of the prototype drawn for graph ``n`` in layer ``l`` (0 is the
        top). Consecutive entries are parent and child.

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
    """Return the chain of the most similar prototypes for each graph.

    This is the limit of Eq. 12 at temperature 0, and the E-step of the authors' script (with an
    ``eps`` of 1e-6 in the denominator of the cosine).
    """
    return _walk(graph_emb, forest, lambda similarity: similarity.argmax(dim=1), eps)


def _walk(
    graph_emb: Tensor, forest: PrototypeForest, choose: Callable[[Tensor], Tensor], eps: float = 0.0
) -> Tensor:
    """Choose a root by its similarity, then in each layer a child of the previous choice."""
    chains: list[Tensor] = []
    for level, centers in enumerate(forest.layers):
        similarity = cosine_similarity(graph_emb, centers, eps)
        if level > 0:
            is_child = forest.parents[level - 1] == chains[-1][:, None]
            similarity = similarity.masked_fill(~is_child, -torch.inf)
        chains.append(choose(similarity))
    return torch.stack(chains, dim=1)


@torch.no_grad()
def balanced_assignment(
    similarity: Float[Tensor, "N K"], *, temperature: float, iterations: int = 5
) -> Float[Tensor, "N K"]:
    r"""Assign shares of graphs to prototypes so that each gets an equal part of the batch.

    Sinkhorn iterations in log space scale the rows and columns of :math:`\exp(s / \tau)` until rows
    sum to 1 and columns to ``N / K`` (Asano et al., 2020; Caron et al., 2020). Rows are scaled
    last, so that their sums are exact. If chains were drawn from the softmax of the model, the
    expected gradient of the cross-entropy would be zero; with these shares it is not, if
    ``temperature`` is below that of the loss, and no prototype is left without graphs.
    """
    log_share = similarity / temperature
    target = math.log(max(similarity.shape[0], 1) / similarity.shape[1])
    for _ in range(iterations):
        log_share = log_share - log_share.logsumexp(dim=0, keepdim=True) + target
        log_share = log_share.log_softmax(dim=1)
    return log_share.exp()


def leaf_chains(leaves: Int[Tensor, "N"], forest: PrototypeForest) -> Int[Tensor, "N Lp"]:
    """Return the chain from the root to each leaf, given leaves as indices into the last layer.

    Example:
        >>> forest = PrototypeForest([torch.eye(2), torch.ones(3, 2)], [torch.tensor([0, 0, 1])])
        >>> leaf_chains(torch.tensor([2, 1]), forest)
        tensor([[1, 2],
                [0, 1]])
    """
    chain = [leaves]
    for parent in reversed(forest.parents):
        chain.append(parent[chain[-1]])
    return torch.stack(chain[::-1], dim=1)


@torch.no_grad()
def balanced_chains(
    graph_emb: Float[Tensor, "N D"],
    forest: PrototypeForest,
    *,
    temperature: float,
    eps: float = 0.0,
) -> Int[Tensor, "N Lp"]:
    """Return the chains to the leaves that :func:`balanced_assignment` gives the graphs of a batch.

    This replaces Eq. 12, which draws from the top down and lets prototypes become unused.
    """
    similarity = cosine_similarity(graph_emb, forest.layers[-1], eps)
    share = balanced_assignment(similarity, temperature=temperature)
    return leaf_chains(share.argmax(dim=1), forest)


def _draw(probabilities: Tensor, generator: Generator | None) -> Tensor:
    device = probabilities.device if generator is None else generator.device
    drawn = torch.multinomial(probabilities.to(device), num_samples=1, generator=generator)
    return drawn.squeeze(1).to(probabilities.device)


@torch.no_grad()
def corrupt_chains(
    chains: Int[Tensor, "N Lp"], forest: PrototypeForest, generator: Generator | None = None
) -> Int[Tensor, "N Lp Lp"]:
    r"""Return :math:`L_p` noise chains per chain, each with one prototype replaced.

    Implements the noise distribution :math:`p_n` of Eq. 19: the ``k``-th noise chain replaces the
    prototype of layer ``k`` by another one of that layer, drawn uniformly, whatever its parent. In
    a layer of a single prototype, the noise chain equals the chain and adds 0 to the difference in
    Eq. 19.

    Returns:
        ``noise[n, k, l]``: index of the prototype in layer ``l`` of the ``k``-th noise chain of
        graph ``n``.
    """
    replaced = draw_others(chains, torch.tensor(forest.sizes, device=chains.device), generator)
    noise = chains[:, None, :].repeat(1, forest.depth, 1)
    level = torch.arange(forest.depth, device=chains.device)
    noise[:, level, level] = replaced
    return noise


class Clusters(NamedTuple):
    """Centers, and the assignment of points to them."""

    centers: Float[Tensor, "K D"]
    """Centers of the clusters."""
    assignment: Int[Tensor, "M"]
    """Index of the center of each point."""


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
    """Return prototypes fitted by K-means, layer by layer from the bottom.

    K-means is run on the embeddings and then ``depth - 1`` times on the centers of the layer below.
    After each clustering, centers with fewer than ``min_members`` members are discarded and their
    members are assigned to the nearest remaining center. Taken literally, this rule of the paper
    leaves no upper layer: 50 centers on the at most 50 points of the layer below have one member
    each, and all are discarded. The number of centers is therefore limited by ``centers_rule``:

    - ``"halve"``: at most half the number of points; if no cluster is large enough even then, one
      prototype at the mean of the points is kept, so that a few graphs suffice;
    - ``"literal"``: at most the number of points; an error if all centers are discarded.

    If the top layer then has fewer than ``min_roots`` prototypes, K-means is repeated there with
    that many centers, or with as many as the layer below has, and none is discarded. In the
    ``"unit"`` space, points are scaled to length 1, as cosine similarity compares them.

    Raises:
        ConfigError: If there are fewer than two graphs, all embeddings are zero, or the literal
            rule leaves a layer empty.
        NonFiniteLossError: If an embedding is not finite.
    """
    _check_embeddings(embeddings)
    points = embeddings.detach()
    layers: list[Tensor] = []
    parents: list[Tensor] = []
    for level in range(depth):
        points = unit_rows(points) if space == "unit" else points
        num_points = points.shape[0]
        limit = num_points if centers_rule == "literal" else max(1, num_points // 2)
        num_centers = min(centers, limit)
        clusters = drop_small(points, kmeans(points, num_centers, generator), min_members)
        if clusters.centers.shape[0] == 0:
            if centers_rule == "literal":
                raise ConfigError(
                    f"`centers_rule='literal'` discards all prototypes {level} layers above the"
                    f" bottom: {num_centers} centers on {num_points} points leave none with"
                    f" {min_members} members; use 'halve' or fewer `centers`."
                )
            clusters = Clusters(points.mean(dim=0, keepdim=True), clusters.assignment)
        num_roots = min(min_roots, num_points)
        if level == depth - 1 and clusters.centers.shape[0] < num_roots:
            clusters = drop_small(points, kmeans(points, num_roots, generator), 1)
        layers.insert(0, _replace_vanishing(clusters.centers, points))
        parents.insert(0, clusters.assignment)
        points = layers[0]
    # the last assignment is that of the graphs, which are not part of the forest
    return PrototypeForest(layers, parents[:-1])


def _check_embeddings(embeddings: Float[Tensor, "M D"]) -> None:
    """Raise if no prototypes can be fitted to these embeddings."""
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
    """Return the K-means clusters of the points, initialized by k-means++; some may be empty.

    The result depends only on the points, the generator and the library versions: scikit-learn runs
    on one thread, because its sums over several threads depend on which one finishes first.
    """
    # imported here since they are slow to import and rarely needed
    from sklearn.cluster import KMeans  # pyright: ignore[reportUnknownVariableType]
    from sklearn.exceptions import ConvergenceWarning  # pyright: ignore[reportUnknownVariableType]
    from threadpoolctl import threadpool_limits

    seed = int(torch.randint(2**31 - 1, (1,), generator=generator, device=generator.device))
    model = KMeans(num_centers, n_init=1, max_iter=100, random_state=seed)  # pyright: ignore[reportArgumentType]
    with threadpool_limits(limits=1), warnings.catch_warnings():
        # the warning of fewer distinct points than centers; empty clusters are dropped afterwards
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(points.detach().cpu().numpy())
    centers = torch.from_numpy(model.cluster_centers_).to(points)
    return Clusters(centers, torch.from_numpy(model.labels_).long().to(points.device))


def drop_small(points: Float[Tensor, "M D"], clusters: Clusters, min_members: int) -> Clusters:
    """Return the clusters with at least ``min_members`` points.

    The points of other clusters are assigned to the nearest remaining center; centers do not move.
    If no cluster remains, there are no centers and all assignments are 0.
    """
    counts = torch.bincount(clusters.assignment, minlength=clusters.centers.shape[0])
    kept = counts >= min_members
    centers = clusters.centers[kept]
    if centers.shape[0] == 0:
        return Clusters(centers, torch.zeros_like(clusters.assignment))
    assignment = (kept.cumsum(0) - 1)[clusters.assignment]
    is_dropped = ~kept[clusters.assignment]
    assignment[is_dropped] = nearest(points[is_dropped], centers)
    return Clusters(centers, assignment)


def nearest(points: Float[Tensor, "M D"], centers: Float[Tensor, "K D"]) -> Int[Tensor, "M"]:
    """Return the index of the center nearest to each point (Euclidean; the first of equals)."""
    half_norm = 0.5 * centers.square().sum(dim=1)
    return torch.cat(
        [(half_norm - chunk @ centers.T).argmin(dim=1) for chunk in points.split(_CHUNK_ROWS)]
    )


@torch.no_grad()
def fit_balanced_forest(
    embeddings: Float[Tensor, "M D"],
    *,
    depth: int = 3,
    centers: int = 50,
    roots: int = 4,
    generator: Generator,
) -> PrototypeForest:
    """Return trees with ``centers`` leaves, to which about equally many graphs belong.

    The sizes of the layers grow geometrically from ``roots`` to ``centers``, if there are enough
    graphs. A leaf that is nearest to no graph is dropped. Above the leaves, the numbers of children
    of two prototypes of a layer differ by at most one. The shares are computed without the mean of
    the embeddings, but prototypes are compared with graphs by their cosine: the embeddings must be
    in the space in which they will be compared.

    Raises:
        ConfigError: If there are fewer than two graphs, or all embeddings are zero.
        NonFiniteLossError: If an embedding is not finite.
    """
    _check_embeddings(embeddings)
    # scaled to equal length, so that a few long embeddings do not attract all centers
    points = unit_rows(embeddings) * embeddings.norm(dim=1).mean()
    leaves = _balanced_centers(points, min(centers, points.shape[0] // 2), generator)
    leaves = leaves[cosine_similarity(points, leaves).argmax(dim=1).unique()]
    layers, parents = [leaves], list[Tensor]()
    for level in reversed(range(depth - 1)):
        share = level / (depth - 1)
        size = round(roots * (centers / roots) ** share) if centers > roots else centers
        above, parent = _equal_groups(layers[0], min(size, layers[0].shape[0]), generator)
        layers.insert(0, above)
        parents.insert(0, parent)
    return PrototypeForest(layers, parents)


def _balanced_centers(points: Tensor, num: int, generator: Generator) -> Tensor:
    """Return the centers of ``num`` clusters of about equal size; fewer if some are empty.

    Starting from K-means, each center moves repeatedly to the mean of its balanced share. The
    shares are computed from the cosines of the centered points, scaled to equal length: most
    encoders give all embeddings a large common part, by which all cosines are nearly equal and all
    shares nearly the same. The returned centers are means of the points themselves.
    """
    centered = points - points.mean(dim=0)
    centered = unit_rows(centered) * centered.norm(dim=1).mean()
    centers = kmeans(centered, num, generator).centers
    for _ in range(_BALANCED_ROUNDS):
        sums, weights = torch.zeros_like(centers), centers.new_zeros(num, 1)
        order = torch.randperm(centered.shape[0], generator=generator, device=generator.device)
        for batch in centered[order.to(centered.device)].split(_BALANCED_BATCH):
            share = balanced_assignment(
                cosine_similarity(batch, centers), temperature=_BALANCED_TEMPERATURE
            )
            sums += share.T @ batch
            weights += share.sum(dim=0)[:, None]
        centers = sums / weights.clamp_min(1e-12)
    used, cluster = cosine_similarity(centered, centers).argmax(dim=1).unique(return_inverse=True)
    sums = points.new_zeros(len(used), points.shape[1]).index_add(0, cluster, points)
    return _replace_vanishing(sums / cluster.bincount()[:, None], points)


def _equal_groups(
    points: Tensor, num: int, generator: Generator
) -> tuple[Float[Tensor, "K D"], Int[Tensor, "M"]]:
    """Return the means of ``num`` groups of points, and the group of each point.

    The sizes of the groups differ by at most one. Starting from K-means, points are assigned to
    centers so that the sum of cosines is largest, and centers move to the means of their groups, in
    turns. This is fast enough for a few dozen points.
    """
    from scipy.optimize import linear_sum_assignment

    centers = kmeans(points, num, generator).centers
    slots = torch.arange(points.shape[0], device=points.device) % num
    group = torch.full_like(slots, -1)
    for _ in range(_BALANCED_ROUNDS):
        before, cosine = group, cosine_similarity(points, centers)
        chosen = linear_sum_assignment(cosine[:, slots].cpu().numpy(), maximize=True)[1]
        group = slots[torch.from_numpy(chosen).to(slots.device)]
        centers = torch.zeros_like(centers).index_add(0, group, points)
        centers = _replace_vanishing(centers / group.bincount()[:, None], points)
        if torch.equal(group, before):
            break
    return centers, group


def _replace_vanishing(centers: Tensor, points: Tensor) -> Tensor:
    """Replace centers of length almost 0, which have no direction, by the longest point."""
    length = points.norm(dim=1)
    is_vanishing = centers.norm(dim=1, keepdim=True) <= 1e-5 * length.mean()
    return torch.where(is_vanishing, points[length.argmax()], centers)


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
    """Return prototypes fitted as in the authors' script, from centers drawn uniformly in [0, 1).

    This replaces the K-means of the paper in the recipe ``released``. The ``centers`` of the bottom
    layer move as moving averages, with the weight ``decay`` of the old center, in ``passes`` passes
    over batches of graphs; those with fewer than ``min_members`` members in all passes together are
    dropped. The layers above are fitted to the layer below by rival-penalized competition.

    Raises:
        ConfigError: If no bottom center has that many members.
    """
    (num, width), device = embeddings.shape, generator.device
    start = [
        torch.rand(centers, width, generator=generator, device=device, dtype=torch.float32)
        for _ in range(depth)
    ]
    prototypes = start[0].to(embeddings)
    counts = torch.zeros(centers, dtype=torch.long, device=embeddings.device)
    for _ in range(passes):
        order = torch.randperm(num, generator=generator, device=device).to(embeddings.device)
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
        above, parent = compete(layers[0], start[level].to(embeddings), decay)
        layers.insert(0, above)
        parents.insert(0, parent)
    return PrototypeForest(layers, parents)


def moving_average_pass(
    batches: Sequence[Float[Tensor, "_ D"]],
    prototypes: Float[Tensor, "K D"],
    counts: Int[Tensor, "K"],
    decay: float = 0.95,
) -> tuple[Float[Tensor, "K D"], Int[Tensor, "K"]]:
    """Return the prototypes and their total numbers of members after one more pass.

    Each batch moves the prototypes that are nearest to a graph toward the mean of these graphs;
    ``decay`` is the weight of the old prototype.
    """
    for batch in batches:
        winner = cosine_similarity(batch, prototypes, _SCRIPT_EPS).argmax(dim=1)
        members = torch.bincount(winner, minlength=prototypes.shape[0])
        sums = torch.zeros_like(prototypes).index_add(0, winner, batch)
        moved = decay * prototypes + (1 - decay) * (sums / members.clamp_min(1)[:, None])
        prototypes = torch.where(members[:, None] > 0, moved, prototypes)
        counts = counts + members
    return prototypes, counts


def compete(
    points: Float[Tensor, "M D"], initial: Float[Tensor, "K D"], decay: float = 0.95
) -> tuple[Float[Tensor, "Kept D"], Int[Tensor, "M"]]:
    """Return the centers that win a point in the last of 20 sweeps, and the winner of each point.

    This is rival-penalized competitive learning: for one point after the other, the center with the
    largest dot product (the winner) moves toward the point, and the second (the rival) away from
    it. The old centers have the weights ``decay`` and ``2 - decay``. As in the authors' script, the
    rival is the largest after the product of the winner is set to 0, so that the winner is its own
    rival if all other products are negative.
    """
    centers = initial.clone()
    winners = [0] * points.shape[0]
    for _ in range(_SCRIPT_SWEEPS):
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
