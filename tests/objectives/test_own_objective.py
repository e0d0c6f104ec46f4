"""A pretext task of one's own: training, settings and the command line know it by its name."""

from pathlib import Path

import pytest
import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from cli_support import run_command
from graphlog.config import FrozenConfig
from graphlog.data.batch import GraphBatch
from graphlog.data.store import GraphStore
from graphlog.encoders.encoder import GraphEncoder
from graphlog.errors import ConfigError
from graphlog.objectives import OBJECTIVES
from graphlog.objectives.base import LossTerms, Objective
from graphlog.training.log import read_metrics
from graphlog.training.pretrain import run_pretraining
from graphlog.training.settings import read_config, resolve_config

TINY = {
    "encoder.dim": 16,
    "encoder.layers": 2,
    "epochs": 12,
    "batch_size": 16,
    "precision": "fp32",
    "device": "cpu",
    "learning_rate": 0.01,
}


class DegreePredConfig(FrozenConfig):
    """Switches of DegreePred."""

    most: int = Field(4, ge=1)
    """Larger degrees count as this one."""


class DegreePred(Objective[GraphBatch]):
    """Cross-entropy of a linear map of node embeddings."""

    Config = DegreePredConfig

    def __init__(self, config: DegreePredConfig, encoder: GraphEncoder) -> None:
        super().__init__(config, encoder)
        self.head, self.most = nn.Linear(encoder.dim, config.most + 1), config.most

    def loss(
        self, views: GraphBatch, encoder: GraphEncoder, generator: torch.Generator
    ) -> LossTerms:
        """Return the mean over nodes."""
        degree = views.adjacency.in_degree.clamp(max=self.most)
        loss = F.cross_entropy(self.head(encoder(views).node_emb).float(), degree)
        return LossTerms(loss, {"degree": loss})


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OBJECTIVES, "degree-pred", DegreePred)  # the one line


def test_it_trains_and_comes_back(tiny_store: GraphStore, tmp_path: Path) -> None:
    config = resolve_config("degree-pred", None, {**TINY, "objective.most": 3})
    result = run_pretraining(tiny_store, config, tmp_path / "run")
    assert isinstance(result.objective, DegreePred)
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert "loss_degree" in rows[0]
    assert rows[-1]["loss"] < 0.5 * rows[0]["loss"]
    assert read_config(tmp_path / "run" / "config.toml") == config


def test_its_switches_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"objective\.mots.*did you mean `objective\.most`"):
        resolve_config("degree-pred", None, {"objective.mots": 3})
    with pytest.raises(ConfigError, match="did you mean 'degree-pred'"):
        resolve_config("degre-pred")


def test_the_command_line_offers_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cli = run_command(capfd)
    (tmp_path / "m.smi").write_text("\n".join(["CCO", "CCN", "c1ccccc1", "CC(=O)O"] * 4))
    words = ["pretrain", tmp_path / "m.smi", "--epochs", "1", "--set", "encoder.dim=8", "-o"]
    assert cli(*words, tmp_path / "run", "--objective", "degree-pred").code == 0
    assert "degree-pred" in (tmp_path / "run" / "config.toml").read_text()
    cli(*words, tmp_path / "other", "--objective", "nonsense").refused("degree-pred")
