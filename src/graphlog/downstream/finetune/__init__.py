"""Fine-tuning: encoder and linear head trained on labels, over several seeds, with every score that matters."""

from graphlog.downstream.finetune.config import FinetuneConfig

__all__ = ["FinetuneConfig"]
