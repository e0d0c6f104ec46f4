"""From a source to a store: every row accounted for, labels as numbers, whatever the workers."""

import gzip
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import numpy as np
import pytest

from graphlog.api import read_molecules
from graphlog.data import workers as pool
from graphlog.data.graphs import RejectKind
from graphlog.data.store import open_store
from graphlog.domains import records
from graphlog.errors import ConfigError, DataError, GraphLoGError


def write(tmp_path: Path, content: str, name: str = "a.csv") -> Path:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8", newline="")
    return path


def refusal(source: object, kind: type[GraphLoGError] = DataError, **options) -> str:
    with pytest.raises(kind) as caught:
        read_molecules(source, **options)
    return str(caught.value)


def test_a_list_of_smiles():
    store = read_molecules(["CCO", "C1CC", "", None, "c1ccccc1"])
    assert (len(store), store.num_rows, store.tasks) == (2, 5, ())
    assert store.rows.tolist() == [0, 4]
    assert store.texts() == ["CCO", "c1ccccc1"]
    assert [(r.row, r.text, r.reason) for r in store.rejects] == [
        (1, "C1CC", "RDKit cannot parse: unclosed ring"),
        (2, "", "empty"),
        (3, "", "empty"),
    ]
    assert len(read_molecules(["C1CC"])) == read_molecules([]).num_rows == 0


def test_a_file_with_labels(tmp_path: Path):
    rows = "CCO,1,0.5,x\nC1CC,0,7,y\nC,,NaN,z\nCC,0,-1e3,\nCCC,True,N/A,w\n"
    path = write(tmp_path, f"smiles,a,b,name\n{rows}")
    store = read_molecules(path, targets=["b", "a"])
    assert store.tasks == ("b", "a")
    assert store.rows.tolist() == [0, 2, 3, 4]
    expected = [[0.5, 1], [np.nan, np.nan], [-1000, 0], [np.nan, 1]]
    np.testing.assert_array_equal(store.labels, expected)
    assert read_molecules(path, targets="auto").tasks == ("a", "b")
    assert read_molecules(path, targets="a").tasks == ("a",)
    assert read_molecules(path).labels is None


WORDS = "smiles,a,b\nCCO,1,1\nC,strong,inf\n"
ONE = "smiles,a\nC,1\n"
FORMS = (
    "data row 1: label 'a' must be a number, 0/1, yes/no, true/false, active/inactive, "
    "positive/negative, or empty, found 'strong'; leave out units and bounds such as >, "
    "write a decimal comma as a point, or choose other `targets`."
)
BOUNDS = "smiles,a\nC,>10\nCC,ND\nCCC,2 uM\nCCN,>10\n"
MIXED = "smiles,a\nC,-3.2\nCC,inactive\n"


@pytest.mark.parametrize(
    ("content", "targets", "message"),
    [
        (WORDS, "a", FORMS),
        (WORDS, ["b"], "data row 1: label 'b'"),
        (BOUNDS, "a", "'>10' (and further down 'ND', '2 uM');"),
        (MIXED, "a", "numbers and words for classes ('inactive')"),
        (ONE, ["aa"], "did you mean 'a'"),
        (ONE, ["smiles"], "SMILES column and cannot be a label"),
        (ONE, ["a", "a"], "given more than once"),
        ("smiles,a\nC,x\n", "auto", "no column of numbers"),
    ],
)
def test_labels_that_cannot_be_read(tmp_path: Path, content: str, targets: Any, message: str):
    path = write(tmp_path, content)
    found = refusal(path, targets=targets)
    assert found.startswith(f"{path}")
    assert message in found


def test_labels_of_rejected_and_ragged_rows_do_not_stray(tmp_path: Path):
    path = write(tmp_path, "smiles,a\nC,1\nCC,2,x\nC1C,3\nCCC,4\nO\nN,6\n")
    store = read_molecules(path, targets=["a"])
    assert store.rows.tolist() == [0, 3, 5]
    assert store.labels.ravel().tolist() == [1, 4, 6]
    assert [r.row for r in store.rejects] == [1, 2, 4]


def test_mostly_bad_rows_are_an_error(tmp_path: Path):
    message = refusal(write(tmp_path, "smiles\nethanol\nwater\nCCO\n"))
    assert "2 of 3 rows cannot be used" in message
    assert "row 0: 'ethanol'" in message
    assert "choose one with `smiles_column`, or take the bad rows out." in message
    assert len(read_molecules(write(tmp_path, "smiles\nethanol\nCCO\n"))) == 1


def test_on_error_fail_stops_at_the_first(tmp_path: Path):
    path = write(tmp_path, "smiles\nC\nC1C\nC1C\n")
    assert refusal(path, on_error="fail").startswith(
        f"{path}, data row 1: 'C1C': RDKit cannot parse: unclosed ring; fix it"
    )
    assert "data row 1" in refusal(["C", ""], on_error="fail")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"schema": "molecule_rich"}, "did you mean 'molecule-rich'"),
        ({"workers": -1}, "workers"),
        ({"limit": 0}, "limit"),
        ({"targets": ["a"]}, "columns of a table"),
        ({"on_error": "ignore"}, "fail, skip"),
    ],
)
def test_options_that_are_wrong(options: dict[str, Any], words: str):
    assert words in refusal(["C"], ConfigError, **options)


