"""Comparison of pre-training methods: suites of cells, tables of results, pages and figures."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphlog.benchmark.cells import Cell, Request, plan_cells
from graphlog.benchmark.folder import BenchmarkFolder, check_alike
from graphlog.benchmark.speed import speed_cell
from graphlog.benchmark.stages import (
    BusyError,
    Work,
    finetune_cell,
    map_cell,
    pretrain_cell,
    probe_cell,
    provenance,
    store_name,
)
from graphlog.benchmark.tables import write_pages
from graphlog.errors import (
    ConfigError,
    GraphLoGError,
    MissingExtraError,
    TrainingInterrupted,
    setting,
)
from graphlog.files import writing
from graphlog.inputs import InputLike
from graphlog.training.log import Progress

__all__ = ["Outcome", "Request", "draw_figures", "preview", "run_benchmark", "write_report"]


_COMPUTE = {
    "pretrain": pretrain_cell,
    "finetune": finetune_cell,
    "probe": probe_cell,
    "map": map_cell,
    "speed": speed_cell,
}
"""Functions that yield the rows of a cell, by stage."""
_POLL_S = 2.0
"""Seconds between two checks of cells that other processes compute."""


@dataclass(slots=True)
class Outcome:
    """Cells that were computed, failed or were skipped in one run."""

    total: int
    """Number of cells of the request."""
    computed: list[str] = field(default_factory=list[str])
    """Titles of the cells that this process computed."""
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """Error messages of failed cells, by title."""
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    """Messages that name the missing optional package of skipped cells, by title."""


def run_benchmark(
    request: Request, output: str | Path, *, progress: Progress | None = None
) -> Outcome:
    """Compute every missing cell of a suite, then write the report.

    Several processes may share ``output``; each cell is computed by one of them. A killed run
    resumes: at most the steps since the last checkpoint are lost.

    Args:
        request: The suite and the selected part of it.
        output: Folder of tables, models and the report.
        progress: Object that receives progress; None reports none.

    Returns:
        The computed, failed and skipped cells.

    Raises:
        ConfigError: If a name is unknown (the nearest one is suggested), or if the folder has rows
            of another scale, or of encoders that were calibrated on other graphs.
        TrainingInterrupted: After Ctrl-C; finished cells and checkpoints are kept.
    """
    cells, folder = plan_cells(request), BenchmarkFolder(Path(output))
    work = Work(folder, progress or Progress())
    folder.make()
    rows = folder.rows(cells[0].table)
    encoders = [cell for cell in cells if cell.pretraining]
    # checked before any work
    check_alike("of scale", [*rows["scale"], request.scale], folder.path)
    if len(rows) and encoders:
        name = store_name(encoders[0], work.unlabeled(encoders[0]))
        check_alike("calibrated on", [*rows["calibrated_on"], name], folder.path)
    outcome = _run(cells, work)
    if folder.names():
        write_report(output)
    return outcome


def preview(request: Request, output: str | Path) -> list[tuple[Cell, bool]]:
    """Return the cells of a suite and whether each is finished, without writing anything."""
    folder = BenchmarkFolder(Path(output))
    return [(cell, folder.is_finished(cell)) for cell in plan_cells(request)]


def write_report(output: str | Path) -> list[Path]:
    """Write the tables of a folder as pages and figures into its subfolder ``report``.

    Returns:
        The files: pages and figures.

    Raises:
        DataError: If the folder has no finished cells.
    """
    folder = BenchmarkFolder(Path(output))
    return write_pages(folder, folder.path / "report")


def draw_figures(
    folder: str | Path, out: str | Path, source: InputLike | None = None, **options: Any
) -> list[Path]:
    """Draw the figures of a run or benchmark and return the files, a PNG and an SVG of each figure.

    Args:
        folder: Run folder of ``pretrain``, ``finetune`` or ``probe``, or folder of a benchmark.
        out: Folder for the figures; files of the same names are replaced.
        source: Graphs to map; None uses those the run was trained on, if they can still be read. A
            benchmark has its own maps.
        options: ``graphs``, ``seed``, ``say`` and options of reading ``source``; see
            :func:`graphlog.report.run.draw_run`. They are not used for a benchmark.

    Raises:
        ConfigError: If ``folder`` is neither.
        DataError: If there is nothing to draw.
        MissingExtraError: If matplotlib is not installed.
    """
    folder, out = Path(folder), Path(out)
    from graphlog.report.run import draw_run

    if not BenchmarkFolder.is_at(folder):
        return draw_run(folder, out, source, **options)
    if source is not None:
        raise ConfigError(
            f"{folder} is the folder of a benchmark, which has its own maps; "
            f"drop {setting('source')}.",
            option="source",
        )
    with writing(out):
        from graphlog.benchmark.figures import draw_pages

        drawn = draw_pages(BenchmarkFolder(folder), out)
        return [path for page in drawn.values() for paths in page.values() for path in paths]


def _run(cells: Sequence[Cell], work: Work) -> Outcome:
    """Compute every missing cell, and wait for those that other processes compute."""
    outcome, pending, failed_models = Outcome(len(cells)), list(cells), set[str]()
    while pending:
        busy = [cell for cell in pending if not _complete(cell, work, outcome, failed_models)]
        if busy and len(busy) == len(pending):
            work.progress.say(f"waiting for {len(busy)} cells that other processes compute")
            time.sleep(_POLL_S)
        pending = busy
    return outcome


def _complete(cell: Cell, work: Work, outcome: Outcome, failed_models: set[str]) -> bool:
    """Compute a cell if it is missing; return False if another process is computing it.

    ``failed_models`` are the models whose pre-training failed.
    """
    folder, say = work.folder, work.progress.say
    if folder.has(cell):
        return True
    is_timed = cell.stage == "speed"  # of all processes, only one measures times
    with folder.claimed("speed" if is_timed else cell.hash) as claimed:
        if not claimed or folder.has(cell):
            return claimed
        if cell.model in failed_models:
            outcome.failed[cell.title] = "its pre-training failed"
            return True
        start = time.monotonic()
        try:
            rows = list(_COMPUTE[cell.stage](cell, work))
            seconds = time.monotonic() - start
            encoder = {k: rows[0][k] for k in ("prototypes", "calibrated_on") if k in rows[0]}
            rows.append({**encoder, "metric": "seconds", "value": round(seconds, 3)})
            folder.write(cell, rows, provenance(cell))
        except BusyError:
            return False
        except TrainingInterrupted:
            raise
        except GraphLoGError as e:
            if isinstance(e, MissingExtraError) and cell.request.methods is None:
                outcome.skipped[cell.title] = str(e)
                say(f"{cell.title} is left out: {e}")
                return True
            if cell.stage == "pretrain":
                failed_models.add(cell.model)
            outcome.failed[cell.title] = str(e)
            folder.fail(cell, e)
            say(f"{cell.title} failed: {e}")
            return True
    outcome.computed.append(cell.title)
    number = len(outcome.computed) + len(outcome.failed) + len(outcome.skipped)
    say(f"[{number}/{outcome.total}] {cell.title}: {seconds:.1f} s")
    return True
