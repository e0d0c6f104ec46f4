"""Draw what ``finetune.py`` wrote: test scores while networks are fine-tuned.

python benchmarks/gpu/curves.py benchmarks/results/full-size/finetuned.csv.gz CURVES.png
"""

import sys

import pandas as pd
from matplotlib import pyplot as plt

PAPER = {  # Table 1 of Xu et al. (2021): without pre-training, GraphLoG
    "BBBP": (65.8, 72.5),
    "BACE": (70.1, 83.5),
    "ClinTox": (58.0, 76.7),
    "SIDER": (57.3, 61.2),
    "Tox21": (74.0, 75.7),
    "ToxCast": (63.4, 63.5),
    "HIV": (75.3, 77.8),
    "MUV": (71.8, 76.0),
}
ARMS = {
    "from scratch": ("#7f7f7f", "from scratch"),
    "released, epoch 11": ("#1f6fb4", "released, 21.3 million"),
    "graphlog, 17.2 million": ("#d95f02", "graphlog, 17.2 million"),
}


def main() -> None:
    """Draw a panel a data set."""
    rows = pd.read_csv(sys.argv[1])
    figure, axes = plt.subplots(2, 4, figsize=(12, 5.6), sharex=True, layout="constrained")
    for axis, (name, paper) in zip(axes.flat, PAPER.items(), strict=True):
        of_set = rows[rows["dataset"] == name.lower()]
        for arm, (color, label) in ARMS.items():
            scores = 100 * of_set[of_set["model"] == arm].pivot(
                index="epoch", columns="seed", values="test"
            )
            mean, sd = scores.mean(axis=1), scores.std(axis=1).fillna(0)
            axis.plot(mean.index, mean, color=color, lw=1.4, label=label)
            axis.fill_between(mean.index, mean - sd, mean + sd, color=color, alpha=0.18, lw=0)
        for value, color, label in zip(
            paper, ("#7f7f7f", "#1f6fb4"), ("from scratch (paper)", "GraphLoG (paper)"), strict=True
        ):
            axis.axhline(value, color=color, lw=1, ls="--", label=label)
        seeds = of_set["seed"].nunique()
        axis.set_title(f"{name}, {seeds} seed{'s' * (seeds > 1)}", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("epoch of fine-tuning", fontsize=10)
    figure.supylabel("test ROC-AUC (%), mean and SD over seeds", fontsize=10)
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
    figure.savefig(sys.argv[2], dpi=110)


if __name__ == "__main__":
    main()
