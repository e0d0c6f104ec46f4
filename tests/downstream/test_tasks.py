import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphlog
from downstream_support import (
    CHAINS,
    IS_ALCOHOL,
    LENGTH,
    labeled,
    lengths,
    probed,
    tiny_encoder,
    write_csv,
)
from graphlog.data.split import Split
from graphlog.domains.molecule import MOLECULE
from graphlog.downstream.fold_probe import fold_probe
from graphlog.downstream.metrics import evaluate
from graphlog.downstream.report import make_report, score_row
from graphlog.downstream.tasks import LabeledGraphs, decide_task, open_labeled, split_file
from graphlog.downstream.uncertainty import calibration_notes
from graphlog.errors import ConfigError, DataError
from graphlog.inputs import read

NAN = float("nan")


def opened(source: Path | str, **options: Any) -> LabeledGraphs:
    return open_labeled(source, MOLECULE, targets=["y"], **options)


@pytest.fixture
def alcohols(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "m.csv", CHAINS, y=IS_ALCOHOL)


@pytest.fixture
def with_a_bad_row(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "m.csv", ["no molecule", *CHAINS], y=[0, *IS_ALCOHOL])


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)[:, None]


def test_zeros_and_ones_are_classes_and_numbers_are_not():
    assert decide_task(column(0, 1, NAN), ["y"]) == ("classification", [])
    assert decide_task(column(0.5, 1, NAN), ["y"]) == ("regression", [])
    kind, notes = decide_task(column(0, 1, 2), ["y"])
    assert kind == "regression"
    assert "one 0/1 column per class" in notes[0]
    for values in (column(0, 1), column(-1, 1)):
        assert decide_task(values, ["y"], "regression")[0] == "regression"


def test_targets_of_two_kinds_are_numbers_if_one_says_so():
    both = np.array([[0, 1], [0.5, 2.5]]).T
    assert decide_task(both, ["a", "b"], "regression")[0] == "regression"
    told = "target 'a' holds classes and target 'b' numbers; name targets of one kind"
    with pytest.raises(ConfigError, match=told):
        decide_task(both, ["a", "b"])
    with pytest.raises(ConfigError, match=r"name targets of one kind\.$"):
        decide_task(both, ["a", "b"], words={"a": ["no", "yes"], "b": []})
    with pytest.raises(ConfigError, match=r"did you mean 'regression'.*multiclass"):
        decide_task(both, ["a", "b"], "regresion")


@pytest.mark.parametrize(
    ("values", "task", "message"),
    [
        ((NAN, NAN), "auto", "target 'y' has no label in any usable row"),
        ((1, 1, NAN), "auto", "every label of target 'y' is 1: one class only"),
        ((2.5, 2.5), "auto", "one value only"),
        ((1, -1), "auto", "classes must be 0 or 1 .* found -1; recode it"),
        ((0, 1, 2), "classification", "classes must be 0 or 1 .* found 2"),
    ],
)
def test_labels_that_teach_nothing_are_named(values: tuple[float, ...], task: str, message: str):
    with pytest.raises(DataError, match=message):
        decide_task(column(*values), ["y"], task)


def test_one_class_only_is_named_as_in_the_input():
    with pytest.raises(DataError, match="every label of target 'y' is yes: one class only"):
        decide_task(column(1, 1), ["y"], words={"y": ["no", "yes"]})


def test_one_class_among_several_is_a_note():
    found = decide_task(np.array([[0, 1], [1, 1]], dtype=np.float32), ["a", "b"])
    told = "target 'b' has one value only (1) and is left out of every mean"
    assert found == ("classification", [told])


def test_bad_rows_and_missing_labels_do_not_shift_anything(tmp_path: Path):
    source = write_csv(tmp_path / "m.csv", ["CCO", "no molecule", *CHAINS], y=["", "7", *LENGTH])
    data = opened(source, split="random")
    assert (data.task, data.metric, data.sizes["rejected"]) == ("regression", "rmse", 1)
    np.testing.assert_array_equal(data.labels[:, 0], LENGTH)
    np.testing.assert_array_equal(data.rows, np.arange(2, 50))


def test_two_assays_below_each_other_are_two_targets(tmp_path: Path):
    """A column may be empty in all of the rows that are looked at first."""
    few, many = ["1.5", "", "n/a"], [""] * 1005
    columns = {"a": [*many, *few], "b": [*few, *many], "none": [""] * 1008}
    source = write_csv(tmp_path / "m.csv", ["CCO"] * 1008, **columns)
    assert graphlog.read_molecules(source, targets="auto").tasks == ("a", "b")
    columns["b"][1002] = "> 5"
    write_csv(source, ["CCO"] * 1008, **columns)
    with pytest.raises(DataError, match="data row 1002: label 'b' must be a number"):
        graphlog.read_molecules(source, targets="auto")


