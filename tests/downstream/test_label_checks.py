"""Labels that look wrong, and repeated graphs, salts and charged forms included."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rdkit import Chem
from torch_geometric.data import Data

import graphlog
from downstream_support import (
    CHAINS,
    IS_ALCOHOL,
    LENGTH,
    chain_store,
    labeled,
    probed,
    tiny_encoder,
    tuned,
    write_csv,
)
from graphlog.data.split import Split
from graphlog.domains.molecule.parse import (
    constitution_keys,
    may_have_parent,
    parent_of,
    parse_smiles,
)
from graphlog.domains.molecule.schema import MOLECULE, MOLECULE_CIP
from graphlog.domains.repeats import repeat_kinds, same_structure
from graphlog.downstream.label_checks import repeats_between, unusual_labels
from graphlog.downstream.tasks import LabeledGraphs, open_labeled, split_file
from graphlog.errors import ConfigError, DataError
from graphlog.sklearn import GraphEmbedder
from graphs_support import lines

NAN = float("nan")
PLAIN = np.random.default_rng(0).normal(2, 1.2, 240)
ROWS = np.arange(240)
MANY = np.where(ROWS % 5 > 1, 2.6, PLAIN)
"""Most values are one and the same."""


def said(values: np.ndarray) -> list[str]:
    return unusual_labels(values[:, None], ["y"], np.arange(len(values)))


def changed(values: np.ndarray, cells: dict[int, float]) -> np.ndarray:
    values = values.copy()
    values[[*cells]] = [*cells.values()]
    return values


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (changed(PLAIN, {7: -9999}), ["-9999 occurs once (rows 7)"]),
        (changed(PLAIN, {7: -5000}), ["1 value is more than 10 robust", "rows 7", "-5000"]),
        (changed(0 * PLAIN, {9: -9999}), ["-9999 occurs once (rows 9)"]),
        (changed(MANY, {5: 999}), ["999 occurs once (rows 5)"]),
        (changed(MANY, {5: 700}), ["(rows 5, e.g. 700)"]),
        (changed(PLAIN, {7: -9999, 9: -9999}), ["-9999 occurs 2 times (rows 7, 9)"]),
        (np.where(ROWS[:20] % 2, 999.0, -1), ["-1 occurs 10 times", "999 occurs 10 times"]),
        (changed(PLAIN, {3: 999, 4: 999, 5: 999}), ["999 occurs 3 times (rows 3, 4, 5)"]),
        (np.where(ROWS % 50 == 0, -1, np.abs(PLAIN) + 0.1), ["-1 occurs 5 times"]),
        (changed(PLAIN, {11: 2400}), ["(rows 11, e.g. 2400)"]),
        (np.where(ROWS % 3 == 0, 1000, 1) * 10 ** (PLAIN / 3), ["as if in two units"]),
        (np.where(ROWS < 120, 1000, 1) * PLAIN, ["factor of about 1,000 apart"]),
    ],
)
def test_what_looks_wrong_is_said_in_one_line(values: np.ndarray, words: list[str]):
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
        MANY,
        np.where(ROWS % 50, 0.0, 1.0),
    ],
)
def test_ordinary_labels_are_not_talked_about(values: np.ndarray):
    assert said(values) == []


def test_a_range_leaves_out_what_is_outside_and_says_so():
    table = {"smiles": CHAINS, "y": changed(np.linspace(0, 5, 48), {3: -9999, 30: 70})}
    data = open_labeled(table, MOLECULE, split="random", labels_range=(-5, 10))
    assert np.setdiff1d(np.arange(len(CHAINS)), data.rows).tolist() == [3, 30]
    assert "target 'y': 2 values are outside -5 to 10 and left out (rows 3, 30)" in data.notes
    assert not any("robust" in note for note in data.notes)
    with pytest.raises(ConfigError, match="lowest and the highest"):
        open_labeled(table, MOLECULE, labels_range=(5, 1))


def test_different_graphs_are_told_apart_and_equal_ones_are_not():
    far = [f"{'C' * p}C=C{'C' * (30 - p)}(=O)O" for p in range(11, 19)]
    alike = ["C1CCC2CCCCC2C1", "C1CCC(C1)C1CCCC1"]  # to color refinement
    pairs = [("C1CCCCC1", "C1CCCCN1"), ("C/C=C/C", "C\\C=C/C")]  # they differ in one attribute
    smiles = [*far, *alike, *sum(pairs, ())]
    found = same_structure(graphlog.read_molecules(smiles * 2))
    assert len(set(found)) == len(smiles)
    np.testing.assert_array_equal(*np.split(found, 2))


def test_regular_graphs_are_told_apart():
    a, b = np.divmod(np.arange(16), 4)
    rook = (a[:, None] == a) | (b[:, None] == b)
    steps = {(0, 1), (1, 0), (1, 1), (0, 3), (3, 0), (3, 3)}
    shrikhande = [[((a[j] - a[k]) % 4, (j - k) % 4) in steps for j in range(16)] for k in range(16)]
    ring, star = np.eye(6, k=1) + np.eye(6, k=5), np.eye(300) * 0
    star[0] = 1
    halves = np.kron(np.eye(2), np.eye(3, k=1) + np.eye(3, k=2))
    graphs, rng = list[Data](), np.random.default_rng(0)
    for joined in [ring, halves, rook, shrikhande, np.kron(np.eye(2), rook), star] * 2:
        ends = rng.permutation(len(joined))[np.stack(np.nonzero(joined))]
        graphs.append(Data(edge_index=torch.from_numpy(ends), num_nodes=len(joined)))
    found = same_structure(graphlog.from_pyg(graphs))
    assert len(set(found)) == 6
    np.testing.assert_array_equal(*np.split(found, 2))


SMILES = ["CCO", "OCC", "CCN", "C(O)C", "CC", "CCCC", "c1ccccc1O", "Oc1ccccc1", "C", "C.C"]


def test_graphs_are_alike_whatever_the_order_of_their_atoms():
    kinds = same_structure(graphlog.read_molecules(SMILES)).tolist()
    assert [kinds.index(kind) for kind in kinds] == [0, 0, 2, 0, 4, 5, 6, 6, 8, 9]


FOLDS = Split(np.array([0, 2, 4, 6]), np.array([5, 8]), np.array([1, 3, 7, 9]))


def repeat_notes(labels: list[float], folds: Split = FOLDS) -> list[str]:
    """Return what is said of repeats among the molecules above."""
    store = graphlog.read_molecules(SMILES)
    y = np.array(labels, dtype=np.float32)[:, None]
    kind = ("classification", "roc_auc")
    return LabeledGraphs("m", store, y, ("y",), *kind, folds, "given").repeat_notes  # type: ignore[arg-type]


def test_what_is_repeated_between_folds_is_said():
    labels = [0, 0, 1, 0, 1, 1, 1, 1, 0, 1]
    assert [note.partition(":")[0] for note in repeat_notes(labels)] == [
        "3 of 4 molecules of the test set repeat one of the training set",
        "1 of 4 molecules of the test set repeat one of the validation set",
        "7 of 10 labeled molecules repeat each other (3 structures)",
        "1 structure occurs more than once with different labels (rows 8, 9); check these rows, "
        "or choose `on_repeats`",
    ]
    folds = Split(np.array([0, 2, 4, 6]), np.array([1, 3, 5, 7]), np.array([8, 9]))
    assert repeat_notes(labels, folds)[0].startswith(
        "3 of 4 molecules of the validation set repeat one of the training set: intervals and "
        "choices made on it are too optimistic"
    )


def test_repeats_of_several_splits_are_counted_once():
    """Each graph that repeats one of an earlier set in any split counts, whatever their order."""
    kinds, test = np.array([0, 0, 1, 2, 1]), np.array([4])
    splits = [
        Split(np.array(a), np.array(b), test) for a, b in (([0, 2], [1, 3]), ([1, 3], [0, 2]))
    ]
    expected = {("valid", "train"): (2, 4), ("test", "train"): (1, 1), ("test", "valid"): (1, 1)}
    for order in (splits, splits[::-1]):
        assert repeats_between(kinds, order) == expected


def test_labels_that_contradict_each_other_are_said():
    assert repeat_notes([0, 1, 1, 1, 1, 1, 1, 1, 0, 1])[-1].startswith(
        "2 structures occur more than once with different labels (rows 0, 1, 3, 8, 9)"
    )


def test_nothing_is_said_of_graphs_that_occur_once():
    report = probed(labeled(IS_ALCOHOL))
    assert not any("structure" in note for note in report.notes)
    assert len(np.unique(same_structure(chain_store()))) == len(CHAINS)


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


def every_kind_of_split_with_a_form_of_its_own() -> list[Any]:
    """The other pairs are slow."""
    usual = [*zip(FORMS, KINDS, strict=True)]
    pairs = [(form, kind) for form in FORMS for kind in KINDS]
    return [pytest.param(*p, marks=() if p in usual else pytest.mark.slow) for p in pairs]


@pytest.mark.parametrize(("form", "kind"), every_kind_of_split_with_a_form_of_its_own())
def test_a_salt_beside_each_molecule_does_not_improve_the_score(
    form: str, kind: str, molecules: tuple[list[str], np.ndarray]
):
    smiles, y = molecules
    n, encoder = len(smiles), tiny_encoder(schema=MOLECULE_CIP)
    both = {"smiles": smiles + [FORMS[form](s) for s in smiles], "y": np.r_[y, y]}
    store = graphlog.read_molecules(both, targets=["y"], schema="molecule-cip")
    honest = open_labeled(store.subset(np.arange(n)), store.schema, split=kind)
    folds = Split(*(np.concatenate([fold, fold + n]) for fold in honest.split))
    found, wanted = (open_labeled(store, store.schema, split=split) for split in (kind, folds))
    reports = (probed(data, encoder) for data in (found, wanted))
    score, honestly = (report.rows[0].test["r2"][0] for report in reports)
    assert score == pytest.approx(honestly, abs=0.05)
    assert not any("set repeat one of" in note for note in found.repeat_notes)
    assert any(f"{2 * n} of {2 * n} labeled molecules repeat" in n_ for n_ in found.repeat_notes)


@pytest.mark.parametrize("schema", ["molecule", "molecule-rich", "molecule-cip"])
def test_a_form_repeats_its_parent_in_every_schema(
    schema: str, molecules: tuple[list[str], np.ndarray]
):
    written = [*molecules[0], "C[C@H](N)CC(=O)c1ccccc1", "CC[C@@H](F)c1ccncc1"]
    again = [Chem.MolToSmiles(Chem.MolFromSmiles(s), doRandom=True) for s in written]
    again[-2:] = [
        "C[C@H](N)CC(=O)c1ccccc1.[O-]C(=O)c1ccccc1",
        "[2H]C([2H])([2H])C[C@@H](F)c1ccncc1",
    ]
    kinds = repeat_kinds(graphlog.read_molecules(written + again, schema=schema))
    np.testing.assert_array_equal(*np.split(kinds, 2))
    other = repeat_kinds(graphlog.read_molecules(["C[C@H](F)O", "C[C@@H](F)O"], schema=schema))
    assert other[0] != other[1]


def test_graphs_without_smiles_are_said_to_hide_salts(tmp_path: Path):
    table, store = {"smiles": CHAINS, "y": LENGTH}, tmp_path / "store"
    graphlog.read_molecules(table, targets=["y"], keep_texts=False, store_path=store)
    data = open_labeled(store, MOLECULE_CIP, split="random")
    assert any("the graphs have no SMILES" in note for note in data.notes)


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
        ("CN.[2H]OC(=O)C(F)(F)F", "CN"),
        ("[CH3:1][NH2:2].[OH:3][C:4](=[O:5])[c:6]1ccccc1", "CN"),
        ("InChI=1S/C2H4O2/c1-2(3)4/h1H3,(H,3,4)/p-1", "CC(=O)O"),
    ],
)
def test_the_parent_of_a_molecule(smiles: str, parent: str):
    assert may_have_parent(smiles)
    assert parent_of(parse_smiles(smiles)) == parent
    kept = graphlog.read_molecules([smiles])
    assert (kept.texts(), kept.parents()) == ([smiles], [parent])
    assert graphlog.read_molecules([smiles], standardize="parent").texts() == [parent]


def test_complexes_and_inorganic_compounds_are_their_own_parents():
    oxine = ".[O-]c1cccc2cccnc12.[O-]c1cccc2cccnc12"
    different = ["N[Pt](N)(Cl)Cl", "[K+].[K+].Cl[Pt-2](Cl)(Cl)Cl", "[Na+].[Cl-]", "[K+].[Cl-]"]
    different += [f"[{metal}+2]{oxine}" for metal in ("Zn", "Cu")]
    store = graphlog.read_molecules(different, standardize="parent")
    assert store.texts() == store.parents() == different
    assert len({*repeat_kinds(graphlog.read_molecules(different)).tolist()}) == len(different)
    salts = constitution_keys([f"[Mg+2]{oxine}", "Oc1cccc2cccnc12"])
    forms = constitution_keys([different[0], "[NH3+][Pt-2]([NH3+])(Cl)Cl"])
    assert [len({*keys.tolist()}) for keys in (salts, forms)] == [1, 1]


@pytest.mark.parametrize(
    "smiles",
    """
    CC[N+](=O)[O-] c1cc[n+]([O-])cc1 C[Si](C)C C[C@H](N)O
    InChI=1S/C2H4O2/c1-2(3)4/h1H3,(H,3,4)
    """.split(),
)
def test_ordinary_molecules_are_not_looked_at(smiles: str):
    assert not may_have_parent(smiles)


def test_parents_survive_saving_and_views(tmp_path: Path):
    store = graphlog.read_molecules(["CCO", "CCN.Cl", "xx", "C[NH3+]"])
    saved = store.save(tmp_path / "store")
    assert saved.parents() == ["CCO", "CCN", "CN"]
    assert saved.subset([2, 1]).parents() == ["CN", "CCN"]
    assert saved.digest == store.digest


def test_a_predictor_reads_as_it_was_trained(tmp_path: Path):
    salts = {"smiles": [f"{'C' * k}N.Cl" for k in range(1, 21)], "y": list(range(20))}
    how = {"split": "random", "seeds": (0,), "epochs": 1, "standardize": "parent"}
    trained, salt, base = tuned(salts, run_dir=tmp_path, **how), "CCCCN.Cl", "CCCCN"
    loaded = graphlog.load_predictor(tmp_path)
    expected = loaded.predict([base]).item()
    others = [loaded.predict([salt, base])[0], trained.predict(["CCCC[NH3+]"])[0]]
    others += [graphlog.attribute(tmp_path, [salt]).predictions[0]]
    # other molecules in a batch change the order of sums
    np.testing.assert_allclose(np.concatenate(others), expected, rtol=1e-5)
    found = graphlog.neighbors(loaded.encoder, [salt], ["CCO", base], 1)
    assert (found.rows.item(), found.similarity.item()) == (1, pytest.approx(1, rel=1e-5))
    np.testing.assert_allclose(*GraphEmbedder(tmp_path).fit_transform([salt, base]), rtol=1e-5)
    for use in (loaded.predict, partial(graphlog.attribute, loaded)):
        with pytest.raises(ConfigError, match="standardize"):
            use(graphlog.read_molecules([salt]))


def opened(on_repeats: str, task: str = "auto", **columns: list[float]) -> LabeledGraphs:
    """Read molecules of which the first and the second two repeat each other."""
    table = {"smiles": ["CCO", "OCC", "CCN", "CCN.Cl", "CCC", "CCCC"], **columns}
    how = {"targets": [name for name in columns if name != "w"], "fractions": (0.34, 0.34, 0.32)}
    how |= {"weights": "w"} if "w" in columns else {}
    return open_labeled(table, MOLECULE, split="random", task=task, on_repeats=on_repeats, **how)


@pytest.mark.parametrize(
    ("how", "labels"),
    [("keep", [1, 3, 2, 2, 5, 6]), ("mean", [2, 2, 5, 6]), ("drop", [1, 2, 5, 6])],
)
def test_what_becomes_of_repeats(how: str, labels: list[float]):
    data = opened(how, y=[1.0, 3, 2, 2, 5, 6])
    np.testing.assert_array_equal(data.labels[:, 0], labels)


def test_the_class_of_repeats_is_missing_where_they_contradict_each_other():
    data = opened("mean", y=[0, 1, 1, 1, 0, 1])
    assert (data.rows.tolist(), data.labels[:, 0].tolist()) == ([2, 4, 5], [1, 0, 1])
    three = opened("mean", "multiclass", y=[0, 1, 2, 2, 0, 1])
    assert three.rows.tolist() == [2, 4, 5]
    with pytest.raises(DataError, match="contradict those of their repeats, and none is left"):
        open_labeled({"smiles": ["C", "C"], "y": [0, 1]}, MOLECULE, on_repeats="mean")
    said = "1 structure has classes that contradict each other, which are left out (rows 0, 1)"
    assert said in data.notes
    assert said in three.notes


@pytest.mark.parametrize(
    ("how", "first", "labels", "weights"),
    [
        ("mean", 1.0, [3, 5, 5, 6], [1, 4, 2, 2]),
        ("drop", 1.0, [3, 2, 5, 6], [1, 1, 2, 2]),
        ("mean", 0.0, [51.5, 5, 5, 6], [0, 4, 2, 2]),  # scored, but not learned
    ],
)
def test_repeats_are_merged_by_their_weights(
    how: str, first: float, labels: list[float], weights: list[float]
):
    data = opened(how, y=[100.0, 3, 2, 6, 5, 6], w=[0.0, first, 1, 3, 2, 2])
    assert data.weights is not None
    np.testing.assert_array_equal(data.labels[:, 0], labels)
    np.testing.assert_array_equal(data.weights, weights)


def test_dropping_repeats_keeps_the_first_known_label_of_each_target():
    data = opened("drop", y=[1.5, NAN, NAN, 2, 5, 6], z=[NAN, 3, 2, 4, 5, 6])
    np.testing.assert_array_equal(data.labels[:2], [[1.5, 3], [2, 2]])
    assert sum(data.sizes[fold] for fold in ("train", "valid", "test")) == 4


def test_repeats_can_be_refused():
    with pytest.raises(DataError, match=r"2 molecules repeat an earlier one \(rows 1, 3\)"):
        opened("fail", y=[1.0, 3, 2, 2, 5, 6])


def test_graphs_of_equal_quantities_repeat_each_other(tmp_path: Path):
    last = [[1.5, 1], [2.5, 0]]
    rows = [[[1.5, 0], [2.5, 1]], [[2.5, 1], [1.5, 0]], [[1.5, 0], [2.5000002, 1]], last]
    records = [
        {"edges": [[0, 1]], "x": x, "edge_attr": [[0.5]], "y": k} for k, x in enumerate(rows)
    ]
    store = graphlog.read_graphs(lines(tmp_path / "g.jsonl", records))
    assert repeat_kinds(store).tolist().count(repeat_kinds(store)[0]) == 2
    with pytest.raises(DataError, match=r"1 graphs repeat an earlier one \(rows 1\)"):
        open_labeled(store, store.schema, on_repeats="fail")


def test_a_split_file_keeps_salts_together(tmp_path: Path):
    chains = ["C" * k + "N" for k in range(1, 31)]
    table = write_csv(tmp_path / "m.csv", [*chains, *(f"{s}.Cl" for s in chains)])
    for part in split_file(table, tmp_path / "s.json", "random"):
        assert set(part % 30) == set(part[part < 30])


def test_intervals_from_a_fold_that_repeats_the_training_fold_say_so(tmp_path: Path):
    chains = ["C" * k + "N" for k in range(1, 41)]
    both = {"smiles": chains + [f"{s}.Cl" for s in chains], "y": [float(k % 40) for k in range(80)]}
    folds = Split(np.arange(40), np.arange(40, 70), np.arange(70, 80))
    predictor = tuned(both, split=folds, seeds=(0,), epochs=1, run_dir=tmp_path)
    assert any("30 of 30 molecules of the validation set" in n for n in predictor.report.notes)
    predictor = graphlog.load_predictor(tmp_path)
    with pytest.warns(UserWarning, match="30 of 30 graphs of the validation set repeat"):
        predictor.predict_uncertain(["CCN"], interval=0.9)


@pytest.mark.parametrize(("how", "said"), [("drop", False), ("mean", True)])
def test_odd_labels_of_repeats_are_said_where_they_are_used(how: str, said: bool):
    table = {"smiles": [*CHAINS, "OC"], "y": [*map(float, range(len(CHAINS))), -9999.0]}
    data = open_labeled(table, MOLECULE, targets=["y"], split="random", on_repeats=how)
    assert any("-9999 occurs once (rows 48)" in note for note in data.notes) == said


def test_a_single_minus_one_is_a_number():
    for count in (1, 2):
        column = np.append(np.linspace(1, 3, 20), [-1.0] * count)[:, None]
        notes = " ".join(unusual_labels(column, ["y"], np.arange(len(column))))
        assert ("may stand for a missing value" in notes) == (count == 2)
