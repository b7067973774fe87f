"""Reading large profiler traces: time, memory against the raw size, and the second read.

    python benchmarks/trace_reader.py --gb 2

Writes a trace of the given raw size (the bundled one over and over, each copy later) into a
temporary folder, and reads it in fresh processes: plain, then with its copy in columns kept, then
from that copy. Memory is the peak of the whole process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from gnomon.datasets import bundled
from gnomon.ingest.text import read_pieces

_CHILD = """
import json, resource, sys, time
from gnomon.ingest.profiler.kineto import read_kineto
before = time.process_time()
trace = read_kineto(sys.argv[1], cache=sys.argv[2] == "cache")
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"events": len(trace), "cpu_s": time.process_time() - before,
                  "peak_mb": usage.ru_maxrss / 1024}))
"""


def main() -> None:
    """Prints one line a read."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gb", type=float, nargs="+", default=[0.5, 1.0, 2.0], help="raw sizes")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    chosen = parser.parse_args()
    rows = []
    for size in chosen.gb:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            write_trace(path, round(size * 1e9))
            rows += measure(path, folder)
        if not chosen.json:
            for row in rows[-3:]:
                print(
                    f"{row['raw_gb']:5.2f} GB raw  {row['read']:22}  {row['events']:>10,} events"
                    f"  {row['cpu_s']:7.2f} CPU s  {row['mb_per_s']:7.0f} MB/s"
                    f"  peak {row['peak_mb']:7.0f} MB = {row['peak_over_raw']:.2f} x raw"
                )
    if chosen.json:
        print(json.dumps(rows, indent=1))


def write_trace(path: Path, size: int) -> None:
    """The bundled trace again and again, each copy a second later, until it is large enough."""
    source = next(bundled("h200-gpt-l6").glob("*.json.gz"))
    trace = json.loads(b"".join(read_pieces(source)))
    events = [event for event in trace.pop("traceEvents") if event.get("ph") == "X"]
    head = json.dumps(trace)[:-1] + ', "traceEvents": ['
    with path.open("w") as file:
        file.write(head)
        copy, first = 0, True
        while file.tell() < size:
            lines = []
            for event in events:
                event["ts"] += 1e6
                if (correlation := event.get("args", {}).get("correlation")) is not None:
                    event["args"]["correlation"] = correlation + 1_000_000
                lines.append(json.dumps(event))
            file.write(("" if first else ",") + ",\n".join(lines))
            copy, first = copy + 1, False
        file.write("]}")


def measure(path: Path, folder: str) -> list[dict[str, object]]:
    """Three reads, each in a process of its own."""
    raw = path.stat().st_size
    environment = os.environ | {"GNOMON_CACHE": str(Path(folder) / "cache")}
    rows = []
    for read, mode in (
        ("without a copy", "plain"),
        ("first, keeping a copy", "cache"),
        ("from the copy", "cache"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, str(path), mode],
            check=True, capture_output=True, text=True, env=environment,
        )  # fmt: skip
        row = json.loads(done.stdout)
        rows.append(
            {"raw_gb": raw / 1e9, "read": read, **row, "mb_per_s": raw / 1e6 / row["cpu_s"],
             "peak_over_raw": row["peak_mb"] * 1.048576e6 / raw}
        )  # fmt: skip
    return rows


if __name__ == "__main__":
    main()
