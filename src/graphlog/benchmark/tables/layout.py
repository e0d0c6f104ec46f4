"""How a grid is laid out as a sheet: ours measured beside the paper's, averages, ranks, differences."""

import math
from collections.abc import Iterator
from typing import Any

from graphlog.benchmark.tables.grid import Grid, Row
from graphlog.benchmark.tables.names import DASH, METRICS, MINUS, label
from graphlog.benchmark.tables.sheet import Item, Sheet
from graphlog.benchmark.tables.stats import Series, Spread, spread

MISSING = "not measured"
LEFT_OUT = "clintox"
"""The data set whose swings move averages most: 58 to 97 across published methods."""


def lay_out(grid: Grid) -> Sheet:
    """Return a grid as a sheet."""
    rows: list[tuple[Item, ...]] = []
    rules: set[int] = set()
    ranks, best = grid.ranks() if _compares(grid) else {}, {c: grid.best(c) for c in grid.columns}
    paper_rows = bool(grid.printed)
    for before, row in zip([None, *grid.rows], grid.rows, strict=False):
        if before is not None and before.group != row.group:
            rules.add(len(rows))
        rows.append(_measured(grid, row, ranks, best))
        if paper_rows and any(key == row.key for key, _ in grid.printed):
            rows.append(_quoted(grid, row))
    return Sheet(
        name=grid.name,
        title=grid.title,
        heads=_heads(grid),
        rows=tuple(rows),
        named=len(grid.heads) + paper_rows,
        rules=frozenset(rules),
        notes=(*_legend(grid), *grid.notes),
        records=tuple(_records(grid)),
    )


def number(value: float, grid: Grid, signed: bool = False) -> str:
    """Return a score as printed: one place in per cent, three otherwise."""
    places = 1 if grid.factor > 1 else 3
    text = f"{value:{'+' if signed else ''}.{places}f}"
    return text.replace("-", MINUS)


def _heads(grid: Grid) -> tuple[str, ...]:
    source = ("",) if grid.printed else ()
    averages = tuple(name for name, _ in _averages(grid))
    rank = ("Rank",) if _compares(grid) else ()
    change = (f"Δ to {grid.reference_label} [95 % CI]",) if _compares(grid) else ()
    paper = (grid.printed_head,) if grid.printed_rows else ()
    return (
        *grid.heads,
        *source,
        *(grid.labels[c] for c in grid.columns),
        *averages,
        *rank,
        "Seeds",
        *change,
        *paper,
    )


def _measured(
    grid: Grid, row: Row, ranks: dict[str, float], best: dict[str, str | None]
) -> tuple[Item, ...]:
    usual = max((len(grid.at(row.key, c)) for c in grid.columns), default=0)
    items = [Item(head) for head in row.heads] + ([Item("measured")] if grid.printed else [])
    items += [
        Item(_score(grid, grid.at(row.key, c), usual), strong=best[c] == row.key)
        for c in grid.columns
    ]
    for _, without in _averages(grid):
        average = grid.average(row.key, without)
        items.append(
            Item(_score(grid, average, usual) if average else _lacking(grid, row, without))
        )
    if _compares(grid):
        items.append(Item(f"{ranks[row.key]:.1f}" if row.key in ranks else DASH))
    items.append(Item(_seeds(grid, row)))
    if _compares(grid):
        items.append(Item(_change(grid, row)))
    if grid.printed_rows:
        printed = grid.printed_rows.get(row.key)
        items.append(
            Item(
                DASH if printed is None else _plus_minus(grid, *printed), quoted=printed is not None
            )
        )
    return tuple(items)


def _quoted(grid: Grid, row: Row) -> tuple[Item, ...]:
    items = [Item("") for _ in row.heads] + [Item(grid.printed_head, quoted=True)]
    for column in grid.columns:
        printed = grid.printed.get((row.key, column))
        items.append(
            Item(
                DASH if printed is None else _plus_minus(grid, *printed), quoted=printed is not None
            )
        )
    for _, without in _averages(grid):
        average = grid.paper_average(row.key, without)
        if (
            not math.isnan(average)
            and not without
            and len(grid.columns) == 8
            and row.key in grid.printed_average
        ):
            average = grid.printed_average[row.key]
        items.append(
            Item(
                DASH if math.isnan(average) else number(average, grid),
                quoted=not math.isnan(average),
            )
        )
    blanks = 1 + 2 * _compares(grid) + bool(grid.printed_rows)
    return (*items, *(Item("") for _ in range(blanks)))


def _averages(grid: Grid) -> list[tuple[str, tuple[str, ...]]]:
    """Return the heads of the averages and the columns they leave out."""
    count = len(grid.columns)
    if not grid.averaged or count < 2:
        return []
    found: list[tuple[str, tuple[str, ...]]] = [(f"Average of {count}", ())]
    if LEFT_OUT in grid.columns and count > 2:
        found.append((f"without {grid.labels[LEFT_OUT]}", (LEFT_OUT,)))
    return found


