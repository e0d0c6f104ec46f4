"""The one training loop: any objective, any encoder, resumable to the bit."""

from graphlog.training.config import PretrainConfig, read_config, resolve_config
from graphlog.training.log import Progress, make_progress, read_metrics
from graphlog.training.pretrain import PretrainResult, run_pretraining
from graphlog.training.trainer import TrainingInterrupted

__all__ = [
    "PretrainConfig",
    "PretrainResult",
    "Progress",
    "TrainingInterrupted",
    "make_progress",
    "read_config",
    "read_metrics",
    "resolve_config",
    "run_pretraining",
]
