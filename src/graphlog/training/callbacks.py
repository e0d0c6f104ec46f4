"""Callbacks, which get every row of the log of a run, and trackers by name that are such."""

import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from graphlog.errors import ConfigError, MissingExtraError, check_name


@runtime_checkable
class Callback(Protocol):
    """Anything with a method ``on_row``: it is called with each row of ``metrics.jsonl``.

    A callback that raises an exception is dropped with a warning; the run goes on.
    """

    def on_row(self, row: Mapping[str, Any]) -> None:
        """Take a row: ``step``, ``epoch``, losses, scores; of fine-tuning also ``seed``."""


class Callbacks:
    """The callbacks of one run; none of them can stop it."""

    def __init__(self, given: Sequence[Any] = (), folder: Path | None = None) -> None:
        """Start the trackers that are named.

        Args:
            given: Callbacks, and names of trackers.
            folder: Of the run; None for a run that is kept in memory.

        Raises:
            ConfigError: If a name is unknown or an object is no callback.
            MissingExtraError: If the library of a tracker is not installed.
        """
        self._trackers: list[Tracker] = []
        self._active: list[Callback] = []
        for callback in given:
            if isinstance(callback, str):
                self._start(callback, folder)
            elif isinstance(callback, Callback):
                self._active.append(callback)
            else:
                raise ConfigError(
                    f"a callback needs a method `on_row(row)`, found {type(callback).__name__}; "
                    f"trackers by name are {', '.join(TRACKERS)}."
                )

    def on_row(self, row: Mapping[str, Any]) -> None:
        """Pass a row on; what fails is dropped with a warning."""
        for callback in list(self._active):
            try:
                callback.on_row(dict(row))
            except Exception as e:
                self._active.remove(callback)
                _warn(type(callback).__name__, e)

    def close(self) -> None:
        """End the trackers that were started by name."""
        for tracker in self._trackers:
            with suppress(Exception):
                tracker.close()
        self._trackers, self._active = [], []

    def _start(self, name: str, folder: Path | None) -> None:
        check_name("tracker", name, TRACKERS)
        try:
            tracker = TRACKERS[name](folder)
        except MissingExtraError:
            raise
        except Exception as e:  # no server, no account, no room: the run does not depend on it
            _warn(name, e)
            return
        self._trackers.append(tracker)
        self._active.append(tracker)


@runtime_checkable
class Tracker(Callback, Protocol):
    """A callback that is made from the folder of a run and must be closed."""

    def __init__(self, folder: Path | None) -> None: ...

    def close(self) -> None:
        """Send what has not been sent."""


class TensorBoard:
    """Event files in the folder ``tensorboard`` of the run."""

    def __init__(self, folder: Path | None) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtraError("tensorboard", "tensorboard") from None
        self._writer: Any = SummaryWriter(None if folder is None else str(folder / "tensorboard"))

    def on_row(self, row: Mapping[str, Any]) -> None:
        """Write the numbers of a row."""
        for name, value in numbers(row).items():
            self._writer.add_scalar(name, value, row["step"])

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


_ROWS_ONLY = {
    "console": "off",
    "disable_code": True,
    "disable_git": True,
    "x_disable_machine_info": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
}
"""By itself wandb also sends what is printed, the command, the computer and its packages."""


class WeightsAndBiases:
    """A run of the project ``graphlog``, or of ``$WANDB_PROJECT``."""

    def __init__(self, folder: Path | None) -> None:
        try:
            import wandb  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise MissingExtraError("wandb", "wandb") from None

        project = os.environ.get("WANDB_PROJECT", "graphlog")
        self._run: Any = wandb.init(project=project, name=_name(folder), settings=_ROWS_ONLY)

    def on_row(self, row: Mapping[str, Any]) -> None:
        """Send the numbers of a row; each seed counts its steps from 1, so ``step`` is a value."""
        self._run.log({**numbers(row), "step": row["step"]})

    def close(self) -> None:
        """Send what is left."""
        self._run.finish()


class MLflow:
    """A run of the experiment that MLflow's environment variables name."""

    def __init__(self, folder: Path | None) -> None:
        try:
            from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise MissingExtraError("mlflow", "mlflow") from None

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "graphlog")
        self._client: Any = MlflowClient()
        found = self._client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self._client.create_experiment(name)
        self._run = self._client.create_run(experiment, run_name=_name(folder)).info.run_id

    def on_row(self, row: Mapping[str, Any]) -> None:
        """Send the numbers of a row."""
        for name, value in numbers(row).items():
            self._client.log_metric(self._run, name, value, step=row["step"])

    def close(self) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self._run)


TRACKERS: Mapping[str, type[Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
}
"""Trackers by the name of their library."""


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a row by name; of fine-tuning the names begin with the seed.

    Example:
        >>> numbers({"seed": 1, "step": 4, "loss": 0.5, "phase": "local"})
        {'seed-1/loss': 0.5}
    """
    prefix = f"seed-{row['seed']}/" if "seed" in row else ""
    return {
        prefix + name: float(value)
        for name, value in row.items()
        if name not in ("seed", "step") and type(value) in (int, float)
    }


def _name(folder: Path | None) -> str | None:
    return None if folder is None else folder.absolute().name


def _warn(name: str, error: Exception) -> None:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    warnings.warn(f"{name} failed and gets no more rows: {reason}", RuntimeWarning, stacklevel=2)
