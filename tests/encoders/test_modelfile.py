"""Model files: what is written comes back; what is not ours, or not whole, is refused in a line."""

import json
import os
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file, save, save_file

from encoder_support import SCHEMAS, encoder_for, random_multigraphs
from graphlog.encoders import LAYERS, modelfile
from graphlog.encoders.encoder import GraphEncoder
from graphlog.encoders.legacy import MOLECULE
from graphlog.encoders.modelfile import KEY, read_model, save_model
from graphlog.errors import ModelFileError
from training_support import described


def trained(backbone: str = "gin", schema: str = "molecule") -> GraphEncoder:
    """A small encoder with running statistics of its own."""
    encoder = encoder_for(SCHEMAS[schema], backbone, 8, jk="concat", readout="attention")
    encoder(random_multigraphs(SCHEMAS[schema], [4, 6]))
    return encoder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path, info = tmp_path / "model.safetensors", {"epochs": 3, "note": "ä"}
    save_model(path, trained(), info, {"head.weight": torch.ones(2, 3)})
    return path


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("backbone", LAYERS)
def test_round_trip(backbone: str, schema: str, tmp_path: Path):
    encoder = trained(backbone, schema)
    info, path = {"seed": 0, "epochs": 3}, tmp_path / "new" / "m.safetensors"
    save_model(path, encoder, info, {"prototypes": torch.arange(3)})
    found = read_model(path)
    assert [*found.info.items()] == [*info.items()]  # in their order
    assert found.extra["prototypes"].tolist() == [0, 1, 2]
    assert found.encoder.config == encoder.config
    assert found.encoder.schema == encoder.schema
    assert not found.encoder.training
    batch = random_multigraphs(SCHEMAS[schema], [3, 2], seed=9)
    assert torch.equal(found.encoder(batch).graph_emb, encoder.eval()(batch).graph_emb)
    assert os.listdir(path.parent) == [path.name]


def test_half_precision_is_half_the_size(tmp_path: Path):
    encoder, batch = encoder_for(dim=64).eval(), random_multigraphs(MOLECULE, [5, 4])
    encoder.norms[0].running_var.fill_(1e6)  # too large for float16
    for half in (False, True):
        save_model(tmp_path / f"{half}", encoder, {}, {"p": torch.ones(1)}, half=half)
    assert (tmp_path / "True").stat().st_size < 0.6 * (tmp_path / "False").stat().st_size
    found = read_model(tmp_path / "True")
    assert all(v.dtype == torch.float32 for v in (*found.encoder.parameters(), found.extra["p"]))
    torch.testing.assert_close(
        found.encoder(batch).graph_emb, encoder(batch).graph_emb, rtol=1e-2, atol=1e-2
    )
    assert torch.equal(found.encoder.norms[0].running_var, encoder.norms[0].running_var)


def test_values_too_large_for_half_stay_single(tmp_path: Path):
    encoder = trained()
    encoder.node.weight.data[0] = 1e6
    save_model(tmp_path / "m", encoder, {}, half=True)
    assert torch.equal(read_model(tmp_path / "m").encoder.node.weight, encoder.node.weight)


def test_double_precision_comes_back(tmp_path: Path):
    save_model(tmp_path / "m", trained().double(), {})
    assert read_model(tmp_path / "m").encoder.node.weight.dtype == torch.float64


def rewrite(path: Path, changes: dict[str, object], sign: bool = False) -> None:
    """Change the description of a file, or its checksum as well, as another program would."""
    tensors, about = load_file(path), described(path) | changes
    if sign:
        del about["sha256"]
        about["sha256"] = modelfile.digest_of(tensors, about)
    path.write_bytes(save(tensors, metadata={KEY: json.dumps(about)}))


def refused(path: Path, reason: str) -> None:
    with pytest.raises(ModelFileError, match=reason) as caught:
        read_model(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("keep", [0, 5, 100, 3000, -1])
def test_truncated_or_with_one_flipped_bit(path: Path, keep: int):
    raw = path.read_bytes()
    path.write_bytes(raw[:keep])
    refused(path, "not a complete safetensors file")
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    refused(path, "SHA-256")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": "pt"}, "not a graphlog model"),
        ({"version": 2}, "newer"),
        ({"version": "x"}, "SHA-256"),
        ({"config": {}}, "SHA-256"),
        ({"info": {"epochs": 100}}, "SHA-256"),
    ],
)
def test_altered_description(path: Path, change: dict[str, object], reason: str):
    rewrite(path, change)
    refused(path, reason)


@pytest.mark.parametrize(
    "change",
    [
        {"config": {"layers": 3_000_000, "dim": 8}},
        {"config": {"layers": 1000, "dim": 60_000}},
        {"config": {"dim": 10**9}},
        {"config": 5},
        {"config": None},
        {"config": {"backbone": ["gin"]}},
        {"schema": {}},
        {"schema": 3},
        {"info": 7},
    ],
    ids=str,
)
def test_a_signed_description_of_something_else(path: Path, change: dict[str, object]):
    """In a moment and in one line, whatever the file promises."""
    rewrite(path, change, sign=True)
    refused(path, "does not describe a model")


def test_weights_that_are_not_finite(path: Path, tmp_path: Path):
    about, tensors = modelfile.read_tensors(path, "model")
    tensors["encoder.node.weight"][0] = torch.nan
    del about["sha256"]
    modelfile.write_tensors(tmp_path / "broken", "model", about, tensors)
    refused(tmp_path / "broken", "not finite")
    encoder = read_model(path).encoder
    encoder.node.weight.data[0] = torch.nan
    with pytest.raises(ModelFileError, match=r"encoder\.node\.weight` holds .* not finite"):
        save_model(path, encoder, {})
    read_model(path)  # what it was


def test_a_model_does_not_follow_its_file(path: Path):
    """The weights are copies: what happens to the file later is nothing to them."""
    encoder = read_model(path).encoder
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    path.write_bytes(bytes(path.stat().st_size))
    assert all(torch.equal(v, before[k]) for k, v in encoder.state_dict().items())
    assert all(p.requires_grad for p in encoder.parameters())


def test_foreign_files(tmp_path: Path, path: Path):
    refused(tmp_path / "missing", "no such model file")
    refused(tmp_path, "no such model file")
    (tmp_path / "text").write_text("CCO\n" * 50)
    refused(tmp_path / "text", "not a complete safetensors file")
    save_file({"w": torch.ones(2)}, tmp_path / "other.safetensors")
    refused(tmp_path / "other.safetensors", "not a graphlog model")
    torch.save({"w": torch.ones(2)}, tmp_path / "old.pth")
    refused(tmp_path / "old.pth", "not a complete safetensors file")


@pytest.mark.parametrize("call", ["os.replace", "pathlib.Path.write_bytes"])
def test_a_full_disk_leaves_the_old_file_and_is_told_with_its_name(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str
):
    before = path.read_bytes()
    monkeypatch.setattr(call, Mock(side_effect=OSError(28, "No space left")))
    with pytest.raises(OSError, match="No space left") as caught:
        save_model(path, trained(), {})
    assert (caught.value.errno, caught.value.filename) == (28, str(path))
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.skipif(os.name != "posix", reason="rights of files are posix")
def test_others_may_read_a_model_as_they_may_other_files(path: Path):
    other = path.with_name("other")
    other.touch()
    assert path.stat().st_mode == other.stat().st_mode
