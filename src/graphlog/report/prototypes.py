"""The learned hierarchy: ``tree.json``, ``members.csv`` and ``atlas.html``, also in a notebook."""

import base64
import gzip
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from graphlog.data.graphs import save_rejects
from graphlog.data.store import GraphStore
from graphlog.domains import Draws, Input, domain_of
from graphlog.downstream.pretrained import Encoder, load
from graphlog.downstream.report import json_ready
from graphlog.errors import ConfigError, DataError, setting
from graphlog.files import (
    MARK,
    folder_kind,
    mark_folder,
    open_csv,
    replacing,
    write_json,
    write_text,
    writing,
)
from graphlog.inputs import InputLike, read_streamed, recall_input, resolve
from graphlog.report.hierarchy import (
    HEIGHT,
    WIDTH,
    Assignments,
    GraphFeature,
    Hierarchy,
    Node,
    build_tree,
    features_of,
    first_of_each,
    hierarchy_of,
    names_of,
    path_name,
    project,
    sample_rows,
    tree_as_json,
)
from graphlog.training.log import Progress
from graphlog.training.settings import Precision

_FORMAT = 1
_KIND = "prototypes"
_FILES = ("tree.json", "members.csv", "atlas.html")
_STRANGERS = 12
"""Graphs shown as the most novel of the collection."""
_ODDEST = 500
"""Graphs they are chosen from: of salts of one base, and other repeats, the first is shown."""
_LISTED = 200_000
"""Largest collection whose graphs are all listed in the atlas; of larger ones, those on the map."""
_COLORS = 24
"""Features by which the map can be colored, at most."""
_MARGIN = 12
_LARGEST = 60
"""Largest number of nodes that is drawn."""
_IDENTIFIER = re.compile(
    r"(?i:(^|[ _-])(id|name|identifier|title|code|cas)([ _-]?(no|number))?$|^graph$)|[a-z]ID$"
)
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
    encoder = load(model, device=device, source=source)
    learned = None if fit else hierarchy_of(encoder, named)
    remembered: dict[str, Any] = {}
    if source is None:
        run = None if isinstance(model, Encoder) else Path(model)
        known = None if run is None else recall_input(run.parent if run.is_file() else run)
        if known is None:
            raise ConfigError(
                f"the graphs that {named} was trained on were not found; name some with "
                f"{setting('source')}.",
                option="source",
            )
        where, remembered = known
    else:
        where = source
    resolved = resolve(where, encoder.schema)
    is_table = resolved.path is not None or resolved.spec is not None
    if reading.get("targets") and not (is_table and domain_of(encoder.schema).label_columns):
        raise ConfigError(
            f"{resolved.name} has its own labels; drop {setting('targets')}, which names columns "
            "of a table.",
            option="targets",
        )
    with read_streamed(resolved, encoder.schema, **remembered, **reading) as store:
        if len(store) < (2 if fit else 1):
            raise DataError(
                f"{resolved.name} has {len(store)} graphs, too few for a tree; name a larger one."
            )
        is_other = source is None and store.digest != encoder.info.get("data_digest")
        if progress is not None and is_other:
            progress.say(
                f"note: {resolved.name} no longer holds the graphs that {named} was trained on"
            )
        computing: dict[str, Any] = {"precision": precision, "progress": progress}
        hierarchy = learned or Hierarchy.fitted(encoder, store, seed=seed, **computing)
        if hierarchy.novelty is None and progress is not None:
            progress.say(
                f"note: the column novelty is empty, because {named if learned else resolved.name} "
                f"does not describe the graphs to compare with; add {setting('fit', True)} to "
                "compare with those of INPUT (at least 20), or pre-train again"
            )
        assignments = hierarchy.assign(store, **computing)
        sample = sample_rows(len(store), graphs, seed)
        chosen = store.subset(sample)
        features = features_of(chosen)
        about = {
            "model": named if isinstance(model, str | Path) else "a model",
            "collection": Path(resolved.name).name,
            "origin": "learned" if learned else "fitted in equal shares",
            "layers": list(hierarchy.forest.sizes),
            "rejected": store.num_output_rows - len(store),
        }
        content = _Content(
            hierarchy=hierarchy,
            store=store,
            assignments=assignments,
            roots=build_tree(hierarchy, assignments, store, features, sample),
            about=about,
            sample=sample,
            plane=project(hierarchy.embed(chosen, precision=precision), seed),
            features=features,
            identifiers=_identifiers(resolved, store, {**remembered, **reading}),
        )
        return _write(Path(out), content)


