"""Rows rendered as tables and figures: what is measured, what is not, and how it is printed."""

import math
import re
import shutil
import statistics
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmark_support import made_up, scores, table_of, write_table
from graphlog.benchmark import Request, draw_figures
from graphlog.benchmark.cells import PAPER, SUITES, plan_cells
from graphlog.benchmark.folder import BenchmarkFolder
from graphlog.benchmark.tables import Table, score_tables, speed_frame, summarize, write_pages
from graphlog.errors import DataError

FOUR = ("bbbp", "sider", "clintox", "bace")
SEEDS = (0, 1, 2)
MANY = ("untrained", "graphcl", "graphlog")
FEATURES: dict[str, Any] = {"stage": "probe", "backbone": "", "calibrated_on": ""}
LINEAR = scores(["ecfp-lr"], FOUR, [""], **FEATURES)
FOREST = scores(["ecfp-rf"], FOUR, SEEDS, **FEATURES, rule="")


def variants(*names: str) -> list[dict[str, Any]]:
    """Return scores of GraphLoG in these variants, and of the untrained encoder."""
    rows = [row for name in names for row in scores(["graphlog"], FOUR, variant=name)]
    return rows + scores(["untrained"], FOUR)


ABLATION = variants(*(f"losses={losses}" for losses in SUITES["ablation"].losses))
SENSITIVITY = variants("depth=1", "depth=3", "depth=5", "batch_size=32", "batch_size=256")


def only_table(rows: list[dict[str, Any]], name: str = "molecules") -> Table:
    (table,) = score_tables(name, table_of(rows))
    return table


def lines(table: Table) -> dict[str, dict[str, str]]:
    """Return the printed lines by their first text; a quoted line follows its row."""
    found, above = dict[str, dict[str, str]](), ""
    for line in table.frame().to_dict("records"):
        text = " ".join(str(line[head]) for head in table.heads).strip()
        above, key = (text, text) if text else (above, f"{above} paper")
        found[key] = {str(head): str(value) for head, value in line.items()}
    return found


def test_table_1_by_hand():
    table = only_table(scores(MANY, FOUR) + LINEAR + FOREST)
    said = lines(table)
    by = {(r["dataset"], r["seed"]): 100 * r["value"] for r in scores(["graphcl"], FOUR)}
    bbbp = [by["bbbp", str(seed)] for seed in SEEDS]
    averages = [statistics.fmean(by[d, str(seed)] for d in FOUR) for seed in SEEDS]
    without = [statistics.fmean(by[d, str(seed)] for d in FOUR if d != "clintox") for seed in SEEDS]
    printed = ((bbbp, "BBBP"), (averages, "Average of 4"), (without, "without ClinTox"))
    for values, column in printed:
        expected = f"{statistics.fmean(values):.1f} ± {statistics.stdev(values):.1f}"
        assert said["GraphCL"][column].strip("*") == expected
    quoted = said["GraphCL paper"]
    of_paper = " | ".join(quoted[c] for c in ("BBBP", "SIDER", "ClinTox", "BACE"))
    assert of_paper == "*69.5 ± 0.5* | *60.8 ± 0.7* | *70.1 ± 1.9* | *78.2 ± 1.2*"
    assert quoted["Average of 4"] == f"*{statistics.fmean([69.5, 60.8, 70.1, 78.2]):.1f}*"
    assert said["GraphLoG"][CHANGE] == "reference"
    assert said["ECFP4 + linear model"]["Seeds"] == "not random"
    assert [row for row in table.rows] == [*MANY, "ecfp-rf", "ecfp-lr"]


def test_only_what_was_asked_for_is_shown():
    said = lines(only_table(scores(["attrmasking", "untrained"], ["bbbp"])))
    assert list(said) == ["Untrained", "Untrained paper", "AttrMasking", "AttrMasking paper"]
    assert not any("Δ" in head for head in said["Untrained"])  # the reference was not asked for


