"""How well a chain of prototypes represents a graph, and the noise chains it is contrasted with."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphlog.ops.contrastive import paired_cosine_similarity
from graphlog.prototypes.forest import PrototypeForest


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
    where = chains.device if generator is None else generator.device
    draw = torch.rand(chains.shape, generator=generator, device=where, dtype=torch.float64).to(
        chains.device
    )
    sizes = torch.tensor(forest.sizes, device=chains.device)
    others = (sizes - 1).clamp_min(1)
    step = 1 + (draw * others).long().clamp_max(others - 1)
    replaced = (chains + step) % sizes
    noise = chains[:, None, :].repeat(1, forest.depth, 1)
    level = torch.arange(forest.depth, device=chains.device)
    noise[:, level, level] = replaced
    return noise
