"""Global-semantic structure (Sec. 3.2): losses of embeddings, chains and forest."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphlog.ops.contrastive import cosine_similarity, log_softmax_share
from graphlog.prototypes.chains import PrototypeForest, negative_energy

Candidates = Literal["layer", "siblings"]


def nce_loss(
    graph_emb: Float[Tensor, "N D"],
    chains: Int[Tensor, "N Lp"],
    noise: Int[Tensor, "N K Lp"],
    forest: PrototypeForest,
) -> Float[Tensor, ""]:
    r"""Return :math:`\mathcal L_{\mathrm{global}}`: each graph's chain against noise chains.

    Implements Eq. 19 as the paper prints
    it, with :math:`\log \tilde p = f` (Eqs. 17-18): minus the batch mean, which is the scaling of
    Eqs. 14 and 16, of :math:`f(h_n, \hat z_n) - \frac1K \sum_k f(h_n, z^-_{nk})`. Differentiable in
    the embeddings and the prototypes.

    Args:
        graph_emb: Graph embeddings :math:`h_{\mathcal G}`.
        chains: Positive chains :math:`\hat z` of the E-step.
        noise: Negative chains :math:`z^-`, the ``K = Lp`` of
            :func:`~graphlog.prototypes.chains.corrupt_chains`.
        forest: Hierarchical prototypes :math:`\mathbf C`.
    """
    positive = negative_energy(graph_emb, chains, forest)
    repeated = graph_emb.repeat_interleave(noise.shape[1], dim=0)
    negative = negative_energy(repeated, noise.flatten(0, 1), forest)
    return negative.mean() - positive.mean()


def prototype_cross_entropy(
    graph_emb: Float[Tensor, "N D"],
    chains: Int[Tensor, "N Lp"],
    forest: PrototypeForest,
    *,
    temperature: float,
    candidates: Candidates = "layer",
    eps: float = 0.0,
) -> Float[Tensor, ""]:
    r"""Return the global loss as cross-entropies of graphs and of prototypes.

    A departure from Eq. 19. Summed over
    layers: the mean cross-entropy, over graphs, of the chain's prototype among the candidates; and
    for every layer but the top, the mean cross-entropy, over its prototypes, of their parent among
    all prototypes of the layer above.

    Args:
        graph_emb: Graph embeddings :math:`h_{\mathcal G}`.
        chains: Chains of the E-step.
        forest: Hierarchical prototypes.
        temperature: Divides the similarities; positive.
        candidates: ``"layer"``: all prototypes of the layer; ``"siblings"``: below the top only the
            children of the chain's prototype above, as the authors' script does. The latter has a
            trivial solution: an only child costs nothing.
        eps: Added to the denominators of cosine and softmax (the authors' script: 1e-6).
    """
    loss = graph_emb.new_zeros(())
    for level, layer in enumerate(forest.layers):
        logits = cosine_similarity(graph_emb, layer, eps) / temperature
        allowed = None
        if level > 0:
            if candidates == "siblings":
                allowed = forest.parent(level) == chains[:, level - 1, None]
            above = cosine_similarity(layer, forest.layers[level - 1], eps) / temperature
            loss = (
                loss
                - log_softmax_share(
                    above, positives=_one_hot(forest.parent(level), above), eps=eps
                ).mean()
            )
        loss = (
            loss
            - log_softmax_share(logits, allowed, _one_hot(chains[:, level], logits), eps).mean()
        )
    return loss


@torch.no_grad()
def prototype_statistics(
    graph_emb: Float[Tensor, "N D"],
    chains: Int[Tensor, "N Lp"],
    forest: PrototypeForest,
    *,
    temperature: float,
) -> dict[str, Tensor]:
    """Return what the collapse watch looks at, per layer ``l`` (0 = top), as detached scalars.

    ``prototypes_total_l``: how many there are; ``prototypes_used_estep_l`` and
    ``prototypes_used_nearest_l``: how many are in use by the chains and by nearest prototype, as
    the exponential of the usage's entropy; ``posterior_perplexity_l``: over how many prototypes of
    the layer the softmax at ``temperature`` spreads, averaged over graphs.
    """
    statistics: dict[str, Tensor] = {}
    for level, layer in enumerate(forest.layers):
        similarity = cosine_similarity(graph_emb, layer)
        posterior = (similarity / temperature).softmax(dim=1)
        statistics[f"prototypes_total_{level}"] = similarity.new_full((), layer.shape[0])
        statistics[f"prototypes_used_estep_{level}"] = _effective_number(
            chains[:, level], layer.shape[0], similarity.dtype
        )
        statistics[f"prototypes_used_nearest_{level}"] = _effective_number(
            similarity.argmax(dim=1), layer.shape[0], similarity.dtype
        )
        statistics[f"posterior_perplexity_{level}"] = (
            torch.special.entr(posterior).sum(dim=1).exp().mean()
        )
    return statistics


@torch.no_grad()
def assignment_gap(
    graph_emb: Float[Tensor, "N D"],
    chains: Int[Tensor, "N Lp"],
    forest: PrototypeForest,
    *,
    temperature: float,
    draw_temperature: float | None,
) -> Float[Tensor, ""]:
    r"""Return the mean KL divergence from the assignment of roots to the model's softmax over them.

    Where it is 0, roots are drawn from the distribution that the cross-entropy trains, and its
    expected gradient is exactly zero: :math:`\mathbb E_q[\nabla \log q] = 0`.

    Args:
        graph_emb: Graph embeddings.
        chains: Chains of the E-step.
        forest: Hierarchical prototypes.
        temperature: Of the cross-entropy.
        draw_temperature: Of the draw; None where the E-step draws nothing, so that it is certain.
    """
    similarity = cosine_similarity(graph_emb, forest.layers[0])
    log_model = (similarity / temperature).log_softmax(dim=1)
    if draw_temperature is None:
        return -log_model.gather(1, chains[:, :1]).mean()
    log_draw = (similarity / draw_temperature).log_softmax(dim=1)
    return (log_draw.exp() * (log_draw - log_model)).sum(dim=1).mean()


def _one_hot(index: Tensor, logits: Tensor) -> Tensor:
    return torch.arange(logits.shape[1], device=index.device)[None, :] == index[:, None]


def _effective_number(index: Tensor, num: int, dtype: torch.dtype) -> Tensor:
    ones = torch.ones(index.shape, dtype=dtype, device=index.device)
    usage = ones.new_zeros(num).index_add(0, index, ones) / max(index.shape[0], 1)
    return torch.special.entr(usage).sum().exp()
