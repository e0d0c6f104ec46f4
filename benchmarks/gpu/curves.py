"""Draw the test scores of ``finetune.py`` by epoch of fine-tuning.

python benchmarks/gpu/curves.py benchmarks/results/full-size/finetuned.csv.gz CURVES.png
"""

import sys

import pandas as pd
from matplotlib import pyplot as plt

from graphlog.benchmark.cells import PAPER

SETS = ("BBBP", "BACE", "ClinTox", "SIDER", "Tox21", "ToxCast", "HIV", "MUV")
ARMS = {
    "from scratch": ("#7f7f7f", "from scratch"),
    "released, epoch 11": ("#1f6fb4", "released, 21.3 million"),
    "graphlog, 17.2 million": ("#d95f02", "graphlog, 17.2 million"),
}


def main() -> None:
    rows = pd.read_csv(sys.argv[1])
    figure, axes = plt.subplots(2, 4, figsize=(12, 5.6), sharex=True, layout="constrained")
    paper = PAPER["table_1"]
    for axis, name in zip(axes.flat, SETS, strict=True):
        dataset_rows = rows[rows["dataset"] == name.lower()]
        for arm, (color, label) in ARMS.items():
            scores = 100 * dataset_rows[dataset_rows["model"] == arm].pivot(
                index="epoch", columns="seed", values="test"
            )
            mean, sd = scores.mean(axis=1), scores.std(axis=1).fillna(0)
            axis.plot(mean.index, mean, color=color, lw=1.4, label=label)
            axis.fill_between(mean.index, mean - sd, mean + sd, color=color, alpha=0.18, lw=0)
        column = paper["columns"].index(name.lower())
        for row, arm, label in (
            ("untrained", "from scratch", "from scratch (paper)"),
            ("graphlog", "released, epoch 11", "GraphLoG (paper)"),
        ):
            axis.axhline(
                paper["rows"][row][column][0], color=ARMS[arm][0], lw=1, ls="--", label=label
            )
        seeds = dataset_rows["seed"].nunique()
        axis.set_title(f"{name}, {seeds} seed{'s' * (seeds > 1)}", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("epoch of fine-tuning", fontsize=10)
    figure.supylabel("test ROC-AUC (%), mean and SD over seeds", fontsize=10)
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
    figure.savefig(sys.argv[2], dpi=110)


if __name__ == "__main__":
    main()
