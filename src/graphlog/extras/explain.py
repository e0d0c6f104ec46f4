"""What predictions rest on: the contribution of each node, as a page of drawings or a table."""

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
from graphlog.domains import Draws, Input, domain_of
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
    """What every node of some graphs contributes to their predictions."""

    values: Float[np.ndarray, "V T"]
    """Prediction less that with the node hidden, for each target: above 0 where the node raises it,
    in probabilities or in units of the labels."""
    ptr: Int[np.ndarray, "N1"]
    """Graph ``k`` has the nodes ``ptr[k]`` up to ``ptr[k + 1]``."""
    predictions: Float[np.ndarray, "N T"]
    """Of the graphs as they are: means over seeds."""

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

    Occlusion: for each node a copy of its graph in which the node has the attributes that stand for
    "masked", which the encoder may have met in pre-training; where nodes have no such attributes
    (proteins), the edges at the node are masked. Contributions need not sum to the prediction.
    Nodes are hidden from encoders alone; additional features of a probe stay as they are.

    Args:
        predictor: A fine-tuned model, its file or run folder.
        source: A store, a path, the name of a data set, or a list of SMILES; rows that cannot be
            read are left out. The work grows with the sum of the squares of the graphs' sizes.
        batch_size: Graphs or copies per forward pass; fewer where they have many nodes.
        precision: Format of matrix products.
        progress: Follows the nodes.

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
    graph = np.repeat(np.arange(len(store)), sizes)
    place = np.arange(len(graph)) - ptr[graph]
    whole = np.empty((len(store), len(predictor.targets)))
    hidden = np.empty((len(graph), len(predictor.targets)))
    features = predictor.features_of(store)
    with bar.shown(len(graph), "explaining"):
        for part in batch_ranges(sizes, batch_size):
            batch = store[part].to(device)
            own = [values[part] for values in features]  # pyright: ignore[reportIndexIssue]
            whole[part] = predictor.predict_batch(batch, own, number_format)
        for part in batch_ranges(sizes[graph], batch_size):
            batch = store.take(graph[part]).to(device)
            nodes = batch.ptr[:-1] + torch.from_numpy(place[part]).to(device)
            if schema.node_mask is None:
                batch = mask_edges_around(batch, schema, nodes)[0]
            else:
                batch = batch.with_attributes(x=overwritten(batch.x, nodes, schema.node_mask))
            own = [values[graph[part]] for values in features]  # pyright: ignore[reportIndexIssue]
            hidden[part] = predictor.predict_batch(batch, own, number_format)
            bar.advance(part.stop - part.start)
    return Attribution(whole[graph] - hidden, ptr, whole)


ENDINGS = (".html", ".csv")
MOST_ON_A_PAGE = 200
"""Rows that a page shows; more would make it slow to open."""
MOST_TARGETS = 6
"""Targets that a page shows."""
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
    """Write which atoms or nodes the predictions for ``source`` rest on.

    The number of a node is the prediction minus the prediction with the attributes of the node
    hidden (:func:`attribute`).

    Args:
        predictor: A fine-tuned model, its file or run folder.
        source: A path, ``-``, the name of a data set, a store, or a list of SMILES.
        out: ``.html`` has a structure for each of the first 200 rows and six targets, its atoms and
            bonds colored; ``.csv`` has a line for each node of every row: ``row``, the text or name
            of the graph such as ``smiles``, ``node``, what the node is such as ``element``, and
            ``contribution_<target>``.
        device: Where to load a predictor that is named.
        batch_size: Copies of graphs per forward pass.
        precision: Of the encoder's matrix products.
        progress: Told of every batch.
        reading: Options of the reader; the column of SMILES is by default that of fine-tuning.

    Raises:
        ConfigError: If the output cannot be written, the graphs have no drawings and a page was
            asked for, or their schema has nothing that stands for masked.
    """
    path = Path(out)
    check_output(path, ENDINGS, source)
    found = predictor if isinstance(predictor, Predictor) else Predictor.load(predictor, device)
    is_page = path.suffix.lower() == ".html"
    if is_page and not isinstance(domain_of(found.schema), Draws):
        raise ConfigError(
            f"graphs of domain '{found.schema.domain}' have no drawings to color; name a .csv with "
            "-o, which has a line for each node."
        )
    with rereadable(resolve(source, found.schema)) as given:
        reading = found.encoder.reading_of(given, reading)
        store = read(given, found.schema, **reading)
        kept = np.arange(len(store))
        if is_page:
            kept = np.flatnonzero(store.output_rows < MOST_ON_A_PAGE)
        chosen, numbers = store.subset(kept), store.output_rows[kept].tolist()
        parts = attribute(found, chosen, batch_size, precision=precision, progress=progress)
        with replacing(link_target(path)) as unfinished:
            if is_page:
                domain = domain_of(found.schema)
                fields = list(domain.rows(given, store, domain.reading.of(reading)))
                lines = _page(found, chosen, parts, numbers, fields, store.output_status())
                with create_text(unfinished) as file:
                    file.writelines(lines)
            else:
                texts = _names(found, given, store, reading)
                _table(found, chosen, parts, numbers, texts, unfinished)
    rejects = save_rejects(path.parent, store.output_rejects, path.name)
    rejected = len(store.output_rejects)
    return Written(path, store.num_output_rows, rejected, rejects, {"targets": [*found.targets]})


