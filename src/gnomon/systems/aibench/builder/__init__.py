"""From trace nodes to the program of a benchmark."""