def test_classes_of_many_digits_keep_their_names(tmp_path: Path):
    numbers = [str(1_000_001 + n % 3) for n in range(len(CHAINS))]
    source = write_csv(tmp_path / "m.csv", CHAINS, y=numbers)
    targets = opened(source, split="random", task="multiclass").targets
    assert targets == ("y=1000001", "y=1000002", "y=1000003")


@pytest.mark.parametrize(
    ("classes", "noted"),
    [
        (["01", "1", "2"], ["01 and 1 are the same number but 2 classes"]),
        (["9007199254740992", "9007199254740993", "sNaN"], []),  # equal when rounded only
    ],
)
def test_classes_that_are_one_number_are_noted(
    classes: list[str], noted: list[str], tmp_path: Path
):
    lines = [json.dumps({"edges": [[0, 1]], "y": classes[k % 3]}) for k in range(30)]
    (tmp_path / "g.jsonl").write_text("\n".join(lines))
    graphs = graphlog.read_graphs(tmp_path / "g.jsonl")
    data = open_labeled(graphs, graphs.schema, split="random")
    assert data.targets == tuple(f"y={name}" for name in classes)
    notes = [note for note in data.notes if "the same number" in note]
    assert len(notes) == len(noted)
    assert all(words in note for words, note in zip(noted, notes, strict=True))


@pytest.mark.parametrize("codes", [("1", "01"), ("1", "2")])
def test_codes_that_are_read_as_one_number_are_told(codes: tuple[str, str], tmp_path: Path):
    write_csv(tmp_path / "m.csv", ["CCO", "C"], y=codes)
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / "graphs.csv").write_text(f"graph,y\na,{codes[0]}\nb,{codes[1]}\n")
    (tmp_path / "g" / "edges.csv").write_text("graph,source,target\na,0,1\nb,0,1\n")
    molecules = graphlog.read_molecules(tmp_path / "m.csv", targets=["y"])
    for store in (molecules, graphlog.read_graphs(tmp_path / "g")):
        assert store.labels[:, store.tasks.index("y")].tolist() == [*map(int, codes)]
        told = any("'y': '01' is read as the number 1;" in note for note in store.source.notes)
        assert told == ("01" in codes)


def test_split_files_mean_input_rows(tmp_path: Path, with_a_bad_row: Path):
    rows = Split(np.arange(0, 33), np.arange(33, 41), np.arange(41, 49))
    rows.save(tmp_path / "split.json", "own", (), "")
    for split in (tmp_path / "split.json", str(tmp_path / "split.json"), rows):
        data = opened(with_a_bad_row, split=split)
        assert data.split.train.tolist() == list(range(32))  # row 0 could not be read
        assert data.split.test.tolist() == list(range(40, 48))
    with pytest.raises((ConfigError, DataError), match="row 99"):
        opened(with_a_bad_row, split=rows._replace(test=np.array([99])))


def test_validation_may_have_no_share_and_the_test_fold_must(alcohols: Path):
    data = opened(alcohols, split="scaffold", fractions=(0.8, 0.0, 0.2))
    assert len(data.split.valid)
    assert "3 graphs, " in data.split_name
    with pytest.raises(DataError, match="the test set is empty"):
        opened(alcohols, split="random", fractions=(0.5, 0.5, 0.0))


@pytest.mark.parametrize("kind", ["random", "scaffold-balanced", "made by hand", None])
def test_a_split_without_a_validation_fold_is_taken(
    tmp_path: Path, alcohols: Path, kind: str | None
):
    file = tmp_path / "split.json"
    given = {"kind": kind, "train": list(range(40)), "test": list(range(40, 48))}
    file.write_text(json.dumps({k: v for k, v in given.items() if v is not None}))
    data = opened(alcohols, split=file)
    assert sorted(np.concatenate([data.split.train, data.split.valid])) == given["train"]
    assert data.split.test.tolist() == given["test"]
    assert 1 <= len(data.split.valid) <= 4
    assert f"validation set: {len(data.split.valid)} graphs, " in data.split_name
    assert data.split_name.startswith(str(file) if kind is None else f"{kind} ({file})")
    notes = calibration_notes((), data.split_name, None)
    assert any("not guaranteed" in note for note in notes) == (kind != "random")


def test_folds_with_one_class_are_noted(alcohols: Path):
    ones, others = np.flatnonzero(IS_ALCOHOL), np.flatnonzero(IS_ALCOHOL == 0)
    split = Split(np.concatenate([ones[:4], others[:20]]), ones[4:], others[20:])
    data = opened(alcohols, split=split)
    assert data.label_notes[:2] == [
        "only one class in the validation set, so left out of its mean: target y",
        "only one class in the test set, so left out of its mean: target y",
    ]


