"""Computation of the rows of a cell, with one function per stage."""

import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import silhouette_score

from graphlog.benchmark.cells import BASELINES, FEATURES, FOREST, Cell, identity
from graphlog.benchmark.folder import BenchmarkFolder
from graphlog.data.manifest import is_store
from graphlog.data.split import Split, random_split
from graphlog.data.store import GraphStore, open_store, sample_rows
from graphlog.datasets import find_spec
from graphlog.domains import DOMAINS, schema_named
from graphlog.domains.base import BaselineFeatures
from graphlog.downstream.finetune import RULES, finetune
from graphlog.downstream.metrics import SCORES
from graphlog.downstream.pretrained import Encoder, load
from graphlog.downstream.probe import feature_rows
from graphlog.downstream.report import Model, Rule, ScoreRow
from graphlog.downstream.tasks import LabeledGraphs, open_labeled
from graphlog.encoders.encoder import build_encoder, calibrate
from graphlog.errors import ConfigError, ModelFileError
from graphlog.files import hash_json, replacing
from graphlog.inputs import read
from graphlog.ops.contrastive import unit_rows
from graphlog.prototypes import PrototypeForest
from graphlog.report.hierarchy import Hierarchy, project
from graphlog.training.log import Progress, read_metrics
from graphlog.training.pretrain import run_pretraining
from graphlog.training.runfolder import CHECKPOINTS, remove_checkpoints, remove_run, versions
from graphlog.training.settings import choose_device, seed_for
from graphlog.training.watch import effective_rank

Row = dict[str, Any]
"""Row of a table: a number and the columns that describe it."""
FIXED, VALIDATED = "fixed", "validated"
"""Selection rules: without the validation set (last epoch, C = 0.1), and by the validation set."""


class BusyError(Exception):
    """Another process is training the model that is needed."""


@dataclass(frozen=True, slots=True)
class Work:
    """Resources that the cells of a suite share: the folder and the open data sets."""

    folder: BenchmarkFolder
    progress: Progress
    _opened: Callable[[str, str, str], LabeledGraphs] = field(
        default_factory=lambda: lru_cache(8)(_open_labeled)  # a molecule takes about 200 bytes
    )

    def unlabeled(self, cell: Cell) -> GraphStore:
        """Return the memory-mapped graphs for pre-training and calibration.

        The first process that needs them parses them, while others wait.
        """
        setup = cell.setup
        if is_store(setup.source):
            return open_store(setup.source)
        source_hash = hash_json([identity(setup.source), setup.limit])
        name = f"{setup.features}-{source_hash[:12]}"
        path, schema = self.folder.stores / name, schema_named(setup.features)
        with self.folder.claimed(f"store-{name}", wait=True):
            with suppress(ModelFileError):  # a damaged store is made again
                if path.is_dir():
                    return open_store(path)
            first = f" (first {setup.limit:,})" if setup.limit else ""
            self.progress.say(f"reading {setup.source}{first} as {setup.features}")
            if cell.domain == "molecule":
                read(setup.source, schema, store_path=path, limit=setup.limit)
            else:  # reading a data set of ego-networks makes a store of its own
                store = read(setup.source, schema)
                count = len(store) if setup.limit is None else min(setup.limit, len(store))
                store.subset(np.arange(count)).save(path)
            return open_store(path)

    def labeled(self, cell: Cell) -> LabeledGraphs:
        """Return the labeled data set of a cell with its split."""
        return self._opened(cell.dataset, cell.split, cell.setup.features)

    def model(self, cell: Cell) -> Path:
        """Return the model file of a cell; pre-train if needed, from the last checkpoint.

        Raises:
            BusyError: If another process is training the model.
        """
        path = self.folder.models / cell.model / "model.safetensors"
        with self.folder.claimed(f"model-{cell.model}") as claimed:
            if not claimed:
                raise BusyError
            if not path.is_file():
                store = self.unlabeled(cell)
                if cell.share < 1.0:
                    count = round(cell.share * len(store))
                    store = store.subset(sample_rows(len(store), count, cell.seed or 0))
                run_pretraining(
                    store, cell.config, path.parent, resume=True, progress=self.progress
                )
                remove_checkpoints(path.parent / CHECKPOINTS)
        return path

    def encoder(self, cell: Cell) -> tuple[Encoder, Row]:
        """Return the calibrated encoder of a cell and the columns that describe it.

        The batch norms of all encoders, untrained ones too, have the statistics of the graphs that
        encoders of the suite are pre-trained on.

        Raises:
            ConfigError: If an encoder that is trained with prototypes has none.
        """
        config, store = cell.config, self.unlabeled(cell)
        match cell.method.kind:
            case "pretrained":
                encoder = Encoder.read(self.model(cell))
            case "saved":
                encoder = load(cell.method.name)
            case _:
                seed = seed_for(config.seed, "encoder")
                network = build_encoder(config.encoder, schema_named(config.schema), seed)
                encoder = Encoder(network, config.embedding)
        encoder = encoder.to(choose_device(config.device))
        calibrate(encoder.network, store, config.seed)
        forest = PrototypeForest.from_state(encoder.extra) if encoder.extra else None
        if forest is None and config.options.get("global_weight") and cell.model:
            raise ConfigError(
                f"{cell.title}: training ended before prototypes were fitted; take more epochs "
                "than `objective.local_epochs`."
            )
        sizes = "" if forest is None else " ".join(map(str, forest.sizes))
        return encoder, {"prototypes": sizes, "calibrated_on": store_name(cell, store)}


