"""A store is whole or not there: an interrupted build leaves nothing that hinders the next."""

from pathlib import Path

import pytest

import graphlog
from cli_support import left_in
from graphlog.data.graphs import Reject
from graphlog.data.store import RowCollector, StoreBuilder
from graphlog.domains import records, schema_named
from graphlog.errors import DataError

ROWS, PIECE = 300, 20


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "ROWS_A_PIECE", PIECE)


@pytest.fixture
def table(tmp_path: Path) -> Path:
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
