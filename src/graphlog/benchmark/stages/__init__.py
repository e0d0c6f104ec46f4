"""What is computed in a cell, one function a stage."""

from collections.abc import Callable, Mapping

from graphlog.benchmark.grid import CellSpec
from graphlog.benchmark.stages.common import Found, Workplace
from graphlog.benchmark.stages.maps import map_cell
from graphlog.benchmark.stages.scored import finetune_cell, pretrain_cell, probe_cell
from graphlog.benchmark.stages.speed import speed_cell

COMPUTE: Mapping[str, Callable[[CellSpec, Workplace], Found]] = {
    "pretrain": pretrain_cell,
    "finetune": finetune_cell,
    "probe": probe_cell,
    "map": map_cell,
    "speed": speed_cell,
}
"""How a cell of each stage is computed."""

__all__ = ["COMPUTE", "Found", "Workplace"]