def test_limit_and_progress_and_texts(tmp_path: Path):
    path = write(tmp_path, "smiles\n" + "CCO\nC1C\nC\n" * 1000)
    progress = Mock()
    store = read_molecules(path, limit=2500, progress=progress, keep_texts=False, workers=1)
    assert (store.num_rows, len(store) + len(store.rejects)) == (2500, 2500)
    assert progress.call_args_list == [call(1024, 341), call(2048, 683), call(2500, 833)]
    with pytest.raises(DataError, match="without its texts"):
        store.texts()


def test_molecules_of_other_files_are_left_out_whatever_their_stereo(tmp_path: Path):
    text = "id,smiles\n1,C[C@@H](N)C(O)=O\n2,C1CCCCC1.Cl\n3,xx\n4,[CH3:1][OH:2]\n"
    unwanted = write(tmp_path, text)
    smiles = ["CCO", "OC(=O)C(C)N", "N[C@H](C)C(=O)O", "C1C", "C1CCCCC1.[Na+]", "C1CCCC[13CH2]1"]
    smiles += ["CO", "C1CCCC[CH2:1]1", "[2H]OC"]
    store = read_molecules(smiles, exclude=[unwanted])
    assert (store.rows.tolist(), store.num_rows) == ([0], 9)
    assert [r.row for r in store.rejects] == list(range(1, 9))  # of a salt, the parent counts
    assert [r.row for r in store.rejects if r.kind != RejectKind.EXCLUDED] == [3]
    assert store.texts() == ["CCO"]


def test_leaving_out_most_of_a_file_is_no_sign_of_a_wrong_column(tmp_path: Path):
    path = write(tmp_path, "smiles\n" + "CCO\n" * 50 + "C\n")
    assert len(read_molecules(path, exclude=str(path), workers=1)) == 0
    assert "holds graphs, not molecules" in refusal(path, ConfigError, exclude="mutag")
    assert len(read_molecules(path, exclude=[path], workers=1, on_error="fail")) == 0
    store = read_molecules(["C"], store_path=tmp_path / "store")
    assert len(read_molecules(path, exclude=store.path, workers=1)) == 50
    assert "is a store already" in refusal(tmp_path / "store", ConfigError, exclude=[path])
    names = write(tmp_path, "smiles\nethanol\nmethane\nC\n", "names.csv")
    assert f"{names}: 2 of 3 rows cannot be read" in refusal(path, exclude=names)


def test_a_store_is_opened_rather_than_read(tmp_path: Path):
    made = read_molecules(["CCO", "C1C"], store_path=tmp_path / "store")
    assert read_molecules(tmp_path / "store").digest == made.digest
    assert open_store(tmp_path / "store").rejects == made.rejects
    copy = read_molecules(str(tmp_path / "store"), store_path=tmp_path / "copy")
    assert copy.digest == made.digest


def test_two_workers_make_the_same_store_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(records, "ROWS_A_PIECE", 100)
    lines = ["C" * (1 + k % 40) + ("" if k % 7 else "1") + "\n" for k in range(900)]
    (path := tmp_path / "a.smi.gz").write_bytes(gzip.compress("".join(lines).encode()))
    other = write(tmp_path, "".join("C" * k + "\n" for k in range(1, 31)), "b.smi")
    alone, together = (read_molecules(path, exclude=[other], workers=n) for n in (1, 2))
    assert alone.digest == together.digest
    assert alone.rejects == together.rejects
    assert len(alone) + len(alone.rejects) == 900
    assert alone.num_nodes.min() == 31


def test_a_killed_worker_is_one_clear_error():
    with pytest.raises(DataError, match="a worker process died"):
        list(pool.map_in_order(os._exit, ((k, k) for k in range(12)), workers=2))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_workers_end_when_their_parent_is_killed():
    program = (
        "import os, time\n"
        "from graphlog.data.workers import map_in_order\n"
        "for _ in map_in_order(time.sleep, ((k, 0.1) for k in range(10**6)), workers=2):\n"
        "    print(flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        # the workers, and the resource tracker, which ends with the last of them
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        started = [int(pid) for pid in children.read_text().split()]
        assert len(started) >= 2
        process.kill()
    while any(Path(f"/proc/{pid}").exists() for pid in started):
        time.sleep(0.1)


def test_an_error_in_a_worker_is_that_error():
    with pytest.raises(ValueError, match="invalid literal"):
        list(pool.map_in_order(int, ((None, text) for text in "0123x56789"), workers=2))


def test_no_more_than_a_few_pieces_are_taken_ahead():
    taken = itertools.count()
    pieces = ((next(taken), k) for k in range(100))
    results = pool.map_in_order(abs, pieces, workers=2)
    assert next(results) == (0, 0)
    assert next(taken) <= pool.WORTH_A_POOL + 5
    results.close()
