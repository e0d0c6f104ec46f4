"""The tables and curves of the paper as grids of our cells."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from graphlog.benchmark import paper
from graphlog.benchmark.scales import SCALES
from graphlog.benchmark.tables.book import ScoreBook
from graphlog.benchmark.tables.cells import FEATURE_BASELINES, Cell, Variant
from graphlog.benchmark.tables.grid import Grid, Row
from graphlog.benchmark.tables.names import (
    BACKBONES,
    DATASETS,
    LOSSES,
    METHODS,
    PLACES,
    RULES,
    STAGES,
    VARIED,
    in_order,
    label,
)
from graphlog.benchmark.tables.provenance import provenance
from graphlog.benchmark.tables.stats import Series, mean_over

MAIN_BACKBONE, REFERENCE = "gin", "graphlog"
FULL = "+".join(LOSSES)
FOLDS = {"test_first_half": "first half", "test_second_half": "second half"}
_OTHER_DATA = "paper (biology, 8 species)"
_OTHER_DATA_NOTE = (
    f"Paper: {paper.SOURCE}, {paper.RUNS} runs, pre-trained on 395,000 protein ego-networks and fine-tuned on 40 functions of eight "
    "species, tested on a species not trained on: other data than ours, and another split. Compare orders and differences, not levels."
)
_ATTRIBUTES_NOTE = 'The paper\'s rows leave out the attribute prediction of the default recipe; the row "and attributes" has it.'
_DEFAULT_NOTE = (
    "GraphLoG is its recipe `default`, which predicts attributes beside the paper's three losses; the rows `graphlog-paper` and "
    "`graphlog-released` are the equations and the authors' script to the letter, where they were run."
)
_OTHERS_NOTE = "No average: each column is a question of its own, and the encoders are those of the main table."
_STATISTICS = "Statistics + logistic regression"
_STATISTICS_NOTE = "Statistics: 18 numbers of each ego-network (sizes, degrees, channels), not trained further, in the place of fingerprints."
_FINGERPRINTS_NOTE = (
    "Fingerprints are not trained further: a forest has one score, which stands under every rule; logistic regression is shown at C = 0.1 "
    "beside the last epoch, and at C by validation beside the best one."
)

Picked = dict[Row, list[Cell]]
"""The rows of a table and the cells of each."""


def score_grids(cells: Iterable[Cell]) -> list[Grid]:
    """Return every table that cells of one scale have scores for, in the paper's order."""
    book = ScoreBook(cells)
    plain = [c for c in book.cells if not c.variant]
    found: list[Grid] = []
    for domain, stage, rule in [
        (d, s, r)
        for d in ("molecule", "protein")
        if d in book.domains()
        for s in STAGES
        for r in book.rules(s)
    ]:
        build = _Builder(book, domain, stage, rule)
        if any(c.domain == domain and c.stage == stage for c in plain):
            found += build.methods()
        found += (
            build.backbones()
            + build.ablation()
            + [grid for name in VARIED for grid in build.sensitivity(name)]
        )
    return found


