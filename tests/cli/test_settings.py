"""Options become settings; contradictions are named."""

from pathlib import Path

import pytest

from graphlog.cli.options import chosen_settings, pretraining_settings
from graphlog.errors import ConfigError
from graphlog.training.config import resolve_config


def test_options_and_pairs_become_one_set_of_settings():
    assert chosen_settings({"epochs": 3, "seed": None}, ["dropout=0.2", "epochs=3"]) == {
        "epochs": 3,
        "dropout": 0.2,
    }


def test_options_lie_over_the_file_and_the_file_over_what_is_beneath(tmp_path: Path):
    file = tmp_path / "run.toml"
    file.write_text(
        'recipe = "default"\n[objective]\nname = "graphlog"\ndepth = 2\n'
        "[encoder]\ndim = 64\n[training]\nepochs = 9\n"
    )
    settings = pretraining_settings(
        file,
        {"epochs": 4, "objective": "graphlog"},
        ["objective.depth=5"],
        {"encoder": {"dim": 8, "layers": 3}},
    )
    config = resolve_config(overrides=settings)
    assert (config.encoder.dim, config.encoder.layers) == (64, 3)
    assert config.epochs == 4
    assert (config.objective, config.options["depth"]) == ("graphlog", 5)


@pytest.mark.parametrize("pair", ["epochs=3", "training.epochs=3"])
def test_a_short_and_a_full_name_are_the_same_setting(pair: str):
    with pytest.raises(ConfigError, match=r"training\.epochs.*twice"):
        pretraining_settings(None, {"epochs": 2}, [pair])
