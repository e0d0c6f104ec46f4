"""Model and checkpoint files: safetensors with a description and a checksum, without pickle."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from graphlog import __version__
from graphlog.data.graphs import FeatureSchema
from graphlog.domains import DOMAINS
from graphlog.encoders import LAYERS
from graphlog.encoders.encoder import EncoderConfig, GraphEncoder, encoder_from_state
from graphlog.errors import MissingPluginError, ModelFileError, first_line
from graphlog.files import beside, storable

VERSION = 1
"""Version of the file format."""
KEY = "graphlog"
"""The only key of the metadata. safetensors writes several keys in random order, and equal models
must give equal files."""
ENCODER, EXTRA = "encoder.", "objective."
"""Prefixes of the names of the encoder's tensors and of all others."""


class NewerFormatError(ModelFileError):
    """A file of a newer format, which is not damaged but cannot be read."""


class ModelFile(NamedTuple):
    """Content of a model file, or the result of a run that could be written into one."""

    encoder: GraphEncoder
    """The encoder, in evaluation mode; on the CPU if read from a file."""
    info: dict[str, Any]
    """JSON-ready description of the training."""
    extra: dict[str, Tensor]
    """Tensors of the objective (heads, prototypes), by name."""
    sha256: str = ""
    """Checksum of weights and description; empty if not read from a file."""
    version: str | None = None
    """Version of graphlog that wrote the file; None if not read from a file."""


def save_model(
    path: Path | str,
    encoder: GraphEncoder,
    info: Mapping[str, Any],
    extra: Mapping[str, Tensor] | None = None,
    half: bool = False,
) -> None:
    """Write an encoder, JSON-ready ``info`` and further tensors to a file atomically.

    Missing folders are created. With ``half``, weights are stored as float16 unless a value
    overflows; they are read back as float32. Running statistics keep their precision.

    Raises:
        ModelFileError: If a weight is not finite; such a file could not be read.
    """
    tensors = {ENCODER + k: v for k, v in encoder.state_dict().items()}
    if broken := [name for name, tensor in tensors.items() if not tensor.isfinite().all()]:
        raise ModelFileError(
            f"{path}: not written, since `{broken[0]}` holds values that are not finite; train the "
            "encoder again with a lower learning rate."
        )
    tensors |= {EXTRA + k: v for k, v in (extra or {}).items()}
    tensors = {k: _stored(k, v, half) for k, v in tensors.items()}
    about = {
        "graphlog": __version__,
        "schema": encoder.schema.to_dict(),
        "config": encoder.config.model_dump(),
        "info": dict(info),
    }
    backbone, domain = encoder.config.backbone, encoder.schema.domain
    if needed := LAYERS.package(backbone) | DOMAINS.package(domain):
        about["plugins"] = needed
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(path, "model", about, tensors)


def _stored(name: str, tensor: Tensor, half: bool) -> Tensor:
    tensor = tensor.detach().to("cpu").contiguous()
    if half and tensor.dtype == torch.float32 and ".running_" not in name:
        short = tensor.half()
        return short if short.isfinite().all() else tensor
    return tensor.clone()


def write_tensors(
    path: Path, kind: str, about: Mapping[str, Any], tensors: dict[str, Tensor]
) -> None:
    """Write tensors, a JSON-ready description and a checksum of both to a file atomically.

    The tensors must be contiguous and on the CPU. ``kind`` names the kind of file, such as "model".
    """
    about = {**about, "format": f"graphlog-{kind}", "version": VERSION}
    about = json.loads(json.dumps(about))  # as it will be read: the checksums must be equal
    signed = {**about, "sha256": digest_of(tensors, about)}
    payload = save(tensors, metadata={KEY: json.dumps(signed)})
    with beside(path) as unfinished:
        # safetensors.save_file sets other permissions and hides the reason of an error
        unfinished.write_bytes(payload)


def read_tensors(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the description and the tensors in a file of :func:`write_tensors`.

    Raises:
        NewerFormatError: If the file has a newer format.
        ModelFileError: If the file is truncated, altered, or of another program or kind.
    """
    try:
        with path.open("rb") as opened:
            # safetensors accepts only names in UTF-8
            is_utf8 = storable(str(path)) == str(path)
            name = path if is_utf8 else f"/dev/fd/{opened.fileno()}"
            with safe_open(name, framework="pt") as file:  # pyright: ignore[reportUnknownVariableType]
                about: Any = json.loads((file.metadata() or {}).get(KEY, "{}"))
                # copied, since these are views of the file, which may be overwritten later
                tensors = {k: file.get_tensor(k).clone() for k in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, ValueError, RuntimeError) as e:
        raise ModelFileError(
            f"{path}: not a complete safetensors file ({first_line(e)}); copy or make it again."
        ) from None
    if not isinstance(about, dict) or about.get("format") != f"graphlog-{kind}":  # pyright: ignore[reportUnknownMemberType]
        raise ModelFileError(
            f"{path}: not a graphlog {kind} but a safetensors file of another program;"
            " `graphlog convert` reads checkpoints of the pre-train-GNNs family."
        )
    described: dict[str, Any] = about
    version, digest = described.get("version"), described.pop("sha256", None)
    if isinstance(version, int) and version > VERSION:
        raise NewerFormatError(
            f"{path}: written by a newer graphlog ({kind} format {version}, this one reads"
            f" {VERSION}); upgrade graphlog-torch."
        )
    if version != VERSION or digest_of(tensors, described) != digest:
        raise ModelFileError(
            f"{path}: damaged or altered since it was written (its SHA-256 does not match);"
            " copy or make it again."
        )
    return {**described, "sha256": digest}, tensors


def tensors_below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with ``prefix``, which is removed from the names."""
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def digest_of(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the description and of every tensor's name, type, shape and bytes."""
    sha = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu()
        sha.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}".encode())
        if tensor.numel():  # an empty tensor cannot be viewed as bytes
            sha.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def read_model(path: Path | str) -> ModelFile:
    """Read a file of :func:`save_model`.

    Raises:
        ModelFileError: If the file is missing, truncated, altered, no model, or of a newer format.
    """
    path = Path(path)
    if not path.is_file():
        raise ModelFileError(f"no such model file: {path}")
    about, tensors = read_tensors(path, "model")
    try:
        packages = about.get("plugins", {})
        LAYERS.check_installed(about["config"]["backbone"], packages)
        DOMAINS.check_installed(about["schema"]["domain"], packages)
        encoder = encoder_from_state(
            EncoderConfig.parse(about["config"]),
            FeatureSchema.from_dict(about["schema"]),
            tensors_below(tensors, ENCODER),
        )
        info = dict(about["info"])
    except MissingPluginError as e:
        raise ModelFileError(f"{path}: {e}") from None
    except (KeyError, ValueError, RuntimeError, TypeError, AttributeError) as e:
        raise ModelFileError(
            f"{path}: does not describe a model this version can build ({first_line(e)})."
        ) from None
    extra = {
        k: v.float() if v.dtype == torch.float16 else v
        for k, v in tensors_below(tensors, EXTRA).items()
    }
    return ModelFile(encoder.eval(), info, extra, about["sha256"], about.get("graphlog"))
