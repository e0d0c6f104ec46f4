"""What is wrong with a line is told in one line; the exit code is 2, nothing is half-written."""

import ast
import io
import json
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

import graphlog
from cli_support import Cli, left_in
from graphlog.cli.command import as_flags
from graphlog.cli.main import whole_parser
from graphlog.errors import ConfigError
from graphlog.files import mark_folder

SETTINGS = {"setting", "out_of_range", "check_choice"}
PYTHON_ONLY = {"folds", "save"}
GOOD = "smiles,y\nCCO,1\nCCN,0\nCCC,1\n"


def labels(*cells: str) -> str:
    """Return twelve alcohols with these labels, over and over."""
    rows = [f"{'C' * (k + 1)}O,{cells[k % len(cells)]}\n" for k in range(12)]
    return "".join(["smiles,y\n", *rows])


FILES: dict[str, str | bytes] = {
    "good.csv": GOOD,
    "none.csv": "a,b\n1,2\n",
    "labels.csv": labels("1", "0"),
    "ones.csv": labels("1"),
    "single.csv": "smiles,y\nCO,1\n",
    "pickle.pth": b"\x80\x04\x95cos\nsystem\n(S'true'\ntR.",
    "bad.toml": "[encoder\n",
    "seeds.toml": "[finetune]\nseeds = 'a'\n",
    "table.zip": b"PK\5\6" + bytes(18),  # of nothing
    "thesis.safetensors": "",
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, store: Path, pretrained: Path) -> Path:
    """The files above, a model and a store cut short, and a run."""
    made = tmp_path_factory.mktemp("wrong")
    for name, content in FILES.items():
        (made / name).write_bytes(content.encode() if isinstance(content, str) else content)
    model = (pretrained / "model.safetensors").read_bytes()
    (made / "alone.safetensors").write_bytes(model)
    (made / "cut.safetensors").write_bytes(model[:-100])
    shutil.copytree(pretrained, made / "done")
    (made / "folder.npz").mkdir()
    (made / "unmarked").mkdir()
    (made / "unmarked" / "config.toml").touch()
    (made / "searched").mkdir()
    mark_folder(made / "searched", "search")
    endpoints = Path(shutil.copytree(store, made / "cut.store")) / "endpoints.bin"
    endpoints.write_bytes(endpoints.read_bytes()[:-4])
    return made


