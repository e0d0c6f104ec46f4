"""Heads, encoders with heads, and predictors of fine-tuning and probing: predict, save and load."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
import torch
from jaxtyping import Float, Num
from scipy.sparse import csr_matrix
from torch import Tensor, nn
from torch.nn import functional as F

from graphlog.data.graphs import FeatureSchema
from graphlog.data.html import fields_table, html_table
from graphlog.data.store import GraphBatch, GraphStore
from graphlog.data.tables import distinct, listed
from graphlog.domains import domain_of
from graphlog.downstream.kernel import KernelModel
from graphlog.downstream.linear import CLIP_AT, COUNTS, LinearModel, features_of, fuse, moments
from graphlog.downstream.metrics import TaskKind
from graphlog.downstream.pretrained import (
    Encoder,
    check_layer,
    each_part,
    evaluating,
    model_path,
    rows_per_part,
)
from graphlog.downstream.report import Report
from graphlog.downstream.uncertainty import Calibration
from graphlog.downstream.writers import Results, Written, choose_format, write_aligned
from graphlog.encoders.encoder import EmbeddingLayer, GraphEncoder, torch_globals
from graphlog.encoders.modelfile import read_model, save_model, tensors_below
from graphlog.encoders.novelty import Novelty
from graphlog.errors import ConfigError, ModelFileError, first_line, out_of_range, setting
from graphlog.inputs import InputLike, Part, note_salts, rereadable, resolve, rows_of, stream
from graphlog.training.log import Progress, as_progress
from graphlog.training.settings import (
    NumberFormat,
    Precision,
    autocast,
    choose_device,
    inference_precision,
)

KIND = "predictor"
_MIN_STD = 1e-6
"""Standard deviation below which a column of embeddings is constant."""


class Head(nn.Module):
    """A linear layer, or a network with one hidden layer of ReLU units, with one output per target.

    For regression, outputs are in units of the labels' standard deviation. Inputs are standardized,
    except in the paper's protocol.
    """

    clip: Tensor
    """Standardized inputs are clipped at plus and minus this number of standard deviations."""
    input_shift: Tensor
    input_scale: Tensor
    target_shift: Tensor
    target_scale: Tensor

    def __init__(
        self, width: int, targets: int, task: TaskKind, hidden: int = 0, dropout: float = 0.0
    ) -> None:
        """Draw the weights as torch does; inputs and targets are not scaled until they are fitted.

        With ``hidden`` units, ``dropout`` is the share of the inputs and of these units that is
        dropped in training.
        """
        super().__init__()
        self.task: TaskKind = task
        self.hidden = nn.Linear(width, hidden) if hidden else None
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(hidden or width, targets)
        # the largest number and not infinity, because every weight of a checkpoint must be finite
        self.register_buffer("clip", torch.tensor(torch.finfo(torch.float32).max))
        self.register_buffer("input_shift", torch.zeros(width))
        self.register_buffer("input_scale", torch.ones(width))
        # double precision, because the mean of labels may be many standard deviations from 0; NaN
        # for targets that cannot be learned
        self.register_buffer("target_shift", torch.zeros(targets, dtype=torch.float64))
        self.register_buffer("target_scale", torch.ones(targets, dtype=torch.float64))

    def fit_inputs(
        self,
        embeddings: Float[np.ndarray, "M W"],
        min_std_share: float | None = None,
        weights: Float[np.ndarray, "M"] | None = None,
    ) -> None:
        """Set the standardization and clipping of inputs, by the moments of ``embeddings``.

        Without ``min_std_share``, constant columns become 0. Otherwise no column is divided by less
        than this share of the median standard deviation, because while the encoder is trained, a
        column that varied little before would dominate the output.
        """
        mean, std = moments(embeddings, weights)
        if min_std_share is None:
            scale = np.where(std > _MIN_STD, 1.0 / np.maximum(std, _MIN_STD), 0.0)
        else:
            floor = max(min_std_share * float(np.median(std)), _MIN_STD)
            scale = 1.0 / np.maximum(std, floor)
        self.clip.fill_(CLIP_AT)
        self.input_shift.copy_(torch.from_numpy(mean))
        self.input_scale.copy_(torch.from_numpy(scale))

    @classmethod
    def of_probe(cls, model: LinearModel, task: TaskKind) -> "Head":
        """Return a head with the same predictions as a linear model of a probe."""
        with torch_globals():  # the initial weights do not matter: they are replaced below
            head = cls(model.weight.shape[0], model.weight.shape[1], task)
        with torch.no_grad():
            if model.scaling is not None:
                head.clip.fill_(CLIP_AT)
                head.input_shift.copy_(torch.from_numpy(model.scaling.mean))
                head.input_scale.copy_(torch.from_numpy(1 / model.scaling.deviation))
            weight, bias = torch.from_numpy(model.weight.T), torch.from_numpy(model.bias)
            if task == "regression":
                head.target_shift.copy_(bias)
                head.target_scale.copy_(weight.norm(dim=1).double())
                head.target_scale[head.target_scale == 0] = 1.0
                weight, bias = weight / head.target_scale[:, None], torch.zeros_like(bias)
            head.linear.weight.copy_(weight)
            head.linear.bias.copy_(bias)
        return head

    def fit_targets(
        self, labels: Float[np.ndarray, "M T"], weights: Float[np.ndarray, "M"] | None = None
    ) -> None:
        """Set the scaling of regression targets, by the moments of labels (NaN if missing)."""
        if self.task != "regression":
            return
        is_known = np.isfinite(labels).any(axis=0)
        mean, std = moments(labels[:, is_known].astype(np.float64), weights)
        known = torch.from_numpy(is_known)
        self.target_shift[known] = torch.from_numpy(mean)
        self.target_scale[known] = torch.from_numpy(np.where(std > 0, std, 1.0))

    @property
    def digits(self) -> int:
        """Number of significant digits with which predictions are written.

        For regression, these are six digits of values in units of the labels' standard deviation.
        """
        if self.task != "regression":
            return 16  # different probabilities near 1 are at least 1e-16 apart
        magnitude = (self.target_shift.abs() / self.target_scale).nan_to_num(0.0).max()
        return min(17, 6 + max(0, math.ceil(math.log10(max(float(magnitude), 1.0)))))

    def forward(self, embeddings: Float[Tensor, "N W"]) -> Float[Tensor, "N T"]:
        """Return logits, or scaled values."""
        inputs = (embeddings - self.input_shift) * self.input_scale
        inputs = inputs.clamp(-self.clip, self.clip)
        if self.hidden is not None:
            inputs = self.dropout(self.hidden(self.dropout(inputs)).relu())
        return self.linear(inputs)

    def loss(
        self,
        outputs: Float[Tensor, "N T"],
        labels: Float[Tensor, "N T"],
        weights: Float[Tensor, "N T"] | None = None,
    ) -> Float[Tensor, ""]:
        """Return the mean loss over the labels that are present, in float64; 0 if there are none.

        The sum is divided by the number of labels and not by the sum of their weights, because the
        latter would cancel a large weight within its batch.

        Args:
            outputs: Logits, or scaled values.
            labels: Labels in their units; classes are 0 and 1, or one-hot; NaN where missing.
            weights: Weight of each label, 1 on average over all batches; for one-hot rows the first
                column is used. None weights all labels equally.
        """
        present, outputs, labels = (
            ~labels.isnan(),
            outputs.double(),
            labels.nan_to_num(0.0).double(),
        )
        weights = torch.ones_like(outputs) if weights is None else weights.double()
        if self.task == "multiclass":
            present, weights = present.all(dim=1), weights[:, 0]
            losses = F.cross_entropy(outputs, labels.argmax(dim=1), reduction="none")
        elif self.task == "classification":
            losses = F.binary_cross_entropy_with_logits(outputs, labels, reduction="none")
        else:
            losses = (outputs - (labels - self.target_shift) / self.target_scale).square()
        return (losses * weights * present).sum() / present.sum().clamp(min=1)

    def predictions(self, outputs: Float[Tensor, "N T"]) -> Float[Tensor, "N T"]:
        """Return float64 probabilities, or values in label units; NaN for targets not learned."""
        outputs = outputs.double()
        if self.task == "classification":
            return outputs.sigmoid() + self.target_shift
        if self.task == "multiclass":
            return outputs.softmax(dim=1)
        return outputs * self.target_scale + self.target_shift

    def predict(self, inputs: Num[np.ndarray, "N W"]) -> Float[np.ndarray, "N T"]:
        """Return the predictions for a matrix of features, a row per graph."""
        with torch.inference_mode():
            return self.predictions(self(torch.from_numpy(inputs).float())).numpy()


class FineTuned(nn.Module):
    """An encoder with a head."""

    def __init__(self, network: GraphEncoder, head: Head, layer: EmbeddingLayer) -> None:
        """Join an encoder and a head, whose input is the embedding ``layer``."""
        super().__init__()
        self.network = network
        self.head = head
        self.layer: EmbeddingLayer = layer

    def embed(
        self,
        batch: GraphBatch,
        precision: NumberFormat = "fp32",
        layer: EmbeddingLayer | None = None,
    ) -> Float[Tensor, "N W"]:
        """Return the embedding for the head, or ``layer``, computed in ``precision``."""
        with autocast(precision, batch.x.device):
            return self.network.embed_graphs(batch, layer or self.layer).float()

    def forward(self, batch: GraphBatch, precision: NumberFormat = "fp32") -> Float[Tensor, "N T"]:
        """Return logits, or scaled values, in fp32."""
        return self.head(self.embed(batch, precision))


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """Predictions and their uncertainty for each row of the input; NaN for rows without a graph."""

    targets: tuple[str, ...]
    """Names of the columns."""
    mean: Float[np.ndarray, "M T"]
    """Mean over seeds of probabilities (classification) or values (regression)."""
    std: Float[np.ndarray, "M T"] | None
    """Sample standard deviation over seeds (fine-tuned models), or the one that a kernel model
    predicts for numeric targets; None for other predictors."""
    calibrated: Float[np.ndarray, "M T"] | None
    """Calibrated probabilities; None for regression and for predictors without a calibration."""
    low: Float[np.ndarray, "M T"] | None = None
    """Lower ends of the intervals; None if no intervals were requested."""
    high: Float[np.ndarray, "M T"] | None = None
    """Upper ends of the intervals; None if no intervals were requested."""
    novelty: Float[np.ndarray, "M"] | None = None
    """Percentile, 0 to 100, of the distance from the training set, among the graphs of this set;
    None for predictors that do not store the distribution of its embeddings."""

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the predictions for consecutive parts of an input as one."""
        arrays: dict[str, Any] = {}
        for name in (f.name for f in fields(cls)[1:]):
            values = [getattr(part, name) for part in parts]
            arrays[name] = None if values[0] is None else np.concatenate(values)
        return cls(parts[0].targets, **arrays)

    def columns(self) -> dict[str, Float[np.ndarray, "M"]]:
        """Return the columns of a file by name: ``predicted_<target>``, ``..._std``, and so on.

        ``graphlog_novelty`` comes last. If two columns would have the same name (of targets called
        ``y`` and ``y_std``, for example), the later one gets a number.
        """
        kinds = {
            "": self.mean,
            "_std": self.std,
            "_calibrated": self.calibrated,
            "_low": self.low,
            "_high": self.high,
        }
        arrays = {kind: values for kind, values in kinds.items() if values is not None}
        pairs = [(kind, t) for kind in arrays for t in range(len(self.targets))]  # means first
        names = distinct([f"predicted_{self.targets[t]}{kind}" for kind, t in pairs])
        by_target = sorted(zip(pairs, names, strict=True), key=lambda item: item[0][1])
        columns = {name: arrays[kind][:, t] for (kind, t), name in by_target}
        if self.novelty is not None:
            columns["graphlog_novelty"] = self.novelty.astype(np.float64).round(4)
        return columns


