"""The paper's protocol of fine-tuning on a GPU, the seeds of a data set side by side.

    python benchmarks/gpu/finetune.py OUT.csv --models MODEL --datasets tox21 toxcast

What it trains is what ``graphlog finetune DATASET -m MODEL --protocol paper`` trains, but for the
random numbers of dropout: heads, order of the graphs, loss, optimizer and rates are the library's.
There is one MODEL, or one for each of the ``--seeds``.
Rows are those of ``selection/finetuned.csv``, added after each data set.
"""

import argparse
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from padded import Replayed, collection, cut, encode, fuse, means, optimizer_of
from torch import Tensor

from graphlog.downstream.finetune import FinetuneConfig, SeedJob, start_of
from graphlog.downstream.metrics import evaluate
from graphlog.downstream.pretrained import Encoder, load
from graphlog.downstream.tasks import LabeledGraphs, open_labeled
from graphlog.training.log import Progress
from graphlog.training.settings import seed_for


def score(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Return the mean ROC-AUC over targets."""
    return evaluate(labels, predictions, "classification").scores["roc_auc"]


class Seed:
    """One seed of one data set."""

    def __init__(
        self, encoder: Encoder, data: LabeledGraphs, config: FinetuneConfig, seed: int
    ) -> None:
        """Build model and optimizer."""
        self.job = SeedJob(start_of(encoder, data, config), seed, Progress())
        self.data, self.config, self.device = data, config, self.job.setting.device
        bf16 = self.job.setting.precision == "bf16"
        self.dtype = torch.bfloat16 if bf16 else torch.float32
        train, schema = data.split.train, data.store.schema
        self.graphs = data.store.subset(train)
        self.c = collection(self.graphs, schema.mask_row("all"), 0, self.device)
        self.labels, self.weights = self.job.labels[train], self.job.label_weights[train]
        # a recorded step reads its rate there
        self.rate = torch.tensor(config.learning_rate, device=self.device)
        self.optimizer = optimizer_of(self.job)
        index = torch.zeros(config.batch_size, dtype=torch.int64, device=self.device)
        self.take = Replayed(self.one, index) if self.device.type == "cuda" else self.one

    def one(self, index: Tensor) -> None:
        """Take one step on training graphs."""
        self.optimizer.zero_grad()
        model, batch = self.job.model, cut(self.c, index, self.dtype)
        h = encode(
            model.network,
            self.c,
            batch,
            batch.codes[None],
            self.dtype,
            learns=True,
            dropout=self.config.dropout,
        )
        outputs = model.head(means(h, batch)[0])
        model.head.loss(outputs, self.labels[index], self.weights[index]).backward()
        self.optimizer.step(self.rate)

    def batches(self, epoch: int) -> list[Tensor]:
        """Return the batches of an epoch, counted from 0, and set its rate."""
        place = np.full(len(self.data.store), -1)
        place[self.data.split.train] = np.arange(len(self.graphs))
        self.rate.fill_(self.config.learning_rate_at(epoch + 1))
        return [torch.from_numpy(place[b]).to(self.device) for b in self.job.batches(epoch)]

    def scored(self, pool: ProcessPoolExecutor) -> dict[str, Future[float]]:
        """Return the scores to be reported, in float32, and what the best epoch is chosen by."""
        data, training = self.data, self.job.setting.precision
        known = np.where(data.taught, data.labels, np.nan)
        folds = {"valid": ("fp32", data.split.valid), "test": ("fp32", data.split.test)}
        folds["chosen by"] = (training, data.split.valid)
        found = {precision: self.job._predict(precision) for precision in {"fp32", training}}
        return {
            fold: pool.submit(score, known[rows], found[precision][rows])
            for fold, (precision, rows) in folds.items()
        }


def run(seeds: list[Seed], pool: ProcessPoolExecutor) -> list[list[dict[str, Future[float]]]]:
    """Train all seeds in turns; return the scores of every epoch."""
    found: list[list[dict[str, Future[float]]]] = [[] for _ in seeds]
    size = seeds[0].config.batch_size
    for epoch in range(seeds[0].config.epochs):
        for rows, seed in zip(found, seeds, strict=True):
            for index in seed.batches(epoch):
                (seed.take if len(index) == size else seed.one)(index)
            rows.append(seed.scored(pool))
    return found


def rows_of(
    name: str, model: str, seeds: list[int], found: list[list[dict[str, Future[float]]]]
) -> Iterator[dict[str, str | float]]:
    """Yield the scores at the last epoch, and at the best one by the validation fold."""
    for seed, epochs in zip(seeds, found, strict=True):
        scores = [{fold: f.result() for fold, f in row.items()} for row in epochs]
        best = max(scores, key=lambda row: np.nan_to_num(row["chosen by"]))
        for rule, row in (("last epoch", scores[-1]), ("best validation", best)):
            for fold in ("valid", "test"):
                values = (name, model, "fine-tuned", rule, fold, seed, "roc_auc", row[fold])
                yield dict(zip(COLUMNS, values, strict=True))


COLUMNS = ("dataset", "model", "rows", "rule", "fold", "seed", "metric", "score")


def main() -> None:
    """Parse the options and train."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--name", default="released, paper's protocol", help="in the rows")
    parser.add_argument("--datasets", nargs="+", required=True)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--epochs", type=int, default=100)
    options = parser.parse_args()
    models = options.models * (len(options.seeds) if len(options.models) == 1 else 1)
    if len(models) != len(options.seeds):
        parser.error("give one model, or one for each seed")
    precision = "bf16" if options.device == "cuda" else "fp32"
    config = FinetuneConfig(
        protocol="paper", layer="last", epochs=options.epochs, device=options.device
    ).updated({"precision": precision})
    with ProcessPoolExecutor(8) as pool:
        pool.submit(int).result()  # its processes start before this one has a GPU
        for name in options.datasets:
            began = time.monotonic()
            encoders = [load(path, device=options.device) for path in models]
            data = open_labeled(name, encoders[0].schema)
            torch.manual_seed(seed_for(options.seeds[0], name))
            seeds = [Seed(e, data, config, s) for e, s in zip(encoders, options.seeds, strict=True)]
            if options.device == "cuda":
                fuse(config.batch_size * seeds[0].c.codes.shape[1])
            rows = [*rows_of(name, options.name, options.seeds, run(seeds, pool))]
            there = options.out.exists()
            pd.DataFrame(rows).to_csv(options.out, mode="a", header=not there, index=False)
            print(name, f"{time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
