"""Measurements over time: tables and Prometheus."""
