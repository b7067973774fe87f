"""What the PyTorch profiler itself costs, event by event, inferred from the trace it wrote.

Every operator, runtime call and Python frame that the profiler records has its two ends taken
down, and that takes time: on a host that a training step waits for, up to half of it. How much is
different on every machine, with every set of options (shapes, stacks), and from one second to the
next where cores are shared. So the costs are not numbers of nanoseconds but multiples of what the
trace itself shows on each thread:

- *enter*: the shortest times from the start of an operator to the start of its first child.
  The profiler takes the child's start down last, so its work for the child, shapes included, lies
  before it;
- *exit*: the shortest times from the end of a last child to the end of its parent: what the
  profiler does after it took the child's end down;
- *launch*: the shortest calls that start something on a device.

Few things fit into those stretches but the profiler's own work, and they follow options, machine
and pace by themselves. Caches are colder around an operator than in these shortest stretches, so
the multiples come out above one.

Marks (`record_function`) are free here: they cost the same whether anybody profiles or not.
"""

from __future__ import annotations

import math
import os
from functools import cache
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.graph.column_types import Codes, Flags, Floats, Ints

_DEFAULTS = Path(__file__).with_suffix(".toml")
#: The shortest of a thread's stretches: low enough to hold little but the profiler, high enough
#: that the clock's grain and single lucky ones do not decide.
_SHORTEST = 0.2
#: Fewer stretches than this say nothing about a thread.
_ENOUGH = 50


class ProfilerCost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one recorded event costs, as multiples of the shortest stretches of its thread.

    Attributes:
        operator: An operator, in times (enter + exit).
        launch: A call that starts something on a device, in times launch.
        call: Any other runtime or driver call, in times exit.
        frame: A Python frame (`with_stack`), in times exit.
        kernel_ns: A kernel on the device, in the gap before it.
        lone: What is left of a call that has no repeats to compare with, once it is steady.
        unsteady_ns: At most this much of a call is taken for unsteadiness that comes with the
            profiler (cold caches, fresh pages); beyond it, the call itself varies.
        enter_ns: The stretches, where a trace has too few to tell; also `exit_ns`, `launch_ns`.
        host_spread: How far off, relatively, host times may be: 80 % of cases lie closer.
        device_spread: Likewise device times, whose clocks follow heat and power.
    """

    operator: float
    launch: float
    call: float
    frame: float
    kernel_ns: float
    lone: float
    unsteady_ns: float
    enter_ns: float
    exit_ns: float
    launch_ns: float
    host_spread: float
    device_spread: float

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0.0:
                raise InputError(f"{name} has to be a number from zero up, not {value}")
            msgspec.structs.force_setattr(self, name, float(value))
        for name in ("enter_ns", "exit_ns", "launch_ns"):
            if getattr(self, name) == 0.0:
                raise InputError(f"{name} has to be above zero")
        if self.lone > 1.0:
            raise InputError(f"lone is a share, at most 1, not {self.lone}")


def load_profiler_cost(path: str | os.PathLike[str]) -> ProfilerCost:
    """Reads constants from a TOML file; what it does not name stays as shipped."""
    given = _read(Path(path))
    shipped = msgspec.structs.asdict(default_profiler_cost())
    return _convert(shipped | given, str(path))


def save_profiler_cost(
    cost: ProfilerCost, path: str | os.PathLike[str], comment: str = ""
) -> None:
    """Writes constants as TOML, one a line, under a comment."""
    lines = [f"# {line}" for line in comment.splitlines()]
    values = msgspec.structs.asdict(cost)
    lines += [f"{name} = {float(f'{value:.4g}')!r}" for name, value in values.items()]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


@cache
def default_profiler_cost() -> ProfilerCost:
    """The constants as shipped.

    >>> default_profiler_cost().operator > 1.0
    True
    """
    return _convert(_read(_DEFAULTS), str(_DEFAULTS))


def _read(path: Path) -> dict[str, object]:
    try:
        return msgspec.toml.decode(path.read_bytes(), type=dict[str, object])
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"not TOML: {error}", where=str(path)) from None


def _convert(values: dict[str, object], where: str) -> ProfilerCost:
    try:
        return msgspec.convert(values, ProfilerCost)
    except msgspec.ValidationError as error:
        names = ", ".join(ProfilerCost.__struct_fields__)
        raise InputError(str(error), where=where, hint=f"known are {names}") from None


class EventPrices(msgspec.Struct, frozen=True, eq=False):
    """Nanoseconds an event costs on each thread, by kind; `enter` and `exit` are an operator's."""

    enter: Floats
    exit: Floats
    launch: Floats
    call: Floats
    frame: Floats


