"""Write small intact inputs of every kind, and define the jobs that read them."""

import gzip
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rdkit import Chem
from safetensors import safe_open

import graphlog
from graphlog.benchmark.cells import SCALES
from graphlog.domains import schema_named
from graphlog.encoders.encoder import EncoderConfig
from graphlog.extras.neighbors import Index

SMILES = (
    *("CCO", "c1ccccc1", "CC(=O)O", "CCN", "C[C@H](N)C(=O)O", "C/C=C/C", "[Na+].[Cl-]"),
    *("OC1CCCCC1", "O=C(O)c1ccccc1OC(C)=O", "CN1C=NC2=C1C(=O)N(C(=O)N2C)C", "[13CH4]"),
    "C1CC1[N+](C)(C)C",
)
SMALL: dict[str, Any] = {"batch_size": 6, "encoder": {"dim": 8, "layers": 2}}
MIRROR = os.environ.get("GRAPHLOG_MIRROR", "")
"""Folder of the data sets that ``data get`` copies; empty if there is none."""
_TIMINGS = {"graphs_per_s", "seconds", "fit_seconds"}


@cache
def untrained(schema: str = "molecule-cip") -> Any:
    """Return a tiny encoder with random weights."""
    return graphlog.random_encoder(EncoderConfig(dim=8, layers=2), schema_named(schema), seed=0)


