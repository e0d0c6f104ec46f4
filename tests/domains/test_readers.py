"""Every reader against every way a file may come: packed, cut off, marked, empty, absent."""

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rdkit import Chem

import graphlog
from graphlog.data.store import GraphStore
from graphlog.errors import DataError, GraphLoGError
from graphlog.files import zstd
from protein_support import links

TABLE = "smiles,y\nCCO,1\nc1ccccc1,0\n"
GRAPH = {"edges": [[0, 1]], "x": [[3], [0]], "edge_attr": [["s"]], "y": 0.5}


class Reader(NamedTuple):
    """A format: the name and the text of a file, and how it is read."""

    name: str
    text: str
    read: Callable[[Path], GraphStore]


def _labeled_network(labels: Path) -> GraphStore:
    network = labels.parent / "9.txt"
    network.write_text(links("a b 900"))
    return graphlog.read_proteins(network, labels=labels)


READERS = {
    "table": Reader("a.csv", TABLE, graphlog.read_molecules),
    "list": Reader("a.smi", "CCO one\nc1ccccc1 two\n", graphlog.read_molecules),
    "sdf": Reader(
        "a.sdf",
        2 * (Chem.MolToMolBlock(Chem.MolFromSmiles("CCO")) + "$$$$\n"),
        graphlog.read_molecules,
    ),
    "json lines": Reader("a.jsonl", 2 * (json.dumps(GRAPH) + "\n"), graphlog.read_graphs),
    "gin": Reader("a.txt", "1\n3 yes\n5 1 1\n7 2 0 2\n5 1 1\n", graphlog.read_graphs),
    "network": Reader("9.links.txt", links("a b 900"), graphlog.read_proteins),
    "labels": Reader("y.csv", "protein,y\n9.a,1\n9.b,0\n", _labeled_network),
}


def _packed(kind: str, content: bytes) -> bytes:
    module: Any = {"gz": gzip, "bz2": bz2, "xz": lzma, "zst": zstd}[kind]
    return module.compress(content) if module else pytest.skip("needs the extra `zstd`")


PACKED = ("gz", "bz2", "xz", "zst")
FORMS: dict[str, Callable[[str], bytes]] = {
    **{kind: lambda text, kind=kind: _packed(kind, text.encode()) for kind in PACKED},
    "two members": lambda text: (
        _packed("gz", text[:20].encode()) + _packed("gz", text[20:].encode())
    ),
    "xz streams and padding": lambda text: b"".join(
        _packed("xz", part.encode()) + bytes(8) for part in (text[:20], text[20:])
    ),
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "line ends of Windows": lambda text: text.replace("\n", "\r\n").encode(),
    "no last line end": lambda text: text.rstrip("\n").encode(),
}
DEFECTS: dict[str, Callable[[str], bytes]] = {
    "empty": lambda text: b"",
    "empty and packed": lambda text: _packed("gz", b""),
    "not packed as it begins": lambda text: b"\x1f\x8b" + b"junk" * 10,
    "no text": lambda text: b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    **{
        f"{kind} cut off": lambda text, kind=kind: _packed(kind, text.encode() * 20)[:-9]
        for kind in PACKED
    },
    **{
        f"second {kind} stream damaged": lambda text, kind=kind: (
            _packed(kind, text.encode()) + b"junk" + _packed(kind, b"")
        )
        for kind in PACKED
    },
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("reader", READERS)
def test_the_form_of_a_file_does_not_matter(reader: str, form: str, tmp_path: Path) -> None:
    """What is packed shows in its first bytes, whatever its name."""
    name, text, read = READERS[reader]
    (tmp_path / name).write_text(text)
    expected = read(tmp_path / name)
    (tmp_path / name).write_bytes(FORMS[form](text))
    found = read(tmp_path / name)
    assert len(expected)
    assert found.digest == expected.digest


@pytest.mark.parametrize("defect", DEFECTS)
@pytest.mark.parametrize("reader", READERS)
def test_a_defect_is_one_line_that_names_the_file(reader: str, defect: str, tmp_path: Path) -> None:
    name, text, read = READERS[reader]
    (tmp_path / name).write_bytes(DEFECTS[defect](text))
    with pytest.raises(DataError) as caught:
        read(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("reader", READERS)
def test_no_such_file_and_a_folder_in_its_place(reader: str, tmp_path: Path) -> None:
    name, _, read = READERS[reader]
    with pytest.raises(DataError, match="no such file"):
        read(tmp_path / name)
    (tmp_path / name).mkdir()
    with pytest.raises(GraphLoGError, match=name):
        read(tmp_path / name)
