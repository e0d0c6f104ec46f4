"""What is computed in a cell, one function a stage."""

import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from sklearn.metrics import silhouette_score

from graphlog.benchmark.cells import CellSpec, identity
from graphlog.benchmark.folder import BenchmarkFolder
from graphlog.benchmark.methods import BASELINES, FOREST
from graphlog.data.manifest import is_store
from graphlog.data.store import GraphStore, open_store
from graphlog.domains import schema_named
from graphlog.downstream.encoder import Encoder
from graphlog.downstream.finetune import RULES, finetune
from graphlog.downstream.linear import FIXED_C, GRID
from graphlog.downstream.models import random_encoder
from graphlog.downstream.probe import ecfp_rows, probe
from graphlog.downstream.report import ScoreRow
from graphlog.downstream.search import unit_rows
from graphlog.downstream.tasks import LabeledGraphs, open_labeled
from graphlog.errors import ModelFileError
from graphlog.files import replacing
from graphlog.inputs import read
from graphlog.prototypes.fit import fit_forest
from graphlog.prototypes.forest import PrototypeForest
from graphlog.report.hierarchy import Hierarchy, project, sample_rows
from graphlog.training.config import PretrainConfig
from graphlog.training.log import Progress, read_metrics
from graphlog.training.precision import choose_device
from graphlog.training.pretrain import run_pretraining
from graphlog.training.randomness import seed_for
from graphlog.training.runfolder import versions

Result = dict[str, Any]
"""Scores of a cell, and what it says about data, time, versions and machine."""
_PACKAGES = ("graphlog-torch", "torch", "rdkit", "scikit-learn")
_OPEN_SETS = 8
"""Labeled data sets kept in memory; a molecule takes about 200 bytes."""


@dataclass(frozen=True, slots=True)
class CellContext:
    """Where the cells of a suite are computed and who is told; opens the graphs they need."""

    folder: BenchmarkFolder
    progress: Progress
    timings: dict[Any, dict[str, Result]] = field(default_factory=dict[Any, dict[str, Result]])
    """Throughputs measured so far, for the methods that were timed together."""
    _labeled: dict[str, LabeledGraphs] = field(default_factory=dict[str, LabeledGraphs])

    def unlabeled(self, spec: CellSpec) -> GraphStore:
        """Return the graphs to pre-train on, memory-mapped.

        The first process that needs them parses them; others wait for it.
        """
        scale = spec.settings
        if is_store(scale.source):
            store = open_store(scale.source)
        else:
            words = json.dumps([identity(scale.source), scale.limit], sort_keys=True)
            name = f"{scale.schema}-{hashlib.sha256(words.encode()).hexdigest()[:12]}"
            with self.folder.claimed(f"store-{name}", wait=True):
                store = self._parsed(spec, self.folder.stores / name)
        if spec.share == 1.0:
            return store
        count = round(spec.share * len(store))
        return store.subset(sample_rows(len(store), count, spec.seed or 0))

    def _parsed(self, spec: CellSpec, path: Path) -> GraphStore:
        """Return the graphs of a data set, kept in ``path``."""
        scale, schema = spec.settings, schema_named(spec.settings.schema)
        with suppress(ModelFileError):  # damaged: parsed again
            if path.is_dir():
                return open_store(path)
        first = f" (first {scale.limit:,})" if scale.limit else ""
        self.progress.say(f"reading {scale.source}{first} as {scale.schema}")
        if spec.plan.domain == "molecule":
            read(scale.source, schema, store_path=path, limit=scale.limit)
        else:  # the catalogue cuts ego-networks and keeps them itself
            store = read(scale.source, schema)
            count = len(store) if scale.limit is None else min(scale.limit, len(store))
            store.subset(np.arange(count)).save(path)
        return open_store(path)

    def labeled(self, spec: CellSpec) -> LabeledGraphs:
        """Return the labeled data set of a cell with its folds."""
        if spec.dataset is None:
            raise ValueError(f"{spec.title} has no data set")
        if spec.dataset not in self._labeled:
            if len(self._labeled) >= _OPEN_SETS:
                del self._labeled[next(iter(self._labeled))]
            schema, split = schema_named(spec.settings.schema), spec.settings.split
            self._labeled[spec.dataset] = open_labeled(spec.dataset, schema, split=split)
        return self._labeled[spec.dataset]