def _compares(grid: Grid) -> bool:
    return grid.averaged and grid.reference is not None and len(grid.rows) > 1


def _score(grid: Grid, series: Series, usual: int) -> str:
    if not series:
        return MISSING
    found = spread(series)
    if math.isnan(found.mean):
        undefined = sum(math.isnan(v) for v in series.values())
        return f"undefined ({undefined} of {found.count})"
    fewer = f" ({found.count} seed{'s' * (found.count > 1)})" if found.count < usual else ""
    return _plus_minus(grid, found.mean, found.sd) + fewer


def _plus_minus(grid: Grid, mean: float, sd: float | None) -> str:
    return (
        number(mean, grid)
        if sd is None or math.isnan(sd)
        else f"{number(mean, grid)} ± {number(sd, grid)}"
    )


def _lacking(grid: Grid, row: Row, without: tuple[str, ...]) -> str:
    """Return why a row has no average."""
    wanted = [c for c in grid.columns if c not in without]
    found = [c for c in grid.measured(row.key) if c in wanted]
    if len(found) == len(wanted):
        return "no seed in common"
    return f"{MISSING} ({len(found)} of {len(wanted)})" if found else MISSING


def _seeds(grid: Grid, row: Row) -> str:
    found = [grid.at(row.key, c) for c in grid.measured(row.key)]
    if not found:
        return "0"
    if all(None in series for series in found):
        return "none drawn"
    counts = sorted({len(series) for series in found if None not in series})
    text = str(counts[0]) if len(counts) == 1 else f"{counts[0]}{DASH}{counts[-1]}"
    return f"{text} (no SD)" if counts == [1] else text


def _change(grid: Grid, row: Row) -> str:
    if row.key == grid.reference:
        return "reference"
    found = grid.difference(row.key)
    if math.isnan(found.mean):
        return MISSING
    seeds = max(len(grid.average(key)) for key in (row.key, grid.reference or row.key))
    return _interval(grid, found) + (
        f" ({found.count} of {seeds} seeds)" if 1 < found.count < seeds else ""
    )


def _interval(grid: Grid, found: Spread) -> str:
    low, high = found.interval()
    if math.isnan(low):
        return f"{number(found.mean, grid, signed=True)} (one seed, no CI)"
    return f"{number(found.mean, grid, signed=True)} [{number(low, grid, signed=True)}, {number(high, grid, signed=True)}]"


def _legend(grid: Grid) -> Iterator[str]:
    unit = " in per cent" if grid.factor > 1 else ""
    yield f"Test {label(grid.metric, METRICS)}{unit}: mean ± sample standard deviation over seeds; bold: best measured mean of the column."
    if _averages(grid):
        yield "Averages: per seed over the data sets shown, then over the seeds that all of them have; none where one was not measured."
    if _compares(grid):
        yield "Rank: mean over the data sets of the rank among the rows measured in full, 1 is best."
    if _compares(grid):
        over = "the average over data sets" if len(grid.columns) > 1 else "the score"
        yield (
            f"Δ: {over} minus that of {grid.reference_label} with the same seed, mean over seeds; 95 % Student-t interval over seeds. "
            "A row without seeds meets every seed."
        )


def _records(grid: Grid) -> Iterator[dict[str, Any]]:
    for row in grid.rows:
        for column in grid.columns:
            yield _record(grid, row, "measured", column, spread(grid.at(row.key, column)))
            printed = grid.printed.get((row.key, column))
            if printed is not None:
                yield _record(
                    grid,
                    row,
                    "paper",
                    column,
                    Spread(printed[0], math.nan if printed[1] is None else printed[1], 0),
                )
        for name, without in _averages(grid):
            yield _record(grid, row, "measured", name, spread(grid.average(row.key, without)))
            if grid.printed:
                yield _record(
                    grid,
                    row,
                    "paper (mean of the columns)",
                    name,
                    Spread(grid.paper_average(row.key, without), math.nan, 0),
                )
        if row.key in grid.printed_rows:
            mean, sd = grid.printed_rows[row.key]
            yield _record(
                grid,
                row,
                "paper",
                grid.printed_head,
                Spread(mean, math.nan if sd is None else sd, 0),
            )
        if _compares(grid) and row.key != grid.reference:
            for column in grid.columns:
                yield _record(
                    grid,
                    row,
                    f"difference to {grid.reference}",
                    column,
                    grid.difference(row.key, column),
                )
            if len(grid.columns) > 1:
                yield _record(
                    grid,
                    row,
                    f"difference to {grid.reference}",
                    f"Average of {len(grid.columns)}",
                    grid.difference(row.key),
                )


def _record(grid: Grid, row: Row, source: str, column: str, found: Spread) -> dict[str, Any]:
    low, high = found.interval() if source != "paper" else (math.nan, math.nan)
    return {
        "table": grid.name,
        "metric": grid.metric,
        "row": row.key,
        "source": source,
        "column": column,
        "mean": found.mean,
        "sd": found.sd,
        "seeds": found.count if not source.startswith("paper") else None,
        "ci95_low": low,
        "ci95_high": high,
    }
