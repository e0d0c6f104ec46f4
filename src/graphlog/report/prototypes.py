"""Files of the tree of prototypes: ``tree.json``, ``members.csv`` and ``atlas.html``."""

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from graphlog.data.graphs import save_rejects
from graphlog.data.store import GraphStore, sample_rows
from graphlog.domains import Draws, Input, domain_of
from graphlog.downstream.pretrained import Encoder, load
from graphlog.downstream.report import json_ready
from graphlog.downstream.writers import Written
from graphlog.errors import ConfigError, DataError, check_seed, setting
from graphlog.files import (
    mark_folder,
    open_csv,
    replacing,
    storable,
    write_json,
    write_text,
    writing,
)
from graphlog.inputs import InputLike, read_streamed, recall_input, reiterable, resolve
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
)
from graphlog.training.log import Progress, as_progress
from graphlog.training.runfolder import check_usable
from graphlog.training.settings import Precision

_FORMAT = 1
_KIND = "tree"
_FILES = ("tree.json", "members.csv", "atlas.html")
_NUM_NOVEL = 12
"""Number of graphs shown as the most novel of the collection."""
_NUM_NOVEL_CANDIDATES = 500
"""Number of graphs that the most novel ones are chosen from, without repeats such as salts."""
_MAX_LISTED = 200_000
"""Largest collection whose graphs are all listed in the atlas; else only those on the map are."""
_MAX_COLORINGS = 24
"""Largest number of features by which the map can be colored."""
_MARGIN = 12
"""Margin of a drawing of a network, in pixels."""
_MAX_NODES_DRAWN = 60
"""Largest number of nodes of a network that is drawn."""
_IDENTIFIER = re.compile(
    r"(?i:(^|[ _-])(id|name|identifier|title|code|cas)([ _-]?(no|number))?$|^(graph|protein)$)"
    r"|[a-z]ID$"
)
"""Pattern for the names of columns that identify rows."""


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
) -> Written:
    """Assign every graph of a collection to the prototypes of a model; write tree, members, atlas.

    ``tree.json`` has the tree with sizes, typical graphs and enriched properties (``traits``).
    ``members.csv`` has a row per input row (``row``, ``path``, ``similarity``, ``novelty``,
    ``status``); the cells are empty if the row could not be read. ``atlas.html`` is a page to
    explore the tree in a browser. Novelty is the percentile, 0 to 100, of a graph among those that
    the model was trained on (with ``fit``, those of the collection). It is empty if the model file
    does not describe the graphs that it was trained on.

    Args:
        model: An encoder with prototypes, a model file, a run folder, or a shipped model.
        out: Folder for the files.
        source: The collection; None uses the graphs that the run was trained on.
        fit: Whether to fit a new tree to the collection, with leaves of similar size. Each graph
            is assigned to its nearest leaf.
        graphs: Number of graphs on the map, sampled at random; traits are computed on them too.
        seed: Random seed of the sample, the layout and the fitted prototypes.
        precision: Number format of the matrix products of the encoder.
        device: Device to load the model to, if it is given by name: ``auto``, ``cpu`` or ``cuda``.
        progress: Progress display, updated after every batch.
        reading: Options of the reader: ``smiles_column``, ``targets``, ``limit``, ``workers``,
            ``on_error``.

    Raises:
        ConfigError: If the model has no prototypes, the collection is not found, or the folder
            holds something else than an earlier tree.
        DataError: If the collection cannot be read or is empty.
    """
    folder, progress, seed = Path(out), as_progress(progress), check_seed("seed", seed)
    check_usable(folder, _KIND, resume=None, overwrite=True)
    named = "the model" if isinstance(model, Encoder) else storable(str(model))
    source = reiterable(source)
    encoder = load(model, device=device, source=source)
    learned = None if fit else hierarchy_of(encoder, named)
    known = None if source is None else (source, {})
    if known is None and not isinstance(model, Encoder):
        run = Path(model)
        known = recall_input(run.parent if run.is_file() else run)
    if known is None:
        raise ConfigError(
            f"the graphs that {named} was trained on were not found; name some with "
            f"{setting('source')}.",
            option="source",
        )
    resolved, reading = resolve(known[0], encoder.schema), {**known[1], **reading}
    is_read = resolved.path is not None or resolved.spec is not None
    domain = domain_of(encoder.schema)
    if reading.get("targets") and not (is_read and (domain.label_columns or domain.reads_targets)):
        raise ConfigError(
            f"{resolved.name} has its own labels; drop {setting('targets')}, which names those of "
            "a file.",
            option="targets",
        )
    reading = encoder.reading_of(resolved, {"targets": None, **reading})
    with read_streamed(resolved, encoder.schema, **reading) as store:
        if len(store) < (2 if fit else 1):
            raise DataError(
                f"{resolved.name} has {len(store)} graphs, too few for a tree; name a larger one."
            )
        paths = tuple(folder / name for name in _FILES)
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            mark_folder(folder, _KIND)
        if source is None and store.digest != encoder.info.get("data_digest"):
            progress.say(
                f"note: the graphs of {resolved.name} are not those that {named} was trained on"
            )
        computing: dict[str, Any] = {"precision": precision, "progress": progress}
        hierarchy = learned or Hierarchy.fitted(encoder, store, seed=seed, **computing)
        if hierarchy.novelty is None:
            progress.say(
                f"note: the column novelty is empty, because {named if learned else resolved.name} "
                f"does not describe the graphs to compare with; add {setting('fit', True)} to "
                "compare with those of INPUT (at least 20), or pre-train again"
            )
        assignments = hierarchy.assign(store, **computing)
        sample = sample_rows(len(store), graphs, seed)
        sampled = store.subset(sample)
        features = features_of(sampled)
        collection = _Collection(
            store=store,
            roots=build_tree(hierarchy, assignments, store, features, sample),
            members=_members(assignments, store, resolved, reading),
            assignments=assignments,
            sample=sample,
            points=project(hierarchy.embed(sampled, precision=precision), seed),
            features=features,
        )
        layers = hierarchy.forest.sizes
        used = tuple(len(np.unique(numbers)) for numbers in assignments.paths.T)
        rejected = store.num_output_rows - len(store)
        about = {
            "model": named if isinstance(model, str | Path) else "a model",
            "collection": Path(resolved.name).name,
            "origin": "from the model" if learned else "fitted in equal shares",
            "layers": list(layers),
            "rejected": rejected,
        }
        roots = [collection.as_json(root) for root in collection.roots]
        model_info = ("objective", "recipe", "seed", "epochs", "graphs", "data_digest")
        tree = {
            "format": _FORMAT,
            **about,
            "graphs": len(store),
            "used": list(used),
            "model_info": {key: encoder.info.get(key) for key in model_info},
            "data_digest": store.digest,
            "roots": roots,
        }
        page = _atlas(collection, about, roots)
        write_json(paths[0], json_ready(tree))
        with replacing(paths[1]) as path:
            _write_members(path, collection.members)
        write_text(paths[2], page)
        (folder / "rejects.csv").unlink(missing_ok=True)  # it may be that of another collection
        rejects = save_rejects(folder, store.output_rejects, folder.name)
        content = {
            "graphs": len(store),
            "prototypes": " / ".join(map(str, layers)),
            "in use": " / ".join(map(str, used)),
            **{path.stem: str(path) for path in paths},
        }
        return Written(folder, store.num_output_rows, rejected, rejects, content)


