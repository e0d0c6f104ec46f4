"""Training of any objective and encoder; a resumed run gives bit-identical results."""
