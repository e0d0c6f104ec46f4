"""Damaged, forged and foreign files: never other numbers, a traceback, or a file of others lost."""

import contextlib
import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import Case, ended
from inputs import SMALL, SMILES, untrained

_TOKENS = (
    *(b"\0" * 16, b"\xff" * 8, b'"', b"{", b"[" * 2000, b"}", b",", b"\n", b"\r", b";", b"-1"),
    *(b"1e400", b"NaN", b"99999999999999999999", b"null", b"../../x", b"[#119]", b"[CH128]"),
    *(b"%99", b"\x1b[2J", "\u202e".encode()),
)
_LIES = (-1, 0, 1, 2, 200, 255, 256, 65_535, 70_000, 3_000_000, 10**12, 2**63 - 1)


def mutate(data: bytes, draw: random.Random) -> bytes:
    """Return ``data`` changed in one to three places, never the same."""
    changed = data
    while changed == data:
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            at, token = draw.randrange(len(changed) + 1), draw.choice(_TOKENS)
            head, tail = changed[:at], changed[at:]
            match draw.randrange(8):
                case 0 | 1 if tail:
                    changed = head + bytes([tail[0] ^ (1 << draw.randrange(8))]) + tail[1:]
                case 2 if places := [k for k, byte in enumerate(changed) if 48 <= byte <= 57]:
                    k = draw.choice(places)
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
    """Return the bytes of arrays, numbers and texts, to be compared."""
    return b"|".join(
        np.ascontiguousarray(v).tobytes() if isinstance(v, np.ndarray) else repr(v).encode()
        for v in values
    )


def _open_store(path: Path) -> bytes:
    import graphlog

    store = graphlog.open_store(path)
    if store.num_rows > 10_000:
        raise AssertionError(f"{store.num_rows} rows")
    store.output_status()
    _ = (store.parents(), store[:], list(store.chunks()))
    store.save(path.with_name("again"))
    embedded = untrained(store.schema.name).embed(store)
    return numbers(embedded, np.asarray(store.labels), store.texts())


def _query(path: Path) -> bytes:
    from graphlog.extras.neighbors import Index

    index = Index.load(path)
    found = index.query(untrained(), SMILES, 3)
    records = [index.record(row) for row in sorted(set(found.rows.ravel().tolist()))]
    return numbers(found.rows, found.similarity, records)


def _use_split(path: Path) -> bytes:
    import graphlog

    labeled: dict[str, Any] = {"targets": ["value"], "split": path, "baselines": ()}
    table = path.with_name("molecules.csv")
    return numbers(
        graphlog.finetune(untrained(), table, seeds=(0,), epochs=1, **labeled).predict(SMILES)
    )


def _convert(path: Path) -> bytes:
    import graphlog

    encoder = graphlog.convert(path, path.with_name("converted.safetensors"))
    return numbers(*(t.numpy() for _, t in sorted(encoder.network.state_dict().items())))


def _sign_store(path: Path, draw: random.Random) -> str:
    """Change arrays or the manifest of a store, and put hashes and digest right."""
    from graphlog.data.manifest import Manifest, hash_array

    fields = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    files, words = fields["files"], ["tasks", "undirected", "version", "texts_sha256", "source"]
    others = [["a"], [], True, 1, None, {"notes": 1}, {"classes": [1]}, "x"]
    for _ in range(draw.choice((1, 1, 2))):
        name = draw.choice(sorted(files))
        entry = files[name]
        array = np.fromfile(path / f"{name}.bin", entry["dtype"]).reshape(entry["shape"])
        match what := draw.randrange(7):
            case 0:
                fields["counts"][draw.choice(sorted(fields["counts"]))] = draw.choice(_LIES)
            case 1:
                fields[draw.choice(words)] = draw.choice(others)
            case 2:
                array = array.astype(draw.choice(["|u1", "<u2", "<u4", "<i8", "<f4", "<f8"]))
            case 3:
                array = array[: draw.randrange(len(array) + 1)]
            case 4:
                array = np.concatenate([array, array[: draw.randrange(1, 5)]])
            case _ if array.size:
                flat = array.reshape(-1).copy()
                with np.errstate(all="ignore"):
                    lie = np.array(draw.choice(_LIES)).astype(array.dtype)
                    flat[draw.randrange(flat.size)] = lie
                array = flat.reshape(array.shape)
            case _:
                pass
        array.tofile(path / f"{name}.bin")
        entry |= {"shape": list(array.shape), "dtype": array.dtype.str, "bytes": array.nbytes}
        entry["sha256"] = hash_array(array)
    with contextlib.suppress(ValueError):
        fields["digest"] = Manifest.model_validate(fields).content_digest()
    (path / "manifest.json").write_text(json.dumps(fields), encoding="utf-8")
    return f"{name}, change {what}"


