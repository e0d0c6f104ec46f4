r"""Make a model to ship from a finished run: half precision, prototypes, license and origin.

    python benchmarks/ship_model.py runs/mol src/graphlog/models/graphlog-mol.safetensors \
        --license "CC BY-SA 3.0" --data "what it was trained on"

The heads of the objective, which are of no use after training, are left out.

A file of an older version gets what novelty is judged by, its weights staying as they are, from the
graphs that it was trained on:

    python benchmarks/ship_model.py src/graphlog/models/graphlog-mol.safetensors \
        src/graphlog/models/graphlog-mol.safetensors --graphs runs/stores/near
"""

import argparse
from pathlib import Path

from graphlog.downstream.models import model_path
from graphlog.encoders.modelfile import read_model, save_model
from graphlog.encoders.novelty import PREFIX
from graphlog.inputs import read
from graphlog.training.statistics import fit_novelty

KEPT = ("prototypes.", "parents_", PREFIX)


def main() -> None:
    """Parse the options and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="run folder or model file")
    parser.add_argument("output", type=Path)
    parser.add_argument("--license", help="default: that of the model file")
    parser.add_argument("--data", help="default: that of the model file")
    parser.add_argument("--graphs", help="store that the model was trained on")
    options = parser.parse_args()
    model = read_model(model_path(options.model))
    told = {"license": options.license, "training_data": options.data}
    info = {**model.info, **{k: v for k, v in told.items() if v}, "name": options.output.stem}
    if missing := [k for k in told if k not in info]:
        parser.error(f"the model file does not say its {missing[0]}; name it")
    extra = {k: v for k, v in model.extra.items() if k.startswith(KEPT)}
    if options.graphs:
        graphs = read(options.graphs, model.encoder.schema)
        if graphs.digest != info["data_digest"]:
            parser.error(f"{options.graphs} does not hold the graphs that the model was trained on")
        novelty = fit_novelty(model.encoder, graphs, info["seed"])
        extra |= {} if novelty is None else novelty.tensors()
    save_model(options.output, model.encoder, info, extra, half=True)
    print(f"{options.output}: {options.output.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
