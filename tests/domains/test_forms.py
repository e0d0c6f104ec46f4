"""Isotopes of hydrogen and ways to write bonds to a metal make one graph."""

import numpy as np
import pytest

from graphlog.domains.molecule import MOLECULE_CIP, MOLECULE_ISOTOPES
from graphlog.domains.molecule.drawing import weighted_svg
from graphlog.domains.molecule.parse import featurize_smiles

ARRAYS = ("node_counts", "edge_counts", "x", "edge_attr")
SAME = [
    ("C", "[2H]C([2H])([2H])[2H]"),
    ("CC(=O)Oc1ccccc1C(=O)O", "[2H]C([2H])([2H])C(=O)Oc1ccccc1C(=O)O"),
    ("CCO", "CCO[3H]"),
    ("C[C@H](N)O", "C[C@]([2H])(N)O"),
    ("N->[Pt](<-N)(Cl)Cl", "N[Pt](N)(Cl)Cl"),
    ("N->[Pt](<-N)(Cl)Cl", "[NH3+][Pt-2]([NH3+])(Cl)Cl"),
    ("N->[Pt](<-N)(Cl)Cl", "[NH3][Pt]([NH3])(Cl)Cl"),
    ("C[O-]->[Cu+]", "CO[Cu]"),
    ("CC(=O)O->[Cu]", "CC(=O)O[Cu]"),
    ("c1ccccn1->[Pd](Cl)Cl", "c1cccc[n+]1[Pd-](Cl)Cl"),
    ("NC(=O)N->[Zn]", "NC(=O)N[Zn]"),
    ("[Cl-]->[Pt+]", "Cl[Pt]"),
    ("O=C1O[Cu]OC1=O", "O=C1[O-]->[Cu+2]<-[O-]C1=O"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_one_graph(one: str, other: str) -> None:
    (first, _), (second, rejects) = (featurize_smiles([s], MOLECULE_CIP) for s in (one, other))
    assert not rejects
    for name in ARRAYS:
        left, right = (sorted(getattr(c, name).tolist()) for c in (first, second))
        assert left == right, name


@pytest.mark.parametrize(
    ("one", "other"),
    [("C", "[2H]C"), ("[2H]C", "[3H]C"), ("CC", "[13CH3]C"), ("[12CH3]C", "[13CH3]C")],
)
def test_isotopes_are_told_apart_on_request(one: str, other: str) -> None:
    first, second = (featurize_smiles([s], MOLECULE_ISOTOPES)[0].x for s in (one, other))
    assert not np.array_equal(first, second)
    assert first.shape[1] == len(MOLECULE_ISOTOPES.node)


@pytest.mark.parametrize("smiles", ["[2H][2H]", "[2H]", "[2H]O[2H]", "[3H][Na]", "[2H]->[Cu]"])
def test_hydrogen_alone_stays(smiles: str) -> None:
    chunk, rejects = featurize_smiles([smiles], MOLECULE_CIP)
    assert len(chunk) == 1
    assert not rejects


def test_deuterium_is_drawn_without_a_color() -> None:
    chunk, _ = featurize_smiles(["[2H]CCO"], MOLECULE_CIP)
    assert "<svg" in weighted_svg("[2H]CCO", [0.5] * len(chunk.x), 200, 100)
