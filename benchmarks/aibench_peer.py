"""et_replay on execution traces: what it replays, how long it takes, what of the original it leaves out.

    python benchmarks/aibench_peer.py --checkout DIR --out RESULTS TRACE ... [--tf32]
    python benchmarks/aibench_peer.py --out RESULTS TRACE ... --read

DIR holds the Python package `et_replay` (of github.com/facebookresearch/param, or
meta-pytorch/chakra_replay). A TRACE is a folder with `et.json` or `et.json.gz`; `kineto.json.gz` and
`meta.json` of the same job beside it give the coverage and the original's step. Running needs torch
with a CUDA GPU and what et_replay imports (numpy, intervaltree, pydot); the comparison needs gnomon,
and `--read` makes it on another machine from the RESULTS that a run has left.

Every run is a process of its own and calls et_replay as its command line does, in compute mode; its
logic is left alone. The time of each iteration is what its own pair of CUDA events measure; a clock on
the host is read beside them. Where a trace does not replay, et_replay's own remedy is tried: it lists
the operators that fail (`--update-replay-config`) and leaves them out by name; with tensors allocated
beforehand, as is its default, and if need be where they are used, as when the list is made.

An execution trace does not record whether GEMMs ran in TF32, and et_replay reads its own option for
that without acting on it; `--tf32` allows it by torch's environment. Give it where the job did.

Coverage is the share of the original's device time in kernels that the replay launches as well, by
name and number: that is comparable on the same GPU and the same torch only, where names agree.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import re
import shutil
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

ENTRY = "et_replay.tools.et_replay"
WARM_UP, PROFILED, ROUNDS = 5, 3, 3
LAZY = "--enable-lazy-tensor-allocation"
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


# -- one run, in a process of its own ------------------------------------------------------------


def replay(link, options, log, environment):
    """Runs et_replay once; sends what was seen of it."""
    os.environ.update(environment)
    with Path(log).open("w") as lines:
        os.dup2(lines.fileno(), 1)
        os.dup2(lines.fileno(), 2)
    seen = {"finished": False, "iteration_ms": [], "wall_ms": [], "error": None}
    try:
        observe(seen, options)
    except (Exception, SystemExit) as error:
        seen["error"] = f"{type(error).__name__}: {error}"
    sys.stdout.flush()
    link.send(seen)


def observe(seen, options):
    import torch
    from et_replay.tools import et_replay as peer

    sys.argv = ["et_replay", *options]
    manager = peer.ExgrReplayManager()
    manager.readComputeArgs()
    manager.initBench()
    counts = {name: Counter() for name in ("built", "unbuilt", "left_out", "failed")}
    count_operators(manager, counts)
    time_iterations(torch, seen)
    try:
        seen["finished"] = manager.benchTime()["execution finished"]
    finally:
        seen.update({name: dict(count.most_common()) for name, count in counts.items()})
        seen["peak_bytes"] = torch.cuda.max_memory_allocated()
        seen["torch"], seen["device"] = torch.__version__, torch.cuda.get_device_name()


def count_operators(manager, counts):
    """Counts what becomes of each operator, by name."""
    build, is_skipped, run = manager.build_func, manager.is_skipped, manager.run_op

    def counted_build(node):
        function, outputs = build(node)
        counts["unbuilt" if function is None else "built"][node.name] += 1
        return function, outputs

    def counted_skip(node):
        skipped = is_skipped(node)
        if skipped:
            counts["left_out"][node.name] += 1
        return skipped

    def counted_run(node, *place):
        outcome = run(node, *place)
        if not (outcome and outcome[0]):
            counts["failed"][node.name] += 1
        return outcome

    manager.build_func, manager.is_skipped = counted_build, counted_skip
    manager.run_op = counted_run


def time_iterations(torch, seen):
    """Keeps what et_replay's events measure in each iteration, of which it prints the mean alone."""

    class KeptEvent(torch.cuda.Event):
        def record(self, *stream):
            self.recorded_at = time.perf_counter()
            super().record(*stream)

        def elapsed_time(self, end_event):
            # Asked once an iteration, after the device has been waited for.
            seen["wall_ms"].append(1e3 * (time.perf_counter() - self.recorded_at))
            seen["iteration_ms"].append(super().elapsed_time(end_event))
            return seen["iteration_ms"][-1]

    torch.cuda.Event = KeptEvent


def has_gpu(link):
    import torch

    link.send(torch.cuda.is_available())


class Processes:
    """Starts runs, each in a fresh process that has torch and et_replay imported already."""

    def __init__(self):
        # Compiling workers would be started at import, and none of them is needed.
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["torch", ENTRY])

    def call(self, function, *given, limit_s=300):
        """What a function sends from its process; None where that ended without a word."""
        ours, theirs = self.context.Pipe(duplex=False)
        process = self.context.Process(target=function, args=(theirs, *given))
        process.start()
        theirs.close()
        answer = None
        with contextlib.suppress(EOFError):
            answer = ours.recv() if ours.poll(limit_s) else None
        process.join(10)
        if process.is_alive():
            process.kill()
        return answer


