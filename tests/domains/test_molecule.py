"""Molecules: what goes through, what is refused and why, and the two schemas' codes."""

import subprocess
import sys
import time

import numpy as np
import pytest
from rdkit import Chem

from graphlog.data.store import StoreBuilder
from graphlog.domains import DOMAINS
from graphlog.domains.molecule import MOLECULE, MOLECULE_CIP, MOLECULE_RICH, featurize_smiles
from graphlog.domains.molecule import parse as parse_module
from graphlog.domains.molecule.parse import MAX_CHARACTERS
from graphlog.domains.molecule.scaffolds import scaffolds
from graphlog.errors import ConfigError
from graphlog.inputs import read

BOTH = pytest.mark.parametrize("schema", [MOLECULE, MOLECULE_RICH], ids=lambda s: s.name)


def codes(smiles: str, schema=MOLECULE) -> tuple[list[list[int]], list[list[int]]]:
    chunk, rejects = featurize_smiles([smiles], schema)
    assert not rejects
    return chunk.x.tolist(), chunk.edge_attr.tolist()


@pytest.mark.parametrize(
    ("smiles", "atoms", "bonds"),
    [
        ("C[C@H](N)O", [[5, 0], [5, 2], [6, 0], [7, 0]], [[0, 0]] * 3),
        ("F/C=C/F", [[8, 0], [5, 0], [5, 0], [8, 0]], [[0, 1], [1, 0], [0, 1]]),
        ("C#N", [[5, 0], [6, 0]], [[2, 0]]),
        # what follows the family's own featurizer refuses
        ("*C", [[118, 0], [5, 0]], [[0, 0]]),
        ("N->[Cu]", [[6, 0], [28, 0]], [[6, 0]]),
        ("C$C", [[5, 0], [5, 0]], [[6, 0]]),
        ("C~C", [[5, 0], [5, 0]], [[6, 0]]),
        ("F[P@TB1](C)(C)C", [[8, 0], [14, 3], [5, 0], [5, 0], [5, 0]], [[0, 0]] * 4),
        ("CC(O)F |w:1.0|", [[5, 0], [5, 0], [7, 0], [8, 0]], [[0, 3], [0, 0], [0, 0]]),
    ],
)
def test_codes_of_the_family(smiles: str, atoms: list, bonds: list) -> None:
    assert codes(smiles) == (atoms, bonds)
    codes(smiles, MOLECULE_RICH)


@pytest.mark.parametrize(
    ("smiles", "atom", "expected", "bonds"),
    [
        # carbon, no chirality, degree 3, charge 0, one H, no radical, SP2, aromatic, in ring
        ("c1ccccc1[N+](=O)[O-]", 0, [5, 0, 3, 5, 1, 0, 1, 1, 1], [[3, 0, 1], [1, 0, 1]]),
        ("c1ccccc1[N+](=O)[O-]", 6, [6, 0, 3, 6, 0, 0, 1, 0, 0], []),
        ("c1ccccc1[N+](=O)[O-]", 8, [7, 0, 1, 4, 0, 0, 1, 0, 0], []),
        # out of vocabulary: charge 11, bond type 4, chirality 4
        ("[Fe+6]<-N", 0, [25, 0, 1, 11, 0, 0, 5, 0, 0], [[4, 0, 0]]),
        ("[Co@OH1](N)(N)(N)(N)(N)N", 0, [26, 4, 6, 5, 0, 0, 4, 0, 0], []),
    ],
)
def test_rich_codes_have_the_meaning_ogb_gives_them(
    smiles: str, atom: int, expected: list[int], bonds: list[list[int]]
) -> None:
    x, edge_attr = codes(smiles, MOLECULE_RICH)
    assert x[atom] == expected
    assert all(bond in edge_attr for bond in bonds)


@BOTH
def test_special_rows_are_out_of_reach_of_molecules(schema) -> None:
    texts = "*C [Fe+6]<-N [Co@OH1](N)(N)(N)(N)(N)N C$C F/C=C/F [H][H] [U] [CH3]".split()
    chunk, rejects = featurize_smiles(texts, schema)
    assert not rejects
    for k, mask in enumerate(schema.node_mask):
        assert (chunk.x[:, k] < mask).all()
        assert mask == schema.node[k].cardinality - 1
    assert not (chunk.edge_attr[:, 0] == schema.edge_mask[0]).any()
    assert not (chunk.edge_attr[:, 0] == schema.self_loop[0]).any()


