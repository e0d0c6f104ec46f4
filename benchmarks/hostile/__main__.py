"""Feed the command line every kind of bad input and check how each command ends.

A command given something unusable must end with exit code 2 and one line that says what is wrong,
where, and how to mend it; no traceback, nothing on standard output, nothing half-written. Odd but
readable input must give row-aligned output.

    python benchmarks/hostile --write benchmarks/results/hostile-input.md
    python benchmarks/hostile --only interruptions --show

Full and read-only disks are mounted, which needs the rights to do so; without them these cases are
left out. Each case is a process forked from this one, which has imported everything.
"""

import argparse
import os
import platform
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import cases
import moments
from runner import Case, Ended, may_mount, run

HEAD = """# Hostile input

`python benchmarks/hostile --write benchmarks/results/hostile-input.md`: {count} commands, \
{wrong} of them not as wanted.
Each is a process of its own in a folder of its own; Python {python}, {system}, {date}.{unmounted}

Wanted where the exit code is 2: one line on standard error that says what is wrong, where, \
and how to mend it; nothing on standard
output; no traceback; nothing new in the folder, nor in the folder for temporary files \
(an interrupted run, which can be resumed,
excepted). Wanted where it is 0: one row of output for each row of input, and `rejects.csv` \
listing exactly the rows that cannot be
used; with `--json` one JSON document, with `--quiet` not a word. 130: interrupted; \
141: nobody reads the output.
"""
COLUMNS = [
    "| case | verbs | exit | as wanted | said (by the first verb that refused) |",
    "|---|---|---|---|---|",
]


class Outcome(NamedTuple):
    """A case and what came of it."""

    case: Case
    code: int
    said: str
    """The last line on standard error, without the folders of this machine."""
    problems: list[str]


def problems(case: Case, ended: Ended) -> list[str]:
    """Return what is wrong with how a case ended."""
    found: list[str] = ["traceback"] if "Traceback" in ended.err else []
    if ended.code != case.code:
        found.append(f"exit code {ended.code}, not {case.code}")
    if ended.code == 2:
        if (
            not ended.line.startswith("graphlog: error: ")
            or ended.err.count("graphlog: error") != 1
        ):
            found.append("not one line of error")
        if len(ended.line) > 700:
            found.append(f"a line of {len(ended.line)} characters")
        if ended.out:
            found.append("something on standard output")
    left = {name for name in ended.new if ended.code not in (0, 141) and name not in case.may_leave}
    left |= {name for name in ended.new if "partial" in name or name.startswith("$TMPDIR")}
    if left:
        found.append(f"left {', '.join(sorted(left))}")
    missing = [word for word in case.says if word.lower() not in ended.line.lower()]
    if missing:
        found.append(f"does not say {missing}")
    if not found and case.check is not None and (wrong := case.check(ended)):
        found.append(wrong)
    return found


def preload() -> None:
    """Import what the verbs import late, once for all cases."""
    source = str(Path(__file__).resolve().parents[2] / "src")
    sys.path.insert(0, source)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import joblib.externals.loky  # noqa: F401
    import matplotlib.pyplot  # noqa: F401
    import sklearn.ensemble
    import sklearn.linear_model  # noqa: F401
    import torch

    import graphlog.api
    import graphlog.cli.main
    import graphlog.extras.tour
    import graphlog.report.run  # noqa: F401

    torch.set_num_threads(1)


def all_cases(good: Path, mounting: bool, fuzzed: int) -> Iterator[Case]:
    """Yield every case but those of good input, whose outputs lie in ``good``."""
    v = cases.Verbs(good)
    for group in (cases.tables, cases.labels, cases.few):
        yield from group(v)
    for group in (cases.models, cases.stores, cases.runs):
        yield from group(v, good)
    yield from moments.unknown_names(v)
    yield from moments.contradictions(v)
    yield from moments.disks(v, mounting)
    yield from moments.interruptions(v)
    yield from moments.fuzz(v, fuzzed)


def make_table(good: Path) -> None:
    """Write 60 real molecules with a class, a number and a word; store them in the plain schema."""
    from graphlog.api import read_molecules

    store = read_molecules("nci5k", limit=60, workers=1)
    lines = [
        f"{text},{int('N' in text)},{len(text) / 7:.2f},w{k}"
        for k, text in enumerate(store.texts(range(len(store))))
    ]
    (good / "good.csv").write_text("\n".join(["smiles,y,v,word", *lines]) + "\n", encoding="utf-8")
    read_molecules(
        good / "good.csv",
        schema="molecule",
        targets=["y"],
        workers=1,
        store_path=good / "plain.store",
    )


