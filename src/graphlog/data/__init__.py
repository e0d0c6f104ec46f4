"""What a graph is: schema, batch, store, splits, samplers; knows nothing of chemistry or models."""
