"""What ``graphlog featurize`` is told about any graphs: which attributes are categories, and whose schema to follow."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphlog.cli.options import names
from graphlog.errors import ConfigError

if TYPE_CHECKING:
    from graphlog.data.store import GraphStore

PANEL = "Any graphs"
Like = Annotated[
    str | None,
    typer.Option(
        "--like",
        metavar="MODEL|STORE",
        help="Read attributes as this does, not as found out.",
        rich_help_panel=PANEL,
    ),
]
Categorical = Annotated[
    str | None,
    typer.Option(
        "--categorical",
        metavar="A,B",
        help="Attributes that are categories.",
        rich_help_panel=PANEL,
    ),
]
Continuous = Annotated[
    str | None,
    typer.Option(
        "--continuous", metavar="A,B", help="Attributes that are quantities.", rich_help_panel=PANEL
    ),
]
Directed = Annotated[
    bool, typer.Option("--directed", help="Each edge is one direction only.", rich_help_panel=PANEL)
]


def reading_of(
    source: str, given: Mapping[str, Any], unfit: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return what ``read_graphs`` is to be told; None where INPUT is no collection of any graphs.

    Args:
        source: INPUT.
        given: The options of this module, by name.
        unfit: Options that mean nothing here, by name.

    Raises:
        ConfigError: If an option does not fit INPUT.
    """
    from graphlog.data.store import is_store, open_store
    from graphlog.datasets.graphs import is_graphs
    from graphlog.report.describe import schema_of

    is_any = is_graphs(source)
    for key, value in (unfit if is_any else given).items():
        if value:
            raise ConfigError(
                f"--{key.replace('_', '-')} does not go with {source}, which holds {'' if is_any else 'no '}graphs; drop it."
            )
    if not is_any:
        return None
    kinds = {name: kind for kind in ("categorical", "continuous") for name in names(given[kind])}
    like = given["like"]
    schema = None if like is None else open_store(like) if is_store(like) else schema_of(like)
    return {"schema": schema, "kinds": kinds or None, "directed": given["directed"]}


def read(
    source: str, reading: Mapping[str, Any], workers: int | None = None, **told: Any
) -> "GraphStore":
    """Return the graphs of INPUT; one process reads them."""
    from graphlog.datasets.graphs import read_graphs

    return read_graphs(Path(source) if Path(source).exists() else source, **told, **reading)