def _sign_index(path: Path, draw: random.Random) -> str:
    """Change an array or a field of an index, and sign it again."""
    from graphlog.encoders.modelfile import read_tensors, write_tensors

    about, tensors = read_tensors(path / "index.safetensors", "index")
    del about["sha256"]
    name = draw.choice(sorted(tensors))
    values = ["jk", "../../x", -1, 3, 10**12, None, True, [], {"../../etc/passwd": "0"}]
    match what := draw.randrange(4):
        case 0:
            tensors["rows"][draw.randrange(len(tensors["rows"]))] = draw.choice(_LIES)
        case 1:
            array = tensors[name].numpy()
            changed = mutate(array.tobytes(), draw)
            whole = len(changed) // array.itemsize * array.itemsize
            tensors[name] = torch.tensor(np.frombuffer(changed[:whole], array.dtype))
        case 2:
            del about[draw.choice(("layer", "model"))]
        case _:
            about[draw.choice(("layer", "model"))] = draw.choice(values)
    write_tensors(path / "index.safetensors", "index", about, tensors)
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


@dataclass(frozen=True)
class Kind:
    """One kind of file, and how it is used."""

    target: str
    """The file, or the folder, that is damaged."""
    use: Callable[[Path], Any]
    """Opens it and returns its numbers, if every change of them must be noticed."""
    damage: Callable[[Path, random.Random], str] | None = None
    """Changes it in its own way and returns what it did; None changes bytes of one file."""


def kinds() -> dict[str, Kind]:
    """Return every kind of file; of those that a user may edit no numbers are compared."""
    import graphlog

    def read(path: Path) -> None:
        graphlog.read_molecules(path, workers=1)

    def resume(path: Path) -> bytes:
        run = path.parent
        return numbers(graphlog.pretrain(SMILES, run_dir=run, resume=True).embed(SMILES))

    def configured(path: Path) -> None:
        graphlog.pretrain(SMILES, config=path, epochs=1, **SMALL)

    def drawn(path: Path) -> None:
        graphlog.draw_run(path.parent, path.parent.with_name("figures"))

    found = {
        "model": Kind("run/model.safetensors", lambda p: numbers(graphlog.load(p).embed(SMILES))),
        "store": Kind("store", _open_store),
        "signed store": Kind("store", lambda p: [_open_store(p)][:0], _sign_store),
        "index": Kind("index", _query),
        "signed index": Kind("index", lambda p: [_query(p)][:0], _sign_index),
        "checkpoint": Kind("run/checkpoint", resume),
        "predictor": Kind("tuned", lambda p: numbers(graphlog.load_predictor(p).predict(SMILES))),
        "foreign weights": Kind("gin.pth", _convert),
        "split": Kind("split.json", _use_split),
        "config": Kind("run/config.toml", configured),
        "metrics": Kind("run/metrics.jsonl", drawn),
        "scores": Kind("tuned/scores.json", lambda p: [graphlog.describe(p.parent)][:0]),
        "sdf counts": Kind("molecules.sdf", read, _claim),
        "jsonl": Kind("graphs.jsonl", lambda p: [graphlog.read_graphs(p)][:0]),
        "gin-text": Kind("graphs.txt", lambda p: [graphlog.read_graphs(p)][:0]),
        "network": Kind("network.csv", lambda p: [graphlog.read_proteins(p)][:0]),
    }
    tables = ("molecules.csv", "semicolon.csv", "molecules.csv.gz", "molecules.parquet")
    return found | {name: Kind(name, read) for name in (*tables, "molecules.sdf")}


