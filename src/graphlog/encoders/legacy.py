"""Read checkpoints of the pre-train-GNNs family (GraphLoG, GraphCL, GraphMAE, Mole-BERT, ...)."""

import io
import pickle  # nosec B403
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphlog.data.graphs import Attribute, FeatureSchema
from graphlog.domains.molecule.schema import MOLECULE
from graphlog.domains.protein.schema import PROTEIN
from graphlog.encoders.encoder import EncoderConfig, GraphEncoder, encoder_from_state
from graphlog.encoders.modelfile import ModelFile, tensors_below
from graphlog.errors import ModelFileError, first_line


def convert_pth(path: Path | str) -> ModelFile:
    """Return the encoder in a torch checkpoint, ready for ``save_model``.

    The backbone, its size and the domain are inferred from the names, shapes and values of the
    weights, which may be nested in a training state and have any prefix. GCN and GraphSAGE have
    weights of the same names and shapes: the file name decides, or, in chemistry, the statistics
    of batch normalization. Only tensors and plain containers are unpickled.

    The attribute tables of graphlog have codes that these checkpoints lack. Their rows are copies
    of the row that the original code would have used: "unspecified" for "other" and "masked"
    chirality, "single" for other bond types, "none" for other directions.

    Raises:
        ModelFileError: If the file is missing, is damaged, contains code, or contains no encoder of
            the family.
    """
    path = Path(path)
    states = [s for s in _states(_load(path)) if any("gnns.0." in k for k in s)]
    if not states:
        raise ModelFileError(
            f"{path}: no encoder of the pre-train-GNNs family (no weights named `gnns.0.*`); a "
            "model of graphlog needs no conversion."
        )
    prefixes = {m[1] for k in states[0] if (m := re.match(r"(|.*\.)gnns\.0\.", k))}
    # if there are several encoders, take the least nested one
    prefix = min(prefixes, key=lambda p: (p.count("."), len(p), p))
    weights = tensors_below(states[0], prefix)
    in_name = [n for n in ("graphsage", "gcn") if n in path.name.lower()]
    backbone = _backbone(weights, in_name[0] if len(in_name) == 1 else None)
    if backbone is None:
        raise ModelFileError(
            f"{path}: GCN and GraphSAGE have the same weights;"
            " put `gcn` or `graphsage` into the file's name."
        )
    try:
        encoder = encoder_from_weights(weights, backbone)
    except (KeyError, RuntimeError, ValueError, IndexError, TypeError) as e:
        raise ModelFileError(
            f"{path}: its weights do not fit an encoder of the family ({first_line(e)})."
        ) from None
    left_out = sorted(k for k in states[0] if not k.startswith(prefix))
    return ModelFile(
        encoder.eval(), {"converted_from": path.name, "prefix": prefix, "left_out": left_out}, {}
    )


