"""Servers: power, embodied carbon, capacity, fleets."""
