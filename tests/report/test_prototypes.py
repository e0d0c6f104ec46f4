"""The hierarchy as files: every row accounted for in each, the page whole and harmless."""

import base64
import gzip
import json
import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from scipy.stats import rankdata

import graphlog
from cli_support import read_table
from downstream_support import CHAINS, IS_ALCOHOL, write_csv
from graphlog.domains import domain_of
from graphlog.domains.molecule import drawing
from graphlog.domains.molecule.traits import traits
from graphlog.downstream.pretrained import Encoder
from graphlog.encoders.novelty import PREFIX
from graphlog.errors import ConfigError, DataError
from graphlog.report.hierarchy import (
    GraphFeature,
    Node,
    Trait,
    features_of,
    traits_of,
    with_different_titles,
)
from graphlog.report.prototypes import draw_graphs, write_prototypes
from graphlog.training.log import Lines
from graphs_support import lines
from house_support import python
from report_support import pretrained

ROWS = [*CHAINS[:20], "no molecule", *CHAINS[20:]]
BAD = 20
NAMES = [f"CMP-{k}" for k in range(len(ROWS))]


@pytest.fixture(scope="module")
def model() -> Encoder:
    return pretrained()


@pytest.fixture(scope="module")
def folder(model: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tree")
    alcohol = ["" if k == BAD else int(s.endswith("O")) for k, s in enumerate(ROWS)]
    source = write_csv(out / "in.csv", ROWS, alcohol=alcohol, **{"Compound ID": NAMES})
    written = write_prototypes(model, out / "tree", source, graphs=30)
    assert (written.content["graphs"], written.rejected) == (48, 1)
    return out / "tree"


def _members(folder: Path) -> list[dict[str, str]]:
    return read_table(folder / "members.csv")


def _page(folder: Path) -> dict[str, Any]:
    text = (folder / "atlas.html").read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(found[1])


def _tree(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "tree.json").read_text())


def _nodes(tree: dict[str, Any], below: str = "roots") -> list[dict[str, Any]]:
    return [node for top in tree[below] for node in (top, *_nodes(top, "children"))]


def test_every_row_of_the_input_has_its_line(folder: Path):
    members = _members(folder)
    assert [int(m["row"]) for m in members] == list(range(len(ROWS)))
    assert [k for k, m in enumerate(members) if not m["path"]] == [BAD]
    assert members[BAD]["status"] not in ("", "ok")
    assert {path.name for path in folder.iterdir()} == {
        *"tree.json members.csv atlas.html rejects.csv graphlog.json".split()
    }


def test_tree_and_members_tell_the_same(folder: Path):
    members = [m for m in _members(folder) if m["path"]]
    tree = _tree(folder)
    passing = Counter(
        m["path"].rsplit("/", k)[0] for m in members for k in range(m["path"].count("/") + 1)
    )
    nodes = _nodes(tree)
    assert {node["path"]: node["members"] for node in nodes if node["members"]} == dict(passing)
    levels = range(len(tree["layers"]))
    layers = [[n for n in nodes if n["path"].count("/") == level] for level in levels]
    assert [len(layer) for layer in layers] == tree["layers"]
    assert [sum(n["members"] > 0 for n in layer) for layer in layers] == tree["used"]
    of_row = {int(m["row"]): m for m in members}
    for node in (n for n in nodes if not n["children"] and n["members"]):
        cosines = [float(m["similarity"]) for m in members if m["path"] == node["path"]]
        assert node["similarity"] == pytest.approx(np.mean(cosines), abs=1e-4)
        assert node["typical"][0]["similarity"] == pytest.approx(max(cosines), abs=1e-4)
        for shown in node["typical"]:
            assert of_row[shown["row"]]["path"] == node["path"]
            assert shown["text"] == ROWS[shown["row"]]


