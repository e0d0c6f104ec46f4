"""The tables of the pages, computed again from the rows in benchmarks/results."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from graphlog.benchmark.cells import PAPER
from graphlog.downstream.metrics import evaluate, paired_interval
from house_support import ROOT

RESULTS = ROOT / "benchmarks/results"
SETS = ("bbbp", "tox21", "toxcast", "sider", "clintox", "muv", "hiv", "bace")
R2 = ("esol", "freesolv", "lipophilicity")
SIX = ("bbbp", "bace", "clintox", "sider", "tox21", "hiv")
FOUR = ("bbbp", "bace", "sider", "clintox")
FIVE = (*FOUR, "tox21")
SEEDS = ("mol", "mol1", "mol2")
MINUS = "\N{MINUS SIGN}"
OVERVIEWS = ("README.md", "docs/results.md")
NUMBER = re.compile(rf"[-+{MINUS}]?\d+(?:\.\d+)?")

Values = Sequence[float]
"""What a cell holds: a mean, and the deviation where the page gives one."""


def lines_of(page: str) -> list[str]:
    """Return the lines of a page and of those in the folder of its name, which continue it."""
    pages = [ROOT / page, *sorted((ROOT / page).with_suffix("").glob("*.md"))]
    return [line for path in pages for line in [*path.read_text().splitlines(), ""]]


def tables(page: str) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield heading, column names and rows of each table of a page."""
    heading, block = "", list[list[str]]()
    for line in lines_of(page):
        if line.startswith("|"):
            cells = [c.strip().replace("*", "").replace("`", "") for c in line[1:-1].split("|")]
            block.append(cells)
            continue
        if block:
            yield heading, block[0], block[2:]
            block = []
        if line.startswith("#"):
            heading = line.lstrip("# ")


@pytest.mark.parametrize("page", OVERVIEWS)
def test_columns_of_numbers_are_aligned_to_the_right(page: str):
    rules = [line[1:-1].split("|") for line in lines_of(page) if re.fullmatch(r"[|:-]+", line)]
    for (heading, columns, rows), rule in zip(tables(page), rules, strict=True):
        for at, column in [*enumerate(columns)][1:]:
            cells = [row[at] for row in rows if row[at]]
            are_numbers = all(re.fullmatch(r"[-+]?\d[\d.,]*( ± [\d.]+)?", cell) for cell in cells)
            if cells and are_numbers:
                assert rule[at] == "---:", (heading, column)


def test_headings_say_which_table_is_meant():
    headings = [line.lstrip("# ") for line in lines_of("docs/results.md") if line.startswith("#")]
    assert len(headings) == len({*headings})


def table(page: str, heading: str, number: int = 0) -> tuple[list[str], list[list[str]]]:
    """Return column names and rows of the table below a heading."""
    found = [(columns, rows) for name, columns, rows in tables(page) if name == heading]
    return found[number]


