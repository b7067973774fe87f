"""What is fitted or computed about workloads: what a kernel does, by its name.

Models stand beside `ingest`: neither imports the other.
"""
