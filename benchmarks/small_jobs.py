"""One small job of each verb, run as a process of its own: for ``faults`` and ``kill_resume``.

Each job knows what a second run of it is called, and what of its output must come out the same.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "hostile"), str(HERE.parent / "src")]
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(HERE.parent / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
)
os.environ.setdefault("OMP_NUM_THREADS", "1")

from runner import Case, Ended, run  # noqa: E402 - found through the path set above

SMILES = (
    *("CCO", "c1ccccc1", "CC(=O)O", "CCN", "C[C@H](N)C(=O)O", "C/C=C/C", "[Na+].[Cl-]"),
    *("OC1CCCCC1", "O=C(O)c1ccccc1OC(C)=O", "CN1C=NC2=C1C(=O)N(C(=O)N2C)C", "[13CH4]"),
    *("C1CC1[N+](C)(C)C", "NCC(=O)O", "CCCCO", "Oc1ccccc1", "CC#N"),
)
MIRROR = Path(os.environ.get("GRAPHLOG_MIRROR") or "nowhere").absolute()
"""Where ``data get``, ``convert`` and ``benchmark`` find real data."""
_ONE = ("--workers", "1", "--quiet")
_ENCODER = ("--set", "encoder.dim=8", "--set", "encoder.layers=2")
_PRETRAIN = ("--epochs", "3", "--batch-size", "16", *_ENCODER, "--precision", "fp32")
_EVERY_STEP = ("--set", "checkpoint_every_s=0", "--set", "log_every=1")
_FINETUNE = ("--epochs", "2", "--split", "random", "--baselines", "none", "--targets", "y")
_TIMED = {"graphs_per_s", "seconds", "fit_seconds"}


@dataclass(frozen=True)
class Job:
    """One command, run in a folder of its own, writing to names that start with ``out``."""

    words: Sequence[str]
    seen: Callable[[Path], Any]
    """Returns what must come out the same, or None where there is no output (yet)."""
    again: Sequence[str] = ()
    """Options of a second run in the same folder."""
    resumable: bool = False
    """Whether an unfinished output stays, to be continued."""
    old: Sequence[str] = ()
    """A command that first leaves another output at the same place."""
    environment: dict[str, str] = field(default_factory=dict[str, str])

    def start(self, folder: Path, again: bool = False, **choices: Any) -> Ended:
        """Run the command in ``folder``; ``choices`` are fields of the case."""
        words = [*self.words, *(self.again if again or self.old else ())]
        return run(Case("", "", words, None, environment=self.environment, **choices), folder)

    def prepare(self, folder: Path) -> None:
        """Leave the older output that the job replaces."""
        if self.old:
            run(Case("", "", self.old, None, environment=self.environment), folder)


def make_inputs(good: Path) -> dict[str, Job]:
    """Write tables, a store and models into ``good`` and return the jobs that read them."""
    table, other = good / "molecules.csv", good / "other.csv"
    rows = [f"{s},{k % 2},{len(s) / 7:.2f}" for k, s in enumerate(3 * SMILES)]
    table.write_text("\n".join(["smiles,y,v", *rows, "C(,1,2"]) + "\n", encoding="utf-8")
    other.write_text("\n".join(["smiles,y,v", *rows[:9]]) + "\n", encoding="utf-8")
    store, encoder, fitted = (str(good / name) for name in ("store", "run", "fitted"))
    for words in (
        ["featurize", str(table), "-o", store, "--targets", "y", *_ONE],
        ["pretrain", store, "-o", encoder, *_PRETRAIN, *_ONE],
        ["finetune", str(table), "-m", encoder, "-o", fitted, *_FINETUNE, "--seeds", "0", *_ONE],
    ):
        ended = run(Case("", "", words), good)
        if ended.code:
            raise SystemExit(f"graphlog {' '.join(words)}: {ended.err}")
    return _jobs(table, other, store, encoder, fitted)


def _jobs(table: Path, other: Path, store: str, encoder: str, fitted: str) -> dict[str, Job]:
    featurize = ["featurize", str(table), "-o", "out", "--targets", "y", *_ONE]
    embed = ["embed", str(table), "-m", encoder, *_ONE, "-o"]
    predict = ["predict", str(table), "-m", fitted, *_ONE, "-o", "out.csv"]
    probe = [
        *("probe", str(table), "-m", encoder, "--targets", "y", "--split", "random"),
        *("--baseline-seeds", "0", "--baselines", "none", "--workers", "1"),
    ]
    jobs = {
        "featurize": Job(featurize, _store, ("--overwrite",)),
        "featurize over a store": Job(
            featurize, _store, ("--overwrite",), old=["featurize", str(other), "-o", "out", *_ONE]
        ),
        "embed .npz": Job([*embed, "out.npz"], _bytes("out.npz", "rejects.csv")),
        "embed .csv": Job([*embed, "out.csv"], _bytes("out.csv", "rejects.csv")),
        "embed .parquet": Job([*embed, "out.parquet"], _bytes("out.parquet", "rejects.csv")),
        "embed over a file": Job(
            [*embed, "out.npz"],
            _bytes("out.npz"),
            old=["embed", str(other), "-m", encoder, "-o", "out.npz", *_ONE],
        ),
        "predict": Job(predict, _bytes("out.csv", "rejects.csv")),
        "probe": Job(probe, _printed),
        "probe that is kept": Job(
            [*probe, "--with", "ecfp4", "-o", "out"], _probe, ("--overwrite",), resumable=True
        ),
        "pretrain": Job(
            ["pretrain", store, "-o", "out", *_PRETRAIN, *_EVERY_STEP, *_ONE],
            _run,
            ("--resume",),
            resumable=True,
        ),
        "finetune": Job(
            [
                *("finetune", str(table), "-m", encoder, "-o", "out", *_FINETUNE),
                *("--set", "checkpoint_every_s=0", "--seeds", "0,1", *_ONE),
            ],
            _run,
            ("--resume",),
            resumable=True,
        ),
        "prototypes": Job(
            ["prototypes", encoder, "--input", str(table), "-o", "out", *_ONE],
            _bytes("out/tree.json", "out/members.csv", "out/atlas.html"),
            resumable=True,
        ),
        "data split": Job(
            ["data", "split", str(table), "-o", "out.json", *_ONE], _bytes("out.json")
        ),
        "data get": Job(
            ["data", "get", "zinc250k", "--data-dir", "out", "--quiet"],
            _bytes("out/chem/pretrain/zinc_moses_250k.smi.gz"),
            resumable=True,
            environment={"GRAPHLOG_MIRROR": f"file://{MIRROR}"},
        ),
        "benchmark": Job(
            [
                *("benchmark", "molecules", "-o", "out", "--scale", "smoke", "--seeds", "0"),
                *("--methods", "untrained,graphlog,ecfp-lr", "--quiet"),
            ],
            _cells,
            resumable=True,
        ),
    }
    old = MIRROR / "checkpoints" / "pretrain-gnns_chem_gcn_contextpred.pth"
    if old.is_file():
        convert = ["convert", str(old), "-o", "out.safetensors", "--quiet"]
        jobs["convert"] = Job(convert, _bytes("out.safetensors"))
    return jobs


def preload() -> None:
    """Import what the verbs import late, once for all jobs, and make the smoke scale smaller."""
    import joblib.externals.loky  # noqa: F401
    import matplotlib.pyplot  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import sklearn.ensemble
    import sklearn.linear_model  # noqa: F401
    import torch

    import graphlog.api
    import graphlog.benchmark
    import graphlog.cli.main
    import graphlog.report.run  # noqa: F401
    from graphlog.benchmark.cells import SCALES

    torch.set_num_threads(1)
    often = {"checkpoint_every_s": 0.0}
    changes: dict[str, Any] = {"source": "nci5k", "limit": 64, "seeds": (0,)}
    changes["pretrain"] = {"encoder.layers": 2, "encoder.dim": 8, "epochs": 2, "batch_size": 32}
    changes["pretrain"] |= often
    changes["finetune"] = {"epochs": 1, "batch_size": 512, "layer": "last", **often}
    SCALES["smoke"] = {"molecule": SCALES["smoke"]["molecule"].updated(changes)}


def _printed(folder: Path) -> Any:
    printed = folder.parent / "stdout"
    return printed.read_text(encoding="utf-8") or None if printed.exists() else None


def _probe(folder: Path) -> Any:
    is_there = (folder / "out" / "model.safetensors").exists()
    return _bytes("out/model.safetensors", "out/scores.json")(folder) if is_there else None


def _bytes(*names: str) -> Callable[[Path], Any]:
    def seen(folder: Path) -> Any:
        whole = {name: (folder / name) for name in names if (folder / name).exists()}
        return {name: path.read_bytes() for name, path in whole.items()} or None

    return seen


def _store(folder: Path) -> Any:
    from graphlog import open_store

    if not (folder / "out").exists():
        return None
    store = open_store(folder / "out")
    store.verify()
    return (store.digest, list(store.texts(range(len(store)))), len(store.rejects))


def _run(folder: Path) -> Any:
    """Return the weights of a finished run, its log but for the speed, and its scores."""
    from safetensors import safe_open

    run = folder / "out"
    if not (run / "model.safetensors").exists():
        return None
    with safe_open(run / "model.safetensors", "pt") as file:
        weights = {name: file.get_tensor(name).numpy().tobytes() for name in file.keys()}  # noqa: SIM118
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows = [{k: v for k, v in row.items() if k not in _TIMED} for row in rows]
    return (weights, rows)


def _cells(folder: Path) -> Any:
    """Return the scores of the finished cells by name; None before there is a report."""
    import pandas as pd

    if not (folder / "out" / "report" / "molecules.md").exists():
        return None
    rows = pd.read_csv(folder / "out" / "molecules.csv.gz", keep_default_na=False)
    rows = rows[~rows["metric"].isin(_TIMED)]
    names = rows[["cell", "rule", "fold", "task", "metric"]].itertuples(index=False, name=None)
    return dict(zip(map(repr, names), map(repr, rows["value"]), strict=True))
