"""Which calls of a trace a benchmark has, and how often it makes each.

    keep = ["phase:backward", "layers:0-3"]   drop = ["family:optimizer"]
    weights = ["gemm=3", "aten::gelu=2"]   take = "first:2"

What is kept of one kind is united, what is kept of several kinds has to be all of them; what is
dropped goes in any case. A call that reads what a dropped one made finds data from outside.
Lowering has to know the dropped calls too (`Flow.forget`), so that memory
which they used again is not taken for what it was before.
"""

from __future__ import annotations

import difflib
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from gnomon.errors import InputError
from gnomon.ingest.execution.trace import ExecutionTrace
from gnomon.systems.aibench.builder.align import Alignment, steps_of
from gnomon.systems.aibench.builder.select import Chosen
from gnomon.systems.aibench.compose.parts import FAMILIES, PHASES, Part
from gnomon.systems.aibench.program import Call

_KINDS = ("phase", "family", "layers")
_WORDS = {"communication": ("family", "communication")}


class Numbers(msgspec.Struct, frozen=True):
    """Whole numbers, as ranges of first and last; None for no last."""

    ranges: tuple[tuple[int, int | None], ...]

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and any(
            first <= number and (last is None or number <= last) for first, last in self.ranges
        )

    @classmethod
    def parse(cls, text: str, what: str) -> Numbers:
        """Reads `0-3,7,10-`.

        >>> 8 in Numbers.parse("0-3,7,10-", "layers"), 12 in Numbers.parse("0-3,7,10-", "layers")
        (False, True)
        """
        ranges: list[tuple[int, int | None]] = []
        for part in text.split(","):
            first, dash, last = (word.strip() for word in part.partition("-"))
            is_open = bool(dash) and not last
            if not first.isdecimal() or not (is_open or (last or first).isdecimal()):
                raise InputError(f"{what}: {text!r} is no list of numbers", hint="such as 0-3,7")
            end = None if is_open else int(last or first)
            if end is not None and end < int(first):
                raise InputError(f"{what}: {part.strip()!r} runs backwards")
            ranges.append((int(first), end))
        return cls(tuple(ranges))


class Selection(msgspec.Struct, frozen=True):
    """What stays, and how often it runs.

    Attributes:
        phases: Those that stay; None for all. Also `families` and `layers`.
        without_phases: Those that go. Also `without_families` and `without_layers`.
        weights: How often a call runs, by family or by operator.
        take: Recorded steps, from 0; None for all.
        first: How many recorded steps, None for all.
        repeat: How often everything runs in a step of the benchmark.
    """

    phases: frozenset[str] | None = None
    families: frozenset[str] | None = None
    layers: Numbers | None = None
    without_phases: frozenset[str] = frozenset()
    without_families: frozenset[str] = frozenset()
    without_layers: Numbers | None = None
    weights: Mapping[str, int] = {}
    take: Numbers | None = None
    first: int | None = None
    repeat: int = 1

    def keeps(self, part: Part) -> bool:
        """Whether a call stays, by what it is part of."""
        return (
            (self.phases is None or part.phase in self.phases)
            and (self.families is None or part.family in self.families)
            and (self.layers is None or part.layer in self.layers)
            and part.phase not in self.without_phases
            and part.family not in self.without_families
            and (self.without_layers is None or part.layer not in self.without_layers)
        )

    def times(self, name: str, part: Part) -> int:
        """How often a call runs: its operator goes before its family."""
        for key in (name, name.rpartition("::")[2], part.family):
            if key in self.weights:
                return self.weights[key]
        return 1


class Composed(msgspec.Struct, frozen=True):
    """The calls that stay, by place in the trace, and how often those run that run more than once.

    Attributes:
        times: By place; one for the others.
        repeat: How often all of it runs in a step of the benchmark.
    """

    kept: frozenset[int]
    times: Mapping[int, int]
    repeat: int
    dropped: int


def parse_selection(
    keep: Sequence[str] = (), drop: Sequence[str] = (), weights: Sequence[str] = (),
    take: str | None = None, repeat: int = 1,
) -> Selection:  # fmt: skip
    """Reads the options of the command line.

    Args:
        keep: `phase:backward`, `family:gemm,attention`, `layers:0-3`, `communication`.
        drop: The same.
        weights: `family=2` or `operator=2`.
        take: `first:2` or `0,2-4`.
        repeat: How often everything runs in a step of the benchmark.

    Raises:
        InputError: An unknown word; the message lists the known ones.
    """
    if repeat < 1:
        raise InputError(f"--repeat {repeat}: it has to run at least once")
    kept, dropped = _asked(keep, "--keep"), _asked(drop, "--drop")
    kept_layers, dropped_layers = (
        Numbers.parse(",".join(words["layers"]), "layers") if words["layers"] else None
        for words in (kept, dropped)
    )
    first, steps = _taken(take)
    times: dict[str, int] = {}
    for text in weights:
        name, _, number = (part.strip() for part in text.rpartition("="))
        if not name or not number.isdecimal():
            hint = "FAMILY=TIMES or OPERATOR=TIMES"
            raise InputError(f"--weight {text}: no whole number", hint=hint)
        times[name] = int(number)
    return Selection(
        phases=frozenset(kept["phase"]) or None,
        families=frozenset(kept["family"]) or None,
        layers=kept_layers,
        without_phases=frozenset(dropped["phase"]),
        without_families=frozenset(dropped["family"]),
        without_layers=dropped_layers,
        weights=times,
        take=steps,
        first=first,
        repeat=repeat,
    )


