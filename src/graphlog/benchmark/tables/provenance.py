"""Where the numbers of a table come from, in a few lines under it."""

from collections.abc import Mapping, Sequence
from typing import Any

from graphlog.benchmark.tables.cells import Cell


def provenance(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Return what the cells say of scale, data, settings, seeds, machine and command; nothing that a clock told."""
    if not cells:
        return ()
    seeds = sorted({c.seed for c in cells if c.seed is not None})
    lines = [
        _sentence("Scale", sorted({c.scale for c in cells})),
        _sentence("Pre-training", _distinct(cells, _pretraining)),
        _sentence("Fine-tuning", _distinct(cells, _finetuning)),
        _sentence(
            "Split",
            _distinct(cells, lambda c: str(_inner(c.raw, "data", "dataset").get("split") or "")),
        ),
        _sentence("Seeds", [", ".join(map(str, seeds))] if seeds else []),
        _sentence("Machine", _distinct(cells, _machine)),
        _sentence("Versions", _distinct(cells, _versions)),
        _sentence("Command", _distinct(cells, lambda c: str(c.raw.get("command") or ""))),
    ]
    notes = sorted({str(note) for c in cells for note in c.raw.get("notes") or ()})
    return (*(line for line in lines if line), *notes)


def _sentence(head: str, found: Sequence[str]) -> str:
    return f"{head}: {'; or '.join(found)}." if found else ""


def _distinct(cells: Sequence[Cell], describe: Any) -> list[str]:
    return sorted({text for c in cells if (text := describe(c))})


def _pretraining(cell: Cell) -> str:
    data = _inner(cell.raw, "data", "pretrain")
    settings = _inner(cell.raw, "config", "pretrain")
    encoder = _inner(settings, "encoder")
    graphs = (
        f"{data['graphs']:,} graphs of {data.get('name', 'unnamed data')}"
        if data.get("graphs")
        else ""
    )
    epochs = _counted(settings.get("epochs"), "epoch")
    batch = f"batches of {settings['batch_size']}" if settings.get("batch_size") else ""
    layers = (
        f"encoder {encoder['layers']} x {encoder['dim']}"
        if {"layers", "dim"} <= encoder.keys()
        else ""
    )
    return ", ".join(filter(None, [graphs, epochs, batch, layers])) if graphs else ""


def _finetuning(cell: Cell) -> str:
    settings = _inner(cell.raw, "config", "finetune")
    batch = f"batches of {settings['batch_size']}" if settings.get("batch_size") else ""
    return ", ".join(filter(None, [_counted(settings.get("epochs"), "epoch"), batch]))


def _machine(cell: Cell) -> str:
    machine = _inner(cell.raw, "machine")
    threads = _counted(machine.get("threads"), "thread")
    return ", ".join(
        filter(
            None,
            [
                str(machine.get("processor") or ""),
                _counted(machine.get("cores"), "core"),
                threads,
                machine.get("device"),
            ],
        )
    )


def _versions(cell: Cell) -> str:
    return ", ".join(
        f"{name} {version}" for name, version in sorted(_inner(cell.raw, "versions").items())
    )


def _counted(count: Any, what: str) -> str:
    return "" if count is None else f"{count:,} {what}{'s' * (count != 1)}"


def _inner(values: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    for name in path:
        values = values.get(name) or {}
    return values
