"""How many prototypes stay in use, with which E-step: pre-training on 20,000 molecules, one core.

    python benchmarks/prototypes_in_use.py INPUT --runs runs/prototypes --results benchmarks/results

Every variant is the recipe ``default`` with other settings of the prototypes, on a GIN of 5 layers
of 64, one local and two joint epochs. Usage is that of the whole collection after training, by
nearest prototype: the exponential of its entropy. The gradient is that of the graphs' own
cross-entropy in the roots: the length of its mean over 200 E-steps on the same 512 graphs, over the
mean length of each. Runs and rows that are there are not repeated.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

import graphlog
from graphlog.objectives.losses import prototype_cross_entropy
from graphlog.ops.contrastive import cosine_similarity
from graphlog.prototypes import PrototypeForest, balanced_chains, greedy_chains, sample_chains
from graphlog.training.log import Progress
from graphlog.training.pretrain import PretrainResult, run_pretraining
from graphlog.training.settings import resolve_config

KMEANS = {"initialization": "kmeans"}
DRAWN = {"e_step": "sample", "e_step_temperature": 0.1, "prototype_rate": 1.0, **KMEANS}
VARIANTS: dict[str, dict[str, Any]] = {
    "drawn at the loss's temperature, unit length": {
        **DRAWN,
        "kmeans_space": "unit",
        "min_roots": 1,
    },
    "drawn at the loss's temperature, raw": DRAWN,
    "greedy": {"e_step": "greedy", **KMEANS},
    "balanced, rate 1": {"prototype_rate": 1.0, **KMEANS},
    "balanced, rate 10": KMEANS,
    "balanced from the start, rate 10 (default)": {},
    "no prototypes": {"global_weight": 0.0},
}
TERMS = ("graph", "subgraph", "attribute", "global")


def train(store: Any, switches: dict[str, Any], seed: int, run: Path) -> PretrainResult:
    """Pre-train one variant."""
    training = {"epochs": 3, "batch_size": 256, "precision": "fp32", "seed": seed}
    settings = {"objective": switches, "encoder": {"layers": 5, "dim": 64}, "training": training}
    config = resolve_config("graphlog", "default", settings)
    return run_pretraining(store, config, run, resume=run.exists(), progress=Progress())


def usage(emb: Tensor, layer: Tensor) -> float:
    """Return the effective number of prototypes in use by nearest prototype."""
    nearest = cosine_similarity(emb, layer).argmax(dim=1)
    share = torch.bincount(nearest, minlength=layer.shape[0]).double() / nearest.shape[0]
    return float(torch.special.entr(share).sum().exp())


def root_gradient(objective: Any, emb: Tensor) -> float:
    """Return the length of the roots' expected gradient over the mean length of each draw's."""
    config, forest = objective.config, objective.forest.detach()
    loss_temperature = config.prototype_temperature or config.temperature
    temperature = config.e_step_temperature
    roots = forest.layers[0].clone().requires_grad_()
    top = PrototypeForest([roots], [])
    grads: list[Tensor] = []
    for seed in range(200):
        if config.e_step == "balanced":
            chains = balanced_chains(emb, forest, temperature=temperature)
        elif config.e_step == "greedy":
            chains = greedy_chains(emb, forest)
        else:
            generator = torch.Generator().manual_seed(seed)
            chains = sample_chains(emb, forest, temperature=temperature, generator=generator)
        loss = prototype_cross_entropy(emb, chains[:, :1], top, temperature=loss_temperature)
        grads.append(torch.autograd.grad(loss, roots)[0].flatten())
    stacked = torch.stack(grads)
    return float(stacked.mean(dim=0).norm() / stacked.norm(dim=1).mean())


def measure(store: Any, result: PretrainResult, run: Path) -> dict[str, float]:
    """Return what one run ended with."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = {
        f"loss_{t}": statistics.fmean(r[f"loss_{t}"] for r in rows[-5:])
        for t in TERMS
        if f"loss_{t}" in rows[-1]
    }
    encoder, objective = result.encoder, result.objective
    with torch.no_grad():
        emb = torch.cat([encoder(store[i : i + 512]).graph_emb for i in range(0, len(store), 512)])
    forest = getattr(objective, "forest", None)
    if forest is None:
        return last
    for level, layer in enumerate(forest.detach().layers):
        last |= {f"prototypes_{level}": layer.shape[0], f"used_{level}": usage(emb, layer)}
    return {**last, "root_gradient": root_gradient(objective, emb[:512])}


def main() -> None:
    """Run every variant and seed, and write the rows and a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("input", help="file of molecules")
    parser.add_argument("--limit", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS))
    parser.add_argument("--runs", type=Path, default=Path("runs/prototypes"))
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    store = graphlog.read_molecules(options.input, limit=options.limit, schema="molecule-rich")
    path = options.results / "prototypes_in_use.jsonl"
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for seed in options.seeds:
        for name in options.variants:
            if any((row["variant"], row["seed"]) == (name, seed) for row in done):
                continue
            run = options.runs / f"{list(VARIANTS).index(name)}-s{seed}"
            result = train(store, VARIANTS[name], seed, run)
            row = {"variant": name, "seed": seed, **measure(store, result, run)}
            done.append(row)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    print(table(pd.DataFrame(done)))


def table(rows: pd.DataFrame) -> str:
    """Return the means over seeds as Markdown."""
    means = rows.groupby("variant", sort=False).mean(numeric_only=True)
    shown = pd.DataFrame({"seeds": rows.groupby("variant", sort=False).size()})
    for level in range(3):
        used, total = (means[f"{k}_{level}"].map("{:.3g}".format) for k in ("used", "prototypes"))
        shown[f"layer {level} in use"] = (used + " of " + total).where(used != "nan", "")
    columns = {"gradient left in expectation": "root_gradient"}
    columns |= {f"{term} loss": f"loss_{term}" for term in TERMS}
    for head, column in columns.items():
        shown[head] = means[column].map("{:.3g}".format).replace("nan", "")
    return shown.reset_index(names="E-step").to_markdown(index=False, disable_numparse=True)


if __name__ == "__main__":
    main()
