"""The cases of ``hostile`` that are wrong by what is in a file.

Tables, labels, models, stores, checkpoints, run folders.
"""

import csv
import fcntl
import gzip
import io
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import checks
import inputs as bad
from runner import Case

SMALL = [
    "--epochs",
    "2",
    "--batch-size",
    "16",
    "--set",
    "encoder.dim=16",
    "--set",
    "encoder.layers=2",
    "--precision",
    "fp32",
]
ONE = ["--workers", "1"]
SHORT = ["--epochs", "1", "--seeds", "0", "--split", "random", "--baselines", "none"]
MIRROR = Path(os.environ.get("GRAPHLOG_MIRROR") or "nowhere")
OLD = MIRROR / "checkpoints" / "pretrain-gnns_chem_gcn_contextpred.pth"
"""A published checkpoint; ``convert`` is tried where it is there."""


class Verbs:
    """The commands that read molecules or models, as words."""

    def __init__(self, good: Path) -> None:
        self.run, self.fitted, self.store = (
            str(good / "run"),
            str(good / "fitted"),
            str(good / "good.store"),
        )
        self.table = str(good / "good.csv")

    def reading(self, source: str) -> dict[str, list[str]]:
        """Return the command of each verb that reads ``source``."""
        return {
            "featurize": ["featurize", source, "-o", "out.store", *ONE],
            "data split": ["data", "split", source, "-o", "split.json", *ONE],
            "pretrain": ["pretrain", source, "-o", "out", *SMALL, *ONE],
            "embed": ["embed", source, "-m", self.run, "-o", "out.npz", *ONE],
            "probe": [
                "probe",
                source,
                "-m",
                self.run,
                "--targets",
                "y",
                "--seeds",
                "0",
                "--baselines",
                "none",
                "--split",
                "random",
                *ONE,
            ],
            "finetune": [
                "finetune",
                source,
                "-m",
                self.run,
                "-o",
                "out",
                "--targets",
                "y",
                *SHORT,
                *ONE,
            ],
            "predict": ["predict", source, "-m", self.fitted, "-o", "out.csv", *ONE],
            "prototypes": ["prototypes", self.run, "--input", source, "-o", "out", *ONE],
        }

    def using(self, model: str) -> dict[str, list[str]]:
        """Return the command of each verb that reads the encoder ``model``."""
        return {
            "embed": ["embed", self.table, "-m", model, "-o", "out.npz", *ONE],
            "probe": ["probe", self.table, "-m", model, "--targets", "y", *ONE],
            "finetune": [
                "finetune",
                self.table,
                "-m",
                model,
                "-o",
                "out",
                "--targets",
                "y",
                *SHORT,
                *ONE,
            ],
            "pretrain": ["pretrain", self.table, "-o", "out", "--init", model, *SMALL[:4], *ONE],
            "prototypes": ["prototypes", model, "--input", self.table, "-o", "out", *ONE],
            "info": ["info", model],
        }


