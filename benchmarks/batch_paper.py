"""PCAPS and CAP beside what their authors printed, and beside their released simulator.

    python benchmarks/batch_paper.py table           # six grids, 100 executors, 50 TPC-H jobs
    python benchmarks/batch_paper.py hours           # does pcaps+ run in cleaner hours? 60 and more
    python benchmarks/batch_paper.py orders          # job times without a grid, by how busy it is
    python benchmarks/batch_paper.py likeness        # made-up jobs beside those they are fitted to

Needs the public data ($GNOMON_DATA or ../shared/data): TPC-H durations as measured for Decima,
hours of six grids 2021-2024. `--jobs made-up` takes gnomon's own jobs and zone profiles instead.

The released simulator's figures (50 jobs, 5 start hours a grid, 100 executors, gamma 0.5, B 20)
were measured by running it on the same two sets: change against FIFO, split into executor time
and mean intensity, and the same with decisions on a shuffled series. The paper's are the means over
six grids that its text gives (arXiv 2502.09717, section 6).
"""

import argparse
import functools
import os
import pathlib
import sys
import tempfile
import time

import numpy as np

GRIDS = {"PJM": "US-MIDA-PJM", "CAISO": "US-CAL-CISO", "ON": "CA-ON", "DE": "DE-LU",
         "NSW": "AU-NSW", "ZA": "ZA"}  # fmt: skip

#: carbon, work, intensity of the released simulator by grid, then of its placebo: carbon.
RELEASED = {
    "decima": {"PJM": (-17.8, -17.8, 0.0), "CAISO": (-17.7, -17.8, 0.1), "ON": (-18.6, -17.8, -0.9),
               "DE": (-17.8, -17.8, 0.0), "NSW": (-16.9, -17.8, 1.1), "ZA": (-18.0, -17.8, -0.2)},
    "cap:fifo": {"PJM": (-31.0, -30.8, -0.3), "CAISO": (-31.4, -31.0, -0.6),
                 "ON": (-30.2, -29.9, -0.4), "DE": (-31.2, -31.5, 0.4),
                 "NSW": (-30.0, -30.2, 0.3), "ZA": (-31.9, -31.5, -0.6)},
    "cap:decima": {"PJM": (-32.1, -32.0, -0.2), "CAISO": (-38.7, -35.6, -5.6),
                   "ON": (-35.7, -34.4, -1.9), "DE": (-32.2, -32.3, 0.2),
                   "NSW": (-33.8, -33.8, -0.1), "ZA": (-31.3, -31.1, -0.3)},
    "pcaps": {"PJM": (-42.7, -42.8, 0.1), "CAISO": (-43.5, -43.4, -0.2), "ON": (-43.2, -42.9, -0.5),
              "DE": (-43.5, -43.2, -0.5), "NSW": (-41.6, -42.4, 1.5), "ZA": (-42.5, -42.5, -0.1)},
}  # fmt: skip
RELEASED_PLACEBO = {
    "cap:fifo": {
        "PJM": -29.8,
        "CAISO": -31.2,
        "ON": -31.2,
        "DE": -30.4,
        "NSW": -29.8,
        "ZA": -30.4,
    },
    "cap:decima": {"PJM": -31.7, "CAISO": -33.9, "ON": -34.7, "DE": -33.3, "NSW": -32.6},
    "pcaps": {"PJM": -42.8, "CAISO": -42.9, "ON": -43.3, "DE": -43.5, "NSW": -42.1, "ZA": -42.9},
}
#: Means over six grids against FIFO: carbon, ECT, JCT where the text gives them. CAP over another
#: policy is given against that one there, and is put together with it here.
PAPER = {"decima": (-21.5, None, None), "cap:fifo": (-22.7, 10.8, 127.4),
         "cap:weighted-fair": (None, None, None), "cap:decima": (-32.9, None, None),
         "pcaps": (-39.7, 4.5, None)}  # fmt: skip


#: CAP as the authors' program has it on Decima: limits do not shrink, and the quota is tested
#: before a decision, which may go beyond it.
LOOSE = "narrows=false&binding=decision"


def data() -> pathlib.Path:
    root = os.environ.get("GNOMON_DATA")
    place = pathlib.Path(root) if root else pathlib.Path(__file__).parents[2] / "shared" / "data"
    if not (place / "batch").is_dir():
        sys.exit(f"no public data at {place}: set GNOMON_DATA, or --jobs made-up")
    return place


