"""Graph encoders. Each backbone is a message-passing layer, registered in ``LAYERS``."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from graphlog.plugins import Registry

if TYPE_CHECKING:
    from graphlog.data.graphs import FeatureSchema
    from graphlog.encoders.encoder import EncoderConfig, MessagePassing

Layer: TypeAlias = "Callable[[EncoderConfig, FeatureSchema], MessagePassing]"


def _fits(name: str, part: object) -> str | None:
    return None if callable(part) else "a class or function of (config, schema)"


LAYERS: Registry[Layer] = Registry(
    "backbone",
    {
        "gin": "graphlog.encoders.layers:GIN",
        "gcn": "graphlog.encoders.layers:GCN",
        "graphsage": "graphlog.encoders.layers:GraphSAGE",
        "gat": "graphlog.encoders.layers:GAT",
        "gine": "graphlog.encoders.layers:GINE",
        "gatv2": "graphlog.encoders.layers:GATv2",
        "transformer": "graphlog.encoders.layers:Transformer",
    },
    _fits,
)
"""Message-passing layers by the name of the backbone."""
