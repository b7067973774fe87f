"""What `clone profile --pid` answers."""

from __future__ import annotations

from collections import Counter, defaultdict

from gnomon.report import Figure, Manifest, Result
from gnomon.systems.clone.counters import EVENTS
from gnomon.systems.clone.live import Live
from gnomon.systems.clone.tracing import CLIENT, READS, SENDS
from gnomon.table import Table

_NOT_MEASURED = "not measured"
_SHOWN = 15


def live_to_result(live: Live, *, command: str) -> Result:
    """A live profile as figures of a request and tables of calls, sizes, threads, descriptors."""
    ports = live.descriptors.ports if live.descriptors else ()
    where = f", port {', '.join(map(str, ports))}" if ports else ""
    return Result(
        "clone", "profile", f"a running service: {live.processes} process(es), "
        f"{len(live.threads)} thread(s){where}",
        "What does a request cost, and what does it do?",
        figures=_figures(live),
        tables=[one for one in (
            _calls(live), _sizes(live), _ready(live), _gaps(live), _threads(live),
            _descriptors(live), _windows(live),
        ) if len(one)],
        notes=_notes(live), manifest=Manifest.of(command),
    )  # fmt: skip


def _figures(live: Live) -> list[Figure]:
    traced, requests, seconds = live.traced, live.traced.requests, live.traced.seconds
    found = [
        Figure("overhead_pct", "Overhead while tracing", *_overhead(live, live.overhead_pct)),
        Figure("mean_overhead_pct", "Overhead over the look",
               *_overhead(live, live.mean_overhead_pct),
               note=f"traced for {100 * live.traced_share:.0f} % of it"),
    ]  # fmt: skip
    waits = traced.ready.values()
    wakeups = sum(count for bins in waits for got, count in bins.items() if got > 0)
    if requests:
        cpu = live.cpu_us(is_traced=False)
        plain = [one for one in live.windows if not one.is_traced]
        total = sum(one.cpu_s for one in plain)
        user = sum(one.user_s for one in plain) / total if total else 0.0
        found += [
            Figure("requests_per_s", "Requests", round(requests / seconds, 1), "1/s",
                   note="reads from clients that returned data, while traced"),
            Figure("calls_per_request", "System calls a request",
                   round(traced.calls.total() / requests, 3)),
            Figure("wakeups_per_request", "Wake-ups a request", round(wakeups / requests, 4)),
            Figure("received_per_request", "Received a request", _bytes(live, READS), "bytes"),
            Figure("sent_per_request", "Sent a request", _bytes(live, SENDS), "bytes"),
            Figure("cpu_us", "CPU time a request",
                   _NOT_MEASURED if cpu is None else round(cpu, 3), "" if cpu is None else "us",
                   note=f"without tracing; {100 * user:.0f} % of it user"),
        ]  # fmt: skip
    else:
        why = "no read from a client had data" if live.tracer else "no tracer"
        found.append(Figure("requests_per_s", "Requests", _NOT_MEASURED, note=why))
    for name in EVENTS:
        rate = live.counters.get(name)
        key, label = name.replace("-", "_"), name.replace("-", " ").capitalize()
        value = _NOT_MEASURED if rate is None else round(rate)
        found.append(Figure(f"{key}_per_s", label, value, "" if rate is None else "1/s"))
    share = live.cpu_share(is_traced=False)
    switches = sum(one.switches for one in live.windows if not one.is_traced)
    plain_s = sum(one.seconds for one in live.windows if not one.is_traced)
    return [
        *found,
        Figure("cpu_share", "CPU", round(100 * (share or 0.0), 1), "% of a core"),
        Figure("switches_per_s", "Context switches", round(switches / (plain_s or 1.0), 1), "1/s"),
        Figure("resident_mb", "Resident memory", round(live.resident_bytes / 1e6, 1), "MB"),
    ]  # fmt: skip


def _overhead(live: Live, found: float | None) -> tuple[float | str, str]:
    if found is None:
        return _NOT_MEASURED, ""
    return round(found, 1), "% CPU a request" if live.overhead_is_of_requests else "% CPU"


def overhead_line(live: Live) -> str:
    """Both, such as `+20.5 % CPU a request while tracing, +4.1 % over the look`."""
    while_tracing, unit = _overhead(live, live.overhead_pct)
    if isinstance(while_tracing, str):
        return f"overhead of the live profile: {while_tracing}"
    text = (f"overhead of the live profile: {while_tracing:+.1f} {unit} while tracing, "
            f"{live.mean_overhead_pct:+.1f} % over the look")  # fmt: skip
    change = _throughput_change(live)
    return text if change is None else f"{text}, {change:+.1f} % throughput of the load"


def _throughput_change(live: Live) -> float | None:
    plain = [one.load_rps for one in live.windows if not one.is_traced and one.load_rps]
    traced = [one.load_rps for one in live.windows if one.is_traced and one.load_rps]
    if not plain or not traced:
        return None
    return 100 * (sum(traced) / len(traced) / (sum(plain) / len(plain)) - 1)