def good_cases(good: Path) -> Iterator[Case]:
    """Yield every verb with good input, in an order in which each finds what it needs."""
    fine = partial(Case, "good input", code=0)
    table, store, run, fitted = (
        str(good / name) for name in ("good.csv", "good.store", "run", "fitted")
    )
    for words in (
        ["models"],
        ["data", "list"],
        ["data", "info", "nci5k"],
        ["data", "get", "nci5k"],
    ):
        yield fine(" ".join(words), words)
        yield fine(" ".join(words) + " --json", [*words, "--json"], check=checks.is_json)
        yield fine(" ".join(words) + " --quiet", [*words, "--quiet"], check=checks.is_quiet)
    yield fine("quickstart --help", ["quickstart", "--help"])
    fit = ["finetune", table, "-m", run, "--targets", "y", *SHORT]
    split = ["data", "split", table, "-o", "split.json"]
    probe = [
        "probe",
        table,
        "-m",
        run,
        "--targets",
        "y,v",
        "--task",
        "regression",
        "--split",
        "random",
        "--seeds",
        "0",
    ]
    kept = {  # what they leave is the good input of all that follows
        "featurize": ["featurize", table, "-o", store, "--targets", "y"],
        "pretrain": ["pretrain", store, "-o", run, *SMALL],
        "pretrain --resume": ["pretrain", store, "-o", run, "--resume"],
        "finetune": [*fit, "-o", fitted],
        "embed a table": ["embed", table, "-m", run, "-o", "out.npz"],
        "embed a store": ["embed", store, "-m", run, "-o", "out.csv"],
        "embed with graphlog-mol": ["embed", table, "-m", "graphlog-mol", "-o", "out.npz"],
        "predict a table": ["predict", table, "-m", fitted, "-o", "out.csv"],
        "predict a store": ["predict", store, "-m", fitted, "-o", "out.csv"],
        "probe": probe,
        "data split": split,
        "plot": ["plot", run, "-o", "figures"],
        "prototypes": ["prototypes", run, "-o", "out"],
        "prototypes of a table": ["prototypes", "graphlog-mol", "--input", table, "-o", "out"],
        "plot after finetune": ["plot", fitted, "-o", "figures"],
        "info of a store": ["info", store],
        "info of a run": ["info", run],
        "info of a predictor": ["info", fitted],
    } | ({"convert": ["convert", str(OLD), "-o", "out.safetensors"]} if OLD.is_file() else {})
    for name, words in kept.items():
        yield fine(name, [*words, "--json"], check=checks.is_json)
        again = (
            [*words, "--overwrite"]
            if words[-1] != "--resume" and name in ("featurize", "pretrain", "finetune")
            else words
        )
        yield fine(f"{name} --quiet", [*again, "--quiet"], check=checks.is_quiet)
    piped = bad.GOOD.encode()
    yield fine(
        "embed standard input",
        ["embed", "-", "-m", run, "-o", "out.npz"],
        stdin=piped,
        check=checks.embeds(6, ()),
    )
    yield fine(
        "predict standard input",
        ["predict", "-", "-m", fitted, "-o", "out.csv"],
        stdin=piped,
        check=checks.predicts(6, ()),
    )
    yield fine(
        "finetune -m random",
        ["finetune", table, "-m", "random", "-o", "out", "--targets", "v", *SHORT],
    )


def file_of(name: str, content: bytes) -> Callable[[Path], object]:
    """Return what writes one file into the folder of a case."""
    return lambda folder: (folder / name).write_bytes(content)


def tables(v: Verbs) -> Iterator[Case]:
    """Yield tables that no verb can use, and odd ones that every verb must read row for row."""
    for name, (file, content, says) in bad.UNUSABLE.items():
        for verb, words in v.reading(file).items():
            yield Case(
                "unusable tables", name, words, says=(file, *says), prepare=file_of(file, content)
            )
            if (
                verb in ("embed", "predict")
                and file == "in.csv"
                and says[:1] not in (("semicolon",), ("tab",))
            ):  # a pipe has no ending
                piped = ["-" if word == file else word for word in words]
                yield Case(
                    "unusable tables",
                    f"{name}, piped",
                    piped,
                    says=("graphlog: error: standard input: ",),
                    stdin=content,
                )
    good, torn = (
        file_of("in.csv", bad.GOOD.encode()),
        file_of("in.csv", bad.GOOD.encode() + b"C(,1,1\n"),
    )
    for words in v.reading("in.csv").values():
        unknown = [*words, "--smiles-column", "smile"]
        yield Case(
            "unusable tables",
            "an unknown column",
            unknown,
            says=("'smile'", "did you mean 'smiles'"),
            prepare=good,
        )
        yield Case("unusable tables", "a missing file", words, says=("in.csv",))
        yield Case(
            "unusable tables",
            "a folder",
            words,
            says=("in.csv",),
            prepare=lambda folder: (folder / "in.csv").mkdir(),
        )
        yield Case(
            "unusable tables",
            "--on-error fail",
            [*words, "--on-error", "fail"],
            says=("row 6", "'C('"),
            prepare=torn,
        )
    for name, (file, content, rejected) in bad.ODD.items():
        rows = _rows_of(content)
        row_for_row = {
            "embed": checks.embeds,
            "predict": checks.predicts,
            "prototypes": checks.places,
            "data split": checks.divides,
        }
        for verb, words in v.reading(file).items():
            words = (
                [*words, "--kind", "random"] if verb == "data split" else words
            )  # few rows have few scaffolds
            check = (
                row_for_row[verb](rows, rejected)
                if verb in row_for_row
                else checks.lists(rejected)
                if verb == "featurize"
                else None
            )
            if verb not in ("probe", "finetune"):
                yield Case(
                    "odd tables", name, words, 0, prepare=file_of(file, content), check=check
                )


def _rows_of(content: bytes) -> int:
    content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    text = content.decode("latin-1").replace("\0", "?").replace("\r\n", "\n").replace("\r", "\n")
    csv.field_size_limit(1 << 27)
    return sum(bool(record) for record in csv.reader(io.StringIO(text))) - 1


