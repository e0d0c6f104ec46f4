"""Descriptions of data sets, models, stores and runs, as plain values."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
from rich.filesize import decimal

from graphlog.config import read_toml
from graphlog.data.graphs import Attribute, FeatureSchema
from graphlog.data.manifest import is_store
from graphlog.data.store import open_store
from graphlog.datasets import DATASETS, find_spec
from graphlog.domains import DOMAINS, domain_of
from graphlog.downstream.pretrained import list_models, model_path
from graphlog.downstream.report import Report
from graphlog.encoders.modelfile import read_model
from graphlog.encoders.novelty import Novelty
from graphlog.errors import ConfigError, DataError, ModelFileError
from graphlog.files import folder_kind
from graphlog.training.runfolder import RUNS


def describe(path: str | Path) -> dict[str, Any]:
    """Describe a store, a run folder, a model file, or a shipped model.

    Args:
        path: A file, a folder, or the name of a shipped model.

    Raises:
        ModelFileError: If ``path`` is none of these, or is damaged.
        ConfigError: If it is the name of something else, or unknown.
    """
    folder = Path(path)
    if is_store(path):
        return describe_store(folder)
    has_model = (folder / "model.safetensors").is_file()
    if (folder / "config.toml").is_file() and (has_model or folder_kind(folder) in RUNS):
        return describe_run(folder)
    if str(path) in DATASETS and not folder.exists():
        raise ConfigError(f"'{path}' is a data set; see graphlog data info {path}")
    file = model_path(path)
    if file.suffix != ".safetensors":
        raise ModelFileError(f"{path} is not a model, store or run; name one of these.")
    return describe_model(file)


def describe_models() -> dict[str, dict[str, Any]]:
    """Describe every shipped model, by name."""
    return {name: describe_model(path) for name, path in list_models().items()}


def describe_model(path: Path) -> dict[str, Any]:
    """Describe a model file: its encoder, training, schema and checksum.

    License, training data and limits are None unless the file or the model card next to it has
    them.
    """
    contents = read_model(path)
    encoder, info = contents.encoder, contents.info
    card: dict[str, str] = {}
    if (about := path.with_suffix(".md")).is_file():
        text = about.read_text(encoding="utf-8", errors="replace")
        rows = dict(re.findall(r"^\| ([\w ]+) \| (.*) \|$", text, re.MULTILINE))
        named = ("trained on", "reads", "license", "limits")
        card = {name: rows[name] for name in named if name in rows}
        card["model card"] = str(about)
    layers = [f"prototypes.{level}" for level in range(len(contents.extra))]
    sizes = [str(len(contents.extra[name])) for name in layers if name in contents.extra]
    config, novelty = encoder.config, Novelty.of(contents.extra, encoder.embedding_width("jk"))
    return {
        "kind": "model",
        "path": str(path),
        "graphlog": contents.version,
        "sha256": contents.sha256,
        "size": decimal(path.stat().st_size),
        "encoder": f"{config.backbone} {config.layers} x {config.dim}",
        "parameters": sum(p.numel() for p in encoder.parameters()),
        "embedding": info.get("embedding", "last"),
        "width": encoder.embedding_width(info.get("embedding", "last")),
        **{name: info.get(name) for name in ("objective", "recipe", "seed", "epochs", "graphs")},
        "data_digest": info.get("data_digest"),
        "standardize": info.get("standardize") or "no",
        "smiles_column": info.get("smiles_column"),
        **({"cutting": info["cutting"]} if "cutting" in info else {}),
        "trained on": info.get("training_data"),
        "license": info.get("license"),
        **card,
        **({"classes": info["classes"]} if "classes" in info else {}),
        "schema": describe_schema(encoder.schema),
        "settings": config.model_dump(),
        "novelty": "calibrated" if novelty else "not calibrated",
        "prototypes": " / ".join(sizes) or None,
        "versions": info.get("versions", {}),
    }


def describe_store(path: Path) -> dict[str, Any]:
    """Describe a graph store."""
    store = open_store(path)
    nodes, size, domain = store.num_nodes, "", domain_of(store.schema)
    unmatched = store.source.unmatched
    if len(nodes):
        size = f"{nodes.min()} to {nodes.max()}, mean {nodes.mean():.1f}"
    return {
        "kind": "store",
        "path": str(path),
        "graphs": len(store),
        "input rows": store.num_rows,
        "rejected rows": store.contents.manifest.counts["rejects"],
        "nodes": int(nodes.sum()),
        "nodes a graph": size,
        "size": decimal(store.nbytes),
        "bytes a graph": round(store.nbytes / max(len(store), 1), 1),
        "tasks": list(store.tasks),
        "labels present": None if store.labels is None else int(np.isfinite(store.labels).sum()),
        **domain.describe(store),
        **({"names not found": len(unmatched)} if unmatched else {}),
        "digest": store.digest,
        "schema": describe_schema(store.schema),
        "source": store.source.model_dump(
            mode="json", exclude_defaults=True, exclude={"unmatched"}
        ),
    }


def describe_run(folder: Path) -> dict[str, Any]:
    """Describe a run folder, finished or not."""
    model, described, state = folder / "model.safetensors", dict[str, Any](), "finished"
    if model.is_file():
        described = describe_model(model)
    else:
        checkpoints = folder / "checkpoint"  # fine-tuning has a subfolder for each seed
        steps = [p for p in checkpoints.rglob("step-*") if p.suffix != ".partial"]
        last = "no checkpoint yet"
        if steps:
            newest = max(steps, key=lambda p: p.stat().st_mtime)
            last = newest.relative_to(checkpoints).as_posix()
        state = f"unfinished, {last}; it can be resumed"
    scores: dict[str, str] = {}
    file = folder / "scores.json"
    for row in Report.load(file).scores if file.is_file() else ():
        sd = "" if math.isnan(row["sd"]) else f" ± {row['sd']:.4f}"
        scores[f"{row['model']}, {row['rule']}"] = f"{row['metric']} {row['mean']:.4f}{sd}"
    return {
        **described,
        "kind": "run",
        "path": str(folder),
        "state": state,
        "files": sorted(p.name for p in folder.iterdir() if not p.name.startswith(".")),
        "scores": scores,
        "settings": read_toml(folder / "config.toml"),
    }


def describe_schema(schema: FeatureSchema) -> dict[str, str]:
    """Describe a schema: its name, its direction, and its columns in words."""
    direction = {None: {}, True: {"edges": "directed"}, False: {"edges": "undirected"}}
    return {
        "name": schema.name,
        **direction[schema.directed],
        "node columns": ", ".join(_column(a) for a in schema.node),
        "edge columns": ", ".join(_column(a) for a in schema.edge) or "none",
        "masked": schema.masked,
    }


_VALUES_SHOWN = 6
"""Largest number of categories that the description of a column lists."""


def _column(attribute: Attribute) -> str:
    """Return a column in words: its categories, or how its numbers are standardized."""
    if attribute.origin == "degree":
        return f"{attribute.name} (0 to {attribute.cardinality - 2}, larger ones as that)"
    if not attribute.is_categorical:
        unit = f", read as (value - {attribute.shift:.4g}) / {attribute.scale:.4g}"
        is_plain = (attribute.shift, attribute.scale) == (0.0, 1.0)
        return f"{attribute.name} (number{'' if is_plain else unit})"
    values = [v for v in attribute.values if v]
    if not values:
        return f"{attribute.name} ({attribute.cardinality} codes)"
    more = ", ..." if len(values) > _VALUES_SHOWN else ""
    kind = ", of a one-hot row" if attribute.origin == "one-hot" else ""
    shown = ", ".join(values[:_VALUES_SHOWN])
    return f"{attribute.name} ({len(values)} categories{kind}: {shown}{more})"


def describe_datasets() -> list[dict[str, Any]]:
    """Describe every data set, by domain with molecules first, and labeled data sets first."""
    order = {"molecule": 0, "graph": 1, "protein": 2}
    specs = sorted(
        DATASETS.values(), key=lambda s: (order.get(s.domain, len(order)), s.task is None)
    )
    return [describe_dataset(spec.name) for spec in specs]


def describe_dataset(name: str) -> dict[str, Any]:
    """Describe a data set, and where it is on this machine.

    Raises:
        ConfigError: If there is no data set of that name.
    """
    spec = find_spec(name)
    domain, here, where = DOMAINS[spec.domain], "no", None
    try:
        if (files := domain.find(spec)) is not None:
            here, where = "yes", ", ".join(map(str, files))
            if domain.bundled(spec) is not None:
                here = "with RDKit" if spec.origin == "rdkit" else "with graphlog"
    except DataError:
        here = "another file"
    return {
        "name": spec.name,
        "description": spec.description,
        "rows": spec.rows or None,
        "tasks": spec.num_tasks,
        "kind": spec.task or "no labels",
        "metric": spec.metric,
        "split": spec.split,
        "task names": list(spec.tasks),
        "license": spec.license,
        "source": spec.source,
        "url": spec.url,
        "made from": [part.name for part in domain.parts(spec)],
        "sha256": spec.sha256,
        "sha256 of its SMILES": next(iter(spec.details.get("sha256_smiles", ())), None),
        "here": here,
        "path": where,
    }