def test_the_interval_is_that_of_the_paired_t_test():
    table = only_table(scores(MANY, FOUR))
    found = table.numbers["graphcl", "Average of 4"]
    ours, theirs = (table.scores_of(m, "Average of 4") for m in ("graphcl", "graphlog"))
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    interval = (found["difference_low"], found["difference_high"])
    assert interval == pytest.approx((expected.low, expected.high))
    values = np.array([1.2, -0.4, 0.7, 2.1, 0.3])
    expected = stats.t.interval(0.95, len(values) - 1, loc=values.mean(), scale=stats.sem(values))
    summary = summarize(pd.Series(values))
    assert (summary["low"], summary["high"]) == pytest.approx(expected, rel=1e-12)


def test_a_row_without_seeds_is_compared_with_every_seed():
    table = only_table(scores(["graphlog"], FOUR) + LINEAR)
    fixed = table.scores_of("ecfp-lr", "Average of 4")[""]
    expected = {seed: fixed - v for seed, v in table.scores_of("graphlog", "Average of 4").items()}
    assert dict(table.difference("ecfp-lr", "Average of 4")) == pytest.approx(expected)


def without(rows: list[dict[str, Any]], **place: str) -> list[dict[str, Any]]:
    return [row for row in rows if not place.items() <= row.items()]


GAP = {"method": "graphcl", "dataset": "bace"}
ERRORS = [
    *scores(["graphlog"], ["esol"], [0], metric="rmse", value=0.9),
    *scores(["untrained"], ["esol"], [0], metric="rmse", value=1.2),
    *scores(["ecfp-lr"], ["esol"], [""], metric="rmse", value=1.0, **FEATURES),
]
CHANGE = "Δ to GraphLoG [95 % CI]"
PRINTED: dict[str, tuple[list[dict[str, Any]], str, dict[str, str]]] = {
    "not measured": (
        without(scores(MANY, FOUR), **GAP),
        "GraphCL",
        dict.fromkeys(["BACE", "Average of 4", CHANGE, "Rank"], r"\N{EN DASH}"),
    ),
    "a seed is missing": (
        without(scores(MANY, FOUR), **GAP, seed="2"),
        "GraphCL",
        {"BACE": r".*\(2 of 3 seeds\)\**", "Average of 4": r".* \(2 of 3 seeds\)"},
    ),
    "a seed is undefined": (
        without(scores(MANY, FOUR), **GAP, seed="2")
        + scores(["graphcl"], ["bace"], [2], value=math.nan),
        "GraphCL",
        {"BACE": r".*\(2 of 3 seeds\)\**", "Average of 4": r".* \(2 of 3 seeds\)"},
    ),
    "defined nowhere": (
        scores(["untrained"], ["bbbp"], value=math.nan),
        "Untrained",
        {"BBBP": r"\N{EN DASH}"},
    ),
    "one seed": (
        scores(["untrained", "graphlog"], ["bbbp"], [0]),
        "Untrained",
        {"BBBP": r"\**[\d.]+\**", CHANGE: r".* \(one seed, no CI\)"},
    ),
    "the least error is the best": (ERRORS, "GraphLoG", {"esol": r"\*\*0.900\*\*", "Rank": "1.0"}),
    "a larger error": (ERRORS, "Untrained", {"Rank": "3.0", CHANGE: r"\+0.300 .*"}),
    "no row of a regression is logistic": (ERRORS, "ECFP4 + linear model", {"esol": "1.000"}),
}


@pytest.mark.usefixtures("coarse")
def test_a_page_has_a_table_and_a_figure_of_every_metric(tmp_path: Path):
    areas = scores(["untrained", "ecfp-lr"], ["bbbp"])
    write_table(tmp_path, "molecules", [*ERRORS, *areas])
    written = write_pages(BenchmarkFolder(tmp_path), tmp_path / "out")
    text = (tmp_path / "out" / "molecules.md").read_text(encoding="utf-8")
    title = f"{SUITES['molecules'].title}: fine-tuned, last epoch"
    for head, column in ((title, "bbbp"), (f"{title}, RMSE", "esol")):
        _, _, page = text.partition(f"## {head}\n")
        assert f"| {column}" in page.partition("\n## ")[0].lower()
    pictures = [path.name for path in written if path.suffix == ".png"]
    names = ["molecules-finetune-fixed.png", "molecules-finetune-fixed-rmse.png"]
    assert sorted(pictures) == sorted(names)
    for name in names:
        assert f"({name})" in text
        drawing = (tmp_path / "out" / name).with_suffix(".svg").read_text(encoding="utf-8")
        assert (">GraphLoG<" in drawing) == ("rmse" in name)  # the other has no row of it


