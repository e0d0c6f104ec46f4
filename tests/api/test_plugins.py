"""Packages add objectives, backbones, domains and data sets; what is broken or missing is said."""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

import graphlog
from cli_support import Cli, Ended
from graphlog.errors import ConfigError, ModelFileError
from graphlog.plugins import Registry
from house_support import ROOT, blocks, python
from plugin_support import install, install_example
from words_domain import CODE

SMALL = (
    "--workers 1 --epochs 1 --batch-size 16 --precision fp32 "
    "--set encoder.dim=8 --set encoder.layers=2"
)
RUN_ALL = """
import contextlib, io, json, sys
from graphlog.cli.main import main
ended = []
for words in json.loads(sys.stdin.read()):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words.split())
    ended.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(ended))
"""
COUNTER = '''
import graphlog
from dataclasses import dataclass
from graphlog.cli import command as o
from graphlog.cli.command import Command, Verb


@dataclass(kw_only=True)
class Count(Command):
    """Count the graphs of INPUT."""

    source: o.Input

    def run(self):
        self.result({"graphs": len(graphlog.read_molecules(self.source))})


COUNT = Verb(Count, "Counting", "graphlog count molecules.csv")
'''


def run_all(site: Path, folder: Path, *commands: str) -> list[Ended]:
    """Run commands in one new process that has the packages of ``site``."""
    found = os.pathsep.join([str(site), os.environ["PYTHONPATH"]])
    printed = python("-c", RUN_ALL, given=json.dumps(commands), cwd=folder, PYTHONPATH=found)
    return [Ended(*ended) for ended in json.loads(printed.splitlines()[-1])]


TUTORIAL = [
    line.removeprefix("graphlog ")
    for code in blocks(ROOT / "docs/tutorials/plug-in.md", "bash")
    for line in code.splitlines()
]
USES = {
    "help": "pretrain --help",
    "list": "data list --json",
    **{f"tutorial {line.split()[0]}": line for line in TUTORIAL},
    "info": "info run --json",
    "finetune": "finetune alcohols -m run -o ft --workers 1 --epochs 1 --seeds 0 --baselines none",
    "predict": "predict alcohols -m ft -o predictions.csv",
    "benchmark": "benchmark molecules -o bench --methods degreepred --backbones gated "
    "--datasets alcohols --scale smoke --dry-run --json",
    "featurize words": "featurize words.csv -o words.store --schema path --workers 1",
    "pretrain words": f"pretrain words.store -o words {SMALL} --quiet",
    "embed words": "embed words.store -m words -o words.npz",
    "count": "count words.smi --json",
    "verbs": "--help",
    "help count": "count --help",
}


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Ended]]:
    """The example package, a domain and a verb at work: the folder, and how commands ended."""
    site, folder = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("work")
    install_example(site)
    install(site, "graphlog-words", {"graphlog.domains": {"path": "words_domain:DOMAIN"}})
    (site / "words_domain.py").write_text(CODE)
    install(site, "counter", {"graphlog.verbs": {"count": "counter:COUNT", "embed": "counter:X"}})
    (site / "counter.py").write_text(COUNTER)
    (folder / "words.csv").write_text("word\n" + "graph\nlog\ncontrast\nlearn\n" * 4)
    (folder / "words.smi").write_text("CCO\nCCN\n")
    ended = dict(zip(USES, run_all(site, folder, *USES.values()), strict=True))
    assert [(e.code, e.err) for e in ended.values() if e.code] == []
    return folder, ended


def test_every_verb_knows_the_parts_of_a_package(used: tuple[Path, dict[str, Ended]]):
    folder, ended = used
    assert "degreepred" in ended["help"].out.replace("\u2502", "")
    assert "gated" in ended["help"].out
    listed = {row["name"]: row for row in ended["list"].json}
    assert listed["alcohols"]["license"] == "CC0-1.0"
    assert "frozen encoder" in ended["tutorial probe"].out
    assert len((folder / "embeddings.csv").read_text().splitlines()) == 97
    config = tomllib.loads((folder / "run" / "config.toml").read_text(encoding="utf-8"))
    assert config["plugins"] == dict.fromkeys(("objective", "backbone"), "graphlog-example")
    assert config["encoder"]["layer"]["gate_bias"] == 0.0
    assert len((folder / "predictions.csv").read_text().splitlines()) == 97
    assert "degreepred gated" in ended["benchmark"].out