def lines(
    page: str, heading: str, number: int = 0, heads: int = 1
) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield the first cells of each row of a table, and the others by column."""
    columns, rows = table(page, heading, number)
    for row in rows:
        yield row[:heads], dict(zip(columns[heads:], row[heads:], strict=True))


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
    """Return rows with their scores in points."""
    frame = pd.read_csv(RESULTS / name, keep_default_na=False)
    points = 100 if name in ("selection/rows.csv.gz", "selection/finetuned.csv") else 1
    return frame.assign(score=points * pd.to_numeric(frame["score"]))


def wide(rows: pd.DataFrame, *index: str, how: str = "last") -> pd.DataFrame:
    """Return scores with a column a data set."""
    return rows.pivot_table("score", list(index), "dataset", aggfunc=how)


@cache
def frozen(stage: str = "test", key: str = "rule") -> pd.DataFrame:
    """Return scores by rule or C, and model."""
    rows = rows_of("selection/rows.csv.gz")
    rows = rows[(rows["stage"] == stage) & rows["metric"].isin(["roc_auc", "r2"])]
    return wide(rows, key, "model")


def spread(values: pd.Series) -> Values:
    return values.mean(), values.std()


def of_interval(values: pd.Series) -> Values:
    half = stats.t.ppf(0.975, len(values) - 1) * values.sem()
    return values.mean(), values.mean() - half, values.mean() + half


def of_two(ours: pd.Series, theirs: pd.Series) -> Values:
    interval = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval()
    return ours.mean() - theirs.mean(), interval.low, interval.high


def sets_of(column: str, mean: Sequence[str]) -> list[str]:
    """Return the data sets that a column is of; ``mean`` are those of its means."""
    if column.startswith("mean R2"):
        return list(R2)
    if column.startswith("mean") or column == "without ClinTox":
        return [d for d in mean if d != "clintox" or column.startswith("mean")]
    return [column.removesuffix(" R2").lower()]


def check_row(
    label: str,
    cells: Mapping[str, str],
    scores: pd.DataFrame,
    mean: Sequence[str],
    values: Callable[[pd.Series], Values] = spread,
) -> None:
    """Check the cells of a row, by column, against scores: a row a seed, a column a data set."""
    assert cells
    for column, cell in cells.items():
        complete = scores[sets_of(column, mean)].dropna()
        check(f"{label}, {column}", cell, values(complete.mean(axis=1)))


def check_compared(label: str, cells: Mapping[str, str], scores: pd.DataFrame) -> None:
    """Check a row of a model, or of one ``minus`` another: by seed, but for untrained ones."""
    ours, _, theirs = label.partition(" minus ")
    own = scores.loc[ours].dropna(axis=1, how="all")
    if not theirs:
        check_row(label, cells, own, [*own])
    elif theirs != "untrained":
        check_row(label, cells, own - scores.loc[theirs], [*own], of_interval)
    else:
        for column, cell in cells.items():
            sets = sets_of(column, [*own])
            pair = (frame[sets].mean(axis=1) for frame in (own, scores.loc[theirs]))
            check(f"{label}, {column}", cell, of_two(*pair))


MODELS: dict[str, tuple[str, ...]] = {
    "RDKit descriptors": ("descriptors",),
    "graphlog-mol (seed 0)": ("mol",),
    "seed 1": ("mol1",),
    "seed 2": ("mol2",),
    "mean of the three seeds": SEEDS,
    "default, mean of three seeds": ("default-s0", "default-s1", "default-s2"),
    "GraphLoG, modified local losses, no prototypes": ("graphlog-graphlog",),
    **{f"GraphLoG, {name}": (name.replace(" ", ""),) for name in ("released 3", "released 6")},
    "GraphLoG, paper 6": ("paper6",),
    "twelve epochs, mean of three seeds": SEEDS,
    **{f"twenty-three epochs, seed {seed}": (f"final-s{seed}",) for seed in range(3)},
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
    checked = 0
    for (label,), given in lines("docs/results.md", heading, number):
        epochs, c = given.pop("epochs", ""), given.pop("C", "")
        models = MODELS.get(label) or MODELS.get(f"{label} {epochs}") or (label.lower(),)
        scores = frozen().loc[rule or ("validated" if c == "validated" else "fixed")]
        if models[0] not in scores.index:  # fused: of predictions that were not kept
            continue
        check_row(label, given, scores.loc[list(models)], sets)
        checked += len(given)
    assert checked > 20


def test_five_networks():
    frame = rows_of("selection/networks.csv")
    encoders = frame[~frame["model"].isin(["ecfp4", "descriptors"])]
    assert encoders["collection"].nunique() == 1  # all calibrated alike
    networks = wide(frame, "rule", "model")
    for (label, c), given in lines("docs/results.md", "Five random networks", heads=2):
        rule = "validated" if c == "validated" else "fixed"
        of = range(5) if label == "five networks" else label[-1:]
        if label.startswith("pre-trained"):
            scores = frozen().loc[rule].loc[list(SEEDS)]
        else:
            scores = networks.loc[rule].loc[[f"untrained{k}" for k in of]]
        check_row(label, given, scores, FIVE)


def test_five_networks_compared():
    networks = wide(rows_of("selection/networks.csv"), "rule", "model")
    for (c,), given in lines("docs/results.md", "Five random networks", 1):
        rule = "validated" if c == "validated" else "fixed"
        theirs = networks.loc[rule].loc[[f"untrained{k}" for k in range(5)]]
        ours = frozen().loc[rule].loc[list(SEEDS)]
        parts = (FIVE, [d for d in FIVE if d != "clintox"], R2)
        for cell, sets in zip(given.values(), parts, strict=True):
            means = (frame[list(sets)].mean(axis=1) for frame in (ours, theirs))
            check(f"{c}, {sets}", cell, of_two(*means))


def test_kept_predictions_give_the_scores():
    frame = rows_of("selection/networks.csv")
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
    names = {"graphlog-mol and seed 1": "mol"}
    names["untrained, ECFP4 and descriptors, averaged"] = "ecfp4 + descriptors + untrained"
    heading = "Ten random scaffold splits"
    scores = wide(rows_of("selection/several-splits.csv.gz"), "model", "split", how="mean")
    for (label,), given in lines("docs/results.md", heading):
        check_row(label, given, scores.loc[names.get(label) or FEW[label][0]], SIX)
    pairs = (("mol", "untrained"), ("mol", "ecfp4"), ("mol", "descriptors"))
    pairs += (("mol + ecfp4 + descriptors", "ecfp4 + descriptors"),)
    _, found = table("docs/results.md", heading, 1)
    for (label, *cells), (ours, theirs) in zip(found, pairs, strict=True):
        for sets, cell, ahead in ((SIX, *cells[:2]), (R2, *cells[2:])):
            values = (scores.loc[ours] - scores.loc[theirs])[list(sets)].mean(axis=1)
            half = stats.t.ppf(0.975, 9) * values.std(ddof=1) * (1 / 10 + 0.1 / 0.8) ** 0.5
            check(label, cell, (values.mean(), values.mean() - half, values.mean() + half))
            check(label, ahead, ((values > 0).sum(),))


@cache
def few_labels() -> pd.DataFrame:
    return wide(rows_of("selection/few-labels.csv.gz"), "stage", "labels", "draw", "model")


def few(stage: str, models: Sequence[str], sets: Sequence[str], labels: int) -> pd.Series:
    """Return the mean over sets and models of each draw that has them all."""
    means = few_labels().xs((stage, labels))[list(sets)].mean(axis=1, skipna=False)
    return means.unstack("model")[list(models)].mean(axis=1, skipna=False).dropna()


FEW: dict[str, tuple[str, ...]] = {
    "graphlog-mol and its other two seeds": SEEDS,
    "the same, one epoch (two seeds)": ("default-s0", "default-s1"),
    "untrained": ("untrained",),
    "AttrMasking, one epoch": ("attrmasking",),
    "GraphMAE, one epoch": ("graphmae",),
    "ECFP4": ("ecfp4",),
    "RDKit descriptors": ("descriptors",),
    "ECFP4 and descriptors, averaged": ("ecfp4 + descriptors",),
    "pre-trained and ECFP4, averaged": tuple(f"{m} + ecfp4" for m in SEEDS),
    "pre-trained and descriptors, averaged": tuple(f"{m} + descriptors" for m in SEEDS),
    "all three, averaged": tuple(f"{m} + ecfp4 + descriptors" for m in SEEDS),
}


@pytest.mark.parametrize(("number", "sets"), [(0, SIX), (1, R2)])
def test_few_labels(number: int, sets: Sequence[str]):
    for (label,), given in lines("docs/results.md", "Few labels", number):
        for column, cell in given.items():
            size = int(numbers(column)[0])
            check(f"{label}, {column}", cell, spread(few("probe", FEW[label], sets, size)))


def test_few_labels_fine_tuned():
    models = {"from scratch": ("untrained",), "pre-trained": ("mol",), "fine-tuned": ("mol",)}
    for (label,), given in lines("docs/results.md", "Few labels", 4):
        kind, size = label.split(", ")
        for column, cell in given.items():
            values = few("finetune", models[kind], sets_of(column, FOUR), int(numbers(size)[0]))
            check(f"{label}, {column}", cell, spread(values))
    frozen_rows = {
        **FEW,
        "frozen": ("mol",),
        "untrained, frozen": ("untrained",),
        "frozen and descriptors, averaged": ("mol + descriptors",),
        "all three, averaged": ("mol + ecfp4 + descriptors",),
    }
    _, found = table("docs/results.md", "Few labels", 5)
    for label, *cells in found:
        stage = "finetune" if label in models else "probe"
        for at, cell in enumerate(cells):
            sets, size = (FOUR, R2)[at // 2], (100, 400)[at % 2]
            values = few(stage, models.get(label) or frozen_rows[label], sets, size)
            check(f"{label}, {at}", cell, spread(values[:3]))


COMPARED = {
    "(a) pre-trained, untrained": ("graphlog-mol and its other two seeds", "untrained"),
    "(b) pre-trained, ECFP4": ("graphlog-mol and its other two seeds", "ECFP4"),
    "(c) pre-trained, RDKit descriptors": (
        "graphlog-mol and its other two seeds",
        "RDKit descriptors",
    ),
    "all three averaged, ECFP4 and descriptors averaged": (
        "all three, averaged",
        "ECFP4 and descriptors, averaged",
    ),
    "pre-trained and descriptors averaged, RDKit descriptors": (
        "pre-trained and descriptors, averaged",
        "RDKit descriptors",
    ),
    **{
        f"default with one epoch, {other} with one epoch": (
            "the same, one epoch (two seeds)",
            f"{other}, one epoch",
        )
        for other in ("AttrMasking", "GraphMAE")
    },
    "pre-trained, default with one epoch": (
        "graphlog-mol and its other two seeds",
        "the same, one epoch (two seeds)",
    ),
}


@pytest.mark.parametrize(("number", "sets"), [(2, SIX), (3, R2)])
def test_few_labels_compared(number: int, sets: Sequence[str]):
    seen = 0
    for (label,), given in lines("docs/results.md", "Few labels", number):
        ours, theirs = COMPARED[label.replace(f" {MINUS}", ",", 1)]
        for column, cell in given.items():
            size = int(numbers(column)[0])
            gap = few("probe", FEW[ours], sets, size) - few("probe", FEW[theirs], sets, size)
            check(f"{label}, {column}", cell, of_interval(gap))
            seen += 1
    assert seen == len(COMPARED) * (5 if sets == SIX else 4)


def test_few_labels_fine_tuned_compared():
    others = {"from scratch": ("finetune", "untrained"), "frozen": ("probe", "mol")}
    others |= {"RDKit descriptors": ("probe", "descriptors")}
    for (label,), given in lines("docs/results.md", "Few labels", 6):
        stage, other = others[label.partition(f" {MINUS} ")[2]]
        for column, cell in given.items():
            sets = R2 if column.startswith("R2") else FOUR
            size = int(numbers(column.partition(", ")[2])[0])
            gap = few("finetune", ["mol"], sets, size) - few(stage, [other], sets, size)
            check(f"{label}, {column}", cell, of_interval(gap.dropna()))


EPOCHS = {"last": "last epoch", "best on the validation set": "best validation"}


def test_fine_tuned():
    rows = rows_of("selection/finetuned.csv")
    rows = rows[(rows["fold"] == "test") & (rows["metric"] == "roc_auc")]
    six = [d for d in SETS if d not in ("hiv", "muv")]
    for number in (0, 1):
        for (label, epoch), given in lines("docs/results.md", "Fine-tuned", number, 2):
            model, _, averaged = label.partition(", ")
            if epoch not in EPOCHS or (averaged and averaged != "seeds averaged"):
                continue
            known = rows[(rows["model"] == model) & (rows["rule"] == EPOCHS[epoch])]
            known = known[known["rows"].str.contains("mean of") == bool(averaged)]
            scores = known.groupby("dataset")["score"].agg(["mean", "std"])
            for column, cell in given.items():
                sets = sets_of(column, six if column == "mean" else SETS)
                of_set = scores["std"][sets[0]] if len(sets) == 1 else np.nan
                check(f"{label}, {column}", cell, (scores["mean"][sets].mean(), of_set))


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
    names = {"one epoch": "default-s0", "twelve epochs, seed 2": "mol2", "512": "wide-s0"}
    names |= {f"twenty-three epochs, seed {seed}": f"final-s{seed}" for seed in range(3)}
    families = {
        "default": "default",
        "with a virtual node": "virtual",
        "a small one": "virtual-small",
        "a small one, bounded": "virtual-bounded",
        "with masked attributes": "plusattr",
        "with": "tree2",
        "without": "flat2",
    }
    names |= {f"{k} {seed}": f"{v}-s{seed}" for k, v in families.items() for seed in range(3)}
    scores, checked = frozen("valid", "c"), 0
    for _, _, found in (found for found in tables("docs/results.md") if found[0] in VALIDATED):
        for label, *cells in found:
            model = names.get(label) or names.get(f"{label} {cells[0]}")
            if model is None or len(cells) > 9 or (1.0, model) not in scores.index:
                continue
            places = [(sets, c) for sets in (FIVE, R2) for c in PENALTIES]
            for cell, (sets, c) in zip(cells[-8:], places, strict=True):
                values = scores.loc[(c, model)][list(sets)]
                check(f"{label}, {c}", cell, (values.mean(),))
                checked += 1
    assert checked > 100


def trained(suite: str, variant: str, rule: str = "fixed-C") -> pd.DataFrame:
    """Return the scores of a configuration of GraphLoG: a row a seed."""
    frame = pd.read_csv(RESULTS / f"protocol-2/{suite}.csv.gz", keep_default_na=False, dtype=str)
    of = {"stage": "probe", "rule": rule, "fold": "test", "task": "", "metric": "roc_auc"}
    of |= {"variant": variant, "method": "graphlog"}
    frame = frame[(frame[list(of)] == list(of.values())).all(axis=1)]
    frame = frame.assign(score=frame["value"].astype(float) * 100)
    return wide(frame, "seed").loc[["0", "1", "2"], list(FIVE)]


def test_ablation():
    networks = rows_of("protocol-2/untrained.csv")
    networks = wide(networks[networks["calibration"] != "training fold"], "network")[list(FIVE)]
    starts = networks[networks.index.str.startswith("start")]
    kept = [d for d in FIVE if d != "clintox"]
    page, heading = "docs/two-losses.md", "Table 4 with all rows alike"
    _, second = table(page, heading, 1)
    for at, (ticks, given) in enumerate(lines(page, heading, heads=3)):
        losses = [n for n, t in zip(("subgraph", "graph", "global"), ticks, strict=True) if t]
        scores = trained("ablation", f"losses={'+'.join(losses)}") if losses else networks
        check_row(str(losses), given, scores, FIVE)
        if not losses:
            continue
        by_seed, *cells = second[at - 1][3:]
        for sets, paired, unpaired in ((list(FIVE), cells[0], cells[2]), (kept, *cells[1::2])):
            ours, of_start = (frame[sets].mean(axis=1).to_numpy() for frame in (scores, starts))
            difference = pd.Series(ours - of_start)
            check(f"{losses}, paired", paired, of_interval(difference))
            theirs = networks[sets].mean(axis=1)
            check(f"{losses}, to eight", unpaired, of_two(pd.Series(ours), theirs))
            if sets != kept:
                check(f"{losses}, by seed", by_seed, difference)


@pytest.mark.parametrize("number", [0, 1])
def test_prototypes_in_use(number: int):
    rows = pd.read_json(RESULTS / "prototypes_in_use.jsonl", lines=True)
    names = {"K-means": "balanced, rate 10; collection of graphlog-mol"}
    names["balanced"] = "balanced from the start, rate 10 (default); collection of graphlog-mol"
    names["drawn at the loss's temperature, unit length"] = (
        "drawn at the loss's temperature, unit length (0.1.0)"
    )
    for (label,), given in lines("docs/measured/prototypes.md", "Prototypes in use", number):
        own = rows[rows["variant"] == names.get(label, label)]
        means = own.mean(numeric_only=True)
        for column, cell in given.items():
            word, _, level = column.partition(" ")
            if column == "seeds":
                assert int(cell) == len(own)
            elif word == "layer" and cell:
                values = [means[f"{name}_{level[0]}"] for name in ("used", "prototypes")]
                assert cell == "{:.3g} of {:.3g}".format(*values), (label, column)
            elif cell:
                value = means["root_gradient" if word == "gradient" else f"loss_{word}"]
                assert cell == f"{value:.3g}", (label, column)


@pytest.mark.parametrize(
    ("heading", "name", "run"),
    [
        ("The released recipe at the paper's size", "full-size/log", "released"),
        ("The modified losses at four fifths of the size", "full-size/log", "graphlog"),
        ("The modified losses at a tenth of the size", "zinc2m-metrics", "graphlog, 2.2 million"),
    ],
)
def test_logs_of_two_losses(heading: str, name: str, run: str):
    _, found = table("docs/two-losses.md", heading)
    log = pd.read_json(RESULTS / f"{name}.jsonl.gz", lines=True)
    log = log[log["run"] == run].set_index("step")
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


@pytest.mark.parametrize(("number", "name"), [(0, "depth"), (1, "batch_size")])
def test_depth_and_batch_size(number: int, name: str):
    for sets, given in lines("docs/two-losses.md", "Figure 3", number):
        datasets = sets_of(sets[0].removesuffix(" (%)"), FIVE)
        slope = given.pop("slope")
        points = {
            value: trained("sensitivity", f"{name}={value}", rule="fixed")[datasets].mean(axis=1)
            for value in given
        }
        for value, cell in given.items():
            check(f"{name} {value}, {sets}", cell, spread(points[value]))
        at = [int(value) for value in given]
        at = np.log2(at) if name == "batch_size" else at
        slopes = np.polyfit(at, pd.DataFrame(points).T, deg=1)[0]
        check(f"{name}, slope, {sets}", slope, of_interval(pd.Series(slopes)))


WATCHED = ("rank", "mean_cosine", "prototypes_total_2", "prototypes_used_estep_2")
WATCHED += ("prototypes_used_nearest_2", "posterior_perplexity_2")


@cache
def recipes() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return means and deviations of scores, in points, and what the runs ended with."""
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
    frame = pd.DataFrame(scores, columns=[*places, "score"])
    found = frame.groupby(places)["score"].agg(["mean", "std"]).unstack("dataset")
    runs = cells[cells["stage"] == "pretrain"]
    # rows of the watch stand between those of the losses: the last value of each
    ends = [{k: row[k] for row in rows for k in WATCHED if k in row} for rows in runs["metrics"]]
    of_run = runs["name"].str.removeprefix("pretrain-").str.rpartition("-s")[0]
    return found["mean"], found["std"], pd.DataFrame(ends, index=of_run)


