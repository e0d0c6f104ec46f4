"""What ``hostile`` feeds to the commands: bad tables, labels, models, stores and checkpoints."""

import gzip
import io
import json
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import openpyxl

GOOD = "smiles,y,v\nCCO,1,0.5\nCCN,0,1.5\nCCC,1,2.5\nc1ccccc1,0,3.5\nCC(=O)O,1,4.5\nCCCl,0,5.5\n"


def _damaged_workbook() -> bytes:
    """Return an Excel file whose sheet of cells ends in the middle."""
    whole, damaged = io.BytesIO(), io.BytesIO()
    book = openpyxl.Workbook()
    for line in GOOD.splitlines():
        book.worksheets[0].append(line.split(","))
    book.save(whole)
    with zipfile.ZipFile(whole) as parts, zipfile.ZipFile(damaged, "w") as copy:
        for name in parts.namelist():
            content = parts.read(name)
            is_sheet = name.startswith("xl/worksheets/")
            copy.writestr(name, content[: len(content) // 2] if is_sheet else content)
    return damaged.getvalue()


UNUSABLE: dict[str, tuple[str, bytes, tuple[str, ...]]] = {
    "empty file": ("in.csv", b"", ("empty",)),
    "empty archive": ("in.csv.gz", gzip.compress(b"", mtime=0), ("empty",)),
    "blank lines only": ("in.csv", b"\n\n  \n", ("empty",)),
    "header only": ("in.csv", b"smiles,y,v\n", ("header", "no rows")),
    "no SMILES column": ("in.csv", b"name,y\nethanol,1\n", ("--smiles-column", "name, y")),
    "no header": ("in.csv", b"CCO,1\nCCN,0\n", ("--smiles-column", ".smi")),
    "two candidate columns": (
        "in.csv",
        b"smiles,canonical_smiles,y\nCC,CC,1\n",
        ("smiles, canonical_smiles", "--smiles-column"),
    ),
    "wrong delimiter, no SMILES column": (
        "in.csv",
        b"code;y;v\nCCO;1;0.5\n",
        ("semicolon", "code, y, v", "commas"),
    ),
    "tabs in a .csv, no SMILES column": (
        "in.csv",
        b"code\ty\tv\nCCO\t1\t0.5\n",
        ("tab", "code, y, v", ".tsv"),
    ),
    "all rows bad": ("in.csv", b"smiles,y,v\nxx(,1,1\nyy),0,2\n", ("2 of 2", "--smiles-column")),
    "names in the SMILES column": (
        "in.csv",
        b"smiles,y,v\nethanol,1,1\nwater,0,2\nCC,1,3\n",
        ("2 of 3", "row 0", "row 1"),
    ),
    "a quote never closed": (
        "in.csv",
        b'smiles,y,v\nCCO,1,"2\n' + b"CC,0,1\n" * 2000,
        ("quote", "row 0"),
    ),
    "a truncated archive": (
        "in.csv.gz",
        gzip.compress((GOOD + "C,0,1\n" * 20_000).encode(), mtime=0)[:200],
        ("cut off", "fetch"),
    ),
    "an unknown ending": ("in.docx", b"PK\x03\x04", (".csv", ".xlsx")),
    "bytes that are no workbook": ("in.xlsx", b"PK\x03\x04", ("Excel", "save it again", ".csv")),
    "a damaged workbook": ("in.xlsx", _damaged_workbook(), ("Excel", "save it again", ".csv")),
    "bytes that are no Parquet": ("in.parquet", b"PAR1 and no more", ("Parquet",)),
    "bytes that are no table": ("in.csv", bytes(range(256)) * 40, ()),
}
"""File name, content, and words the one line must hold, for tables that no verb can use."""

ODD: dict[str, tuple[str, bytes, tuple[int, ...]]] = {
    "BOM": ("in.csv", b"\xef\xbb\xbf" + GOOD.encode(), ()),
    "semicolons": ("in.csv", GOOD.replace(",", ";").encode(), ()),
    "tabs in a .csv": ("in.csv", GOOD.replace(",", "\t").encode(), ()),
    "CRLF": ("in.csv", GOOD.replace("\n", "\r\n").encode(), ()),
    "CR alone": ("in.csv", GOOD.replace("\n", "\r").encode(), ()),
    "Latin-1 bytes": (
        "in.csv",
        b"smiles,y,v,name\nCCO,1,1,\xe9t\xe9\nCC,0,2,\xb5\nC\xe9,1,3,x\n" + b"CCN,0,1,z\n" * 3,
        (2,),
    ),
    "quotes": (
        "in.csv",
        b'"smiles",y,v,"na""me"\n"CCO",1,1,"a, ""b"""\nCC,0,2,"line\nbreak"\n' + b"CN,1,0,\n" * 4,
        (),
    ),
    "1 MB SMILES": ("in.csv", GOOD.encode() + b"C" * 1_000_000 + b",1,1\n", (6,)),
    "NUL bytes": ("in.csv", GOOD.encode() + b"C\0C,1,1\nCCC\0,0,2\n", (6, 7)),
    "blank rows": ("in.csv", GOOD.encode() + b"\n\n,,\n   ,1,1\nCCBr,0,1\n", (6, 7)),
    "ragged rows": ("in.csv", GOOD.encode() + b"CCBr\nCCI,1,2,3,4\nCCF,0,1,,\n", (6, 7)),
    "duplicated rows": ("in.csv", GOOD.encode() + GOOD.split("\n", 1)[1].encode(), ()),
    "one-atom and bondless": (
        "in.csv",
        b"smiles,y,v\n[He],1,1\n[Na+].[Cl-],0,2\nC,1,3\n[H][H],0,4\n[H+],1,5\n*,0,6\n",
        (),
    ),
    "500 atoms": (
        "in.csv",
        GOOD.encode() + b"C" * 500 + b",1,1\n" + b"C1CC" * 125 + b"1,0,1\n",
        (),
    ),
    "strange chemistry": (
        "in.csv",
        b"smiles,y,v\n*C*,1,1\n[Fe+2]->N,0,1\nC$C,1,2\nF[P@TB1](Cl)(Br)(I)N,0,3\nC~C,1,4\n[999Xe],0,5\nF/C=C\\F,1,6\n[OgH],0,7\n",
        (),
    ),
    "bad rows among good": (
        "in.csv",
        GOOD.encode() + b"C(,1,1\nc1cccc1,0,2\nC(C)(C)(C)(C)C,1,3\nethanol,0,4\n",
        (6, 7, 8, 9),
    ),
    "two columns of one name": (
        "in.csv",
        b"smiles,y,v,v\nCCO,1,1,2\nCCN,0,3,4\nCC,1,5,6\nCCC,0,7,8\n",
        (),
    ),
    "an archive without its ending": ("in.csv", gzip.compress(GOOD.encode(), mtime=0), ()),
    "no line end at the end": ("in.csv", GOOD.rstrip().encode(), ()),
}
"""File name, content, and the rows that cannot be used, for tables that are merely odd.

Row i of an output is row i.
"""

LABELS: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "text labels": (["high", "low"] * 8, ("'y'", "row 0", "high")),
    "a single class": (["1"] * 16, ("one class",)),
    "a single value": (["2.5"] * 16, ("one value",)),
    "NaN labels only": (["nan", "", "NA", "null"] * 4, ("no label",)),
    "infinite labels": (["1", "inf"] * 8, ("'y'", "row 1", "inf")),
    "classes -1 and 1": (["-1", "1"] * 8, ("0 or 1",)),
}
"""Bad cells of the label column ``y``, and words that the message must contain."""


def label_table(cells: list[str]) -> bytes:
    """Return a table of alkanols with these labels."""
    return (
        "smiles,y\n" + "".join(f"{'C' * (k + 1)}O,{cell}\n" for k, cell in enumerate(cells))
    ).encode()


def _cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-10] ^= 0xFF
    path.write_bytes(bytes(content))


