"""Files of earlier formats still open and give the same numbers.

Those in ``v0.1`` were written by version 0.1.0 (commit 610f7d2). Those in ``v0.2`` have beyond them
checkpoints of format 2, splits with a hash of their rows, labels in a store, and predictors with a
calibration.
"""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import graphlog

HERE = Path(__file__).parent
OLDEST, LATER = HERE / "v0.1", HERE / "v0.2"
SMILES = [
    "CCO",
    "c1ccccc1",
    "CC(=O)O",
    "CCN",
    "C[C@H](N)C(=O)O",
    "C[C@@H](N)C(=O)O",
    "[Na+].[Cl-]",
    "OC1CCCCC1",
]
every_version = pytest.mark.parametrize("files", [OLDEST, LATER], ids=lambda path: path.name)


def check(found: np.ndarray, files: Path, name: str) -> None:
    expected = np.load(files / f"{name}.npy", allow_pickle=False)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@every_version
def test_a_model_embeds_as_before(files: Path) -> None:
    for path in (files / "run-pretrain", files / "run-pretrain" / "model.safetensors"):
        check(graphlog.load(path).embed(SMILES), files, "embeddings")


@every_version
def test_a_predictor_predicts_as_before(files: Path) -> None:
    predictor = graphlog.load_predictor(files / "run-finetune")
    check(predictor.predict(SMILES), files, "predictions")


@pytest.mark.parametrize("schema", ["molecule", "molecule-rich"])
def test_a_store_opens_whole(schema: str) -> None:
    store = graphlog.open_store(OLDEST / f"store-{schema}")
    store.verify()
    assert len(store) == 4 * len(SMILES)
    assert list(store.texts(range(len(SMILES)))) == SMILES


def test_a_store_with_labels_opens_whole() -> None:
    store = graphlog.open_store(LATER / "store")
    store.verify()
    assert (len(store), store.schema.name, tuple(store.tasks)) == (32, "molecule-cip", ("y", "v"))
    assert list(store.texts(range(8))) == SMILES
    with (LATER / "labelled.csv").open(encoding="utf-8", newline="") as file:
        rows = [(float(row["y"]), float(row["v"])) for row in csv.DictReader(file)]
    np.testing.assert_allclose(store.labels, np.array(rows), rtol=1e-6)


def test_a_store_of_its_schema_is_embedded_as_before() -> None:
    encoder = graphlog.load(OLDEST / "run-pretrain")
    embedded = encoder.embed(graphlog.open_store(OLDEST / "store-molecule-rich"))
    check(embedded[: len(SMILES)], OLDEST, "embeddings")


def test_a_finished_run_resumes_to_the_same_model(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(OLDEST / "run-pretrain", run)
    encoder = graphlog.pretrain(OLDEST / "store-molecule-rich", run_dir=run, resume=True)
    check(encoder.embed(SMILES), OLDEST, "embeddings")


def test_a_finished_run_resumes_from_its_checkpoint_to_the_same_model(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(LATER / "run-pretrain", run)
    (manifest,) = (run / "checkpoint").glob("step-*/manifest.json")
    assert json.loads(manifest.read_text(encoding="utf-8"))["version"] == 2
    (run / "model.safetensors").unlink()  # so that the checkpoint has to be read
    encoder = graphlog.pretrain(LATER / "store", run_dir=run, resume=True)
    check(encoder.embed(SMILES), LATER, "embeddings")


def test_an_unfinished_run_is_not_continued_under_other_settings(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(OLDEST / "run-pretrain", run)
    (run / "model.safetensors").unlink()
    with pytest.raises(graphlog.ConfigError, match="earlier version of graphlog"):
        graphlog.pretrain(OLDEST / "store-molecule-rich", run_dir=run, resume=True)


def test_a_split_is_read_and_its_hash_checked(tmp_path: Path) -> None:
    choices = {"targets": ["v"], "seeds": (0,), "epochs": 1, "baselines": ()}
    table, encoder = LATER / "labelled.csv", graphlog.load(LATER / "run-pretrain")
    predictor = graphlog.finetune(encoder, table, split=LATER / "split.json", **choices)
    assert list(predictor.report.sizes.values())[:3] == [25, 3, 4]
    altered = json.loads((LATER / "split.json").read_text(encoding="utf-8"))
    altered["train"][0], altered["test"][0] = altered["test"][0], altered["train"][0]
    (tmp_path / "split.json").write_text(json.dumps(altered), encoding="utf-8")
    with pytest.raises(graphlog.DataError, match="split"):
        graphlog.finetune(encoder, table, split=tmp_path / "split.json", **choices)


@pytest.mark.parametrize("name", ["store", "run-pretrain", "run-finetune"])
def test_everything_can_be_described(name: str) -> None:
    assert graphlog.describe(LATER / name)
