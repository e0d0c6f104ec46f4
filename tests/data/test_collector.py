"""A store built in parts: however it is interrupted, the end is the same, and work is kept."""

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cli_support import left_in
from graphlog.data import collector
from graphlog.data.store import GraphStore
from graphlog.domains import DOMAINS, records
from graphlog.domains.molecule.parse import featurize_smiles
from graphlog.domains.records import RecordDomain
from graphlog.errors import DataError
from graphlog.files import acquire_lock
from graphlog.inputs import resolve
from store_support import read_slowly
from training_support import server

ROWS, PART, PIECE = 900, 100, 20


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "PIECES_A_PART", PART // PIECE)
    monkeypatch.setattr(records, "ROWS_A_PIECE", PIECE)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "in.csv")


def write_table(path: Path, changed: int | None = None) -> Path:
    names = ["C" * (2 + k % 7) + "NOF"[k % 3] for k in range(ROWS)]
    names[130], names[131], names[777] = "no molecule", "", "C(C"
    if changed is not None:
        names[changed] = "c1ccccc1"
    lines = [f"{name},{k % 2}" for k, name in enumerate(names)]
    path.write_text("\n".join(["smiles,y", *lines]) + "\n")
    return path


def read(table: Path, out: Path, stop_at: int = ROWS + 1, **options: Any) -> tuple[GraphStore, int]:
    """Return the store, and how many rows were featurized for it."""
    worked_out = 0

    def counting(texts: Sequence[str], schema: Any) -> Any:
        nonlocal worked_out
        worked_out += len(texts)
        return featurize_smiles(texts, schema)

    def stop(done: int, rejected: int) -> None:
        if done >= stop_at:
            raise KeyboardInterrupt

    domain = DOMAINS["molecule"]
    assert isinstance(domain, RecordDomain)
    options = {"targets": ["y"], "schema": domain.schemas["molecule"], "keep_parts": True} | options
    store = RecordDomain.read(
        domain, resolve(table), workers=1, work=counting, progress=stop, store_path=out, **options
    )
    return store, worked_out


def bytes_of(store: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in store.iterdir()}


@pytest.fixture
def whole(table: Path, tmp_path: Path) -> dict[str, str]:
    read(table, tmp_path / "whole")
    assert left_in(tmp_path) == {"in.csv", "whole"}
    return bytes_of(tmp_path / "whole")


