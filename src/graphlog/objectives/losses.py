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
    """A local loss and the mean cosines behind it."""

    loss: Float[Tensor, ""]
    """What is minimized."""
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
    generator: Generator | None = None,
) -> PairLoss:
    r"""Return :math:`\mathcal L_{\mathrm{graph}}`: correlated graphs alike, others unlike.

    Implements Eq. 6 with ``form="margin"``: minus the mean of :math:`s(h_n, h'_n) - s(h_r, h'_n)`,
    with one other graph ``r`` of the batch drawn for every ``n``. The views are the anchors. The
    other forms are departures: ``"expected-margin"`` averages over all other graphs instead of
    drawing one (same expectation, less noise); ``"infonce"`` is the cross-entropy of finding
    ``h_n`` among the batch from ``h'_n``, the authors' script, and only this form uses
    ``temperature``. A batch of one graph has no negative: only its positive pair counts (0 under
    InfoNCE). ``eps`` is added to the denominators of cosine and softmax (authors' script: 1e-6).
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
    loss = margin(positive, others)
    if form == "infonce":
        loss = -log_softmax_share(similarity / temperature, eps=eps).mean()
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
    present_idx: Int[Tensor, "B"] | None = None,
    colors: Int[Tensor, "V"] | None = None,
    generator: Generator | None = None,
    host_ptr: Int[Tensor, "P"] | None = None,
) -> PairLoss:
    r"""Return :math:`\mathcal L_{\mathrm{sub}}`.

    The two views of a subgraph alike, subgraphs of one graph around other nodes unlike. Implements
    Eq. 7 with ``form="margin"``: minus the mean over nodes ``v`` of :math:`s(h_v, h'_v) - s(h_w,
    h'_v)`, with one other node ``w`` of the same graph drawn for every ``v``; a node alone in its
    graph has no negative and counts as a positive pair only. ``"expected-margin"`` averages over
    all other nodes; ``"infonce"`` is the cross-entropy of finding ``v`` among the nodes of its
    graph (an alone node adds 0). Means are over all anchors of the batch, so large graphs weigh
    more. Only nodes of one graph are ever compared.

    Args:
        node_emb: Embeddings :math:`h_{\mathcal G_v}` in the clean graphs: the candidates.
        view_emb: Embeddings :math:`h_{\mathcal G'_v}` in the views: the anchors. Rows that are no
            anchors are not looked at.
        ptr: Node range of each graph.
        masked_idx: Nodes that the view masks (or that touch a masked edge).
        form: Which of the three losses.
        temperature: Divides the similarities of ``"infonce"``.
        eps: Added to the denominators of cosine and softmax (the authors' script: 1e-6).
        anchors: ``"all"`` nodes (the paper) or only the ``"masked"`` ones (the authors' script).
        positive: ``"own"``: the same node (the paper); ``"masked"``, for ``"infonce"`` from masked
            anchors: any masked node of its graph, as in the authors' script, where nothing draws a
            node toward itself rather than toward another masked one.
        present_idx: Nodes that the view still has, the anchors where these are ``"all"``; None
            for every node.
        colors: Nodes of a graph with equal colors are no negatives of ``"infonce"`` for each
            other; None makes all others negatives.
        generator: Draws the negatives of ``"margin"``.
        host_ptr: ``ptr`` on the CPU; None copies it.
    """
    chosen = masked_idx if anchors == "masked" else present_idx
    if chosen is None:
        chosen = torch.arange(node_emb.shape[0], device=node_emb.device)
    padding = plan_padding(ptr, host_ptr)
    similarity = grouped_cosine(view_emb, node_emb, padding, eps)
    own = unpad_values([s.diagonal(dim1=1, dim2=2) for s in similarity], padding)[chosen]
    graph = segment_ids(ptr, node_emb.shape[0])
    size = ptr.diff()[graph[chosen]]
    # a mask as index stops a GPU until it is counted; mostly no node is alone
    paired = slice(None) if padding.smallest > 1 else size > 1
    if form == "margin":  # with one other node of its graph, drawn evenly
        index = torch.arange(graph.shape[0], device=graph.device) - ptr[:-1][graph]
        other = pad_values(draw_others(index, ptr.diff()[graph], generator), padding)
        with_other = zip(similarity, other, strict=True)
        found = [s.gather(2, o[:, :, None]).squeeze(2) for s, o in with_other]
        drawn = unpad_values(found, padding)[chosen][paired]
        return _pair_loss(margin(own, drawn), own, drawn)
    candidates = [m[:, None, :] for m in filled(padding)]
    total = unpad_values(
        [s.masked_fill(~c, 0.0).sum(dim=2) for s, c in zip(similarity, candidates, strict=True)],
        padding,
    )
    others = (total[chosen] - own)[paired] / (size - 1)[paired]
    if form == "expected-margin":
        return _pair_loss(margin(own, others), own, others)
    is_masked = torch.zeros_like(graph, dtype=torch.bool).index_fill(0, masked_idx, True)
    masked = pad_values(is_masked, padding) if positive == "masked" else None
    kinds = None if colors is None else pad_values(colors, padding)
    shares: list[Tensor] = []
    for number, s in enumerate(similarity):
        among = candidates[number].expand_as(s)
        right = None if masked is None else masked[number][:, None, :].expand_as(s)
        if kinds is not None:
            k = kinds[number]
            is_own = torch.eye(k.shape[1], dtype=torch.bool, device=k.device)
            among = among & ((k[:, :, None] != k[:, None, :]) | is_own)
        shares.append(log_softmax_share(s / temperature, among, right, eps))
    return _pair_loss(-mean_or_zero(unpad_values(shares, padding)[chosen]), own, others)


def _pair_loss(loss: Tensor, positive: Tensor, negative: Tensor) -> PairLoss:
    return PairLoss(loss, mean_or_zero(positive.detach()), mean_or_zero(negative.detach()))


def nce_loss(
    graph_emb: Float[Tensor, "N D"],
    chains: Int[Tensor, "N Lp"],
    noise: Int[Tensor, "N K Lp"],
    forest: PrototypeForest,
) -> Float[Tensor, ""]:
    r"""Return :math:`\mathcal L_{\mathrm{global}}`: each graph's chain against noise chains.

    Implements Eq. 19 as the paper prints it, with :math:`\log \tilde p = f` (Eqs. 17-18): minus the
    batch mean, which is the scaling of Eqs. 14 and 16, of
    :math:`f(h_n, \hat z_n) - \frac1K \sum_k f(h_n, z^-_{nk})`. The ``K = Lp`` noise chains are
    those of :func:`~graphlog.prototypes.corrupt_chains`. Differentiable in the embeddings and the
    prototypes.
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

    A departure from Eq. 19. Summed over layers: the mean cross-entropy, over graphs, of the chain's
    prototype among the candidates; and for every layer but the top, the mean cross-entropy, over
    its prototypes, of their parent among all prototypes of the layer above.

    The candidates are the whole ``"layer"``, or below the top only the ``"siblings"``, children of
    the chain's prototype above, as in the authors' script. The latter has a trivial solution: an
    only child costs nothing. ``eps`` is added to the denominators of cosine and softmax (script:
    1e-6).
    """
    loss = graph_emb.new_zeros(())
    for level, layer in enumerate(forest.layers):
        # first, as gradients are added up in the opposite order of the forward pass
        logits, allowed = cosine_similarity(graph_emb, layer, eps) / temperature, None
        if level > 0:
            parent = forest.parent(level)
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
    """Return what the collapse monitor looks at, per layer ``l`` (0 = top), as detached scalars.

    ``prototypes_total_l``: how many there are; ``prototypes_used_estep_l`` and
    ``prototypes_used_nearest_l``: how many are in use by the chains and by nearest prototype, as
    the exponential of the usage's entropy; ``posterior_perplexity_l``: over how many prototypes of
    the layer the softmax at ``temperature`` spreads, averaged over graphs.
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
    expected gradient is exactly zero: :math:`\mathbb E_q[\nabla \log q] = 0`. Without a
    ``draw_temperature`` the assignment is certain.
    """
    similarity = cosine_similarity(graph_emb, forest.layers[0])
    log_model = (similarity / temperature).log_softmax(dim=1)
    if draw_temperature is None:
        return -log_model.gather(1, chains[:, :1]).mean()
    log_draw = (similarity / draw_temperature).log_softmax(dim=1)
    return (log_draw.exp() * (log_draw - log_model)).sum(dim=1).mean()


def _one_hot(index: Tensor, logits: Tensor) -> Tensor:
    return torch.arange(logits.shape[1], device=index.device)[None, :] == index[:, None]


def _effective_number(index: Tensor, num: int, like: Tensor) -> Tensor:
    """Return the exponential of the entropy of how often each number below ``num`` occurs."""
    usage = like.new_zeros(num).index_add(0, index, like.new_ones(index.shape))
    return torch.special.entr(usage / max(index.shape[0], 1)).sum().exp()