def pretrain_cell(spec: CellSpec, context: CellContext) -> Result:
    """Pre-train one model, resuming from its last checkpoint."""
    config = encoder_settings(spec)
    store = context.unlabeled(spec)
    model = context.folder.model(spec.model)
    resumed = (model.parent / "checkpoint").is_dir() or model.is_file()
    began = time.monotonic()
    run_pretraining(store, config, model.parent, resume=True, progress=context.progress)
    seconds = time.monotonic() - began
    rows = read_metrics(model.parent / "metrics.jsonl")
    rates = [row["graphs_per_s"] for row in rows if row.get("graphs_per_s")]
    rate = median(rates) if rates else None
    notes: list[str] = []
    if resumed and rate:
        seconds = len(store) * config.epochs / rate
        notes = ["seconds are graphs by rate: the run was interrupted"]
    shutil.rmtree(model.parent / "checkpoint", ignore_errors=True)  # the model is complete
    last = rows[-1] if rows else {}
    return {
        **provenance(spec, {"pretrain": describe(store, spec)}, seconds, rate),
        "scores": {"losses": {k: v for k, v in last.items() if k.startswith("loss")}},
        "metric": None,
        "timing_notes": notes,
    }


def finetune_cell(spec: CellSpec, context: CellContext) -> Result:
    """Fine-tune one encoder on one data set with one seed, resuming from its last checkpoint."""
    config, seed = spec.finetuning, spec.seed
    if config is None or seed is None:
        raise ValueError("a cell of fine-tuning has settings and a seed")
    data = context.labeled(spec)
    run_dir = context.folder.runs / spec.work_key
    encoder = _encoder(spec, context, data)
    resumed = (run_dir / "checkpoint").is_dir()
    began = time.monotonic()
    where: dict[str, Any] = {"run_dir": run_dir, "resume": True, "progress": context.progress}
    predictor = finetune(encoder, data, config, seeds=(seed,), baselines=(), **where)
    seconds = time.monotonic() - began
    notes: list[str] = []
    if resumed:
        seconds = sum(row["seconds"] for row in read_metrics(run_dir / "metrics.jsonl"))
        notes = ["seconds are those of the epochs: the run was interrupted"]
    by_rule = {row.rule: row for row in predictor.report.rows}
    shutil.rmtree(run_dir, ignore_errors=True)
    rate = len(data.split.train) * config.epochs / seconds
    return {
        **_evaluated(spec, data, encoder, seconds, rate),
        "scores": {rule: _scores(by_rule[title], data.metric) for rule, title in RULES.items()},
        "best_epoch": by_rule[RULES["best-valid"]].detail["best_epochs"][0],
        "timing_notes": notes,
    }


def probe_cell(spec: CellSpec, context: CellContext) -> Result:
    """Fit linear models to the frozen embeddings of one encoder, or a model to fingerprints."""
    data = context.labeled(spec)
    began = time.monotonic()
    encoder = None
    if spec.method.name in BASELINES:
        seeds = () if spec.seed is None else (spec.seed,)
        rows, _ = ecfp_rows(data, [spec.method.name], seeds, FIXED_C, sorted({FIXED_C, *GRID}), -1)
    else:
        encoder = _encoder(spec, context, data)
        layer, progress = spec.settings.probe_layer, context.progress
        rows = list(probe(encoder, data, layer=layer, baselines=(), progress=progress).rows)
    # a forest is grown once, nothing of it is selected
    rules = ["last"] if spec.method.name == FOREST else ["fixed-C", "validated-C"]
    scores = {rule: _scores(row, data.metric) for rule, row in zip(rules, rows, strict=True)}
    return {**_evaluated(spec, data, encoder, time.monotonic() - began, None), "scores": scores}


def map_cell(spec: CellSpec, context: CellContext) -> Result:
    """Project graphs and prototypes of one model onto a plane, into a file of arrays.

    A model trained without prototypes gets those that K-means finds in its embeddings afterwards;
    the cell says which they are. The cluster of a graph is the nearest prototype of the top layer.
    """
    config = encoder_settings(spec)
    began = time.monotonic()
    store = context.unlabeled(spec)
    rows = sample_rows(len(store), spec.settings.mapped, config.seed)
    encoder = Encoder.read(context.folder.model(spec.model)).to(choose_device(config.device))
    learned = Hierarchy.of(encoder)
    embed = learned.embed if learned else partial(encoder.embed_store, layer="last")
    embeddings = embed(store.subset(rows), progress=context.progress)
    forest = learned.forest if learned else _fitted(embeddings, config)
    prototypes = np.concatenate([layer.detach().cpu().numpy() for layer in forest.layers])
    # on the unit sphere, where the objective compares them: only directions matter
    points = unit_rows(np.concatenate([embeddings, prototypes.astype(np.float32)]))
    plane = project(points, config.seed).astype(np.float32)
    cluster = np.argmax(points[: len(rows)] @ unit_rows(prototypes[: forest.sizes[0]]).T, axis=1)
    starts = np.cumsum([0, *forest.sizes])
    parents = [np.full(forest.sizes[0], -1)]
    parents += [
        forest.parent(level).cpu().numpy() + starts[level - 1] for level in range(1, forest.depth)
    ]
    arrays: dict[str, Any] = {
        "coordinates": plane[: len(rows)],
        "cluster": cluster.astype(np.int64),
        "prototypes": plane[len(rows) :],
        "layer": np.repeat(np.arange(forest.depth), forest.sizes).astype(np.int64),
        "parent": np.concatenate(parents).astype(np.int64),
        "row": store.rows[rows].astype(np.int64),
    }
    name = f"{spec.key}.npz"
    with replacing(context.folder.maps / name) as unfinished, unfinished.open("wb") as file:
        np.savez_compressed(file, **arrays)
    data = {"pretrain": describe(store, spec)}
    return {
        **provenance(spec, data, time.monotonic() - began, None),
        "scores": {"quality": _quality(embeddings, cluster)},
        "metric": None,
        "map": name,
        "prototypes": {
            "origin": "learned" if learned else "fitted afterwards",
            "sizes": list(forest.sizes),
        },
    }


