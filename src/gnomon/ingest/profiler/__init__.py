"""Profiler traces and operation logs of training jobs."""
