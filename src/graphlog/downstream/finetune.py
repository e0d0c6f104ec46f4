"""Fine-tuning: train an encoder and a head on labels, with several seeds, and report all scores."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from graphlog.config import FrozenConfig, read_toml
from graphlog.data.store import GraphBatch, epoch_batches
from graphlog.data.tables import ColumnNames
from graphlog.downstream.label_checks import repeat_notes
from graphlog.downstream.linear import fuse
from graphlog.downstream.metrics import better, format_score
from graphlog.downstream.predictor import FineTuned, Head, Predictor
from graphlog.downstream.pretrained import (
    RANDOM,
    Encoder,
    ReadoutChoice,
    check_layer,
    evaluating,
    statistics_note,
    untrained_like,
)
from graphlog.downstream.probe import (
    KERNEL_RULE,
    FittedKernel,
    check_baselines,
    check_features,
    describe_run,
    ecfp_rows,
    keep_run,
    kernel_predictor,
    opened,
    origin,
    run_tables,
)
from graphlog.downstream.report import ScoreRow, make_report, score_row
from graphlog.downstream.tasks import (
    LABELING,
    LabeledGraphs,
    SplitChoice,
    check_learnable,
    labeled,
    mean_held_out,
    with_validation_set,
    without_validation_set,
)
from graphlog.downstream.uncertainty import Calibration, calibration_notes
from graphlog.encoders.encoder import EmbeddingLayer, with_settings
from graphlog.encoders.modelfile import digest_of, tensors_below
from graphlog.encoders.novelty import fit_novelty
from graphlog.errors import ConfigError, DataError, check_list, check_seeds, setting, unknown_name
from graphlog.files import writing
from graphlog.inputs import InputLike
from graphlog.objectives.base import LossTerms, Phase
from graphlog.training.log import (
    Callback,
    Callbacks,
    MetricsFile,
    Progress,
    as_progress,
    check_callbacks,
)
from graphlog.training.runfolder import RunFolder, check_usable, load_checkpoint
from graphlog.training.settings import (
    NumberFormat,
    Precision,
    Setting,
    choose_device,
    choose_precision,
    first_difference,
    global_seed,
    seed_for,
)
from graphlog.training.trainer import (
    Cursor,
    Job,
    NamedAdam,
    Trainer,
    resume_advice,
    scheduled_rate,
    stop_on_signal,
)

State = dict[str, Tensor]

FROM_SCRATCH: Mapping[str, Any] = {"encoder_rate": None, "freeze_batch_norm": False}
"""Settings that replace the defaults if the encoder is untrained."""
PAPER: Mapping[str, Any] = {
    "epochs": 100,
    "schedule": "step",
    "dropout": 0.5,
    "hidden": 0,
    "standardize_embedding": False,
    **FROM_SCRATCH,
}
"""Settings of the paper: one learning rate for encoder and head, multiplied by 0.3 after every 30
of 100 epochs; a linear head on the unscaled embedding; statistics of batch normalization that are
updated in training."""
PUBLISHED = {("last", "molecule"), ("last", "protein")}
"""Layers and schemas of the paper's models."""
_DECAY_INTERVAL = 0.3
"""Default share of the epochs after which the learning rate decays."""
_MIN_STD_SHARE = 0.1
"""Argument of :meth:`Head.fit_inputs` if the encoder is not frozen."""
_EVALUATION_BATCH = 512
_NOT_IN_DIGEST = {"select", "device", "checkpoint_every_s", "readout"}
"""Settings that affect neither the weights nor the kernel model; the readout does, but is hashed as
resolved."""
_MAY_DIFFER = {
    *("input.name", "input.sha256", "finetune.seeds"),
    *(f"finetune.{name}" for name in _NOT_IN_DIGEST),
}
"""Entries of ``config.toml`` that are not named as the difference between two runs."""