def _load(path: Path) -> Any:
    if not path.is_file():
        raise ModelFileError(f"no such checkpoint: {path}")
    try:
        content = _checked_archive(path) if zipfile.is_zipfile(path) else path
        return torch.load(content, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ModelFileError(
            f"{path}: refused, since it holds more than weights (unpickling it could run code)."
        ) from None
    except Exception as e:  # torch.load raises many types of errors for damaged files
        raise ModelFileError(
            f"{path}: not a torch checkpoint, or a damaged one ({type(e).__name__});"
            " download it again."
        ) from None


def _checked_archive(path: Path) -> io.BytesIO:
    """Return a copy of a ZIP archive, after checking the checksums of its entries.

    ``torch.load`` checks neither checksums nor the directory of the archive: for an entry that it
    does not find, it returns uninitialized memory.
    """
    copy = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(copy, "w") as checked:
        if sum(entry.file_size for entry in archive.infolist()) > path.stat().st_size:
            raise zipfile.BadZipFile("it expands")
        for entry in archive.infolist():
            checked.writestr(entry.filename, archive.read(entry))
    copy.seek(0)
    return copy


def _states(checkpoint: Any) -> Iterator[dict[str, Tensor]]:
    """Yield every dictionary of named tensors in a checkpoint, the outermost first."""
    waiting, visited = [checkpoint], set[int]()
    while waiting:
        value = waiting.pop()
        if not isinstance(value, Mapping) or id(value) in visited:  # a container may contain itself
            continue
        visited.add(id(value))
        tensors = {str(k): v for k, v in value.items() if isinstance(v, Tensor)}
        if tensors:
            yield tensors
        waiting.extend(reversed(list(value.values())))


def _backbone(weights: Mapping[str, Tensor], hint: str | None) -> str | None:
    """Infer the backbone from names of weights, ``hint`` or values; None if it is ambiguous."""
    if "gnns.0.att" in weights:
        return "gat"
    if "gnns.0.mlp.0.weight" in weights:
        return "gin"
    if hint is not None or "batch_norms.0.running_var" not in weights:
        return hint
    # outputs of GraphSAGE have unit length, so that the mean squares of the columns add up to 1
    norm = tensors_below(weights, "batch_norms.0.")
    square = (norm["running_var"] + norm["running_mean"] ** 2).sum()
    return "graphsage" if abs(float(square) - 1) < 0.1 else "gcn"


def encoder_from_weights(weights: Mapping[str, Tensor], backbone: str) -> GraphEncoder:
    """Return the encoder with these weights, which are named as in the checkpoints.

    Raises:
        KeyError: If a weight is missing or has an unknown name.
        ValueError: If a table has more codes than the schema, or layers are missing.
        RuntimeError: If the shape of a weight differs from the encoder's.
    """
    chemistry = "x_embedding1.weight" in weights
    schema = MOLECULE if chemistry else PROTEIN
    if chemistry:
        nodes = _stacked(weights, "x_embedding", schema.node)
    else:
        nodes = weights["gnns.0.input_node_embeddings.weight"]
    numbers = {k.split(".")[1] for k in weights if k.startswith("gnns.")}
    if numbers != {str(number) for number in range(len(numbers))}:
        raise ValueError(f"its {len(numbers)} layers are not numbered from 0 on")
    heads = {"layer": {"heads": weights["gnns.0.att"].shape[1]}} if backbone == "gat" else {}
    shape = {"backbone": backbone, "layers": len(numbers), "dim": nodes.shape[1]}
    config = EncoderConfig.parse({**shape, **heads})
    state = {"node.weight": nodes}
    for number in numbers:
        layer = _layer(tensors_below(weights, f"gnns.{number}."), schema)
        state |= {f"layers.{number}.{k}": v for k, v in layer.items()}
    state |= {f"norms.{k}": v for k, v in tensors_below(weights, "batch_norms.").items()}
    for name in [name for name in state if name.endswith(".running_mean")]:
        # checkpoints of torch before 0.4.1 lack this counter
        state.setdefault(name.replace("running_mean", "num_batches_tracked"), torch.tensor(0))
    return encoder_from_state(config, schema, state)


def _layer(weights: Mapping[str, Tensor], schema: FeatureSchema) -> dict[str, Tensor]:
    """Return the weights of one layer under the names that graphlog uses."""
    # an MLP with batch normalization has one more module
    lower = "mlp.3" if "mlp.3.weight" in weights else "mlp.2"
    names = {"mlp.0": "lift", "mlp.1": "norm", lower: "lower"}
    names |= {"linear": "linear", "weight_linear": "linear"}
    renamed: dict[str, Tensor] = {}
    for key, value in weights.items():
        module, _, parameter = key.rpartition(".")
        if key == "att":
            renamed["attention"] = value.squeeze(0)
        elif key == "bias":
            renamed["bias"] = value
        elif module in names:
            renamed[f"{names[module]}.{parameter}"] = value
        elif not module.startswith(("edge_", "input_node_embeddings")):
            raise KeyError(f"unexpected weight `{key}` in a layer")
    if "edge_encoder.weight" in weights:
        rows = [weights["edge_encoder.weight"].T, weights["edge_encoder.bias"][None]]
        renamed["edge.weight"] = torch.cat(rows)
    else:
        renamed["edge.weight"] = _stacked(weights, "edge_embedding", schema.edge)
    return renamed


def _stacked(weights: Mapping[str, Tensor], name: str, columns: tuple[Attribute, ...]) -> Tensor:
    """Return the stacked tables of all columns, each padded with copies of its first row."""
    parts: list[Tensor] = []
    for number, column in enumerate(columns, start=1):
        table = weights[f"{name}{number}.weight"]
        missing = column.cardinality - table.shape[0]
        if missing < 0:
            raise ValueError(
                f"`{name}{number}` has {table.shape[0]} rows,"
                f" more than the {column.cardinality} codes of '{column.name}'"
            )
        parts += [table, table[:1].expand(missing, -1)]
    return torch.cat(parts)
