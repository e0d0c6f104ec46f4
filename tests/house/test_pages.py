"""The tables of the pages, computed again from the rows in benchmarks/results."""

import re
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from graphlog.downstream.metrics import evaluate
from house_support import ROOT

RESULTS = ROOT / "benchmarks/results"
SETS = ("bbbp", "tox21", "toxcast", "sider", "clintox", "muv", "hiv", "bace")
R2 = ("esol", "freesolv", "lipophilicity")
SIX = ("bbbp", "bace", "clintox", "sider", "tox21", "hiv")
FOUR = ("bbbp", "bace", "sider", "clintox")
FIVE = (*FOUR, "tox21")
RANDOM = ("untrained",)
SEEDS = ("mol", "mol1", "mol2")
MINUS = "\N{MINUS SIGN}"
NUMBER = re.compile(rf"[-+{MINUS}]?\d+(?:\.\d+)?")

Values = Sequence[float]
"""What a cell holds: a mean, and the deviation where the page gives one."""


def tables(page: str) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield heading, column names and rows of each table of a page."""
    heading, block = "", list[list[str]]()
    for line in [*(ROOT / page).read_text().splitlines(), ""]:
        if line.startswith("|"):
            cells = [c.strip().replace("*", "").replace("`", "") for c in line[1:-1].split("|")]
            block.append(cells)
            continue
        if block:
            yield heading, block[0], block[2:]
            block = []
        if line.startswith("#"):
            heading = line.lstrip("# ")


def table(page: str, heading: str, number: int = 0) -> tuple[list[str], list[list[str]]]:
    """Return column names and rows of the table below a heading."""
    found = [(columns, rows) for name, columns, rows in tables(page) if name == heading]
    return found[number]


def numbers(cell: str) -> list[float]:
    return [float(m.replace(MINUS, "-")) for m in NUMBER.findall(cell)]


def check(label: str, cell: str, values: Values) -> None:
    """Assert that a cell says these values, as rounded as it is."""
    for said, word, value in zip(numbers(cell), NUMBER.findall(cell), values, strict=False):
        half = 0.5 * 10.0 ** -len(word.partition(".")[2])
        assert abs(said - value) <= half + 1e-3, f"{label}: {cell}, from the rows {values}"
    assert numbers(cell), f"{label}: {cell!r} holds no number"


@cache
def rows_of(name: str) -> pd.DataFrame:
    frame = pd.read_csv(RESULTS / name, keep_default_na=False)
    return frame.assign(score=pd.to_numeric(frame["score"]))


@cache
def frozen() -> pd.Series:
    """Return scores in points by stage, rule, model and data set."""
    rows = rows_of("selection/rows.csv.gz")
    rows = rows[rows["metric"].isin(["roc_auc", "r2"])]
    return rows.groupby(["stage", "rule", "model", "dataset"])["score"].last() * 100


def of_models(models: Sequence[str], rule: str, sets: Sequence[str]) -> np.ndarray:
    """Return, one a model, the mean of test scores over sets."""
    scores = frozen()
    return np.array([np.mean([scores["test", rule, m, d] for d in sets]) for m in models])


def spread(values: np.ndarray) -> Values:
    return (values.mean(), values.std(ddof=1)) if len(values) > 1 else (values[0],)


COLUMNS: dict[str, Sequence[str]] = {
    "BBBP": ("bbbp",),
    "Tox21": ("tox21",),
    "ToxCast": ("toxcast",),
    "SIDER": ("sider",),
    "ClinTox": ("clintox",),
    "MUV": ("muv",),
    "HIV": ("hiv",),
    "BACE": ("bace",),
    "ESOL": ("esol",),
    "FreeSolv": ("freesolv",),
    "Lipophilicity": ("lipophilicity",),
}
MODELS: dict[str, tuple[str, ...]] = {
    "untrained": RANDOM,
    "ECFP4": ("ecfp4",),
    "RDKit descriptors": ("descriptors",),
    "graphlog-mol (seed 0)": ("mol",),
    "seed 1": ("mol1",),
    "seed 2": ("mol2",),
    "mean of the three seeds": SEEDS,
    "default, mean of three seeds": ("default-s0", "default-s1", "default-s2"),
    "AttrMasking": ("attrmasking",),
    "GraphMAE": ("graphmae",),
    "GraphCL": ("graphcl",),
    "ContextPred": ("contextpred",),
    "InfoGraph": ("infograph",),
    "EdgePred": ("edgepred",),
    "InfoMax": ("infomax",),
    "GraphPartition": ("graphpartition",),
    "GraphLoG, mended local losses, no prototypes": ("graphlog-graphlog",),
    "GraphLoG, released 3": ("released3",),
    "GraphLoG, released 6": ("released6",),
    "GraphLoG, paper 6": ("paper6",),
    "twelve epochs, mean of three seeds": SEEDS,
    "twenty-three epochs, seed 0": ("final-s0",),
    "twenty-three epochs, seed 1": ("final-s1",),
    "twenty-three epochs, seed 2": ("final-s2",),
    "twenty-three epochs, mean of three seeds": ("final-s0", "final-s1", "final-s2"),
}


@pytest.mark.parametrize(
    ("heading", "number", "sets", "rule"),
    [
        ("Eight MoleculeNet sets, frozen", 0, SETS, None),
        ("Three regressions, frozen", 0, R2, None),
        ("Other methods, same molecules", 0, SETS, "validated"),
        ("Other methods, same molecules", 1, SETS, "fixed"),
        ("One epoch is enough for a linear model with all labels", 1, SETS, None),
    ],
)
def test_frozen_scores(heading: str, number: int, sets: Sequence[str], rule: str | None):
    columns, rows = table("docs/results.md", heading, number)
    means = {"mean": sets, "without ClinTox": [d for d in sets if d != "clintox"], "mean R2": R2}
    checked = 0
    for label, *cells in rows:
        given = dict(zip(columns[1:], cells, strict=True))
        kind = rule or ("validated" if given["C"] == "validated" else "fixed")
        models = MODELS.get(label) or MODELS.get(f"{label} {given.get('epochs')}")
        if models is None:  # fused: of predictions that were not kept
            continue
        for column, cell in given.items():
            which = COLUMNS.get(column) or means.get(column)
            if which is not None:
                check(
                    f"{label}, {column}",
                    cell,
                    spread(of_models(models, kind, which))[: 1 + ("±" in cell)],
                )
                checked += 1
    assert checked > 20


def test_five_networks():
    frame = pd.read_csv(RESULTS / "selection/networks.csv", keep_default_na=False)
    encoders = frame[~frame["model"].isin(["ecfp4", "descriptors"])]
    assert encoders["collection"].nunique() == 1  # all calibrated alike
    networks = frame.groupby(["rule", "model", "dataset"])["score"].last()
    columns, rows = table("docs/results.md", "Five random networks")
    means = {"mean": FIVE, "without ClinTox": [d for d in FIVE if d != "clintox"], "mean R2": R2}
    for label, c, *cells in rows:
        rule = "validated" if c == "validated" else "fixed"
        for column, cell in zip(columns[2:], cells, strict=True):
            sets = means.get(column) or COLUMNS[column.removesuffix(" R2")]
            if label.startswith("pre-trained"):
                values = of_models(SEEDS, rule, sets)
            else:
                of = range(5) if label == "five networks" else [int(label[-1])]
                values = np.array(
                    [np.mean([networks[rule, f"untrained{k}", d] for d in sets]) for k in of]
                )
            check(f"{label}, {column}", cell, spread(values))


def test_kept_predictions_give_the_scores():
    frame = pd.read_csv(RESULTS / "selection/networks.csv", keep_default_na=False)
    with np.load(RESULTS / "selection/predictions.npz") as kept:
        for row in frame.itertuples():
            key = f"{row.dataset}/{row.model}/{row.rule}"
            if row.dataset == "tox21":  # too large to be kept
                continue
            labels = kept[f"{row.dataset}/labels"]
            task = "regression" if row.metric == "r2" else "classification"
            scores = evaluate(labels.astype(np.float32), kept[key], task).scores
            assert 100 * scores[str(row.metric)] == pytest.approx(row.score, abs=1e-3), key


def test_ten_splits():
    rows = rows_of("selection/several-splits.csv.gz")
    means = rows.groupby(["model", "dataset", "split"])["score"].mean()
    names = {
        "graphlog-mol and seed 1": "mol",
        "untrained": "untrained",
        "ECFP4": "ecfp4",
        "RDKit descriptors": "descriptors",
        "ECFP4 and descriptors, fused": "ecfp4 + descriptors",
        "pre-trained and ECFP4, fused": "mol + ecfp4",
        "pre-trained and descriptors, fused": "mol + descriptors",
        "all three, fused": "mol + ecfp4 + descriptors",
        "untrained, ECFP4 and descriptors, fused": "ecfp4 + descriptors + untrained",
    }

    def of(model: str, sets: Sequence[str]) -> np.ndarray:
        return np.mean([means[model, d].to_numpy() for d in sets], axis=0)

    columns, found = table("docs/results.md", "Ten random scaffold splits")
    for label, *cells in found:
        for column, cell in zip(columns[1:], cells, strict=True):
            sets = {"mean": SIX, "mean R2": R2}.get(column) or COLUMNS[column]
            check(f"{label}, {column}", cell, spread(of(names[label], sets)))
    pairs = (("mol", "untrained"), ("mol", "ecfp4"), ("mol", "descriptors"))
    pairs += (("mol + ecfp4 + descriptors", "ecfp4 + descriptors"),)
    _, found = table("docs/results.md", "Ten random scaffold splits", 1)
    for (label, *cells), (ours, theirs) in zip(found, pairs, strict=True):
        for sets, cell, ahead in ((SIX, *cells[:2]), (R2, *cells[2:])):
            values = of(ours, sets) - of(theirs, sets)
            half = stats.t.ppf(0.975, 9) * values.std(ddof=1) * (1 / 10 + 0.1 / 0.8) ** 0.5
            check(label, cell, (values.mean(), values.mean() - half, values.mean() + half))
            check(label, ahead, ((values > 0).sum(),))


def few(stage: str, models: Sequence[str], sets: Sequence[str], labels: int) -> np.ndarray:
    """Return the mean over sets and models of each draw."""
    rows = rows_of("selection/few-labels.csv.gz")
    rows = rows[(rows["stage"] == stage) & (rows["labels"] == labels)]
    rows = rows[rows["model"].isin(models) & rows["dataset"].isin(sets)]
    means = rows.groupby("draw")["score"].agg(["mean", "size"])
    return means[means["size"] == len(models) * len(sets)]["mean"].to_numpy()


FEW: dict[str, tuple[str, ...]] = {
    "graphlog-mol and its other two seeds": SEEDS,
    "the same, one epoch (two seeds)": ("default-s0", "default-s1"),
    "untrained": ("untrained",),
    "AttrMasking, one epoch": ("attrmasking",),
    "GraphMAE, one epoch": ("graphmae",),
    "ECFP4": ("ecfp4",),
    "RDKit descriptors": ("descriptors",),
    "ECFP4 and descriptors, fused": ("ecfp4 + descriptors",),
    "pre-trained and ECFP4, fused": tuple(f"{m} + ecfp4" for m in SEEDS),
    "pre-trained and descriptors, fused": tuple(f"{m} + descriptors" for m in SEEDS),
    "all three, fused": tuple(f"{m} + ecfp4 + descriptors" for m in SEEDS),
}


@pytest.mark.parametrize(("number", "sets"), [(0, SIX), (1, R2)])
def test_few_labels(number: int, sets: Sequence[str]):
    columns, found = table("docs/results.md", "Few labels", number)
    for label, *cells in found:
        for column, cell in zip(columns[1:], cells, strict=True):
            size = int(numbers(column)[0])
            check(f"{label}, {column}", cell, spread(few("probe", FEW[label], sets, size)))


def test_few_labels_fine_tuned():
    models = {"from scratch": ("untrained",), "pre-trained": ("mol",), "fine-tuned": ("mol",)}
    columns, found = table("docs/results.md", "Few labels", 2)
    for label, *cells in found:
        kind, size = label.split(", ")
        for column, cell in zip(columns[1:], cells, strict=True):
            sets = {"mean": FOUR, "mean R2": R2}.get(column) or COLUMNS[column.removesuffix(" R2")]
            values = few("finetune", models[kind], sets, int(numbers(size)[0]))
            check(f"{label}, {column}", cell, spread(values))
    frozen_rows = {
        "frozen": ("mol",),
        "untrained, frozen": ("untrained",),
        "RDKit descriptors": ("descriptors",),
        "ECFP4 and descriptors, fused": ("ecfp4 + descriptors",),
        "frozen and descriptors, fused": ("mol + descriptors",),
        "all three, fused": ("mol + ecfp4 + descriptors",),
    }
    columns, found = table("docs/results.md", "Few labels", 3)
    for label, *cells in found:
        stage, names = ("finetune", models.get(label)) if label in models else ("probe", None)
        for at, cell in enumerate(cells):
            sets, size = (FOUR, R2)[at // 2], (100, 400)[at % 2]
            values = few(stage, names or frozen_rows[label], sets, size)[:3]
            check(f"{label}, {at}", cell, spread(values))


def test_fine_tuned():
    rows = rows_of("selection/finetuned.csv")
    rows = rows[(rows["fold"] == "test") & (rows["metric"] == "roc_auc")]
    rules = {"last": "last epoch", "best on the validation fold": "best validation"}
    for number in (0, 1):
        columns, found = table("docs/results.md", "Fine-tuned", number)
        for label, epoch, *cells in found:
            model, _, averaged = label.partition(", ")
            if epoch not in rules or (averaged and averaged != "seeds averaged"):
                continue
            known = rows[(rows["model"] == model) & (rows["rule"] == rules[epoch])]
            known = known[known["rows"].str.contains("mean of") == bool(averaged)]
            scores = known.groupby("dataset")["score"].apply(lambda s: s.to_numpy() * 100)
            for column, cell in zip(columns[2:], cells, strict=True):
                sets = {
                    "mean of eight": SETS,
                    "without ClinTox": [d for d in SETS if d != "clintox"],
                }
                sets["mean"] = [d for d in SETS if d not in ("hiv", "muv")]
                which = sets.get(column) or COLUMNS[column]
                one = spread(scores[which[0]]) if len(which) == 1 else ()
                value = one or (np.mean([scores[d].mean() for d in which]),)
                check(f"{label}, {column}", cell, value)


PENALTIES = (0.001, 0.01, 0.1, 1.0)
VALIDATED = {
    "One epoch is enough for a linear model with all labels",
    "Width",
    "A virtual node",
    "Masked attributes beside the descriptors",
    "Prototypes on and off",
}


def test_validation_folds():
    """The tables over the penalty, of models whose rows were kept under the page's name."""
    names = {
        "one epoch": "default-s0",
        "twelve epochs, seed 2": "mol2",
        **{f"twenty-three epochs, seed {seed}": f"final-s{seed}" for seed in range(3)},
        "512": "wide-s0",
        "default 0": "default-s0",
        "default 1": "default-s1",
        "default 2": "default-s2",
        "with a virtual node 0": "virtual-s0",
        "with a virtual node 1": "virtual-s1",
        "a small one 0": "virtual-small-s0",
        "a small one 1": "virtual-small-s1",
        "a small one, bounded 0": "virtual-bounded-s0",
        "a small one, bounded 1": "virtual-bounded-s1",
        "with masked attributes 0": "plusattr-s0",
        "with masked attributes 1": "plusattr-s1",
        "with 0": "tree2-s0",
        "with 1": "tree2-s1",
        "without 0": "flat2-s0",
        "without 1": "flat2-s1",
    }
    rows = rows_of("selection/rows.csv.gz")
    rows = rows[(rows["stage"] == "valid") & rows["metric"].isin(["roc_auc", "r2"])]
    scores = rows.groupby(["model", "dataset", "c"])["score"].last() * 100
    checked = 0
    for heading, _, found in tables("docs/results.md"):
        if heading not in VALIDATED:
            continue
        for label, *cells in found:
            model = names.get(label) or names.get(f"{label} {cells[0]}")
            if model is None or len(cells) > 9 or (model, "bace", 1.0) not in scores:
                continue
            for cell, (sets, c) in zip(
                cells[-8:], [(s, c) for s in (FIVE, R2) for c in PENALTIES], strict=True
            ):
                check(f"{label}, {c}", cell, (np.mean([scores[model, d, c] for d in sets]),))
                checked += 1
    assert checked > 100


