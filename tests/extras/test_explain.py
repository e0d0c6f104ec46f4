"""What a prediction rests on, node by node: as numbers, as a page and as a table."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import graphlog
from cli_support import read_table
from downstream_support import (
    CHAINS,
    IS_ALCOHOL,
    chain_store,
    classifier,
    labeled,
    probed,
    tiny_encoder,
    tuned,
    without_each_node,
    write_csv,
)
from graphlog.data.graphs import FeatureSchema
from graphlog.data.split import Split
from graphlog.downstream.finetune import FinetuneConfig
from graphlog.downstream.predictor import Predictor
from graphlog.errors import ConfigError
from graphlog.extras.explain import attribute
from graphlog.inputs import read
from graphs_support import tables


def test_contributions_are_changes_under_masking_one_node():
    predictor, store = classifier(), chain_store().subset(np.array([5, 0, 30]))
    found = attribute(predictor, store, 4)
    for graph in range(3):
        whole = store[[graph]]
        with torch.no_grad():
            plain, *hidden = (
                np.mean([member.head.predictions(member(batch)) for member in predictor.members])
                for batch in (whole, *without_each_node(whole, predictor.schema.node_mask))
            )
        np.testing.assert_allclose(found.of(graph)[:, 0], plain - np.array(hidden), atol=1e-5)
    expected_whole = predictor.predict([CHAINS[5], CHAINS[0], CHAINS[30]])
    np.testing.assert_allclose(found.predictions, expected_whole, atol=1e-5)


@pytest.mark.parametrize("size", [7, 10_000])
def test_batches_do_not_matter(size: int, monkeypatch: pytest.MonkeyPatch):
    store = chain_store().subset(np.arange(12))
    expected = attribute(classifier(), store).values
    monkeypatch.setattr("graphlog.downstream.pretrained._NODES_AT_ONCE", 100)
    np.testing.assert_allclose(attribute(classifier(), store, size).values, expected, atol=1e-5)


def test_the_atoms_that_decide_the_label_stand_out():
    """The label is the number of oxygens per atom, which the mean readout can express."""
    draw, rows = np.random.default_rng(0), np.arange(240)
    smiles = ["".join(draw.choice(list("CCCNO"), size=draw.integers(4, 12))) for _ in rows]
    table = {"smiles": smiles, "y": [s.count("O") / len(s) for s in smiles]}
    folds, config = Split(*np.split(rows, [160, 200])), FinetuneConfig(epochs=10, device="cpu")
    predictor = tuned(table, tiny_encoder("jk"), split=folds, config=config, seeds=(0,))
    found = attribute(predictor, read(smiles[200:], predictor.schema))
    for graph, text in enumerate(smiles[200:]):
        is_oxygen = np.array([atom == "O" for atom in text])
        values = found.of(graph)[:, 0]
        if 0 < is_oxygen.sum() < len(text):
            assert values[is_oxygen].min() > values[~is_oxygen].max(), (text, values)


def test_a_store_without_graphs():
    found = attribute(classifier(), chain_store().subset(np.arange(0)))
    assert found.values.shape == (0, 1)


def test_a_schema_without_masks_is_refused(monkeypatch: pytest.MonkeyPatch):
    bare = FeatureSchema("bare", "graph", classifier().schema.node, (), "node")
    monkeypatch.setattr(Predictor, "schema", bare)
    with pytest.raises(ConfigError, match="stand for masked"):
        attribute(classifier(), chain_store())


ROWS = ["CCO", "no molecule", "c1ccccc1CN"]
NAMES = ["<script>alert(1)</script>", "b", "\"><img src=x onerror='alert(2)'>"]


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    data = labeled(np.stack([IS_ALCOHOL, 1 - IS_ALCOHOL], 1), targets=("a", "<b>"))
    return tuned(data, seeds=(0,))


def test_the_page_draws_every_row_and_runs_nothing(tmp_path: Path, predictor: Predictor):
    quoted = ['"' + name.replace('"', '""') + '"' for name in NAMES]
    source, out = write_csv(tmp_path / "in.csv", ROWS, name=quoted), tmp_path / "out.html"
    written = graphlog.explain_file(predictor, source, out)
    assert (written.rows, written.rejected) == (3, 1)
    text = out.read_text(encoding="utf-8")
    cards = text.split("<figure>")[1:]
    rows = [0, 0, 1, 2, 2]  # a card for each target, and one for what cannot be read
    assert [part.count("<svg") for part in cards] == [1, 1, 0, 1, 1]
    for part, row in zip(cards, rows, strict=True):
        assert f"<b>row {row}</b>" in part
        assert ROWS[row] in part
    assert "cannot parse" in cards[2]
    assert cards[2].count("<div></div>") == 1  # the next row begins a line
    values = predictor.predict(ROWS)[::2].ravel().tolist()
    for part, value in zip([*cards[:2], *cards[3:]], values, strict=True):
        assert f"prediction {value:.4g}".replace("-", "\N{MINUS SIGN}") in part
    assert text.count("<svg role='img' aria-label='CCO' ") == 2
    assert "repeat(2, " in text
    assert re.search(
        "&lt;b&gt;: &le;&nbsp;\N{MINUS SIGN}" r"\S+ class='scale'></span>&ge;&nbsp;\+", text
    )
    assert "&lt;script&gt;" in text
    assert not re.search(r"<script|<img|\son\w+=[^;]*?>(?<!&gt;)|(?:src|href)\s*=\s*['\"]", text)
    assert "default-src 'none'" in text
    assert "http" not in re.sub(r"http://www\.w3\.org/\S+|http-equiv", "", text)


def test_a_target_that_was_not_learned_is_not_explained(tmp_path: Path):
    data = labeled(np.stack([IS_ALCOHOL, np.ones(len(CHAINS))], 1), targets=("a", "one"))
    probed(data, run_dir=tmp_path / "run")
    for name in ("out.html", "out.csv"):
        graphlog.explain_file(tmp_path / "run", ROWS, tmp_path / name)
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert text.count("class='scale'") == 1
    assert "no prediction" in text
    assert "nan" not in text
    rows = read_table(tmp_path / "out.csv")
    assert all(row["contribution_one"] == "" and row["contribution_a"] for row in rows)


def test_the_table_has_a_line_for_each_node(tmp_path: Path, predictor: Predictor):
    graphlog.explain_file(predictor, ROWS, tmp_path / "out.csv")
    rows = read_table(tmp_path / "out.csv")
    assert [int(r["row"]) for r in rows] == [0] * 3 + [2] * 8
    assert [int(r["node"]) for r in rows] == [*range(3), *range(8)]
    expected = graphlog.attribute(predictor, graphlog.read_molecules(ROWS, schema=predictor.schema))
    atoms = [("CCO", e) for e in "CCO"] + [("c1ccccc1CN", e) for e in "CCCCCCCN"]
    assert [(r["smiles"], r["element"]) for r in rows] == atoms
    found = [[float(r["contribution_a"]), float(r["contribution_<b>"])] for r in rows]
    np.testing.assert_allclose(found, expected.values, rtol=1e-5, atol=1e-7)


def test_atoms_of_the_table_are_those_of_the_smiles_as_written(
    tmp_path: Path, predictor: Predictor
):
    written = {
        "OC(Cl)[Si]([H])Br": "O C Cl Si Br",
        "*CC": "* C C",
        "[H]OC[Na]": "O C Na",
        "[2H]CF": "H C F",
        "N1C=C1S.[Og]": "N C C S Og",
    }
    graphlog.explain_file(predictor, [*written], tmp_path / "out.csv")
    rows = [(r["smiles"], int(r["node"]), r["element"]) for r in read_table(tmp_path / "out.csv")]
    assert rows == [(s, *atom) for s, line in written.items() for atom in enumerate(line.split())]
    store = graphlog.read_molecules([*written], schema=predictor.schema, keep_texts=False)
    graphlog.explain_file(predictor, store, tmp_path / "bare.csv")
    head = (tmp_path / "bare.csv").read_text().splitlines()[0]
    assert head == "row,node,element,contribution_a,contribution_<b>"


def test_a_page_shows_the_first_rows(
    tmp_path: Path, predictor: Predictor, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("graphlog.extras.explain.MOST_ON_A_PAGE", 5)
    graphlog.explain_file(predictor, CHAINS, tmp_path / "out.html")
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert text.count("<svg") == 5 * 2
    assert "Of 48 rows" in text


def test_graphs_without_drawings_are_for_tables(tmp_path: Path):
    sizes = range(2, 32)
    edges = [f"{n},{i},{i + 1}" for n in sizes for i in range(n)]
    nodes = [f"{n},{i},{'ab'[i % 2]}" for n in sizes for i in range(n + 1)]
    texts = [["graph,source,target", *edges], ["graph,node,row", *nodes]]
    texts.append(["graph,y", *(f"{n},{n / 2}" for n in sizes)])
    source = tables(tmp_path / "paths", *("\n".join(lines) for lines in texts))
    how = {"epochs": 1, "seeds": (0,), "baselines": (), "split": "random", "device": "cpu"}
    predictor = graphlog.finetune("random", source, **how)
    with pytest.raises(ConfigError, match=r"no drawings to color; name a \.csv"):
        graphlog.explain_file(predictor, source, tmp_path / "out.html")
    graphlog.explain_file(predictor, source, tmp_path / "out.csv")
    rows = read_table(tmp_path / "out.csv")
    assert len(rows) == sum(range(3, 33))
    assert [*rows[0]] == ["row", "graph", "node", "graphlog_row", "contribution_y"]
    assert all(int(r["graph"]) == int(r["row"]) + 2 for r in rows)
    assert all(r["graphlog_row"] == "ab"[int(r["node"]) % 2] for r in rows)
