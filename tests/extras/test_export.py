"""The exported encoder gives the embeddings of the encoder, whatever the padding."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from downstream_support import CHAINS, tiny_encoder
from graphlog.domains.molecule import MOLECULE, MOLECULE_RICH
from graphlog.domains.protein.schema import PROTEIN
from graphlog.downstream.pretrained import Encoder
from graphlog.encoders.encoder import EncoderConfig, build_encoder
from graphlog.errors import ConfigError
from graphlog.extras.export import DenseEncoder, export_onnx, padded_inputs
from graphlog.inputs import read

MIXED = ["C", "c1ccccc1O", "[Na+].[Cl-]", "C[C@H](N)C(=O)O", *CHAINS[:5]]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"backbone": "graphsage"},
        {"layer": {"edge_mode": "concat"}, "readout": "sum"},
        {"readout": "max", "jk": "max"},
        {"readout": "mean+center", "jk": "concat"},
    ],
)
@pytest.mark.parametrize("layer", ["jk", "last", "jk+sum"])
def test_dense_layers_agree_with_the_sparse_ones(settings: dict[str, Any], layer: str):
    config = EncoderConfig.parse({"layers": 2, "dim": 8, **settings})
    encoder = Encoder(build_encoder(config, MOLECULE_RICH), layer).eval()
    graphs = read(MIXED, MOLECULE_RICH)
    dense, expected = DenseEncoder(encoder.network, layer).eval(), encoder.embed(graphs)
    for some in (slice(None), slice(0, 0)):
        inputs = padded_inputs(encoder, graphs[some])
        with torch.no_grad():
            found = dense(*(torch.from_numpy(array) for array in inputs.values()))
        np.testing.assert_allclose(found, expected[some], rtol=1e-5, atol=1e-5)


def test_onnx_runtime_agrees_for_any_number_of_graphs_and_nodes(tmp_path: Path):
    runtime = pytest.importorskip("onnxruntime")
    encoder = tiny_encoder("jk")
    for norm in encoder.network.norms:  # statistics of a trained network, not 0 and 1
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    written = export_onnx(encoder, tmp_path / "model.onnx")
    assert (written["layer"], written["width"]) == ("jk", encoder.width())
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    graphs = read(MIXED)
    for some in (slice(0, 1), slice(0, 9), slice(4, 7), slice(0, 0)):
        (found,) = session.run(None, padded_inputs(encoder, graphs[some]))
        np.testing.assert_allclose(found, encoder.embed(MIXED)[some], rtol=1e-5, atol=1e-5)
    assert {p.name for p in tmp_path.iterdir()} == {"model.onnx"}


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("backbone", "gat", "backbone 'gat'.* cannot be exported; only gin and graphsage"),
        ("backbone", "gcn", "backbone 'gcn'.* cannot be exported"),
        ("readout", "attention", "readout 'attention' cannot be exported"),
    ],
)
def test_what_cannot_be_exported_is_said(tmp_path: Path, setting: str, value: str, words: str):
    config = EncoderConfig.parse({"layers": 1, "dim": 8, setting: value})
    with pytest.raises(ConfigError, match=words):
        export_onnx(Encoder(build_encoder(config, PROTEIN)), tmp_path / "m.onnx")
    with pytest.raises(ConfigError, match=r"ends in \.onnx"):
        export_onnx(tiny_encoder(), tmp_path / "m.bin")


def test_an_encoder_in_double_precision_is_exported_in_single(tmp_path: Path):
    pytest.importorskip("onnxscript")
    encoder = tiny_encoder(schema=MOLECULE)
    encoder.double()
    assert export_onnx(encoder, tmp_path / "model.onnx")["width"] == encoder.width()