def trained(suite: str, variant: str, seeds: Sequence[str]) -> np.ndarray:
    """Return the scores of a configuration of GraphLoG: a row a seed, a column a set of FIVE."""
    frame = pd.read_csv(RESULTS / f"protocol-2/{suite}.csv.gz", keep_default_na=False, dtype=str)
    frame = frame[(frame["stage"] == "probe") & (frame["rule"] == "fixed-C")]
    frame = frame[
        (frame["fold"] == "test") & (frame["task"] == "") & (frame["metric"] == "roc_auc")
    ]
    frame = frame[(frame["variant"] == variant) & frame["method"].eq("graphlog")]
    values = frame.assign(value=frame["value"].astype(float) * 100)
    wide = values.pivot_table(index="seed", columns="dataset", values="value")
    return wide.loc[list(seeds), list(FIVE)].to_numpy()


def test_ablation():
    page = "docs/two-losses.md"
    networks = pd.read_csv(RESULTS / "protocol-2/untrained.csv")
    networks = networks[networks["calibration"] != "training fold"]
    wide = networks.pivot_table(index="network", columns="dataset", values="score")[list(FIVE)]
    starts = wide[wide.index.str.startswith("start")].to_numpy()
    kept = [k for k, d in enumerate(FIVE) if d != "clintox"]
    _, first = table(page, "Table 4 with all rows alike")
    _, second = table(page, "Table 4 with all rows alike", 1)
    order = ("bbbp", "bace", "sider", "clintox", "tox21")
    for at, (*ticks, b1, b2, b3, b4, b5, mean, without) in enumerate(first):
        losses = [n for n, t in zip(("subgraph", "graph", "global"), ticks, strict=True) if t]
        variant = f"losses={'+'.join(losses)}"
        scores = trained("ablation", variant, "012") if losses else wide.to_numpy()
        for dataset, cell in zip(order, (b1, b2, b3, b4, b5), strict=True):
            check(f"{losses}, {dataset}", cell, spread(scores[:, FIVE.index(dataset)]))
        check(f"{losses}, mean", mean, spread(scores.mean(axis=1)))
        check(f"{losses}, without ClinTox", without, (scores[:, kept].mean(),))
        if not losses:
            continue
        by_seed, *cells = second[at - 1][3:]
        for columns, paired, unpaired in (
            (list(range(5)), cells[0], cells[2]),
            (kept, *cells[1::2]),
        ):
            ours, theirs = scores[:, columns].mean(axis=1), wide.to_numpy()[:, columns].mean(axis=1)
            difference = ours - starts[:, columns].mean(axis=1)
            half = stats.t.ppf(0.975, 2) * difference.std(ddof=1) / 3**0.5
            mean = difference.mean()
            check(f"{losses}, paired", paired, (mean, mean - half, mean + half))
            interval = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval()
            gap = ours.mean() - theirs.mean()
            check(f"{losses}, to eight", unpaired, (gap, interval.low, interval.high))
            if columns is not kept:
                check(f"{losses}, by seed", by_seed, difference)


