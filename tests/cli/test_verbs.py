"""Every verb, end to end, on a few molecules."""

import json
from pathlib import Path

import numpy as np
import pytest

import graphlog
from cli_support import SMALL, Cli, left_in, read_table
from graphlog import open_store
from graphs_support import rings

pytestmark = pytest.mark.usefixtures("blank")


def test_featurize_writes_a_store_and_lists_what_is_no_molecule(
    cli: Cli, molecules: Path, tmp_path: Path
):
    ended = cli(f"featurize {molecules} -o {tmp_path}/s --targets oxygen,length --workers 1 --json")
    assert ended.code == 0
    assert ended.json["graphs"] == 95
    assert ended.json["rejected rows"] == 1
    store = open_store(tmp_path / "s")
    assert (len(store), store.num_rows, store.tasks) == (95, 96, ("oxygen", "length"))
    assert left_in(tmp_path) == {"s", "rejects.csv"}
    rows = read_table(tmp_path / "rejects.csv")
    assert [(r["row"], r["input"]) for r in rows] == [("32", "CC(")]
    assert rows[0]["reason"]


def test_featurize_says_how_many_rows_it_left_out(cli: Cli, tmp_path: Path):
    (tmp_path / "a.smi").write_text("CCO\nOC(=O)[C@H](C)N\nC1CC\nc1ccccc1\n")
    (tmp_path / "b.csv").write_text("smiles\nC[C@@H](N)C(O)=O\n")
    (tmp_path / "c.smi").write_text("C1=CC=CC=C1\n")
    make = ["featurize", tmp_path / "a.smi", "-o", tmp_path / "s", "--workers", "1", "--json"]
    ended = cli(*make, f"--exclude {tmp_path}/b.csv --exclude {tmp_path}/c.smi")
    found = {key: ended.json[key] for key in ("graphs", "excluded rows", "rejected rows")}
    assert found == {"graphs": 1, "excluded rows": 2, "rejected rows": 1}
    cli(*make, f"--overwrite --exclude {tmp_path}/none.csv").refused("none.csv")


def test_messages_go_to_standard_error_and_results_to_standard_output(
    cli: Cli, molecules: Path, tmp_path: Path
):
    loud = cli(f"featurize {molecules} -o {tmp_path}/a --workers 1")
    assert "graphs" in loud.out
    assert "next:" in loud.err
    quiet = cli(f"featurize {molecules} -o {tmp_path}/b --workers 1 --quiet")
    assert quiet.err == ""
    assert quiet.out == ""


def test_pretrain_leaves_a_run_folder_that_info_describes(cli: Cli, pretrained: Path):
    files = "config.toml metrics.jsonl model.safetensors checkpoint versions.json"
    assert {*files.split()} <= left_in(pretrained)
    found = cli(f"info {pretrained} --json").json
    assert (found["kind"], found["state"], found["encoder"]) == ("run", "finished", "gin 2 x 16")
    assert found["settings"]["training"]["epochs"] == 2
    assert "gin 2 x 16" in cli(f"info {pretrained}").out


def test_a_finished_run_is_refused_replaced_or_left_as_it_is(cli: Cli, store: Path, tmp_path: Path):
    assert cli(f"pretrain {store} -o {tmp_path}/r", *SMALL, "--quiet").code == 0
    before = (tmp_path / "r" / "model.safetensors").read_bytes()
    cli(f"pretrain {store} -o {tmp_path}/r", *SMALL).refused("--resume", "--overwrite")
    resumed = cli(f"pretrain {store} -o {tmp_path}/r --resume")
    assert resumed.code == 0
    assert "complete" in resumed.err
    assert (tmp_path / "r" / "model.safetensors").read_bytes() == before
    assert cli(f"pretrain {store} -o {tmp_path}/r", *SMALL, "--seed 1 --overwrite").code == 0
    assert (tmp_path / "r" / "model.safetensors").read_bytes() != before


def test_the_settings_written_make_the_same_model_again(
    cli: Cli, store: Path, pretrained: Path, tmp_path: Path
):
    config, run = pretrained / "config.toml", tmp_path / "r"
    assert cli(f"pretrain {store} -o {run} --config {config} --quiet").code == 0
    made, again = (folder / "model.safetensors" for folder in (pretrained, run))
    assert again.read_bytes() == made.read_bytes()


def test_pretrain_reads_the_first_rows_of_a_file_and_lists_bad_ones(
    cli: Cli, molecules: Path, tmp_path: Path
):
    words = f"pretrain {molecules} -o {tmp_path}/r --limit 40 --recipe paper --workers 1 --json"
    ended = cli(words, *SMALL)
    assert (ended.json["graphs"], ended.json["rejected"], ended.json["recipe"]) == (39, 1, "paper")
    assert "rejects.csv" in left_in(tmp_path / "r")


