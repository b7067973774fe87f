"""Benchmarks from execution traces: what they cover, weigh and take, and how near they come.

    python benchmarks/aibench.py size [--data FOLDER]      build time and size, every trace there is
    python benchmarks/aibench.py param [--data FOLDER]     PARAM's traces, built and run on this CPU
    python benchmarks/aibench.py make OUT [--data FOLDER]  the five of h200/, as benchmarks
    python benchmarks/aibench.py run OUT [--rounds 3]      on a machine with a GPU: needs only torch
    python benchmarks/aibench.py compare OUT [--data FOLDER]  what `run` left, beside the originals
    python benchmarks/aibench.py compare OUT --again FOLDER   and beside the originals recorded again

`make` and `compare` run where gnomon is installed, `run` where the GPU is: carry OUT there and back.
No two GPUs, and no two minutes, are the same. FOLDER holds the originals recorded once more beside
`run`, laid out as h200/ is (NAME/kineto.json.gz, NAME/meta.json): `again` is how far the original is
from its own first recording, `error_again` how far the clone is from the original of its minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

#: Whether the GPU or the host sets the pace, as measured without a profiler.
WORKLOADS = {
    "gpt-base": "gpu", "linear": "gpu", "resnet50": "gpu", "overlap": "host", "gpt-cpubound": "host",
}  # fmt: skip
#: Families with a smaller share of device time are shown, but do not count: they are noise.
LEAST_SHARE = 0.02


def data_folder(given: Path | None) -> Path:
    for folder in (given, os.environ.get("GNOMON_DATA"), "../shared/data"):
        if folder and (Path(folder) / "h200").is_dir():
            return Path(folder)
    sys.exit("no data: give --data FOLDER or set GNOMON_DATA")


def param_traces(data: Path) -> dict[str, str]:
    folder = data / "public" / "param"
    archive = folder / "dlrm_pytorch_et.tar.gz"
    ranks = {f"dlrm-{r}": f"{archive}:dlrm_pytorch_et/dlrm_eg_{r}.json" for r in range(8)}
    return {
        "linear (1.0.1)": str(folder / "linear_et.json.gz"),
        "resnet (1.0.3)": str(folder / "1.0.3-chakra.0.0.4" / "resnet_1gpu_et.json.gz"),
        "resnet (1.1.0)": str(folder / "resnet_et.json.gz"),
        "resnet, 2 GPUs (1.1.0)": str(folder / "1.1.0-chakra.0.0.4" / "resnet_2gpu_et.json.gz"),
        "resnet (1.1.1)": str(folder / "resnet_1gpu_et.json.tar.gz"),
        "gpt2 (1.1.0)": str(folder / "hf_GPT2_et.json.tar.gz"),
        **ranks,
    }


# -- size ------------------------------------------------------------------------------------


def measure_size(data: Path) -> dict[str, Any]:
    """Builds every trace; CPU seconds, size of the folder, size of the traces it came from."""
    from gnomon.ingest.execution.trace import read_execution_trace
    from gnomon.systems.aibench.benchmark import build
    from gnomon.systems.aibench.builder.operators import load_torch

    load_torch()  # importing torch is not building
    sources: dict[str, tuple[Path, Path | None]] = {}
    for name in sorted(p.name for p in (data / "h200").iterdir() if p.is_dir()):
        folder = data / "h200" / name
        sources[name] = folder / "et.json.gz", folder / "kineto.json.gz"
    sources |= {name: (Path(path), None) for name, path in param_traces(data).items()}
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, (trace, kineto) in sources.items():
            began = time.process_time()
            made = build(trace, Path(scratch) / name.replace(" ", "-"), kineto=kineto)
            took = time.process_time() - began
            packed = sum(
                Path(str(path).partition(":")[0]).stat().st_size
                for path in (trace, kineto)
                if path
            )
            rows.append(
                {"trace": name, "nodes": len(read_execution_trace(trace)), "build_s": took,
                 "bench_kb": made.nbytes / 1e3, "traces_gz_kb": packed / 1e3,
                 "coverage_ops_pct": made.coverage_ops_pct,
                 "coverage_time_pct": made.coverage_time_pct,
                 "placeholders": sum(made.placeholders.values())}
            )  # fmt: skip
            print(_line(rows[-1]), flush=True)
    largest = max(rows, key=lambda row: row["nodes"])
    return {
        "rows": rows, "largest_nodes": largest["nodes"], "largest_build_s": largest["build_s"],
        "largest_size_pct": 100 * largest["bench_kb"] / largest["traces_gz_kb"],
        "worst_size_pct": max(100 * r["bench_kb"] / r["traces_gz_kb"] for r in rows),
        "least_coverage_pct": min(row["coverage_ops_pct"] for row in rows),
    }  # fmt: skip


# -- PARAM on this CPU -----------------------------------------------------------------------


def measure_param(data: Path, *, with_largest: bool = True) -> dict[str, Any]:
    """Builds and runs every execution trace of PARAM; DLRM also on two ranks and for a world of 8."""
    from gnomon.systems.aibench.benchmark import build
    from gnomon.systems.aibench.pipeline import Options

    cases: list[tuple[str, str, Options, list[str]]] = [
        (name, path, Options(), []) for name, path in param_traces(data).items()
        if with_largest or not name.startswith("gpt2")
    ]  # fmt: skip
    dlrm = param_traces(data)["dlrm-0"]
    cases.append(("dlrm-0, gloo, 2 ranks", dlrm, Options(), ["--ranks", "2", "--backend", "gloo"]))
    cases.append(("dlrm-0, world of 8", dlrm, Options(emulate_world=8), []))
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, (name, path, options, more) in enumerate(cases):
            bench = Path(scratch) / f"bench{number}"
            build(Path(path), bench, options=options)
            answer = run_bench(bench, "--device", "cpu", "--steps", "1", *more)
            rows.append(
                {"trace": name, **{k: answer[k] for k in ("ops", "replayed", "placeholders", "skipped")},
                 "differing": answer["differing"], "median_ms": answer["median_ms"],
                 "peak_gib": answer["peak_bytes"] / 2**30}
            )  # fmt: skip
            print(_line(rows[-1]), flush=True)
    return {
        "rows": rows,
        "skipped": sum(row["skipped"] for row in rows),
        "placeholders": sum(row["placeholders"] for row in rows),
        "differing": sum(row["differing"] for row in rows),
    }


def run_bench(bench: Path, *options: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(bench / "run.py"), "--json", *options],
        capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{bench.name}: {done.stderr.strip().splitlines()[-1]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


# -- the five, on a GPU ----------------------------------------------------------------------


def make(out: Path, data: Path) -> None:
    from gnomon.systems.aibench.benchmark import build

    for name in WORKLOADS:
        made = build(data / "h200" / name, out / name, force=True)
        print(name, f"{made.coverage_time_pct:.2f} % of device time", flush=True)


def run(out: Path, rounds: int) -> None:
    """Runs each benchmark several times, in turns; the last time also under the profiler."""
    for number in range(rounds):
        for name in WORKLOADS:
            more = (
                ["--profile", str(out / f"{name}.profile.json.gz")] if number == rounds - 1 else []
            )
            answer = run_bench(out / name, *more)
            (out / f"{name}.{number}.json").write_text(json.dumps(answer))
            print(name, f"{answer['median_ms']:.3f} ms", flush=True)


def compare(out: Path, data: Path, again: Path | None = None) -> dict[str, Any]:
    """What `run` left, beside the originals, and beside `again`, the originals recorded again."""
    rows, families = [], []
    for name, bound in WORKLOADS.items():
        row, own = compare_one(name, out, data / "h200", again)
        rows.append({"trace": name, "bound_by": bound, **row})
        families += [{"trace": name, **family} for family in own]
        print(_line(rows[-1]), flush=True)
    summary = {
        "rows": rows, "families": families,
        "mean_pct": statistics.mean(abs(row["error_pct"]) for row in rows),
        "worst_gpu_pct": max(abs(r["error_pct"]) for r in rows if r["bound_by"] == "gpu"),
        "worst_host_pct": max(abs(r["error_pct"]) for r in rows if r["bound_by"] == "host"),
        "least_coverage_pct": min(row["coverage_time_pct"] for row in rows),
        "worst_family_pct": _worst(families, "error_pct"),
    }  # fmt: skip
    if again is not None:
        summary["mean_again_pct"] = statistics.mean(abs(row["error_again_pct"]) for row in rows)
        summary["worst_family_again_pct"] = _worst(families, "error_again_pct")
        summary["worst_family_of_originals_pct"] = _worst(families, "again_pct")
    return summary


def compare_one(
    name: str, out: Path, recorded: Path, again: Path | None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One workload: its step, coverage and memory, and its kernel time by family."""
    from gnomon.ingest.profiler.measured import read_measured
    from gnomon.systems.aibench.verify.check import clone_profile, original_profile
    from gnomon.systems.aibench.verify.clone_run import read_clone_run

    answers = sorted(out.glob(f"{name}.[0-9]*.json"))
    medians = [json.loads(path.read_text())["median_ms"] for path in answers]
    last = json.loads(answers[-1].read_text())
    step = statistics.median(medians)
    kineto = recorded / name / "kineto.json.gz"
    measured, original = read_measured(kineto), original_profile(kineto)
    clone = clone_profile(out / f"{name}.profile.json.gz", read_clone_run(answers[-1]))
    least_ms = LEAST_SHARE * sum(original.kernel_ms.values())
    shares = {f: ms for f, ms in original.kernel_ms.items() if ms >= least_ms}
    families: list[dict[str, Any]] = [
        {"family": f, "error_pct": _off(clone.kernel_ms.get(f, 0.0), ms)}
        for f, ms in shares.items()
    ]
    worst = max(families, key=lambda family: abs(family["error_pct"]))
    row = {
        "original_ms": measured.step_ms, "clone_ms": step,
        "spread_ms": f"{min(medians):.3f}..{max(medians):.3f}",
        "error_pct": _off(step, measured.step_ms),
        "coverage_time_pct": last["coverage_time_pct"],
        "kernels": f"{original.kernels:g}/{clone.kernels:g}",
        "memory_error_pct": _off(last["peak_bytes"], measured.peak_bytes),
        "worst_family": worst["family"], "worst_family_pct": worst["error_pct"],
    }  # fmt: skip
    if again is not None:
        anew = again / name / "kineto.json.gz"
        again_ms, profile = read_measured(anew).step_ms, original_profile(anew)
        row |= {"again_ms": again_ms, "error_again_pct": _off(step, again_ms)}
        for family in families:
            now_ms = profile.kernel_ms.get(family["family"], 0.0)
            family["again_pct"] = _off(now_ms, shares[family["family"]])
            family["error_again_pct"] = _off(clone.kernel_ms.get(family["family"], 0.0), now_ms)
    return row, families


