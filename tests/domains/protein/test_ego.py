"""Ego-networks against a slow way of cutting them; caps, isolated proteins, self-loops, repeats."""

import networkx as nx
import numpy as np
import pytest

from graphlog.domains.protein.network import Interactions, build_network, ego_networks
from graphlog.domains.protein.schema import PROTEIN, ProteinOptions, species_of
from graphlog.errors import ConfigError
from protein_support import chunk_graphs, random_network, slow_members


@pytest.mark.parametrize(
    ("radius", "neighbors", "nodes"),
    [(1, 100, 500), (1, 3, 500), (2, 4, 500), (3, 2, 7), (2, 100, 5)],
)
def test_ego_networks_equal_those_cut_one_by_one(radius: int, neighbors: int, nodes: int) -> None:
    network, graph = random_network(40, 400, seed=radius)
    options = ProteinOptions(radius=radius, neighbors=neighbors, nodes=nodes, isolated="keep")
    together = (np.arange(1), np.arange(1, 40))  # by which no graph is changed
    found = [g for some in together for g in chunk_graphs(ego_networks(network, some, options))]
    for center, (size, ends, attributes) in enumerate(found):
        members = slow_members(graph, center, radius, neighbors, nodes)
        assert size == len(members)
        expected = {}
        for a, b, data in nx.subgraph(graph, members).edges(data=True):
            pair = sorted((members.index(a), members.index(b)))
            expected[tuple(pair)] = (data["channels"] > 0).astype(int).tolist()
        pairs = zip(ends.T.tolist(), attributes[:, :7].astype(int).tolist(), strict=True)
        assert {tuple(pair): row for pair, row in pairs} == expected
        assert len(expected) == ends.shape[1]
        assert not attributes[:, 7:].any()


def test_repeats_directions_and_self_loops_are_one_interaction() -> None:
    pairs = np.array([[0, 1], [1, 0], [0, 1], [2, 2], [1, 2], [1, 2]])  # 1, 2: two channels
    scores = np.zeros((6, 8), dtype=np.int64)
    scores[:, 3] = [0, 300, 0, 900, 900, 900]
    scores[0, 6] = 800
    scores[:, 7] = [800, 700, 100, 900, 650, 650]
    network = build_network(Interactions("9", ("9.a", "9.b", "9.c"), pairs, scores))
    assert network.counts["self-loops left out"] == 1
    assert network.counts["interactions"] == 1
    assert network.counts["listed in one direction only"] == 1
    assert network.degrees.tolist() == [1, 1, 0]
    [(size, ends, attributes)] = chunk_graphs(
        ego_networks(network, np.array([0]), ProteinOptions())
    )
    assert (size, ends.tolist()) == (2, [[0], [1]])
    assert attributes[0].tolist() == [0, 0, 0, 1, 0, 0, 1, 0, 0]  # what any of the lines says


def test_thresholds_by_channel() -> None:
    scores = np.array([[0, 0, 0, 500, 0, 0, 0, 900], [0, 0, 0, 300, 0, 0, 900, 900]])
    given = Interactions("9", ("9.a", "9.b", "9.c"), np.array([[0, 1], [0, 2]]), scores)
    strict = ProteinOptions(channel_score={"textmining": 1000, "coexpression": 400})
    assert build_network(given, ProteinOptions(channel_score=400)).counts["interactions"] == 2
    assert build_network(given, strict).degrees.tolist() == [1, 1, 0]
    assert build_network(given, ProteinOptions(score=901)).counts["interactions"] == 0
    with pytest.raises(ConfigError, match="no channel 'text'"):
        ProteinOptions.parse({"channel_score": {"text": 1}})


def test_isolated_proteins_are_graphs_of_one_node_if_kept() -> None:
    network, _ = random_network(10, 6, seed=0)
    isolated, joined = np.flatnonzero(network.degrees == 0)[0], np.flatnonzero(network.degrees)[0]
    chunk = ego_networks(network, np.array([isolated, joined]), ProteinOptions())
    chunk.check(PROTEIN)
    assert chunk.node_counts[0] == 1
    assert chunk.texts == [network.proteins[isolated], network.proteins[joined]]
    assert [species_of(name) for name in ("6239.2RSSE.1", "YAL001C", ".x")] == ["6239", None, None]
