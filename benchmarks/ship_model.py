r"""Make a model to ship from a finished run: half precision, prototypes, license and origin.

    python benchmarks/ship_model.py runs/mol src/graphlog/models/graphlog-mol.safetensors \
        --license "CC BY-SA 3.0" --data "what it was trained on"

The heads of the objective, which are of no use after training, are left out.
"""

import argparse
from pathlib import Path

from graphlog.encoders.modelfile import read_model, save_model


def main() -> None:
    """Parse the options and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--license", required=True)
    parser.add_argument("--data", required=True)
    options = parser.parse_args()
    model = read_model(options.run / "model.safetensors")
    prototypes = {k: v for k, v in model.extra.items() if k.startswith(("prototypes.", "parents_"))}
    told = {"name": options.output.stem, "license": options.license, "training_data": options.data}
    save_model(options.output, model.encoder, {**model.info, **told}, prototypes, half=True)
    print(f"{options.output}: {options.output.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
