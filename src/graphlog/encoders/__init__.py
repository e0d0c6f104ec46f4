"""From graphs to embeddings. A backbone is a file with one layer, and a line here."""

from collections.abc import Callable

from graphlog.data.schema import FeatureSchema
from graphlog.encoders.adapter import gatv2, gine, transformer
from graphlog.encoders.base import EncoderConfig, MessagePassing
from graphlog.encoders.gat import GAT
from graphlog.encoders.gcn import GCN
from graphlog.encoders.gin import GIN
from graphlog.encoders.graphsage import GraphSAGE

LAYERS: dict[str, Callable[[EncoderConfig, FeatureSchema], MessagePassing]] = {
    "gin": GIN,
    "gcn": GCN,
    "graphsage": GraphSAGE,
    "gat": GAT,
    "gine": gine,
    "gatv2": gatv2,
    "transformer": transformer,
}
"""The message-passing layer of every backbone."""