@dataclass(frozen=True, slots=True)
class _Collection:
    """A collection of graphs in a tree of prototypes, as needed for the files."""

    store: GraphStore
    roots: Sequence[Node]
    members: pd.DataFrame
    """Table of the rows of the input; see :func:`_members`."""
    assignments: Assignments
    sample: Int[np.ndarray, "K"]
    """Positions in the store of the graphs on the map."""
    points: Float[np.ndarray, "K 2"]
    """Positions of these graphs on the map."""
    features: Sequence[GraphFeature]
    """Values of these graphs, to color the map by."""

    def describe(self, graphs: Sequence[int]) -> list[dict[str, Any]]:
        """Return row, name, text, path and novelty of each graph, to show it in the atlas.

        A text that is the name is None.
        """
        rows = self.store.output_rows[list(graphs)]
        table = self.members.loc[rows]
        names = table["id"] if "id" in table else [None] * len(table)
        texts = names_of(self.store, graphs)
        texts = [None if t == name else t for t, name in zip(texts, names, strict=True)]
        columns = (rows.tolist(), names, texts, table["path"], table["novelty"])
        return [
            {"row": row, "id": name or None, "text": text, "path": path, "novelty": round(value, 2)}
            for row, name, text, path, value in zip(*columns, strict=True)
        ]

    def as_json(self, node: Node) -> dict[str, Any]:
        """Return a prototype and all prototypes below it as JSON-ready values."""
        typical = self.describe([graph for graph, _ in node.typical])
        common = node.common
        return {
            "path": node.name,
            "title": node.title,
            "members": node.members,
            "share": node.members / len(self.store),
            "similarity": node.similarity,
            "novelty": node.novelty,
            "typical": [
                {**{key: graph[key] for key in ("row", "id", "text")}, "similarity": cosine}
                for graph, (_, cosine) in zip(typical, node.typical, strict=True)
            ],
            "traits": [asdict(trait) for trait in node.traits],
            "common": None if common is None else {"nodes": common.nodes, "text": common.text},
            "children": [self.as_json(child) for child in node.children],
        }


