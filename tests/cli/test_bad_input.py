"""Whatever is wrong with an input ends with exit code 2 and nothing half-written.

One line says what is wrong, where and how to mend it.
"""

import ast
import gzip
import io
import json
import shutil
from pathlib import Path

import pytest
from typer.main import get_command

import graphlog
from cli_support import SMALL, Cli, left_in, write_molecules
from graphlog.cli.main import app
from graphlog.cli.options import as_flags
from graphlog.errors import ConfigError

SETTINGS = {"setting", "out_of_range", "check_choice"}
PYTHON_ONLY = {"folds", "save"}
GOOD = "smiles,y\nCCO,1\nCCN,0\nCCC,1\n"


def _featurize(cli: Cli, folder: Path, content: bytes | str, *words: str, name: str = "in.csv"):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    ended = cli(f"featurize {path} -o {folder}/out.store --workers 1", *words)
    if ended.code:
        assert left_in(folder) == {name}
    return ended


UNUSABLE = {
    "an empty file": ("", [], ["empty"]),
    "a header only": ("smiles,y\n", [], ["in.csv"]),
    "no SMILES column": ("a,b\n1,2\n", [], ["--smiles-column"]),
    "two candidate columns": (
        "smiles,canonical_smiles\nCC,CC\n",
        [],
        ["smiles", "canonical_smiles", "--smiles-column"],
    ),
    "an unknown column": (GOOD, ["--smiles-column", "smile"], ["smile", "smiles"]),
    "the wrong delimiter": ("name;y\nCCO;1\n", [], ["semicolon"]),
    "all rows bad": ("smiles\nxx(\nyy)\n", [], ["2 of 2", "--smiles-column"]),
    "labels that are text": (
        "smiles,y\nCCO,high\nCC,low\n",
        ["--targets", "y"],
        ["'y'", "row 0", "high"],
    ),
    "an unknown target": (GOOD, ["--targets", "z"], ["'z'"]),
    "a bad row with --on-error fail": (
        "smiles\nCCO\nCC(\n",
        ["--on-error", "fail"],
        ["row 1", "CC("],
    ),
}


@pytest.mark.parametrize("case", UNUSABLE, ids=str)
def test_an_unusable_file_is_refused_in_one_line(cli: Cli, tmp_path: Path, case: str):
    content, words, expected = UNUSABLE[case]
    _featurize(cli, tmp_path, content, *words).refused(*expected)


@pytest.mark.parametrize(
    ("content", "graphs", "rejected"),
    [
        (b"\xef\xbb\xbf" + GOOD.encode(), 3, 0),
        (GOOD.replace("\n", "\r\n").encode(), 3, 0),
        (b"smiles,name\nCCO,caf\xe9\nCC,x\n", 2, 0),
        (b'smiles,name\n"CCO","a, ""b"""\nCC,"line\nbreak"\n', 2, 0),
        (b"smiles\nCCO\n\n   \nCCN\n", 2, 1),
        (b"smiles\nCCO\nC\0C\nCCN\nCCC\n", 3, 1),
        (b"smiles\nCCO\nCCO\nCCO\n", 3, 0),
        (b"smiles\n[He]\n[Na+].[Cl-]\nC\n", 3, 0),
        (b"smiles\nCCO\nCC\n" + b"C" * 1_000_000 + b"\n", 2, 1),
        (b"smiles\n" + b"C" * 500 + b"\n", 1, 0),
    ],
    ids=[
        "BOM",
        "CRLF",
        "Latin-1",
        "quotes",
        "blank rows",
        "NUL",
        "duplicates",
        "bondless",
        "1 MB",
        "500 atoms",
    ],
)
def test_what_is_merely_odd_is_read(
    cli: Cli, tmp_path: Path, content: bytes, graphs: int, rejected: int
):
    ended = _featurize(cli, tmp_path, content, "--json")
    assert ended.code == 0, ended.err
    assert (ended.json["graphs"], ended.json["rejected rows"]) == (graphs, rejected)


