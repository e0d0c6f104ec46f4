"""A probe that is kept, by the command: what predicts, and what the folder holds."""

from pathlib import Path

from cli_support import Cli, left_in, read_table


def test_probe_then_predict(cli: Cli) -> None:
    labels = "--targets oxygen --split random --baselines none"
    words = f"probe {{molecules}} -m {{pretrained}} {labels} --with ecfp4 -o run"
    told = cli(words, "--json").json
    assert told["run"] == "run"
    assert told["scores"][0]["model"] == "frozen encoder + ECFP4"
    assert left_in("run") >= {
        *("config.toml", "input.json", "model.safetensors", "rejects.csv"),
        *("scores.json", "split.json", "versions.json"),
    }
    told = cli("info run --json").json
    assert told["settings"]["probe"]["with"] == ["ecfp4"]
    assert "frozen encoder + ECFP4, C by validation" in told["scores"]

    cli("predict {molecules} -m run -o p.csv --workers 1")
    rows = read_table("p.csv")
    names = ["predicted_oxygen", "predicted_oxygen_calibrated"]
    known = ["smiles", "oxygen", "length", "word"]
    assert list(rows[0]) == [*known, *names, "graphlog_novelty", "graphlog_status"]
    assert all((row["predicted_oxygen"] == "") == (row["smiles"] == "CC(") for row in rows)

    cli.refused(words, "run exists; replace it with --overwrite")
    cli(words, "--overwrite -q")
    cli("predict {molecules} -m run --explain -o why.csv -q")
    cli("plot run -o figures --graphs 20")
    assert {"scores.png", "embedding-map.png"} <= left_in("figures")


def test_words_for_classes_are_remembered(cli: Cli, molecules: Path) -> None:
    rows = [(r["smiles"], int(r["oxygen"])) for r in read_table(molecules)]
    named = [f"{smiles},{('inactive', 'Active')[oxygen]},{oxygen}" for smiles, oxygen in rows]
    Path("words.csv").write_text("\n".join(["smiles,potent,number", *named]) + "\n")
    words = "probe words.csv -m {pretrained} --split random --baselines none --workers 1"
    ended = cli(words, "--targets potent,number -o run --json")
    assert "target 'potent': words are read as classes (Active = 1, inactive = 0)" in ended.out
    classes = {"potent": {"0": "inactive", "1": "Active"}}
    assert cli("info run --json").json["classes"] == classes
    assert ["potent.1", "Active"] in [line.split() for line in cli("info run").out.splitlines()]
    ended = cli("predict words.csv -m run -o p.csv --workers 1 --json")
    assert ended.json["probability of"] == ["potent = Active"]
    predicted = {
        r["potent"]: float(r["predicted_potent"])
        for r in read_table("p.csv")
        if r["predicted_potent"]
    }
    assert predicted["Active"] > predicted["inactive"]


def test_several_splits_are_scored(cli: Cli):
    words = "probe {molecules} -m {pretrained} --targets oxygen --baselines none"
    words += " --protocol splits --folds-seeds 0,1,2 --split random"
    shown = cli(words, "-q").out
    assert "random (seeds 0, 1, 2) split" in shown
    assert "minus the first row" in shown
    told = cli(words, "--json").json
    assert told["splits"] == 3
    assert [len(row["test"]["roc_auc"]) for row in told["rows"]] == [3, 3]
    assert told["scores"][0]["difference"] == 0
    assert "kept: models of all" in cli(words, "-o run -q").out
    cli("predict {molecules} -m run -o p.csv")