@pytest.mark.parametrize("heading", ["Four sets", "Eight sets"])
def test_recipes(heading: str):
    means, deviations, _ = recipes()
    for labels, given in lines("benchmarks/results/recipes.md", heading, heads=4):
        sets, own = list(given)[:-2], means.loc[tuple(labels)]
        for column, cell in given.items():
            of = sets_of(column, sets)
            assert own[of].notna().all() == (cell != ""), (labels, column)
            if cell:
                deviation = deviations.loc[tuple(labels)][of[0]] if len(of) == 1 else np.nan
                check(f"{labels}, {column}", cell, (own[of].mean(), deviation))


def test_first_recipes():
    models = {"paper": "paper-50k", "released": "released-50k", "an earlier default": "default-50k"}
    for label, features, *cells in table("docs/measured/recipes.md", "First recipes")[1]:
        own = (models.get(label, f"{label}.{features}"), "jk")
        own = (label.replace(",", " +"), "") if "ECFP4" in label else own
        means = recipes()[0].loc[("probe", *own, "C = 0.1")][list(FOUR)]
        check(label, cells[0], (means.mean(),))
        check(label, cells[1], (means.drop("clintox").mean(),))
        if label in models:
            ends = recipes()[2].loc[models[label]].mean()
            check(label, cells[2], (ends["rank"],))
            check(label, cells[3], (ends["prototypes_used_estep_2"], ends["prototypes_total_2"]))


