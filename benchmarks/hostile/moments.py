"""The cases of ``hostile`` that are wrong by what was typed, or by what happens meanwhile.

Names, options, disks, Ctrl-C, pipes.
"""

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import checks
import inputs as bad
from cases import OLD, ONE, SHORT, SMALL, Verbs, file_of
from runner import Case, wait_for


def unknown_names(v: Verbs) -> Iterator[Case]:
    """Yield names that are almost right, each to be answered with the nearest."""
    pre, fit, probe, embed = (
        v.reading(v.table)[verb] for verb in ("pretrain", "finetune", "probe", "embed")
    )
    cases = {
        "verb": (["featurize", v.table], ("featurize", "featurize")),
        "option": ([*pre[:4], "--epoch", "3"], ("--epochs",)),
        "data set": (["featurize", "bbpb", "-o", "s"], ("bbpb", "'bbbp'")),
        "data set to embed": (["embed", "bbpb", "-m", v.run, "-o", "out.npz"], ("bbpb", "'bbbp'")),
        "data set to fetch": (["data", "get", "clintoks"], ("'clintox'",)),
        "data set to describe": (["data", "info", "tox12"], ("'tox21'",)),
        "objective": ([*pre, "--objective", "graphcll"], ("'graphcl'",)),
        "recipe": ([*pre, "--recipe", "papers"], ("'paper'",)),
        "backbone": ([*pre, "--backbone", "ginn"], ("gin",)),
        "precision": ([*pre[:4], "--precision", "fp23"], ("fp32",)),
        "device": ([*pre, "--device", "gpu"], ("gpu", "cuda")),
        "device to embed on": ([*embed, "--device", "cuba"], ("cuba", "cuda")),
        "setting": ([*pre, "--set", "encoder.dimm=4"], ("encoder.dimm", "encoder.dim")),
        "setting of the objective": (
            [*pre, "--set", "objective.dept=4"],
            ("objective.dept", "objective.depth"),
        ),
        "setting of finetune": ([*fit, "--set", "dropot=0.1"], ("dropot", "dropout")),
        "split": ([*probe, "--split", "scaffolt"], ("scaffolt", "scaffold")),
        "split file": ([*probe, "--split", "gone.json"], ("gone.json",)),
        "kind of split": (
            ["data", "split", v.table, "-o", "s.json", "--kind", "scaffolt"],
            ("'scaffold'",),
        ),
        "schema": (
            ["featurize", v.table, "-o", "s", "--schema", "molecule-ritch"],
            ("molecule-rich",),
        ),
        "layer": ([*embed, "--layer", "lost"], ("'last'",)),
        "task": ([*probe, "--task", "classify"], ("classification",)),
        "baseline": ([*fit, "--baselines", "ecfp-rff"], ("'ecfp-rf'",)),
        "baseline of probe": ([*probe, "--baselines", "ecfp-rff"], ("'ecfp-rf'",)),
        "selection": ([*fit, "--select", "best"], ("best-valid",)),
        "color": (["plot", v.run, "-o", "f", "--color", "scaffolt"], ("scaffold",)),
        "path": (["info", "rnu"], ("rnu",)),
        "run to plot": (["plot", "rnu", "-o", "f"], ("rnu",)),
        "settings file": ([*pre, "--config", "gone.toml"], ("gone.toml",)),
    }
    for name, (words, says) in cases.items():
        yield Case("unknown names", name, words, says=says)