def test_pretrain_continues_from_a_model_and_takes_over_its_shape(
    cli: Cli, store: Path, pretrained: Path, tmp_path: Path
):
    words = f"pretrain {store} -o {tmp_path}/r --init {pretrained} --epochs 1 --batch-size 32"
    assert cli(words, "--quiet").code == 0
    assert cli(f"info {tmp_path}/r --json").json["encoder"] == "gin 2 x 16"


def test_embed_takes_the_first_rows_of_a_file_or_a_store(
    cli: Cli, molecules: Path, store: Path, pretrained: Path, tmp_path: Path
):
    for k, source in enumerate((molecules, store)):
        words = f"embed {source} -m {pretrained} -o {tmp_path}/{k}.npz --limit 10 --quiet"
        assert cli(words).code == 0
    with np.load(tmp_path / "0.npz") as a, np.load(tmp_path / "1.npz") as b:
        assert a["embeddings"].shape[0] == 10
        np.testing.assert_allclose(a["embeddings"], b["embeddings"], atol=1e-6)


def test_the_command_line_embeds_as_python_does(
    cli: Cli, molecules: Path, pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Both in fp32 unless bf16 is asked for, also on a processor that computes in bf16."""
    monkeypatch.setattr("graphlog.training.settings.has_fast_bf16", lambda _: True)
    out = tmp_path / "out.npz"
    embedding = graphlog.load(pretrained).embed(molecules)
    assert cli(f"embed {molecules} -m {pretrained} -o {out} --quiet").code == 0
    with np.load(out) as found:
        np.testing.assert_array_equal(found["embeddings"], embedding)
    ended = cli(f"embed {molecules} -m {pretrained} -o {out} --precision bf16")
    assert "note: in bf16" in ended.err
    with np.load(out) as found:
        assert not np.array_equal(found["embeddings"], embedding)


@pytest.mark.parametrize("ending", ["npz", "csv", "parquet"])
def test_embed_keeps_the_rows(
    cli: Cli, molecules: Path, pretrained: Path, tmp_path: Path, ending: str
):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    words = f"embed {molecules} -m {pretrained} -o {tmp_path}/e.{ending} --layer last --workers 1"
    told = cli(words, "--json").json
    assert (told["rows"], told["rejected"], told["width"]) == (96, 1, 16)
    assert left_in(tmp_path) == {f"e.{ending}", "rejects.csv"}
    if ending == "npz":
        with np.load(tmp_path / "e.npz") as found:
            assert found["embeddings"].shape == (96, 16)
            assert np.isnan(found["embeddings"]).all(axis=1).nonzero()[0].tolist() == [32]
            assert found["status"][0] == "ok"


def test_probe_prints_a_row_for_each_model(cli: Cli, molecules: Path, pretrained: Path):
    words = f"probe {molecules} -m {pretrained} --targets oxygen --split random"
    ended = cli(words, "--baselines all")
    assert ended.code == 0
    for model in ("frozen", "untrained"):
        assert f"{model} encoder" in ended.out
    for model in ("random forest", "logistic regression"):
        assert f"ECFP4 + {model}" in ended.out
    assert cli(words, "--baselines none --json").json["metric"] == "roc_auc"


def test_finetune_then_predict(cli: Cli, molecules: Path, finetuned: Path, tmp_path: Path):
    files = "config.toml metrics.jsonl model.safetensors scores.json split.json rejects.csv"
    assert {*files.split()} <= left_in(finetuned)
    scores = cli(f"info {finetuned} --json").json["scores"]
    assert any(key.startswith("fine-tuned") for key in scores)
    ended = cli(f"predict {molecules} -m {finetuned} -o {tmp_path}/p.csv --workers 1 --json")
    assert (ended.code, ended.json["rows"]) == (0, 96)
    rows = read_table(tmp_path / "p.csv")
    added = [f"predicted_oxygen{kind}" for kind in ("", "_std", "_calibrated")]
    known = ["smiles", "oxygen", "length", "word"]
    assert list(rows[0]) == [*known, *added, "graphlog_novelty", "graphlog_status"]
    assert 0 <= float(rows[0]["predicted_oxygen"]) <= 1
    assert (rows[32]["smiles"], rows[32]["predicted_oxygen"]) == ("CC(", "")
    assert rows[32]["graphlog_status"] != "ok"
    explain = f"predict {molecules} -m {finetuned} --explain --workers 1"
    ended = cli(f"{explain} -o {tmp_path}/why.html --json")
    assert (ended.code, ended.json["rejected"]) == (0, 1)
    assert "<svg" in (tmp_path / "why.html").read_text(encoding="utf-8")
    assert cli(f"{explain} -o {tmp_path}/why.csv --format csv").code == 2


def test_finetune_a_regression_with_a_split_file(
    cli: Cli, molecules: Path, pretrained: Path, tmp_path: Path
):
    split, run = tmp_path / "split.json", tmp_path / "run"
    assert cli(f"data split {molecules} -o {split} --kind random --seed 3").code == 0
    folds = json.loads(split.read_text())
    about = {*("kind", "fractions", "sha256", "rows_sha256")}
    assert set(folds) == {"train", "valid", "test"} | about
    dealt = sorted(folds["train"] + folds["valid"] + folds["test"])
    assert dealt == [r for r in range(96) if r != 32]
    words = f"finetune {molecules} -m {pretrained} -o {run} --targets length --split {split}"
    ended = cli(words, "--epochs 1 --seeds 0 --baselines none --freeze --json")
    assert ended.code == 0
    assert (ended.json["task"], ended.json["metric"]) == ("regression", "rmse")
    assert json.loads((run / "split.json").read_text())["test"] == folds["test"]


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
    ended = cli("models")
    assert ended.code == 0
    assert "random" in ended.out
    assert isinstance(cli("models --json").json["models"], dict)


def test_info_describes_and_verifies_a_store(cli: Cli, store: Path):
    found = cli(f"info {store} --verify --json").json
    assert (found["kind"], found["graphs"], found["verified"]) == ("store", 95, True)
    assert "atomic_number" in cli(f"info {store}").out


def test_convert_reads_the_published_weights(
    cli: Cli, mirror: Path, molecules: Path, tmp_path: Path
):
    old, model = "pretrain-gnns_chem_gcn_contextpred.pth", tmp_path / "m.safetensors"
    ended = cli(f"convert {mirror}/checkpoints/{old} -o {model} --json")
    assert (ended.json["backbone"], ended.json["dim"]) == ("gcn", 300)
    words = f"embed {molecules} -m {model} -o {tmp_path}/e.npz --workers 1 --limit 20"
    assert cli(words).code == 0


def test_plot_draws_what_each_kind_of_run_has(
    cli: Cli, pretrained: Path, finetuned: Path, tmp_path: Path
):
    def files(*stems: str) -> set[str]:
        return {f"{stem}.{kind}" for stem in stems for kind in ("png", "svg")}

    assert cli(f"plot {pretrained} -o {tmp_path}/a --graphs 60").code == 0
    assert left_in(tmp_path / "a") == files("curves", "embedding-map", "prototype-tree")
    ended = cli(f"plot {finetuned} -o {tmp_path}/b --json")
    drawn = {Path(p).name for p in ended.json["figures"]}
    assert drawn == left_in(tmp_path / "b") == files("curves", "scores", "embedding-map")


def test_prototypes_places_what_the_run_was_trained_on_or_what_is_named(
    cli: Cli, molecules: Path, pretrained: Path, tmp_path: Path
):
    ended = cli(f"prototypes {pretrained} -o {tmp_path}/own --json")
    assert (ended.code, ended.json["graphs"], ended.json["rejected"]) == (0, 95, 1)
    assert left_in(tmp_path / "own") >= {"tree.json", "members.csv", "atlas.html"}
    of_others = f"prototypes {pretrained} --input {molecules} -o {tmp_path}"
    ended = cli(f"{of_others}/other --limit 40 --quiet")
    assert (ended.code, ended.err) == (0, "")
    rows = [row["row"] for row in read_table(tmp_path / "other" / "members.csv")]
    assert rows == [str(k) for k in range(40)]
    cli(f"{of_others}/strict --on-error fail").refused("row 32")
    ended = cli(f"prototypes {pretrained}/model.safetensors -o {tmp_path}/file --json")
    assert (ended.code, ended.json["graphs"]) == (0, 95)


def test_graphs_of_any_kind_are_recalled_as_they_were_read(cli: Cli, tmp_path: Path):
    rings(tmp_path / "g.jsonl")
    pretrain = f"pretrain {tmp_path}/g.jsonl -o {tmp_path}/r --limit 24 --quiet"
    assert cli(pretrain, *SMALL).code == 0
    tree = f"prototypes {tmp_path}/r -o {tmp_path}/tree"
    ended = cli(tree, "--json")
    assert (ended.code, ended.json["graphs"]) == (0, 24)
    assert "no longer" not in ended.err
    with (tmp_path / "g.jsonl").open("a") as file:
        file.write('{"edges": [[0, 1]], "x": [[0, 1.0], [0, 1.0]], "edge_attr": [[0, 0.1]]}\n')
    assert "no longer" not in cli(tree).err  # beyond the limit


def test_a_store_made_again_otherwise_is_noticed(cli: Cli, molecules: Path, tmp_path: Path):
    make = f"featurize {molecules} -o {tmp_path}/s --workers 1 --quiet --schema"
    assert cli(make, "molecule --limit 40").code == 0
    small = "--recipe graphlog --quiet"
    assert cli(f"pretrain {tmp_path}/s -o {tmp_path}/r", small, *SMALL).code == 0
    assert cli(make, "molecule --limit 20 --overwrite").code == 0
    assert "no longer holds the graphs" in cli(f"prototypes {tmp_path}/r -o {tmp_path}/tree").err
    assert cli(make, "molecule-rich --limit 20 --overwrite").code == 0
    for verb in ("prototypes", "plot"):
        cli(f"{verb} {tmp_path}/r -o {tmp_path}/other").refused("molecule-rich")
