"""What works on molecules works on any graphs: objectives, backbones, probes, predictions."""

import json

import numpy as np
import pytest

import graphlog
from cli_support import read_table
from graphlog.cli.main import main
from graphlog.downstream.fold_probe import wl_counts
from graphlog.downstream.metrics import evaluate
from graphlog.downstream.pretrained import random_encoder
from graphlog.downstream.tasks import open_labeled
from graphlog.errors import ConfigError, DataError
from graphs_support import lines, read_lines, ring_store, rings

SMALL = {"layers": 2, "dim": 8}


def _pretrained(store):
    return graphlog.pretrain(store, epochs=2, batch_size=10, encoder=SMALL)


def test_one_target_of_several_classes(tmp_path):
    store = ring_store(tmp_path, count=60)
    data = open_labeled(store, store.schema)
    assert (data.task, data.metric) == ("multiclass", "accuracy")
    assert data.targets == ("y=class0", "y=class1", "y=class2")
    assert data.split_name == "stratified (seed 0)"
    encoder = _pretrained(store)
    report = graphlog.probe(encoder, store, baselines=("random", "ecfp-rf"))
    assert report.mean > 0.6
    predictor = graphlog.finetune(encoder, store, epochs=3, seeds=(0,), baselines=())
    predicted = predictor.predict(store)
    np.testing.assert_allclose(predicted.sum(axis=1), 1.0, rtol=1e-5)
    predictor.save(tmp_path / "p.safetensors")
    graphlog.predict_file(tmp_path / "p.safetensors", tmp_path / "rings.jsonl", tmp_path / "p.csv")
    rows = read_table(tmp_path / "p.csv")
    columns = [f"predicted_y=class{k}" for k in range(3)]
    assert list(rows[0]) == [
        *("row", *(f"{column}{end}" for column in columns for end in ("", "_calibrated"))),
        *("graphlog_novelty", "graphlog_status"),
    ]
    found = np.array([[float(row[column]) for column in columns] for row in rows])
    np.testing.assert_allclose(found, predicted, atol=1e-5)


def test_quantities_are_regressed_and_splits_named(tmp_path):
    records = [
        {"edges": [[i, i + 1] for i in range(k % 7 + 1)], "y": float(k % 7) + 0.25}
        for k in range(40)
    ]
    store = read_lines(tmp_path, records)
    data = open_labeled(store, store.schema)
    assert (data.task, data.split_name) == ("regression", "random (seed 0)")
    with pytest.raises(ConfigError, match="choose random, stratified"):
        open_labeled(store, store.schema, split="scaffold")
    with pytest.raises(DataError, match="holds numbers, not classes"):
        open_labeled(store, store.schema, task="multiclass")


@pytest.mark.parametrize(("classifier", "seeds"), [("svm", (0, 1)), ("logistic", (0,))])
def test_the_ten_fold_protocol(tmp_path, monkeypatch, classifier, seeds):
    monkeypatch.setattr("graphlog.downstream.fold_probe.GRID", (0.1, 10.0))
    store = ring_store(tmp_path, count=60, kind="none")
    report = graphlog.fold_probe(
        _pretrained(store), store, folds=3, classifier=classifier, seeds=seeds
    )
    models = ["frozen encoder", "untrained encoder", "WL subtree counts (4 rounds)"]
    assert [row.model for row in report.rows] == models
    assert len(report.rows[0].test["accuracy"]) == len(seeds)
    assert [row.mean("accuracy") > 0.6 for row in report.rows] == [True] * 3
    data = open_labeled(store, store.schema)
    assert {*data.notes, data.repeat_notes[-1]} < {*report.notes}
    assert any("labeled graphs repeat each other" in note for note in report.notes)


def test_the_protocol_refuses_what_it_cannot_judge(tmp_path):
    store = ring_store(tmp_path, count=12)
    encoder = _pretrained(store)
    with pytest.raises(DataError, match="rarest class has 4 graphs, too few for 10 folds"):
        graphlog.fold_probe(encoder, store)
    with pytest.raises(ConfigError, match="did you mean 'svm'"):
        graphlog.fold_probe(encoder, store, classifier="svn")
    for option in ({"weights": "y"}, {"split": "random"}, {"metric": "accuracy"}):
        with pytest.raises(ConfigError, match="does not apply to k-fold accuracy"):
            graphlog.fold_probe(encoder, store, **option)
    with pytest.raises(ConfigError, match="`seeds` must be 1 or more different whole numbers"):
        graphlog.fold_probe(encoder, store, seeds=())


def test_subtree_counts_tell_apart_what_a_degree_cannot(tmp_path):
    hexagon = {"edges": [[i, (i + 1) % 6] for i in range(6)]}
    path_graph = {"edges": [[i, i + 1] for i in range(5)]}
    renamed = {"edges": [[(i * 5) % 6, ((i + 1) * 5) % 6] for i in range(6)]}
    counts = wl_counts(read_lines(tmp_path, [hexagon, path_graph, renamed])).toarray()
    assert (counts[0] == counts[2]).all()
    assert (counts[0] != counts[1]).any()


