"""Hand over a training step as a benchmark: build it, search it for the original, run it.

python examples/aibench_handover.py
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from gnomon.datasets import bundled
from gnomon.systems.aibench import build
from gnomon.systems.aibench.builder.scalars import COMMON
from gnomon.systems.aibench.folder import templates
from gnomon.systems.aibench.verify.audit import audit

traces = bundled("cpu-gpt-mini")
with tempfile.TemporaryDirectory() as scratch:
    made = build(traces, Path(scratch) / "bench")
    print(f"rebuilt: {made.coverage_ops_pct:.0f} % of {len(made.calls)} operators")
    print(f"of the recorded time: {made.coverage_time_pct:.0f} %")

    found = audit(
        made.folder,
        [traces / "et.json.gz", traces / "kineto.json.gz"],
        templates=templates(),
        neutral=COMMON,
    )
    print(f"strings of the original in it: {len(found.found)}")

    command = [sys.executable, str(made.folder / "run.py"), "--device", "cpu", "--steps", "2"]
    answer = json.loads(subprocess.check_output([*command, "--json"]))
    replayed, placeholders = answer["replayed"], answer["placeholders"]
    print(f"run: {replayed} calls replayed, {placeholders} placeholder kernels")
    print(f"results that differ from the recording: {answer['differing']}")