def _members(
    assignments: Assignments, store: GraphStore, source: Input, reading: Mapping[str, Any]
) -> pd.DataFrame:
    """Return path, similarity, novelty and status of each row of the input, and its name if any."""
    leaves, number = np.unique(assignments.paths, axis=0, return_inverse=True)
    names = [path_name(leaf) for leaf in leaves.tolist()]
    columns = {
        "path": pd.Categorical.from_codes(number.ravel(), dtype=pd.CategoricalDtype(names)),
        "similarity": assignments.similarities[:, -1],
        "novelty": np.nan if assignments.novelty is None else assignments.novelty,
    }
    members = pd.DataFrame(columns, index=store.output_rows).reindex(range(store.num_output_rows))
    members["status"] = store.output_status()
    if (identifiers := _identifiers(source, store, reading)) is not None:
        members["id"] = identifiers
    return members


def _write_members(path: Path, members: pd.DataFrame) -> None:
    """Write the table of :func:`_members`; missing cells are empty."""
    shown = members.assign(
        similarity=members["similarity"].map("{:.6g}".format, na_action="ignore"),
        novelty=members["novelty"].map("{:.2f}".format, na_action="ignore"),
    )
    with open_csv(path) as table:
        table.writerow(["row", *shown.columns])
        for cells in shown.astype(object).where(shown.notna(), "").itertuples():
            table.writerow(cells)


def _identifiers(source: Input, store: GraphStore, reading: Mapping[str, Any]) -> list[str] | None:
    """Return the column that identifies the rows of a table; None if there is none."""
    if source.is_stream:  # a stream cannot be read a second time
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


