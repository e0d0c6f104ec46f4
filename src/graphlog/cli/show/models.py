"""``graphlog models``: the encoders that come with the package."""

from graphlog.cli.console import Console, Table
from graphlog.cli.options import Json, Quiet


def models(quiet: Quiet = False, as_json: Json = False) -> None:
    """List the shipped models: what they were trained on, their size, and how to use them."""
    from graphlog.downstream.models import list_models
    from graphlog.report.describe import describe_model

    found = {name: describe_model(path) for name, path in list_models().items()}
    columns = ("name", "objective", "recipe", "trained on", "encoder", "embedding", "size")
    rows = [
        (
            name,
            m["objective"],
            m["recipe"],
            f"{m['graphs']:,} graphs" if m["graphs"] else "",
            m["encoder"],
            m["embedding"],
            m["size"],
        )
        for name, m in found.items()
    ]
    rows.append(("random", "none", "", "nothing", "the default recipe's, untrained", "jk", ""))
    console = Console(quiet, as_json)
    console.result({"models": found}, Table(columns, rows))
    console.say(
        "use one by its name: graphlog embed molecules.csv -m NAME -o embeddings.npz; more about it: graphlog info NAME"
    )
