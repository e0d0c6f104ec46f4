"""A schema is found out by stated rules, keeps them, and encoders follow them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphlog.data.graphs import Attribute, FeatureSchema
from graphlog.domains.graph.raw import Collection, RawGraph, RawGraphs, column, is_absent, join
from graphlog.domains.graph.schema import Moments, Survey, attribute_codes, chunk_of, with_columns
from graphlog.encoders.encoder import AttributeTable, expand_attributes, standardized
from graphlog.errors import DataError

whole = st.lists(st.integers(-(2**31), 2**31), min_size=1, max_size=40)
words = st.lists(
    st.one_of(
        st.text(min_size=1, max_size=3).filter(lambda word: not is_absent(word)), st.integers(0, 5)
    ),
    min_size=1,
    max_size=40,
)
fractions = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40)


def _graph(values: list) -> RawGraph:
    return RawGraph(0, "", len(values), node=(column(values),))


def _nodes(values: list) -> RawGraphs:
    return join([_graph(values)])


def _survey(*names: str, keep_constant: bool = True) -> Survey:
    made = Collection("", lambda: iter(()), node=names, keep_constant=keep_constant)
    return Survey(made, ("node", "edge"))


def _schema(*pieces: list, **options) -> FeatureSchema:
    survey, moments = _survey("a"), Moments(1)
    for piece in pieces:
        survey.add(_nodes(piece))
    schema = survey.schema(**options)
    for piece in pieces:
        moments.add(chunk_of([_graph(piece)], schema)[0].x)
    return with_columns(schema, moments.scaled(schema.node), ())


@given(st.one_of(whole, words, fractions))
def test_what_was_seen_fits_and_a_schema_survives_its_description(values):
    schema = _schema(values)
    assert FeatureSchema.from_dict(schema.to_dict()) == schema
    codes, unfit = attribute_codes(_nodes(values), "node", schema.node)
    assert not unfit
    attribute = schema.node[0]
    if attribute.is_categorical:
        assert schema.node_mask[0] == attribute.cardinality - 1
        assert codes.max() < schema.node_mask[0]
        assert [attribute.values[int(c)] for c in codes[:, 0]] == [str(v) for v in values]
    else:
        assert schema.node_mask[0] == attribute.shift


@given(st.one_of(whole, words, fractions), st.integers(0, 40))
def test_pieces_do_not_matter(values, cut):
    cut = min(cut, len(values))
    one, two = (
        _schema(values).node[0],
        _schema(*[p for p in (values[:cut], values[cut:]) if p]).node[0],
    )
    assert (one.cardinality, one.values) == (two.cardinality, two.values)
    assert two.shift == pytest.approx(one.shift, rel=1e-6, abs=1e-6 * max(1.0, one.scale))
    assert two.scale == pytest.approx(one.scale, rel=1e-4)


@given(fractions)
def test_encoders_read_continuous_columns_with_mean_0_and_deviation_1(values):
    attribute = _schema([*values, 0.5]).node[0]
    read = standardized(torch.tensor([*values, 0.5])[:, None], (attribute,)).double()
    assert abs(float(read.mean())) < 1e-3
    spread = float(read.std(correction=0))
    assert spread == pytest.approx(1.0, abs=1e-2) or attribute.scale == 1.0


def _read(values: np.ndarray) -> np.ndarray:
    """Return quantities, stored in 32 bits, as encoders read them."""
    stored = torch.from_numpy(values.astype(np.float32))[:, None]
    return standardized(stored, _schema(values.tolist()).node).numpy()[:, 0]


@given(
    st.lists(st.integers(-999, 999), min_size=2, max_size=40, unique=True),
    st.integers(-36, 33),
    st.integers(-100_000, 100_000),
)
def test_neither_unit_nor_origin_matters_to_encoders(numbers, power, origin):
    values = np.array(numbers) / 7
    moved = (values + origin) * 10.0**power
    rounding = np.finfo(np.float32).eps * (10 + np.abs(moved).max() / moved.std())
    np.testing.assert_allclose(_read(moved), _read(values), rtol=0, atol=rounding)


@pytest.mark.parametrize("values", [[0.1] * 7, [1e-30] * 7, [0.0, 0.0], [1.2e8 + 0.1, 1.2e8 + 0.2]])
def test_what_is_equal_as_it_is_stored_has_deviation_1(values):
    assert _schema(values).node[0].scale == 1.0


def test_quantities_that_32_bits_cannot_tell_apart_are_noted():
    """Seconds since 1970 are whole multiples of 128 in a store."""
    seconds = [1.7e9 + 40 + k for k in range(60)]
    rows = np.array([[s, s - 1.7e9, 0.1, 1.7e9 + 1] for s in seconds])
    columns = tuple(Attribute(name, 0) for name in ("far", "near", "small", "equal"))
    moments = Moments(4)
    for piece in (rows[:7], rows[7:]):
        moments.add(piece)
    stored = rows.astype(np.float32).astype(np.float64)
    assert [c.scale for c in moments.scaled(columns)] == pytest.approx(
        [stored[:, 0].std(), rows[:, 1].std(), 1.0, 1.0]
    )
    (note,) = moments.notes("node", columns)
    assert note.startswith("node attribute 'far': values near 1.7e+09 are rounded by up to 64 ")


def test_kinds_by_what_is_there():
    assert _schema([0, 1, 2]).node[0].values == ("0", "1", "2")
    # codes as they are; 0 and 2 were never seen
    assert _schema([3, 1]).node[0].values == ("", "1", "", "3")
    assert _schema([-1, 1]).node[0].values == ("-1", "1")
    assert not _schema(list(range(-100, 100))).node[0].is_categorical
    assert not _schema([0.5, 1.5]).node[0].is_categorical
    assert _schema(["x", 1]).node[0].values == ("1", "x")
    assert _schema(["x", "y", 0.5]).node[0].values == ("0.5", "x", "y")
    assert not _schema([0.5, "n/a", 0.25, 1.5]).node[0].is_categorical  # a slip among numbers
    assert not _schema([0, 1], kinds={"a": "continuous"}).node[0].is_categorical


def test_too_many_categories_are_refused():
    with pytest.raises(DataError, match="more than 4,096 different values"):
        _schema([f"word{k}" for k in range(5000)])


def test_a_code_never_seen_is_no_category():
    _, unfit = attribute_codes(_nodes([2, 7]), "node", _schema([3, 1]).node)
    assert list(unfit) == [0, 1]


def test_without_attributes_the_degree_speaks_up_to_a_cap():
    star = np.stack([np.zeros(300, dtype=np.int64), np.arange(1, 301)])
    survey, raw = _survey(), join([RawGraph(0, "", 301, star)])
    survey.add(raw)
    schema = survey.schema()
    assert schema.node[0] == Attribute("degree", 257, origin="degree")
    codes, unfit = attribute_codes(raw, "node", schema.node)
    assert not unfit
    assert codes[:2, 0].tolist() == [255, 1]


@pytest.mark.parametrize("value", [4, 4.5])
def test_attributes_that_never_change_give_way_to_the_degree_if_wished(value: float):
    graphs = join([RawGraph(0, "", 3, np.array([[0], [1]]), (column([value] * 3),))])
    for keep, name in ((True, "a"), (False, "degree")):
        survey = _survey("a", keep_constant=keep)
        survey.add(graphs)
        assert survey.schema().node[0].name == name


def test_the_table_standardizes_and_masks_with_the_mean():
    schema = _schema([10.0, 20.0, 30.5])
    assert schema.node_mask == (pytest.approx(20.1666666),)
    table = AttributeTable(schema.node, 4)
    mean = torch.tensor([[schema.node[0].shift]])
    assert torch.allclose(table(mean), table.weight[-1:], atol=1e-5)
    plain = expand_attributes(torch.tensor([[3.0]]), (Attribute("b", 0),), torch.float32)
    assert plain.tolist() == [[3.0, 1.0]]
