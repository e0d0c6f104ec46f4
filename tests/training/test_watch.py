"""The collapse watch against slow formulas, and its alarms against made-up collapses."""

import math

import pytest
import torch
from torch.nn import functional as F

import graphlog
from graphlog.encoders.encoder import build_encoder
from graphlog.training.pretrain import run_pretraining
from graphlog.training.settings import resolve_config
from graphlog.training.watch import (
    CollapseWatch,
    alignment,
    effective_rank,
    mean_cosine,
    uniformity,
)
from training_support import SMALL, Heard, families, small_config


@pytest.mark.parametrize(("rows", "width"), [(40, 8), (8, 40)])
def test_effective_rank_is_rankme_of_centered_embeddings(rows: int, width: int):
    embeddings = torch.randn(rows, width) + 5
    singular = torch.linalg.svdvals((embeddings - embeddings.mean(0)).double())
    share = singular / singular.sum()
    share = share[share > 1e-9]
    wanted = math.exp(-(share * share.log()).sum())
    assert effective_rank(embeddings) == pytest.approx(wanted, rel=1e-5)


def test_effective_rank_of_known_shapes():
    line = torch.randn(50, 1) @ torch.randn(1, 6) + 3
    assert effective_rank(line) == pytest.approx(1, abs=1e-3)
    assert effective_rank(torch.ones(50, 6)) == 0
    assert effective_rank(torch.cat([torch.eye(6), -torch.eye(6)])) == pytest.approx(6)


def test_alignment_uniformity_and_mean_cosine_by_loops():
    a, b = torch.randn(7, 5), torch.randn(7, 5)
    u, v = F.normalize(a, dim=1), F.normalize(b, dim=1)
    gaps = [float((u[i] - v[i]).square().sum()) for i in range(7)]
    assert alignment(a, b) == pytest.approx(sum(gaps) / 7, rel=1e-5)
    pairs = [(u[i], u[j]) for i in range(7) for j in range(7) if i != j]
    potential = sum(math.exp(-2 * float((x - y).square().sum())) for x, y in pairs) / len(pairs)
    assert uniformity(a) == pytest.approx(math.log(potential), rel=1e-4)
    cosines = [float(x @ y) for x, y in pairs]
    assert mean_cosine(a) == pytest.approx(sum(cosines) / len(pairs), rel=1e-4)


def test_embeddings_of_zeros_are_equal_and_have_no_direction():
    assert uniformity(torch.zeros(5, 3)) == mean_cosine(torch.zeros(5, 3)) == 0
    assert uniformity(torch.tensor([[0.0, 0.0], [2.0, 0.0]])) == pytest.approx(-2)


def test_only_some_of_many_embeddings_are_paired(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("graphlog.training.watch.PAIRED_ROWS", 3)
    embeddings = torch.cat([torch.ones(3, 4), torch.randn(4, 4)])
    assert uniformity(embeddings) == pytest.approx(0, abs=1e-6)


HEALTHY = {
    "loss_global": 2.0,
    "prototypes_total_2": 50.0,
    "prototypes_used_nearest_2": 37.0,
    "posterior_perplexity_2": 12.0,
    "prototypes_total_0": 4.0,
    "prototypes_used_nearest_0": 1.0,
    "posterior_perplexity_0": 4.0,
}


def watch_of(embeddings: list[torch.Tensor], batch_size: int = 256) -> CollapseWatch:
    """A watch that has seen these graph embeddings, one step each."""
    store, config = families(8), small_config()
    encoder = build_encoder(config.encoder, store.schema, 0)
    watch = CollapseWatch(encoder, every=1, batch_size=batch_size)
    for step, graph_emb in enumerate(embeddings, 1):
        watch.before_step(step)
        watch._recent.append((graph_emb,))
    return watch


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"loss_global": 0.05}, "prototype loss 0.050"),
        ({"prototypes_used_nearest_2": 8.9}, "8.9 of 50 prototypes of layer 2"),
        ({"posterior_perplexity_2": 46.0}, "46.0 of 50 prototypes"),
    ],
)
def test_each_alarm_is_said_once_and_after_two_looks(change: dict[str, float], word: str):
    watch = watch_of([])
    assert watch.look({**HEALTHY, **change})[1] == []
    assert watch.look(HEALTHY)[1] == []
    said = [watch.look({**HEALTHY, **change})[1] for _ in range(4)]
    assert [len(lines) for lines in said] == [0, 1, 0, 0]
    assert word in said[1][0]


