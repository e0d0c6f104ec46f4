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
    double,
    encoder_for,
    make,
    seeded,
)
from graphlog.data.batch import GraphBatch
from graphlog.objectives.graph_partition import same_part_loss
from graphlog.ops.segment import segment_mean

LOG2 = math.log(2)


def log_loss(score: float, right: bool) -> float:
    """Binary cross-entropy of one score."""
    return math.log1p(math.exp(-score if right else score))


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def cosine(x: Tensor, y: Tensor) -> float:
    return float(x @ y / (x.norm() * y.norm()))


def prepared(name: str, schema=NODE_MASKED, **options):
    """An objective, its encoder, views of a batch, and the loss, all in float64."""
    encoder = encoder_for(schema)
    objective = make(name, encoder, **options)
    double(objective, encoder)
    batch = batch_for(schema)
    views = objective.views(batch, seeded())
    with torch.no_grad():
        found = objective.loss(views, encoder, seeded(1))
    return objective, encoder, batch, views, found


@torch.no_grad()
def test_edge_pred() -> None:
    _, encoder, batch, views, found = prepared("edgepred")
    h = encoder(batch).node_emb
    right = [log_loss(float(h[a] @ h[b]), True) for a, b in batch.edge_index.T.tolist() if a < b]
    wrong = [log_loss(float(h[a] @ h[b]), False) for a, b in views.others.T.tolist()]
    assert close(found.total, mean(right) + mean(wrong))
    assert close(found.terms["positive"], mean(right))


@torch.no_grad()
def test_infomax() -> None:
    objective, encoder, batch, _, found = prepared("infomax")
    h = encoder(batch).node_emb
    summaries = torch.stack([h[batch.batch == n].mean(dim=0).sigmoid() for n in range(len(SIZES))])
    right, wrong = [], []
    for v, n in enumerate(batch.batch.tolist()):
        right.append(log_loss(float(summaries[n] @ objective.weight @ h[v]), True))
        wrong.append(
            log_loss(float(summaries[(n + 1) % len(SIZES)] @ objective.weight @ h[v]), False)
        )
    assert close(found.total, mean(right) + mean(wrong))


@pytest.mark.parametrize("options", [{}, {"head_width": "all-layers", "pool": "mean"}])
@torch.no_grad()
def test_infograph(options: dict[str, str]) -> None:
    objective, encoder, batch, _, found = prepared("infograph", **options)
    layers = encoder.layer_outputs(batch)[1:]
    pool = torch.Tensor.mean if options else torch.Tensor.sum
    graphs = torch.stack(
        [torch.cat([pool(h[batch.batch == n], dim=0) for h in layers]) for n in range(len(SIZES))]
    )
    local, whole = (
        _residual(objective.local, torch.cat(layers, dim=1)),
        _residual(objective.whole, graphs),
    )
    own, foreign = [], []
    for v, mine in enumerate(batch.batch.tolist()):
        for n in range(len(SIZES)):
            score = float(local[v] @ whole[n])
            if n == mine:
                own.append(LOG2 - log_loss(score, True))
            else:
                foreign.append(log_loss(score, True) + score - LOG2)
    assert close(found.total, mean(foreign) - mean(own))


@torch.no_grad()
def test_the_prior_of_infograph() -> None:
    objective, encoder, batch, _, found = prepared("infograph", prior_weight=0.3)
    graphs = torch.stack(
        [
            torch.cat([h[batch.batch == n].sum(dim=0) for h in encoder.layer_outputs(batch)[1:]])
            for n in range(len(SIZES))
        ]
    )
    drawn = torch.rand(graphs.shape, generator=seeded(1)).double()
    prior = mean([log_loss(_prior(objective, x), True) for x in drawn]) + mean(
        [log_loss(_prior(objective, g), False) for g in graphs]
    )
    assert close(found.terms["prior"], prior)
    without = objective.config.updated({"prior_weight": 0.0})
    plain = make("infograph", encoder, **without.model_dump()).double()
    plain.load_state_dict(objective.state_dict(), strict=False)
    assert close(found.total, float(plain.loss(batch, encoder, seeded(1)).total) + 0.3 * prior)


def _prior(objective, x: Tensor) -> float:
    for layer in (m for m in objective.prior if isinstance(m, torch.nn.Linear)):
        last, x = x @ layer.weight.T + layer.bias, (x @ layer.weight.T + layer.bias).clamp_min(0)
    return float(last)


def _residual(net, x: Tensor) -> Tensor:
    y = x
    for layer in (m for m in net.block if isinstance(m, torch.nn.Linear)):
        y = (y @ layer.weight.T + layer.bias).clamp_min(0)
    return y + x @ net.shortcut.weight.T + net.shortcut.bias


def cross_entropy(scores: Tensor, answer: int) -> float:
    return math.log(sum(math.exp(s) for s in scores.tolist())) - float(scores[answer])