def _notes(live: Live) -> list[str]:
    found = [overhead_line(live)[0].upper() + overhead_line(live)[1:] + "."]
    if live.every > 1:
        found.append("All calls were counted; descriptors, sizes and gaps are from one call in "
                     f"{live.every}, drawn at random.")  # fmt: skip
    if live.tracer == "strace":
        found.append("strace makes the service five to six times slower while it is attached, so "
                     "it was for half a second; waits may have ended early once.")  # fmt: skip
    if live.tracer and not live.traced.requests:
        found.append("No request was seen: nobody asked, or the service reads by io_uring.")
    if live.tracer and live.traced.requests and not live.overhead_is_of_requests:
        found.append("Requests without tracing are not known, since recv and send do not show in "
                     "/proc: the overhead compares CPU time a second.")  # fmt: skip
    if live.has_ended:
        found.append(f"The service ended after {live.seconds:.1f} s: this is what was seen of it.")
    return found + [f"Not measured: {one}." for one in live.missing]


def _calls(live: Live) -> Table:
    counts: Counter[str] = Counter()
    for (_, call), count in live.traced.calls.items():
        counts[call] += count
    moved: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for (call, _), (times, total) in live.traced.moved.items():
        moved[call][0] += times
        moved[call][1] += total
    requests = live.traced.requests
    rows = [
        {"call": call, "per s": round(count / live.traced.seconds, 2),
         "per request": round(count / requests, 4) if requests else None,
         "with data": moved[call][0] if call in moved else None,
         "mean bytes": round(moved[call][1] / moved[call][0], 1) if call in moved else None}
        for call, count in counts.most_common(_SHOWN)
    ]  # fmt: skip
    return Table.from_rows("System calls", rows)


def _sizes(live: Live) -> Table:
    return Table.from_rows("Sizes", [
        {"call": call, "on": kind, "from bytes": low, "to bytes": 2 * low - 1, "calls": count,
         "share (%)": round(100 * count / bins.total(), 2)}
        for (call, kind), bins in sorted(live.traced.sizes.items())
        for low, count in sorted(bins.items())
    ])  # fmt: skip


def _ready(live: Live) -> Table:
    return Table.from_rows("Ready at a wake-up", [
        {"thread": thread, "call": call, "ready": got if got >= 0 else "error", "times": count,
         "share (%)": round(100 * count / bins.total(), 2)}
        for (thread, call), bins in sorted(live.traced.ready.items())
        for got, count in sorted(bins.most_common(8))
    ])  # fmt: skip


def _gaps(live: Live) -> Table:
    shares = (0.1, 0.5, 0.9, 0.99)
    return Table.from_rows("Between requests", [
        {"share (%)": round(100 * share), "at most us": round(float(gap) / 1e3, 2)}
        for share, gap in zip(shares, live.gap_quantiles(shares), strict=False)
    ])  # fmt: skip


def _threads(live: Live) -> Table:
    calls: Counter[int] = Counter()
    for (thread, _), count in live.traced.calls.items():
        calls[thread] += count
    seconds = max(live.seconds, 1e-9)
    rows = [
        {"thread": number, "name": one.name, "CPU (%)": round(100 * one.run_s / seconds, 2),
         "user (s)": round(one.user_s, 2), "system (s)": round(one.system_s, 2),
         "voluntary switches per s": round(one.voluntary / seconds, 1),
         "involuntary per s": round(one.involuntary / seconds, 1),
         "calls per s": round(calls[number] / live.traced.seconds, 1) if live.tracer else None}
        for number, one in sorted(live.threads.items(), key=lambda one: -one[1].run_s)[:_SHOWN]
    ]  # fmt: skip
    return Table.from_rows("Threads", rows)


def _descriptors(live: Live) -> Table:
    kinds = live.descriptors.kinds if live.descriptors else {}
    return Table.from_rows("Descriptors", [{"kind": k, "open": n} for k, n in kinds.items()])


def _windows(live: Live) -> Table:
    rows = []
    for one in live.windows:
        requests = live.requests_in(one)
        rows.append({
            "traced": "yes" if one.is_traced else "no", "seconds": round(one.seconds, 2),
            "CPU (%)": round(100 * one.cpu_s / max(one.seconds, 1e-9), 1),
            "requests": round(requests) if requests is not None else None,
            "CPU us a request": round(1e6 * one.cpu_s / requests, 3) if requests else None,
            "load per s": round(one.load_rps, 1) if one.load_rps else None,
        })  # fmt: skip
    return Table.from_rows("Windows", rows)


def _bytes(live: Live, calls: tuple[str, ...]) -> float:
    total = sum(size for (call, kind), (_, size) in live.traced.moved.items()
                if call in calls and kind == CLIENT)  # fmt: skip
    return round(total / live.traced.requests, 1)