def labels(v: Verbs) -> Iterator[Case]:
    """Yield labels from which nothing can be learned, and targets that are none."""
    for name, (cells, says) in bad.LABELS.items():
        for verb in ("probe", "finetune"):
            yield Case(
                "labels",
                name,
                v.reading("in.csv")[verb],
                says=says,
                prepare=file_of("in.csv", bad.label_table(cells)),
            )
    table = file_of("in.csv", bad.label_table(["0", "1"] * 8))
    for verb in ("probe", "finetune", "featurize"):
        words = [w for w in v.reading("in.csv")[verb] if w not in ("--targets", "y")]
        yield Case(
            "labels",
            "an unknown target",
            [*words, "--targets", "yy"],
            says=("'yy'", "did you mean 'y'"),
            prepare=table,
        )
        yield Case(
            "labels",
            "the SMILES as target",
            [*words, "--targets", "smiles"],
            says=("smiles",),
            prepare=table,
        )
        yield Case(
            "labels",
            "a target given twice",
            [*words, "--targets", "y,y"],
            says=("'y'", "more than once"),
            prepare=table,
        )
        if verb != "featurize":
            yield Case("labels", "no target named", words, says=("--targets",), prepare=table)
    text = file_of("in.csv", bad.label_table(["high", "low"] * 8))
    yield Case(
        "labels",
        "text labels",
        ["featurize", "in.csv", "-o", "s", "--targets", "y", *ONE],
        says=("'y'", "high"),
        prepare=text,
    )
    some = file_of("in.csv", bad.label_table(["1", "0", "nan", ""] * 8))
    for verb in ("probe", "finetune"):
        yield Case("labels", "some NaN labels", v.reading("in.csv")[verb], 0, prepare=some)


def few(v: Verbs) -> Iterator[Case]:
    """Yield tables of one or two molecules, and of molecules without bonds."""
    of = {
        "one molecule": b"smiles,y\nCCO,1\n",
        "two molecules": b"smiles,y\nCCO,1\nCC,0\n",
        "one atom": b"smiles,y\n[He],1\n",
    }
    for name, content in of.items():
        for verb, words in v.reading("in.csv").items():
            learns = verb in ("probe", "finetune") or (
                verb in ("pretrain", "data split") and name != "two molecules"
            )
            if (verb, name) != (
                "data split",
                "two molecules",
            ):  # whether they part depends on their scaffolds
                yield Case(
                    "few molecules",
                    name,
                    words,
                    2 if learns else 0,
                    prepare=file_of("in.csv", content),
                )
    bondless = file_of(
        "in.csv", bad.ODD["one-atom and bondless"][1] + b"[Li+],1,1\n[Na+],0,1\n[K+],1,2\n" * 8
    )
    for verb in ("pretrain", "probe", "finetune"):
        yield Case(
            "few molecules",
            "bondless molecules only",
            v.reading("in.csv")[verb],
            0,
            prepare=bondless,
        )


def models(v: Verbs, good: Path) -> Iterator[Case]:
    """Yield models that are damaged, foreign, newer, or not there."""
    for name, (spoil, says) in bad.SPOILT_MODELS.items():

        def model(folder: Path, spoil: Callable[[Path], object] = spoil) -> None:
            spoil(bad.copy(good / "run" / "model.safetensors", folder / "model.safetensors"))

        def fitted(folder: Path, spoil: Callable[[Path], object] = spoil) -> None:
            spoil(bad.copy(good / "fitted", folder / "fit") / "model.safetensors")

        for words in v.using("model.safetensors").values():
            yield Case("models", name, words, says=says, prepare=model)
        yield Case(
            "models",
            name,
            ["predict", v.table, "-m", "fit", "-o", "out.csv"],
            says=says,
            prepare=fitted,
        )
        yield Case("models", name, ["plot", "fit", "-o", "figures"], says=says, prepare=fitted)
    absent = {
        "an unknown model": ("graphlog-moll", ("graphlog-moll", "did you mean 'graphlog-mol'")),
        "a missing model file": (
            "gone/model.safetensors",
            ("gone/model.safetensors", "check the path"),
        ),
        "a folder without a model": (".", ()),
    }
    for name, (model_name, says) in absent.items():
        for words in v.using(model_name).values():
            yield Case("models", name, words, says=says)
    pickled = file_of("old.pth", b"\x80\x04\x95cos\nsystem\n(S'touch pwned'\ntR.")
    convert = ["convert", "old.pth", "-o", "out.safetensors"]
    for words in (convert, ["embed", v.table, "-m", "old.pth", "-o", "out.npz"]):
        yield Case("models", "a pickle that runs code", words, says=("old.pth",), prepare=pickled)
    for name, content in {
        "an empty .pth": b"",
        "text for a .pth": b"hello",
        "zeros for a .pth": bytes(1000),
    }.items():
        yield Case("models", name, convert, says=("old.pth",), prepare=file_of("old.pth", content))
    again = ["convert", str(good / "run" / "model.safetensors"), "-o", "out.safetensors"]
    yield Case("models", "a model converted again", again, says=("model.safetensors",))
    for model_name in (v.run, "graphlog-mol"):
        words = ["predict", v.table, "-m", model_name, "-o", "out.csv"]
        yield Case("models", "an encoder asked to predict", words, says=("graphlog finetune",))


