"""From traces to a program: choose, lower, lay beside times, order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import msgspec

from gnomon.errors import InputError
from gnomon.ingest.execution.trace import ExecutionTrace
from gnomon.ingest.profiler.kineto import KinetoTrace
from gnomon.model.accelerator.gpu import find_gpu
from gnomon.systems.aibench.builder.align import Alignment, Uncovered, align, steps_of
from gnomon.systems.aibench.builder.constructors import gather
from gnomon.systems.aibench.builder.emulation import emulate
from gnomon.systems.aibench.builder.flow import Flow
from gnomon.systems.aibench.builder.kernels import KernelFiles
from gnomon.systems.aibench.builder.lower import lower
from gnomon.systems.aibench.builder.provided import modules_for, sources_of
from gnomon.systems.aibench.builder.schedule import number_registers, order
from gnomon.systems.aibench.builder.select import choose, tensors_in
from gnomon.systems.aibench.compose.calls import Selection, compose, narrow, weigh
from gnomon.systems.aibench.compose.parts import parts_of
from gnomon.systems.aibench.program import Call, Program
from gnomon.systems.aibench.rescale.trace import scale_batch, stretch

#: Products of matrices, which may be allowed to use fewer bits than their data has.
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "matmul", "linear", "addbmm", "mv", "addmv")
#: Numbers that profilers give to the stream that everything is on by default.
_DEFAULT_STREAMS = (7, 0)
#: Parts of names of kernels that did.
_FEWER_BITS = ("tf32", "s1688", "1688gemm")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What of a trace becomes a benchmark, and how.

    Attributes:
        keep_scalars: Whether floating-point arguments stay what they were.
        constructors: Files of functions that make operators torch does not have.
        emulate_world: Ranks of the job whose collectives become waits; None keeps them real.
        network: The network between its nodes, where no kernels show how long they took.
        selection: Which calls stay, and how often each runs.
        scale_batch: What the batch is multiplied with.
        batch: The recorded batch, where it cannot be inferred.
    """

    keep_scalars: bool = False
    constructors: tuple[Path, ...] = ()
    emulate_world: int | None = None
    network: str | None = None
    selection: Selection = Selection()
    scale_batch: Fraction | None = None
    batch: int | None = None


class Built(msgspec.Struct, frozen=True, eq=False):
    """A program and the report of its build.

    Attributes:
        calls: Its calls, in the order they started.
        modules: What it needs beside `run.py`: sources by name.
    """

    program: Program
    calls: tuple[Call, ...]
    alignment: Alignment | None
    modules: dict[str, str]
    notes: tuple[str, ...]


def build_program(
    trace: ExecutionTrace, kineto: KinetoTrace | None = None, *,
    kernels: KernelFiles | None = None, options: Options | None = None,
) -> Built:  # fmt: skip
    """The program of a trace."""
    options = options or Options()
    library = gather({node.name for node in trace.nodes}, options.constructors)
    chosen = choose(trace, library.names)
    if not chosen:
        raise InputError("the trace has no operators", where=trace.source)
    notes: list[str] = []
    scaled = None
    if options.scale_batch is not None:
        scaled = scale_batch(trace, chosen, options.scale_batch, options.batch)
        trace = scaled.trace
        notes.append(scaled.note)
    parts = parts_of(trace, [one.at for one in chosen])
    composed = compose(trace, chosen, parts, options.selection)
    alignment = None
    if kineto is not None:
        alignment = align(trace, kineto, [one.at for one in chosen])
        _check_fit(alignment, trace, kineto)
        alignment = narrow(alignment, composed.kept)
    lowered = lower(
        trace, chosen, kept=composed.kept, kernels=kernels, constructors=library,
        keep_scalars=options.keep_scalars,
    )  # fmt: skip
    calls = lowered.calls
    if alignment is not None:
        calls = _with_times(trace, calls, alignment)
    if scaled is not None:
        stretch(calls, scaled)
        if alignment is not None and alignment.uncovered:
            notes.append("kernels that no operator launched keep the time of the recorded batch")
    weigh(calls, composed.times)
    _pin(calls, lowered.flow, alignment)
    gpu = kineto.gpus[0] if kineto is not None and kineto.gpus else None
    emulated = emulate(calls, trace, options.emulate_world, options.network, gpu=_known_gpu(gpu))
    by_step: dict[int, list[Call]] = defaultdict(list)
    steps = steps_of(trace)
    for call in calls:
        by_step[steps[call.at]].append(call)
    times, seen = (alignment.spans, alignment.waits) if alignment is not None else ({}, {})
    ordered = [order(own, times, seen) for _, own in sorted(by_step.items())]
    number_registers(calls)
    flow = lowered.flow
    settings = _settings(trace, alignment)
    settings["peak_bytes"] = _peak_bytes(calls, flow)
    program = Program(
        flow.storages, flow.made, flow.metas, [rows for rows, _, _ in ordered],
        [[number] * composed.repeat for number in range(len(ordered))], settings,
        1 + max(call.stream for call in calls),
        max(signals for _, signals, _ in ordered), max(events for _, _, events in ordered),
    )  # fmt: skip
    keys = {call.does for call in calls}
    modules = sources_of(modules_for(keys)) | library.sources_for(keys)
    if any(key.startswith("collective.") for key in keys):
        modules |= sources_of(["collectives"])
    return Built(
        program, tuple(calls), alignment, modules, (*notes, *_notes(trace, alignment), *emulated)
    )


