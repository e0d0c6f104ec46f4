"""A store cut short, changed, or written by another or a newer program is refused in one line."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from graphlog.api import pretrain
from graphlog.data import manifest as manifest_module
from graphlog.data.manifest import Manifest
from graphlog.data.store import GraphStore, open_store
from graphlog.downstream.tasks import split_file
from graphlog.errors import ModelFileError
from graphlog.inputs import read
from graphlog.report.describe import describe_store
from store_support import CODES, assert_same, build, make_graphs


@pytest.fixture
def store(tmp_path: Path) -> GraphStore:
    return build(make_graphs(40, tasks=1), CODES, tmp_path / "store")


@pytest.fixture
def folder(store: GraphStore, tmp_path: Path) -> Path:
    return tmp_path / "store"


def edit(folder: Path, **changes: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refused(folder: Path, match: str) -> None:
    with pytest.raises(ModelFileError, match=match) as error:
        open_store(folder)
    assert str(folder) in str(error.value)


PARTS = "node_offsets edge_offsets endpoints node_codes node_table edge_codes edge_table".split()


@pytest.mark.parametrize("name", [*PARTS, "labels", "text_blocks"])
def test_truncated_changed_and_missing_parts(folder: Path, name: str):
    file = folder / f"{name}.bin"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    refused(folder, "truncated")
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    refused(folder, "sha256")
    file.unlink()
    refused(folder, "cannot be read")
    file.write_bytes(whole)
    assert len(open_store(folder)) == 40


def test_a_store_that_was_changed_is_refused_by_everyone(folder: Path, tmp_path: Path):
    file = folder / "endpoints.bin"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    for use in (
        *(open_store, read, describe_store, pretrain),
        lambda store: split_file(store, tmp_path / "split.json", "random"),
        lambda store: read(store, store_path=tmp_path / "signed.store"),
    ):
        with pytest.raises(ModelFileError, match="sha256"):
            use(folder)
    assert not (tmp_path / "signed.store").exists()


def test_a_store_is_hashed_once_while_it_stays_as_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    time.sleep(2e-9 * manifest_module._SETTLED_NS)
    open_store(folder)
    with monkeypatch.context() as patch:
        patch.setattr(manifest_module, "hash_file", lambda file: pytest.fail("hashed again"))
        assert len(open_store(folder)) == 40
    file = folder / "text_blocks.bin"
    file.write_bytes(bytes(file.stat().st_size))
    refused(folder, "sha256")


def test_a_change_is_noticed_although_the_time_of_change_is_put_back(folder: Path) -> None:
    file = folder / "endpoints.bin"
    before, content = file.stat(), file.read_bytes()
    file.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    refused(folder, "sha256")


def test_another_store_copied_into_the_place_of_one_that_was_read(
    folder: Path, tmp_path: Path
) -> None:
    other = build(make_graphs(40, tasks=1, seed=1), CODES, tmp_path / "other")
    open_store(folder)
    for file in (tmp_path / "other").iterdir():
        shutil.copy2(file, folder / file.name)
    assert open_store(folder).digest == other.digest
    open_store(folder).verify()


def sign(folder: Path, arrays: dict[str, np.ndarray], **changes: object) -> None:
    """Write arrays and a manifest whose hashes and digest fit them."""
    fields = json.loads((folder / "manifest.json").read_text()) | changes
    for name, array in arrays.items():
        array.tofile(folder / f"{name}.bin")
    for name, entry in manifest_module.describe(arrays, None).items():
        fields["files"][name] = entry.model_dump(mode="json")
    fields["digest"] = Manifest.model_validate(fields).content_digest()
    (folder / "manifest.json").write_text(json.dumps(fields))


Change = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


def with_value(name: str, place: int, value: float) -> Change:
    def change(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        array = arrays[name].copy()
        array.reshape(-1)[place] = value
        return {name: array}

    return change


CHANGES: dict[str, Change] = {
    "offsets of nodes decrease": with_value("node_offsets", 3, 0),
    "offsets of edges decrease": with_value("edge_offsets", 5, 0),
    "offsets whose differences overflow": lambda arrays: {
        "node_offsets": np.array([0, 2**63 - 1, -2, *arrays["node_offsets"][3:]])
    },
    "offsets end early": with_value("node_offsets", -1, 7),
    "offsets begin late": with_value("edge_offsets", 0, 1),
    "a value beyond the schema": with_value("node_table", 0, 121),
    "an edge's value beyond the schema": with_value("edge_table", -1, 7),
    "an infinite label": with_value("labels", 0, np.inf),
    "offsets of texts decrease": with_value("text_offsets", 0, 9),
    "negative endpoints": lambda arrays: {"endpoints": -arrays["endpoints"].astype("<i8")},
    "endpoints that are no integers": lambda arrays: {
        "endpoints": arrays["endpoints"].astype("<f4")
    },
    "a column more": lambda arrays: {"endpoints": arrays["endpoints"][:, [0, 1, 1]]},
    "no text": lambda arrays: {"text_offsets": arrays["text_offsets"][:1].copy()},
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_signed_store_that_contradicts_itself(folder: Path, store: GraphStore, what: str) -> None:
    sign(folder, CHANGES[what](store.contents.arrays))
    refused(folder, "contradict")


@pytest.mark.parametrize(
    ("name", "place"), [("endpoints", 0), ("endpoints", -1), ("node_codes", 2), ("edge_codes", -1)]
)
def test_what_leaves_a_signed_store_is_refused_when_its_graph_is_taken(
    folder: Path, store: GraphStore, name: str, place: int
) -> None:
    arrays = store.contents.arrays
    value = len(arrays[name.replace("codes", "table")]) if name.endswith("codes") else 250
    sign(folder, with_value(name, place, value)(arrays))
    changed = open_store(folder)
    for use in (changed.verify, lambda: changed[:], lambda: list(changed.chunks())):
        with pytest.raises(ModelFileError, match="contradict"):
            use()


LIES = [
    {"rows": 10**12},
    {"rows": 3_000_000},
    {"rows": 39},
    {"rows": 41, "rejects": 1},
    {"rows": 39, "rejects": -1},
    {"rows": 10**12, "rejects": 10**12 - 40},
]


@pytest.mark.parametrize("counts", LIES, ids=str)
def test_a_signed_store_whose_counts_lie(folder: Path, counts: dict[str, int]) -> None:
    known = json.loads((folder / "manifest.json").read_text())["counts"]
    sign(folder, {}, counts=known | counts)
    refused(folder, "contradict")


def shifted(folder: Path, rows: int) -> GraphStore:
    """A store of twelve graphs whose first rows are missing."""
    graphs = make_graphs(12)
    for graph in graphs:
        graph.row += rows
    return build(graphs, CODES, folder)


def test_rows_of_a_signed_store_are_distinct(tmp_path: Path) -> None:
    store = shifted(tmp_path / "s", 3)
    for value in (4, 200):
        sign(tmp_path / "s", with_value("rows", 0, value)(store.contents.arrays))
        refused(tmp_path / "s", "contradict")


@pytest.mark.parametrize("lines", ["[-1, 2, 3]", "[0, 1]", "x", '[99, "", ""]', "1" * 9999])
def test_damaged_rejects_of_a_signed_store(tmp_path: Path, lines: str) -> None:
    shifted(tmp_path / "s", 1)
    sign(tmp_path / "s", {"rejects": np.frombuffer(lines.encode() + b"\n", np.uint8)})
    with pytest.raises(ModelFileError, match="contradict each other"):
        open_store(tmp_path / "s").output_status()


def test_a_manifest_that_is_no_file(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").symlink_to("/dev/zero")
    refused(folder, "it is not a file")


FOREIGN = ["", "not json", "[]", "null", '{"format": "other"}', "[" * 100_000, "\udcff"]
ENTRY = {"dtype": "|u1", "shape": [1], "bytes": 1, "sha256": ""}
CHANGED = [
    {"counts": {"graphs": 39, "nodes": 1, "edges": 1, "rows": 1, "rejects": 0}},
    {"counts": {"graphs": 40}},
    {"counts": None},
    {"files": {}},
    {"files": {"../../etc/passwd": ENTRY}},
    {"files": {"endpoints": ENTRY | {"dtype": "|O"}}},
    {"schema": {}},
    {"tasks": ["other"]},
    {"undirected": False},
    {"version": "1"},
    {"version": None},
    {"extra": 1},
    {"digest": "0" * 64},
]
MANIFESTS = [
    *((text, "manifest.json") for text in FOREIGN),
    *((changes, "manifest.json|schema|contradict") for changes in CHANGED),
    ({"version": 2, "more": 1}, "newer graphlog .store format 2, this one reads 1.; upgrade"),
]


@pytest.mark.parametrize(("given", "message"), MANIFESTS)
def test_a_foreign_changed_or_newer_manifest(folder: Path, given: str | dict, message: str):
    if isinstance(given, str):
        (folder / "manifest.json").write_text(given, errors="surrogateescape")
    else:
        edit(folder, **given)
    refused(folder, message)


def test_the_source_may_be_edited(folder: Path):
    edit(folder, source={"name": "moved.csv"})
    assert open_store(folder).source.name == "moved.csv"


def test_no_store_at_all(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    told = "not a graph store .no manifest.json.; build one with `graphlog featurize`"
    for name in ("nothing", "empty", "file"):
        refused(tmp_path / name, told)


def test_a_moved_store_opens(folder: Path, store: GraphStore):
    moved = folder.rename(folder.with_name("moved"))
    assert open_store(moved).digest == store.digest
    assert_same(open_store(moved), make_graphs(40, tasks=1), [3, 1])
    # the old map stays valid: the pages belong to the open file, not to its name
    assert_same(store, make_graphs(40, tasks=1), [0])
