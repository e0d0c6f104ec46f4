"""Forms of a molecule that make one graph; scaffolds, fingerprints, descriptors and drawings."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rdkit import Chem
from rdkit.Chem import Descriptors

import graphlog
from graphlog.data.split import group_numbers
from graphlog.domains import DOMAINS
from graphlog.domains.molecule import MOLECULE_CIP, MOLECULE_ISOTOPES
from graphlog.domains.molecule.descriptors import (
    count_fingerprints,
    morgan_counts,
    morgan_fingerprints,
    target_values,
)
from graphlog.domains.molecule.drawing import draw_svg
from graphlog.domains.molecule.parse import featurize_smiles, parsed, parsed_in_one_form
from graphlog.domains.molecule.scaffolds import scaffold_split, scaffolds
from graphlog.domains.molecule.schema import TARGETS
from graphlog.domains.molecule.traits import traits
from graphlog.domains.repeats import same_structure
from graphlog.errors import DataError
from graphlog.inputs import read

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
    ("CC(C)O", "C[C@H]([13CH3])O"),
    ("CC=C(C)C", "C/C=C(C)/[13CH3]"),
    ("CC(C)O", "[CH3:1][C@H:2]([CH3:3])[O:4][H:5]"),
    ("CCOP(=S)(OCC)SC", "[CH3:1][CH2:2][O:3][P:4](=[S:5])([O:6][CH2:7][CH3:8])[S:9][CH3:10]"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_one_graph(one: str, other: str) -> None:
    (first, _), (second, rejects) = (featurize_smiles([s], MOLECULE_CIP) for s in (one, other))
    assert not rejects
    for name in ARRAYS:
        left, right = (sorted(getattr(c, name).tolist()) for c in (first, second))
        assert left == right, name


@pytest.mark.parametrize(("one", "other"), [*SAME, ("c1ccccc1C", "[13cH]1ccccc1C")])
def test_one_set_of_features(one: str, other: str) -> None:
    for described in (target_values, morgan_fingerprints):
        first, second = described([one, other])
        np.testing.assert_array_equal(first, second)
    for counted in (count_fingerprints, morgan_counts):
        first, second = counted([one, other])
        assert (first != second).nnz == 0


def test_isotopes_atom_map_numbers_and_ways_of_writing_change_no_scaffold() -> None:
    rings = ["c1ccccc1C", "[13cH]1ccccc1C", "[2H]c1ccccc1C", "[cH:1]1ccccc1C", "c1ccccc1[CH3:1].Cl"]
    groups, split = DOMAINS["molecule"].groups, DOMAINS["molecule"].split
    assert groups(read([*rings, "CC"])) == [*["c1ccccc1"] * len(rings), ""]
    base = "C1=CC(=CC(=C1\\C(=C\\[N]2C=NC=N2)Cl)Cl)Cl"
    store = read([base, f"{base}.Cl", "CCO", "CCN"])
    first, second, *_ = groups(store)
    assert first == second
    folds = split(store, "scaffold", (0.5, 0.5, 0.0), 0)
    assert sorted(map(sorted, folds)) == [[], [0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("one", "other"),
    [("C", "[2H]C"), ("[2H]C", "[3H]C"), ("CC", "[13CH3]C"), ("[12CH3]C", "[13CH3]C")],
)
def test_isotopes_are_told_apart_on_request(one: str, other: str) -> None:
    first, second = (featurize_smiles([s], MOLECULE_ISOTOPES)[0].x for s in (one, other))
    assert not np.array_equal(first, second)
    assert first.shape[1] == len(MOLECULE_ISOTOPES.node)


def test_deuterium_is_drawn_without_a_color() -> None:
    chunk, _ = featurize_smiles(["[2H]CCO"], MOLECULE_CIP)
    assert "<svg" in draw_svg("[2H]CCO", 100, 80, weights=[0.5] * len(chunk.x))


@pytest.mark.parametrize(
    "smiles",
    "N->[Cu]<-N C~C c1ccsc1 [nH]1cccc1 *CC [Sn](C)C "  # no patterns
    "[2H][2H] [2H] [2H]O[2H] [3H][Na] [2H]->[Cu]".split(),  # hydrogen alone stays
)
def test_unusual_molecules_are_read(smiles: str) -> None:
    chunk, rejects = featurize_smiles([smiles], MOLECULE_CIP)
    assert (len(chunk), rejects) == (1, [])


def test_an_inchi_is_read() -> None:
    inchi = "InChI=1S/C9H8O4/c1-6(10)13-8-5-3-2-4-7(8)9(11)12/h2-5H,1H3,(H,11,12)"
    texts = [
        "CC(=O)Oc1ccccc1C(=O)O",
        f" {inchi}\n",
        "InChI=1S/C2H6O/c1-2-3/h3H,2H2,1H3/i1D3",
        "CCO",
    ]
    store = graphlog.read_molecules(texts)
    assert store.texts()[1] == inchi
    kinds = same_structure(store).tolist()
    assert kinds[0] == kinds[1]
    assert kinds[2] == kinds[3]
    assert scaffolds([inchi]) == ["c1ccccc1"]


def test_an_inchi_is_read_with_the_hydrogens_of_tables() -> None:
    smiles = """
        CC(=O)O CCOc1ccc(NC(C)=O)cc1 NC(N)=O CC(N)=S C/C=C/C(=O)NC O=C1CCCCCN1 CONC(C)=O
        C[C@H](N)C(=O)N[C@@H](C)C(=O)O O=c1cccc[nH]1 O=c1cc[nH]c(=O)[nH]1 Nc1cc[nH]c(=O)n1
        CCNc1nc(Cl)nc(NC(C)C)n1 Nc1ccc(S(=O)(=O)Nc2ccccn2)cc1 CCc1nc(=O)[nH][nH]1
    """.split()
    read = parsed([Chem.MolToInchi(Chem.MolFromSmiles(text)) for text in smiles])
    assert [Chem.MolToSmiles(mol) for mol in read if not isinstance(mol, str)] == smiles


def test_distances_within_large_molecules_are_those_of_rdkit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = [f"{'CC(=O)N' * 100}.{'c1ccccc1' * 10}.Cl"]
    ours = target_values(large)
    monkeypatch.setattr("graphlog.domains.molecule.descriptors._FEW_ATOMS", 10_000)
    np.testing.assert_allclose(ours, target_values(large), rtol=1e-6, atol=1e-6)


def test_molecules_too_large_for_some_features_are_said() -> None:
    texts = ["C" * 501, "CCO", "C" * 500]
    pairs = count_fingerprints(texts)[:, 2048:4096]
    assert [bool(pairs[row].nnz) for row in range(3)] == [False, True, True]
    store = graphlog.read_molecules(["CCO", "C" * 5001])
    with pytest.warns(UserWarning, match=r"more than 5,000 atoms \(rows 1\)"):
        found = DOMAINS["molecule"].feature_set("descriptors", store)
    assert np.isfinite(found.values).all()


def test_scaffolds_keep_chirality_and_the_unparsable_are_groups_of_their_own() -> None:
    smiles = ["C1CC", "OC(=O)CCc1ccccc1", "C1CC", "CCO", "", "CCC", "O=C1N[C@@H]2CCCC[C@H]2O1"]
    found = scaffolds(smiles)
    assert found[:-1] == [None, "c1ccccc1", None, "", None, ""]
    assert "@" in str(found[-1])
    assert group_numbers(found).tolist() == [0, 1, 2, 3, 4, 3, 5]
    written = ["C[C@H]1CC[C@@H](C2=CC=CC=C2)CC1", "OC1=CC=CC=C1"]
    assert scaffolds(written, canonical_first=True) == scaffolds([*map(Chem.CanonSmiles, written)])


WHOLE = [
    "esol",
    Path("m.csv"),
    {"smiles": ["CCO"]},
    pd.DataFrame({"smiles": ["CCO"]}),
    read(["CC"]),
]


@pytest.mark.parametrize("whole", WHOLE, ids=lambda whole: type(whole).__name__)
def test_only_lists_and_columns_are_split(whole: Any) -> None:
    smiles = ["CCO", "CC", "C1CC1", "CCN"]
    found = [scaffold_split(given) for given in (smiles, pd.Series(smiles), np.array(smiles))]
    assert {str(split) for split in found} == {str(found[0])}
    with pytest.raises(DataError, match=f"split a {type(whole).__name__}; give a list or column"):
        scaffold_split(whole)


def test_fingerprints_are_ecfp4_bits() -> None:
    bits = morgan_fingerprints(["CCO", "OCC", "c1ccccc1"])
    assert (bits.shape, bits.dtype) == ((3, 2048), np.uint8)
    assert np.array_equal(bits[0], bits[1])
    assert not np.array_equal(bits[0], bits[2])
    assert set(np.unique(bits)) == {0, 1}
    assert morgan_fingerprints([]).shape == (0, 2048)


def test_counts_are_those_of_the_bits():
    counts = morgan_counts(["CCO", "CCCCCCO"])
    np.testing.assert_array_equal(counts.toarray() > 0, morgan_fingerprints(["CCO", "CCCCCCO"]) > 0)
    assert [counts[row].max() for row in (0, 1)] == [1, 5]  # carbons with two neighbors
    assert morgan_counts([]).shape == (0, 2048)


def test_traits_are_finite_or_unknown() -> None:
    odd = ["CCO", "C1CC", "*C", "[Na+].[Cl-]", "N->[Cu]", "[U]", "C" * 300, "[H][H]"]
    found = {trait.name: trait.values for trait in traits(odd)}
    for values in found.values():
        assert values.shape == (len(odd),)
        assert np.isnan(values[1])
        assert np.isfinite(np.delete(values, 1)).all()
    assert found["with aliphatic hydroxyl"][[0, 2]].tolist() == [1, 0]
    assert found["molecular weight"][0] == pytest.approx(46.07, abs=0.01)


@pytest.mark.parametrize(
    "call", [lambda s: draw_svg(s, 100, 80), lambda s: morgan_fingerprints(["C", s])]
)
def test_unparsable_input_is_named(call, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataError, match="C1CC"):
        call("C1CC")
    assert capfd.readouterr().err == ""


def rdkits_own(text: str) -> list[float]:
    (mol,) = parsed_in_one_form([text])
    if isinstance(mol, str):
        return [np.nan] * len(TARGETS)
    functions: dict[str, Any] = dict(Descriptors.descList)
    return [functions[name](mol) for name in TARGETS]


def test_descriptors_worked_out_together_are_rdkits_own(nci: list[str]) -> None:
    texts = [
        *nci[::100],
        *"C [H][H] [Na+].[Cl-] * [Fe] [U] C[Si](C)(C)I OP(O)(=O)OC CS(=O)(=O)N C[CH2]".split(),
        *"C[C@H](N)C(=O)[O-].[K+] [H+].CCN.[Cl-] x".split(),
    ]
    ours, theirs = target_values(texts), np.array([rdkits_own(text) for text in texts])
    assert ours.shape == (len(texts), 196) == (len(texts), len(set(TARGETS)))
    np.testing.assert_allclose(ours, theirs.clip(-65504, 65504), rtol=1e-5, atol=1e-5)
    assert (np.nanstd(ours, axis=0) > 0).mean() > 0.8