@torch.no_grad()
def test_attr_masking_of_nodes_and_bonds() -> None:
    objective, encoder, batch, views, found = prepared("attrmasking", mask_bonds=True)
    h = encoder(views.masked.batch).node_emb
    nodes = [
        cross_entropy(objective.head.linear(h[v]), int(batch.x[v, 0]))
        for v in views.masked.node_idx.tolist()
    ]
    masked = set(views.masked.node_idx.tolist())
    bonds = [
        cross_entropy(objective.bonds.linear(h[a] + h[b]), int(batch.edge_attr[e, 0]))
        for e, (a, b) in enumerate(batch.edge_index.T.tolist())
        if a in masked or b in masked
    ]
    assert len(nodes) == sum(int(0.15 * n + 1) for n in SIZES)
    assert close(found.total, mean(nodes) + mean(bonds))


@torch.no_grad()
def test_attr_masking_of_edges_names_the_first_channel() -> None:
    objective, encoder, batch, views, found = prepared("attrmasking", EDGE_MASKED)
    h = encoder(views.masked.batch).node_emb
    losses = []
    for e in views.masked.edge_idx.tolist():
        a, b = batch.edge_index[:, e].tolist()
        channels = batch.edge_attr[e, :2].tolist()
        losses.append(
            cross_entropy(objective.head.linear(h[a] + h[b]), channels.index(max(channels)))
        )
    assert objective.head.positions == (0, 1)
    assert close(found.total, mean(losses))


@torch.no_grad()
def test_attr_masking_of_all_columns() -> None:
    objective, encoder, batch, views, found = prepared("attrmasking", predicted_columns="all")
    h = encoder(views.masked.batch).node_emb
    columns, start = [], 0
    for k, column in enumerate(NODE_MASKED.node):
        scores = slice(start, start := start + column.cardinality)
        columns.append(
            [
                cross_entropy(objective.head.linear(h[v])[scores], int(batch.x[v, k]))
                for v in views.masked.node_idx.tolist()
            ]
        )
    assert len(columns) == 2
    assert close(found.total, mean([mean(losses) for losses in columns]))


@pytest.mark.parametrize("at", ["root", "center"])
@pytest.mark.parametrize("pool", ["mean", "sum", "max"])
@torch.no_grad()
def test_context_pred_of_whole_graphs(at: str, pool: str) -> None:
    objective, encoder, _, views, found = prepared(
        "contextpred", hops=0, inner=1, outer=4, substructure_at=at, pool=pool
    )
    gather = {
        "mean": lambda x: x.mean(dim=0),
        "sum": lambda x: x.sum(dim=0),
        "max": lambda x: x.amax(dim=0),
    }[pool]
    whole, h = encoder(views.substructure).node_emb, objective.context(views.context).node_emb
    roots, contexts = [], []
    for n in range(views.substructure.num_graphs):
        first = int((views.substructure.batch == n).nonzero()[0])
        roots.append(whole[first] if at == "center" else whole[views.root[n]])
        contexts.append(
            gather(
                torch.stack(
                    [h[v] for v in views.anchors.tolist() if int(views.context.batch[v]) == n]
                )
            )
        )
    right = [log_loss(float(r @ c), True) for r, c in zip(roots, contexts, strict=True)]
    wrong = [
        log_loss(float(r @ contexts[(n + 1) % len(contexts)]), False) for n, r in enumerate(roots)
    ]
    assert len(roots) > 3
    assert close(found.total, mean(right) + mean(wrong))


@pytest.mark.parametrize("mode", ["cbow", "skipgram"])
@pytest.mark.parametrize("negatives", [1, 2])
@torch.no_grad()
def test_context_pred(mode: str, negatives: int) -> None:
    objective, encoder, _, views, found = prepared(
        "contextpred", hops=2, inner=1, outer=4, mode=mode, negatives=negatives
    )
    roots = encoder(views.substructure).node_emb[views.root]
    h = objective.context(views.context).node_emb
    groups = [
        [h[v] for v in views.anchors.tolist() if int(views.context.batch[v]) == n]
        for n in range(len(roots))
    ]
    right, wrong = [], []
    for n, group in enumerate(groups):
        others = [(n + shift) % len(groups) for shift in range(1, negatives + 1)]
        if mode == "cbow":
            right.append(log_loss(float(roots[n] @ torch.stack(group).mean(dim=0)), True))
            wrong += [
                log_loss(float(roots[n] @ torch.stack(groups[m]).mean(dim=0)), False)
                for m in others
            ]
        else:
            right += [log_loss(float(roots[n] @ anchor), True) for anchor in group]
            wrong += [log_loss(float(roots[m] @ anchor), False) for m in others for anchor in group]
    assert len(groups) > 3
    assert close(found.total, mean(right) + negatives * mean(wrong))