def test_the_page_holds_the_tree_the_map_and_drawings(folder: Path):
    page, text = _page(folder), (folder / "atlas.html").read_text(encoding="utf-8")
    assert page["about"]["graphs"] == 48
    assert len(page["map"]) == 30
    assert all(point["text"] == ROWS[point["row"]] for point in page["map"])
    features = features_of(graphlog.read_molecules([point["text"] for point in page["map"]]))
    values = {feature.name: feature.values.tolist() for feature in features}
    assert all(coloring["values"] == values[coloring["name"]] for coloring in page["features"])
    shown = {graph["row"] for node in _nodes(page) for graph in node["typical"]}
    assert shown | set(page["strangers"]) == {int(graph) for graph in page["graphs"]}
    assert page["first"].keys() == {str(row) for row in page["strangers"]}
    packed = json.loads(gzip.decompress(base64.b64decode(page["drawings"])))
    drawings = packed["graphs"]
    assert drawings.keys() == page["graphs"].keys() | {str(p["row"]) for p in page["map"]}
    assert page["first"].items() <= drawings.items()
    assert all(svg.startswith("<svg") and svg.endswith("</svg>") for svg in drawings.values())
    novelty = [float(m["novelty"]) for m in _members(folder) if m["path"]]
    strangest = page["graphs"][str(page["strangers"][0])]
    assert max(novelty) == pytest.approx(strangest["novelty"], abs=1e-3)
    assert all(0 <= value <= 100 for value in novelty)
    assert not re.search(r"(?:src|href)\s*=|https?://(?!www\.w3\.org)", text)


def test_the_same_input_gives_the_same_files(model: Encoder, folder: Path, tmp_path: Path):
    write_prototypes(model, tmp_path / "tree", folder.parent / "in.csv", graphs=30)
    for name in ("tree.json", "members.csv", "atlas.html"):
        assert (tmp_path / "tree" / name).read_bytes() == (folder / name).read_bytes()


def test_a_collection_cannot_break_out_of_the_page(model: Encoder, tmp_path: Path):
    wicked = "CCO |$</script><script>alert(1)</script>$|"
    write_prototypes(model, tmp_path / "tree", [wicked, *CHAINS])
    text = (tmp_path / "tree" / "atlas.html").read_text(encoding="utf-8")
    assert "alert(1)</script>" not in text
    assert text.count("</script>") == 2
    assert wicked in [point["text"] for point in _page(tmp_path / "tree")["map"]]


@pytest.mark.parametrize("directed", [False, True])
def test_other_graphs_are_drawn_as_networks(tmp_path: Path, directed: bool):
    rings = [
        {"edges": [[(i + 1) % n, i] for i in range(n)], "y": "abc"[n % 3]} for n in range(3, 27)
    ]
    large = {"edges": [], "num_nodes": 80, "y": "a"}
    path = lines(tmp_path / "rings.jsonl", [*rings, large])
    store = graphlog.read_graphs(path, directed=directed)
    drawn = draw_graphs(store, range(len(store)))
    counts = [(svg.count("<circle"), svg.count("<line")) for svg in drawn]
    assert counts == [*((n, n) for n in range(3, 27)), (0, 0)]
    write_prototypes("random", tmp_path / "tree", store, fit=True)
    assert _page(tmp_path / "tree")["about"]["domain"] == "graph"
    assert {f.name: f.kind for f in features_of(store)}["label y = b"] == "share"
    model = graphlog.random_encoder(schema=store.schema, graphs=store)
    write_prototypes(model, tmp_path / "tree", path, fit=True, targets=["y"])
    with pytest.raises(ConfigError, match="has its own labels; drop `targets`"):
        write_prototypes(model, tmp_path / "tree", store, fit=True, targets=["y"])


def test_rows_of_a_view_are_the_same_in_every_file(model: Encoder, tmp_path: Path):
    store = graphlog.read_molecules(["no molecule", *CHAINS], schema=model.schema)
    written = write_prototypes(model, tmp_path / "tree", store.subset(np.arange(20)))
    assert (written.content["graphs"], written.rejected) == (20, 0)
    assert not (tmp_path / "tree" / "rejects.csv").exists()
    path_of = {int(m["row"]): m["path"] for m in _members(tmp_path / "tree")}
    assert sorted(path_of) == list(range(20))
    nodes = _nodes(_tree(tmp_path / "tree"))
    for leaf in (node for node in nodes if not node["children"]):
        for shown in leaf["typical"]:
            assert path_of[shown["row"]] == leaf["path"]
            assert shown["text"] == CHAINS[shown["row"]]


