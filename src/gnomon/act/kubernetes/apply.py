"""Making planned changes: each tried on its own, with an outcome for each.

A change carries the version it was planned for. Where the object has changed since, it is read
again and the change is planned anew for it; where the connection broke, the same after a pause,
since the change may have been made. The same changes again do nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from gnomon.act.kubernetes.cluster import Connection, Gone, Refused
from gnomon.act.kubernetes.deployments import Change
from gnomon.act.kubernetes.objects import Deployment, Metadata, Pod
from gnomon.errors import ActuationError

#: Before each attempt, in seconds, unless the one before met a newer version.
_PAUSES_S = (0.0, 0.5, 1.0, 2.0, 4.0)
_CONFLICT, _BUSY = 409, 429

Result = Literal["changed", "reached", "gone", "refused", "failed", "stopped"]


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a change.

    Attributes:
        change: As it was sent last.
        result: `changed`; `reached`: nothing was left to do; `gone`: there is no such object;
            `refused` by the cluster; `failed`: no answer, so that it may have been made;
            `stopped`: it was not allowed any more.
        detail: Why.
    """

    change: Change
    result: Result
    detail: str = ""

    @property
    def is_error(self) -> bool:
        return self.result in ("refused", "failed")

    def describe(self) -> str:
        """The outcome in a line."""
        text = f"{self.result}: {self.change.describe()}"
        return f"{text}: {self.detail}" if self.detail else text


class _Patched(msgspec.Struct):
    metadata: Metadata


def apply(
    cluster: Connection, changes: Sequence[Change], *,
    may_act: Callable[[], bool] = lambda: True, sleep: Callable[[float], None] = time.sleep,
) -> list[Outcome]:  # fmt: skip
    """Makes changes one after the other; never raises for what the cluster does.

    Args:
        may_act: Asked before every patch: a controller may lose its lease on the way.
        sleep: Waits seconds.
    """
    outcomes: list[Outcome] = []
    #: Of objects patched here: the version planned for, and the one that the patch made.
    made: dict[str, tuple[str, str]] = {}
    silence = ""
    for planned in changes:
        change = planned
        if silence:  # it would take minutes to find out for each of many
            outcomes.append(Outcome(change, "failed", f"not tried, after: {silence}"))
            continue
        before, after = made.get(planned.object_path, ("", ""))
        if before == planned.version:
            change = msgspec.structs.replace(planned, version=after)
        outcome = _apply_one(cluster, change, may_act, sleep)
        if outcome.result == "changed":
            made[planned.object_path] = (planned.version, outcome.change.version)
        elif outcome.result == "failed":
            silence = outcome.detail
        outcomes.append(outcome)
    return outcomes


def _apply_one(
    cluster: Connection, change: Change, may_act: Callable[[], bool],
    sleep: Callable[[float], None],
) -> Outcome:  # fmt: skip
    problem: ActuationError | None = None
    for pause_s in _PAUSES_S:
        try:
            if problem is not None:
                if not (isinstance(problem, Refused) and problem.code == _CONFLICT):
                    sleep(pause_s)
                again = _replanned(cluster, change)
                if again is None:
                    return Outcome(change, "reached")
                change = again
            if not may_act():
                return Outcome(change, "stopped", "this controller does not lead any more")
            answer = cluster.request(
                "PATCH", change.patch_path, change.body(), content_type=change.content_type
            )
            version = answer.decode(_Patched, "the object").metadata.resource_version
            return Outcome(msgspec.structs.replace(change, version=version), "changed")
        except Gone as error:
            return Outcome(change, "gone", str(error))
        except ActuationError as error:
            if isinstance(error, Refused) and error.code not in (_CONFLICT, _BUSY):
                return Outcome(change, "refused", str(error))
            problem = error
    result: Result = "refused" if isinstance(problem, Refused) else "failed"
    return Outcome(change, result, f"{problem} ({len(_PAUSES_S)} attempts)")


def _replanned(cluster: Connection, change: Change) -> Change | None:
    """The change for the object as it is now; None where it is as it should be."""
    answer = cluster.request("GET", change.object_path)
    if change.kind == "resize":
        pod = answer.decode(Pod, "a pod")
        metadata, spec = pod.metadata, pod.spec
    else:
        deployment = answer.decode(Deployment, "a Deployment")
        metadata, spec = deployment.metadata, deployment.spec.template.spec
        if change.kind == "scale":
            if deployment.spec.replicas == change.replicas:
                return None
            return msgspec.structs.replace(
                change, version=metadata.resource_version,
                before=f"{deployment.spec.replicas} replicas",
            )  # fmt: skip
    container = spec.container(change.container)
    if container is None:
        raise Refused(f"{change.name} has no container {change.container!r} any more")
    if container.cpu == change.cpu:
        return None
    return msgspec.structs.replace(
        change, version=metadata.resource_version, before=str(container.cpu)
    )
