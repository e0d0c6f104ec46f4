"""Made-up cells of every suite, as the JSON files of version 0.1 that a folder still reads."""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

MOLECULES = ("bbbp", "bace", "sider", "clintox")
METHODS = (
    "untrained",
    "edgepred",
    "infograph",
    "attrmasking",
    "contextpred",
    "graphpartition",
    "graphcl",
    "graphlog",
)
LOSSES = (
    "subgraph",
    "graph",
    "global",
    "subgraph+graph",
    "subgraph+global",
    "graph+global",
    "subgraph+graph+global",
)
SEEDS = (0, 1, 2)
SPECIES = "string-6239"
STRENGTH = {method: 0.66 + 0.008 * i for i, method in enumerate(METHODS)} | {
    "ecfp-rf": 0.71,
    "ecfp-lr": 0.69,
}


def made_up(*words: Any, low: float, width: float) -> float:
    """Return a number in [low, low + width) decided by the words."""
    return low + width * (zlib.crc32(repr(words).encode()) % 10_000) / 10_000


def cell(
    stage: str,
    method: str,
    dataset: str | None,
    seed: int | None,
    scores: dict[str, Any],
    *,
    suite: str = "molecules",
    backbone: str | None = "gin",
    variant: dict[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Return the fields of one cell."""
    settings = {
        "epochs": 2,
        "batch_size": 256,
        "learning_rate": 1e-3,
        "encoder": {"layers": 5, "dim": 128},
    }
    return {
        "format": "graphlog-cell",
        "version": 1,
        "stage": stage,
        "suite": suite,
        "scale": "small",
        "method": method,
        "backbone": backbone,
        "variant": variant or {},
        "dataset": dataset,
        "seed": seed,
        "metric": "roc_auc" if stage in ("finetune", "probe") else None,
        "task": "classification",
        "scores": scores,
        "config": {"pretrain": settings, "finetune": {"epochs": 10, "batch_size": 32}}
        if backbone
        else {"pretrain": None},
        "config_hash": (
            f"{zlib.crc32(repr((stage, method, dataset, seed, backbone, variant)).encode()):064x}"
        ),
        "data": {
            "pretrain": {"name": "zinc250k", "graphs": 50_000, "digest": "0"}
            if backbone and method != "untrained"
            else None
        },
        "seconds": made_up(stage, method, dataset, seed, low=5, width=60),
        "graphs_per_s": None,
        "versions": {"torch": "2.13.0"},
        "machine": {"processor": "Test CPU", "cores": 2, "threads": 1, "device": "cpu"},
        "notes": [],
        **fields,
    }


def write(folder: Path, fields: dict[str, Any]) -> Path:
    """Write a cell under a name made of what it is."""
    folder = folder / "cells"
    folder.mkdir(parents=True, exist_ok=True)
    words = [
        fields["stage"],
        fields["method"],
        fields["backbone"],
        *(f"{k}{v}" for k, v in fields["variant"].items()),
        fields["dataset"],
    ]
    path = folder / (
        "-".join(
            [*map(str, words), f"s{fields['seed']}", fields["scale"], fields["config_hash"][-8:]]
        )
        + ".json"
    )
    path.write_text(json.dumps(fields), encoding="utf-8")
    return path


def scores(
    rules: tuple[str, ...], base: float, *words: Any, halves: bool = False
) -> dict[str, Any]:
    """Return both rules' scores around a base."""
    found = {}
    for rule in rules:
        test = base + made_up(rule, *words, low=-0.02, width=0.04)
        found[rule] = {"test": test, "valid": test + 0.1, "per_task": {"task": test}}
        if halves:
            found[rule] |= {"test_first_half": test + 0.01, "test_second_half": test - 0.02}
    return found


def write_molecules(
    folder: Path, datasets: tuple[str, ...] = MOLECULES, methods: tuple[str, ...] = METHODS
) -> None:
    for dataset in datasets:
        level = made_up(dataset, low=-0.05, width=0.1)
        for method in methods:
            for seed in SEEDS:
                words, base = (method, dataset, seed), STRENGTH[method] + level
                write(
                    folder, cell("finetune", *words, scores(("last", "best-valid"), base, *words))
                )
                write(
                    folder,
                    cell(
                        "probe",
                        *words,
                        scores(("fixed-C", "validated-C"), base - 0.03, *words, "probe"),
                    ),
                )
        for method, seeds in (("ecfp-rf", SEEDS), ("ecfp-lr", (None,))):
            for seed in seeds:
                base = STRENGTH[method] + level
                found = scores(("fixed-C", "validated-C"), base, method, dataset, seed)
                write(folder, cell("probe", method, dataset, seed, found, backbone=None))


def write_biology(folder: Path) -> None:
    for method in METHODS:
        for seed in SEEDS:
            found = scores(
                ("last", "best-valid"), STRENGTH[method] - 0.05, method, seed, halves=True
            )
            write(
                folder,
                cell("finetune", method, SPECIES, seed, found, suite="biology", domain="protein"),
            )


def write_backbones(folder: Path) -> None:
    for backbone in ("gcn", "graphsage", "gat"):
        for method in (
            "untrained",
            "edgepred",
            "attrmasking",
            "contextpred",
            "graphcl",
            "graphlog",
        ):
            for dataset in MOLECULES:
                for seed in SEEDS:
                    words = (method, dataset, seed)
                    found = scores(("last", "best-valid"), STRENGTH[method], backbone, *words)
                    write(
                        folder,
                        cell("finetune", *words, found, suite="backbones", backbone=backbone),
                    )


def write_ablation(folder: Path, suite: str = "ablation") -> None:
    for losses in LOSSES:
        for dataset in MOLECULES:
            for seed in SEEDS:
                base = 0.66 + 0.02 * losses.count("+") + 0.01 * ("global" in losses)
                found = scores(("last", "best-valid"), base, losses, dataset, seed)
                write(
                    folder,
                    cell(
                        "finetune",
                        "graphlog",
                        dataset,
                        seed,
                        found,
                        suite=suite,
                        variant={"losses": losses},
                    ),
                )


def write_sensitivity(folder: Path) -> None:
    for name, values in {"depth": (1, 2, 3, 4, 5), "batch_size": (32, 64, 128, 256, 512)}.items():
        for place, value in enumerate(values):
            for dataset in MOLECULES:
                for seed in SEEDS:
                    found = scores(
                        ("last", "best-valid"),
                        0.66 + 0.03 * (1 - 0.4**place),
                        name,
                        value,
                        dataset,
                        seed,
                    )
                    write(
                        folder,
                        cell(
                            "finetune",
                            "graphlog",
                            dataset,
                            seed,
                            found,
                            suite="sensitivity",
                            variant={name: value},
                        ),
                    )


def write_maps(folder: Path, graphs: int = 400) -> None:
    for losses, sharpness in {
        "subgraph": 1.0,
        "subgraph+graph": 0.7,
        "subgraph+graph+global": 0.3,
    }.items():
        rng = np.random.default_rng(len(losses))
        centers = rng.normal(size=(6, 2)) * 20
        cluster = rng.integers(0, 6, graphs)
        coordinates = (centers[cluster] + rng.normal(size=(graphs, 2)) * 18 * sharpness).astype(
            np.float32
        )
        roots = np.arange(6)
        leaves = np.repeat(roots, 3)
        spots = centers[leaves] + rng.normal(size=(18, 2)) * 4
        has = losses.endswith("global")
        fields = cell(
            "map",
            "graphlog",
            "zinc250k",
            0,
            {"quality": {"silhouette": 1 - sharpness}},
            suite="embedding-map",
            variant={"losses": losses},
            prototypes={"origin": "learned" if has else "fitted afterwards"},
        )
        path = write(folder, fields)
        np.savez(
            path.with_suffix(".npz"),
            coordinates=coordinates,
            cluster=cluster,
            prototypes=(np.concatenate([centers, spots]) if has else np.zeros((0, 2))).astype(
                np.float32
            ),
            layer=np.repeat([0, 1], [6, 18]) if has else np.zeros(0, dtype=np.int64),
            parent=np.concatenate([np.full(6, -1), leaves]) if has else np.zeros(0, dtype=np.int64),
        )
        path.write_text(
            json.dumps({**fields, "map": path.with_suffix(".npz").name}), encoding="utf-8"
        )


def write_speed(folder: Path) -> None:
    for place, method in enumerate(METHODS[1:]):
        for seed in SEEDS:
            rate = 900 - 60 * place + 10 * seed
            views = 2 if method in ("graphcl", "graphlog") else 1
            found = {"losses": {"loss": 1.0}}
            write(
                folder,
                cell(
                    "speed",
                    method,
                    None,
                    seed,
                    found,
                    suite="speed",
                    graphs_per_s=float(rate),
                    views=views,
                ),
            )


def write_everything(folder: Path) -> None:
    """Write cells of all seven suites."""
    write_molecules(folder)
    write_biology(folder)
    write_backbones(folder)
    write_ablation(folder)
    write_sensitivity(folder)
    write_maps(folder)
    write_speed(folder)