@dataclass(frozen=True, slots=True)
class _Content:
    """What the files say of a collection."""

    hierarchy: Hierarchy
    store: GraphStore
    assignments: Assignments
    roots: Sequence[Node]
    about: Mapping[str, Any]
    """``model``, ``collection``, ``origin``, ``layers`` and ``rejected``."""
    sample: Int[np.ndarray, "K"]
    """Graphs on the map."""
    plane: Float[np.ndarray, "K 2"]
    features: Sequence[GraphFeature]
    """Values of the graphs on the map, to color it by."""
    identifiers: Sequence[str] | None
    """What the reader calls each row of the input."""

    def name_of(self, graph: int) -> str | None:
        """Return what the reader calls a graph; None where the table has no name for it."""
        if self.identifiers is None:
            return None
        return self.identifiers[int(self.store.output_rows[graph])] or None

    @property
    def nodes(self) -> list[Node]:
        return [node for root in self.roots for node in root.walk()]


def _identifiers(source: Input, store: GraphStore, reading: Mapping[str, Any]) -> list[str] | None:
    """Return the column of a table by which its rows are known; None where there is none."""
    if source.is_stream:  # read once already
        return None
    domain = domain_of(store.schema)
    rows = list(domain.rows(source, store, domain.reading.of(reading)))
    columns = rows[0].keys() if len(rows) == store.num_output_rows else ()
    for name in columns:
        if _IDENTIFIER.search(name):
            values = [row[name] for row in rows]
            if len(set(values)) > len(values) / 2:
                return values
    return None


def _check_folder(out: Path) -> None:
    """Refuse a folder that could not or should not be written to, before any work."""
    is_used = any(os.path.lexists(out / name) for name in (*_FILES, "rejects.csv", MARK))
    if (out / "config.toml").is_file() or (is_used and folder_kind(out) != _KIND):
        raise ConfigError(
            f"{out} holds a run or files of another program; name another folder with "
            f"{setting('out')}.",
            option="out",
        )
    there = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not there.is_dir():
        raise ConfigError(f"{there} is a file; name a folder with {setting('out')}.", option="out")
    if not os.access(there, os.W_OK):
        raise ConfigError(
            f"{there} may not be written to; name another folder with {setting('out')}.",
            option="out",
        )


def _write(out: Path, content: _Content) -> WrittenTree:
    store, layers = content.store, content.hierarchy.forest.sizes
    info = content.hierarchy.model.info
    used = tuple(
        sum(node.members > 0 for node in content.nodes if len(node.path) == level + 1)
        for level in range(len(layers))
    )
    known = ("objective", "recipe", "seed", "epochs", "graphs", "data_digest")
    roots = [tree_as_json(root, store, content.name_of) for root in content.roots]
    tree = {
        "format": _FORMAT,
        **content.about,
        "graphs": len(store),
        "used": list(used),
        "model_info": {key: info.get(key) for key in known},
        "data_digest": store.digest,
        "rules": _RULES,
        "roots": roots,
    }
    page = _atlas(content, roots)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        mark_folder(out, _KIND)
    paths = tuple(out / name for name in _FILES)
    write_json(paths[0], json_ready(tree))
    with replacing(paths[1]) as path:
        _write_members(path, content)
    write_text(paths[2], page)
    (out / "rejects.csv").unlink(missing_ok=True)  # of another collection
    rejects = save_rejects(out, store.output_rejects, out.name)
    written = paths if rejects is None else (*paths, rejects)
    return WrittenTree(out, len(store), content.about["rejected"], layers, used, written)


