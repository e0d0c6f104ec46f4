"""Packages with plug-ins, laid out as an installer leaves them."""

import shutil
import tomllib
from pathlib import Path

from house_support import ROOT

EXAMPLE = ROOT / "examples" / "plugin"


def install(site: Path, package: str, groups: dict[str, dict[str, str]]) -> None:
    """Write the description that an installed package leaves beside its modules."""
    info = site / f"{package.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1.0\n")
    lines: list[str] = []
    for group, points in groups.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def install_example(site: Path) -> None:
    text = (EXAMPLE / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    shutil.copytree(EXAMPLE / "src" / "graphlog_example", site / "graphlog_example")
    install(site, project["name"], project["entry-points"])