def test_a_truncated_archive_is_refused(cli: Cli, tmp_path: Path):
    whole = gzip.compress((GOOD + "C\n" * 20_000).encode())
    _featurize(cli, tmp_path, whole[: len(whole) // 2], name="in.csv.gz").refused("in.csv.gz")


def test_a_missing_file_or_name_is_refused_with_the_nearest(cli: Cli, tmp_path: Path):
    cli(f"featurize {tmp_path}/no.csv -o {tmp_path}/s").refused("no.csv")
    cli(f"featurize bbpb -o {tmp_path}/s").refused("bbpb", "bbbp")
    cli("data get clintoks").refused("clintox")
    assert left_in(tmp_path) == set()


def _labels(folder: Path, cells: list[str]) -> Path:
    path = folder / "labels.csv"
    path.write_text(
        "smiles,y\n" + "\n".join(f"{'C' * (i + 1)}O,{cell}" for i, cell in enumerate(cells)) + "\n"
    )
    return path


@pytest.mark.parametrize(
    ("cells", "words", "expected"),
    [
        (["1"] * 12, ["--targets", "y"], ["one class"]),
        ([""] * 12, ["--targets", "y"], ["no label"]),
        (["nan"] * 12, ["--targets", "y"], ["no label"]),
        (["1", "0"] * 6, [], ["--targets"]),
        (["1", "0"] * 6, ["--targets", "x"], ["'x'"]),
        (["1", "0"] * 6, ["--targets", "y", "--split", "scafold"], ["scafold", "scaffold"]),
        (["1", "0"] * 6, ["--targets", "y", "--split", "gone.json"], ["gone.json"]),
        (["1", "0"] * 6, ["--targets", "y", "--seeds", "a,b"], ["whole numbers"]),
        (["1", "0"] * 6, ["--targets", "y", "--seeds", "1,1"], ["seeds"]),
        (["1", "0"] * 6, ["--targets", "y", "--set", "dropot=0.1"], ["dropot", "dropout"]),
        (["1", "0"] * 6, ["--targets", "y", "--task", "classify"], ["classify", "classification"]),
        (["1.5", "0"] * 6, ["--targets", "y", "--task", "classification"], ["0 or 1"]),
        (["1"], ["--targets", "y"], []),
    ],
)
def test_labels_that_cannot_be_learned_are_refused(
    cli: Cli, tmp_path: Path, pretrained: Path, cells, words, expected
):
    path = _labels(tmp_path, cells)
    common = ["--epochs", "1", "--split", "random"] if "--split" not in words else ["--epochs", "1"]
    cli(f"finetune {path} -m {pretrained} -o {tmp_path}/run", *common, *words, "--quiet").refused(
        *expected
    )
    assert left_in(tmp_path) == {"labels.csv"}


def test_one_molecule_cannot_be_pre_trained_on_but_can_be_embedded(
    cli: Cli, tmp_path: Path, pretrained: Path
):
    path = write_molecules(tmp_path / "one.csv", ["CCO"])
    cli(f"pretrain {path} -o {tmp_path}/run", *SMALL, "--quiet").refused("at least 2")
    assert left_in(tmp_path) == {"one.csv"}
    assert cli(f"embed {path} -m {pretrained} -o {tmp_path}/e.npz").code == 0


def _spoilt(run: Path, folder: Path, change) -> Path:
    copy = folder / "model.safetensors"
    content = bytearray((run / "model.safetensors").read_bytes())
    copy.write_bytes(change(content))
    return copy


def _flipped(content: bytearray) -> bytes:
    content[-10] ^= 0xFF
    return bytes(content)


@pytest.mark.parametrize(
    "change",
    [lambda c: bytes(c[:-100]), _flipped, lambda _: b"", lambda _: b"{}" * 40],
    ids=["cut", "bit", "empty", "text"],
)
def test_a_spoilt_model_is_refused(
    cli: Cli, tmp_path: Path, molecules: Path, pretrained: Path, change
):
    model = _spoilt(pretrained, tmp_path, change)
    cli(f"embed {molecules} -m {model} -o {tmp_path}/e.npz").refused("model.safetensors")
    cli(f"info {model}").refused("model.safetensors")
    assert left_in(tmp_path) == {"model.safetensors"}


def test_a_model_of_another_kind_is_refused(
    cli: Cli, tmp_path: Path, molecules: Path, pretrained: Path
):
    cli(f"embed {molecules} -m grahplog-zinc -o {tmp_path}/e.npz").refused("grahplog-zinc")
    cli(f"embed {molecules} -m {tmp_path}/gone.safetensors -o {tmp_path}/e.npz").refused(
        "gone.safetensors"
    )
    cli(f"predict {molecules} -m {pretrained} -o {tmp_path}/p.csv").refused("graphlog finetune")
    (tmp_path / "pickle.pth").write_bytes(b"\x80\x04\x95cos\nsystem\n(S'true'\ntR.")
    cli(f"convert {tmp_path}/pickle.pth -o {tmp_path}/m.safetensors").refused("pickle.pth")
    assert left_in(tmp_path) == {"pickle.pth"}


def test_a_spoilt_store_is_refused(cli: Cli, tmp_path: Path, store: Path):
    copy = tmp_path / "s"
    for spoil, words in (
        (
            lambda: (copy / "endpoints.bin").write_bytes(
                (copy / "endpoints.bin").read_bytes()[:-4]
            ),
            ["endpoints"],
        ),
        (
            lambda: (copy / "rejects.bin").write_bytes(
                b"x" * (copy / "rejects.bin").stat().st_size
            ),
            ["changed"],
        ),
        (lambda: (copy / "manifest.json").write_text("{"), ["manifest"]),
        (lambda: _newer(copy / "manifest.json"), ["newer", "upgrade"]),
    ):
        shutil.copytree(store, copy)
        spoil()
        cli(f"pretrain {copy} -o {tmp_path}/run", *SMALL).refused(*words)
        assert left_in(tmp_path) == {"s"}
        shutil.rmtree(copy)


def _newer(manifest: Path) -> None:
    fields = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**fields, "version": 99}))


