"""A quota on Kubernetes that is restored, also when the process that set it is killed.

A ResourceQuota has no lease. So an annotation on it records its owner, the limits before and the
limits that were set. A second process, the watchdog, restores them when the owner ends without
having done so (`kill -9`). When both are gone, the next owner goes by the annotation.

A change without an answer may still be made after its sender is gone. So the watchdog does not
stop at the first look at a quota without an annotation: it watches until no change can come.
"""

from __future__ import annotations

import contextlib
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

import msgspec

from gnomon.act.kubernetes import (
    REQUEST_TIMEOUT_S,
    Cluster,
    Quota,
    QuotaGone,
    QuotaPlan,
    QuotaRefused,
    find_cluster,
)
from gnomon.errors import ActuationError, GnomonError, InputError

#: The annotation with the record of a held quota, as JSON.
ANNOTATION = "gnomon/held"
_READY, _DONE = b"ready\n", b"done\n"
#: How long the watchdog tries, in seconds before each attempt.
_RETRY_S = (0, 1, 2, 5, 10, 20, 30, 60, 120, 300)
#: How long a change may take after its sender is gone: the API server drops a request after a
#: minute, unless it is configured otherwise.
_LATE_S = REQUEST_TIMEOUT_S + 60.0
_ATTEMPTS = 3


class _Record(msgspec.Struct, frozen=True):
    """The annotation of a held quota.

    Attributes:
        owner: Who holds it.
        before: Limits before; None where there was none.
        set: What they were set to.
    """

    owner: str
    before: dict[str, str | None]
    set: dict[str, str | None]


class _WatchdogTask(msgspec.Struct, frozen=True):
    """What the watchdog restores, if it is still this owner's."""

    owner: str
    plan: QuotaPlan
    kubeconfig: str | None = None


class HeldQuota:
    """Limits of a quota that hold until they are restored."""

    def __init__(self, kubeconfig: str | None = None) -> None:
        """Changes nothing yet.

        Args:
            kubeconfig: Of the cluster; as `find_cluster` finds it otherwise.
        """
        self._kubeconfig = kubeconfig
        self._owner = secrets.token_hex(8)
        self._cluster: Cluster | None = None
        self._plan: QuotaPlan | None = None  # what may have been set
        self._is_ours = False
        self._is_pending = False  # a change was sent and not answered
        self._watchdog: subprocess.Popen[bytes] | None = None

    def set(self, plan: QuotaPlan) -> None:
        """Sets limits, and records what they were.

        Raises:
            ActuationError: The cluster refused or did not answer, or another owner has set the
                quota since.
            InputError: No cluster was found.
        """
        cluster = self._connect()
        found = cluster.read(plan)
        record = _record_on(found, plan)
        if record is not None and record.owner != self._owner and self._is_ours:
            raise ActuationError(f"quota {plan.namespace}/{plan.name}: another owner has set it")
        if self._watchdog is None or self._watchdog.poll() is not None:
            self._watchdog = _start_watchdog(_WatchdogTask(self._owner, plan, self._kubeconfig))
        before = _limits_before(found, record, plan)
        # A former owner may have set limits that this plan does not name.
        mine = _Record(
            self._owner, before, {key: found.hard.get(key) for key in before} | plan.hard
        )
        # Before it is sent: without an answer, it may have been done.
        was_pending, self._plan, self._is_pending = self._is_pending, plan, True
        note: dict[str, str | None] = {ANNOTATION: msgspec.json.encode(mine).decode()}
        try:
            cluster.patch(msgspec.structs.replace(plan, annotations=note, version=found.version))
        except QuotaRefused:
            self._is_pending = was_pending
            raise
        # An earlier change without an answer can no longer be made: it was for another version.
        self._is_ours, self._is_pending = True, False

    def restore(self) -> QuotaPlan | None:
        """Restores the limits from before; the plan that did it, None where nothing was set.

        Where a change had no answer and is not found, the watchdog keeps watching for it.

        Raises:
            ActuationError: The cluster refused; the watchdog tries again when this process ends.
        """
        if self._plan is None:
            return None
        restored = _restore(self._connect(), self._plan, self._owner)
        may_come = self._is_pending and restored is None
        self._plan, self._is_ours, self._is_pending = None, False, False
        if may_come:
            self._leave_to_watchdog()
        else:
            self._stop_watchdog()
        return restored

    def _connect(self) -> Cluster:
        self._cluster = self._cluster or find_cluster(self._kubeconfig)
        return self._cluster

    def _leave_to_watchdog(self) -> None:
        watchdog, self._watchdog = self._watchdog, None
        # It restores whatever it finds under this owner: what is set from now on is another's.
        self._owner = secrets.token_hex(8)
        if watchdog is not None:
            # Closes its input, as our end would, and reaps it.
            threading.Thread(target=watchdog.communicate, daemon=True).start()

    def _stop_watchdog(self) -> None:
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is None:
            return
        try:
            watchdog.communicate(_DONE, timeout=10.0)
        except (OSError, subprocess.SubprocessError):
            watchdog.kill()  # nothing is left to restore
            watchdog.communicate()


