"""Runs a benchmark on a CUDA device that is only pretended, to see which stream waits for which.

    python pretended_device.py BENCH

Tensors stay on the CPU; streams and events only write down what is asked of them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import threading
from pathlib import Path

import torch

asked: list[tuple[str, int, int]] = []


class Event:
    def __init__(self, **_) -> None:
        self.stream = -1

    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, _other) -> float:
        return 1.0


class Stream:
    count = 0

    def __init__(self) -> None:
        self.number = Stream.count
        Stream.count += 1

    def record_event(self, event=None):
        event = event or Event()
        event.stream = self.number
        return event

    def wait_event(self, event) -> None:
        asked.append(("wait", self.number, event.stream))

    def wait_stream(self, other) -> None:
        asked.append(("join", self.number, other.number))


class Current(threading.local):
    """Every thread has a stream of its own, the default one at first."""

    stream = Stream()


current = Current()


def pretend() -> None:
    cuda = torch.cuda
    cuda.Stream, cuda.Event = Stream, Event
    cuda.current_stream = lambda *_: current.stream
    cuda.set_stream = lambda stream: setattr(current, "stream", stream)
    for name in ("set_device", "_sleep", "synchronize", "reset_peak_memory_stats"):
        setattr(cuda, name, lambda *_: None)
    cuda.mem_get_info = lambda *_: (1 << 40, 1 << 40)
    cuda.max_memory_allocated = lambda: 1


def main() -> None:
    bench = Path(sys.argv[1])
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(bench))
    pretend()
    import run

    program = json.loads(gzip.decompress((bench / "program.json.gz").read_bytes()))
    options = argparse.Namespace(indices="uniform", seed=0, host_scale=0.0, pace="on")

    class Pretended(run.Machine):
        def __init__(self) -> None:
            super().__init__("cuda", program, options)
            self.device = torch.device("cpu")

    with torch.inference_mode():
        ready = run.Bench(program, Pretended(), options)
        asked.clear()
        ready.step(0)
    calls = [call.is_replayed for call in ready.calls]
    print(json.dumps({"asked": asked, "placeholders": calls.count(False), "calls": len(calls)}))


if __name__ == "__main__":
    main()
