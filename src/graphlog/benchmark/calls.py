"""The public calls: run a suite in a folder, look at what it would do, render what is there."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphlog.benchmark.cells import Folder
from graphlog.benchmark.estimate import Estimate
from graphlog.benchmark.grid import STAGES, CellSpec
from graphlog.benchmark.quick import guess
from graphlog.benchmark.report import draw, render
from graphlog.benchmark.runner import Outcome, walk
from graphlog.benchmark.suites import Request, cells_of
from graphlog.files import writing
from graphlog.training.log import Progress, Silent


@dataclass(frozen=True, slots=True)
class Preview:
    """What a suite would do."""

    cells: tuple[CellSpec, ...]
    """All cells, in the order of their computation."""
    finished: frozenset[str]
    """Keys of those that are there already."""
    estimate: Estimate
    """What is known of the time they take."""

    def stages(self) -> list[tuple[str, int, int, float | None]]:
        """Return for each stage its name, its cells, those that are finished, and the seconds that the others take; None if unknown."""
        rows: list[tuple[str, int, int, float | None]] = []
        for stage in STAGES:
            cells = [spec for spec in self.cells if spec.stage == stage]
            left = [spec for spec in cells if spec.key not in self.finished]
            seconds = self.estimate.of(left) if all(map(self.estimate.knows, left)) else None
            if cells:
                rows.append((stage, len(cells), len(cells) - len(left), seconds))
        return rows


def run(
    suite: str, output: str | Path, *, progress: Progress | None = None, **choices: Any
) -> Outcome:
    """Compute every cell of a suite that is not in ``output`` yet, then render the report.

    Several processes may be given the same folder; each cell is computed by one of them. A process that is killed loses
    the step it was at, no more: the next one goes on.

    Args:
        suite: ``molecules``, ``biology``, ``backbones``, ``ablation``, ``sensitivity``, ``embedding-map`` or ``speed``.
        output: Folder of cells, models and the report.
        progress: Is told what is being done; None: nobody.
        choices: ``scale``, ``methods``, ``datasets``, ``seeds``, ``backbones``, ``domain``, ``stages``, ``device``, ``precision``;
            see :class:`~graphlog.benchmark.suites.Request`.

    Raises:
        ConfigError: If a name is unknown; the nearest one is suggested.
        TrainingInterrupted: After Ctrl-C.
    """
    folder = Folder(Path(output))
    cells = cells_of(Request(suite, **choices))
    outcome = walk(cells, folder, progress or Silent())
    if any(folder.cells.glob("*.json")):
        write_report(output)
    return outcome


def preview(suite: str, output: str | Path, **choices: Any) -> Preview:
    """Return the cells of a suite and how long those that are left will take, by finished cells or a few timed steps; nothing is kept.

    Arguments are those of :func:`run`.
    """
    folder = Folder(Path(output))
    cells = cells_of(Request(suite, **choices))
    finished = {spec.key: found for spec in cells if (found := folder.read(spec)) is not None}
    estimate = Estimate()
    for spec in cells:
        if spec.key in finished:
            estimate.learn(spec, finished[spec.key]["seconds"])
    guess([spec for spec in cells if spec.key not in finished], estimate)
    return Preview(tuple(cells), frozenset(finished), estimate)


def write_report(output: str | Path) -> list[Path]:
    """Render the cells of a folder as tables and figures into ``report`` and return the files.

    Raises:
        DataError: If there are no cells.
    """
    folder = Folder(Path(output))
    return render(folder.cells, folder.path / "report")


def draw_figures(output: str | Path, out: str | Path) -> list[Path]:
    """Draw the figures of a benchmark's folder ``output`` into ``out`` and return the files, PNG and SVG.

    Raises:
        DataError: If there are no cells.
        MissingExtraError: If matplotlib is not installed.
    """
    with writing(Path(out)):
        return draw(Path(output) / "cells", Path(out))
