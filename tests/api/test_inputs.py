"""What people hold is read alike: frames, columns, RDKit molecules, SDF, Excel, pipes, graphs."""

import gzip
import os
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from rdkit import Chem
from torch_geometric.data import Data

import graphlog
from downstream_support import tuned
from graphlog.domains import Input
from graphlog.domains.molecule import MOLECULE, MOLECULE_CIP
from graphlog.downstream.probe import opened
from graphlog.downstream.tasks import open_labeled
from graphlog.errors import ConfigError, DataError
from graphlog.inputs import read, read_streamed, recall_input, remember_input, resolve, rows_of

SMILES = [f"{'C' * n}{end}" for n in range(2, 14) for end in ("O", "N")]
ACTIVE = ["yes" if "O" in s else "no" for s in SMILES]
COLUMNS: dict[str, list[Any]] = {
    "id": list(range(len(SMILES))),
    "Structure (SMILES)": SMILES,
    "active": ACTIVE,
}


TWICE = pd.DataFrame([["C", "C"]], columns=["smiles", "smiles"])
LINE = nx.path_graph(2)
PAIR = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
MOLECULES, GRAPHS = graphlog.read_molecules, graphlog.read_graphs

FRAMES: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pd.DataFrame(COLUMNS),
    "polars": lambda: pytest.importorskip("polars").DataFrame(COLUMNS),
    "pyarrow": lambda: pytest.importorskip("pyarrow").table(COLUMNS),
    "dictionary": lambda: COLUMNS,
}


@pytest.fixture(scope="module")
def encoder() -> graphlog.Encoder:
    small = {"dim": 8, "layers": 2}
    return graphlog.pretrain(SMILES, epochs=1, batch_size=8, encoder=small)


@pytest.fixture(scope="module")
def predictor(encoder: graphlog.Encoder) -> graphlog.Predictor:
    """A model of the only column of a frame that can be a label."""
    return tuned(pd.DataFrame(COLUMNS), encoder, split="random", seeds=(0,))


@pytest.mark.parametrize("kind", FRAMES)
def test_a_data_frame_is_a_table(kind: str, encoder: graphlog.Encoder, tmp_path: Path) -> None:
    frame = FRAMES[kind]()
    store = graphlog.read_molecules(frame, targets=["active"])
    assert (store.texts(), store.tasks) == (SMILES, ("active",))
    assert store.labels.ravel().tolist() == [float(a == "yes") for a in ACTIVE]
    np.testing.assert_array_equal(encoder.embed(frame), encoder.embed(SMILES))
    graphlog.embed_file(encoder, frame, tmp_path / "z.csv")
    table = pd.read_csv(tmp_path / "z.csv")
    assert table["id"].tolist() == COLUMNS["id"]
    assert set(table["graphlog_status"]) == {"ok"}


@pytest.mark.parametrize("columns", [[0, 1], [("a", "b"), ("a", "c")]])
def test_columns_may_have_other_names_than_texts(columns: Any, encoder: graphlog.Encoder) -> None:
    frame = pd.DataFrame(dict(zip(columns, (SMILES, COLUMNS["id"]), strict=True)))
    store = graphlog.read_molecules(frame, smiles_column=columns[0], targets=columns[1:])
    assert (store.texts(), store.tasks) == (SMILES, (str(columns[1]),))
    found = encoder.embed(frame, smiles_column=columns[0])
    np.testing.assert_array_equal(found, encoder.embed(SMILES))
    with pytest.raises(ConfigError, match="`smiles_column` is the name of a column, found list"):
        encoder.embed(frame, smiles_column=columns)


WRONG: list[tuple[type[Exception], str, Callable[[Any], object], object]] = [
    (ConfigError, "unknown model 'nope'; name a run folder", graphlog.load_predictor, "nope"),
    (ConfigError, "unknown model 'nope'; known: graphlog-mol$", graphlog.describe, "nope"),
    (ConfigError, r"^graphs are read .* found a list of Graph; .*networkx", GRAPHS, [LINE]),
    (ConfigError, r"^graphs are read from .* found a list of dict", GRAPHS, [{"edges": [[0, 1]]}]),
    (ConfigError, r"^'CCO' is neither .* as a list: \['CCO'\]", MOLECULES, "CCO"),
    (ConfigError, "is neither a file nor a data set", MOLECULES, "C" * 300),
    (DataError, "no SMILES column", MOLECULES, pd.DataFrame({"a": ["CCO"], "b": [1]})),
    (DataError, "two columns are named 'smiles'", MOLECULES, TWICE),
    (DataError, "two columns are named '1'", MOLECULES, {"smiles": ["C"], 1: [2], "1": [3]}),
    (DataError, "read a set, since it has no order; give a list", MOLECULES, {"C", "CC"}),
    (DataError, "differ in length", MOLECULES, {"smiles": ["C", "CC"], "y": [1]}),
    (DataError, r"one text as a column, 'CCO'; give a list", MOLECULES, {"smiles": "CCO"}),
]