def contradictions(v: Verbs) -> Iterator[Case]:
    """Yield options that contradict each other, and values that cannot be."""
    pre, fit, probe, embed, predict = (
        v.reading(v.table)[verb] for verb in ("pretrain", "finetune", "probe", "embed", "predict")
    )
    cases = {
        "--resume with --init": ([*pre, "--resume", "--init", "random"], ("--init", "--resume")),
        "one setting twice": ([*pre, "--set", "epochs=3"], ("epochs", "twice")),
        "--backbone against --set": (
            [*pre, "--backbone", "gin", "--set", "encoder.backbone=gcn"],
            ("backbone", "twice"),
        ),
        "--init of another shape": ([*pre, "--init", "graphlog-mol"], ("encoder.layers", "set")),
        "--config of another recipe": (
            [*pre, "--config", f"{v.run}/config.toml", "--recipe", "paper"],
            ("--recipe",),
        ),
        "seeds given twice": ([*fit, "--seeds", "1,1"], ("seeds",)),
        "seeds that are words": ([*fit, "--seeds", "a,b"], ("whole numbers",)),
        "fractions above 1": (
            ["data", "split", v.table, "-o", "s.json", "--fractions", "0.9,0.9,0.1"],
            ("sum to 1",),
        ),
        "batch of one": ([*pre[:4], "--batch-size", "1"], ("batch",)),
        "no epochs": ([*pre[:4], "--epochs", "0"], ("epochs",)),
        "a negative seed": ([*pre, "--seed", "-1"], ("seed",)),
        "a width of zero": ([*pre[:4], "--set", "encoder.dim=0"], ("encoder.dim",)),
        "a width of words": ([*pre[:4], "--set", "encoder.dim=wide"], ("encoder.dim",)),
        "a setting without a value": ([*pre, "--set", "nonsense"], ("key=value",)),
        "a rate beyond 1": ([*pre, "--set", "objective.mask_rate=3"], ("mask_rate",)),
        "an infinite learning rate": ([*pre, "--set", "learning_rate=inf"], ("learning_rate",)),
        "numbers as classes": ([*probe, "--targets", "v", "--task", "classification"], ("0 or 1",)),
        "an output of unknown kind": ([*embed[:4], "-o", "out.xlsx"], (".npz",)),
        "predictions of unknown kind": ([*predict[:4], "-o", "out.tsv"], (".csv",)),
        "an output in no folder": ([*embed[:4], "-o", "gone/out.npz"], ("gone",)),
        "a split in no folder": (
            ["data", "split", v.table, "-o", "gone/split.json"],
            ("gone", "folder"),
        ),
        "no output": (["embed", v.table, "-m", v.run], ("--output",)),
        "no input": (["embed", "-m", v.run, "-o", "out.npz"], ("INPUT",)),
        "a store that exists": (["featurize", v.table, "-o", v.store], ("--overwrite",)),
        "plot of a store": (["plot", v.store, "-o", "f"], ("run",)),
        "info of nothing known": (
            ["info", "."],
            ("not a model, store or run", "manifest.json", "that graphlog wrote"),
        ),
        "pretrain on a model": (
            ["pretrain", f"{v.run}/model.safetensors", "-o", "out"],
            ("model.safetensors",),
        ),
        "embed a run": (["embed", v.run, "-m", v.run, "-o", "out.npz"], ("run",)),
    }
    for name, (words, says) in cases.items():
        yield Case("contradictions", name, words, says=says)


def disks(v: Verbs, mounting: bool) -> Iterator[Case]:
    """Yield full, read-only or limited disks; those to be mounted only where that is allowed."""
    writing = {
        "featurize": ["featurize", "nci5k", "-o", "small/out.store", "--limit", "400", *ONE],
        "data split": ["data", "split", v.table, "-o", "small/split.json", *ONE],
        "embed .npz": ["embed", "nci5k", "-m", v.run, "-o", "small/out.npz", *ONE],
        "embed .csv": ["embed", "nci5k", "-m", v.run, "-o", "small/out.csv", *ONE],
        "predict": ["predict", "nci5k", "-m", v.fitted, "-o", "small/out.csv", *ONE],
        "pretrain": ["pretrain", v.store, "-o", "small/out", *SMALL],
        "finetune": [
            "finetune",
            v.table,
            "-m",
            v.run,
            "-o",
            "small/out",
            "--targets",
            "y",
            *SHORT,
            *ONE,
        ],
        "plot": ["plot", v.run, "-o", "small/figures"],
    } | ({"convert": ["convert", str(OLD), "-o", "small/out.safetensors"]} if OLD.is_file() else {})
    resumable = frozenset(
        {"small/out", "small/figures"}
    )  # a run goes on from its last checkpoint; a folder is no half of a figure
    for verb, words in writing.items():
        limit, temporary = (
            200 if verb == "data split" else 2048,
            verb in ("embed .npz", "embed .csv", "predict"),
        )
        name, says = "a file beyond the limit (ulimit -f)", ("TMPDIR",) if temporary else ("small",)
        yield Case(
            "disks",
            name,
            words,
            says=says,
            prepare=lambda f: (f / "small").mkdir(),
            largest_file=limit,
            may_leave=resumable,
        )
        for size in ("4k", "48k", "400k") if mounting and verb != "data split" else ():
            if (
                size == "4k"
                or verb
                in {
                    "48k": ("embed .npz", "embed .csv", "pretrain", "finetune", "plot"),
                    "400k": ("embed .npz",),
                }[size]
            ):
                yield Case(
                    "disks",
                    f"a disk of {size}",
                    words,
                    says=("small/",),
                    mount=f"size={size}",
                    may_leave=resumable,
                )
        if mounting:
            yield Case("disks", "a read-only disk", words, says=("small",), mount="ro")
    if mounting:
        cramped = partial(
            Case,
            "disks",
            "no room for temporary files",
            mount="size=8k",
            environment={"TMPDIR": "small"},
            says=("TMPDIR",),
        )
        yield cramped(words=["embed", "nci5k", "-m", v.run, "-o", "out.npz", *ONE])
        yield cramped(
            words=["predict", "-", "-m", v.fitted, "-o", "out.csv", *ONE],
            stdin=bad.GOOD.encode() * 4000,
        )
    for words in (["models"], ["info", v.run], ["data", "list", "--json"]):
        yield Case(
            "disks", "results to a full device", words, says=("disk is full",), stdout="/dev/full"
        )


