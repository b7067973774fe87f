"""The simulator that PCAPS' authors released beside ours, on the same jobs and hours, in one run.

    python benchmarks/batch_released.py carbon-aware-dag/simulator --python peer/bin/python

`carbon-aware-dag` is a clone of their program (umass-solar/carbon-aware-dag on GitHub), `peer` an
environment for it, made by a Python 3.11:

    python3.11 -m venv peer
    peer/bin/pip install tensorflow-cpu==2.15.1 tf-slim==1.1.0 networkx pandas matplotlib scipy

Needs the public data ($GNOMON_DATA or ../shared/data). It takes two minutes a trial and grid.

Their program runs twice: as released, and `warm`. In it an executor that falls idle while its job
waits for another stage forgets that it has worked for the job, so that its next task there is drawn
from those of executors that have just come (2 to 4 s in place of about one). Warm, it remembers:
one assignment, made when their module is loaded.
"""

import argparse
import contextlib
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from batch_paper import GRIDS, LOOSE, authors_weights, data, hours_of, kinds_of

SECOND_NS = 10**9
#: As many as their program takes of a trace.
HOURS = 100


def schemes(decima: str) -> dict[str, str]:
    """Theirs, and what comes nearest of ours, with their weights."""
    return {
        "fifo": "fifo", "fair": "fair", "decima": decima, "pcaps": f"pcaps?narrowing=released:{decima}",
        "cap_fifo": f"cap?{LOOSE}:fifo", "cap_decima": f"cap?{LOOSE}:{decima}",
    }  # fmt: skip


def lay_out(folder: pathlib.Path) -> None:
    """The measured durations in the files that their program reads."""
    source = data() / "batch" / "decima-tpch" / "tpch_decima_154jobs.json.gz"
    for name, job in json.loads(gzip.decompress(source.read_bytes())).items():
        size, query = name.split("-q")
        place = folder / size
        place.mkdir(exist_ok=True)
        edges = np.zeros((len(job["stages"]),) * 2, dtype=int)
        for parent, child in job["edges"]:
            edges[parent, child] = 1
        durations = {
            number: {
                wave: {int(level): times for level, times in stage[wave].items()}
                for wave in ("fresh_durations", "first_wave", "rest_wave")
            }
            for number, stage in enumerate(job["stages"])
        }
        np.save(place / f"adj_mat_{query}.npy", edges)
        np.save(place / f"task_duration_{query}.npy", np.array(durations, dtype=object))


@contextlib.contextmanager
def program(args, folder: pathlib.Path, how: str):
    """Answers a request as their program does."""
    peer = pathlib.Path(__file__).with_name("batch_released_peer.py")
    with (folder / f"{how}.log").open("w") as log, subprocess.Popen(
        [args.python, str(peer), str(args.program.resolve()), str(folder), how],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
    ) as process:  # fmt: skip

        def ask(**request):
            line = ""
            with contextlib.suppress(BrokenPipeError):
                print(json.dumps(request), file=process.stdin, flush=True)
                line = process.stdout.readline()
            if not line:
                said = (folder / f"{how}.log").read_text().strip()
                sys.exit(f"their program ended: {said[-2000:] or 'without a word'}")
            return json.loads(line)

        try:
            yield ask
        finally:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()


def draw(kinds, grids, trials: int, njobs: int):
    """Jobs and hours of each trial; the first job is there at the start, as theirs has to be."""
    from gnomon.datasets.batch_jobs import sample_jobs
    from gnomon.graph.jobs import BatchJobs

    for hours in hours_of(grids, "measured"):
        for trial in range(trials):
            rng = np.random.default_rng([11, trial])
            drawn = sample_jobs(kinds, njobs, mean_s=30.0, sizes_gb=(2, 10, 50), rng=rng)
            arrival_ms = (drawn.arrival_ns - drawn.arrival_ns[0]) // 10**6
            start = int(rng.integers(len(hours.signal.values) - HOURS))
            jobs = BatchJobs.of(kinds, drawn.kind, arrival_ms * 10**6)
            yield hours.name, trial, jobs, hours.signal.values[start : start + HOURS].tolist()


