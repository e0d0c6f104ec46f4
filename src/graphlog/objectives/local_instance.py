"""Local-instance structure (Sec. 3.1): similar graphs and subgraphs close, others apart. Pure functions of embeddings."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graphlog.ops.contrastive import info_nce, log_softmax_share, margin, mean_or_zero
from graphlog.ops.ragged import Padding, filled, pad, plan_padding, unpad
from graphlog.ops.similarity import cosine_similarity, paired_cosine_similarity, unit_rows

LocalForm = Literal["margin", "expected-margin", "infonce"]
Anchors = Literal["all", "masked"]
Positive = Literal["own", "masked"]


class PairLoss(NamedTuple):
    """A local loss and the mean cosines behind it."""

    loss: Float[Tensor, ""]
    """What is minimised."""
    positive: Float[Tensor, ""]
    """Mean cosine of correlated pairs, detached."""
    negative: Float[Tensor, ""]
    """Mean cosine of the negative pairs looked at, detached; 0 where there are none."""


def graph_loss(
    graph_emb: Float[Tensor, "N D"],
    view_emb: Float[Tensor, "N D"],
    *,
    form: LocalForm = "margin",
    temperature: float = 1.0,
    eps: float = 0.0,
    generator: torch.Generator | None = None,
) -> PairLoss:
    r"""Return :math:`\mathcal L_{\mathrm{graph}}`: correlated graphs alike, others unlike.

    Implements Eq. 6 with ``form="margin"``: minus the mean of :math:`s(h_n, h'_n) - s(h_r, h'_n)`, with one other graph ``r`` of the batch
    drawn for every ``n``. The other forms are departures: ``"expected-margin"`` averages over all other graphs instead of drawing one (same
    expectation, less noise); ``"infonce"`` is the cross-entropy of finding ``h_n`` among the whole batch from ``h'_n``, the authors' script.
    A batch of one graph has no negative: only its positive pair counts (0 under InfoNCE).

    Args:
        graph_emb: Embeddings :math:`h_{\mathcal G}` of the clean graphs.
        view_emb: Embeddings :math:`h_{\mathcal G'}` of their correlated views, which are the anchors.
        form: Which of the three losses.
        temperature: Divides the similarities of ``"infonce"``.
        eps: Added to the denominators of cosine and softmax (the authors' script: 1e-6).
        generator: Draws the negatives of ``"margin"``.
    """
    similarity = cosine_similarity(view_emb, graph_emb, eps)
    num = similarity.shape[0]
    positive = similarity.diagonal()
    if form == "margin":
        drawn = similarity.new_empty(0)
        if num > 1:
            start = torch.arange(num, device=similarity.device)
            drawn = similarity[start, _draw_others(start, torch.zeros_like(start), start.new_full((num,), num), generator)]
        return _pair_loss(margin(positive, drawn), positive, drawn)
    others = (similarity.sum(dim=1) - positive) / max(num - 1, 1)
    loss = info_nce(similarity, temperature, eps) if form == "infonce" else margin(positive, others)
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
    generator: torch.Generator | None = None,
) -> PairLoss:
    r"""Return :math:`\mathcal L_{\mathrm{sub}}`: the two views of a subgraph alike, subgraphs of one graph around other nodes unlike.

    Implements Eq. 7 with ``form="margin"``: minus the mean over nodes ``v`` of :math:`s(h_v, h'_v) - s(h_w, h'_v)`, with one other node ``w``
    of the same graph drawn for every ``v``; a node that is alone in its graph has no negative and counts as a positive pair only.
    ``"expected-margin"`` averages over all other nodes; ``"infonce"`` is the cross-entropy of finding ``v`` among the nodes of its graph
    (an alone node adds 0). Means are over all anchors of the batch, so large graphs weigh more. Only nodes of one graph are ever compared.

    Args:
        node_emb: Embeddings :math:`h_{\mathcal G_v}` in the clean graphs: the candidates.
        view_emb: Embeddings :math:`h_{\mathcal G'_v}` in the views: the anchors. Rows that are no anchors are not looked at.
        ptr: Node range of each graph.
        masked_idx: Nodes that the view masks (or that touch a masked edge).
        form: Which of the three losses.
        temperature: Divides the similarities of ``"infonce"``.
        eps: Added to the denominators of cosine and softmax (the authors' script: 1e-6).
        anchors: ``"all"`` nodes (the paper) or only the ``"masked"`` ones (the authors' script).
        positive: ``"own"``: the same node (the paper); ``"masked"``, for ``"infonce"`` from masked anchors: any masked node of the graph, as
            in the authors' script, where nothing draws a node towards itself rather than towards another masked one.
        generator: Draws the negatives of ``"margin"``.
    """
    chosen = masked_idx if anchors == "masked" else torch.arange(node_emb.shape[0], device=node_emb.device)
    if form == "margin":
        return _sampled_subgraph_loss(node_emb, view_emb, ptr, chosen, eps, generator)
    padding = plan_padding(ptr)
    similarity = _within_groups(view_emb, node_emb, padding, eps)
    candidates = [m[:, None, :] for m in filled(padding)]
    own = [s.diagonal(dim1=1, dim2=2) for s in similarity]
    total = [(s * c).sum(dim=2) for s, c in zip(similarity, candidates, strict=True)]
    sizes = (ptr[1:] - ptr[:-1]).repeat_interleave(ptr[1:] - ptr[:-1])[chosen]
    positives = unpad(own, padding)[chosen]
    others = ((unpad(total, padding)[chosen] - positives) / (sizes - 1).clamp_min(1))[sizes > 1]
    if form == "expected-margin":
        return _pair_loss(margin(positives, others), positives, others)
    targets = _masked_columns(masked_idx, padding) if positive == "masked" else [None] * len(similarity)
    shares = [
        log_softmax_share(s / temperature, c.expand_as(s), None if t is None else t.expand_as(s), eps)
        for s, c, t in zip(similarity, candidates, targets, strict=True)
    ]
    return _pair_loss(-mean_or_zero(unpad(shares, padding)[chosen]), positives, others)


def _sampled_subgraph_loss(
    node_emb: Tensor, view_emb: Tensor, ptr: Tensor, chosen: Tensor, eps: float, generator: torch.Generator | None
) -> PairLoss:
    sizes = ptr[1:] - ptr[:-1]
    graph = torch.repeat_interleave(torch.arange(sizes.shape[0], device=ptr.device), sizes)[chosen]
    paired = chosen[sizes[graph] > 1]
    graph = graph[sizes[graph] > 1]
    other = _draw_others(paired, ptr[:-1][graph], sizes[graph], generator)
    positive = paired_cosine_similarity(node_emb[chosen], view_emb[chosen], eps)
    negative = paired_cosine_similarity(node_emb[other], view_emb[paired], eps)
    return _pair_loss(margin(positive, negative), positive, negative)


def _draw_others(index: Tensor, start: Tensor, size: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw, for every row, another row of its range ``start:start + size``, all equally likely; ``size`` is at least 2."""
    where = index.device if generator is None else generator.device
    draw = torch.rand(index.shape[0], generator=generator, device=where, dtype=torch.float64).to(index.device)
    step = 1 + (draw * (size - 1)).long().clamp_max(size - 2)
    return start + (index - start + step) % size


def _within_groups(anchor_emb: Tensor, node_emb: Tensor, padding: Padding, eps: float) -> list[Float[Tensor, "G S S"]]:
    """Return, per bucket, the cosine of every anchor (rows) with every node of its group (columns)."""
    if eps == 0.0:
        anchors, nodes = pad(unit_rows(anchor_emb), padding), pad(unit_rows(node_emb), padding)
        return [a @ n.mT for a, n in zip(anchors, nodes, strict=True)]
    pairs = zip(pad(anchor_emb, padding), pad(node_emb, padding), strict=True)
    return [(a @ n.mT) / (a.norm(dim=2)[:, :, None] * n.norm(dim=2)[:, None, :] + eps) for a, n in pairs]


def _masked_columns(masked_idx: Tensor, padding: Padding) -> list[Bool[Tensor, "G 1 S"]]:
    flat = torch.zeros(padding.num_slots, dtype=torch.bool, device=masked_idx.device)
    flat[padding.slot[masked_idx]] = True
    parts = flat.split([b.groups * b.size for b in padding.buckets])
    return [p.view(b.groups, 1, b.size) for p, b in zip(parts, padding.buckets, strict=True)]


def _pair_loss(loss: Tensor, positive: Tensor, negative: Tensor) -> PairLoss:
    return PairLoss(loss, mean_or_zero(positive.detach()), mean_or_zero(negative.detach()))
