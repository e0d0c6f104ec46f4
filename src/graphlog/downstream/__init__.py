"""What a pre-trained encoder is for: embedding, probing, fine-tuning, predicting."""