def main() -> int:
    """Run the cases, print what is wrong with each, and write the table; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", default="", help="cases whose group, name or verb holds these letters"
    )
    parser.add_argument("--fuzzed", type=int, default=10_000, help="rows of each fuzzed table")
    parser.add_argument("--show", action="store_true", help="print all that each command said")
    parser.add_argument("--write", type=Path, help="file for the table")
    options = parser.parse_args()
    preload()
    root, began, outcomes = (
        Path(tempfile.mkdtemp(prefix="hostile-")),
        time.monotonic(),
        list[Outcome](),
    )
    good, mounting = root / "good", may_mount()
    try:
        good.mkdir()
        make_table(good)
        for number, case in enumerate(
            [*cases.good_cases(good), *all_cases(good, mounting, options.fuzzed)]
        ):
            if (
                case.group != "good input"
                and options.only not in f"{case.group} {case.name} {verb_of(case)}"
            ):
                continue
            beside = root / str(number)
            beside.mkdir()
            ended = run(case, beside / "case")
            outcomes.append(Outcome(case, ended.code, said(ended, root), problems(case, ended)))
            if outcomes[-1].problems or options.show:
                tell(outcomes[-1], ended)
            shutil.rmtree(beside)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    wrong = sum(bool(o.problems) for o in outcomes)
    print(f"{len(outcomes)} commands, {wrong} not as wanted, {time.monotonic() - began:.0f} s")
    if options.write is not None:
        options.write.write_text(table(outcomes, mounting), encoding="utf-8")
    return 1 if wrong else 0


def verb_of(case: Case) -> str:
    """Return the name of the verb, with what follows ``data``."""
    return " ".join(case.words[:2]) if case.words[0] == "data" else case.words[0]


def said(ended: Ended, root: Path) -> str:
    """Return the last line on standard error, without the folders of this machine."""
    return (
        ended.line.replace(f"{ended.folder}/", "")
        .replace(f"{root / 'good'}/", "")
        .replace(str(root), "...")
    )


def tell(outcome: Outcome, ended: Ended) -> None:
    """Print a case and all it said."""
    case = outcome.case
    print(
        f"{'WRONG' if outcome.problems else 'fine '} {case.group}: {case.name}: "
        f"graphlog {' '.join(case.words)}"
    )
    print(
        f"      {'; '.join(outcome.problems)}\n"
        f"      [{ended.code}] {ended.err.strip()[-1500:]!r} {ended.out[:200]!r}",
        flush=True,
    )


def table(outcomes: list[Outcome], mounted: bool) -> str:
    """Return the Markdown tables: one line for each input, the verbs it was given to beside it."""
    groups: dict[str, dict[str, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    for outcome in outcomes:
        groups[outcome.case.group][outcome.case.name].append(outcome)
    unmounted = "" if mounted else " Cases that mount a disk were left out."
    about = {
        "python": platform.python_version(),
        "system": platform.system(),
        "date": time.strftime("%Y-%m-%d"),
    }
    lines = [
        HEAD.format(
            count=len(outcomes),
            wrong=sum(bool(o.problems) for o in outcomes),
            unmounted=unmounted,
            **about,
        )
    ]
    for group, names in groups.items():
        lines += [f"## {group[0].upper()}{group[1:]}", "", *COLUMNS]
        lines += [_row(name, found) for name, found in names.items()]
        lines.append("")
    return "\n".join(lines)


def _row(name: str, found: list[Outcome]) -> str:
    verbs = ", ".join(dict.fromkeys(verb_of(o.case) for o in found))
    codes = ", ".join(dict.fromkeys(str(o.code) for o in found))
    refused = next((o.said for o in found if o.code not in (0, 141)), "")
    words = refused.removeprefix("graphlog: error: ").replace("|", "\\|")
    words = words if len(words) < 300 else f"{words[:297]}..."
    return (
        f"| {name} | {verbs} | {codes} "
        f"| {sum(not o.problems for o in found)} of {len(found)} | {words} |"
    )


if __name__ == "__main__":
    raise SystemExit(main())
