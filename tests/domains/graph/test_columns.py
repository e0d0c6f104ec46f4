"""What a schema keeps for new graphs: names of columns, means of the graphs used, direction."""

import numpy as np
import pytest

import graphlog
from cli_support import Cli
from graphlog.api import read_graphs
from graphlog.data.split import Split
from graphlog.downstream.pretrained import random_encoder
from graphlog.downstream.tasks import open_labeled
from graphlog.errors import ConfigError, DataError
from graphs_support import lines, read_lines, read_tables, rings

EDGES = "graph,source,target,type,stage\na,0,1,1,2\na,1,2,2,1\nb,0,1,2,2\n"
NODES = (
    "graph,node,mass,charge\na,0,99.5,-1.5\na,1,98.5,1.25\na,2,71.5,0.5\nb,0,1.5,2.5\nb,1,3.5,1.5\n"
)
PLAIN = "graph,source,target\na,0,1\na,1,2\nb,0,1\n"
PAIRS = "graph,source,target\n" + "".join(f"{k},0,1\n" for k in range(4))


@pytest.fixture
def first(tmp_path):
    return read_tables(tmp_path, EDGES, NODES)


def _swapped(text: str) -> str:
    """Return a table whose last two columns have changed places."""
    rows = [line.split(",") for line in text.splitlines()]
    return "".join(",".join([*row[:-2], row[-1], row[-2]]) + "\n" for row in rows)


def test_columns_of_tables_are_matched_by_name_and_means_kept(tmp_path, first):
    again = read_tables(tmp_path, _swapped(EDGES), _swapped(NODES), schema=first.schema)
    assert again.schema == first.schema
    np.testing.assert_array_equal(again[:].x, first[:].x)
    np.testing.assert_array_equal(again[:].edge_attr, first[:].edge_attr)
    again = read_tables(tmp_path, EDGES, NODES.replace("71.5", "nan"), schema=first.schema)
    assert (len(again), again.schema) == (1, first.schema)


OTHER_COLUMNS = [
    (
        EDGES,
        NODES.replace("charge", "Charge"),
        r"tables: node columns must be those of the schema \(mass, charge\), in any order; "
        r"missing: charge; unknown: Charge\. Rename",
    ),
    (EDGES.replace("stage", "phase"), NODES, "edge columns .*missing: stage; unknown: phase"),
    (EDGES, None, r"node columns .*missing: mass, charge\. Rename"),
    ("graph,source,target,type\na,0,1,1\n", NODES, r"edge columns .*missing: stage\. Rename"),
]


@pytest.mark.parametrize(("edges", "nodes", "problem"), OTHER_COLUMNS)
def test_columns_of_other_names_are_refused_in_one_line(tmp_path, first, edges, nodes, problem):
    with pytest.raises(DataError, match=problem):
        read_tables(tmp_path, edges, nodes, schema=first.schema)


def test_an_edge_column_that_the_schema_lacks_is_refused(tmp_path):
    plain = read_tables(tmp_path, PLAIN, NODES)
    with pytest.raises(DataError, match=r"schema \(none\).*unknown: type, stage\. Rename"):
        read_tables(tmp_path, EDGES, NODES, schema=plain.schema)


def test_where_either_side_has_no_names_columns_go_by_position(tmp_path, first):
    record = {"edges": [[0, 1]], "x": [[99.5, -1.5], [98.5, 1.25]], "edge_attr": [[1, 2]]}
    records = [record, record | {"edge_attr": [[2, 1]]}]
    unnamed = read_lines(tmp_path, records)
    again = read_tables(tmp_path, EDGES, NODES, schema=unnamed.schema)
    np.testing.assert_array_equal(again[:].x, first[:].x)
    again = read_lines(tmp_path, records, schema=first.schema)
    np.testing.assert_array_equal(again[:].x, unnamed[:].x)


def test_a_schema_of_degrees_reads_tables_with_and_without_columns(tmp_path):
    edges, constant = (
        "graph,source,target\na,0,1\na,1,2\n",
        "graph,node,kind\na,0,x\na,1,x\na,2,x\n",
    )
    degrees = read_tables(tmp_path, edges, constant)
    assert degrees.schema.node[0].origin == "degree"
    for nodes in (constant, None):
        again = read_tables(tmp_path, edges, nodes, schema=degrees.schema)
        assert again[:].x[:, 0].tolist() == [1, 2, 1]
    with pytest.raises(DataError, match=r"attributes \(kind\) .* uses node degrees instead; drop"):
        read_tables(tmp_path, edges, constant.replace("2,x", "2,y"), schema=degrees.schema)


def _moments(schema) -> list[tuple[float, float]]:
    return [(a.shift, a.scale) for a in (*schema.node, *schema.edge)]


