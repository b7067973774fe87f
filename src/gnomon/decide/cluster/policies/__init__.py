"""Policies of a cluster, a file an idea. The registry imports every module here on first use."""