# -- the runs of one trace -------------------------------------------------------------------------


def replay_trace(processes, trace, out, iterations):
    """Times a trace, by way of the remedy where it does not replay; then profiles it."""
    out.mkdir(parents=True, exist_ok=True)
    source = next(
        path for path in map(trace.joinpath, ("et.json", "et.json.gz")) if path.is_file()
    )
    common = ["--input", str(source), "--replay-mode", "comp"]
    timed = [*common, "--warmup-iter", str(WARM_UP), "--iter", str(iterations)]
    runs = {"plain": run_once(processes, timed, out / "plain.log")}
    used = []
    if not runs["plain"]["finished"]:
        config = out / "left_out.json"
        runs["remedy"] = find_failing(processes, common, config, out)
        for name, more in (("without", []), ("lazy", [LAZY])):
            used = ["--replay-config", str(config), *more]
            runs[name] = run_once(processes, [*timed, *used], out / f"{name}.log")
            if runs[name]["finished"]:
                break
    if last_of(runs)["finished"]:
        runs["profiled"] = profile(processes, [*common, *used], out)
    (out / "runs.json").write_text(json.dumps(runs, indent=1))
    return runs


def last_of(runs):
    """The timed run that counts."""
    return runs.get("lazy") or runs.get("without") or runs["plain"]


def run_once(processes, options, log, environment=None):
    begin = time.perf_counter()
    seen = processes.call(replay, options, str(log), environment or {})
    seen = seen or {"finished": False, "error": "the process ended without an answer"}
    return seen | {"options": options, "took_s": time.perf_counter() - begin} | printed_in(log)


def printed_in(log):
    """The figures that et_replay prints of itself, and its first complaint."""
    text = log.read_text(errors="replace")
    figures = {
        "says_ms": r"Replay time per iteration: ([\d.]+)",
        "says_coverage": r"Operator coverage: = ([\d.]+)",
        "to_execute": r"#Operators to execute: (\d+)",
    }
    found = {name: re.search(pattern, text) for name, pattern in figures.items()}
    # The reason first, where there is one: TorchScript puts a line of its own before it.
    reasons = (r"^\w*Error: .*", r"Run op exception .*", r"Failed to get input data .*")
    complaint = next(filter(None, (re.search(reason, text, re.M) for reason in reasons)), None)
    return {name: float(match[1]) for name, match in found.items() if match} | {
        "complaint": complaint and complaint[0][:300]
    }


def find_failing(processes, common, config, out):
    """Has et_replay list what fails until it finds no more.

    With tensors allocated where they are used: allocated beforehand, they are not yet in its
    registry in this mode, and every operator that reads one is listed.
    """
    config.write_text(json.dumps({"skip nodes": {}, "import modules": []}))
    options = [*common, "--replay-config", str(config), "--update-replay-config"]
    options += [LAZY]
    rounds = []
    for number in range(ROUNDS):
        log = out / f"remedy{number}.log"
        rounds.append(run_once(processes, options, log, {"CUDA_LAUNCH_BLOCKING": "1"}))
        if rounds[-1]["finished"] or rounds[-1]["error"]:
            break
    return {"rounds": rounds, "left_out": json.loads(config.read_text())["skip nodes"]}


def profile(processes, common, out):
    """Has et_replay profile itself; keeps the trace.

    In compute mode it fails once the trace is written, in an analysis of what ranks exchanged, so
    that what matters is whether there is a trace.
    """
    folder = out / "profile"
    options = [*common, "--warmup-iter", str(WARM_UP), "--iter", str(PROFILED)]
    options += ["--profile-replay", "--output-path", str(folder)]
    run = run_once(processes, options, out / "profiled.log")
    written = sorted(folder.glob("profiler_trace/*.pt.json.gz"))
    if written:
        shutil.copyfile(written[0], out / "replay.json.gz")
    shutil.rmtree(folder, ignore_errors=True)
    return run | {"trace": bool(written)}


# -- the comparison --------------------------------------------------------------------------------


def compare(trace, out):
    """Device time of both, in all and by family, and the share of it that is covered."""
    from gnomon.ingest.profiler.kineto import read_kineto
    from gnomon.systems.aibench.verify.profile import profile_of

    paths = (trace / "kineto.json.gz", out / "replay.json.gz")
    if not all(path.is_file() for path in paths):
        return None
    original, replayed = (read_kineto(path, cache=False) for path in paths)
    one, two = profile_of(original), profile_of(replayed)
    return {
        "kernels": (one.kernels, two.kernels),
        "device_ms": (sum(one.kernel_ms.values()), sum(two.kernel_ms.values())),
        "streams": (len(one.stream_pct), len(two.stream_pct)),
        "family_ms": (one.kernel_ms, two.kernel_ms),
        "coverage_pct": covered_pct(by_name(original), by_name(replayed)),
    }


