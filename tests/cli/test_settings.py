"""Options become settings; contradictions are named."""

from pathlib import Path

import pytest

import graphlog
from cli_support import Cli
from graphlog.cli.options import chosen_settings
from graphlog.errors import ConfigError
from graphlog.training.settings import read_config


def chosen(named: dict[str, object], *pairs: str) -> dict[str, object]:
    return chosen_settings(graphlog.pretrain, named, pairs)


def test_options_and_pairs_become_one_set_of_settings():
    found = chosen({"epochs": 3, "seed": None}, "encoder.dim=8", "epochs=3")
    assert found == {"epochs": 3, "encoder.dim": 8}


def test_options_lie_over_the_file_and_the_file_over_what_is_beneath(
    cli: Cli, store: Path, pretrained: Path, tmp_path: Path
):
    file = tmp_path / "run.toml"
    file.write_text(
        'recipe = "default"\n[objective]\nname = "graphlog"\ndepth = 2\n'
        '[encoder]\nsharing = "off"\n[training]\nepochs = 9\nbatch_size = 16\n'
    )
    words = f"pretrain {store} -o {tmp_path}/r --init {pretrained} --config {file} --quiet"
    assert cli(words, "--epochs 1 --objective graphlog --set objective.depth=1").code == 0
    config = read_config(tmp_path / "r" / "config.toml")
    assert (config.encoder.dim, config.encoder.sharing) == (16, "off")
    assert (config.epochs, config.batch_size) == (1, 16)
    assert (config.objective, config.options["depth"]) == ("graphlog", 1)


@pytest.mark.parametrize("pair", ["epochs=3", "training.epochs=3"])
def test_a_short_and_a_full_name_are_the_same_setting(pair: str):
    with pytest.raises(ConfigError, match=r"epochs is set twice"):
        chosen({"epochs": 2}, pair)


@pytest.mark.parametrize("verb", ["pretrain", "finetune", "tune"])
def test_what_is_no_setting_cannot_be_set(cli: Cli, store: Path, tmp_path: Path, verb: str):
    model = "" if verb == "pretrain" else "-m random"
    cli(f"{verb} {store} {model} -o {tmp_path}/r --set resume=true").refused("is not a setting")
