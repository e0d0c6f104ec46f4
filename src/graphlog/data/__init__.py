"""What a graph is: schema, batch, packed store, splits and samplers; knows nothing of chemistry or of models."""
