"""Export of encoders to ONNX, for programs without graphlog: dense arrays in, embeddings out."""

import json
import logging
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from graphlog.data.store import GraphBatch
from graphlog.downstream.pretrained import Encoder, check_layer, evaluating, load
from graphlog.downstream.writers import check_output
from graphlog.encoders.encoder import (
    JUMPS,
    GraphEncoder,
    Neighborhood,
    expand_attributes,
    table_rows,
)
from graphlog.encoders.layers import GIN, GraphSAGE
from graphlog.errors import ConfigError, optional
from graphlog.files import link_target, replacing
from graphlog.inputs import check_schema

INPUTS = ("nodes", "adjacency", "edges", "mask")
"""Names of the inputs of an exported encoder, the keys of :func:`padded_inputs`."""
_OPSET = 18


class DenseEncoder(nn.Module):
    """Encoder whose inputs are the arrays of :func:`padded_inputs`.

    It shares the weights of a :class:`~graphlog.encoders.encoder.GraphEncoder`. Every layer is a
    product of matrices, so that any runtime can compute it. In evaluation mode its embeddings
    equal those of the encoder up to rounding.
    """

    def __init__(self, network: GraphEncoder, layer: str = "jk") -> None:
        """Wrap a network.

        Raises:
            ConfigError: If the layers or the readout of the network have no dense form.
        """
        super().__init__()
        config, kinds = network.config, {type(module) for module in network.layers}
        if not kinds <= {GIN, GraphSAGE} or config.readout == "attention":
            raise ConfigError(
                f"an encoder of backbone '{config.backbone}' with readout '{config.readout}' "
                "cannot be exported; only gin and graphsage can, without attention."
            )
        self.network, self.layer = network, check_layer(layer)

    def forward(
        self,
        nodes: Float[Tensor, "B N K"],
        adjacency: Float[Tensor, "B N N"],
        edges: Float[Tensor, "B N L"],
        mask: Float[Tensor, "B N"],
    ) -> Float[Tensor, "B W"]:
        """Return one embedding per graph."""
        network, config = self.network, self.network.config
        outputs = [nodes @ network.node.weight]
        for number, layer in enumerate(network.layers):
            h = _dense_layer(layer, outputs[-1], adjacency, edges)
            if len(network.norms):
                h = _apply_to_nodes(network.norms[number], h)
            outputs.append(F.relu(h) if number < len(network.layers) - 1 else h)
        has_center = config.readout == "mean+center"
        if self.layer == "last":
            flat = [h.flatten(0, 1) for h in outputs]
            h = JUMPS[config.jk](flat).unflatten(0, mask.shape)
            pooled = [_pooled(h, mask, config.readout)]
            return torch.cat([*pooled, h[:, 0]], dim=1) if has_center else pooled[0]
        means = [_pooled(h, mask, "mean") for h in outputs]
        centers = [h[:, 0] for h in outputs] if has_center else []
        sizes = mask.sum(1, keepdim=True)
        sums = [mean * sizes for mean in means] if self.layer == "jk+sum" else []
        return torch.cat([*means, *centers, sizes.clamp(min=1).log(), *sums], dim=1)


def export_onnx(
    model: Encoder | str | Path, out: str | Path, *, layer: str | None = None
) -> dict[str, Any]:
    """Write an encoder as an ONNX file; :func:`padded_inputs` returns the inputs of the file.

    Args:
        model: An encoder, a model file, a run folder, or the name of a shipped model.
        out: The ``.onnx`` file.
        layer: ``jk``, ``jk+sum`` or ``last``; None uses the layer stored in the model.

    Returns:
        A description of the file, with the keys ``schema``, ``layer``, ``inputs`` (their names),
        ``output`` (the path) and ``width`` (of the embeddings).

    Raises:
        ConfigError: If the encoder cannot be exported, or the file cannot be written.
        MissingExtraError: If the extra ``onnx`` is not installed.
    """
    path, encoder = Path(out), load(model)
    check_output(path, (".onnx",), model)
    chosen = check_layer(layer or encoder.layer)
    dense = DenseEncoder(encoder.copy().cpu().float().network, chosen)
    with optional("onnx", "onnx"):
        import onnx  # noqa: F401  # pyright: ignore[reportMissingImports, reportUnusedImport]
    with optional("onnxscript", "onnx"):
        import onnxscript  # noqa: F401  # pyright: ignore[reportMissingImports, reportUnusedImport]
    schema = encoder.schema
    widths = (table_rows(schema.node), 5, table_rows(schema.edge))
    example = (*(torch.ones(3, 5, width) for width in widths), torch.ones(3, 5))
    batch, size = torch.export.Dim("batch"), torch.export.Dim("nodes")
    shapes = ({0: batch, 1: size}, {0: batch, 1: size, 2: size}, *[{0: batch, 1: size}] * 2)
    with evaluating(dense), torch.no_grad(), _quiet():
        program: Any = torch.onnx.export(
            dense,
            example,
            dynamo=True,
            verbose=False,
            opset_version=_OPSET,
            input_names=INPUTS,
            output_names=["embedding"],
            dynamic_shapes=shapes,
        )
    inputs = dict(zip(INPUTS, widths, strict=False))
    about: dict[str, Any] = {"schema": schema.name, "layer": chosen, "inputs": inputs}
    program.model.metadata_props["graphlog"] = json.dumps(about)
    with replacing(link_target(path)) as unfinished:
        program.save(str(unfinished))
    about |= {"output": str(path), "width": encoder.width(chosen), "inputs": list(INPUTS)}
    return about