@pytest.mark.parametrize(("error", "reason", "call", "given"), WRONG)
def test_what_cannot_be_read_is_named(
    error: type[Exception], reason: str, call: Callable[[Any], object], given: object
) -> None:
    with pytest.raises(error, match=reason):
        call(given)


def test_wrong_models_and_options_are_named(predictor: graphlog.Predictor) -> None:
    reasons = {"nope": "unknown model 'nope'; known: graphlog-mol, random", None: "found NoneType"}
    for model, reason in reasons.items():  # the types of a second call are not checked
        with pytest.raises(ConfigError, match=reason):
            graphlog.load(model)
    with pytest.raises(ConfigError, match=r"`Predictor.predict_uncertain` takes `interval`"):
        graphlog.predict(predictor, SMILES, interval=0.9)


def test_a_frame_is_learned_from(predictor: graphlog.Predictor) -> None:
    assert repr(predictor).startswith("Predictor(classification of active, ")
    assert predictor.targets == ("active",)
    notes = " ".join(predictor.report.notes)
    assert "words are read as classes (no = 0, yes = 1)" in notes
    assert "all numeric columns are used as labels: active" in notes


def test_missing_and_odd_cells_of_a_frame_are_rejected_rows() -> None:
    frame = pd.DataFrame({"smiles": ["CCO", None, 3.5, "C", "N"], "y": [1, 0, 1, 0, 1]})
    store = graphlog.read_molecules(frame, targets=["y"], on_error="skip")
    assert store.rows.tolist() == [0, 3, 4]
    assert store.rejects[0].reason == "empty"
    assert store.rejects[1].text == "3.5"


@pytest.mark.parametrize(
    ("words", "labels"),
    [
        (["yes", "No", " YES "], [1, 0, 1]),
        (["true", "FALSE", ""], [1, 0]),
        (["active", "inactive", "n/a"], [1, 0]),
        (["yes", "no", "0"], [1, 0, 0]),
        ([True, False, True], [1, 0, 1]),
    ],
)
def test_words_for_classes_are_understood_and_said(words: list[Any], labels: list[float]) -> None:
    table = {"smiles": ["C", "CC", "CCC"] * 8, "y": words * 8}
    data = open_labeled(table, MOLECULE, split="random")
    np.testing.assert_array_equal(data.labels.ravel(), labels * 8)
    assert any("words are read as classes" in note for note in data.notes)


def test_molecules_of_rdkit_are_what_their_smiles_are(encoder: graphlog.Encoder) -> None:
    molecules = [Chem.MolFromSmiles(s) for s in SMILES]
    np.testing.assert_array_equal(encoder.embed(molecules), encoder.embed(SMILES))
    column = pd.DataFrame({"mol": molecules})
    np.testing.assert_array_equal(encoder.embed(column), encoder.embed(SMILES))
    assert graphlog.read_molecules([molecules[0], None]).rejects[0].reason == "empty"


def _record(smiles: str, fields: dict[str, str]) -> str:
    molecule = Chem.MolFromSmiles(smiles)
    for name, value in fields.items():
        molecule.SetProp(name, value)
    return Chem.SDWriter.GetText(molecule)


def test_sdf_files(tmp_path: Path, predictor: graphlog.Predictor) -> None:
    path, pairs = tmp_path / "a.sdf", enumerate(zip(SMILES, ACTIVE, strict=True))
    path.write_text("".join(_record(s, {"_Name": f"m{k}", "active": a}) for k, (s, a) in pairs))
    store = graphlog.read_molecules(path, targets=["active"])
    assert store.texts() == SMILES
    packed = tmp_path / "b.sdf.gz"
    text = path.read_text().replace("  9  8  0", " XX YY  0")  # two records of nine atoms
    packed.write_bytes(gzip.compress(text.encode()))
    store = graphlog.read_molecules(packed)
    assert store.num_rows == len(SMILES)
    assert [r.reason for r in store.rejects] == ["RDKit cannot parse this SDF record"] * 2
    graphlog.predict_file(predictor, path, tmp_path / "p.csv")
    assert pd.read_csv(tmp_path / "p.csv")["name"].tolist()[:2] == ["m0", "m1"]
    (tmp_path / "empty.sdf").write_text("")
    with pytest.raises(DataError, match="holds no molecule"):
        graphlog.read_molecules(tmp_path / "empty.sdf")