@pytest.mark.parametrize("bad", ["NaN", "-Infinity", "null", None])
@pytest.mark.parametrize(("point", "kind"), [(".0", "continuous"), ("", "categorical")])
def test_a_bad_value_does_not_decide_what_the_others_are(tmp_path, bad, point, kind):
    """Whole numbers are quantities if they were written with a point, whatever else is there."""
    values = [f"[[{k % 5}{point}], [{k % 3}{point}]]" for k in range(8)]
    values[2:2] = [] if bad is None else [f"[[1{point}], [{bad}]]", f"[[{bad}], [{bad}]]"]
    store = read_lines(tmp_path, [f'{{"edges": [[0, 1]], "x": {x}}}' for x in values])
    assert (len(store), len(store.rejects)) == (8, len(values) - 8)
    assert store.schema.node[0].is_categorical == (kind == "categorical")


@pytest.mark.parametrize("bad", ["NaN", "Infinity", "null", '"word"'])
def test_rejected_graphs_do_not_count_in_means(tmp_path, bad):
    values = np.array([[k + 0.5, 3.5 * k] for k in range(5)])
    good = [
        {"edges": [[0, 1]], "x": x[:, None].tolist(), "edge_attr": [[k / 4]]}
        for k, x in enumerate(values)
    ]
    ruinous = f'{{"edges": [[0, 1]], "x": [[1e30], [{bad}]], "edge_attr": [[1e20]]}}'
    far = {"edges": [[0, 7]], "x": [[1e30], [1e30]], "edge_attr": [[1e20]]}
    clean = read_lines(tmp_path, good)
    found = read_lines(tmp_path, [*good[:2], ruinous, far, *good[2:]])
    assert [r.row for r in found.rejects] == [2, 3]
    np.testing.assert_allclose(_moments(found.schema), _moments(clean.schema), rtol=1e-6)
    assert found.schema.node_mask == pytest.approx(clean.schema.node_mask)
    assert _moments(clean.schema)[0] == pytest.approx((values.mean(), values.std()))


def test_edges_that_are_dropped_do_not_count_in_means(tmp_path):
    records = [
        {"edges": [[0, 1], [1, 0], [1, 1], [1, 2]], "edge_attr": [[0.5], [0.5], [1e20], [2.5]]},
        {"edges": [[0, 1]], "edge_attr": [[3.75]]},
    ]
    kept = np.array([0.5, 2.5, 3.75])
    schema = read_lines(tmp_path, records).schema
    assert _moments(schema)[-1] == pytest.approx((kept.mean(), kept.std()))
    assert schema.self_loop == schema.edge_mask == (schema.edge[0].shift,)
    listed = read_lines(tmp_path, records, directed=True).schema.edge[0]
    assert listed.shift == pytest.approx(np.mean([0.5, 0.5, 1e20, 2.5, 3.75]))


DIFFERENCES = [
    (NODES.replace("charge", "Charge"), EDGES, "node columns: mass, charge, not mass, Charge"),
    (
        NODES.replace("71.5", "72.5"),
        EDGES,
        "mean and standard deviation of node column 'mass': 54.9 and",
    ),
    (NODES, EDGES.replace("a,0,1,1", "a,0,1,3"), "of edge column 'type': 1, not 3"),
]


@pytest.mark.parametrize(("nodes", "edges", "difference"), DIFFERENCES)
def test_a_store_of_another_schema_is_told_where_it_differs(
    tmp_path, first, nodes, edges, difference
):
    other = read_tables(tmp_path, edges, nodes)
    model = random_encoder(schema=first.schema, graphs=first)
    with pytest.raises(ConfigError, match=difference):
        model.embed(other)
    with pytest.raises(ConfigError, match=difference):
        graphlog.pretrain(other, init=model)


def _nodes(*values: str) -> str:
    listed = (f'{k},{j},"{value}"\n' for k, value in enumerate(values) for j in range(2))
    return "graph,node,kind\n" + "".join(listed)


def test_numerals_are_names_beside_words_and_numbers_elsewhere(tmp_path):
    words = read_tables(tmp_path, PAIRS, _nodes("2E1", "2E1", "2D6", "20"))
    numbers = read_tables(tmp_path, PAIRS, _nodes("20", "1", "2", "3"))
    assert words.schema.node[0].values == ("20", "2D6", "2E1")
    alone = (tmp_path, PAIRS, _nodes(*["2E1"] * 4))
    assert read_tables(*alone, schema=words.schema)[:].x[:, 0].tolist() == [2] * 8
    assert read_tables(*alone, schema=numbers.schema)[:].x[:, 0].tolist() == [20] * 8
    assert (
        read_tables(tmp_path, PAIRS, _nodes("2E1", "2E1", "2E1", "4E1")).schema.node[0].shift == 25
    )
    assert read_tables(*alone, kinds={"kind": "categorical"}).schema.node[0].values[20] == "20"
    labeled = read_tables(tmp_path, PAIRS, None, "graph,y\n0,01\n1,02\n2,10\n3,x\n")
    assert labeled.source.classes == {"y": ["10", "01", "02", "x"]}