def test_a_domain_of_a_package(used: tuple[Path, dict[str, Ended]]):
    assert (used[0] / "words.npz").is_file()
    with pytest.raises(ModelFileError, match="'path' comes with the package graphlog-words"):
        graphlog.load(used[0] / "words")


def test_a_verb_of_a_package(used: tuple[Path, dict[str, Ended]]):
    """It stands in a panel of its own after the others, and takes the place of none of them."""
    ended = used[1]
    assert ended["count"].json["graphs"] == 2
    assert ended["verbs"].out.index("Look at results") < ended["verbs"].out.index("Counting")
    assert "Example: graphlog count molecules.csv" in ended["help count"].out


@pytest.mark.parametrize(
    "command",
    [
        "embed bbbp -m {0}/run -o out.npz",
        "probe bbbp -m {0}/run",
        "info {0}/run",
        "predict bbbp -m {0}/ft -o out.csv",
        "prototypes {0}/run -o tree",
        "pretrain nci5k -o run --config {0}/run/config.toml",
    ],
)
def test_a_missing_package_is_named(used: tuple[Path, dict[str, Ended]], command: str, cli: Cli):
    told = cli.refused(command.format(used[0])).err.strip()
    assert len(told.splitlines()) == 1
    assert told.endswith("which is not installed; run: pip install graphlog-example")


def test_a_broken_package_is_left_out(tmp_path: Path):
    site = tmp_path / "site"
    broken = dict.fromkeys(("objectives", "backbones", "domains", "datasets"), "broken_part:X")
    groups = {f"graphlog.{kind}": {"broken": value} for kind, value in broken.items()}
    groups["graphlog.objectives"] |= {"graphlog": "broken_part:X", "number": "json:__name__"}
    install(site, "broken-package", groups)
    (site / "broken_part.py").write_text("import does_not_exist\n")
    (tmp_path / "m.smi").write_text("CCO\nCCN\nc1ccccc1\n")
    ended = run_all(
        site,
        tmp_path,
        "--help",
        "pretrain --help",
        "data list",
        "embed m.smi -m graphlog-mol -o out.npz --workers 1",
        "pretrain m.smi -o run --workers 1 --objective broken",
        "pretrain m.smi -o run --backbone broken",
        "pretrain m.smi -o run --workers 1 --objective number",
        "embed broken -m graphlog-mol -o out.npz",
    )
    assert [e.code for e in ended] == [0, 0, 0, 0, 2, 2, 2, 2]
    # each is warned of once: a data set where they are listed, a domain where graphs are read
    assert [e.err.count("warning") for e in ended[:4]] == [0, 0, 1, 1]
    assert "No module named 'does_not_exist'); update or remove broken-package." in ended[2].err
    for number in (4, 5, 6, 7):
        assert "broken-package cannot be used" in ended[number].err, ended[number]
    assert "is not a class derived from graphlog.objectives.base.Objective" in ended[6].err


def test_a_part_added_at_run_time_wins():
    table: Registry[Any] = Registry("objective", {"own": "json:loads"}, lambda _, part: None)
    assert table["own"] is json.loads
    table["mine"] = json.dumps
    assert dict(table.items()) == {"own": json.loads, "mine": json.dumps}
    assert "other" not in table
    assert table.package("mine") == {}
    with pytest.raises(KeyError):
        table["other"]


def test_two_packages_of_one_name_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from importlib.metadata import distributions

    from graphlog import plugins

    for package, value in (("a-first", "json:loads"), ("b-second", "json:dumps")):
        install(tmp_path, package, {"graphlog.objectives": {"twice": value, "own": value}})
    found = [p for d in distributions(path=[str(tmp_path)]) for p in d.entry_points]
    found.sort(key=lambda point: str(point.dist.name))
    monkeypatch.setattr(plugins, "_entry_points", lambda: found)
    table: Registry[Any] = Registry("objective", {"own": "json:load"}, lambda _, part: None)
    with pytest.warns(UserWarning, match="is not used") as warned:
        assert table["twice"] is json.loads
    assert len(warned) == 3
    assert table["own"] is json.load
    assert table.package("twice") == {table.kind: "a-first"}
    monkeypatch.setattr(table, "_fits", lambda _, part: "anything else")
    del table.data["twice"]
    with pytest.raises(ConfigError, match=r"a-first cannot be used \(.* is not anything else\)"):
        table["twice"]
