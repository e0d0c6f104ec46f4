"""Pre-training, fine-tuning, probing, fingerprints: the cells that tables are made of."""

import shutil
import time
from statistics import median
from typing import Any

import numpy as np

from graphlog.benchmark.grid import CellSpec, is_baseline
from graphlog.benchmark.methods import FOREST
from graphlog.benchmark.sources import about
from graphlog.benchmark.stages.common import Found, Workplace, facts, settings_of
from graphlog.domains import SCHEMAS
from graphlog.downstream.encoder import Encoder
from graphlog.downstream.finetune import RULES, finetune
from graphlog.downstream.linear import FIXED_C, GRID
from graphlog.downstream.models import random_encoder
from graphlog.downstream.probe import ecfp_rows, probe
from graphlog.downstream.report import ScoreRow
from graphlog.downstream.tasks import LabelledGraphs
from graphlog.training.log import read_metrics
from graphlog.training.precision import choose_device
from graphlog.training.pretrain import run_pretraining

_FOREST_RULE = "last"
"""A forest is grown once and nothing of it is selected."""


def pretrain_cell(spec: CellSpec, workplace: Workplace) -> Found:
    """Pre-train one model, going on from its last checkpoint."""
    config = settings_of(spec)
    store = workplace.graphs.unlabelled(spec)
    run_dir = workplace.folder.model(spec)
    going_on = (run_dir / "checkpoint").is_dir() or (run_dir / "model.safetensors").is_file()
    began = time.monotonic()
    run_pretraining(store, config, run_dir, resume=True, progress=workplace.progress)
    seconds = time.monotonic() - began
    rows = read_metrics(run_dir / "metrics.jsonl")
    rate = (
        median(rates)
        if (rates := [row["graphs_per_s"] for row in rows if row.get("graphs_per_s")])
        else None
    )
    notes: list[str] = []
    if going_on and rate:
        seconds = len(store) * config.epochs / rate
        notes = ["seconds are graphs by rate: the run was interrupted"]
    shutil.rmtree(run_dir / "checkpoint", ignore_errors=True)  # the model is whole
    last = {
        name: value for name, value in (rows[-1] if rows else {}).items() if name.startswith("loss")
    }
    return {
        **facts(spec, {"pretrain": about(store, spec.frame.source)}, seconds, rate),
        "scores": {"losses": last},
        "metric": None,
        "task": None,
        "timing_notes": notes,
    }


def finetune_cell(spec: CellSpec, workplace: Workplace) -> Found:
    """Fine-tune one encoder on one data set with one seed, going on from its last checkpoint."""
    config, seed = spec.finetuning, spec.seed
    if config is None or seed is None:
        raise ValueError("a cell of fine-tuning has settings and a seed")
    data = workplace.graphs.labelled(name_of_dataset(spec), spec.frame.schema)
    run_dir = workplace.folder.runs / spec.work_key
    encoder = encoder_of(spec, workplace, data)
    going_on = (run_dir / "checkpoint").is_dir()
    began = time.monotonic()
    predictor = finetune(
        encoder,
        data,
        config,
        seeds=(seed,),
        baselines=(),
        run_dir=run_dir,
        resume=True,
        progress=workplace.progress,
    )
    seconds = time.monotonic() - began
    notes: list[str] = []
    if going_on:
        seconds = sum(row["seconds"] for row in read_metrics(run_dir / "metrics.jsonl"))
        notes = ["seconds are those of the epochs: the run was interrupted"]
    by_rule = {row.rule: row for row in predictor.report.rows}
    scores = {rule: scores_of(by_rule[title], data.metric) for rule, title in RULES.items()}
    shutil.rmtree(run_dir, ignore_errors=True)
    rate = len(data.split.train) * config.epochs / seconds
    best = by_rule[RULES["best-valid"]].detail["best_epochs"]
    return {
        **_judged(spec, data, encoder, seconds, rate),
        "scores": scores,
        "best_epoch": best[0],
        "timing_notes": notes,
    }


def probe_cell(spec: CellSpec, workplace: Workplace) -> Found:
    """Fit linear models to the frozen embeddings of one encoder, or to fingerprints."""
    data = workplace.graphs.labelled(name_of_dataset(spec), spec.frame.schema)
    began = time.monotonic()
    if is_baseline(spec):
        seeds = () if spec.seed is None else (spec.seed,)
        rows, _ = ecfp_rows(data, [spec.method.name], seeds, FIXED_C, sorted({FIXED_C, *GRID}), -1)
        encoder = None
    else:
        encoder = encoder_of(spec, workplace, data)
        rows = list(
            probe(
                encoder,
                data,
                layer=spec.frame.probe_layer,
                baselines=(),
                progress=workplace.progress,
            ).rows
        )
    rules = [_FOREST_RULE] if spec.method.name == FOREST else ["fixed-C", "validated-C"]
    scores = {rule: scores_of(row, data.metric) for rule, row in zip(rules, rows, strict=True)}
    return {**_judged(spec, data, encoder, time.monotonic() - began, None), "scores": scores}


def name_of_dataset(spec: CellSpec) -> str:
    """Return the data set of a cell that has one."""
    if spec.dataset is None:
        raise ValueError(f"{spec.title} has no data set")
    return spec.dataset


def encoder_of(spec: CellSpec, workplace: Workplace, data: LabelledGraphs) -> Encoder:
    """Return the pre-trained encoder of a cell; an untrained one takes its statistics from the training fold, unlabelled."""
    config = settings_of(spec)
    if spec.model:
        encoder = Encoder.read(workplace.folder.model(spec) / "model.safetensors")
    else:
        graphs = data.store.subset(np.sort(data.split.train))
        schema = SCHEMAS[config.schema]
        encoder = random_encoder(
            config.encoder, schema, layer=config.embedding, seed=config.seed, graphs=graphs
        )
    return encoder.to(choose_device(config.device))


def scores_of(row: ScoreRow, metric: str) -> dict[str, Any]:
    """Return one row of a report with one seed as a cell has it."""
    halves = {fold: found[metric][0] for fold, found in row.halves.items()}
    return {
        "test": row.test[metric][0],
        "valid": row.valid[metric][0],
        **halves,
        "per_task": row.per_task,
    }


def _judged(
    spec: CellSpec,
    data: LabelledGraphs,
    encoder: Encoder | None,
    seconds: float,
    rate: float | None,
) -> Found:
    origin: dict[str, Any] = {}
    if encoder is not None and spec.model:
        info = encoder.info
        origin = {
            "pretrain": {
                "name": spec.frame.source,
                "graphs": info.get("graphs"),
                "digest": info.get("data_digest"),
            }
        }
    labelled = {
        "dataset": {
            "name": data.name,
            "digest": data.store.digest,
            "sizes": data.sizes,
            "split": data.split_name,
        }
    }
    return {
        **facts(spec, {**origin, **labelled}, seconds, rate),
        "metric": data.metric,
        "task": data.task,
    }
