"""Cells rendered as tables: what is measured, what is not, and how it is printed."""

import csv
import io
import json
import statistics
from pathlib import Path

import pytest

from benchmark import factory
from graphlog.benchmark.tables import (
    Item,
    Sheet,
    comma_separated,
    latex,
    lay_out,
    markdown,
    read_cells,
    score_grids,
)
from graphlog.benchmark.tables.names import MINUS
from graphlog.benchmark.tables.timing import speed_grid, speed_sheet, timing_sheet
from graphlog.errors import DataError, ModelFileError


def _grids(folder: Path):
    return {grid.name: grid for grid in score_grids(read_cells(folder))}


def _lines(folder: Path, name: str) -> dict[str, list[str]]:
    """Return the fields of a Markdown table's lines by their first non-empty one; a quoted line belongs to the one above."""
    found, above = {}, ""
    for line in markdown(lay_out(_grids(folder)[name])).splitlines():
        if line.startswith("| "):
            fields = [f.strip() for f in line.strip("|").split("|")]
            above, key = (fields[0], fields[0]) if fields[0] else (above, f"{above} paper")
            found[key] = fields
    return found


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cells")
    factory.write_everything(folder)
    return folder


def test_every_suite_has_its_tables_under_both_rules(everything: Path):
    names = set(_grids(everything))
    for rule in ("last", "best-valid"):
        for table in (
            "molecules",
            "biology",
            "molecules-backbones",
            "molecules-ablation",
            "molecules-sensitivity-depth",
        ):
            assert f"{table}-finetune-{rule}" in names
    assert {
        "molecules-probe-fixed-c",
        "molecules-probe-validated-c",
        "molecules-sensitivity-batch-size-finetune-last",
    } <= names
    assert "biology-finetune-last-halves" in names


def test_table_1_by_hand(everything: Path):
    lines = _lines(everything, "molecules-finetune-last")
    cells = [json.loads(p.read_text()) for p in everything.glob("finetune-graphcl-gin-*.json")]
    by = {
        (c["dataset"], c["seed"]): 100 * c["scores"]["last"]["test"]
        for c in cells
        if not c["variant"]
    }
    bbbp = [by["bbbp", seed] for seed in factory.SEEDS]
    averages = [statistics.fmean(by[d, seed] for d in factory.MOLECULES) for seed in factory.SEEDS]
    without = [
        statistics.fmean(by[d, seed] for d in factory.MOLECULES if d != "clintox")
        for seed in factory.SEEDS
    ]
    said = lines["GraphCL"]
    for values, column in (
        (bbbp, "BBBP"),
        (averages, "Average of 4"),
        (without, "without ClinTox"),
    ):
        place = lines["Method"].index(column)
        assert said[place] == f"{statistics.fmean(values):.1f} ± {statistics.stdev(values):.1f}"
    assert lines["GraphCL paper"][2:6] == [
        "*69.5 ± 0.5*",
        "*60.8 ± 0.7*",
        "*70.1 ± 1.9*",
        "*78.2 ± 1.2*",
    ]
    assert lines["GraphCL paper"][6] == f"*{statistics.fmean([69.5, 60.8, 70.1, 78.2]):.1f}*"
    assert lines["GraphLoG"][-1] == "reference"
    assert lines["ECFP4 + logistic regression"][-2] == "none drawn"


def test_rows_stand_in_the_papers_order(everything: Path):
    grid = _grids(everything)["molecules-finetune-last"]
    assert [row.key for row in grid.rows] == [*factory.METHODS, "ecfp-rf", "ecfp-lr"]
    assert grid.columns == ("bbbp", "sider", "clintox", "bace")


def test_the_printed_average_of_the_paper_is_kept_for_its_eight(tmp_path: Path):
    eight = ("bbbp", "tox21", "toxcast", "sider", "clintox", "muv", "hiv", "bace")
    factory.write_molecules(tmp_path, eight, ("untrained", "graphcl"))
    lines = _lines(tmp_path, "molecules-finetune-last")
    assert lines["GraphCL paper"][lines["Method"].index("Average of 8")] == "*71.3*"


def test_what_was_not_measured_says_so_and_is_not_averaged(tmp_path: Path):
    factory.write_molecules(tmp_path, methods=("untrained", "graphcl", "graphlog"))
    for path in tmp_path.glob("finetune-graphcl-gin-bace-*.json"):
        path.unlink()
    lines = _lines(tmp_path, "molecules-finetune-last")
    head = lines["Method"]
    assert lines["GraphCL"][head.index("BACE")] == "not measured"
    assert lines["GraphCL"][head.index("Average of 4")] == "not measured (3 of 4)"
    assert lines["GraphCL"][head.index("without ClinTox")] == "not measured (2 of 3)"
    assert lines["GraphCL"][-1] == "not measured"
    assert set(lines["EdgePred"][2:8]) == {"not measured"}
    assert lines["EdgePred paper"][2] == "*67.3 ± 2.4*"


