r"""Make the model file of a package from a finished run, in half precision.

    python benchmarks/ship_model.py runs/mol src/graphlog/models/graphlog-mol.safetensors \
        --license "CC BY-SA 3.0" --data "what it was trained on"

The file contains the encoder, the prototypes, the statistics of novelty, the license and the origin
of the training data. It does not contain the heads of the objective, which only training uses.

A model file can also be written again in the current format. With the graphs that the model was
trained on, the statistics of novelty (and, with ``--new-tree``, the prototypes) are fitted again:

    python benchmarks/ship_model.py src/graphlog/models/graphlog-mol.safetensors \
        src/graphlog/models/graphlog-mol.safetensors --graphs runs/stores/near --new-tree
"""

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from graphlog.data.store import GraphStore
from graphlog.downstream.pretrained import Encoder, load, model_path
from graphlog.encoders.modelfile import read_model, save_model
from graphlog.encoders.novelty import PREFIX, fit_novelty
from graphlog.inputs import read
from graphlog.prototypes import fit_balanced_forest

TREE = ("prototypes.", "parents_")
"""Prefixes of the tensors of prototypes in a model file."""
SAMPLE = 50_000
"""Largest number of graphs to which prototypes are fitted."""


def fit_tree(encoder: Encoder, graphs: GraphStore, seed: int) -> dict[str, Tensor]:
    """Fit prototypes to a sample, embedded by the last layer; return them as in a model file."""
    rows = np.sort(np.random.default_rng(seed).permutation(len(graphs))[:SAMPLE])
    forest = fit_balanced_forest(
        torch.from_numpy(encoder.embed_store(graphs.subset(rows), "last")),
        generator=torch.Generator().manual_seed(seed),
    )
    layers = {f"prototypes.{k}": layer for k, layer in enumerate(forest.layers)}
    return layers | {f"parents_{k}": parent for k, parent in enumerate(forest.parents, 1)}


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="run folder or model file")
    parser.add_argument("output", type=Path)
    parser.add_argument("--license", help="default: that of the model file")
    parser.add_argument("--data", help="default: that of the model file")
    parser.add_argument("--graphs", help="store that the model was trained on")
    parser.add_argument("--new-tree", action="store_true", help="fit the prototypes anew")
    options = parser.parse_args()
    if options.new_tree and not options.graphs:
        parser.error("--new-tree needs --graphs")
    model = read_model(model_path(options.model))
    origin = {"license": options.license, "training_data": options.data}
    info = {**model.info, **{k: v for k, v in origin.items() if v}, "name": options.output.stem}
    if missing := [k for k in origin if k not in info]:
        parser.error(f"the model file does not say its {missing[0]}; name it")
    extra = {k: v for k, v in model.extra.items() if k.startswith((*TREE, PREFIX))}
    if options.graphs:
        graphs = read(options.graphs, model.encoder.schema)
        if graphs.digest != info["data_digest"]:
            parser.error(f"{options.graphs} does not hold the graphs that the model was trained on")
        novelty = fit_novelty(model.encoder, graphs, info["seed"])
        extra |= {} if novelty is None else novelty.tensors()
        if options.new_tree:
            extra = {k: v for k, v in extra.items() if not k.startswith(TREE)}
            extra |= fit_tree(load(options.model), graphs, info["seed"])
    save_model(options.output, model.encoder, info, extra, half=True)
    print(f"{options.output}: {options.output.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
