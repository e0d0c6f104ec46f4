"""One seed of fine-tuning: epochs, scores after each, the best state so far, and going on where it stopped."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from graphlog.data.batch import GraphBatch
from graphlog.data.sampler import seeded_permutation
from graphlog.downstream.encoder import Encoder, check_layer, evaluating
from graphlog.downstream.finetune.config import FinetuneConfig
from graphlog.downstream.finetune.head import FineTuned, Head, outputs_of, twin
from graphlog.downstream.metrics import better, evaluate
from graphlog.downstream.tasks import LabelledGraphs
from graphlog.errors import ConfigError, NonFiniteLossError
from graphlog.files import writing
from graphlog.training.checkpoint import Checkpoint, load_checkpoint, part, save_checkpoint
from graphlog.training.optim import NamedAdam
from graphlog.training.precision import choose_device, choose_precision
from graphlog.training.randomness import global_seed, seed_for
from graphlog.training.trainer import StopRequest, TrainingInterrupted

_EVALUATION_BATCH = 512
_SAVES_SHARE = 20.0
_PATIENCE_S = 10.0
"""Seconds of an epoch that is ended, and kept, before a wish to stop is followed."""
"""Checkpoints may take a twentieth of the time."""
State = dict[str, Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """What all seeds of a run begin with."""

    encoder: Encoder
    """Copied, never changed."""
    data: LabelledGraphs
    """Graphs, labels, folds."""
    config: FinetuneConfig
    """How to train."""
    embeddings: Float[np.ndarray, "M W"] | None
    """With ``freeze``: of every graph under ``encoder``."""
    digest: str
    """Hash of everything the outcome depends on besides the seed."""


@dataclass(slots=True)
class SeedState:
    """Where one seed stands after an epoch."""

    epoch: int = 0
    """Epochs done."""
    best_epoch: int = 0
    """Epoch of the best validation score so far; 0 before the first."""
    best: State = field(default_factory=dict[str, Tensor])
    """Weights of that epoch."""
    history: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """One row an epoch: loss, learning rate, scores."""


class SeedRun:
    """Trains a copy of an encoder with a fresh head on one seed."""

    def __init__(self, start: Start, seed: int, folder: Path | None = None) -> None:
        """Stand at the start, or where the newest checkpoint in ``folder`` stands."""
        self.start, self.seed, self.folder = start, seed, folder
        self.data, self.config = start.data, start.config
        self.device = choose_device(self.config.device)
        self.precision: Literal["fp32", "bf16"] = choose_precision(
            self.config.precision, self.device, lambda _: None
        )
        self.state = SeedState()
        self.frozen = (
            None if start.embeddings is None else torch.from_numpy(start.embeddings).to(self.device)
        )
        self.folds = {
            "valid": self._evaluation_batches(self.data.split.valid),
            "test": self._evaluation_batches(self.data.split.test),
        }
        self.model = self._fresh().to(self.device)
        self._saved_at, self._save_took = time.monotonic(), 0.0
        self._epoch_took = math.inf
        trained = self.model.head if self.config.freeze else self.model
        self.adam = NamedAdam(trained.named_parameters(), self.config.learning_rate)
        self.train_labels = torch.from_numpy(self.data.labels[self.data.split.train]).to(
            self.device
        )
        self._restore()

    @property
    def is_done(self) -> bool:
        """Whether all epochs are done."""
        return self.state.epoch >= self.config.epochs

    @property
    def checkpoint_due(self) -> bool:
        """Whether the last checkpoint is old enough for the next to be worth its time."""
        wait = max(self.config.checkpoint_every_s, _SAVES_SHARE * self._save_took)
        return self.is_done or time.monotonic() - self._saved_at >= wait

    def train_epoch(self, stop: StopRequest) -> dict[str, Any]:
        """Train one epoch, score validation and test, keep the best state; return the epoch's row.

        Raises:
            NonFiniteLossError: If the loss becomes NaN or infinite.
            TrainingInterrupted: If the user asked to stop: once the state after the last epoch is saved, or, where the
                current one would take long to end, at once.
        """
        if stop.asked:
            self.save()
            raise TrainingInterrupted(
                f"stopped after epoch {self.state.epoch} of seed {self.seed}; continue with --resume."
            )
        epoch = self.state.epoch + 1
        rate = self.config.learning_rate_at(epoch)
        for group in self.adam.adam.param_groups:
            group["lr"] = rate
        started = time.monotonic()
        loss = self._train(epoch, stop)
        scores = {fold: self._scores(fold) for fold in ("valid", "test")}
        self._epoch_took = time.monotonic() - started
        row = {
            "seed": self.seed,
            "epoch": epoch,
            "loss": loss,
            "learning_rate": rate,
            **scores,
            "seconds": self._epoch_took,
        }
        history = self.state.history
        metric = self.data.metric
        best = (
            history[self.state.best_epoch - 1]["valid"][metric]
            if self.state.best_epoch
            else float("nan")
        )
        history.append(row)
        self.state.epoch = epoch
        if better(metric, scores["valid"].get(metric, float("nan")), best):
            self.state.best_epoch, self.state.best = epoch, self._weights()
        return row

    def final_states(self) -> dict[str, State]:
        """Return the weights of the last epoch and of the best one (the last where no validation score is defined)."""
        last = self._weights()
        return {"last": last, "best-valid": self.state.best or last}

    def predictions(self, weights: State, fold: str) -> Float[np.ndarray, "M T"]:
        """Return the predictions of a fold under ``weights``, in full precision."""
        current = self._weights()
        self._load(weights)
        try:
            return self._predict(fold, "fp32")
        finally:
            self._load(current)

    def save(self) -> None:
        """Write a checkpoint; that of a finished seed needs no moments."""
        if self.folder is None:
            return
        started = time.monotonic()
        tensors = {f"model.{k}": v for k, v in self._weights().items()} | {
            f"best.{k}": v for k, v in self.state.best.items()
        }
        if not self.is_done:
            tensors |= {f"optim.{k}": v for k, v in self.adam.state().items()}
        fields = {
            "digest": self.start.digest,
            "seed": self.seed,
            "best_epoch": self.state.best_epoch,
            "history": self.state.history,
        }
        with writing(self.folder, "free space, then continue with --resume"):
            self.folder.parent.mkdir(exist_ok=True)
            save_checkpoint(self.folder, Checkpoint(self.state.epoch, tensors, fields))
        self._saved_at = time.monotonic()
        self._save_took = self._saved_at - started

    def _restore(self) -> None:
        found = (
            None
            if self.folder is None or not self.folder.is_dir()
            else load_checkpoint(self.folder, lambda _: None)
        )
        if found is None:
            return
        if found.fields["digest"] != self.start.digest:
            where = f"{self.folder} holds a run with other settings, model or data"
            raise ConfigError(
                f"{where}; give the same ones to resume it, or replace it with --overwrite."
            )
        self._load(part(found.tensors, "model."))
        self.adam.load_state(part(found.tensors, "optim."))
        self.state = SeedState(
            found.step,
            found.fields["best_epoch"],
            part(found.tensors, "best."),
            list(found.fields["history"]),
        )

    def _fresh(self) -> FineTuned:
        data, encoder = self.data, self.start.encoder
        layer = check_layer(self.config.layer or encoder.layer)
        with global_seed(seed_for(self.seed, "finetune"), "head"):
            head = Head(encoder.width(layer), len(data.targets), data.task)
        head.fit_targets(data.labels[data.split.train])
        if self.start.embeddings is not None:
            head.fit_inputs(self.start.embeddings[data.split.train])
        return FineTuned(twin(encoder.network, self.config.dropout), head, layer)

    def _evaluation_batches(self, indices: np.ndarray) -> list[GraphBatch]:
        if self.frozen is not None:
            return []
        parts = [
            indices[start : start + _EVALUATION_BATCH]
            for start in range(0, len(indices), _EVALUATION_BATCH)
        ]
        return [self.data.store.take(p).to(self.device) for p in parts]

    def _train(self, epoch: int, stop: StopRequest) -> float:
        self.model.train()
        train = self.data.split.train
        order = seeded_permutation(len(train), seed_for(self.seed, "order") % 2**32, epoch)
        losses: list[Tensor] = []
        with global_seed(seed_for(self.seed, "finetune"), "dropout", epoch, device=self.device):
            for start in range(0, len(order), self.config.batch_size):
                if stop.asked and self._epoch_took > _PATIENCE_S:
                    raise TrainingInterrupted(
                        "stopped; everything up to the last checkpoint is kept, continue with --resume."
                    )
                losses.append(self._step(train, order[start : start + self.config.batch_size]))
        loss = float(torch.stack(losses).mean())
        if not np.isfinite(loss):
            raise NonFiniteLossError(
                f"the loss became {loss} in epoch {epoch} of seed {self.seed}; lower the learning rate."
            )
        return loss

    def _step(self, train: np.ndarray, picked: np.ndarray) -> Tensor:
        labels = self.train_labels[picked]
        if self.frozen is not None:
            outputs = self.model.head(self.frozen[train[picked]])
        else:
            batch = self.data.store.take(train[picked]).to(self.device)
            outputs = outputs_of(self.model, batch, self.precision, self.device)
        loss = self.model.head.loss(outputs, labels)
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        return loss.detach()

    def _scores(self, fold: str) -> dict[str, float]:
        rows = getattr(self.data.split, fold)
        if not len(rows):
            return {}
        return evaluate(
            self.data.labels[rows], self._predict(fold, self.precision), self.data.task
        ).scores

    def _predict(self, fold: str, precision: Literal["fp32", "bf16"]) -> Float[np.ndarray, "M T"]:
        head = self.model.head
        with evaluating(self.model), torch.inference_mode():
            if self.frozen is not None:
                return (
                    head.predictions(head(self.frozen[getattr(self.data.split, fold)]))
                    .cpu()
                    .numpy()
                )
            parts = [
                outputs_of(self.model, batch, precision, self.device) for batch in self.folds[fold]
            ]
            return head.predictions(torch.cat(parts)).cpu().numpy()

    def _weights(self) -> State:
        return {name: t.detach().clone() for name, t in self.model.state_dict().items()}

    def _load(self, weights: Mapping[str, Tensor]) -> None:
        self.model.load_state_dict(dict(weights))