def _write_members(path: Path, content: _Content) -> None:
    store, assignments, known = content.store, content.assignments, content.identifiers
    graph_of_row = np.full(store.num_output_rows, -1)
    graph_of_row[store.output_rows] = np.arange(len(store))
    with open_csv(path) as table:
        columns = ["row", "path", "similarity", "novelty", "status"]
        table.writerow(columns if known is None else [*columns, "id"])
        statuses = zip(graph_of_row.tolist(), store.output_status(), strict=True)
        for row, (graph, status) in enumerate(statuses):
            cells = ["", "", ""]
            if graph >= 0:
                novelty, cosine = assignments.novelty, assignments.similarities[graph, -1]
                cells = [path_name(assignments.paths[graph].tolist()), f"{cosine:.6g}"]
                cells.append("" if novelty is None else f"{novelty[graph]:.2f}")
            table.writerow([row, *cells, status, *(() if known is None else (known[row],))])


def _atlas(content: _Content, roots: Sequence[Mapping[str, Any]]) -> str:
    """Return the atlas: one HTML page to explore a tree, as ``tree.json`` has it, in a browser."""
    store, assignments, nodes = content.store, content.assignments, content.nodes
    mapped, oddest = content.sample.tolist(), assignments.oddest[:_ODDEST]
    strangers = oddest[first_of_each(store, oddest)[:_STRANGERS]].tolist()
    shown = sorted({graph for node in nodes for graph, _ in node.typical} | set(strangers))
    only_mapped = sorted(set(mapped) - set(shown))
    graphs = [*shown, *only_mapped]
    texts = dict(zip(graphs, names_of(store, graphs), strict=True))
    novelty, rows = assignments.novelty, store.output_rows.tolist()

    def about(graph: int) -> dict[str, Any]:
        return {
            "row": rows[graph],
            "id": content.name_of(graph),
            "text": texts[graph],
            "path": path_name(assignments.paths[graph].tolist()),
            "novelty": None if novelty is None else round(float(novelty[graph]), 2),
        }

    colors = [f for f in content.features if f.kind == "mean" or f.name.startswith("label")]
    places = zip(mapped, content.plane.tolist(), strict=True)
    drawn = zip(shown, draw_graphs(store, shown), strict=True)
    others = zip(only_mapped, draw_graphs(store, only_mapped), strict=True)
    data = {
        "about": {
            **content.about,
            "graphs": len(store),
            "domain": store.schema.domain,
            "ids": content.identifiers is not None,
        },
        "roots": roots,
        "common": {n.name: n.common.drawing for n in nodes if n.common is not None},
        "graphs": {rows[graph]: {**about(graph), "svg": drawing} for graph, drawing in drawn},
        "strangers": [rows[graph] for graph in strangers],
        "drawings": _packed({rows[graph]: drawing for graph, drawing in others}),
        "members": _packed(_members(content)) if len(store) <= _LISTED else None,
        "features": [
            {
                "name": f.name,
                "values": [None if np.isnan(v) else float(f"{v:.4g}") for v in f.values],
            }
            for f in colors[:_COLORS]
        ],
        "map": [{"x": round(x, 2), "y": round(y, 2), **about(graph)} for graph, (x, y) in places],
    }
    # a text of the collection must not be able to end the script element it stands in
    text = json.dumps(json_ready(data), separators=(",", ":")).replace("<", "\\u003c")
    page = files("graphlog.report").joinpath("atlas.html").read_text(encoding="utf-8")
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return page.replace("__SCRIPT_SHA256__", digest).replace("__ATLAS_DATA__", text)


