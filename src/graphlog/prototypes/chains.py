"""Hierarchical prototypes C, and their chains from root to leaf: E-step and noise chains."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphlog.ops.contrastive import cosine_similarity, draw_others, paired_cosine_similarity


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
            raise ValueError(
                f"`parents` must hold one entry per layer but the first,"
                f" found {len(self.parents)} for {len(self.layers)}."
            )
        for level, layer in enumerate(self.layers):
            if layer.ndim != 2 or layer.shape[0] == 0:
                raise ValueError(
                    f"layer {level} must be a non-empty matrix, found shape {tuple(layer.shape)}."
                )
            if not bool(torch.isfinite(layer).all() & (layer.norm(dim=1) > 0).all()):
                raise ValueError(f"layer {level} must hold finite, non-zero prototypes.")
        for level in range(1, len(self.layers)):
            above, parent = self.layers[level - 1].shape[0], self.parent(level)
            if parent.shape != (self.layers[level].shape[0],):
                raise ValueError(
                    f"layer {level} needs one parent per prototype, found {tuple(parent.shape)}."
                )
            if not torch.equal(parent.unique().cpu(), torch.arange(above)):
                raise ValueError(
                    f"every prototype of layer {level - 1} must have a child,"
                    f" and every parent must lie in [0, {above})."
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

    Differentiable in the embeddings and the prototypes. The chains need not follow the trees: those
    of :func:`corrupt_chains` do not.

    Args:
        graph_emb: Graph embeddings :math:`h_{\mathcal G}`.
        chains: Index in each layer (0 = top) of the graph's prototype :math:`z^l`.
        forest: Hierarchical prototypes.

    Returns:
        Values in ``[1 - 2 * Lp, 2 * Lp - 1]``.

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
    generator: torch.Generator | None = None,
) -> Int[Tensor, "N Lp"]:
    r"""Draw one root-to-leaf prototype chain per graph (E-step).

    Implements Eq. 12 (Sec. 3.2) by ancestral sampling: the top layer is drawn among all roots,
    every later layer among the children :math:`\mathbb C(\hat z^{l-1}_n)` of the prototype drawn
    just above,

    .. math:: \hat z^l_n \sim \mathrm{Cat}\big(\operatorname{softmax}_c\, s(c, h_n) / \tau\big).

    The draw is not differentiated; gradients reach ``forest`` only through the M-step loss
    (:func:`~graphlog.objectives.losses.nce_loss`, Eq. 19).

    Note:
        The walk ignores the prototype-prototype terms of Eq. 18: it follows the paper, but is not
        an exact sample of the posterior that Eq. 17 implies.

    Args:
        graph_emb: Graph embeddings :math:`h_{\mathcal G}` of the mini-batch.
        forest: Hierarchical prototypes :math:`\mathbf C`, roots first.
        temperature: Softmax temperature :math:`\tau > 0`; the paper uses none (1), at which 50
            prototypes are nearly equally likely.
        generator: Source of randomness.

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

    The zero-temperature limit of Eq. 12, and what the authors' script does.

    Args:
        graph_emb: Graph embeddings of the mini-batch.
        forest: Hierarchical prototypes, roots first.
        eps: Added to the cosine's denominator (the authors' script: 1e-6).
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
    rows sum to 1 and columns to ``N / K`` (Asano et al., 2020; Caron et al., 2020). Unlike the
    model's own softmax, whose expected cross-entropy gradient vanishes, the result has a gradient,
    and no prototype stays without graphs.

    Args:
        similarity: Cosines of graphs (rows) and prototypes (columns).
        temperature: Sharpness :math:`\tau > 0` of the assignment; below that of the loss.
        iterations: Passes over columns and rows; the rows come last and are exact.

    Returns:
        Probabilities; each row sums to 1.
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

    Args:
        graph_emb: Graph embeddings of the mini-batch.
        forest: Hierarchical prototypes, roots first.
        temperature: Sharpness of the assignment.
        eps: Added to the cosine's denominator.
    """
    similarity = cosine_similarity(graph_emb, forest.layers[-1], eps)
    share = balanced_assignment(similarity, temperature=temperature)
    return leaf_chains(share.argmax(dim=1), forest)


def _draw(probabilities: Tensor, generator: torch.Generator | None) -> Tensor:
    where = probabilities.device if generator is None else generator.device
    drawn = torch.multinomial(probabilities.to(where), num_samples=1, generator=generator)
    return drawn.squeeze(1).to(probabilities.device)


@torch.no_grad()
def corrupt_chains(
    chains: Int[Tensor, "N Lp"], forest: PrototypeForest, generator: torch.Generator | None = None
) -> Int[Tensor, "N Lp Lp"]:
    r"""Return :math:`L_p` noise chains per chain, each with one prototype replaced.

    Implements the noise distribution :math:`p_n` of Eq. 19: each time one prototype is replaced by
    another of the same layer, all others of the layer being equally likely, whoever its parent is.
    A layer of one prototype has no other: its noise chain is the chain itself, which adds nothing
    to the difference in Eq. 19.

    Args:
        chains: Chains :math:`\hat z` of the E-step.
        forest: The prototypes they point into.
        generator: Source of randomness.

    Returns:
        ``noise[n, k, l]``: index in layer ``l`` of the prototype of the ``k``-th noise chain of
        graph ``n``.
    """
    replaced = draw_others(chains, torch.tensor(forest.sizes, device=chains.device), generator)
    noise = chains[:, None, :].repeat(1, forest.depth, 1)
    level = torch.arange(forest.depth, device=chains.device)
    noise[:, level, level] = replaced
    return noise
