"""What is fitted or computed about workloads: what a kernel does, told from its name.

Models stand beside `ingest`: neither imports the other.
"""