def test_a_seed_that_is_missing_somewhere_is_left_out_of_the_average_only(tmp_path: Path):
    factory.write_molecules(tmp_path, methods=("untrained", "graphlog"))
    next(tmp_path.glob("finetune-graphlog-gin-bace-s2-*.json")).unlink()
    lines = _lines(tmp_path, "molecules-finetune-last")
    assert lines["GraphLoG"][lines["Method"].index("BACE")].endswith("(2 seeds)**")
    assert lines["GraphLoG"][lines["Method"].index("Average of 4")].endswith("(2 seeds)")
    assert lines["GraphLoG"][lines["Method"].index("Seeds")] == "2–3"  # noqa: RUF001


def test_seeds_that_never_meet_give_no_average(tmp_path: Path):
    for seed, dataset in enumerate(("bbbp", "bace")):
        factory.write(
            tmp_path, factory.cell("finetune", "graphlog", dataset, seed, {"last": {"test": 0.7}})
        )
    lines = _lines(tmp_path, "molecules-finetune-last")
    assert lines["GraphLoG"][lines["Method"].index("Average of 2")] == "no seed in common"


def test_one_seed_has_no_sd_and_no_interval(tmp_path: Path):
    for method in ("untrained", "graphlog"):
        factory.write(
            tmp_path,
            factory.cell(
                "finetune", method, "bbbp", 0, {"last": {"test": 0.7 + 0.01 * len(method)}}
            ),
        )
    lines = _lines(tmp_path, "molecules-finetune-last")
    assert lines["Untrained"][2:] == ["**79.0**", "1.0", "1 (no SD)", "+1.0 (one seed, no CI)"]


def test_an_undefined_score_is_not_a_number_nor_zero(tmp_path: Path):
    for seed, test in ((0, 0.7), (1, None)):
        factory.write(
            tmp_path, factory.cell("finetune", "graphlog", "bbbp", seed, {"last": {"test": test}})
        )
    assert _lines(tmp_path, "molecules-finetune-last")["GraphLoG"][2] == "undefined (1 of 2)"


def test_errors_rank_upside_down_in_a_table_of_their_own(tmp_path: Path):
    for method, error in (("untrained", 1.2), ("graphlog", 0.9)):
        factory.write(
            tmp_path,
            factory.cell("finetune", method, "esol", 0, {"last": {"test": error}}, metric="rmse"),
        )
    lines = _lines(tmp_path, "molecules-finetune-last-rmse")
    assert lines["GraphLoG"][1:3] == ["**0.900**", "1.0"]
    assert lines["Untrained"][-1].startswith("+0.300")


def test_fingerprints_stand_beside_fine_tuned_models_under_the_like_rule(tmp_path: Path):
    factory.write(
        tmp_path,
        factory.cell(
            "finetune", "graphlog", "bbbp", 0, {"last": {"test": 0.7}, "best-valid": {"test": 0.7}}
        ),
    )
    factory.write(
        tmp_path,
        factory.cell(
            "probe",
            "ecfp-lr",
            "bbbp",
            None,
            {"fixed-C": {"test": 0.6}, "validated-C": {"test": 0.8}},
        ),
    )
    factory.write(tmp_path, factory.cell("probe", "ecfp-rf", "bbbp", 0, {"fixed": {"test": 0.65}}))
    assert _lines(tmp_path, "molecules-finetune-last")["ECFP4 + logistic regression"][2] == "60.0"
    assert (
        "80.0"
        in _lines(tmp_path, "molecules-finetune-best-valid")["ECFP4 + logistic regression"][2]
    )
    assert _lines(tmp_path, "molecules-finetune-last")["ECFP4 + random forest"][2] == "65.0"


def test_the_differences_of_the_csv_are_those_of_the_paired_test(everything: Path):
    stats = pytest.importorskip("scipy.stats")
    grid = _grids(everything)["molecules-finetune-last"]
    rows = list(csv.DictReader(io.StringIO(comma_separated(lay_out(grid)))))
    found = next(
        r
        for r in rows
        if r["row"] == "edgepred"
        and r["source"] == "difference to graphlog"
        and r["column"] == "Average of 4"
    )
    ours, theirs = ([grid.average(m)[s] for s in factory.SEEDS] for m in ("edgepred", "graphlog"))
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert (float(found["ci95_low"]), float(found["ci95_high"])) == pytest.approx(
        (expected.low, expected.high)
    )
    assert int(found["seeds"]) == 3


