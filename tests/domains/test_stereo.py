"""Stereo labels of ``molecule-cip`` do not depend on how a SMILES is written."""

import random
from itertools import chain

import numpy as np
import pytest
from rdkit import Chem, rdBase
from rdkit.Chem.EnumerateStereoisomers import EnumerateStereoisomers, StereoEnumerationOptions

from graphlog.domains import schema_named
from graphlog.domains.molecule import MOLECULE_CIP, MOLECULE_RICH, featurize_smiles, parse
from graphlog.downstream.pretrained import Encoder, random_encoder
from memory_support import megabytes_for

WAYS = 10
SPECIAL = r"""
    C[C@H](N)C(=O)O OC[C@H]1OC(O)[C@H](O)[C@@H](O)[C@@H]1O C[S@](=O)c1ccccc1 F/C=C/F C/C=C\C=C\Cl
    C[C@@](N)(F)Cl O[C@@H](C(=O)[O-])[C@H](O)C(=O)[O-].[K+].[Na+] C[N@+](CC)(CCC)c1ccccc1.[Cl-]
    C[C@H]1CC[C@@H](C)CC1 C/N=C/c1ccccc1 O[C@H]1[C@H](O)[C@@H](O)[C@H](O)[C@H](O)[C@@H]1O
    F[P@TB1](Cl)(Br)(I)C [2H][C@H](C)O N[C@@H](CS)C(=O)N[C@@H](C)C(O)=O
""".split()


def column(smiles: str, kind: str) -> list[int]:
    chunk, rejects = featurize_smiles([smiles], MOLECULE_CIP)
    assert not rejects
    return (chunk.x if kind == "atoms" else chunk.edge_attr)[:, 1].tolist()


@pytest.mark.parametrize(
    ("smiles", "codes"),
    [
        ("C[C@H](N)C(=O)O", [2]),  # L-alanine is S
        ("C[C@@H](N)C(=O)O", [1]),
        ("C[C@H]1CC[C@@H](C)CC1", [3, 3]),  # r, r: pseudo-asymmetric
        ("C[C@](C)(N)O", []),  # a tag on what is no center
        ("CC(N)C(=O)O", []),
        ("F[P@TB1](Cl)(Br)(I)C", [5]),  # trigonal bipyramid
    ],
)
def test_codes_of_centers(smiles: str, codes: list[int]) -> None:
    found = [code for code in column(smiles, "atoms") if code]
    assert (found if 3 not in codes else [{4: 3}.get(code, code) for code in found]) == codes


@pytest.mark.parametrize(
    ("smiles", "code"),
    [("F/C=C/F", 2), ("F/C=C\\F", 1), ("FC=CF", 0), ("C/C=C(/C)C", 0), ("CC=N/O", 0)],
)
def test_codes_of_bonds(smiles: str, code: int) -> None:
    codes = column(smiles, "bonds")
    assert codes.count(0) == len(codes) - (code > 0)
    assert max(codes) == code


def test_what_takes_too_long_to_rank_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse, "_MAX_COMPARISONS", 1)
    assert set(column("C[C@H]1CC[C@@H](C)C[C@H]1/C=C/C", "atoms")) == {0, 5}
    assert set(column("C[C@H]1CC[C@@H](C)C[C@H]1/C=C/C", "bonds")) == {0, 3}


def test_many_stereo_centers_take_little_memory() -> None:
    texts = ["[C@H](F)" * 2400, "[C@@H](O)" * 450, "N[C@@H](C)C(=O)" * 1400]
    prepare = "from graphlog.domains.molecule import MOLECULE_CIP, featurize_smiles"
    assert megabytes_for(prepare, "featurize_smiles(sys.argv[1:], MOLECULE_CIP)", *texts) < 600


def test_many_centers_that_are_easily_ranked_keep_their_labels() -> None:
    assert column("N[C@@H](C)C(=O)" * 900 + "O", "atoms").count(2) == 900


def test_without_stereo_it_is_the_older_schema(nci: list[str]) -> None:
    texts = [text for text in nci[::50] if not parse._HAS_VARIANTS.search(text)]
    ours, theirs = (featurize_smiles(texts, s)[0] for s in (MOLECULE_CIP, MOLECULE_RICH))
    np.testing.assert_array_equal(ours.x, theirs.x)
    np.testing.assert_array_equal(ours.edge_attr, theirs.edge_attr)
    assert schema_named("molecule-cip") is MOLECULE_CIP


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return random_encoder(schema=MOLECULE_CIP)


def test_mirror_images_differ(encoder: Encoder) -> None:
    left, right, flat = encoder.embed(["C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O", "CC(N)C(=O)O"])
    assert min(np.abs(left - right).max(), np.abs(left - flat).max()) > 0.01


def stereoisomers(nci: list[str], count: int) -> list[str]:
    """Molecules of NCI, charges and counter-ions first, with every stereo element set at random."""
    texts = sorted(nci, key=lambda text: not any(c in text for c in "+-."))
    found: list[str] = list(SPECIAL)
    options = StereoEnumerationOptions(maxIsomers=1, rand=7, unique=True)
    for text in chain.from_iterable(zip(texts, reversed(texts), strict=True)):
        mol = Chem.MolFromSmiles(text)
        if mol is None:
            continue
        smiles = Chem.MolToSmiles(next(iter(EnumerateStereoisomers(mol, options=options))))
        if any(c in smiles for c in "@/\\"):
            found.append(smiles)
        if len(found) == count:
            break
    return found


def ways_of_writing(smiles: str, count: int) -> list[str]:
    """Other SMILES of a molecule; RDKit writes the mirror image of some, which are left out."""
    mol = Chem.MolFromSmiles(smiles)
    canonical = Chem.MolToSmiles(mol)
    written = [Chem.MolToSmiles(mol, doRandom=True) for _ in range(count)]
    return [text for text in written if Chem.CanonSmiles(text) == canonical]


def assert_one_embedding(encoder: Encoder, molecules: list[str]) -> None:
    with rdBase.BlockLogs():
        Chem.rdBase.SeedRandomNumberGenerator(random.randrange(1 << 30))
        ways = [ways_of_writing(smiles, WAYS) for smiles in molecules]
    rewritten = [(k, text) for k, texts in enumerate(ways) for text in texts]
    assert len(rewritten) > 0.9 * WAYS * len(molecules)
    first = encoder.embed(molecules, workers=1)
    others = encoder.embed([text for _, text in rewritten], workers=1)
    gap = np.abs(others - first[[k for k, _ in rewritten]]).max(axis=1)
    molecule, text = rewritten[int(gap.argmax())]
    assert gap.max() < 1e-5 * np.abs(first).max(), (molecules[molecule], text)


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_an_embedding_does_not_depend_on_how_the_smiles_is_written(
    encoder: Encoder, nci: list[str], count: int
) -> None:
    assert_one_embedding(encoder, stereoisomers(nci, count))


def test_an_older_schema_does_depend_on_it() -> None:
    with pytest.raises(AssertionError):
        assert_one_embedding(random_encoder(schema=MOLECULE_RICH), SPECIAL)