def test_folds_may_be_masks_of_all_rows(with_a_bad_row: Path):
    rows = np.arange(len(CHAINS) + 1)
    masks = [rows % 4 < 2, rows % 4 == 2, rows % 4 == 3]
    given = opened(with_a_bad_row, split=[np.flatnonzero(m) for m in masks])
    data = opened(with_a_bad_row, split=masks)
    assert all(map(np.array_equal, data.split, given.split))
    assert data.sizes["train"] == masks[0].sum() - 1  # the first row is no molecule
    masks[1][0] = True
    with pytest.raises(DataError, match="row 0 is in the split more than once"):
        opened(with_a_bad_row, split=masks)


@pytest.mark.parametrize(
    "option",
    [
        {"split": "random"},
        {"targets": ["y"]},
        {"task": "regression"},
        {"split_seed": 1},
        {"fractions": (0.5, 0.25, 0.25)},
    ],
)
def test_options_that_come_too_late_are_refused(option: dict):
    with pytest.raises(ConfigError, match=f"`{next(iter(option))}` is for input that is yet"):
        probed(labeled(IS_ALCOHOL), **option)


def test_labeled_graphs_are_probed_in_other_folds():
    assert fold_probe(tiny_encoder(), labeled(IS_ALCOHOL), folds=2, baselines=(), seeds=(0,)).rows


def test_several_targets_without_labels_are_noted_together():
    data = labeled(np.stack([IS_ALCOHOL] * 2, axis=1), targets=("y", "z"))
    data.labels[data.split.valid] = NAN
    told = "no label in the validation set, so left out of its mean: targets y, z"
    assert told in data.label_notes


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_what_the_training_fold_cannot_teach_is_in_no_mean(task: str):
    labels = np.stack([IS_ALCOHOL if task == "classification" else LENGTH] * 2, axis=1)
    data = labeled(labels, task, ("y", "same"))
    data.labels[data.split.train, 1] = 1
    held, predictions = data.split.test, np.random.default_rng(0).random(labels.shape)
    found = data.evaluate(predictions, held)
    alone = evaluate(labels[held, :1], predictions[held, :1], data.task)
    assert found.scores == alone.scores
    assert all(np.isnan(values[1]) for values in found.per_task.values())
    lack = "class" if task == "classification" else "value"
    assert f"only one {lack} in the training set, so skipped: target same" in data.label_notes


def test_choices_do_not_depend_on_the_units_of_targets():
    labels = np.stack([LENGTH, np.sqrt(LENGTH)], axis=1)
    data, units = labeled(labels, "regression", ("y", "z")), np.array([1.0, 3000.0])
    errors = np.random.default_rng(0).normal(size=labels.shape)
    other = replace(data, labels=data.labels * units)
    found = data.score(data.labels + errors, "valid")
    assert other.score(other.labels + errors * units, "valid") == pytest.approx(found)
    rmse = np.sqrt((errors[data.split.valid] ** 2).mean(axis=0))
    assert found == pytest.approx((rmse / labels[data.split.train].std(axis=0)).mean())
    assert (data.criterion, lengths().criterion) == ("rmse_in_sd", "rmse")
    said = "the target z, whose labels vary most, dominates the mean RMSE over targets"
    assert [any(said in note for note in d.label_notes) for d in (data, other)] == [False, True]
    predicted = other.labels + errors * units / 30
    table = str(make_report(other, [score_row("m", "r", other, [predicted])]))
    by_task = re.findall(r"^[yz] +(\S+)$", table.partition("by task")[2], re.MULTILINE)
    assert [len(score.partition(".")[2]) for score in by_task] == [4, 1]  # as of 0.0333 and 100


@pytest.mark.parametrize("is_store", [False, True])
@pytest.mark.parametrize(
    ("targets", "error", "message"),
    [
        (["y", "y"], DataError, "'y' is given more than once"),
        (["y", "w"], ConfigError, "named as a target and as the weights"),
    ],
)
def test_a_column_has_one_part(
    tmp_path: Path, is_store: bool, targets: list[str], error: type[Exception], message: str
):
    table = write_csv(tmp_path / "m.csv", CHAINS, y=IS_ALCOHOL, w=LENGTH)
    store = graphlog.read_molecules(table, schema=MOLECULE, targets=["y", "w"])
    source = store if is_store else table
    with pytest.raises(error, match=message):
        open_labeled(source, MOLECULE, targets=targets, weights="w")


def test_a_store_without_labels_says_so():
    with pytest.raises(DataError, match="has no labels; make it again from its table"):
        open_labeled(read(CHAINS, MOLECULE), MOLECULE)


