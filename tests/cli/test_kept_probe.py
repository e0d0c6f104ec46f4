"""A probe that is kept, by the command: what predicts, and what the folder holds."""

from pathlib import Path

from cli_support import Cli, left_in, read_table


def test_probe_then_predict(cli: Cli, molecules: Path, pretrained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    labels = ("--targets", "oxygen", "--split", "random", "--baselines", "none")
    words = ("probe", molecules, "-m", pretrained, *labels, "--with", "ecfp4", "-o", run)
    ended = cli(*words, "--json")
    assert ended.code == 0, ended.err
    assert ended.json["run"] == str(run)
    assert ended.json["scores"][0]["model"] == "frozen encoder + ECFP4"
    assert left_in(run) >= {
        *("config.toml", "input.json", "model.safetensors", "rejects.csv"),
        *("scores.json", "split.json", "versions.json"),
    }
    told = cli(f"info {run} --json").json
    assert told["settings"]["probe"]["with"] == ["ecfp4"]
    assert "frozen encoder + ECFP4, C by validation" in told["scores"]

    ended = cli(f"predict {molecules} -m {run} -o {tmp_path}/p.csv --workers 1")
    assert ended.code == 0, ended.err
    rows = read_table(tmp_path / "p.csv")
    names = ["predicted_oxygen", "predicted_oxygen_calibrated"]
    known = ["smiles", "oxygen", "length", "word"]
    assert list(rows[0]) == [*known, *names, "graphlog_novelty", "graphlog_status"]
    assert all((row["predicted_oxygen"] == "") == (row["smiles"] == "CC(") for row in rows)

    cli(*words).refused(f"{run} exists; replace it with --overwrite")
    assert cli(*words, "--overwrite -q").code == 0
    explained = cli(f"predict {molecules} -m {run} --explain -o {tmp_path}/why.csv -q")
    assert explained.code == 0, explained.err
    assert cli(f"plot {run} -o {tmp_path}/figures --graphs 20").code == 0
    assert {"scores.png", "embedding-map.png"} <= left_in(tmp_path / "figures")


def test_words_for_classes_are_remembered(
    cli: Cli, molecules: Path, pretrained: Path, tmp_path: Path
) -> None:
    run, table = tmp_path / "run", tmp_path / "words.csv"
    rows = [(r["smiles"], int(r["oxygen"])) for r in read_table(molecules)]
    named = [f"{smiles},{('inactive', 'Active')[oxygen]},{oxygen}" for smiles, oxygen in rows]
    table.write_text("\n".join(["smiles,potent,number", *named]) + "\n")
    options = ("-m", pretrained, "--split", "random", "--baselines", "none", "--workers", "1")
    ended = cli(f"probe {table}", *options, f"--targets potent,number -o {run} --json")
    assert ended.code == 0, ended.err
    assert "target 'potent': words are read as classes (Active = 1, inactive = 0)" in ended.out
    classes = {"potent": {"0": "inactive", "1": "Active"}}
    assert cli(f"info {run} --json").json["classes"] == classes
    told = [line.split() for line in cli(f"info {run}").out.splitlines()]
    assert ["potent.1", "Active"] in told
    ended = cli(f"predict {table} -m {run} -o {tmp_path}/p.csv --workers 1 --json")
    assert ended.json["probability of"] == ["potent = Active"]
    predicted = {
        r["potent"]: float(r["predicted_potent"])
        for r in read_table(tmp_path / "p.csv")
        if r["predicted_potent"]
    }
    assert predicted["Active"] > predicted["inactive"]


def test_several_splits_are_scored(cli: Cli, molecules: Path, pretrained: Path, tmp_path: Path):
    words = ("probe", molecules, "-m", pretrained, "--targets", "oxygen", "--baselines", "none")
    words += ("--protocol", "splits", "--folds-seeds", "0,1,2")
    shown = cli(*words, "--split random -q")
    assert shown.code == 0
    assert "random (seeds 0, 1, 2) split" in shown.out
    assert "minus the first row" in shown.out
    told = cli(*words, "--split random --json").json
    assert told["splits"] == 3
    assert [len(row["test"]["roc_auc"]) for row in told["rows"]] == [3, 3]
    assert told["scores"][0]["difference"] == 0
    kept = cli(*words, f"--split random -o {tmp_path}/run -q")
    assert kept.code == 0, kept.err
    assert "kept: models of all" in kept.out
    assert cli(f"predict {molecules} -m {tmp_path}/run -o {tmp_path}/p.csv").code == 0
