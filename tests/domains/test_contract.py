"""What every domain must do, and a domain that is defined only here: from file to predictions."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import graphlog
from cli_support import Cli, read_table
from graphlog.domains import DOMAINS, Domain, domain_of, register, schema_named
from graphlog.domains.base import Draws
from graphlog.errors import ConfigError, TrainingInterrupted
from graphlog.inputs import read, resolve
from graphs_support import rings
from protein_support import clustered_links, write
from training_support import After, outcome
from words_domain import DOMAIN, PATH

SMALL = {"dim": 8, "layers": 2}
WORDS = [w * n for w in ("ab", "cde", "fg", "hij", "klmn") for n in range(1, 9)]


class Case(NamedTuple):
    """An input of a domain, with labels, and how it is named."""

    source: Path
    """A file or folder."""
    rows: int
    targets: list[str] | None
    schema: list[str]
    """What the command line is told beside the input."""
    rejected: int


def _molecules(folder: Path) -> Case:
    smiles = [f"{'C' * n}{end}" for n in range(2, 22) for end in ("O", "N")]
    path = folder / "molecules.csv"
    path.write_text("smiles,y\n" + "".join(f"{s},{int('O' in s)}\n" for s in [*smiles, "C1C"]))
    return Case(path, len(smiles) + 1, ["y"], [], 1)


def _words(folder: Path) -> Case:
    path = folder / "words.csv"
    path.write_text("word,y\n" + "".join(f"{w},{int('a' in w)}\n" for w in [*WORDS, "C3PO"]))
    return Case(path, len(WORDS) + 1, ["y"], ["--schema", "path"], 1)


def _graphs(folder: Path) -> Case:
    return Case(rings(folder / "rings.jsonl", 40, 2), 40, None, [], 0)


def _proteins(folder: Path) -> Case:
    links = folder / "9.protein.links.detailed.txt"
    write(links, clustered_links(4, 10, "9"))
    names = [name for name in read(resolve(links), domain="protein").texts()]
    labels = folder / "labels.csv"
    labels.write_text("protein,y\n" + "".join(f"{n},{k % 2}\n" for k, n in enumerate(names)))
    store = folder / "proteins.store"
    read(resolve(links), domain="protein", labels=labels, min_positives=5, store_path=store)
    return Case(store, len(names), None, [], 0)


CASES: dict[str, Callable[[Path], Case]] = {
    "molecule": _molecules,
    "path": _words,
    "graph": _graphs,
    "protein": _proteins,
}


@pytest.fixture(autouse=True)
def path_domain() -> Iterator[None]:
    """The domain of this file, registered for the time of a test."""
    register(DOMAIN)
    yield
    del DOMAINS["path"]


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return CASES[request.param](tmp_path)


@pytest.mark.parametrize("domain", [*DOMAINS.values(), DOMAIN], ids=lambda d: d.name)
def test_what_a_domain_says_of_itself(domain: Domain) -> None:
    assert all(schema.domain == domain.name for schema in domain.schemas.values())
    assert {"targets", "on_error", "workers", "limit", "store_path"} <= domain.reading.names()
    assert {"data_dir", "progress"} <= domain.reading.names()
    if not domain.targets:
        with pytest.raises(ConfigError, match="no descriptors"):
            domain.target_values([])


def test_what_a_domain_makes_of_a_file(case: Case) -> None:
    schema = schema_named(case.schema[1]) if case.schema else None
    store = read(case.source, schema, **({"targets": case.targets} if case.targets else {}))
    own = domain_of(store.schema)
    assert (store.num_rows, len(store.rejects)) == (case.rows, case.rejected)
    train, valid, test = own.split(store, "random", (0.5, 0.25, 0.25), 0)
    assert sorted([*train, *valid, *test]) == list(range(len(store)))
    assert own.default_split(store, "classification")
    assert all(len(f.values) == len(store) for f in own.features(store))
    for name, columns in own.feature_sets.items():
        assert own.feature_set(name, store).values.shape == (len(store), len(columns))
    with pytest.raises(ConfigError, match=r"odor|have no features"):
        own.check_feature_sets(["odor"])
    groups = own.groups(store)
    assert groups is None or len(groups) == len(store)
    assert not isinstance(own, Draws) or len(own.draw(store, [0, 1], 200, 140)) == 2
    assert isinstance(own.describe(store), dict)


def test_from_a_file_to_predictions(case: Case, cli: Cli) -> None:
    def run(words: str) -> Any:
        return cli(words, "--json").json

    source, store = case.source, case.source
    labels = f"--targets {','.join(case.targets)}" if case.targets else ""
    if source.suffix != ".store":
        store = "a.store"
        run(f"featurize {source} -o {store} {labels} {' '.join(case.schema)}")
    small = "--epochs 2 --batch-size 16 --set encoder.dim=8 --set encoder.layers=2"
    run(f"pretrain {store} -o run {small} --recipe graphlog")
    run(f"embed {source} -m run -o z.npz")
    z = np.load("z.npz")["embeddings"]
    assert z.shape == (case.rows, graphlog.load("run").width())
    assert np.isnan(z).any(axis=1).sum() == case.rejected
    run(f"data split {store} --kind random -o split.json")
    quick = "--split random --seeds 0 --epochs 1 --baselines none"
    run(f"finetune {source} -m run -o ft {labels} {quick}")
    run(f"predict {source} -m ft -o p.csv")
    rows = read_table("p.csv")
    assert len(rows) == case.rows
    assert sum(row["graphlog_status"] != "ok" for row in rows) == case.rejected
    probed = run(f"probe {source} -m run {labels} --split random --baseline-seeds 0")
    assert probed["task"] == "classification"
    for how in ("", "--fit"):
        run(f"prototypes run -o tree{how} --input {source} {how}")
        tree = json.loads(Path(f"tree{how}/tree.json").read_text())
        assert tree["graphs"] == case.rows - case.rejected
    run(f"info {store}")
    if source != store:
        run(f"featurize {source} -o again --like run")


@pytest.mark.parametrize(
    ("domain", "packed"),
    # the proteins are a store already
    [("molecule", False), ("path", False), ("path", True), ("graph", False), ("protein", False)],
)
def test_a_run_that_is_killed_ends_as_if_nothing_had_happened(
    domain: str, packed: bool, cli: Cli, tmp_path: Path
) -> None:
    case = CASES[domain](tmp_path)
    source, schema = case.source, dict(zip(["schema"], case.schema[1:], strict=False))
    if packed:
        source, schema = tmp_path / "a.store", {}
        cli(f"featurize {case.source} -o {source} {' '.join(case.schema)}")
    small = {"objective": "attrmasking", "epochs": 2, "batch_size": 16, "encoder": SMALL}
    small["precision"] = "bf16"  # casts of the weights that autocast keeps are in no checkpoint

    def encoder(run: str, **options: Any) -> None:
        graphlog.pretrain(source, run_dir=tmp_path / run, **options)

    encoder("whole", **small, **schema)
    stop = After(2, partial(os.kill, os.getpid(), signal.SIGTERM))
    with pytest.raises(TrainingInterrupted):
        encoder("run", **small, **schema, progress=stop)
    encoder("run", resume=True)
    encoder("again", config=tmp_path / "run" / "config.toml")
    whole = outcome(tmp_path / "whole")
    assert outcome(tmp_path / "run") == whole
    assert outcome(tmp_path / "again") == whole


def test_an_input_of_another_domain_is_refused_in_one_line(tmp_path: Path) -> None:
    encoder = graphlog.pretrain(WORDS, schema="path", epochs=1, batch_size=8, encoder=SMALL)
    with pytest.raises(ConfigError, match="holds graphs, but the model reads words"):
        encoder.embed(_graphs(tmp_path).source)
    with pytest.raises(ConfigError, match="`radius` is for proteins"):
        read(_words(tmp_path).source, PATH, radius=2)
