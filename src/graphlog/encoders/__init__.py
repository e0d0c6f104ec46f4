"""From graphs to embeddings. A backbone is a file with one layer, and a line here."""

from collections.abc import Callable

from graphlog.data.schema import FeatureSchema
from graphlog.encoders.adapter import GINE, GATv2, Transformer
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
    "gine": GINE,
    "gatv2": GATv2,
    "transformer": Transformer,
}
"""The message-passing layer of every backbone."""
