"""What the compared methods share: frames of their recipes, and the loss that tells right pairs from wrong ones."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from graphlog.objectives.base import LossTerms
from graphlog.ops.contrastive import full_precision, mean_or_zero

_ENCODER: Mapping[str, Any] = {
    "backbone": "gin",
    "layers": 5,
    "dim": 300,
    "jk": "last",
    "readout": "mean",
    "dropout": 0.0,
}


def comparison(**objective: Any) -> dict[str, Any]:
    """Return a bundle in the frame of GraphLoG's own ``default`` recipe, so that only the method differs."""
    training = {"epochs": 11, "batch_size": 512, "learning_rate": 1e-3}
    return {
        "objective": objective,
        "encoder": _ENCODER,
        "training": training,
        "schema": "molecule-rich",
        "embedding": "jk",
    }


def published(schema: str = "molecule", **objective: Any) -> dict[str, Any]:
    """Return a bundle in the frame of Hu et al. (2020), which the later papers kept: 100 epochs, batch 256, Adam 1e-3."""
    training = {"epochs": 100, "batch_size": 256, "learning_rate": 1e-3}
    return {
        "objective": objective,
        "encoder": _ENCODER,
        "training": training,
        "schema": schema,
        "embedding": "last",
    }


def tell_apart(
    positive: Float[Tensor, "P"], negative: Float[Tensor, "Q"], negative_weight: float = 1.0
) -> LossTerms:
    r"""Return binary cross-entropy: :math:`\mathrm{mean}\,\log(1 + e^{-s^+}) + w\,\mathrm{mean}\,\log(1 + e^{s^-})`.

    Args:
        positive: Scores of right pairs; none count as 0.
        negative: Scores of wrong pairs.
        negative_weight: The factor :math:`w`.
    """
    positive, negative = full_precision(positive), full_precision(negative)
    right, wrong = mean_or_zero(F.softplus(-positive)), mean_or_zero(F.softplus(negative))
    with torch.no_grad():
        hits = (positive > 0).sum() + (negative <= 0).sum()
        accuracy = hits / max(positive.shape[0] + negative.shape[0], 1)
    return LossTerms(
        right + negative_weight * wrong,
        {"positive": right, "negative": wrong},
        {"accuracy": accuracy},
    )


def row_products(x: Float[Tensor, "R D"], y: Float[Tensor, "R D"]) -> Float[Tensor, "R"]:
    """Return the inner product of each row with the same row of the other."""
    return (full_precision(x) * full_precision(y)).sum(dim=1)
