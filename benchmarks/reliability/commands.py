"""Commands given what a user may give them: bad tables, odd tables, mutated SMILES, any options."""

import csv
import gzip
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from harness import Case, Ended, start
from inputs import ONE, SHORT, SMILES

GOOD = "smiles,y,value\nCCO,1,0.5\nCCN,0,1.5\nCCC,1,2.5\nc1ccccc1,0,3.5\nCC(=O)O,1,4.5\nCCCl,0,5\n"
UNUSABLE: dict[str, bytes] = {
    "empty.csv": b"",
    "empty.csv.gz": gzip.compress(b"", mtime=0),
    "blank lines.csv": b"\n\n  \n",
    "header only.csv": b"smiles,y,value\n",
    "no SMILES column.csv": b"name,y\nethanol,1\n",
    "no header.csv": b"CCO,1\nCCN,0\n",
    "two candidates.csv": b"smiles,canonical_smiles,value\nCC,CC,1\n",
    "wrong delimiter.csv": b"code;y;value\nCCO;1;0.5\n",
    "all rows bad.csv": b"smiles,y,value\nxx(,1,1\nyy),0,2\n",
    "names.csv": b"smiles,y,value\nethanol,1,1\nwater,0,2\nCC,1,3\n",
    "open quote.csv": b'smiles,y,value\nCCO,1,"2\n' + b"CC,0,1\n" * 2000,
    "cut off.csv.gz": gzip.compress((GOOD + "C,0,1\n" * 20_000).encode(), mtime=0)[:200],
    "unknown ending.docx": b"PK\x03\x04",
    "no workbook.xlsx": b"PK\x03\x04",
    "no parquet.parquet": b"PAR1 and no more",
    "no table.csv": bytes(range(256)) * 40,
}
"""Tables that no command can use."""
_G = GOOD.encode()
ODD: dict[str, tuple[bytes, int, tuple[int, ...]]] = {
    "BOM.csv": (b"\xef\xbb\xbf" + _G, 6, ()),
    "semicolons.csv": (_G.replace(b",", b";"), 6, ()),
    "tabs.csv": (_G.replace(b",", b"\t"), 6, ()),
    "CRLF.csv": (_G.replace(b"\n", b"\r\n"), 6, ()),
    "CR alone.csv": (_G.replace(b"\n", b"\r"), 6, ()),
    "UTF-16.csv": (GOOD.encode("utf-16"), 6, ()),
    "Latin-1.csv": (_G.replace(b"value", b"\xe9t\xe9") + b"C\xe9,1,1\n", 7, (6,)),
    "quotes.csv": (_G.replace(b"y,", b'"y, ""y""\n",') + b'"CCBr","1","2"\n', 7, ()),
    "a SMILES of 1 MB.csv": (_G + b"C" * 1_000_000 + b",1,1\n", 7, (6,)),
    "NUL bytes.csv": (_G + b"C\0C,1,1\nCCC\0,0,2\n", 8, (6, 7)),
    "blank rows.csv": (_G + b"\n\n,,\n   ,1,1\nCCBr,0,1\n", 9, (6, 7)),
    "ragged rows.csv": (_G + b"CCBr\nCCI,1,2,3,4\nCCF,0,1,,\n", 9, (6, 7)),
    "one atom.csv": (b"smiles,value\n[He],1\n[Na+].[Cl-],2\nC,3\n[H][H],4\n[H+],5\n*,6\n", 6, ()),
    "500 atoms.csv": (_G + b"C" * 500 + b",1,1\n" + b"C1CC" * 125 + b"1,0,1\n", 8, ()),
    "strange.csv": (_G + b"*C*,1,1\n[Fe+2]->N,0,1\nC$C,1,2\nF/C=C\\F,1,6\n[OgH],0,7\n", 11, ()),
    "bad rows.csv": (_G + b"C(,1,1\nc1cccc1,0,2\nC(C)(C)(C)(C)C,1,3\nethanol,0,4\n", 10,
                     (6, 7, 8, 9)),
    "no ending.csv": (gzip.compress(_G, mtime=0), 6, ()),
}  # fmt: skip
"""Tables that are merely odd, the number of their rows, and those that are no molecules."""


