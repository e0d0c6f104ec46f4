"""The maps of Figure 4: where graphs and prototypes stand on a plane."""

import time
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from sklearn.metrics import silhouette_score

from graphlog.benchmark.grid import CellSpec
from graphlog.benchmark.sources import about
from graphlog.benchmark.stages.common import Found, Workplace, facts, settings_of
from graphlog.downstream.encoder import Encoder
from graphlog.files import replacing
from graphlog.prototypes import PrototypeForest, fit_forest
from graphlog.report.hierarchy import Hierarchy
from graphlog.report.projection import project, sample_rows
from graphlog.training.precision import choose_device
from graphlog.training.randomness import seed_for


def map_cell(spec: CellSpec, workplace: Workplace) -> Found:
    """Lay graphs and prototypes of one model out on a plane; the arrays go to a file of their own beside the cell.

    A model that was trained without prototypes gets those that K-means finds in its embeddings afterwards, the way GraphLoG's are born;
    the cell says which they are. The colour of a graph is the nearest prototype of the top layer.
    """
    config = settings_of(spec)
    began = time.monotonic()
    store = workplace.graphs.unlabelled(spec)
    rows = sample_rows(len(store), spec.frame.mapped, config.seed)
    encoder = Encoder.read(workplace.folder.model(spec) / "model.safetensors").to(
        choose_device(config.device)
    )
    learnt = Hierarchy.of(encoder)
    embeddings = (learnt.embed if learnt else partial(encoder.embed_store, layer="last"))(
        store.subset(rows), progress=workplace.progress
    )
    forest = learnt.forest if learnt else _fitted(embeddings, config.options, config.seed)
    prototypes = np.concatenate([layer.detach().cpu().numpy() for layer in forest.layers]).astype(
        np.float32
    )
    # on the unit sphere, where the objective compares them: prototypes are directions, their lengths mean nothing
    plane = project(_unit(np.concatenate([embeddings, prototypes])), config.seed).astype(np.float32)
    cluster = np.argmax(_unit(embeddings) @ _unit(prototypes[: forest.sizes[0]]).T, axis=1)
    starts = np.cumsum([0, *forest.sizes])
    above = [np.full(forest.sizes[0], -1)]
    above += [
        forest.parent(level).cpu().numpy() + starts[level - 1] for level in range(1, forest.depth)
    ]
    name = f"{spec.key}.npz"
    _save(
        workplace,
        name,
        coordinates=plane[: len(rows)],
        cluster=cluster.astype(np.int64),
        prototypes=plane[len(rows) :],
        layer=np.repeat(np.arange(forest.depth), forest.sizes).astype(np.int64),
        parent=np.concatenate(above).astype(np.int64),
        row=store.rows[rows].astype(np.int64),
    )
    return {
        **facts(
            spec, {"pretrain": about(store, spec.frame.source)}, time.monotonic() - began, None
        ),
        "scores": {"quality": _quality(embeddings, cluster)},
        "metric": None,
        "task": None,
        "map": name,
        "prototypes": {
            "origin": "learnt" if learnt else "fitted afterwards",
            "sizes": list(forest.sizes),
        },
    }


def _fitted(
    embeddings: Float[np.ndarray, "N D"], options: dict[str, Any], seed: int
) -> PrototypeForest:
    return fit_forest(
        torch.from_numpy(embeddings),
        depth=options["depth"],
        centres=options["centres"],
        generator=torch.Generator().manual_seed(seed_for(seed, "map")),
        centres_rule=options["centres_rule"],
        min_members=options["min_members"],
        space=options["kmeans_space"],
    )


def _quality(embeddings: Float[np.ndarray, "N D"], cluster: np.ndarray) -> dict[str, float | None]:
    """Return how well the colours part (mean silhouette under cosine distance) and how many directions the embeddings use."""
    parted = 1 < len(np.unique(cluster)) < len(cluster)
    silhouette = (
        float(silhouette_score(_unit(embeddings), cluster, metric="cosine")) if parted else None
    )
    spectrum = np.linalg.svd(embeddings - embeddings.mean(axis=0), compute_uv=False).astype(
        np.float64
    )
    share = spectrum / max(spectrum.sum(), 1e-12)
    rank = float(np.exp(-(share * np.log(np.maximum(share, 1e-12))).sum()))
    return {"silhouette": silhouette, "effective_rank": rank}


def _unit(rows: Float[np.ndarray, "K D"]) -> Float[np.ndarray, "K D"]:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def _save(workplace: Workplace, name: str, **arrays: np.ndarray) -> None:
    with replacing(workplace.folder.cells / name) as unfinished, unfinished.open("wb") as file:
        np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType] - keywords are arrays, says its documentation
