"""Where models come from: a file, a run folder, the package itself, or chance."""

from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

import torch

from graphlog.data.schema import FeatureSchema
from graphlog.data.store import GraphStore
from graphlog.domains import domain_of, schema_named
from graphlog.downstream.pretrained import Encoder
from graphlog.encoders.encoder import BATCH_SIZE, BATCHES, EncoderConfig, build_encoder, calibrate
from graphlog.encoders.legacy import convert_pth
from graphlog.encoders.modelfile import save_model
from graphlog.errors import ConfigError, ModelFileError, setting, unknown_name
from graphlog.inputs import InputLike, read, resolve
from graphlog.training.config import resolve_config
from graphlog.training.setting import seed_for

SHIPPED = Path(__file__).parents[1] / "models"
"""Folder of the models that come with the package."""
RANDOM = "random"


def list_models() -> dict[str, Path]:
    """Return the shipped models and their files."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.safetensors"))}


def load(
    model: str | Path | Encoder,
    *,
    device: str = "cpu",
    seed: int = 0,
    source: InputLike | None = None,
) -> Encoder:
    """Return the encoder called ``model``.

    Args:
        model: A ``.safetensors`` file, a run folder, the name of a shipped model, ``random`` (the
            untrained encoder of the default recipe), or an encoder, which is returned as it is.
        device: ``auto``, ``cpu`` or ``cuda``.
        seed: Initial weights of ``random``.
        source: What the encoder is for; its schema, if it has one of its own, is that of
            ``random``.

    Raises:
        ModelFileError: If there is a file or folder of that name but no usable model in it.
        ConfigError: If there is nothing of that name.
    """
    if isinstance(model, Encoder):
        return model
    if str(model) != RANDOM:
        return Encoder.read(model_path(model)).moved(device)
    usual, found = schema_named(resolve_config().schema), None
    if source is not None:
        found = resolve(source)
    if found and (found.store is not None or found.domain not in (None, usual.domain)):
        graphs = read(found)
        if graphs.schema != usual:  # else the same network whatever graphs it is used on
            own = random_encoder(schema=graphs.schema, seed=seed, graphs=graphs)
            return own.moved(device)
    return random_encoder(seed=seed).moved(device)


def convert(old: str | Path, path: str | Path, *, half: bool = False) -> Encoder:
    """Make a model file of a pre-train-GNNs checkpoint, chemistry or biology; run none of its code.

    Args:
        old: The ``.pth`` file.
        path: The ``.safetensors`` file.
        half: Whether to store weights in 16 bits.

    Raises:
        ConfigError: If ``path`` is ``old``.
        ModelFileError: If ``old`` is no such checkpoint.
    """
    old, path = Path(old), Path(path)
    if path.exists() and old.exists() and path.samefile(old):
        raise ConfigError(f"{path} is the checkpoint itself and would be lost; name another file.")
    converted = convert_pth(old)
    save_model(path, converted.encoder, converted.info, converted.extra, half=half)
    return load(path)


def model_path(model: str | Path) -> Path:
    """Return the ``.safetensors`` file that ``model`` stands for.

    Raises:
        ModelFileError: If it is a file or folder without a model.
        ConfigError: If there is nothing of that name; the nearest name is suggested.
    """
    path = Path(model)
    if path.is_dir():
        if (path / "model.safetensors").is_file():
            return path / "model.safetensors"
        advice = "Name a run folder or a model file."
        if (path / "config.toml").is_file():
            advice = f"It was interrupted; continue it with {setting('resume', True)}."
        raise ModelFileError(
            f"{path} holds no model.safetensors: it is not a finished run folder. {advice}"
        )
    if path.is_file():
        if path.suffix in {".pth", ".pt"}:
            raise ModelFileError(
                f"{path} is an old checkpoint; convert it first: graphlog convert {path} "
                f"-o {path.stem}.safetensors"
            )
        return path
    shipped = list_models()
    if str(model) in shipped:
        return shipped[str(model)]
    if path.suffix or len(path.parts) > 1:
        raise ModelFileError(f"no such model file or run folder: {path}{_nearest_file(path)}")
    near = get_close_matches(str(model), [*shipped, RANDOM], n=1, cutoff=0.5)
    if not near and (file := _nearest_file(path)).startswith("; did"):
        raise ConfigError(f"unknown model '{model}'{file}")
    raise unknown_name("model", str(model), [*shipped, RANDOM])


def random_encoder(
    config: EncoderConfig | None = None,
    schema: FeatureSchema | None = None,
    *,
    layer: str | None = None,
    seed: int = 0,
    graphs: GraphStore | None = None,
) -> Encoder:
    """Return an untrained encoder whose batch norms know the statistics of real graphs.

    Without that, an untrained network would be judged with statistics it never had.

    Args:
        config: Settings of the network; None takes the default recipe's.
        schema: Features it reads; None takes the default recipe's.
        layer: Embedding it is known by; None takes the default recipe's.
        seed: Initial weights, and which graphs are looked at.
        graphs: Unlabeled graphs to take the statistics from; None takes bundled molecules.
    """
    recipe = resolve_config()
    schema = schema or schema_named(recipe.schema)
    network = build_encoder(
        config or recipe.encoder, schema, torch.Generator().manual_seed(seed_for(seed, "encoder"))
    )
    if graphs is None:
        graphs = bundled_graphs(schema)
    if graphs is None:
        raise ConfigError(
            f"an untrained encoder of schema '{schema.name}' needs graphs to take its statistics "
            "from."
        )
    calibrate(network, graphs, seed)
    network.eval()
    return Encoder(network, layer or recipe.embedding, {"name": RANDOM, "seed": seed})


@lru_cache(maxsize=4)
def bundled_graphs(schema: FeatureSchema) -> GraphStore | None:
    """Return the graphs that come with the package for batch norm; None where there are none."""
    return domain_of(schema).calibration_graphs(schema, BATCHES * BATCH_SIZE)


def untrained_like(
    encoder: Encoder, fold: GraphStore, seed: int, layer: str | None = None
) -> Encoder:
    """Return the untrained encoder of the same settings, on the same device, for comparison.

    A pre-trained encoder has the batch norm statistics of the graphs that it was pre-trained on.
    Those are not at hand, so the untrained one takes its own from the graphs that come with the
    package, not from the labeled data it is judged on; :func:`statistics_note` says so.

    Args:
        encoder: What it is compared with.
        fold: Where the statistics come from if no graphs of its schema come with the package.
        seed: Initial weights, and which graphs are looked at.
        layer: Embedding it is known by; None takes the encoder's.
    """
    graphs = bundled_graphs(encoder.schema)
    untrained = random_encoder(
        encoder.config,
        encoder.schema,
        layer=layer or encoder.layer,
        seed=seed,
        graphs=fold if graphs is None else graphs,
    )
    return untrained.to(encoder.device)


def statistics_note(encoder: Encoder) -> str:
    """Return a note for tables with :func:`untrained_like`: which graphs its batch norm knows."""
    graphs = bundled_graphs(encoder.schema)
    source = (
        "the unlabeled graphs of the training fold"
        if graphs is None
        else f"{len(graphs):,} unlabeled graphs that come with the package"
    )
    return (
        f"batch norm of the untrained encoder: statistics of {source}; of a pre-trained one, those "
        "of its pre-training collection"
    )


def _nearest_file(path: Path) -> str:
    siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    near = get_close_matches(path.name, siblings, n=1, cutoff=0.6)
    return f"; did you mean {path.parent / near[0]}?" if near else "; check the path."
