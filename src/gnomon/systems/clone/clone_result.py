"""What the verbs of `clone` answer."""

from __future__ import annotations

from gnomon.report import Figure, Manifest, Result
from gnomon.systems.clone.bundle import Bundle, per_request
from gnomon.systems.clone.instructions import CLASSES
from gnomon.systems.clone.tune import Compared, mix_distance
from gnomon.table import Table

_SHOWN = 12


def profile_to_result(bundle: Bundle, *, command: str) -> Result:
    """A bundle as tables: what happens between system calls, the mix, the script of a request."""
    server = bundle.server
    edges = sorted(bundle.edges, key=lambda one: -one.per_request * one.instructions)[:_SHOWN]
    mix = per_request(bundle, "mix")
    rows = [
        {"from": one.before, "to": one.after, "per request": round(one.per_request, 4),
         "instructions": round(one.instructions, 1), "loads": round(sum(one.load), 1),
         "stores": round(sum(one.store), 1)}
        for one in edges
    ]  # fmt: skip
    classes = [
        {"class": name, "per request": round(float(count), 1),
         "share (%)": round(100 * float(count / mix.sum()), 2)}
        for name, count in sorted(zip(CLASSES, mix, strict=True), key=lambda one: -one[1])
        if count > 0
    ]  # fmt: skip
    scripts = [
        {"share (%)": round(100 * one.share, 1), "phase": number,
         "system calls": ", ".join(step.label for step in phase)}
        for one in server.scripts for number, phase in enumerate(one.phases)
    ]  # fmt: skip
    notes = [
        f"{server.requests:,} requests in {bundle.seconds:.1f} s under the profiler, "
        "which slows the service down."
    ]
    if server.covered < 1:
        notes.append(
            f"{100 * (1 - server.covered):.1f} % of requests were handled in rarer ways, "
            "which are left out."
        )
    if bundle.traffic.is_encrypted:
        notes.append(
            "Clients send TLS. The clone does the same work and moves as many bytes, but speaks "
            "no TLS: drive it by its own load generator."
        )
    if bundle.left_out > 0:
        notes.append(
            f"{bundle.left_out:.0f} instructions a request are left out: on paths seen fewer than "
            "five times, or of threads that serve nobody."
        )
    return Result(
        "clone", "profile", f"a service that speaks {bundle.protocol}",
        "What does a request cost, and where?",
        figures=[
            Figure("instructions", "Instructions a request", round(bundle.instructions)),
            Figure("wakeups", "Wake-ups a request", round(server.wakeups, 3)),
            Figure("branches_taken", "Branches taken", round(100 * bundle.taken, 1), "%"),
            Figure("workers", "Workers", max(server.threads, server.processes),
                   note=f"{server.wait}; connections are accepted by "
                   f"{'a thread of its own' if server.accepts_in_main else 'each'}"),
        ],
        tables=[Table.from_rows("Between system calls", rows),
                Table.from_rows("System calls of a request", scripts),
                Table.from_rows("Instructions", classes)],
        notes=notes, manifest=Manifest.of(command),
    )  # fmt: skip


def tuning_to_result(
    bundle: Bundle, seen: Bundle, rows: list[Compared], *, command: str
) -> Result:
    """The clone beside the original, both under the profiler."""
    return Result(
        "clone", "tune", f"a clone of a service that speaks {bundle.protocol}",
        "How close is the clone?",
        figures=[
            Figure("instructions_error", "Instructions off by", round(rows[0].error_pct, 1), "%"),
            Figure("mix_distance", "Mix off by", round(mix_distance(bundle, seen), 1), "%",
                   note="total variation"),
            Figure("same_calls", "Same system calls in the same order",
                   "yes" if _steps(bundle) == _steps(seen) else "no"),
        ],
        tables=[Table.from_rows("Per request", [
            {"what": one.name, "original": round(one.original, 3), "clone": round(one.clone, 3),
             "error (%)": round(one.error_pct, 1)} for one in rows
        ])],
        notes=["Both were profiled once with one load, and the clone was tuned to that: how it "
               "fares under other loads and caches is not shown here."],
        manifest=Manifest.of(command),
    )  # fmt: skip


def _steps(bundle: Bundle) -> list[tuple[tuple[str, ...], ...]]:
    first = bundle.server.scripts[0]
    return [tuple(tuple(step.label for step in phase) for phase in first.phases)]
