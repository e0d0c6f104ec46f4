"""What our layers save: each distinct environment computed once, products by oneDNN's name.

python benchmarks/sharing.py steps --out benchmarks/results/sharing-steps.csv
python benchmarks/sharing.py products --out benchmarks/results/products.csv

Seconds are the processor's of one thread. Both sides, ``sharing`` "auto" and "off" (of products,
oneDNN by name and ``torch.nn.Linear``), take the same batches in turns, neither always first; a
ratio is the median over the pairs. The first pair, which warms up, does not count.
"""

import argparse
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import torch

import graphlog
from graphlog.benchmark.speed import TimedObjective, in_turns
from graphlog.data.store import GraphStore, epoch_batches
from graphlog.encoders import LAYERS
from graphlog.encoders.encoder import EncoderConfig, build_encoder
from graphlog.ops import dense as linear
from graphlog.training.log import Progress
from graphlog.training.settings import autocast, has_fast_bf16, resolve_config
from timing import clocked, ratios

Row = dict[str, object]
CPU = torch.device("cpu")
RUNS: list[tuple[str, str | None, str, int]] = [
    *(("graphlog", "released", "gin", size) for size in (512, 256)),
    *(("graphlog", "paper", "gin", 512), ("graphlog", "default", "gin", 256)),
    *(("graphlog", "released", backbone, 256) for backbone in ("gcn", "graphsage", "gat")),
    *((name, None, "gin", 256) for name in ("edgepred", "infograph", "attrmasking")),
    *((name, None, "gin", 256) for name in ("contextpred", "graphcl", "infomax", "graphmae")),
    ("descriptorpred", None, "gin", 256),
]


def molecules(schema: str, count: int) -> GraphStore:
    """Return the first molecules of ZINC."""
    return graphlog.read_molecules("zinc250k", schema=schema, limit=count)


def steps(pairs: int) -> Iterator[Row]:
    """A pre-training step with all losses."""
    formats = ("fp32", "bf16") if has_fast_bf16(CPU) else ("fp32",)
    for name, recipe, backbone, size in RUNS:
        store = molecules("molecule-cip" if recipe == "default" else "molecule", 4 * size)
        batches = [np.arange(k * size, (k + 1) * size) for k in range(4)]
        for precision in formats:
            settings = {"encoder.backbone": backbone, "precision": precision, "device": "cpu"}
            sides: dict[str, Callable[[int], float]] = {}
            for sharing in ("auto", "off"):
                own = resolve_config(name, recipe, {**settings, "encoder.sharing": sharing})
                timed = TimedObjective(store, own, Progress())
                sides[sharing] = clocked(lambda n, t=timed, of=batches: t.step(of[n % 4]))
            seconds = in_turns(sides, pairs)
            found = ratios(seconds["off"], seconds["auto"])
            yield {
                **{"objective": name, "recipe": recipe or "default", "backbone": backbone},
                **{"graphs": size, "format": precision},
                "graphs_per_s": round(size / median(seconds["auto"])),
                "off_graphs_per_s": round(size / median(seconds["off"])),
                "ratio": round(median(found), 2),
                "lowest": round(found[0], 2),
                "highest": round(found[-1], 2),
                "pairs": pairs,
            }


def products(pairs: int) -> Iterator[Row]:
    """Linear layers called by name in oneDNN: every backbone, 5 layers of width 300."""
    if not linear._ONEDNN:
        raise SystemExit("this processor or this torch takes torch.nn.Linear in any case")
    store = molecules("molecule-cip", 512 * (pairs + 1))
    works = (("forward and backward", 256), ("embedding", 512))
    for backbone, precision, (work, size) in product(LAYERS, ("fp32", "bf16"), works):
        config = EncoderConfig.parse({"backbone": backbone, "layers": 5, "dim": 300})
        encoder = build_encoder(config, store.schema).train(work != "embedding")
        taken = [store.take(rows) for rows in epoch_batches(len(store), size)[: pairs + 1]]

        def run(
            k: int, by_name: bool, encoder: Any = encoder, p: Any = precision, taken: Any = taken
        ) -> None:
            linear._ONEDNN = by_name
            with torch.set_grad_enabled(encoder.training), autocast(p, CPU):
                total = encoder(taken[k]).graph_emb.float().square().sum()
            if encoder.training:
                total.backward()

        sides = {
            "linear": clocked(lambda k: run(k, False)),
            "onednn": clocked(lambda k: run(k, True)),
        }
        seconds = in_turns(sides, pairs)
        times = {f"{side}_ms": round(1e3 * median(taken), 1) for side, taken in seconds.items()}
        ratio = round(median(ratios(seconds["linear"], seconds["onednn"])), 2)
        yield {"backbone": backbone, "precision": precision, "work": work, **times, "ratio": ratio}
    linear._ONEDNN = True


PARTS = {"steps": steps, "products": products}


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[Row] = []
    for row in PARTS[options.part](options.pairs):
        rows.append(row)
        print(*row.values(), flush=True)
        pd.DataFrame(rows).to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
