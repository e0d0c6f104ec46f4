"""The paper's protocol of fine-tuning on a GPU, the seeds of a data set side by side.

    python benchmarks/gpu/finetune.py MODEL OUT.csv --datasets tox21 toxcast --seeds 0 1 2 3 4

What it trains is what ``graphlog finetune DATASET -m MODEL --protocol paper`` trains, but for the
random numbers of dropout: heads, order of the graphs, loss, optimizer and rates are the library's.
A MODEL ``random`` is an untrained network for each seed, its statistics calibrated on
``--collection``. Rows are those of ``selection/finetuned.csv``.
"""

import argparse
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from padded import Replayed, collection, cut, encode, fuse, means
from torch import Tensor

from graphlog.data.store import GraphStore, open_store
from graphlog.downstream.finetune import FinetuneConfig, SeedJob, start_of
from graphlog.downstream.metrics import evaluate
from graphlog.downstream.pretrained import Encoder, load, random_encoder
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
        on_gpu, train, schema = self.device.type == "cuda", data.split.train, data.store.schema
        self.graphs = data.store.subset(train)
        self.c = collection(self.graphs, schema.mask_row("all"), 0, self.device)
        self.labels, self.weights = self.job.labels[train], self.job.label_weights[train]
        self.rate = torch.tensor(config.learning_rate, device=self.device)
        self.optimizer = torch.optim.AdamW(
            self.job.model.parameters(),
            lr=self.rate if on_gpu else config.learning_rate,
            weight_decay=0.0,
            fused=on_gpu,
            capturable=on_gpu,
        )
        index = torch.zeros(config.batch_size, dtype=torch.int64, device=self.device)
        self.take = Replayed(self.one, index) if on_gpu else self.one
        self.stream = torch.cuda.Stream() if on_gpu else None

    def one(self, index: Tensor) -> None:
        """Take one step on training graphs."""
        self.optimizer.zero_grad(set_to_none=True)
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
        self.optimizer.step()

    def batches(self, epoch: int) -> list[Tensor]:
        """Return the batches of an epoch, counted from 0, and set its rate."""
        place = np.full(len(self.data.store), -1)
        place[self.data.split.train] = np.arange(len(self.graphs))
        self.rate.fill_(self.config.learning_rate_at(epoch + 1))
        for group in self.optimizer.param_groups:
            if not isinstance(group["lr"], Tensor):
                group["lr"] = float(self.rate)
        return [torch.from_numpy(place[b]).to(self.device) for b in self.job.batches(epoch)]

    def predictions(self) -> np.ndarray:
        """Return the predictions for the folds that are held out, in the format of training."""
        return self.job._predict(self.job.setting.precision)


def run(seeds: list[Seed], pool: ProcessPoolExecutor) -> list[list[dict[str, Future[float]]]]:
    """Train all seeds side by side; return the scores of every epoch."""
    found: list[list[dict[str, Future[float]]]] = [[] for _ in seeds]
    size = seeds[0].config.batch_size
    for epoch in range(seeds[0].config.epochs):
        for steps in zip(*(seed.batches(epoch) for seed in seeds), strict=True):
            for seed, index in zip(seeds, steps, strict=True):
                with torch.cuda.stream(seed.stream):
                    (seed.take if len(index) == size else seed.one)(index)
        if seeds[0].stream is not None:
            torch.cuda.synchronize()
        for rows, seed in zip(found, seeds, strict=True):
            predictions, data = seed.predictions(), seed.data
            folds = {"valid": data.split.valid, "test": data.split.test}
            known = np.where(data.taught, data.labels, np.nan)
            rows.append(
                {f: pool.submit(score, known[own], predictions[own]) for f, own in folds.items()}
            )
    return found


def rows_of(
    name: str, model: str, seeds: list[int], found: list[list[dict[str, Future[float]]]]
) -> Iterator[dict[str, str | float]]:
    """Yield the scores at the last epoch, and at the best one by the validation fold."""
    for seed, epochs in zip(seeds, found, strict=True):
        scores = [{fold: 100 * f.result() for fold, f in row.items()} for row in epochs]
        best = max(scores, key=lambda row: -1.0 if np.isnan(row["valid"]) else row["valid"])
        for rule, row in (("last epoch", scores[-1]), ("best validation", best)):
            for fold, value in row.items():
                values = (name, model, "fine-tuned", rule, fold, seed, "roc_auc", value / 100)
                yield dict(zip(COLUMNS, values, strict=True))


COLUMNS = ("dataset", "model", "rows", "rule", "fold", "seed", "metric", "score")


def start(path: str, seed: int, graphs: GraphStore | None, device: str) -> Encoder:
    """Return the encoder that a seed begins with."""
    if path == "random":
        assert graphs is not None, "--collection is what its statistics are calibrated on"
        return random_encoder(schema="molecule", layer="last", seed=seed, graphs=graphs).to(device)
    return load(path, device=device)


def main() -> None:
    """Parse the options and train."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    parser.add_argument("--name", default="released, paper's protocol", help="in the rows")
    parser.add_argument("--datasets", nargs="+", required=True)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--collection")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--epochs", type=int, default=100)
    options = parser.parse_args()
    graphs = None if options.collection is None else open_store(options.collection)
    precision = "bf16" if options.device == "cuda" else "fp32"
    config = FinetuneConfig(
        protocol="paper", layer="last", epochs=options.epochs, device=options.device
    ).updated({"precision": precision})
    with ProcessPoolExecutor(8) as pool:
        for name in options.datasets:
            began = time.monotonic()
            encoders = [start(options.model, s, graphs, options.device) for s in options.seeds]
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