def ours(spec: str, jobs, hours, seed: int) -> dict:
    from gnomon.decide.cluster import simulate
    from gnomon.sim.cluster import GridSteps

    run = simulate(spec, jobs, 100, grid=GridSteps.known(hours, 60 * SECOND_NS), seed=seed)
    return {
        "work_s": run.work_ns / SECOND_NS, "grams": float(run.weighted.sum()) / SECOND_NS,
        "jct_s": float(run.completion_ns.mean()) / SECOND_NS, "ect_s": run.end_ns / SECOND_NS,
    }  # fmt: skip


def request_of(jobs, hours, seed: int) -> dict:
    rows = []
    for kind, arrival_ns in zip(jobs.kind.tolist(), jobs.arrival_ns.tolist()):
        size, query = jobs.kinds.names[kind].split("-q")
        rows.append((size, int(query), arrival_ns // 10**6))
    return {"jobs": rows, "hours": hours, "seed": seed}


def change(runs: list, firsts: list, field: str) -> float:
    """In %, a geometric mean over the trials that both ended."""
    ratios = [
        np.log(own[field] / first[field]) for own, first in zip(runs, firsts) if own and first
    ]
    return 100.0 * float(np.expm1(np.mean(ratios)))


def tell(name: str, found: dict[str, list]) -> None:
    print(f"\n{name}\n{'':12}{'ended':>6}{'executor-s':>12}{'carbon':>9}{'= work':>9}{'& hours':>9}"
          f"{'job time':>10}{'end':>8}")  # fmt: skip
    firsts = found["fifo"]
    for scheme, runs in found.items():
        done = [run for run in runs if run]
        carbon, work, jct, ect = (
            change(runs, firsts, field) for field in ("grams", "work_s", "jct_s", "ect_s")
        )
        hours = 100.0 * ((1 + carbon / 100) / (1 + work / 100) - 1)
        print(f"{scheme:12}{len(done):3}/{len(runs):<2}{np.mean([r['work_s'] for r in done]):12,.0f}"
              f"{carbon:9.1f}{work:9.1f}{hours:9.1f}{1 + jct / 100:9.2f}x{1 + ect / 100:7.3f}x")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path, help="the folder `simulator` of theirs")
    parser.add_argument("--python", required=True, help="a Python that has what theirs needs")
    parser.add_argument("--grids", default="CAISO,DE,ZA", help=", ".join(GRIDS))
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--njobs", type=int, default=50)
    args = parser.parse_args()
    grids = args.grids.split(",")
    if not (args.program / "spark_env" / "env.py").is_file():
        parser.error(f"{args.program} is not the folder `simulator` of their program")
    if not os.access(args.python, os.X_OK) or pathlib.Path(args.python).is_dir():
        parser.error(f"--python {args.python} cannot be run")
    if unknown := sorted(set(grids) - set(GRIDS)):
        parser.error(f"--grids {unknown[0]}: one of {', '.join(GRIDS)}")
    if args.trials < 1 or args.njobs < 1:
        parser.error("--trials and --njobs: at least one")
    kinds = kinds_of("measured")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        lay_out(folder)
        specs = schemes(f"decima?model={authors_weights(name)}&enough=false")
        whose = {"theirs, as released": "released", "theirs, warm": "warm", "ours": ""}
        found = {who: {scheme: [] for scheme in specs} for who in whose}
        with contextlib.ExitStack() as stack:
            asks = {who: stack.enter_context(program(args, folder, how))
                    for who, how in whose.items() if how}  # fmt: skip
            for grid, trial, jobs, hours in draw(kinds, grids, args.trials, args.njobs):
                request = request_of(jobs, hours, trial)
                for scheme, spec in specs.items():
                    for who, ask in asks.items():
                        found[who][scheme].append(ask(scheme=scheme, **request))
                    found["ours"][scheme].append(ours(spec, jobs, hours, trial))
                print(f"{grid}, trial {trial + 1} of {args.trials}", file=sys.stderr)
    print(f"{args.njobs} TPC-H jobs, 100 executors, {args.trials} start hours on each of {args.grids}; "
          "their weights; change against each one's own FIFO in %")  # fmt: skip
    for who, by_scheme in found.items():
        tell(who, by_scheme)


if __name__ == "__main__":
    main()
