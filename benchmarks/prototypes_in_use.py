"""How many prototypes of runs of GraphLoG stay in use, and what their E-step teaches the roots.

    python benchmarks/prototypes_in_use.py INPUT runs/greedy-s0 runs/greedy-s1

Prints a line of JSON a run, a variant by the name of its folder. Usage is that of all graphs
after training, by nearest prototype: the exponential of its entropy. The gradient is that of the
graphs' own cross-entropy in the roots: the length of its mean over 200 E-steps on the same 512
graphs, over the mean length of each. Losses are means of the last five rows of the log.
"""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import graphlog
from graphlog.data.store import GraphStore
from graphlog.objectives.losses import prototype_cross_entropy
from graphlog.ops.contrastive import cosine_similarity
from graphlog.prototypes import PrototypeForest, balanced_chains, greedy_chains, sample_chains
from graphlog.training.log import read_metrics

TERMS = ("graph", "subgraph", "attribute", "global")


def usage(emb: Tensor, layer: Tensor) -> float:
    """Return the effective number of prototypes in use by nearest prototype."""
    nearest = cosine_similarity(emb, layer).argmax(dim=1)
    share = torch.bincount(nearest, minlength=layer.shape[0]).double() / nearest.shape[0]
    return float(torch.special.entr(share).sum().exp())


def root_gradient(settings: dict[str, Any], forest: PrototypeForest, emb: Tensor) -> float:
    """Return the length of the roots' expected gradient over the mean length of each draw's."""
    loss_temperature = settings.get("prototype_temperature") or settings["temperature"]
    temperature = settings["e_step_temperature"]
    roots = forest.layers[0].clone().requires_grad_()
    top = PrototypeForest([roots], [])
    grads: list[Tensor] = []
    for seed in range(200):
        if settings["e_step"] == "balanced":
            chains = balanced_chains(emb, forest, temperature=temperature)
        elif settings["e_step"] == "greedy":
            chains = greedy_chains(emb, forest)
        else:
            generator = torch.Generator().manual_seed(seed)
            chains = sample_chains(emb, forest, temperature=temperature, generator=generator)
        loss = prototype_cross_entropy(emb, chains[:, :1], top, temperature=loss_temperature)
        grads.append(torch.autograd.grad(loss, roots)[0].flatten())
    stacked = torch.stack(grads)
    return float(stacked.mean(dim=0).norm() / stacked.norm(dim=1).mean())


def measure(store: GraphStore, run: Path) -> dict[str, Any]:
    """Return what one run ended with."""
    encoder, rows = graphlog.load(run), read_metrics(run / "metrics.jsonl")
    found = {"variant": run.name.rpartition("-s")[0], "seed": encoder.info["seed"]}
    for name in (f"loss_{term}" for term in TERMS):
        if name in rows[-1]:
            found[name] = statistics.fmean(row[name] for row in rows[-5:] if name in row)
    forest = PrototypeForest.from_state(encoder.extra)
    if forest is None:
        return found
    emb = torch.from_numpy(encoder.embed_store(store, "last"))
    for level, layer in enumerate(forest.layers):
        found |= {f"prototypes_{level}": layer.shape[0], f"used_{level}": usage(emb, layer)}
    settings = encoder.info["settings"]["objective"]
    return {**found, "root_gradient": root_gradient(settings, forest, emb[:512])}


if __name__ == "__main__":
    runs = [Path(name) for name in sys.argv[2:]]
    first = graphlog.load(runs[0])  # all were trained on the same molecules
    graphs = graphlog.read_molecules(sys.argv[1], schema=first.schema, limit=first.info["graphs"])
    for run in runs:
        print(json.dumps(measure(graphs, run)), flush=True)
