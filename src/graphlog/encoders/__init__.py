"""From graphs to embeddings. A backbone is a file with one layer, and a line here."""

from collections.abc import Callable

from graphlog.data.schema import FeatureSchema
from graphlog.encoders.base import EncoderConfig, MessagePassing
from graphlog.encoders.gin import GIN

LAYERS: dict[str, Callable[[EncoderConfig, FeatureSchema], MessagePassing]] = {
    "gin": GIN,
}
"""The message-passing layer of every backbone."""
