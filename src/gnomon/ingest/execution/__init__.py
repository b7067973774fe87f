"""PyTorch execution traces."""
