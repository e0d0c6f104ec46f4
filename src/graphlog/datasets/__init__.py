"""Named data sets: what is known about each, and where its file comes from."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphlog.datasets.base import DatasetSpec

if TYPE_CHECKING:
    from graphlog.datasets.named import DATASETS, resolve

__all__ = ["DATASETS", "DatasetSpec", "resolve"]


def __getattr__(name: str) -> Any:
    """Load the catalogue on first use: its readers import domains, which import this package."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("graphlog.datasets.named"), name)
