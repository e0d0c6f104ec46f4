"""Labels that look wrong, and repeated graphs, salts and charged forms included."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from rdkit import Chem
from torch_geometric.data import Data

import graphlog
from downstream_support import CHAINS, IS_ALCOHOL, labeled, tiny_encoder, tuned, write_csv
from graphlog.data.split import Split
from graphlog.domains.molecule.parse import (
    constitution_keys,
    may_have_parent,
    parent_of,
    parse_smiles,
)
from graphlog.domains.molecule.schema import MOLECULE, MOLECULE_CIP
from graphlog.downstream.label_checks import repeat_kinds, same_structure, unusual_labels
from graphlog.downstream.probe import probe
from graphlog.downstream.tasks import LabeledGraphs, open_labeled, split_file
from graphlog.errors import ConfigError, DataError
from graphlog.sklearn import GraphEmbedder

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
        (changed(r7=-9999), ["-9999 occurs once (rows 7)"]),
        (changed(r7=-5000), ["1 value is more than 10 robust", "rows 7", "-5000"]),
        (np.where(np.arange(240) == 9, -9999.0, 0.0), ["-9999 occurs once (rows 9)"]),
        (np.where(np.arange(240) % 5 > 1, 2.6, changed(r5=999)), ["999 occurs once (rows 5)"]),
        (np.where(np.arange(240) % 5 > 1, 2.6, changed(r5=700)), ["(rows 5, e.g. 700)"]),
        (changed(r7=-9999, r9=-9999), ["-9999 occurs 2 times (rows 7, 9)"]),
        (np.where(np.arange(20) % 2, 999.0, -1), ["-1 occurs 10 times", "999 occurs 10 times"]),
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
        np.where(np.arange(240) % 5 > 1, 2.6, PLAIN),
        np.where(np.arange(240) % 50, 0.0, 1.0),
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
    assert np.setdiff1d(np.arange(len(CHAINS)), data.rows).tolist() == [3, 30]
    assert "target 'y': 2 values are outside -5 to 10 and left out (rows 3, 30)" in data.notes
    assert not any("robust" in note for note in data.notes)
    with pytest.raises(ConfigError, match="lowest and the highest"):
        open_labeled({"smiles": CHAINS, "y": y.tolist()}, MOLECULE, labels_range=(5, 1))


def test_different_graphs_are_told_apart_and_equal_ones_are_not() -> None:
    far = [f"{'C' * p}C=C{'C' * (30 - p)}(=O)O" for p in range(11, 19)]
    alike = ["C1CCC2CCCCC2C1", "C1CCC(C1)C1CCCC1"]  # to color refinement
    found = same_structure(graphlog.read_molecules([*far, *alike, *far, *alike]))
    assert len(set(found)) == 10
    np.testing.assert_array_equal(*np.split(found, 2))
    rook = np.array([[j // 4 == k // 4 or j % 4 == k % 4 for j in range(16)] for k in range(16)])
    steps = {(0, 1), (1, 0), (1, 1), (0, 3), (3, 0), (3, 3)}
    shrikhande = [
        [((j // 4 - k // 4) % 4, (j - k) % 4) in steps for j in range(16)] for k in range(16)
    ]
    ring, star = np.eye(6, k=1) + np.eye(6, k=5), np.eye(300) * 0
    star[0] = 1
    halves = np.kron(np.eye(2), np.eye(3, k=1) + np.eye(3, k=2))
    graphs, rng = list[Data](), np.random.default_rng(0)
    for _ in range(2):
        for joined in (ring, halves, rook, shrikhande, np.kron(np.eye(2), rook), star):
            moved = rng.permutation(len(joined))
            ends = moved[np.stack(np.nonzero(joined))]
            graphs.append(Data(edge_index=torch.from_numpy(ends), num_nodes=len(joined)))
    found = same_structure(graphlog.from_pyg(graphs))
    assert len(set(found)) == 6
    np.testing.assert_array_equal(*np.split(found, 2))


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
        "1 structure occurs more than once with different labels (rows 8, 9); check these rows, "
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


@pytest.mark.parametrize("schema", ["molecule", "molecule-rich", "molecule-cip"])
def test_a_form_repeats_its_parent_in_every_schema(
    schema: str, molecules: tuple[list[str], np.ndarray]
) -> None:
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


def test_graphs_without_smiles_are_said_to_hide_salts(tmp_path: Path) -> None:
    graphlog.read_molecules(
        {"smiles": CHAINS, "y": [float(len(s)) for s in CHAINS]},
        targets=["y"],
        keep_texts=False,
        store_path=tmp_path / "store",
    )
    data = open_labeled(tmp_path / "store", MOLECULE_CIP, split="random")
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
    ],
)
def test_the_parent_of_a_molecule(smiles: str, parent: str) -> None:
    assert may_have_parent(smiles)
    assert parent_of(parse_smiles(smiles)) == parent
    kept = graphlog.read_molecules([smiles])
    assert (kept.texts(), kept.parents()) == ([smiles], [parent])
    assert graphlog.read_molecules([smiles], standardize="parent").texts() == [parent]


def test_complexes_and_inorganic_compounds_are_their_own_parents() -> None:
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
    found = graphlog.neighbors(loaded.encoder, ["CCCCN.Cl"], ["CCO", "CCCCN"], 1)
    assert (found.rows.item(), found.similarity.item()) == (1, pytest.approx(1, rel=1e-5))
    shared = graphlog.attribute(tmp_path / "run", ["CCCCN.Cl"]).predictions.item()
    assert shared == pytest.approx(base.item(), rel=1e-5)
    embedded = GraphEmbedder(tmp_path / "run").fit_transform(["CCCCN.Cl", "CCCCN"])
    np.testing.assert_allclose(*embedded, rtol=1e-5)
    as_written = graphlog.read_molecules(["CCCCN.Cl"])
    for use in (loaded.predict, partial(graphlog.attribute, loaded)):
        with pytest.raises(ConfigError, match="standardize"):
            use(as_written)


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


def test_the_class_of_repeats_is_missing_where_they_contradict_each_other() -> None:
    table = {**REPEATED, "y": [0.0, 1, 1, 1, 0, 1]}
    options = {"targets": ["y"], "split": "random", "on_repeats": "mean"}
    options["fractions"] = (0.34, 0.34, 0.32)
    data = open_labeled(table, MOLECULE, **options)
    assert (data.rows.tolist(), data.labels[:, 0].tolist()) == ([2, 4, 5], [1, 0, 1])
    said = "1 structure has classes that contradict each other, which are left out (rows 0, 1)"
    assert said in data.notes
    three = {**REPEATED, "y": [0, 1, 2, 2, 0, 1]}
    data = open_labeled(three, MOLECULE, task="multiclass", **options)
    assert (said in data.notes, data.rows.tolist()) == (True, [2, 4, 5])


def test_repeats_are_merged_by_their_weights() -> None:
    table = {**REPEATED, "w": [0.0, 1, 1, 3, 2, 2], "y": [100.0, 3, 2, 6, 5, 6]}
    options = {"targets": ["y"], "split": "random", "weights": "w", "fractions": (0.5, 0.25, 0.25)}
    data = open_labeled(table, MOLECULE, on_repeats="mean", **options)
    np.testing.assert_array_equal(data.labels[:, 0], [3, 5, 5, 6])
    np.testing.assert_array_equal(data.weights, [1, 4, 2, 2])
    data = open_labeled(table, MOLECULE, on_repeats="drop", **options)
    np.testing.assert_array_equal(data.labels[:, 0], [3, 2, 5, 6])
    np.testing.assert_array_equal(data.weights, [1, 1, 2, 2])
    table["w"][1] = 0.0  # all of a kind: it is scored, but not learned
    data = open_labeled(table, MOLECULE, on_repeats="mean", **options)
    assert (data.labels[0, 0], data.weights[0]) == (51.5, 0)


def test_dropping_repeats_keeps_the_first_known_label_of_each_target() -> None:
    nan = float("nan")
    table = {"smiles": REPEATED["smiles"], "a": [1.5, nan, nan, 2, 5, 6], "b": [nan, 3, 2, 4, 5, 6]}
    options = {"targets": ["a", "b"], "split": "random", "fractions": (0.5, 0.25, 0.25)}
    data = open_labeled(table, MOLECULE, on_repeats="drop", **options)
    np.testing.assert_array_equal(data.labels[:2], [[1.5, 3], [2, 2]])
    assert sum(data.sizes[fold] for fold in ("train", "valid", "test")) == 4


def test_repeats_can_be_refused() -> None:
    with pytest.raises(DataError, match=r"2 molecules repeat an earlier one \(rows 1, 3\)"):
        open_labeled(REPEATED, MOLECULE, targets=["y"], on_repeats="fail")


def test_graphs_of_equal_quantities_repeat_each_other(tmp_path: Path) -> None:
    last = [[1.5, 1], [2.5, 0]]
    rows = [[[1.5, 0], [2.5, 1]], [[2.5, 1], [1.5, 0]], [[1.5, 0], [2.5000002, 1]], last]
    records = [
        {"edges": [[0, 1]], "x": x, "edge_attr": [[0.5]], "y": k} for k, x in enumerate(rows)
    ]
    source = tmp_path / "g.jsonl"
    source.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    store = graphlog.read_graphs(source)
    assert repeat_kinds(store).tolist().count(repeat_kinds(store)[0]) == 2
    with pytest.raises(DataError, match=r"1 graphs repeat an earlier one \(rows 1\)"):
        open_labeled(store, store.schema, on_repeats="fail")


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


@pytest.mark.parametrize(("how", "said"), [("drop", False), ("mean", True)])
def test_odd_labels_of_repeats_are_said_where_they_are_used(how: str, said: bool) -> None:
    table = {"smiles": [*CHAINS, "OC"], "y": [*map(float, range(len(CHAINS))), -9999.0]}
    data = open_labeled(table, MOLECULE, targets=["y"], split="random", on_repeats=how)
    assert any("-9999 occurs once (rows 48)" in note for note in data.notes) == said