def price_events(
    cost: ProfilerCost,
    start_ns: Ints,
    end_ns: Ints,
    thread: Codes,
    is_operator: Flags,
    is_launch: Flags,
    threads: int,
) -> EventPrices:
    """What an event costs on each thread.

    Args:
        cost: The multiples.
        start_ns: Start of each operator and call, in order; among equals parents come first.
        end_ns: Their ends.
        thread: Their threads, numbers below `threads`.
        is_operator: Which are operators.
        is_launch: Which are calls that start something on a device.
        threads: How many threads there are.
    """
    order, first = group_by(np.arange(len(thread)), thread, threads)
    found = [
        _stretches(start_ns[own], end_ns[own], is_operator[own], is_launch[own])
        for own in (order[a:b] for a, b in pairwise(first.tolist()))
    ]
    enter, exit, launch = (_shortest([row[column] for row in found]) for column in range(3))
    # What no thread shows is taken as usual, at the pace of what is shown.
    usual = (cost.enter_ns, cost.exit_ns, cost.launch_ns)
    seen = [
        np.nanmedian(ns) / ns_usual
        for ns, ns_usual in zip((enter, exit, launch), usual)
        if not np.isnan(ns).all()
    ]
    pace = float(np.median(seen)) if seen else 1.0
    enter, exit, launch = (
        np.where(np.isnan(ns), ns_usual * pace, ns)
        for ns, ns_usual in zip((enter, exit, launch), usual)
    )
    return EventPrices(
        cost.operator * enter, cost.operator * exit, cost.launch * launch,
        cost.call * exit, cost.frame * exit,
    )  # fmt: skip


def group_by(rows: Ints, group: Codes, groups: int) -> tuple[Ints, Ints]:
    """Rows by group, in their order; and where each group begins among them, and the last ends.

    >>> group_by(np.array([7, 8, 9]), np.array([1, 0, 1], np.int32), 2)
    (array([8, 7, 9]), array([0, 1, 3]))
    """
    # Few groups as a rule, and numpy sorts short numbers in linear time.
    short = group.astype(np.int16) if groups < 2**15 else group
    order = np.argsort(short, kind="stable")
    first = np.zeros(groups + 1, np.int64)
    np.cumsum(np.bincount(group, minlength=groups), out=first[1:])
    return rows[order], first


def _stretches(
    start: Ints, end: Ints, is_operator: Flags, is_launch: Flags
) -> tuple[Ints, Ints, Ints]:
    """One thread's enter, exit and launch stretches."""
    both = is_operator[1:] & is_operator[:-1]
    enter = (start[1:] - start[:-1])[both & (start[1:] < end[:-1])]
    # By end, children before parents: who started later comes first among equals.
    back = len(end) - 1 - np.argsort(end[::-1], kind="stable")
    start, end, operator = start[back], end[back], is_operator[back]
    encloses = (start[1:] <= start[:-1]) & operator[1:] & operator[:-1]
    return enter, (end[1:] - end[:-1])[encloses], (end - start)[is_launch[back]]


def _shortest(stretches: list[Ints]) -> Floats:
    """The shortest of each thread; of all threads where one has too few; nan without enough."""
    alone = [_low(own) for own in stretches]
    if not any(math.isnan(ns) for ns in alone):
        return np.asarray(alone, np.float64)
    together = _low(np.concatenate(stretches)) if stretches else math.nan
    return np.asarray([together if math.isnan(ns) else ns for ns in alone], np.float64)


def _low(stretches: Ints) -> float:
    if len(stretches) < _ENOUGH:
        return math.nan
    at = int(_SHORTEST * len(stretches))
    return float(np.partition(stretches, at)[at])
