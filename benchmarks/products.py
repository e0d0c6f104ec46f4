"""What calling oneDNN by name saves in the linear layers, beside ``torch.nn.Linear``, in turns.

python benchmarks/products.py --out benchmarks/results/products.csv

Processor time of one thread, molecules of ``zinc250k``, 5 layers of width 300; both sides take the
same batch one after the other, the first of them in turns. A row has the medians over the pairs.
"""

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import torch

from graphlog.api import read_molecules
from graphlog.data.batch import BatchSampler, GraphBatch
from graphlog.encoders import LAYERS
from graphlog.encoders.encoder import EncoderConfig, GraphEncoder, build_encoder
from graphlog.ops import products
from graphlog.training.setting import autocast

BATCH, EMBEDDED = 256, 512


def seconds(by_name: bool, encoder: GraphEncoder, batch: GraphBatch, precision: Any) -> float:
    """Return the processor time of a pass, with backward in training mode."""
    products._ONEDNN = by_name
    start = time.process_time()
    with torch.set_grad_enabled(encoder.training), autocast(precision, torch.device("cpu")):
        total = encoder(batch).graph_emb.float().square().sum()
    if encoder.training:
        total.backward()
    return time.process_time() - start


def main() -> None:
    """Measure every backbone, forward with backward and embedding, in both precisions."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", default="zinc250k")
    parser.add_argument("--backbones", nargs="+", default=list(LAYERS))
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if not products._ONEDNN:
        parser.error("this processor or this torch takes torch.nn.Linear in any case")
    torch.set_num_threads(1)
    store = read_molecules(options.source, limit=EMBEDDED * (options.pairs + 1))
    rows: list[dict[str, object]] = []
    for backbone in options.backbones:
        config = EncoderConfig.parse({"backbone": backbone, "layers": 5, "dim": 300})
        encoder = build_encoder(config, store.schema)
        for precision in ("fp32", "bf16"):
            for work, size in (("forward and backward", BATCH), ("embedding", EMBEDDED)):
                encoder.train(work != "embedding").zero_grad()
                found: list[list[float]] = []
                for number, indices in enumerate(BatchSampler(len(store), size).epoch(0)):
                    batch = store.take(indices)
                    order = (True, False) if number % 2 else (False, True)
                    pair = {side: seconds(side, encoder, batch, precision) for side in order}
                    found.append([pair[False], pair[True]])
                kept = found[1 : options.pairs + 1]  # the first pair compiles kernels
                plain, named = zip(*kept, strict=True)
                ratio = median(p / n for p, n in zip(plain, named, strict=True))
                milliseconds = [round(1e3 * median(side), 1) for side in (plain, named)]
                row = [backbone, precision, work, *milliseconds, round(ratio, 2)]
                heads = ["backbone", "precision", "work", "linear_ms", "onednn_ms", "ratio"]
                rows.append(dict(zip(heads, row, strict=True)))
                print(*row, flush=True)
    if options.out is not None:
        pd.DataFrame(rows).to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
