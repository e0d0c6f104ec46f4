"""The linear models of a probe as a predictor in a run folder."""

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from graphlog.downstream.embed import save_rejects
from graphlog.downstream.encoder import Encoder, check_layer
from graphlog.downstream.head import FineTuned, Head
from graphlog.downstream.joined import LinearModel
from graphlog.downstream.labeled_run import describe_run, origin
from graphlog.downstream.predictor import Predictor
from graphlog.downstream.report import Report
from graphlog.downstream.tasks import LabeledGraphs
from graphlog.downstream.uncertainty import Calibration, calibration_notes
from graphlog.encoders.novelty import fit_novelty
from graphlog.files import write_json, writing
from graphlog.training.runfolder import RunFolder


@contextmanager
def opened(run_dir: Path | None, overwrite: bool) -> Generator[RunFolder | None]:
    """Open and lock the folder of a probe inside the block; None where none is wanted.

    Raises:
        ConfigError: If the folder is not free.
        GraphLoGError: If it cannot be written to.
    """
    if run_dir is None:
        yield None
        return
    folder = RunFolder.open(run_dir, "probe", resume=None, overwrite=overwrite)
    try:
        yield folder
    finally:
        folder.close()


class Held(NamedTuple):
    """Predictions that calibration is made of and judged by."""

    data: LabeledGraphs
    """Labels of the validation and the test fold; the training fold is not looked at."""
    values: Float[np.ndarray, "M T"]
    """Predictions of models that were not fitted to these folds, row for row."""


def probe_predictor(
    encoder: Encoder,
    layer: str | None,
    data: LabeledGraphs,
    models: Sequence[LinearModel],
    held: Held,
    report: Report,
) -> Predictor:
    """Return the predictor that averages linear models.

    Args:
        encoder: What embeds; it is copied.
        layer: ``jk`` or ``last``; None takes the model's own.
        data: What the models were fitted to.
        models: That of the embedding, then those of the joined features.
        held: What calibration is made of.
        report: Scores, those of this predictor first.
    """
    layer = check_layer(layer or encoder.layer)
    learned = ~np.isnan([model.fit.bias for model in models]).any(axis=0)
    known = replace(held.data, labels=np.where(learned, held.data.labels, np.nan))
    valid, test = known.split.valid, known.split.test
    calibration = Calibration.fit(data.task, known.labels[valid], held.values[valid])
    judged = calibration.rows(known, held.values[test])
    is_chosen = math.isfinite(report.rows[0].mean(data.metric, "valid"))
    chosen, is_pooled = "C" if is_chosen else None, report.splits > 1
    notes = calibration_notes(judged, data.split_name, chosen, is_pooled)
    network, (embedding, *joined) = encoder.copy().network.eval(), models
    with_features = [model.features for model in joined]
    penalties = dict(zip(["embedding", *with_features], [m.c for m in models], strict=True))
    settings = {"layer": layer, "with": with_features, "c": penalties}
    return Predictor(
        [FineTuned(network, Head.of_probe(embedding.fit, embedding.scaling, data.task), layer)],
        data.targets,
        replace(report, notes=(*report.notes, *notes), calibration=judged),
        {"probed_on": data.name, "probe": settings, **origin(data, encoder)},
        calibration,
        fit_novelty(network, data.labeled_train),
        joined,
    )


def save_probe(
    folder: RunFolder, predictor: Predictor, data: LabeledGraphs, encoder: Encoder
) -> None:
    """Write scores, predictor, settings, split and rejected rows into a run folder.

    Raises:
        GraphLoGError: If it cannot be written to.
    """
    with writing(folder.path):
        write_json(folder.path / "scores.json", predictor.report.to_dict())
        predictor.save(folder.model)
        # after the model: settings without one would look like a run to be resumed
        describe_run(folder, "probe", data, encoder, predictor.info["probe"])
        save_rejects(folder.path, data.rejects, folder.path.absolute().name)
