"""Cosine similarity, the only similarity of GraphLoG, and functions for contrastive losses."""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

_TINY = 1e-12


def unit_rows(x: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
    """Return the rows scaled to length 1; a row of zeros stays zero and has no gradient.

    Example:
        >>> import torch
        >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    norm = x.norm(dim=1, keepdim=True)
    return x * (norm > _TINY) / norm.clamp_min(_TINY)


def cosine_similarity(
    x: Float[Tensor, "N D"], y: Float[Tensor, "M D"], eps: float = 0.0
) -> Float[Tensor, "N M"]:
    r"""Return the cosine similarity of every row of ``x`` with every row of ``y``.

    .. math:: s(x, y) = x^\top y / (\|x\| \|y\| + \epsilon)

    The paper (below Eq. 5) has :math:`\epsilon = 0`; the authors' script adds 1e-6. The similarity
    of a row of zeros with every row is 0.

    Example:
        >>> import torch
        >>> y = torch.tensor([[1.0, 0.0], [0.0, 3.0], [-1.0, 0.0]])
        >>> cosine_similarity(torch.tensor([[2.0, 0.0]]), y)
        tensor([[ 1.,  0., -1.]])
    """
    if eps == 0.0:
        return unit_rows(x) @ unit_rows(y).T
    return (x @ y.T) / (x.norm(dim=1)[:, None] * y.norm(dim=1)[None, :] + eps)


def paired_cosine_similarity(
    x: Float[Tensor, "N D"], y: Float[Tensor, "N D"]
) -> Float[Tensor, "N"]:
    """Return the cosine similarity of each row of ``x`` with the same row of ``y``.

    Example:
        >>> import torch
        >>> paired_cosine_similarity(torch.eye(2), torch.tensor([[5.0, 0.0], [1.0, 0.0]]))
        tensor([1., 0.])
    """
    return (unit_rows(x) * unit_rows(y)).sum(dim=1)


def log_softmax_share(
    logits: Float[Tensor, "*R C"],
    candidates: Bool[Tensor, "*R C"] | None = None,
    positives: Bool[Tensor, "*R C"] | None = None,
    eps: float = 0.0,
) -> Float[Tensor, "*R"]:
    r"""Return, for every row, the logarithm of the share of positives in the softmax.

    .. math:: \log \frac{\sum_{c \in P} e^{l_c}}{\epsilon + \sum_{c \in A} e^{l_c}}

    This is the core of InfoNCE, with positives ``P`` (by default the diagonal of the last two axes)
    and candidates ``A`` (by default all). The authors' script has an ``eps`` of 1e-6. Sums are
    computed as logarithms, so small temperatures do not overflow.

    Returns:
        Logarithms, at most 0 where ``P`` lies within ``A``; ``-inf`` where a row has no positive.
    """
    if positives is None:
        top = logits.diagonal(dim1=-2, dim2=-1)
    else:
        top = logits.masked_fill(~positives, -torch.inf).logsumexp(dim=-1)
    if candidates is not None:
        logits = logits.masked_fill(~candidates, -torch.inf)
    bottom = logits.logsumexp(dim=-1)
    if eps > 0.0:
        bottom = torch.logaddexp(bottom, torch.full_like(bottom, math.log(eps)))
    return top - bottom


def margin(positive: Float[Tensor, "P"], negative: Float[Tensor, "Q"]) -> Float[Tensor, ""]:
    """Return the mean of negatives minus that of positives (Eqs. 6, 7, 19, linear); 0 if empty."""
    return mean_or_zero(negative) - mean_or_zero(positive)


def draw_others(
    index: Int[Tensor, "*R"], size: Int[Tensor, "*T"], generator: Generator | None
) -> Int[Tensor, "*R"]:
    """Draw, for each ``index``, another index below ``size`` uniformly; 0 if there is no other."""
    device = index.device if generator is None else generator.device
    draw = torch.rand(index.shape, generator=generator, device=device, dtype=torch.float64)
    others = (size - 1).clamp_min(1)
    return (index + 1 + (draw.to(index.device) * others).long().clamp_max(others - 1)) % size


def mean_or_zero(values: Float[Tensor, "P"]) -> Float[Tensor, ""]:
    """Return the mean; if there are no values, a 0 that is still part of the autograd graph."""
    return values.sum() / max(values.shape[0], 1)


def full_precision(x: Float[Tensor, "*S"]) -> Float[Tensor, "*S"]:
    """Return ``x`` in float32 if it is in half precision, otherwise unchanged."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
