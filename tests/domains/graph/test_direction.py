"""What direction edges have is part of a schema, and so of a model, and holds for new graphs."""

import numpy as np
import pytest

import graphlog
from graphlog.api import read_graphs
from graphlog.cli.main import main
from graphlog.errors import ConfigError
from graphs_support import rings


@pytest.mark.parametrize("directed", [True, False])
def test_a_model_reads_new_files_in_the_direction_of_its_graphs(tmp_path, directed):
    path = rings(tmp_path / "rings.jsonl")
    store, other = (read_graphs(path, directed=way) for way in (directed, not directed))
    assert (store.undirected, other.undirected) == (not directed, directed)
    small = {"epochs": 1, "batch_size": 10, "encoder": {"layers": 2, "dim": 8}}
    graphlog.pretrain(store, **small).save(tmp_path / "model.safetensors")
    encoder = graphlog.load(tmp_path / "model.safetensors")
    assert encoder.schema.directed is directed
    np.testing.assert_array_equal(encoder.embed(path), encoder.embed(store))
    assert read_graphs(path, schema=encoder.schema).undirected != directed
    with pytest.raises(ConfigError, match="leave `directed` out"):
        read_graphs(path, schema=encoder.schema, directed=not directed)
    holds, reads = ("undirected", "directed") if directed else ("directed", "undirected")
    with pytest.raises(ConfigError, match=f"holds {holds} graphs .* reads {reads} graphs"):
        encoder.embed(other)
    with pytest.raises(ConfigError, match="one of the two is of directed graphs"):
        graphlog.pretrain(other, init=encoder, **small)


def test_the_command_line_keeps_and_shows_the_direction(tmp_path, capsys):
    path, store = str(rings(tmp_path / "rings.jsonl")), str(tmp_path / "store")
    assert main(["featurize", path, "-o", store, "--directed"]) == 0
    assert "directed" in capsys.readouterr().out
    again = tmp_path / "again"
    assert main(["featurize", path, "-o", str(again), "--like", store]) == 0
    assert not graphlog.open_store(str(again)).undirected
