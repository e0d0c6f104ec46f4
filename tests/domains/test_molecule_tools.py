"""Scaffolds, fingerprints, descriptors and drawings."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rdkit import Chem
from rdkit.Chem import Descriptors

from graphlog.data.split import group_numbers
from graphlog.domains.molecule import draw_svg, morgan_fingerprints
from graphlog.domains.molecule.descriptors import morgan_counts, target_values
from graphlog.domains.molecule.parse import parsed_in_one_form
from graphlog.domains.molecule.scaffolds import scaffold_split, scaffolds
from graphlog.domains.molecule.schema import TARGETS
from graphlog.domains.molecule.traits import traits
from graphlog.errors import DataError
from graphlog.inputs import read


def test_scaffolds_keep_chirality_and_the_unparsable_are_groups_of_their_own() -> None:
    smiles = ["C1CC", "OC(=O)CCc1ccccc1", "C1CC", "CCO", "", "CCC", "O=C1N[C@@H]2CCCC[C@H]2O1"]
    found = scaffolds(smiles)
    assert found[:-1] == [None, "c1ccccc1", None, "", None, ""]
    assert "@" in str(found[-1])
    assert group_numbers(found).tolist() == [0, 1, 2, 3, 4, 3, 5]
    written = ["C[C@H]1CC[C@@H](C2=CC=CC=C2)CC1", "OC1=CC=CC=C1"]
    assert scaffolds(written, canonical_first=True) == scaffolds([*map(Chem.CanonSmiles, written)])


@pytest.mark.parametrize(
    "whole",
    [
        "esol",
        Path("m.csv"),
        {"smiles": ["CCO"]},
        pd.DataFrame({"smiles": ["CCO", "CC"]}),
        read(["CCO", "CC"]),
    ],
    ids=lambda whole: type(whole).__name__,
)
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
    texts = ["CCO", "CCCCCCO"]
    counts = morgan_counts(texts)
    np.testing.assert_array_equal(counts.toarray() > 0, morgan_fingerprints(texts).astype(bool))
    assert counts[0].max() == 1
    assert counts[1].max() == 5  # carbons with two neighbors
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
        *nci[::40],
        *"C [H][H] [Na+].[Cl-] * [Fe] [U] C[Si](C)(C)I OP(O)(=O)OC CS(=O)(=O)N C[CH2]".split(),
        *"C[C@H](N)C(=O)[O-].[K+] [H+].CCN.[Cl-] x".split(),
    ]
    ours, theirs = target_values(texts), np.array([rdkits_own(text) for text in texts])
    assert ours.shape == (len(texts), 196) == (len(texts), len(set(TARGETS)))
    np.testing.assert_allclose(ours, theirs.clip(-65504, 65504), rtol=1e-5, atol=1e-5)
    assert (np.nanstd(ours, axis=0) > 0).mean() > 0.8
