"""GraphLoG's losses: local-instance (Sec. 3.1) and global-semantic structure (Sec. 3.2)."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from graphlog.ops.contrastive import (
    cosine_similarity,
    draw_others,
    log_softmax_share,
    margin,
    mean_or_zero,
)
from graphlog.ops.sparse import (
    filled,
    grouped_cosine,
    pad_values,
    plan_padding,
    segment_ids,
    unpad_values,
)
from graphlog.prototypes import PrototypeForest, negative_energy

LocalForm = Literal["margin", "expected-margin", "infonce"]
Anchors = Literal["all", "masked"]
Positive = Literal["own", "masked"]
Candidates = Literal["layer", "siblings"]


class PairLoss(NamedTuple):
    """A local loss and the mean cosines of its pairs."""

    loss: Float[Tensor, ""]
    """Loss to minimize."""
    positive: Float[Tensor, ""]
    """Mean cosine of the positive pairs, detached."""
    negative: Float[Tensor, ""]
    """Mean cosine of the negative pairs used, detached; 0 without any."""


def graph_loss(
    graph_emb: Float[Tensor, "N D"],
    view_emb: Float[Tensor, "N D"],
    *,
    form: LocalForm = "margin",
    temperature: float = 1.0,
    eps: float = 0.0,
    generator: Generator | None = None,
) -> PairLoss:
    r"""Return :math:`\mathcal L_{\mathrm{graph}}`, which makes the two views of a graph similar.

    Implements Eq. 6 with ``form="margin"``: minus the mean of :math:`s(h_n, h'_n) - s(h_r, h'_n)`,
    with another graph ``r`` of the batch drawn for every ``n``. The views are the anchors.

    The other forms are not in the paper. ``"expected-margin"`` averages over all other graphs
    instead of drawing one, which has the same expectation and less noise. ``"infonce"`` is the
    cross-entropy of identifying ``h_n`` among the graphs of the batch, given ``h'_n``, as in the
    authors' script; only this form uses ``temperature``. A batch of one graph has no negative: only
    the positive pair counts, and the InfoNCE loss is 0. ``eps`` is added to the denominators of
    cosine and softmax (authors' script: 1e-6).
    """
    similarity = cosine_similarity(view_emb, graph_emb, eps)
    num = similarity.shape[0]
    positive = similarity.diagonal()
    if form == "margin":
        drawn = similarity.new_empty(0)
        if num > 1:
            row = torch.arange(num, device=similarity.device)
            drawn = similarity[row, draw_others(row, row.new_full((num,), num), generator)]
        return _pair_loss(margin(positive, drawn), positive, drawn)
    others = (similarity.sum(dim=1) - positive) / max(num - 1, 1)
    if form == "infonce":
        loss = -log_softmax_share(similarity / temperature, eps=eps).mean()
    else:
        loss = margin(positive, others)
    return _pair_loss(loss, positive, others)


def subgraph_loss(
    node_emb: Float[Tensor, "V D"],
    view_emb: Float[Tensor, "V D"],
    ptr: Int[Tensor, "P"],
    masked_idx: Int[Tensor, "A"],
    *,
    form: LocalForm = "margin",
    temperature: float = 1.0,
    eps: float = 0.0,
    anchors: Anchors = "all",
    positive: Positive = "own",
    colors: Int[Tensor, "V"] | None = None,
    generator: Generator | None = None,
    host_ptr: Int[Tensor, "P"] | None = None,
) -> PairLoss:
    r"""Return :math:`\mathcal L_{\mathrm{sub}}`, which makes the two views of a subgraph similar.

    Implements Eq. 7 with ``form="margin"``: minus the mean over nodes ``v`` of
    :math:`s(h_v, h'_v) - s(h_w, h'_v)`, with another node ``w`` of the same graph drawn for every
    ``v``. The only node of a graph has no negative, and only its positive pair counts.

    The other forms are not in the paper. ``"expected-margin"`` averages over all other nodes of the
    graph; ``"infonce"`` is the cross-entropy of identifying ``v`` among the nodes of its graph (0
    for the only node of a graph). Means are over all anchors of the batch, so that a larger graph
    has a larger weight.

    Args:
        node_emb: Embeddings :math:`h_{\mathcal G_v}` in the clean graphs (candidates).
        view_emb: Embeddings :math:`h_{\mathcal G'_v}` in the views (anchors); rows of other nodes
            are ignored.
        ptr: Node range of each graph.
        masked_idx: Nodes that are masked, or touch a masked edge, in the view.
        form: Form of the loss.
        temperature: Divisor of the similarities (``"infonce"`` only).
        eps: Constant added to the denominators of cosine and softmax (authors' script: 1e-6).
        anchors: ``"all"`` nodes (paper), or only the ``"masked"`` ones (authors' script).
        positive: ``"own"``: the same node (paper). ``"masked"``, for ``"infonce"`` with masked
            anchors: any masked node of the graph, as in the authors' script, which does not prefer
            the node itself to another masked one.
        colors: Color of each node; nodes of equal colors are not negatives of each other
            (not for ``"margin"``). None makes all other nodes of a graph negatives.
        generator: Random generator that draws the negatives of ``"margin"``.
        host_ptr: ``ptr`` on the CPU; None copies it.
    """
    every_idx = torch.arange(node_emb.shape[0], device=node_emb.device)
    anchor_idx = masked_idx if anchors == "masked" else every_idx
    padding = plan_padding(ptr, host_ptr)
    similarity = grouped_cosine(view_emb, node_emb, padding, eps)
    own = unpad_values([s.diagonal(dim1=1, dim2=2) for s in similarity], padding)[anchor_idx]
    graph = segment_ids(ptr, node_emb.shape[0])
    size = ptr.diff()[graph[anchor_idx]]
    # indexing with a mask makes a GPU wait until its length is known, so avoid it if possible
    has_negative = slice(None) if padding.smallest > 1 else size > 1
    if form == "margin":
        index = torch.arange(graph.shape[0], device=graph.device) - ptr[:-1][graph]
        other = pad_values(draw_others(index, ptr.diff()[graph], generator), padding)
        with_other = zip(similarity, other, strict=True)
        padded = [s.gather(2, o[:, :, None]).squeeze(2) for s, o in with_other]
        drawn = unpad_values(padded, padding)[anchor_idx][has_negative]
        return _pair_loss(margin(own, drawn), own, drawn)
    candidates = [f[:, None, :] for f in filled(padding)]
    if colors is not None:
        for bucket, color in enumerate(pad_values(colors, padding)):
            is_own = torch.eye(color.shape[1], dtype=torch.bool, device=color.device)
            differs = color[:, :, None] != color[:, None, :]
            candidates[bucket] = candidates[bucket] & (differs | is_own)
    totals = [
        s.masked_fill(~c, 0.0).sum(dim=2) for s, c in zip(similarity, candidates, strict=True)
    ]
    others = unpad_values(totals, padding)[anchor_idx] - own
    if colors is None:
        others = others[has_negative] / (size - 1)[has_negative]
    else:  # a node without negatives adds 0, so that no mask is needed as an index
        count = unpad_values([c.sum(dim=2) for c in candidates], padding)[anchor_idx] - 1
        others = (others / count.clamp_min(1)).sum()[None] / (count > 0).sum().clamp_min(1)
    if form == "expected-margin":
        return _pair_loss(margin(own, others), own, others)
    is_masked = torch.zeros_like(graph, dtype=torch.bool).index_fill(0, masked_idx, True)
    masked = pad_values(is_masked, padding) if positive == "masked" else None
    shares: list[Tensor] = []
    for bucket, (s, allowed) in enumerate(zip(similarity, candidates, strict=True)):
        positives = None if masked is None else masked[bucket][:, None, :].expand_as(s)
        shares.append(log_softmax_share(s / temperature, allowed.expand_as(s), positives, eps))
    return _pair_loss(-mean_or_zero(unpad_values(shares, padding)[anchor_idx]), own, others)


def _pair_loss(loss: Tensor, positive: Tensor, negative: Tensor) -> PairLoss:
    return PairLoss(loss, mean_or_zero(positive.detach()), mean_or_zero(negative.detach()))


def nce_loss(
    graph_emb: Float[Tensor, "N D"],
    chains: Int[Tensor, "N Lp"],
    noise: Int[Tensor, "N K Lp"],
    forest: PrototypeForest,
) -> Float[Tensor, ""]:
    r"""Return :math:`\mathcal L_{\mathrm{global}}`, the contrast of chains with noise chains.

    Implements Eq. 19 as printed in the paper, with :math:`\log \tilde p = f` (Eqs. 17-18): minus
    the mean over the batch (the scaling of Eqs. 14 and 16) of
    :math:`f(h_n, \hat z_n) - \frac1K \sum_k f(h_n, z^-_{nk})`. The ``K = Lp`` noise chains are
    those of :func:`~graphlog.prototypes.corrupt_chains`. The loss is differentiable with respect to
    the embeddings and the prototypes.
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
    r"""Return the global loss in the form of cross-entropies, which replaces Eq. 19.

    It is the sum over layers of the mean cross-entropy, over graphs, of the prototype of the chain
    among the candidates, and, for every layer but the top, of the mean cross-entropy, over its
    prototypes, of the parent among all prototypes of the layer above.

    The candidates are the whole ``"layer"``, or, below the top, the ``"siblings"``: the children of
    the prototype above in the chain, as in the authors' script. Siblings allow a trivial solution,
    since the cross-entropy of an only child is 0. ``eps`` is added to the denominators of cosine
    and softmax (authors' script: 1e-6).
    """
    loss = graph_emb.new_zeros(())
    for level, layer in enumerate(forest.layers):
        # before `above`: the order of these lines decides the order in which gradients are added
        logits, allowed = cosine_similarity(graph_emb, layer, eps) / temperature, None
        if level > 0:
            parent = forest.parents[level - 1]
            if candidates == "siblings":
                allowed = parent == chains[:, level - 1, None]
            above = cosine_similarity(layer, forest.layers[level - 1], eps) / temperature
            share = log_softmax_share(above, positives=_one_hot(parent, above), eps=eps)
            loss = loss - share.mean()
        share = log_softmax_share(logits, allowed, _one_hot(chains[:, level], logits), eps)
        loss = loss - share.mean()
    return loss


@torch.no_grad()
def prototype_statistics(
    graph_emb: Float[Tensor, "N D"],
    chains: Int[Tensor, "N Lp"],
    forest: PrototypeForest,
    *,
    temperature: float,
) -> dict[str, Tensor]:
    """Return scalars for the collapse monitor, by name, for each layer ``l`` (0 is the top).

    ``prototypes_total_l`` is the number of prototypes. ``prototypes_used_estep_l`` and
    ``prototypes_used_nearest_l`` are the effective numbers of prototypes in the chains and among
    the nearest prototypes of the graphs, the exponential of the entropy of their frequencies.
    ``posterior_perplexity_l`` is the perplexity of the softmax over the layer at ``temperature``,
    averaged over graphs.
    """
    statistics: dict[str, Tensor] = {}
    for level, layer in enumerate(forest.layers):
        similarity, num = cosine_similarity(graph_emb, layer), layer.shape[0]
        spread = torch.special.entr((similarity / temperature).softmax(dim=1)).sum(dim=1).exp()
        statistics |= {
            f"prototypes_total_{level}": similarity.new_full((), num),
            f"prototypes_used_estep_{level}": _effective_number(chains[:, level], num, similarity),
            f"prototypes_used_nearest_{level}": _effective_number(
                similarity.argmax(dim=1), num, similarity
            ),
            f"posterior_perplexity_{level}": spread.mean(),
        }
    return statistics


def _one_hot(index: Tensor, logits: Tensor) -> Tensor:
    return torch.arange(logits.shape[1], device=index.device)[None, :] == index[:, None]


def _effective_number(index: Tensor, num: int, like: Tensor) -> Tensor:
    """Return the exponential of the entropy of the frequencies of the numbers below ``num``."""
    counts = like.new_zeros(num).index_add(0, index, like.new_ones(index.shape))
    return torch.special.entr(counts / max(index.shape[0], 1)).sum().exp()
