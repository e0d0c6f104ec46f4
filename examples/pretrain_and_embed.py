"""Pre-train on molecules without labels, then find the molecules nearest to a query."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import graphlog

graphs = graphlog.read_molecules("nci5k", limit=300)
print(f"{len(graphs)} molecules, {len(graphs.rejects)} rows rejected")

encoder = graphlog.pretrain(
    graphs, epochs=2, batch_size=64, encoder={"dim": 32, "layers": 2}, seed=0
)
with TemporaryDirectory() as folder:
    model = Path(folder) / "model.safetensors"
    encoder.save(model)
    encoder = graphlog.load(model)

collection = encoder.embed(graphs)
query = encoder.embed(["OC(=O)c1ccccc1O"])[0]
scale = collection.std(axis=0) + 1e-9
distance = np.linalg.norm((collection - query) / scale, axis=1)
nearest = np.argsort(distance)[:5]
for smiles, d in zip(graphs.texts(nearest), distance[nearest], strict=True):
    print(f"{d:6.2f}  {smiles}")
