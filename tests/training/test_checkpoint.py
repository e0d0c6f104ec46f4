"""Damaged checkpoints, and resuming with what does not belong to the run."""

import json
from pathlib import Path
from shutil import rmtree

import pytest
import torch
from safetensors import safe_open

from graphlog.encoders.modelfile import read_model, save_model
from graphlog.errors import ConfigError, ModelFileError
from graphlog.training.log import Silent
from graphlog.training.pretrain import run_pretraining
from graphlog.training.runfolder import Checkpoint, load_checkpoint, save_checkpoint
from training_support import families, outcome, small_config


class Heard(Silent):
    """Keeps every line that was said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def checkpoint(step: int) -> Checkpoint:
    return Checkpoint(step, {"model.w": torch.full((3,), float(step))}, {"cursor": {"step": step}})


def test_two_are_kept_and_the_newest_is_read(tmp_path: Path) -> None:
    root = tmp_path / "checkpoint"
    for step in (1, 9, 10, 100):
        save_checkpoint(root, checkpoint(step))
    assert sorted(p.name for p in root.iterdir()) == ["step-000000010", "step-000000100"]
    found = load_checkpoint(root, print)
    assert found is not None
    assert found.step == 100
    assert torch.equal(found.tensors["model.w"], torch.full((3,), 100.0))


def test_other_entries_beside_checkpoints_are_passed_over(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, checkpoint(3))
    for name in ("step-²", "step-99", "step-0000000x9", "step-000000009.pt"):
        (tmp_path / name).mkdir()
    found = load_checkpoint(tmp_path, print)
    assert found is not None
    assert found.step == 3
    save_checkpoint(tmp_path, checkpoint(4))
    save_checkpoint(tmp_path, checkpoint(5))
    assert len(list(tmp_path.iterdir())) == 6


def test_a_manifest_nested_too_deeply_is_damaged(tmp_path: Path) -> None:
    manifest = save_checkpoint(tmp_path, checkpoint(1)) / "manifest.json"
    manifest.write_text("[" * 200_000)
    with pytest.raises(ModelFileError, match="cannot be read"):
        load_checkpoint(tmp_path, print)


@pytest.mark.parametrize("file", ["state.safetensors", "manifest.json"])
@pytest.mark.parametrize("damage", ["cut", "flip", "remove", "empty"])
def test_a_damaged_one_is_passed_over(file: str, damage: str, tmp_path: Path) -> None:
    root, said = tmp_path / "checkpoint", Heard()
    save_checkpoint(root, checkpoint(1))
    target = save_checkpoint(root, checkpoint(2)) / file
    content = target.read_bytes()
    if damage == "remove":
        target.unlink()
    else:
        half = len(content) // 2
        flipped = content[:half] + bytes([content[half] ^ 0xFF]) + content[half + 1 :]
        target.write_bytes({"cut": content[:half], "flip": flipped, "empty": b""}[damage])
    found = load_checkpoint(root, said.say)
    assert found is not None
    assert found.step == 1
    assert "going back to the checkpoint of step 1" in said.lines[0]
    rmtree(root / "step-000000001")
    with pytest.raises(ModelFileError, match="no older checkpoint is whole") as caught:
        load_checkpoint(root, said.say)
    assert "\n" not in str(caught.value)


def test_a_foreign_or_newer_one_is_named(tmp_path: Path) -> None:
    manifest = save_checkpoint(tmp_path, checkpoint(1)) / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"version": 1', '"version": 9'))
    with pytest.raises(ModelFileError, match="written by a newer graphlog"):
        load_checkpoint(tmp_path, print)
    manifest.write_text("[]")
    with pytest.raises(ModelFileError, match="not written by graphlog"):
        load_checkpoint(tmp_path, print)


def test_a_run_goes_back_to_the_older_checkpoint_and_ends_alike(tmp_path: Path) -> None:
    store, run, said = families(96), tmp_path / "run", Heard()
    config = small_config(checkpoint_every_s=0.0)
    run_pretraining(store, config, run)
    whole = outcome(run)
    (run / "model.safetensors").unlink()
    newest = max((run / "checkpoint").glob("step-*")) / "state.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    run_pretraining(store, config, run, resume=True, progress=said)
    assert outcome(run) == whole
    assert any("going back" in line for line in said.lines)


def test_a_finished_run_of_another_version_is_left_alone(tmp_path: Path) -> None:
    store, config = families(64), small_config(epochs=2)
    run_pretraining(store, config, tmp_path / "run")
    model = read_model(tmp_path / "run" / "model.safetensors")
    save_model(
        tmp_path / "run" / "model.safetensors",
        model.encoder,
        model.info,
        {**model.extra, "scale": torch.ones(1)},
    )
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    with pytest.raises(
        ModelFileError, match=r"of another version of graphlog \(.*; use it as it is"
    ):
        run_pretraining(store, None, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before


def test_a_finished_run_is_returned_as_it_is(tmp_path: Path) -> None:
    store, config, said = families(64), small_config(epochs=2), Heard()
    first = run_pretraining(store, config, tmp_path / "run")
    again = run_pretraining(store, None, tmp_path / "run", resume=True, progress=said)
    assert "complete already" in said.lines[-1]
    for name, value in first.encoder.state_dict().items():
        assert torch.equal(value, again.encoder.state_dict()[name]), name
    for name, value in first.objective.state_dict().items():
        assert torch.equal(value, again.objective.state_dict()[name]), name
    assert again.info == first.info
    assert again.info["embedding"] == config.embedding


def test_a_damaged_model_is_written_again(tmp_path: Path) -> None:
    store, config, run = families(64), small_config(epochs=2), tmp_path / "run"
    run_pretraining(store, config, run)
    before = outcome(run)
    model = run / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-7])
    run_pretraining(store, config, run, resume=True)
    assert outcome(run) == before


def test_other_settings_or_data_are_refused_by_name(tmp_path: Path) -> None:
    store, run = families(64), tmp_path / "run"
    run_pretraining(store, small_config(epochs=2), run)
    for done in (True, False):
        with pytest.raises(ConfigError, match=r"encoder.dim = 16, now 8"):
            run_pretraining(store, small_config(epochs=2, **{"encoder.dim": 8}), run, resume=True)
        with pytest.raises(ConfigError, match=r"objective.temperature = 0.1, now 0.2"):
            run_pretraining(
                store, small_config(epochs=2, **{"objective.temperature": 0.2}), run, resume=True
            )
        with pytest.raises(ConfigError, match="data digest"):
            run_pretraining(families(64, seed=1), small_config(epochs=2), run, resume=True)
        if done:
            (run / "model.safetensors").unlink()
    run_pretraining(store, small_config(epochs=2, checkpoint_every_s=5.0), run, resume=True)


def test_the_model_holds_the_prototypes(tmp_path: Path) -> None:
    result = run_pretraining(families(96), small_config(), tmp_path / "run")
    with safe_open(tmp_path / "run" / "model.safetensors", "pt") as file:
        names = set(file.keys())
    assert {f"objective.{name}" for name in result.objective.state_dict()} <= names
    assert any("prototypes" in name for name in names)


@pytest.mark.parametrize("older", [0, 1])
def test_one_of_a_newer_format_is_neither_passed_over_nor_called_damaged(
    older: int, tmp_path: Path
) -> None:
    root = tmp_path / "checkpoint"
    for step in range(older):
        save_checkpoint(root, checkpoint(step))
    manifest = save_checkpoint(root, checkpoint(2)) / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "version": 99}))
    with pytest.raises(ModelFileError, match=r"newer graphlog .* upgrade graphlog-torch") as caught:
        load_checkpoint(root, print)
    assert "overwrite" not in str(caught.value)


@pytest.mark.parametrize("lacking", ["version", "checksum", "sha256", "fields", "step"])
def test_a_manifest_that_lacks_a_field_is_damage(lacking: str, tmp_path: Path) -> None:
    root = tmp_path / "checkpoint"
    manifest = save_checkpoint(root, checkpoint(2)) / "manifest.json"
    fields = json.loads(manifest.read_text())
    del fields[lacking]
    manifest.write_text(json.dumps(fields))
    with pytest.raises(
        ModelFileError, match=r"(malformed|damaged) .* start again with `overwrite=True`"
    ):
        load_checkpoint(root, print)


@pytest.mark.parametrize("digit", range(1, 10))
def test_one_changed_digit_of_the_manifest_is_damage(digit: int, tmp_path: Path) -> None:
    manifest = save_checkpoint(tmp_path, checkpoint(0)) / "manifest.json"
    changed = manifest.read_text().replace('"step": 0', f'"step": {digit}')
    manifest.write_text(changed)
    with pytest.raises(ModelFileError, match="its manifest was changed"):
        load_checkpoint(tmp_path, print)
