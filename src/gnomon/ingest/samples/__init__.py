"""Measured times of requests: tables, load testers' logs, HdrHistograms, spans."""
