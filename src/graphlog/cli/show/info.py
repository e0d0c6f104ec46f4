"""``graphlog info``: what a model, a store or a run is made of."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from graphlog.cli.console import Console, Table, fields_table
from graphlog.cli.options import Json, Quiet


def info(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="A model file, a store, a run folder, or a shipped model's name."
        ),
    ],
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Check every byte of a store against its recorded sha256."),
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Say what PATH is made of: schema, settings, origin, size."""
    from graphlog.report.describe import describe

    found = describe(path, verify=verify)
    Console(quiet, as_json).result(found, *_tables(found))


def _tables(found: Mapping[str, Any]) -> list[Table]:
    plain = {
        k: ", ".join(map(str, v)) if isinstance(v, list) else v
        for k, v in found.items()
        if not isinstance(v, Mapping)
    }
    tables = [fields_table(plain)]
    tables += [
        fields_table(_flat(v), f"\n{k}") for k, v in found.items() if isinstance(v, Mapping) and v
    ]
    return tables


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= (
            _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
        )
    return flat
