"""Self-supervised graph representation learning with local and global structure (GraphLoG), end to end."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphlog.api import (
        cv_probe,
        embed,
        embed_file,
        finetune,
        fold_probe,
        list_models,
        load,
        load_predictor,
        open_store,
        predict,
        predict_file,
        pretrain,
        probe,
        random_encoder,
        read_graphs,
        read_molecules,
        read_proteins,
        scaffold_split,
        split_proteins,
    )
    from graphlog.data.batch import GraphBatch
    from graphlog.data.schema import FeatureSchema
    from graphlog.data.split import Split
    from graphlog.data.store import GraphStore
    from graphlog.downstream.encoder import Encoder
    from graphlog.downstream.predictor import Predictor
    from graphlog.downstream.report import Report
    from graphlog.encoders.base import Encoding
    from graphlog.errors import ConfigError, DataError, GraphLoGError, ModelFileError
    from graphlog.report.hierarchy.files import write_prototypes

__version__ = "0.1.0"
__all__ = [
    "ConfigError",
    "DataError",
    "Encoder",
    "Encoding",
    "FeatureSchema",
    "GraphBatch",
    "GraphLoGError",
    "GraphStore",
    "ModelFileError",
    "Predictor",
    "Report",
    "Split",
    "__version__",
    "cv_probe",
    "embed",
    "embed_file",
    "finetune",
    "fold_probe",
    "list_models",
    "load",
    "load_predictor",
    "open_store",
    "predict",
    "predict_file",
    "pretrain",
    "probe",
    "random_encoder",
    "read_graphs",
    "read_molecules",
    "read_proteins",
    "scaffold_split",
    "split_proteins",
    "write_prototypes",
]

_HOMES = {
    "ConfigError": "errors",
    "DataError": "errors",
    "Encoder": "downstream.encoder",
    "Encoding": "encoders.base",
    "FeatureSchema": "data.schema",
    "GraphBatch": "data.batch",
    "GraphLoGError": "errors",
    "GraphStore": "data.store",
    "ModelFileError": "errors",
    "Predictor": "downstream.predictor",
    "Report": "downstream.report",
    "Split": "data.split",
    "write_prototypes": "report.hierarchy.files",
}


def __getattr__(name: str) -> Any:
    """Load what ``name`` stands for on first use, so that importing the package stays quick."""
    if name not in __all__:
        raise AttributeError(f"module 'graphlog' has no attribute '{name}'")
    value = getattr(import_module(f"graphlog.{_HOMES.get(name, 'api')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
