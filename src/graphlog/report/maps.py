"""The embedding map of a model: a sample of graphs on the plane, in the colours asked for, with the model's prototypes."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from graphlog.data.store import GraphStore
from graphlog.domains.molecule import scaffold
from graphlog.downstream.encoder import Encoder
from graphlog.errors import DataError, unknown_name
from graphlog.objectives import OBJECTIVES
from graphlog.prototypes.forest import PrototypeForest
from graphlog.report.embedding_map import PrototypeMap, embedding_map
from graphlog.report.projection import project, sample_rows
from graphlog.report.style import save_figure

COLOURS = ("prototype", "scaffold", "label")
_FEW_VALUES = 8
_UNIT = 1e-12


def draw_map(
    model: Encoder, store: GraphStore, stem: Path, *, graphs: int = 2000, colour: str = "prototype", target: str | None = None, seed: int = 0
) -> list[Path]:
    """Draw a sample of ``store`` as ``model`` sees it and return the files written.

    With prototypes, the map is of the embedding they were trained in (the final layer's, behind the
    projection head where there is one); without, of the model's own.

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
    objective = restore_objective(model) if colour == "prototype" else None
    forest: PrototypeForest | None = getattr(objective, "forest", None)
    if forest is None:
        places = project(model.embed(sample), seed)
        groups, values, legend = _labels(sample, target) if colour == "label" else (_scaffolds(sample), None, "scaffold")
        figure = embedding_map(places, groups, values, title=f"{len(sample):,} graphs", legend=legend)
        return save_figure(figure, stem)
    embeddings = _behind_head(model.embed(sample, layer="last"), getattr(objective, "head", None))
    layers = [layer.detach().cpu().numpy() for layer in forest.layers]
    places = project(np.concatenate([embeddings, *layers]).astype(np.float32), seed)
    on_map, *prototypes = np.split(places, np.cumsum([len(embeddings), *forest.sizes])[:-1])
    figure = embedding_map(
        on_map,
        [_root_name(r) for r in _roots(forest, embeddings)],
        title=f"{len(sample):,} graphs and their prototypes ({' / '.join(map(str, forest.sizes))})",
        legend="root of the nearest prototype",
        prototypes=PrototypeMap(prototypes, [p.cpu().numpy() for p in forest.parents]),
        hues=[_root_name(r) for r in range(forest.sizes[0])],
    )
    return save_figure(figure, stem)


def restore_objective(model: Encoder) -> nn.Module | None:
    """Return the objective a model was trained with, its tensors in place; None where the model does not hold it."""
    settings = model.info.get("settings", {}).get("objective", {})
    name = settings.get("name")
    if name not in OBJECTIVES or not model.extra:
        return None
    kind = OBJECTIVES[name]
    objective = kind(kind.Config.parse({k: v for k, v in settings.items() if k != "name"}, "objective."), model.network)
    objective.prepare_state(model.extra)
    objective.load_state_dict(model.extra)
    return objective.eval()


def _behind_head(embeddings: Float[np.ndarray, "N D"], head: nn.Module | None) -> Float[np.ndarray, "N D"]:
    if head is None:
        return embeddings
    with torch.no_grad():
        return head(torch.from_numpy(embeddings)).numpy()


def _labels(store: GraphStore, target: str | None) -> tuple[list[str] | None, np.ndarray | None, str]:
    if store.labels is None:
        raise DataError("the graphs carry no labels to colour the map by; name a labelled input, or choose --colour scaffold.")
    name = target or store.tasks[0]
    column = store.labels[:, store.tasks.index(name)]
    known = np.unique(column[~np.isnan(column)])
    if len(known) > _FEW_VALUES:
        return None, column, name
    return ["not measured" if np.isnan(v) else f"{name} = {v:g}" for v in column], None, name


def _scaffolds(store: GraphStore) -> list[str]:
    if store.schema.domain != "molecule":
        return ["graphs"] * len(store)
    return [scaffold(text) or "no ring" for text in store.texts()]


def _roots(forest: PrototypeForest, embeddings: Float[np.ndarray, "N D"]) -> list[int]:
    leaves = forest.layers[-1].detach().cpu().numpy()
    unit = leaves / np.maximum(np.linalg.norm(leaves, axis=1, keepdims=True), _UNIT)
    nearest = (embeddings @ unit.T).argmax(axis=1)
    for level in range(forest.depth - 1, 0, -1):
        nearest = forest.parent(level).cpu().numpy()[nearest]
    return nearest.tolist()


def _root_name(root: int) -> str:
    return f"root {root}"
