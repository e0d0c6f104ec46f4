"""Damaged checkpoints, and resuming with what does not belong to the run."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from graphlog.encoders.modelfile import KEY, read_model, save_model, write_tensors
from graphlog.errors import ConfigError, ModelFileError
from graphlog.training.pretrain import run_pretraining
from graphlog.training.runfolder import Checkpoint, discard_after, load_checkpoint, save_checkpoint
from training_support import Heard, families, finished, outcome, small_config


def checkpoint(step: int) -> Checkpoint:
    return Checkpoint(step, {"model.w": torch.full((3,), float(step))}, {"cursor": {"step": step}})


def newest(root: Path, say: Callable[[str], None] = print) -> int | None:
    found = load_checkpoint(root, say)
    if found is not None:
        assert torch.equal(found.tensors["model.w"], torch.full((3,), float(found.step)))
    return found and found.step


def test_two_are_kept_and_the_newest_is_read_whatever_lies_beside(tmp_path: Path):
    for name in ("step-²", "step-99", "step-0000000x9", "step-000000009.safetensors"):
        (tmp_path / name).mkdir()
    for step in (1, 10, 11, 100):
        save_checkpoint(tmp_path, checkpoint(step))
        (tmp_path / f"step-000000009.safetensors.{step:016x}.partial").touch()
        assert newest(tmp_path) == step
    discard_after(tmp_path, 11)
    assert newest(tmp_path) == 11
    assert len(list(tmp_path.iterdir())) == 5


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[: len(content) // 2],
    "flip": lambda content: content[:-1] + bytes([content[-1] ^ 0xFF]),
    "empty": lambda content: b"",
    "other step": lambda content: content.replace(rb"\"step\": 2", rb"\"step\": 7"),
    "nested": lambda content: save({}, metadata={KEY: "[" * 200_000}),
    "foreign": lambda content: content.replace(b"graphlog-checkpoint", b"graphlog-checkpoin_"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_one_is_passed_over(damage: str, tmp_path: Path):
    said = Heard()
    older, target = (save_checkpoint(tmp_path, checkpoint(step)) for step in (1, 2))
    content = DAMAGES[damage](target.read_bytes())
    assert content != target.read_bytes()
    target.write_bytes(content)
    assert newest(tmp_path, said.say) == 1
    assert "Going back to the checkpoint of step 1" in said.lines[0]
    older.unlink()
    with pytest.raises(ModelFileError, match="No older checkpoint is whole; start again"):
        load_checkpoint(tmp_path, said.say)


@pytest.mark.parametrize("lacking", ["step", "fields"])
def test_one_that_lacks_a_field_is_damaged(lacking: str, tmp_path: Path):
    about = {"step": 2, "fields": {}}
    del about[lacking]
    write_tensors(tmp_path / "step-000000002.safetensors", "checkpoint", about, {})
    with pytest.raises(ModelFileError, match=f"lacks '{lacking}'"):
        load_checkpoint(tmp_path, print)


@pytest.mark.parametrize("older", [0, 1])
def test_one_of_a_newer_format_is_neither_passed_over_nor_called_damaged(
    older: int, tmp_path: Path
):
    for step in range(older + 1):
        path = save_checkpoint(tmp_path, checkpoint(step))
    path.write_bytes(path.read_bytes().replace(rb"\"version\": 1", rb"\"version\": 9"))
    with pytest.raises(ModelFileError, match=r"newer graphlog .* upgrade graphlog-torch") as caught:
        load_checkpoint(tmp_path, print)
    assert "overwrite" not in str(caught.value)


def test_a_run_goes_back_to_the_older_checkpoint_and_ends_alike(tmp_path: Path):
    store, run, said = families(64), finished(tmp_path / "run"), Heard()
    whole = outcome(run)
    (run / "model.safetensors").unlink()
    last = max((run / "checkpoint").glob("step-*"))
    last.write_bytes(last.read_bytes()[:-1])
    run_pretraining(store, small_config(epochs=2), run, resume=True, progress=said)
    assert outcome(run) == whole
    assert any("Going back" in line for line in said.lines)


def test_an_average_of_an_unknown_weight_is_of_another_version(tmp_path: Path):
    store, run = families(64), tmp_path / "run"
    config = small_config(epochs=2, average=0.9)
    run_pretraining(store, config, run)
    (run / "model.safetensors").unlink()
    found = load_checkpoint(run / "checkpoint", print)
    tensors = {**found.tensors, "average.model.foo": torch.ones(1)}
    save_checkpoint(run / "checkpoint", replace(found, step=found.step + 1, tensors=tensors))
    with pytest.raises(ModelFileError, match=r"does not fit this version .*'model.foo'"):
        run_pretraining(store, config, run, resume=True)


def test_a_finished_run_of_another_version_is_left_alone(tmp_path: Path):
    run = finished(tmp_path / "run")
    path = run / "model.safetensors"
    model = read_model(path)
    save_model(path, model.encoder, model.info, {**model.extra, "scale": torch.ones(1)})
    before = path.read_bytes()
    told = r"of another version of graphlog \(.*; use it as it is"
    with pytest.raises(ModelFileError, match=told):
        run_pretraining(families(64), small_config(epochs=2), run, resume=True)
    assert path.read_bytes() == before


def test_a_model_of_another_kind_in_a_run_is_refused(tmp_path: Path):
    run = finished(tmp_path / "run")
    path = run / "model.safetensors"
    model = read_model(path)
    save_model(path, model.encoder, {"finetuned_on": "esol"}, model.extra)
    with pytest.raises(ModelFileError, match="is not the model of a pre-training run"):
        run_pretraining(families(64), small_config(epochs=2), run, resume=True)


def test_a_finished_run_is_returned_as_it_is(tmp_path: Path):
    store, config, said = families(64), small_config(epochs=2), Heard()
    first = run_pretraining(store, config, tmp_path / "run")
    again = run_pretraining(store, config, tmp_path / "run", resume=True, progress=said)
    assert "complete already" in said.lines[-1]
    for name, value in first.encoder.state_dict().items():
        assert torch.equal(value, again.encoder.state_dict()[name]), name
    assert any("prototypes" in name for name in first.extra)
    for name, value in first.extra.items():
        assert torch.equal(value, again.extra[name]), name
    assert again.info == first.info
    assert again.info["data_digest"] == store.digest
    assert again.info["embedding"] == config.embedding


def test_a_damaged_model_is_written_again(tmp_path: Path):
    run = finished(tmp_path / "run")
    before, model = outcome(run), run / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-7])
    run_pretraining(families(64), small_config(epochs=2), run, resume=True)
    assert outcome(run) == before


def test_other_settings_or_data_are_refused_by_name(tmp_path: Path):
    run = finished(tmp_path / "run")

    def resume(seed: int = 0, **settings: float) -> None:
        run_pretraining(families(64, seed), small_config(epochs=2, **settings), run, resume=True)

    for done in (True, False):
        with pytest.raises(ConfigError, match=r"encoder.dim = 16, now 8"):
            resume(**{"encoder.dim": 8})
        with pytest.raises(ConfigError, match=r"objective.temperature = 0.1, now 0.2"):
            resume(**{"objective.temperature": 0.2})
        with pytest.raises(ConfigError, match="data digest"):
            resume(seed=1)
        if done:
            (run / "model.safetensors").unlink()
    resume(checkpoint_every_s=5.0)
