"""Embeddings laid out on a plane."""

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from jaxtyping import Float

MAX_POINTS = 5000
"""Graphs that a map shows at most; more would overlap, not inform."""


def project(embeddings: Float[np.ndarray, "N D"], seed: int = 0) -> Float[np.ndarray, "N 2"]:
    """Return a t-SNE map under cosine distance; principal components for fewer than five rows.

    openTSNE is used where it is installed, else scikit-learn; both start from the principal
    components.
    """
    norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
    unit = (embeddings / np.maximum(norms, 1e-12)).astype(np.float64)
    if len(unit) < 5:
        return _principal_components(unit)
    perplexity = float(min(30.0, (len(unit) - 1) / 3))
    try:
        from openTSNE import TSNE
    except ImportError:
        return _project_with_sklearn(unit, perplexity, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layout: Any = TSNE(perplexity=perplexity, initialization="pca", random_state=seed, n_jobs=1)  # pyright: ignore[reportArgumentType]
        return np.asarray(layout.fit(unit), dtype=np.float64)


def sample_rows(total: int, limit: int, seed: int = 0) -> npt.NDArray[np.int64]:
    """Return at most ``limit`` of ``total`` row numbers, drawn without replacement, sorted."""
    if total <= limit:
        return np.arange(total)
    return np.sort(np.random.default_rng(seed).choice(total, size=limit, replace=False))


def _project_with_sklearn(
    unit: Float[np.ndarray, "N D"], perplexity: float, seed: int
) -> Float[np.ndarray, "N 2"]:
    from sklearn.manifold import TSNE

    return np.asarray(
        TSNE(
            perplexity=perplexity, init="pca", learning_rate="auto", random_state=seed
        ).fit_transform(unit),
        dtype=np.float64,
    )


def _principal_components(unit: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N 2"]:
    centered = unit - unit.mean(axis=0)
    left, scale, _ = np.linalg.svd(centered, full_matrices=False)
    plane = np.zeros((len(unit), 2))
    width = min(2, len(scale))
    plane[:, :width] = left[:, :width] * scale[:width]
    return plane
