"""What a terminal shows of a run."""

import io

from rich.console import Console

from graphlog.training.log import Bar


def test_percent_and_time_left_stay_at_80_columns():
    screen = io.StringIO()
    bar = Bar(Console(file=screen, width=80, force_terminal=True, color_system=None))
    bar.begin(1000)
    bar.stage("joint, epoch 2 of 11")
    bar.report({f"loss_{name}": 1.234 for name in ("graph", "subgraph", "attribute", "global")})
    bar.advance(250)
    bar._bar.refresh()
    bar.end()
    line = next(line for line in screen.getvalue().splitlines() if "25 %" in line)
    assert "graphs/s" in line
    assert "0:00:0" in line or "-:--:--" in line
    assert "loss_graph" in line
    assert "…" in line