def test_a_small_batch_cannot_use_more_prototypes_than_it_has_graphs():
    watch = watch_of([], batch_size=8)
    assert not any(watch.look({**HEALTHY, "prototypes_used_nearest_2": 7.9})[1] for _ in range(3))
    crowded = {**HEALTHY, "prototypes_used_nearest_2": 1.5}
    assert [watch.look(crowded)[1] for _ in range(2)] == [
        [],
        ["alarm: the graphs use only 1.5 of 50 prototypes of layer 2 (alarm below 1.6)"],
    ]


def test_a_difference_of_energies_has_no_floor_to_be_alarmed_about():
    watch = watch_of([])
    assert not any(
        watch.look({**HEALTHY, "loss_global": loss})[1] for loss in (-0.5, 0.05, 0.05, 0.05)
    )


@pytest.mark.parametrize(
    ("objective", "smiles", "rings"),
    [
        ("contextpred", ["CCO", "CCN", "c1ccccc1"], True),
        ("contextpred", ["CCO", "CCN", "CCCCCCCCCC", "CCCCCCCCCN"], False),
        ("edgepred", ["C", "N", "O"], True),
        ("edgepred", ["CC", "CN", "CO"], False),
        ("graphpartition", ["C", "N", "O"], True),
    ],
)
def test_an_epoch_without_anything_to_learn_is_said_once(
    objective: str, smiles: list[str], rings: bool
):
    said = Heard()
    config = resolve_config(objective, None, {**SMALL, "batch_size": 2, "log_every": 1})
    run_pretraining(graphlog.read_molecules(smiles * 2), config, None, progress=said)
    found = [line for line in said.lines if "every loss of the first epoch was 0" in line]
    assert len(found) == rings
    assert not rings or f"{objective} finds nothing to learn" in found[0]


def test_collapsed_embeddings_ring_and_spread_ones_do_not():
    flat = watch_of([torch.randn(256, 1) @ torch.randn(1, 16) for _ in range(2)])
    values, first = flat.look({})
    _, second = flat.look({})
    assert values["rank"] < 1.1
    assert first == []
    assert "effective rank 1.0 of 16" in second[0]
    spread = watch_of([torch.randn(256, 16)])
    assert [spread.look({})[1] for _ in range(3)] == [[], [], []]


def test_the_watch_listens_to_both_views_and_forgets_when_closed():
    store, config = families(40), small_config()
    encoder = build_encoder(config.encoder, store.schema, 0)
    watch = CollapseWatch(encoder, every=2, batch_size=1024)
    for step in (1, 2):
        watch.before_step(step)
        for _ in range(2):
            encoder(store[:40])
        watch.after_step(40)
        # batches are large enough to look at the last one only
        assert bool(watch._recent) == watch.due(step)
    values, _ = watch.look({})
    assert {"rank", "uniformity", "mean_cosine", "alignment"} <= values.keys()
    watch.close()
    assert not encoder._forward_hooks


def test_a_checkpoint_without_what_the_watch_has_seen_does_not_fit() -> None:
    tensors, fields = watch_of([torch.randn(8, 16)]).state()
    with pytest.raises(KeyError):
        watch_of([]).load_state({}, fields, torch.device("cpu"))
    again = watch_of([])
    again.load_state(tensors, fields, torch.device("cpu"))
    assert again.look({}) == watch_of([tensors["0.0"]]).look({})
