"""How a table is read is said in the same words everywhere, and the first rows are enough."""

import json
from pathlib import Path

import pytest
from typer.main import get_command

import graphlog
from cli_support import SMALL, Cli, left_in, read_table
from graphlog.cli.main import app
from graphlog.training.log import numbers, read_metrics

pytestmark = pytest.mark.usefixtures("blank")

READING = {"--smiles-column", "--limit", "--data-dir", "--on-error", "--workers", "--excel-safe"}
WITHOUT_TABLE = {"quickstart", "convert", "benchmark", "export", "models", "info"}
LABELS = "--targets oxygen --split random --workers 1"
QUICK = f"{LABELS} --seeds 0 --epochs 1 --baselines none"


def test_every_verb_that_reads_a_table_has_the_options_of_reading():
    commands = get_command(app).commands  # type: ignore[attr-defined]
    verbs = {name: verb for name, verb in commands.items() if name not in WITHOUT_TABLE}
    verbs["data split"] = verbs.pop("data").commands["split"]
    assert {"featurize", "pretrain", "finetune", "tune", "predict", "plot"} <= verbs.keys()
    lacking = {
        name: READING - {flag for option in verb.params for flag in option.opts}
        for name, verb in verbs.items()
    }
    assert not {name: flags for name, flags in lacking.items() if flags}


def test_finetune_predict_and_plot_take_the_first_rows(
    cli: Cli, molecules: Path, pretrained: Path, tmp_path: Path
):
    run, table = tmp_path / "run", tmp_path / "predicted.csv"
    words = f"finetune {molecules} -m {pretrained} -o {run} {QUICK} --limit 60 --json"
    sizes = cli(words).json["sizes"]
    assert sum(sizes.values()) == 60
    assert sizes["rejected"] == 1
    folds = json.loads((run / "split.json").read_text())
    assert max(*folds["train"], *folds["valid"], *folds["test"]) == 59
    predictor = graphlog.finetune(
        pretrained, molecules, "random", (0,), targets=["oxygen"], epochs=1, limit=60, baselines=()
    )
    assert predictor.report.sizes == sizes
    words = f"predict {molecules} -m {run} --workers 1 --limit 7 --quiet"
    assert cli(f"{words} -o {table}").code == 0
    assert len(read_table(table)) == 7
    assert cli(f"{words} -o {tmp_path}/why.csv --explain").code == 0
    assert {row["row"] for row in read_table(tmp_path / "why.csv")} == {str(k) for k in range(7)}


def test_probe_tune_and_split_take_the_first_rows(
    cli: Cli, molecules: Path, pretrained: Path, tmp_path: Path
):
    pytest.importorskip("optuna")
    split = f"{tmp_path}/split.json"
    words = f"data split {molecules} -o {split} --kind random --limit 60 --json"
    assert cli(words).json["train"] == 47
    words = f"probe {molecules} -m {pretrained} {LABELS} --baselines none --limit 60 --json"
    found = cli(f"{words} --split {split}").json
    assert (found["sizes"]["train"], sum(found["sizes"].values())) == (47, 60)
    words = f"tune {molecules} -m {pretrained} -o {tmp_path}/t {LABELS} --seeds 0 --trials 1"
    quick = "--limit 60 --set epochs=1 --baselines none --freeze --json"
    assert sum(cli(words, quick).json["report"]["sizes"].values()) == 60


def test_neighbors_take_the_first_rows_of_both(
    cli: Cli, molecules: Path, pretrained: Path, tmp_path: Path
):
    words = f"neighbors {molecules} --in {molecules} -m {pretrained} --limit 5"
    assert cli(f"{words} -k 9 -o {tmp_path}/near.csv --quiet").code == 0
    pairs = {(row["smiles"], row["neighbor_row"]) for row in read_table(tmp_path / "near.csv")}
    assert len(pairs) == 25
    assert {row for _, row in pairs} == {str(k) for k in range(5)}


def test_plot_reads_what_it_maps_as_it_is_told(
    cli: Cli, molecules: Path, pretrained: Path, tmp_path: Path
):
    table = tmp_path / "odd.csv"
    table.write_text(molecules.read_text().replace("smiles,", "drug,", 1), encoding="utf-8")
    words = f"plot {pretrained} -o {tmp_path}/f --input {table} --workers 1"
    assert cli(f"{words} --smiles-column drug --limit 30 --quiet").code == 0
    assert "embedding-map.svg" in left_in(tmp_path / "f")
    cli(f"{words} --smiles-column dug").refused("drug")
    cli(f"{words} --smiles-column drug --limit 40 --on-error fail").refused("row 32")


def test_several_trackers_get_the_rows(
    cli: Cli, molecules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("tensorboard")
    mlflow = pytest.importorskip("mlflow")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    run, tuned = tmp_path / "run", tmp_path / "ft"
    both = "--log tensorboard --log mlflow --workers 1 --quiet"
    small = "--limit 40 --recipe graphlog --set training.log_every=1"
    assert cli(f"pretrain {molecules} -o {run} {small}", *SMALL, both).code == 0
    assert cli(f"finetune {molecules} -m {run} -o {tuned} {QUICK} {both}").code == 0
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("graphlog").experiment_id
    sent = {found.info.run_name: found for found in client.search_runs([experiment])}
    for folder in (run, tuned):
        rows = read_metrics(folder / "metrics.jsonl")
        events = EventAccumulator(str(folder / "tensorboard"))
        events.Reload()
        for name in numbers(rows[-1]):
            values = [(row["step"], numbers(row)[name]) for row in rows if name in numbers(row)]
            kept = client.get_metric_history(sent[folder.name].info.run_id, name)
            assert [(metric.step, metric.value) for metric in kept] == values
            drawn = events.Scalars(name)
            assert [event.step for event in drawn] == [step for step, _ in values]
            assert [e.value for e in drawn] == pytest.approx([value for _, value in values])