def commands(good: Path, _: range) -> Iterator[Case]:
    """Yield every verb with every bad and odd table."""
    model, fitted = str(good / "run"), str(good / "tuned")
    small = ("--epochs", "2", "--batch-size", "4", "--set", "encoder.dim=8")
    labeled = (*SHORT, "--seeds", "0")
    verbs = {
        "featurize": ("-o", "out", *ONE),
        "data split": ("-o", "out.json", "--kind", "random", *ONE),
        "pretrain": ("-o", "out", *small, *ONE),
        "embed": ("-m", model, "-o", "out.npz", *ONE),
        "predict": ("-m", fitted, "-o", "out.csv", *ONE),
        "prototypes": ("-o", "out", *ONE),
        "finetune": ("-m", model, "-o", "out", *labeled),
        "probe": ("-m", model, *SHORT[:6], "--workers", "1"),
    }

    def work(verb: str, name: str, beside: Path) -> str:
        folder, content = beside / "case", UNUSABLE.get(name) or ODD.get(name, (b"",))[0]
        folder.mkdir()
        (folder / name).write_bytes(content)
        source = ["--input", name] if verb == "prototypes" else [name]
        first = [model, *source] if verb == "prototypes" else source
        ended = start([*verb.split(), *first, *verbs[verb]], folder)
        problem = ended.problem
        if not problem and (name in UNUSABLE) != (ended.code == 2):
            problem = f"exit code {ended.code}: {ended.line}"
        if not problem and ended.code == 2:
            left = [*set(p.name for p in folder.iterdir()) - {name}, *(beside / "tmp").iterdir()]
            problem = "" if not left and not ended.out else f"left {left}, printed {ended.out!r}"
        if not problem and ended.code == 0:
            problem = _misaligned(verb, folder, *ODD[name][1:])
        return (
            f"wrong: {name}: {problem}"
            if problem
            else f"{'refused' if ended.code else 'read'}: {ended.line}"
        )

    for verb in verbs:
        for seed, name in enumerate([*UNUSABLE, *ODD]):
            if name in UNUSABLE or verb not in ("finetune", "probe"):  # too few rows to learn from
                yield Case(verb, seed, lambda f, v=verb, n=name: work(v, n, f), 300.0)


def _misaligned(verb: str, folder: Path, rows: int, bad: tuple[int, ...]) -> str:
    """Return what is wrong with the rows of an output; nothing where all is well."""
    match verb:
        case "embed":
            found = np.load(folder / "out.npz")
            status = found["status"].tolist()
            missing = np.flatnonzero(np.isnan(found["embeddings"]).any(1)).tolist()
            if missing != list(bad):
                return f"no vector in rows {missing}, not {bad}"
        case "predict" | "prototypes":
            csv.field_size_limit(1 << 27)  # a SMILES of 1 MB
            path = folder / ("out.csv" if verb == "predict" else "out/members.csv")
            with path.open(encoding="utf-8", newline="") as file:
                column = "graphlog_status" if verb == "predict" else "status"
                status = [row[column] for row in csv.DictReader(file)]
        case "data split":
            found = json.loads((folder / "out.json").read_text(encoding="utf-8"))
            named = {*found["train"], *found["valid"], *found["test"]}
            status = ["ok" if k in named else "" for k in range(rows)]
        case _:
            return ""
    told = [k for k, word in enumerate(status) if word != "ok"]
    return (
        "" if len(status) == rows and told == list(bad) else f"{len(status)} of {rows}, bad {told}"
    )


def smiles(_: Path, seeds: range) -> Iterator[Case]:
    """Yield a thousand mutated SMILES a case; every one must be a graph or a rejected row."""
    tokens = (*"()*[]@/.1", "[#119]", "[CH128]", "%10")

    def mutated(draw: random.Random) -> str:
        text = draw.choice(SMILES)
        for _ in range(draw.randrange(1, 6)):
            at = draw.randrange(len(text) + 1)
            tail = draw.choice(SMILES)[: draw.randrange(1, 12)]
            middle = draw.choice((draw.choice(tokens), chr(draw.randrange(33, 127)), "", tail))
            text = text[:at] + middle + text[at + (not middle) :]
        return text

    def work(seed: int) -> str:
        import graphlog

        draw = random.Random(f"smiles-{seed}")
        store = graphlog.read_molecules([mutated(draw) for _ in range(1000)], workers=1)
        is_whole = len(store) + len(store.rejects) == 1000
        return f"{'right' if is_whole else 'wrong'}: {len(store)} read"

    yield from (Case("smiles", seed, lambda _, s=seed: work(s)) for seed in seeds)


def options(good: Path, seeds: range) -> Iterator[Case]:
    """Yield random command lines; each must end with 0, or with 2 and one line."""
    from typer.main import get_command

    from graphlog.cli.main import app

    values = ["0", "-1", "1e9", "nan", "", "x", "a,b", "../x", "ä", "none", "run", "molecules.csv"]
    verbs = {
        v: c for v, c in get_command(app).commands.items() if v not in ("quickstart", "benchmark")
    }  # type: ignore[attr-defined]

    def work(beside: Path, seed: int) -> str:
        draw, folder = random.Random(f"options-{seed}"), beside / "case"
        shutil.copytree(good, folder)
        words = [draw.choice(sorted(verbs))]
        command = verbs[words[0]]
        while hasattr(command, "commands"):
            words.append(draw.choice(sorted(command.commands)))
            command = command.commands[words[-1]]
        for parameter in command.params:
            if parameter.required or draw.random() < 2 / max(len(command.params), 1):
                known = [str(c) for c in parameter.type_descriptor.choices or ()] or values
                value = draw.choice(known if draw.random() < 0.8 else values)
                name = (
                    [] if parameter.param_type_name == "argument" else [draw.choice(parameter.opts)]
                )
                words += name if getattr(parameter, "is_flag", False) else [*name, value]
        ended: Ended = start(words, folder)
        result = "wrong" if ended.problem else "refused" if ended.code else "done"
        return f"{result}: {' '.join(words)}: {ended.problem or ended.line}"

    yield from (Case("options", seed, lambda f, s=seed: work(f, s), 120.0) for seed in seeds)