class _Builder:
    """Builds the grids of one domain, stage and selection rule."""

    def __init__(self, book: ScoreBook, domain: str, stage: str, rule: str) -> None:
        self.book, self.domain, self.stage, self.rule = book, domain, stage, rule
        self.here = [
            c
            for c in book.cells
            if c.domain == domain and (c.stage == stage or c.method in FEATURE_BASELINES)
        ]
        self.place = PLACES.get(domain, domain)
        self.printed_as = "paper" if stage == "finetune" else "paper (fine-tuned)"

    def methods(self) -> list[Grid]:
        """Return Table 1 (molecules) or 2 (biology): methods on data sets, under the paper's backbone."""
        rows = self._method_rows(MAIN_BACKBONE)
        if self.domain == "molecule":
            grids = self._grids(
                "methods", self.place, "Table 1. Molecular properties", ("Method",), rows, REFERENCE
            )
            return [
                replace(g, notes=(*g.notes, _DEFAULT_NOTE, _FINGERPRINTS_NOTE))
                for g in map(self._with_table_1, grids)
            ]
        found: list[Grid] = []
        for name, addition, reference, part in self._usual_and_others(rows):
            for grid in self._grids(
                "methods",
                name,
                f"Table 2. Biological functions{addition}",
                ("Method",),
                part,
                reference,
            ):
                told = replace(grid, notes=(*grid.notes, _DEFAULT_NOTE, _STATISTICS_NOTE))
                others = replace(told, averaged=False, notes=(_OTHERS_NOTE, *told.notes))
                found += [
                    self._beside(told, paper.TABLE_2) if reference else others,
                    *self._halves(told, part),
                ]
        return found

    def backbones(self) -> list[Grid]:
        """Return Table 3: the average over data sets of each method under each backbone, and under each the data sets one by one."""
        found = in_order(
            {
                c.backbone
                for c in self.here
                if c.backbone and not c.variant and c.stage == self.stage
            },
            BACKBONES,
        )
        if found in ([], [MAIN_BACKBONE]):
            return []
        others = {
            c.dataset
            for c in self.here
            if c.backbone not in (None, MAIN_BACKBONE) and c.stage == self.stage
        }
        rows: Picked = {}
        for group, backbone in enumerate(found):
            for row, cells in self._method_rows(
                backbone, tuple(paper.TABLE_3), baselines=False
            ).items():
                if row.key in self._methods_of_several_backbones():
                    named = (*row.heads, label(backbone, BACKBONES))
                    # data sets that the main backbone alone was measured on would make its average another one
                    rows[Row(f"{row.key}/{backbone}", named, ", ".join(named), group)] = [
                        c for c in cells if c.dataset in others
                    ]
        heads = ("Method", "Backbone")
        return [
            grid
            for detail in self._grids(
                "detail", "backbones", "Table 3. Methods under each backbone", heads, rows, None
            )
            for grid in (
                self._summary(detail, found),
                *(self._under(detail, backbone) for backbone in found),
            )
        ]

    def ablation(self) -> list[Grid]:
        """Return Table 4: GraphLoG with some of its losses."""
        if not any(self._is_varied(c, "losses") for c in self.here):
            return []
        rows: Picked = {}
        for losses in paper.TABLE_4:
            ticks = tuple("✓" if loss in losses.split("+") else "" for loss in LOSSES)
            cells = self._varied({"losses": losses})
            rows[
                Row(
                    losses,
                    ticks,
                    losses.replace("+", " + "),
                    min(losses.count("+"), 1) + (losses == FULL),
                )
            ] = cells
        asked = {c.dataset for cells in rows.values() for c in cells}
        if plain := [c for c in self._varied({}) if c.dataset in asked]:
            rows[Row("default", ("✓", "✓", "✓ and attributes"), "default recipe", 3)] = plain
        grids = self._grids(
            "ablation",
            "ablation",
            "Table 4. GraphLoG with some of its losses",
            tuple(LOSSES.values()),
            rows,
            FULL,
        )
        return [
            self._beside(
                replace(grid, reference_label="all three", notes=(_ATTRIBUTES_NOTE, *grid.notes)),
                paper.TABLE_4,
            )
            for grid in grids
        ]

    def sensitivity(self, name: str) -> list[Grid]:
        """Return one curve of Figure 3: the score for each value of a setting."""
        values = sorted(
            {v for c in self.here if self._is_varied(c, name) for k, v in c.variant if k == name},
            key=float,
        )
        if not values:
            return []
        rows: Picked = {
            Row(f"{value}", (f"{value}",), f"{value}"): self._varied({name: value})
            for value in values
        }
        head = VARIED[name].capitalize()
        grids = self._grids(
            name, f"sensitivity-{name.replace('_', '-')}", f"Figure 3. {head}", (head,), rows, None
        )
        known = {str(value): printed for value, printed in paper.FIGURE_3_KNOWN[name].items()}
        return [self._beside(grid, known) for grid in grids]

    def _usual_and_others(self, rows: Picked) -> list[tuple[str, str, str | None, Picked]]:
        """Return the data sets that the suite runs by itself, and those it was asked for beside them: name, title, reference, cells."""
        usual = {
            d
            for scale in SCALES.values()
            for frame in scale.frames.values()
            for d in (*frame.finetuned, *frame.probed)
        }
        if not any(
            c.dataset in usual and c.method not in FEATURE_BASELINES
            for cells in rows.values()
            for c in cells
        ):
            return [(self.place, "", REFERENCE, rows)]
        own, others = (
            {row: [c for c in cells if (c.dataset in usual) == mine] for row, cells in rows.items()}
            for mine in (True, False)
        )
        return [
            (self.place, "", REFERENCE, own),
            (f"{self.place}-others", ", other splits and species", None, others),
        ]

    def _methods_of_several_backbones(self) -> set[str]:
        pairs = {
            (c.method, c.backbone) for c in self.here if not c.variant and c.stage == self.stage
        }
        return {
            *paper.TABLE_3,
            *(
                method
                for method, count in Counter(method for method, _ in pairs).items()
                if count > 1
            ),
        }

    def _is_varied(self, cell: Cell, name: str) -> bool:
        return cell.method == REFERENCE and [k for k, _ in cell.variant] == [name]

    def _varied(self, variant: dict[str, str | int | float | bool]) -> list[Cell]:
        return self._here(
            self.book.chosen(self.stage, REFERENCE, MAIN_BACKBONE, tuple(sorted(variant.items())))
        )

    def _method_rows(
        self, backbone: str, always: Sequence[str] = tuple(paper.TABLE_1), baselines: bool = True
    ) -> Picked:
        """Return the paper's methods, measured or not, then the others that were measured."""
        measured = {c.method for c in self.here if not c.variant and c.backbone in (backbone, None)}
        features = FEATURE_BASELINES if self.domain == "molecule" else ()
        rows: Picked = {}
        for method in in_order({*always, *measured, *features}, METHODS):
            if method in FEATURE_BASELINES and not baselines:
                continue
            group = (
                3
                if method in FEATURE_BASELINES
                else 1
                if method in always[1:-1]
                else 0
                if method == always[0]
                else 2
            )
            nothing: Variant = ()
            cells = self._here(
                self.book.chosen(
                    self.stage, method, None if method in FEATURE_BASELINES else backbone, nothing
                )
            )
            name = (
                _STATISTICS
                if method in FEATURE_BASELINES and self.domain == "protein"
                else label(method, METHODS)
            )
            rows[Row(method, (name,), name, group)] = cells
        return rows

    def _here(self, cells: Iterable[Cell]) -> list[Cell]:
        return [c for c in cells if c.domain == self.domain]

    def _grids(
        self,
        kind: str,
        name: str,
        title: str,
        heads: tuple[str, ...],
        rows: Picked,
        reference: str | None,
    ) -> list[Grid]:
        """Return a grid of rows on data sets for each metric; data sets that only feature baselines were scored on are left out."""
        encoders = [
            c for cells in rows.values() for c in cells if c.method not in FEATURE_BASELINES
        ]
        by_metric: dict[str, set[str]] = {}
        for cell in encoders:
            by_metric.setdefault(cell.metric, set()).add(str(cell.dataset))
        shared = name if self.place in name else f"{self.place}-{name}"
        grids: list[Grid] = []
        for metric, datasets in sorted(by_metric.items(), key=lambda item: item[0] != "roc_auc"):
            columns = tuple(in_order(datasets, DATASETS))
            grids.append(
                Grid(
                    name="-".join(
                        [
                            shared,
                            self.stage,
                            self.rule.lower(),
                            *([metric.replace("_", "-")] if metric != "roc_auc" else []),
                        ]
                    ),
                    kind=kind,
                    title=f"{title}: {label(self.stage, STAGES)}, {label(self.rule, RULES)}",
                    heads=heads,
                    rows=tuple(rows),
                    columns=columns,
                    labels={c: label(c, DATASETS) for c in columns},
                    metric=metric,
                    series=self._series(rows, columns, "test"),
                    reference=reference,
                    reference_label=label(reference or "", METHODS),
                    notes=provenance(
                        [c for cells in rows.values() for c in cells if c.dataset in columns]
                    ),
                )
            )
        return grids

    def _series(
        self, rows: Picked, columns: Sequence[str], fold: str
    ) -> dict[tuple[str, str], Series]:
        return {
            (row.key, column): self.book.series(
                [c for c in cells if c.dataset == column], self.rule, fold
            )
            for row, cells in rows.items()
            for column in columns
        }

    def _with_table_1(self, grid: Grid) -> Grid:
        printed = {
            (row.key, column): value
            for row in grid.rows
            for column in grid.columns
            if (value := paper.paper_score(paper.TABLE_1, paper.TABLE_1_DATASETS, row.key, column))
            is not None
        }
        absent = [label(c, DATASETS) for c in paper.TABLE_1_DATASETS if c not in grid.columns]
        notes = (
            [f"Of the paper's eight data sets not measured: {', '.join(absent)}."] if absent else []
        )
        notes.append(
            f"Paper: {paper.SOURCE}, Table 1, {paper.RUNS} runs, fine-tuned; averages of other columns than its eight are derived."
        )
        return replace(
            grid,
            printed=printed,
            printed_average=paper.TABLE_1_AVERAGE,
            printed_head=self.printed_as,
            notes=(*notes, *grid.notes),
        )

    @staticmethod
    def _beside(grid: Grid, printed: Mapping[str, paper.Printed]) -> Grid:
        """Return a grid with a column of the paper's numbers, which are of other data."""
        return replace(
            grid,
            printed_rows=printed,
            printed_head=_OTHER_DATA,
            notes=(_OTHER_DATA_NOTE, *grid.notes),
        )

    def _halves(self, grid: Grid, rows: Picked) -> list[Grid]:
        """Return the scores on the two halves of the test set, where they were kept apart."""
        series: dict[tuple[str, str], Series] = {}
        for fold, words in FOLDS.items():
            for (row, column), values in self._series(rows, grid.columns, fold).items():
                series[row, f"{column}, {words}"] = values
        columns = tuple(f"{column}, {words}" for column in grid.columns for words in FOLDS.values())
        if not any(series.values()):
            return []
        name, title = f"{grid.name}-halves", f"{grid.title}, the two halves of the test set"
        labels = {c: c for c in columns}
        return [
            replace(
                grid,
                name=name,
                kind="halves",
                title=title,
                columns=columns,
                labels=labels,
                series=series,
                reference=None,
                averaged=False,
            )
        ]

    @staticmethod
    def _under(detail: Grid, backbone: str) -> Grid:
        """Return methods on data sets under one backbone, compared with GraphLoG under the same."""
        rows = (row for row in detail.rows if row.key.rpartition("/")[2] == backbone)
        return replace(
            detail,
            name=detail.name.replace("backbones", f"backbones-{backbone}"),
            title=detail.title.replace("each backbone", label(backbone, BACKBONES)),
            heads=("Method",),
            rows=tuple(
                replace(row, heads=row.heads[:1], label=row.heads[0], group=0) for row in rows
            ),
            reference=f"{REFERENCE}/{backbone}",
            reference_label=METHODS[REFERENCE],
        )

    def _summary(self, detail: Grid, backbones: Sequence[str]) -> Grid:
        """Return methods on backbones from methods and backbones on data sets."""
        methods = list(dict.fromkeys(row.key.rpartition("/")[0] for row in detail.rows))
        groups = {
            method: 0 if method == "untrained" else 2 if method == REFERENCE else 1
            for method in methods
        }
        series = {(m, b): _fractions(detail, f"{m}/{b}") for m in methods for b in backbones}
        printed = {
            (m, b): value
            for m in methods
            for b in backbones
            if (value := paper.paper_score(paper.TABLE_3, paper.TABLE_3_BACKBONES, m, b))
            is not None
        }
        over = ", ".join(detail.labels[c] for c in detail.columns)
        return replace(
            detail,
            kind="backbones",
            heads=("Method",),
            rows=tuple(Row(m, (label(m, METHODS),), label(m, METHODS), groups[m]) for m in methods),
            columns=tuple(backbones),
            labels={b: label(b, BACKBONES) for b in backbones},
            series=series,
            printed=printed,
            printed_head=f"{self.printed_as}, biology",
            reference=REFERENCE,
            averaged=False,
            reference_label=METHODS[REFERENCE],
            notes=(
                f"Averages over {over}, per seed; none where one of them was not measured.",
                _OTHER_DATA_NOTE,
                *detail.notes,
            ),
        )


def _fractions(grid: Grid, row: str) -> Series:
    return mean_over([grid.series.get((row, column), {}) for column in grid.columns])