def authors_weights(folder: str) -> str:
    """Decima as its authors' fork trained it, for this run."""
    from decima_checkpoint import decima_from_checkpoint

    released = data() / "batch" / "pcaps-artifact" / "decima-tf-checkpoint" / "model_ep_20000"
    place = pathlib.Path(folder) / "theirs.npz"
    decima_from_checkpoint(released).save(place)
    return str(place)


def kinds_of(jobs: str):
    if jobs == "made-up":
        from gnomon.datasets.batch_jobs import tpch_like

        return tpch_like(np.random.default_rng(0))
    from gnomon.ingest.stages.decima_tpch import read_tpch

    return read_tpch(data() / "batch" / "decima-tpch" / "tpch_decima_154jobs.json.gz")


def hours_of(names, jobs: str):
    from gnomon.ingest.intensity.files import read_intensity
    from gnomon.systems.batch.grids import GridHours, hours_of_zone

    if jobs == "made-up":
        return [hours_of_zone(name) for name in names]
    folder = data() / "carbon" / "electricitymaps-hourly-2021-2024"
    return [
        GridHours.of(name, read_intensity(folder / f"{GRIDS[name]}.csv.gz").signal)
        for name in names
    ]


def answer_of(args, policies, grids, *, njobs, finish_within=None, forecast="known"):
    from gnomon.datasets.batch_jobs import sample_jobs
    from gnomon.parallel import RichProgress
    from gnomon.sim.cluster import Executors
    from gnomon.systems.batch import Experiment, run_experiment

    maker = functools.partial(
        sample_jobs, kinds_of(args.jobs), njobs, mean_s=30.0, sizes_gb=(2, 10, 50)
    )
    experiment = Experiment(
        policies=policies, make_jobs=maker, executors=Executors(count=100),
        forecast=forecast, finish_within=finish_within,
    )  # fmt: skip
    return run_experiment(
        experiment, hours_of(grids, args.jobs), trials=args.trials, seed=args.seed, on=args.on,
        progress=RichProgress("trials"), explain=False,
    )  # fmt: skip


