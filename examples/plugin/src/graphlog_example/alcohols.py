"""A data set: small molecules and whether each is an alcohol. The file is in this package."""

from importlib.resources import files

from graphlog.datasets import DatasetSpec

ALCOHOLS = DatasetSpec(
    name="alcohols",
    description="Small molecules: is it an alcohol?",
    domain="molecule",
    rows=96,
    path=str(files("graphlog_example") / "alcohols.csv"),
    sha256="48344c1fc05c635e04d6b428966f3aa6241cb47a226d04757edcad143a8efbb9",
    tasks=("alcohol",),
    num_tasks=1,
    task="classification",
    metric="roc_auc",
    split="random",
    license="CC0-1.0",
    source="made for this example",
)
