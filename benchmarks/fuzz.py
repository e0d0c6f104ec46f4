"""Damage every kind of file that graphlog reads, at random, and see that nothing is silently wrong.

A mutated file is opened through the public calls in a process of its own. It must give the numbers
of the intact file, or be refused with a one-line error. Anything else is a finding:

- ``wrong``: it opened and gave other numbers (only where the format promises to notice);
- ``traceback``: an exception that is not a GraphLoGError;
- ``crash`` or ``hang``: the process died, or took longer than its limit.

    python benchmarks/fuzz.py files --number 10000
    python benchmarks/fuzz.py files --kind store --seed 123 --number 1     # repeat one finding
    python benchmarks/fuzz.py smiles --number 1000000
    python benchmarks/fuzz.py options --number 10000
    python benchmarks/fuzz.py folders --number 100      # of other programs, under --overwrite
    python benchmarks/fuzz.py links                     # at every name that is written
    python benchmarks/fuzz.py changed --number 100      # stores whose time of change is put back
    python benchmarks/fuzz.py seeds                     # hash seeds 0 to 9
"""

import argparse
import contextlib
import csv
import gzip
import io
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SMILES = [
    "CCO",
    "c1ccccc1",
    "CC(=O)O",
    "CCN",
    "C[C@H](N)C(=O)O",
    "C/C=C/C",
    "[Na+].[Cl-]",
    "OC1CCCCC1",
    "O=C(O)c1ccccc1OC(C)=O",
    "CN1C=NC2=C1C(=O)N(C(=O)N2C)C",
    "[13CH4]",
    "C1CC1[N+](C)(C)C",
]
MEMORY_BYTES = 6 << 30
"""A file of a few kilobytes has no business with more memory than this."""
SECONDS = 60
"""Limit of one case; those seen take at most two."""


class Outcome(NamedTuple):
    """How one case ended."""

    kind: str
    seed: int
    result: str
    detail: str = ""


@dataclass(frozen=True)
class Kind:
    """One kind of file: how an intact one is made, and how it is used."""

    make: Callable[[Path], Path]
    """Writes into a folder what is needed, and returns the file or folder to damage."""
    use: Callable[[Path, Path], Any]
    """Opens the damaged copy (first path: the folder, second: the file) and returns its numbers."""
    notices: bool = True
    """Whether every changed number must be noticed; false for plain text that a user may edit."""
    damage: Callable[[Path, random.Random], str] | None = None
    """Changes the copy in its own way and returns what it did; None changes bytes of one file."""


def numbers(*values: Any) -> bytes:
    """Return the bytes of arrays, numbers and texts, to be compared."""
    return b"|".join(
        np.ascontiguousarray(v).tobytes() if isinstance(v, np.ndarray) else repr(v).encode()
        for v in values
    )


def _table(folder: Path, name: str = "molecules.csv", delimiter: str = ",") -> Path:
    path = folder / name
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(["id", "smiles", "active", "value"])
        for k in range(4 * len(SMILES)):
            smiles = SMILES[k % len(SMILES)]
            writer.writerow([f"m{k}", smiles, k % 2, (7 * k) % 11 / 2])
    return path