def _foreign_safetensors(path: Path) -> None:
    head = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + b"\0\0\0\0")


def _newer_model(path: Path) -> None:
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    head = json.loads(content[8 : 8 + size])
    about = {
        key: json.dumps({**json.loads(value), "version": 9})
        for key, value in head["__metadata__"].items()
    }
    text = json.dumps({**head, "__metadata__": about}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])


SPOILT_MODELS: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "truncated model": (_cut, ("model.safetensors",)),
    "tampered model": (_flip, ("model.safetensors", "damaged")),
    "empty model": (lambda p: p.write_bytes(b""), ("model.safetensors",)),
    "text for a model": (lambda p: p.write_bytes(b"hello " * 50), ("model.safetensors",)),
    "foreign safetensors": (_foreign_safetensors, ("model.safetensors",)),
    "model of a newer format": (_newer_model, ("model.safetensors", "newer", "upgrade")),
}
"""What is done to a model file, and words the line must hold."""


def _edit(name: str, **changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


SPOILT_STORES: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "truncated store": (lambda p: _cut(p / "endpoints.bin"), ("endpoints",)),
    "tampered store": (lambda p: _flip(p / "endpoints.bin"), ("sha256",)),
    "store without a part": (lambda p: (p / "node_codes.bin").unlink(), ("node_codes",)),
    "store without a manifest": (lambda p: (p / "manifest.json").unlink(), ()),
    "manifest that is no JSON": (lambda p: (p / "manifest.json").write_text("{"), ("manifest",)),
    "foreign manifest": (
        lambda p: (p / "manifest.json").write_text('{"format": "zarr"}'),
        ("manifest",),
    ),
    "store of a newer format": (_edit("manifest.json", version=99), ("newer", "upgrade")),
}
"""What is done to a store, and words the line must hold."""