class Predictor:
    """The fine-tuned models of all seeds, whose mean is the prediction, or the models of a probe.

    A probe has one member, a frozen encoder with a linear model. Its prediction is averaged with
    those of linear models of additional features, if there are any. A kernel model uses the
    embedding of the one member together with additional features, and replaces the head.
    Fine-tuned models may be averaged with such a kernel model of the frozen encoder, the partner.
    """

    def __init__(
        self,
        members: Sequence[FineTuned],
        targets: Sequence[str],
        report: Report,
        info: Mapping[str, Any] | None = None,
        calibration: Calibration | None = None,
        novelty: Novelty | None = None,
        joined: Mapping[str, Head] | None = None,
        kernel: KernelModel | None = None,
        partner: "Predictor | None" = None,
    ) -> None:
        """Join the models of all seeds, which differ in their weights only."""
        self.members = tuple(members)
        self.targets = tuple(targets)
        """Names of the predicted columns."""
        self.report = report
        """Scores of every selection rule and baseline."""
        self.info: dict[str, Any] = dict(info or {})
        """Description in the model file: settings, data set and origin of the encoder."""
        self.calibration = calibration
        """Errors on the validation set, for intervals and calibrated probabilities."""
        self.novelty = novelty
        """Distribution of the training set's embeddings by the encoder of the first seed."""
        self.joined = dict(joined or {})
        """Heads of additional features by name, averaged with the mean of the members."""
        self.kernel = kernel
        """Kernel model that predicts instead of the heads; None if the heads predict."""
        self.partner = partner
        """Predictor by a kernel model, averaged with the mean of the members."""
        for member in self.members:
            member.eval()

    @property
    def task(self) -> TaskKind:
        """``classification``, ``regression`` or ``multiclass``."""
        return self.members[0].head.task

    @property
    def schema(self) -> FeatureSchema:
        """The features that the encoder reads."""
        return self.members[0].network.schema

    @property
    def encoder(self) -> Encoder:
        """The fine-tuned encoder of the first seed."""
        return Encoder(self.members[0].network, self.members[0].layer, self.info)

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return self.encoder.device

    @property
    def features(self) -> list[str]:
        """Names of the features that predictions use in addition to the embedding."""
        if self.kernel is not None:
            return [name for support in self.kernel.supports for name in support.names if name]
        return [*self.joined] if self.partner is None else self.partner.features

    def __repr__(self) -> str:
        models = f"{len(self.members)} model{'s' if len(self.members) > 1 else ''}"
        return f"Predictor({self.task} of {listed(self.targets, 5)}, {models})"

    def _repr_html_(self) -> str:
        fields: dict[str, Any] = {
            "task": self.task,
            "targets": ", ".join(self.targets),
            "seeds": None if "probed_on" in self.info else len(self.members),
            "joined": ", ".join(self.features) or None,
            "head": None if self.kernel is None else f"kernel, {self.kernel.count:,} points",
            "averaged with": None if self.partner is None else "a kernel model, frozen encoder",
            "schema": self.schema.name,
        }
        return html_table(fields_table(fields, "Predictor")) + self.report.to_html()

    def to(self, device: str) -> "Predictor":
        """Move all models to ``device`` (``auto``, ``cpu``, ``cuda``) and return this predictor."""
        chosen = choose_device(device)
        for member in self._models:
            member.to(chosen)
        return self

    @property
    def _models(self) -> tuple[FineTuned, ...]:
        """Models that are run on graphs: the members, then the one member of the partner."""
        return self.members + (self.partner.members if self.partner else ())

    def predict(
        self,
        source: InputLike,
        batch_size: int = 2048,
        *,
        precision: Precision = "fp32",
        progress: Progress | bool | None = None,
        **reading: Any,
    ) -> Any:
        """Return probabilities (classification) or values (regression), one row per input row.

        A row that cannot be read is NaN. The result is an array of shape (rows, targets); of a
        pandas or Polars data frame it is a data frame of that kind, with the columns
        ``predicted_<target>`` and, of pandas, the index.

        Args:
            source: A list, array or column of SMILES, a path, the name of a data set, or a store.
            batch_size: Graphs per forward pass.
            precision: Format of matrix products.
            progress: Shows the progress.
            reading: Options of the reader; the column of SMILES is by default that of fine-tuning.
        """
        if "interval" in reading:
            raise ConfigError(
                "`predict` returns means alone; `Predictor.predict_uncertain` takes `interval`.",
                option="interval",
            )
        means: list[np.ndarray] = []
        for part, outputs in self._parts(source, batch_size, precision, progress, reading, None):
            mean, _ = self._combine(outputs, self.features_of(part.store), with_std=False)
            means.append(part.aligned(mean).astype(np.float64))
        return _as_frame_like(source, np.concatenate(means), self.targets)

    def predict_uncertain(
        self,
        source: InputLike,
        batch_size: int = 2048,
        *,
        interval: float | None = None,
        precision: Precision = "fp32",
        progress: Progress | bool | None = None,
        **reading: Any,
    ) -> Prediction:
        """Return predictions with standard deviations, calibration, intervals and novelty.

        Args:
            source: A list, array or column of SMILES, a path, the name of a data set, or a store.
            batch_size: Graphs per forward pass.
            interval: Regression: level of the intervals, such as 0.9; None gives none.
            precision: Format of matrix products.
            progress: Shows the progress.
            reading: Options of the reader; the column of SMILES is by default that of fine-tuning.

        Raises:
            ConfigError: If ``interval`` is given and the predictor has no such intervals.
        """
        self.check_interval(interval)
        parts = self._parts(source, batch_size, precision, progress, reading, self.novelty)
        return Prediction.joined([self._prediction(*part, interval) for part in parts])

    def check_interval(self, interval: float | None) -> None:
        """Refuse intervals that this predictor does not have; warn about unreliable ones.

        Raises:
            ConfigError: If the level is out of range, the task has no intervals, or there is no
                calibration.
        """
        if interval is None:
            return
        if not 0 < interval < 1:
            raise out_of_range("interval", "between 0 and 1, such as 0.9", f"{interval:g}")
        if self.task != "regression":
            raise ConfigError(
                f"intervals are for regression, and the task is {self.task}; drop "
                f"{setting('interval')}: predicted_<target>_calibrated holds calibrated "
                "probabilities.",
                option="interval",
            )
        if self.calibration is None:
            raise ConfigError(
                "this predictor was made without a calibration and has no intervals; "
                f"drop {setting('interval')}.",
                option="interval",
            )
        learned = np.isfinite(self.members[0].head.target_shift.cpu().numpy())
        infinite = np.isinf(self.calibration.half_widths(interval)) & learned
        if names := [self.targets[t] for t in np.flatnonzero(infinite)]:
            warnings.warn(
                f"intervals of {listed(names, 3)} are infinite, and left empty in text files: "
                f"the validation set had too few labels for {interval:g}; choose a lower "
                f"{setting('interval')}",
                stacklevel=3,
            )
        if repeats := self.info.get("valid_repeats"):
            warnings.warn(
                f"intervals may be far too narrow: {repeats[0]:,} of {repeats[1]:,} graphs of the "
                "validation set repeat one that the model was trained on; train again with "
                f"{setting('on_repeats', 'mean')}",
                stacklevel=3,
            )

    def predict_file(
        self,
        source: InputLike,
        out: str | Path,
        *,
        interval: float | None = None,
        batch_size: int = 2048,
        precision: Precision = "fp32",
        progress: Progress | bool | None = None,
        format: str | None = None,
        **reading: Any,
    ) -> Written:
        """Write the input's columns, ``predicted_<target>``, novelty and ``graphlog_status``.

        After each ``predicted_<target>`` come ``..._std`` (standard deviation over seeds, or
        predicted by a kernel model), ``..._calibrated`` (classification) and, with an interval,
        ``..._low`` and ``..._high``. ``graphlog_novelty`` is the percentile of the row among the
        labeled graphs of the training set. A row that cannot be used keeps its columns; its
        predictions are empty and its status contains the reason. The file is never incomplete.

        Args:
            source: A path, ``-``, the name of a data set, a store, or a list of SMILES.
            out: The file; its ending decides the format. ``-`` is standard output.
            interval: Regression: level of the intervals, such as 0.9; None gives none.
            batch_size: Graphs per forward pass.
            precision: Format of matrix products.
            progress: Shows the progress.
            format: ``csv``, ``jsonl``, ``parquet``, ``npz``, ``npy`` or ``sdf``; None: by ending.
            reading: Options of the reader; the column of SMILES is by default that of fine-tuning.
        """
        self.check_interval(interval)
        out, given = Path(out), resolve(source, self.schema)
        chosen = choose_format(out, format, given)  # before standard input is copied
        with rereadable(given) as resolved:
            parts = self._parts(resolved, batch_size, precision, progress, reading, self.novelty)
            tables = (
                (part, self._prediction(part, outputs, interval).columns())
                for part, outputs in parts
            )
            first = next(tables)
            rows = (
                (part, np.stack([*columns.values()], axis=1))
                for part, columns in chain([first], tables)
            )
            digits = max(member.head.digits for member in self.members)
            results = Results(rows, [*first[1]], "predictions", digits=digits)
            about: dict[str, Any] = {"targets": list(self.targets), "task": self.task}
            if classes := self.info.get("classes"):
                likely = [f"{target} = {words['1']}" for target, words in classes.items()]
                about["probability of"] = likely
            return write_aligned(results, resolved, self.schema, out, chosen, **about)

    def _parts(
        self,
        source: InputLike,
        batch_size: int,
        precision: Precision,
        progress: Progress | bool | None,
        reading: Mapping[str, Any],
        novelty: Novelty | None,
    ) -> Iterator[tuple[Part, Float[np.ndarray, "B K"]]]:
        """Yield the parts of an input and the results of :func:`_outputs` for their graphs."""
        resolved, bar = resolve(source, self.schema), as_progress(progress)
        options = self.encoder.reading_of(resolved, reading)
        number_format = inference_precision(precision, self.device, bar.say)
        has_kernel = self._widths[1] > 0
        work = partial(_outputs, self._models, has_kernel, number_format, novelty)
        width = sum(self._widths) + (novelty is not None)
        with (
            stream(
                resolved, self.schema, rows_per_part(batch_size, self.features), **options
            ) as parts,
            bar.shown(rows_of(resolved, reading.get("limit")), "predicting"),
        ):
            keyed = note_salts(parts, bar.say)
            for part, _, outputs in each_part(work, keyed, width, batch_size, bar):
                yield part, outputs

    @property
    def _widths(self) -> tuple[int, int]:
        """Number of columns of :func:`_outputs` with predictions of heads, and with an embedding.

        The first is 0 if a kernel model replaces the heads, the second if there is no kernel model.
        """
        predictions = len(self.targets) * (2 if len(self.members) > 1 else 1)
        embedding = self._models[-1].head.linear.in_features
        if self.kernel is not None:
            return 0, embedding
        return predictions, 0 if self.partner is None else embedding

    def _prediction(
        self, part: Part, outputs: Float[np.ndarray, "B K"], interval: float | None
    ) -> Prediction:
        """Return the predictions for every row of a part, given the outputs for its graphs."""
        columns = sum(self._widths)
        novelty = outputs[:, -1].astype(np.float32) if outputs.shape[1] > columns else None
        mean, std = self._combine(outputs[:, :columns], self.features_of(part.store))
        mean, std = mean.astype(np.float64), None if std is None else std.astype(np.float64)
        calibration, calibrated, low, high = self.calibration, None, None, None
        if calibration is not None and self.task != "regression":
            calibrated = calibration.probabilities(mean)
        elif calibration is not None and interval is not None:
            half_width = calibration.half_widths(interval)
            low, high = mean - half_width, mean + half_width
        values: Any = mean, std, calibrated, low, high, novelty
        aligned: list[Any] = [None if array is None else part.aligned(array) for array in values]
        return Prediction(self.targets, *aligned)

    def _combine(
        self,
        outputs: Float[np.ndarray, "B K"],
        features: Sequence[np.ndarray | csr_matrix],
        with_std: bool = True,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return mean and standard deviation, from outputs of the networks and other features."""
        if self.kernel is not None:
            return self.kernel.predict([outputs, *features], with_std)
        heads, embedding = np.split(outputs, [self._widths[0]], axis=1)
        mean = heads[:, : len(self.targets)]
        std = heads[:, len(self.targets) :] if len(self.members) > 1 else None
        if self.partner is not None:
            by_kernel, _ = self.partner._combine(embedding, features, with_std=False)
            return fuse([mean, by_kernel], self.task), std
        pairs = zip(self.joined.values(), features, strict=True)
        others = [head.predict(np.asarray(values)) for head, values in pairs]
        return fuse([mean, *others], self.task), std

    def features_of(self, store: GraphStore) -> list[np.ndarray | csr_matrix]:
        """Return the features of all graphs that predictions use in addition to the embedding."""
        return [features_of(store, name) for name in self.features]

    def predict_batch(
        self,
        batch: GraphBatch,
        features: Sequence[np.ndarray | csr_matrix],
        precision: NumberFormat = "fp32",
    ) -> Float[np.ndarray, "B T"]:
        """Return the predictions for a batch, given its :meth:`features_of`."""
        outputs = _outputs(self._models, self._widths[1] > 0, precision, None, batch)
        return self._combine(outputs, features, with_std=False)[0]

    def save(self, path: str | Path) -> None:
        """Write a ``.safetensors`` file."""
        first = self.members[0]
        described, extra = self._file_content()
        described["report"] = self.report.to_dict()
        info = {**self.info, "kind": KIND, "embedding": first.layer, KIND: described}
        save_model(Path(path), first.network, info, extra)

    def _file_content(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the description of the models, and tensors other than the first network's."""
        first = self.members[0]
        shared = all(other.network is first.network for other in self.members)
        tensors = {f"head.{k}": member.head.state_dict() for k, member in enumerate(self.members)}
        for k, member in enumerate(self.members[1:] if not shared else (), 1):
            tensors[f"member.{k}"] = member.network.state_dict()
        tensors |= {f"joined.{name}": head.state_dict() for name, head in self.joined.items()}
        tensors |= {} if self.kernel is None else {"kernel": self.kernel.tensors()}
        described: dict[str, Any] = {
            "targets": list(self.targets),
            "task": self.task,
            "members": len(self.members),
            "shared_encoder": shared,
            **({"joined": [*self.joined]} if self.joined else {}),
            **({"kernel": self.features} if self.kernel is not None else {}),
        }
        if self.partner is not None:
            partner, tensors["partner"] = self.partner._file_content()
            member = self.partner.members[0]
            tensors["partner.network"] = member.network.state_dict()
            described["partner"] = {**partner, "embedding": member.layer}
        extra = {f"{part}.{name}": t for part, ts in tensors.items() for name, t in ts.items()}
        for optional in (self.calibration, self.novelty):
            extra |= {} if optional is None else optional.tensors()
        return described, extra

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu") -> "Predictor":
        """Read the predictor of a run folder, or of a file that :meth:`save` wrote.

        Raises:
            ModelFileError: If there is no predictor in it, or it is damaged.
        """
        file = model_path(path, has_head=True)
        loaded = read_model(file)
        if loaded.info.get("kind") != KIND:
            raise ModelFileError(
                f"{path} holds an encoder without a head; train one first: graphlog finetune "
                f"INPUT -m {path} -o RUN, or graphlog probe INPUT -m {path} -o RUN"
            )
        try:
            described, layer = loaded.info[KIND], loaded.info["embedding"]
            report = Report.from_dict(described["report"])
            predictor = cls._from_file(loaded.encoder, layer, described, loaded.extra, report)
        except (KeyError, TypeError, ValueError, RuntimeError) as e:
            raise ModelFileError(
                f"{path}: its prediction heads are incomplete or of another version "
                f"({first_line(e)}); get the file, or fit the model, again."
            ) from None
        own_keys = {KIND, "kind", "embedding"}
        predictor.info = {key: v for key, v in loaded.info.items() if key not in own_keys}
        return predictor.to(device)

    @classmethod
    def _from_file(
        cls,
        network: GraphEncoder,
        layer: str,
        described: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        report: Report,
    ) -> "Predictor":
        """Return the predictor with this first network and :meth:`_file_content`."""
        task, targets = described["task"], tuple(described["targets"])
        feature_sets = domain_of(network.schema).feature_sets
        width = network.embedding_width(check_layer(layer))
        if described["members"] < 1 or task not in get_args(TaskKind):
            raise ValueError(f"{described['members']} members of task {task!r}")

        def head_of(name: str, inputs: int) -> Head:
            state = tensors_below(tensors, f"{name}.")
            hidden = len(state["hidden.bias"]) if "hidden.bias" in state else 0
            with torch_globals():
                head = Head(inputs, len(targets), task, hidden)
            head.load_state_dict(state)
            return head

        def network_of(name: str) -> GraphEncoder:
            other = deepcopy(network)
            other.load_state_dict(tensors_below(tensors, f"{name}."))
            return other

        members: list[FineTuned] = []
        for k in range(described["members"]):
            is_stored = k > 0 and not described["shared_encoder"]
            encoder = network_of(f"member.{k}") if is_stored else network
            members.append(FineTuned(encoder, head_of(f"head.{k}", width), check_layer(layer)))
        names = described.get("joined", ())
        joined = {name: head_of(f"joined.{name}", len(feature_sets[name])) for name in names}
        kernel, partner = None, None
        if "kernel" in described:
            columns: dict[str, int | None] = {"": width}
            for name in described["kernel"]:
                columns[name] = None if name == COUNTS else len(feature_sets[name])
            kernel = KernelModel.of(task, columns, tensors_below(tensors, "kernel."), len(targets))
        if about := described.get("partner"):
            below, frozen = tensors_below(tensors, "partner."), network_of("partner.network")
            partner = cls._from_file(frozen, about["embedding"], about, below, report)
        return cls(
            members,
            targets,
            report,
            calibration=Calibration.of(task, tensors),
            novelty=Novelty.of(tensors, network.embedding_width("jk")),
            joined=joined,
            kernel=kernel,
            partner=partner,
        )


def _outputs(
    models: Sequence[FineTuned],
    has_kernel: bool,
    precision: NumberFormat,
    novelty: Novelty | None,
    batch: GraphBatch,
) -> Float[np.ndarray, "B K"]:
    """Return the outputs of models for each graph of a batch, concatenated to one row.

    These are the mean prediction of the heads, its standard deviation if there are several heads,
    the embedding for a kernel model (``has_kernel``: by the last model, whose head is not used),
    and the percentile of ``novelty``, by the embedding of the first model.
    """
    first = models[0]
    batch = batch.to(next(first.parameters()).device)
    with torch.inference_mode(), ExitStack() as stack:
        for model in models:
            stack.enter_context(evaluating(model))
        embeddings = [model.embed(batch, precision) for model in models]
        tensors = embeddings[-1:] if has_kernel else []
        pairs = list(zip(models, embeddings, strict=True))[: len(models) - has_kernel]
        if pairs:
            each = torch.stack([m.head.predictions(m.head(emb)) for m, emb in pairs])
            tensors = [each.mean(0), *([each.std(0)] if len(pairs) > 1 else ()), *tensors]
        columns = [tensor.cpu().numpy() for tensor in tensors]
        if novelty is not None:
            if first.layer == "last":
                jk = first.embed(batch, precision, "jk")
            else:  # the first columns of the other layers are those of jk
                jk = embeddings[0][:, : first.network.embedding_width("jk")]
            percentiles = novelty.percentiles(novelty.distances(jk.cpu().numpy()))
            columns.append(percentiles.astype(np.float32)[:, None])
    return np.concatenate(columns, axis=1)


def _as_frame_like(
    source: InputLike, values: Float[np.ndarray, "M T"], targets: Sequence[str]
) -> Any:
    """Return predictions as a data frame if ``source`` is one, otherwise unchanged."""
    kind = f"{type(source).__module__.partition('.')[0]}.{type(source).__name__}"
    if kind not in {"pandas.DataFrame", "polars.DataFrame"}:
        return values
    frame: Any = source
    names = distinct([f"predicted_{target}" for target in targets])
    columns = dict(zip(names, values.T, strict=True))
    if kind == "polars.DataFrame":
        return type(frame)(columns)
    return type(frame)(columns, index=frame.index[: len(values)])