def stores(v: Verbs, good: Path) -> Iterator[Case]:
    """Yield stores that are damaged, foreign, newer, or of another schema."""
    for name, (spoil, says) in bad.SPOILT_STORES.items():

        def store(folder: Path, spoil: Callable[[Path], object] = spoil) -> None:
            spoil(bad.copy(good / "good.store", folder / "in.store"))

        for words in (
            *v.reading("in.store").values(),
            ["info", "in.store"],
            ["plot", v.run, "-o", "figures", "--input", "in.store"],
        ):
            yield Case("stores", name, words, says=("in.store", *says), prepare=store)
    says = ("'molecule'", "the model reads 'molecule-cip'", "--schema molecule-cip")
    for verb in ("embed", "probe", "finetune", "predict", "prototypes"):
        other = v.reading(str(good / "plain.store"))[verb]
        yield Case("stores", "a store of another schema", other, says=says)


def runs(v: Verbs, good: Path) -> Iterator[Case]:
    """Yield run folders whose checkpoints are spoilt, that are in use, or that are none."""
    for name, (how, says) in bad.SPOILT_CHECKPOINTS.items():
        for verb, source in (("pretrain", good / "run"), ("finetune", good / "fitted")):
            words = (
                ["pretrain", v.store, "-o", "out"]
                if verb == "pretrain"
                else v.reading(v.table)[verb]
            )
            prepare = partial(bad.interrupted_run, source, how)
            yield Case("checkpoints", name, [*words, "--resume"], says=says, prepare=prepare)
    for verb, source in (("pretrain", good / "run"), ("finetune", good / "fitted")):
        words, there = v.reading(v.table)[verb], partial(_there, source)
        yield Case(
            "runs", "a run that exists", words, says=("--resume", "--overwrite"), prepare=there
        )
        for flag in ("--resume", "--overwrite"):
            yield Case(
                "runs",
                f"a run in use, {flag}",
                [*words, flag],
                says=("in use",),
                prepare=partial(_held, source),
            )
        yield Case(
            "runs",
            "--resume and --overwrite",
            [*words, "--resume", "--overwrite"],
            says=("contradict",),
            prepare=there,
        )
        yield Case(
            "runs",
            "a folder of other things",
            [*words, "--overwrite"],
            says=("other files",),
            prepare=_thesis,
        )
        yield Case("runs", "a file in the way", words, says=("file",), prepare=file_of("out", b"x"))
        yield Case("runs", "nothing to resume", [*words, "--resume"], 0)
    go_on, there = ["pretrain", v.store, "-o", "out", "--resume"], partial(_there, good / "run")
    yield Case(
        "runs", "resumed with another seed", [*go_on, "--seed", "7"], says=("seed",), prepare=there
    )
    yield Case(
        "runs",
        "resumed on other graphs",
        [*go_on, "--limit", "50"],
        says=("other graphs",),
        prepare=there,
    )
    over = ["featurize", v.table, "-o", "out", "--overwrite"]
    yield Case(
        "runs", "a store over other things", over, says=("not a graph store",), prepare=_thesis
    )
    yield Case(
        "runs",
        "a tour over other things",
        ["quickstart", "-o", "out"],
        says=("other files",),
        prepare=_thesis,
    )


def _there(source: Path, folder: Path) -> Path:
    return bad.copy(source, folder / "out")


def _thesis(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "thesis.tex").write_text("precious")


def _held(source: Path, folder: Path) -> None:
    """Copy a run and hold its lock from this process, as another command would."""
    descriptor = os.open(_there(source, folder) / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, b"4711")