@pytest.mark.parametrize("number", [0, 1])
def test_prototypes_in_use(number: int):
    rows = pd.read_json(RESULTS / "prototypes_in_use.jsonl", lines=True)
    names = {"K-means": "balanced, rate 10; collection of graphlog-mol"}
    names["balanced"] = "balanced from the start, rate 10 (default); collection of graphlog-mol"
    names["drawn at the loss's temperature, unit length"] = (
        "drawn at the loss's temperature, unit length (0.1.0)"
    )
    columns, found = table("docs/measured/prototypes.md", "Prototypes in use", number)
    for label, *cells in found:
        own = rows[rows["variant"] == names.get(label, label)]
        means = own.mean(numeric_only=True)
        for column, cell in zip(columns[1:], cells, strict=True):
            word, _, level = column.partition(" ")
            if column == "seeds":
                assert int(cell) == len(own)
            elif word == "layer" and cell:
                values = [means[f"{name}_{level[0]}"] for name in ("used", "prototypes")]
                assert cell == "{:.3g} of {:.3g}".format(*values), (label, column)
            elif cell:
                value = means["root_gradient" if word == "gradient" else f"loss_{word}"]
                assert cell == f"{value:.3g}", (label, column)


def test_released_at_the_papers_size():
    _, found = table("docs/two-losses.md", "The released recipe at the paper's size, so far")
    log = pd.read_json(RESULTS / "released-21m-metrics.jsonl.gz", lines=True).set_index("step")
    assert found
    for step, presented, *cells, used in found:
        row = log.loc[int(step.replace(",", ""))]
        assert presented == f"{row.name * 512 / 1e6:.2f}"
        assert cells == [
            f"{row['loss_graph']:.4f}",
            f"{row['loss_subgraph']:.3f}",
            f"{row['rank']:.0f}",
        ]
        of_layers = ", ".join(f"{row[f'prototypes_used_estep_{k}']:.1f}" for k in range(3))
        assert used == ("none yet" if row["phase"] == "local" else of_layers)