@BOTH
def test_bondless_large_and_no_molecules(schema) -> None:
    texts = ["[Na+].[Cl-]", "C", "[H]", "C" * 500, "[13CH4]", "N[C@@H](C)C(=O)" * 100 + "O"]
    chunk, rejects = featurize_smiles(texts, schema)
    assert not rejects
    assert chunk.node_counts.tolist() == [2, 1, 1, 500, 1, 501]
    assert chunk.edge_counts.tolist() == [0, 0, 0, 499, 0, 500]
    chunk.check(schema)
    nothing, rejects = featurize_smiles(["", "C1CC"], schema)
    assert (len(nothing), len(rejects)) == (0, 2)
    nothing.check(schema)
    assert len(StoreBuilder(schema).finish()) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "empty"),
        ("  \t ", "empty"),
        ("C1CC", "unclosed ring"),
        ("C(C", "unbalanced parentheses"),
        ("[C", "unbalanced square brackets"),
        ("CC(C)(C)(C)C", "Explicit valence for atom # 1 C, 5, is greater than permitted"),
        ("c1cccc1", "Can't kekulize mol.  Unkekulized atoms: 0 1 2 3 4"),
        ("C\0C", "contains a NUL byte"),
        ("CC\nCC", "contains a line break"),
        ("CÖ", "not a SMILES character: '\\xd6'"),
        ("C\ud800", "not a SMILES character: '\\ud800'"),
        ("C" * (MAX_CHARACTERS + 1), "longer than 20,000 characters (20,001)"),
        ("[#6]-[#8]", "a SMARTS pattern, not a SMILES"),
        ("[C,N]-[OX2;H1]", "a SMARTS pattern, not a SMILES"),
        ("[$(C=O)]O", "a SMARTS pattern, not a SMILES"),
        ("CCO>>CC=O", "a reaction, not a molecule"),
        ("CCO>[Na+]>CC=O", "a reaction, not a molecule"),
        ("BSYNRYMUTXBXSQ-UHFFFAOYSA-N", "an InChIKey"),
        ("InChI=1S/xyz", "not a valid InChI"),
        ("aspirin", "not a SMILES; it looks like a name"),
        ("Sodium benzoate", "not a SMILES; it looks like a name"),
        ("xx", "not a SMILES"),
        ("CCO,1", "not a SMILES character: ','"),
        (None, "not text but NoneType"),
        (float("nan"), "not text but float"),
    ],
)
def test_reasons(text: object, expected: str) -> None:
    chunk, rejects = featurize_smiles([text], MOLECULE)
    assert not len(chunk)
    assert rejects[0][1].removeprefix("RDKit cannot parse: ").startswith(expected)


def test_rdkit_keeps_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    featurize_smiles(["C1CC", "CC(C)(C)(C)C", "c1cccc1", "[C", "C/C=C/C |bad", "xyz"], MOLECULE)
    assert capfd.readouterr() == ("", "")


def test_cxsmiles_and_names_behind_the_smiles() -> None:
    assert codes("CCO ethanol")[0] == codes("CCO")[0]
    assert codes("  CCO ")[0] == codes("CCO")[0]
    assert codes("CC |$R1;$|")[0] == [[5, 0], [5, 0]]


@BOTH
def test_the_quick_way_equals_the_careful_one(schema, nci, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = "B1OB1 [Fe]C N[Cu]N [H]C [2H]O C~C C$C *C C:C [CH2] C=[N+]=[N-] [Pt](N)(N)(Cl)Cl"
    texts = [*nci[::10], *texts.split()]
    quick, quick_rejects = featurize_smiles(texts, schema)
    monkeypatch.setattr(parse_module, "is_flat", lambda text: False)
    careful, careful_rejects = featurize_smiles(texts, schema)
    assert quick_rejects == careful_rejects
    for name in ("node_counts", "edge_counts", "x", "edge_index", "edge_attr", "rows"):
        np.testing.assert_array_equal(getattr(quick, name), getattr(careful, name))


def test_another_schema_is_refused() -> None:
    other = MOLECULE.from_dict({**MOLECULE.to_dict(), "name": "protein"})
    with pytest.raises(ConfigError, match="not 'protein'"):
        read(["C"], other)


def test_rdkit_is_loaded_late_and_torch_not_at_all() -> None:
    code = (
        "import sys, graphlog.domains\n"
        "assert 'rdkit' not in sys.modules and 'torch' not in sys.modules\n"
        "from graphlog.domains.molecule import featurize_smiles, scaffolds\n"
        "assert scaffolds.scaffolds(['CCc1ccccc1']) == ['c1ccccc1']\n"
        "assert 'rdkit' in sys.modules and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("odd", ["[#119]", "[CH128]", "[#6H200]", "[*H200]", "[HH200]"])
def test_an_odd_smiles_is_a_rejected_row_whatever_rdkit_raises(odd: str) -> None:
    for schema in (MOLECULE, MOLECULE_RICH, MOLECULE_CIP):
        chunk, rejects = featurize_smiles(["CCO", odd, "C", f"N.C{odd}"], schema)
        assert chunk.rows[:2].tolist() == [0, 2]
        assert rejects[0][0] == 1
    assert scaffolds([odd]) == [None]
    assert np.isnan(DOMAINS["molecule"].target_values([odd])).all()


def bipartite(n: int) -> str:
    """Every one of ``n`` atoms bonded to every one of ``n`` others."""
    rows = ["*" + "".join(f"%({i * n + j + 1})" for j in range(n)) for i in range(n)]
    columns = ["*" + "".join(f"%({i * n + j + 1})" for i in range(n)) for j in range(n)]
    return ".".join(rows + columns)


def ladder(n: int) -> str:
    """``n`` rungs: fused rings in a row."""
    side = "".join(f"C%({k + 1})" for k in range(n))
    return f"{side}.{side}"


@pytest.mark.parametrize(
    ("smiles", "reason"),
    [
        (bipartite(20), "361 fused rings on 40 atoms"),
        (ladder(400), "399 fused rings"),
        ("C1CC1" * 1100, "more than 1,000 rings"),
    ],
)
def test_short_smiles_that_exhaust_memory_and_time_are_refused(smiles: str, reason: str) -> None:
    began = time.monotonic()
    chunk, rejects = featurize_smiles([smiles, f"[C@H](F)(Cl)Br.{smiles}", "C"])
    assert chunk.rows.tolist() == [2]
    assert all(reason in text for _, text in rejects)
    assert scaffolds([smiles]) == [None]
    assert time.monotonic() - began < 20


def test_large_molecules_of_many_rings_are_read_and_have_scaffolds() -> None:
    polymer, fullerene = "c1ccccc1" * 240, ladder(90)
    chunk, rejects = featurize_smiles([polymer, fullerene])
    assert (len(chunk), rejects) == (2, [])
    assert scaffolds(["C1CC1" * 400])[0] == Chem.CanonSmiles("C1CC1" * 400)