def test_a_store_of_another_schema_than_the_model_s_is_refused(
    cli: Cli, tmp_path: Path, molecules: Path, pretrained: Path
):
    assert (
        cli(f"featurize {molecules} -o {tmp_path}/rich --schema molecule-rich --workers 1").code
        == 0
    )
    cli(f"embed {tmp_path}/rich -m {pretrained} -o {tmp_path}/e.npz").refused("molecule-rich")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--resume", "--overwrite"], ["contradict"]),
        (["--resume", "--init", "random"], ["--init", "--resume"]),
        (["--epochs", "2", "--set", "epochs=3"], ["epochs", "twice"]),
        (["--backbone", "gin", "--set", "encoder.backbone=gcn"], ["backbone", "twice"]),
        (["--set", "encoder.dimm=4"], ["encoder.dimm", "encoder.dim"]),
        (["--set", "objective.dept=4"], ["objective.dept", "objective.depth"]),
        (["--set", "nonsense"], ["key=value"]),
        (["--set", "encoder.dim=wide"], ["encoder.dim"]),
        (["--objective", "graphlogg"], ["did you mean 'graphlog'"]),
        (["--recipe", "papers"], ["did you mean 'paper'"]),
        (["--backbone", "ginn"], ["gin"]),
        (["--precision", "bf61"], ["bf16"]),
        (["--device", "gpu9"], ["gpu9"]),
        (["--batch-size", "1"], ["batch"]),
        (["--config", "gone.toml"], ["gone.toml"]),
        (["--epoch", "3"], ["did you mean '--epochs'"]),
    ],
)
def test_contradictions_and_unknown_names_are_refused(
    cli: Cli, tmp_path: Path, store: Path, words, expected
):
    cli(f"pretrain {store} -o {tmp_path}/run", *words).refused(*expected)
    assert left_in(tmp_path) == set()


def test_a_settings_file_that_says_otherwise_is_refused(
    cli: Cli, tmp_path: Path, store: Path, pretrained: Path
):
    file = pretrained / "config.toml"
    cli(f"pretrain {store} -o {tmp_path}/run --config {file} --recipe paper").refused(
        "--recipe", "contradicts"
    )
    (tmp_path / "bad.toml").write_text("[encoder\n")
    cli(f"pretrain {store} -o {tmp_path}/run --config {tmp_path}/bad.toml").refused(
        "bad.toml", "TOML"
    )


def test_a_resumed_run_must_be_the_same_run(
    cli: Cli, tmp_path: Path, pretrained: Path, store: Path
):
    run = shutil.copytree(pretrained, tmp_path / "run")
    cli(f"pretrain {store} -o {run} --resume --seed 7").refused("seed")


def test_a_folder_of_other_things_is_not_overwritten(cli: Cli, tmp_path: Path, store: Path):
    (tmp_path / "thesis.tex").write_text("precious")
    cli(f"pretrain {store} -o {tmp_path}", *SMALL, "--overwrite").refused()
    cli(f"featurize nci5k -o {tmp_path} --overwrite --limit 20").refused()
    cli(f"quickstart -o {tmp_path}").refused("other files")
    assert left_in(tmp_path) == {"thesis.tex"}


