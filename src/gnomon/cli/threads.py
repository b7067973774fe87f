"""gnomon threads: scheduling policies and quanta for the requests of one process."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from gnomon.cli.listing import print_registry
from gnomon.cli.output import Output, check_output, show
from gnomon.cli.typed import typed_command
from gnomon.errors import InputError

if TYPE_CHECKING:
    from gnomon.sim.cores import Mechanism

app = App(name="threads", help="Which policy and quantum keep the short requests short?")

Flag = Annotated[bool, Parameter(negative=())]


@app.command
def simulate(
    *,
    workload: str = "A2",
    load: str = "0.3:0.9",
    policy: str = "fcfs,rr,two-queue",
    quantum: str = "5,10,20",
    workers: int = 1,
    source: str = "safepoint",
    cost: float | None = None,
    late: float | None = None,
    requests: int = 1_000_000,
    seed: int = 0,
    on: str | None = None,
    output: Output = Output(),  # noqa: B008
) -> None:
    """Simulate requests on the cores of a process: latency by class, and what preemption costs.

    `gnomon threads simulate --workload A2 --load 0.3:0.9 --policy fcfs,rr,two-queue`.

    Args:
        workload: A1, A2 (bimodal), B (exponential) or C (one after the other).
        load: Of the workers: 0.7, a list 0.5,0.7, or a range 0.3:0.9 in steps of a tenth.
        policy: Names with commas; `gnomon threads policies` lists them.
        quantum: In microseconds, with commas: for every policy that has one.
        workers: Threads, each with a core of its own.
        source: How requests are preempted: safepoint, signal, posix_timer, none (free).
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
    names = [name.strip() for name in policy.split(",") if name.strip()]
    if "fcfs" not in names:  # what the others are compared with
        names.insert(0, "fcfs")
    setting = Setting(
        find_workload(workload), workers, _mechanism(source, cost, late), requests, seed
    )
    progress = RichProgress("loads") if sys.stderr.isatty() else None
    cells = sweep(setting, names, _loads(load), _numbers("--quantum", quantum, 0.001, 1e9), on=on,
                  progress=progress)  # fmt: skip
    advice = advise(cells)
    how = source if cost is None and late is None else "as given"
    result = to_result(setting, how, cells, advice, command=typed_command())
    show(result, output, extra=to_script(cells, advice, how) if output.json else None)


@app.command
def policies(*, json: Flag = False) -> None:
    """List the scheduling policies with their parameters.

    Args:
        json: As JSON, with a schema of each one's parameters.
    """
    from gnomon.decide.threads import thread_policies

    print_registry(thread_policies, json=json)


def _mechanism(source: str, cost_us: float | None, late_us: float | None) -> Mechanism:
    from gnomon.sim.cores import Mechanism
    from gnomon.systems.threads import SOURCES

    if source not in SOURCES:
        raise InputError(f"--source {source}", hint=f"{', '.join(SOURCES)}")
    known = SOURCES[source]
    for name, value in (("--cost", cost_us), ("--late", late_us)):
        if value is not None and not 0 <= value <= 1e6:
            raise InputError(f"{name} {value:g}", hint="microseconds, 0 to a million")
    return Mechanism(
        known.cost_ns if cost_us is None else round(1e3 * cost_us), known.dispatch_ns,
        known.late_ns if late_us is None else (round(1e3 * late_us),),
    )  # fmt: skip


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
