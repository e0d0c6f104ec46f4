"""Pictures of runs: training curves, embedding maps, bars of scores; each as PNG and SVG."""
