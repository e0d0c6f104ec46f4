"""Contributions of nodes to predictions, as a page of drawings or as a table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from graphlog.data.graphs import save_rejects
from graphlog.data.html import html_figure, page_head
from graphlog.data.store import GraphStore
from graphlog.domains import Draws, domain_of
from graphlog.downstream.predictor import Predictor
from graphlog.downstream.pretrained import batch_ranges
from graphlog.downstream.writers import Written, check_output, free_names
from graphlog.errors import ConfigError
from graphlog.files import create_text, link_target, open_csv, replacing
from graphlog.inputs import InputLike, read, rereadable, resolve
from graphlog.training.log import Progress, as_progress
from graphlog.training.settings import Precision, inference_precision
from graphlog.views.augment import mask_edges_around, overwritten


@dataclass(frozen=True, slots=True, eq=False)
class Attribution:
    """Contributions of the nodes of some graphs to the predictions for these graphs."""

    values: Float[np.ndarray, "V T"]
    """Prediction minus the prediction with the node hidden, for each node and target, in
    probabilities or in units of the labels. A node with a value above 0 raises the prediction."""
    ptr: Int[np.ndarray, "N1"]
    """Offsets of the graphs: graph ``k`` has the nodes ``ptr[k]`` to ``ptr[k + 1] - 1``."""
    predictions: Float[np.ndarray, "N T"]
    """Predictions for the unchanged graphs, means over seeds."""

    def of(self, graph: int) -> Float[np.ndarray, "v T"]:
        """Return the contributions of the nodes of one graph."""
        return self.values[self.ptr[graph] : self.ptr[graph + 1]]


def attribute(
    predictor: str | Path | Predictor,
    source: InputLike,
    batch_size: int = 512,
    *,
    precision: Precision = "fp32",
    progress: Progress | bool | None = None,
) -> Attribution:
    """Return how the predictions change when the attributes of one node are hidden.

    The method is occlusion. For each node, predict for a copy of its graph in which the attributes
    of the node are those that stand for "masked"; the encoder may know these from pre-training. If
    the schema has no such node attributes (proteins), the edges at the node are masked instead.
    Contributions need not sum to the prediction. Nodes are hidden from the encoder only; the
    additional features of a probe do not change.

    Args:
        predictor: A fine-tuned model, its file or run folder.
        source: A store, a path, the name of a data set, or a list of SMILES; rows that cannot be
            read are left out. The cost grows with the sum of the squared numbers of nodes.
        batch_size: Graphs or copies per forward pass; fewer if they have many nodes.
        precision: Number format of matrix products.
        progress: Progress display, advanced by the number of nodes done.

    Raises:
        ConfigError: If neither nodes nor edges of this schema can be masked.
    """
    predictor = predictor if isinstance(predictor, Predictor) else Predictor.load(predictor)
    schema = predictor.schema
    if schema.node_mask is None and schema.edge_mask is None:
        raise ConfigError(
            f"schema '{schema.name}' has no attributes that stand for masked, so predictions "
            "cannot be explained; fine-tune a model of a schema that has."
        )
    store = predictor.encoder.graphs_of(source)
    sizes = np.asarray(store.num_nodes, dtype=np.int64)
    bar = as_progress(progress)
    device = next(predictor.members[0].parameters()).device
    number_format = inference_precision(precision, device, bar.say)
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    graph_of_node = np.repeat(np.arange(len(store)), sizes)
    node_in_graph = np.arange(len(graph_of_node)) - ptr[graph_of_node]
    predictions = np.empty((len(store), len(predictor.targets)))
    hidden = np.empty((len(graph_of_node), len(predictor.targets)))
    features = predictor.features_of(store)
    with bar.shown(len(graph_of_node), "explaining"):
        for part in batch_ranges(sizes, batch_size):
            batch = store[part].to(device)
            extra = [values[part] for values in features]  # pyright: ignore[reportIndexIssue]
            predictions[part] = predictor.predict_batch(batch, extra, number_format)
        for part in batch_ranges(sizes[graph_of_node], batch_size):
            graphs = graph_of_node[part]
            batch = store.take(graphs).to(device)
            nodes = batch.ptr[:-1] + torch.from_numpy(node_in_graph[part]).to(device)
            if schema.node_mask is None:
                batch = mask_edges_around(batch, schema, nodes)[0]
            else:
                batch = batch.with_attributes(x=overwritten(batch.x, nodes, schema.node_mask))
            extra = [values[graphs] for values in features]  # pyright: ignore[reportIndexIssue]
            hidden[part] = predictor.predict_batch(batch, extra, number_format)
            bar.advance(part.stop - part.start)
    return Attribution(predictions[graph_of_node] - hidden, ptr, predictions)


ENDINGS = (".html", ".csv")
MOST_ON_A_PAGE = 200
"""Largest number of rows shown on a page; more would make it slow to open."""
MOST_TARGETS = 6
"""Largest number of targets shown on a page."""
_SIZE = (320, 240)
_STYLE = """
figure svg { display: block; width: 100% }
.cards { grid-template-columns: repeat(auto-fill, minmax(min(260px, 45%), 1fr)); overflow-x: auto }
.up { background: #d55e00; color: #fff; padding: 0 .4em } .down { background: #0072b2;
  color: #fff; padding: 0 .4em }
.scale { background: linear-gradient(to right, #0072b2, #fff, #d55e00); border: 1px solid #8886;
  display: inline-block; height: .7em; margin: 0 .4em; width: 6em }
"""


def explain_file(
    predictor: str | Path | Predictor,
    source: InputLike,
    out: str | Path,
    *,
    device: str = "cpu",
    batch_size: int = 512,
    precision: Precision = "fp32",
    progress: Progress | None = None,
    **reading: Any,
) -> Written:
    """Write the contributions of atoms, or of other nodes, to the predictions for ``source``.

    The contribution of a node is the prediction minus the prediction with the attributes of the
    node hidden (:func:`attribute`).

    Args:
        predictor: A fine-tuned model, its file or run folder.
        source: A path, ``-``, the name of a data set, a store, or a list of SMILES.
        out: The file to write. A ``.html`` page has a drawing with colored atoms and bonds for each
            of the first 200 rows and six targets. A ``.csv`` file has a line for each node of every
            row: ``row``, the text or name of the graph such as ``smiles``, ``node``, attributes of
            the node such as ``element``, and ``contribution_<target>``.
        device: Device to load the predictor to, if it is given by name.
        batch_size: Copies of graphs per forward pass.
        precision: Number format of the matrix products of the encoder.
        progress: Progress display, updated after every batch.
        reading: Options of the reader; the default column of SMILES is that of fine-tuning.

    Raises:
        ConfigError: If the output cannot be written, the output is a page and the graphs cannot be
            drawn, or the schema has no attributes that stand for masked.
    """
    path = Path(out)
    check_output(path, ENDINGS, source)
    if not isinstance(predictor, Predictor):
        predictor = Predictor.load(predictor, device)
    schema, domain = predictor.schema, domain_of(predictor.schema)
    is_page = path.suffix.lower() == ".html"
    if is_page and not isinstance(domain, Draws):
        raise ConfigError(
            f"graphs of domain '{schema.domain}' have no drawings to color; name a .csv with "
            "-o, which has a line for each node."
        )
    with rereadable(resolve(source, schema)) as given:
        reading = predictor.encoder.reading_of(given, reading)
        store = read(given, schema, **reading)
        rows: list[Mapping[str, str]] = []
        if is_page:
            rows = list(domain.rows(given, store, domain.reading.of(reading)))
        kept = np.arange(len(store))
        if is_page:
            kept = np.flatnonzero(store.output_rows < MOST_ON_A_PAGE)
        graphs, numbers = store.subset(kept), store.output_rows[kept].tolist()
        parts = attribute(predictor, graphs, batch_size, precision=precision, progress=progress)
        with replacing(link_target(path)) as unfinished:
            if is_page:
                lines = _page(predictor, graphs, parts, numbers, rows, store.output_status())
                with create_text(unfinished) as file:
                    file.writelines(lines)
            else:
                _write_table(predictor, graphs, parts, numbers, unfinished)
    rejects = save_rejects(path.parent, store.output_rejects, path.name)
    content = {"targets": [*predictor.targets]}
    return Written(path, store.num_output_rows, len(store.output_rejects), rejects, content)


def _write_table(
    predictor: Predictor, store: GraphStore, parts: Attribution, numbers: Sequence[int], path: Path
) -> None:
    """Write a line for each node: row, texts of its graph, number, attributes, contributions."""
    domain = domain_of(store.schema)
    texts = {domain.text_column(store): store.texts()} if store.has_texts else {}
    heads = ["row", *texts, "node"]
    # fields of no nodes at all, which have the names of the columns
    known = domain.node_fields(store.schema, np.empty((0, len(store.schema.node))))
    with open_csv(path) as table:
        names = (f"contribution_{name}" for name in predictor.targets)
        table.writerow([*heads, *free_names(known, heads), *names])
        for graph, row in enumerate(numbers):
            about = [row, *(column[graph] for column in texts.values())]
            fields = domain.node_fields(store.schema, store.take([graph]).x.numpy())
            nodes = zip(*fields.values(), strict=True) if fields else repeat(())
            for node, (words, values) in enumerate(zip(nodes, parts.of(graph), strict=False)):
                cells = ("" if np.isnan(value) else f"{value:.6g}" for value in values)
                table.writerow([*about, node, *words, *cells])


def _page(
    predictor: Predictor,
    store: GraphStore,
    parts: Attribution,
    numbers: Sequence[int],
    rows: Sequence[Mapping[str, str]],
    status: Sequence[str],
) -> Iterator[str]:
    """Yield a page with a card for each row and target: drawing, prediction and the row's columns.

    ``rows`` and ``status`` have an entry for every row of the input, ``numbers`` the rows of the
    graphs in ``store``.
    """
    targets, total = predictor.targets[:MOST_TARGETS], len(rows)
    title = f"Explained predictions of {min(total, MOST_ON_A_PAGE):,} row{'s'[: total != 1]}"
    yield page_head(title, _STYLE)
    yield (
        "<p>The contribution of an atom is the prediction minus the prediction with the attributes "
        "of this atom hidden and its bonds kept: <span class='up'>orange</span> raises the "
        "prediction, <span class='down'>blue</span> lowers it. A bond shows the mean of its atoms. "
        "The strongest 5 % of contributions to a target on this page have the full color. "
        "Contributions need not sum to the prediction, and atoms that can replace each other may "
        "all look unimportant.</p>"
    )
    if predictor.features:
        model = f"the average of {len(predictor.joined) + 1} linear models"
        if predictor.kernel is not None:
            model = "that of a kernel model"
        elif predictor.partner is not None:
            model = "the average of fine-tuned networks and a kernel model"
        names = escape(" and ".join(predictor.features))
        yield (
            f"<p>The prediction is {model}. Atoms are hidden from the embedding only: {names} stay "
            "those of the whole molecule, so the colors do not show their contribution.</p>"
        )
    if total > MOST_ON_A_PAGE or len(predictor.targets) > MOST_TARGETS:
        yield (
            f"<p>Of {total:,} rows and {len(predictor.targets):,} targets, the page shows the first"
            f" {min(total, MOST_ON_A_PAGE):,} and {len(targets)}; a .csv has all.</p>"
        )
    limits = np.quantile(np.abs(parts.values), 0.95, axis=0) if len(parts.values) else np.ones(1)
    scaled = parts.values / np.where(limits > 0, limits, 1.0)
    yield "<p>" + "<br>".join(
        f"{escape(name)}: &le;&nbsp;{_formatted(-limit, '+.2g')}"
        f"<span class='scale'></span>&ge;&nbsp;{_formatted(limit, '+.2g')}"
        for name, limit in zip(targets, limits.tolist(), strict=False)
        if not np.isnan(limit)  # NaN: a target without a model
    )
    columns = f"grid-template-columns: repeat({len(targets)}, minmax(150px, 300px))"
    yield f"</p><div class='cards'{f' style={columns!r}' if len(targets) > 1 else ''}>\n"
    domain = domain_of(store.schema)
    assert isinstance(domain, Draws)
    graph_of_row = {row: graph for graph, row in enumerate(numbers)}
    for row, fields in enumerate(rows[:MOST_ON_A_PAGE]):
        head, graph = f"<b>row {row}</b>", graph_of_row.get(row)
        if graph is None:
            yield html_figure("", "", f"{head} &middot; {escape(status[row])}", row, fields)
            # empty cells, so that the next row starts on a new line of the grid
            yield "<div></div>" * (len(targets) - 1) + "\n"
            continue
        weights, values = scaled[parts.ptr[graph] : parts.ptr[graph + 1]], parts.of(graph)
        text = store.texts([graph])[0] if store.has_texts else f"row {row}"
        for t, name in enumerate(targets):
            value, drawing = float(parts.predictions[graph, t]), ""
            caption = "no prediction: the training set has one class only"
            if not np.isnan(value):
                (drawing,) = domain.draw(store, [graph], *_SIZE, [weights[:, t]])
                largest = _formatted(values[np.abs(values[:, t]).argmax(), t], "+.3g")
                caption = f"prediction {_formatted(value, '.4g')}; largest contribution {largest}"
            if len(targets) > 1:
                caption = f"{escape(name)} &middot; {caption}"
            yield html_figure(drawing, text, f"{head} &middot; {caption}", row, fields) + "\n"
    yield "</div></body></html>\n"


def _formatted(value: float, spec: str) -> str:
    return f"{value:{spec}}".replace("-", "\N{MINUS SIGN}")
