"""A quota on Kubernetes that is given back, whatever becomes of who set it.

A ResourceQuota has no lease. So a note on the quota itself says who set it, to what, and what it
was before; and a second process, the keeper, gives it back when the one that set it is gone
without having done so (`kill -9`). Where both are gone, whoever sets it next goes by the note.

A change that got no answer may still be made, after who asked for it is gone. So the keeper does
not go by the first look at a quota without a note: it looks on until no change can come any more.
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

__all__ = ["NOTE", "HeldQuota"]

#: The annotation that holds the note, as JSON.
NOTE = "gnomon/held"
_READY, _DONE = b"ready\n", b"done\n"
#: How long the keeper tries, in seconds before each attempt.
_AGAIN_S = (0, 1, 2, 5, 10, 20, 30, 60, 120, 300)
#: How long a change may take to be made after who asked for it is gone: kubectl goes on alone for
#: two requests, and a server lets go of one after a minute, unless it was told otherwise.
_LATE_S = 2 * REQUEST_TIMEOUT_S + 60.0
_ATTEMPTS = 3


class _Note(msgspec.Struct, frozen=True):
    """What is written on a quota that is held.

    Attributes:
        owner: Who holds it.
        before: Limits that were found; None where there was none.
        set: What they were set to.
    """

    owner: str
    before: dict[str, str | None]
    set: dict[str, str | None]


class _Errand(msgspec.Struct, frozen=True):
    """What the keeper has to do: give a quota back, if it is still this owner's."""

    owner: str
    plan: QuotaPlan
    kubeconfig: str | None = None


class HeldQuota:
    """Limits of a quota that stand until they are given back."""

    def __init__(self, kubeconfig: str | None = None) -> None:
        """Touches nothing yet.

        Args:
            kubeconfig: The way to the cluster; as `find_cluster` finds it otherwise.
        """
        self._kubeconfig = kubeconfig
        self._owner = secrets.token_hex(8)
        self._way: Cluster | None = None
        self._plan: QuotaPlan | None = None  # what may have been set
        self._is_ours = False
        self._may_come = False  # a change that was asked for and not answered
        self._keeper: subprocess.Popen[bytes] | None = None

    def set(self, wish: QuotaPlan) -> None:
        """Sets limits, and notes what they were.

        Raises:
            ActuationError: The cluster refused or did not answer, or somebody else holds the quota
                by now.
            InputError: There is no way to a cluster.
        """
        way = self._cluster()
        found = way.read(wish)
        note = _note_on(found, wish)
        if note is not None and note.owner != self._owner and self._is_ours:
            raise ActuationError(f"quota {wish.namespace}/{wish.name}: somebody else has set it")
        if self._keeper is None or self._keeper.poll() is not None:
            self._keeper = _start_keeper(_Errand(self._owner, wish, self._kubeconfig))
        before = _before(found, note, wish)
        # Of somebody who is gone, limits may still be set that are none of ours.
        mine = _Note(self._owner, before, {key: found.hard.get(key) for key in before} | wish.hard)
        # Before it is sent: where no answer comes, it may have been done.
        may_come_before, self._plan, self._may_come = self._may_come, wish, True
        try:
            way.patch(_noted(wish, mine, found))
        except QuotaRefused:
            self._may_come = may_come_before
            raise
        # An earlier one that was not answered cannot come any more: it was for another version.
        self._is_ours, self._may_come = True, False

    def give_back(self) -> QuotaPlan | None:
        """Puts limits back as they were found; what was put back, None where nothing was to be.

        Where a change got no answer and is not found, the keeper looks on: it may still be made.

        Raises:
            ActuationError: The cluster refused; the keeper goes on trying when this process ends.
        """
        if self._plan is None:
            return None
        given = _restore(self._cluster(), self._plan, self._owner)
        may_come = self._may_come and given is None
        self._plan, self._is_ours, self._may_come = None, False, False
        if may_come:
            self._leave_to_keeper()
        else:
            self._dismiss_keeper()
        return given

    def _cluster(self) -> Cluster:
        self._way = self._way or find_cluster(self._kubeconfig)
        return self._way

    def _leave_to_keeper(self) -> None:
        keeper, self._keeper = self._keeper, None
        # It takes for its own what it finds in this name: what is set from now on is not.
        self._owner = secrets.token_hex(8)
        if keeper is not None:
            # Closes its input, as our end would, and takes note of its end.
            threading.Thread(target=keeper.communicate, daemon=True).start()

    def _dismiss_keeper(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        try:
            keeper.communicate(_DONE, timeout=10.0)
        except (OSError, subprocess.SubprocessError):
            keeper.kill()  # it has nothing to do any more
            keeper.communicate()


def _note_on(quota: Quota, plan: QuotaPlan) -> _Note | None:
    text = quota.annotations.get(NOTE)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=_Note)
    except msgspec.DecodeError:
        raise ActuationError(
            f"quota {plan.namespace}/{plan.name}: its annotation {NOTE} says nothing; remove it"
        ) from None