class FinetuneConfig(FrozenConfig):
    """Settings of fine-tuning."""

    protocol: Literal["default", "paper"] = "default"
    """``default`` trains a head with a hidden layer on the standardized embedding of all layers,
    and the encoder with a lower learning rate; ``paper`` follows the paper. It sets the defaults
    of other settings."""
    epochs: int = Field(default=30, ge=1)
    """Passes over the training set."""
    batch_size: int = Field(default=32, ge=1)
    """Graphs per step."""
    learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    """Initial learning rate of Adam for the head."""
    encoder_rate: float | None = Field(default=3e-4, gt=0, allow_inf_nan=False)
    """Initial learning rate of Adam for the encoder; None takes that of the head."""
    schedule: Literal["cosine", "step", "released", "constant"] = "cosine"
    """``cosine`` falls to 0 over the run; ``step`` decays after every ``decay_every`` epochs;
    ``released`` one epoch earlier, as in the authors' script; ``constant`` never."""
    decay: float = Field(default=0.3, gt=0, le=1)
    """Factor by which the learning rate is multiplied at each decay."""
    decay_every: int | None = Field(default=None, ge=1)
    """Epochs between two decays; None takes 30 % of all epochs, as in the paper (30 of 100)."""
    weight_decay: float = Field(default=0.0, ge=0, lt=1)
    """Weight decay of AdamW; 0 is plain Adam."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Share of each layer's outputs (including the last layer's) dropped in training; also of the
    inputs and hidden units of a head with a hidden layer."""
    hidden: int = Field(default=512, ge=0)
    """Units of the head's hidden layer; 0 is a linear head."""
    standardize_embedding: bool = True
    """Standardize the input of the head, by the embeddings of the training set before training."""
    freeze_batch_norm: bool = True
    """Do not update the encoder's statistics of batch normalization."""
    layer: EmbeddingLayer | None = None
    """Embedding that the head uses; None takes that of ``probe`` (the encoder's own, but
    ``jk+sum`` instead of ``jk`` for molecules), and in the paper's protocol the encoder's own."""
    readout: ReadoutChoice = "auto"
    """``auto``: for proteins, the embedding of the center next to the mean of the ego-network;
    ``encoder``: the readout of pre-training."""
    freeze: bool = False
    """Train the head alone, on embeddings computed once and standardized over the training set."""
    select: Literal["last", "best-valid"] = "last"
    """Epoch whose weights predict: the last one, or the one with the best validation score. The
    scores of both are reported."""
    patience: int | None = Field(default=None, ge=1)
    """Stop a seed after this number of epochs without a better validation score (early stopping),
    and select the best epoch, unless ``select`` is set. None trains all epochs."""
    kernel: bool = False
    """Average the prediction with that of a kernel model of the encoder before fine-tuning, which
    also uses ECFP4 counts (molecules)."""
    with_features: tuple[str, ...] = ()
    """Additional features of the kernel model, as for ``probe``: ``descriptors``, for example."""
    resample_validation: bool = False
    """Each seed draws its own validation set, at random, a tenth of the training and validation
    set; the kernel model is fitted to both sets."""
    class_weight: Literal["balanced"] | None = None
    """``balanced`` weights each class of a target by the inverse of its share in training."""
    precision: Precision = "fp32"
    """Format of the encoder's matrix products; ``auto`` is bf16 where the hardware has it."""
    device: str = "auto"
    """``auto``, ``cpu`` or ``cuda``."""
    checkpoint_every_s: float = Field(default=30.0, ge=0)
    """Minimum time between two checkpoints within an epoch, in seconds."""

    def updated(self, values: Mapping[str, Any], where: str = "") -> Self:
        """Return a copy with ``values`` replaced.

        Settings that have the default of their protocol and patience get the default of the new
        protocol and patience.
        """
        deciding = {"protocol": self.protocol, "patience": self.patience}
        defaults = type(self).parse(deciding)
        changed = {k: v for k, v in self.model_dump().items() if v != getattr(defaults, k)}
        return self.parse({**deciding, **changed, **values}, where)

    def for_encoder(self, encoder: Encoder) -> Self:
        """Return the settings; for an untrained encoder, defaults become :data:`FROM_SCRATCH`."""
        if encoder.info.get("name") != RANDOM:
            return self
        fields = type(self).model_fields
        replaced = {k: v for k, v in FROM_SCRATCH.items() if getattr(self, k) == fields[k].default}
        return self.updated(replaced)

    def written(self) -> dict[str, Any]:
        """Return all settings for a TOML file, which cannot contain None."""
        settings = self.model_dump(mode="json", exclude_none=True)
        # if it were left out, a reader would take the default, which is another rate
        return {**settings, "encoder_rate": settings.get("encoder_rate", self.learning_rate)}

    @classmethod
    def of_file(cls, written: Mapping[str, Any]) -> Self:
        """Return the settings from :meth:`written`; two equal rates mean no rate of the encoder."""
        config = cls.parse(written)
        is_equal = config.encoder_rate == config.learning_rate
        return config.updated({"encoder_rate": None}) if is_equal else config

    @model_validator(mode="before")
    @classmethod
    def _apply_protocol(cls, values: dict[str, Any]) -> dict[str, Any]:
        if values.get("patience") is not None:
            values = {"select": "best-valid", **values}
        return {**PAPER, **values} if values.get("protocol") == "paper" else values

    def learning_rate_at(self, epoch: int) -> float:
        """Return the learning rate of the head during ``epoch``, counted from 1.

        Example:
            >>> config = FinetuneConfig(protocol="paper", schedule="released")
            >>> config.learning_rate_at(29), round(config.learning_rate_at(30), 6)
            (0.001, 0.0003)
        """
        if self.schedule in ("constant", "cosine"):
            return scheduled_rate(self.learning_rate, self.schedule, epoch - 1, self.epochs)
        passed = epoch if self.schedule == "released" else epoch - 1
        every = self.decay_every or max(1, round(_DECAY_INTERVAL * self.epochs))
        return self.learning_rate * self.decay ** (passed // every)

    def layer_of(self, encoder: Encoder) -> EmbeddingLayer:
        """Return the embedding that the head uses."""
        if self.protocol == "paper":
            return check_layer(self.layer or encoder.layer)
        return encoder.head_layer(self.layer)

    def resolve_precision(self, say: Callable[[str], None]) -> "FinetuneConfig":
        """Return the settings with ``auto`` replaced by the number format of this machine."""
        precision = choose_precision(self.precision, choose_device(self.device), say)
        return self.updated({"precision": precision})


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """Common start of all seeds of a run."""

    encoder: Encoder
    """Encoder that is copied for each seed."""
    data: LabeledGraphs
    config: FinetuneConfig
    embeddings: Float[np.ndarray, "M W"] | None
    """Embeddings of all graphs if the encoder is frozen or the head standardizes its input."""
    digest: str
    """Hash of everything that affects the weights, except the seed."""


class SeedJob(Job):
    """Training of a copy of an encoder and a new head with one seed."""

    def __init__(self, start: Start, seed: int, progress: Progress) -> None:
        self.start, self.seed, self.progress = start, seed, progress
        self.data, self.config = start.data, start.config
        device = choose_device(self.config.device)
        assert self.config.precision != "auto", "`resolve_precision` was called"
        self.setting = Setting(seed_for(seed, "finetune"), device, self.config.precision)
        self.phases = (Phase("train", self.config.epochs),)
        self.frozen: Tensor | None = None
        if self.config.freeze and start.embeddings is not None:
            self.frozen = torch.from_numpy(start.embeddings).to(device)
        self.held_out: list[tuple[np.ndarray, GraphBatch | None]] = []
        size = _EVALUATION_BATCH if self.frozen is None else len(self.data.labels)
        for rows in (self.data.split.valid, self.data.split.test):
            for batch in (rows[k : k + size] for k in range(0, len(rows), size)):
                graphs = self.data.store.take(batch).to(device) if self.frozen is None else None
                self.held_out.append((batch, graphs))
        self.model = self._build().to(device)
        # the scikit-learn regressor can be fitted to labels that are all equal
        labels = self.data.reliable_labels if self.data.taught.any() else self.data.labels
        self.labels = torch.from_numpy(labels).to(device)
        weights, rows = label_weights(self.data, self.config), self.data.split.train
        weights /= weights[rows][~np.isnan(labels[rows])].mean()
        self.label_weights = torch.from_numpy(weights.astype(np.float32)).to(device)
        self.best_epoch = 0
        self.best: State = {}
        self.history: list[dict[str, Any]] = []
        self._epoch_started = time.monotonic()

    def optimizer(self, cursor: Cursor) -> NamedAdam:
        """Return an optimizer of the encoder and the head, or of the head only if frozen."""
        c = self.config
        model = self.model.head if c.freeze else self.model
        factors = {} if c.encoder_rate is None else {"network.": c.encoder_rate / c.learning_rate}
        return NamedAdam(model.named_parameters(), factors, c.weight_decay)

    def learning_rate(self, cursor: Cursor) -> float:
        """Return the learning rate of the head."""
        return self.config.learning_rate_at(cursor.epoch + 1)

    def batches(self, epoch: int) -> list[np.ndarray]:
        """Return mini-batches of the training set, in an order that depends on seed and epoch."""
        train, size = self.data.split.train, self.config.batch_size
        seed = seed_for(self.seed, "order") % 2**32
        self._epoch_started = time.monotonic()
        self.model.train()
        for module in self.model.network.modules() if self.config.freeze_batch_norm else ():
            if isinstance(module, nn.BatchNorm1d):
                module.eval()
        return [train[rows] for rows in epoch_batches(len(train), size, seed, epoch + 1)]

    def load(self, indices: np.ndarray) -> tuple[GraphBatch | None, np.ndarray]:
        """Return the graphs (None if their embeddings are frozen) and their indices."""
        if self.frozen is not None:
            return None, indices
        return self.setting.staged(self.data.store.take(indices)), indices

    def loss(self, batch: tuple[GraphBatch | None, np.ndarray], step: int) -> LossTerms:
        """Return the loss of a mini-batch."""
        graphs, indices = batch
        seed, device = self.setting.seed, self.setting.device
        with global_seed(seed, "dropout", step, device=device):
            outputs = self._outputs(graphs, indices, self.setting.precision)
        labels, weights = self.labels[indices], self.label_weights[indices]
        return LossTerms(self.model.head.loss(outputs, labels, weights), {})

    def ends_early(self) -> bool:
        """Return whether the validation score has not improved for ``patience`` epochs."""
        patience = self.config.patience
        return patience is not None and len(self.history) - self.best_epoch >= patience

    def row(self, means: dict[str, float], cursor: Cursor) -> dict[str, Any]:
        """Score the validation and test set, keep the best weights, and return a row of the log."""
        epoch, criterion = cursor.epoch + 1, self.data.criterion
        row: dict[str, Any] = {
            "step": epoch,
            "seed": self.seed,
            "epoch": epoch,
            "loss": means["loss"],
            "learning_rate": self.config.learning_rate_at(epoch),
            "seconds": time.monotonic() - self._epoch_started,
        }
        predictions = self._predict(self.setting.precision)
        for part in ("valid", "test"):
            scores = self.data.evaluate(predictions, getattr(self.data.split, part)).scores
            row |= {f"{part}/{name}": v for name, v in scores.items() if not math.isnan(v)}
        if criterion != self.data.metric:
            score = self.data.score(predictions, "valid")
            row |= {} if math.isnan(score) else {f"valid/{criterion}": score}
        best = self.valid_score(self.best_epoch) if self.best_epoch else math.nan
        self.history.append(row)
        if better(criterion, self.valid_score(epoch), best):
            self.best_epoch, self.best = epoch, self.weights()
        self.progress.report({"loss": means["loss"], f"valid {criterion}": self.valid_score(epoch)})
        return row

    def valid_score(self, epoch: int) -> float:
        """Return the validation score of an epoch, counted from 1; NaN if it is undefined."""
        return self.history[epoch - 1].get(f"valid/{self.data.criterion}", math.nan)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the current weights, the best weights so far, and the scores of all epochs."""
        tensors = {f"model.{k}": v for k, v in self.weights().items()}
        tensors |= {f"best.{k}": v for k, v in self.best.items()}
        fields = {
            "digest": self.start.digest,
            "seed": self.seed,
            "best_epoch": self.best_epoch,
            "history": self.history,
        }
        return tensors, fields

    def load_state(self, tensors: Mapping[str, Tensor], fields: Mapping[str, Any]) -> None:
        """Restore a :meth:`state` of the same settings, model, data and seed."""
        if (fields["digest"], fields["seed"]) != (self.start.digest, self.seed):
            raise ConfigError(
                f"a checkpoint of seed {self.seed} was written for another seed, model or data "
                f"set; start again with {setting('overwrite', True)}.",
                option="overwrite",
            )
        self.model.load_state_dict(tensors_below(tensors, "model."))
        self.best, self.best_epoch = tensors_below(tensors, "best."), fields["best_epoch"]
        self.history = list(fields["history"])

    def describe_batch(self, indices: np.ndarray) -> str:
        """Return the seed and the remedy, for the error that a loss is not finite."""
        return f"seed {self.seed}: lower the learning rate"

    def how_to_resume(self, cursor: Cursor) -> str:
        """Return the message for an interrupted run: where it stopped and how to continue it."""
        return (
            f"stopped in epoch {cursor.epoch + 1} of seed {self.seed}; continue with "
            f"{setting('resume', True)}."
        )

    def weights(self) -> State:
        """Return a copy of the current weights."""
        return {name: t.detach().clone() for name, t in self.model.state_dict().items()}

    def chosen(self) -> FineTuned:
        """Return the model on the CPU, with the weights of the epoch that ``select`` chooses.

        If no epoch has a validation score, it is the last one. Targets that cannot be learned from
        the training set are predicted as NaN, classes that do not occur there with probability 0.
        """
        if self.config.select == "best-valid" and self.best:
            self.model.load_state_dict(self.best)
        model, taught = self.model.cpu().eval(), self.data.taught
        if self.data.task == "multiclass":
            model.head.linear.bias.data[torch.from_numpy(~taught)] = -math.inf
            return model
        if not taught.any():  # the scikit-learn regressor can be fitted to equal labels
            taught = np.isfinite(self.data.labels[self.data.split.train]).any(axis=0)
        model.head.target_shift[torch.from_numpy(~taught)] = math.nan
        return model

    def predictions(self, rule: str) -> Float[np.ndarray, "M T"]:
        """Return predictions in fp32 by the weights of a selection rule; training rows are NaN.

        Frozen embeddings are in the precision of the settings.
        """
        last = self.weights()
        self.model.load_state_dict(self.best if rule == "best-valid" and self.best else last)
        predictions = self._predict("fp32")
        self.model.load_state_dict(last)
        return predictions

    def _build(self) -> FineTuned:
        data, encoder, config = self.data, self.start.encoder, self.config
        layer = config.layer_of(encoder)
        with global_seed(self.setting.seed, "head"):
            sizes = (encoder.width(layer), len(data.targets))
            head = Head(*sizes, data.task, config.hidden, config.dropout)
        train, embeddings = data.split.train, self.start.embeddings
        weights = None if data.weights is None else data.weights[train]
        head.fit_targets(data.labels[train], weights)
        if embeddings is not None:
            head.fit_inputs(embeddings[train], None if config.freeze else _MIN_STD_SHARE, weights)
        return FineTuned(with_settings(encoder.network, dropout=config.dropout), head, layer)

    def _predict(self, precision: NumberFormat) -> Float[np.ndarray, "M T"]:
        """Return predictions for the validation and test set; training rows are NaN."""
        head, predictions = self.model.head, np.full(self.data.labels.shape, np.nan)
        with evaluating(self.model), torch.inference_mode():
            for rows, batch in self.held_out:
                outputs = self._outputs(batch, rows, precision)
                if self.data.task == "multiclass":  # as the model from `chosen` will predict
                    outputs[:, torch.from_numpy(~self.data.taught)] = -math.inf
                predictions[rows] = head.predictions(outputs).cpu().numpy()
        return predictions

    def _outputs(
        self, graphs: GraphBatch | None, indices: np.ndarray, precision: NumberFormat
    ) -> Float[Tensor, "B T"]:
        if self.frozen is not None:
            return self.model.head(self.frozen[indices])
        assert graphs is not None, "graphs are loaded unless their embeddings are frozen"
        return self.model(graphs.to(self.setting.device), precision)


def label_weights(data: LabeledGraphs, config: FinetuneConfig) -> Float[np.ndarray, "G T"]:
    """Return the weight of each label: the weight of its graph times that of its class.

    With ``class_weight="balanced"``, the weight of a class is the number of training labels,
    divided by the number of classes and by the number of training labels of the class.
    """
    weights = np.ones(data.labels.shape)
    if data.weights is not None:
        weights *= data.weights[:, None]
    if config.class_weight == "balanced":
        y = data.labels[data.split.train]
        positive, counts = np.nansum(y, axis=0), (~np.isnan(y)).sum(axis=0)
        if data.task == "multiclass":
            class_weights = counts.max() / (len(positive) * np.maximum(positive, 1))
            weights *= (np.nan_to_num(data.labels) @ class_weights)[:, None]
        else:
            ones = counts / (2 * np.maximum(positive, 1))
            zeros = counts / (2 * np.maximum(counts - positive, 1))
            weights *= np.where(data.labels == 1, ones, zeros)
    return weights


RULES = {"last": "last epoch", "best-valid": "best validation"}


@torch.inference_mode(mode=False)  # training needs gradients, also if the caller does not
def finetune(
    encoder: str | Path | Encoder,
    dataset: InputLike | LabeledGraphs,
    split: SplitChoice = None,
    seeds: Sequence[int] = (0, 1, 2),
    *,
    config: FinetuneConfig | Mapping[str, Any] | None = None,
    targets: ColumnNames | None = None,
    epochs: int | None = None,
    select: str | None = None,
    freeze: bool | None = None,
    layer: str | None = None,
    baselines: Sequence[str] = ("ecfp-rf", "ecfp-lr", "random"),
    run_dir: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | bool | None = None,
    callbacks: Sequence[Callback | str] | Callback = (),
    **settings: Any,
) -> Predictor:
    """Train copies of an encoder, each with a new head, on labels; one copy per seed.

    Args:
        encoder: An encoder (not changed), model file, run folder, shipped model or ``random``.
        dataset: The name of a data set, a path, a store with labels, or the result of
            :func:`~graphlog.downstream.tasks.open_labeled`.
        split: A kind that the domain knows (molecules: ``scaffold``, ``scaffold-balanced``,
            ``random-scaffold``, ``random``), a split file, or a Split of input rows, also as a
            dictionary; None takes the data set's own, else the default of the domain (molecules:
            ``scaffold``).
        seeds: Seeds of the models, for the initial head, the order of graphs and dropout.
        config: Settings (an object or a dictionary), overridden by other arguments; None: defaults.
        targets: Columns to predict; not needed for data sets with known tasks.
        epochs: Passes over the training set; None takes the protocol's.
        select: Epoch that predicts: ``last`` (default) or ``best-valid`` (default with
            ``patience``).
        freeze: Train only the head.
        layer: Embedding of the head: ``jk``, ``jk+sum`` or ``last``; None takes the protocol's.
        baselines: Rows to compare with: ``ecfp-rf``, ``ecfp-lr`` (for proteins, statistics of the
            ego-networks replace the fingerprints), and ``random``, which trains an untrained
            encoder from scratch and doubles the time; skipped if ``encoder`` is untrained itself.
        run_dir: Folder for the log, checkpoints, scores and model; None keeps all in memory.
        resume: Continue in ``run_dir``: finished seeds are kept, others go on from a checkpoint.
        overwrite: Replace the run in ``run_dir``.
        progress: Shows the progress; True shows a bar.
        callbacks: Receive every row of the log, as for :func:`graphlog.pretrain`.
        settings: Any other field of :class:`FinetuneConfig` or option of
            :func:`~graphlog.downstream.tasks.open_labeled` (``task``, ...).

    Returns:
        A predictor: ``predict`` is the mean over seeds, ``report`` has all scores.

    Raises:
        ConfigError: If settings contradict each other or the run folder.
        DataError: If no target can be learned, or the validation set cannot select an epoch.
        TrainingInterrupted: After Ctrl-C; the last checkpoints are kept.
    """
    labeling = pop_labeling(settings, "finetune")
    labeling |= {"split": split, "targets": targets}
    named = {"epochs": epochs, "select": select, "freeze": freeze, "layer": layer}
    settings |= {key: value for key, value in named.items() if value is not None}
    check_list("with_features", settings.get("with_features", ()))
    if not isinstance(config, FinetuneConfig):
        config = FinetuneConfig.parse(config or {})
    config = config.updated(settings)
    path, bar = None if run_dir is None else Path(run_dir), as_progress(progress)
    config = config.resolve_precision(bar.say)
    seeds = check_seeds("seeds", seeds)
    check_baselines(baselines)
    callbacks = check_callbacks(callbacks)
    if path is not None:  # before the input is read, which may take long
        check_usable(path, "finetune", resume, overwrite, encoder)
    encoder, source = opened(encoder, dataset, config.device)
    config = config.for_encoder(encoder)
    data = labeled(source, encoder.schema, **labeling)
    seed_data = data_of_seeds(data, config, seeds)
    with ExitStack() as stack:
        folder = None
        if path is not None:
            folder = RunFolder.open(path, "finetune", resume=resume, overwrite=overwrite)
            stack.enter_context(closing(folder))
            with writing(folder.path):
                folder.checkpoints.mkdir(exist_ok=True)
        start = common_start(encoder, data, config)
        if folder is not None:
            settings = config.written() | {"seeds": list(seeds)}
            tables = run_tables("finetune", data, encoder, settings)
            _check_same(folder, start, tables)
            describe_run(folder, data, tables)
        fitted = None
        if config.kernel:  # before the networks, because it may fail and they take longer
            readout = encoder.with_readout(config.readout)
            resampled = [*seed_data.values()] if config.resample_validation else ()
            fitted = kernel_predictor(readout, data, config.with_features, resampled)
        with closing(Callbacks(callbacks, folder and folder.path)) as followers:
            jobs = _train(start, seed_data, bar, folder, followers)
        untrained: list[SeedJob] = []
        is_untrained = encoder.info.get("name") == RANDOM  # then the baseline would be the same
        for seed in seeds if "random" in baselines and not is_untrained else ():
            network = untrained_like(encoder, seed_data[seed].train_graphs, seed)
            start = common_start(network, data, config.updated(FROM_SCRATCH))
            untrained += _train(start, {seed: seed_data[seed]}, bar, folder, label="untrained-")
        predictor = _predictor(encoder, data, config, jobs, untrained, baselines, fitted)
        if folder is not None:
            keep_run(folder, predictor, data, source, labeling, resume_advice())
        return predictor


@torch.inference_mode(mode=False)  # as for `finetune`
def train_one(
    encoder: Encoder, data: LabeledGraphs, config: FinetuneConfig, seed: int
) -> tuple[FineTuned, int]:
    """Return one trained model without a report, and its number of epochs, for scikit-learn."""
    config = config.resolve_precision(lambda _: None).for_encoder(encoder)
    job = SeedJob(common_start(encoder, data, config), seed, Progress())
    with stop_on_signal() as stop:
        Trainer(job).run(stop)
    return job.chosen(), len(job.history)


def pop_labeling(settings: dict[str, Any], call: str) -> dict[str, Any]:
    """Remove the options of ``open_labeled`` from ``settings`` and return them.

    Raises:
        ConfigError: If a remaining name is no setting of :class:`FinetuneConfig`.
    """
    labeling = {key: settings.pop(key) for key in LABELING if key in settings}
    for key in settings:
        if key not in FinetuneConfig.model_fields:
            raise unknown_name(f"setting of {call}", key, [*FinetuneConfig.model_fields, *LABELING])
    return labeling


def check_finetuning(data: LabeledGraphs, config: FinetuneConfig) -> None:
    """Refuse contradictory settings, and a training or validation set without usable labels."""
    if config.class_weight is not None and data.task == "regression":
        raise ConfigError("class weights are for classes, and the task is regression; drop them.")
    if config.with_features and not config.kernel:
        raise ConfigError(
            f"only the kernel model uses features: add {setting('kernel', True)}, or drop "
            f"{setting('with_features')}.",
            option="with_features",
        )
    check_features(data.store, config.with_features)
    check_learnable(data)
    chooses = config.select == "best-valid" or config.patience
    if chooses and len(data.unusable_targets("valid")) == len(data.targets):
        lack = "one class only" if data.task != "regression" else "no label"
        drop = f"drop {setting('patience')}"
        advice = drop if config.patience else f"choose {setting('select', 'last')}"
        raise DataError(
            f"every target has {lack} in the validation set ({data.split_name} split): {advice} "
            "or choose another split."
        )


def data_of_seeds(
    data: LabeledGraphs, config: FinetuneConfig, seeds: Sequence[int]
) -> dict[int, LabeledGraphs]:
    """Return the data of each seed; ``resample_validation`` gives each its own validation set.

    Raises:
        ConfigError: If settings contradict each other.
        DataError: If a training or validation set has no usable labels.
    """
    if not config.resample_validation:
        check_finetuning(data, config)
        return dict.fromkeys(seeds, data)
    whole = without_validation_set(data)
    drawn = {seed: with_validation_set(whole, seed) for seed in seeds}
    for seed, one in drawn.items():
        named = f"seed {seed}, drawn from the {data.split_name}"
        check_finetuning(replace(one, split_name=named), config)
    return drawn


def _train(
    start: Start,
    seed_data: Mapping[int, LabeledGraphs],
    bar: Progress,
    folder: RunFolder | None,
    callbacks: Callbacks | None = None,
    label: str = "",
) -> list[SeedJob]:
    """Train a copy of the encoder with each seed; runs with a ``label`` (baselines) have no log.

    ``seed_data`` is the data of each seed.
    """
    config = start.config
    sizes = {seed: len(data.split.train) for seed, data in seed_data.items()}
    jobs: list[SeedJob] = []
    log = None if folder is None or label else MetricsFile(folder.metrics, -1)
    with (
        closing(log) if log is not None else nullcontext(),
        bar.shown(config.epochs * sum(sizes.values())),
        stop_on_signal() as stop,
    ):
        for seed, size in sizes.items():
            bar.stage(f"{label}seed {seed}")
            job = SeedJob(replace(start, data=seed_data[seed]), seed, bar)
            trainer = Trainer(
                job,
                checkpoints=folder and folder.checkpoints / f"{label}seed-{seed}",
                checkpoint_every_s=config.checkpoint_every_s,
                metrics=log,
                callbacks=callbacks,
            )
            if trainer.restore():
                epoch, batch = trainer.cursor.epoch, trainer.cursor.batch
                bar.skip(size * epoch + min(batch * config.batch_size, size))
            if log is not None:
                with writing(log.path, resume_advice()):
                    for row in job.history:
                        log.write(row)
            trainer.run(stop)
            bar.skip(size * (config.epochs - len(job.history)))
            jobs.append(job)
    return jobs


def _predictor(
    encoder: Encoder,
    data: LabeledGraphs,
    config: FinetuneConfig,
    jobs: Sequence[SeedJob],
    untrained: Sequence[SeedJob],
    baselines: Sequence[str],
    fitted: FittedKernel | None,
) -> Predictor:
    """Return the trained models as a predictor, with their scores and those of the baselines."""
    seeds, splits = [job.seed for job in jobs], [job.data.split for job in jobs]
    first_data, scored = jobs[0].data, data
    if config.resample_validation:  # the training set contains all validation sets
        whole = without_validation_set(data)
        valid = np.unique(np.concatenate([split.valid for split in splits]))
        scored = replace(whole, split=whole.split._replace(valid=valid))
    rows, mean = _result_rows("fine-tuned", jobs, scored)
    partner, notes = None, list[str]()
    if fitted is not None:
        partner, by_kernel, notes = fitted
        mean = fuse([mean, by_kernel], data.task)
        average = "fine-tuned and kernel model, averaged"
        rows.insert(0, score_row(average, RULES[config.select], scored, [mean]))
        rows.append(score_row("kernel model, frozen encoder", KERNEL_RULE, scored, [by_kernel]))
    valid, records = scored.split.valid, data.records
    reliable = replace(scored, labels=scored.reliable_labels)
    labels = reliable.labels[valid]
    calibration = Calibration.fit(data.task, labels, mean[valid], scored.valid_kinds)
    calibration_rows = calibration.rows(reliable, mean)
    if untrained:
        rows += _result_rows("untrained encoder, fine-tuned", untrained, scored)[0]
    fingerprint_rows, fingerprint_notes = ecfp_rows(first_data, baselines, seeds)
    notes += fingerprint_notes
    notes += [statistics_note(encoder)] if untrained else []
    notes += repeat_notes(data.store, data.labels, splits)
    if config.resample_validation:
        fingerprints = (
            "; fingerprint rows use the sets of the first seed" if fingerprint_rows else ""
        )
        notes.append(
            "each seed drew its own validation set from the training set, which contains them; "
            f"their {len(valid):,} {records} are scored by models that were not trained on them"
            f"{fingerprints}"
        )
    notes += [] if len(jobs) > 1 else ["one seed: the standard deviation over seeds is unknown"]
    if config.class_weight is not None or data.weights is not None:
        users = "fine-tuning and the kernel model" if config.kernel else "fine-tuned networks"
        notes.append(f"only {users} use weights; scores and fingerprint rows do not")
    layer, schema = config.layer_of(encoder), encoder.schema.name
    if config.protocol == "paper" and (layer, schema) not in PUBLISHED:
        notes.append(
            "the paper's protocol uses the layer 'last' and the schemas molecule and protein; here "
            f"the layer is '{layer}' and the schema '{schema}', so scores are not comparable with "
            "those of the paper"
        )
    if config.kernel and config.class_weight is not None:
        notes.append("the kernel model does not balance classes")
    if any(not job.best_epoch for job in jobs):
        lack = "a label" if data.task == "regression" else "both classes"
        notes.append(f"no target has {lack} in the validation set: the last epoch is used")
    if not config.kernel and config.protocol != "paper":  # the paper has no kernel model
        notes += _kernel_note(encoder, first_data, config, mean)
    chosen = "the epoch" if config.select == "best-valid" else None
    is_kept = len(jobs) == 1 and not config.kernel  # the model that predicts validation graphs
    pooled = config.resample_validation and not is_kept
    notes += calibration_notes(calibration_rows, data.split_name, chosen, pooled, records)
    report = make_report(scored, [*rows, *fingerprint_rows], notes, calibration_rows)
    models = [job.chosen() for job in jobs]
    if config.freeze:  # the copies of the encoder are equal: store one
        models = [FineTuned(models[0].network, m.head, m.layer) for m in models]
    novelty = fit_novelty(models[0].network, scored.train_graphs)
    info = {
        "finetuned_on": data.name,
        "seeds": seeds,
        "finetune": config.model_dump(mode="json"),
        **origin(data, encoder, splits),
    }
    return Predictor(models, data.targets, report, info, calibration, novelty, partner=partner)


def _check_same(folder: RunFolder, start: Start, tables: Mapping[str, Any]) -> None:
    """Refuse to continue a run of other settings, model or data; the error names a difference."""
    for seed_folder in sorted(folder.checkpoints.glob("seed-*")):
        checkpoint = load_checkpoint(seed_folder, lambda _: None)
        if checkpoint is not None and checkpoint.fields.get("digest") != start.digest:
            before = read_toml(folder.config) if folder.config.is_file() else tables
            change = first_difference(before, tables, _MAY_DIFFER)
            change = change or "other graphs, labels, split or weights of the model"
            raise ConfigError(
                f"the run in {folder.path} was started with {change}; give the same to resume it, "
                f"or replace it with {setting('overwrite', True)}.",
                option="overwrite",
            )


def _kernel_note(
    encoder: Encoder, data: LabeledGraphs, config: FinetuneConfig, mean: Float[np.ndarray, "M T"]
) -> list[str]:
    """Return a note if a kernel model of the frozen encoder is better on the validation set.

    ``mean`` are the predictions to compare with.
    """
    if not len(data.split.valid):
        return []
    without_test = replace(data, split=data.split._replace(test=data.split.test[:0]))
    try:
        _, by_kernel, _ = kernel_predictor(encoder.with_readout(config.readout), without_test)
    except DataError:  # embeddings are not finite
        return []
    scores = [data.score(predictions, "valid") for predictions in (by_kernel, mean)]
    if not better(data.criterion, *scores):
        return []
    shown = [format_score(score, data.criterion) for score in scores]
    return [
        f"a kernel model of the frozen encoder is better on the validation set: {data.criterion} "
        f"{shown[0]} instead of {shown[1]}. Try `probe` with {setting('head', 'kernel')}, or "
        f"{setting('kernel', True)} here, which averages the two"
    ]


def _result_rows(
    model: str, jobs: Sequence[SeedJob], data: LabeledGraphs
) -> tuple[list[ScoreRow], Float[np.ndarray, "M T"]]:
    """Return the rows of both selection rules, and of the ensemble of the seeds.

    The selected rule comes first. The mean prediction over seeds under this rule is also returned.
    The validation set of ``data`` has the graphs of all validation sets.
    """
    config = jobs[0].config
    detail = {
        "best_epochs": [job.best_epoch for job in jobs],
        "epochs": config.epochs,
        "seeds": [job.seed for job in jobs],
        **({"stopped_after": [len(job.history) for job in jobs]} if config.patience else {}),
    }
    chosen = _predictions(jobs, config.select)
    rows = [score_row(model, RULES[config.select], data, chosen, detail)]
    mean = np.mean(chosen, axis=0)
    del chosen  # frees memory before the predictions of the other rule
    (other,) = RULES.keys() - {config.select}
    rows.append(score_row(model, RULES[other], data, _predictions(jobs, other), detail))
    if len(jobs) > 1:
        ensemble = f"{model}, mean of {len(jobs)} seeds"
        rows.append(score_row(ensemble, RULES[config.select], data, [mean], detail))
    return rows, mean


def _predictions(jobs: Sequence[SeedJob], rule: str) -> list[Float[np.ndarray, "M T"]]:
    """Return the predictions of each seed by the weights of a selection rule.

    If each seed has its own validation set, the graphs of all of them have the mean of the seeds
    that were not trained on them.
    """
    predictions = [job.predictions(rule) for job in jobs]
    if jobs[0].config.resample_validation:
        held_out = mean_held_out([job.data.split for job in jobs], predictions)
        for values in predictions:
            np.copyto(values, held_out, where=~np.isnan(held_out))
    return predictions


def run_digest(encoder: Encoder, data: LabeledGraphs, config: FinetuneConfig) -> str:
    """Return a hash of what affects the weights, except the seed, or the kernel model."""
    arrays = {"labels": data.labels, **data.split._asdict(), "weights": data.weights}
    tensors = {f"data.{k}": torch.tensor(a) for k, a in arrays.items() if a is not None}
    settings = config.model_dump(exclude=_NOT_IN_DIGEST)
    if settings["encoder_rate"] == settings["learning_rate"]:  # see `FinetuneConfig.written`
        settings["encoder_rate"] = None
    others = [config.layer_of(encoder), data.task, data.metric, encoder.config.readout]
    about = {"graphs": data.store.digest, "settings": [settings, *others]}
    return digest_of(tensors | encoder.network.state_dict(), about)


def common_start(encoder: Encoder, data: LabeledGraphs, config: FinetuneConfig) -> Start:
    """Return the common start of all seeds of a run."""
    encoder = encoder.with_readout(config.readout)
    network = with_settings(encoder.network, dropout=0.0)
    encoder = Encoder(network, encoder.layer, encoder.info).to(choose_device(config.device))
    embeddings = None
    if config.freeze or config.standardize_embedding:
        # if the encoder is not frozen, these only standardize the head's input
        precision = config.precision if config.freeze else "fp32"
        embeddings = encoder.embed_store(data.store, config.layer_of(encoder), precision=precision)
    digest = run_digest(encoder, data, config)
    return Start(encoder, data, config, embeddings, digest)
