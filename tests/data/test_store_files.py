"""What is built, cut short, changed, or written by another program is whole or refused."""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import graphlog
from cli_support import left_in, short_files
from graphlog.api import pretrain
from graphlog.data import manifest as manifest_module
from graphlog.data.graphs import Reject
from graphlog.data.manifest import Manifest
from graphlog.data.store import GraphStore, RowCollector, StoreBuilder, open_store
from graphlog.domains import records, schema_named
from graphlog.downstream.tasks import split_file
from graphlog.errors import ConfigError, DataError, ModelFileError
from graphlog.inputs import read
from graphlog.report.describe import describe_store
from store_support import CODES, assert_same, build, make_graphs, to_chunk
from training_support import spawn


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


def sign(folder: Path, arrays: dict[str, np.ndarray], **changes: object) -> None:
    """Write arrays and a manifest whose hashes and digest fit them."""
    fields = json.loads((folder / "manifest.json").read_text()) | changes
    for name, array in arrays.items():
        array.tofile(folder / f"{name}.bin")
    for name, entry in manifest_module.describe(arrays, None).items():
        fields["files"][name] = entry.model_dump(mode="json")
    signed = Manifest.model_validate(fields).signed()
    (folder / "manifest.json").write_text(signed.model_dump_json(by_alias=True))


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
    for use in (lambda: changed[:], lambda: list(changed.chunks())):
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


@pytest.mark.parametrize("change", [{"standardize": "parent"}, {"classes": {"y": ["b", "a"]}}])
def test_a_changed_source_is_refused(folder: Path, change: dict):
    """It says how molecules are read and what labels mean."""
    source = json.loads((folder / "manifest.json").read_text())["source"]
    edit(folder, source=source | change)
    refused(folder, "changed after it was written")


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


def build_without_end(path: str) -> None:
    builder = StoreBuilder(CODES, path)
    while True:
        builder.add(to_chunk(make_graphs(50)))


def test_a_killed_build_leaves_nothing_at_the_target(tmp_path: Path):
    target = tmp_path / "store"
    process = spawn(build_without_end, str(target))
    while not list(tmp_path.glob(".store.partial-*/store/*")):
        time.sleep(0.01)
    # a build that lives is left alone by another one to the same place
    store = build(make_graphs(7), CODES, target)
    assert len(list(tmp_path.glob(".store.partial-*"))) == 1
    store.save(target)
    process.kill()
    process.join()
    assert len(open_store(target)) == 7
    assert len(list(tmp_path.glob(".store.partial-*"))) == 1
    build(make_graphs(3), CODES, target)
    assert [p.name for p in tmp_path.iterdir()] == ["store"]
    assert sorted(p.suffix for p in target.iterdir()) == sorted([".json"] + [".bin"] * 9)


def test_a_store_or_an_empty_folder_is_replaced(tmp_path: Path):
    build(make_graphs(3), CODES, tmp_path / "s")
    (tmp_path / "empty").mkdir()
    for name in ("s", "empty"):
        assert len(build(make_graphs(4), CODES, tmp_path / name)) == 4


@pytest.mark.parametrize("manifest", ["{}", '{"name": "web app"}', "not JSON", "ours", None])
def test_what_others_have_written_is_never_deleted(tmp_path: Path, manifest: str | None):
    folder = tmp_path / "site"
    if manifest == "ours":  # a store in which somebody keeps notes
        build(make_graphs(3), CODES, folder)
    else:
        folder.mkdir()
        if manifest is not None:
            (folder / "manifest.json").write_text(manifest)
    (folder / "notes.txt").write_text("mine")
    for path in (folder, folder / "notes.txt"):
        with pytest.raises(ConfigError, match=r"not a graph store, or holds .* is not replaced"):
            StoreBuilder(CODES, path)
    assert (folder / "notes.txt").read_text() == "mine"


def test_readers_never_see_a_store_missing_or_mixed_while_it_is_replaced(tmp_path: Path):
    folder = tmp_path / "s"
    sizes = (30, 40)
    build(make_graphs(sizes[0]), CODES, folder)
    stop = threading.Event()

    def replace_often() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            build(make_graphs(sizes[turn % 2]), CODES, folder)

    writer = threading.Thread(target=replace_often)
    writer.start()
    try:
        for _ in range(200):
            assert len(open_store(folder)) in sizes
    finally:
        stop.set()
        writer.join()
    assert os.listdir(tmp_path) == ["s"]


def test_only_what_a_killed_build_of_this_name_left_is_removed(tmp_path: Path):
    name = "a[1]* é"
    stale = [f".{name}.partial-{k}-0123abcd" for k in (1, 2, 3)]
    others = [".a1.partial-1-0123abcd", f"{name}.partial-1-0123abcd", f".{name}.partial-1-x"]
    for folder in (*stale, *others):
        (tmp_path / folder / "store").mkdir(parents=True)
        (tmp_path / folder / "store" / "rows.bin").touch()
    (tmp_path / stale[0] / "lock").touch()  # the others were killed before they had one
    assert len(build(make_graphs(3), CODES, tmp_path / name)) == 3
    assert {p.name for p in tmp_path.iterdir()} == {name, *others}