def by_name(trace):
    """Number and nanoseconds of what a whole step launched on the device, by name."""
    from gnomon.sim.trace.events import lay_out, step_marks
    from gnomon.sim.trace.marks import asked_at, step_of_device_events

    step = step_of_device_events(trace, asked_at(trace, lay_out(trace)), step_marks(trace))
    step[~trace.is_category(*ON_DEVICE)] = -1
    # What was launched before the first step counts in none, and the last may lack some kernels.
    fullest = Counter(step[step >= 0].tolist()).most_common(1)
    number, spent_ns = Counter(), Counter()
    for row in (step == fullest[0][0]).nonzero()[0].tolist() if fullest else ():
        number[trace.names[trace.name[row]]] += 1
        spent_ns[trace.names[trace.name[row]]] += int(trace.duration_ns[row])
    return number, spent_ns


def covered_pct(original, replayed):
    number, spent_ns = original
    if not spent_ns:
        return 0.0
    there = {name: min(1.0, replayed[0][name] / number[name]) for name in number}
    return 100.0 * sum(ns * there[name] for name, ns in spent_ns.items()) / sum(spent_ns.values())


def row(trace, runs, compared):
    """A line of the table."""
    run = last_of(runs)
    if not run["finished"]:
        failed = next(iter(run.get("failed", {})), "")
        why = run["error"] or ": ".join(filter(None, (failed, run["complaint"])))
        return [trace.name, "no", *["–"] * (len(HEAD) - 3), why[:160]]
    how = {"plain": "as it is", "without": "with its remedy", "lazy": "with its remedy, lazily"}
    cells = [trace.name, next(text for name, text in how.items() if runs.get(name) is run)]
    meta = trace / "meta.json"
    recorded = json.loads(meta.read_text()).get("step_ms_median") if meta.is_file() else None
    median = statistics.median(run["iteration_ms"])
    left_out = Counter(run["unbuilt"]) + Counter(run["left_out"])
    cells += [
        f"{recorded:.2f}" if recorded else "–",
        f"{run['says_ms']:.2f}", f"{median:.2f}",
        f"{100 * (median / recorded - 1):+.1f} %" if recorded else "–",
        f"{sum(run['built'].values())} / {sum(left_out.values())}",
    ]  # fmt: skip
    if compared:
        kernels, device = compared["kernels"], compared["device_ms"]
        cells += [f"{kernels[0]} → {kernels[1]}", f"{device[0]:.2f} → {device[1]:.2f}"]
        cells += [f"{compared['coverage_pct']:.1f} %"]
        cells += ["{} → {}".format(*compared["streams"])]
    else:
        cells += ["–"] * 4
    cells.append(f"{100 * run['says_coverage']:.0f} %")
    names = [f"{name} ×{count}" for name, count in left_out.most_common(4)]
    return [*cells, ", ".join(names)]


HEAD = (
    "trace", "replays", "step ms", "own ms", "median ms", "off", "operators in / out",
    "kernels", "device ms", "covered", "streams", "own coverage", "left out or why not",
)  # fmt: skip


def show(rows):
    print("| " + " | ".join(HEAD) + " |")
    print("|" + " --- |" * len(HEAD))
    for cells in rows:
        print("| " + " | ".join(cells) + " |")


def try_compare(trace, out):
    try:
        return compare(trace, out)
    except ImportError:
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    parser.add_argument("--checkout", type=Path, help="folder that holds the package et_replay")
    parser.add_argument("--out", type=Path, required=True, help="folder for what is found")
    # Its progress line after ten iterations reads a variable that is not set, and it ends there.
    parser.add_argument(
        "--iterations", type=int, default=10, choices=range(1, 11), metavar="1..10"
    )
    parser.add_argument(
        "--deadline", type=float, metavar="S", help="begin no trace after this long"
    )
    parser.add_argument("--tf32", action="store_true", help="allow TF32 in matrix products")
    parser.add_argument("--read", action="store_true", help="only compare what lies in --out")
    args = parser.parse_args()
    if not args.read:
        run_all(args, parser)
    rows = []
    for trace in args.traces:
        found = args.out / trace.name / "runs.json"
        if found.is_file():
            compared = try_compare(trace, found.parent)
            rows.append(row(trace, json.loads(found.read_text()), compared))
    show(rows)


def run_all(args, parser):
    if args.checkout is None or not (args.checkout / "et_replay").is_dir():
        parser.error("--checkout has to name the folder that holds the package et_replay")
    begin = time.perf_counter()
    # By the environment, because the process that the runs are forked from is a new Python.
    places = (str(args.checkout.resolve()), os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, places))
    if args.tf32:
        os.environ["TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"] = "1"
    processes = Processes()
    if not processes.call(has_gpu):
        sys.exit("aibench_peer: et_replay needs a CUDA GPU and a torch that was built for one")
    for trace in args.traces:
        if args.deadline and time.perf_counter() - begin > args.deadline:
            print(f"{trace.name}: no time left", file=sys.stderr)
            continue
        runs = replay_trace(processes, trace, args.out / trace.name, args.iterations)
        took = {name: round(run.get("took_s", 0), 1) for name, run in runs.items()}
        print(f"{trace.name}: {took} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