def test_depth_and_batch_size():
    kept = [k for k, d in enumerate(FIVE) if d != "clintox"]
    for number, name in ((2, "depth"), (3, "batch_size")):
        columns, (means, without) = table(
            "docs/two-losses.md", "Table 4 with all rows alike", number
        )
        for at, column in enumerate(columns[1:], start=1):
            if column.isdecimal():
                (scores,) = trained("sensitivity", f"{name}={column}", "0")
                check(f"{name} {column}", means[at], (scores.mean(),))
                check(f"{name} {column}", without[at], (scores[kept].mean(),))


WATCHED = ("rank", "mean_cosine", "prototypes_total_2", "prototypes_used_estep_2")
WATCHED += ("prototypes_used_nearest_2", "posterior_perplexity_2")


@cache
def recipes() -> tuple[pd.Series, pd.DataFrame]:
    """Return scores in points by row and data set, and what the runs ended with."""
    cells = pd.read_json(RESULTS / "recipes.jsonl.gz", lines=True)
    cells["stage"] = cells["name"].str.partition("-")[0]
    scores = []
    for cell in cells[cells["stage"].isin(["probe", "finetune"])].itertuples():
        for row in cell.report["rows"]:
            is_own = row["model"].startswith(("frozen encoder", "fine-tuned"))
            family = cell.model.rpartition("-s")[0] or cell.model
            names = (family, cell.layer) if is_own else (row["model"], "")
            averaged = ", predictions of all seeds averaged" * ("mean of" in row["model"])
            place = (cell.stage, *names, row["rule"] + averaged, cell.name.split("-")[1])
            scores += [(*place, 100 * value) for value in row["test"]["roc_auc"]]
    places = ["stage", "model", "readout", "rule", "dataset"]
    found = pd.DataFrame(scores, columns=[*places, "score"]).groupby(places)["score"]
    runs = cells[cells["stage"] == "pretrain"]
    # rows of the watch stand between those of the losses: the last value of each
    ends = [{k: row[k] for row in rows for k in WATCHED if k in row} for rows in runs["metrics"]]
    of_run = runs["name"].str.removeprefix("pretrain-").str.rpartition("-s")[0]
    return found.agg(["mean", "std"]).apply(tuple, axis=1), pd.DataFrame(ends, index=of_run)


