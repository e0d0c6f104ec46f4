"""Self-supervised graph representation learning with local and global structure (GraphLoG), end to end."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# In bf16 oneDNN builds and keeps a kernel for every new number of rows, of which graph batches have
# thousands; its default of 1,024 kernels holds gigabytes. Read when torch computes for the first time.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")

if TYPE_CHECKING:
    from graphlog.api import (
        convert,
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
        split_file,
        split_proteins,
    )
    from graphlog.benchmark.calls import run as run_benchmark
    from graphlog.data.batch import GraphBatch
    from graphlog.data.schema import FeatureSchema
    from graphlog.data.split import Split
    from graphlog.data.store import GraphStore
    from graphlog.datasets import resolve as fetch_dataset
    from graphlog.downstream.encoder import Encoder
    from graphlog.downstream.predictor import Predictor
    from graphlog.downstream.report import Report
    from graphlog.encoders.base import Encoding
    from graphlog.errors import ConfigError, DataError, GraphLoGError, ModelFileError
    from graphlog.pyg import from_pyg, to_pyg
    from graphlog.quickstart import run_quickstart
    from graphlog.report.describe import describe, describe_dataset, describe_datasets
    from graphlog.report.prototypes import write_prototypes
    from graphlog.report.run import draw_run

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
    "convert",
    "cv_probe",
    "describe",
    "describe_dataset",
    "describe_datasets",
    "draw_run",
    "embed",
    "embed_file",
    "fetch_dataset",
    "finetune",
    "fold_probe",
    "from_pyg",
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
    "run_benchmark",
    "run_quickstart",
    "scaffold_split",
    "split_file",
    "split_proteins",
    "to_pyg",
    "write_prototypes",
]

_HOMES = {  # module, and after a colon the name there where it is another
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
    "describe": "report.describe",
    "describe_dataset": "report.describe",
    "describe_datasets": "report.describe",
    "draw_run": "report.run",
    "fetch_dataset": "datasets:resolve",
    "from_pyg": "pyg",
    "run_benchmark": "benchmark:run",
    "run_quickstart": "quickstart",
    "to_pyg": "pyg",
    "write_prototypes": "report.prototypes",
}


def __getattr__(name: str) -> Any:
    """Load what ``name`` stands for on first use, so that importing the package stays quick."""
    if name not in __all__:
        raise AttributeError(f"module 'graphlog' has no attribute '{name}'")
    home, _, known_as = _HOMES.get(name, "api").partition(":")
    value = getattr(import_module(f"graphlog.{home}"), known_as or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
