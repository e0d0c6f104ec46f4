"""Does the novelty of a model tell strange molecules from those it was trained on?

    python benchmarks/novelty.py graphlog-mol runs/stores/near runs/corpus/held_out.csv.gz

Prints the deciles of the training graphs that novelty was not fitted to, those of held-out
molecules, and the percentiles of the molecules of ``novelty.csv``.
"""

import csv
import sys
from pathlib import Path

import numpy as np

import graphlog
from graphlog.downstream.pretrained import Encoder
from graphlog.encoders.novelty import Novelty
from graphlog.inputs import read

GRAPHS = 20_000


def percentiles(model: Encoder, novelty: Novelty, graphs: object) -> np.ndarray:
    return novelty.percentiles(novelty.distances(model.embed(graphs, "jk")))


def describe(name: str, found: np.ndarray) -> None:
    shares = np.histogram(found, bins=10, range=(0, 100))[0] / len(found)
    above = " ".join(f"{level} %: {(found > level).mean():.2%}" for level in (95, 99, 99.9))
    print(f"{name}, {len(found):,}: mean {found.mean():.1f}; in each tenth "
          f"{' '.join(f'{share:.1%}' for share in shares)}; above {above}")  # fmt: skip


def main(name: str, store: str, held_out: str) -> None:
    model = graphlog.load(name)
    novelty = Novelty.of(model.extra, model.width("jk"))
    if novelty is None:
        sys.exit(f"{name} is not calibrated")
    graphs = read(store, model.schema)
    fitted = np.random.default_rng(model.info["seed"]).choice(len(graphs), GRAPHS, replace=False)
    rest = np.setdiff1d(np.arange(len(graphs)), fitted)
    rng = np.random.default_rng(1)
    others = graphs.subset(np.sort(rng.choice(rest, GRAPHS, replace=False)))
    describe("other training graphs", percentiles(model, novelty, others))
    describe("held-out molecules", percentiles(model, novelty, read(held_out, model.schema)))
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    values = percentiles(model, novelty, [row["smiles"] for row in rows])
    for kind in dict.fromkeys(row["kind"] for row in rows):
        chosen = [(r, v) for r, v in zip(rows, values, strict=True) if r["kind"] == kind]
        print(f"{kind}: {sum(v > 99 for _, v in chosen)} of {len(chosen)} above 99")
        for row, value in chosen:
            print(f"    {value:6.2f} {row['name']}{' (in training)' * bool(row['in_training'])}")


if __name__ == "__main__":
    main(*sys.argv[1:4])