def _off(value: float, reference: float | None) -> float:
    """How far a value is from what it should be, in percent."""
    if not reference:
        raise ValueError("what to compare with was not measured")
    return 100 * (value / reference - 1)


def _worst(rows: list[dict[str, Any]], key: str) -> float:
    return max(abs(row[key]) for row in rows)


def measure(parts: list[str], data: Path | None = None) -> dict[str, dict[str, Any]]:
    """The parts that need no GPU; `tests/claims` measures them again."""
    known = {"size": measure_size, "param": measure_param}
    return {part: known[part](data_folder(data)) for part in parts}


def _line(row: dict[str, Any]) -> str:
    return "  ".join(
        f"{key} {value:.3f}" if isinstance(value, float) else f"{key} {value}"
        for key, value in row.items()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", choices=("size", "param", "make", "run", "compare"))
    parser.add_argument("out", type=Path, nargs="?", help="the folder of benchmarks")
    parser.add_argument("--data", type=Path, help="the folder of recordings")
    parser.add_argument("--again", type=Path, help="compare: the originals, recorded again")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each benchmark")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON at the end")
    args = parser.parse_args()
    if args.part in ("make", "run", "compare") and args.out is None:
        parser.error(f"{args.part} needs OUT")
    if args.part == "run":
        run(args.out, args.rounds)
        return
    data = data_folder(args.data)
    if args.part == "make":
        make(args.out, data)
        return
    summary = (
        compare(args.out, data, args.again)
        if args.part == "compare"
        else measure([args.part], data)[args.part]
    )
    if args.json:
        print(json.dumps(summary))
    else:
        for key, value in summary.items():
            if not isinstance(value, list):
                print(f"{key}: {value:.3f}" if isinstance(value, float) else f"{key}: {value}")


if __name__ == "__main__":
    main()
