"""The linear models of a probe as a predictor in a run folder."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from graphlog.downstream.embed import save_rejects
from graphlog.downstream.encoder import Encoder, check_layer
from graphlog.downstream.head import FineTuned, Head
from graphlog.downstream.joined import JoinedModel
from graphlog.downstream.labeled_run import describe_run, origin
from graphlog.downstream.linear import LinearFit, Scaling
from graphlog.downstream.predictor import Predictor
from graphlog.downstream.report import ScoreRow, make_report
from graphlog.downstream.tasks import LabeledGraphs
from graphlog.downstream.uncertainty import Calibration, calibration_notes
from graphlog.encoders.novelty import fit_novelty
from graphlog.errors import DataError
from graphlog.files import write_json, writing
from graphlog.training.runfolder import RunFolder


class ChosenModel(NamedTuple):
    """The linear model of one representation at the C that was chosen for it."""

    features: str
    """Name of the features in the domain; empty for the embedding."""
    c: float
    fit: LinearFit
    scaling: Scaling | None


def probe_predictor(
    encoder: Encoder,
    layer: str | None,
    data: LabeledGraphs,
    models: Sequence[ChosenModel],
    values: Float[np.ndarray, "M T"],
    rows: Sequence[ScoreRow],
    notes: Sequence[str],
) -> Predictor:
    """Return the predictor that averages linear models.

    Args:
        encoder: What embeds; it is copied.
        layer: ``jk`` or ``last``; None takes the model's own.
        data: What the models were fitted to and chosen by.
        models: That of the embedding, then those of the joined features.
        values: Their averaged predictions of every graph of ``data``.
        rows: Scores, those of this predictor first.
        notes: What the reader of the scores must know.

    Raises:
        DataError: If no target could be learned.
    """
    known = ~np.isnan([model.fit.bias for model in models]).any(axis=0)
    if not known.any():
        lack = "fewer than two different labels" if data.task == "regression" else "one class only"
        raise DataError(
            f"every target has {lack} in the train fold ({data.split_name} split): nothing to "
            "learn; choose another split."
        )
    layer = check_layer(layer or encoder.layer)
    learned = replace(data, labels=np.where(known, data.labels, np.nan))
    valid, test = data.split.valid, data.split.test
    calibration = Calibration.fit(data.task, learned.labels[valid], values[valid])
    judged = calibration.rows(learned, values[test])
    notes = [*notes, *calibration_notes(judged, data.split_name, "C")]
    network, (embedding, *others) = encoder.copy().network.eval(), models
    info: dict[str, Any] = {"probed_on": data.name, "probe": settings_of(layer, models)}
    return Predictor(
        [FineTuned(network, Head.of_probe(embedding.fit, embedding.scaling, data.task), layer)],
        data.targets,
        make_report(data, rows, notes, judged),
        {**info, **origin(data, encoder)},
        calibration,
        fit_novelty(network, data.store.subset(np.sort(data.split.train))),
        [JoinedModel(model.features, model.fit, model.scaling) for model in others],
    )


def settings_of(layer: str, models: Sequence[ChosenModel]) -> dict[str, Any]:
    """Return what describes a probe: the embedding, the joined features, and every C."""
    joined = [model.features for model in models[1:]]
    return {"layer": layer, "with": joined, "c": [model.c for model in models]}


def save_probe(
    path: Path, predictor: Predictor, data: LabeledGraphs, encoder: Encoder, overwrite: bool
) -> None:
    """Write settings, split, scores, predictor and rejected rows into a run folder.

    Raises:
        ConfigError: If the folder is not free.
        GraphLoGError: If it cannot be written to.
    """
    folder = RunFolder.open(path, overwrite=overwrite)
    try:
        with writing(folder.path):
            write_json(folder.path / "scores.json", predictor.report.to_dict())
            predictor.save(folder.model)
            save_rejects(folder.path, data.store.rejects, folder.path.absolute().name)
            # last: a folder with settings and no model would look like a run to be resumed
            describe_run(folder, "probe", data, encoder, predictor.info["probe"])
    finally:
        folder.close()