@pytest.mark.usefixtures("no_matplotlib")
@pytest.mark.parametrize("suite", ["molecules", "sensitivity", "speed"])
def test_the_command_of_a_page_names_what_is_not_all_of_the_scale(suite: str, tmp_path: Path):
    cells = plan_cells(Request(suite, "smoke"))
    rows = [
        {"fold": "test", "rule": "fixed", "metric": "roc_auc", "value": 0.5}
        | {"stage": cell.stage, "method": method, **cell.labels}
        for cell in cells
        for method in cell.together or [cell.method.name]
    ]
    some = [row for row in rows if row["method"] == "graphlog" and row["seed"] == "0"]
    some = [row | {"dataset": row["dataset"] and "esol"} for row in some]
    asked = "" if suite == "sensitivity" else " --methods graphlog"
    asked += "" if suite == "speed" else " --datasets esol"
    for name, part, options in (("whole", rows, ""), ("some", some, f"{asked} --seeds 0")):
        write_table(tmp_path / name, suite, part)
        write_pages(BenchmarkFolder(tmp_path / name), tmp_path / name / "out")
        text = (tmp_path / name / "out" / f"{suite}.md").read_text(encoding="utf-8")
        assert f"`graphlog benchmark {suite} -o DIR --scale smoke{options}`" in text


@pytest.mark.usefixtures("no_matplotlib")
def test_the_notes_name_default_settings_and_each_split(tmp_path: Path):
    folder = BenchmarkFolder(tmp_path)
    folder.make()
    choices: dict[str, Any] = {"methods": ["graphcl"], "datasets": ["bbbp"], "seeds": [0]}
    choices |= {"backbones": ["gat"], "stages": ["pretrain", "probe"], "source": "zinc250k"}
    for split in (None, "random"):
        for cell in plan_cells(Request("molecules", "paper", **choices, split=split)):
            row = {"rule": "fixed", "fold": "test", "metric": "roc_auc", "value": 0.5}
            about: dict[str, Any] = {"machine": {}, "versions": {}}
            folder.write(cell, [row, {"metric": "seconds", "value": 1.0}], about)
    write_pages(folder, tmp_path / "out")
    text = (tmp_path / "out" / "molecules.md").read_text(encoding="utf-8")
    assert "Pre-training: epochs 11, batch_size 512, learning_rate 0.001, precision auto, " in text
    command = "graphlog benchmark molecules -o DIR --scale paper --methods graphcl --datasets bbbp"
    command += " --seeds 0 --backbones gat --stages pretrain,probe --source SOURCE"
    assert f"Command: `{command}`; `{command} --split random`." in text


@pytest.mark.parametrize("case", PRINTED)
def test_how_a_row_is_printed(case: str):
    rows, name, expected = PRINTED[case]
    table = only_table(rows)
    assert not table.paper or table.metric == "roc_auc"
    said = lines(table)[name]
    for column, pattern in expected.items():
        assert re.fullmatch(pattern, said[column]), said[column]


def test_fingerprints_stand_beside_fine_tuned_models_under_the_like_rule():
    rows = scores(["graphlog"], ["bbbp"], [0]) + scores(
        ["graphlog"], ["bbbp"], [0], rule="validated"
    )
    for rule, value in (("fixed", 0.6), ("validated", 0.8)):
        rows += scores(["ecfp-lr"], ["bbbp"], [""], **FEATURES, rule=rule, value=value)
    rows += scores(["ecfp-rf"], ["bbbp"], [0], **FEATURES, rule="", value=0.65)
    fixed, validated = score_tables("molecules", table_of(rows))
    assert lines(fixed)["ECFP4 + linear model"]["BBBP"] == "60.0"
    assert lines(validated)["ECFP4 + linear model"]["BBBP"] == "**80.0**"
    assert lines(fixed)["ECFP4 + random forest"]["BBBP"].strip("*") == "65.0"
    assert "fine-tuned, last epoch" in fixed.title


