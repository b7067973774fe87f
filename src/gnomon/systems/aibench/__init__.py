"""AI benchmarks: can I hand over this AI workload without handing over the model?"""