def _record_on(quota: Quota, plan: QuotaPlan) -> _Record | None:
    text = quota.annotations.get(ANNOTATION)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=_Record)
    except msgspec.DecodeError:
        raise ActuationError(
            f"quota {plan.namespace}/{plan.name}: its annotation {ANNOTATION} is not valid; "
            "remove it"
        ) from None


def _limits_before(found: Quota, record: _Record | None, plan: QuotaPlan) -> dict[str, str | None]:
    """What to restore: as recorded, where the limit still is what was set then."""
    before = {key: found.hard.get(key) for key in plan.hard}
    if record is not None:
        for key, limit in record.before.items():
            if found.hard.get(key) == record.set.get(key):
                before[key] = limit
    return before


def _restore(cluster: Cluster, plan: QuotaPlan, owner: str) -> QuotaPlan | None:
    """Restores a quota if it is still this owner's; None where it is not, or is gone."""
    for attempt in range(_ATTEMPTS):
        try:
            found = cluster.read(plan)
            record = _record_on(found, plan)
            if record is None or record.owner != owner:
                return None
            back = QuotaPlan(
                plan.namespace, plan.name, _limits_before(found, record, plan),
                reason="as it was before", annotations={ANNOTATION: None}, version=found.version,
            )  # fmt: skip
            cluster.patch(back)
            return back
        except QuotaGone:
            return None
        except ActuationError:
            # It may have changed between reading and writing.
            if attempt == _ATTEMPTS - 1:
                raise
    return None


def _start_watchdog(task: _WatchdogTask) -> subprocess.Popen[bytes]:
    # A session of its own: a terminal's interrupt is not for the watchdog. And no module is
    # imported from the working directory (-P).
    watchdog = subprocess.Popen(
        [sys.executable, "-P", "-m", "gnomon.act.held_quota"], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert watchdog.stdin is not None
    assert watchdog.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        watchdog.stdin.write(msgspec.json.encode(task) + b"\n")
        watchdog.stdin.flush()
    # Nothing is set before the watchdog can restore it.
    if watchdog.stdout.readline() != _READY:
        watchdog.communicate()
        raise ActuationError("nothing is set: the watchdog that would restore it did not start")
    return watchdog


def _watch(owner_pipe: BinaryIO) -> int:
    """The watchdog: waits until its owner ends, and restores unless the owner has done it."""
    # A signal to a whole group of processes must not end the one that restores.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    task = msgspec.json.decode(owner_pipe.readline(), type=_WatchdogTask)
    sys.stdout.buffer.write(_READY)
    sys.stdout.buffer.flush()
    if owner_pipe.read().endswith(_DONE):
        return 0
    return _restore_for_owner(task)


def _restore_for_owner(
    task: _WatchdogTask, *, clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:  # fmt: skip
    """Restores what an owner that is gone has set, or what is set in its name within `_LATE_S`."""
    began = clock()
    for wait_s in _RETRY_S:
        sleep(wait_s)
        is_final = clock() - began >= _LATE_S  # before looking: what comes meanwhile counts
        try:
            restored = _restore(find_cluster(task.kubeconfig), task.plan, task.owner)
        except (ActuationError, InputError) as error:
            _log(f"not restored yet: {error}")
            continue
        if restored is not None:
            _log(f"restored, as its owner is gone: {restored.describe()}")
        if restored is not None or is_final:
            return 0
    _log(f"quota {task.plan.namespace}/{task.plan.name} was not restored")
    return 1


def _log(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone with the agent
        print(f"gnomon: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(_watch(sys.stdin.buffer))
    except (GnomonError, msgspec.DecodeError) as error:
        sys.exit(f"gnomon: {error}")
