"""Tables of the pages, printed again from the rows in results/, of questions that are settled.

python benchmarks/settled.py groups
python benchmarks/settled.py tu
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from graphlog.downstream.metrics import paired_interval

RESULTS = Path(__file__).parent / "results"
CHOSEN = ("bace", "bbbp", "hlm", "mdr1", "lipophilicity", "esol")
PROTOTYPES = "prototypes: "
"""How the tasks of the models trained with and without prototypes begin."""
TU = ("mutag", "ptc", "imdb-binary", "enzymes", "imdb-multi", "proteins", "nci1")
METHODS = {
    "wl": "WL subtree counts",
    "untrained": "untrained GIN",
    "graphlog": "GraphLoG",
    "infograph": "InfoGraph",
    "graphcl": "GraphCL",
}
PAPERS = {
    "InfoGraph (paper)": {
        "mutag": (89.01, 1.13),
        "ptc": (61.65, 1.43),
        "imdb-binary": (73.03, 0.87),
        "imdb-multi": (49.69, 0.53),
    },
    "InfoGraph (GraphCL's paper)": {
        "mutag": (89.01, 1.13),
        "imdb-binary": (73.03, 0.87),
        "proteins": (74.44, 0.31),
        "nci1": (76.20, 1.06),
    },
    "GraphCL (paper)": {
        "mutag": (86.80, 1.34),
        "imdb-binary": (71.14, 0.44),
        "proteins": (74.39, 0.45),
        "nci1": (77.87, 0.41),
    },
}
"""Sun et al. (ICLR 2020) and You et al. (NeurIPS 2020), as printed; without sets not reported."""


def groups() -> str:
    """Return the tables of retrieval, groups and choice: means, and SDs over networks."""
    rows = pd.read_csv(RESULTS / "groups.csv.gz")
    task = rows["task"]
    searched, grouped = rows[task == "retrieve"].copy(), rows[task.str.startswith("group")]
    searched["seed"] = searched["model"].str.extract(r"untrained (\d)")[0].fillna("0")
    searched["model"] = searched["model"].str.replace(r"untrained \d", "untrained", regex=True)
    others = rows[task.str.startswith(PROTOTYPES)].copy()
    others["seed"] = others["model"].str.extract(r"-(\d)")[0]
    others["model"] = others["model"].str.replace(r"-\d", "", regex=True)
    others["task"] = others["task"].str.removeprefix(PROTOTYPES)
    in_groups = others["metric"] == "AMI"
    lines = [
        *mean_table(searched, ["dataset", "metric"], 1),
        *mean_table(grouped, ["task", "dataset", "of"], 100),
        *choice_table(rows[task.str.startswith("choose")]),
        *mean_table(others[~in_groups], ["dataset", "metric"], 1),
        *mean_table(others[in_groups], ["task", "dataset", "of"], 100),
    ]
    return "\n".join(lines)


def mean_table(frame: pd.DataFrame, columns: list[str], scale: float) -> Iterator[str]:
    """Yield the lines of a table with a row a model: mean ± SD over the seeds."""
    means = frame.groupby([*columns, "model", "seed"])["value"].mean() * scale
    wide = means.groupby([*columns, "model"]).agg(["mean", "std"])
    found = list(dict.fromkeys(wide.index.droplevel("model")))
    yield f"| | {' | '.join(', '.join(c) for c in found)} |"
    yield "|" + "---|" * (len(found) + 1)
    for model in dict.fromkeys(frame["model"]):
        cells = [wide.loc[(*c, model)] for c in found]
        words = [
            f"{c['mean']:.2f}" + (f" ± {c['std']:.2f}" if c["std"] == c["std"] else "")
            for c in cells
        ]
        yield f"| {model} | {' | '.join(words)} |"
    yield ""


def choice_table(rows: pd.DataFrame) -> Iterator[str]:
    """Yield the lines of the table of molecules chosen to be labeled.

    Differences are of the mean of all sets in the same split, with 95 % intervals over splits.
    """
    yield f"| | labels | {' | '.join(CHOSEN)} | mean | less random | less MaxMin |"
    yield "|" + "---|" * (len(CHOSEN) + 5)
    for task, frame in rows.groupby("task", sort=False):
        wide = frame.pivot(index=["model", "seed"], columns="dataset", values="value") * 100
        means = wide.mean(axis=1)
        for model in dict.fromkeys(frame["model"]):
            cells = [f"{wide.loc[model][name].mean():.1f}" for name in CHOSEN]
            for other in ("random", "MaxMin, ECFP4"):
                gap = means[model] - means[other]
                mean, half = paired_interval(gap.to_numpy(), 0.0)
                text = f"{mean:+.1f} ({mean - half:+.1f} to {mean + half:+.1f})"
                cells.append(text if model != other else "")
            cells.insert(len(CHOSEN), f"{means[model].mean():.1f}")
            yield f"| {model} | {str(task).split()[1]} | {' | '.join(cells)} |"
    yield ""


def tu() -> str:
    """Return a row a method, a column a set: mean and sample SD over seeds, and their number."""
    found = pd.read_json(RESULTS / "tu.jsonl.gz", lines=True).explode("rows", ignore_index=True)
    found = found[["set"]].join(pd.DataFrame(found["rows"].tolist()))
    scores = (100 * found["accuracy"]).groupby([found["method"], found["set"]])
    texts = scores.agg(lambda s: f"{s.mean():.2f} ± {s.std():.2f} ({len(s)})").unstack()
    lines = {f"{words} (*measured*)": texts.loc[name] for name, words in METHODS.items()}
    for name, printed in PAPERS.items():
        lines[f"*{name}*"] = {s: f"{mean:.2f} ± {sd:.2f}" for s, (mean, sd) in printed.items()}
    whole = pd.DataFrame(lines).T.reindex(columns=list(TU))
    whole = whole.rename_axis("10-fold accuracy (%)").reset_index().fillna("")
    return whole.to_markdown(index=False) + "\n"


if __name__ == "__main__":
    print({"groups": groups, "tu": tu}[sys.argv[1]](), end="")