def interruptions(v: Verbs) -> Iterator[Case]:
    """Yield Ctrl-C at work of every kind, and readers of standard output that go away."""

    def ctrl_c(sign: str, wait: float, pid: int, folder: Path) -> None:
        if wait_for(lambda: any(folder.glob(sign)), pid):
            time.sleep(wait)
            os.killpg(pid, signal.SIGINT)  # as a terminal does: to the command and its workers

    long = [w if w != "2" else "2000" for w in SMALL]
    fit = [
        w if k != v.reading(v.table)["finetune"].index("--epochs") + 1 else "5000"
        for k, w in enumerate(v.reading(v.table)["finetune"])
    ]
    many = ["featurize", "zinc250k", "-o", "out.store", "--workers", "2"]
    embed = ["embed", "wehi10k", "-m", "graphlog-mol", "-o", "out.npz", *ONE]
    predict = ["predict", "wehi10k", "-m", v.fitted, "-o", "out.csv", "--batch-size", "2", *ONE]
    cases = {
        "Ctrl-C while training": (
            ["pretrain", v.store, "-o", "out", *long],
            "out/metrics.jsonl",
            0.3,
            "--resume",
        ),
        "Ctrl-C while fine-tuning": (fit, "out/metrics.jsonl", 0.3, "--resume"),
        "Ctrl-C while featurizing": (many, "out.store.partial-*", 1.0, "interrupted"),
        "Ctrl-C while embedding": (embed, ".out.npz.partial-*", 0.2, "interrupted"),
        "Ctrl-C while predicting": (predict, ".out.csv.partial-*", 0.05, "interrupted"),
    }
    for name, (words, sign, wait, says) in cases.items():
        check, left = (
            (checks.is_resumable, frozenset({"out"}))
            if says == "--resume"
            else (None, frozenset[str]())
        )
        during = partial(ctrl_c, sign, wait)
        yield Case(
            "interruptions", name, words, 130, (says,), during=during, check=check, may_leave=left
        )
    for words in (["data", "list"], ["--help"], ["models"], ["info", v.run, "--json"]):
        yield Case(
            "interruptions",
            "a reader that goes away",
            words,
            141,
            pipe_closed=True,
            check=checks.is_silent_about_the_pipe,
        )


def fuzz(v: Verbs, count: int) -> Iterator[Case]:
    """Yield tables of fuzzed rows: mostly molecules, mostly none, and as a plain list."""
    from graphlog.api import read_molecules

    store = read_molecules("nci5k", limit=500, workers=1)
    real = store.texts(range(len(store)))
    for name, edits, code in (("slightly", (0, 0, 0, 1), 0), ("badly", (1, 2, 4, 8), 2)):
        content = bad.fuzzed_table(count, 0, real, edits)
        for verb in ("featurize", "data split", "embed", "predict"):
            words = v.reading("in.csv")[verb]
            yield Case(
                "fuzz",
                f"{count:,} rows, {name} fuzzed",
                words,
                code,
                prepare=file_of("in.csv", content),
                check=checks.copes(count),
            )
    lines = "\n".join(
        text.replace("\n", "") or "C" for text in bad.fuzzed_rows(count, 1, real, (0, 0, 0, 1))
    )
    listed = file_of("in.smi", lines.encode("utf-8", "surrogatepass"))
    yield Case(
        "fuzz",
        f"{count:,} lines, slightly fuzzed",
        v.reading("in.smi")["featurize"],
        0,
        prepare=listed,
        check=checks.copes(count),
    )
