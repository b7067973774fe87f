"""Replay a real H200 trace and ask what a faster matrix multiplication would gain.

Scenario: a six-layer GPT on one GPU; the trace comes with gnomon.
"""

from gnomon.datasets import bundled
from gnomon.systems.training import WhatIf, replay_trace

run = replay_trace(
    bundled("h200-gpt-l6"),
    [
        WhatIf("GEMMs twice as fast", ("gemm",), 0.5),
        WhatIf("attention free", ("attention",), 0.0),
        WhatIf("optimizer free", ("optimizer",), 0.0),
    ],
)
print(f"{len(run.timeline):,} tasks on {run.training.gpu}")
for row in run.what_ifs:
    print(f"{row.label:24} {row.step_ms:6.2f} ms per step  {100 * row.change:+.1f} %")