def write_inputs(good: Path) -> None:
    """Write tables, graphs, a network, weights, a store, an index, a split and two runs."""
    rows = [(f"m{k}", SMILES[k % 12], k % 2, (7 * k) % 11 / 2) for k in range(48)]
    molecules = pd.DataFrame(rows, columns=["id", "smiles", "active", "value"])
    bad, table = molecules.head(1).assign(id="bad", smiles="C("), good / "molecules.csv"
    tables = {"molecules.csv": molecules, "semicolon.csv": molecules, "other.csv": molecules[:9]}
    for name, frame in {**tables, "rows.csv": pd.concat([molecules, bad])}.items():
        delimiter = ";" if name == "semicolon.csv" else ","
        frame.to_csv(good / name, sep=delimiter, index=False, lineterminator="\r\n")
    (good / "molecules.csv.gz").write_bytes(gzip.compress(table.read_bytes()))
    molecules.to_parquet(good / "molecules.parquet")
    with Chem.SDWriter(str(good / "molecules.sdf")) as writer:
        for smiles in SMILES:
            writer.write(Chem.MolFromSmiles(smiles))
    graph = {"edges": [[0, 1], [1, 2]], "x": [[0], [1], [0]], "edge_attr": [[0], [1]]}
    lines = [json.dumps({**graph, "y": k % 2}) for k in range(8)]
    (good / "graphs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    text = "".join(f"3 {k % 2}\n0 1 1\n1 2 0 2\n0 1 1\n" for k in range(8))
    (good / "graphs.txt").write_text(f"8\n{text}", encoding="utf-8")
    channels = "neighborhood,fusion,cooccurence,coexpression,experimental,database,textmining"
    pairs = [(a, b) for a in range(12) for b in range(a + 1, 12) if (a + b) % 3]
    links = [f"6239.p{a},6239.p{b},0,0,{a * 30},{b * 70},900,0,{a * b},950" for a, b in pairs]
    network = [f"protein1,protein2,{channels},combined_score", *links]
    (good / "network.csv").write_text("\n".join(network) + "\n", encoding="utf-8")
    _write_weights(good / "gin.pth")
    graphlog.read_molecules(table, targets=["active", "value"], store_path=good / "store")
    Index.build(untrained(), [*SMILES, "bad"]).save(good / "index")
    graphlog.split_file(table, good / "split.json", "random")
    graphlog.pretrain(SMILES, run_dir=good / "run", epochs=2, seed=0, **SMALL)
    labeled: dict[str, Any] = {"seeds": (0,), "epochs": 2, "split": "random", "baselines": ()}
    tuned = {"targets": ["value"], "run_dir": good / "tuned", **labeled}
    graphlog.finetune(good / "run", table, **tuned)
    _shrink_the_smoke_scale()
    if MIRROR:
        os.environ["GRAPHLOG_MIRROR"] = f"file://{MIRROR}"  # downloads instead of links


def _write_weights(path: Path) -> None:
    """Write random weights in the format of pre-train-GNNs."""
    shapes = {"x_embedding1.weight": (120, 8), "x_embedding2.weight": (3, 8)}
    for k in range(2):
        shapes |= {f"gnns.{k}.mlp.0.weight": (16, 8), f"gnns.{k}.mlp.0.bias": (16,)}
        shapes |= {f"gnns.{k}.mlp.2.weight": (8, 16), f"gnns.{k}.mlp.2.bias": (8,)}
        shapes |= {f"gnns.{k}.edge_embedding{j}.weight": (9 - 3 * j, 8) for j in (1, 2)}
        names = ("weight", "bias", "running_mean", "running_var")
        shapes |= {f"batch_norms.{k}.{name}": (8,) for name in names}
    generator = torch.Generator().manual_seed(0)
    state = {name: torch.rand(*shape, generator=generator) for name, shape in shapes.items()}
    state |= {f"batch_norms.{k}.num_batches_tracked": torch.tensor(7) for k in range(2)}
    torch.save(state, path)


@dataclass(frozen=True)
class Job:
    """A command that runs in its own folder and writes to names that start with ``out``."""

    words: str
    read_output: Callable[[Path], Any]
    """Function of the folder; returns the output to compare, or None if there is none yet."""
    again: str = ""
    """Options for a second run in the same folder."""
    resumes: bool = False
    """Whether an interrupted run leaves unfinished output, which a second run continues."""
    old: str = ""
    """A command that first writes another output to the same path; empty for none."""


def jobs(good: Path) -> dict[str, Job]:
    """Return a small job of each command that writes."""
    one, labeled = "--workers 1 --quiet", "--targets value --split random --baselines none"
    table, run = good / "rows.csv", f"-m {good / 'run'}"
    short = f"{labeled} --set epochs=2 --set checkpoint_every_s=0 {one}"
    tiny = "--set encoder.dim=8 --set encoder.layers=2 --batch-size 16"
    steps = "--set checkpoint_every_s=0 --set log_every=1 --precision fp32"
    featurize = f"featurize {table} --targets value -o out {one}"
    embed = f"embed {table} {run} {one} -o"
    small = f"featurize {good / 'other.csv'} -o out {one}"
    first = f"embed {good / 'other.csv'} {run} {one} -o out.npz"
    pretrain = f"pretrain {good / 'store'} -o out --epochs 3 {tiny} {steps} {one}"
    finetune = f"finetune {table} {run} -o out --seeds 0,1 {short}"
    tune = f"tune {table} {run} -o out --trials 3 --seeds 0 {short}"
    probe = f"probe {table} {run} {labeled} --workers 1 --with ecfp4 -o out"
    convert = f"convert {good / 'gin.pth'} -o out.safetensors --quiet"
    prototypes = f"prototypes {good / 'run'} --input {table} -o out {one}"
    cells = "--scale smoke --seeds 0 --methods untrained,graphlog,ecfp-lr --quiet"
    atlas = _bytes("out/tree.json", "out/members.csv", "out/atlas.html")
    zinc = _bytes("out/chem/pretrain/zinc_moses_250k.smi.gz")
    vectors = {name: _bytes(f"out{name}", "rejects.csv") for name in (".npz", ".csv", ".parquet")}
    resumed: dict[str, Any] = {"again": "--resume", "resumes": True}
    every = {
        "featurize": Job(featurize, _store, "--overwrite"),
        "featurize over a store": Job(featurize, _store, "--overwrite", old=small),
        **{f"embed {name}": Job(f"{embed} out{name}", read) for name, read in vectors.items()},
        "embed over a file": Job(f"{embed} out.npz", _bytes("out.npz"), old=first),
        "predict": Job(f"predict {table} -m {good / 'tuned'} {one} -o out.csv", vectors[".csv"]),
        "probe": Job(probe, _probe, "--overwrite", resumes=True),
        "pretrain": Job(pretrain, _run("out"), **resumed),
        "finetune": Job(finetune, _run("out"), **resumed),
        "tune": Job(tune, _run("out/best", "out/best.toml"), **resumed),
        "prototypes": Job(prototypes, atlas, resumes=True),
        "data split": Job(f"data split {table} -o out.json {one}", _bytes("out.json")),
        "data get": Job("data get zinc250k --data-dir out --quiet", zinc, resumes=True),
        "benchmark": Job(f"benchmark molecules -o out {cells}", _cells, resumes=True),
        "convert": Job(convert, _bytes("out.safetensors")),
    }
    return {name: job for name, job in every.items() if MIRROR or name != "data get"}


def _shrink_the_smoke_scale() -> None:
    """Make the cells of the scale ``smoke`` as small as the other jobs."""
    pretrain = {"encoder.layers": 2, "encoder.dim": 8, "epochs": 2, "batch_size": 32}
    finetune = {"epochs": 1, "batch_size": 512, "layer": "last"}
    changes: dict[str, Any] = {"source": "nci5k", "limit": 64, "seeds": (0,)}
    for name, settings in (("pretrain", pretrain), ("finetune", finetune)):
        changes[name] = {**settings, "checkpoint_every_s": 0.0}
    SCALES["smoke"] = {"molecule": SCALES["smoke"]["molecule"].updated(changes)}


def _bytes(*names: str) -> Callable[[Path], Any]:
    """Return a function that reads the files of these names, if they exist."""

    def read(folder: Path) -> Any:
        return {n: (folder / n).read_bytes() for n in names if (folder / n).exists()} or None

    return read


def _probe(folder: Path) -> Any:
    has_model = (folder / "out" / "model.safetensors").exists()
    return _bytes("out/model.safetensors", "out/scores.json")(folder) if has_model else None


def _store(folder: Path) -> Any:
    if not (folder / "out").exists():
        return None
    store = graphlog.open_store(folder / "out")
    return (store.digest, store.texts(), len(store.rejects))


def _run(name: str, *files: str) -> Callable[[Path], Any]:
    """Return a function that reads the weights of a finished run, its log and more files."""

    def read(folder: Path) -> Any:
        run = folder / name
        if not (run / "model.safetensors").exists():
            return None
        with safe_open(run / "model.safetensors", "pt") as file:  # the header contains the date
            weights = {name: file.get_tensor(name).numpy().tobytes() for name in file.keys()}  # noqa: SIM118
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        rows = [{k: v for k, v in row.items() if k not in _TIMINGS} for row in rows]
        return (weights, rows, _bytes(*files)(folder))

    return read


def _cells(folder: Path) -> Any:
    """Return the scores of the finished cells by name, or None if there is no report yet."""
    if not (folder / "out" / "report" / "molecules.md").exists():
        return None
    rows = pd.read_csv(folder / "out" / "molecules.csv.gz", keep_default_na=False)
    rows = rows[~rows["metric"].isin(_TIMINGS)]
    names = rows[["cell", "rule", "fold", "task", "metric"]].itertuples(index=False, name=None)
    return dict(zip(map(repr, names), map(repr, rows["value"]), strict=True))
