"""How a table is read is said in the same words everywhere, and the first rows are enough."""

import json
from pathlib import Path

import pytest

import graphlog
from cli_support import SMALL, Cli, left_in, read_table
from graphlog.cli.main import whole_parser
from graphlog.config import read_toml
from graphlog.training.log import numbers, read_metrics

pytestmark = pytest.mark.usefixtures("blank")

READING = {"--smiles-column", "--limit", "--data-dir", "--on-error", "--workers", "--excel-safe"}
WITHOUT_TABLE = {"quickstart", "convert", "benchmark", "export", "models", "info"}
LABELS = "--targets oxygen --split random --workers 1"
QUICK = f"{LABELS} --seeds 0 --epochs 1 --baselines none"


def test_every_verb_that_reads_a_table_has_the_options_of_reading():
    commands = whole_parser().commands
    verbs = {name: verb for name, verb in commands.items() if name not in WITHOUT_TABLE}
    verbs["data split"] = verbs.pop("data").commands["split"]
    assert {"featurize", "pretrain", "finetune", "tune", "predict", "plot"} <= verbs.keys()
    lacking = {
        name: READING - {flag for option in verb.params for flag in option.opts}
        for name, verb in verbs.items()
    }
    assert not {name: flags for name, flags in lacking.items() if flags}


def test_finetune_and_predict_take_the_first_rows(cli: Cli, molecules: Path, pretrained: Path):
    tune = "finetune {molecules} -m {pretrained} -o run --limit 60 --json"
    sizes = cli(tune, QUICK).json["sizes"]
    assert sum(sizes.values()) == 60
    assert sizes["rejected"] == 1
    folds = json.loads(Path("run/split.json").read_text())
    assert max(*folds["train"], *folds["valid"], *folds["test"]) == 59
    predictor = graphlog.finetune(
        pretrained, molecules, "random", (0,), targets=["oxygen"], epochs=1, limit=60, baselines=()
    )
    assert predictor.report.sizes == sizes
    predict = "predict {molecules} -m run --workers 1 --limit 7 --quiet"
    cli(predict, "-o predicted.csv")
    assert len(read_table("predicted.csv")) == 7
    cli(predict, "-o why.csv --explain")
    assert {row["row"] for row in read_table("why.csv")} == {str(k) for k in range(7)}


def test_a_name_with_a_comma_is_written_as_in_a_csv_file(cli: Cli):
    Path("in.csv").write_text('smiles,"IC50,nM",y\nCCO,1,2\nCCN,2,3\n')
    assert cli('featurize in.csv -o s --targets y,"IC50,nM" --json').json["tasks"] == [
        *("y", "IC50,nM")
    ]


def test_probe_tune_and_split_take_the_first_rows(cli: Cli):
    pytest.importorskip("optuna")
    split = "data split {molecules} -o split.json --kind random --limit 60 --json"
    assert cli(split).json["train"] == 47
    probe = "probe {molecules} -m {pretrained} --baselines none --limit 60 --split split.json"
    sizes = cli(probe, "--targets oxygen --workers 1 --json").json["sizes"]
    assert (sizes["train"], sum(sizes.values())) == (47, 60)
    tune = "tune {molecules} -m {pretrained} -o t --trials 1 --limit 60 --set epochs=1 --freeze"
    told = cli(tune, LABELS, "--seeds 0 --baselines none --json").json
    assert sum(told["report"]["sizes"].values()) == 60
    again = "finetune {molecules} -m {pretrained} -o again --config t/best.toml --limit 60 --json"
    told = cli(again, LABELS, "--baselines none --standardize parent --seeds 0 --epochs 2").json
    assert sum(told["sizes"].values()) == 60
    best, settings = (read_toml(Path(f))["finetune"] for f in ("t/best.toml", "again/config.toml"))
    assert settings == best | {"epochs": 2, "seeds": [0]}