TUNE = "finetune {0} -m {1} -o run --epochs 1 --quiet --split random --targets y"
WRONG: dict[str, str] = {
    # tables
    "featurize none.csv -o s": "--smiles-column",
    "embed table.zip -m {pretrained} -o e.npz": "table.zip: is a zip archive; unpack it",
    "data get clintoks": "clintox",
    "data info tox12": "did you mean 'tox21' | toxcast | more",
    # labels
    TUNE.format("ones.csv", "{pretrained}"): "one class",
    TUNE.format("single.csv", "{pretrained}"): "",
    TUNE.format("labels.csv", "{pretrained} --seeds a,b"): "whole numbers",
    TUNE.format("labels.csv", "{pretrained} --set select=best"): "select | best-valid",
    # models and stores
    "info cut.safetensors": "cut.safetensors",
    "info esol": "'esol' is a data set; see graphlog data info esol",
    "info thesis.safetensors": "thesis.safetensors",
    "embed {molecules} -m randm -o e.npz": "unknown model 'randm'; did you mean 'random'",
    "predict {molecules} -m {pretrained} -o p.csv": "graphlog finetune | graphlog probe INPUT",
    "convert pickle.pth -o m.safetensors": "pickle.pth",
    "pretrain cut.store -o run": "endpoints",
    # settings
    "pretrain {store} -o run --resume --overwrite": "contradict",
    "pretrain {store} -o run --epochs 2 --set epochs=3": "epochs is set twice",
    "pretrain {store} -o run --epochs 2 --set training.epochs=3": "epochs is set twice",
    "pretrain {store} -o run --backbone gin --set encoder.backbone=gcn": "backbone | twice",
    "pretrain {store} -o run --set nonsense": "key=value",
    "pretrain {store} -o run --set backbone=gcn": "did you mean 'encoder.backbone'",
    "pretrain {store} -o run --set resume=true": "is not a setting",
    "finetune {store} -m random -o run --set resume=true": "is not a setting",
    "tune {store} -m random -o run --set resume=true": "is not a setting",
    "finetune {store} -m random -o run --set task=regression": "task is not a setting",
    "tune {store} -m random -o run --set on_error=fail": "on_error is not a setting",
    **{
        f"{verb} {{store}} -m random -o run --set {name}=1": f"{name} is not a setting"
        for verb, name in (
            *(("finetune", "limit"), ("finetune", "weights"), ("finetune", "smiles_column")),
            *(("tune", "workers"), ("tune", "standardize"), ("finetune", "labels_range")),
        )
    },
    "pretrain {store} -o run --precision bf61": "bf16",
    f"pretrain {{store}} -o run --seed {2**32}": "--seed must be less than 4294967296",
    f"embed {{molecules}} -m random -o e.csv --threads {3 * 10**9}": "4096. See",
    f"embed {{molecules}} -m random -o e.csv --limit {10**20}": "--limit must be a whole number",
    "probe {molecules} -m random --targets oxygen --targets length": (
        "'--targets': given more than once; write one list, --targets A,B. See"
    ),
    # names that are too long for a file
    f"embed {'C' * 300} -m random -o e.csv": "unknown file or data set",
    f"embed {{molecules}} -m {'C' * 300} -o e.csv": "unknown model",
    f"embed {{molecules}} -m random -o {'C' * 300}.csv": (
        "cannot write CCC | CCC.csv: File name too long; check the path"
    ),
    "pretrain {store} -o run --config gone.toml": "gone.toml",
    "pretrain {store} -o run --config {finetuned}/config.toml": (
        "config.toml has settings of finetune; name the config.toml of a run of pretrain"
    ),
    "finetune {store} -m random -o run --config done/config.toml": (
        "done/config.toml has no table [finetune]: it is from a run of pretrain; name the best.toml"
    ),
    "finetune {store} -m random -o run --config seeds.toml": (
        "seeds.toml: seeds must be whole numbers | found 'a'"
    ),
    "pretrain {store} -o run --epoch 3": "did you mean '--epochs'? See",
    "pretrain {store} -o run --log wandbb": "did you mean 'wandb'? See",
    "probe {molecules} -m random --on-error fial": "did you mean 'fail'? See",
    "probe {molecules} -m random --task clasification": "did you mean 'classification'? See",
    "probe {molecules} -m random --on-error zzz": "is not one of 'skip', 'fail'. See",
    "pretrain {store} -o run --epochs 0": "1. See: graphlog pretrain --help",
    "pretrain {store} -o run --batch-size 1": "2. See: graphlog pretrain --help",
    "pretrain {store} -o run --config done/config.toml --recipe paper": "--recipe | contradicts",
    "pretrain {store} -o run --config bad.toml": "bad.toml | TOML",
    "pretrain {molecules} -o run --log tensorboard --log csv": "csv",
    "predict {molecules} -m {finetuned} -o p.csv --interval 0.9": "drop --interval: ",
    **{
        f"probe {{molecules}} -m random --targets oxygen --protocol {words}": (
            f"{words.split()[1]} | does not apply to --protocol {words.split()[0]}"
        )
        for words in (
            "10-fold --output run",
            "10-fold --split random",
            "10-fold --with ecfp4",
            "10-fold --head kernel",
            "10-fold --baseline-seeds 0",
            "10-fold --labels-range 0,1",
            "split --folds-seeds 0,1,2",
            "splits --classifier svm",
            "splits --baseline-seeds 0",
        )
    },
    "probe {molecules} -m random --targets oxygen --baselines none --baseline-seeds 1": (
        "--baseline-seeds changes nothing | there are no baselines"
    ),
    "benchmark speed -o b --split random": "--split changes nothing in suite 'speed'",
    "benchmark embedding-map -o b --datasets bbbp": "--datasets changes nothing",
    "benchmark molecules -o b --stages pretrain --split random": "--split | here are pretrain",
    "featurize {molecules} -o new --categorical a --continuous b,a": "--continuous | attribute 'a'",
    "data split {molecules} -o s.json --kind random --test-species 1": "--test-species | --kind sp",
    # outputs
    "pretrain {store} -o . --overwrite": "",
    "featurize nci5k -o . --overwrite --limit 20": "",
    "quickstart -o .": "other files",
    "finetune {molecules} -m {finetuned} -o {finetuned} --targets oxygen": (
        "continue it with --resume or replace it with --overwrite."
    ),
    **{
        f"{line} --overwrite": "holds the model to start from, which would be lost"
        for line in (
            "finetune {molecules} -m {pretrained} -o {pretrained} --targets oxygen",
            "finetune {molecules} -m {pretrained}/model.safetensors -o {pretrained} --task auto",
            "probe {molecules} -m {pretrained} -o {pretrained} --targets oxygen",
            "pretrain {molecules} --init {pretrained} -o {pretrained}",
        )
    },
    "embed {molecules} -m {pretrained} -o e.xlsx": "ending of a file decides its format | .npz",
    "embed {molecules} -m {pretrained} -o folder.npz": "is a folder",
    "embed {molecules} -m {pretrained} -o e.npz --layer lost": "'last'",
    "data split {molecules} -o gone/split.json": "there is no folder | gone; create it",
    "data split {molecules} -o split.txt": "split.txt | .json",
    "probe {molecules} -m random --targets oxygen --split s.csv": "--split s.csv | ends in .json",
    "data split {molecules} -o s.json --fractions 0.9,0.9,0.1": "fractions",
    "data split {molecules} -o s.json --kind scafold": "'scaffold'",
    "featurize {molecules} -o s --exclude {molecules} --exclude=": "'--exclude': is empty",
    "plot {pretrained} --output=": "'--output' / '-o': is empty; name a path. See",
    "pretrain {molecules} -o -": "'--output' / '-o': cannot be a standard stream (-); name a path.",
    "convert pickle.pth -o -": "cannot be a standard stream",
    "neighbors - --in - -m random -o n.csv": "cannot both be standard input",
    # results
    "plot {store} -o f": "config.toml",
    "plot {pretrained} -o f --input gone.csv": "gone.csv",
    "info thesis.safetensor": "did you mean thesis.safetensors?",
    "info .": "not a finished run folder | Name a run folder or a model file",
    "info {molecules}": "not a model, store or run",
    "info random": "untrained encoder | graphlog finetune INPUT -m random",
    "info unmarked": "not a finished run folder",
    "predict {molecules} -m searched -o p.csv": "of tune | searched/best",
    "predict {molecules} -m random -o p.csv": "a head to predict | finetune INPUT -m random",
    "info pickle.pth": "graphlog convert",
    "prototypes random -o t --input {molecules}": "no prototypes | --fit",
    "prototypes {finetuned} -o t --input {molecules}": "no prototypes",
    "prototypes {pretrained} -o {pretrained} --input {molecules}": "holds other files",
    "prototypes alone.safetensors -o t": "name some with --input",
    "prototypes graphlog-mol -o t": "--input",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_line_is_refused_and_leaves_nothing(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, line: str
):
    monkeypatch.chdir(folder)
    before = left_in()
    ended = cli.refused(line, *WRONG[line].split(" | "))
    assert "value error" not in ended.err
    assert len(ended.err) < 1000
    assert left_in() == before


def test_what_is_merely_odd_is_read(cli: Cli):
    rows = [b'"CCO","a, ""b"""', b'CC,"line\nbreak"', b"", b"   ,x", b"C\0C,x", b"CCO,x", b"CCO,x"]
    rows += [b"[He],x", b"[Na+].[Cl-],x", b"C" * 1_000_000 + b",x", b"C" * 500 + b",x"]
    Path("in.csv").write_bytes(b"\n".join([b"smiles,name", *rows]))
    told = cli("featurize in.csv -o s --workers 1 --json").json
    assert (told["graphs"], told["rejected rows"]) == (7, 3)
    assert told["rejects"] == "rejects.csv"  # as the output was named


def test_ctrl_c_is_answered(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    interrupted = Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr("graphlog.domains.molecule.parse.featurize_smiles", interrupted)
    ended = cli("featurize {molecules} -o s --workers 1", code=130)
    assert (ended.out, ended.err) == ("", "graphlog: interrupted.\n")
    assert left_in() == set()


@pytest.mark.parametrize(
    ("number", "says"), [(28, "free some space"), (27, "ulimit"), (5, "check the disk")]
)
def test_a_write_that_fails_somewhere_is_one_line(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, number: int, says: str
):
    failing = Mock(side_effect=OSError(number, "no"))
    monkeypatch.setattr("graphlog.files.os.replace", failing)
    cli.refused("data split {molecules} -o s.json --kind random", "cannot write s.json: no", says)
    monkeypatch.setattr("graphlog.cli.command.Command.result", failing)
    cli.refused("models", says)


@pytest.mark.filterwarnings("default:.*UTF-16")
def test_utf_16_from_a_pipe_is_called_standard_input(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode("utf-16"))))
    assert "standard input: read as UTF-16" in cli("featurize - -o s").err