def files(good: Path, seeds: range) -> Iterator[Case]:
    """Yield files of every kind, damaged."""
    for name, kind in kinds().items():
        intact = good.parent / "intact" / name
        shutil.copytree(good, intact)
        expected = kind.use(intact / kind.target)
        for seed in seeds:
            yield Case(name, seed, _damaged(name, kind, seed, good, expected))


def _damaged(name: str, kind: Kind, seed: int, good: Path, expected: Any) -> Callable[[Path], str]:
    def work(folder: Path) -> str:
        draw, target = random.Random(f"{name}-{seed}"), folder / kind.target
        shutil.copytree(good, folder, dirs_exist_ok=True)
        if kind.damage is not None:
            where = kind.damage(target, draw)
        else:
            inside = sorted(p for p in target.rglob("*") if p.is_file())
            victim = draw.choice(inside) if inside else target
            victim.write_bytes(mutate(victim.read_bytes(), draw))
            where = str(victim.relative_to(folder))
        result, detail = ended(lambda _: _judged(kind.use(target), expected), folder)
        return f"{result}: {where}: {detail}"

    return work


def _judged(seen: Any, expected: Any) -> str:
    if not isinstance(expected, bytes):
        return "read"
    return "same" if seen == expected else "wrong"


def changed_stores(good: Path, seeds: range) -> Iterator[Case]:
    """Yield stores changed after this process has read them, their times put back."""

    def work(folder: Path, seed: int) -> str:
        path, draw = folder / "store", random.Random(f"changed-{seed}")
        shutil.copytree(good / "store", path)
        expected = _open_store(path)
        shutil.rmtree(folder / "again")
        time.sleep(draw.choice((0, 0, 0.1)))
        victim = draw.choice(sorted(path.glob("*.bin")))
        before, content = victim.stat(), bytearray(victim.read_bytes())
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        if draw.random() < 0.5:  # another file in its place, perhaps with the same inode
            victim.unlink()
        victim.write_bytes(content)
        os.utime(victim, ns=(before.st_atime_ns, before.st_mtime_ns))
        return f"{_judged(_open_store(path), expected)}: {victim.name}"

    yield from (Case("store", seed, lambda f, s=seed: work(f, s)) for seed in seeds)


_TOOLS = (
    *("checkpoint/best.pt", "checkpoint/last.ckpt", "checkpoint/step-000000100.safetensors"),
    *("checkpoint/step-000000100/notes.txt", "checkpoint/step-100/weights.bin"),
    *("checkpoints/epoch=1-step=500.ckpt", "lightning_logs/version_0/metrics.csv", "hparams.yaml"),
    *("checkpoint-500/optimizer.pt", "trainer_state.json", "pytorch_model.bin", "config.json"),
    *("model.safetensors", "mlruns/0/meta.yaml", "mlruns/0/1/artifacts/model.pkl", "study.db"),
    *("tensorboard/events.out.tfevents.1.host", "events.out.tfevents.2.host", "wandb/run.wandb"),
    *("metrics.jsonl", "config.toml", "versions.json", "scores.json", "split.json", "best.toml"),
    *("tree.json", "members.csv", "atlas.html", "rejects.csv", "input.json", "trials.json"),
    *("manifest.json", "labels.bin", "rows.bin", "endpoints.bin", "index.safetensors"),
    *(".lock", "lock", "graphlog.json", "notes.txt", ".git/HEAD", "best/model.safetensors"),
    *("targets-0123456789abcdef.f16", "nonfinite-step-7.json", "model.safetensors.1.partial"),
    *("models/0123456789ab/checkpoint/best.pt", "runs/0123456789ab/best.pt", "stores/mine.csv"),
)
_CONTENTS = ("mine", "", "1234", '{"format": "graphlog-store"}', 'kind = "finetune"\n', "[" * 999)