SPOILT_CHECKPOINTS: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "truncated checkpoints": (lambda p: _cut(p / "state.safetensors"), ("damaged", "--overwrite")),
    "tampered checkpoints": (lambda p: _flip(p / "state.safetensors"), ("damaged", "--overwrite")),
    "checkpoints without a manifest": (
        lambda p: (p / "manifest.json").unlink(),
        ("manifest", "--overwrite"),
    ),
    "foreign checkpoints": (
        lambda p: (p / "manifest.json").write_text("[]"),
        ("not written by graphlog",),
    ),
    "checkpoints of a newer format": (_edit("manifest.json", version=9), ("newer", "upgrade")),
    "checkpoints whose manifest lacks fields": (
        lambda p: (p / "manifest.json").write_text('{"format": "graphlog-checkpoint"}'),
        (),
    ),
}
"""What is done to every checkpoint of a run, and words the line must hold."""


def copy(source: Path, target: Path) -> Path:
    """Copy a file or folder."""
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(".lock"))
    else:
        shutil.copy(source, target)
    return target


_PIECES = "CNOSPFIBrcnos=#$:/\\@+-.[]()%0123456789*~>{}|^\"',;\t \u00e9\u00b5\u4e2d\0\x7f\ud83d"


def interrupted_run(source: Path, how: Callable[[Path], object], folder: Path) -> None:
    """Copy a finished run without its model, as if interrupted, and spoil every checkpoint."""
    run = copy(source, folder / "out")
    (run / "model.safetensors").unlink()
    for checkpoint in run.glob("checkpoint/**/step-*"):
        how(checkpoint)


def fuzzed_rows(count: int, seed: int, real: list[str], edits: tuple[int, ...]) -> list[str]:
    """Return texts much like SMILES: real ones with ``edits`` changes each, and some noise."""
    luck = random.Random(seed)
    rows: list[str] = []
    for number in range(count):
        text = list(luck.choice(real))
        for _ in range(luck.choice(edits)):
            k = luck.randrange(len(text) + 1)
            text[k : k + luck.choice((0, 0, 1, 3))] = luck.choice(
                (luck.choice(_PIECES), "", "".join(text[max(0, k - 4) : k]))
            )
        if number % 20 == 0:
            text = [luck.choice(_PIECES) for _ in range(luck.randrange(60))]
        rows.append("".join(text))
    return rows


def fuzzed_table(count: int, seed: int, real: list[str], edits: tuple[int, ...]) -> bytes:
    """Return a CSV of fuzzed texts, most of them quoted as they should be; each row is one line."""
    lines = ["smiles,y"]
    for k, text in enumerate(fuzzed_rows(count, seed, real, edits)):
        cell = text if k % 7 == 0 and '"' not in text else '"' + text.replace('"', '""') + '"'
        lines.append(f"{cell},{k % 2}")
    return "\n".join(lines).encode("utf-8", "surrogatepass") + b"\n"
