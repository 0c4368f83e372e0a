"""Sessions on many machines: models × machines × options, each cell a session of pytest's that Ray finds a node for."""
