"""Make a model file from weights of ``pretrain.py``, in half precision.

    python benchmarks/gpu/finish.py STORE WEIGHTS.safetensors MODEL.safetensors

The model is the same as that of ``graphlog pretrain``. The statistics of batch normalization are
computed on graphs without masks, with the weights rounded to half precision, and the statistics of
novelty are fitted. The prototypes and the projection head that they need are included.
"""

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

import torch
from safetensors import safe_open

from graphlog.data.store import open_store
from graphlog.encoders.modelfile import save_model, tensors_below
from graphlog.encoders.novelty import PREFIX
from graphlog.training.pretrain import Pretraining
from graphlog.training.settings import recorded_config


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("store")
    parser.add_argument("weights", type=Path)
    parser.add_argument("model", type=Path)
    options = parser.parse_args()
    store = open_store(options.store)
    with safe_open(options.weights, "pt") as file:
        tensors, notes = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    config = recorded_config(json.loads(notes["settings"]))
    job = Pretraining(store, config.updated({"device": "cpu"}))
    learned = tensors_below(tensors, "objective.")
    job.objective.prepare_state(learned)
    job.objective.load_state_dict(learned)
    job.encoder.load_state_dict(
        {
            name: t if "running_" in name or t.dtype != torch.float32 else t.half().float()
            for name, t in tensors_below(tensors, "model.").items()
        }
    )
    finished, steps = job.finish(), int(notes["step"])
    epochs, rest = divmod(steps, -(-len(store) // config.batch_size))
    info = {
        **finished.info,
        "steps": steps,
        "epochs": epochs + (rest > 0),
        "graphs_seen": epochs * len(store) + rest * config.batch_size,
        "settings": config.to_tables(),
    }
    kept = ("prototypes.", "parents_", "head.", PREFIX)
    extra = {name: t for name, t in finished.extra.items() if name.startswith(kept)}
    save_model(options.model, finished.encoder, info, extra, half=True)


if __name__ == "__main__":
    main()
