"""The public names, called the way the documentation calls them."""

import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import graphlog
from downstream_support import (
    CHAINS,
    IS_ALCOHOL,
    LENGTH,
    chain_store,
    labeled,
    probed,
    tiny_encoder,
    tuned,
    write_csv,
)
from graphlog.domains.molecule import MOLECULE
from graphlog.errors import ConfigError, TrainingInterrupted
from graphlog.inputs import read
from graphlog.sklearn import GraphRegressor
from training_support import Heard

SMALL = {"encoder": {"dim": 8, "layers": 2}, "batch_size": 16}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "in.csv", ["no molecule", *CHAINS], active=[1, *IS_ALCOHOL])


def test_every_public_name_is_there():
    assert set(graphlog.__all__) <= set(dir(graphlog))
    with pytest.raises(AttributeError, match="pretrian"):
        graphlog.pretrian  # noqa: B018


def test_naming_the_domain_of_an_input_changes_nothing(table: Path, tmp_path: Path):
    stores = [
        graphlog.featurize(table, tmp_path / str(domain), domain=domain)
        for domain in (None, "molecule")
    ]
    assert stores[0].schema == stores[1].schema
    with pytest.raises(ConfigError, match="both choose the features"):
        graphlog.featurize(table, tmp_path / "s", like=stores[0], schema="molecule")


def test_the_version_is_the_projects():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'version = "{graphlog.__version__}"' in text


SEEDED: dict[str, Callable[..., object]] = {
    "pretrain seed": graphlog.pretrain,
    "finetune seeds": partial(graphlog.finetune, "random"),
    "finetune split_seed": partial(graphlog.finetune, "random"),
    "tune seeds": partial(graphlog.tune, "random", out="new"),
    "probe baseline_seeds": partial(graphlog.probe, "random"),
    "probe folds_seeds": partial(graphlog.probe, "random"),
    "fold_probe seeds": partial(graphlog.fold_probe, "random"),
    "split_file seed": partial(graphlog.split_file, path="new.json"),
    "write_prototypes seed": partial(graphlog.write_prototypes, "random", "new"),
    "draw_figures seed": partial(graphlog.draw_figures, out="new"),
    "run_quickstart seed": lambda _, seed: graphlog.run_quickstart("new", seed=seed),
}


