"""GPUs and networks: catalogue, kernel and collective times, profiler overhead."""
