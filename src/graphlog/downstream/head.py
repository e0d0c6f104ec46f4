"""The head that predicts labels, its losses over known labels, and encoder and head together."""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from graphlog.data.batch import GraphBatch
from graphlog.downstream.linear import FARTHEST, LinearFit, Scaling
from graphlog.downstream.metrics import TaskKind
from graphlog.encoders.encoder import EmbeddingLayer, GraphEncoder
from graphlog.training.setting import NumberFormat, autocast

_SMALLEST_SPREAD = 1e-6


class Head(nn.Module):
    """One output per target, linear in the inputs or in a hidden layer of rectified units.

    Regression is learned in units of the labels' spread. Inputs are standardized, but for the
    paper's protocol.
    """

    clip: float = math.inf
    """Deviations at which standardized inputs are clipped."""

    input_shift: Tensor
    input_scale: Tensor
    target_shift: Tensor
    target_scale: Tensor

    def __init__(
        self, width: int, targets: int, task: TaskKind, hidden: int = 0, dropout: float = 0.0
    ) -> None:
        """Draw the weights as torch does; inputs and targets stay as they are until fitted.

        Args:
            width: Columns of the embedding.
            targets: Outputs.
            task: Kind of task.
            hidden: Units of the hidden layer; 0: none.
            dropout: Share of the inputs and of the hidden units dropped in training, where there is
                a hidden layer.
        """
        super().__init__()
        self.task: TaskKind = task
        self.hidden = nn.Linear(width, hidden) if hidden else None
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(hidden or width, targets)
        self.register_buffer("input_shift", torch.zeros(width))
        self.register_buffer("input_scale", torch.ones(width))
        # labels may be far from 0 beside their spread, so their units are kept in double precision
        self.register_buffer("target_shift", torch.zeros(targets, dtype=torch.float64))
        self.register_buffer("target_scale", torch.ones(targets, dtype=torch.float64))

    def fit_inputs(
        self, embeddings: Float[np.ndarray, "M W"], least_spread: float | None = None
    ) -> None:
        """Standardize and clip inputs from now on as these embeddings would be.

        Args:
            embeddings: Of the training fold.
            least_spread: None sets constant columns to 0; else columns that vary less than this
                share of the median column are not scaled up further, because in an encoder that is
                trained they would come to rule the output.
        """
        spread = embeddings.std(axis=0, dtype=np.float64)
        if least_spread is None:
            varies = spread > _SMALLEST_SPREAD
            scale = np.where(varies, 1.0 / np.maximum(spread, _SMALLEST_SPREAD), 0.0)
        else:
            floor = max(least_spread * float(np.median(spread)), _SMALLEST_SPREAD)
            scale = 1.0 / np.maximum(spread, floor)
        self.clip = FARTHEST
        self.input_shift.copy_(torch.from_numpy(embeddings.mean(axis=0, dtype=np.float64)))
        self.input_scale.copy_(torch.from_numpy(scale))

    @classmethod
    def of_probe(cls, fit: LinearFit, scaling: Scaling | None, task: TaskKind) -> "Head":
        """Return the linear model of a probe as a head, which predicts what the probe does."""
        with torch.random.fork_rng(devices=[]):  # the initial weights are replaced at once
            head = cls(fit.weight.shape[0], fit.weight.shape[1], task)
        with torch.no_grad():
            if scaling is not None:
                head.clip = FARTHEST
                head.input_shift.copy_(torch.from_numpy(scaling.mean))
                head.input_scale.copy_(torch.from_numpy(1 / scaling.deviation))
            weight, bias = torch.from_numpy(fit.weight.T), torch.from_numpy(fit.bias)
            if task == "regression":
                head.target_shift.copy_(bias)
                head.target_scale.copy_(weight.norm(dim=1).double())
                head.target_scale[head.target_scale == 0] = 1.0
                weight, bias = weight / head.target_scale[:, None], torch.zeros_like(bias)
            head.linear.weight.copy_(weight)
            head.linear.bias.copy_(bias)
        return head

    def fit_targets(self, labels: Float[np.ndarray, "M T"]) -> None:
        """Scale regression targets by the spread of these labels, NaN where missing."""
        if self.task != "regression":
            return
        for t, column in enumerate(labels.T):
            y = column[~np.isnan(column)].astype(np.float64)
            if len(y):
                self.target_shift[t] = float(y.mean())
                self.target_scale[t] = float(y.std()) if y.std() > 0 else 1.0

    @property
    def digits(self) -> int:
        """Significant digits that tell predictions apart: six of the labels' spread."""
        magnitude = (self.target_shift.abs() / self.target_scale).nan_to_num(0.0).max()
        return min(17, 6 + max(0, math.ceil(math.log10(max(float(magnitude), 1.0)))))

    def forward(self, embeddings: Float[Tensor, "N W"]) -> Float[Tensor, "N T"]:
        """Return logits, or scaled values."""
        inputs = (embeddings - self.input_shift) * self.input_scale
        if not math.isinf(self.clip):
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

        Args:
            outputs: Logits, or scaled values.
            labels: In their own units, classes as 0 and 1 or one-hot; NaN where missing.
            weights: A weight of 2 counts as the label given twice; of one-hot rows that of the
                first column counts. None: all alike.
        """
        present, known, outputs = ~labels.isnan(), labels.nan_to_num(0.0).double(), outputs.double()
        if self.task == "multiclass":
            present, weights = present.all(dim=1), None if weights is None else weights[:, 0]
            losses = F.cross_entropy(outputs, known.argmax(dim=1), reduction="none")
        elif self.task == "classification":
            losses = F.binary_cross_entropy_with_logits(outputs, known, reduction="none")
        else:
            losses = (outputs - (known - self.target_shift) / self.target_scale).square()
        if weights is None:
            return (losses * present).sum() / present.sum().clamp(min=1)
        counted = weights.double() * present
        total = counted.sum()
        return (losses * counted).sum() / torch.where(total > 0, total, 1.0)

    def predictions(self, outputs: Float[Tensor, "N T"]) -> Float[Tensor, "N T"]:
        """Return probabilities, or values in the labels' units."""
        if self.task == "classification":
            return outputs.sigmoid()
        if self.task == "multiclass":
            return outputs.softmax(dim=1)
        return outputs.double() * self.target_scale + self.target_shift


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
