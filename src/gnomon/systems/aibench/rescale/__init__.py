"""The same trace with another batch size."""
