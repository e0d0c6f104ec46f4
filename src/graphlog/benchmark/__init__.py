"""The compared methods in one loop: grids of cells, and the tables and figures rendered from them."""
