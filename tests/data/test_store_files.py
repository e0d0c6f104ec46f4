"""A store cut short, changed, or written by another or a newer program is refused in one line."""

import hashlib
import json
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
    assert "\n" not in str(error.value)
    assert str(folder) in str(error.value)


def parts() -> list[str]:
    return [
        "node_offsets",
        "edge_offsets",
        "endpoints",
        "node_codes",
        "node_table",
        "edge_codes",
        "edge_table",
        "labels",
        "text_blocks",
    ]


@pytest.mark.parametrize("name", parts())
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


def test_a_large_store_that_was_changed_is_refused_by_everyone(tmp_path: Path):
    folder = tmp_path / "large.store"
    store = build(make_graphs(40), CODES, None)
    store.subset(np.tile(np.arange(40), 20_000)).save(folder)
    assert sum(file.stat().st_size for file in folder.iterdir()) > 8 << 20
    file = folder / "endpoints.bin"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    for use in (open_store, read, describe_store, pretrain):
        with pytest.raises(ModelFileError, match="sha256"):
            use(folder)
    with pytest.raises(ModelFileError, match="sha256"):
        split_file(folder, tmp_path / "split.json", "random")
    with pytest.raises(ModelFileError, match="sha256"):
        read(folder, store_path=tmp_path / "signed.store")
    assert not (tmp_path / "signed.store").exists()


def test_a_store_is_hashed_once_while_it_stays_as_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    open_store(folder)
    with monkeypatch.context() as patch:
        patch.setattr(manifest_module, "hash_file", lambda file: pytest.fail("hashed again"))
        assert len(open_store(folder)) == 40
    file = folder / "text_blocks.bin"
    file.write_bytes(bytes(file.stat().st_size))
    refused(folder, "sha256")


def test_verify_finds_an_edge_that_leaves_its_graph(folder: Path):
    file = folder / "endpoints.bin"
    ends = np.frombuffer(file.read_bytes(), np.uint8).copy()
    ends[-1] = 250
    file.write_bytes(ends)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["endpoints"]["sha256"] = hashlib.sha256(ends.tobytes()).hexdigest()
    signed = Manifest.model_validate(manifest)
    signed = signed.model_copy(update={"digest": signed.content_digest()})
    (folder / "manifest.json").write_text(signed.model_dump_json(by_alias=True))
    with pytest.raises(ModelFileError, match="contradict each other"):
        open_store(folder).verify()


def test_newer_format(folder: Path):
    edit(folder, version=2, surprise=True)
    refused(folder, "newer graphlog .store format 2, this one reads 1.; upgrade")


@pytest.mark.parametrize(
    "text", ["", "not json", "[]", "null", '{"format": "other"}', "[" * 100_000, "\udcff"]
)
def test_foreign_manifest(folder: Path, text: str):
    (folder / "manifest.json").write_text(text, errors="surrogateescape")
    refused(folder, "manifest.json")


@pytest.mark.parametrize(
    "changes",
    [
        {"counts": {"graphs": 39, "nodes": 1, "edges": 1, "rows": 1, "rejects": 0}},
        {"counts": {"graphs": 40}},
        {"counts": None},
        {"files": {}},
        {"files": {"../../etc/passwd": {"dtype": "|u1", "shape": [1], "bytes": 1, "sha256": ""}}},
        {"files": {"endpoints": {"dtype": "|O", "shape": [1], "bytes": 1, "sha256": ""}}},
        {"schema": {}},
        {"tasks": ["other"]},
        {"undirected": False},
        {"version": "1"},
        {"version": None},
        {"extra": 1},
        {"digest": "0" * 64},
    ],
)
def test_changed_manifest(folder: Path, changes: dict):
    edit(folder, **changes)
    refused(folder, "manifest.json|schema")


def test_the_source_may_be_edited(folder: Path):
    edit(folder, source={"file": "moved.csv"})
    assert open_store(folder).source == {"file": "moved.csv"}


def test_no_store_at_all(tmp_path: Path):
    refused(
        tmp_path / "nothing",
        "not a graph store .no manifest.json.; build one with `graphlog featurize`",
    )
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "not a graph store")
    (tmp_path / "file").write_text("x")
    refused(tmp_path / "file", "not a graph store")


def test_arrays_that_contradict_each_other(folder: Path):
    """Hashes put right after the change, so that only the contents are wrong."""
    offsets = np.fromfile(folder / "node_offsets.bin", np.uint16)
    offsets[3] = offsets[2] - 1
    offsets.tofile(folder / "node_offsets.bin")
    fields = json.loads((folder / "manifest.json").read_text())
    fields["files"]["node_offsets"]["sha256"] = manifest_module.hash_array(offsets)
    fields["digest"] = manifest_module.Manifest.model_validate(fields).content_digest()
    edit(folder, **fields)
    with pytest.raises(ModelFileError, match="contradict"):
        open_store(folder).verify()


def test_a_moved_store_opens(folder: Path, store: GraphStore):
    moved = folder.rename(folder.with_name("moved"))
    assert open_store(moved).digest == store.digest
    assert_same(open_store(moved), make_graphs(40, tasks=1), [3, 1])
    # the old map stays valid: the pages belong to the open file, not to its name
    assert_same(store, make_graphs(40, tasks=1), [0])
