"""What an ego-network looks like: constant nodes, seven kinds of evidence on every interaction."""

from graphlog.data.schema import Attribute, FeatureSchema

CHANNELS = (
    "neighborhood",
    "fusion",
    "cooccurence",
    "coexpression",
    "experimental",
    "database",
    "textmining",
)
"""STRING's evidence channels, in its order and spelling."""
PROTEIN = FeatureSchema(
    name="protein",
    domain="protein",
    node=(Attribute("protein", 2),),
    edge=tuple(Attribute(name, 0) for name in (*CHANNELS, "self_loop", "mask")),
    masked="edge",
    edge_mask=(0.0,) * 8 + (1.0,),
    self_loop=(0.0,) * 7 + (1.0, 0.0),
)
"""The layout of the pre-train-GNNs family. Node 0 of every graph is the centre; every node has code 1."""
