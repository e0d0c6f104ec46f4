"""What is computed in a cell: its rows, one function a stage."""

import os
import platform
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
"""A number with the columns that say what it is."""
FIXED, VALIDATED = "fixed", "validated"
"""Selection rules: without a look at the validation set (last epoch, C = 0.1), and with one."""


class BusyError(Exception):
    """Another process is training the model that is needed."""


@dataclass(frozen=True, slots=True)
class Work:
    """What the cells of a suite share: the folder, and the graphs that are open."""

    folder: BenchmarkFolder
    progress: Progress
    _opened: Callable[[str, str, str], LabeledGraphs] = field(
        default_factory=lambda: lru_cache(8)(_open_labeled)  # a molecule takes about 200 bytes
    )

    def unlabeled(self, cell: Cell) -> GraphStore:
        """Return the graphs to pre-train on and to calibrate with, memory-mapped.

        The first process that needs them parses them; others wait for it.
        """
        setup = cell.setup
        if is_store(setup.source):
            return open_store(setup.source)
        what = [identity(setup.source), setup.limit]
        name = f"{setup.features}-{hash_json(what)[:12]}"
        path, schema = self.folder.stores / name, schema_named(setup.features)
        with self.folder.claimed(f"store-{name}", wait=True):
            with suppress(ModelFileError):  # damaged: parsed again
                if path.is_dir():
                    return open_store(path)
            first = f" (first {setup.limit:,})" if setup.limit else ""
            self.progress.say(f"reading {setup.source}{first} as {setup.features}")
            if cell.domain == "molecule":
                read(setup.source, schema, store_path=path, limit=setup.limit)
            else:  # the catalogue cuts ego-networks and keeps them itself
                store = read(setup.source, schema)
                count = len(store) if setup.limit is None else min(setup.limit, len(store))
                store.subset(np.arange(count)).save(path)
            return open_store(path)

    def labeled(self, cell: Cell) -> LabeledGraphs:
        """Return the labeled data set of a cell with its folds."""
        return self._opened(cell.dataset, cell.split, cell.setup.features)

    def model(self, cell: Cell) -> Path:
        """Return the model file of a cell, pre-trained now if need be, from its last checkpoint.

        Raises:
            BusyError: If another process is training it.
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
                remove_checkpoints(path.parent / CHECKPOINTS)  # it is complete
        return path

    def encoder(self, cell: Cell) -> tuple[Encoder, Row]:
        """Return the encoder of a cell, calibrated, and the columns that say so.

        Trained or not, its batch norms take the statistics of the same graphs: those it was, or
        would have been, pre-trained on.

        Raises:
            ConfigError: If it was to be trained with prototypes and has none.
        """
        config, store = cell.config, self.unlabeled(cell)
        match cell.method.kind:
            case "pretrained":
                encoder = Encoder.read(self.model(cell))
            case "shipped":
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
    """Return the folds of a table with a column ``split``, as rows.

    A tenth of its training rows, drawn at random, are the validation set.
    """
    spec = find_spec(dataset)
    of_row = pd.read_csv(DOMAINS[spec.domain].fetch(spec))["split"].to_numpy()
    train, test = (np.flatnonzero(of_row == fold) for fold in ("train", "test"))
    rest, valid, _ = random_split(len(train), (0.9, 0.1, 0.0), 0)
    return Split(train[rest], train[valid], test)


def store_name(cell: Cell, store: GraphStore) -> str:
    """Return how tables call the graphs that encoders are calibrated on."""
    name = identity(cell.setup.source)["name"]
    return f"{len(store):,} graphs of {name} ({store.digest[:8]})"


def pretrain_cell(cell: Cell, work: Work) -> Iterator[Row]:
    """Yield losses and speed of one pre-training."""
    model = work.model(cell)
    rows = read_metrics(model.parent / "metrics.jsonl")
    rates = [row["graphs_per_s"] for row in rows if row.get("graphs_per_s")]
    about = work.encoder(cell)[1]
    for name, value in (rows[-1] if rows else {}).items():
        if name.startswith("loss"):
            yield {**about, "rule": "losses", "metric": name, "value": value}
    if rates:
        yield {**about, "metric": "graphs_per_s", "value": median(rates)}


def finetune_cell(cell: Cell, work: Work) -> Iterator[Row]:
    """Fine-tune one encoder on one data set with one seed, resuming from its last checkpoint."""
    assert cell.seed is not None
    data, run_dir = work.labeled(cell), work.folder.runs / cell.hash
    encoder, about = work.encoder(cell)
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
        yield from _scores(by_rule[title], rule, data, about)


def probe_cell(cell: Cell, work: Work) -> Iterator[Row]:
    """Fit models to the frozen embeddings of one encoder, or to fingerprints."""
    data = work.labeled(cell)
    suite, method, domain = cell.suite, cell.method.name, DOMAINS[cell.domain]
    about, counts = Row(), None
    if method in BASELINES:
        known = domain.feature_set(next(iter(domain.feature_sets)), data.store)
    elif method in FEATURES:
        known = domain.feature_set(method, data.store)
        counts = domain.feature_counts(data.store) if known.binary else None
    else:
        encoder, about = work.encoder(cell)
        embeddings = encoder.with_readout("auto").embed_store(
            data.store, suite.layer, progress=work.progress
        )
        known = BaselineFeatures(method, embeddings)
    heads = suite.heads or [Model.FOREST if method == FOREST else Model.LINEAR]
    for row in feature_rows(data, known, heads, [cell.seed or 0], counts=counts):
        assert row.key is not None
        rule = FIXED if row.key.rule is Rule.FIXED else VALIDATED
        # other heads are fitted once, nothing of them is selected by the validation set
        rule = {Model.LINEAR: rule, Model.FOREST: ""}.get(row.key.model, row.key.model.value)
        yield from _scores(row, rule, data, about, suite.metrics)


def map_cell(cell: Cell, work: Work) -> Iterator[Row]:
    """Project graphs and prototypes of one model onto a plane, into a file of arrays.

    A model trained without prototypes gets those of a tree fitted to its embeddings afterwards; the
    file says which they are. The cluster of a graph is the nearest prototype of the top layer.
    """
    encoder, about = work.encoder(cell)
    store, config = work.unlabeled(cell), cell.config
    rows = sample_rows(len(store), cell.setup.mapped, config.seed)
    graphs, learned = store.subset(rows), Hierarchy.of(encoder)
    depth, centers = config.options["depth"], config.options["centers"]
    tree = learned or Hierarchy.fitted(encoder, graphs, depth=depth, centers=centers)
    embeddings = tree.embed(graphs, progress=work.progress)
    sizes, layers = tree.forest.sizes, tree.forest.layers
    prototypes = np.concatenate([layer.detach().cpu().numpy() for layer in layers])
    # on the unit sphere, where the objective compares them: only directions matter
    points = unit_rows(
        torch.tensor(np.concatenate([embeddings, prototypes.astype(np.float32)]))
    ).numpy()
    plane = project(points, config.seed).astype(np.float32)
    unit, roots = points[: len(rows)], points[len(rows) : len(rows) + sizes[0]]
    cluster = np.argmax(unit @ roots.T, axis=1)
    starts = np.cumsum([0, *sizes])
    above = [parent + starts[level] for level, parent in enumerate(tree.parents)]
    arrays: dict[str, Any] = {
        "coordinates": plane[: len(rows)],
        "cluster": cluster.astype(np.int64),
        "prototypes": plane[len(rows) :],
        "layer": np.repeat(np.arange(len(sizes)), sizes).astype(np.int64),
        "parent": np.concatenate([np.full(sizes[0], -1), *above]).astype(np.int64),
        "row": store.rows[rows].astype(np.int64),
        "learned": np.array(learned is not None),
    }
    path = work.folder.maps / f"{cell.hash}.npz"
    with replacing(path) as unfinished, unfinished.open("wb") as file:
        np.savez_compressed(file, **arrays)
    plain = torch.from_numpy(encoder.embed_store(graphs, "last"))
    quality = {"effective_rank": effective_rank(plain)}
    if 1 < len(np.unique(cluster)) < len(cluster):
        quality["silhouette"] = float(silhouette_score(unit, cluster, metric="cosine"))
    for name, value in quality.items():
        yield {**about, "rule": "quality", "metric": name, "value": value}


def provenance(cell: Cell) -> dict[str, Any]:
    """Return versions and machine of a cell."""
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
    about: Mapping[str, Any],
    metrics: Sequence[str] = (),
) -> Iterator[Row]:
    """Yield the scores of one model under one rule: of the folds, then of each task."""
    folds = {"test": row.test, "valid": row.valid, **row.halves}
    place = {**about, "rule": rule, "metric": data.metric}
    of_task = [metric for metric in metrics if metric in SCORES[data.task]] or [data.metric]
    for metric, (fold, scores) in product(of_task, folds.items()):
        yield {**place, "metric": metric, "fold": fold, "value": scores[metric][0]}
    for task, value in row.per_task.items():
        yield {**place, "fold": "test", "task": task, "value": value}


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