@pytest.mark.parametrize("heading", ["Four sets", "Eight sets"])
def test_recipes(heading: str):
    columns, found = table("benchmarks/results/recipes.md", heading)
    scores, sets = recipes()[0], columns[4:-2]
    for row in found:
        given = dict(zip(columns, row, strict=True))
        known = {d: scores.get((*row[:4], d)) for d in sets}
        for dataset in sets:
            assert (known[dataset] is None) == (given[dataset] == ""), row
        for head, left_out in (("mean", ()), ("without ClinTox", ("clintox",))):
            kept = [known[d] for d in sets if d not in left_out]
            assert (None in kept) == (given[head] == ""), row
            if None not in kept:
                check(f"{row[:4]}, {head}", given[head], (np.mean([mean for mean, _ in kept]),))
        for dataset, value in known.items():
            if value is not None:
                check(f"{row[:4]}, {dataset}", given[dataset], value)


def test_first_recipes():
    models = {"paper": "paper-50k", "released": "released-50k", "an earlier default": "default-50k"}
    for label, features, *cells in table("docs/measured/recipes.md", "First recipes")[1]:
        own = (models.get(label, f"{label}.{features}"), "jk")
        own = (label.replace(",", " +"), "") if "ECFP4" in label else own
        means = {d: recipes()[0]["probe", *own, "C = 0.1", d][0] for d in FOUR}
        check(label, cells[0], (np.mean(list(means.values())),))
        check(label, cells[1], (np.mean([means[d] for d in FOUR if d != "clintox"]),))
        if label in models:
            ends = recipes()[1].loc[models[label]].mean()
            check(label, cells[2], (ends["rank"],))
            check(label, cells[3], (ends["prototypes_used_estep_2"], ends["prototypes_total_2"]))


