"""Settings of fine-tuning; the defaults are the paper's protocol."""

from typing import Literal

from pydantic import Field

from graphlog.config import FrozenConfig
from graphlog.downstream.proteins.readout import ReadoutChoice
from graphlog.training.precision import Precision

Select = Literal["last", "best-valid"]
Schedule = Literal["step", "released", "constant"]


class FinetuneConfig(FrozenConfig):
    """How an encoder and a linear head are trained on labels."""

    epochs: int = Field(default=100, ge=1)
    """Passes over the training fold."""
    batch_size: int = Field(default=32, ge=1)
    """Graphs a step."""
    learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    """First step size of Adam, the same for encoder and head."""
    schedule: Schedule = "step"
    """``step`` decays after every ``decay_every`` epochs; ``released`` one epoch earlier, as the authors' script; ``constant`` never."""
    decay: float = Field(default=0.3, gt=0, le=1)
    """What the step size is multiplied by."""
    decay_every: int = Field(default=30, ge=1)
    """Epochs between two decays."""
    dropout: float = Field(default=0.5, ge=0, lt=1)
    """Share of each layer's outputs dropped while training, the last layer's included."""
    layer: Literal["jk", "last"] | None = None
    """Embedding the head sees; None takes the encoder's own (``last`` is the paper's)."""
    readout: ReadoutChoice = "auto"
    """``auto``: of proteins, the centre's embedding beside the mean of the ego-network; ``encoder``: as it was trained."""
    freeze: bool = False
    """Train the head alone, on embeddings computed once and standardised over the training fold."""
    select: Select = "last"
    """Whose weights predict: those of the last epoch, or of the epoch with the best validation score. Both are reported."""
    last_k: int = Field(default=5, ge=1)
    """Epochs at the end whose mean score is reported too, since a single epoch's swings."""
    precision: Precision = "fp32"
    """Format of the encoder's matrix products; ``auto`` is bf16 where the hardware computes in it."""
    device: str = "auto"
    """``auto``, ``cpu`` or ``cuda``."""
    checkpoint_every_s: float = Field(default=30.0, ge=0)
    """Least seconds between two checkpoints of a run folder."""

    def learning_rate_at(self, epoch: int) -> float:
        """Return the step size in force during ``epoch``, counted from 1.

        Example:
            >>> config = FinetuneConfig(schedule="released")
            >>> config.learning_rate_at(29), round(config.learning_rate_at(30), 6)
            (0.001, 0.0003)
        """
        if self.schedule == "constant":
            return self.learning_rate
        passed = epoch if self.schedule == "released" else epoch - 1
        return self.learning_rate * self.decay ** (passed // self.decay_every)
