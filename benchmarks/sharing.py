"""What computing each distinct environment once saves: shares, steps and embedding, in turns.

python benchmarks/sharing.py shares --out benchmarks/results/sharing-shares.csv
python benchmarks/sharing.py steps --out benchmarks/results/sharing-steps.csv
python benchmarks/sharing.py embed --out benchmarks/results/sharing-embed.csv
python benchmarks/sharing.py picture --out benchmarks/results/sharing.png

Seconds are the processor's of one thread. Both sides, `sharing` "auto" and "off", take the same
batches in turns, neither always first; a ratio is the median over the pairs.
"""

import argparse
import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
import torch
from matplotlib import colormaps
from PIL import Image, ImageDraw
from rdkit import Chem
from rdkit.Chem.Draw import rdMolDraw2D

import graphlog
from graphlog.data.batch import BatchSampler
from graphlog.data.store import GraphStore
from graphlog.encoders.encoder import build_encoder, with_settings
from graphlog.ops.colors import color_classes
from graphlog.training.config import resolve_config
from graphlog.training.log import Silent
from graphlog.training.setting import Setting, autocast, has_fast_bf16
from graphlog.training.targets import targets_of
from graphlog.views.masking import mask_attributes
from step import fitted_objective, learner, train_step

Row = dict[str, object]
CPU = torch.device("cpu")
SETS = {"zinc250k": "molecule", "tox21": "molecule", "zinc250k-cip": "molecule-cip", "mutag": None}
RUNS = [
    ("graphlog", "released", "gin", 512),
    ("graphlog", "released", "gin", 256),
    ("graphlog", "paper", "gin", 512),
    ("graphlog", "default", "gin", 256),
    *(("graphlog", "released", backbone, 256) for backbone in ("gcn", "graphsage", "gat")),
    *(
        (name, None, "gin", 256)
        for name in (
            "edgepred",
            "infograph",
            "attrmasking",
            "contextpred",
            "graphcl",
            "infomax",
            "graphmae",
            "descriptorpred",
        )
    ),
]


def molecules(schema: str, count: int) -> GraphStore:
    return graphlog.read_molecules("zinc250k", schema=schema, limit=count)


def shares() -> Iterator[Row]:
    """The share of distinct environments at the input and after each layer."""
    for name, schema in SETS.items():
        if schema is None:
            store = graphlog.read_graphs(name)
        else:
            store = graphlog.read_molecules(name.removesuffix("-cip"), schema=schema, limit=20_000)
        for size in (64, 256, 512, 2048, 8192):
            if size > len(store):
                continue
            clean = store.take(BatchSampler(len(store), size).epoch(0)[0])
            views = {"clean": clean}
            if store.schema.node_mask is not None:
                generator = torch.Generator().manual_seed(0)
                views["30 % masked"] = mask_attributes(clean, store.schema, 0.3, generator).batch
            for view, batch in views.items():
                classes = color_classes(batch.x, batch.edge_attr, batch.adjacency, 5)
                found = [len(c.nodes) / batch.num_nodes for c in classes] + [1.0] * 6
                layers = {f"layer_{k}": round(found[k], 3) for k in range(6)}
                mean = round(sum(found[1:6]) / 5, 3)
                yield {"data": name, "graphs": size, "view": view, **layers, "mean": mean}


def steps(pairs: int) -> Iterator[Row]:
    """A pre-training step with all losses."""
    formats = ("fp32", "bf16") if has_fast_bf16(CPU) else ("fp32",)
    for name, recipe, backbone, size in RUNS:
        config = resolve_config(name, recipe, {"encoder.backbone": backbone})
        schema = "molecule-cip" if recipe == "default" else "molecule"
        store = molecules(schema, 4 * size)
        encoder = build_encoder(config.encoder, store.schema, 0)
        batches = [store[k * size : (k + 1) * size] for k in range(4)]
        objective = fitted_objective(config, encoder, batches, CPU)
        labels = None
        if objective.needs_targets:
            found = targets_of(store, Silent(), None, objective.needs_substructures)
            labels = torch.from_numpy(found.astype(np.float32))
        for number_format in formats:
            sides = {
                sharing: learner(with_settings(encoder, sharing=sharing), deepcopy(objective))
                for sharing in ("auto", "off")
            }
            seconds: dict[str, list[float]] = {sharing: [] for sharing in sides}
            for number in range(pairs + 1):
                for sharing in sorted(sides, reverse=number % 2 == 1):
                    part = slice(number % 4 * size, (number % 4 + 1) * size)
                    batch = replace(store[part], y=None if labels is None else labels[part])
                    start = time.process_time()
                    train_step(sides[sharing], batch, number, Setting(0, CPU, number_format))
                    seconds[sharing].append(time.process_time() - start)
            yield {
                "objective": name,
                "recipe": recipe or "default",
                "backbone": backbone,
                "graphs": size,
                "format": number_format,
                **compared(seconds, size),
            }


