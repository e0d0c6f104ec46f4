"""Every verb, end to end, on a few molecules."""

from pathlib import Path

import numpy as np
import pytest

import graphlog
from cli_support import SMALL, Cli, left_in, read_table
from graphlog.cli.command import Command
from graphlog.data.html import Table
from graphlog.training.settings import read_config
from graphs_support import rings

pytestmark = pytest.mark.usefixtures("blank")


def test_featurize_says_how_many_rows_it_left_out(cli: Cli):
    Path("a.smi").write_text("CCO\nOC(=O)[C@H](C)N\nC1CC\nc1ccccc1\n")
    Path("b.csv").write_text("smiles\nC[C@@H](N)C(O)=O\n")
    Path("c.smi").write_text("C1=CC=CC=C1\n")
    make = "featurize a.smi -o s --workers 1 --json"
    told = cli(make, "--exclude b.csv --exclude c.smi").json
    found = {key: told[key] for key in ("graphs", "excluded rows", "rejected rows")}
    assert found == {"graphs": 1, "excluded rows": 2, "rejected rows": 1}
    cli.refused(f"{make} --overwrite --exclude none.csv", "none.csv")


def test_messages_go_to_standard_error_and_results_to_standard_output(cli: Cli):
    loud = cli("featurize {molecules} -o a --workers 1")
    assert "graphs" in loud.out
    assert "next:" in loud.err
    quiet = cli("featurize {molecules} -o b --workers 1 --quiet")
    assert (quiet.out, quiet.err) == ("", "")


def test_pretrain_leaves_a_run_folder_that_info_describes(cli: Cli, pretrained: Path):
    files = "config.toml metrics.jsonl model.safetensors checkpoint versions.json"
    assert {*files.split()} <= left_in(pretrained)
    found = cli("info {pretrained} --json").json
    assert (found["kind"], found["state"], found["encoder"]) == ("run", "finished", "gin 2 x 16")
    assert found["settings"]["training"]["epochs"] == 2
    assert "gin 2 x 16" in cli("info {pretrained}").out


def test_the_settings_written_make_the_same_model_again(cli: Cli, pretrained: Path):
    cli("pretrain {store} -o r --config {pretrained}/config.toml --quiet")
    made, again = (folder / "model.safetensors" for folder in (pretrained, Path("r")))
    assert again.read_bytes() == made.read_bytes()


def test_options_lie_over_the_file_and_the_file_over_what_is_beneath(cli: Cli):
    """A pair may repeat an option, but not contradict it."""
    Path("run.toml").write_text(
        'recipe = "default"\n[objective]\nname = "graphlog"\ndepth = 2\n'
        '[encoder]\nsharing = "off"\n[training]\nepochs = 9\nbatch_size = 16\n'
    )
    words = "pretrain {store} -o r --init {pretrained} --config run.toml --quiet"
    cli(words, "--epochs 1 --set epochs=1 --objective graphlog --set objective.depth=1")
    config = read_config(Path("r/config.toml"))
    assert (config.encoder.dim, config.encoder.sharing) == (16, "off")
    assert (config.epochs, config.batch_size) == (1, 16)
    assert (config.objective, config.options["depth"]) == ("graphlog", 1)


def test_pretrain_reads_the_first_rows_of_a_file_and_lists_bad_ones(cli: Cli):
    words = "pretrain {molecules} -o r --limit 40 --recipe paper --workers 1 --json"
    told = cli(words, SMALL).json
    assert (told["graphs"], told["rejected"], told["recipe"]) == (39, 1, "paper")
    assert told["loss_weights"] == "graph 1, subgraph 1, global 1"
    assert "rejects.csv" in left_in("r")