def test_recipes_watched():
    columns, found = table("benchmarks/results/recipes.md", "The collapse watch at the end")
    for run, seeds, *cells in found:
        ends = recipes()[1].loc[[run]]
        assert int(seeds) == len(ends)
        for column, cell in zip(columns[2:], cells, strict=True):
            check(f"{run}, {column}", cell, spread(ends[column].to_numpy()))


@cache
def adme() -> pd.DataFrame:
    """Return R2 in points, Pearson's r and the RMSE by features, head, seed and endpoint."""

    def scores(part: pd.DataFrame) -> pd.Series:
        found = evaluate(part[["label"]].to_numpy(), part[["prediction"]].to_numpy(), "regression")
        r2, r, rmse = (found.scores[name] for name in ("r2", "pearson", "rmse"))
        return pd.Series({"R2": 100 * r2, "r": r, "RMSE": rmse})

    rows = pd.read_csv(RESULTS / "adme.csv.gz")
    rows = rows[rows["head"] != "random split"]
    kernel = rows[(rows["features"] == "model+counts+descriptors") & (rows["head"] == "kernel")]
    tuned = rows[(rows["features"] == "model") & (rows["head"] == "fine-tuned")]
    both = kernel.merge(tuned, on=["endpoint", "row", "seed", "label"], suffixes=("", "_tuned"))
    assert len(both) == len(kernel) == len(tuned)
    both["prediction"] = (both["prediction"] + both.pop("prediction_tuned")) / 2
    rows = pd.concat([rows, both[rows.columns].assign(head="kernel and fine-tuned, averaged")])
    return rows.groupby(["features", "head", "seed", "endpoint"]).apply(
        scores, include_groups=False
    )


