"""Cells rendered as tables: what is measured, what is not, and how it is printed."""

import json
import statistics
from functools import cache
from pathlib import Path

import pytest

from benchmark import factory
from graphlog.benchmark.folder import PROTOCOL, BenchmarkFolder, newest_cells
from graphlog.benchmark.pages import timing_frame
from graphlog.benchmark.paper_tables import score_tables, speed_tables
from graphlog.benchmark.table import (
    MARKDOWN,
    MINUS,
    Table,
    escape_latex,
    table_frame,
    table_latex,
    table_records,
)


def _tables(folder: Path) -> dict[str, Table]:
    files = sorted((folder / "cells").iterdir())
    return _cached_tables(folder, tuple((path.name, path.stat().st_mtime_ns) for path in files))


@cache
def _cached_tables(folder: Path, state: tuple[tuple[str, int], ...]) -> dict[str, Table]:
    rows, _ = newest_cells(BenchmarkFolder(folder).load())
    return {table.name: table for table in score_tables(rows)}


def _lines(folder: Path, name: str) -> dict[str, list[str]]:
    """Return the texts of a table's lines by the first one; a quoted line follows its row."""
    frame = table_frame(_tables(folder)[name], MARKDOWN)
    found, above = {"Method": list(frame.columns)}, ""
    for fields in frame.itertuples(index=False, name=None):
        above, key = (fields[0], fields[0]) if fields[0] else (above, f"{above} paper")
        found[key] = list(fields)
    return found


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cells")
    factory.write_everything(folder)
    return folder


def test_every_suite_has_its_tables_under_both_rules(everything: Path):
    names = set(_tables(everything))
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
    cells = [
        json.loads(p.read_text())
        for p in (everything / "cells").glob("finetune-graphcl-gin-*.json")
    ]
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
    assert lines["ECFP4 + logistic regression"][-2] == "not random"


def test_rows_stand_in_the_papers_order(everything: Path):
    grid = _tables(everything)["molecules-finetune-last"]
    assert [row.key for row in grid.rows] == [*factory.METHODS, "ecfp-rf", "ecfp-lr"]
    assert tuple(grid.columns) == ("bbbp", "sider", "clintox", "bace")


def test_the_printed_average_of_the_paper_is_kept_for_its_eight(tmp_path: Path):
    eight = ("bbbp", "tox21", "toxcast", "sider", "clintox", "muv", "hiv", "bace")
    factory.write_molecules(tmp_path, eight, ("untrained", "graphcl"))
    lines = _lines(tmp_path, "molecules-finetune-last")
    assert lines["GraphCL paper"][lines["Method"].index("Average of 8")] == "*71.3*"


def test_what_was_not_measured_says_so_and_is_not_averaged(tmp_path: Path):
    factory.write_molecules(tmp_path, methods=("untrained", "graphcl", "graphlog"))
    for path in (tmp_path / "cells").glob("finetune-graphcl-gin-bace-*.json"):
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
    next((tmp_path / "cells").glob("finetune-graphlog-gin-bace-s2-*.json")).unlink()
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
    grid = _tables(everything)["molecules-finetune-last"]
    rows = table_records(grid).to_dict("records")
    found = next(
        r
        for r in rows
        if r["row"] == "edgepred"
        and r["source"] == "difference to graphlog"
        and r["column"] == "Average of 4"
    )
    ours, theirs = ([grid.average(m)[s] for s in factory.SEEDS] for m in ("edgepred", "graphlog"))
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert (found["ci95_low"], found["ci95_high"]) == pytest.approx((expected.low, expected.high))
    assert found["seeds"] == 3


def test_table_3_averages_over_data_sets_and_leaves_gaps(everything: Path, tmp_path: Path):
    grid = _tables(everything)["molecules-backbones-finetune-last"]
    under = _tables(everything)["molecules-backbones-gat-finetune-last"]
    assert tuple(grid.columns) == ("gcn", "graphsage", "gat", "gin")
    for seed in factory.SEEDS:
        by_hand = statistics.fmean(under.at("graphcl", d)[seed] for d in factory.MOLECULES)
        assert grid.at("graphcl", "gat")[seed] == pytest.approx(by_hand)
    assert grid.paper["graphlog", "gat"] == (69.5, 1.0)
    assert "infograph" not in [row.key for row in grid.rows]


def test_table_3_compares_methods_with_graphlog_under_the_same_backbone(everything: Path):
    grid = _tables(everything)["molecules-backbones-gat-finetune-last"]
    lines = _lines(everything, grid.name)
    differences = [grid.average("graphcl")[s] - grid.average("graphlog")[s] for s in factory.SEEDS]
    assert grid.title.startswith("Table 3. Methods under GAT")
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
    grids = _tables(tmp_path)
    assert grids["biology-probe-fixed-c"].columns == {"worm-go40": "worm-go40"}
    assert grids["biology-others-probe-fixed-c"].columns == {"worm-yeast": "worm-yeast"}
    assert not grids["biology-others-probe-fixed-c"].averaged
    assert grids["biology-backbones-gcn-probe-fixed-c"].columns == {"worm-go40": "worm-go40"}
    said = _lines(tmp_path, "biology-backbones-probe-fixed-c")["GraphLoG"]
    assert "not measured" not in said


def test_table_4_has_the_papers_rows_and_the_default_recipe_below(everything: Path):
    grid = _tables(everything)["molecules-ablation-finetune-last"]
    assert [row.key for row in grid.rows][:8] == [*factory.LOSSES, "graphlog"]
    assert grid.rows[3].heads == ("✓", "✓", "")
    assert grid.reference == factory.LOSSES[-1]
    assert any("other data and another split" in note for note in grid.notes)