def test_recipes_watched():
    page, heading = "benchmarks/results/recipes.md", "The collapse monitor at the end"
    for (run, seeds), given in lines(page, heading, heads=2):
        ends = recipes()[2].loc[[run]]
        assert int(seeds) == len(ends)
        for column, cell in given.items():
            check(f"{run}, {column}", cell, spread(ends[column]))


TUNED = 3
"""Fine-tuned networks of every ADME endpoint."""


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
    rows = rows[(rows["head"] != "fine-tuned") | (rows["seed"] < TUNED)]
    averaged = {"fine-tuned": tuned[tuned["seed"] == 0]}
    for count, name in ((TUNED, "three fine-tuned"), (5, "five fine-tuned")):
        own = tuned[tuned["seed"] < count]
        means = own.groupby(["endpoint", "row", "label"], as_index=False)["prediction"].mean()
        assert len(own) == count * len(means) == count * len(kernel)
        means = means.assign(features="model", head=f"{name}, averaged", seed=0)
        averaged[name], rows = means, pd.concat([rows, means])
    for name, own in averaged.items():
        both = kernel.merge(own[["endpoint", "row", "prediction"]], on=["endpoint", "row"])
        both["prediction"] = (both["prediction_x"] + both["prediction_y"]) / 2
        both = both.assign(head=f"kernel and {name}, averaged")
        rows = pd.concat([rows, both[both.columns.intersection(rows.columns)]])
    return rows.groupby(["features", "head", "seed", "endpoint"]).apply(
        scores, include_groups=False
    )