def _known_gpu(name: str | None) -> str | None:
    """The data sheet of a recorded device, None where there is none."""
    try:
        return find_gpu(name).name if name else None
    except InputError:
        return None


def _check_fit(alignment: Alignment, trace: ExecutionTrace, kineto: KinetoTrace) -> None:
    for share, least, what in (
        (alignment.matched, 0.5, "the operators of the execution trace are in it"),
        (alignment.known, 0.7, "its operators are in the execution trace"),
    ):
        if share < least:
            raise InputError(
                f"only {100 * share:.0f} % of {what}, in this order", where=kineto.source,
                hint=f"is it of the same job as {trace.source}?",
            )  # fmt: skip


def _with_times(trace: ExecutionTrace, calls: list[Call], alignment: Alignment) -> list[Call]:
    """The calls with times and streams, and placeholders for kernels that none of them made."""
    numbers = _streams(alignment)
    extra: dict[int | None, list[Uncovered]] = defaultdict(list)
    for one in alignment.uncovered:
        extra[one.before].append(one)
    now: dict[int, int] = {}
    done: list[Call] = []
    for call in calls:
        timing = alignment.timings.get(call.at)
        if timing is None or call.role == "view":
            call.stream = now.get(call.thread, 0)
            done.append(call)
            continue
        done += [_placeholder(trace, one, numbers, call.at) for one in extra.pop(call.at, [])]
        own = [numbers[stream] for stream in timing.streams]
        call.host_ns, call.device_ns, call.blocks = timing.host_ns, timing.device_ns, timing.blocks
        done.append(call)
        if call.role == "collective":  # runs beside its caller, whose stream stays what it was
            call.stream = own[0] if own else now.get(call.thread, 0)
            continue
        # A library may spread its work over streams of its own; that is not the caller's stream.
        if own and now.get(call.thread, 0) not in own:
            now[call.thread] = own[0]
        call.stream = now.get(call.thread, 0)
    return _with_tails(trace, done, [one for left in extra.values() for one in left], numbers)


def _with_tails(
    trace: ExecutionTrace, calls: list[Call], left: list[Uncovered], numbers: dict[int, int]
) -> list[Call]:
    """The calls, with what comes behind the last one of a step and a thread."""
    steps = steps_of(trace)
    last = {(steps[call.at], call.thread): at for at, call in enumerate(calls)}
    behind: dict[int, list[Call]] = defaultdict(list)
    for one in left:
        beside = calls[-1].at if one.beside is None else one.beside
        at = last.get((one.step, trace.nodes[beside].thread), len(calls) - 1)
        behind[at].append(_placeholder(trace, one, numbers, calls[at].at))
    return [item for at, call in enumerate(calls) for item in (call, *behind[at])]


