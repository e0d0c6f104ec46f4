"""Recipes, overrides and ``config.toml``."""

import tomllib
from pathlib import Path

import pytest

from graphlog.config import parse_override, read_json, read_toml
from graphlog.encoders.encoder import EncoderConfig
from graphlog.errors import ConfigError, DataError
from graphlog.objectives import OBJECTIVES
from graphlog.training.settings import read_config, resolve_config


@pytest.mark.parametrize(
    ("objective", "recipe"), [(o, r) for o, kind in OBJECTIVES.items() for r in kind.RECIPES]
)
def test_every_recipe_survives_its_file(objective: str, recipe: str, tmp_path: Path):
    config = resolve_config(objective, recipe, {"encoder.dim": 48, "seed": 3})
    (tmp_path / "config.toml").write_text(config.to_toml())
    assert read_config(tmp_path / "config.toml") == config
    assert config.encoder.dim == 48
    assert config.seed == 3
    kind = OBJECTIVES[objective]
    assert kind.Config.parse(config.options).model_dump(mode="json", exclude_none=True) == (
        config.options
    )
    assert set(kind.RECIPE_NOTES) <= set(kind.RECIPES)


def test_a_layer_has_its_own_settings_alone():
    with pytest.raises(ConfigError, match=r"encoder\.heads"):
        resolve_config(overrides={"encoder": {"backbone": "gcn", "heads": 2}})
    attention = resolve_config(overrides={"encoder.backbone": "gat", "encoder.layer.heads": 3})
    assert attention.to_tables()["encoder"]["layer"] == {"heads": 3}
    assert "substructure_at" in resolve_config("contextpred").to_toml()


def test_overrides_beat_the_recipe_and_flags_beat_the_file():
    file = tomllib.loads(resolve_config("graphlog", "paper", {"epochs": 2}).to_toml())
    config = resolve_config(
        "graphlog", None, {**file, "training": {**file["training"], "epochs": 5}}
    )
    assert (config.recipe, config.epochs, config.options["local_form"]) == ("paper", 5, "margin")


def test_nested_dotted_and_loose_keys_mean_the_same():
    nested = resolve_config(overrides={"objective": {"depth": 2}, "training": {"batch_size": 64}})
    dotted = resolve_config(overrides={"objective.depth": 2, "training.batch_size": 64})
    loose = resolve_config(
        overrides={"objective": {"name": "graphlog", "depth": 2}, "batch_size": 64}
    )
    assert nested == dotted == loose != resolve_config()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"objective": "graphlogg"}, "did you mean 'graphlog'"),
        ({"recipe": "papr"}, "did you mean 'paper'"),
        ({"epoch": 3}, "did you mean 'epochs'"),
        ({"backbone": "gin"}, "did you mean 'encoder.backbone'"),
        ({"encoder.dims": 3}, "did you mean `encoder.dim`"),
        ({"objective.dept": 3}, "did you mean `objective.depth`"),
        ({"training.learning_rat": 3}, "did you mean 'learning_rate'"),
        ({"training": {"training": {}}}, "`training` is no setting of `training`"),
        ({"training": {"recipe": "paper"}}, "`recipe` is no setting of `training`"),
        ({"epochs": 0}, "`epochs`.*found 0"),
        ({"epochs": True}, "`epochs`: must be a number, found True"),
        ({"objective.depth": True}, "`objective.depth`: must be a number"),
        ({"targets_from": False}, "`targets_from` .*found False"),
        ({"learning_rate": "fast"}, "`learning_rate`.*found 'fast'"),
        ({"learning_rate": float("nan")}, "`learning_rate`"),
        ({"embedding": "first"}, "`embedding`.*found 'first'"),
        ({"encoder": 3}, "`encoder` must be a table"),
        ({"encoder.backbone": "ginn"}, "did you mean 'gin'"),
        ({"batch_size": 1}, "`batch_size`"),
        *(
            ({f"objective.{name}": value}, f"`objective.{name}` must be .* 1e")
            for name in ("temperature", "e_step_temperature", "prototype_temperature")
            for value in (1e-40, 1e30)
        ),
        ({"objective.kmeans_sample": 1}, "`objective.kmeans_sample.*found 1"),
        ({"objective": {"name": ["graphlog"]}}, "unknown objective"),
        ({"recipe": ["paper"]}, "unknown recipe"),
        ({"encoder": {"backbone": ["gin"]}}, "backbone"),
    ],
)
def test_what_cannot_be_understood_is_named(overrides: dict[str, object], message: str):
    with pytest.raises(ConfigError, match=message):
        resolve_config(overrides=overrides)


def test_numbers_of_thousands_of_digits_and_devices_are_refused_in_one_line(tmp_path: Path):
    digits = "9" * 5000
    (tmp_path / "a.toml").write_text(f"epochs = {digits}")
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    for name in ("a.toml", "zero.toml"):
        with pytest.raises(ConfigError):
            read_toml(tmp_path / name)
    for text in (f"training.epochs={digits}", "a=" + "[" * 100_000):
        with pytest.raises(ConfigError):
            parse_override(text)
    with pytest.raises(DataError, match="it is not a file"):
        read_json(tmp_path / "zero.toml")


def test_an_encoder_as_an_object():
    shape = EncoderConfig(dim=8, backbone="gat")
    assert resolve_config(overrides={"encoder": shape}).encoder == shape
