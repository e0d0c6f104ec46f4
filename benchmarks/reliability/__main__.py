"""What must never happen, tried many times: wrong numbers, tracebacks, lost files, half an output.

    python benchmarks/reliability files --number 490 --seed 50000
    python benchmarks/reliability tables --number 1000

Each case runs in a process and a folder of its own. A row is written for each to ``--out`` as soon
as it ends; a campaign that was stopped leaves out what is there. What fails is printed with its
seed, and ``--kind`` and ``--number 1`` repeat it. ``report`` counts the rows of ``--out``.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path

import damage
import harness
import inputs
import memory
import pandas as pd
import processes
import tables

CAMPAIGNS = {
    "files": damage.files,
    "tables": tables.tables,
    "kills": processes.kills,
    "faults": processes.faults,
    "renames": partial(processes.faults, at_renames=True),
    "seeds": processes.hash_seeds,
    "limits": processes.limits,
    "options": processes.options,
    "soak": memory.soak,
}
"""Each yields its cases, given a folder of intact inputs and the seeds."""


def main() -> None:
    """Run a campaign and print how its cases ended."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("campaign", choices=[*CAMPAIGNS, "report"])
    parser.add_argument("--number", type=int, default=10, help="cases of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the first of them")
    parser.add_argument("--kind", action="append", help="these kinds alone")
    parser.add_argument("--out", type=Path, default=Path("runs/reliability.csv"))
    options = parser.parse_args()
    if options.campaign != "report":
        harness.preload()
        with tempfile.TemporaryDirectory(prefix="reliability-") as place:
            good = Path(place) / "good"
            good.mkdir()
            inputs.write_inputs(good)
            seeds = range(options.seed, options.seed + options.number)
            cases = CAMPAIGNS[options.campaign](good, seeds)
            harness.run(options.campaign, cases, options.kind, options.out)
    print(harness.counts(pd.read_csv(options.out, keep_default_na=False)))


if __name__ == "__main__":
    main()
