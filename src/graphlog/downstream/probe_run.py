"""The linear models of a probe as a predictor in a run folder."""

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from graphlog.downstream.embed import save_rejects
from graphlog.downstream.encoder import Encoder, check_layer
from graphlog.downstream.head import FineTuned, Head
from graphlog.downstream.joined import LinearModel
from graphlog.downstream.labeled_run import describe_run, origin
from graphlog.downstream.predictor import Predictor
from graphlog.downstream.report import ScoreRow, make_report
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


def probe_predictor(
    encoder: Encoder,
    layer: str | None,
    data: LabeledGraphs,
    models: Sequence[LinearModel],
    best: Sequence[float],
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
        best: The C of each.
        values: Their averaged predictions of every graph of ``data``.
        rows: Scores, those of this predictor first.
        notes: What the reader of the scores must know.
    """
    layer = check_layer(layer or encoder.layer)
    learned = ~np.isnan([model.fit.bias for model in models]).any(axis=0)
    known = replace(data, labels=np.where(learned, data.labels, np.nan))
    valid, test = data.split.valid, data.split.test
    calibration = Calibration.fit(data.task, known.labels[valid], values[valid])
    judged = calibration.rows(known, values[test])
    is_chosen = math.isfinite(rows[0].mean(data.metric, "valid"))
    notes = [*notes, *calibration_notes(judged, data.split_name, "C" if is_chosen else None)]
    network, (embedding, *joined) = encoder.copy().network.eval(), models
    with_features = [model.features for model in joined]
    penalties = dict(zip(["embedding", *with_features], best, strict=True))
    settings = {"layer": layer, "with": with_features, "c": penalties}
    return Predictor(
        [FineTuned(network, Head.of_probe(embedding.fit, embedding.scaling, data.task), layer)],
        data.targets,
        make_report(data, rows, notes, judged),
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
        save_rejects(folder.path, data.store.rejects, folder.path.absolute().name)
