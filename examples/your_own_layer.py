"""Use a convolution of torch_geometric as the layer of an encoder."""

from torch_geometric.nn import GENConv

import graphlog
from graphlog.encoders import LAYERS
from graphlog.encoders.layers import PyGLayer

LAYERS["gen"] = lambda config, schema: PyGLayer(
    GENConv(config.dim, config.dim, edge_dim=32), schema, edge_dim=32
)
graphs = graphlog.read_molecules("nci5k", limit=200)
shape = {"backbone": "gen", "layers": 2, "dim": 32}
encoder = graphlog.pretrain(graphs, epochs=2, batch_size=64, encoder=shape)
print("graph embeddings:", tuple(encoder(graphs[:8]).graph_emb.shape))