PARTS = {"untrained network": "untrained", "graphlog-mol": "model", "ECFP4 counts": "counts"}
PARTS |= {"RDKit descriptors": "descriptors", "seed 1": "seed1", "seed 2": "seed2"}


def test_adme_scores():
    columns, found = table("docs/results.md", "ADME, linear and kernel heads")
    assert columns[2:8] == ["hlm", "mdr1", "rlm", "solubility", "hppb", "rppb"]
    for name, head, *cells in found:
        features = "+".join(PARTS.get(part, part.lower()) for part in name.split(", "))
        own = adme().loc[features, head]
        given = dict(zip([*columns[2:8], "mean"], cells[:7], strict=True))
        check_row(f"{name}, {head}", given, own["R2"].unstack("endpoint"), columns[2:8])
        means = own.groupby("seed").mean()
        for column, cell in zip(["r", "RMSE"], cells[7:], strict=True):
            check(f"{name}, mean {column}", cell, spread(means[column]))


SINGLE = {"ECFP4": "ecfp4", "RDKit descriptors": "descriptors"}
SINGLE |= {"seed 1": "runs/mol-s1", "seed 2": "runs/mol-s2"}
RULES = {"linear": "validated", "kernel": "kernel"}


def moleculenet_heads(metric: str, points: int) -> pd.DataFrame:
    """Return scores of a test set, a row for each method, rule and seed."""
    rows = pd.read_csv(RESULTS / "moleculenet.csv.gz", keep_default_na=False)
    rows = rows[(rows["fold"] == "test") & (rows["task"] == "") & (rows["metric"] == metric)]
    rows = rows.assign(score=rows["value"].astype(float) * points)
    return wide(rows, "method", "rule", "seed")


@pytest.mark.parametrize(("number", "metric", "points"), [(0, "roc_auc", 100), (1, "r2", 100)])
def test_moleculenet_heads(number: int, metric: str, points: int):
    columns, found = table("docs/results.md", "MoleculeNet, linear and kernel heads", number)
    scores = moleculenet_heads(metric, points)
    sets = [column.lower() for column in columns[2 : columns.index("average")]]
    for name, head, *cells in found:
        own = scores.loc[SINGLE.get(name, name), RULES[head]]
        given = dict(zip(columns[2:-1], cells[:-1], strict=True))
        given["mean"] = given.pop("average")
        check_row(f"{name}, {head}", given, own, sets)
        if name != "untrained":
            untrained = scores.loc["untrained", RULES[head]][sets].mean(axis=1)
            gap = own[sets].mean(axis=1).iloc[0] - untrained
            check(f"{name}, {head}", cells[-1], of_interval(gap))


def test_moleculenet_toxcast_muv_and_qm8():
    page, heading = "docs/results.md", "MoleculeNet, linear and kernel heads"
    parts = {"ToxCast": ("roc_auc", 100), "MUV": ("roc_auc", 100), "QM8": ("r2", 100)}
    for column, (metric, points) in parts.items():
        scores = moleculenet_heads(metric, points)[column.lower()]
        for (name, head), given in lines(page, heading, 2, heads=2):
            own = scores.loc[SINGLE.get(name, name), RULES[head]]
            (cell,) = (cell for key, cell in given.items() if key.startswith(column))
            check(f"{name}, {head}, {column}", cell, spread(own))
            if name != "untrained":
                gap = own.iloc[0] - scores.loc["untrained", RULES[head]]
                check(f"{name}, {head}, Δ {column}", given[f"Δ {column}"], of_interval(gap))


@cache
def eight_sets() -> pd.DataFrame:
    """Return mean scores by method and seed: of each head, and of the one validation prefers."""
    rows = pd.read_csv(RESULTS / "moleculenet.csv.gz", keep_default_na=False)
    rows = rows[(rows["metric"] == "roc_auc") & (rows["task"] == "")]
    rows = rows[rows["rule"].isin(list(RULES.values()))]
    rows = rows.assign(score=rows["value"].astype(float) * 100)
    by_fold = rows.pivot_table("score", ["method", "seed", "dataset"], ["fold", "rule"])
    tests, valid = by_fold["test"], by_fold["valid"]
    prefers_kernel = valid["kernel"] > valid["validated"]
    tests = tests.assign(preferred=tests["kernel"].where(prefers_kernel, tests["validated"]))
    return tests.groupby(["method", "seed"]).mean().rename(columns={"validated": "linear"})


def test_moleculenet_eight_sets():
    page, heading, scores = "docs/results.md", "MoleculeNet, linear and kernel heads", eight_sets()
    for (name,), given in lines(page, heading, 3):
        own = scores.loc[SINGLE.get(name, name)]
        gap = own["preferred"].iloc[0] - scores.loc["untrained", "preferred"]
        for head in ("linear", "kernel", "preferred"):
            check(f"{name}, {head}", given[head], spread(own[head]))
        if name != "untrained":
            check(f"{name}, Δ", given["Δ preferred"], of_interval(gap))


