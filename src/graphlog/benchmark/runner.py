"""Runs the missing cells of a suite, and the public calls of the benchmark."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphlog.benchmark.cells import STAGES, CellSpec
from graphlog.benchmark.folder import BenchmarkFolder
from graphlog.benchmark.pages import draw_pages, write_pages
from graphlog.benchmark.plan import Request, plan_cells
from graphlog.benchmark.speed import speed_cell, stage_cell
from graphlog.benchmark.stages import (
    CellContext,
    finetune_cell,
    map_cell,
    pretrain_cell,
    probe_cell,
)
from graphlog.errors import ConfigError, GraphLoGError
from graphlog.files import writing
from graphlog.inputs import InputLike
from graphlog.training.log import Progress, Silent
from graphlog.training.trainer import TrainingInterrupted

COMPUTE = {
    "pretrain": pretrain_cell,
    "finetune": finetune_cell,
    "probe": probe_cell,
    "map": map_cell,
    "speed": speed_cell,
    "stage-speed": stage_cell,
}
"""How a cell of each stage is computed."""
_POLL_S = 2.0


@dataclass(frozen=True, slots=True)
class Preview:
    """What a suite would compute."""

    cells: tuple[CellSpec, ...]
    """All cells, in the order of their computation."""
    finished: frozenset[str]
    """Keys of those that are finished already."""

    def stages(self) -> list[tuple[str, int, int]]:
        """Return for each stage its name, the number of its cells and of the finished ones."""
        keys = {s: [spec.key for spec in self.cells if spec.stage == s] for s in STAGES}
        return [(s, len(k), len(self.finished.intersection(k))) for s, k in keys.items() if k]


@dataclass(slots=True)
class Outcome:
    """What became of the cells in one run."""

    total: int
    computed: list[str] = field(default_factory=list[str])
    """Keys of the cells that this process computed."""
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """Error messages of the cells that could not be computed, by key."""
    waiting: list[str] = field(default_factory=list[str])
    """Cells that need a model that no process is training."""


def run_benchmark(
    suite: str, output: str | Path, *, progress: Progress | None = None, **choices: Any
) -> Outcome:
    """Compute every missing cell of a suite, then write the report.

    Several processes may share ``output``; each cell is computed by one of them. A killed run
    resumes: at most the steps since the last checkpoint are lost.

    Args:
        suite: ``molecules``, ``biology``, ``backbones``, ``ablation``, ``sensitivity``,
            ``embedding-map`` or ``speed``.
        output: Folder of tables, models and the report.
        progress: Receives progress; None: nobody.
        choices: ``scale``, ``methods``, ``datasets``, ``seeds``, ``backbones``, ``domain``,
            ``stages``, ``source``, ``split``, ``device``, ``precision``; see
            :class:`~graphlog.benchmark.plan.Request`.

    Returns:
        The computed, failed and waiting cells.

    Raises:
        ConfigError: If a name is unknown; the nearest one is suggested.
        TrainingInterrupted: After Ctrl-C.
    """
    folder = BenchmarkFolder(Path(output))
    cells = plan_cells(Request(suite, **choices))
    folder.make()
    folder.merge()
    outcome = Runner(cells, CellContext(folder, progress or Silent())).run()
    folder.merge()
    if not folder.load().empty:
        write_report(output)
    return outcome


def preview(suite: str, output: str | Path, **choices: Any) -> Preview:
    """Return the cells of a suite and which are finished; nothing is written.

    Arguments are those of :func:`run_benchmark`.
    """
    folder = BenchmarkFolder(Path(output))
    cells = plan_cells(Request(suite, **choices))
    return Preview(tuple(cells), frozenset(s.key for s in cells if folder.is_finished(s)))


def write_report(output: str | Path) -> list[Path]:
    """Render the cells of a folder as tables and figures into ``report``.

    Returns:
        The files: pages, CSV, LaTeX and figures.

    Raises:
        DataError: If there are no cells.
    """
    folder = BenchmarkFolder(Path(output))
    folder.merge()
    return write_pages(folder, folder.path / "report")


def draw_figures(
    folder: str | Path, out: str | Path, source: InputLike | None = None, **options: Any
) -> list[Path]:
    """Draw the figures of a run or a benchmark and return the files written, PNG and SVG of each.

    Args:
        folder: Run folder of ``pretrain`` or ``finetune``, or folder of a benchmark.
        out: Folder for the figures.
        source: Graphs to map; None takes those the run was trained on, if they can still be read.
        options: ``graphs``, ``color``, ``seed``, ``say`` and those of the reader of
            :func:`graphlog.report.run.draw_run`; a benchmark has its own maps.

    Raises:
        ConfigError: If ``folder`` is neither, or ``out`` holds the figures of another run.
        DataError: If there is nothing to draw.
        MissingExtraError: If matplotlib is not installed.
    """
    folder, out = Path(folder), Path(out)
    from graphlog.report.run import draw_run
    from graphlog.report.style import figures_of

    if not BenchmarkFolder.is_at(folder):
        return draw_run(folder, out, source, **options)
    if source is not None or options.get("color") is not None:
        raise ConfigError(
            f"{folder} is the folder of a benchmark, which has its own maps; "
            "drop `source` and `color`."
        )
    with figures_of(folder, out), writing(out):
        return draw_pages(BenchmarkFolder(folder), out)


class Runner:
    """One process at work on the cells of a folder.

    Args:
        cells: Cells to compute, in this order as far as they do not wait for each other.
        context: The folder and who is told.
    """

    def __init__(self, cells: Sequence[CellSpec], context: CellContext) -> None:
        self.context, self.folder, self.say = context, context.folder, context.progress.say
        self.pending = list(cells)
        self.outcome = Outcome(len(cells))
        self._failed_models: set[str] = set()

    def run(self) -> Outcome:
        """Compute every missing cell; cells of other processes are waited for.

        Raises:
            TrainingInterrupted: After Ctrl-C; finished cells and checkpoints are kept.
        """
        announced = False
        while self.pending:
            before, held = len(self.pending), 0
            for spec in list(self.pending):
                state = self._try(spec)
                held += state == "held"
                if state == "done":
                    self.pending.remove(spec)
            if len(self.pending) < before:
                continue
            if not held:
                self.outcome.waiting = [spec.key for spec in self.pending]
                break
            if not announced:
                self.say(f"waiting for {held} cell{'s' * (held != 1)} of other processes")
            announced = True
            time.sleep(_POLL_S)
        return self.outcome

    def _try(self, spec: CellSpec) -> str:
        """Return whether a cell is ``done`` with, ``held`` by another process, or ``waiting``."""
        if self._is_done(spec):
            return "done"
        needed = "" if spec.stage == "pretrain" else spec.model
        if needed in self._failed_models:
            self.outcome.failed[spec.key] = "its pre-training failed"
            return "done"
        if needed and not self.folder.model(needed).is_file():
            with self.folder.claimed(f"pretrain-{needed}") as claimed:
                return "waiting" if claimed else "held"
        with self.folder.claimed(spec.work_key) as claimed:
            if not claimed:
                return "held"
            if not self._is_done(spec):
                self._compute(spec)
            return "done"

    def _is_done(self, spec: CellSpec) -> bool:
        """Return whether a cell is finished, with its model if a pending cell needs that."""
        if not self.folder.has(spec):
            return False
        if spec.stage != "pretrain" or self.folder.model(spec.model).is_file():
            return True
        return not any(
            other.model == spec.model and other.stage != "pretrain" and not self.folder.has(other)
            for other in self.pending
        )

    def _compute(self, spec: CellSpec) -> None:
        number = f"[{self.outcome.total - len(self.pending) + 1}/{self.outcome.total}]"
        self.say(f"{number} {spec.title}")
        began = time.monotonic()
        try:
            result = COMPUTE[spec.stage](spec, self.context)
        except TrainingInterrupted:
            raise
        except GraphLoGError as e:
            if spec.stage == "pretrain":
                self._failed_models.add(spec.model)
            self.outcome.failed[spec.key] = str(e)
            self.folder.fail(spec, e)
            self.say(f"{spec.title} failed: {e}")
            return
        self.folder.write(spec, result)
        self.outcome.computed.append(spec.key)
        self.say(f"{number} {spec.title}: {time.monotonic() - began:.1f} s")
