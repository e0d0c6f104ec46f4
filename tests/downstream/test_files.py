"""Embeddings and predictions in files: row i is row i, whole or not at all."""

import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from cli_support import at_most, left_in, read_table
from downstream_support import (
    CHAINS,
    IS_ALCOHOL,
    classifier,
    labeled,
    lengths,
    tiny_encoder,
    tuned,
    write_csv,
)
from graphlog.api import embed_file, read_molecules
from graphlog.cli.command import open_streams
from graphlog.domains.molecule.sdf import drawn_records
from graphlog.downstream.predictor import Predictor
from graphlog.downstream.pretrained import load
from graphlog.downstream.writers import WRITERS, Results, choose_format
from graphlog.errors import ConfigError, DataError, GraphLoGError
from graphlog.extras.explain import explain_file
from graphlog.extras.neighbors import Index
from graphlog.files import write_text
from graphlog.inputs import Part
from graphlog.training.log import as_progress

SMILES = ["CCO", "no molecule", "c1ccccc1", "", "C", "CCN"]
USED = [True, False, True, False, True, True]


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return tuned(labeled(np.stack([IS_ALCOHOL, 1 - IS_ALCOHOL], 1), targets=("a", "b")))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "in.csv", SMILES, name=list("uvwxyz"), a=[1] * 6)


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of an output of any format but .npy and .sdf, by column."""
    if path.suffix == ".csv":
        return [dict(row) for row in read_table(path)]
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    if path.suffix == ".parquet":
        return pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
    with np.load(path) as found:
        arrays = dict(found)
    values = arrays.pop("embeddings" if "embeddings" in arrays else "predictions")
    arrays |= dict(zip(arrays.pop("names").tolist(), values.T, strict=True))
    arrays |= {"embedding": values, "graphlog_status": arrays.pop("status")}
    return [{name: array[k].tolist() for name, array in arrays.items()} for k in range(len(values))]


def number(cell: object) -> float:
    """Return what a cell holds, NaN where it is empty."""
    return float("nan" if cell in (None, "") else cell)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ending", "added"),
    [
        ("npz", None),
        ("csv", [f"graphlog_e{k}" for k in range(16)]),
        ("jsonl", ["embedding"]),
        ("parquet", ["embedding"]),
    ],
)
def test_embeddings_row_for_row(tmp_path: Path, ending: str, added: list[str] | None):
    """Beside the columns of the input, also one that is called as an output would be."""
    columns = {"name": list("uvwxyz"), "status": range(6), "e0": ["own"] * 6}
    source = write_csv(tmp_path / "in.csv", SMILES, **columns)
    encoder, out = tiny_encoder(), tmp_path / f"out.{ending}"
    written = embed_file(encoder, source, out, batch_size=2)
    assert (written.rows, written.rejected) == (6, 2)
    rows = rows_of(out)
    if added is not None:
        assert list(rows[0]) == ["smiles", *columns, *added, "graphlog_status"]
        assert [str(row["status"]) for row in rows] == list("012345")
    assert [row["name"] for row in rows] == columns["name"]
    assert [row["smiles"] for row in rows] == SMILES
    missing = [float("nan")] * 16
    values = [row.get("embedding") or missing for row in rows]
    if ending == "csv":
        values = [[number(row[name]) for name in added or ()] for row in rows]
    np.testing.assert_allclose(values, encoder.embed(SMILES), rtol=1e-5, atol=1e-6)
    status = [row["graphlog_status"] for row in rows]
    assert [text == "ok" for text in status] == USED
    rejects = read_table(tmp_path / "rejects.csv")
    assert [row["row"] for row in rejects] == ["1", "3"]
    assert [row["reason"] for row in rejects] == [status[1], status[3]]
    assert left_in(tmp_path) == {"in.csv", out.name, "rejects.csv"}


def test_predicting_twice_over_keeps_both(tmp_path: Path, table: Path, predictor: Predictor):
    predictor.predict_file(table, tmp_path / "one.csv")
    predictor.predict_file(tmp_path / "one.csv", tmp_path / "two.csv")
    assert len(read_table(tmp_path / "two.csv")[0]) == 3 + 2 * 8


def test_predictions_in_every_format(tmp_path: Path, table: Path, predictor: Predictor):
    expected = predictor.predict(SMILES)
    for ending in WRITERS:
        written = predictor.predict_file(table, tmp_path / f"out.{ending}")
        assert (written.rows, written.rejected) == (6, 2)
    with np.load(tmp_path / "out.npz") as found:
        arrays = dict(found)
    assert set(arrays) == {"predictions", "names", "status", "row", "smiles", "name", "a"}
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), arrays["predictions"])
    assert arrays["row"].tolist() == [*range(6)]
    assert arrays["smiles"].tolist() == SMILES
    names = [f"predicted_{t}{kind}" for t in "ab" for kind in ("", "_std", "_calibrated")]
    names += ["graphlog_novelty"]
    assert arrays["names"].tolist() == names
    for ending in ("npz", "csv", "jsonl", "parquet"):
        rows = rows_of(tmp_path / f"out.{ending}")
        if ending != "npz":
            assert list(rows[0]) == ["smiles", "name", "a", *names, "graphlog_status"]
        assert [row["name"] for row in rows] == list("uvwxyz")
        assert [row["smiles"] for row in rows] == SMILES
        assert [row["graphlog_status"] == "ok" for row in rows] == USED
        values = [number(row["predicted_b"]) for row in rows]
        np.testing.assert_allclose(values, expected[:, 1], rtol=1e-5)


def test_columns_of_repeated_predictions_are_numbered(table: Path, predictor: Predictor):
    for _ in range(3):
        predictor.predict_file(table, table.with_name("out.csv"))
        table = table.with_name("out.csv").rename(table.with_name("again.csv"))
    kinds = ("predicted_b", "novelty", "status")
    assert [name for name in read_table(table)[0] if name.rstrip("_23").endswith(kinds)] == [
        *("predicted_b", "graphlog_novelty", "graphlog_status"),
        *("graphlog_predicted_b", "graphlog_novelty_2", "graphlog_status_2"),
        *("graphlog_predicted_b_2", "graphlog_novelty_3", "graphlog_status_3"),
    ]


def test_a_prediction_and_its_interval_keep_matching_names(tmp_path: Path):
    taken = {"predicted_y_low": ["x"] * 48, "graphlog_predicted_y": ["x"] * 48}
    source = write_csv(tmp_path / "in.csv", CHAINS, **taken)
    model = tuned(lengths(), epochs=1)
    model.predict_file(source, tmp_path / "out.csv", interval=0.5)
    assert list(read_table(tmp_path / "out.csv")[0]) == [
        *("smiles", *taken),
        *(f"graphlog_predicted_y{kind}_2" for kind in ("", "_std", "_low", "_high")),
        *("graphlog_novelty", "graphlog_status"),
    ]


def test_predictions_read_the_column_that_training_found(tmp_path: Path):
    """A column Structure is found by its name; later there is one called smiles beside it."""
    y = np.arange(24) % 2
    frame = pd.DataFrame({"Structure": CHAINS[:24], "y": y})
    model = tuned(frame, seeds=(0,), targets=["y"], split="random")
    model.save(tmp_path / "model.safetensors")
    assert model.info["smiles_column"] == "Structure"
    later = frame.assign(smiles="C")
    expected = model.predict(CHAINS[:24])
    assert np.ptp(expected) > 0
    for predictor in (model, Predictor.load(tmp_path / "model.safetensors")):
        np.testing.assert_allclose(predictor.predict(later), expected, atol=1e-6)
        renamed = frame.rename(columns={"Structure": "smiles"})
        np.testing.assert_allclose(predictor.predict(renamed), expected, atol=1e-6)


def test_probabilities_near_1_still_differ(tmp_path: Path):
    model = deepcopy(classifier())
    plain = len(set(model.predict(CHAINS)[:, 0]))
    for member in model.members:
        member.head.linear.bias.data += 25
    model.predict_file(CHAINS, tmp_path / "out.csv")
    assert len({row["predicted_y"] for row in read_table(tmp_path / "out.csv")}) == plain


def test_predictions_as_sdf_keep_rows_and_coordinates(
    tmp_path: Path, table: Path, predictor: Predictor
):
    Chem = pytest.importorskip("rdkit.Chem")
    predictor.predict_file(table, tmp_path / "drawn.sdf")
    mols = list(Chem.SDMolSupplier(str(tmp_path / "drawn.sdf")))
    assert [mol.GetNumAtoms() for mol in mols] == [3, 0, 6, 0, 1, 3]
    assert [mol.GetProp("_Name") for mol in mols] == list("uvwxyz")
    assert [mol.GetProp("graphlog_status") == "ok" for mol in mols] == USED
    assert mols[1].GetProp("predicted_a") == ""
    mols[0].GetConformer().SetAtomPosition(0, (7.5, 8.5, 9.5))
    with Chem.SDWriter(str(tmp_path / "in.sdf")) as writer:
        for mol in (mols[0], mols[2]):
            writer.write(mol)
    lines = (tmp_path / "in.sdf").read_text().split("$$$$\n")
    broken = lines[0].replace(" C  ", " Qq ", 1)
    (tmp_path / "in.sdf").write_text("$$$$\n".join([lines[0], broken, *lines[1:]]))
    written = predictor.predict_file(tmp_path / "in.sdf", tmp_path / "again.sdf")
    again = list(Chem.SDMolSupplier(str(tmp_path / "again.sdf")))
    assert (written.rejected, [mol.GetNumAtoms() for mol in again]) == (1, [3, 0, 6])
    assert list(again[0].GetConformer().GetAtomPosition(0)) == [7.5, 8.5, 9.5]
    one, other = (float(again[2].GetProp(f"{own}predicted_a")) for own in ("", "graphlog_"))
    assert one == pytest.approx(other)


@pytest.mark.parametrize("standardize", [None, "parent"])
def test_salts_that_are_read_as_written_are_told(
    standardize: str | None, tmp_path: Path, predictor: Predictor, capsys: Any
):
    smiles, out = ["C"] * 2500 + ["C1C", "CCN.Cl"], tmp_path / "out.csv"
    told = "1 of 2,501 molecules have several fragments, such as salts (rows 2501)"
    for write in (predictor.predict_file, partial(embed_file, predictor.encoder)):
        write(smiles, out, standardize=standardize, progress=as_progress(True))
        assert (told in capsys.readouterr().err) == (standardize is None)


@pytest.mark.parametrize("format", [None, "jsonl"])
def test_standard_output_takes_text(
    tmp_path: Path, table: Path, predictor: Predictor, capfdbinary: Any, format: str | None
):
    written = predictor.predict_file(table, Path("-"), format=format)
    shown, out = capfdbinary.readouterr().out, tmp_path / f"out.{format or 'csv'}"
    predictor.predict_file(table, out)
    assert shown == out.read_bytes()
    assert (str(written.path), written.rows, written.rejects) == ("-", 6, None)
    with pytest.raises(ConfigError, match="npz is not text"):
        predictor.predict_file(table, Path("-"), format="npz")


@pytest.mark.parametrize("is_command", [True, False])
def test_a_closed_standard_output_is_refused_before_anything_is_computed(
    monkeypatch: pytest.MonkeyPatch, is_command: bool
):
    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.setattr("sys.__stdout__", None)
    if is_command:
        open_streams()
    with pytest.raises(ConfigError, match="standard output is closed"):
        choose_format(Path("-"))
    if is_command:
        sys.stdout.close()


def test_the_null_device_is_written_to(predictor: Predictor):
    with open(os.devnull, "w") as null, redirect_stdout(null):
        assert predictor.predict_file(["CCO"], "-").rows == 1


def test_columns_of_an_npz_are_not_kept_in_memory(tmp_path: Path):
    rows, at_once = 40_000, 2000
    texts = [f"{k:060}" for k in range(rows)]

    def parts() -> Iterator[tuple[Part, np.ndarray]]:
        for k in range(0, rows, at_once):
            fields = [{"name": text} for text in texts[k : k + at_once]]
            part = SimpleNamespace(fields=fields, status=["ok"] * at_once)
            yield cast("Part", part), np.zeros((at_once, 1), np.float32)

    with at_most(np.array(texts).nbytes / 2):
        path = WRITERS["npz"](
            Results(parts(), ["e0"], "embeddings", input_columns=["name"]), tmp_path
        )
    with np.load(path) as found:
        assert found["name"].tolist() == texts


def test_a_column_too_wide_for_npz_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("graphlog.downstream.writers._WIDEST_COLUMN", 4 * 2 * 10)
    source = write_csv(tmp_path / "in.csv", ["CCO", "CC"], note=["x" * 11, ""], row=["7", "8"])
    with pytest.warns(UserWarning, match="column 'note' is left out"):
        embed_file(tiny_encoder(), source, tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as found:
        assert "note" not in found
        assert found["input_row"].tolist() == ["7", "8"]
        assert found["row"].tolist() == [0, 1]


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Set what comes from standard input."""
    return lambda text: monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))


