"""Measurement of the speed of pre-training under each objective.

All that is compared takes turns on the same graphs in one process, so that other load of the
machine affects all of it equally.
"""

import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import torch

from graphlog.benchmark.cells import Cell
from graphlog.benchmark.stages import Row, Work
from graphlog.data.store import GraphStore, epoch_batches
from graphlog.errors import GraphLoGError
from graphlog.training.log import Progress
from graphlog.training.pretrain import Pretraining
from graphlog.training.settings import PretrainConfig
from graphlog.training.trainer import Cursor, Trainer

_MAX_CLUSTERED = 2000
"""Largest number of graphs that prototypes are fitted to."""


class TimedObjective:
    """An objective in its last phase, ready for timed steps."""

    def __init__(self, store: GraphStore, config: PretrainConfig, progress: Progress) -> None:
        """Build encoder, objective and optimizer, and begin the last phase."""
        self.job = Pretraining(store, config, progress=progress, max_embedded=_MAX_CLUSTERED)
        if self.job.objective.needs_targets:
            self.job.find_targets(None)
        self.trainer = Trainer(self.job)
        self.trainer.cursor = Cursor(phase=len(self.job.phases) - 1)
        self.trainer.begin_phase()
        self.job.progress = Progress()  # timed steps are not reported

    def step(self, indices: Any) -> float:
        """Load a batch, take one step and return the seconds of both."""
        start = time.perf_counter()
        self.trainer.step(indices, self.job.load(indices))
        device = self.job.setting.device
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - start


def speed_cell(cell: Cell, work: Work) -> Iterator[Row]:
    """Yield the graphs per second of each objective."""
    store, timed, failure = work.unlabeled(cell), dict[str, TimedObjective](), None
    for name, config in cell.together.items():
        try:
            timed[name] = TimedObjective(store, config, work.progress)
        except GraphLoGError as e:
            work.progress.say(f"{name} is left out: {e}")
            failure = e
    if not timed and failure is not None:
        raise failure
    config = next(iter(cell.together.values()))
    size = min(config.batch_size, len(store))
    batches = epoch_batches(len(store), size, config.seed)[: len(store) // size]
    for objective in timed.values():  # the first step warms up and is not timed
        objective.step(batches[0])
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    for number in range(cell.setup.timed_steps):
        indices = batches[(number + 1) % len(batches)]
        for name in list(timed)[:: 1 if number % 2 else -1]:  # the order is reversed each time
            seconds[name].append(timed[name].step(indices))
    for name, steps in seconds.items():
        yield {"method": name, "metric": "graphs_per_s", "value": size / median(steps)}
