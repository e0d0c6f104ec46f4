"""Check that damaged files of every kind never give other numbers or a traceback."""

import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import Case
from inputs import SMALL, SMILES, untrained

import graphlog
from graphlog.extras.neighbors import Index

_TOKENS = (
    *(b"\0" * 16, b"\xff" * 8, b'"', b"{", b"[" * 2000, b"}", b",", b"\n", b"\r", b";", b"-1"),
    *(b"1e400", b"NaN", b"99999999999999999999", b"null", b"../../x", b"[#119]", b"[CH128]"),
    *(b"%99", b"\x1b[2J", "\u202e".encode()),
)


def mutate(data: bytes, draw: random.Random) -> bytes:
    """Return ``data`` with random changes in one to three places, never unchanged."""
    changed = data
    while changed == data:
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            position, token = draw.randrange(len(changed) + 1), draw.choice(_TOKENS)
            head, tail = changed[:position], changed[position:]
            match draw.randrange(8):
                case 0 | 1 if tail:
                    changed = head + bytes([tail[0] ^ (1 << draw.randrange(8))]) + tail[1:]
                case 2 if digits := [k for k, byte in enumerate(changed) if 48 <= byte <= 57]:
                    k = draw.choice(digits)
                    changed = changed[:k] + b"%d" % draw.randrange(10) + changed[k + 1 :]
                case 3:
                    changed = head
                case 4:
                    changed = head + tail[draw.randrange(1, 40) :]
                case 5:
                    changed = head + tail[: draw.randrange(1, 400)] * 2 + tail
                case 6:
                    changed = head + token + tail[len(token) :]
                case _:
                    changed = head + token + tail
    return changed


def numbers(*values: Any) -> bytes:
    """Return arrays, numbers and texts as bytes, for comparison."""
    return b"|".join(
        np.ascontiguousarray(v).tobytes() if isinstance(v, np.ndarray) else repr(v).encode()
        for v in values
    )


def kinds() -> dict[str, tuple[str, Callable[[Path], object]]]:
    """Return the path of each kind of file, and a function that opens the file.

    The function returns the numbers in the file as bytes. For files that a user may edit, whose
    numbers may therefore change, it returns something else.
    """

    def store(path: Path) -> bytes:
        graphs = graphlog.open_store(path)
        embedded = untrained(graphs.schema.name).embed(graphs)
        return numbers(embedded, np.asarray(graphs.labels), graphs.texts())

    def query(path: Path) -> bytes:
        index = Index.load(path)
        neighbors = index.query(untrained(), SMILES, 3)
        records = [index.record(row) for row in sorted(set(neighbors.rows.ravel().tolist()))]
        return numbers(neighbors.rows, neighbors.similarity, records)

    def resume(path: Path) -> bytes:
        encoder = graphlog.pretrain(SMILES, run_dir=path.parent, resume=True)
        return numbers(encoder.embed(SMILES))

    def convert(path: Path) -> bytes:
        encoder = graphlog.convert(path, path.with_name("converted.safetensors"))
        return numbers(*(t.numpy() for _, t in sorted(encoder.network.state_dict().items())))

    def use_split(path: Path) -> bytes:
        labeled: dict[str, Any] = {"targets": ["value"], "split": path, "baselines": ()}
        table = path.with_name("molecules.csv")
        fitted = graphlog.finetune(untrained(), table, seeds=(0,), epochs=1, **labeled)
        return numbers(fitted.predict(SMILES))

    def configured(path: Path) -> object:
        return graphlog.pretrain(SMILES, config=path, epochs=1, **SMALL)

    read = partial(graphlog.read_molecules, workers=1)
    tables = ("molecules.csv", "semicolon.csv", "molecules.csv.gz", "molecules.parquet")
    return {
        "model": ("run/model.safetensors", lambda p: numbers(graphlog.load(p).embed(SMILES))),
        "store": ("store", store),
        "index": ("index", query),
        "checkpoint": ("run/checkpoint", resume),
        "predictor": ("tuned", lambda p: numbers(graphlog.load_predictor(p).predict(SMILES))),
        "foreign weights": ("gin.pth", convert),
        "split": ("split.json", use_split),
        "config": ("run/config.toml", configured),
        "metrics": ("run/metrics.jsonl", lambda p: graphlog.draw_run(p.parent, p.parent / "drawn")),
        "scores": ("tuned/scores.json", lambda p: graphlog.describe(p.parent)),
        "jsonl": ("graphs.jsonl", graphlog.read_graphs),
        "gin-text": ("graphs.txt", graphlog.read_graphs),
        "network": ("network.csv", graphlog.read_proteins),
        **{name: (name, read) for name in (*tables, "molecules.sdf")},
    }


def files(good: Path, seeds: range) -> Iterator[Case]:
    """Yield cases that open a file of each kind with a few changed bytes."""

    def work(name: str, seed: int, intact: object, folder: Path) -> str:
        draw, (target, use) = random.Random(f"{name}-{seed}"), kinds()[name]
        shutil.copytree(good, folder, dirs_exist_ok=True)
        inside = sorted(p for p in (folder / target).rglob("*") if p.is_file())
        victim = draw.choice(inside) if inside else folder / target
        victim.write_bytes(mutate(victim.read_bytes(), draw))
        result = use(folder / target)
        if not isinstance(intact, bytes):
            return "read"
        return "same" if result == intact else f"wrong: {victim.name}"

    for name, (target, use) in kinds().items():
        copy = good.parent / "intact" / name
        shutil.copytree(good, copy)
        intact = use(copy / target)
        yield from (Case(name, seed, partial(work, name, seed, intact)) for seed in seeds)