@pytest.mark.parametrize("call", SEEDED)
def test_no_call_starts_with_a_seed_that_some_library_refuses(
    call: str, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    option = call.split()[1]
    monkeypatch.chdir(table.parent)
    for wrong in (-1, 2**32, 0.5):
        seeds = [0, wrong] if option.endswith("s") else wrong
        with pytest.raises(ConfigError, match=f"`{option}` must be") as error:
            SEEDED[call](table, **{option: seeds})
        assert error.value.option == option
    assert [path.name for path in table.parent.iterdir()] == [table.name]


def test_from_molecules_to_embeddings(table: Path, tmp_path: Path):
    graphs = graphlog.read_molecules(table)
    assert len(graphs) == len(CHAINS)
    graphs.save(tmp_path / "store")
    encoder = graphlog.pretrain(
        graphlog.open_store(tmp_path / "store"),
        objective="graphlog",
        recipe="default",
        seed=0,
        epochs=2,
        embedding="last",
        **SMALL,
    )
    assert isinstance(encoder, torch.nn.Module)
    encoding = encoder(graphs[:32])
    assert isinstance(encoding, graphlog.Encoding)
    assert encoding.graph_emb.shape == (32, 8)
    assert encoding.graph_emb.requires_grad
    encoder.save(tmp_path / "model.safetensors")
    loaded = graphlog.load(tmp_path / "model.safetensors")
    assert loaded.layer == encoder.layer == "last"
    assert not any(module.training for module in (*encoder.modules(), *loaded.modules()))
    z = loaded.embed(["CCO", "c1ccccc1"])
    assert z.dtype == np.float32
    np.testing.assert_array_equal(z, encoder.embed(["CCO", "c1ccccc1"]))
    np.testing.assert_array_equal(graphlog.embed(encoder, ["CCO", "c1ccccc1"]), z)


def test_pretraining_from_smiles_settings_and_a_model(tmp_path: Path):
    first = graphlog.pretrain(CHAINS, epochs=2, run_dir=tmp_path / "run", **SMALL)
    assert (tmp_path / "run" / "model.safetensors").exists()
    again = graphlog.pretrain(CHAINS, config=tmp_path / "run" / "config.toml")
    np.testing.assert_array_equal(again.embed(CHAINS[:3]), first.embed(CHAINS[:3]))
    before = first.embed(CHAINS[:3])
    more = graphlog.pretrain(CHAINS, init=first, config=tmp_path / "run" / "config.toml", seed=1)
    np.testing.assert_array_equal(first.embed(CHAINS[:3]), before)
    assert not np.array_equal(more.embed(CHAINS[:3]), before)
    for init in (None, more):
        resumed = graphlog.pretrain(CHAINS, run_dir=tmp_path / "run", resume=True, init=init)
        np.testing.assert_array_equal(resumed.embed(CHAINS[:3]), before)


def test_a_command_that_starts_from_a_model_or_continues_may_be_given_again(tmp_path: Path):
    runs = [tmp_path / name for name in ("stopped", "whole")]
    job: dict[str, Any] = {"init": graphlog.pretrain(CHAINS, epochs=1, **SMALL), "epochs": 2}
    stops = Mock(on_row=lambda row: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(TrainingInterrupted):
        graphlog.pretrain(CHAINS, run_dir=runs[0], resume=True, callbacks=[stops], **job)
    found = [graphlog.pretrain(CHAINS, run_dir=run, resume=True, **job) for run in runs]
    np.testing.assert_array_equal(*[encoder.embed(CHAINS[:3]) for encoder in found])


def test_settings_of_a_run_serve_another_backbone(tmp_path: Path):
    graphlog.pretrain(CHAINS, epochs=1, run_dir=tmp_path / "gin", **SMALL)
    config = tmp_path / "gin" / "config.toml"
    for changes in ({"encoder.backbone": "gat"}, {"encoder": {"backbone": "gat"}}):
        found = graphlog.pretrain(CHAINS, config=config, **changes)
        assert (found.config.backbone, found.config.dim) == ("gat", 8)


@pytest.mark.parametrize("how", ["resume", "overwrite"])
def test_a_refused_run_leaves_the_folder_as_it_was(tmp_path: Path, how: str):
    first, second = (tmp_path / name for name in ("a.csv", "b.csv"))
    first.write_text("smiles\n" + "\n".join(["CCO", "CCN", "CCC", "none", "c1ccccc1"] * 2))
    second.write_text("smiles\n" + "\n".join(["CCCl", "CCBr", "CCCC", "c1ccncc1"] * 2))
    options: dict[str, Any] = {"run_dir": tmp_path / "run", "encoder": {"dim": 8, "layers": 1}}
    graphlog.pretrain(first, "attrmasking", epochs=1, batch_size=4, **options)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    options |= {"resume": True} if how == "resume" else {"overwrite": True, "device": "cuda:99"}
    with pytest.raises(ConfigError):
        graphlog.pretrain(second, "attrmasking", epochs=1, batch_size=4, **options)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_a_run_is_not_replaced_if_an_argument_is_refused(tmp_path: Path):
    run: dict[str, Any] = {"run_dir": tmp_path / "run", "overwrite": True}
    data, features = labeled(IS_ALCOHOL), {"with_features": ["descriptors"]}
    without_texts = replace(data, store=read(CHAINS, MOLECULE, keep_texts=False))
    probed(data, **run)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    for refused in (
        lambda: graphlog.pretrain(CHAINS, callbacks=[print], **run),
        lambda: tuned(callbacks=["nope"], **run),
        lambda: tuned(without_texts, kernel=True, **features, **run),
        lambda: probed(without_texts, **features, **run),
    ):
        with pytest.raises(graphlog.GraphLoGError):
            refused()
        assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_training_is_the_same_in_inference_mode():
    def train() -> tuple[np.ndarray, ...]:
        encoder = tiny_encoder("jk")
        trained = graphlog.pretrain(CHAINS, "attrmasking", init=encoder, epochs=1, batch_size=16)
        predicted = tuned(encoder=encoder, seeds=(0,)).predict(CHAINS)
        regressor = GraphRegressor(encoder, epochs=1).fit(iter(CHAINS), LENGTH)
        return trained.embed(CHAINS), predicted, regressor.predict(CHAINS)

    expected = train()
    with torch.inference_mode():
        found = train()
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_checkpoint_is_never_written_over(tmp_path: Path):
    old = tmp_path / "old.pth"
    old.write_bytes(b"whatever it is")
    with pytest.raises(graphlog.ConfigError, match="is the checkpoint itself"):
        graphlog.convert(old, old)
    assert old.read_bytes() == b"whatever it is"


@pytest.mark.parametrize("source", [chain_store(), CHAINS], ids=["store", "list"])
def test_an_unknown_schema_is_refused_whatever_the_input(source: Any):
    with pytest.raises(ConfigError, match="unknown schema 'molecule-cpi'; did you mean"):
        graphlog.pretrain(source, schema="molecule-cpi")


@pytest.mark.parametrize("given", [{}, {"schema": "molecule-rich"}])
def test_a_schema_of_the_settings_is_spoken_of_only_where_it_was_given(given: dict[str, str]):
    said = Heard()
    graphlog.pretrain(chain_store(), epochs=1, progress=said, **given, **SMALL)
    lines = [line for line in said.lines if "the settings say schema" in line]
    assert len(lines) == len(given)
