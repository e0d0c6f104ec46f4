"""A Ray cluster of two nodes: what it computes is what this process computes."""

import importlib
import io
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphlog
from cli_support import Cli, left_in
from cluster_support import Square, die, die_once, refuse
from downstream_support import CHAINS, classifier, tiny_encoder, write_csv
from graphlog.data import workers
from graphlog.data.workers import spread_in_order, using
from graphlog.domains import records
from graphlog.errors import ConfigError, DataError, MissingExtraError, ProcessLostError
from graphlog.inputs import read

SMILES = [*CHAINS[:20], "no molecule", *CHAINS[20:], "", "C1CC"]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster of two nodes with one processor each, which ``RAY_ADDRESS`` names."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        # workers are processes of the nodes and import this folder's cluster_support themselves
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
        head = {"num_cpus": 1, "include_dashboard": False}
        made = Cluster(initialize_head=True, head_node_args=head)
        made.add_node(num_cpus=1)
        patch.setenv("RAY_ADDRESS", str(made.address))
        patch.setattr(records, "ROWS_A_PIECE", 7)
        yield made
    made.shutdown()


@pytest.fixture(scope="module")
def session(nodes: Any) -> Iterator[None]:
    """This process joined to the cluster, once for all tests."""
    import ray

    ray.init(log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the functions that the cluster has been given."""
    names: set[str] = set()
    spread = vars(workers)["_map_on_ray"]

    def noted(ray: Any, work: Any, pieces: Any) -> Any:
        names.add(getattr(work, "func", work).__name__)
        return spread(ray, work, pieces)

    monkeypatch.setattr(workers, "_map_on_ray", noted)
    return names


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "in.csv", SMILES, name=range(len(SMILES)))


def test_what_cannot_be_used_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    out = tmp_path / "out.npz"
    with pytest.raises(ConfigError, match="did you mean 'ray'"):
        graphlog.embed_file(tiny_encoder(), ["C"], out, engine="rya")
    with pytest.raises(ConfigError, match="drop `device='cuda'`"):
        graphlog.embed_file(tiny_encoder(), ["C"], out, engine="ray", device="cuda")
    elsewhere = tiny_encoder()
    with pytest.raises(ConfigError, match=r"the model is on 'meta'; move it by \.to\('cpu'\)"):
        graphlog.embed(elsewhere.to("meta"), ["C"], engine="ray")
    with pytest.raises(ConfigError, match="did you mean 'ray'"):
        graphlog.featurize(["C"], tmp_path / "a.store", engine="rya")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"graphlog-torch\[ray\]"):
        graphlog.embed_file(tiny_encoder(), ["C"], out, engine="ray")
    assert left_in(tmp_path) == set()


def test_an_address_without_a_cluster_is_refused(
    cli: Cli, table: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"127.0.0.1:{closed.getsockname()[1]}"
    for address in (nobody, "http://127.0.0.1:8265"):
        monkeypatch.setenv("RAY_ADDRESS", address)
        words = "embed {table} -m graphlog-mol -o out.npz --engine ray"
        cli.refused(words, "RAY_ADDRESS", address)
    assert left_in() == {"in.csv"}


def written_by(engine: str, folder: Path, write: Callable[[Path], object]) -> dict[Path, bytes]:
    """Return every file that ``write`` leaves in a folder of the engine."""
    (folder / engine).mkdir()
    write(folder / engine)
    files = [path for path in (folder / engine).rglob("*") if path.is_file()]
    return {path.relative_to(folder / engine): path.read_bytes() for path in files}


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("ending", ["npz", "jsonl"])
def test_embeddings_of_a_table_are_those_of_this_process(tmp_path: Path, table: Path, ending: str):
    def embed(folder: Path) -> None:
        out = folder / f"out.{ending}"
        done = graphlog.embed_file(tiny_encoder(), table, out, engine=folder.name, batch_size=4)
        assert (done.rows, done.rejected) == (len(SMILES), 3)

    local, ray = (written_by(engine, tmp_path, embed) for engine in ("local", "ray"))
    assert {path.name for path in ray} == {"rejects.csv", f"out.{ending}"}
    assert ray == local


@pytest.mark.usefixtures("session")
def test_predictions_of_standard_input_are_those_of_this_process(
    cli: Cli, table: Path, monkeypatch: pytest.MonkeyPatch
):
    classifier().save("model.safetensors")
    written: list[str] = []
    for engine in ("local", "ray"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(table.read_bytes())))
        words = "predict - -m model.safetensors -o - --batch-size 4 --engine"
        ended = cli(words, engine)
        assert "predicting" in ended.err
        written.append(ended.out)
    assert len(written[0].splitlines()) == len(SMILES) + 1
    assert written[1] == written[0]


@pytest.mark.usefixtures("session")
def test_arrays_and_stores_too():
    encoder, store = tiny_encoder(), read(SMILES, tiny_encoder().schema)
    for source in (SMILES, store):
        found = graphlog.embed(encoder, source, engine="ray", with_features=["descriptors"])
        expected = graphlog.embed(encoder, source, with_features=["descriptors"])
        np.testing.assert_array_equal(found, expected)
        found = graphlog.predict(classifier(), source, engine="ray")
        np.testing.assert_array_equal(found, graphlog.predict(classifier(), source))


@pytest.mark.usefixtures("session", "table")
def test_a_store_is_that_of_this_process(cli: Cli, tmp_path: Path, sent: set[str]):
    write_csv(tmp_path / "unwanted.csv", CHAINS[3:6])

    def featurize(folder: Path) -> None:
        how = f"--exclude unwanted.csv --targets name --engine {folder.name}"
        cli(f"featurize in.csv -o {folder}/a.store {how}")

    local, ray = (written_by(engine, tmp_path, featurize) for engine in ("local", "ray"))
    assert ray == local
    assert ray[Path("rejects.csv")].count(b"excluded") == 3
    assert len(graphlog.open_store(tmp_path / "ray" / "a.store")) == len(SMILES) - 6
    assert sent == {"constitution_keys", "featurize_smiles"}


@pytest.mark.usefixtures("session")
def test_scores_of_a_probe_are_those_of_this_process(tmp_path: Path, sent: set[str]):
    rings = [f"{'C' * n}C1{'C' * k}C1" for n in range(4) for k in range(1, 13)]
    is_odd = [k % 2 for _ in range(4) for k in range(1, 13)]
    table = write_csv(tmp_path / "rings.csv", rings, odd=is_odd)
    once = {"baselines": ["random"], "baseline_seeds": (0,), "with_features": ["descriptors"]}
    folds = {"baselines": ["random"], "seeds": (0,), "folds": 3}
    calls: list[tuple[Any, dict[str, Any]]] = [(graphlog.probe, once), (graphlog.fold_probe, folds)]
    for call, options in calls:
        found, expected = (
            call(tiny_encoder(), table, engine=engine, targets=["odd"], **options)
            for engine in ("ray", "local")
        )
        assert found.to_dict() == expected.to_dict()
    assert sent == {"featurize_smiles", "scaffolds", "_rows", "target_values"}


@pytest.mark.usefixtures("session")
def test_bad_input_is_refused_in_the_same_words(tmp_path: Path, table: Path):
    words = write_csv(tmp_path / "words.csv", ["CCO", *["no molecule"] * 20])
    for source, reading in ((table, {"on_error": "fail"}), (words, {})):
        said: list[str] = []
        for engine in ("local", "ray"):
            out = tmp_path / "out.csv"
            with pytest.raises(DataError) as refused:
                graphlog.embed_file(tiny_encoder(), source, out, engine=engine, **reading)
            said.append(str(refused.value))
        assert said[0] == said[1]
    assert left_in(tmp_path) == {"in.csv", "words.csv"}


@pytest.mark.usefixtures("session")
def test_results_come_in_order_with_few_pieces_in_flight_on_one_thread():
    taken: list[int] = []

    def pieces() -> Iterator[tuple[str, int]]:
        for number in range(12):
            taken.append(number)
            yield f"piece {number}", number

    with using("ray"):
        found = spread_in_order(Square(), pieces(), workers=1)
        assert next(found) == ("piece 0", (0, 1))
        assert len(taken) <= 2 * 2 + 1
        assert list(found) == [(f"piece {k}", (k**2, 1)) for k in range(1, 12)]


@pytest.mark.usefixtures("session")
def test_a_dead_worker_is_replaced_and_one_that_always_dies_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with using("ray"):
        pieces = [(k, (tmp_path / "died", k)) for k in range(8)]
        assert list(spread_in_order(die_once, pieces, 1)) == [(k, k**2) for k in range(8)]
        assert (tmp_path / "died").exists()
        monkeypatch.setattr(workers, "_RETRIES", 1)
        with pytest.raises(ProcessLostError, match="failed over the same rows 2 times"):
            list(spread_in_order(die, [(k, k) for k in range(2, 4)], 1))
        with pytest.raises(DataError, match=r"^row 5: no number; leave it out\.$"):
            list(spread_in_order(refuse, [(0, 5)], 1))


@pytest.mark.usefixtures("session")
def test_workers_that_lack_the_code_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "only_here.py").write_text("def work(piece):\n    return piece\n")
    monkeypatch.syspath_prepend(tmp_path)
    work = importlib.import_module("only_here").work
    with using("ray"), pytest.raises(ProcessLostError, match=r"'only_here'.*on every machine"):
        list(spread_in_order(work, [(0, 0)], 1))


@pytest.mark.usefixtures("session")
def test_a_node_that_is_lost_is_done_without(nodes: Any):
    """The last of the cluster: one node is gone after it."""
    with using("ray"):
        found = spread_in_order(Square(), ((k, k) for k in range(30)), 1)
        results = [next(found) for _ in range(4)]
        nodes.remove_node(nodes.list_all_nodes()[-1], allow_graceful=False)
        results += found
    assert [value for _, (value, _) in results] == [k**2 for k in range(30)]