@pytest.mark.parametrize(
    "name", "atlas.html tree.json members.csv rejects.csv graphlog.json config.toml".split()
)
def test_files_of_another_program_are_not_replaced(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(ConfigError, match="other files"):
        write_prototypes("no such model", tmp_path, CHAINS)
    assert (tmp_path / name).read_text() == "mine"


def test_a_file_is_refused_as_a_folder_before_any_work(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        write_prototypes("no such model", tmp_path / "file", CHAINS)


def test_prototypes_can_be_fitted_to_a_model_that_has_none(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"no prototypes.*`fit=True`"):
        write_prototypes("random", tmp_path / "tree", CHAINS)
    write_prototypes("random", tmp_path / "tree", CHAINS, fit=True)
    tree = _tree(tmp_path / "tree")
    assert tree["origin"] == "fitted in equal shares"
    assert sum(tree["used"]) > 1


def test_a_collection_that_is_gone_or_empty_is_refused(model: Encoder, tmp_path: Path):
    with pytest.raises(ConfigError, match="`source`"):
        write_prototypes(model, tmp_path / "tree")
    with pytest.raises(DataError):
        write_prototypes(model, tmp_path / "tree", ["no molecule"])
    assert not (tmp_path / "tree").exists()


def test_traits_are_told_only_where_they_are_clear():
    rng = np.random.default_rng(0)
    same, apart = rng.normal(size=200), rng.normal(size=200) + np.repeat([0.0, 2.0], 100)
    unknown = np.full(200, np.nan)
    features = [
        GraphFeature("same", "mean", same),
        GraphFeature("apart", "mean", apart),
        GraphFeature("unknown", "mean", unknown),
    ]
    found, few = traits_of(features, [np.arange(100, 200), np.arange(100, 103)])
    assert [t.name for t in found] == ["apart"]
    assert few == []
    alike = [
        GraphFeature("share", "share", np.ones(101)),
        GraphFeature("mean", "mean", np.full(101, 0.7)),  # whose deviation is no clean 0
    ]
    assert traits_of(alike, [np.arange(50)]) == [[]]


def test_chance_is_what_permutations_say():
    rng = np.random.default_rng(1)
    values = rng.normal(size=60)
    values[:20] += 0.6
    share = (np.arange(60) < 24).astype(float)
    group = np.arange(20)
    shuffled = np.array([rng.permutation(60)[:20] for _ in range(20_000)])
    for feature in (GraphFeature("mean", "mean", values), GraphFeature("share", "share", share)):
        q = traits_of([feature], [group])[0][0].q  # one test: the q-value is the p-value
        scores = feature.values if feature.kind == "share" else rankdata(feature.values)
        distance = abs(scores[shuffled].mean(axis=1) - scores.mean())
        p = (distance >= abs(scores[group].mean() - scores.mean()) - 1e-9).mean()
        # 20,000 draws: a standard error below 0.001; the two tails of a share need not be equal
        assert q == pytest.approx(p, abs=0.006)


@pytest.mark.parametrize("shape", [np.asarray, lambda x: np.exp(3 * x)], ids=["normal", "skewed"])
def test_noise_has_hardly_any_trait(shape: Callable[[np.ndarray], np.ndarray]):
    rng = np.random.default_rng(2)
    features = [GraphFeature(str(k), "mean", shape(rng.normal(size=400))) for k in range(40)]
    groups = [np.sort(rng.permutation(400)[:30]) for _ in range(25)]
    assert sum(map(len, traits_of(features, groups))) <= 2  # of 1,000 tests


@pytest.mark.parametrize("unusual", [1, 2, 4])
def test_a_quantity_that_few_graphs_have_is_no_trait_of_random_groups(unusual: int):
    """Of ranks of which nearly all are alike, the mean of a small group is not normal."""
    rng, found = np.random.default_rng(3), 0
    for _ in range(10):
        values = np.zeros(300)
        values[rng.permutation(300)[:unusual]] = rng.integers(1, 9, unusual)
        groups = np.split(rng.permutation(300), 30)
        found += sum(map(len, traits_of([GraphFeature("hits", "mean", values)], groups)))
    assert found <= 2  # of 300 tests at a rate of false findings of 0.05


def test_typical_members_share_a_substructure():
    acids = ["OC(=O)c1ccc(C)cc1", "OC(=O)c1ccc(CC)cc1", "OC(=O)c1ccc(Cl)cc1"]
    store = graphlog.read_molecules(acids)
    common = domain_of(store.schema).common_part(store, [0, 1, 2], 200, 140)
    assert common.nodes == 9
    assert common.drawing.startswith("<svg")
    nothing = graphlog.read_molecules(["CCO", "c1ccccc1"])
    assert domain_of(nothing.schema).common_part(nothing, [0, 1], 200, 140) is None


def test_ring_systems_are_counted_whole():
    store = graphlog.read_molecules(["c1ccc2[nH]ccc2c1", "Cn1ccc2ccccc21", "O=C1CCCN1C", "CCO"])
    found = {
        f.name: f.values.tolist() for f in features_of(store) if f.name.startswith("with ring")
    }
    assert found == {"with ring indole": [1, 1, 0, 0], "with ring O=C1CCCN1": [0, 0, 1, 0]}


def test_features_of_molecules_are_chemistry_and_labels(folder: Path):
    store = graphlog.read_molecules(folder.parent / "in.csv", targets=["alcohol"])
    features = {f.name: f for f in features_of(store)}
    np.testing.assert_array_equal(features["label alcohol"].values, IS_ALCOHOL)
    np.testing.assert_array_equal(features["heavy atoms"].values, store.num_nodes)
    benzenes = np.array([float(s.endswith("c1ccccc1")) for s in CHAINS])
    np.testing.assert_array_equal(features["aromatic rings"].values, benzenes)
    assert features["with halogen"].kind == "share"


def test_drawings_of_odd_molecules_do_not_fail():
    store = graphlog.read_molecules(["*", "[Na+].[Cl-]", "C" * 120, "[H][H]", "C" * 300])
    drawn = draw_graphs(store, range(len(store)))
    assert [svg.startswith("<svg") for svg in drawn] == [True] * 4 + [False]


def test_novelty_is_empty_where_the_model_does_not_know_its_graphs(
    model: Encoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    extra = {name: t for name, t in model.extra.items() if not name.startswith(PREFIX)}
    stranger = Encoder(model.network, model.layer, model.info, extra)
    write_prototypes(stranger, tmp_path / "tree", CHAINS, graphs=30, progress=Lines())
    assert "the column novelty is empty, because the model does" in capsys.readouterr().err
    assert {m["novelty"] for m in _members(tmp_path / "tree")} == {""}
    tree = _tree(tmp_path / "tree")
    assert all(root["novelty"] is None for root in tree["roots"])
    page = _page(tmp_path / "tree")
    assert page["strangers"] == []
    assert {point["novelty"] for point in page["map"]} == {None}


def test_members_have_the_names_of_the_rows_where_there_are_some(folder: Path) -> None:
    assert [row["id"] for row in _members(folder)] == NAMES
    shown = [graph for node in _nodes(_tree(folder)) for graph in node["typical"]]
    assert all(graph["id"] == NAMES[graph["row"]] for graph in shown)


def test_a_group_is_named_by_its_clearest_traits() -> None:
    def title(*traits: Trait) -> str:
        return Node((0,), 9, 1.0, None, (), [*traits], None, ()).title

    def trait(name: str, kind: Literal["mean", "share"], here: float, overall: float) -> Trait:
        return Trait(name, kind, here, overall, here - overall, 0.01)

    assert title() == ""
    assert title(trait("with ring indole", "share", 0.9, 0.1), trait("logP", "mean", 1.0, 2.0)) == (
        "indole, low logP"
    )
    assert title(
        trait("rotatable bonds", "mean", 7, 2), trait("with nitrile", "share", 0.2, 0.01)
    ) == ("many rotatable bonds, more nitrile")
    assert title(
        trait("with halogen", "share", 0.0, 0.5), trait("with ester", "share", 0.3, 0.9)
    ) == ("no halogen, less ester")
    assert title(
        trait("with isoxazole", "share", 0.2, 0.01), trait("with pyridine", "share", 0.6, 0.3)
    ) == ("pyridine, more isoxazole")
    assert title(trait("label cats", "mean", 3, 1)) == "high cats"
    furan = trait("with furan", "share", 0.9, 0.1), trait("with ring furan", "share", 0.4, 0.1)
    assert title(*furan, trait("logP", "mean", 1.0, 2.0)) == "furan, low logP"
    same = [trait(f"with {kind}furan", "share", 0.9, 0.1) for kind in ("", "ring ")]
    assert title(*same, trait("with ester", "share", 0.9, 0.1)) == "furan, ester"


def test_siblings_of_equal_title_get_longer_ones() -> None:
    traits = [Trait(name, "mean", 2.0, 1.0, 1.0, 0.01) for name in ("logP", "rings", "size", "pKa")]
    kinds = [traits[:2], traits[:3], [*traits[:2], traits[3]], [traits[3]], []]
    nodes = [Node((k,), 9, 1.0, None, (), own, None, ()) for k, own in enumerate(kinds)]
    assert [node.title for node in with_different_titles(nodes)] == [
        *("high logP, many rings", "high logP, many rings, high size"),
        *("high logP, many rings, high pKa", "high pKa", ""),
    ]


def test_equally_frequent_rings_do_not_depend_on_the_hash_seed() -> None:
    # one molecule of forty ring systems: all tie, and thirty of them are told
    rings = ".".join(f"C1{'C' * (k % 8)}{'O' * (k // 8)}N1" for k in range(2, 42))
    code = (
        "import sys; from graphlog.domains.molecule.traits import traits; "
        "print(*(f.name for f in traits(sys.argv[1:])), sep=',')"
    )
    other = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    told = python("-c", code, rings, PYTHONHASHSEED=other)
    assert told.strip().split(",") == [f.name for f in traits([rings])]


def test_a_long_search_for_a_common_part_ends_by_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    acids = ["OC(=O)c1ccc(C)cc1", "OC(=O)c1ccc(CC)cc1", "OC(=O)c1cc(CCC)ccc1"]
    assert drawing.common_part(acids, 200, 140) is not None
    monkeypatch.setattr(drawing, "_MAX_STEPS", 2)
    assert drawing.common_part(acids, 200, 140) is None


def test_the_most_novel_are_molecules_not_their_salts(model: Encoder, tmp_path: Path) -> None:
    odd = "CC1(C)OC2CC3C4CC(F)C5=CC(=O)C=CC5(C)C4(F)C(O)CC3(C)C2(O1)C(=O)CN"
    acids = ("Cl", "OC(=O)c1ccccc1", "CS(O)(=O)=O", "OC(=O)/C=C/C(O)=O")
    salts = [odd, *(f"{odd}.{acid}" for acid in acids)]
    write_prototypes(model, tmp_path / "tree", [*CHAINS, *salts], graphs=30)
    page = _page(tmp_path / "tree")
    shown = [page["graphs"][str(graph)]["text"] for graph in page["strangers"]]
    assert len(shown) == 12
    assert sum(text in salts for text in shown) == 1
    for node in _nodes(_tree(tmp_path / "tree")):
        assert sum(graph["text"] in salts for graph in node["typical"]) <= 1