def test_accuracy_is_over_graphs_and_recall_over_classes():
    labels = np.eye(3)[[0, 0, 0, 1]].astype(np.float32)
    scores = np.eye(3)[[0, 0, 1, 1]].astype(np.float32)
    found = evaluate(labels, scores, "multiclass")
    assert found.scores["accuracy"] == 0.75
    assert found.per_task["accuracy"][:2] == [pytest.approx(2 / 3), 1.0]
    assert np.isnan(found.per_task["accuracy"][2])


def test_the_command_line_says_how_attributes_are_read(cli, tmp_path):
    rings(tmp_path / "rings.jsonl")
    featurize = f"featurize {tmp_path}/rings.jsonl -o {tmp_path}"
    assert "read as" in cli(f"{featurize}/store").out
    assert "3 categories: 0, 1, 2" in cli(f"info {tmp_path}/store").out
    cli.refused(f"{featurize}/other --schema molecule", "molecule")


def test_a_predictor_knows_the_words_of_its_classes(tmp_path):
    """Words are numbered by the alphabet, so nobody could tell which of two is predicted."""
    edges = [{"edges": [[i, (i + 1) % n] for i in range(n)]} for n in range(3, 33)]
    named = [{**g, "y": ("ring", "big ring")[k > 12]} for k, g in enumerate(edges)]
    store = graphlog.featurize(lines(tmp_path / "words.jsonl", named), tmp_path / "store")
    how = {"epochs": 1, "seeds": (0,), "baselines": (), "split": "random"}
    predictor = graphlog.finetune("random", store, **how)
    assert "label 'y': class 0 is big ring, class 1 is ring" in predictor.report.notes
    predictor.save(tmp_path / "model.safetensors")
    described = graphlog.describe(tmp_path / "model.safetensors")
    assert described["classes"] == {"y": {"0": "big ring", "1": "ring"}}
    plain = [{**g, "y": str(k % 2)} for k, g in enumerate(edges)]
    store = graphlog.featurize(lines(tmp_path / "plain.jsonl", plain), tmp_path / "plain")
    assert not store.source.notes


@pytest.mark.parametrize(
    ("words", "task", "message"),
    [
        (3, "regression", r"'y' are 3 classes \(a, b, c\), not numbers; choose `task='multi"),
        (2, "regression", r"'y' are 2 classes \(a, b\), not numbers; choose `task='classific"),
        (4, "classification", r"'y' are 4 classes \(a, b, c, \.\.\.\), not two; choose `task='mu"),
    ],
)
def test_numbers_of_classes_are_no_quantities(tmp_path, words, task, message):
    graphs = [{"edges": [[0, k % 5 + 1]], "y": "abcd"[k % words]} for k in range(24)]
    store = read_lines(tmp_path, graphs)
    encoder = random_encoder(schema=store.schema, graphs=store)
    for verb in (graphlog.probe, graphlog.finetune):
        with pytest.raises(DataError, match=message):
            verb(encoder, store, task=task, baselines=())


def test_words_among_several_targets_are_no_quantities_either(tmp_path):
    graphs = [
        {"edges": [[0, k % 5 + 1]], "y": {"kind": "abc"[k % 3], "size": k / 4}} for k in range(24)
    ]
    store = read_lines(tmp_path, graphs)
    with pytest.raises(DataError, match=r"'kind' are 3 classes .* name it alone with `targets`"):
        open_labeled(store, store.schema)
    assert open_labeled(store, store.schema, targets=["size"]).task == "regression"
    assert open_labeled(store, store.schema, targets=["kind"]).task == "multiclass"


def test_classes_that_are_called_by_their_numbers_may_be_quantities(tmp_path):
    tu = "2\n2 0\n0 1 1\n0 1 0\n2 1\n0 1 1\n0 1 0\n"
    (tmp_path / "g.txt").write_text(tu.replace("2\n", "40\n", 1) + tu[2:] * 19)
    store = graphlog.read_graphs(tmp_path / "g.txt")
    assert store.source.classes == {"label": ["0", "1"]}
    assert open_labeled(store, store.schema, task="regression").task == "regression"


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (["a", "b", "c"], "stratified"),
        (["a", "b", None], "stratified"),
        ([0, 1, 1], "stratified"),
        ([{"a": "u", "b": 0}, {"a": "v", "b": 1}, {"a": "w"}], "stratified"),
        ([0.5, 1, 2], "random"),
        ([0, 1, 2], "random"),
        ([None, None, None], "random"),
    ],
)
def test_a_split_file_is_stratified_where_a_probe_would_be(tmp_path, labels, kind):
    graphs = [{"edges": [[0, k % 5 + 1]], "y": labels[k % 3]} for k in range(60)]
    path = lines(tmp_path / "g.jsonl", graphs)
    assert main(["data", "split", str(path), "-o", str(tmp_path / "split.json")]) == 0
    assert json.loads((tmp_path / "split.json").read_text())["kind"] == kind
    if any(label is not None for label in labels):
        store = graphlog.read_graphs(path)
        targets = "a" if "a" in store.tasks else None  # more than two classes are one target
        assert open_labeled(store, store.schema, targets=targets).split_name == f"{kind} (seed 0)"