def test_the_command_line_embeds_as_python_does(
    cli: Cli, molecules: Path, pretrained: Path, monkeypatch: pytest.MonkeyPatch
):
    """Both in fp32 unless bf16 is asked for, also on a processor that computes in bf16."""
    monkeypatch.setattr("graphlog.training.settings.has_fast_bf16", lambda _: True)
    embedding = graphlog.embed(pretrained, molecules, layer="last")
    words = "embed {molecules} -m {pretrained} --layer last --workers 1 -o out.npz"
    told = cli(words, "--json").json
    assert (told["rows"], told["rejected"], told["width"]) == (96, 1, 16)
    assert left_in() == {"out.npz", "rejects.csv"}
    with np.load("out.npz") as found:
        np.testing.assert_array_equal(found["embeddings"], embedding)
    ended = cli(words, "--precision bf16")
    assert "note: in bf16" in ended.err
    with np.load("out.npz") as found:
        assert not np.array_equal(found["embeddings"], embedding, equal_nan=True)


def test_probe_prints_a_row_for_each_model(cli: Cli):
    words = "probe {molecules} -m {pretrained} --targets oxygen --split random"
    shown = cli(words, "--baselines all").out
    for model in ("frozen", "untrained"):
        assert f"{model} encoder" in shown
    for model in ("random forest", "logistic regression"):
        assert f"ECFP4 + {model}" in shown
    assert cli(words, "--baselines none --json").json["metric"] == "roc_auc"
    assert "untrained encoder" not in cli(words, "--baselines none").out
    assert "untrained encoder" in cli(words, "--baselines= --device=").out  # as if not given


def test_a_table_of_nothing_prints_nothing(capsys: pytest.CaptureFixture[str]):
    Command(quiet=False, as_json=False).result({}, Table(("",), []))
    assert capsys.readouterr().out == ""


def test_finetune_then_predict(cli: Cli, finetuned: Path):
    files = "config.toml metrics.jsonl model.safetensors scores.json split.json rejects.csv"
    assert {*files.split()} <= left_in(finetuned)
    scores = cli("info {finetuned} --json").json["scores"]
    assert any(key.startswith("fine-tuned") for key in scores)
    told = cli("predict {molecules} -m {finetuned} -o p.csv --workers 1 --json").json
    assert told["rows"] == 96
    assert 0 <= float(read_table("p.csv")[0]["predicted_oxygen"]) <= 1
    explain = "predict {molecules} -m {finetuned} --explain --workers 1"
    assert cli(explain, "-o why.html --json").json["rejected"] == 1
    assert "<svg" in Path("why.html").read_text(encoding="utf-8")
    cli.refused(f"{explain} -o why.csv --format csv")


def test_data_names_what_there_is(cli: Cli):
    names = {d["name"] for d in cli("data list --json").json}
    assert {"bbbp", "tox21", "zinc250k", "nci5k", "chembl2321810"} <= names
    ended = cli("data list")
    head, *rows = ended.out.splitlines()
    assert head.split() == ["name", "rows", "tasks", "kind", "license", "here", "description"]
    assert head.index("description") < 82  # what is before it leaves it room on a terminal
    place = [row.split()[0] for row in rows].index
    assert place("bbbp") < place("zinc250k") < place("worm-go40") < place("string-9606")
    assert "\nfetch one with" in ended.err
    assert "license" in cli("data info bbbp").out
    assert cli("data info bbbp --json").json["task names"] == ["p_np"]
    assert Path(cli("data get nci5k").out.strip()).is_file()


def test_models_are_listed_with_the_untrained_one(cli: Cli):
    assert "random" in cli("models").out
    models = cli("models --json").json["models"]
    assert {"graphlog-mol", "random"} <= models.keys()
    assert models["random"]["objective"] == "none"


def test_info_describes_a_store(cli: Cli):
    found = cli("info {store} --json").json
    assert (found["kind"], found["graphs"]) == ("store", 95)
    assert "atomic_number" in cli("info {store}").out


def test_convert_reads_the_published_weights(cli: Cli):
    old = "{mirror}/checkpoints/pretrain-gnns_chem_gcn_contextpred.pth"
    told = cli(f"convert {old} -o m.safetensors --json").json
    assert (told["backbone"], told["dim"]) == ("gcn", 300)
    cli("embed {molecules} -m m.safetensors -o e.npz --workers 1 --limit 20")


