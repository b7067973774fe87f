"""AI benchmarks: can I hand over this AI workload without handing over the model?

From a PyTorch execution trace, and a profiler trace of the same job, to a folder that runs with
torch alone (after Mystique, arXiv 2301.04122).

    from gnomon.datasets import bundled
    from gnomon.systems.aibench import build
    build(bundled("cpu-gpt-mini"), Path("bench")).coverage_time_pct
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnomon.lazy import lazy_names

if TYPE_CHECKING:
    from gnomon.systems.aibench.benchmark import Benchmark, build
    from gnomon.systems.aibench.pipeline import Options, build_program
    from gnomon.systems.aibench.verify.check import check_bench

__all__ = ["Benchmark", "Options", "build", "build_program", "check_bench"]

_HOME = {
    "benchmark": ["Benchmark", "build"],
    "pipeline": ["Options", "build_program"],
    "verify.check": ["check_bench"],
}  # fmt: skip

__getattr__ = lazy_names(__name__, _HOME)
