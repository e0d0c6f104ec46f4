"""Labels that look wrong are named with their rows, and can be left out."""

import numpy as np
import pytest

from downstream_support import CHAINS
from graphlog.domains.molecule import MOLECULE
from graphlog.downstream.label_checks import unusual_labels
from graphlog.downstream.tasks import open_labeled
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