def test_settings_of_a_run_come_with_its_seeds(cli: Cli):
    words = "finetune {molecules} -m {pretrained} --config {finetuned}/config.toml --limit 60 -o"
    more = f"{LABELS} --baselines none --epochs 1"
    ended = cli(words, "a", more)
    assert "targets, task and split are those of this command" in ended.err
    cli(words, "b --seeds 4 -q", more)
    first, given = (read_toml(Path(f"{run}/config.toml"))["finetune"] for run in "ab")
    assert (first["seeds"], given["seeds"]) == ([0, 1], [4])


def test_neighbors_take_the_first_rows_of_both(cli: Cli):
    words = "neighbors {molecules} --in {molecules} -m {pretrained} --limit 5"
    cli(words, "-k 9 -o near.csv --quiet")
    pairs = {(row["smiles"], row["neighbor_row"]) for row in read_table("near.csv")}
    assert len(pairs) == 25
    assert {row for _, row in pairs} == {str(k) for k in range(5)}


def test_plot_reads_what_it_maps_as_it_is_told(cli: Cli, molecules: Path):
    table = molecules.read_text().replace("smiles,", "drug,", 1)
    Path("odd.csv").write_text(table, encoding="utf-8")
    words = "plot {pretrained} -o f --input odd.csv --workers 1"
    cli(words, "--smiles-column drug --limit 30 --quiet")
    assert "embedding-map.svg" in left_in("f")
    cli.refused(f"{words} --smiles-column dug", "drug")
    cli.refused(f"{words} --smiles-column drug --limit 40 --on-error fail", "row 32")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MLflow's own, of SQLAlchemy
def test_several_trackers_get_the_rows(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("tensorboard")
    mlflow = pytest.importorskip("mlflow")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)  # what a user has who sets nothing
    both = "--log tensorboard --log mlflow --workers 1 --quiet"
    small = f"--limit 40 --recipe graphlog --set training.log_every=1 {SMALL}"
    cli("pretrain {molecules} -o run", small, both)
    cli("finetune {molecules} -m run -o ft", QUICK, both)
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("graphlog").experiment_id
    sent = {found.info.run_name: found for found in client.search_runs([experiment])}
    for folder in (tmp_path / "run", tmp_path / "ft"):
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
        assert sent[folder.name].info.status == "FINISHED"
    cli("pretrain {molecules} -o run --overwrite", small, "--quiet")
    assert not Path("run/tensorboard").exists()  # it was the replaced run's


FORMULAS = "smiles,name,=cmd\nCCO,=1+1,-1.5\n=CC,plain,+x\nCCN,-CC,1\n"


@pytest.mark.parametrize("safe", [True, False])
def test_formulas_of_the_input_become_text_only_where_asked(cli: Cli, safe: bool):
    Path("in.csv").write_text(FORMULAS, encoding="utf-8")
    embed, mark = "embed in.csv -o out.csv -m {pretrained} --workers 1 --quiet", "'" if safe else ""
    cli(embed, "--excel-safe" if safe else "")
    rows = read_table("out.csv")
    assert [row["name"] for row in rows] == [f"{mark}=1+1", "plain", f"{mark}-CC"]
    assert [row[f"{mark}=cmd"] for row in rows] == ["-1.5", f"{mark}+x", "1"]
    assert all(
        float(row["e0"]) == float(row["e0"]) for row in rows if row["graphlog_status"] == "ok"
    )
    (rejected,) = read_table("rejects.csv")
    assert rejected["input"] == f"{mark}=CC"
    cli(embed)  # the option ends with its command
    assert read_table("out.csv")[0]["name"] == "=1+1"
    near = "neighbors in.csv --in in.csv -o near.csv -m {pretrained} -k 1 --workers 1 --quiet"
    cli(near, "--excel-safe" if safe else "")
    assert [row["name"] for row in read_table("near.csv")] == [row["name"] for row in rows]
