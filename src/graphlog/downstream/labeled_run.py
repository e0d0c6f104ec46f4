"""What fine-tuning and probing write into a run folder about themselves."""

from collections.abc import Mapping
from typing import Any

import tomli_w

from graphlog.data.split import Split
from graphlog.downstream.encoder import Encoder
from graphlog.downstream.tasks import LabeledGraphs
from graphlog.files import write_json, write_text
from graphlog.training.runfolder import RunFolder, versions


def describe_run(
    folder: RunFolder, kind: str, data: LabeledGraphs, encoder: Encoder, settings: Mapping[str, Any]
) -> None:
    """Write settings, versions and split.

    Args:
        folder: Where to.
        kind: ``finetune`` or ``probe``.
        data: What the model is trained and scored on.
        encoder: The pre-trained encoder.
        settings: Of this kind of run.
    """
    known = ("objective", "recipe", "name")
    tables: dict[str, Any] = {
        "kind": kind,
        "input": {
            "name": data.name,
            "targets": list(data.targets),
            "task": data.task,
            "metric": data.metric,
            "split": data.split_name,
            "sha256": data.store.digest,
        },
        "model": {
            "schema": encoder.schema.name,
            **{k: encoder.info[k] for k in known if k in encoder.info},
        },
        kind: dict(settings),
    }
    write_json(folder.versions, versions(data.store.digest))
    rows = Split(*(data.store.rows[part] for part in data.split))
    rows.save(folder.path / "split.json", data.split_name, (), data.store.digest)
    write_text(folder.config, tomli_w.dumps(tables))


def origin(data: LabeledGraphs, encoder: Encoder) -> dict[str, Any]:
    """Return what a predictor's file says about its labels and its encoder."""
    column, words = data.store.source.get("smiles_column"), data.store.source.get("classes", {})
    standardized = data.store.source.get("standardize")
    # of more than two classes each is a target, which has its word in its name
    classes = {
        target: {"0": words[target][0], "1": words[target][1]}
        for target in data.targets
        if data.task == "classification" and len(words.get(target, ())) == 2
    }
    return {
        "data_digest": data.store.digest,
        "pretrained": {k: v for k, v in encoder.info.items() if k != "embedding"},
        **({"smiles_column": column} if column else {}),
        **({"standardize": standardized} if standardized else {}),
        **({"valid_repeats": repeats} if (repeats := data.valid_repeats) and repeats[0] else {}),
        **({"classes": classes} if classes else {}),
    }
