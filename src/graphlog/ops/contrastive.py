"""Contrastive losses on given similarities; no parameters, no embeddings, no graphs."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def log_softmax_share(
    logits: Float[Tensor, "*R C"],
    candidates: Bool[Tensor, "*R C"] | None = None,
    positives: Bool[Tensor, "*R C"] | None = None,
    eps: float = 0.0,
) -> Float[Tensor, "*R"]:
    r"""Return the log share of the softmax that falls on the positives, for every row.

    .. math:: \log \frac{\sum_{c \in P} e^{l_c}}{\epsilon + \sum_{c \in A} e^{l_c}}

    The core of InfoNCE: the share of the softmax that falls on the positives ``P`` among the
    candidates ``A``. Computed in logs, so no temperature is too sharp for it.

    Args:
        logits: Similarities over the temperature.
        candidates: Which columns may be chosen; all of them if None.
        positives: Which columns are right; the diagonal of the last two axes if None.
        eps: Added to the denominator (the authors' script: 1e-6).

    Returns:
        Logarithms, at most 0 where ``P`` lies within ``A``; ``-inf`` where a row has no positive.
    """
    diagonal = logits.diagonal(dim1=-2, dim2=-1)
    top = (
        diagonal
        if positives is None
        else logits.masked_fill(~positives, -torch.inf).logsumexp(dim=-1)
    )
    if candidates is not None:
        logits = logits.masked_fill(~candidates, -torch.inf)
    bottom = logits.logsumexp(dim=-1)
    if eps > 0.0:
        bottom = torch.logaddexp(bottom, torch.full_like(bottom, math.log(eps)))
    return top - bottom


def info_nce(
    similarity: Float[Tensor, "N N"], temperature: float, eps: float = 0.0
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of picking, in every row, the candidate on the diagonal.

    Args:
        similarity: Anchors in rows, candidates in columns, the positive pair on the diagonal.
        temperature: Divides the similarities; positive.
        eps: Added to the softmax denominator.
    """
    return -log_softmax_share(similarity / temperature, eps=eps).mean()


def margin(positive: Float[Tensor, "P"], negative: Float[Tensor, "Q"]) -> Float[Tensor, ""]:
    """Return minus the difference of two means (Eqs. 6, 7 and 19, linear); no pairs count as 0."""
    return mean_or_zero(negative) - mean_or_zero(positive)


def mean_or_zero(values: Float[Tensor, "P"]) -> Float[Tensor, ""]:
    """Return the mean, or a zero that carries (no) gradient where there is nothing to average."""
    return values.sum() / max(values.shape[0], 1)


def full_precision(x: Float[Tensor, "*S"]) -> Float[Tensor, "*S"]:
    """Return ``x`` in float32 where it is in a half precision, and as it is otherwise."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