def test_a_setting_is_written_as_python_writes_it(finetuned: Path):
    with pytest.raises(ConfigError, match="drop `interval`: ") as found:
        graphlog.load_predictor(finetuned).predict_uncertain(["CCO"], interval=0.9)
    assert found.value.option == "interval"


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
    assert as_flags(whole_parser(), verb.split())(name, value) == written


def test_every_setting_in_a_message_is_an_option_of_a_verb():
    names: set[str] = set()
    for path in Path(graphlog.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in SETTINGS:
                names.update(a.value for a in call.args[:1] if isinstance(a, ast.Constant))
    write = as_flags(whole_parser(), ["pretrain"])
    assert len(names) > 30
    assert {name for name in names if write(name).startswith("`")} <= PYTHON_ONLY


AS_JSON: dict[str, dict[str, object]] = {
    "pretrain {molecules} -o r --set batch_size=1": {"kind": "ConfigError", "option": "batch_size"},
    "embed {molecules} -m random -o e.xlsx": {"kind": "ConfigError", "option": "out"},
    "embed gone.csv -m random -o e.npz": {"kind": "DataError", "file": "gone.csv"},
    "pretrain {store} -o r --epoch 3": {"kind": "NoSuchOption"},
    "pretrain {store} -o r --epochs 0": {"kind": "BadParameter", "option": "epochs"},
    "featurize {molecules} -o s --on-error fail": {"option": "on_error", "row": 32},
    "finetune {molecules} -m random -o r --targets word": {"option": "targets", "row": 0},
    "finetune {molecules} -m random -o r": {"option": "targets"},
    "finetune {molecules} -m random -o r --targets nope": {"option": "targets"},
    "embed {molecules} -m nope -o e.npz": {"option": "model"},
    "embed {molecules} -m x/nope -o e.npz": {"option": "model", "file": "x/nope"},
    "embed {molecules} -m random -o e.npz --smiles-column nope": {"option": "smiles_column"},
}


@pytest.mark.parametrize("line", AS_JSON)
def test_errors_are_json_where_results_are(cli: Cli, line: str):
    plain, ended = cli(line, "--quiet", code=2), cli(line, "--json --quiet", code=2)
    found = ended.json["error"]
    assert (ended.err, plain.err) == ("", f"graphlog: error: {found['message']}\n")
    assert {key: found.get(key) for key in AS_JSON[line]} == AS_JSON[line]


@pytest.mark.parametrize("output", ["-o -", "-o-", "-qo -", "--output -", "--output=-"])
def test_an_error_stays_out_of_an_output_on_standard_output(cli: Cli, output: str):
    for wrong, kind in (("-m gone", "ConfigError"), ("-m random --epoch 3", "NoSuchOption")):
        ended = cli(f"embed {{molecules}} {wrong} {output} --json", code=2)
        assert ended.out == ""
        assert json.loads(ended.err)["error"]["kind"] == kind


def test_an_error_that_standard_output_cannot_take_goes_to_standard_error(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
):
    full = Mock(write=Mock(side_effect=OSError(28, "No space left on device")))
    monkeypatch.setattr("sys.stdout", full)
    assert "no space left on device; free" in cli("models --json", code=2).err