def test_outputs_of_unknown_kind_or_in_no_folder_are_refused_before_any_work(
    cli: Cli, tmp_path: Path, molecules: Path, pretrained: Path
):
    cli(f"embed {molecules} -m {pretrained} -o {tmp_path}/e.xlsx").refused(".npz")
    cli(f"embed {molecules} -m {pretrained} -o {tmp_path}/gone/e.npz").refused("gone")
    cli(f"embed {molecules} -m {pretrained} -o {tmp_path}/e.npz --layer lost").refused("'last'")
    cli(f"plot {tmp_path} -o {tmp_path}/f").refused("config.toml")
    cli(f"info {tmp_path}").refused(str(tmp_path))
    cli(f"data split {molecules} -o {tmp_path}/s.json --fractions 0.9,0.9,0.1").refused("fractions")
    cli(f"data split {molecules} -o {tmp_path}/s.json --kind scafold").refused("'scaffold'")
    assert left_in(tmp_path) == set()


def test_a_long_list_of_known_names_is_cut_to_the_nearest(cli: Cli):
    ended = cli("data info tox12")
    ended.refused("did you mean 'tox21'", "toxcast", "more")
    assert len(ended.err) < 600


def test_an_unknown_baseline_is_refused_before_any_training(
    cli: Cli, tmp_path: Path, molecules: Path, pretrained: Path
):
    words = ["--targets", "oxygen", "--baselines", "ecfp-rff"]
    cli(f"finetune {molecules} -m {pretrained} -o {tmp_path}/run", *words).refused(
        "did you mean 'ecfp-rf'"
    )
    assert left_in(tmp_path) == set()


def test_a_refused_plot_leaves_no_figures(cli: Cli, tmp_path: Path, pretrained: Path):
    cli(f"plot {pretrained} -o {tmp_path}/figures --input {tmp_path}/gone.csv").refused("gone.csv")
    assert left_in(tmp_path) == set()


def test_ctrl_c_is_answered(
    cli: Cli, tmp_path: Path, molecules: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        "graphlog.domains.molecule.parse.featurize_smiles",
        lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt),
    )
    ended = cli(f"featurize {molecules} -o {tmp_path}/s --workers 1")
    assert (ended.code, ended.out, ended.err) == (130, "", "graphlog: interrupted.\n")
    assert left_in(tmp_path) == set()


@pytest.mark.parametrize(
    ("number", "says"), [(28, "disk is full"), (27, "ulimit"), (5, "input/output")]
)
def test_a_write_that_fails_somewhere_is_one_line(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, number: int, says: str
):
    monkeypatch.setattr(
        "graphlog.cli.console.Command.result",
        lambda *_: (_ for _ in ()).throw(OSError(number, "no")),
    )
    cli("models").refused(says)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["pretrain", "{store}", "-o", "run", "--backbone", "ginn"],
            ["unknown backbone 'ginn'; did you mean 'gin'?"],
        ),
        (
            ["pretrain", "{store}", "-o", "run", "--epochs", "0"],
            ["equal to 1. See: graphlog pretrain --help"],
        ),
        (
            ["data", "split", "{molecules}", "-o", "gone/split.json"],
            ["there is no folder", "gone; create it"],
        ),
        (["data", "split", "{molecules}", "-o", "split.txt"], ["split.txt", ".json"]),
        (["info", "run.safetensor"], ["did you mean run.safetensors?"]),
        (["info", "."], ["not a model, store or run"]),
        (
            ["embed", "gone.csv", "-m", "{pretrained}", "-o", "e.npz"],
            ["no such file: gone.csv; check the path"],
        ),
    ],
)
def test_the_line_says_how_to_mend_it(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    store: Path,
    molecules: Path,
    pretrained: Path,
    words,
    expected,
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.safetensors").touch()
    there = {"store": store, "molecules": molecules, "pretrained": pretrained}
    ended = cli(*(word.format(**there) for word in words))
    ended.refused(*expected)
    assert "value error" not in ended.err
    assert left_in(tmp_path) == {"run.safetensors"}


def test_a_comma_is_no_ring(cli: Cli, tmp_path: Path):
    (tmp_path / "in.smi").write_text("CCO\nCCO,1\nCCN\n")
    assert cli(f"featurize {tmp_path}/in.smi -o {tmp_path}/s --workers 1").code == 0
    assert "not a SMILES character: ','" in (tmp_path / "rejects.csv").read_text()


@pytest.mark.filterwarnings("default:.*UTF-16")
def test_utf_16_from_a_pipe_is_called_standard_input(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode("utf-16"))))
    ended = cli(f"featurize - -o {tmp_path}/s")
    assert ended.code == 0
    assert "standard input: read as UTF-16" in ended.err