ADME = {
    "ECFP4": "ecfp4",
    "RDKit descriptors": "descriptors",
    "untrained network": "untrained",
    "untrained network, ECFP4 counts": "untrained+counts",
    "untrained network, ECFP4 counts, descriptors": "untrained+counts+descriptors",
    "graphlog-mol": "model",
    "graphlog-mol, ECFP4 counts": "model+counts",
    "graphlog-mol, descriptors": "model+descriptors",
    "graphlog-mol, ECFP4 counts, descriptors": "model+counts+descriptors",
    "MiniMol": "minimol",
    "chemprop": "chemprop",
}


def test_adme_scores():
    columns, found = table("docs/results.md", "ADME, linear and kernel heads")
    assert columns[2:8] == ["hlm", "mdr1", "rlm", "solubility", "hppb", "rppb"]
    for name, head, *cells in found:
        own = adme().loc[ADME[name], head]
        for endpoint, cell in zip(columns[2:8], cells, strict=False):
            check(f"{name}, {endpoint}", cell, (own["R2"].xs(endpoint, level=1).mean(),))
        means = own.groupby(level=0).mean()
        for column, cell in zip(["R2", "r", "RMSE"], cells[6:], strict=True):
            check(f"{name}, mean {column}", cell, spread(means[column].to_numpy()))


@pytest.mark.parametrize(("number", "metric", "points"), [(0, "roc_auc", 100), (1, "r2", 1)])
def test_moleculenet_heads(number: int, metric: str, points: int):
    columns, found = table("docs/results.md", "MoleculeNet, linear and kernel heads", number)
    rows = pd.read_csv(RESULTS / "moleculenet.csv.gz", keep_default_na=False)
    rows = rows[(rows["fold"] == "test") & (rows["task"] == "") & (rows["metric"] == metric)]
    sets = [column.lower() for column in columns[2 : columns.index("average")]]
    wide = rows.assign(value=rows["value"].astype(float) * points).pivot(
        index=["method", "rule", "seed"], columns="dataset", values="value"
    )[sets]
    names = {"ECFP4": "ecfp4", "RDKit descriptors": "descriptors"}
    for name, head, *cells in found:
        rule = {"linear": "validated", "kernel": "kernel"}[head]
        own = wide.loc[names.get(name, name), rule]
        averages = [own, own.drop(columns="clintox")] if "clintox" in sets else [own]
        scores = [own[column] for column in sets] + [part.mean(axis=1) for part in averages]
        for column, cell, values in zip(columns[2:-1], cells[:-1], scores, strict=True):
            check(f"{name}, {head}, {column}", cell, spread(values.to_numpy()))
        if name != "untrained":
            gap = own.mean(axis=1).iloc[0] - wide.loc["untrained", rule].mean(axis=1)
            half = stats.t.ppf(0.975, len(gap) - 1) * gap.sem()
            check(f"{name}, {head}", cells[-1], (gap.mean(), gap.mean() - half, gap.mean() + half))