def _before(found: Quota, note: _Note | None, wish: QuotaPlan) -> dict[str, str | None]:
    """What is to be given back: as noted, where the limit still is what was set then."""
    before = {key: found.hard.get(key) for key in wish.hard}
    if note is not None:
        for key, limit in note.before.items():
            if found.hard.get(key) == note.set.get(key):
                before[key] = limit
    return before


def _noted(wish: QuotaPlan, note: _Note, found: Quota) -> QuotaPlan:
    text = msgspec.json.encode(note).decode()
    return msgspec.structs.replace(wish, annotations={NOTE: text}, version=found.version)


def _restore(way: Cluster, plan: QuotaPlan, owner: str) -> QuotaPlan | None:
    """Gives a quota back if it is still this owner's; None where it is not, or is gone."""
    for attempt in range(_ATTEMPTS):
        try:
            found = way.read(plan)
            note = _note_on(found, plan)
            if note is None or note.owner != owner:
                return None
            back = QuotaPlan(
                plan.namespace, plan.name, _before(found, note, plan), reason="as it was before",
                annotations={NOTE: None}, version=found.version,
            )  # fmt: skip
            way.patch(back)
            return back
        except QuotaGone:
            return None
        except ActuationError:
            # It may have changed between reading and writing.
            if attempt == _ATTEMPTS - 1:
                raise
    return None


def _start_keeper(errand: _Errand) -> subprocess.Popen[bytes]:
    # A session of its own: an interrupt from the terminal is not for the keeper. And what lies in
    # the working directory is no module of ours (-P).
    keeper = subprocess.Popen(
        [sys.executable, "-P", "-m", "gnomon.act.held_quota"], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        keeper.stdin.write(msgspec.json.encode(errand) + b"\n")
        keeper.stdin.flush()
    # Nothing is set before somebody is there to give it back.
    if keeper.stdout.readline() != _READY:
        keeper.communicate()
        raise ActuationError("nothing is set: the process that would give it back did not start")
    return keeper


def _keep(words: BinaryIO) -> int:
    """The keeper: waits for the end of who started it, and gives back unless that was done."""
    # Who ends a whole group of processes ends the one that gives back by itself, too.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    errand = msgspec.json.decode(words.readline(), type=_Errand)
    sys.stdout.buffer.write(_READY)
    sys.stdout.buffer.flush()
    if words.read().endswith(_DONE):
        return 0
    return _give_back_for_another(errand)


def _give_back_for_another(
    errand: _Errand, *, clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:  # fmt: skip
    """Gives back what somebody has set who is gone, or is set in his name within `_LATE_S`."""
    began = clock()
    for wait_s in _AGAIN_S:
        sleep(wait_s)
        is_final = clock() - began >= _LATE_S  # before looking: what comes meanwhile counts
        try:
            given = _restore(find_cluster(errand.kubeconfig), errand.plan, errand.owner)
        except (ActuationError, InputError) as error:
            _log(f"not given back yet: {error}")
            continue
        if given is not None:
            _log(f"given back, as who set it is gone: {given.describe()}")
        if given is not None or is_final:
            return 0
    _log(f"quota {errand.plan.namespace}/{errand.plan.name} was not given back")
    return 1


def _log(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone with the agent
        print(f"gnomon: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(_keep(sys.stdin.buffer))
    except (GnomonError, msgspec.DecodeError) as error:
        sys.exit(f"gnomon: {error}")
