"""Checkpoints of the published family: wrapped, renamed, short of rows, damaged or malicious."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphlog.encoders.legacy import MOLECULE, PROTEIN, convert_pth
from graphlog.encoders.modelfile import read_model, save_model
from graphlog.errors import ModelFileError


def family_weights(dim: int = 6, layers: int = 2) -> dict[str, Tensor]:
    """Weights of a small chemistry GIN by the names of the family."""
    state = {
        "x_embedding1.weight": torch.randn(120, dim),
        "x_embedding2.weight": torch.randn(3, dim),
    }
    for i in range(layers):
        state |= {
            f"gnns.{i}.mlp.0.weight": torch.randn(2 * dim, dim),
            f"gnns.{i}.mlp.0.bias": torch.randn(2 * dim),
            f"gnns.{i}.mlp.2.weight": torch.randn(dim, 2 * dim),
            f"gnns.{i}.mlp.2.bias": torch.randn(dim),
            f"gnns.{i}.edge_embedding1.weight": torch.randn(6, dim),
            f"gnns.{i}.edge_embedding2.weight": torch.randn(3, dim),
            f"batch_norms.{i}.weight": torch.ones(dim),
            f"batch_norms.{i}.bias": torch.zeros(dim),
            f"batch_norms.{i}.running_mean": torch.zeros(dim),
            f"batch_norms.{i}.running_var": torch.ones(dim),
        }
    return state


def gcn_weights(var: float, chemistry: bool) -> dict[str, Tensor]:
    """Weights that a GCN and a GraphSAGE have in common."""
    if chemistry:
        state = {k: v for k, v in family_weights(4, 1).items() if "mlp" not in k}
        state["batch_norms.0.running_var"] = torch.full((4,), var)
    else:
        edges = {
            "gnns.0.edge_encoder.weight": torch.randn(4, 9),
            "gnns.0.edge_encoder.bias": torch.randn(4),
        }
        state = {"gnns.0.input_node_embeddings.weight": torch.randn(2, 4), **edges}
    return state | {"gnns.0.linear.weight": torch.randn(4, 4), "gnns.0.linear.bias": torch.randn(4)}


def saved(state: object, path: Path) -> Path:
    torch.save(state, path)
    return path


def _prefixed(state: dict[str, Tensor], prefix: str, more: float = 0.0) -> dict[str, Tensor]:
    return {prefix + key: value + more for key, value in state.items()}


WRAPPED: dict[str, Callable[[dict[str, Tensor]], object]] = {
    "": lambda s: s,
    "gnn.": lambda s: {**_prefixed(s, "gnn."), "projection_head.0.weight": torch.ones(2)},
    "module.gnn.": lambda s: {
        "epoch": 3,
        "model": _prefixed(s, "module.gnn."),
        "optimizer": {"lr": torch.ones(1)},
    },
    "encoder.": lambda s: {
        "state_dict": {**_prefixed(s, "encoder."), **_prefixed(s, "ema.encoder.", 1)}
    },
}


@pytest.mark.parametrize("prefix", WRAPPED)
def test_wrapped_checkpoints(prefix: str, tmp_path: Path):
    state = family_weights()
    found = convert_pth(saved(WRAPPED[prefix](state), tmp_path / "old.pth"))
    assert found.info["prefix"] == prefix
    config = found.encoder.config
    assert (config.backbone, config.layers, config.dim) == ("gin", 2, 6)
    assert torch.equal(found.encoder.layers[0].lift.weight, state["gnns.0.mlp.0.weight"])
    save_model(tmp_path / "new", found.encoder, found.info)
    assert read_model(tmp_path / "new").info == found.info


def test_new_codes_start_as_the_family_would_have_read_them(tmp_path: Path):
    state = family_weights()
    encoder = convert_pth(saved(state, tmp_path / "old.pth")).encoder
    chirality, bond = encoder.node.weight[120:], encoder.layers[0].edge.weight
    assert torch.equal(chirality, state["x_embedding2.weight"][[0, 1, 2, 0, 0]])
    assert torch.equal(bond[:7], state["gnns.0.edge_embedding1.weight"][[0, 1, 2, 3, 4, 5, 0]])
    assert torch.equal(bond[7:], state["gnns.0.edge_embedding2.weight"][[0, 1, 2, 0]])


def test_gcn_and_graphsage_are_told_apart(tmp_path: Path):
    for var, name, backbone in (
        (0.25, "a.pth", "graphsage"),
        (9.0, "b.pth", "gcn"),
        (9.0, "graphsage.pth", "graphsage"),
    ):
        found = convert_pth(saved(gcn_weights(var, True), tmp_path / name))
        assert found.encoder.config.backbone == backbone
    unnamed = saved(gcn_weights(0, False), tmp_path / "c.pth")
    with pytest.raises(ModelFileError, match="put `gcn` or `graphsage` into the file's name"):
        convert_pth(unnamed)


def test_what_is_no_encoder_of_the_family(tmp_path: Path):
    with pytest.raises(ModelFileError, match="no encoder of the pre-train-GNNs family"):
        convert_pth(saved({"linear.weight": torch.ones(2, 2)}, tmp_path / "linear.pth"))
    with pytest.raises(ModelFileError, match="no such checkpoint"):
        convert_pth(tmp_path / "missing.pth")


@pytest.mark.parametrize("keep", [0, 10, 2000, -10])
def test_damaged(keep: int, tmp_path: Path):
    path = saved(family_weights(), tmp_path / "old.pth")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelFileError, match=r"old\.pth"):
        convert_pth(path)


class Malicious:
    """Runs a command where it is unpickled without care."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> object:
        return os.system, (self.command,)