def test_another_split_is_another_table():
    rows = scores(["untrained"], FOUR) + scores(["untrained"], FOUR, split="random")
    usual, other = score_tables("molecules", table_of(rows))
    assert usual.columns == other.columns == list(FOUR)
    assert usual.paper["untrained", "bbbp"] == (65.8, 4.5)
    assert usual.name != other.name
    assert other.title == f"{usual.title}, random split"


def test_the_printed_average_stands_only_beside_the_eight_sets_it_is_of():
    eight = PAPER["table_1"]["columns"]
    for datasets, there in ((eight, True), ([*eight[:-1], "chembl2321810"], False)):
        said = lines(only_table(scores(["graphlog"], datasets, [0])))["GraphLoG paper"]
        assert ("*73.4*" in said.values()) == there


def test_table_3_averages_over_data_sets_and_compares_under_the_same_backbone():
    rows = [r for b in ("gcn", "gin") for r in scores(MANY, FOUR, backbone=b)] + LINEAR
    summary, whole = score_tables("backbones", table_of(rows))
    assert summary.columns == ["gcn", "gin"]
    of_seed = whole.by_seed.loc[("gcn/graphcl", "1"), list(FOUR)]
    assert summary.scores_of("graphcl", "gcn")["1"] == pytest.approx(of_seed.mean())
    assert summary.paper["graphlog", "gcn"] == (71.2, 0.6)
    ours, other = (whole.scores_of(f"gcn/{m}", "Average of 4") for m in ("graphcl", "graphlog"))
    assert dict(whole.difference("gcn/graphcl", "Average of 4")) == dict(ours - other)
    assert "ecfp-lr" not in summary.rows
    assert "/ecfp-lr" in whole.rows


def test_table_4_has_the_papers_rows_and_those_without_pretraining_below():
    table = only_table(ABLATION + LINEAR, "ablation")
    named = [row.removeprefix("losses=") for row in table.rows]
    assert named == [*SUITES["ablation"].losses, "untrained", "ecfp-lr"]
    assert table.rows["losses=subgraph+graph"] == ("subgraph + graph",)
    frame = table.frame().replace(r"\*", "", regex=True)
    assert "Δ to all three [95 % CI]" in frame
    assert frame["paper (biology, 8 species)"].tolist()[:7] == [
        f"{mean} ± {sd}" for ((mean, sd),) in PAPER["table_4"]["rows"].values()
    ]


def test_sensitivity_has_a_table_a_setting():
    depth, size = score_tables("sensitivity", table_of(SENSITIVITY))
    assert [heads[0] for heads in depth.rows.values()] == ["1", "3", "5", "Untrained"]
    assert [heads[0] for heads in size.rows.values()] == ["32", "256", "Untrained"]
    assert depth.paper == {("depth=3", ""): (72.9, 0.7)}


def speed_rows() -> list[dict[str, Any]]:
    head = {"scale": "small", "stage": "speed", "backbone": "gin", "seed": "0"}
    return [
        {**head, "method": method, "metric": "graphs_per_s", "value": rate}
        for method, rate in (("attrmasking", 790.0), ("graphcl", 610.0))
    ]


