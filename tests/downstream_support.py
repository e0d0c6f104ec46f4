"""A tiny encoder, labeled molecules, and what a wrong thing must be answered with."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphlog.data.graphs import FeatureSchema
from graphlog.data.split import Split
from graphlog.data.store import GraphBatch, GraphStore
from graphlog.domains import domain_of
from graphlog.domains.molecule import MOLECULE
from graphlog.downstream.finetune import FinetuneConfig, SeedJob, finetune
from graphlog.downstream.linear import GRID, fuse, linear_path, sparse_bits, standardize
from graphlog.downstream.predictor import Predictor
from graphlog.downstream.pretrained import Encoder
from graphlog.downstream.probe import probe
from graphlog.downstream.report import Report
from graphlog.downstream.tasks import LabeledGraphs
from graphlog.encoders.encoder import EncoderConfig, build_encoder
from graphlog.inputs import InputLike, read

TINY = EncoderConfig(dim=16, layers=2)
QUICK = FinetuneConfig(
    protocol="paper",
    epochs=2,
    batch_size=8,
    dropout=0.0,
    precision="fp32",
    device="cpu",
    checkpoint_every_s=0.0,
)

CHAINS = [f"{'C' * n}{end}" for n in range(1, 13) for end in ("O", "N", "Cl", "c1ccccc1")]
"""48 chains: solvent-like, amine-like, chloride-like, aromatic."""
IS_ALCOHOL = np.array([float(s.endswith("O")) for s in CHAINS], dtype=np.float32)
LENGTH = np.array([float(s.count("C")) for s in CHAINS], dtype=np.float32)


def tiny_encoder(layer: str = "last", seed: int = 0, schema: FeatureSchema = MOLECULE) -> Encoder:
    network = build_encoder(TINY, schema, seed)
    return Encoder(network.eval(), layer, {"objective": "none", "name": "tiny"})


@cache
def chain_store() -> GraphStore:
    return read(CHAINS, MOLECULE)


def labeled(
    labels: np.ndarray, task: str = "classification", targets: tuple[str, ...] = ("y",)
) -> LabeledGraphs:
    """The chains with a copy of the given labels; folds interleave."""
    labels = np.array(labels, dtype=np.float32).reshape(len(CHAINS), -1)
    rows = np.arange(len(CHAINS))
    split = Split(rows[rows % 5 < 3], rows[rows % 5 == 3], rows[rows % 5 == 4])
    if task == "classification":  # every end in every fold
        split = Split(rows[rows // 4 % 4 < 2], rows[rows // 4 % 4 == 2], rows[rows // 4 % 4 == 3])
    metric = "roc_auc" if task == "classification" else "rmse"
    return LabeledGraphs("chains", chain_store(), labels, targets, task, metric, split, "given")  # type: ignore[arg-type]


def lengths() -> LabeledGraphs:
    return labeled(LENGTH, "regression")


def tuned(
    data: InputLike | LabeledGraphs | None = None, encoder: Encoder | None = None, **options: Any
) -> Predictor:
    """Fine-tune a tiny encoder within a second; on the alcohols where nothing else is given."""
    quick: dict[str, Any] = {"config": QUICK, "seeds": (0, 1), "baselines": ()}
    data = labeled(IS_ALCOHOL) if data is None else data
    return finetune(encoder or tiny_encoder(), data, **quick | options)


def probed(
    data: InputLike | LabeledGraphs, encoder: Encoder | None = None, **options: Any
) -> Report:
    """Probe a tiny encoder; nothing beside it, where nothing else is asked for."""
    return probe(encoder or tiny_encoder("jk"), data, **{"baselines": ()} | options)


@cache
def classifier() -> Predictor:
    """Return a predictor of alcohols, made once."""
    return tuned()


def watch_steps(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[int], object] = int
) -> list[SeedJob]:
    """Collect the job of each step from now on; ``act`` is called with its number, from 1."""
    steps, loss = list[SeedJob](), SeedJob.loss

    def watched(self: SeedJob, batch: Any, step: int) -> Any:
        steps.append(self)
        act(len(steps))
        return loss(self, batch, step)

    monkeypatch.setattr(SeedJob, "loss", watched)
    return steps


def averaged_models(
    encoder: Encoder,
    data: LabeledGraphs,
    joined: tuple[str, ...],
    others: Sequence[LabeledGraphs] = (),
) -> np.ndarray:
    """Return the average of linear models at the C of each that is best on the validation sets.

    They are fitted to the training set, or to all labels where there are several splits.
    """
    sign = -1 if data.task == "regression" else 1
    own = encoder.embed_store(data.store, encoder.head_layer())
    known = [domain_of(data.store.schema).feature_set(name, data.store) for name in joined]
    labeled = np.flatnonzero(~np.isnan(data.labels).all(axis=1))
    best: list[np.ndarray] = []
    for values, binary in [(own, False), *((part.values, part.binary) for part in known)]:

        def path(rows: np.ndarray, values: Any = values, binary: bool = binary) -> dict:
            x = sparse_bits(values) if binary else standardize(values, rows)
            return linear_path(x, data.labels, rows, data.task, GRID)

        paths = [(one, path(one.split.train)) for one in (data, *others)]
        scores = [[one.score(p[c], "valid") for one, p in paths] for c in GRID]
        c = GRID[np.argmax(sign * np.mean(scores, axis=1))]
        best.append(path(labeled)[c] if others else paths[0][1][c])
    return fuse(best, data.task)


def without_each_node(batch: GraphBatch, mask: tuple[float, ...]) -> Iterator[GraphBatch]:
    """Yield a batch with each of its nodes masked, one after the other."""
    for node in range(batch.num_nodes):
        x = batch.x.clone()
        x[node] = torch.tensor(mask, dtype=x.dtype)
        yield batch.with_attributes(x=x)


def write_csv(path: Path, smiles: list[str], **columns: object) -> Path:
    lines = [",".join(["smiles", *columns])]
    lines += [",".join([s, *(str(v[k]) for v in columns.values())]) for k, s in enumerate(smiles)]  # type: ignore[index]
    path.write_text("\n".join(lines) + "\n")
    return path