@contextmanager
def _quiet() -> Generator[None]:
    """Suppress the messages of the exporter, which warns about missing optional packages."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        log.setLevel(before)


def padded_inputs(encoder: Encoder, batch: GraphBatch) -> dict[str, np.ndarray]:
    """Return graphs as the input arrays of an exported encoder, all float32.

    Args:
        encoder: The encoder; the graphs must have its schema.
        batch: Graphs of a store, ``store[a:b]``.

    Returns:
        Four arrays, for B graphs of at most N nodes each (N is at least 1). ``nodes`` (B, N, K) has
        the attributes of the nodes: categorical ones one-hot, numbers scaled. ``adjacency``
        (B, N, N) is 1 on the diagonal and where an edge leads from the node of the column to the
        node of the row. ``edges`` (B, N, L) has the attributes of edges, encoded as those of nodes
        and summed over the edges into each node. ``mask`` (B, N) is 1 for nodes and 0 for padding.
    """
    schema, count = encoder.schema, batch.num_graphs
    if batch.schema is not None:
        check_schema(batch.schema, schema)
    size = int(batch.sizes.max()) if count else 1
    neighborhood = Neighborhood(batch, schema, torch.float32)
    position = torch.arange(batch.num_nodes) - batch.ptr[:-1][batch.batch]
    arrays = {
        "nodes": torch.zeros(count, size, table_rows(schema.node)),
        "adjacency": torch.zeros(count, size, size),
        "edges": torch.zeros(count, size, table_rows(schema.edge)),
        "mask": torch.zeros(count, size),
    }
    arrays["nodes"][batch.batch, position] = expand_attributes(batch.x, schema.node, torch.float32)
    arrays["edges"][batch.batch, position] = neighborhood.indicator_sums
    arrays["mask"][batch.batch, position] = 1.0
    targets, sources = neighborhood.adjacency.receivers, neighborhood.adjacency.senders
    entries = (batch.batch[targets], position[targets], position[sources])
    arrays["adjacency"].index_put_(entries, torch.ones(len(targets)), accumulate=True)
    return {name: array.numpy() for name, array in arrays.items()}


def _apply_to_nodes(module: nn.Module, h: Float[Tensor, "B N D"]) -> Float[Tensor, "B N D"]:
    """Apply a module whose input has one row per node."""
    return module(h.flatten(0, 1)).unflatten(0, h.shape[:2])


def _dense_layer(layer: nn.Module, h: Tensor, adjacency: Tensor, edges: Tensor) -> Tensor:
    """Return the output of a layer, computed from dense arrays."""
    if isinstance(layer, GraphSAGE):
        return F.normalize(adjacency @ layer.linear(h) + edges @ layer.edge.weight, dim=2)
    assert isinstance(layer, GIN)  # checked by DenseEncoder
    node_sums, edge_sums = adjacency @ h, edges @ layer.edge.weight
    if layer.norm is None:
        hidden = layer.lift(node_sums + edge_sums)
    else:
        hidden = _apply_to_nodes(layer.norm, layer.lift(torch.cat([node_sums, edge_sums], dim=2)))
    return layer.lower(F.relu(hidden))


def _pooled(h: Tensor, mask: Tensor, readout: str) -> Float[Tensor, "B D"]:
    if readout == "max":
        return h.masked_fill(mask[:, :, None] == 0, -torch.inf).amax(dim=1)
    total = (mask[:, None, :] @ h)[:, 0]
    return total if readout == "sum" else total / mask.sum(1, keepdim=True).clamp(min=1)