@pytest.mark.parametrize("text", [b"smiles,name\nCCO,u\nC(C,v\n", b"CCO u\nC(C v\n"])
def test_predictions_from_standard_input(
    tmp_path: Path, predictor: Predictor, stdin: Any, text: bytes
):
    stdin(text)
    predictor.predict_file("-", tmp_path / "out.csv")
    rows = read_table(tmp_path / "out.csv")
    assert [(row["smiles"], row["name"]) for row in rows] == [("CCO", "u"), ("C(C", "v")]
    assert rows[0]["graphlog_status"] == "ok"
    assert rows[1]["predicted_a"] == ""


def test_errors_in_standard_input_do_not_name_its_copy(
    tmp_path: Path, predictor: Predictor, stdin: Any
):
    stdin("smiles\nethanol\n".encode("utf-16"))
    with (
        pytest.warns(UserWarning, match=r"^standard input: read as UTF-16"),
        pytest.raises(DataError, match=r"^standard input: 1 of 1 rows cannot be used"),
    ):
        predictor.predict_file("-", tmp_path / "out.csv")
    assert left_in(tmp_path) == set()


def test_no_room_for_temporary_files_names_the_variable_that_moves_them(
    tmp_path: Path, predictor: Predictor, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.mkdtemp", Mock(side_effect=OSError(28, "No space left")))
    with pytest.raises(GraphLoGError, match=r"cannot write .* TMPDIR"):
        predictor.predict_file("-", tmp_path / "out.csv")
    assert left_in(tmp_path) == set()


@pytest.mark.parametrize(
    ("source", "ending"),
    [("table", "npz"), ("table", "parquet"), ("table", "csv"), ("store", "csv")],
)
def test_rows_do_not_depend_on_the_parts_that_they_are_read_in(
    tmp_path: Path, predictor: Predictor, monkeypatch: pytest.MonkeyPatch, source: str, ending: str
):
    smiles = ["bad one", *CHAINS[:5], "worse", *CHAINS[5:9], "worst", "CC"]
    path = write_csv(tmp_path / "in.csv", smiles, name=[f"n{k}" for k in range(len(smiles))])
    given = path if source == "table" else read_molecules(path, schema=predictor.schema)
    written, out = list[list[Any]](), tmp_path / f"out.{ending}"
    for rows, piece in ((2048, 1024), (4, 3), (1, 1)):
        monkeypatch.setattr("graphlog.downstream.pretrained._ROWS", rows)
        monkeypatch.setattr("graphlog.domains.records.ROWS_A_PIECE", piece)
        done = predictor.predict_file(given, out, batch_size=1, workers=1)
        assert (done.rows, done.rejected) == (13, 3)
        assert [row["row"] for row in read_table(tmp_path / "rejects.csv")] == ["0", "6", "11"]
        written.append([str(row) for row in rows_of(out)])
    assert written[0] == written[1] == written[2]
    bad = [k for k, row in enumerate(rows_of(out)) if row["graphlog_status"] != "ok"]
    assert bad == [0, 6, 11]


def test_the_input_and_lists_of_others_are_never_written_over(
    tmp_path: Path, table: Path, predictor: Predictor
):
    before, same = table.read_bytes(), tmp_path / "." / "in.csv"
    calls = ((embed_file, tiny_encoder()), (Predictor.predict_file, predictor))
    for call, model in (*calls, (explain_file, predictor)):
        with pytest.raises(ConfigError, match="is the input itself"):
            call(model, table, same)
    assert table.read_bytes() == before
    others = tmp_path / "rejects.csv"
    others.write_text("smiles\nCCO\n")
    for source, words in ((table, "holds something else"), (others, "is the input")):
        with pytest.raises(ConfigError, match=words):
            embed_file(tiny_encoder(), source, tmp_path / "out.csv")
    assert others.read_text() == "smiles\nCCO\n"
    assert not (tmp_path / "out.csv").exists()


def test_models_and_files_of_runs_are_never_written_over(tmp_path: Path, predictor: Predictor):
    model, run = tmp_path / "model.safetensors", tmp_path / "run"
    predictor.save(model)
    tuned(run_dir=run, seeds=(0,))
    read_molecules(["CCO"]).save(tmp_path / "store")
    Index.build(tiny_encoder(), ["CCO", "CCN"]).save(tmp_path / "index")
    of_run = (run / "model.safetensors", run / "metrics.jsonl", run / "scores.json")
    for file in (
        *(model, *of_run),
        *(tmp_path / "store" / "manifest.json", tmp_path / "index" / "vectors.npy"),
    ):
        before = file.read_bytes()
        with pytest.raises(ConfigError, match="a file of a run, store or index and would"):
            predictor.predict_file(["CCO"], file, format="csv")
        assert file.read_bytes() == before
    for _ in range(2):  # what is no file of the run may lie there and be replaced
        for folder in (run, tmp_path / "store", tmp_path / "index"):
            predictor.predict_file(["CCO"], folder / "predictions.csv")


@pytest.mark.parametrize("ending", [".npz", ".npy", ".csv", ".jsonl", ".parquet", ".sdf"])
def test_a_list_and_nothing_at_all_are_embedded(tmp_path: Path, ending: str):
    for source in (["CCO", "CC"], []):
        written = embed_file(tiny_encoder(), source, tmp_path / f"out{ending}")
        assert written.rows == len(source)


def test_columns_of_a_frame_without_rows_are_written(tmp_path: Path):
    frame = {"name": [], "smiles": []}
    embed_file(tiny_encoder(), frame, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().startswith("name,smiles,e0,")
    embed_file(tiny_encoder(), frame, tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as arrays:
        assert {"name", "smiles"} <= set(arrays)


def test_an_output_is_written_through_a_link_and_never_in_place_of_a_device(
    tmp_path: Path, table: Path
):
    link, pipe, target = tmp_path / "link.csv", tmp_path / "pipe", tmp_path / "kept" / "there.csv"
    link.symlink_to(target)
    with pytest.raises(ConfigError, match=r"there is no folder \S+kept; create it"):
        embed_file(tiny_encoder(), table, link)
    target.parent.mkdir()
    for _ in range(2):  # a file that is there, too
        embed_file(tiny_encoder(), table, link)
        assert link.is_symlink()
        assert len(read_table(target)) == 6
    assert left_in(target.parent) == {"there.csv"}
    os.mkfifo(pipe)
    for device in (pipe, Path(os.devnull)):
        with pytest.raises(ConfigError, match="is a device or a pipe; name a file"):
            embed_file(tiny_encoder(), table, device, format="csv")
    with pytest.raises(GraphLoGError, match="pipe: is no regular file; check the path"):
        write_text(pipe, "x")
    assert pipe.is_fifo()


def test_each_output_has_its_own_list_of_rejected_rows(tmp_path: Path, predictor: Predictor):
    first = write_csv(tmp_path / "first.csv", ["CCO", "bad one", "CC", "C"])
    second = write_csv(tmp_path / "second.csv", ["C", "CC", "CO", "worse"])
    embed_file(tiny_encoder(), first, tmp_path / "a.csv")
    predictor.predict_file(second, tmp_path / "b.csv")
    shared, own = tmp_path / "rejects.csv", tmp_path / "b.csv.rejects.csv"
    assert [(row["row"], row["output"]) for row in read_table(shared)] == [("1", "a.csv")]
    assert [(row["row"], row["output"]) for row in read_table(own)] == [("3", "b.csv")]
    embed_file(tiny_encoder(), write_csv(tmp_path / "good.csv", ["C"]), tmp_path / "c.csv")
    assert len(read_table(shared)) == len(read_table(own)) == 1  # nothing to list, nothing emptied
    predictor.predict_file(tmp_path / "good.csv", tmp_path / "b.csv")
    assert (len(read_table(shared)), read_table(own)) == (1, [])
    embed_file(tiny_encoder(), second, tmp_path / "a.csv")
    assert [row["row"] for row in read_table(shared)] == ["3"]
    embed_file(tiny_encoder(), tmp_path / "good.csv", tmp_path / "a.csv")
    assert read_table(shared) == []


def test_predictions_and_embeddings_recall_the_column_of_fine_tuning(tmp_path: Path):
    """Two columns may hold SMILES; the one named at fine-tuning is taken again."""
    smiles = CHAINS[:24]
    source = write_csv(tmp_path / "in.csv", ["C"] * 24, product_smiles=smiles, y=[0, 1] * 12)
    other = write_csv(tmp_path / "other.csv", smiles)  # without that column it is found by its name
    options = {"targets": ["y"], "smiles_column": "product_smiles", "split": "random"}
    run, out = tmp_path / "run", tmp_path / "out.npy"
    expected = tuned(source, seeds=(0,), run_dir=run, **options).predict(smiles)
    again, encoder = Predictor.load(run), load(run)
    again.predict_file(source, out)
    sdf = tmp_path / "other.sdf"
    sdf.write_text("".join(drawn_records((s, {}) for s in smiles)))
    found = (again.predict(source), np.load(out)[:, :1], again.predict(other), again.predict(sdf))
    for predicted in found:
        np.testing.assert_allclose(predicted, expected, atol=1e-6)
    assert again.predict("nci5k", limit=3).shape == (3, 1)
    assert np.ptp(again.predict(source, smiles_column="smiles")) == 0
    embed_file(encoder, source, out)
    for found in (encoder.embed(source), np.load(out)):
        np.testing.assert_allclose(found, encoder.embed(smiles), atol=1e-5)
    embed_file(encoder, source, out, smiles_column="smiles")
    assert np.ptp(np.load(out), axis=0).max() == 0
