"""The systems, a package each. They stand on the layers and never import one another."""