def test_adme_deviations():
    rows = pd.read_csv(RESULTS / "adme.csv.gz")
    own = rows[(rows["features"] == "model+counts") & rows["std"].notna()]
    own = own.assign(error=(own["label"] - own["prediction"]).abs())
    columns, found = table("docs/results.md", "ADME, linear and kernel heads", 2)
    for (name, *cells), head in zip(found, ["random split"] * 2 + ["kernel"] * 2, strict=True):
        shares: dict[str, list[float]] = {endpoint: [] for endpoint in columns[1:-1]}
        for (endpoint, _), part in own[own["head"] == head].groupby(["endpoint", "seed"]):
            surest = part.nsmallest(len(part) // 3, "std")["error"]
            share = np.sqrt((surest**2).mean() / (part["error"] ** 2).mean())
            if "coverage" in name:
                share = (part["error"] <= stats.norm.ppf(0.95) * part["std"]).mean()
            shares[endpoint].append(100 * float(share))
        means = [float(np.mean(values)) for values in shares.values()]
        for column, cell, value in zip(columns[1:], cells, [*means, np.mean(means)], strict=True):
            check(f"{name}, {column}", cell, (float(value),))


@pytest.mark.parametrize("page", OVERVIEWS)
def test_overview_of_adme(page: str):
    _, found = table(page, "What to expect")
    names = ("model", "untrained", "ecfp4", "descriptors", "model+counts")
    for (head, *cells), kept in zip(found, ("linear", "kernel"), strict=True):
        for name, cell in zip((*names, "model+counts+descriptors"), cells, strict=True):
            if cell:
                means = adme()["R2"].loc[name, kept].groupby(level=0).mean()
                check(f"{head}, {name}", cell, spread(means))


def test_five_scaffold_splits_of_adme():
    rows = rows_of("selection/several-splits.csv.gz")
    rows = rows[rows["run"].astype(str) == "adme"].replace("solubility-adme", "solubility")
    scores = wide(rows, "model", "split")
    names = ["mol + counts", "untrained + counts", "counts"]
    found = lines("docs/results.md", "Five random scaffold splits")
    for ((label,), given), name in zip(found, [*names, *names[1:]], strict=True):
        own = scores.loc[name]
        if label.startswith("minus"):
            check_row(label, given, scores.loc[names[0]] - own, [*scores], of_interval)
        else:
            check_row(label, given, own, [*scores])
    corrected = lines("docs/results.md", "Five random scaffold splits", 1)
    for ((label,), given), name in zip(corrected, names[1:], strict=True):
        gap = (scores.loc[names[0]] - scores.loc[name]).mean(axis=1)
        mean, half = paired_interval(gap.to_numpy(), 0.1 / 0.8)
        check(label, given["mean of six"], (mean, mean - half, mean + half))


@pytest.mark.parametrize(
    ("heading", "number"),
    [("Fine-tuned at a tenth of the size", 0), ("The shipped model by the paper's protocol", 0)],
)
def test_the_papers_protocol(heading: str, number: int):
    rows = rows_of("selection/finetuned.csv").assign(dataset=lambda f: f["dataset"].str.lower())
    rows = rows[(rows["fold"] == "test") & rows["model"].str.endswith("paper's protocol")]
    rows = rows.assign(kind=rows["model"].str.partition(",")[0])
    for (label, epoch), given in lines("docs/two-losses.md", heading, number, 2):
        if epoch not in EPOCHS:  # the paper's own
            continue
        scores = wide(rows[rows["rule"] == EPOCHS[epoch]], "kind", "seed")
        shown = [column for column in map(str.lower, given) if column in scores]
        check_compared(label.partition(",")[0], given, scores[shown])


def full_size() -> pd.DataFrame:
    """Return test scores of networks fine-tuned on a GPU: by model and seed, set and epoch.

    Epoch 0 is the best one by the validation set.
    """
    rows = pd.read_csv(RESULTS / "full-size/finetuned.csv.gz")
    best = rows.loc[rows.groupby(["dataset", "model", "seed"])["valid"].idxmax()]
    rows = pd.concat([rows, best.assign(epoch=0)]).assign(test=lambda f: 100 * f["test"])
    return rows.pivot_table("test", ["model", "seed"], ["dataset", "epoch"])


def test_the_papers_protocol_at_full_size():
    page, heading = "docs/two-losses.md", "By the paper's protocol"
    short = [d for d in map(str.lower, SETS) if d not in ("hiv", "muv")]
    rest = [d for d in short if d != "clintox"]
    paper = PAPER["table_1"]
    for (label, epoch), given in lines(page, heading, 0, 2):
        if epoch not in EPOCHS:  # the paper's own
            row = "untrained" if label.startswith("from scratch") else "graphlog"
            for name, values in zip(paper["columns"], paper["rows"][row], strict=True):
                check(f"{label}, {name}", {k.lower(): v for k, v in given.items()}[name], values)
            check(label, given["mean of eight"], (paper["average"][row],))
            continue
        scores = full_size().xs(100 if epoch == "last" else 0, axis=1, level=1)
        ours, _, theirs = label.partition(" minus ")
        own = scores.loc[ours] - (scores.loc[theirs] if theirs else 0)
        of_set = own.mean()
        for column, cell in given.items():
            if column in ("mean of eight", "mean of seven, without ClinTox"):
                sets = [d for d in of_set.index if column == "mean of eight" or d != "clintox"]
                check(f"{label}, {column}", cell, (of_set[sets].mean(),))
                continue
            own_sets = [column.lower()]
            if column == "mean of six":
                own_sets = short
            elif column.startswith("mean"):
                own_sets = rest
            values = own[own_sets].dropna().mean(axis=1)
            check(f"{label}, {column}", cell, (of_interval if theirs else spread)(values))
    for epoch, *cells in table(page, "During fine-tuning")[1]:
        scores = full_size().xs(int(epoch), axis=1, level=1)
        scratch, ours = scores.loc["from scratch"], scores.loc["released, epoch 11"]
        check(f"{epoch}, from scratch", cells[0], (scratch[rest].mean(axis=1).mean(),))
        for at, model in ((1, "released, epoch 11"), (3, "graphlog, 17.2 million")):
            own = scores.loc[model][rest].mean(axis=1)
            check(f"{epoch}, {model}", cells[at], (own.mean(),))
            gap = of_interval(own - scratch[rest].mean(axis=1))
            check(f"{epoch}, {model}, minus", cells[at + 1], gap)
        check(f"{epoch}, ClinTox", cells[5], of_interval((ours - scratch)["clintox"]))
    last = full_size().xs(100, axis=1, level=1)[[d for d in short if d != "toxcast"]]
    for (label,), given in lines(page, "By size of pre-training"):
        ours, _, theirs = label.partition(" minus ")
        own = last.loc[ours] - (last.loc[theirs] if theirs else 0)
        for column, cell in given.items():
            sets = [column.lower()]
            if column in ("mean of five", "without ClinTox"):
                sets = [d for d in own if column == "mean of five" or d != "clintox"]
            values = own[sets].mean(axis=1)
            check(f"{label}, {column}", cell, (of_interval if theirs else spread)(values))


RULE_OF = {"tuned C": "C by validation", "last": "fine-tuned, last epoch"}
RULE_OF["best on the validation set"] = "fine-tuned, best validation"


@pytest.mark.parametrize(
    ("heading", "number"),
    [
        ("Prototypes in training", 0),
        ("Prototypes in training", 1),
        ("Prototypes in training", 2),
        ("The released recipe at the paper's size", 1),
        ("The modified losses at a tenth of the size", 1),
    ],
)
def test_models_of_two_losses(heading: str, number: int):
    scores = wide(rows_of("protocol-2/prototypes.csv"), "layer", "rule", "model", "seed")
    networks = {} if heading == "Prototypes in training" else {"untrained": "from scratch"}
    for (layer, rule, label), given in lines("docs/two-losses.md", heading, number, 3):
        name = label.removesuffix(" prototypes")
        own = scores.xs((layer, RULE_OF.get(rule, rule))).dropna(axis=1, how="all")
        check_compared(networks.get(name, name), given, own)


@pytest.mark.parametrize("page", OVERVIEWS)
def test_overview_of_moleculenet(page: str):
    found = lines(page, "What to expect", 1)
    four = [*R2, "qm7"]
    for ((label,), given), rule in zip(found, ("validated", "kernel") * 2, strict=True):
        sets, metric = (four, "r2") if label.startswith("R2") else ([*SIX], "roc_auc")
        scores = moleculenet_heads(metric, 100)
        for column, cell in given.items():
            own = scores.loc[SINGLE.get(column, column), rule][sets].mean(axis=1)
            check(f"{label}, {column}", cell, spread(own))


CLINTOX = {"graphlog-mol": "frozen encoder", "untrained": "untrained encoder"}


def test_charges_of_clintox():
    found = pd.read_csv(RESULTS / "clintox.csv")
    areas = 100 * found.set_index(["model", "head", "written", "target"])["roc_auc"]
    page = "docs/two-losses/clintox.md"
    for (features, head), cells in lines(page, "The charges tell the labels", heads=2):
        first, *counts = features.split(", ")
        model = " + ".join([CLINTOX.get(first, first), *counts])
        model += " + logistic regression" if features == "ECFP4" else ""
        for column, cell in cells.items():
            key = (model, head, *column.split(", "))
            if cell or key in areas:
                check(f"{features}, {head}, {column}", cell, [areas[key]])


def test_molecules_of_clintox():
    found = pd.read_csv(RESULTS / "clintox-molecules.csv")
    costs = 100 * found.groupby(["smiles", "arm"], sort=False)["cost"].mean().unstack()
    heading = "Two molecules make the gain by the paper's protocol"
    named: list[str] = []
    for (who,), cells in lines("docs/two-losses/clintox.md", heading):
        if ", " in who:
            (smiles,) = (s for s in costs.index if s in who)
            named.append(smiles)
            rows = costs.loc[[smiles]]
        else:
            rows = costs if who == "all ten" else costs.drop(named)
        sums = rows.sum()
        values = [sums["from scratch"], sums["released"], sums["from scratch"] - sums["released"]]
        for value, cell in zip(values, cells.values(), strict=True):
            check(who, cell, [value])
    assert len(named) == 2


def claims_of_adme() -> Iterator[tuple[str, Values]]:
    means = adme()["R2"].groupby(level=[0, 1, 2]).mean()
    untrained = ("untrained", "untrained", "untrained+counts", "untrained+counts+descriptors")
    own = ("model", "model", "model+counts", "model+counts+descriptors")
    for at, (features, theirs) in enumerate(zip(own, untrained, strict=True)):
        head = "kernel" if at else "linear"
        value = means[features, head].iloc[0]
        yield f"A{at + 1}", (value, *of_interval(value - means[theirs, head]))
    tuned = means["model", "fine-tuned"]
    yield "A5", (tuned.mean(), *of_interval(tuned - means["chemprop", "from scratch"].iloc[0]))
    yield "A6", (means["model", "three fine-tuned, averaged"].iloc[0],)
    yield "A7", (means[own[-1], "kernel and three fine-tuned, averaged"].iloc[0],)
    rows = rows_of("selection/several-splits.csv.gz")
    splits = wide(rows[rows["run"].astype(str) == "adme"], "model", "split").mean(axis=1)
    ours = splits["mol + counts"]
    yield "A8", (ours.mean(), *of_interval(ours - splits["untrained + counts"]))


def test_differences_of_adme():
    known = dict(claims_of_adme())
    tuned = adme()["R2"].loc["model", "fine-tuned"].groupby("seed").mean()
    linear, kernel = (
        adme()["R2"].loc["model", head].droplevel("seed") for head in ("linear", "kernel")
    )
    known[f"fine-tuned {MINUS} kernel model of the embedding"] = (
        0,
        *of_interval(tuned - kernel.mean()),
    )
    known[f"kernel {MINUS} linear, both of graphlog-mol"] = (0, *of_interval(kernel - linear))
    means = adme()["R2"].groupby(level=[0, 1, 2]).mean()
    for seed, (part, head, words) in product(
        (1, 2),
        (
            ("", "linear", "linear"),
            ("", "kernel", "kernel"),
            ("+counts", "kernel", "both with ECFP4 counts"),
        ),
    ):
        gap = means[f"seed{seed}{part}", head].iloc[0] - means[f"untrained{part}", head]
        known[f"seed {seed} {MINUS} untrained, {words}"] = (0, *of_interval(gap))
    for (number, label), given in lines("docs/results.md", "ADME, linear and kernel heads", 1, 2):
        check(label, given["points (95 % CI)"], known[number or label][1:])


def claims_of_moleculenet() -> Iterator[tuple[str, Values]]:
    aucs, r2s = (moleculenet_heads(metric, 100) for metric in ("roc_auc", "r2"))
    parts = ((aucs, SIX), (r2s, (*R2, "qm7")), (aucs, SETS))
    for at, (scores, sets) in enumerate(parts):
        for number, rule in enumerate(("validated", "kernel"), start=2 * at + 1):
            means = scores.xs(rule, level="rule")[list(sets)].mean(axis=1)
            value = means["graphlog-mol"].iloc[0]
            yield f"B{number}", (value, *of_interval(value - means["untrained"]))
    preferred = eight_sets()["preferred"]
    value = preferred["graphlog-mol"].iloc[0]
    yield "B7", (value, *of_interval(value - preferred["untrained"]))
    fixed, tuned = (frozen().loc[rule][list(SETS)].mean(axis=1) for rule in ("fixed", "validated"))
    yield "C1", (tuned["mol"],)
    for name, means in (("C2", tuned), ("C3", fixed)):
        value = means[list(SEEDS)].mean()
        yield name, (value, value - means["untrained"])  # the test sets are no longer all here
    rows = rows_of("selection/networks.csv")
    networks = wide(rows[rows["rule"] == "validated"], "model")[list(FIVE)].mean(axis=1)
    networks = networks[networks.index.str.fullmatch(r"untrained\d")]
    five = frozen().loc["validated"].loc[list(SEEDS), list(FIVE)].mean(axis=1)
    yield "C5", (five.mean(), *of_two(five, networks))
    scores = wide(rows_of("selection/several-splits.csv.gz"), "model", "split", how="mean")
    means = scores[list(SIX)].mean(axis=1)
    for name, other in (("C6", "untrained"), ("C7", "ecfp4"), ("C8", "descriptors")):
        gap = (means["mol"] - means[other]).dropna()
        half = stats.t.ppf(0.975, 9) * gap.std() * (1 / 10 + 0.1 / 0.8) ** 0.5
        yield name, (means["mol"].mean(), gap.mean(), gap.mean() - half, gap.mean() + half)


def claims_of_labels() -> Iterator[tuple[str, Values]]:
    pairs = {
        "D1": (SIX, FEW["graphlog-mol and its other two seeds"], "untrained"),
        "D2": (R2, FEW["graphlog-mol and its other two seeds"], "untrained"),
        "D3": (R2, tuple(f"{m} + descriptors" for m in SEEDS), "descriptors"),
    }
    for name, (sets, ours, theirs) in pairs.items():
        own = few("probe", ours, sets, 100)
        yield name, (own.mean(), *of_interval(own - few("probe", [theirs], sets, 100)))
    last = full_size().xs(100, axis=1, level=1)
    ours = last.loc["released, epoch 11"]
    gaps = ours - last.loc["from scratch"]
    yield "E1", (ours.mean().mean(), gaps.mean().mean())
    six = [d for d in SETS if d not in ("hiv", "muv")]
    for name, sets in (("E2", six), ("E3", [d for d in six if d != "clintox"])):
        values = of_interval(gaps[sets].dropna().mean(axis=1))
        yield name, (ours[sets].dropna().mean(axis=1).mean(), *values)


def test_which_number_is_which():
    known = dict([*claims_of_adme(), *claims_of_moleculenet(), *claims_of_labels()])
    checked = set()
    for (number,), given in lines("docs/results.md", "Which number is which"):
        value, gap = given["value"], given["difference (95 % CI)"]
        if number == "C4":  # averaged predictions that were not kept
            continue
        check(number, value, known[number][:1])
        if gap:
            check(number, gap, known[number][1:])
        checked.add(number)
    assert checked == {*known}


@cache
def grouped() -> pd.DataFrame:
    """Return the rows of the shipped model and what it is compared with."""
    rows = pd.read_csv(RESULTS / "groups.csv.gz")
    rows["model"] = rows["model"].str.replace(r"(?<=untrained) \d", "", regex=True)
    return rows[~rows["task"].str.contains(": .*:|prototypes|full size")]


def test_retrieval_compared():
    rows = grouped()[(grouped()["task"] == "retrieve") & (grouped()["metric"] == "BEDROC 20")]
    scores = rows.pivot_table("value", ["dataset", "of"], "model")
    for (label,), given in lines("docs/results.md", "Retrieval and grouping", 1):
        for column, cell in given.items():
            own = scores.loc[column.lower()]
            theirs = own[label.removeprefix("mean of the ").removesuffix(" networks")]
            check(f"{label}, {column}", cell, of_interval(own["graphlog-mol"] - theirs))


def test_choosing_molecules():
    rows = grouped()[grouped()["task"].str.startswith("choose")]
    scores = rows.pivot_table("value", ["task", "model", "seed"], "dataset") * 100
    for (label, size), given in lines("docs/results.md", "Retrieval and grouping", 4, 2):
        of_size = scores.loc[f"choose {size}"]
        own = of_size.mean(axis=1)
        for name in of_size:
            check(f"{label}, {size}, {name}", given[name], (of_size[name][label].mean(),))
        check(f"{label}, {size}", given["mean"], (own[label].mean(),))
        for column, other in (("minus random", "random"), ("minus MaxMin", "MaxMin, ECFP4")):
            if given[column]:
                check(f"{label}, {size}", given[column], of_interval(own[label] - own[other]))


def test_significant_differences_of_few_labels_are_bold():
    text = (ROOT / "docs/results/labels.md").read_text()
    found = [line for line in text.splitlines() if line.startswith("|") and f" {MINUS} " in line]
    assert found
    for cell in (cell for line in found for cell in line[1:-1].split("|")[1:]):
        _, low, high = numbers(cell)
        assert (low > 0 or high < 0) == ("**" in cell), cell


def test_intervals_of_hiv_and_qm7():
    text = (ROOT / "docs/results/heads.md").read_text()
    parts = (
        ("hiv", "roc_auc", "kernel", r"kernel model: (.*?)\)"),
        ("qm7", "r2", "kernel", r"`graphlog-mol` is ([\d.]+ points of R2 below .*?);"),
        ("qm7", "r2", "validated", r"with the linear model ([\d.]+ above \(.*?\))"),
    )
    for dataset, metric, rule, place in parts:
        scores = moleculenet_heads(metric, 100)[dataset]
        gap = scores.loc["graphlog-mol", rule].iloc[0] - scores.loc["untrained", rule]
        mean, low, high = of_interval(gap)
        (said,) = re.findall(place, text)
        cell = said.replace("points of R2 below", "")
        check(f"{dataset}, {rule}", cell, (abs(mean) if cell != said else mean, low, high))
