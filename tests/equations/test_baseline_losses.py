"""Losses of the compared objectives against slow loops in float64, one pair at a time."""

import math

import pytest
import torch
from torch import Tensor

from encoder_support import (
    EDGE_MASKED,
    NODE_MASKED,
    SIZES,
    batch_for,
    close,
    cosine,
    encoder_for,
    make,
    seeded,
)
from graphlog.data.store import GraphBatch
from graphlog.objectives.graph_partition import same_part_loss

LOG2 = math.log(2)


def log_loss(score: float, right: bool) -> float:
    return math.log1p(math.exp(-score if right else score))


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def prepared(name: str, schema=NODE_MASKED, **options):
    """An objective, its encoder, views of a batch, and the loss, all in float64."""
    encoder = encoder_for(schema).double().eval()
    objective = make(name, encoder, **options).double().eval()
    batch = batch_for(schema)
    views = objective.views(batch, seeded())
    with torch.no_grad():
        found = objective.loss(views, encoder, seeded(1))
    return objective, encoder, batch, views, found


@torch.no_grad()
def test_edge_pred():
    _, encoder, batch, views, found = prepared("edgepred")
    h = encoder(batch).node_emb
    right = [log_loss(float(h[a] @ h[b]), True) for a, b in batch.edge_index.T.tolist() if a < b]
    wrong = [log_loss(float(h[a] @ h[b]), False) for a, b in views[2].T.tolist()]
    assert close(found.total, mean(right) + mean(wrong))
    assert close(found.terms["positive"], mean(right))


@torch.no_grad()
def test_infomax():
    objective, encoder, batch, _, found = prepared("infomax")
    h = encoder(batch).node_emb
    summaries = torch.stack([h[batch.batch == n].mean(dim=0).sigmoid() for n in range(len(SIZES))])
    right, wrong = [], []
    for v, n in enumerate(batch.batch.tolist()):
        other = summaries[(n + 1) % len(SIZES)]
        right.append(log_loss(float(summaries[n] @ objective.weight @ h[v]), True))
        wrong.append(log_loss(float(other @ objective.weight @ h[v]), False))
    assert close(found.total, mean(right) + mean(wrong))


@pytest.mark.parametrize("options", [{}, {"head_width": "all-layers"}])
@torch.no_grad()
def test_infograph(options: dict[str, str]):
    objective, encoder, batch, _, found = prepared("infograph", **options)
    layers = torch.cat(encoder.encode_layers(batch)[1][1:], dim=1)
    local = _residual(objective.local, layers)
    whole = _residual(objective.whole, per_graph(layers, batch, "sum"))
    own, foreign = [], []
    for v, mine in enumerate(batch.batch.tolist()):
        for n in range(len(SIZES)):
            score = float(local[v] @ whole[n])
            if n == mine:
                own.append(LOG2 - log_loss(score, True))
            else:
                foreign.append(log_loss(score, True) + score - LOG2)
    assert close(found.total, mean(foreign) - mean(own))


def per_graph(h: Tensor, batch: GraphBatch, pool: str) -> Tensor:
    """The sum or mean over the nodes of each graph."""
    gather = {"sum": Tensor.sum, "mean": Tensor.mean}[pool]
    return torch.stack([gather(h[batch.batch == n], dim=0) for n in range(batch.num_graphs)])


def _residual(net, x: Tensor) -> Tensor:
    y = x
    for layer in (m for m in net.block if isinstance(m, torch.nn.Linear)):
        y = (y @ layer.weight.T + layer.bias).clamp_min(0)
    return y + x @ net.shortcut.weight.T + net.shortcut.bias


def cross_entropy(scores: Tensor, answer: int) -> float:
    return math.log(sum(math.exp(s) for s in scores.tolist())) - float(scores[answer])


@torch.no_grad()
def test_attr_masking_of_nodes():
    objective, encoder, batch, views, found = prepared("attrmasking")
    scores = objective.head.linear(encoder(views.batch).node_emb)
    losses = [cross_entropy(scores[v], int(batch.x[v, 0])) for v in views.node_idx.tolist()]
    assert len(losses) == sum(int(0.15 * n + 1) for n in SIZES)
    assert close(found.total, mean(losses))


@torch.no_grad()
def test_attr_masking_of_edges_names_the_first_channel():
    objective, encoder, batch, views, found = prepared("attrmasking", EDGE_MASKED)
    h = encoder(views.batch).node_emb
    losses = []
    for e in views.edge_idx.tolist():
        a, b = batch.edge_index[:, e].tolist()
        channels = batch.edge_attr[e, :2].tolist()
        scores = objective.head.linear(h[a] + h[b])
        losses.append(cross_entropy(scores, channels.index(max(channels))))
    assert objective.head.columns == (0, 1)
    assert close(found.total, mean(losses))


