"""A quota on Kubernetes that is given back, whatever becomes of who set it.

A ResourceQuota has no lease. So a second process, the keeper, puts it back when the one that set
it is gone without having done so (`kill -9`); and what the quota was before is noted on the quota
itself, so that whoever sets it next knows what to give back even where both are gone.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from typing import BinaryIO

import msgspec

from gnomon.act.kubernetes import Cluster, QuotaPlan, find_cluster
from gnomon.errors import ActuationError, GnomonError, InputError

__all__ = ["BEFORE", "HeldQuota"]

#: The note that says what limits were before, as JSON.
BEFORE = "gnomon/limits-before"
_READY, _DONE = b"ready\n", b"done\n"
#: How long the keeper tries, in seconds between one attempt and the next.
_AGAIN_S = (1, 2, 5, 10, 30, 60, 120, 300)


class HeldQuota:
    """Limits of a quota that stand until they are given back."""

    def __init__(self, kubeconfig: str | None = None) -> None:
        """Touches nothing yet.

        Args:
            kubeconfig: The way to the cluster; as `find_cluster` finds it otherwise.
        """
        self._kubeconfig = kubeconfig
        self._way: Cluster | None = None
        self._restore: QuotaPlan | None = None
        self._keeper: subprocess.Popen[bytes] | None = None

    def set(self, wish: QuotaPlan) -> None:
        """Sets limits; the first time, what they were is remembered.

        Raises:
            ActuationError: The cluster refused or did not answer.
            InputError: There is no way to a cluster.
        """
        way = self._cluster()
        if self._restore is None:
            self._restore = _restoring(way, wish)
        if self._keeper is None:
            self._keeper = _start_keeper(self._restore, self._kubeconfig)
        note = msgspec.json.encode(self._restore.hard).decode()
        way.patch(msgspec.structs.replace(wish, annotations={BEFORE: note}))

    def give_back(self) -> QuotaPlan | None:
        """Puts limits back as they were found; what was put back, None where nothing was set.

        Raises:
            ActuationError: The cluster refused; the keeper goes on trying when this process ends.
        """
        if self._restore is None:
            return None
        given = self._restore
        self._cluster().patch(given)
        self._restore = None
        self._dismiss_keeper()
        return given

    def _cluster(self) -> Cluster:
        self._way = self._way or find_cluster(self._kubeconfig)
        return self._way

    def _dismiss_keeper(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            with contextlib.suppress(OSError):
                keeper.communicate(_DONE, timeout=10.0)


def _restoring(way: Cluster, wish: QuotaPlan) -> QuotaPlan:
    """The plan that gives back: as noted on the quota by one that did not, else as it stands."""
    found = way.read(wish)
    hard = {key: found.hard.get(key) for key in wish.hard}
    if noted := found.annotations.get(BEFORE):
        try:
            hard |= msgspec.json.decode(noted, type=dict[str, str | None])
        except msgspec.DecodeError:
            raise ActuationError(
                f"quota {wish.namespace}/{wish.name}: its annotation {BEFORE} says nothing; "
                "remove it"
            ) from None
    return QuotaPlan(
        wish.namespace, wish.name, hard, reason="as it was before", annotations={BEFORE: None}
    )


class _Errand(msgspec.Struct, frozen=True):
    """What the keeper has to do."""

    plan: QuotaPlan
    kubeconfig: str | None = None


def _start_keeper(plan: QuotaPlan, kubeconfig: str | None) -> subprocess.Popen[bytes]:
    # A session of its own: an interrupt from the terminal is not for the keeper.
    keeper = subprocess.Popen(
        [sys.executable, "-m", "gnomon.act.held_quota"], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        keeper.stdin.write(msgspec.json.encode(_Errand(plan, kubeconfig)) + b"\n")
        keeper.stdin.flush()
    # Nothing is set before somebody is there to give it back.
    if keeper.stdout.readline() != _READY:
        keeper.communicate()
        raise ActuationError("nothing is set: the process that would give it back did not start")
    return keeper


def _keep(words: BinaryIO) -> int:
    """The keeper: waits for the end of what it is told by, and gives back unless that was done."""
    # Who ends a whole group of processes ends the one that gives back by itself, too.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    errand = msgspec.json.decode(words.readline(), type=_Errand)
    sys.stdout.buffer.write(_READY)
    sys.stdout.buffer.flush()
    if words.read().endswith(_DONE):
        return 0
    for again_s in _AGAIN_S:
        try:
            find_cluster(errand.kubeconfig).patch(errand.plan)
        except (ActuationError, InputError) as error:
            _tell(f"not given back, tried again in {again_s} s: {error}")
            time.sleep(again_s)
        else:
            _tell(f"given back, as who set it is gone: {errand.plan.describe()}")
            return 0
    return 1


def _tell(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone with the agent
        print(f"gnomon: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(_keep(sys.stdin.buffer))
    except (GnomonError, msgspec.DecodeError) as error:
        sys.exit(f"gnomon: {error}")
