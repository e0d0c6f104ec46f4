"""A convolution of torch_geometric as the layer of a GraphLoG encoder."""

import torch
from torch_geometric.nn import GENConv

import graphlog
from graphlog.encoders.base import EncoderConfig
from graphlog.encoders.encoder import GraphEncoder
from graphlog.encoders.layers import PyGLayer
from graphlog.training.config import resolve_config
from graphlog.training.pretrain import run_pretraining

graphs = graphlog.read_molecules("nci5k", limit=200)
torch.manual_seed(0)
config = EncoderConfig(layers=2, dim=32)
layers = [
    PyGLayer(GENConv(32, 32, edge_dim=32), graphs.schema, edge_dim=32) for _ in range(config.layers)
]
encoder = GraphEncoder(config, graphs.schema, layers=layers)

settings = resolve_config(
    overrides={"epochs": 2, "batch_size": 64, "encoder": {"dim": 32, "layers": 2}}
)
result = run_pretraining(graphs, settings, None, init=encoder)
with torch.no_grad():
    print("graph embeddings:", tuple(result.encoder(graphs[:8]).graph_emb.shape))