def _atlas(
    collection: _Collection, about: Mapping[str, Any], roots: Sequence[Mapping[str, Any]]
) -> str:
    """Return the atlas, an HTML page to explore the tree (``roots``, as in ``tree.json``)."""
    store, nodes = collection.store, [node for root in collection.roots for node in root.walk()]
    by_novelty = collection.assignments.by_novelty[:_NUM_NOVEL_CANDIDATES]
    novel = by_novelty[first_of_each(store, by_novelty)[:_NUM_NOVEL]].tolist()
    typical = {graph for node in nodes for graph, _ in node.typical}
    shown, mapped = sorted(typical | set(novel)), collection.sample.tolist()
    graphs, rows = sorted({*shown, *mapped}), store.output_rows.tolist()
    described = dict(zip(graphs, collection.describe(graphs), strict=True))
    drawings = dict(zip(graphs, draw_graphs(store, graphs), strict=True))
    colorings = [f for f in collection.features if f.kind == "mean" or f.name.startswith("label")]
    data = {
        "about": {
            **about,
            "graphs": len(store),
            "domain": store.schema.domain,
            "ids": "id" in collection.members,
        },
        "roots": roots,
        "graphs": {rows[graph]: described[graph] for graph in shown},
        "strangers": [rows[graph] for graph in novel],
        "first": {rows[graph]: drawings[graph] for graph in novel},
        "drawings": _compressed(
            {
                "graphs": {rows[graph]: drawings[graph] for graph in graphs},
                "common": {n.name: n.common.drawing for n in nodes if n.common is not None},
            }
        ),
        "members": _compressed(_columns(collection)) if len(store) <= _MAX_LISTED else None,
        "features": [
            {"name": f.name, "values": f.values.tolist()} for f in colorings[:_MAX_COLORINGS]
        ],
        "map": [
            {"x": round(x, 2), "y": round(y, 2), **described[graph]}
            for graph, (x, y) in zip(mapped, collection.points.tolist(), strict=True)
        ],
    }
    # a "<" in a text of the collection could end the script element that contains the data
    text = json.dumps(json_ready(data), separators=(",", ":")).replace("<", "\\u003c")
    page = files("graphlog.report").joinpath("atlas.html").read_text(encoding="utf-8")
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return page.replace("__SCRIPT_SHA256__", digest).replace("__ATLAS_DATA__", text)


def _compressed(content: Mapping[Any, Any]) -> str:
    """Return JSON in a sixth of its size; the page decompresses it after it is shown."""
    text = json.dumps(content, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _columns(collection: _Collection) -> dict[str, Any]:
    """Return the members of the whole collection, one list per column."""
    store = collection.store
    table = collection.members.loc[store.output_rows]
    has_novelty = collection.assignments.novelty is not None
    return {
        "row": table.index.tolist(),
        "text": [graph["text"] for graph in collection.describe(range(len(store)))],
        "id": table["id"].tolist() if "id" in table else None,
        "paths": table["path"].cat.categories.tolist(),
        "path": table["path"].cat.codes.tolist(),
        "similarity": table["similarity"].astype(np.float64).round(4).tolist(),
        "novelty": table["novelty"].round(2).tolist() if has_novelty else None,
    }


def draw_graphs(store: GraphStore, graphs: Sequence[int]) -> list[str]:
    """Return an ``<svg>`` element for each of ``graphs``; empty if a graph cannot be drawn."""
    domain = domain_of(store.schema)
    if isinstance(domain, Draws):
        return domain.draw(store, graphs, WIDTH, HEIGHT)
    return [_draw_network(store, graph) for graph in graphs]


def _draw_network(store: GraphStore, graph: int) -> str:
    """Return a graph as circles and lines; empty without nodes or with too many."""
    batch = store[[graph]]
    count, (source, target) = batch.num_nodes, batch.edge_index.numpy()
    if not 0 < count <= _MAX_NODES_DRAWN:
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
    """Return positions of nodes in pixels, by multidimensional scaling of their path lengths."""
    ends = source.astype(np.int32), target.astype(np.int32)  # SciPy before 1.15 needs int32
    links = csr_array((np.ones(len(source)), ends), shape=(count, count))
    steps = shortest_path(links, directed=False, unweighted=True)
    farthest = steps[np.isfinite(steps)].max(initial=0.0)
    squared = np.where(np.isfinite(steps), steps, farthest + 2) ** 2
    center = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-0.5 * center @ squared @ center)
    axes = vectors * np.sqrt(np.maximum(values, 0))
    points = axes[:, :-3:-1]  # the axes of the two largest eigenvalues
    points = np.pad(points, ((0, 0), (0, 2 - points.shape[1])))
    low, extent = points.min(axis=0), np.maximum(np.ptp(points, axis=0), 1e-9)
    size = np.array([WIDTH - 2 * _MARGIN, HEIGHT - 2 * _MARGIN])
    scale = float((size / extent).min()) if extent.max() > 1e-9 else 1.0
    return (points - low - extent / 2) * scale + np.array([WIDTH, HEIGHT]) / 2
