"""Files of the formats that version 0.2 writes still open and give the same numbers.

Beyond those of 0.1: checkpoints of format 2, splits with a hash of their rows, labels in a store,
predictors with a calibration.
"""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import graphlog

FILES = Path(__file__).parent / "v0.2"
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


def expected(name: str) -> np.ndarray:
    return np.load(FILES / f"{name}.npy", allow_pickle=False)


def test_a_store_with_labels_opens_whole() -> None:
    store = graphlog.open_store(FILES / "store")
    store.verify()
    assert (len(store), store.schema.name, tuple(store.tasks)) == (32, "molecule-cip", ("y", "v"))
    assert list(store.texts(range(8))) == SMILES
    with (FILES / "labelled.csv").open(encoding="utf-8", newline="") as file:
        rows = [(float(row["y"]), float(row["v"])) for row in csv.DictReader(file)]
    np.testing.assert_allclose(store.labels, np.array(rows), rtol=1e-6)


def test_a_model_embeds_as_before() -> None:
    encoder = graphlog.load(FILES / "run-pretrain")
    np.testing.assert_allclose(encoder.embed(SMILES), expected("embeddings"), rtol=1e-4, atol=1e-5)


def test_a_predictor_predicts_as_before() -> None:
    predictor = graphlog.load_predictor(FILES / "run-finetune")
    np.testing.assert_allclose(
        predictor.predict(SMILES), expected("predictions"), rtol=1e-4, atol=1e-5
    )


def test_a_finished_run_resumes_from_its_checkpoint_to_the_same_model(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(FILES / "run-pretrain", run)
    (manifest,) = (run / "checkpoint").glob("step-*/manifest.json")
    assert json.loads(manifest.read_text(encoding="utf-8"))["version"] == 2
    (run / "model.safetensors").unlink()  # so that the checkpoint has to be read
    encoder = graphlog.pretrain(FILES / "store", run_dir=run, resume=True)
    np.testing.assert_allclose(encoder.embed(SMILES), expected("embeddings"), rtol=1e-4, atol=1e-5)


def test_a_split_is_read_and_its_hash_checked(tmp_path: Path) -> None:
    choices = {"targets": ["v"], "seeds": (0,), "epochs": 1, "baselines": ()}
    table, encoder = FILES / "labelled.csv", graphlog.load(FILES / "run-pretrain")
    predictor = graphlog.finetune(encoder, table, split=FILES / "split.json", **choices)
    assert list(predictor.report.sizes.values())[:3] == [25, 3, 4]
    altered = json.loads((FILES / "split.json").read_text(encoding="utf-8"))
    altered["train"][0], altered["test"][0] = altered["test"][0], altered["train"][0]
    (tmp_path / "split.json").write_text(json.dumps(altered), encoding="utf-8")
    with pytest.raises(graphlog.DataError, match="split"):
        graphlog.finetune(encoder, table, split=tmp_path / "split.json", **choices)


@pytest.mark.parametrize("name", ["store", "run-pretrain", "run-finetune"])
def test_everything_can_be_described(name: str) -> None:
    assert graphlog.describe(FILES / name)