def _open_labeled(dataset: str, split: str, features: str) -> LabeledGraphs:
    folds = given_folds(dataset) if split == "given" else split or None
    return open_labeled(dataset, schema_named(features), split=folds)


def given_folds(dataset: str) -> Split:
    """Return the split that the column ``split`` of a data set gives, as row numbers.

    A tenth of the training rows, drawn at random, becomes the validation set.
    """
    spec = find_spec(dataset)
    column = pd.read_csv(DOMAINS[spec.domain].fetch(spec))["split"].to_numpy()
    train, test = (np.flatnonzero(column == name) for name in ("train", "test"))
    rest, valid, _ = random_split(len(train), (0.9, 0.1, 0.0), 0)
    return Split(train[rest], train[valid], test)


def store_name(cell: Cell, store: GraphStore) -> str:
    """Return the name, in tables, of the graphs that encoders are calibrated on."""
    name = identity(cell.setup.source)["name"]
    return f"{len(store):,} graphs of {name} ({store.digest[:8]})"


def pretrain_cell(cell: Cell, work: Work) -> Iterator[Row]:
    """Pre-train a model, if it is missing, and yield its losses and speed."""
    rows = read_metrics(work.model(cell).parent / "metrics.jsonl")
    rates = [row["graphs_per_s"] for row in rows if row.get("graphs_per_s")]
    _, columns = work.encoder(cell)
    for name, value in (rows[-1] if rows else {}).items():
        if name.startswith("loss"):
            yield {**columns, "rule": "losses", "metric": name, "value": value}
    if rates:
        yield {**columns, "metric": "graphs_per_s", "value": median(rates)}


def finetune_cell(cell: Cell, work: Work) -> Iterator[Row]:
    """Fine-tune an encoder on a data set with one seed, from the last checkpoint if any."""
    assert cell.seed is not None
    data, run_dir = work.labeled(cell), work.folder.runs / cell.hash
    encoder, columns = work.encoder(cell)
    predictor = finetune(
        encoder,
        data,
        config=cell.finetuning,
        seeds=(cell.seed,),
        baselines=(),
        run_dir=run_dir,
        resume=True,
        progress=work.progress,
    )
    by_rule = {row.rule: row for row in predictor.report.rows}
    remove_run(run_dir, "finetune")
    for rule, title in ((FIXED, RULES["last"]), (VALIDATED, RULES["best-valid"])):
        yield from _scores(by_rule[title], rule, data, columns)


def probe_cell(cell: Cell, work: Work) -> Iterator[Row]:
    """Fit models to the frozen embeddings of an encoder or to features without an encoder."""
    data = work.labeled(cell)
    suite, method, domain = cell.suite, cell.method.name, DOMAINS[cell.domain]
    columns, counts = Row(), None
    if method in BASELINES:
        features = domain.feature_set(next(iter(domain.feature_sets)), data.store)
    elif method in FEATURES:
        features = domain.feature_set(method, data.store)
        counts = domain.feature_counts(data.store) if features.binary else None
    else:
        encoder, columns = work.encoder(cell)
        embeddings = encoder.with_readout("auto").embed_store(
            data.store, suite.layer, progress=work.progress
        )
        features = BaselineFeatures(method, embeddings)
    heads = suite.heads or [Model.FOREST if method == FOREST else Model.LINEAR]
    for row in feature_rows(data, features, heads, [cell.seed or 0], counts=counts):
        assert row.key is not None
        if row.key.model is Model.LINEAR:
            rule = FIXED if row.key.rule is Rule.FIXED else VALIDATED
        else:  # other models are fitted once: the validation set selects nothing
            rule = "" if row.key.model is Model.FOREST else row.key.model.value
        yield from _scores(row, rule, data, columns, suite.metrics)