def test_a_decimal_comma_is_noted_of_attributes(cli: Cli, tmp_path):
    store = read_tables(tmp_path, PAIRS, _nodes("0,5", "1,5", "2", "3"))
    assert "note: node attribute 'kind': words such as 0,5" in cli("featurize tables -o s").err
    assert store.source.notes == (
        "node attribute 'kind': words such as 0,5 are read as categories; write numbers with a "
        "decimal point",
    )


def test_labels_of_tables_that_nobody_asks_for_cost_no_graph(tmp_path):
    graphs = "graph,val,act\n0,0.5,1\n1,low,0\n2,1.5,1\n3,inf,0\n"
    labeled = (tmp_path, PAIRS, _nodes("1", "2", "1", "2"), graphs)
    rejects = read_tables(*labeled).rejects
    assert [(r.row, r.reason[:11]) for r in rejects] == [(1, "label 'val'"), (3, "label 'val'")]
    store = read_tables(*labeled, targets=["act"])
    assert (store.tasks, store.labels[:, 0].tolist()) == (("act",), [1, 0, 1, 0])
    assert store.source.name == "tables"
    with pytest.raises(ConfigError, match="did you mean 'act'"):
        read_tables(*labeled, targets=["acts"])
    model, source = random_encoder(schema=store.schema, graphs=store), tmp_path / "tables"
    assert np.isfinite(model.embed(source)).all()
    split = Split(np.array([0, 1]), np.array([2]), np.array([3]))
    assert len(open_labeled(source, store.schema, targets=["act"], split=split).store) == 4


def test_labels_of_json_lines_that_nobody_asks_for_cost_no_graph(tmp_path):
    ys = (1, {"z": 2}, [[3]], 4)
    unnamed = [{"edges": [[0, 1]], "x": [[1], [2]], "y": y} for y in ys]
    store = read_lines(tmp_path, unnamed)
    assert [r.reason for r in store.rejects] == [
        "line 2: `y` must be 1 labels (y), found z",
        "line 3: label 'y' must hold numbers and words, found [3]",
    ]
    model = random_encoder(schema=store.schema, graphs=store)
    assert np.isfinite(model.embed(lines(tmp_path / "g.jsonl", unnamed))).all()
    sparse = ({"a": 1}, {"b": 2, "a": [3]}, {"b": 4}, {}, {})
    named = [{"edges": [[0, 1]], "y": y} for y in sparse]
    store = read_lines(tmp_path, named)
    assert (store.tasks, [r.row for r in store.rejects]) == (("a", "b"), [1])
    labels = read_lines(tmp_path, named, targets=["b"]).labels[:, 0]
    np.testing.assert_array_equal(labels, [np.nan, 2, 4, np.nan, np.nan])


def test_texts_beside_labels_are_left_out(tmp_path):
    edges = "graph,source,target\n" + "".join(f"{k},0,1\n" for k in range(1001))
    graphs = "graph,text,act\n" + "".join(f"{k},t{k},{k % 2}\n" for k in range(1001))
    store = read_tables(tmp_path, edges, None, graphs)
    assert store.tasks == read_graphs(tmp_path / "tables", targets="act").tasks == ("act",)
    assert store.source.notes == (
        "column 'text' of graphs is left out: more than 1,000 different words",
    )
    with pytest.raises(DataError, match="'text' has more than 1,000 different values"):
        read_graphs(tmp_path / "tables", targets=["text"])


def test_a_count_that_contradicts_the_nodes_is_refused(tmp_path):
    graphs = "graph,num_nodes\n0,2\n1,3\n2,02\n3,\n"
    store = read_tables(tmp_path, PAIRS, _nodes("1", "2", "1", "2"), graphs)
    assert [(r.row, r.reason) for r in store.rejects] == [
        (1, "nodes.csv has 2 nodes and `num_nodes` is 3")
    ]


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


def test_the_command_line_keeps_and_shows_the_direction(cli: Cli, tmp_path):
    rings(tmp_path / "rings.jsonl")
    assert "directed" in cli("featurize rings.jsonl -o store --directed").out
    cli("featurize rings.jsonl -o again --like store")
    assert not graphlog.open_store(tmp_path / "again").undirected