def _zipped(path: Path) -> Path:
    packed = path.with_name(path.name + ".gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    return packed


def _encoder(folder: Path) -> Path:
    import graphlog

    run = folder / "run"
    graphlog.pretrain(
        SMILES, run_dir=run, epochs=2, batch_size=6, encoder={"dim": 8, "layers": 2}, seed=0
    )
    return run


def _untrained(schema: Any) -> Any:
    import graphlog
    from graphlog.encoders.base import EncoderConfig

    return graphlog.random_encoder(EncoderConfig(dim=8, layers=2), schema, seed=0)


def _store(folder: Path) -> Path:
    import graphlog

    graphlog.read_molecules(_table(folder), targets=["value"], store_path=folder / "store")
    return folder / "store"


def _predictor(folder: Path) -> Path:
    import graphlog

    run = folder / "tuned"
    graphlog.finetune(
        _encoder(folder),
        _table(folder),
        targets=["value"],
        seeds=(0,),
        epochs=2,
        split="random",
        run_dir=run,
        baselines=(),
    )
    return run


def _load(folder: Path, path: Path) -> bytes:
    import graphlog

    return numbers(graphlog.load(path).embed(SMILES))


def _open_store(folder: Path, path: Path) -> bytes:
    import graphlog

    store = graphlog.open_store(path)
    embedded = _untrained(store.schema).embed(store)
    return numbers(embedded, np.asarray(store.labels), list(store.texts(range(len(store)))))


def _resume(folder: Path, path: Path) -> bytes:
    import graphlog

    run = path if path.is_dir() and path.name == "run" else folder / "run"
    return numbers(graphlog.pretrain(SMILES, run_dir=run, resume=True).embed(SMILES))


def _predict(folder: Path, path: Path) -> bytes:
    import graphlog

    return numbers(graphlog.load_predictor(folder / "tuned").predict(SMILES))


def _describe(folder: Path, path: Path) -> bytes:
    import graphlog

    graphlog.describe(path if path.is_dir() else path.parent)
    return b""


def _draw(folder: Path, path: Path) -> bytes:
    import graphlog

    graphlog.draw_run(folder / "run", folder / "figures")
    return b""


def _split(folder: Path) -> Path:
    import graphlog

    graphlog.split_file(_table(folder), folder / "split.json", "random")
    return folder / "split.json"


def _use_split(folder: Path, path: Path) -> bytes:
    import graphlog

    predictor = graphlog.finetune(
        _untrained(graphlog.read_molecules(["C"]).schema),
        folder / "molecules.csv",
        targets=["value"],
        seeds=(0,),
        epochs=1,
        split=path,
        baselines=(),
    )
    return numbers(predictor.predict(SMILES))


def _legacy(folder: Path) -> Path:
    import torch

    generator = torch.Generator().manual_seed(0)

    def weight(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator)

    state: dict[str, Any] = {
        "x_embedding1.weight": weight(120, 8),
        "x_embedding2.weight": weight(3, 8),
    }
    for k in range(2):
        state |= {
            f"gnns.{k}.mlp.0.weight": weight(16, 8),
            f"gnns.{k}.mlp.0.bias": weight(16),
            f"gnns.{k}.mlp.2.weight": weight(8, 16),
            f"gnns.{k}.mlp.2.bias": weight(8),
            f"gnns.{k}.edge_embedding1.weight": weight(6, 8),
            f"gnns.{k}.edge_embedding2.weight": weight(3, 8),
            f"batch_norms.{k}.weight": weight(8),
            f"batch_norms.{k}.bias": weight(8),
            f"batch_norms.{k}.running_mean": weight(8),
            f"batch_norms.{k}.running_var": weight(8).abs(),
            f"batch_norms.{k}.num_batches_tracked": torch.tensor(7),
        }
    torch.save(state, folder / "gin.pth")
    return folder / "gin.pth"


def _convert(folder: Path, path: Path) -> bytes:
    import graphlog

    encoder = graphlog.convert(path, folder / "converted.safetensors")
    return numbers(*(t.numpy() for _, t in sorted(encoder.network.state_dict().items())))


def _read(folder: Path, path: Path) -> bytes:
    import graphlog

    graphlog.read_molecules(path, workers=1)
    return b""


def _config(folder: Path) -> Path:
    _encoder(folder)
    return folder / "run" / "config.toml"


def _use_config(folder: Path, path: Path) -> bytes:
    import graphlog

    small = {"dim": 8, "layers": 2}
    graphlog.pretrain(SMILES, config=path, epochs=1, batch_size=6, encoder=small)
    return b""


def _parquet(folder: Path) -> Path:
    import pandas as pd

    pd.read_csv(_table(folder)).to_parquet(folder / "molecules.parquet")
    return folder / "molecules.parquet"


def _sdf(folder: Path) -> Path:
    from rdkit import Chem

    with Chem.SDWriter(str(folder / "molecules.sdf")) as writer:
        for smiles in SMILES:
            writer.write(Chem.MolFromSmiles(smiles))
    return folder / "molecules.sdf"


def _lines(folder: Path) -> Path:
    path = folder / "graphs.jsonl"
    rows = [
        {"edges": [[0, 1], [1, 2]], "x": [[0], [1], [0]], "edge_attr": [[0], [1]], "y": k % 2}
        for k in range(8)
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    return path


def _gin_text(folder: Path) -> Path:
    path = folder / "graphs.txt"
    graph = "3 {}\n0 1 1\n1 2 0 2\n0 1 1\n"
    path.write_text("8\n" + "".join(graph.format(k % 2) for k in range(8)), encoding="utf-8")
    return path


def _read_graphs(folder: Path, path: Path) -> bytes:
    import graphlog

    graphlog.read_graphs(path)
    return b""


def _network(folder: Path) -> Path:
    channels = "neighborhood,fusion,cooccurence,coexpression,experimental,database,textmining"
    rows = [f"protein1,protein2,{channels},combined_score"]
    rows += [
        f"6239.p{a},6239.p{b},0,0,{a * 30 % 999},{b * 70 % 999},900,0,{a * b % 999},950"
        for a in range(12)
        for b in range(a + 1, 12)
        if (a + b) % 3
    ]
    path = folder / "network.csv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def _read_proteins(folder: Path, path: Path) -> bytes:
    import graphlog

    graphlog.read_proteins(path)
    return b""


def _use_all_of_store(folder: Path, path: Path) -> bytes:
    import graphlog

    store = graphlog.open_store(path)
    if store.num_rows > 10_000:
        raise AssertionError(f"{store.num_rows} rows")
    store.output_status()
    _ = (store.labels, store.texts(), store.parents(), store[:], list(store.chunks()))
    _untrained(store.schema).embed(store)
    store.save(folder / "again")
    return b""


_LIES = (-1, 0, 1, 2, 200, 255, 256, 65_535, 70_000, 3_000_000, 10**12, 2**63 - 1)


def _sign_store(path: Path, draw: random.Random) -> str:
    """Change an array or the manifest of a store, and put hashes and digest right."""
    from graphlog.data.manifest import Manifest, hash_array

    fields = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    files = fields["files"]
    for _ in range(draw.choice((1, 1, 2))):
        name = draw.choice(sorted(files))
        entry = files[name]
        array = np.fromfile(path / f"{name}.bin", entry["dtype"]).reshape(entry["shape"])
        what = draw.randrange(7)
        if what == 0:
            counts = fields["counts"]
            counts[draw.choice(sorted(counts))] = draw.choice(_LIES)
        elif what == 1:
            fields[draw.choice(["tasks", "undirected", "version", "texts_sha256", "source"])] = (
                draw.choice([["a"], [], True, 1, None, {"notes": 1}, {"classes": [1]}, "x"])
            )
        elif what == 2:
            array = array.astype(draw.choice(["|u1", "<u2", "<u4", "<i8", "<f4", "<f8"]))
        elif what == 3:
            array = array[: draw.randrange(len(array) + 1)]
        elif what == 4:
            array = np.concatenate([array, array[: draw.randrange(1, 5)]])
        elif array.size:
            flat = array.reshape(-1).copy()
            with np.errstate(all="ignore"):
                value = np.array(draw.choice(_LIES)).astype(array.dtype)
                flat[draw.randrange(flat.size)] = value
            array = flat.reshape(array.shape)
        array.tofile(path / f"{name}.bin")
        entry |= {"shape": list(array.shape), "dtype": array.dtype.str, "bytes": array.nbytes}
        entry["sha256"] = hash_array(array)
    with contextlib.suppress(ValueError):
        fields["digest"] = Manifest.model_validate(fields).content_digest()
    (path / "manifest.json").write_text(json.dumps(fields), encoding="utf-8")
    return f"{name}, change {what}"


def _index(folder: Path) -> Path:
    import graphlog
    from graphlog.extras.neighbors import Index

    encoder = _untrained(graphlog.read_molecules(["C"]).schema)
    Index.build(encoder, [*SMILES, "bad"]).save(folder / "index")
    return folder / "index"


def _query(folder: Path, path: Path) -> bytes:
    import graphlog
    from graphlog.extras.neighbors import Index

    index = Index.load(path)
    found = index.query(_untrained(graphlog.read_molecules(["C"]).schema), SMILES, 3)
    records = [index.record(row) for row in sorted(set(found.rows.ravel().tolist()))]
    return numbers(found.rows, found.similarity, records)


def _ask(folder: Path, path: Path) -> bytes:
    _query(folder, path)
    return b""


def _sign_index(path: Path, draw: random.Random) -> str:
    """Change a file or a field of an index, and put its hashes and its checksum right."""
    import hashlib

    about = json.loads((path / "index.json").read_text(encoding="utf-8"))
    del about["checksum"]
    name = draw.choice(sorted(about["sha256"]))
    what = draw.randrange(4)
    if what == 0:
        rows = np.load(path / "rows.npy")
        rows[draw.randrange(len(rows))] = draw.choice(_LIES)
        np.save(path / "rows.npy", rows)
    elif what == 1:
        (path / name).write_bytes(mutate((path / name).read_bytes(), draw))
    elif what == 2:
        del about[draw.choice(sorted(about))]
    else:
        values = ["jk", "../../x", -1, 3, 10**12, None, True, [], {"../../etc/passwd": "0"}]
        about[draw.choice(sorted(about))] = draw.choice(values)
    if isinstance(about.get("sha256"), dict):
        sums = {n: hashlib.sha256((path / n).read_bytes()) for n in about["sha256"] if "/" not in n}
        about["sha256"] |= {n: total.hexdigest() for n, total in sums.items()}
    about["checksum"] = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
    (path / "index.json").write_text(json.dumps(about), encoding="utf-8")
    return f"{name}, change {what}"


def _claim(path: Path, draw: random.Random) -> str:
    """Insert records of SDF whose counts lie, in version 2000 or 3000, in many ways to write it."""
    records = path.read_text(encoding="utf-8").split("$$$$\n")
    for _ in range(draw.randrange(1, 4)):
        atoms, bonds = (draw.choice(_LIES) for _ in range(2))
        counts = f"COUNTS {atoms}{' ' * draw.randrange(1, 9)}{bonds} 0 0 0"
        if draw.random() < 0.5:
            at = draw.randrange(1, len(counts))
            counts = f"{counts[:at]}-\nM  V30 {counts[at:]}"
        body = f"  0  0  0  0  0  0  0  0  0  0999 V3000\nM  V30 BEGIN CTAB\nM  V30 {counts}\n"
        if draw.random() < 0.2:
            body = f"{str(atoms)[-3:]:>3}{str(bonds)[-3:]:>3}  0  0  0  0  0  0  0  0999 V2000\n"
        end = draw.choice(["", "M  END\n", "M  V30 END CTAB\nM  END\n> <a>\n1\n\n"])
        records.insert(draw.randrange(len(records) + 1), f"\n     x\n\n{body}{end}")
    text = draw.choice(["$$$$\n", "$$$$ \n"]).join(records)
    path.write_text(text, encoding="utf-8", newline=draw.choice(["\n", "\r\n"]))
    return f"{len(records)} records"


KINDS: dict[str, Kind] = {
    "index": Kind(_index, _query),
    "signed store": Kind(_store, _use_all_of_store, notices=False, damage=_sign_store),
    "signed index": Kind(_index, _ask, notices=False, damage=_sign_index),
    "sdf counts": Kind(lambda f: _sdf(f), _read, notices=False, damage=_claim),
    "model": Kind(lambda f: _encoder(f) / "model.safetensors", _load),
    "store": Kind(_store, _open_store),
    "checkpoint": Kind(lambda f: _encoder(f) / "checkpoint", _resume),
    "predictor": Kind(_predictor, _predict),
    "legacy": Kind(_legacy, _convert),
    "split": Kind(_split, _use_split),
    "config": Kind(_config, _use_config, notices=False),
    "metrics": Kind(lambda f: _encoder(f) / "metrics.jsonl", _draw, notices=False),
    "scores": Kind(lambda f: _predictor(f) / "scores.json", _describe, notices=False),
    "csv": Kind(_table, _read, notices=False),
    "semicolon": Kind(lambda f: _table(f, delimiter=";"), _read, notices=False),
    "csv.gz": Kind(lambda f: _zipped(_table(f)), _read, notices=False),
    "parquet": Kind(_parquet, _read, notices=False),
    "sdf": Kind(_sdf, _read, notices=False),
    "jsonl": Kind(_lines, _read_graphs, notices=False),
    "gin-text": Kind(_gin_text, _read_graphs, notices=False),
    "network": Kind(_network, _read_proteins, notices=False),
}


def mutate(data: bytes, draw: random.Random) -> bytes:
    """Return ``data`` changed in one to three places, never the same."""
    changed = data
    while changed == data:
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            changed = draw.choice(_MUTATIONS)(changed, draw)
    return changed


def _flip(data: bytes, draw: random.Random) -> bytes:
    if not data:
        return b"\0"
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :]


def _digit(data: bytes, draw: random.Random) -> bytes:
    places = [k for k, byte in enumerate(data) if 48 <= byte <= 57]
    if not places:
        return _flip(data, draw)
    at = draw.choice(places)
    return data[:at] + bytes([draw.randrange(48, 58)]) + data[at + 1 :]


def _cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _remove(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + data[at + draw.randrange(1, 40) :]


def _repeat(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + data[at : at + draw.randrange(1, 400)] * 2 + data[at:]


def _insert(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + draw.choice(_TOKENS) + data[at:]


def _overwrite(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    token = draw.choice(_TOKENS)
    return data[:at] + token + data[at + len(token) :]


_TOKENS = (
    b"\0" * 16,
    b"\xff" * 8,
    b'"',
    b"{",
    b"[" * 2000,
    b"}",
    b",",
    b"\n",
    b"\r",
    b";",
    b"-1",
    b"1e400",
    b"NaN",
    b"99999999999999999999",
    b"null",
    b"../../x",
    b"[#119]",
    b"[CH128]",
    b"%99",
    b"\x1b[2J",
    "\u202e".encode(),
)
_MUTATIONS = (_flip, _flip, _digit, _cut, _remove, _repeat, _insert, _overwrite)


def _victims(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())


def judge(kind: Kind, name: str, seed: int, intact: Path, expected: bytes) -> Outcome:
    """Damage a copy of the intact folder and return what its use came to."""
    from graphlog.errors import GraphLoGError

    draw = random.Random(f"{name}-{seed}")
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        folder = Path(scratch) / "copy"
        shutil.copytree(intact, folder)
        target = folder / (intact / "target").read_text(encoding="utf-8")
        if kind.damage is not None:
            where = kind.damage(target, draw)
        else:
            victim = draw.choice(_victims(target))
            victim.write_bytes(mutate(victim.read_bytes(), draw))
            where = str(victim.relative_to(folder))
        os.chdir(scratch)
        try:
            with (
                contextlib.redirect_stderr(io.StringIO()),
                contextlib.redirect_stdout(io.StringIO()),
            ):
                seen = kind.use(folder, target)
        except GraphLoGError as e:
            one_line = str(e) and "\n" not in str(e).strip()
            return Outcome(name, seed, "refused" if one_line else "many lines", f"{where}: {e}")
        except MemoryError as e:
            return Outcome(name, seed, "memory", f"{where}: {e}")
        except Exception:
            return Outcome(name, seed, "traceback", f"{where}: {traceback.format_exc(limit=-3)}")
        finally:
            os.chdir("/")
    if not kind.notices:
        return Outcome(name, seed, "read", where)
    return Outcome(name, seed, "same" if seen == expected else "wrong", where)


def _prepare(name: str, parent: Path) -> tuple[Path, bytes]:
    intact = parent / name
    intact.mkdir()
    target = KINDS[name].make(intact)
    (intact / "target").write_text(str(target.relative_to(intact)), encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        copy = Path(scratch) / "copy"
        shutil.copytree(intact, copy)
        expected = KINDS[name].use(copy, copy / target.relative_to(intact))
    return intact, expected


def isolated(cases: Iterable[tuple[Any, ...]], run: Callable[..., Outcome]) -> Iterable[Outcome]:
    """Run cases in a forked process; one that dies or hangs costs that case alone."""
    waiting = list(cases)
    context = multiprocessing.get_context("fork")
    while waiting:
        receive, send = context.Pipe(duplex=False)

        def work(todo: list[tuple[Any, ...]], out: Any) -> None:
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
            for case in todo:
                out.send(run(*case))

        process = context.Process(target=work, args=(waiting, send))
        process.start()
        send.close()
        while waiting:
            try:
                if not receive.poll(SECONDS):
                    raise TimeoutError
                yield receive.recv()
            except (EOFError, TimeoutError) as e:
                hung = isinstance(e, TimeoutError)
                if hung:
                    process.kill()
                process.join()
                name, seed = waiting[0][1], waiting[0][2]
                detail = f"more than {SECONDS} s" if hung else f"exit code {process.exitcode}"
                yield Outcome(name, seed, "hang" if hung else "crash", detail)
                waiting.pop(0)
                break
            waiting.pop(0)
        process.join()


def fuzz_files(kinds: list[str], number: int, first: int) -> Iterable[Outcome]:
    """Damage ``number`` files of each kind."""
    with tempfile.TemporaryDirectory(prefix="fuzz-intact-") as parent:
        for name in kinds:
            intact, expected = _prepare(name, Path(parent))
            cases = [
                (KINDS[name], name, seed, intact, expected) for seed in range(first, first + number)
            ]
            yield from isolated(cases, judge)


def _hostile_smiles(draw: random.Random) -> str:
    text = draw.choice(SMILES).encode()
    tokens = (b"[#119]", b"[CH128]", b"%10", b"(", b")", b"*", b"[", b"]", b"@", b"/", b".", b"1")
    for _ in range(draw.randrange(1, 6)):
        at = draw.randrange(len(text) + 1)
        step = draw.randrange(4)
        if step == 0:
            text = text[:at] + draw.choice(tokens) + text[at:]
        elif step == 1:
            text = text[:at] + text[at + 1 :]
        elif step == 2:
            text = text[:at] + bytes([draw.randrange(33, 127)]) + text[at:]
        else:
            text = text + draw.choice(SMILES).encode()[: draw.randrange(1, 12)]
    return text.decode("ascii", "replace")


def judge_smiles(_: None, name: str, seed: int, size: int) -> Outcome:
    """Read ``size`` mutated SMILES at once; every row must be a graph or a reject."""
    import graphlog

    draw = random.Random(f"{name}-{seed}")
    texts = [_hostile_smiles(draw) for _ in range(size)]
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            store = graphlog.read_molecules(texts, workers=1)
    except Exception:
        return Outcome(name, seed, "traceback", traceback.format_exc(limit=-3))
    whole = len(store) + len(store.rejects) == size
    return Outcome(name, seed, "right" if whole else "wrong", f"{len(store)} of {size} read")


_TOOLS = (
    *("checkpoint/best.pt", "checkpoint/last.ckpt", "checkpoint/step-000000100/state.safetensors"),
    *("checkpoint/step-000000100/manifest.json", "checkpoint/step-100/weights.bin"),
    *("checkpoints/epoch=1-step=500.ckpt", "lightning_logs/version_0/metrics.csv", "hparams.yaml"),
    *("checkpoint-500/optimizer.pt", "trainer_state.json", "pytorch_model.bin", "config.json"),
    *("model.safetensors", "mlruns/0/meta.yaml", "mlruns/0/1/artifacts/model.pkl", "study.db"),
    *("tensorboard/events.out.tfevents.1.host", "events.out.tfevents.2.host", "wandb/run.wandb"),
    *("metrics.jsonl", "config.toml", "versions.json", "scores.json", "split.json", "best.toml"),
    *("tree.json", "members.csv", "atlas.html", "rejects.csv", "input.json", "trials.json"),
    *("manifest.json", "labels.bin", "rows.bin", "endpoints.bin", "index.json", "vectors.npy"),
    *(".lock", "lock", "graphlog.json", "notes.txt", ".git/HEAD", "best/model.safetensors"),
    *("targets-0123456789abcdef.f16", "nonfinite-step-7.json", "model.safetensors.1.partial"),
)
_CONTENTS = ("mine", "", "1234", '{"format": "graphlog-store"}', 'kind = "finetune"\n', "[" * 999)


def _commands(folder: Path, out: Path) -> dict[str, Callable[[], Any]]:
    """Return every call that replaces what lies at ``out``."""
    import graphlog
    from graphlog.report.prototypes import write_prototypes

    small: dict[str, Any] = {"epochs": 1, "batch_size": 6, "encoder": {"dim": 8, "layers": 2}}
    labeled: dict[str, Any] = {"targets": ["value"], "split": "random", "baselines": ()}
    run, table = folder / "run", folder / "molecules.csv"
    tuned = {"seeds": (0,), "epochs": 1, "run_dir": out, **labeled}
    return {
        "pretrain --overwrite": lambda: graphlog.pretrain(
            SMILES, run_dir=out, overwrite=True, **small
        ),
        "pretrain --resume": lambda: graphlog.pretrain(SMILES, run_dir=out, resume=True, **small),
        "finetune --overwrite": lambda: graphlog.finetune(run, table, overwrite=True, **tuned),
        "finetune --resume": lambda: graphlog.finetune(run, table, resume=True, **tuned),
        "probe --overwrite": lambda: graphlog.probe(
            run, table, run_dir=out, overwrite=True, **labeled
        ),
        "featurize --overwrite": lambda: graphlog.featurize(table, out, overwrite=True, workers=1),
        "prototypes": lambda: write_prototypes(run, out, SMILES),
    }


def _names(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def judge_folder(_: None, name: str, seed: int, intact: Path) -> Outcome:
    """Let a command replace a folder of another program; no file of it may change."""
    from graphlog.errors import GraphLoGError

    draw = random.Random(f"{name}-{seed}")
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        folder, out = Path(scratch) / "copy", Path(scratch) / "mine"
        shutil.copytree(intact, folder)
        for file in draw.sample(_TOOLS, draw.randrange(1, 9)):
            with contextlib.suppress(OSError):
                (out / file).parent.mkdir(parents=True, exist_ok=True)
                (out / file).write_text(draw.choice(_CONTENTS), encoding="utf-8")
        before, outcomes = _names(out), Counter[str]()
        for verb, call in _commands(folder, out).items():
            try:
                with contextlib.redirect_stderr(io.StringIO()):
                    call()
                outcomes["done"] += 1
            except GraphLoGError as e:
                if "\n" in str(e).strip():
                    return Outcome(name, seed, "many lines", f"{verb}: {e}")
                outcomes["refused"] += 1
            except Exception:
                return Outcome(name, seed, "traceback", f"{verb}: {traceback.format_exc(limit=-3)}")
            after = _names(out)
            # a lock that holds nothing but a number is no loss
            lost = [k for k, v in before.items() if after.get(k) != v and k != ".lock"]
            if lost:
                return Outcome(name, seed, "lost", f"{verb}: {lost} of {sorted(before)}")
            if outcomes["done"]:  # what is there now is ours
                break
    return Outcome(name, seed, "done" if outcomes["done"] else "refused", str(dict(outcomes)))


def judge_link(_: None, name: str, seed: int, intact: Path) -> Outcome:
    """Put a link at one name that a command writes; what it points to may not change."""
    from graphlog.errors import GraphLoGError

    draw = random.Random(f"{name}-{seed}")
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        folder, out, mine = (Path(scratch) / n for n in ("copy", "out", "precious.txt"))
        shutil.copytree(intact, folder)
        mine.write_text("1234", encoding="utf-8")
        verbs = _commands(folder, out)
        verb = sorted(verbs)[seed % len(verbs)]
        with contextlib.redirect_stderr(io.StringIO()):
            verbs[verb]()
        names = [*_names(out), *(f"{n}.{os.getpid()}.partial" for n in _names(out))]
        where = names[seed // len(verbs) % len(names)]
        (out / where).unlink(missing_ok=True)
        (out / where).symlink_to(mine if draw.random() < 0.8 else "/dev/zero")
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                verbs[verb]()
            result = "done"
        except GraphLoGError as e:
            result = "many lines" if "\n" in str(e).strip() else "refused"
        except Exception:
            return Outcome(name, seed, "traceback", f"{verb}, {where}: {traceback.format_exc()}")
        if mine.read_text(encoding="utf-8") != "1234":
            return Outcome(name, seed, "lost", f"{verb} wrote through {where}")
    return Outcome(name, seed, result, f"{verb}, {where}")


def judge_changed(_: None, name: str, seed: int, intact: Path) -> Outcome:
    """Change a store that this process has read, and put its times back; it must be noticed."""
    import graphlog
    from graphlog.errors import GraphLoGError

    draw = random.Random(f"{name}-{seed}")
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        folder = Path(scratch) / "copy"
        shutil.copytree(intact, folder)
        path = folder / "store"
        expected = _open_store(folder, path)
        time.sleep(draw.choice((0, 0, 0.1)))
        victim = draw.choice(sorted(path.glob("*.bin")))
        before, content = victim.stat(), victim.read_bytes()
        changed = content
        while changed == content:
            changed = _flip(content, draw)
        if draw.random() < 0.5:  # another file in its place, perhaps with the same inode
            victim.unlink()
        victim.write_bytes(changed)
        os.utime(victim, ns=(before.st_atime_ns, before.st_mtime_ns))
        try:
            seen = _open_store(folder, graphlog.open_store(path).path or path)
        except GraphLoGError:
            return Outcome(name, seed, "refused", victim.name)
        except Exception:
            return Outcome(name, seed, "traceback", f"{victim.name}: {traceback.format_exc()}")
    return Outcome(name, seed, "same" if seen == expected else "wrong", victim.name)


def fuzz_with(
    judge_one: Callable[..., Outcome], make: Callable[[Path], Any], cases: range
) -> Iterable[Outcome]:
    """Run cases that share intact inputs."""
    name = judge_one.__name__.removeprefix("judge_")
    with tempfile.TemporaryDirectory(prefix="fuzz-intact-") as parent:
        intact = Path(parent) / "intact"
        intact.mkdir()
        make(intact)
        yield from isolated([(None, name, seed, intact) for seed in cases], judge_one)


def hash_seeds(seeds: range) -> Iterable[Outcome]:
    """Run small commands with each hash seed; all outputs must be those of the first."""
    import subprocess

    import small_jobs

    names = ("featurize", "embed .csv", "predict", "probe", "pretrain", "finetune", "prototypes")
    small_jobs.preload()
    with tempfile.TemporaryDirectory(prefix="fuzz-seeds-") as parent:
        (Path(parent) / "good").mkdir()
        jobs = small_jobs.make_inputs(Path(parent) / "good")
        for name in (*names, "data split"):
            expected = None
            for seed in seeds:
                folder = Path(parent) / f"{name}-{seed}" / "case"
                folder.mkdir(parents=True)
                words = [sys.executable, "-m", "graphlog", *jobs[name].words]
                environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
                with (folder.parent / "stdout").open("wb") as printed:
                    subprocess.run(
                        words, cwd=folder, env=environment, stdout=printed, stderr=printed
                    )
                seen = jobs[name].seen(folder)
                expected = seen if expected is None else expected
                result = "same" if seen is not None and seen == expected else "wrong"
                yield Outcome(name, seed, result)


def _options(command: Any, draw: random.Random, folder: Path) -> list[str]:
    words: list[str] = []
    values = ["0", "-1", "1e9", "nan", "", "x", "a,b", "../x", "ä", "none", "run", "molecules.csv"]
    for parameter in command.params:
        required = getattr(parameter, "required", False)
        if not required and draw.random() > 2 / max(len(command.params), 1):
            continue
        choices = [
            str(c) for c in getattr(getattr(parameter, "type", None), "choices", [])
        ] or values
        value = draw.choice(choices if draw.random() < 0.8 else values)
        if parameter.param_type_name == "argument":
            words.append(value)
        elif getattr(parameter, "is_flag", False):
            words.append(draw.choice(parameter.opts))
        else:
            words += [draw.choice(parameter.opts), value]
    return words


def judge_options(_: None, name: str, seed: int, intact: Path) -> Outcome:
    """Run one random command line in the process; it must end with exit code 0 or 2."""
    from typer.main import get_command

    from graphlog.cli.main import app, main

    draw = random.Random(f"{name}-{seed}")
    verbs = {
        v: c for v, c in get_command(app).commands.items() if v not in ("quickstart", "benchmark")
    }
    verb = draw.choice(sorted(verbs))
    command = verbs[verb]
    words = [verb]
    while hasattr(command, "commands"):
        words.append(draw.choice(sorted(command.commands)))
        command = command.commands[words[-1]]
    errors = io.StringIO()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        folder = Path(scratch) / "copy"
        shutil.copytree(intact, folder)
        os.chdir(folder)
        words += _options(command, draw, folder)
        try:
            with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
                code = main(words)
        except BaseException:
            return Outcome(name, seed, "traceback", f"{words}: {traceback.format_exc(limit=-3)}")
        finally:
            os.chdir("/")
    if code in (0, 2):
        return Outcome(name, seed, {0: "done", 2: "refused"}[code])
    return Outcome(name, seed, f"exit {code}", f"{words}: {errors.getvalue()[-300:]}")


def fuzz_options(number: int, first: int) -> Iterable[Outcome]:
    """Run ``number`` random command lines."""
    with tempfile.TemporaryDirectory(prefix="fuzz-intact-") as parent:
        intact = Path(parent) / "intact"
        intact.mkdir()
        _predictor(intact)
        cases = [(None, "options", seed, intact) for seed in range(first, first + number)]
        yield from isolated(cases, judge_options)


def _inputs(folder: Path) -> None:
    _encoder(folder)
    _table(folder)


CAMPAIGNS: dict[str, Callable[[range], Iterable[Outcome]]] = {
    "folders": lambda seeds: fuzz_with(judge_folder, _inputs, seeds),
    "links": lambda seeds: fuzz_with(judge_link, _inputs, seeds),
    "changed": lambda seeds: fuzz_with(judge_changed, _store, seeds),
    "seeds": hash_seeds,
}


def main(arguments: list[str] | None = None) -> int:
    """Run one campaign, print a table and every finding; exit code 1 if there is any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=[*CAMPAIGNS, "files", "smiles", "options"])
    parser.add_argument("--kind", action="append", choices=sorted(KINDS))
    parser.add_argument("--number", type=int, default=200, help="cases (files: of each kind)")
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    import torch

    torch.set_num_threads(1)
    began = time.monotonic()
    if options.what == "files":
        kinds = options.kind or list(KINDS)
        outcomes = fuzz_files(kinds, options.number, options.seed)
    elif options.what == "smiles":
        size = 1000
        seeds = range(options.seed, options.seed + -(-options.number // size))
        outcomes = isolated([(None, "smiles", s, size) for s in seeds], judge_smiles)
    elif options.what == "options":
        outcomes = fuzz_options(options.number, options.seed)
    else:
        outcomes = CAMPAIGNS[options.what](range(options.seed, options.seed + options.number))
    table: Counter[tuple[str, str]] = Counter()
    fine = {"same", "read", "refused", "right", "done"}
    for outcome in outcomes:
        table[outcome.kind, outcome.result] += 1
        if outcome.result not in fine:
            print(f"{outcome.result}: --seed {outcome.seed} {outcome.kind}: {outcome.detail}")
    print("\n| kind | outcome | cases |\n|---|---|---|")
    for (kind, result), cases in sorted(table.items()):
        print(f"| {kind} | {result} | {cases:,} |")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"\n{sum(table.values()):,} cases, {time.monotonic() - began:.0f} s, peak {peak:.0f} MB")
    return 1 if any(result not in fine for _, result in table) else 0


if __name__ == "__main__":
    sys.exit(main())