def map_cell(cell: Cell, work: Work) -> Iterator[Row]:
    """Project graphs and prototypes of a model onto a plane and save the coordinates as arrays.

    For a model without prototypes, a tree of prototypes is fitted to its embeddings; the array
    ``learned`` tells the two cases apart. The cluster of a graph is the nearest prototype of the
    top layer.
    """
    encoder, columns = work.encoder(cell)
    store, config = work.unlabeled(cell), cell.config
    rows = sample_rows(len(store), cell.setup.mapped, config.seed)
    graphs, learned = store.subset(rows), Hierarchy.of(encoder)
    depth, centers = config.options["depth"], config.options["centers"]
    tree = learned or Hierarchy.fitted(encoder, graphs, depth=depth, centers=centers)
    embeddings = tree.embed(graphs, progress=work.progress)
    sizes, layers = tree.forest.sizes, tree.forest.layers
    prototypes = np.concatenate([layer.detach().cpu().numpy() for layer in layers])
    # normalized, since the objective compares directions only
    unit = unit_rows(
        torch.tensor(np.concatenate([embeddings, prototypes.astype(np.float32)]))
    ).numpy()
    plane = project(unit, config.seed).astype(np.float32)
    unit_graphs, roots = unit[: len(rows)], unit[len(rows) : len(rows) + sizes[0]]
    cluster = np.argmax(unit_graphs @ roots.T, axis=1)
    starts = np.cumsum([0, *sizes])
    parents = [parent + starts[level] for level, parent in enumerate(tree.parents)]
    arrays: dict[str, Any] = {
        "coordinates": plane[: len(rows)],
        "cluster": cluster.astype(np.int64),
        "prototypes": plane[len(rows) :],
        "layer": np.repeat(np.arange(len(sizes)), sizes).astype(np.int64),
        "parent": np.concatenate([np.full(sizes[0], -1), *parents]).astype(np.int64),
        "row": store.rows[rows].astype(np.int64),
        "learned": np.array(learned is not None),
    }
    path = work.folder.maps / f"{cell.hash}.npz"
    with replacing(path) as unfinished, unfinished.open("wb") as file:
        np.savez_compressed(file, **arrays)
    last_layer = torch.from_numpy(encoder.embed_store(graphs, "last"))
    quality = {"effective_rank": effective_rank(last_layer)}
    if 1 < len(np.unique(cluster)) < len(cluster):
        quality["silhouette"] = float(silhouette_score(unit_graphs, cluster, metric="cosine"))
    for name, value in quality.items():
        yield {**columns, "rule": "quality", "metric": name, "value": value}


def provenance(cell: Cell) -> dict[str, Any]:
    """Return the versions of packages and the machine that compute a cell."""
    device = choose_device(cell.request.device)
    packages = versions("")["packages"]
    names = ("graphlog-torch", "torch", "rdkit", "scikit-learn")
    return {
        "versions": {name: packages[name] for name in names if name in packages},
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        },
    }


def _scores(
    row: ScoreRow,
    rule: str,
    data: LabeledGraphs,
    columns: Mapping[str, Any],
    metrics: Sequence[str] = (),
) -> Iterator[Row]:
    """Yield the scores of a model under a rule: those of each set, then those of each task."""
    sets = {"test": row.test, "valid": row.valid}
    columns = {**columns, "rule": rule, "metric": data.metric}
    metrics = [metric for metric in metrics if metric in SCORES[data.task]] or [data.metric]
    for metric, (fold, scores) in product(metrics, sets.items()):
        yield {**columns, "metric": metric, "fold": fold, "value": scores[metric][0]}
    for task, value in row.per_task.items():
        yield {**columns, "fold": "test", "task": task, "value": value}


def _processor() -> str:
    """Return the name of the processor, which :mod:`platform` does not tell on Linux."""
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        if match := re.search(r"^model name\s*:(.*)", text, re.MULTILINE):
            return match[1].strip()
    return platform.processor() or platform.machine()