def test_table_3_averages_over_data_sets_and_leaves_gaps(everything: Path, tmp_path: Path):
    grid = _grids(everything)["molecules-backbones-finetune-last"]
    under = _grids(everything)["molecules-backbones-gat-finetune-last"]
    assert grid.columns == ("gcn", "graphsage", "gat", "gin")
    for seed in factory.SEEDS:
        by_hand = statistics.fmean(under.at("graphcl/gat", d)[seed] for d in factory.MOLECULES)
        assert grid.at("graphcl", "gat")[seed] == pytest.approx(by_hand)
    assert grid.printed["graphlog", "gat"] == (69.5, 1.0)
    assert "infograph" not in [row.key for row in grid.rows]


def test_table_3_compares_methods_with_graphlog_under_the_same_backbone(everything: Path):
    grid = _grids(everything)["molecules-backbones-gat-finetune-last"]
    lines = _lines(everything, grid.name)
    differences = [
        grid.average("graphcl/gat")[s] - grid.average("graphlog/gat")[s] for s in factory.SEEDS
    ]
    assert {row.key.rpartition("/")[2] for row in grid.rows} == {"gat"}
    assert lines["Method"][-4:] == ["without ClinTox", "Rank", "Seeds", "Δ to GraphLoG [95 % CI]"]
    assert lines["GraphCL"][-1].startswith(
        f"{statistics.fmean(differences):+.1f} [".replace("-", MINUS)
    )
    assert lines["GraphLoG"][-1] == "reference"


def test_data_sets_asked_for_beside_the_usual_ones_stand_apart(tmp_path: Path):
    for dataset, backbone in (("worm-go40", "gin"), ("worm-go40", "gcn"), ("worm-yeast", "gin")):
        for method in ("untrained", "graphlog"):
            for seed in factory.SEEDS:
                found = factory.scores(("fixed-C",), 0.7, dataset, backbone, method, seed)
                fields = factory.cell(
                    "probe", method, dataset, seed, found, backbone=backbone, domain="protein"
                )
                factory.write(tmp_path, fields)
    grids = _grids(tmp_path)
    assert grids["biology-probe-fixed-c"].columns == ("worm-go40",)
    assert grids["biology-others-probe-fixed-c"].columns == ("worm-yeast",)
    assert not grids["biology-others-probe-fixed-c"].averaged
    assert grids["biology-backbones-gcn-probe-fixed-c"].columns == ("worm-go40",)
    said = _lines(tmp_path, "biology-backbones-probe-fixed-c")["GraphLoG"]
    assert "not measured" not in said


def test_table_4_has_the_papers_rows_and_the_default_recipe_below(everything: Path):
    grid = _grids(everything)["molecules-ablation-finetune-last"]
    assert [row.key for row in grid.rows] == [*factory.LOSSES, "default"]
    assert grid.rows[3].heads == ("✓", "✓", "")
    assert grid.reference == factory.LOSSES[-1]
    assert "other data than ours" in markdown(lay_out(grid))


def test_table_4_is_on_the_data_sets_of_the_ablation(tmp_path: Path):
    factory.write_ablation(tmp_path)
    factory.write_molecules(tmp_path, (*factory.MOLECULES, "tox21"), ("graphlog",))
    assert "tox21" not in _grids(tmp_path)["molecules-ablation-finetune-last"].columns


def test_cells_serve_every_table_whatever_suite_wrote_them(tmp_path: Path):
    factory.write_ablation(tmp_path, suite="molecules")
    assert "molecules-ablation-finetune-last" in _grids(tmp_path)


def test_two_settings_for_one_place_are_refused(tmp_path: Path):
    fields = factory.cell("finetune", "graphlog", "bbbp", 0, {"last": {"test": 0.7}})
    factory.write(tmp_path, fields)
    factory.write(tmp_path, {**fields, "config_hash": "f" * 64})
    with pytest.raises(DataError, match="same cell with different settings"):
        read_cells(tmp_path)


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ('{"format": "graphlog-cell", "ver', DataError, "not a whole cell"),
        ("[1, 2]", DataError, "not a whole cell"),
        ('{"format": "other", "version": 1}', DataError, "no cell of a benchmark"),
        ('{"format": "graphlog-cell", "version": 99}', ModelFileError, "update graphlog"),
        ('{"format": "graphlog-cell", "version": 1}', DataError, "KeyError"),
    ],
)
def test_a_file_that_is_no_cell_is_named(
    tmp_path: Path, text: str, error: type[Exception], said: str
):
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(error, match=said) as caught:
        read_cells(tmp_path)
    assert "bad.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_domains_share_a_folder(tmp_path: Path):
    factory.write_speed(tmp_path)
    molecules = read_cells(tmp_path)
    for path in list(tmp_path.glob("*.json")):
        fields = json.loads(path.read_text())
        (tmp_path / f"protein-{path.name}").write_text(
            json.dumps(
                {
                    **fields,
                    "domain": "protein",
                    "config_hash": "f",
                    "graphs_per_s": fields["graphs_per_s"] / 2,
                }
            )
        )
    cells = read_cells(tmp_path)
    assert len(cells) == 2 * len(molecules)
    fast, slow = (speed_grid(cells, domain) for domain in ("molecule", "protein"))
    assert fast is not None
    assert slow is not None
    assert (fast.name, slow.name) == ("speed-molecules", "speed-biology")
    for place, series in fast.series.items():
        assert {seed: rate / 2 for seed, rate in series.items()} == slow.series[place]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(DataError, match="no folder of cells"):
        read_cells(tmp_path / "none")