@torch.no_grad()
def test_graph_partition_by_pairs() -> None:
    objective, encoder, batch, views, found = prepared("graphpartition")
    h = objective.linear(encoder(batch).node_emb)
    losses = []
    for u, graph in enumerate(batch.batch.tolist()):
        for v in range(int(batch.ptr[graph]), int(batch.ptr[graph + 1])):
            if u != v:
                mean_emb = h[batch.batch == graph].mean(dim=0)
                score = float(
                    (h[u] - mean_emb) @ (h[v] - mean_emb)
                ) / objective.linear.out_features**0.5 + float(objective.bias)
                losses.append(log_loss(score, bool(views.parts[u] == views.parts[v])))
    assert close(found.total, mean(losses))


@torch.no_grad()
def test_graph_partition_by_pairs_ignores_what_parts_are_called() -> None:
    objective, encoder, batch, views, found = prepared("graphpartition")
    renamed = (views.parts + batch.batch) % 4
    assert close(
        objective.loss(views._replace(parts=renamed), encoder, seeded(1)).total, found.total
    )


@torch.no_grad()
def test_graph_partition_gives_nodes_that_look_alike_the_share_of_one_part() -> None:
    objective, _, batch, views, _ = prepared("graphpartition")
    alike = torch.ones(batch.num_nodes, objective.linear.out_features, dtype=torch.float64)
    share = 1 / objective.config.parts
    for same, score in (
        (torch.zeros_like(views.parts), -math.log(share)),
        (torch.arange(batch.num_nodes), -math.log(1 - share)),
    ):
        assert close(same_part_loss(alike, same, batch.ptr, objective.bias).total, score, 1e-6)


@torch.no_grad()
def test_graph_partition_by_labels() -> None:
    objective, encoder, batch, views, found = prepared("graphpartition", target="labels")
    scores = objective.linear(encoder(batch).node_emb)
    assert close(
        found.total,
        mean([cross_entropy(s, int(p)) for s, p in zip(scores, views.parts, strict=True)]),
    )


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
@torch.no_grad()
def test_graphcl(positive: bool, symmetric: bool) -> None:
    objective, encoder, _, views, found = prepared(
        "graphcl", positive_in_denominator=positive, symmetric=symmetric
    )
    z = [objective.head(_mean_pool(encoder(view).node_emb, view)) for view in views]
    ways = [(z[0], z[1]), (z[1], z[0])] if symmetric else [(z[0], z[1])]
    losses = []
    for x, y in ways:
        for n in range(len(SIZES)):
            shares = [math.exp(cosine(x[n], y[m]) / 0.1) for m in range(len(SIZES))]
            below = sum(s for m, s in enumerate(shares) if positive or m != n)
            losses.append(-math.log(shares[n] / below))
    assert close(found.total, mean(losses))


def _mean_pool(h: Tensor, batch: GraphBatch) -> Tensor:
    return segment_mean(h, batch.ptr)


@pytest.mark.parametrize(
    "options",
    [{}, {"remask": False, "predicted_columns": "all", "exponent": 3.0, "decoder": "same"}],
)
@torch.no_grad()
def test_graphmae(options: dict[str, object]) -> None:
    objective, encoder, batch, views, found = prepared("graphmae", **options)
    from graphlog.encoders.encoder import Neighborhood

    masked = views.node_idx.tolist()
    h = encoder(views.batch).node_emb
    slope = float(objective.activation.weight)
    hidden = torch.where(h > 0, h, slope * h) @ objective.bridge.weight.T
    if not options:
        for v in masked:
            hidden[v] = 0.0
    rebuilt = objective.output(
        objective.decoder(hidden, Neighborhood(views.batch, NODE_MASKED, torch.float64))
    )
    losses = []
    for v in masked:
        answer = torch.zeros(rebuilt.shape[1], dtype=torch.float64)
        answer[int(batch.x[v, 0])] = 1.0
        if options:
            answer[NODE_MASKED.node[0].cardinality + int(batch.x[v, 1])] = 1.0
        losses.append((1 - cosine(rebuilt[v], answer)) ** (3 if options else 2))
    assert len(masked) == sum(int(0.25 * n + 1) for n in SIZES)
    assert close(found.total, mean(losses))


@pytest.mark.parametrize("robust", [False, True])
@torch.no_grad()
def test_descriptor_pred(robust: bool) -> None:
    objective, encoder, batch, _, _ = prepared("descriptorpred", robust=robust, layer="last")
    assert batch.y is not None
    batch.y[2, 5:9] = torch.nan
    predicted = objective.head.net(encoder(batch).graph_emb)
    errors = [
        abs(float(p) - float(t))
        for p, t in zip(predicted.flatten(), batch.y.flatten(), strict=True)
        if not math.isnan(t)
    ]
    wanted = mean(
        [e - 0.5 if robust and e > 1 else (0.5 * e * e if robust else e * e) for e in errors]
    )
    assert close(objective.loss(batch, encoder, seeded()).total, wanted)
