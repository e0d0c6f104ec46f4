"""Try many cases that might give wrong numbers, tracebacks, lost files or incomplete output.

    python benchmarks/reliability files --number 490 --seed 50000
    python benchmarks/reliability tables --number 1000

Each case has its own process and folder. Its result is added to the table ``--out`` when it ends;
a campaign that is started again skips the cases in the table. Failures are printed with kind and
seed; to repeat one, use ``--kind``, ``--seed``, ``--number 1`` and another ``--out``. ``report``
prints the number of cases by result.
"""

import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
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
"""Functions that yield the cases of a campaign, given a folder of intact inputs and the seeds."""


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("campaign", choices=[*CAMPAIGNS, "report"])
    parser.add_argument("--number", type=int, default=10, help="cases of each kind")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first case of each kind")
    parser.add_argument("--kind", action="append", help="try only this kind; can be repeated")
    parser.add_argument("--out", type=Path, default=Path("runs/reliability.csv"))
    options = parser.parse_args()
    if options.campaign != "report":
        harness.preload()
        with tempfile.TemporaryDirectory(prefix="reliability-") as folder:
            good = Path(folder) / "good"
            good.mkdir()
            inputs.write_inputs(good)
            seeds = range(options.seed, options.seed + options.number)
            cases = CAMPAIGNS[options.campaign](good, seeds)
            harness.run(options.campaign, cases, options.kind, options.out)
    print(harness.counts(pd.read_csv(options.out, keep_default_na=False)))


if __name__ == "__main__":
    main()