def test_latex_escapes_what_it_must():
    text = r"50% of {A_B} & $x$ #1 ~ ^ \ < > | ± " + "\N{MINUS SIGN}1 ✓"
    sheet = Sheet(
        "s",
        text,
        ("A_B", "x"),
        ((Item(text), Item("1", strong=True)), (Item(""), Item("2", quoted=True))),
        notes=(text,),
    )
    said = latex(sheet)
    escaped = r"50\% of \{A\_B\} \& \$x\$ \#1 \textasciitilde{} \textasciicircum{} \textbackslash{} $<$ $>$ $|$ $\pm$ $-$1 $\checkmark$"
    assert said.count(escaped) == 3
    assert r"\textbf{1}" in said
    assert r"\textit{2}" in said
    assert said.isascii()


def test_every_table_is_plain_latex_with_as_many_fields_as_columns(everything: Path):
    for grid in _grids(everything).values():
        said = latex(lay_out(grid))
        assert said.isascii(), grid.name
        body = said.split(r"\toprule")[1].split(r"\bottomrule")[0]
        counts = {
            line.replace(r"\&", "").count("&") for line in body.splitlines() if line.endswith(r"\\")
        }
        assert len(counts) == 1, grid.name


def test_throughput_is_compared_with_attrmasking(everything: Path):
    cells = read_cells(everything)
    grid = speed_grid(cells, "molecule")
    assert grid is not None
    said = markdown(speed_sheet(grid))
    assert "| AttrMasking | GIN | 790 ± 10 | 1.00 | 790 ± 10 | 1.00 | 3 |" in said
    assert "| GraphCL | GIN | 610 ± 10 | 0.77 | 1,220 ± 20 | 1.54 | 3 |" in said
    timing = timing_sheet(cells)
    assert timing is not None
    assert {row[0].text for row in timing.rows} == {"speed", "finetune", "probe", "map"}


def test_the_printed_average_stands_only_beside_the_eight_sets_it_is_of(tmp_path: Path):
    others = ("bbbp", "tox21", "toxcast", "sider", "clintox", "muv", "hiv", "chembl2321810")
    factory.write_molecules(tmp_path, others, ("untrained", "graphlog"))
    assert "*73.4*" not in _lines(tmp_path, "molecules-finetune-last")["GraphLoG paper"]
    factory.write_molecules(tmp_path / "eight", (*others[:-1], "bace"), ("untrained", "graphlog"))
    assert "*73.4*" in _lines(tmp_path / "eight", "molecules-finetune-last")["GraphLoG paper"]


def test_one_backbone_that_is_not_the_main_one_has_its_table(tmp_path: Path):
    found = factory.scores(("last",), 0.7, 0)
    factory.write(
        tmp_path,
        factory.cell("finetune", "graphlog", "bbbp", 0, found, backbone="gat", domain="molecule"),
    )
    assert _grids(tmp_path)["molecules-backbones-finetune-last"].columns == ("gat",)


def test_work_that_suites_share_is_timed_once(tmp_path: Path):
    one = factory.cell(
        "finetune", "graphlog", "bbbp", 0, factory.scores(("last",), 0.7, 0), seconds=10.0
    )
    factory.write(tmp_path, one)
    factory.write(tmp_path, {**one, "suite": "sensitivity", "variant": {"depth": 3}})
    sheet = timing_sheet(read_cells(tmp_path))
    assert sheet is not None
    assert [(r["cells"], r["seconds_mean"]) for r in sheet.records] == [(1, 10.0)]


def test_the_timing_in_larger_company_counts(tmp_path: Path):
    def timed(rate: float, *together: str):
        hashed = f"{len(together):064x}"
        fields = {
            "suite": "speed",
            "graphs_per_s": rate,
            "together": list(together),
            "config_hash": hashed,
            "domain": "molecule",
        }
        return factory.cell("speed", "graphcl", None, 0, {}, **fields)

    factory.write(tmp_path, timed(9.0, "attrmasking", "graphcl"))
    factory.write(tmp_path, timed(7.0, "attrmasking", "graphcl", "graphlog"))
    (cell,) = read_cells(tmp_path)
    assert cell.raw["graphs_per_s"] == 7.0
