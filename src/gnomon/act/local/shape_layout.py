"""Shapes of recorded requests as configurations of cells: every recorded visit is one node."""

from __future__ import annotations

from typing import Any

from gnomon.act.local.layout import FirstCall
from gnomon.errors import InputError
from gnomon.graph.application import Application, Call, RequestClass, Service
from gnomon.graph.request_shape import FAILED, OVERLAPPED, QUEUED, Shape, Shapes, children_of

#: So much of their own delay cells make up for in recorded waits; more is a slow machine.
CATCH_UP_US = 1_000
#: As in native/cell/wire.hpp.
MOST_BYTES = 1 << 20
#: A schedule of the client has numbers of 16 bits.
MOST_SHAPES = 1 << 16


def shape_application(shapes: Shapes, name: str) -> Application:
    """The tiers of a library, with a class for each first operation."""
    entries = dict.fromkeys(shape.calls[0].operation for shape in shapes.shapes)
    named = {shapes.operations[one].name: shapes.operations[one].tier for one in entries}
    return Application(
        name=name, services={tier: Service(workers=64) for tier in shapes.tiers}, rate=shapes.rate,
        classes={one: RequestClass(Call(shapes.tiers[tier])) for one, tier in named.items()},
    )  # fmt: skip


class ShapeLayout:
    """What every tier of a library does.

    Args:
        shapes: Names of operations are unique.
        cpu_share: Of a tier's own time, what is CPU time; the rest is waiting.
    """

    def __init__(self, shapes: Shapes, *, cpu_share: float = 0.0) -> None:
        if not 0 <= cpu_share <= 1:
            raise InputError(f"{cpu_share:g} is no share of time", hint="from 0 to 1")
        if len(shapes.shapes) >= MOST_SHAPES:
            raise InputError(f"{len(shapes.shapes):,} shapes are too many to run",
                             hint=f"{MOST_SHAPES - 1:,} at most")  # fmt: skip
        self._shapes, self._cpu_share = shapes, cpu_share
        self._classes = list(dict.fromkeys(one.calls[0].operation for one in shapes.shapes))
        called: dict[str, dict[str, None]] = {tier: {} for tier in shapes.tiers}
        for shape in shapes.shapes:
            for call in shape.calls:
                if call.caller >= 0:
                    caller = shape.calls[call.caller].operation
                    called[self._tier(caller)].setdefault(self._tier(call.operation))
        self._callees = {tier: list(names) for tier, names in called.items()}
        self._nodes: dict[str, list[dict[str, Any]]] = {tier: [] for tier in shapes.tiers}
        self._first: list[FirstCall] = []
        count = 0
        for shape in shapes.shapes:
            self._add(shape, count)
            count += len(shape.calls)

    def callees(self, service: str) -> list[str]:
        return self._callees[service]

    def first_calls(self) -> list[FirstCall]:
        return self._first

    def cell_config(self, service: str) -> dict[str, Any]:
        return {
            "service": service,
            "workers": 64,
            "catch_up_us": CATCH_UP_US,
            "classes": [self._shapes.operations[one].name for one in self._classes],
            "callees": [{"service": one, "server": "cell"} for one in self._callees[service]],
            "nodes": self._nodes[service],
        }

    def _tier(self, operation: int) -> str:
        return self._shapes.tiers[self._shapes.operations[operation].tier]

    def _add(self, shape: Shape, first: int) -> None:
        calls = shape.calls
        class_index = self._classes.index(calls[0].operation)
        for i, below in enumerate(children_of(shape)):
            call, tier = calls[i], self._tier(calls[i].operation)
            step_of = {j: number for number, j in enumerate(below)}
            script = {
                "lead_us": call.lead_us if i else 0,
                "rest_us": call.rest_us,
                "rest_cpu_us": self._cpu_share * call.rest_us,
                "fails": bool(call.marks & FAILED),
                "answer_bytes": min(call.response_bytes, MOST_BYTES),
                "steps": [self._step(shape, j, first, step_of) for j in below],
            }
            node = {
                "id": first + i, "class": class_index, "script": _short(script),
                "operation": self._shapes.operations[call.operation].name,
            }  # fmt: skip
            if i == 0:
                node["weight"] = shape.weight
            self._nodes[tier].append(node)
        config = self._call(shape, 0, first)
        self._first.append(FirstCall(self._tier(calls[0].operation), config, 0))

    def _call(self, shape: Shape, i: int, first: int) -> dict[str, Any]:
        call = shape.calls[i]
        return {
            "node": first + i,
            "operation": self._shapes.operations[call.operation].name,
            "queued": bool(call.marks & QUEUED),
            "recorded": True,
            "payload_bytes": min(call.request_bytes, MOST_BYTES),
        }

    def _step(self, shape: Shape, i: int, first: int, step_of: dict[int, int]) -> dict[str, Any]:
        call = shape.calls[i]
        callees = self._callees[self._tier(shape.calls[call.caller].operation)]
        worked = 0.0 if call.marks & (OVERLAPPED | QUEUED) else self._cpu_share * call.delay_us
        to = {**self._call(shape, i, first), "callee": callees.index(self._tier(call.operation))}
        step = {
            "call": _short(to),
            "after": [step_of[j] for j in call.after],
            "delay_us": call.delay_us,
            "cpu_us": worked,
            "tail_us": call.tail_us,
        }
        return _short(step) if call.is_waited else {**_short(step), "waited": False}


def _short(table: dict[str, Any]) -> dict[str, Any]:
    """Without what is 0, false or empty: cells know that by default."""
    return {key: value for key, value in table.items() if value}
