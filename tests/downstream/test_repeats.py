"""Repeated graphs are found whatever the order of their nodes, and said."""

from dataclasses import replace

import numpy as np
import pytest

import graphlog
from downstream_support import CHAINS, IS_ALCOHOL, labeled, tiny_encoder
from graphlog.data.split import Split
from graphlog.downstream.label_checks import same_structure
from graphlog.downstream.probe import probe
from graphlog.downstream.tasks import LabeledGraphs

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
