"""Measurements of a benchmark: time per step, memory, power, and a profiler trace."""

import contextlib
import gc
import subprocess
import time
import warnings
from itertools import pairwise

import torch

import data


def steps_ms(bench, steps):
    """Milliseconds of each step, one right after the other, and the peak of memory."""
    machine = bench.machine
    gc.collect()
    gc.freeze()  # the program itself need not be looked through again and again
    for number in range(min(8, max(steps, 2))):
        bench.step(number)
    machine.synchronize()
    if machine.is_cuda:
        torch.cuda.reset_peak_memory_stats()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
        events[0].record()
        for number in range(steps):
            bench.step(number)
            events[number + 1].record()
        torch.cuda.synchronize()
        times = [one.elapsed_time(other) for one, other in pairwise(events)]
        return times, torch.cuda.max_memory_allocated()
    stamps = [time.perf_counter_ns()]
    for number in range(steps):
        bench.step(number)
        stamps.append(time.perf_counter_ns())
    return [(b - a) / 1e6 for a, b in pairwise(stamps)], data.peak_bytes()


def profile(bench, path):
    """Writes the profiler's trace of three steps.

    The host takes as long as it did in the recording, which the profiler slowed too: so the same
    things run beside one another.
    """
    from torch.profiler import ProfilerActivity, schedule
    from torch.profiler import profile as profiler

    warnings.simplefilter("ignore")  # about cycles of the profiler, of which there is one

    activities = [ProfilerActivity.CPU]
    activities += [ProfilerActivity.CUDA] if bench.machine.is_cuda else []
    config = {}
    with contextlib.suppress(AttributeError, TypeError):  # older ones see the main thread alone
        everywhere = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
        config["experimental_config"] = everywhere
    with profiler(**config, activities=activities, record_shapes=True,
                  schedule=schedule(wait=1, warmup=2, active=3, repeat=1),
                  on_trace_ready=lambda p: p.export_chrome_trace(path)) as running:  # fmt: skip
        bench.machine.scale *= bench.program["settings"].get("profiler", 1.0)
        for number in range(6):
            bench.step(number)
            running.step()
    bench.machine.synchronize()


def power(bench):
    """Watts while it runs, where the driver's tool is installed."""
    query = ["--query-gpu=power.draw", "--format=csv,noheader,nounits", "-lms", "100"]
    watts = []
    with contextlib.suppress(OSError, ValueError):
        meter = subprocess.Popen(["nvidia-smi", *query], stdout=subprocess.PIPE, text=True)
        until, number = time.monotonic() + 2.5, 0
        while time.monotonic() < until:
            bench.step(number)
            number += 1
            if number % 8 == 0:
                bench.machine.synchronize()
        bench.machine.synchronize()
        meter.terminate()
        watts = [float(line) for line in meter.communicate()[0].split()][5:]
    return watts