def test_data_fields_of_sdf_files_stay_as_they_are_written(
    tmp_path: Path, encoder: graphlog.Encoder
) -> None:
    fields = {"ID": "00123", "mass": "1.10", "name": "own", "smiles": "x", "long": "1" * 21}
    record, path = _record("CCO", {"_Name": "title", **fields}), tmp_path / "a.sdf"
    path.write_text(record * 201 + "\n \n")  # blank lines are no record
    graphlog.embed_file(encoder, path, tmp_path / "e.csv")
    table = pd.read_csv(tmp_path / "e.csv", dtype=str)
    assert len(table) == 201
    twice = tmp_path / "b.sdf"
    twice.write_text(record + _record("CCO", {"smiles.2": "field", "smiles": "y", "ID": "1"}))
    graphlog.embed_file(encoder, twice, tmp_path / "f.csv")
    same = pd.read_csv(tmp_path / "f.csv", dtype=str)
    assert same["smiles.3"].tolist() == ["x", "y"]  # one field, one column
    expected = {"smiles": "CCO", "name": "title", "name.2": "own", "smiles.2": "x"}
    expected |= {"ID": "00123", "mass": "1.10", "long": "1" * 21}
    assert table.iloc[0][list(expected)].to_dict() == expected


@pytest.mark.parametrize("on_disk", [False, True])
def test_the_first_rows_of_a_store_are_those_of_its_table(tmp_path: Path, on_disk: bool) -> None:
    rows = ["bad", "CCO", "CCC", "no", "CCN"]
    store = graphlog.read_molecules(rows, workers=1)
    store = store.save(tmp_path / "s") if on_disk else store
    for limit in range(1, 7):
        own, table = read(store, limit=limit), read(rows[:limit], workers=1) if limit > 1 else None
        assert own.num_output_rows == min(limit, 5)
        assert own.output_status() == store.output_status()[:limit]
        if table is not None:
            assert own.output_rows.tolist() == table.output_rows.tolist()
            assert [r.row for r in own.rejects] == [r.row for r in table.rejects]
        assert read(own, limit=2).output_rows.tolist() == [1][: limit - 1]
    with pytest.raises(DataError, match=r"row 0: .*; fix it, or skip such rows"):
        read(store, on_error="fail")


def test_the_first_rows_of_a_part_of_a_store_are_those_that_it_has(tmp_path: Path) -> None:
    store = graphlog.read_molecules(["C" * n for n in range(1, 101)], workers=1)
    part = store.subset(np.arange(50, 100)).save(tmp_path / "part")
    assert read(part, limit=20).texts() == store.texts(np.arange(50, 70))
    assert len(read(part, limit=60)) == 50


@pytest.mark.parametrize("targets", [np.array(["y"]), {"y": 1}.keys(), ["y"]])
def test_how_a_run_was_read_is_noted_whatever_holds_the_names(tmp_path: Path, targets: Any) -> None:
    path = tmp_path / "m.csv"
    path.write_text("smiles,y\nCCO,1\n")
    remember_input(tmp_path, resolve(path, MOLECULE), targets=targets, limit=np.int64(5))
    assert recall_input(tmp_path) == (str(path), {"limit": 5, "targets": ["y"]})