def test_plot_draws_what_each_kind_of_run_has(cli: Cli):
    def files(*stems: str) -> set[str]:
        return {f"{stem}.{kind}" for stem in stems for kind in ("png", "svg")}

    cli("plot {pretrained} -o a --graphs 60")
    assert left_in("a") == files("curves", "embedding-map", "prototype-tree")
    drawn = {Path(p).name for p in cli("plot {finetuned} -o b --graphs 20 --json").json["figures"]}
    assert drawn == left_in("b") == files("curves", "embedding-map")
    cli("plot {finetuned} -o c --input {molecules} --limit 40")  # has no labels to color by
    assert left_in("c") == left_in("b")


def test_prototypes_places_what_the_run_was_trained_on_or_what_is_named(cli: Cli):
    told = cli("prototypes {pretrained} -o own --graphs 20 --json").json
    assert (told["graphs"], told["rejected"]) == (95, 1)
    assert left_in("own") >= {"tree.json", "members.csv", "atlas.html"}
    of_others = "prototypes {pretrained} --input {molecules}"
    assert cli(of_others, "-o other --limit 40 --graphs 20 --quiet").err == ""
    rows = [row["row"] for row in read_table("other/members.csv")]
    assert rows == [str(k) for k in range(40)]
    cli.refused(f"{of_others} -o strict --on-error fail", "row 32")
    assert (
        cli("prototypes {pretrained}/model.safetensors -o file --graphs 20 --json").json["graphs"]
        == 95
    )


def test_graphs_of_any_kind_are_recalled_as_they_were_read(cli: Cli):
    rings(Path("g.jsonl"))
    cli("pretrain g.jsonl -o r --limit 24 --quiet", SMALL)
    ended = cli("prototypes r -o tree --graphs 20 --json")
    assert ended.json["graphs"] == 24
    assert "trained on" not in ended.err
    with Path("g.jsonl").open("a") as file:
        file.write('{"edges": [[0, 1]], "x": [[0, 1.0], [0, 1.0]], "edge_attr": [[0, 0.1]]}\n')
    assert "trained on" not in cli("prototypes r -o tree").err  # beyond the limit
    ended = cli("prototypes r -o few --limit 20 --graphs 20 --json")
    assert ended.json["graphs"] == 20
    assert "g.jsonl are not those that r was trained on" in ended.err


def test_plot_says_that_the_table_of_a_labeled_run_has_changed(cli: Cli, molecules: Path):
    table = Path("m.csv")
    table.write_text(molecules.read_text())
    common = "--targets oxygen --split random --baselines none --quiet"
    cli("finetune m.csv -m random -o f --epochs 1 --seeds 0", common)
    cli("probe m.csv -m random -o p", common)
    cli("finetune m.csv -m random -o w --epochs 1 --seeds 0 --weights length", common)
    for run in ("f", "p", "w"):
        assert "trained on" not in cli(f"plot {run} -o figures-{run}").err
    table.write_text("".join(molecules.read_text().splitlines(keepends=True)[:-1]))
    for run in ("f", "p"):
        said = cli(f"plot {run} -o figures-{run}").err
        assert f"m.csv are not those that {run} was trained on" in said


def test_a_store_made_again_otherwise_is_noticed(cli: Cli):
    make = "featurize {molecules} -o s --workers 1 --quiet --schema"
    cli(make, "molecule --limit 40")
    cli("pretrain s -o r --recipe graphlog --quiet", SMALL)
    cli(make, "molecule --limit 20 --overwrite")
    assert "are not those that r was trained on" in cli("prototypes r -o tree").err
    assert "are not those that r was trained on" in cli("plot r -o figures").err
    cli(make, "molecule-rich --limit 20 --overwrite")
    for verb in ("prototypes", "plot"):
        cli.refused(f"{verb} r -o other", "molecule-rich")


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
    assert all((row["predicted_oxygen"] == "") == (row["smiles"] == "CC(") for row in rows)

    cli.refused(words, "run exists; replace it with --overwrite")
    cli(words, "--overwrite -q")
    cli("predict {molecules} -m run --explain -o why.csv -q")
    cli("plot run -o figures --graphs 20")
    assert left_in("figures") == {"embedding-map.png", "embedding-map.svg"}


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
    assert "kept: models fitted to all" in cli(words, "-o run -q").out
    cli("predict {molecules} -m run -o p.csv")
