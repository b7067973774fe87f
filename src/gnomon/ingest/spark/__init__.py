"""Spark event logs."""