def encoder_settings(spec: CellSpec) -> PretrainConfig:
    """Return the settings of a cell that has an encoder."""
    if spec.pretraining is None:
        raise ValueError(f"{spec.title} has no encoder")
    return spec.pretraining


def describe(store: GraphStore, spec: CellSpec) -> dict[str, Any]:
    """Return name, size and hash of the graphs that a cell was pre-trained on."""
    name = identity(spec.settings.source)["name"]
    return {"name": name, "graphs": len(store), "digest": store.digest}


def provenance(
    spec: CellSpec, data: Mapping[str, Any], seconds: float, rate: float | None
) -> Result:
    """Return data, time, versions and machine of a cell."""
    packages = versions("")["packages"]
    device = choose_device("cpu" if spec.pretraining is None else spec.pretraining.device)
    return {
        "data": dict(data),
        "seconds": round(seconds, 3),
        "graphs_per_s": None if rate is None else round(rate, 1),
        "versions": {name: packages[name] for name in _PACKAGES if name in packages},
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        },
        "notes": [],
    }


def _encoder(spec: CellSpec, context: CellContext, data: LabeledGraphs) -> Encoder:
    """Return the encoder of a cell; an untrained one is calibrated on the unlabeled train fold."""
    config = encoder_settings(spec)
    if spec.model:
        encoder = Encoder.read(context.folder.model(spec.model))
    else:
        graphs = data.store.subset(np.sort(data.split.train))
        schema = schema_named(config.schema)
        how: dict[str, Any] = {"layer": config.embedding, "seed": config.seed, "graphs": graphs}
        encoder = random_encoder(config.encoder, schema, **how)
    return encoder.to(choose_device(config.device))


def _evaluated(
    spec: CellSpec, data: LabeledGraphs, encoder: Encoder | None, seconds: float, rate: float | None
) -> Result:
    about: dict[str, Any] = {"name": data.name, "digest": data.store.digest}
    about = {"dataset": {**about, "sizes": data.sizes, "split": data.split_name}}
    if encoder is not None and spec.model:
        graphs, digest = encoder.info.get("graphs"), encoder.info.get("data_digest")
        name = identity(spec.settings.source)["name"]
        about["pretrain"] = {"name": name, "graphs": graphs, "digest": digest}
    result = provenance(spec, about, seconds, rate)
    return {**result, "metric": data.metric, "task": data.task}


def _scores(row: ScoreRow, metric: str) -> dict[str, Any]:
    halves = {fold: scores[metric][0] for fold, scores in row.halves.items()}
    folds = {"test": row.test[metric][0], "valid": row.valid[metric][0]}
    return {**folds, **halves, "per_task": row.per_task}


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _fitted(embeddings: Float[np.ndarray, "N D"], config: PretrainConfig) -> PrototypeForest:
    options = config.options
    return fit_forest(
        torch.from_numpy(embeddings),
        depth=options["depth"],
        centers=options["centers"],
        generator=torch.Generator().manual_seed(seed_for(config.seed, "map")),
        centers_rule=options["centers_rule"],
        min_members=options["min_members"],
        space=options["kmeans_space"],
    )


def _quality(embeddings: Float[np.ndarray, "N D"], cluster: np.ndarray) -> dict[str, float | None]:
    """Return the mean silhouette of the clusters (cosine distance) and the effective rank."""
    silhouette = None
    if 1 < len(np.unique(cluster)) < len(cluster):
        silhouette = float(silhouette_score(unit_rows(embeddings), cluster, metric="cosine"))
    centered = embeddings - embeddings.mean(axis=0)
    spectrum = np.linalg.svd(centered, compute_uv=False).astype(np.float64)
    share = spectrum / max(spectrum.sum(), 1e-12)
    rank = float(np.exp(-(share * np.log(np.maximum(share, 1e-12))).sum()))
    return {"silhouette": silhouette, "effective_rank": rank}