def test_known_data_sets_need_nothing():
    data = open_labeled("esol", MOLECULE)
    assert data.targets == ("logSolubility",)
    assert (data.task, data.metric, data.split_name) == ("regression", "rmse", "scaffold")
    assert data.sizes == {"train": 902, "valid": 113, "test": 113, "rejected": 0}


def test_few_labels_in_the_test_fold_are_noted(tmp_path: Path):
    labels = [1.5 if k < 6 else "" for k in range(len(CHAINS))]
    path = write_csv(tmp_path / "few.csv", CHAINS, y=LENGTH, few=labels)
    data = open_labeled(path, MOLECULE, targets=["y", "few"], split="random")
    (note,) = [n for n in data.label_notes if n.startswith("fewer than 20 labels in the test set")]
    known = np.isfinite(data.labels)
    counts = [", ".join(str(known[fold, t].sum()) for fold in data.split) for t in (0, 1)]
    assert note.endswith(f"in train, valid, test): y {counts[0]}; few {counts[1]}")


def test_a_split_of_another_data_set_is_told(tmp_path: Path):
    sources = {"t": slice(48), "o": slice(4, 40)}
    for name, rows in sources.items():
        table = write_csv(tmp_path / f"{name}.csv", CHAINS[rows], y=IS_ALCOHOL[rows])
        graphlog.featurize(table, tmp_path / name, schema="molecule", targets=["y"])
        split_file(str(tmp_path / name), tmp_path / f"{name}.json", "random")
    split_file(table, tmp_path / "file.json", "random")
    data = open_labeled(tmp_path / "t", MOLECULE, split=tmp_path / "t.json")  # without a warning
    assert not any("are in no part of the split" in note for note in data.label_notes)
    for wrong in ("o.json", "file.json"):
        with pytest.warns(UserWarning, match="belongs to a different file"):
            data = open_labeled(tmp_path / "t", MOLECULE, split=tmp_path / wrong)
        assert "12 of 48 graphs are in no part of the split" in data.label_notes
    with pytest.raises(DataError, match="file, or to this one with other targets or options; make"):
        opened(tmp_path / "t.csv", split=tmp_path / "o.json")
    with pytest.warns(UserWarning, match="belongs to a different file"):
        open_labeled("esol", MOLECULE, split=tmp_path / "file.json")


def test_a_view_has_no_rejected_rows(with_a_bad_row: Path):
    store = read(with_a_bad_row, MOLECULE, targets=["y"])
    assert open_labeled(store, MOLECULE, split="random").sizes["rejected"] == 1
    part = open_labeled(store.subset(np.arange(20)), MOLECULE, split="random")
    assert part.sizes == {"train": 16, "valid": 2, "test": 2, "rejected": 0}
    assert part.rejects == []


def test_a_split_of_a_view_is_of_its_rows(tmp_path: Path, with_a_bad_row: Path):
    view = read(with_a_bad_row, MOLECULE, targets=["y"]).subset(np.arange(40)[::-1].copy())
    rows = np.random.default_rng(0).permutation(40)
    folds = Split(rows[:20], rows[20:30], rows[30:])
    folds.save(tmp_path / "split.json", "own", (), view.digest)
    masks = [np.isin(np.arange(40), part) for part in folds]
    for split in (folds, masks, tmp_path / "split.json"):
        data = open_labeled(view, MOLECULE, split=split)
        assert all(map(np.array_equal, map(np.sort, data.split), map(np.sort, folds)))
    with pytest.raises(DataError, match="row 40 is out of range; the input has rows 0 to 39"):
        open_labeled(view, MOLECULE, split=folds._replace(test=np.array([40])))


@pytest.mark.parametrize("how", ["keep", "drop"])
@pytest.mark.parametrize("kind", ["random", "scaffold"])
def test_rows_without_a_label_shape_no_fold(tmp_path: Path, kind: str, how: str):
    more, labels = (["CCO"] * 40, [2.0] * 40) if how == "drop" else (["O=CC1CC1"] * 40, [""] * 40)
    alone = opened(few := write_csv(tmp_path / "a.csv", CHAINS, y=LENGTH), split=kind)
    path = write_csv(tmp_path / "m.csv", CHAINS + more, y=[*LENGTH, *labels])
    data = opened(path, split=kind, on_repeats=how)
    for part, expected in zip(data.split, alone.split, strict=True):
        np.testing.assert_array_equal(data.rows[part], expected)
    if how == "keep":
        files = (split_file(p, tmp_path / "s.json", kind, targets=["y"]) for p in (path, few))
        assert all(map(np.array_equal, *files))
    data = opened(path, split=(range(40), range(40, 44), range(44, 88)), on_repeats=how)
    assert data.sizes == {"train": 40, "valid": 4, "test": 4, "rejected": 0}
