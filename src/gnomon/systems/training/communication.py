"""Communication of one rank: collectives, sends and receives, as its trace shows them."""

from __future__ import annotations

import re

import msgspec
import numpy as np

from gnomon.ingest.profiler.kineto import KinetoTrace
from gnomon.model.accelerator.collective_names import collective_kind
from gnomon.model.accelerator.kernel_class import classify_kernel
from gnomon.sim.trace.events import EventClass, LaidOut, peer_of, step_marks
from gnomon.sim.trace.marks import asked_at, step_of_device_events

_POINT_TO_POINT = ("send", "recv")
#: Kernels of expert parallelism, which are no collectives by name.
_EXPERT_KERNELS = ("dispatch", "combine")


class Communication(msgspec.Struct, frozen=True):
    """One communication, seen from one rank.

    Attributes:
        event: The trace's event.
        operation: `all_reduce`, `send` ... in the backend's words.
        channel: What keeps sequences apart: the process group's name, or the stream's place.
        ranks: Who takes part, where the trace says so.
        peer: The other side of a send or receive, -1 for none; as a trace has it, its place in
            the process group.
        size: What must be equal on all sides, where the trace says so.
        step: Name of the step that asked for it.
        start_ns: When this rank arrived; `end_ns`: when it was through.
        is_point_to_point: Whether it has one peer rather than a group.
        sequence: The number that the backend gave it within its group, -1 for none.
    """

    event: int
    operation: str
    channel: str
    ranks: tuple[int, ...]
    peer: int
    size: str
    step: str
    start_ns: int
    end_ns: int
    is_point_to_point: bool = False
    sequence: int = -1


class _CollectiveArguments(msgspec.Struct):
    collective: str = msgspec.field(default="", name="Collective name")
    dtype: str = ""
    elements_in: int = msgspec.field(default=0, name="In msg nelems")
    elements_out: int = msgspec.field(default=0, name="Out msg nelems")
    group: str = msgspec.field(default="", name="Process Group Name")
    ranks: str | list[int] = msgspec.field(default="", name="Process Group Ranks")
    source: int = msgspec.field(default=-1, name="Src Rank")
    destination: int = msgspec.field(default=-1, name="Dst Rank")
    sequence: int = msgspec.field(default=-1, name="Seq")


def communications(trace: KinetoTrace, laid: LaidOut) -> list[Communication]:
    """All communications of a rank, in order of their start."""
    marks = step_marks(trace)
    steps = step_of_device_events(trace, asked_at(trace, laid), marks)
    names = [*(trace.name_of(mark) for mark in marks.tolist()), ""]

    def step_of(event: int) -> str:
        return names[int(steps[event])]

    found = [
        _of_backend(trace, event, post, step_of(event)) for event, post in laid.communications
    ]
    of_backend = {event for event, _ in laid.communications}
    codes = [
        code for code, name in enumerate(trace.names) if classify_kernel(name) == "communication"
    ]
    on_device = (laid.event_class == EventClass.DEVICE) & np.isin(trace.name, codes)
    kernels = [event for event in np.flatnonzero(on_device).tolist() if event not in of_backend]
    place: dict[int, int] = {}
    for event in kernels:
        lane = place.setdefault(int(laid.lane[event]), len(place))
        found.append(_of_kernel(trace, event, lane, step_of(event)))
    return sorted(found, key=lambda one: (one.start_ns, one.event))


def _of_backend(trace: KinetoTrace, event: int, post: int, step: str) -> Communication:
    operation = trace.name_of(event).partition(":")[2]
    peer = peer_of(trace, post)
    dims, _, _ = trace.shapes[trace.shape[event]].partition("\t")
    return Communication(
        event, operation, "", (), -1 if peer is None else peer, dims, step,
        int(trace.start_ns[event]), int(trace.end_ns[event]), operation in _POINT_TO_POINT,
    )  # fmt: skip


def _of_kernel(trace: KinetoTrace, event: int, lane: int, step: str) -> Communication:
    start, end = int(trace.start_ns[event]), int(trace.end_ns[event])
    try:
        extra = msgspec.json.decode(
            trace.extras[trace.extra[event]] or "{}", type=_CollectiveArguments, strict=False
        )
    except msgspec.DecodeError:
        extra = _CollectiveArguments()
    if not extra.collective:
        name = trace.name_of(event)
        experts = (word for word in _EXPERT_KERNELS if word in name.lower())
        operation = collective_kind(name) or next(experts, "communication")
        return Communication(event, operation, f"stream {lane}", (), -1, "", step, start, end)
    peer = -1
    if extra.collective in _POINT_TO_POINT:
        peer = extra.destination if extra.collective == "send" else extra.source
    size = f"{extra.dtype} {max(extra.elements_in, extra.elements_out)}"
    return Communication(
        event, extra.collective, extra.group, _ranks(extra.ranks), peer, size, step, start, end,
        extra.collective in _POINT_TO_POINT, extra.sequence,
    )  # fmt: skip


def _ranks(given: str | list[int]) -> tuple[int, ...]:
    """Ranks of a group; a long list is cut short in the trace and then tells nothing."""
    if isinstance(given, list):
        return tuple(given)
    numbers = given.strip("[] ")
    if not re.fullmatch(r"\d+( *, *\d+)*", numbers):
        return ()
    return tuple(int(number) for number in numbers.split(","))
