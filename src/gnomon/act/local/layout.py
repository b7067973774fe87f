"""An application as configurations of cells: call trees cut into what each service does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from gnomon.errors import InputError
from gnomon.graph.application import Application, Call, Milliseconds, as_work


class Node(msgspec.Struct, frozen=True):
    """One call of one class with its number.

    Attributes:
        id: What is sent to ask for it.
        class_index: Which class of the application it is in.
        call: What is done there.
        stages: The numbers of the calls that it makes.
    """

    id: int
    class_index: int
    call: Call
    stages: tuple[tuple[int, ...], ...]


class FirstCall(NamedTuple):
    """What a client sends: to whom, what `gnomon-cell client` takes but the callee, priority."""

    service: str
    config: dict[str, Any]
    priority: int


class Layout(Protocol):
    """What the cells of a lab do, and what its clients may ask for."""

    def callees(self, service: str) -> list[str]:
        """The services that a service calls."""

    def cell_config(self, service: str) -> dict[str, Any]:
        """What `gnomon-cell serve` takes, without what differs from replica to replica."""

    def first_calls(self) -> list[FirstCall]:
        """What the numbers of a load's schedule stand for."""


class TreeLayout:
    """The call trees of an application; a load's numbers are its classes."""

    def __init__(self, app: Application, nodes: Sequence[Node]) -> None:
        self._app, self._nodes = app, nodes

    def callees(self, service: str) -> list[str]:
        return callees(self._nodes, service)

    def cell_config(self, service: str) -> dict[str, Any]:
        return cell_config(self._app, self._nodes, service)

    def first_calls(self) -> list[FirstCall]:
        """A client gives up at the class's time-out or the call's, and never tries again."""
        found = []
        for node, one in zip(roots(self._nodes), self._app.classes.values()):
            given = [ms for ms in (one.timeout_ms, node.call.timeout_ms) if ms is not None]
            config = call_config(node, [node.call.service])
            config |= {"timeout_ms": min(given, default=0.0), "retries": 0}
            found.append(FirstCall(node.call.service, config, one.priority))
        return found


def number_calls(app: Application) -> list[Node]:
    """Every call of every class, parents first; a number is a place in the list."""
    nodes: list[Node | None] = []

    def add(call: Call, class_index: int) -> int:
        number = len(nodes)
        nodes.append(None)
        stages = tuple(
            tuple(add(below, class_index) for below in stage) for stage in call.then if stage
        )
        nodes[number] = Node(number, class_index, call, stages)
        return number

    for index, one in enumerate(app.classes.values()):
        add(one.call, index)
    return [node for node in nodes if node is not None]


def roots(nodes: Sequence[Node]) -> list[Node]:
    """The root of each class, in the order of the classes."""
    first: dict[int, Node] = {}
    for node in nodes:
        first.setdefault(node.class_index, node)
    return [first[index] for index in sorted(first)]


def check_servers(app: Application, nodes: Sequence[Node]) -> None:
    """Refuses what real servers cannot do: only our own program computes, queues and fans out."""
    for node in nodes:
        call = node.call
        server = app.services[call.service].server
        where = f"$.services.{call.service}.server"
        below = [nodes[number].call for stage in node.stages for number in stage]
        if server == "cell":
            continue
        if call.mode == "queue":
            raise InputError(f"{server} takes no queued calls", where=where)
        if server != "nginx" and below:
            raise InputError(f"{server} makes no calls", where=where)
        if len(below) > 1 or any(
            one.mode == "queue" or app.services[one.service].server != "cell" for one in below
        ):
            raise InputError("nginx passes requests on to one cell", where=where,
                             hint="one call below, mode rpc, server cell")  # fmt: skip


def callees(nodes: Sequence[Node], service: str) -> list[str]:
    """The services that a service calls."""
    found = {
        nodes[number].call.service: None
        for node in nodes
        if node.call.service == service
        for stage in node.stages
        for number in stage
    }
    return list(found)


def cell_config(app: Application, nodes: Sequence[Node], service: str) -> dict[str, Any]:
    """What `gnomon-cell serve` takes, without what differs from replica to replica."""
    about, called = app.services[service], callees(nodes, service)
    classes = list(app.classes.values())
    return {
        "service": service,
        "workers": about.workers,
        "blocking": about.blocking,
        "queue_limit": -1 if about.queue_limit is None else about.queue_limit,
        "classes": list(app.classes),
        "callees": [
            {
                "service": name,
                "server": app.services[name].server,
                "pool": about.pools.get(name, 0),
            }
            for name in called
        ],
        "nodes": [
            {
                "id": node.id,
                "class": node.class_index,
                "priority": classes[node.class_index].priority,
                "operation": node.call.operation or service,
                "cpu_ms": _work(node.call.cpu_ms),
                "wait_ms": _work(node.call.wait_ms),
                "error_share": node.call.error_share,
                "stages": [
                    [call_config(nodes[number], called) for number in stage]
                    for stage in node.stages
                ],
            }
            for node in nodes
            if node.call.service == service
        ],
    }


def call_config(node: Node, called: Sequence[str]) -> dict[str, Any]:
    """A call as its caller needs it."""
    return {
        "node": node.id,
        "callee": called.index(node.call.service),
        "queued": node.call.mode == "queue",
        "probability": node.call.probability,
        "timeout_ms": node.call.timeout_ms or 0.0,
        "retries": node.call.retries,
        "operation": node.call.operation or node.call.service,
    }


def _work(time: Milliseconds) -> dict[str, Any]:
    work = as_work(time)
    return {
        "mean": work.mean,
        "cv": work.cv,
        "shape": work.shape,
        "quantiles": [list(point) for point in sorted(work.quantiles.items())],
    }
