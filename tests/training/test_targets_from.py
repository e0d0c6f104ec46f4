"""Vectors of a file as targets: which row belongs to which graph, and what is refused."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphlog
from graphlog.errors import ConfigError, DataError
from graphlog.training.targets import read_vectors
from graphs_support import ring_store
from training_support import Heard

SMILES = ["CCO", "c1ccccc1", "CC(=O)O", "not a molecule", "CCN", "CCCl", "CCO", "C1CCCCC1"]
USED = [0, 1, 2, 4, 5, 6, 7]
SIGNS = np.array([[1.0, -1.0]] * 4).reshape(-1, 1)
VECTORS = np.random.default_rng(0).normal(3.0, 5.0, (len(SMILES), 4))
TINY: dict[str, Any] = {
    "epochs": 2,
    "batch_size": 4,
    "encoder": {"dim": 8, "layers": 2},
    "device": "cpu",
}


def standardized(vectors: np.ndarray) -> np.ndarray:
    return (vectors - vectors.mean(axis=0)) / vectors.std(axis=0)


@pytest.fixture
def store() -> graphlog.GraphStore:
    return graphlog.read_molecules(SMILES)


def saved(path: Path, **arrays: Any) -> Path:
    np.savez(path, allow_pickle=False, **{k: np.asarray(values) for k, values in arrays.items()})
    return path


@pytest.fixture
def read(store: graphlog.GraphStore, tmp_path: Path) -> Callable[..., np.ndarray]:
    """Read the targets of the store from a file of these arrays."""
    return lambda **arrays: read_vectors(saved(tmp_path / "v.npz", **arrays), store)


def test_vectors_belong_to_graphs_by_row_and_are_standardized(
    read: Callable[..., np.ndarray], store: graphlog.GraphStore, tmp_path: Path
):
    found = read(vectors=VECTORS)
    # the outermost thousandths, here the two extremes, are moved by less than 2 % of the range
    assert np.abs(found - standardized(VECTORS[USED])).max() < 0.02 * np.ptp(standardized(VECTORS))
    part = store.subset(np.array([3, 1]))
    whole = VECTORS[USED][[3, 1]]
    signs = np.sign(read_vectors(saved(tmp_path / "p.npz", v=whole), part))
    np.testing.assert_array_equal(signs, np.sign(standardized(whole)))


def test_vectors_belong_to_graphs_by_their_smiles(read: Callable[..., np.ndarray]):
    once = [7, 2, 0, 5, 4, 1]  # another order; the second CCO has the vector of the first
    found = read(vectors=VECTORS[once], smiles=[f"{SMILES[k]} " for k in once])
    of_first = VECTORS.copy()
    of_first[6] = of_first[0]
    np.testing.assert_array_equal(found, read(vectors=of_first))
    kept = read(vectors=VECTORS, smiles=SMILES)  # both, each in its place
    np.testing.assert_array_equal(kept, read(vectors=VECTORS))


def test_vectors_of_molecules_before_standardization_belong_by_row(tmp_path: Path):
    smiles = ["CCO", "CCN.Cl", "CCCC", "c1ccccc1", "CCOC", "CCN"]
    store = graphlog.read_molecules(smiles, standardize="parent")
    found = read_vectors(saved(tmp_path / "v.npz", v=VECTORS[:6], smiles=smiles), store)
    np.testing.assert_array_equal(
        found, read_vectors(saved(tmp_path / "w.npz", v=VECTORS[:6]), store)
    )
    other = saved(tmp_path / "v.npz", v=VECTORS[:6], smiles=["CO.Cl", *smiles[:0:-1]])
    with pytest.raises(DataError, match=r"no vector for 'CCO' \(row 0\)"):
        read_vectors(other, store)


@pytest.mark.parametrize(
    "vectors",
    [
        -40_000 + 0.006 * VECTORS,
        1e9 + VECTORS,
        np.float32(1e-9) * VECTORS.astype(np.float32),
        1e149 * VECTORS,
        10**12 + (100 * VECTORS).astype(np.int64),
        (30 + VECTORS).astype(np.float16),
    ],
    ids=["offset", "large offset", "small", "huge", "integers", "half"],
)
def test_what_varies_is_a_target_whatever_its_offset_and_unit(
    read: Callable[..., np.ndarray], vectors: np.ndarray
):
    np.testing.assert_allclose(read(v=vectors), read(v=VECTORS), atol=0.05)


def test_columns_that_do_not_vary_are_named(store: graphlog.GraphStore, tmp_path: Path):
    vectors = VECTORS.copy()
    vectors[:, 1], vectors[:, 3] = 7.0, np.nan
    file, said = saved(tmp_path / "v.npz", v=vectors), Heard()
    graphlog.pretrain(store, "descriptorpred", targets_from=str(file), progress=said, **TINY)
    note = "2 of 4 columns of .*v.npz do not vary and are of no use .counted from 0: 1, 3."
    assert len([line for line in said.lines if re.search(note, line)]) == 1


def test_unknown_values_stay_unknown(read: Callable[..., np.ndarray]):
    gaps = VECTORS.copy()
    gaps[2, 1] = gaps[4] = np.nan
    np.testing.assert_array_equal(np.isnan(read(vectors=gaps)), np.isnan(gaps[USED]))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"v": VECTORS[:-1]}, "7 vectors for 8 rows"),
        ({"v": VECTORS[:3], "smiles": SMILES[:3]}, r"no vector for 'CCN' \(row 4\)"),
        ({"v": VECTORS[::-1], "smiles": SMILES[::-1]}, r"several vectors for 'CCO' \(row 0\)"),
        ({"v": np.where(VECTORS > 9, np.inf, VECTORS)}, "infinite"),
        ({"v": np.full_like(VECTORS, np.nan)}, "no column varies"),
        ({"v": np.ones_like(VECTORS)}, "no column varies"),
        ({"v": np.float32(0.1 * (1 + 2e-7 * SIGNS))}, "no column varies"),
        ({"v": 1e200 * SIGNS}, r"row 0 has a value that is infinite or beyond 1e150"),
        ({"v": np.full((8, 1), np.float16("inf"))}, "infinite"),
        ({"v": VECTORS[:, :0]}, "needs one array"),
        ({"v": VECTORS[:, 0]}, "needs one array"),
        ({"v": VECTORS, "w": VECTORS}, "needs one array"),
        ({"v": np.array(SMILES)}, "needs one array"),
    ],
)
def test_what_does_not_fit_is_refused(
    read: Callable[..., np.ndarray], arrays: dict[str, np.ndarray], message: str
):
    with pytest.raises(DataError, match=message):
        read(**arrays)


@pytest.mark.parametrize(
    "content",
    [None, b"", b"PK\x03\x04 cut", b"\x93NUMPY\x01\x00", b"smiles,e0\nCCO,1\n", [{"pickled": 1}]],
)
def test_a_file_that_is_no_npz_is_refused(
    store: graphlog.GraphStore, tmp_path: Path, content: bytes | list[Any] | None
):
    file = tmp_path / "v.npz"
    if isinstance(content, list):
        np.savez(file, v=np.array(content, dtype=object))
    elif content is not None:
        file.write_bytes(content)
    with pytest.raises(DataError, match=r"v\.npz: no") as caught:
        read_vectors(file, store)
    assert "pickle" not in str(caught.value)


def test_a_damaged_file_is_refused_or_read_right(store: graphlog.GraphStore, tmp_path: Path):
    file, random = tmp_path / "v.npz", np.random.default_rng(0)
    np.savez_compressed(file, vectors=VECTORS, smiles=SMILES)
    wanted, whole = read_vectors(file, store), file.read_bytes()
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[random.integers(len(damaged))] = random.integers(256)
        file.write_bytes(damaged)
        try:
            found = read_vectors(file, store)
        except DataError:
            continue
        np.testing.assert_array_equal(found, wanted)


def test_a_teacher_is_learned_and_a_run_keeps_its_vectors(tmp_path: Path):
    table = tmp_path / "in.csv"
    table.write_text("smiles\n" + "\n".join(SMILES) + "\n")
    teacher = tmp_path / "teacher.npz"
    graphlog.embed_file("random", table, teacher)
    run = tmp_path / "run"
    options: dict[str, Any] = {**TINY, "targets_from": str(teacher), "run_dir": run}
    encoder = graphlog.pretrain(table, "descriptorpred", **options)
    settings = encoder.info["settings"]
    width = np.load(teacher)["embeddings"].shape[1]
    assert settings["objective"]["target_columns"] == width
    again = graphlog.pretrain(table, run_dir=run, resume=True)
    assert again.info["settings"] == settings
    moved = teacher.rename(tmp_path / "moved.npz")
    graphlog.pretrain(table, run_dir=run, resume=True, targets_from=str(moved))
    (run / "model.safetensors").unlink()  # and from a checkpoint
    graphlog.pretrain(table, run_dir=run, resume=True, targets_from=str(moved))
    saved(moved, embeddings=VECTORS)
    with pytest.raises(ConfigError, match="other vectors"):
        graphlog.pretrain(table, run_dir=run, resume=True)
    # another run with the same settings may learn others
    config = run / "config.toml"
    other = graphlog.pretrain(table, config=config, targets_from=str(moved))
    assert other.info["settings"]["objective"]["target_columns"] == VECTORS.shape[1]


def test_graphs_without_descriptors_have_vectors(tmp_path: Path):
    store = ring_store(tmp_path)
    file = saved(tmp_path / "v.npz", v=np.random.default_rng(1).normal(size=(len(store), 3)))
    encoder = graphlog.pretrain(store, "descriptorpred", targets_from=str(file), **TINY)
    assert np.isfinite(encoder.embed(store)).all()


def test_only_objectives_with_targets_take_vectors(tmp_path: Path):
    file = str(saved(tmp_path / "v.npz", vectors=VECTORS))
    for objective, recipe in (("infomax", None), ("graphlog", "graphlog")):
        with pytest.raises(ConfigError, match="for objectives that predict descriptors"):
            graphlog.pretrain(SMILES, objective, recipe, targets_from=file, **TINY)


@pytest.mark.parametrize("objective", ["graphlog", "descriptorpred"])
def test_a_number_of_columns_without_their_file_is_refused(objective: str):
    with pytest.raises(ConfigError, match=r"target_columns` says how many columns `targets_from`"):
        graphlog.pretrain(SMILES, objective, **{**TINY, "objective.target_columns": 1})
