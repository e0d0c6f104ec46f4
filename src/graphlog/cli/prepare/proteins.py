"""What ``graphlog featurize --domain protein`` is told: networks, annotations, how ego-networks are cut, how functions are chosen."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from graphlog.cli.options import names
from graphlog.errors import ConfigError

if TYPE_CHECKING:
    from graphlog.data.store import GraphStore

PANEL = "Proteins"
Domain = Annotated[
    Literal["molecule", "protein"] | None,
    typer.Option(
        "--domain", help="What INPUT holds (default: that of the named data set, else molecule)."
    ),
]
Annotations = Annotated[
    str | None,
    typer.Option(
        "--annotations",
        metavar="A,B",
        help="GO annotation files (GAF), labels are chosen from them.",
        rich_help_panel=PANEL,
    ),
]
Go = Annotated[
    Path | None,
    typer.Option(
        "--go",
        metavar="FILE",
        help="The GO graph: go-basic.obo, or a table of edges.",
        rich_help_panel=PANEL,
    ),
]
GoTerms = Annotated[
    Path | None,
    typer.Option(
        "--go-terms",
        metavar="FILE",
        help="Table of terms beside a table of edges.",
        rich_help_panel=PANEL,
    ),
]
Aliases = Annotated[
    str | None,
    typer.Option(
        "--aliases", metavar="A,B", help="STRING's protein.aliases files.", rich_help_panel=PANEL
    ),
]
Labels = Annotated[
    Path | None,
    typer.Option(
        "--labels",
        metavar="FILE",
        help="Instead of annotations, a table of labels.",
        rich_help_panel=PANEL,
    ),
]
Species = Annotated[
    str | None,
    typer.Option(
        "--species", metavar="TAXON", help="Of a network that does not say.", rich_help_panel=PANEL
    ),
]
Score = Annotated[
    int | None,
    typer.Option(
        "--score",
        metavar="N",
        help="Lowest combined score of an interaction (default: 700).",
        rich_help_panel=PANEL,
    ),
]
ChannelScore = Annotated[
    str | None,
    typer.Option(
        "--channel-score",
        metavar="N|NAME=N,..",
        help="Lowest score that sets a channel, such as textmining=500.",
        rich_help_panel=PANEL,
    ),
]
Radius = Annotated[
    int | None,
    typer.Option(
        "--radius", metavar="N", help="Steps from the centre (default: 1).", rich_help_panel=PANEL
    ),
]
Neighbours = Annotated[
    int | None,
    typer.Option(
        "--neighbours",
        metavar="N",
        help="Strongest partners followed from a protein (default: 100).",
        rich_help_panel=PANEL,
    ),
]
Nodes = Annotated[
    int | None,
    typer.Option(
        "--nodes",
        metavar="N",
        help="Proteins of an ego-network at most (default: 500).",
        rich_help_panel=PANEL,
    ),
]
Isolated = Annotated[
    Literal["reject", "keep"] | None,
    typer.Option(
        "--isolated",
        help="Proteins without partners: reject them, or keep graphs of one node.",
        rich_help_panel=PANEL,
    ),
]
Terms = Annotated[
    int | None,
    typer.Option(
        "--terms",
        metavar="N",
        help="Functions to choose at most (default: 40).",
        rich_help_panel=PANEL,
    ),
]
MinPositives = Annotated[
    int | None,
    typer.Option(
        "--min-positives",
        metavar="N",
        help="Fewest positives of a function (default: 100).",
        rich_help_panel=PANEL,
    ),
]
MaxOverlap = Annotated[
    float | None,
    typer.Option(
        "--max-overlap",
        metavar="J",
        help="Functions overlap less than this (Jaccard, default: 0.8).",
        rich_help_panel=PANEL,
    ),
]
Evidence = Annotated[
    str | None,
    typer.Option(
        "--without-evidence",
        metavar="A,B",
        help="Evidence codes that do not count (default: IEA,ND,NAS).",
        rich_help_panel=PANEL,
    ),
]
LabelledOnly = Annotated[
    bool | None,
    typer.Option(
        "--labelled-only",
        help="Reject proteins without a usable annotation.",
        rich_help_panel=PANEL,
    ),
]


def reading_of(
    source: str, domain: str | None, schema: str | None, given: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return what ``read_proteins`` is to be told, from the options that were given; None where INPUT holds no proteins.

    Raises:
        ConfigError: If an option is for proteins and INPUT holds none, or a score of a channel is no number.
    """
    from graphlog.downstream.sources import domain_of

    reading = {key: value for key, value in given.items() if value is not None}
    if (domain or ("protein" if schema == "protein" else domain_of(source))) != "protein":
        if reading:
            option = next(iter(reading)).replace("_", "-").replace("evidence", "without-evidence")
            raise ConfigError(f"--{option} is for networks of proteins; add --domain protein.")
        return None
    for key in ("annotations", "aliases"):
        if key in reading:
            reading[key] = names(reading[key])
    if "evidence" in reading:
        reading["evidence"] = tuple(names(reading["evidence"]))
    if "channel_score" in reading:
        reading["channel_score"] = _channel_scores(reading["channel_score"])
    return reading


def read(source: str, reading: Mapping[str, Any], **told: Any) -> "GraphStore":
    """Return the ego-networks of INPUT, or of each network it lists: ``a.txt.gz,b.txt.gz``."""
    from graphlog.datasets.networks.stores import open_proteins

    return open_proteins(
        source if Path(source).exists() or "," not in source else names(source), **told, **reading
    )


def _channel_scores(text: str) -> int | dict[str, int]:
    try:
        if "=" not in text:
            return int(text)
        pairs = [part.partition("=") for part in names(text)]
        return {name.strip(): int(least) for name, _, least in pairs}
    except ValueError:
        raise ConfigError(
            f"--channel-score must be a number from 1 to 1000, or such as textmining=500,database=300, found {text!r}."
        ) from None