@pytest.mark.parametrize(("hops", "at"), [(2, "root"), (0, "root"), (0, "center")])
@torch.no_grad()
def test_context_pred(hops: int, at: str):
    options = {"hops": hops, "inner": 1, "outer": 4, "substructure_at": at}
    objective, encoder, batch, views, found = prepared("contextpred", **options)
    assert hops or set(views.substructure.sizes.tolist()) <= set(batch.sizes.tolist())
    parts, h = encoder(views.substructure).node_emb, objective.context(views.context).node_emb
    roots = parts[views.substructure.ptr[:-1] if at == "center" else views.root]
    owner = views.context.batch[views.anchors]
    contexts = [h[views.anchors[owner == n]].mean(dim=0) for n in range(len(roots))]
    right = [log_loss(float(r @ c), True) for r, c in zip(roots, contexts, strict=True)]
    others = [*contexts[1:], contexts[0]]
    wrong = [log_loss(float(r @ c), False) for r, c in zip(roots, others, strict=True)]
    assert len(roots) > 3
    assert close(found.total, mean(right) + mean(wrong))


@torch.no_grad()
def test_graph_partition_by_pairs():
    objective, encoder, batch, views, found = prepared("graphpartition")
    h = objective.linear(encoder(batch).node_emb)
    centered = h - per_graph(h, batch, "mean")[batch.batch]
    losses = []
    for u, graph in enumerate(batch.batch.tolist()):
        for v in range(int(batch.ptr[graph]), int(batch.ptr[graph + 1])):
            if u != v:
                score = float(centered[u] @ centered[v]) / h.shape[1] ** 0.5 + float(objective.bias)
                losses.append(log_loss(score, bool(views.parts[u] == views.parts[v])))
    assert close(found.total, mean(losses))


@torch.no_grad()
def test_graph_partition_gives_nodes_that_look_alike_the_share_of_one_part():
    objective, _, batch, views, _ = prepared("graphpartition")
    alike = torch.ones(batch.num_nodes, objective.linear.out_features, dtype=torch.float64)
    share = 1 / objective.partitioner.parts
    for same, score in (
        (torch.zeros_like(views.parts), -math.log(share)),
        (torch.arange(batch.num_nodes), -math.log(1 - share)),
    ):
        assert close(same_part_loss(alike, same, batch.ptr, objective.bias).total, score, 1e-6)


@torch.no_grad()
def test_graphcl():
    objective, encoder, _, views, found = prepared("graphcl")
    first, second = (
        objective.head(per_graph(encoder(view).node_emb, view, "mean")) for view in views
    )
    losses = []
    for n in range(len(SIZES)):
        shares = [math.exp(float(cosine(first[n], second[m])) / 0.1) for m in range(len(SIZES))]
        below = sum(s for m, s in enumerate(shares) if m != n)
        losses.append(-math.log(shares[n] / below))
    assert close(found.total, mean(losses))


@pytest.mark.parametrize("exponent", [2.0, 3.0])
@torch.no_grad()
def test_graphmae(exponent: float):
    objective, encoder, batch, views, found = prepared("graphmae", exponent=exponent)
    from graphlog.encoders.encoder import Neighborhood

    masked = views.node_idx.tolist()
    h = encoder(views.batch).node_emb
    slope = float(objective.activation.weight)
    hidden = torch.where(h > 0, h, slope * h) @ objective.bridge.weight.T
    for v in masked:
        hidden[v] = 0.0
    rebuilt = objective.output(
        objective.decoder(hidden, Neighborhood(views.batch, NODE_MASKED, torch.float64))
    )
    losses = []
    for v in masked:
        answer = torch.zeros(rebuilt.shape[1], dtype=torch.float64)
        answer[int(batch.x[v, 0])] = 1.0
        losses.append((1 - float(cosine(rebuilt[v], answer))) ** exponent)
    assert len(masked) == sum(int(0.25 * n + 1) for n in SIZES)
    assert close(found.total, mean(losses))


@torch.no_grad()
def test_descriptor_pred():
    objective, encoder, batch, _, _ = prepared("descriptorpred")
    batch.y[2, 5:9] = torch.nan
    gaps = (objective.head.net(encoder.embed_graphs(batch)) - batch.y).flatten().abs().tolist()
    costs = [e - 0.5 if e > 1 else 0.5 * e * e for e in gaps if not math.isnan(e)]
    wanted = mean(costs)
    assert close(objective.loss(batch, encoder, seeded()).total, wanted)
