"""The learned hierarchy as files: ``tree.json``, ``members.csv`` and ``atlas.html``."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphlog.data.store import GraphStore
from graphlog.domains import Input, domain_of
from graphlog.downstream.embed import save_rejects
from graphlog.downstream.encoder import Encoder
from graphlog.downstream.models import load, load_for
from graphlog.downstream.report import json_ready
from graphlog.errors import ConfigError, DataError
from graphlog.files import open_csv, replacing, writing
from graphlog.inputs import InputLike, read_streamed, recall_input, resolve
from graphlog.report.atlas import atlas_page
from graphlog.report.hierarchy import Assignments, Hierarchy, hierarchy_of
from graphlog.report.projection import project, sample_rows
from graphlog.report.tree import Node, build_tree, features_of, path_name, tree_as_json
from graphlog.training.log import Progress
from graphlog.training.precision import Precision

_FORMAT = 2
_UNKNOWN_NOVELTY = (
    "note: novelty is empty: {} does not describe the graphs it would be judged by; add --fit to "
    "judge by those of INPUT, of at least 20, or pre-train again"
)
_IDENTIFIER = re.compile(r"(?i)(^|[ _-])(id|name|identifier|title|code|cas)([ _-]?(no|number))?$")
"""Names of columns that tell rows apart."""
_RULES = {
    "path": "prototype numbers from root to leaf: the nearest leaf and its ancestors where "
    "leaves were assigned in equal shares, "
    "else at each layer the nearest child of the one above (Eq. 12 at temperature 0)",
    "similarity": "cosine of the graph and the leaf of its path, in the space of the prototypes",
    "novelty": "percentile (0 to 100) of the distance from the graphs that the model was trained "
    "on, or the tree fitted to, among those graphs; null where the model does not know them",
    "traits": "means or shares that differ from those of the whole sample by at least 0.3 "
    "standard deviations; `effect` is how many, `q` the false discovery rate (Benjamini and "
    "Hochberg) over all groups and features",
    "common": "the largest substructure that all typical members have, rings matched whole",
}


@dataclass(frozen=True, slots=True)
class WrittenTree:
    """What was written of a hierarchy."""

    folder: Path
    """Where the files are."""
    graphs: int
    """Graphs that stand in the tree."""
    rejected: int
    """Rows that could not be used."""
    layers: tuple[int, ...]
    """Prototypes of each layer, roots first."""
    used: tuple[int, ...]
    """Of those, the ones that hold a graph."""
    paths: tuple[Path, ...]
    """The files."""


def write_prototypes(
    model: Encoder | str | Path,
    out: str | Path,
    source: InputLike | None = None,
    *,
    fit: bool = False,
    graphs: int = 2000,
    seed: int = 0,
    precision: Precision = "fp32",
    device: str = "cpu",
    progress: Progress | None = None,
    **reading: Any,
) -> WrittenTree:
    """Assign every graph of a collection to the prototypes of a model; write tree, members, atlas.

    ``tree.json`` has the tree with sizes, typical graphs and traits; ``members.csv`` has one row
    per input row (``row``, ``path``, ``similarity``, ``novelty``, ``status``), empty where the row
    could not be used; ``atlas.html`` needs only a browser. Novelty is the percentile, 0 to 100, of
    a graph among those that the model was trained on, or with ``fit`` among those of the
    collection; it is empty where the model file does not describe the former.

    Args:
        model: An encoder with prototypes, a model file, a run folder, or a shipped model.
        out: Folder for the files.
        source: The collection; None takes the graphs that the run was trained on.
        fit: Fit a new tree to the collection, with equal shares for its leaves.
        graphs: Graphs on the map, drawn at random; traits are judged by them too.
        seed: Decides sample, layout and fitted prototypes.
        precision: Of the encoder's matrix products.
        device: Where to load a model that is named: ``auto``, ``cpu`` or ``cuda``.
        progress: Told of every batch.
        reading: Options of the reader: ``smiles_column``, ``targets``, ``limit``, ``workers``,
            ``on_error``.

    Raises:
        ConfigError: If the model has no prototypes, or the collection is not found.
        DataError: If the collection cannot be read or is empty.
    """
    _check_folder(Path(out))
    named = "the model" if isinstance(model, Encoder) else str(model)
    encoder = (
        load(model, device=device) if source is None else load_for(model, source, device=device)
    )
    learned = None if fit else hierarchy_of(encoder, named)
    where, remembered = _own_input(model, named) if source is None else (source, {})
    resolved = resolve(where, encoder.schema)
    if reading.get("targets") and not _has_label_columns(resolved, encoder):
        raise ConfigError(
            f"{resolved.name} has its own labels; drop --targets, which names columns of a table."
        )
    with read_streamed(resolved, encoder.schema, **remembered, **reading) as store:
        if len(store) < (2 if fit else 1):
            raise DataError(
                f"{resolved.name} has {len(store)} graphs, too few for a tree; name a larger one."
            )
        if (
            source is None
            and progress is not None
            and store.digest != encoder.info.get("data_digest")
        ):
            progress.say(
                f"note: {resolved.name} no longer holds the graphs that {named} was trained on"
            )
        computing: dict[str, Any] = {"precision": precision, "progress": progress}
        hierarchy = learned or Hierarchy.fitted(encoder, store, seed=seed, **computing)
        if hierarchy.novelty is None and progress is not None:
            progress.say(_UNKNOWN_NOVELTY.format(named if learned else resolved.name))
        assignments = hierarchy.assign(store, **computing)
        sample = sample_rows(len(store), graphs, seed)
        chosen = store.subset(sample)
        features = features_of(chosen)
        roots = build_tree(hierarchy, assignments, store, features, sample)
        about = {
            "model": named if isinstance(model, str | Path) else "a model",
            "collection": resolved.name if source is not None else Path(str(where)).name,
            "origin": "learned" if learned else "fitted in equal shares",
            "layers": list(hierarchy.forest.sizes),
            "rejected": store.num_output_rows - len(store),
        }
        plane = project(hierarchy.embed(chosen, precision=precision), seed)
        named_rows = _identifiers(resolved, store, {**remembered, **reading})
        page = atlas_page(roots, assignments, store, sample, plane, features, about, named_rows)
        return _write(Path(out), roots, assignments, store, hierarchy, about, page)


def _own_input(model: Encoder | str | Path, named: str) -> tuple[str, dict[str, Any]]:
    """Return what a run was trained on, and how that was read."""
    recalled = (
        None
        if isinstance(model, Encoder)
        else recall_input(Path(model).parent if Path(model).is_file() else Path(model))
    )
    if recalled is None:
        raise ConfigError(
            f"the graphs that {named} was trained on were not found; name some with --input."
        )
    return recalled


def _identifiers(source: Input, store: GraphStore, reading: Mapping[str, Any]) -> list[str] | None:
    """Return the column of a table by which its rows are known; None where there is none."""
    if source.is_stream:  # read once already
        return None
    rows = list(domain_of(store.schema).rows(source, store, **reading))
    columns = rows[0].keys() if len(rows) == store.num_output_rows else ()
    for name in columns:
        if _IDENTIFIER.search(name):
            values = [row[name] for row in rows]
            if len(set(values)) > len(values) / 2:
                return values
    return None


def _has_label_columns(source: Input, encoder: Encoder) -> bool:
    is_named = source.path is not None or source.spec is not None
    return is_named and domain_of(encoder.schema).label_columns


def _check_folder(out: Path) -> None:
    """Refuse a folder that could not or should not be written to, before any work."""
    if (out / "config.toml").is_file():
        raise ConfigError(f"{out} is the folder of a run; name another one with -o.")
    there = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not there.is_dir():
        raise ConfigError(f"{there} is a file; name a folder with -o.")
    if not os.access(there, os.W_OK):
        raise ConfigError(f"{there} may not be written to; name another folder with -o.")


def _write(
    out: Path,
    roots: list[Node],
    assignments: Assignments,
    store: GraphStore,
    hierarchy: Hierarchy,
    about: dict[str, Any],
    page: str,
) -> WrittenTree:
    nodes = [node for root in roots for node in root.walk()]
    layers = hierarchy.forest.sizes
    used = tuple(
        sum(node.members > 0 for node in nodes if len(node.path) == level + 1)
        for level in range(len(layers))
    )
    info = hierarchy.model.info
    tree = {
        "format": _FORMAT,
        **about,
        "graphs": len(store),
        "used": list(used),
        "model_info": {
            key: info.get(key)
            for key in ("objective", "recipe", "seed", "epochs", "graphs", "data_digest")
        },
        "data_digest": store.digest,
        "rules": _RULES,
        "roots": [tree_as_json(root, store) for root in roots],
    }
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    paths = (out / "tree.json", out / "members.csv", out / "atlas.html")
    with replacing(paths[0]) as path:
        path.write_text(json.dumps(json_ready(tree), indent=1) + "\n", encoding="utf-8")
    with replacing(paths[1]) as path:
        _write_members(path, assignments, store)
    with replacing(paths[2]) as path:
        path.write_text(page, encoding="utf-8")
    (out / "rejects.csv").unlink(missing_ok=True)  # of another collection
    rejects = save_rejects(out, store.output_rejects, out.name)
    return WrittenTree(
        out,
        len(store),
        about["rejected"],
        layers,
        used,
        paths if rejects is None else (*paths, rejects),
    )


def _write_members(path: Path, assignments: Assignments, store: GraphStore) -> None:
    rows, total = store.output_rows, store.num_output_rows
    graph_of_row = np.full(total, -1)
    graph_of_row[rows] = np.arange(len(store))
    with open_csv(path) as table:
        table.writerow(["row", "path", "similarity", "novelty", "status"])
        for row, (graph, status) in enumerate(
            zip(graph_of_row.tolist(), store.output_status(), strict=True)
        ):
            if graph < 0:
                table.writerow([row, "", "", "", status])
            else:
                cosine, novelty = assignments.similarities[graph, -1], assignments.novelty
                table.writerow(
                    [
                        row,
                        path_name(assignments.paths[graph].tolist()),
                        f"{cosine:.6g}",
                        "" if novelty is None else f"{novelty[graph]:.2f}",
                        status,
                    ]
                )
