"""Decima's graph network: weights, inference, training in PyTorch."""
