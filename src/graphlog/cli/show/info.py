"""``graphlog info``: what a model, a store or a run is made of."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from graphlog.cli.console import Console, Table, fields_table
from graphlog.cli.options import Json, Quiet


def info(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A model file, a store, a run folder, or a shipped model's name.")],
    verify: Annotated[bool, typer.Option("--verify", help="Check every byte of a store against its recorded sha256.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Say what PATH is made of: schema, settings, origin, size."""
    from graphlog.report.describe import describe

    found = describe(path, verify=verify)
    Console(quiet, as_json).result(found, *_tables(found))


def _tables(found: Mapping[str, Any]) -> list[Table]:
    plain = {k: v for k, v in found.items() if not isinstance(v, Mapping | list)}
    tables = [fields_table(plain)]
    for name, value in found.items():
        if isinstance(value, Mapping) and value:
            tables.append(fields_table(_flat(value), f"\n{name}"))
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            tables.append(Table(tuple(value[0]), [tuple(row.values()) for row in value], f"\n{name}"))
        elif isinstance(value, list) and value:
            tables.append(fields_table({name: ", ".join(map(str, value))}))
    return tables


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return flat
