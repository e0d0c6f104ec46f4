"""The tables of the stages: seconds and rates of every side, limits of the machine, batch sizes."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from graphlog.benchmark.methods import DOMAIN_LABELS
from graphlog.benchmark.pivots import Row, Table

OF_A_STEP = ("collate", "forward", "backward", "optimizer")
"""The stages that make up a pre-training step."""
STAGE_LABELS: Mapping[str, str] = {
    "parse": "Parse SMILES",
    "collate": "Collate a batch",
    "forward": "Forward, with the losses of GraphLoG",
    "backward": "Backward",
    "optimizer": "Optimizer step",
    "step": "Pre-training step: the four above",
    "kmeans": "Fit the prototypes (K-means)",
    "finetune": "Fine-tuning step",
    "embed": "Embed",
}
SIDE_LABELS: Mapping[str, str] = {
    "fp32": "graphlog fp32",
    "bf16": "graphlog bf16",
    "torch_geometric": "torch_geometric fp32",
}
LIMIT_LABELS: Mapping[str, tuple[str, str]] = {
    f"{kind}-{precision}": (f"{words}, {precision}", unit)
    for precision in ("fp32", "bf16")
    for kind, words, unit in (
        ("product", "Matrix product, nodes x D by D x 2D, of torch", "GFLOP/s"),
        ("layer", "Both products of a GIN layer, as graphlog computes them", "GFLOP/s"),
        ("share", "Matrix products at the faster rate, share of a step", "%"),
    )
} | {"copy": ("Memory copy", "GB/s")}


def stage_tables(rows: pd.DataFrame) -> list[Table]:
    """Return, for each domain, the stages, the machine's limits, and the step by batch size."""
    own = rows[(rows["stage"] == "stage-speed") & (rows["rule"] != "")]
    own = own.assign(row=own["metric"], column=own["rule"])
    tables: list[Table] = []
    for domain, place in DOMAIN_LABELS.items():
        here = own[own["domain"] == domain]
        if here.empty:
            continue
        seconds = here[here["rule"].isin(list(SIDE_LABELS))]
        rates = seconds.assign(column="rate " + seconds["rule"], value=1000 / seconds["value"])
        columns: dict[str, str] = {}
        for side, label in SIDE_LABELS.items():
            if side != "bf16" or side in set(seconds["rule"]):
                columns |= {side: f"{label}: s per 1,000 graphs", f"rate {side}": "graphs/s"}
        limits = here[here["rule"] == "limits"]
        sized = here[here["rule"].str.startswith("batches ")]
        sizes = sorted(set(sized["row"]), key=int)
        parts: list[tuple[str, str, tuple[str, ...], list[Row], dict[str, str], pd.DataFrame]] = [
            (
                "stages",
                "Stages",
                ("Stage",),
                [Row(s, (t,)) for s, t in STAGE_LABELS.items() if s in set(seconds["row"])],
                columns,
                pd.concat([seconds, rates]),
            ),
            (
                "limits",
                "Limits of the machine",
                ("What", "Unit"),
                [Row(s, t) for s, t in LIMIT_LABELS.items() if s in set(limits["row"])],
                {"limits": "Measured"},
                limits,
            ),
            (
                "batch-rates",
                "Pre-training step by batch size, graphs/s",
                ("Batch size",),
                [Row(size, (size,)) for size in sizes],
                {c: SIDE_LABELS[c.removeprefix("batches ")] for c in sized["column"].unique()},
                sized,
            ),
        ]
        for kind, title, heads, lines, heading, scores in parts:
            name, full = f"speed-{kind}-{place}", f"{title}, {place}"
            fields: dict[str, Any] = {"metric": "speed", "rule": "", "averaged": False}
            found = Table(
                "speed", name, kind, full, heads, tuple(lines), heading, scores=scores, **fields
            )
            tables.append(found)
    return tables
