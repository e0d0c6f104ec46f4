"""Files that version 0.1.0 (commit 610f7d2) wrote still open and give the same numbers."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import graphlog

FILES = Path(__file__).parent / "v0.1"
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


@pytest.mark.parametrize("schema", ["molecule", "molecule-rich"])
def test_a_store_opens_whole(schema: str) -> None:
    store = graphlog.open_store(FILES / f"store-{schema}")
    store.verify()
    assert len(store) == 4 * len(SMILES)
    assert list(store.texts(range(len(SMILES)))) == SMILES


def test_a_model_embeds_as_before() -> None:
    encoder = graphlog.load(FILES / "run-pretrain" / "model.safetensors")
    np.testing.assert_allclose(encoder.embed(SMILES), expected("embeddings"), rtol=1e-4, atol=1e-5)


def test_a_store_of_its_schema_is_embedded_as_before() -> None:
    encoder = graphlog.load(FILES / "run-pretrain")
    embedded = encoder.embed(graphlog.open_store(FILES / "store-molecule-rich"))[: len(SMILES)]
    np.testing.assert_allclose(embedded, expected("embeddings"), rtol=1e-4, atol=1e-5)


def test_a_predictor_predicts_as_before() -> None:
    predictor = graphlog.load_predictor(FILES / "run-finetune")
    np.testing.assert_allclose(
        predictor.predict(SMILES), expected("predictions"), rtol=1e-4, atol=1e-5
    )


def test_a_finished_run_resumes_to_the_same_model(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(FILES / "run-pretrain", run)
    encoder = graphlog.pretrain(FILES / "store-molecule-rich", run_dir=run, resume=True)
    np.testing.assert_allclose(encoder.embed(SMILES), expected("embeddings"), rtol=1e-4, atol=1e-5)


def test_an_unfinished_run_is_not_continued_under_other_settings(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(FILES / "run-pretrain", run)
    (run / "model.safetensors").unlink()
    with pytest.raises(graphlog.ConfigError, match="earlier version of graphlog"):
        graphlog.pretrain(FILES / "store-molecule-rich", run_dir=run, resume=True)
