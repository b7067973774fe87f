"""Which calls a benchmark makes and how often; mixes of several benchmarks."""
