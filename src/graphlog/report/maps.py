"""The embedding map of a model: a sample of graphs on the plane, in the colours asked for, with the model's prototypes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from graphlog.data.store import GraphStore
from graphlog.domains.molecule import scaffold
from graphlog.downstream.encoder import Encoder
from graphlog.errors import DataError, unknown_name
from graphlog.report.embedding_map import PrototypeMap, embedding_map
from graphlog.report.hierarchy.places import Hierarchy, ancestors
from graphlog.report.projection import project, sample_rows
from graphlog.report.style import save_figure

COLOURS = ("prototype", "scaffold", "label")
_FEW_VALUES = 8
_NEIGHBOURS = 15
"""Graphs that a prototype which is nobody's nearest is placed amid."""
_LONGEST_NAME = 34


def draw_map(
    model: Encoder,
    store: GraphStore,
    stem: Path,
    *,
    graphs: int = 2000,
    colour: str = "prototype",
    target: str | None = None,
    seed: int = 0,
) -> list[Path]:
    """Draw a sample of ``store`` as ``model`` sees it and return the files written.

    With prototypes, the map is of the embedding they were trained in (the final layer's, behind the
    projection head where there is one); a prototype of the lowest layer stands amid the graphs nearest
    to it, the others amid their children. Without, the map is of the model's own embedding.

    Args:
        model: What embeds.
        store: The graphs.
        stem: Path of the figure without its ending.
        graphs: Graphs on the map.
        colour: ``prototype`` (the root each graph belongs to), ``scaffold``, or ``label``; ``prototype`` becomes
            ``scaffold`` where the model has none.
        target: Label column for ``colour="label"``; None takes the first.
        seed: Decides sample and layout.
    """
    if colour not in COLOURS:
        raise unknown_name("colour", colour, COLOURS)
    sample = store.subset(sample_rows(len(store), graphs, seed))
    hierarchy = Hierarchy.of(model) if colour == "prototype" else None
    if hierarchy is None:
        places = project(model.embed(sample), seed)
        groups, values, legend = (
            _labels(sample, target) if colour == "label" else (_scaffolds(sample), None, "scaffold")
        )
        figure = embedding_map(
            places, groups, values, title=f"{len(sample):,} graphs by {legend}", legend=legend
        )
        return save_figure(figure, stem)
    embeddings = hierarchy.embed(sample)
    places = project(embeddings, seed)
    leaves, parents, sizes = (
        hierarchy.leaf_similarities(embeddings),
        hierarchy.parents,
        hierarchy.forest.sizes,
    )
    figure = embedding_map(
        places,
        [_root_name(r) for r in ancestors(parents, leaves.argmax(axis=1))[:, 0].tolist()],
        title=f"{len(sample):,} graphs and their prototypes ({' / '.join(map(str, sizes))})",
        legend="root of the nearest prototype",
        prototypes=PrototypeMap(_places_of_prototypes(places, leaves, parents), parents),
        hues=[_root_name(r) for r in range(sizes[0])],
    )
    return save_figure(figure, stem)


def _labels(
    store: GraphStore, target: str | None
) -> tuple[list[str] | None, np.ndarray | None, str]:
    if store.labels is None:
        raise DataError(
            "the graphs carry no labels to colour the map by; name a labelled input, or choose --colour scaffold."
        )
    name = target or store.tasks[0]
    column = store.labels[:, store.tasks.index(name)]
    known = np.unique(column[~np.isnan(column)])
    if len(known) > _FEW_VALUES:
        return None, column, name
    return ["not measured" if np.isnan(v) else f"{v:g}" for v in column], None, name


def _scaffolds(store: GraphStore) -> list[str]:
    if store.schema.domain != "molecule":
        return ["graphs"] * len(store)
    return [_shortened(scaffold(text) or "no ring") for text in store.texts()]


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _places_of_prototypes(
    places: Float[np.ndarray, "N 2"],
    similarities: Float[np.ndarray, "N M"],
    parents: Sequence[Int[np.ndarray, "_"]],
) -> list[Float[np.ndarray, "_ 2"]]:
    """Return where the prototypes of each layer stand, roots first."""
    owner = similarities.argmax(axis=1)
    members = np.bincount(owner, minlength=similarities.shape[1])
    closest = places[np.argsort(-similarities, axis=0)[:_NEIGHBOURS]].mean(axis=0)
    sums = np.stack(
        [np.bincount(owner, places[:, k], similarities.shape[1]) for k in (0, 1)], axis=1
    )
    layers = [np.where(members[:, None] > 0, sums / np.maximum(members, 1)[:, None], closest)]
    weights = np.maximum(members, 1).astype(np.float64)
    for parent in reversed(parents):
        total = np.bincount(parent, weights)
        layers.append(
            np.stack(
                [np.bincount(parent, weights * layers[-1][:, k]) / total for k in (0, 1)], axis=1
            )
        )
        weights = total
    return layers[::-1]


def _root_name(root: int) -> str:
    return f"root {root}"