def _names(
    found: Predictor, source: Input, store: GraphStore, reading: Mapping[str, Any]
) -> dict[str, list[str]]:
    """Return the text of each graph, or what the input calls it, as a column by its name."""
    domain = domain_of(found.schema)
    if store.has_texts:
        return {domain.text_name: store.texts()}
    rows = list(domain.rows(source, store, domain.reading.of(reading)))
    return {
        name: [rows[row][name] for row in store.output_rows.tolist()]
        for name in (rows[0] if rows else ())
        if name != "row"
    }


def _table(
    found: Predictor,
    store: GraphStore,
    parts: Attribution,
    numbers: Sequence[int],
    texts: Mapping[str, Sequence[str]],
    path: Path,
) -> None:
    domain = domain_of(store.schema)
    own = ["row", *texts, "node"]
    # no node at all tells the names of the columns
    known = domain.node_fields(store.schema, np.empty((0, len(store.schema.node))))
    with open_csv(path) as table:
        names = (f"contribution_{name}" for name in found.targets)
        table.writerow([*own, *free_names(known, own), *names])
        for graph, row in enumerate(numbers):
            about = [row, *(column[graph] for column in texts.values())]
            fields = domain.node_fields(store.schema, store.take([graph]).x.numpy())
            nodes = zip(*fields.values(), strict=True) if fields else repeat(())
            for node, (words, values) in enumerate(zip(nodes, parts.of(graph), strict=False)):
                cells = ("" if np.isnan(value) else f"{value:.6g}" for value in values)
                table.writerow([*about, node, *words, *cells])


def _page(
    found: Predictor,
    store: GraphStore,
    parts: Attribution,
    numbers: Sequence[int],
    rows: Sequence[Mapping[str, str]],
    status: Sequence[str],
) -> Iterator[str]:
    """Yield a card for each row and target: drawing, prediction and the row's columns."""
    targets, total = found.targets[:MOST_TARGETS], len(rows)
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
    if found.features:
        model = f"the average of {len(found.joined) + 1} linear models"
        if found.kernel is not None:
            model = "that of a kernel model"
        elif found.partner is not None:
            model = "the average of fine-tuned networks and a kernel model"
        names = escape(" and ".join(found.features))
        yield (
            f"<p>The prediction is {model}. Atoms are hidden from the embedding only: {names} stay "
            "those of the whole molecule, so the colors do not show their contribution.</p>"
        )
    if total > MOST_ON_A_PAGE or len(found.targets) > MOST_TARGETS:
        yield (
            f"<p>Of {total:,} rows and {len(found.targets):,} targets, the page shows the first "
            f"{min(total, MOST_ON_A_PAGE):,} and {len(targets)}; a .csv has all.</p>"
        )
    large = np.quantile(np.abs(parts.values), 0.95, axis=0) if len(parts.values) else np.ones(1)
    scaled = parts.values / np.where(large > 0, large, 1.0)
    yield "<p>" + "<br>".join(  # a target without a model has no scale
        f"{escape(name)}: &le;&nbsp;{_signed(-most, 2)}"
        f"<span class='scale'></span>&ge;&nbsp;{_signed(most, 2)}"
        for name, most in zip(targets, large.tolist(), strict=False)
        if not np.isnan(most)
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
            yield "<div></div>" * (len(targets) - 1) + "\n"  # the next row begins a line
            continue
        weights, own = scaled[parts.ptr[graph] : parts.ptr[graph + 1]], parts.of(graph)
        text = store.texts([graph])[0] if store.has_texts else f"row {row}"
        for t, name in enumerate(targets):
            value, drawing = float(parts.predictions[graph, t]), ""
            caption = "no prediction: the training set has one class only"
            if not np.isnan(value):
                (drawing,) = domain.draw(store, [graph], *_SIZE, [weights[:, t]])
                most = _signed(own[np.abs(own[:, t]).argmax(), t], 3)
                caption = f"prediction {_minus(f'{value:.4g}')}; largest contribution {most}"
            which = f"{head} &middot; {escape(name)}" if len(targets) > 1 else head
            yield html_figure(drawing, text, f"{which} &middot; {caption}", row, fields) + "\n"
    yield "</div></body></html>\n"


def _minus(number: str) -> str:
    return number.replace("-", "\N{MINUS SIGN}")


def _signed(value: float, digits: int) -> str:
    return _minus(f"{value:+.{digits}g}")