def _pin(calls: list[Call], flow: Flow, alignment: Alignment | None) -> None:
    """Pins host memory that was copied from as pinned memory is, or was meant to be."""
    for call in calls:
        if not call.does.startswith(("aten.copy_.", "aten._to_copy.", "aten.to.")):
            continue
        if alignment is not None and (timing := alignment.timings.get(call.at)) is not None:
            is_pinned = any("Pinned" in name for name in timing.kernels)
        else:
            is_pinned = True in call.args[1:] and call.does.startswith("aten.copy_.")
        for operand in call.args if is_pinned else []:
            if isinstance(operand, list) and operand[:1] == ["x"]:
                storage = flow.storages[flow.made[operand[1]].storage]
                storage.on_cpu = 2 if storage.on_cpu else 0


def _streams(alignment: Alignment) -> dict[int, int]:
    """Streams by number: the default one first, then the busiest."""
    counts: Counter[int] = Counter()
    for timing in alignment.timings.values():
        counts.update(timing.streams[:1])
    for timing in alignment.timings.values():
        counts.update(dict.fromkeys(timing.streams, 0))
    counts.update({one.stream: 1 for one in alignment.uncovered})
    busiest = sorted(counts, key=lambda stream: (stream not in _DEFAULT_STREAMS, -counts[stream]))
    return {stream: number for number, stream in enumerate(busiest)}


def _placeholder(trace: ExecutionTrace, one: Uncovered, numbers: dict[int, int], at: int) -> Call:
    thread = trace.nodes[one.beside if one.beside is not None else at].thread
    call = Call("", [], {}, None, [], at, thread, "missing", one.name, numbers[one.stream])
    call.device_ns = one.device_ns
    return call


def _peak_bytes(calls: list[Call], flow: Flow) -> int:
    """Most memory that is needed at once: what is there before, and what lives beside it."""
    ends = {number: at for at, call in enumerate(calls) for number in call.reads | call.writes}
    live = most = 0
    freed: dict[int, int] = defaultdict(int)
    begun: set[int] = set()
    for at, call in enumerate(calls):
        for number in call.writes - begun:
            # Negative numbers stand for order among collectives, not for memory.
            if number >= 0 and flow.memories[number].storage is None:
                live += flow.memories[number].nbytes
                freed[ends[number]] += flow.memories[number].nbytes
        begun |= call.writes
        most = max(most, live)
        live -= freed[at]
    return most + sum(storage.nbytes for storage in flow.storages)


def _settings(trace: ExecutionTrace, alignment: Alignment | None) -> dict[str, object]:
    on_gpu = any(
        not tensor.device.startswith("cpu")
        for node in trace.nodes
        for tensor in tensors_in(node.inputs)
        if tensor.device
    )
    settings: dict[str, object] = {"device": "cuda" if on_gpu else "cpu"}
    if alignment is not None and _used_fewer_bits(trace, alignment):
        settings["tf32"] = 1
    if alignment is not None and alignment.slowdown > 1.0:
        settings["profiler"] = round(alignment.slowdown, 2)
    return settings


def _used_fewer_bits(trace: ExecutionTrace, alignment: Alignment) -> bool:
    return any(
        any(part in name.lower() for name in timing.kernels for part in _FEWER_BITS)
        for at, timing in alignment.timings.items()
        if trace.nodes[at].name.partition("::")[2] in _PRODUCTS
        and all(t.dtype == "float32" for t in tensors_in(trace.nodes[at].inputs))
    )


def _notes(trace: ExecutionTrace, alignment: Alignment | None) -> Iterator[str]:
    if trace.adopted:
        yield (
            f"{trace.adopted} operators were called from one that was aborted, as activation "
            "recompute does; they count for themselves"
        )
    if alignment is None:
        yield (
            "without a profiler trace: no streams, no host time, no device time, and placeholder "
            "kernels take none"
        )
        return
    yield from alignment.notes
    if alignment.matched < 1.0:
        yield f"{100 * alignment.matched:.1f} % of the calls were found in the profiler trace"
