"""Labels that look wrong and repeated graphs are named with their rows, and can be left out."""

from dataclasses import replace

import numpy as np
import pytest

import graphlog
from downstream_support import CHAINS, IS_ALCOHOL, labeled, tiny_encoder
from graphlog.data.split import Split
from graphlog.domains.molecule import MOLECULE
from graphlog.downstream.label_checks import same_structure, unusual_labels
from graphlog.downstream.probe import probe
from graphlog.downstream.tasks import LabeledGraphs, open_labeled
from graphlog.errors import ConfigError

PLAIN = np.random.default_rng(0).normal(2, 1.2, 240)


def said(values: np.ndarray) -> list[str]:
    return unusual_labels(values[:, None], ["y"], np.arange(len(values)))


def changed(**cells: float) -> np.ndarray:
    values = PLAIN.copy()
    for row, value in cells.items():
        values[int(row[1:])] = value
    return values


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (changed(r7=-9999), ["1 value is more than 10 robust", "rows 7", "-9999"]),
        (changed(r7=-9999, r9=-9999), ["-9999 occurs 2 times (rows 7, 9)"]),
        (changed(r3=999, r4=999, r5=999), ["999 occurs 3 times (rows 3, 4, 5)"]),
        (np.where(np.arange(240) % 50 == 0, -1, np.abs(PLAIN) + 0.1), ["-1 occurs 5 times"]),
        (changed(r11=2400.0), ["(rows 11, e.g. 2400)"]),
        (np.where(np.arange(240) % 3 == 0, 1000, 1) * 10 ** (PLAIN / 3), ["as if in two units"]),
        (np.where(np.arange(240) < 120, 1000, 1) * PLAIN, ["factor of about 1,000 apart"]),
    ],
)
def test_what_looks_wrong_is_said_in_one_line(values: np.ndarray, words: list[str]) -> None:
    (note,) = said(values)
    assert all(word in note for word in words), note


@pytest.mark.parametrize(
    "values",
    [
        PLAIN,
        np.random.default_rng(1).uniform(-3, 3, 300),
        np.random.default_rng(2).integers(0, 8, 300).astype(float),
        10 ** np.random.default_rng(3).uniform(0, 1, 300),
        np.linspace(-1, 5, 200),
        np.full(100, 3.0),
    ],
)
def test_ordinary_labels_are_not_talked_about(values: np.ndarray) -> None:
    assert said(values) == []


def test_a_range_leaves_out_what_is_outside_and_says_so() -> None:
    y = np.linspace(0, 5, len(CHAINS))
    y[[3, 30]] = -9999, 70
    data = open_labeled(
        {"smiles": CHAINS, "y": y.tolist()}, MOLECULE, split="random", labels_range=(-5, 10)
    )
    assert np.flatnonzero(np.isnan(data.labels[:, 0])).tolist() == [3, 30]
    assert "target 'y': 2 values are outside -5 to 10 and left out (rows 3, 30)" in data.notes
    assert not any("robust" in note for note in data.notes)
    with pytest.raises(ConfigError, match="lowest and the highest"):
        open_labeled({"smiles": CHAINS, "y": y.tolist()}, MOLECULE, labels_range=(5, 1))


SMILES = ["CCO", "OCC", "CCN", "C(O)C", "CC", "CCCC", "c1ccccc1O", "Oc1ccccc1", "C", "C.C"]


def test_graphs_are_alike_whatever_the_order_of_their_atoms() -> None:
    kinds = same_structure(graphlog.read_molecules(SMILES)).tolist()
    alike = {kind: [s for s, k in zip(SMILES, kinds, strict=True) if k == kind] for kind in kinds}
    assert [v for v in alike.values() if len(v) > 1] == [
        ["CCO", "OCC", "C(O)C"],
        ["c1ccccc1O", "Oc1ccccc1"],
    ]


def _data(labels: list[float]) -> LabeledGraphs:
    store = graphlog.read_molecules(SMILES)
    folds = Split(np.array([0, 2, 4, 6]), np.array([5, 8]), np.array([1, 3, 7, 9]))
    y = np.array(labels, dtype=np.float32)[:, None]
    return LabeledGraphs("m", store, y, ("y",), "classification", "roc_auc", folds, "given")


def test_what_is_repeated_between_folds_is_said() -> None:
    notes = _data([0, 0, 1, 0, 1, 1, 1, 1, 0, 1]).repeat_notes
    assert [note.partition(":")[0] for note in notes] == [
        "3 of 4 molecules of the test fold repeat one of the training fold",
        "1 of 4 molecules of the test fold repeat one of the validation fold",
        "7 of 10 labeled molecules repeat each other (3 structures)",
        "1 structures occur more than once with different labels (rows 8, 9); check these rows, "
        "or choose `on_repeats`",
    ]


def test_a_validation_fold_that_repeats_the_training_fold_is_said() -> None:
    data = _data([0, 0, 1, 0, 1, 1, 1, 1, 0, 1])
    folds = Split(np.array([0, 2, 4, 6]), np.array([1, 3, 5, 7]), np.array([8, 9]))
    notes = replace(data, split=folds).repeat_notes
    assert notes[0].startswith(
        "3 of 4 molecules of the validation fold repeat one of the training fold: intervals and "
        "choices by validation are too optimistic"
    )


def test_labels_that_contradict_each_other_are_said() -> None:
    nan = float("nan")
    notes = _data([0, 1, 1, nan, 1, 1, 1, nan, 0, 1]).repeat_notes
    assert notes[0].startswith("1 of 2 molecules of the test fold")
    assert notes[-1].startswith(
        "2 structures occur more than once with different labels (rows 0, 1, 8, 9)"
    )


def test_nothing_is_said_of_graphs_that_occur_once() -> None:
    report = probe(tiny_encoder(), labeled(IS_ALCOHOL), baselines=())
    assert not any("structure" in note for note in report.notes)
    assert len(np.unique(same_structure(labeled(IS_ALCOHOL).store))) == len(CHAINS)


@pytest.mark.parametrize("smiles", ["C1CCCCC1", "C/C=C/C"])
def test_what_differs_in_one_attribute_is_another_structure(smiles: str) -> None:
    other = smiles.replace("/C", "\\C", 1) if "/" in smiles else "C1CCCCN1"
    kinds = same_structure(graphlog.read_molecules([smiles, other]))
    assert kinds[0] != kinds[1]
