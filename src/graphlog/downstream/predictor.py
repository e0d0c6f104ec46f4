"""A fine-tuned model or a probe: predicts, knows its scores, is saved and loaded.

It is made of encoders with heads, which know the losses that they are trained by.
"""

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
from graphlog.downstream.linear import COUNTS, FARTHEST, LinearModel, features_of, fuse, moments
from graphlog.downstream.metrics import TaskKind
from graphlog.downstream.pretrained import (
    Encoder,
    check_layer,
    each_part,
    evaluating,
    model_path,
    rows_at_once,
)
from graphlog.downstream.report import Report
from graphlog.downstream.uncertainty import Calibration
from graphlog.downstream.writers import Results, Written, choose_format, write_aligned
from graphlog.encoders.encoder import EmbeddingLayer, GraphEncoder, torch_globals
from graphlog.encoders.modelfile import read_model, save_model, tensors_below
from graphlog.encoders.novelty import Novelty
from graphlog.errors import ConfigError, ModelFileError, first_line, out_of_range, setting
from graphlog.inputs import InputLike, Part, rereadable, resolve, rows_of, stream
from graphlog.training.log import Progress, as_progress
from graphlog.training.settings import (
    NumberFormat,
    Precision,
    autocast,
    choose_device,
    inference_precision,
)

KIND = "predictor"
_SMALLEST_SPREAD = 1e-6


class Head(nn.Module):
    """One output per target, linear in the inputs or in a hidden layer of rectified units.

    Regression is learned in units of the labels' spread. Inputs are standardized, but for the
    paper's protocol.
    """

    clip: Tensor
    """Deviations at which standardized inputs are clipped."""
    input_shift: Tensor
    input_scale: Tensor
    target_shift: Tensor
    target_scale: Tensor

    def __init__(
        self, width: int, targets: int, task: TaskKind, hidden: int = 0, dropout: float = 0.0
    ) -> None:
        """Draw the weights as torch does; inputs and targets stay as they are until fitted.

        Where there are ``hidden`` units, ``dropout`` is the share of them and of the inputs that is
        dropped in training.
        """
        super().__init__()
        self.task: TaskKind = task
        self.hidden = nn.Linear(width, hidden) if hidden else None
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(hidden or width, targets)
        # every weight of a checkpoint is finite
        self.register_buffer("clip", torch.tensor(torch.finfo(torch.float32).max))
        self.register_buffer("input_shift", torch.zeros(width))
        self.register_buffer("input_scale", torch.ones(width))
        # labels may be far from 0 beside their spread, so their units are kept in double precision;
        # NaN where nothing could be learned
        self.register_buffer("target_shift", torch.zeros(targets, dtype=torch.float64))
        self.register_buffer("target_scale", torch.ones(targets, dtype=torch.float64))

    def fit_inputs(
        self,
        embeddings: Float[np.ndarray, "M W"],
        least_spread: float | None = None,
        weights: Float[np.ndarray, "M"] | None = None,
    ) -> None:
        """Standardize and clip inputs from now on as these embeddings would be.

        Without a ``least_spread`` constant columns become 0; else columns that vary less than this
        share of the median column are not scaled up further, because in an encoder that is trained
        they would come to rule the output.
        """
        mean, spread = moments(embeddings, weights)
        if least_spread is None:
            varies = spread > _SMALLEST_SPREAD
            scale = np.where(varies, 1.0 / np.maximum(spread, _SMALLEST_SPREAD), 0.0)
        else:
            floor = max(least_spread * float(np.median(spread)), _SMALLEST_SPREAD)
            scale = 1.0 / np.maximum(spread, floor)
        self.clip.fill_(FARTHEST)
        self.input_shift.copy_(torch.from_numpy(mean))
        self.input_scale.copy_(torch.from_numpy(scale))

    @classmethod
    def of_probe(cls, model: LinearModel, task: TaskKind) -> "Head":
        """Return the linear model of a probe as a head, which predicts what the probe does."""
        with torch_globals():  # the initial weights are replaced at once
            head = cls(model.weight.shape[0], model.weight.shape[1], task)
        with torch.no_grad():
            if model.scaling is not None:
                head.clip.fill_(FARTHEST)
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
        """Scale regression targets by the spread of these labels, NaN where missing."""
        if self.task != "regression":
            return
        is_known = np.isfinite(labels).any(axis=0)
        mean, spread = moments(labels[:, is_known].astype(np.float64), weights)
        known = torch.from_numpy(is_known)
        self.target_shift[known] = torch.from_numpy(mean)
        self.target_scale[known] = torch.from_numpy(np.where(spread > 0, spread, 1.0))

    @property
    def digits(self) -> int:
        """Significant digits that tell predictions apart: six of the labels' spread.

        Probabilities that differ are at least 1e-16 apart near 1.
        """
        if self.task != "regression":
            return 16
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
        """Return the mean loss over the labels that are present, in float64; 0 where none is.

        It is divided by their number and not by the sum of their weights, which would shrink a
        batch that holds a heavy label to the size of one that does not.

        Args:
            outputs: Logits, or scaled values.
            labels: In their own units, classes as 0 and 1 or one-hot; NaN where missing.
            weights: Of each label, 1 on the average of all batches; of one-hot rows that of the
                first column counts. None: all alike.
        """
        present, known, outputs = ~labels.isnan(), labels.nan_to_num(0.0).double(), outputs.double()
        weights = torch.ones_like(outputs) if weights is None else weights.double()
        if self.task == "multiclass":
            present, weights = present.all(dim=1), weights[:, 0]
            losses = F.cross_entropy(outputs, known.argmax(dim=1), reduction="none")
        elif self.task == "classification":
            losses = F.binary_cross_entropy_with_logits(outputs, known, reduction="none")
        else:
            losses = (outputs - (known - self.target_shift) / self.target_scale).square()
        return (losses * weights * present).sum() / present.sum().clamp(min=1)

    def predictions(self, outputs: Float[Tensor, "N T"]) -> Float[Tensor, "N T"]:
        """Return probabilities, or values in the labels' units, in float64; NaN as the shift is."""
        outputs = outputs.double()
        if self.task == "classification":
            return outputs.sigmoid() + self.target_shift
        if self.task == "multiclass":
            return outputs.softmax(dim=1)
        return outputs * self.target_scale + self.target_shift

    def predict(self, inputs: Num[np.ndarray, "N W"]) -> Float[np.ndarray, "N T"]:
        """Return the predictions of rows of numbers."""
        with torch.inference_mode():
            return self.predictions(self(torch.from_numpy(inputs).float())).numpy()


