"""Spans of distributed traces, and the applications that they imply."""
