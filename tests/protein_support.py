"""Small networks and annotation files written to disk, and a slow way to cut ego-networks."""

from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from graphlog.api import read_proteins
from graphlog.data.store import GraphStore
from graphlog.domains.protein.network import Interactions, ProteinNetwork, build_network
from graphlog.domains.protein.schema import CHANNELS

HEADER = (
    "protein1 protein2 neighborhood fusion cooccurence coexpression "
    "experimental database textmining combined_score"
)
OBO = """format-version: 1.2

[Term]
id: GO:0000001
name: everything
namespace: biological_process

[Term]
id: GO:0000002
name: broad
namespace: biological_process
alt_id: GO:0000022
is_a: GO:0000001 ! everything

[Term]
id: GO:0000003
name: narrow
namespace: biological_process
is_a: GO:0000002 {source="x"} ! broad
relationship: regulates GO:0000005 ! part

[Term]
id: GO:0000004
name: gone
namespace: biological_process
is_obsolete: true

[Term]
id: GO:0000005
name: part
namespace: biological_process
relationship: part_of GO:0000002 ! broad

[Term]
id: GO:0000006
name: moved
namespace: biological_process
is_obsolete: true
replaced_by: GO:0000005

[Typedef]
id: part_of
"""
GAF = "DB ID{k} - {told} {term} REF {evidence} _ P name x|{name} protein taxon:{taxon} d by"


def gaf(rows: str, taxon: str = "9") -> str:
    """GAF lines, one of each line ``name term evidence`` or ``name term evidence qualifier``."""
    lines = ["!gaf-version: 2.2"]
    for k, (name, term, evidence, *told) in enumerate(map(str.split, rows.strip().splitlines())):
        words = {"k": k, "told": "".join(told), "term": term, "evidence": evidence}
        lines.append(GAF.replace(" ", "\t").format(**words, name=name, taxon=taxon))
    return "\n".join(lines) + "\n"


def links(rows: str, species: str = "9") -> str:
    """STRING lines of rows ``a b score, ...``, both directions, co-expression set."""
    lines = [HEADER]
    for a, b, score in (row.split() for row in rows.split(",")):
        lines += [
            f"{species}.{p} {species}.{q} 0 0 0 {score} 0 0 0 {score}" for p, q in ((a, b), (b, a))
        ]
    return "\n".join(lines) + "\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def random_network(size: int, interactions: int, seed: int) -> tuple[ProteinNetwork, nx.Graph]:
    """The same network as ours and as networkx's."""
    draw = np.random.default_rng(seed)
    pairs = draw.integers(0, size, (interactions, 2))
    channels = draw.integers(0, 2, (interactions, len(CHANNELS))) * draw.integers(
        1, 1001, (interactions, len(CHANNELS))
    )
    combined = draw.integers(600, 1000, interactions)
    names = tuple(f"9.p{k:03d}" for k in range(size))
    network = build_network(Interactions("9", names, pairs, np.column_stack([channels, combined])))
    graph = nx.Graph()
    graph.add_nodes_from(range(size))
    for (a, b), row, score in zip(pairs.tolist(), channels, combined.tolist(), strict=True):
        if a != b:
            old = graph.get_edge_data(a, b, {"channels": np.zeros(7), "score": 0})
            graph.add_edge(
                a, b, channels=np.maximum(old["channels"], row), score=max(old["score"], score)
            )
    weak = [
        (a, b) for a, b, d in graph.edges(data=True) if d["score"] < 700 or not d["channels"].any()
    ]
    graph.remove_edges_from(weak)
    return network, graph


def slow_members(
    graph: nx.Graph, center: int, radius: int, neighbors: int, nodes: int
) -> list[int]:
    """Proteins of one ego-network, step by step."""
    found, frontier = [center], [center]
    for _ in range(radius):
        reached = []
        for protein in frontier:
            partners = sorted(graph[protein], key=lambda p: (-graph[protein][p]["score"], p))[
                :neighbors
            ]
            reached += [p for p in partners if p not in found and p not in reached]
        found += reached
        frontier = reached
    return found[:nodes]


def chunk_graphs(chunk) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Node count, edges and edge attributes of each graph of a chunk."""
    ends = np.concatenate([[0], np.cumsum(chunk.edge_counts)])
    return [
        (int(n), chunk.edge_index[:, a:b], chunk.edge_attr[a:b])
        for n, (a, b) in zip(chunk.node_counts, pairwise(ends), strict=True)
    ]


def clustered_links(clusters: int, size: int, species: str = "9") -> str:
    """STRING lines of a network of dense clusters with a few interactions between them."""
    draw, rows = np.random.default_rng(0), []
    for c in range(clusters):
        names = [f"c{c:02d}p{k:02d}" for k in range(size)]
        rows += [f"{a} {b} 800" for a, b in combinations(names, 2) if draw.random() < 0.6]
        rows += [f"{a} {b} 900" for a, b in pairwise(names)]
        rows.append(f"{names[0]} c{(c + 1) % clusters:02d}p00 750")
    return links(",".join(rows), species)


def read_rows(folder: Path, rows: str, *taxa: str, **options: Any) -> GraphStore:
    """Read networks of these rows, one of each taxon; an option of several lines is a file."""
    named = {f"{taxon}.protein.links.detailed.txt": links(rows, taxon) for taxon in taxa or "9"}
    for name, value in options.items():
        if isinstance(value, str) and "\n" in value:
            options[name] = write(folder / name, value)
    networks = [write(folder / name, text) for name, text in named.items()]
    return read_proteins(networks if len(networks) > 1 else networks[0], **options)