def _packed(content: Mapping[Any, Any]) -> str:
    """Return JSON compressed to a sixth of its size; the page unpacks it once it is open."""
    text = json.dumps(content, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _members(content: _Content) -> dict[str, Any]:
    """Return one list a column, an entry a graph of the whole collection."""
    store, assignments, names = content.store, content.assignments, content.identifiers
    leaves, number = np.unique(assignments.paths, axis=0, return_inverse=True)
    rows = store.output_rows.tolist()
    return {
        "row": rows,
        "text": names_of(store, range(len(store))),
        "id": None if names is None else [names[row] for row in rows],
        "paths": [path_name(leaf) for leaf in leaves.tolist()],
        "path": number.ravel().tolist(),
        "similarity": np.round(assignments.similarities[:, -1].astype(np.float64), 4).tolist(),
        "novelty": None if (novelty := assignments.novelty) is None else novelty.round(2).tolist(),
    }


def draw_graphs(store: GraphStore, graphs: Sequence[int]) -> list[str]:
    """Return an ``<svg>`` element of each of ``graphs``; empty where a graph cannot be drawn."""
    domain = domain_of(store.schema)
    if isinstance(domain, Draws):
        return domain.draw(store, graphs, WIDTH, HEIGHT)
    return [_network(store, graph) for graph in graphs]


def _network(store: GraphStore, graph: int) -> str:
    batch = store[[graph]]
    count, (source, target) = batch.num_nodes, batch.edge_index.numpy()
    if not 0 < count <= _LARGEST:
        return ""
    x, y = _layout(count, source, target).T
    pairs = np.unique(np.sort(np.stack([source, target]), axis=0), axis=1).T
    lines = "".join(
        f"<line x1='{x[a]:.0f}' y1='{y[a]:.0f}' x2='{x[b]:.0f}' y2='{y[b]:.0f}'/>"
        for a, b in pairs
        if a != b
    )
    dots = "".join(f"<circle cx='{a:.0f}' cy='{b:.0f}' r='4'/>" for a, b in zip(x, y, strict=True))
    size = f"width='{WIDTH}' height='{HEIGHT}' viewBox='0 0 {WIDTH} {HEIGHT}'"
    shapes = f"<g stroke='#888'>{lines}</g><g fill='#0072B2'>{dots}</g>"
    return f"<svg xmlns='http://www.w3.org/2000/svg' {size}>{shapes}</svg>"


def _layout(count: int, source: np.ndarray, target: np.ndarray) -> Float[np.ndarray, "V 2"]:
    """Return positions by classical scaling of the shortest paths between nodes."""
    steps = shortest_path(
        csr_array((np.ones(len(source)), (source, target)), shape=(count, count)),
        directed=False,
        unweighted=True,
    )
    farthest = steps[np.isfinite(steps)].max(initial=0.0)
    squared = np.where(np.isfinite(steps), steps, farthest + 2) ** 2
    center = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-0.5 * center @ squared @ center)
    plane = np.zeros((count, 2))
    width = min(2, count)
    plane[:, :width] = (vectors * np.sqrt(np.maximum(values, 0)))[:, ::-1][:, :width]
    low, extent = plane.min(axis=0), np.maximum(np.ptp(plane, axis=0), 1e-9)
    room = np.array([WIDTH - 2 * _MARGIN, HEIGHT - 2 * _MARGIN])
    scale = float((room / extent).min()) if extent.max() > 1e-9 else 1.0
    return (plane - low - extent / 2) * scale + np.array([WIDTH, HEIGHT]) / 2


class Page:
    """A page that notebooks show in a frame of its own."""

    def __init__(self, html: str, height: int) -> None:
        self.html = html
        self.height = height

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{escape(self.html)}" width="100%" height="{self.height}" '
            'sandbox="allow-scripts allow-downloads" style="border:0"></iframe>'
        )


def show(atlas: str | Path, height: int = 720) -> Page:
    """Show the atlas that ``graphlog prototypes`` wrote, as the last line of a notebook's cell.

    The page is put into the notebook whole, so that it is still there when the notebook is sent on.

    Args:
        atlas: The file ``atlas.html``, or its folder.
        height: In pixels.

    Raises:
        DataError: If there is no such file.
    """
    path = Path(atlas)
    path = path / "atlas.html" if path.is_dir() else path
    try:
        return Page(path.read_text(encoding="utf-8"), height)
    except FileNotFoundError:
        raise DataError(
            f"no such file: {path}; write it with graphlog prototypes RUN -o DIR."
        ) from None
    except (OSError, UnicodeDecodeError) as e:
        raise DataError(f"{path}: not a page that can be shown ({e}).") from None