def embed(pairs: int) -> Iterator[Row]:
    """Embedding graphs that are in memory, with the shipped model."""
    model = graphlog.load("graphlog-mol")
    store = molecules(model.schema.name, 8192)
    for size in (512, 2048, 8192):
        networks = {s: with_settings(model.network, sharing=s).eval() for s in ("auto", "off")}
        seconds: dict[str, list[float]] = {sharing: [] for sharing in networks}
        for number in range(pairs + 1):
            for sharing in sorted(networks, reverse=number % 2 == 1):
                start = time.process_time()
                with torch.inference_mode(), autocast("fp32", CPU):
                    for first in range(0, len(store), size):
                        networks[sharing].embed_graphs(store[first : first + size])
                seconds[sharing].append(time.process_time() - start)
        yield {"graphs": size, "format": "fp32", **compared(seconds, len(store))}


def picture(path: Path) -> None:
    """Draw three molecules, an atom in the color of its environment, after 0, 1 and 2 layers."""
    smiles = ["Cc1ccccc1", "CCc1ccccc1", "CC(C)CO"]
    store = graphlog.read_molecules(smiles, schema="molecule")
    batch = store[:]
    classes = color_classes(batch.x, batch.edge_attr, batch.adjacency, 2)
    width, height = 300, 210
    sheet = Image.new("RGB", (len(smiles) * width, len(classes) * (height + 24)), "white")
    palette = colormaps["tab20"].colors
    for row, found in enumerate(classes):
        after = ("at the input", "after one layer", "after two layers")[row]
        text = f"{after}: {len(found.nodes)} environments among {batch.num_nodes} atoms"
        top = row * (height + 24)
        ImageDraw.Draw(sheet).text((12, top + 6), text, fill="black", font_size=15)
        for column, smile in enumerate(smiles):
            first, last = batch.ptr[column : column + 2].tolist()
            colors = {k: palette[c % 20] for k, c in enumerate(found.inverse[first:last].tolist())}
            canvas = rdMolDraw2D.MolDraw2DCairo(width, height)
            canvas.drawOptions().fillHighlights = True
            canvas.drawOptions().highlightRadius = 0.42
            rdMolDraw2D.PrepareAndDrawMolecule(
                canvas,
                Chem.MolFromSmiles(smile),
                highlightAtoms=list(colors),
                highlightAtomColors=colors,
                highlightBonds=[],
            )
            canvas.FinishDrawing()
            drawn = Image.open(BytesIO(canvas.GetDrawingText()))
            sheet.paste(drawn, (column * width, top + 24))
    sheet.save(path, optimize=True)


def compared(seconds: dict[str, list[float]], graphs: int) -> Row:
    """Medians without the first pair, which warms up."""
    ours, theirs = seconds["auto"][1:], seconds["off"][1:]
    ratios = sorted(b / a for a, b in zip(ours, theirs, strict=True))
    return {
        "graphs_per_s": round(graphs / median(ours)),
        "off_graphs_per_s": round(graphs / median(theirs)),
        "ratio": round(median(ratios), 2),
        "lowest": round(ratios[0], 2),
        "highest": round(ratios[-1], 2),
        "pairs": len(ratios),
    }


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["shares", "steps", "embed", "picture"])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.part == "picture":
        picture(options.out)
        return
    parts = {"shares": shares, "steps": lambda: steps(options.pairs)}
    rows: list[Row] = []
    for row in parts.get(options.part, lambda: embed(options.pairs))():
        rows.append(row)
        print(*row.values(), flush=True)
        pd.DataFrame(rows).to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