@pytest.mark.parametrize("stop_at", [1, PART, PART + PIECE, 510, ROWS])
def test_what_was_finished_is_not_done_again(
    table: Path, tmp_path: Path, whole: dict[str, str], stop_at: int
):
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        read(table, out, stop_at)
    finished = -(-stop_at // PIECE) * PIECE // PART * PART
    assert left_in(tmp_path) == {"in.csv", "whole"} | ({"out.parts"} if finished else set())
    store, worked_out = read(table, out)
    assert worked_out == ROWS - finished
    assert bytes_of(out) == whole
    assert [r.row for r in store.rejects] == [130, 131, 777]
    assert left_in(tmp_path) == {"in.csv", "whole", "out"}


def interrupted(table: Path, out: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        read(table, out, 510)


def test_rows_that_have_changed_are_read_anew(table: Path, tmp_path: Path, whole: dict[str, str]):
    interrupted(table, tmp_path / "out")
    write_table(table, changed=250)
    _, worked_out = read(table, tmp_path / "out")
    assert worked_out == ROWS - 2 * PART
    read(table, tmp_path / "fresh")
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "fresh") != whole
    assert left_in(tmp_path) == {"in.csv", "whole", "out", "fresh"}


@pytest.mark.parametrize(
    "options",
    [
        {"schema": DOMAINS["molecule"].schemas["molecule-rich"]},
        {"targets": None},
        {"keep_texts": False},
    ],
)
def test_parts_of_other_settings_are_not_used(table: Path, tmp_path: Path, options: dict[str, Any]):
    interrupted(table, tmp_path / "out")
    assert read(table, tmp_path / "out", **options)[1] == ROWS
    assert left_in(tmp_path) == {"in.csv", "out"}


def test_a_damaged_part_and_those_after_it_are_not_used(
    table: Path, tmp_path: Path, whole: dict[str, str]
):
    interrupted(table, tmp_path / "out")
    damaged = tmp_path / "out.parts" / "part-00001" / "endpoints.bin"
    damaged.write_bytes(bytes([damaged.read_bytes()[0] ^ 1]) + damaged.read_bytes()[1:])
    assert read(table, tmp_path / "out")[1] == ROWS - PART
    assert bytes_of(tmp_path / "out") == whole


def test_folders_of_others_stay(table: Path, tmp_path: Path, whole: dict[str, str]):
    shards = tmp_path / "out.parts"
    for name in ("part-00000", "part-00001"):
        read(table, shards / name)
    (shards / "part-00002-old").mkdir()
    assert read(table, tmp_path / "out")[1] == ROWS
    assert left_in(shards) == {"part-00000", "part-00001", "part-00002-old"}
    assert bytes_of(tmp_path / "out") == bytes_of(shards / "part-00000") == whole


def test_files_of_others_in_the_folder_of_parts_stay(table: Path, tmp_path: Path):
    interrupted(table, tmp_path / "out")
    mine = tmp_path / "out.parts" / "part-00002" / "mine.txt"
    mine.write_text("mine")
    read(table, tmp_path / "out")
    assert mine.read_text() == "mine"
    assert left_in(tmp_path) == {"in.csv", "out", "out.parts"}


def test_without_room_for_parts_the_store_is_built(
    table: Path, tmp_path: Path, whole: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    finish = collector.StoreBuilder.finish

    def full(builder: Any, *rows: Any) -> Any:
        if builder.path.parent.name == "out.parts":
            raise DataError("the disk is full")
        return finish(builder, *rows)

    monkeypatch.setattr(collector.StoreBuilder, "finish", full)
    assert read(table, tmp_path / "out")[1] == ROWS
    assert bytes_of(tmp_path / "out") == whole
    assert left_in(tmp_path) == {"in.csv", "whole", "out"}


def test_a_refused_table_leaves_nothing(table: Path, tmp_path: Path):
    table.write_text("smiles,y\n" + "no molecule,1\n" * ROWS)
    with pytest.raises(DataError, match="probably the wrong column"):
        read(table, tmp_path / "out")
    assert left_in(tmp_path) == {"in.csv"}


def test_parts_without_a_graph(table: Path, tmp_path: Path):
    table.write_text("smiles,y\n" + "no molecule,1\n" * 2 * PART + "CC,1\n" * 4 * PART)
    with pytest.raises(KeyboardInterrupt):
        read(table, tmp_path / "out", 2 * PART)
    assert read(table, tmp_path / "out")[1] == 4 * PART
    read(table, tmp_path / "whole")
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "whole")


def test_parts_of_another_version_are_not_used(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    interrupted(table, tmp_path / "out")
    monkeypatch.setattr(records, "__version__", "99.0")
    assert read(table, tmp_path / "out")[1] == ROWS


def test_two_builds_of_one_store_do_not_share_parts(
    table: Path, tmp_path: Path, whole: dict[str, str]
):
    interrupted(table, tmp_path / "out")
    lock = acquire_lock(tmp_path / "out.parts" / "lock")
    assert lock is not None
    assert read(table, tmp_path / "out")[1] == ROWS
    lock.release()
    assert bytes_of(tmp_path / "out") == whole


def test_a_build_killed_again_and_again_ends_with_the_same_bytes(
    table: Path, tmp_path: Path, whole: dict[str, str]
):
    out, seen = tmp_path / "out", 0
    while not out.exists():
        process = server().Process(target=read_slowly, args=(table, out, PART // PIECE, PIECE))
        process.start()
        # each start gets a few parts further
        while process.is_alive() and not (tmp_path / f"out.parts/part-{seen + 2:05d}").exists():
            time.sleep(0.002)
        seen += 3
        process.kill()
        process.join()
    assert bytes_of(tmp_path / "out") == whole
    assert left_in(tmp_path) <= {"in.csv", "whole", "out", "out.parts"}