class FineTuned(nn.Module):
    """An encoder with a head."""

    def __init__(self, network: GraphEncoder, head: Head, layer: EmbeddingLayer) -> None:
        """Join the two; the head sees the embedding ``layer``."""
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
        """Return what the head sees, or another embedding; the encoder runs in ``precision``."""
        with autocast(precision, batch.x.device):
            return self.network.embed_graphs(batch, layer or self.layer).float()

    def forward(self, batch: GraphBatch, precision: NumberFormat = "fp32") -> Float[Tensor, "N T"]:
        """Return logits, or scaled values, in fp32."""
        return self.head(self.embed(batch, precision))


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """Predictions and how sure they are, row for row; NaN where a row cannot be read."""

    targets: tuple[str, ...]
    """Names of the columns."""
    mean: Float[np.ndarray, "M T"]
    """Means over seeds: probabilities (classification) or values (regression)."""
    std: Float[np.ndarray, "M T"] | None
    """Sample standard deviations over seeds (fine-tuned models), or those that a kernel model of
    numeric targets predicts; None for others."""
    calibrated: Float[np.ndarray, "M T"] | None
    """Calibrated probabilities; None for regression and for predictors without a calibration."""
    low: Float[np.ndarray, "M T"] | None = None
    """Lower ends of the intervals; None where none was asked for."""
    high: Float[np.ndarray, "M T"] | None = None
    """Upper ends of the intervals."""
    novelty: Float[np.ndarray, "M"] | None = None
    """Percentile, 0 to 100, among the graphs of the training set, by distance from them; None for
    predictors that do not know them."""

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the predictions for consecutive rows as one."""
        values: dict[str, Any] = {
            f.name: [getattr(part, f.name) for part in parts] for f in fields(cls)[1:]
        }
        arrays: dict[str, Any] = {
            name: None if own[0] is None else np.concatenate(own) for name, own in values.items()
        }
        return cls(parts[0].targets, **arrays)

    def columns(self) -> dict[str, Float[np.ndarray, "M"]]:
        """Return every column by its name in a file: ``predicted_<target>``, ..``_std``, ...

        ``graphlog_novelty`` comes last. Where a target is called as another's column of spread or
        interval would be, ``y`` and ``y_std`` for example, that column is numbered.
        """
        kinds = {
            "": self.mean,
            "_std": self.std,
            "_calibrated": self.calibrated,
            "_low": self.low,
            "_high": self.high,
        }
        known = {kind: values for kind, values in kinds.items() if values is not None}
        cells = [(kind, t) for kind in known for t in range(len(self.targets))]  # means first
        names = distinct([f"predicted_{self.targets[t]}{kind}" for kind, t in cells])
        by_target = sorted(zip(cells, names, strict=True), key=lambda cell: cell[0][1])
        columns = {name: known[kind][:, t] for (kind, t), name in by_target}
        if self.novelty is None:
            return columns
        return {**columns, "graphlog_novelty": self.novelty.astype(np.float64).round(4)}


class Predictor:
    """The fine-tuned models of all seeds, whose mean is the prediction, or the models of a probe.

    A probe has one member, a frozen encoder with its linear model. Where that was joined by other
    features, its prediction is averaged with those of their linear models. A kernel model sees the
    embedding of the one member and other features together; it predicts instead of the head.
    Fine-tuned models may have such a kernel model of the frozen encoder as a partner.
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
        """Join the models of all seeds, alike in everything but weights."""
        self.members = tuple(members)
        self.targets = tuple(targets)
        """Names of the predicted columns."""
        self.report = report
        """Scores of every selection rule and baseline, mean and deviation over seeds."""
        self.info: dict[str, Any] = dict(info or {})
        """What its file says about it."""
        self.calibration = calibration
        """What intervals and calibrated probabilities are made of."""
        self.novelty = novelty
        """What the training set looks like to the first seed's encoder."""
        self.joined = dict(joined or {})
        """Heads of other features by their names, averaged with the mean of the members."""
        self.kernel = kernel
        """What predicts from the embedding, in place of the head; None: the heads do."""
        self.partner = partner
        """A predictor by a kernel model, averaged with the mean of the members."""
        for member in self.members:
            member.eval()

    @property
    def task(self) -> TaskKind:
        """``classification`` or ``regression``."""
        return self.members[0].head.task

    @property
    def schema(self) -> FeatureSchema:
        """The features it reads."""
        return self.members[0].network.schema

    @property
    def encoder(self) -> Encoder:
        """The fine-tuned encoder of the first seed."""
        return Encoder(self.members[0].network, self.members[0].layer, self.info)

    @property
    def device(self) -> torch.device:
        """Where its parameters are."""
        return self.encoder.device

    @property
    def features(self) -> list[str]:
        """Features beside the embedding that it predicts from."""
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
        for member in self._networks:
            member.to(chosen)
        return self

    @property
    def _networks(self) -> tuple[FineTuned, ...]:
        """What sees graphs: the members, and last the one member of the partner."""
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
            progress: Follows the batches.
            reading: Options of the reader; the column of SMILES is by default that of fine-tuning.
        """
        if "interval" in reading:
            raise ConfigError(
                "`predict` returns means alone; `Predictor.predict_uncertain` takes `interval`.",
                option="interval",
            )
        parts = self._parts(source, batch_size, precision, progress, reading, None)
        found = (
            part.aligned(self._judged(seen, self.features_of(part.store), with_spread=False)[0])
            for part, seen in parts
        )
        mean = np.concatenate([own.astype(np.float64) for own in found])
        return _like(source, mean, self.targets)

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
            progress: Follows the batches.
            reading: Options of the reader; the column of SMILES is by default that of fine-tuning.

        Raises:
            ConfigError: If intervals are asked for that the predictor cannot give.
        """
        self.check_interval(interval)
        parts = self._parts(source, batch_size, precision, progress, reading, self.novelty)
        return Prediction.joined([self._prediction(*part, interval) for part in parts])

    def check_interval(self, interval: float | None) -> None:
        """Refuse a level of intervals that this predictor cannot give; warn of doubtful ones.

        Raises:
            ConfigError: If the level or the task is unfit, or there is no calibration.
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
        names = [name for name, is_one in zip(self.targets, infinite, strict=True) if is_one]
        if names:
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

        After each ``predicted_<target>`` come ``..._std`` (standard deviation: over seeds, or as
        a kernel model predicts it), ``..._calibrated`` (classification) and, with an interval,
        ``..._low`` and ``..._high``. ``graphlog_novelty`` is the percentile of the row among the
        labeled graphs of the training set. A row that cannot be used keeps its columns; its
        predictions are empty and its status says why. The file is written whole or not at all.

        Args:
            source: A path, ``-``, the name of a data set, a store, or a list of SMILES.
            out: The file; its ending decides the format. ``-`` is standard output.
            interval: Regression: level of the intervals, such as 0.9; None gives none.
            batch_size: Graphs per forward pass.
            precision: Format of matrix products.
            progress: Follows the batches.
            format: ``csv``, ``jsonl``, ``parquet``, ``npz``, ``npy`` or ``sdf``; None: by ending.
            reading: Options of the reader; the column of SMILES is by default that of fine-tuning.
        """
        self.check_interval(interval)
        out, given = Path(out), resolve(source, self.schema)
        chosen = choose_format(out, format, given)  # before standard input is copied
        with rereadable(given) as found:
            parts = self._parts(found, batch_size, precision, progress, reading, self.novelty)
            columns = (
                (part, self._prediction(part, seen, interval).columns()) for part, seen in parts
            )
            first = next(columns)
            results = Results(
                (
                    (part, np.stack([*own.values()], axis=1))
                    for part, own in chain([first], columns)
                ),
                [*first[1]],
                "predictions",
                digits=max(member.head.digits for member in self.members),
            )
            about: dict[str, Any] = {"targets": list(self.targets), "task": self.task}
            if classes := self.info.get("classes"):
                likely = [f"{target} = {words['1']}" for target, words in classes.items()]
                about["probability of"] = likely
            return write_aligned(results, found, self.schema, out, chosen, **about)

    def _parts(
        self,
        source: InputLike,
        batch_size: int,
        precision: Precision,
        progress: Progress | bool | None,
        reading: Mapping[str, Any],
        novelty: Novelty | None,
    ) -> Iterator[tuple[Part, Float[np.ndarray, "B K"]]]:
        """Yield the parts of an input and what :func:`_seen` returns of their graphs."""
        found, bar = resolve(source, self.schema), as_progress(progress)
        how = self.encoder.reading_of(found, reading)
        number_format = inference_precision(precision, self.device, bar.say)
        by_kernel = self._widths[1] > 0
        work = partial(_seen, self._networks, by_kernel, number_format, novelty)
        width = sum(self._widths) + (novelty is not None)
        with (
            stream(found, self.schema, rows_at_once(batch_size, self.features), **how) as parts,
            bar.shown(rows_of(found, reading.get("limit")), "predicting"),
        ):
            keyed = ((part, part.store) for part in parts)
            for part, _, seen in each_part(work, keyed, width, batch_size, bar):
                yield part, seen

    @property
    def _widths(self) -> tuple[int, int]:
        """Columns of what :func:`_seen` returns: what heads predict, and what a kernel model sees.

        The second is 0 where there is no kernel model, the first where nothing else predicts.
        """
        of_heads = len(self.targets) * (2 if len(self.members) > 1 else 1)
        of_kernel = self._networks[-1].head.linear.in_features
        if self.kernel is not None:
            return 0, of_kernel
        return of_heads, 0 if self.partner is None else of_kernel

    def _prediction(
        self, part: Part, seen: Float[np.ndarray, "B K"], interval: float | None
    ) -> Prediction:
        """Return what is predicted of every row, by what :func:`_seen` returned of its graphs."""
        columns = sum(self._widths)
        novelty = seen[:, -1].astype(np.float32) if seen.shape[1] > columns else None
        mean, std = self._judged(seen[:, :columns], self.features_of(part.store))
        mean, std = mean.astype(np.float64), None if std is None else std.astype(np.float64)
        calibration, calibrated, low, high = self.calibration, None, None, None
        if calibration is not None and self.task != "regression":
            calibrated = calibration.probabilities(mean)
        elif calibration is not None and interval is not None:
            width = calibration.half_widths(interval)
            low, high = mean - width, mean + width
        values: Any = mean, std, calibrated, low, high, novelty
        aligned: list[Any] = [None if own is None else part.aligned(own) for own in values]
        return Prediction(self.targets, *aligned)

    def _judged(
        self,
        seen: Float[np.ndarray, "B K"],
        features: Sequence[np.ndarray | csr_matrix],
        with_spread: bool = True,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return mean and deviation after what the members say is joined by other features."""
        if self.kernel is not None:
            return self.kernel.predict([seen, *features], with_spread)
        heads, embedding = np.split(seen, [self._widths[0]], axis=1)
        mean = heads[:, : len(self.targets)]
        std = heads[:, len(self.targets) :] if len(self.members) > 1 else None
        if self.partner is not None:
            by_kernel, _ = self.partner._judged(embedding, features, with_spread=False)
            return fuse([mean, by_kernel], self.task), std
        pairs = zip(self.joined.values(), features, strict=True)
        others = [head.predict(np.asarray(values)) for head, values in pairs]
        return fuse([mean, *others], self.task), std

    def features_of(self, store: GraphStore) -> list[np.ndarray | csr_matrix]:
        """Return the features of every graph that predictions need beside the embedding."""
        return [features_of(store, name) for name in self.features]

    def predict_batch(
        self,
        batch: GraphBatch,
        features: Sequence[np.ndarray | csr_matrix],
        precision: NumberFormat = "fp32",
    ) -> Float[np.ndarray, "B T"]:
        """Return the predictions of a batch whose features are known."""
        seen = _seen(self._networks, self._widths[1] > 0, precision, None, batch)
        return self._judged(seen, features, with_spread=False)[0]

    def save(self, path: str | Path) -> None:
        """Write a ``.safetensors`` file."""
        first = self.members[0]
        described, extra = self._written()
        described["report"] = self.report.to_dict()
        info = {**self.info, "kind": KIND, "embedding": first.layer, KIND: described}
        save_model(Path(path), first.network, info, extra)

    def _written(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what a file says of the models, and their tensors but for the first network."""
        first = self.members[0]
        shared = all(other.network is first.network for other in self.members)
        parts = {f"head.{k}": member.head.state_dict() for k, member in enumerate(self.members)}
        for k, member in enumerate(self.members[1:] if not shared else (), 1):
            parts[f"member.{k}"] = member.network.state_dict()
        parts |= {f"joined.{name}": head.state_dict() for name, head in self.joined.items()}
        parts |= {} if self.kernel is None else {"kernel": self.kernel.tensors()}
        described: dict[str, Any] = {
            "targets": list(self.targets),
            "task": self.task,
            "members": len(self.members),
            "shared_encoder": shared,
            **({"joined": [*self.joined]} if self.joined else {}),
            **({"kernel": self.features} if self.kernel is not None else {}),
        }
        if self.partner is not None:
            theirs, parts["partner"] = self.partner._written()
            member = self.partner.members[0]
            parts["partner.network"] = member.network.state_dict()
            described["partner"] = {**theirs, "embedding": member.layer}
        extra = {f"{own}.{name}": t for own, ts in parts.items() for name, t in ts.items()}
        for known in (self.calibration, self.novelty):
            extra |= {} if known is None else known.tensors()
        return described, extra

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu") -> "Predictor":
        """Return the predictor of a run folder or of the file that :meth:`save` wrote.

        Raises:
            ModelFileError: If it holds no predictor, or is damaged.
        """
        file = model_path(path, has_head=True)
        found = read_model(file)
        if found.info.get("kind") != KIND:
            raise ModelFileError(
                f"{path} holds an encoder without a head; train one first: graphlog finetune "
                f"INPUT -m {path} -o RUN, or graphlog probe INPUT -m {path} -o RUN"
            )
        try:
            described, layer = found.info[KIND], found.info["embedding"]
            report = Report.from_dict(described["report"])
            predictor = cls._of(found.encoder, layer, described, found.extra, report)
        except (KeyError, TypeError, ValueError, RuntimeError) as e:
            raise ModelFileError(
                f"{path}: its prediction heads are incomplete or of another version "
                f"({first_line(e)}); get the file, or fit the model, again."
            ) from None
        kept = found.info.keys() - {KIND, "kind", "embedding"}
        predictor.info = {key: value for key, value in found.info.items() if key in kept}
        return predictor.to(device)

    @classmethod
    def _of(
        cls,
        network: GraphEncoder,
        layer: str,
        described: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        report: Report,
    ) -> "Predictor":
        """Return the predictor of what :meth:`_written` returned, and of its first network."""
        task, targets = described["task"], tuple(described["targets"])
        known = domain_of(network.schema).feature_sets
        width = network.embedding_width(check_layer(layer))
        if described["members"] < 1 or task not in get_args(TaskKind):
            raise ValueError(f"{described['members']} members of task {task!r}")

        def head_of(name: str, inputs: int) -> Head:
            own = tensors_below(tensors, f"{name}.")
            hidden = len(own["hidden.bias"]) if "hidden.bias" in own else 0
            with torch_globals():
                head = Head(inputs, len(targets), task, hidden)
            head.load_state_dict(own)
            return head

        def network_of(name: str) -> GraphEncoder:
            other = deepcopy(network)
            other.load_state_dict(tensors_below(tensors, f"{name}."))
            return other

        members: list[FineTuned] = []
        for k in range(described["members"]):
            own = network_of(f"member.{k}") if k and not described["shared_encoder"] else network
            members.append(FineTuned(own, head_of(f"head.{k}", width), check_layer(layer)))
        names = described.get("joined", ())
        joined = {name: head_of(f"joined.{name}", len(known[name])) for name in names}
        kernel, partner = None, None
        if "kernel" in described:
            columns: dict[str, int | None] = {
                "": width,
                **{n: None if n == COUNTS else len(known[n]) for n in described["kernel"]},
            }
            kernel = KernelModel.of(task, columns, tensors_below(tensors, "kernel."), len(targets))
        if theirs := described.get("partner"):
            below, frozen = tensors_below(tensors, "partner."), network_of("partner.network")
            partner = cls._of(frozen, theirs["embedding"], theirs, below, report)
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


def _seen(
    members: Sequence[FineTuned],
    by_kernel: bool,
    precision: NumberFormat,
    novelty: Novelty | None,
    batch: GraphBatch,
) -> Float[np.ndarray, "B K"]:
    """Return what is seen of each graph of a batch, side by side.

    The means of the members and, of several, their deviations; then, if the last of ``members`` is
    there for a kernel model, the embedding that this sees. Last comes the novelty for the first
    member, if that is known.
    """
    first = members[0]
    batch = batch.to(next(first.parameters()).device)
    with torch.inference_mode(), ExitStack() as evaluated:
        for member in members:
            evaluated.enter_context(evaluating(member))
        seen = [member.embed(batch, precision) for member in members]
        values = seen[-1:] if by_kernel else []
        pairs = list(zip(members, seen, strict=True))[: len(members) - by_kernel]
        if pairs:
            each = torch.stack([m.head.predictions(m.head(emb)) for m, emb in pairs])
            values = [each.mean(0), *([each.std(0)] if len(pairs) > 1 else ()), *values]
        columns = [own.cpu().numpy() for own in values]
        if novelty is not None:
            if first.layer == "last":
                jk = first.embed(batch, precision, "jk")
            else:  # whose first columns are those of jk
                jk = seen[0][:, : first.network.embedding_width("jk")]
            percentiles = novelty.percentiles(novelty.distances(jk.cpu().numpy()))
            columns.append(percentiles.astype(np.float32)[:, None])
    return np.concatenate(columns, axis=1)


def _like(source: InputLike, values: Float[np.ndarray, "M T"], targets: Sequence[str]) -> Any:
    """Return predictions as a data frame if ``source`` is one, else as they are."""
    kind = f"{type(source).__module__.partition('.')[0]}.{type(source).__name__}"
    if kind not in {"pandas.DataFrame", "polars.DataFrame"}:
        return values
    frame: Any = source
    names = distinct([f"predicted_{target}" for target in targets])
    columns = dict(zip(names, values.T, strict=True))
    if kind == "polars.DataFrame":
        return type(frame)(columns)
    return type(frame)(columns, index=frame.index[: len(values)])
