"""What is judged otherwise where graphs are ego-networks of proteins: readout, baseline, halves of the test fold."""
