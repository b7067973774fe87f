"""What the verbs of `clone` answer."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gnomon.report import Figure, Manifest, Result
from gnomon.systems.clone.bundle import Bundle, per_request
from gnomon.systems.clone.instructions import CLASSES, INDEX
from gnomon.systems.clone.kinds import kinds_of
from gnomon.systems.clone.morph import Morph, exchanged, parts_of, weights_of
from gnomon.systems.clone.project import as_it_is, morphed_code
from gnomon.systems.clone.scaling import code_lines, scaled
from gnomon.systems.clone.threads import WAITS
from gnomon.systems.clone.traffic import Traffic
from gnomon.systems.clone.tune import Compared, mix_distance
from gnomon.table import Table

_SHOWN = 12
_MISSED = 1.1
#: Share of instructions that a clone lacks before that is said.
_MUCH_MISSED = 0.1
#: Requests that tell little.
_FEW = 1000


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
    if server.requests < _FEW:
        notes.append(
            "These are few requests: paths that are seen fewer than five times are left out. "
            "Let the load send some thousand."
        )
    later = sum(one.share for one in server.scripts
                if any(step.call in WAITS for step in one.steps))  # fmt: skip
    if later > 0:
        notes.append(
            f"{100 * later:.0f} % of requests are answered at a later wake-up than the one that "
            "read them. The clone looks for events in between, but waits for no other service."
        )
    if server.handed_on > 0:
        notes.append(
            f"{100 * server.handed_on:.0f} % of requests are read by one thread and answered by "
            "another. The clone does both on one thread."
        )
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
            "five times, or of threads that neither serve nor sleep."
        )
    missed = 1 - bundle.on_paths / max(bundle.instructions, 1e-9)
    if missed > _MUCH_MISSED:
        notes.append(
            f"A clone will execute {100 * missed:.0f} % fewer instructions: the others are on "
            "paths seen fewer than five times, or too long ones. A longer load helps."
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
    recipe = "" if bundle.morphed is None else (
        " This is the clone without its recipe; what was built at the end differs from the "
        f"original on purpose: {bundle.morphed}."
    )  # fmt: skip
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
               "fares under other loads and caches is not shown here." + recipe],
        manifest=Manifest.of(command),
    )  # fmt: skip


def morph_to_result(bundle: Bundle, morph: Morph, *, command: str) -> Result:
    """What a recipe asks for, and what the clone of a bundle then has."""
    asked, parts = as_it_is(bundle), parts_of(morph)
    data, own_data = (_data_lines(bundle, one) for one in (morph, None))
    code = code_lines(scaled(asked.skeleton, parts, len(kinds_of(bundle.traffic))))
    own_code = code_lines(asked.skeleton)
    most = max((one.data for one in morph.phases), default=1.0)
    rows: list[dict[str, str | float]] = [
        {"what": "lines of data that requests use in turn", "asked": f"x {morph.data * most:g}",
         "original": round(own_data, 1), "morphed": round(data * max(parts.memories), 1)},
        {"what": "lines of code that requests use in turn", "asked": f"x {morph.code:g}",
         "original": round(own_code, 1), "morphed": round(code * parts.copies, 1)},
    ]  # fmt: skip
    mix = exchanged(asked.quota, morph.instructions).mix
    rows += [
        {"what": f"{name} instructions", "asked": f"x {value:g}",
         "original": round(asked.quota.mix[INDEX[name]], 1),
         "morphed": round(mix[INDEX[name]], 1)}
        for name, value in morph.instructions.items()
    ]  # fmt: skip
    rows.append(
        {"what": "all instructions", "asked": "x 1",
         "original": round(sum(asked.quota.mix), 1), "morphed": round(sum(mix), 1)}
    )  # fmt: skip
    before, after = _shares(bundle.traffic, {}), _shares(bundle.traffic, morph.mix)
    rows += [{"what": f"requests {name} (%)", "asked": f"{100 * morph.mix[name]:g}"
              if name in morph.mix else "", "original": before[name], "morphed": after[name]}
             for name in before]  # fmt: skip
    phases = [
        {"seconds": one.seconds, "rate": f"x {one.rate:g}",
         "lines of data": round(data * memories, 1),
         **{f"{name} (%)": share
            for name, share in _shares(bundle.traffic, one.mix or morph.mix).items()}}
        for one, memories in zip(morph.phases, parts.memories, strict=False)
    ]  # fmt: skip
    notes = ["Counted in the generated code. The clone's runtime, which reads and answers "
             "requests, stays as it is."]  # fmt: skip
    if code * parts.copies > _MISSED * morph.code * own_code:
        notes.append(f"Code of {code / own_code:.2f} times the lines is the least: the same "
                     "instructions do not fit into fewer.")  # fmt: skip
    if any(one.rate != 1 for one in morph.phases):
        notes.append("Rates are factors of what --rate of the load generator says.")
    return Result(
        "clone", "morph", f"a clone of a service that speaks {bundle.protocol}, changed",
        "How will the clone differ from the original?",
        figures=[Figure("recipe", "Recipe", str(morph) or "none: as the original")],
        tables=[Table.from_rows("A request", rows),
                *([Table.from_rows("Phases", phases)] if phases else [])],
        notes=notes, manifest=Manifest.of(command),
    )  # fmt: skip


def _data_lines(bundle: Bundle, morph: Morph | None) -> float:
    """That a request touches."""
    one = msgspec.structs.replace(bundle, morphed=morph)
    lines = morphed_code(one, as_it_is(one)).lines
    return sum(bundle.edges[edge].per_request * many for edge, many in lines.items())


def _shares(traffic: Traffic, mix: Mapping[str, float]) -> dict[str, float]:
    """Of requests, in percent, by command."""
    found: dict[str, float] = {}
    weights = weights_of(traffic, mix, "--mix")
    for one, weight in zip(traffic.classes, weights, strict=True):
        name = one.verb.lower()
        found[name] = found.get(name, 0.0) + weight
    return {name: round(100 * weight / sum(weights), 1) for name, weight in found.items()}


def _steps(bundle: Bundle) -> list[tuple[tuple[str, ...], ...]]:
    first = bundle.server.scripts[0]
    return [tuple(tuple(step.label for step in phase) for phase in first.phases)]
