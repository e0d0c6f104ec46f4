"""Uses of a pre-trained encoder: embedding, probing, fine-tuning, prediction."""