def test_the_input_of_a_run_is_noted_where_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = graphlog.read_molecules(["CCO"]).save("store")
    Path("m.csv").write_text("smiles\nCCO\n")
    opened = {name: resolve(name) for name in ("m.csv", "store")}
    opened["of a store"] = resolve(store)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    for name, source in opened.items():
        remember_input(tmp_path, source)
        expected = tmp_path / ("m.csv" if name == "m.csv" else "store")
        assert recall_input(tmp_path) == (str(expected), {})


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "cut short": lambda sheet: sheet[: len(sheet) // 2],
    "lost": lambda _: None,
    "a text that is not there": lambda sheet: sheet.replace(b't="n"><v>', b't="s"><v>9999'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_sheet_is_read_and_a_damaged_one_is_one_error(tmp_path: Path, damage: str) -> None:
    """Its rows are parsed while they are read, after the workbook has been opened."""
    pytest.importorskip("openpyxl")
    pd.DataFrame(COLUMNS).to_excel(tmp_path / "whole.xlsx", index=False)
    store = graphlog.read_molecules(tmp_path / "whole.xlsx", targets="auto")
    assert (store.texts(), store.tasks) == (SMILES, ("active",))
    path = tmp_path / "damaged.xlsx"
    with zipfile.ZipFile(tmp_path / "whole.xlsx") as whole, zipfile.ZipFile(path, "w") as copy:
        for name in whole.namelist():
            content = whole.read(name)
            content = DAMAGES[damage](content) if "sheet1.xml" in name else content
            if content is not None:
                copy.writestr(name, content)
    for content in (path.read_bytes(), b"PK no workbook"):
        path.write_bytes(content)
        with pytest.raises(
            DataError, match=r"damaged.xlsx: not a readable Excel .*; save it again"
        ):
            graphlog.read_molecules(path, workers=1)


@pytest.mark.parametrize("source", ["nci5k", "file.csv"])
def test_files_and_data_sets_are_mapped_from_a_temporary_store(tmp_path: Path, source: str) -> None:
    """The molecules of a data set can be as many as those of a file."""
    pd.DataFrame(COLUMNS).to_csv(tmp_path / "file.csv")
    given = tmp_path / source if source == "file.csv" else source
    with read_streamed(given, MOLECULE, limit=20, workers=1) as store:
        folder = store.path
        assert folder.is_dir()
        assert store.texts() == read(given, MOLECULE, limit=20, workers=1).texts()
    assert not folder.exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_predict_reads_a_named_pipe_once(tmp_path: Path, predictor: graphlog.Predictor) -> None:
    frame, pipe = pd.DataFrame(COLUMNS), tmp_path / "pipe"
    os.mkfifo(pipe)
    threading.Thread(target=lambda: frame.to_csv(pipe, index=False), daemon=True).start()
    graphlog.predict_file(predictor, pipe, tmp_path / "p.csv")
    assert pd.read_csv(tmp_path / "p.csv")["id"].tolist() == COLUMNS["id"]


@pytest.mark.parametrize(
    ("many", "name"), [(1, "list of 1 record"), (1200, "list of 1,200 records")]
)
def test_a_list_is_called_by_its_length(many: int, name: str) -> None:
    assert resolve(["CCO"] * many).name == name


def test_an_empty_list_is_refused_by_a_model_of_inferred_graphs() -> None:
    store = graphlog.from_pyg([PAIR])
    model = graphlog.random_encoder(schema=store.schema, graphs=store)
    with pytest.raises(ConfigError, match=r"schema 'inferred' are read .* found an empty list"):
        model.embed([])


def test_one_default_schema(encoder: graphlog.Encoder) -> None:
    assert graphlog.read_molecules(["CCO"]).schema == encoder.schema == MOLECULE_CIP


def test_options_of_a_store_are_refused_not_ignored(tmp_path: Path) -> None:
    store = graphlog.read_molecules(SMILES).save(tmp_path / "s.store")
    for option in ({"keep_texts": False}, {"targets": ["y"]}, {"smiles_column": "s"}):
        with pytest.raises(ConfigError, match="is a store already"):
            read(store.path, **option)


def test_masked_records_are_missing(encoder: graphlog.Encoder) -> None:
    masked = np.ma.array(["CCO", "CCN"], mask=[False, True])
    assert np.isnan(encoder.embed(masked)).all(axis=1).tolist() == [False, True]
    for column in (masked, masked[:, None]):
        assert [r.reason for r in graphlog.read_molecules(column).rejects] == ["empty"]


def test_names_of_columns_may_be_an_index_and_numbers(
    encoder: graphlog.Encoder, tmp_path: Path
) -> None:
    frame = pd.DataFrame({0: SMILES * 2, 1: [0, 1] * len(SMILES)})
    how = {"split": "random", "baselines": (), "smiles_column": "0", "overwrite": True}
    for names in (frame.columns[1:], np.array([1]), [1], ["1"], "1"):
        report = graphlog.probe(encoder, frame, targets=names, run_dir=tmp_path / "run", **how)
        assert report.tasks == ("1",)
        assert graphlog.read_molecules(frame, targets=names, smiles_column="0").tasks == ("1",)


def test_graphs_of_torch_geometric_come_in_any_collection() -> None:
    graphs = [PAIR, PAIR]
    array = np.empty(2, dtype=object)
    array[:] = graphs
    for given in (graphs, iter(graphs), array, pd.Series(graphs)):
        assert len(graphlog.read_graphs(given)) == 2


def test_the_untrained_encoder_reads_all_of_an_iterator(tmp_path: Path) -> None:
    graphs = [Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=n) for n in range(2, 22)]
    assert len(graphlog.embed("random", iter(graphs))) == 20
    assert graphlog.embed_file("random", iter(graphs), tmp_path / "e.csv").rows == 20
    assert graphlog.neighbors("random", graphs[:1], iter(graphs), k=20).rows.shape == (1, 20)
    _, source = opened("random", iter(graphs), "cpu")  # for probe and finetune
    assert isinstance(source, Input)
    assert rows_of(source) == 20
    tree = graphlog.write_prototypes("random", tmp_path / "tree", iter(graphs), fit=True)
    assert tree.rows == 20
