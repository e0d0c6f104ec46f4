"""Walking the grid: what is finished is skipped, what another process works on is left to it, what fails is listed."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from graphlog.benchmark.cells import Folder
from graphlog.benchmark.estimate import Estimate, in_words
from graphlog.benchmark.grid import CellSpec
from graphlog.benchmark.sources import Graphs
from graphlog.benchmark.stages import COMPUTE, Workplace
from graphlog.errors import GraphLoGError
from graphlog.training.log import Progress
from graphlog.training.trainer import TrainingInterrupted

_POLL_S = 2.0


@dataclass(slots=True)
class Outcome:
    """What became of the cells of one walk."""

    total: int
    computed: list[str] = field(default_factory=list[str])
    """Keys of the cells that this process computed."""
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """What was wrong with those that could not be computed, by key."""
    waiting: list[str] = field(default_factory=list[str])
    """Cells that need a model that nobody is making."""


class Walk:
    """One process at work on the cells of a folder."""

    def __init__(self, cells: Sequence[CellSpec], workplace: Workplace, estimate: Estimate) -> None:
        """Stand at the start."""
        self.workplace, self.folder, self.say = workplace, workplace.folder, workplace.progress.say
        self.pending = list(cells)
        self.estimate = estimate
        self.outcome = Outcome(len(cells))
        self._broken: set[str] = set()

    def run(self) -> Outcome:
        """Compute every cell that is not there, and return when all are: those of other processes are waited for.

        Raises:
            TrainingInterrupted: After Ctrl-C; finished cells and checkpoints are kept.
        """
        self.folder.make()
        told = False
        while True:
            before = len(self.pending)
            held = self._pass()
            if not self.pending:
                return self.outcome
            if len(self.pending) == before and not held:
                self.outcome.waiting = [spec.key for spec in self.pending]
                return self.outcome
            if len(self.pending) == before:
                if not told:
                    self.say(
                        f"waiting for {held} cell{'s' * (held != 1)} that other processes work on"
                    )
                told = True
                time.sleep(_POLL_S)

    def _pass(self) -> int:
        """Try every pending cell once; return how many other processes hold."""
        held = 0
        left: list[CellSpec] = []
        queue, self.pending = self.pending, []
        for position, spec in enumerate(queue):
            state = self._try(spec, [*left, *queue[position:]])
            held += state == "held"
            if state in ("held", "waiting"):
                left.append(spec)
        self.pending = left
        return held

    def _try(self, spec: CellSpec, still: Sequence[CellSpec]) -> str:
        if self._is_done(spec, still):
            return "done"
        needs_model = bool(spec.model) and spec.stage != "pretrain"
        if needs_model and spec.model in self._broken:
            self._fail(spec, GraphLoGError("its pre-training failed"), listed=False)
            return "failed"
        if needs_model and not (self.folder.model(spec) / "model.safetensors").is_file():
            return "held" if self._is_made_elsewhere(spec) else "waiting"
        with self.folder.claimed(spec.work_key) as mine:
            if not mine:
                return "held"
            if self._is_done(spec, still):
                return "done"
            return self._compute(spec, still)

    def _is_done(self, spec: CellSpec, still: Sequence[CellSpec]) -> bool:
        """Return whether a cell is finished; a pre-training whose model is gone is not while cells are left that need the model."""
        if not self.folder.has(spec):
            return False
        if spec.stage != "pretrain" or (self.folder.model(spec) / "model.safetensors").is_file():
            return True
        return not any(
            other.model == spec.model and other.stage != "pretrain" and not self.folder.has(other)
            for other in still
        )

    def _is_made_elsewhere(self, spec: CellSpec) -> bool:
        with self.folder.claimed(f"pretrain-{spec.model}") as free:
            return not free

    def _compute(self, spec: CellSpec, still: Sequence[CellSpec]) -> str:
        done = self.outcome.total - len(still)
        self.say(f"[{done + 1}/{self.outcome.total}] {spec.title}")
        began = time.monotonic()
        try:
            found = COMPUTE[spec.stage](spec, self.workplace)
        except TrainingInterrupted:
            raise
        except GraphLoGError as e:
            self._fail(spec, e)
            return "failed"
        self.folder.write(spec, found)
        self.outcome.computed.append(spec.key)
        took = time.monotonic() - began
        self.estimate.learn(spec, found["seconds"])
        left = self.estimate.of(still[1:])
        self.say(
            f"[{done + 1}/{self.outcome.total}] {spec.title}: {in_words(took)}{f', about {in_words(left)} left' if left else ''}"
        )
        return "done"

    def _fail(self, spec: CellSpec, error: GraphLoGError, listed: bool = True) -> None:
        self.outcome.failed[spec.key] = str(error)
        if spec.stage == "pretrain":
            self._broken.add(spec.model)
        if listed:
            self.folder.fail(spec, error)
            self.say(f"{spec.title} failed: {error}")


def walk(cells: Sequence[CellSpec], folder: Folder, progress: Progress) -> Outcome:
    """Compute ``cells`` in ``folder``."""
    estimate = Estimate()
    for spec in cells:
        found = folder.read(spec)
        if found is not None:
            estimate.learn(spec, found["seconds"])
    return Walk(cells, Workplace(folder, Graphs(folder, progress), progress), estimate).run()