@pytest.mark.parametrize("zipped", [True, False])
def test_code_is_refused_and_not_run(zipped: bool, tmp_path: Path):
    path, trace = tmp_path / "evil.pth", tmp_path / "trace"
    state = {**family_weights(), "hook": Malicious(f"touch {trace}")}
    if zipped:
        torch.save(state, path)
    else:
        path.write_bytes(pickle.dumps(state["hook"]))
    with pytest.raises(ModelFileError, match=r"holds more than weights|not a torch checkpoint"):
        convert_pth(path)
    assert not trace.exists()


def test_schemas_are_those_of_the_family():
    assert [a.cardinality for a in (*MOLECULE.node, *MOLECULE.edge)] == [120, 5, 7, 4]
    assert MOLECULE.node_mask == (119, 4)
    assert (MOLECULE.edge_mask, MOLECULE.self_loop) == ((5, 0), (4, 0))
    evidence = "neighborhood fusion cooccurence coexpression experimental database textmining"
    assert [a.name for a in PROTEIN.edge] == [*evidence.split(), "self_loop", "mask"]
    assert [a.cardinality for a in (*PROTEIN.node, *PROTEIN.edge)] == [2, *[0] * 9]
    assert PROTEIN.self_loop == (*[0] * 7, 1, 0)
    assert (PROTEIN.node_mask, PROTEIN.edge_mask) == (None, (*[0] * 8, 1))


def test_one_flipped_bit_is_found_by_the_checksum(tmp_path: Path):
    path = saved(family_weights(), tmp_path / "old.pth")
    payload = bytearray(path.read_bytes())
    values = torch.full((8,), 1.0).numpy().tobytes()
    at = bytes(payload).index(values[:12])  # inside the weights of a norm, which are all 1
    payload[at] ^= 1
    path.write_bytes(payload)
    with pytest.raises(ModelFileError, match="damaged"):
        convert_pth(path)


def test_a_damaged_directory_of_the_archive_changes_no_weight(tmp_path: Path):
    path = saved(family_weights(), tmp_path / "old.pth")
    expected = convert_pth(path).encoder.state_dict()
    payload = bytearray(path.read_bytes())
    entries = [k for k in range(len(payload)) if payload[k : k + 4] == b"PK\x01\x02"]
    for entry in entries[:-1]:
        payload[entry + 34 : entry + 37] = b"%99"  # number of the disk it is said to start on
    path.write_bytes(payload)
    found = convert_pth(path).encoder.state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("gnns.0.mlp.0.weight", torch.full((12, 6), torch.nan), "not finite"),
        ("batch_norms.1.running_var", torch.full((6,), torch.inf), "not finite"),
        ("gnns.1.mlp.2.weight", torch.ones(6, 12, dtype=torch.complex64), "complex64"),
        ("gnns.1.mlp.2.weight", torch.ones(6, 12).to_sparse(), "sparse"),
        ("gnns.300000.mlp.0.weight", torch.ones(12, 6), "not numbered from 0"),
        ("gnns.x.mlp.0.weight", torch.ones(12, 6), "not numbered from 0"),
        ("x_embedding1.weight", torch.ones(1, 1).expand(120, 60_000), "repeats|do not fit"),
        ("x_embedding1.weight", torch.ones(120), "do not fit"),
        ("x_embedding1.weight", torch.ones(120, 50_000), "do not fit"),
        ("gnns.1.mlp.2.bias", None, "do not fit"),
        ("gnns.0.gate.weight", torch.ones(1), r"unexpected weight `gate\.weight`"),
        (
            "gnns.0.edge_embedding1.weight",
            torch.ones(30, 6),
            "more than the 7 codes of 'bond_type'",
        ),
    ],
)
def test_weights_that_are_none(key: str, value: Tensor | None, reason: str, tmp_path: Path):
    state: dict[str, Any] = family_weights() | {key: value}
    path = saved({k: v for k, v in state.items() if v is not None}, tmp_path / "old.pth")
    with pytest.raises(ModelFileError, match=reason):
        convert_pth(path)


def test_a_dictionary_that_holds_itself_and_a_deep_one(tmp_path: Path):
    endless: dict[str, object] = {"weights": family_weights()}
    endless["again"] = endless
    assert convert_pth(saved(endless, tmp_path / "endless.pth")).encoder.config.layers == 2
    deep: dict[str, object] = dict(family_weights())
    for _ in range(400):
        deep = {"inner": deep}
    assert convert_pth(saved(deep, tmp_path / "deep.pth")).encoder.config.layers == 2
