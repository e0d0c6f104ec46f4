"""The one training loop: any objective, any encoder, resumable to the bit."""