def test_the_papers_roc_auc_is_not_set_beside_errors(tmp_path: Path):
    for losses in factory.LOSSES:
        found, variant = {"last": {"test": 1.2}}, {"losses": losses}
        factory.write(
            tmp_path,
            factory.cell("finetune", "graphlog", "esol", 0, found, variant=variant, metric="rmse"),
        )
    table = _tables(tmp_path)["molecules-ablation-finetune-last-rmse"]
    assert not table.paper_rows
    assert not table_frame(table, MARKDOWN).columns.str.contains("paper").any()


def test_table_4_is_on_the_data_sets_of_the_ablation(tmp_path: Path):
    factory.write_ablation(tmp_path)
    factory.write_molecules(tmp_path, (*factory.MOLECULES, "tox21"), ("graphlog",))
    assert "tox21" not in _tables(tmp_path)["molecules-ablation-finetune-last"].columns


def test_cells_serve_every_table_whatever_suite_wrote_them(tmp_path: Path):
    factory.write_ablation(tmp_path, suite="molecules")
    assert "molecules-ablation-finetune-last" in _tables(tmp_path)


def test_domains_share_a_folder(tmp_path: Path):
    factory.write_speed(tmp_path)
    for path in list((tmp_path / "cells").glob("*.json")):
        fields = json.loads(path.read_text())
        fields |= {"domain": "protein", "config_hash": "f"}
        fields["graphs_per_s"] /= 2
        path.with_name(f"protein-{path.name}").write_text(json.dumps(fields))
    fast, slow = speed_tables(*newest_cells(BenchmarkFolder(tmp_path).load()))
    assert (fast.name, slow.name) == ("speed-molecules", "speed-biology")
    assert [row.key for row in fast.rows] == [row.key for row in slow.rows]
    for row in fast.rows:
        for column in fast.columns:
            assert (fast.at(row.key, column) / 2).tolist() == slow.at(row.key, column).tolist()


def test_latex_escapes_what_it_must():
    text = r"50% of {A_B} & $x$ #1 ~ ^ \ < > | ± " + "\N{MINUS SIGN}1 ✓"
    escaped = (
        r"50\% of \{A\_B\} \& \$x\$ \#1 \textasciitilde{} \textasciicircum{} \textbackslash{} "
        r"$<$ $>$ $|$ $\pm$ $-$1 $\checkmark$"
    )
    assert escape_latex(text) == escaped


def test_latex_marks_the_best_and_the_quoted(everything: Path):
    said = table_latex(_tables(everything)["molecules-finetune-last"])
    assert said.count(r"\textbf{") == 4
    assert r"\textit{69.5 $\pm$ 0.5}" in said
    assert r"\label{tab:molecules-finetune-last}" in said
    assert r"\toprule" in said


def test_every_table_is_plain_latex_with_as_many_fields_as_columns(everything: Path):
    for table in _tables(everything).values():
        said = table_latex(table)
        assert said.isascii(), table.name
        body = said.split(r"\toprule")[1].split(r"\bottomrule")[0]
        counts = {
            line.replace(r"\&", "").count("&") for line in body.splitlines() if line.endswith(r"\\")
        }
        assert len(counts) == 1, table.name


def test_throughput_is_compared_with_attrmasking(everything: Path):
    rows, details = newest_cells(BenchmarkFolder(everything).load())
    (table,) = speed_tables(rows, details)
    lines = [list(line) for line in table_frame(table, MARKDOWN).itertuples(index=False)]
    assert ["AttrMasking", "GIN", "790 ± 10", "1.00", "790 ± 10", "1.00", "3"] in lines
    assert ["GraphCL", "GIN", "610 ± 10", "0.77", "1,220 ± 20", "1.54", "3"] in lines
    assert set(timing_frame(rows, details)["Stage"]) == {"speed", "finetune", "probe", "map"}


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
    assert _tables(tmp_path)["molecules-backbones-finetune-last"].columns == {"gat": "GAT"}


def test_work_that_suites_share_is_timed_once(tmp_path: Path):
    one = factory.cell(
        "finetune", "graphlog", "bbbp", 0, factory.scores(("last",), 0.7, 0), seconds=10.0
    )
    factory.write(tmp_path, one)
    factory.write(tmp_path, {**one, "suite": "sensitivity", "variant": {"depth": 3}})
    found = timing_frame(*newest_cells(BenchmarkFolder(tmp_path).load()))
    assert found["Cells"].tolist() == ["1"]
    assert found["Seconds a cell"].tolist() == ["10.0"]


@pytest.mark.parametrize("mixed", [False, True])
def test_rows_of_the_old_protocol_are_marked(tmp_path: Path, mixed: bool):
    factory.write_molecules(tmp_path, methods=("untrained", "graphlog"))
    rows = BenchmarkFolder(tmp_path).load()
    if mixed:
        rows.loc[rows["method"] == "graphlog", "protocol"] = PROTOCOL
    tables = {table.name: table for table in score_tables(newest_cells(rows)[0])}
    names = table_frame(tables["molecules-finetune-last"], MARKDOWN)["Method"].tolist()
    assert ("Untrained †" in names) == mixed
    assert table_latex(tables["molecules-finetune-last"]).isascii()
    assert "GraphLoG" in names
    assert "ECFP4 + logistic regression" in names  # nothing changed for fingerprints


@pytest.mark.parametrize("name", ["molecules-ablation", "molecules-sensitivity-depth"])
def test_rows_without_pretraining_stand_beside_variants(everything: Path, name: str):
    table = _tables(everything)[f"{name}-finetune-last"]
    keys = [row.key for row in table.rows if row.group == table.rows[-1].group]
    assert keys[-3:] == ["untrained", "ecfp-rf", "ecfp-lr"]
    assert all(table.measured(key) == list(table.columns) for key in keys)
