"""What must never happen, tried many times: wrong numbers, tracebacks, lost files, half an output.

    python benchmarks/reliability files --number 490 --seed 50000
    python benchmarks/reliability tables --number 1000

Each case runs in a process and a folder of its own. A row is written for each to ``--out`` as soon
as it ends; a campaign that was stopped leaves out what is there. What fails is printed with its
seed, and ``--kind`` and ``--number 1`` repeat it. ``report`` counts the rows of ``--out``.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import commands
import damage
import harness
import inputs
import memory
import pandas as pd
import processes
import tables
from harness import Case

CAMPAIGNS: dict[str, Callable[[Path, range], Iterator[Case]]] = {
    "commands": commands.commands,
    "smiles": commands.smiles,
    "options": commands.options,
    "files": damage.files,
    "folders": damage.foreign_folders,
    "links": damage.links,
    "changed": damage.changed_stores,
    "tables": tables.tables,
    "kills": processes.kills,
    "interruptions": partial(processes.kills, sign=signal.SIGINT),
    "faults": processes.faults,
    "renames": partial(processes.faults, at_renames=True),
    "seeds": processes.hash_seeds,
    "limits": processes.limits,
    "bombs": processes.bombs,
    "soak": memory.soak,
}


def main() -> int:
    """Run a campaign and print how its cases ended; 1 if any ended as none should."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("campaign", choices=[*CAMPAIGNS, "report"])
    parser.add_argument("--number", type=int, default=10, help="cases of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the first of them")
    parser.add_argument("--kind", action="append", help="these kinds alone")
    parser.add_argument("--out", type=Path, default=Path("runs/reliability.csv"))
    options = parser.parse_args()
    if options.campaign == "report":
        print(harness.counts(pd.read_csv(options.out, keep_default_na=False)))
        return 0
    began = time.monotonic()
    harness.preload()
    inputs.shrink_the_smoke_scale()
    with tempfile.TemporaryDirectory(prefix="reliability-") as place:
        good = Path(place) / "good"
        good.mkdir()
        inputs.write_inputs(good)
        inputs.untrained()  # for all cases, which inherit it
        seeds = range(options.seed, options.seed + options.number)
        cases = CAMPAIGNS[options.campaign](good, seeds)
        rows = harness.run(options.campaign, cases, options.kind, options.out)
    table = rows.groupby(["kind", "result"]).size().unstack(fill_value=0)
    print(table.to_string())
    print(f"{len(rows):,} cases, {time.monotonic() - began:.0f} s")
    return int(not set(rows["result"]) <= harness.FINE)


if __name__ == "__main__":
    sys.exit(main())