def test_rates_are_a_table():
    rates = speed_frame(table_of(speed_rows()))
    assert rates["Graphs/s"].tolist() == [790.0, 610.0]
    assert rates["to AttrMasking"].tolist() == pytest.approx([1.0, 610 / 790])


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows of every suite."""
    folder = tmp_path_factory.mktemp("everything")
    write_table(folder, "molecules", scores(MANY, FOUR) + LINEAR + FOREST)
    write_table(folder, "biology", scores(MANY, ["worm-go40"]))
    few = [row for row in adme_rows() if (row["split"], row["metric"]) == ("given", "r2")]
    write_table(folder, "adme", few)
    write_table(folder, "moleculenet", [r for r in moleculenet_rows() if r["metric"] == "r2"])
    both = [r for b in ("gcn", "gin") for r in scores(MANY, FOUR, backbone=b)]
    write_table(folder, "backbones", both)
    write_table(folder, "ablation", ABLATION)
    write_table(folder, "sensitivity", SENSITIVITY)
    write_table(folder, "speed", speed_rows())
    write_maps(folder)
    return folder


def adme_rows() -> list[dict[str, Any]]:
    places = product(("given", "scaffold"), ("r2", "rmse"), ("fixed", "validated", "kernel"))
    return [
        row
        for split, metric, rule in places
        for on in [{"split": split, "metric": metric, "rule": rule}]
        for row in [
            *scores(MANY, ["hlm", "rlm"], **on, stage="probe"),
            *scores(["ecfp4"], ["hlm", "rlm"], [""], **on, **FEATURES),
        ]
    ]


def moleculenet_rows() -> list[dict[str, Any]]:
    return [
        row
        for rule in ("validated", "kernel")
        for metric, sets in (("roc_auc", ["bace", "bbbp"]), ("r2", ["esol"]))
        for row in scores(MANY, sets, metric=metric, rule=rule, stage="probe")
    ]


def test_tables_of_heads_print_roc_auc_in_per_cent():
    rows = moleculenet_rows()
    areas, others = score_tables("moleculenet", table_of(rows))
    assert [areas.metric, others.metric] == ["roc_auc", "r2"]
    for table, metric, scale in ((areas, "roc_auc", 100), (others, "r2", 1)):
        values = [row["value"] for row in rows if row["metric"] == metric]
        np.testing.assert_allclose(table.scores["value"].max(), scale * max(values))


def test_adme_has_a_table_a_split_and_metric_with_a_row_a_head():
    tables = score_tables("adme", table_of(adme_rows()))
    names = [f"adme-{split}-{m}" for split in ("given", "scaffold") for m in ("r2", "rmse")]
    assert [table.name for table in tables] == names
    said = lines(tables[0])
    assert list(said) == [
        f"{features} {head}"
        for features in ("Untrained", "GraphCL", "GraphLoG", "ECFP4")
        for head in ("linear", "kernel")
    ]
    assert sum(float(line["Rank"]) for line in said.values()) == 36  # those of C = 0.1 are left out
    change = "Δ to Untrained [95 % CI]"
    assert [said[f"Untrained {head}"][change] for head in ("linear", "kernel")] == ["reference"] * 2
    at = tables[0].compared
    kernel, counts = (tables[0].scores_of(f"kernel/{row}", at) for row in ("untrained", "ecfp4"))
    assert tables[0].difference("kernel/ecfp4", at).equals(counts[""] - kernel)


def write_maps(folder: Path) -> None:
    (folder / "maps").mkdir()
    plans = [plan_cells(Request("embedding-map", seeds=[seed])) for seed in (0, 1)]
    maps = [[c for c in plan if c.stage == "map"] for plan in plans]
    cells = [*maps[0][1:], *maps[1][1:]]  # the first configuration was not measured
    usual = {"rule": "quality", "metric": "silhouette"}
    rows = [
        {**cell.labels, **usual, "value": 0.7 + 0.1 * (cell.seed or 0), "cell": cell.hash}
        for cell in cells
    ]
    write_table(folder, "embedding-map", rows)
    leaves = np.repeat(np.arange(3), 2)
    for cell in cells:
        np.savez(
            folder / "maps" / f"{cell.hash}.npz",
            coordinates=np.array([[made_up(i, k) for k in "xy"] for i in range(40)]),
            cluster=np.arange(40) % 3,
            prototypes=np.array([[made_up("p", i, k) for k in "xy"] for i in range(9)]),
            layer=np.repeat([0, 1], [3, 6]),
            parent=np.concatenate([np.full(3, -1), leaves]),
            learned=np.array(cell.variant.endswith("global")),
        )


@pytest.mark.usefixtures("coarse")
def test_the_same_rows_give_the_same_bytes_and_figures_alone_those_of_the_report(
    everything: Path, tmp_path: Path
):
    first, few = write_pages(BenchmarkFolder(everything), tmp_path / "a"), tmp_path / "few"
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == sorted(p.name for p in first)
    few.mkdir()
    shutil.copy(everything / "sensitivity.csv.gz", few)
    second, drawn = write_pages(BenchmarkFolder(few), tmp_path / "b"), draw_figures(few, tmp_path)
    for path in second:
        same = path.read_bytes() == (tmp_path / "a" / path.name).read_bytes()
        assert same != (path.name == "index.md"), path.name
    assert {p.name for p in drawn} == {p.name for p in second if p.suffix in (".png", ".svg")}
    names = {p.name for p in first}
    for name in SUITES:
        assert f"{name}.md" in names
    assert {
        *"molecules-finetune-fixed.svg biology-finetune-fixed.png".split(),
        *"backbones-finetune-fixed-summary.png ablation-finetune-fixed.png".split(),
        *"sensitivity-finetune-fixed.png embedding-map.png".split(),
    } <= names
    text = "".join(p.read_text(encoding="utf-8") for p in first if p.suffix == ".md")
    assert all(f"]({p.name})" in text for p in first if p.suffix == ".png")
    assert all(f"]({name}.md)" in first[-1].read_text(encoding="utf-8") for name in SUITES)
    drawing = (tmp_path / "a" / "embedding-map.svg").read_text(encoding="utf-8")
    assert "not measured" in drawing
    assert "prototypes learned" in drawing
    assert "silhouette 0.7<" in drawing  # of the first seed alone
    page = (tmp_path / "a" / "embedding-map.md").read_text(encoding="utf-8")
    assert (page.count(" 0.7 |"), page.count(" 0.8 |")) == (2, 2)
    curves = (tmp_path / "a" / "sensitivity-finetune-fixed.svg").read_text(encoding="utf-8")
    assert "higher from 3 on" in curves
    assert "higher from 256 on" in curves
    assert "72.9 ± 0.7 at 512" in curves


@pytest.mark.usefixtures("no_matplotlib")
def test_without_matplotlib_tables_are_written_and_the_index_says_what_is_missing(
    everything: Path, tmp_path: Path
):
    written = write_pages(BenchmarkFolder(everything), tmp_path / "out")
    assert {p.suffix for p in written} == {".md"}
    assert "Figures were not drawn: `matplotlib` is not installed" in written[-1].read_text(
        encoding="utf-8"
    )


def test_a_damaged_map_is_named(tmp_path: Path):
    pytest.importorskip("matplotlib")
    write_maps(tmp_path)
    path = next((tmp_path / "maps").glob("*.npz"))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match=r"\.npz, a map of the benchmark"):
        write_pages(BenchmarkFolder(tmp_path), tmp_path / "out")


def test_a_folder_without_cells_says_what_to_run(tmp_path: Path):
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(DataError, match="graphlog benchmark SUITE"):
            write_pages(BenchmarkFolder(folder), tmp_path / "out")


def test_the_papers_tables_agree_with_one_another():
    table, rows = PAPER["table_1"], PAPER["table_2"]["rows"]
    for method, row in table["rows"].items():
        assert len(row) == len(table["columns"])
        average = statistics.fmean(mean for mean, _ in row)
        assert average == pytest.approx(table["average"][method], abs=0.0626), method
    gin = PAPER["table_3"]["columns"].index("gin")
    of_gin = {m: row[gin] for m, row in PAPER["table_3"]["rows"].items()}
    assert of_gin == {m: rows[m][0] for m in PAPER["table_3"]["rows"]}
    whole = PAPER["table_4"]["rows"]["subgraph+graph+global"]
    assert whole == rows["graphlog"] == PAPER["figure_3_depth"]["rows"]["3"]
