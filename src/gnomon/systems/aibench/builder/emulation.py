"""A job of many ranks on few devices: collectives become waits that take as long.

How long is taken from the trace's own kernels where a profiler trace was given. A collective's
kernel also waits for ranks that are late, so the shortest of all that move the same among the same
counts for each of them; where the world is another, the difference that the cost model gives for
more or fewer ranks is added. Without kernels the cost model gives all of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.errors import InputError
from gnomon.ingest.execution.trace import ExecutionTrace
from gnomon.model.accelerator.collective_names import MODEL_KINDS
from gnomon.model.accelerator.collective_time import USUAL_NETWORK, CollectiveTimes
from gnomon.systems.aibench.builder.collectives import Collective, Groups, describe
from gnomon.systems.aibench.builder.communication import PREFIX, TENTHS
from gnomon.systems.aibench.program import Call

#: Where the trace does not name the GPU.
USUAL_GPU = "H100"
_POINT_TO_POINT = ("send", "recv")
#: The cost model's word for each kind, or for one that moves the same bytes.
_MODEL_KINDS = MODEL_KINDS | {
    "reduce": "broadcast", "gather": "all-gather", "scatter": "reduce-scatter",
    "barrier": "all-reduce",
}  # fmt: skip


def emulate(
    calls: Sequence[Call], trace: ExecutionTrace, world: int | None, network: str | None = None,
    *, gpu: str | None = None,
) -> list[str]:  # fmt: skip
    """Says of collectives how long they take, so that they become waits.

    Messages between two ranks always do: a benchmark holds the program of one of them. Has to come
    before calls are put in order: a collective that had no kernel gets a stream of its own.

    Args:
        calls: The calls of a program, with their times where they are known.
        trace: The trace they are of.
        world: Ranks of the job to be emulated; groups that were the whole job become this many,
            others stay. None leaves collectives real.
        network: Between nodes, by name; see `gnomon.model.accelerator.gpu.network_names`.
        gpu: Which GPU, for the links inside a node.

    Returns:
        What the reader should know.
    """
    if world is not None and world < 1:
        raise InputError(f"a job of {world} ranks cannot be emulated", hint="give 1 or more")
    groups = Groups(trace)
    found = [
        (call, collective)
        for call in calls
        if call.does.startswith(PREFIX) and len(call.args) > TENTHS
        if (collective := describe(trace, call.at, groups)) is not None
        and (world is not None or collective.kind in _POINT_TO_POINT)
    ]
    if not found:
        return []
    on_gpu = any(t.device != "cpu" for _, one in found for t in (*one.ins, *one.outs))
    times = CollectiveTimes.of((gpu or USUAL_GPU) if on_gpu else None, network)
    least: dict[tuple[object, ...], float] = {}
    for call, collective in found if on_gpu else []:
        if call.device_ns > 0.0:
            key = _signature(collective)
            least[key] = min(call.device_ns, least.get(key, call.device_ns))
    own_stream = 1 + max((call.stream for call in calls), default=0)
    has_times = any(call.device_ns for call in calls)
    by_kernel = 0
    for call, collective in found:
        size = world if collective.group.is_world and world is not None else collective.group.size
        recorded = least.get(_signature(collective), 0.0)
        ns = _stretched_ns(times, collective, recorded, size)
        by_kernel += ns is not None
        call.args[TENTHS] = round((model_ns(times, collective, size) if ns is None else ns) / 100)
        if has_times and on_gpu and not call.device_ns:
            call.stream, call.device_ns = own_stream, call.args[TENTHS] * 100.0
    model = f"network {network or 'gloo-loopback'}"
    if on_gpu:
        model = f"{gpu or USUAL_GPU}, network {network or USUAL_NETWORK}"
    return _notes(found, by_kernel, world, model)


def _stretched_ns(
    times: CollectiveTimes, collective: Collective, recorded_ns: float, size: int
) -> float | None:
    """What a recorded collective would take among so many ranks; None where it moved nothing.

    More ranks add to the time on the links, not to the time that the ranks were late.
    """
    usual_ns = model_ns(times, collective, collective.group.size)
    if not recorded_ns or not usual_ns:
        return None
    if not (wanted_ns := model_ns(times, collective, size)):
        return 0.0
    return max(recorded_ns + wanted_ns - usual_ns, min(recorded_ns, wanted_ns))


def model_ns(times: CollectiveTimes, collective: Collective, size: int) -> float:
    """The cost model's time of a collective among so many ranks."""
    kind = collective.kind
    if kind in _POINT_TO_POINT:
        size = max(size, 2)
    size_bytes = float(max(collective.bytes_in, 1))
    if kind in ("all_gather", "gather"):
        size_bytes *= size
    elif kind == "scatter":
        size_bytes = float(collective.bytes_out) * size
    elif kind == "all_to_all":
        size_bytes = float(max(collective.bytes_in, collective.bytes_out))
    elif kind == "barrier":
        size_bytes = 4.0
    return float(times.time_us(_MODEL_KINDS[kind], size_bytes, size)) * 1e3


def _signature(collective: Collective) -> tuple[object, ...]:
    return (collective.kind, collective.bytes_in, collective.bytes_out, collective.group.key)


def _notes(
    found: list[tuple[Call, Collective]], by_kernel: int, world: int | None, network: str
) -> list[str]:
    pairs = sum(collective.kind in _POINT_TO_POINT for _, collective in found)
    notes = []
    if world is not None:
        model = len(found) - by_kernel
        parts = [f"{by_kernel} as long as their shortest recorded kernels"] if by_kernel else []
        parts += [f"{model} by the cost model ({network})"] if model else []
        notes.append(
            f"a world of {world} is emulated: {len(found)} collectives per round are waits, "
            + " and ".join(parts)
        )
    if pairs:
        notes.append(f"{pairs} messages from one rank to another are waits: there is no peer")
    return notes
