"""gnomon threads: scheduling policies and quanta for the requests of one process."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from gnomon.cli.listing import print_registry
from gnomon.cli.output import Output, check_output, show
from gnomon.cli.typed import typed_command
from gnomon.errors import InputError

if TYPE_CHECKING:
    from gnomon.ingest.samples.samples import Samples
    from gnomon.sim.cores import Mechanism
    from gnomon.systems.threads.calibrate import Machine

app = App(name="threads", help="Which policy and quantum keep the short requests short?")

Flag = Annotated[bool, Parameter(negative=())]


def _whole(type_: Any, tokens: Sequence[Any]) -> int:
    try:
        return int(tokens[0].value)
    except ValueError:
        raise InputError(f"{tokens[0].value} is no whole number") from None


#: Refused where it would have to be rounded.
Whole = Annotated[int, Parameter(converter=_whole)]


@app.command
def simulate(
    *,
    workload: str | None = None,
    samples: Path | None = None,
    unit: str | None = None,
    service: str | None = None,
    load: str | None = None,
    policy: str = "fcfs,rr,two-queue",
    quantum: str | None = None,
    workers: Whole = 1,
    source: str = "safepoint",
    machine: Path | None = None,
    cost: float | None = None,
    late: float | None = None,
    requests: Whole = 1_000_000,
    seed: Whole = 0,
    on: str | None = None,
    output: Output = Output(),  # noqa: B008
) -> None:
    """Simulate requests on the cores of a process: latency by class, and what preemption costs.

    `gnomon threads simulate --samples times.csv` says whether preemption would help your service;
    `gnomon threads simulate --workload A2 --load 0.3:0.9 --policy fcfs,rr,two-queue` compares.

    Args:
        workload: A1, A2 (bimodal, unless you choose), B (exponential) or C (one after the other).
        samples: Instead of a workload: a file of measured times (a table, JMeter, k6, hey, ab,
            vegeta, wrk2, a log of HdrHistogram, traces).
        unit: Of the times in it, where it does not say: ns, us, ms, s.
        service: Whose times, where traces have several services; else that with most requests.
        load: Of the workers: 0.7, a list 0.5,0.7, or a range 0.3:0.9 in steps of a tenth.
        policy: Names with commas; `gnomon threads policies` lists them.
        quantum: In microseconds, with commas, for every policy that has one; 5,10,20 for a
            workload, for samples by their lengths.
        workers: Threads, each with a core of its own.
        source: How requests are preempted: safepoint, clock, signal, sleeper, posix_timer, none
            (free).
        machine: What `calibrate --json` wrote: cost and lateness of the source are from there.
        cost: Microseconds that a preemption costs a worker, instead of the source's.
        late: Microseconds by which it is late, instead of the source's.
        requests: In each cell.
        seed: Of arrivals and service times.
        on: Where to run: serial, local, local:4, ray, ray://host:port.
        output: Where the answer goes.
    """
    from gnomon.parallel import RichProgress
    from gnomon.systems.threads import Setting, advise, find_workload, sweep
    from gnomon.systems.threads.result import to_result, to_script

    check_output(output)
    if not 1000 <= requests <= 100_000_000:
        raise InputError(f"--requests {requests:,}", hint="a thousand to 100 million")
    if not 1 <= workers <= 4096 or not 0 <= seed < 2**32:
        raise InputError("--workers is 1 to 4096, --seed from 0 on, under 2^32")
    names = _names("--policy", policy)
    if "fcfs" not in names:  # what the others are compared with
        names.insert(0, "fcfs")
    usual = "0.3:0.9" if samples is None else "0.5,0.7,0.9"
    loads = _loads(usual if load is None else load)
    quanta = _numbers("--quantum", "5,10,20" if quantum is None else quantum, 0.001, 1e9)
    how = _mechanism(source, cost, late, machine)
    measured = _measured(samples, workload, unit, service)
    if samples is None or measured is None:
        requested = find_workload("A2" if workload is None else workload)
    else:
        from gnomon.systems.threads.measured import quanta_of, workload_of

        requested = workload_of(measured, samples.name)
        quanta = quanta_of(requested) if quantum is None else quanta
    setting = Setting(requested, workers, how, requests, seed)
    progress = RichProgress("loads") if sys.stderr.isatty() else None
    cells = sweep(setting, names, loads, quanta, on=on, progress=progress)
    advice = advise(cells)
    by = source if cost is None and late is None else "as given"
    result = to_result(
        setting, by, cells, advice, command=typed_command(),
        sources=[] if samples is None else [str(samples)], samples=measured,
    )  # fmt: skip
    show(result, output, extra=to_script(cells, advice, by, measured) if output.json else None)


@app.command
def calibrate(
    *,
    source: str | None = None,
    repeats: Whole = 9,
    output: Output = Output(),  # noqa: B008
) -> None:
    """Measure what a preemption costs on this machine, by every source that it has.

    `gnomon threads calibrate --json > machine.json`, then `simulate --machine machine.json`.

    Args:
        source: Names with commas; else all.
        repeats: Of each measurement; medians are shown.
        output: Where the answer goes.
    """
    import msgspec

    from gnomon.systems.threads.bench_result import to_calibration_result
    from gnomon.systems.threads.calibrate import calibrate as measure

    check_output(output)
    if not 1 <= repeats <= 1000:
        raise InputError(f"--repeats {repeats}", hint="1 to 1000")
    machine = measure(() if source is None else _names("--source", source), repeats=repeats)
    result = to_calibration_result(machine, command=typed_command())
    show(result, output, extra={"machine": msgspec.to_builtins(machine)} if output.json else None)


@app.command
def bench(
    *,
    workload: str = "A2",
    load: str = "0.7",
    policy: str = "fcfs,two-queue",
    quantum: str = "10",
    source: str = "auto",
    workers: Whole = 1,
    bursts: Whole = 20,
    machine: Path | None = None,
    seed: Whole = 0,
    output: Output = Output(),  # noqa: B008
) -> None:
    """Run requests on real, preemptive threads of this machine, and compare with the simulator.

    `gnomon threads bench --workload A2 --load 0.7 --policy fcfs,two-queue --source auto`.

    Args:
        workload: A1, A2 (bimodal), B (exponential) or C (one after the other).
        load: Of the workers: 0.7, a list 0.5,0.7, or a range 0.3:0.9 in steps of a tenth.
        policy: Names with commas; `gnomon threads policies` lists them.
        quantum: In microseconds, with commas; `auto`: a controller adapts it after each burst.
        source: Names with commas: auto, safepoint, clock, signal, sleeper, posix_timer, none.
        workers: Threads, each on a core of its own; one core is left for the timer.
        bursts: That are wanted of each cell: 0.1 s each; disturbed ones are tried again.
        machine: What `calibrate --json` wrote; else the sources are measured first.
        seed: Of arrivals and service times.
        output: Where the answer goes.
    """
    from gnomon.parallel import RichProgress
    from gnomon.systems.threads import find_workload
    from gnomon.systems.threads.bench import BenchSetting
    from gnomon.systems.threads.bench import bench as measure
    from gnomon.systems.threads.bench_result import to_bench_result, to_bench_script
    from gnomon.systems.threads.calibrate import Cores
    from gnomon.systems.threads.calibrate import calibrate as measure_machine

    check_output(output)
    if not 1 <= bursts <= 10_000 or not 1 <= workers <= 256 or not 0 <= seed < 2**32:
        raise InputError("--bursts is 1 to 10,000, --workers 1 to 256, --seed from 0 on")
    Cores.demand(workers)
    wanted, loads, names = find_workload(workload), _loads(load), _names("--policy", policy)
    sources, is_adaptive = _names("--source", source), quantum == "auto"
    quanta = [] if is_adaptive else _numbers("--quantum", quantum, 0.1, 1e6)
    if "fcfs" not in names:  # what the others are compared with
        names.insert(0, "fcfs")
    known = _read_machine(machine) if machine is not None else measure_machine(
        () if "auto" in sources else tuple(sources)
    )  # fmt: skip
    setting = BenchSetting(wanted, known, workers, bursts, seed=seed)
    progress = RichProgress("bursts")
    try:
        cells = measure(setting, names, loads, quanta, sources, is_adaptive=is_adaptive,
                        progress=progress.update)  # fmt: skip
    finally:
        progress.close()
    result = to_bench_result(setting, cells, command=typed_command())
    show(result, output, extra=to_bench_script(setting, cells) if output.json else None)


@app.command
def prefix() -> None:
    """Print where the C library is: headers, libraries, files for CMake and pkg-config.

    `PKG_CONFIG_PATH=$(gnomon threads prefix)/lib/pkgconfig pkg-config --cflags gnomon-threads`.
    """
    from gnomon import _core

    print(Path(_core.__file__).parent)


@app.command
def policies(*, json: Flag = False) -> None:
    """List the scheduling policies with their parameters.

    Args:
        json: As JSON, with a schema of each one's parameters.
    """
    from gnomon.decide.threads import thread_policies

    print_registry(thread_policies, json=json)


def _measured(
    samples: Path | None, workload: str | None, unit: str | None, service: str | None
) -> Samples | None:
    from gnomon.ingest.formats import check_input
    from gnomon.ingest.samples.read import read_samples

    if samples is None:
        for name, value in (("--unit", unit), ("--service", service)):
            if value is not None:
                raise InputError(f"{name} {value} without --samples")
        return None
    if workload is not None:
        raise InputError("--workload and --samples are two workloads", hint="give one")
    check_input(samples, "threads simulate --samples")
    return read_samples(samples, unit=unit, service=service)


def _mechanism(
    source: str, cost_us: float | None, late_us: float | None, machine: Path | None
) -> Mechanism:
    from gnomon.sim.cores import Mechanism
    from gnomon.systems.threads import SOURCES

    if machine is not None:
        known = _read_machine(machine).source(source).mechanism
    elif source not in SOURCES:
        raise InputError(f"--source {source}", hint=f"{', '.join(SOURCES)}")
    else:
        known = SOURCES[source]
    for name, value in (("--cost", cost_us), ("--late", late_us)):
        if value is not None and not 0 <= value <= 1e6:
            raise InputError(f"{name} {value:g}", hint="microseconds, 0 to a million")
    return Mechanism(
        known.cost_ns if cost_us is None else round(1e3 * cost_us), known.dispatch_ns,
        known.late_ns if late_us is None else (round(1e3 * late_us),),
    )  # fmt: skip


def _names(option: str, text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError(f"{option} {text!r} names nothing")
    return names


def _what(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error)


def _read_machine(path: Path) -> Machine:
    """What `calibrate --json` wrote."""
    import msgspec

    from gnomon.ingest.text import read_whole
    from gnomon.systems.threads.calibrate import Machine

    try:
        whole = read_whole(path, 1 << 24, "`gnomon threads calibrate --json` writes less")
        found = msgspec.json.decode(whole, type=dict[str, msgspec.Raw])
        return msgspec.json.decode(found["machine"], type=Machine)
    except (msgspec.MsgspecError, KeyError) as error:
        raise InputError(
            f"is not what `gnomon threads calibrate --json` writes ({_what(error)})",
            where=str(path),
        ) from None


def _loads(text: str) -> list[float]:
    """0.7, 0.5,0.7 or 0.3:0.9."""
    first, colon, last = text.partition(":")
    if not colon:
        return _numbers("--load", text, 0.01, 10.0)
    low, high = _numbers("--load", f"{first},{last}", 0.01, 10.0)
    if high < low:
        raise InputError(f"--load {text} ends before it begins")
    return [round(low + 0.1 * i, 4) for i in range(int((high - low) / 0.1 + 1e-9) + 1)]


def _numbers(option: str, text: str, least: float, most: float) -> list[float]:
    try:
        found = [float(one) for one in text.split(",")]
    except ValueError:
        raise InputError(f"{option} {text} is no list of numbers") from None
    if not all(least <= one <= most for one in found):
        raise InputError(f"{option} {text}", hint=f"{least:g} to {most:g}")
    return found
