"""Descriptions and figures of runs: training curves, embedding maps, scores, prototypes."""