def test_a_setting_is_written_as_the_caller_writes_it(
    cli: Cli, molecules: Path, finetuned: Path, tmp_path: Path
):
    with pytest.raises(ConfigError, match="drop `interval`: ") as found:
        graphlog.load_predictor(finetuned).predict_uncertain(["CCO"], interval=0.9)
    assert found.value.option == "interval"
    words = ("predict", molecules, "-m", finetuned, "-o", tmp_path / "p.csv")
    cli(*words, "--interval 0.9").refused("drop --interval: ")
    cli(f"finetune {molecules} -m {finetuned} -o {finetuned} --targets oxygen").refused(
        "continue it with --resume or replace it with --overwrite."
    )


@pytest.mark.parametrize(
    ("verb", "name", "value", "written"),
    [
        ("pretrain", "batch_size", None, "--batch-size"),
        ("pretrain", "limit", 5, "--limit 5"),
        ("pretrain", "overwrite", True, "--overwrite"),
        ("pretrain", "source", None, "INPUT"),
        ("plot", "source", None, "--input"),
        ("neighbors", "k", None, "-k"),
        ("embed", "with_features", None, "--with"),
        ("finetune", "run_dir", None, "--output"),
        ("featurize", "evidence", None, "--without-evidence"),
        ("featurize", "keep_texts", False, "--no-texts"),
        ("data split", "fractions", None, "--fractions"),
        ("info", "like", "MODEL", "--like MODEL"),
        ("pretrain", "global_weight", 0, "`global_weight=0`"),
    ],
)
def test_the_command_line_has_a_flag_for_every_setting(verb, name, value, written):
    assert as_flags(get_command(app), verb.split())(name, value) == written


def test_every_setting_in_a_message_is_an_option_of_a_verb():
    names: set[str] = set()
    for path in Path(graphlog.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in SETTINGS:
                names.update(a.value for a in call.args[:1] if isinstance(a, ast.Constant))
    write = as_flags(get_command(app), ["pretrain"])
    assert len(names) > 30
    assert {name for name in names if write(name).startswith("`")} <= PYTHON_ONLY


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "pretrain {molecules} -o r --batch-size 1",
            {"kind": "ConfigError", "option": "batch_size"},
        ),
        ("embed {molecules} -m random -o e.xlsx", {"kind": "ConfigError", "option": "out"}),
        ("embed gone.csv -m random -o e.npz", {"kind": "DataError", "file": "gone.csv"}),
        ("pretrain {store} -o r --epoch 3", {"kind": "NoSuchOption"}),
        ("pretrain {store} -o r --epochs 0", {"kind": "BadParameter", "option": "epochs"}),
        ("featurize {molecules} -o s --on-error fail", {"option": "on_error", "row": 32}),
        ("finetune {molecules} -m random -o r --targets word", {"option": "targets", "row": 0}),
        ("finetune {molecules} -m random -o r", {"option": "targets"}),
    ],
)
def test_errors_are_json_where_results_are(
    cli: Cli, molecules: Path, store: Path, tmp_path: Path, monkeypatch, words: str, expected
):
    monkeypatch.chdir(tmp_path)
    line = words.format(molecules=molecules, store=store)
    plain, ended = cli(f"{line} --quiet"), cli(f"{line} --json --quiet")
    found = ended.json["error"]
    assert (ended.code, plain.code, ended.err) == (2, 2, "")
    assert plain.err == f"graphlog: error: {found['message']}\n"
    assert {key: found.get(key) for key in expected} == expected


def test_an_error_stays_out_of_an_output_on_standard_output(cli: Cli, molecules: Path):
    ended = cli(f"embed {molecules} -m gone -o - --json")
    assert (ended.code, ended.out) == (2, "")
    assert json.loads(ended.err)["error"]["kind"] == "ConfigError"