def table(args) -> None:
    decima = f"decima?model={args.model}" if args.model else "decima"
    names = {
        "fifo": "fifo", "fair": "fair", "weighted-fair": "weighted-fair", "decima": decima,
        "cap:fifo": "cap:fifo", "cap:weighted-fair": "cap:weighted-fair",
        "cap:decima": f"cap:{decima}", "cap:fifo, of held": "cap?counts=held:fifo",
        "cap:decima, of held": f"cap?counts=held:{decima}", "cap:fifo, loose": f"cap?{LOOSE}:fifo",
        "cap:decima, loose": f"cap?{LOOSE}:{decima}",
        "pcaps": f"pcaps?narrowing=released:{decima}",
        "pcaps literal": f"pcaps?narrowing=literal:{decima}",
        "pcaps dimensionless": f"pcaps:{decima}",
        "pcaps, threshold alone": f"pcaps?narrowing=none:{decima}",
        "green-hadoop": "green-hadoop", "pcaps+": f"pcaps+:{decima}",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        if args.jobs == "measured":
            theirs = f"decima?model={authors_weights(folder)}&enough=false"
            names |= {
                "decima, their weights": theirs, "cap loose, their weights": f"cap?{LOOSE}:{theirs}",
                "pcaps, their weights": f"pcaps?narrowing=released:{theirs}",
            }  # fmt: skip
        begun = time.perf_counter()
        answer = answer_of(args, tuple(names.values()), tuple(GRIDS), njobs=args.njobs)
    print(f"{args.trials} start hours on each of {len(GRIDS)} grids, {args.njobs} jobs, 100 "
          f"executors, gamma 0.5, B 20; change against FIFO in %; "
          f"{time.perf_counter() - begun:.0f} s\n")  # fmt: skip
    cell = "carbon = work & hours | placebo"
    print(f"{'policy':24}" + "".join(f"{grid + ': ' + cell:>40}" for grid in GRIDS))
    for name, spec in names.items():
        for whose in ("ours", "released"):
            row = [_cell(answer, name, spec, grid, whose) for grid in GRIDS]
            if any(row):
                label = name if whose == "ours" else "  released simulator"
                print(f"{label:24}" + "".join(f"{text:>40}" for text in row))
    print(f"\n{'mean over six grids':24}{'carbon':>9}{'work':>9}{'hours':>9}{'placebo':>9}"
          f"{'quota':>9}{'by CPU':>9}{'CPU time':>10}{'JCT':>9}{'ECT':>9}   released / paper")  # fmt: skip
    overall = {own.policy: own.figures for own in answer.overall}
    for name, spec in names.items():
        f = overall[spec]
        show = [f.get(k) for k in ("carbon_pct", "work_pct", "intensity_pct", "placebo_pct",
                                   "quota_pct", "cpu_carbon_pct", "cpu_work_pct")]  # fmt: skip
        told = "".join(f"{v.mid:9.1f}" if v else f"{'':>9}" for v in show)
        times = f"  x{1 + f['jct_pct'].mid / 100:6.2f}  x{1 + f['ect_pct'].mid / 100:6.3f}"
        theirs = RELEASED.get(name)
        said = f"{np.mean([c[0] for c in theirs.values()]):6.1f}" if theirs else "     -"
        paper = PAPER.get(name, (None,))[0]
        print(f"{name:24}{told}{times}   {said} / {paper if paper is not None else '-'}")
    _order(overall, names)


def _cell(answer, name, spec, grid, whose) -> str:
    if whose == "released":
        if name not in RELEASED:
            return ""
        carbon, work, hours = RELEASED[name][grid]
        placebo = RELEASED_PLACEBO.get(name, {}).get(grid)
    else:
        f = next(own for own in answer.by_grid[grid] if own.policy == spec).figures
        carbon, work, hours = (f[k].mid for k in ("carbon_pct", "work_pct", "intensity_pct"))
        placebo = f["placebo_pct"].mid if "placebo_pct" in f else None
    last = f" | {placebo:.1f}" if placebo is not None else ""
    return f"{carbon:.1f} = {work:.1f} & {hours:+.1f}{last}"


def _order(overall, names) -> None:
    """Do they stand in the same order?"""
    shared = ["decima", "cap:fifo", "cap:decima", "pcaps"]
    loose = ["decima", "cap:fifo, loose", "cap:decima, loose", "pcaps"]
    weights = [name for name in names if name.endswith("their weights")]
    strict, ours, theirs = (
        sorted(of, key=lambda name: overall[names[name]]["carbon_pct"].mid)
        for of in (shared, loose, weights)
    )
    released = sorted(shared, key=lambda name: np.mean([c[0] for c in RELEASED[name].values()]))
    paper = sorted(shared, key=lambda name: PAPER[name][0])
    print(f"\norder by carbon, least first: CAP as in the paper's text {strict}\n"
          f"  CAP as in the program {ours}\n"
          + (f"  and with their weights {theirs}\n" if theirs else "") + f"  released {released}\n  paper {paper}")  # fmt: skip


def hours(args) -> None:
    """pcaps+ against its placebo and the oracle, done within a tenth more time."""
    base = args.base
    plus = [f"pcaps+?window_h={window}:{base}" for window in (3, 6, 12, 24)]
    decima = f"decima?model={args.model}" if args.model else "decima"
    policies = (base, *plus, f"pcaps?narrowing=released:{decima}", f"cap:{base}")
    for forecast in ("known", "fitted"):
        answer = answer_of(
            args, policies, ("CAISO", "DE", "ON"), njobs=args.njobs, finish_within=1.1,
            forecast=forecast,
        )  # fmt: skip
        took = [outcome.hours for outcome in answer.outcomes]
        print(f"\nforecast: {forecast}; {args.trials} start hours a grid, {args.njobs} jobs over "
              f"{min(took):.0f} to {max(took):.0f} hours; change against {base} in %")  # fmt: skip
        print(f"{'':40}{'carbon':>8}{'work':>8}{'hours (95 %)':>22}{'placebo hours':>15}"
              f"{'oracle':>8}{'by CPU':>8}{'JCT':>9}{'ECT':>8}")  # fmt: skip
        for grid, comparisons in answer.by_grid.items():
            for own in comparisons[1:]:
                f = own.figures
                part = f["intensity_pct"]
                print(f"{grid:6}{own.policy[:33]:34}{f['carbon_pct'].mid:8.1f}"
                      f"{f['work_pct'].mid:8.1f}{part.mid:8.1f} ({part.low:5.1f} to {part.high:5.1f})"
                      f"{f['placebo_intensity_pct'].mid:13.1f}{f['oracle_pct'].mid:9.1f}"
                      f"{f['cpu_carbon_pct'].mid:8.1f}  x{1 + f['jct_pct'].mid / 100:6.2f}"
                      f"{f['ect_pct'].mid:8.1f}")  # fmt: skip


def orders(args) -> None:
    """Job times of Decima and of the usual orders, from all jobs at once to a cluster half idle."""
    from gnomon.datasets.batch_jobs import sample_jobs
    from gnomon.decide.cluster import simulate

    kinds, gaps = kinds_of(args.jobs), (0.0, 5.0, 10.0, 20.0, 30.0)
    bundled = f"decima?model={args.model}" if args.model else "decima"
    specs = {name: name for name in ("fifo", "shortest-job", "weighted-fair", "fair")}
    with tempfile.TemporaryDirectory() as folder:
        if args.jobs == "measured":
            specs["decima, their weights"] = f"decima?model={authors_weights(folder)}&enough=false"
        specs["decima"] = bundled
        jct: dict[str, list[np.ndarray]] = {name: [] for name in specs}
        work: dict[str, list[float]] = {name: [] for name in specs}
        for gap in gaps:
            drawn = [
                sample_jobs(kinds, args.njobs, mean_s=gap, rng=np.random.default_rng([7, seed]))
                for seed in range(args.trials)
            ]
            for name, spec in specs.items():
                runs = [simulate(spec, jobs, 100, seed=n) for n, jobs in enumerate(drawn)]
                jct[name].append(np.array([run.completion_ns.mean() for run in runs]) / 1e9)
                work[name].append(float(np.mean([run.work_ns for run in runs])) / 1e9)
    print(f"{args.trials} times {args.njobs} jobs of all sizes on 100 executors: seconds a job "
          f"(executor-seconds in all) by seconds between arrivals\n{'':24}"
          + "".join(f"{gap:>22g}" for gap in gaps))  # fmt: skip
    for name in specs:
        cells = (f"{own.mean():.1f} ({used:,.0f})" for own, used in zip(jct[name], work[name]))
        print(f"{name:24}" + "".join(f"{cell:>22}" for cell in cells))
    rng = np.random.default_rng(0)
    told = []
    for own, fair in zip(jct["decima"], jct["fair"]):
        drawn = rng.integers(args.trials, size=(2000, args.trials))
        low, high = np.quantile(own[drawn].mean(axis=1) / fair[drawn].mean(axis=1), (0.025, 0.975))
        told.append(f"{own.mean() / fair.mean():.3f} ({low:.3f} to {high:.3f})")
    print("decima / fair (95 %)    " + "".join(f"{cell:>22}" for cell in told))


def likeness(args) -> None:
    """Executor time of queries that run alone, measured and made up."""
    from gnomon.datasets.batch_jobs import tpch_like

    sizes, numbers = (2, 10, 50), (5, 20, 50, 100)
    measured = _alone(kinds_of("measured"), sizes, numbers)
    made = np.array([
        _alone(tpch_like(np.random.default_rng(seed)), sizes, numbers) for seed in range(12)
    ])  # fmt: skip
    print("executor-seconds of a query alone, measured / made up (mean of 12 seeds)")
    print(f"{'executors':>10}" + "".join(f"{f'{size} GB':>16}" for size in sizes))
    for row, count in enumerate(numbers):
        cells = (f"{a:,.0f} / {b:,.0f}" for a, b in zip(measured[row], made.mean(axis=0)[row]))
        print(f"{count:10}" + "".join(f"{cell:>16}" for cell in cells))
    off = 100 * (made / measured - 1.0)
    print(f"means of all seeds are off by {100 * (made.mean(axis=0) / measured - 1).min():+.0f} to "
          f"{100 * (made.mean(axis=0) / measured - 1).max():+.0f} %, of single seeds by "
          f"{off.min():+.0f} to {off.max():+.0f} %")  # fmt: skip


def _alone(kinds, sizes, numbers) -> np.ndarray:
    """Mean executor-seconds of the kinds of each size, by executors: one job at a time."""
    from gnomon.decide.cluster import simulate
    from gnomon.graph.jobs import BatchJobs

    def mean_s(size: int, count: int) -> float:
        own = [n for n, name in enumerate(kinds.names) if name.startswith(f"{size}g-")]
        jobs = [BatchJobs.of(kinds, [kind], [0]) for kind in own]
        return float(np.mean([simulate("fifo", job, count).work_ns for job in jobs])) / 1e9

    return np.array([[mean_s(size, count) for size in sizes] for count in numbers])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=["table", "hours", "orders", "likeness"])
    parser.add_argument("--jobs", choices=["measured", "made-up"], default="measured")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--njobs", type=int)
    parser.add_argument("--model", default="", help="weights of Decima; the bundled ones")
    parser.add_argument("--base", default="fair")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--on", default="local")
    args = parser.parse_args()
    if args.njobs is None:
        args.njobs = 140 if args.verb == "hours" else 50
    verbs = {"table": table, "hours": hours, "orders": orders, "likeness": likeness}
    verbs[args.verb](args)


if __name__ == "__main__":
    main()
