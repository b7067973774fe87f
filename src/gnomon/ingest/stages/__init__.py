"""Public traces of jobs made of stages."""
