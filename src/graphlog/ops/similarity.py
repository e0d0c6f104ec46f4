"""Cosine similarity, the one measure of closeness GraphLoG uses: all pairs, and row against row."""

from jaxtyping import Float
from torch import Tensor

_TINY = 1e-12


def unit_rows(x: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
    """Return the rows scaled to length 1; a row of zeros stays zero and gets no gradient.

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

    The paper's measure (below Eq. 5) has :math:`\epsilon = 0`; the authors' script adds 1e-6. A
    zero row has similarity 0 with everything.

    Args:
        x: First vectors, one a row.
        y: Second vectors, one a row.
        eps: Added to the product of the two lengths.

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
    x: Float[Tensor, "N D"], y: Float[Tensor, "N D"], eps: float = 0.0
) -> Float[Tensor, "N"]:
    """Return the cosine similarity of each row of ``x`` with the same row of ``y``.

    Example:
        >>> import torch
        >>> paired_cosine_similarity(torch.eye(2), torch.tensor([[5.0, 0.0], [1.0, 0.0]]))
        tensor([1., 0.])
    """
    if eps == 0.0:
        return (unit_rows(x) * unit_rows(y)).sum(dim=1)
    return (x * y).sum(dim=1) / (x.norm(dim=1) * y.norm(dim=1) + eps)