def test_builds_of_one_store_at_once_do_not_take_each_other_for_dead(tmp_path: Path):
    with ThreadPoolExecutor(8) as pool:
        builds = [pool.submit(build, make_graphs(3), CODES, tmp_path / "s") for _ in range(24)]
        assert [len(done.result()) for done in builds] == [3] * 24
    assert os.listdir(tmp_path) == ["s"]


def test_a_place_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="cannot write the store"):
        StoreBuilder(CODES, tmp_path / "file" / "s")


@pytest.mark.parametrize("limit", [10, 8_000, 20_000])
def test_a_full_disk(tmp_path: Path, limit: int):
    message = r"cannot write the store .*s: File too large; free the disk"
    with short_files(limit), pytest.raises(DataError, match=message):
        build(make_graphs(3000), CODES, tmp_path / "s")
    assert not list(tmp_path.iterdir())


def test_types_widen_as_values_grow(tmp_path: Path):
    graphs = make_graphs(40)  # with more than 255 nodes, of more than 255 kinds
    for path in (None, tmp_path / "s"):
        for count, dtype in ((2, np.uint8), (40, np.uint16)):
            store = build(graphs[:count], CODES, path)
            for name in ("node_codes", "node_offsets"):
                assert store.contents.arrays[name].dtype == dtype
            assert store.contents.arrays["endpoints"].dtype == np.uint8
            assert_same(store, graphs, list(range(count)))
    assert not list(tmp_path.glob("s/*+"))


def test_chunks_must_agree():
    builder = StoreBuilder(CODES)
    builder.add(to_chunk(make_graphs(2)))
    for wrong in (
        to_chunk(make_graphs(2), texts=False),
        to_chunk(make_graphs(2), undirected=False),
        to_chunk(make_graphs(2, tasks=1)),
        replace(to_chunk(make_graphs(1)), x=np.zeros((1, 3), int)),
    ):
        with pytest.raises(AssertionError):
            builder.add(wrong)
    builder.reject(Reject(3, "", "row 2 is missing"))
    with pytest.raises(AssertionError, match="must be a graph or rejected"):
        builder.finish()


ROWS = 300


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Molecules that are read twenty at a time."""
    monkeypatch.setattr(records, "ROWS_A_PIECE", 20)
    names = ["C" * (2 + k % 7) + "NOF"[k % 3] for k in range(ROWS)]
    names[130], names[131], names[277] = "no molecule", "Q", "C(C"
    (tmp_path / "in.csv").write_text("\n".join(["smiles", *names]) + "\n")
    return tmp_path / "in.csv"


@pytest.mark.parametrize("stop_at", [1, 120, ROWS])
def test_an_interrupted_build_leaves_nothing_and_the_next_is_whole(
    table: Path, tmp_path: Path, stop_at: int
) -> None:
    def stop(done: int, rejected: int) -> None:
        if done >= stop_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        graphlog.featurize(table, tmp_path / "out", workers=1, progress=stop)
    assert left_in(tmp_path) == {"in.csv"}
    store = graphlog.featurize(table, tmp_path / "out", workers=1)
    assert [r.row for r in store.rejects] == [130, 131, 277]
    assert store.num_rows == ROWS
    assert left_in(tmp_path) == {"in.csv", "out", "rejects.csv"}


def test_a_refused_table_leaves_nothing(table: Path, tmp_path: Path) -> None:
    table.write_text("smiles,y\n" + "no molecule,1\n" * ROWS)
    with pytest.raises(DataError, match="probably the wrong column"):
        graphlog.featurize(table, tmp_path / "out")
    assert left_in(tmp_path) == {"in.csv"}


def test_reasons_are_one_line() -> None:
    builder = StoreBuilder(schema_named("molecule"))
    RowCollector(builder, "in.csv").reject(Reject(0, "C", "not\nvalid \n"))
    assert [r.reason for r in builder.finish().rejects] == ["not valid"]


def test_a_store_that_another_process_finished_meanwhile_is_kept(tmp_path: Path):
    with StoreBuilder(CODES, tmp_path / "s", overwrite=False) as builder:
        build(make_graphs(3), CODES, tmp_path / "s")
        with pytest.raises(ConfigError, match="s exists already; replace it"):
            builder.finish()
    assert len(open_store(tmp_path / "s")) == 3
    assert os.listdir(tmp_path) == ["s"]
    with pytest.raises(ConfigError, match="s exists already; replace it"):  # before any work
        StoreBuilder(CODES, tmp_path / "s", overwrite=False)


def test_a_folder_that_appears_meanwhile_is_kept(tmp_path: Path):
    with StoreBuilder(CODES, tmp_path / "s") as builder:
        (tmp_path / "s").mkdir()
        (tmp_path / "s" / "thesis.txt").touch()
        with pytest.raises(ConfigError, match="is not a graph store, or holds other files too"):
            builder.finish()
    assert left_in(tmp_path / "s") == {"thesis.txt"}
