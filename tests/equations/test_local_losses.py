"""Eqs. 6 and 7, and their softmax forms, against loops written from the paper in float64."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from encoder_support import cosine, offsets, seeded
from graphlog.objectives.losses import graph_loss, subgraph_loss

SIZES = (1, 4, 2, 7, 1, 3)
NONE = torch.empty(0, dtype=torch.long)


def embeddings(rows: int, seed: int = 0, dim: int = 5) -> tuple[Tensor, Tensor]:
    h, view = torch.randn(2, rows, dim, generator=seeded(seed), dtype=torch.float64)
    return h, view


def groups(sizes: tuple[int, ...]) -> list[range]:
    return [range(a, b) for a, b in pairwise(offsets(sizes).tolist())]


def slow_expected_margin(
    h: Tensor, view: Tensor, members: list[range], anchors: set[int]
) -> Tensor:
    """Eq. 6 (one group) and Eq. 7 with the expectation over all negatives."""
    positive, negative = [], []
    for group in members:
        for v in anchors & {*group}:
            positive.append(cosine(h[v], view[v]))
            others = [cosine(h[w], view[v]) for w in group if w != v]
            negative += [torch.stack(others).mean()] if others else []
    against = torch.stack(negative).mean() if negative else torch.tensor(0.0)
    return against - torch.stack(positive).mean()


def slow_info_nce(h: Tensor, view: Tensor, members: list[range], tau: float) -> Tensor:
    losses = []
    for group in members:
        for v in group:
            shares = {u: torch.exp(cosine(h[u], view[v]) / tau) for u in group}
            losses.append(-torch.log(shares[v] / sum(shares.values())))
    return torch.stack(losses).mean()


def test_graph_loss_is_the_expectation_of_eq_6_or_its_softmax_form():
    h, view = embeddings(6)
    wanted = slow_expected_margin(h, view, [range(6)], set(range(6)))
    assert torch.allclose(graph_loss(h, view, form="expected-margin").loss, wanted, rtol=1e-12)
    wanted = slow_info_nce(h, view, [range(6)], 0.1)
    found = graph_loss(h, view, form="infonce", temperature=0.1)
    assert torch.allclose(found.loss, wanted, rtol=1e-10)


def test_graph_loss_draws_one_other_graph():
    h, view = embeddings(2)
    against = (cosine(h[1], view[0]) + cosine(h[0], view[1])) / 2
    wanted = against - (cosine(h[0], view[0]) + cosine(h[1], view[1])) / 2
    found = graph_loss(h, view, form="margin", generator=seeded())
    assert torch.allclose(found.loss, wanted, rtol=1e-12)


@pytest.mark.parametrize("which", ["graph", "subgraph"])
def test_drawn_negatives_have_the_right_mean(which: str):
    """The mean of 200 draws is within 6 standard errors of the expected (false alarm 2e-9)."""
    h, view = embeddings(sum(SIZES), seed=3)
    ptr, generator = offsets(SIZES), seeded(1)

    def loss(form: str) -> Tensor:
        if which == "graph":
            return graph_loss(h, view, form=form, generator=generator).loss
        return subgraph_loss(h, view, ptr, NONE, form=form, generator=generator).loss

    drawn = torch.stack([loss("margin") for _ in range(200)])
    error = drawn.std() / len(drawn) ** 0.5
    assert abs(drawn.mean() - loss("expected-margin")) < 6 * error


def test_subgraph_loss_draws_another_node_of_the_same_graph():
    h, view = embeddings(5)
    others = [(1, 0), (0, 1), (4, 3), (3, 4)]  # each has one other node in its graph; node 2 none
    wanted = torch.stack([cosine(h[w], view[v]) for w, v in others]).mean()
    wanted = wanted - torch.stack([cosine(h[v], view[v]) for v in range(5)]).mean()
    found = subgraph_loss(h, view, offsets((2, 1, 2)), NONE, form="margin", generator=seeded())
    assert torch.allclose(found.loss, wanted, rtol=1e-12)


MASKED = torch.tensor([0, 2, 3, 6, 9, 11, 17])
ANCHORS = {"all": set(range(sum(SIZES))), "masked": set(MASKED.tolist())}


@pytest.mark.parametrize("anchors", ANCHORS)
def test_subgraph_loss_is_the_expectation_of_eq_7(anchors: str):
    h, view = embeddings(sum(SIZES))
    wanted = slow_expected_margin(h, view, groups(SIZES), ANCHORS[anchors])
    positive = torch.stack([cosine(h[v], view[v]) for v in ANCHORS[anchors]]).mean()
    for form in ("expected-margin", "infonce"):  # cosines are reported beside any loss
        found = subgraph_loss(h, view, offsets(SIZES), MASKED, form=form, anchors=anchors)
        assert form == "infonce" or torch.allclose(found.loss, wanted, rtol=1e-12)
        assert torch.allclose(found.positive, positive)
        assert torch.allclose(found.negative, wanted + positive)
        assert not found.positive.requires_grad


@pytest.mark.parametrize("form", ["expected-margin", "infonce"])
def test_the_reported_negatives_are_those_of_other_colors(form: str):
    h, view = embeddings(sum(SIZES))
    colors = torch.arange(sum(SIZES)) % 3 % 2
    means: list[Tensor] = []
    for group in groups(SIZES):
        for v in group:
            others = [cosine(h[w], view[v]) for w in group if colors[w] != colors[v]]
            means += [torch.stack(others).mean()] if others else []
    found = subgraph_loss(h, view, offsets(SIZES), NONE, form=form, colors=colors)
    assert torch.allclose(found.negative, torch.stack(means).mean())
    alike = subgraph_loss(h, view, offsets(SIZES), NONE, form=form, colors=0 * colors)
    assert alike.negative == 0


@pytest.mark.parametrize("form", ["expected-margin", "infonce"])
@example(sizes=list(range(1, 13)), seed=0)  # more sizes than buckets
@given(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=9), seed=st.integers(0, 1000))
def test_every_way_of_padding_gives_the_same_loss(form: str, sizes: list[int], seed: int):
    (h, view), members = embeddings(sum(sizes), seed), groups(tuple(sizes))
    wanted = slow_expected_margin(h, view, members, set(range(sum(sizes))))
    if form == "infonce":
        wanted = slow_info_nce(h, view, members, 0.5)
    found = subgraph_loss(h, view, offsets(sizes), NONE, form=form, temperature=0.5)
    assert torch.allclose(found.loss, wanted, rtol=1e-10)


@pytest.mark.parametrize("eps", [0.0, 1e-6, 0.3])
@pytest.mark.parametrize("form", ["margin", "expected-margin", "infonce"])
def test_the_gradient_written_by_hand(form: str, eps: float):
    h, view = embeddings(10)
    ptr = offsets((3, 1, 4, 2))

    def loss(h: Tensor, view: Tensor) -> Tensor:
        how: dict[str, Any] = {"form": form, "eps": eps, "generator": seeded(2)}
        return subgraph_loss(h, view, ptr, NONE, temperature=0.5, **how).loss

    inputs = (h.requires_grad_(), view.requires_grad_())
    assert torch.autograd.gradcheck(loss, inputs, fast_mode=True)


@pytest.mark.parametrize("form", ["margin", "expected-margin", "infonce"])
def test_lonely_graphs_and_lonely_nodes(form: str):
    h, view = embeddings(1)
    how = {"form": form, "temperature": 0.1, "generator": seeded()}
    wanted = 0 * view.sum() if form == "infonce" else -cosine(h[0], view[0])
    for found in (graph_loss(h, view, **how), subgraph_loss(h, view, offsets([1]), NONE, **how)):
        assert torch.allclose(found.loss, wanted, atol=1e-12)


def test_no_anchor_costs_nothing():
    h, view = embeddings(4)
    how = {"form": "infonce", "temperature": 0.1, "anchors": "masked"}
    found = subgraph_loss(h.requires_grad_(), view, offsets([4]), NONE, **how)
    found.loss.backward()
    assert found.loss == 0
    assert h.grad.abs().max() == 0


def test_zero_embeddings_are_finite():
    h, view = torch.zeros(4, 3, requires_grad=True), torch.zeros(4, 3, requires_grad=True)
    for form in ("margin", "expected-margin", "infonce"):
        total = graph_loss(h, view, form=form).loss
        total += subgraph_loss(h, view, offsets([4]), NONE, form=form, generator=seeded()).loss
        total.backward()
        assert torch.isfinite(total)
        assert torch.isfinite(h.grad).all()
