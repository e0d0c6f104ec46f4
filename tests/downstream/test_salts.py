"""Salts and charged forms of a molecule stay with it, are counted, and can be read as it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rdkit import Chem

import graphlog
from downstream_support import tiny_encoder, tuned, write_csv
from graphlog.data.split import Split
from graphlog.domains.molecule.parse import may_have_parent, parent_of
from graphlog.domains.molecule.schema import MOLECULE, MOLECULE_CIP
from graphlog.downstream.tasks import open_labeled, split_file
from graphlog.errors import ConfigError, DataError

KINDS = ("scaffold", "scaffold-balanced", "random-scaffold", "random")


def protonated(smiles: str) -> str:
    """Return the molecule with one more hydrogen on its first basic nitrogen; else its hydrate."""
    mol = Chem.MolFromSmiles(smiles)
    basic = mol.GetSubstructMatch(Chem.MolFromSmarts("[NX3;!$(N-[C,S]=[O,N,S]);!$(N-c)]([#6])"))
    if not basic:
        return f"{smiles}.O"
    atom = mol.GetAtomWithIdx(basic[0])
    atom.SetNumExplicitHs(atom.GetTotalNumHs() + 1)
    atom.SetFormalCharge(1)
    atom.SetNoImplicit(True)
    Chem.SanitizeMol(mol)
    return Chem.MolToSmiles(mol)


FORMS: dict[str, Callable[[str], str]] = {
    "HCl": lambda s: f"{s}.Cl",
    "benzoate": lambda s: f"{s}.[O-]C(=O)c1ccccc1",
    "tosylate": lambda s: f"Cc1ccc(cc1)S(=O)(=O)O.{s}",
    "protonated": protonated,
}


@pytest.fixture(scope="module")
def molecules() -> tuple[list[str], np.ndarray]:
    """The first molecules of a bundled series, and their activities."""
    store = graphlog.read_molecules("chembl2321810", limit=100)
    texts, first = np.unique(store.texts(), return_index=True)
    return texts.tolist(), store.labels[first, 0]


EVERY = [(form, kind) for form in FORMS for kind in KINDS]
USUAL = [*zip(FORMS, KINDS, strict=True)]
"""Every kind of split with a form of its own."""


@pytest.mark.parametrize(
    ("form", "kind"),
    [pytest.param(*pair, marks=() if pair in USUAL else pytest.mark.slow) for pair in EVERY],
)
def test_a_salt_beside_each_molecule_does_not_improve_the_score(
    form: str, kind: str, molecules: tuple[list[str], np.ndarray]
) -> None:
    smiles, y = molecules
    both = {"smiles": smiles + [FORMS[form](s) for s in smiles], "y": np.r_[y, y].tolist()}
    encoder = tiny_encoder(schema=MOLECULE_CIP)
    honest = open_labeled({"smiles": smiles, "y": y.tolist()}, encoder.schema, split=kind)
    n = len(smiles)
    folds = Split(*(np.concatenate([fold, fold + n]) for fold in honest.split))
    wanted = graphlog.probe(encoder, both, folds, targets=["y"], baselines=(), grid=(0.1,))
    report = graphlog.probe(encoder, both, kind, targets=["y"], baselines=(), grid=(0.1,))
    assert report.rows[0].test["r2"][0] == pytest.approx(wanted.rows[0].test["r2"][0], abs=0.05)
    found = open_labeled(both, encoder.schema, targets=["y"], split=kind)
    assert not any("fold repeat one of" in note for note in found.repeat_notes)
    assert any(f"{2 * n} of {2 * n} labeled molecules repeat" in n_ for n_ in found.repeat_notes)


@pytest.mark.parametrize(
    ("smiles", "parent"),
    [
        ("CC[NH3+].[Cl-]", "CCN"),
        ("CN.OC(=O)c1ccccc1", "CN"),
        ("CC(=O)O[Na]", "CC(=O)O"),
        ("C[S+]([O-])C", "CS(C)=O"),
        ("[NH3+]CC([O-])=O", "NCC(=O)O"),
        ("C[N+](C)(C)C.[I-]", "C[N+](C)(C)C"),
        ("[Na+].[O-]C(=O)c1ccccc1", "O=C(O)c1ccccc1"),
    ],
)
def test_the_parent_of_a_molecule(smiles: str, parent: str) -> None:
    assert may_have_parent(smiles)
    assert parent_of(Chem.MolFromSmiles(smiles)) == parent
    kept = graphlog.read_molecules([smiles])
    assert (kept.texts(), kept.parents()) == ([smiles], [parent])
    assert graphlog.read_molecules([smiles], standardize="parent").texts() == [parent]


@pytest.mark.parametrize(
    "smiles", ["CC[N+](=O)[O-]", "c1cc[n+]([O-])cc1", "C[Si](C)C", "C[C@H](N)O"]
)
def test_ordinary_molecules_are_not_looked_at(smiles: str) -> None:
    assert not may_have_parent(smiles)


def test_parents_survive_saving_and_views(tmp_path: Path) -> None:
    store = graphlog.read_molecules(["CCO", "CCN.Cl", "xx", "C[NH3+]"])
    saved = store.save(tmp_path / "store")
    assert saved.parents() == ["CCO", "CCN", "CN"]
    assert saved.subset([2, 1]).parents() == ["CN", "CCN"]
    assert saved.digest == store.digest


def test_a_predictor_reads_as_it_was_trained(tmp_path: Path) -> None:
    salts = {"smiles": [f"{'C' * k}N.Cl" for k in range(1, 21)], "y": list(range(20))}
    how = {"split": "random", "seeds": (0,), "epochs": 1, "standardize": "parent"}
    predictor = tuned(salts, run_dir=tmp_path / "run", **how)
    loaded = graphlog.load_predictor(tmp_path / "run")
    salt, base = loaded.predict(["CCCCN.Cl", "CCCCN"])
    # other molecules in a batch change the order of sums
    assert salt == pytest.approx(base, rel=1e-5)
    assert salt == pytest.approx(predictor.predict(["CCCC[NH3+]"])[0], rel=1e-5)
    with pytest.raises(ConfigError, match="standardize"):
        loaded.predict(graphlog.read_molecules(["CCCCN.Cl"]))


REPEATED = {"smiles": ["CCO", "OCC", "CCN", "CCN.Cl", "CCC", "CCCC"], "y": [1.0, 3, 2, 2, 5, 6]}


@pytest.mark.parametrize(
    ("how", "labels"),
    [("keep", [1, 3, 2, 2, 5, 6]), ("mean", [2, 2, 5, 6]), ("drop", [1, 2, 5, 6])],
)
def test_what_becomes_of_repeats(how: str, labels: list[float]) -> None:
    fractions = (0.5, 0.25, 0.25)
    options = {"targets": ["y"], "split": "random", "on_repeats": how}
    data = open_labeled(REPEATED, MOLECULE, fractions=fractions, **options)
    assert data.labels[np.isfinite(data.labels)].tolist() == labels


def test_repeats_can_be_refused() -> None:
    with pytest.raises(DataError, match=r"2 molecules repeat an earlier one \(rows 1, 3\)"):
        open_labeled(REPEATED, MOLECULE, targets=["y"], on_repeats="fail")


def test_a_split_file_keeps_salts_together(tmp_path: Path) -> None:
    chains = ["C" * k + "N" for k in range(1, 31)]
    table = write_csv(tmp_path / "m.csv", [*chains, *(f"{s}.Cl" for s in chains)])
    for part in split_file(table, tmp_path / "s.json", "random"):
        assert set(part % 30) == set(part[part < 30])


def test_intervals_from_a_fold_that_repeats_the_training_fold_say_so(tmp_path: Path) -> None:
    chains = ["C" * k + "N" for k in range(1, 41)]
    both = {"smiles": chains + [f"{s}.Cl" for s in chains], "y": [float(k % 40) for k in range(80)]}
    folds = Split(np.arange(40), np.arange(40, 70), np.arange(70, 80))
    predictor = tuned(both, split=folds, seeds=(0,), epochs=1)
    assert any("30 of 30 molecules of the validation fold" in n for n in predictor.report.notes)
    predictor.save(tmp_path / "model.safetensors")
    with pytest.warns(UserWarning, match="30 of 30 graphs of the validation fold repeat"):
        graphlog.load_predictor(tmp_path / "model.safetensors").predict_uncertain(
            ["CCN"], interval=0.9
        )
