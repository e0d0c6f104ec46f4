"""Nothing half-written: a build ends with a whole store or with none."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import graphlog
from cli_support import left_in, short_files
from graphlog.data.graphs import Reject
from graphlog.data.store import RowCollector, StoreBuilder, open_store
from graphlog.domains import records, schema_named
from graphlog.errors import ConfigError, DataError
from store_support import CODES, assert_same, build, make_graphs, to_chunk
from training_support import spawn


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


def test_reasons_are_one_line(table: Path, tmp_path: Path) -> None:
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