def test_adme_deviations():
    rows = pd.read_csv(RESULTS / "adme.csv.gz")
    own = rows[(rows["features"] == "model+counts") & rows["std"].notna()]
    own = own.assign(error=(own["label"] - own["prediction"]).abs())
    columns, found = table("docs/results.md", "ADME, linear and kernel heads", 1)
    for (name, *cells), head in zip(found, ["random split"] * 2 + ["kernel"] * 2, strict=True):
        shares: dict[str, list[float]] = {endpoint: [] for endpoint in columns[1:-1]}
        for (endpoint, _), part in own[own["head"] == head].groupby(["endpoint", "seed"]):
            surest = part.nsmallest(len(part) // 3, "std")["error"]
            share = np.sqrt((surest**2).mean() / (part["error"] ** 2).mean())
            if "covered" in name:
                share = (part["error"] <= stats.norm.ppf(0.95) * part["std"]).mean()
            shares[endpoint].append(100 * float(share))
        means = [float(np.mean(values)) for values in shares.values()]
        for column, cell, value in zip(columns[1:], cells, [*means, np.mean(means)], strict=True):
            check(f"{name}, {column}", cell, (float(value),))


def test_readme_adme():
    _, found = table("README.md", "What to expect")
    names = ("model", "untrained", "ecfp4", "descriptors", "model+counts")
    for (head, *cells), kept in zip(found, ("linear", "kernel"), strict=True):
        for name, cell in zip((*names, "model+counts+descriptors"), cells, strict=True):
            if cell:
                means = adme()["R2"].loc[name, kept].groupby(level=0).mean()
                check(f"{head}, {name}", cell, spread(means.to_numpy()))


def of_interval(values: pd.Series) -> Values:
    half = stats.t.ppf(0.975, len(values) - 1) * values.sem()
    return values.mean(), values.mean() - half, values.mean() + half


def test_five_scaffold_splits_of_adme():
    rows = rows_of("selection/several-splits.csv.gz")
    rows = rows[rows["run"].astype(str) == "adme"].replace("solubility-adme", "solubility")
    columns, found = table("docs/results.md", "Five random scaffold splits")
    wide = rows.pivot(index=["model", "split"], columns="dataset", values="score")
    wide["mean"] = wide.mean(axis=1)
    names = ["mol + counts", "untrained + counts", "counts"]
    for (label, *cells), name in zip(found, [*names, *names[1:]], strict=True):
        for column, cell in zip(columns[1:], cells, strict=True):
            own = wide.loc[name][column]
            if label.startswith("less"):
                check(f"{label}, {column}", cell, of_interval(wide.loc[names[0]][column] - own))
            else:
                check(f"{label}, {column}", cell, spread(own.to_numpy()))


def test_the_papers_protocol():
    rows = rows_of("selection/finetuned.csv")
    rows = rows[(rows["fold"] == "test") & rows["model"].str.endswith("paper's protocol")]
    rules = {"last": "last epoch", "best on the validation fold": "best validation"}
    columns, found = table("docs/two-losses.md", "By the paper's protocol, so far")
    for label, epoch, *cells in found:
        if epoch not in rules:  # the paper's own
            continue
        wide = rows[rows["rule"] == rules[epoch]].pivot(
            index=["model", "seed"], columns="dataset", values="score"
        )
        wide = wide.rename(columns=str.lower) * 100
        means = {"mean of four": FOUR, "without ClinTox": ("bbbp", "bace", "sider")}
        for column, cell in zip(columns[2:], cells, strict=True):
            scores = wide[list(means.get(column, (column.lower(),)))].mean(axis=1)
            ours = scores.loc["released, 2.2 million, paper's protocol"]
            scratch = scores.loc["from scratch, paper's protocol"]
            own = ours if label.startswith("released") else scratch
            gap = of_interval(ours - scratch)
            value = gap if label == "difference" else spread(own.to_numpy())
            check(f"{label}, {epoch}, {column}", cell, value)


@pytest.mark.parametrize(
    ("heading", "number"),
    [
        ("Prototypes in training", 0),
        ("Prototypes in training", 1),
        ("The released recipe at the paper's size, so far", 1),
    ],
)
def test_models_of_two_losses(heading: str, number: int):
    rows = rows_of("protocol-2/prototypes.csv")
    columns, found = table("docs/two-losses.md", heading, number)
    for layer, rule, label, *cells in found:
        own = rows[(rows["layer"] == layer) & (rows["rule"] == rule)]
        wide = own.pivot(index=["model", "seed"], columns="dataset", values="score")
        means = {"mean": list(wide), "without ClinTox": [d for d in wide if d != "clintox"]}
        ours, _, theirs = label.partition(" less ")
        for column, cell in zip(columns[3:], cells, strict=True):
            scores = wide[means.get(column, [column.lower()])].mean(axis=1)
            if not theirs:
                value = spread(scores.loc[ours].to_numpy())
            elif theirs == "untrained":
                pair = scores.loc[ours], scores.loc[theirs]
                interval = stats.ttest_ind(*pair, equal_var=False).confidence_interval()
                value = (pair[0].mean() - pair[1].mean(), interval.low, interval.high)
            else:
                value = of_interval(scores.loc[ours] - scores.loc[theirs])
            check(f"{layer}, {rule}, {label}, {column}", cell, value)


def test_readme():
    columns, found = table("README.md", "What to expect", 1)
    splits = rows_of("selection/several-splits.csv.gz")
    names = ("mol", "untrained", "ecfp4", "descriptors")
    names += ("ecfp4 + descriptors", "mol + ecfp4 + descriptors")
    for (label, *cells), sets in zip(found, (SIX, R2), strict=True):
        means = splits[splits["dataset"].isin(sets)].groupby(["model", "split"])["score"].mean()
        for column, cell, name in zip(columns[1:], cells, names, strict=True):
            check(f"{label}, {column}", cell, spread(means[name].to_numpy()))