def _replacing(good: Path, out: Path) -> dict[str, Callable[[], object]]:
    """Return every call that replaces what lies at ``out``."""
    import graphlog
    from graphlog.benchmark import Request, run_benchmark
    from graphlog.report.prototypes import write_prototypes

    labeled: dict[str, Any] = {"targets": ["value"], "split": "random", "baselines": ()}
    run, table = good / "run", good / "molecules.csv"
    tuned: dict[str, Any] = {"seeds": (0,), "epochs": 1, **labeled}
    trained: dict[str, Any] = {"epochs": 1, **SMALL}
    found: dict[str, Callable[[], object]] = {}
    cell = Request("molecules", "smoke", ("graphlog",), seeds=(0,), stages=("pretrain",))
    for how in ("overwrite", "resume"):
        at: dict[str, Any] = {"run_dir": out, how: True}
        found[f"pretrain --{how}"] = lambda at=at: graphlog.pretrain(SMILES, **at, **trained)
        found[f"finetune --{how}"] = lambda at=at: graphlog.finetune(run, table, **at, **tuned)
        search = {"trials": 1, how: True, **tuned}
        found[f"tune --{how}"] = lambda s=search: graphlog.tune(run, table, out, **s)
    return found | {
        "probe --overwrite": lambda: graphlog.probe(
            run, table, run_dir=out, overwrite=True, **labeled
        ),
        "featurize --overwrite": lambda: graphlog.featurize(table, out, overwrite=True, workers=1),
        "prototypes": lambda: write_prototypes(run, out, SMILES),
        "benchmark": lambda: run_benchmark(cell, out),
    }


def _done(call: Callable[[], object]) -> str:
    call()
    return "done"


def _contents(folder: Path) -> dict[str, bytes]:
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def foreign_folders(good: Path, seeds: range) -> Iterator[Case]:
    """Yield folders of other programs that commands are to replace; no file of them may change."""

    def work(folder: Path, seed: int) -> str:
        draw, out, ends = random.Random(f"folder-{seed}"), folder / "mine", list[str]()
        for file in draw.sample(_TOOLS, draw.randrange(1, 9)):
            with contextlib.suppress(OSError):
                (out / file).parent.mkdir(parents=True, exist_ok=True)
                (out / file).write_text(draw.choice(_CONTENTS), encoding="utf-8")
        before = _contents(out)
        for verb, call in _replacing(good, out).items():
            result, detail = ended(lambda _, call=call: _done(call), folder)
            after = _contents(out)
            # a lock that holds nothing but a number is no loss
            lost = [k for k, v in before.items() if after.get(k) != v and k != ".lock"]
            if lost or result not in ("done", "refused"):
                return f"{'lost' if lost else result}: {verb}: {lost} of {sorted(before)}; {detail}"
            ends.append(result)
            if result == "done":  # what is there now is ours
                break
        return f"{ends[-1]}: after {len(ends)} commands"

    yield from (Case("folder", seed, lambda f, s=seed: work(f, s), 180.0) for seed in seeds)


def links(good: Path, seeds: range) -> Iterator[Case]:
    """Yield links at names that commands write; what they point to may not change."""

    def work(folder: Path, seed: int) -> str:
        draw, out, mine = random.Random(f"link-{seed}"), folder / "out", folder / "precious.txt"
        mine.write_text("1234", encoding="utf-8")
        verbs = _replacing(good, out)
        verb = sorted(verbs)[seed % len(verbs)]
        verbs[verb]()
        names = [*_contents(out), *(f"{n}.{os.getpid()}.partial" for n in _contents(out))]
        where = names[seed // len(verbs) % len(names)]
        (out / where).unlink(missing_ok=True)
        (out / where).symlink_to(mine if draw.random() < 0.8 else "/dev/zero")
        result, detail = ended(lambda _: _done(verbs[verb]), folder)
        is_lost = mine.read_text(encoding="utf-8") != "1234"
        return f"{'lost' if is_lost else result}: {verb}, {where}: {detail}"

    yield from (Case("link", seed, lambda f, s=seed: work(f, s), 180.0) for seed in seeds)