def _asked(texts: Sequence[str], option: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {kind: [] for kind in _KINDS}
    for text in texts:
        kind, colon, rest = (word.strip() for word in text.partition(":"))
        if not colon and kind in _WORDS:
            kind, rest = _WORDS[kind]
        kind = {"phases": "phase", "families": "family", "layer": "layers"}.get(kind, kind)
        if kind not in found:
            known = [*(f"{kind}:..." for kind in _KINDS), *_WORDS]
            raise InputError(f"{option} {text}: unknown", hint=f"one of {', '.join(known)}")
        if kind == "layers":
            Numbers.parse(rest, f"{option} layers")
            found[kind].append(rest)
            continue
        known = list(PHASES if kind == "phase" else FAMILIES)
        for word in (word.strip() for word in rest.split(",")):
            if word not in known:
                close = difflib.get_close_matches(word, known, 1)
                meant = f"did you mean {close[0]}? " if close else ""
                raise InputError(
                    f"{option} {kind}:{word}: unknown {kind}",
                    hint=f"{meant}there are {', '.join(known)}",
                )
            found[kind].append(word)
    return found


def _taken(text: str | None) -> tuple[int | None, Numbers | None]:
    if text is None:
        return None, None
    word, colon, rest = (part.strip() for part in text.partition(":"))
    if not colon:
        return None, Numbers.parse(text, "--take")
    if word != "first" or not rest.isdecimal() or int(rest) < 1:
        raise InputError(f"--take {text}: unknown", hint="first:N, or steps such as 0,2-4")
    return int(rest), None


def compose(
    trace: ExecutionTrace, chosen: Sequence[Chosen], parts: Mapping[int, Part],
    selection: Selection,
) -> Composed:  # fmt: skip
    """Which of the chosen nodes stay, and how often each runs.

    Raises:
        InputError: Something is asked for that the trace does not have, or nothing is left.
    """
    _check(trace, chosen, parts, selection)
    steps = steps_of(trace)
    wanted = _wanted_steps({steps[one.at] for one in chosen}, selection, trace.source)
    times: dict[int, int] = {}
    kept: set[int] = set()
    for one in chosen:
        part = parts[one.at]
        number = selection.times(trace.nodes[one.at].name, part)
        if steps[one.at] in wanted and selection.keeps(part) and number:
            kept.add(one.at)
            if number != 1:
                times[one.at] = number
    if not kept:
        has = Counter(f"{part.phase} {part.family}" for part in parts.values())
        most = ", ".join(f"{count} {name}" for name, count in has.most_common(6))
        raise InputError(
            "no call is left", where=trace.source, hint=f"most calls of the trace are: {most}"
        )
    return Composed(frozenset(kept), times, selection.repeat, len(chosen) - len(kept))


def _wanted_steps(recorded: Collection[int], selection: Selection, source: str) -> set[int]:
    ordered = sorted(recorded)
    numbers = range(len(ordered))
    if selection.first is not None:
        numbers = numbers[: selection.first]
    wanted = {ordered[n] for n in numbers if selection.take is None or n in selection.take}
    asked = selection.first or 0
    if not wanted or asked > len(ordered):
        what = f"it has {len(ordered)} steps" if len(ordered) > 1 else "it has one step"
        raise InputError("these steps were not recorded", where=source, hint=what)
    return wanted


def _check(
    trace: ExecutionTrace, chosen: Sequence[Chosen], parts: Mapping[int, Part],
    selection: Selection,
) -> None:  # fmt: skip
    """Refuses what the trace does not have: a typo in a weight, a layer too many."""
    layers = {part.layer for part in parts.values() if part.layer is not None}
    asked = [one.ranges for one in (selection.layers, selection.without_layers) if one]
    if asked and not layers:
        what = "no layers were found: no marks with numbers, and nothing that repeats"
        raise InputError(what, where=trace.source)
    for first, last in itertools.chain(*asked):
        missing = {first, first if last is None else last} - layers
        if missing:
            raise InputError(
                f"there is no layer {max(missing)}", where=trace.source,
                hint=f"it has layers {min(layers)} to {max(layers)}",
            )  # fmt: skip
    names = {trace.nodes[one.at].name for one in chosen}
    known = {*names, *(name.rpartition("::")[2] for name in names), *FAMILIES}
    for key in selection.weights:
        if key not in known:
            close = difflib.get_close_matches(key, sorted(known), 1)
            raise InputError(
                f"--weight {key}: no family, and no operator of the trace", where=trace.source,
                hint=f"did you mean {close[0]}?" if close else f"families: {', '.join(FAMILIES)}",
            )  # fmt: skip


def narrow(alignment: Alignment, kept: Collection[int]) -> Alignment:
    """What is known of the times of all calls, for those that stay.

    Host time stays with the call that it followed. Kernels of no call stay with the call
    that they ran before.
    """
    uncovered = tuple(
        one for one in alignment.uncovered
        if (one.before if one.before is not None else one.beside) in kept
    )  # fmt: skip
    timings = {at: timing for at, timing in alignment.timings.items() if at in kept}
    return msgspec.structs.replace(alignment, timings=timings, uncovered=uncovered)


def weigh(calls: Iterable[Call], times: Mapping[int, int]) -> None:
    """Makes calls run several times; they take as many times as long on host and device."""
    for call in calls:
        number = times.get(call.at, 1)
        # What cuts a view for it or waits for it is not it; nor is a kernel of no call.
        if number == 1 or call.role == "view" or not (call.does or call.args or call.metas):
            continue
        call.times = number
        call.host_ns *= number
        call.device_ns *= number
