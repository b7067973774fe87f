"""Talking to the plugin in a driver: one request, one answer, in lines of JSON on loopback."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gnomon.act.spark.plan import SparkPlan
from gnomon.act.spark.state import DriverState, Hello
from gnomon.errors import ActuationError, InputError

__all__ = ["Applied", "DriverGone", "SparkDriver"]

_PROTOCOL = 1
_LONGEST_ANSWER = 64 << 20
T = TypeVar("T")


class DriverGone(ActuationError):
    """The application has ended, or its driver cannot be reached any more."""


class Applied(msgspec.Struct, frozen=True):
    """What became of a plan.

    Attributes:
        items: Each item of the plan, with "" where it was done and why not otherwise.
    """

    items: dict[str, str] = {}

    @property
    def refused(self) -> dict[str, str]:
        """Items that were not done, and why."""
        return {item: why for item, why in self.items.items() if why}


class _Handshake(msgspec.Struct, frozen=True):
    """What the driver leaves in its file."""

    host: str
    port: int
    token: str
    application: str = ""
    spark: str = ""


class _Outcome(msgspec.Struct, frozen=True):
    """Whether a request went well."""

    ok: bool
    error: str = ""


class SparkDriver:
    """A connection to the plugin in a driver.

    Every request renews the lease, unless it only watches. When an answer is late or the
    connection breaks, nothing is assumed to have happened; what was applied is given back by the
    driver itself once the lease runs out.
    """

    def __init__(
        self, handshake: _Handshake, place: Path, *, timeout_s: float, watch: bool
    ) -> None:
        self._facts, self._place = handshake, place
        self._timeout_s, self._watch = timeout_s, watch
        self._socket: socket.socket | None = None
        self._rest = b""
        try:
            self.hello = self._greet()
        except BaseException:
            self.close()
            raise

    def _greet(self) -> Hello:
        hello = self._ask({"op": "hello"}, Hello)
        if hello.protocol != _PROTOCOL:
            raise ActuationError(
                f"the driver's plugin speaks version {hello.protocol}, gnomon {_PROTOCOL}: "
                "build the plugin again"
            )
        return msgspec.structs.replace(hello, spark=self._facts.spark)

    @classmethod
    def connect(
        cls, handshake_path: Path | str, *, wait_s: float = 0.0, timeout_s: float = 10.0,
        watch: bool = False, clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> SparkDriver:  # fmt: skip
        """Connects to the driver that wrote a handshake file.

        Args:
            handshake_path: The file that `spark.gnomon.handshake` names.
            wait_s: How long an application may take to write it; one that an application which is
                gone has left there is not waited for less.
            timeout_s: How long an answer may take.
            watch: Only look on: requests do not renew the lease of whoever acts.
            clock: Seconds that pass.
            sleep: Waits seconds.

        Raises:
            InputError: There is no such file, or others could have written it.
            DriverGone: Nobody answers where it points to.
        """
        place = Path(handshake_path)
        deadline = clock() + wait_s
        while True:
            try:
                return cls(_read_handshake(place), place, timeout_s=timeout_s, watch=watch)
            except (DriverGone, InputError) as error:
                # What a dead driver left behind says no more than no file at all.
                may_come = isinstance(error, DriverGone) or not place.exists()
                if not may_come or clock() >= deadline:
                    raise
            sleep(0.1)

    def __enter__(self) -> SparkDriver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def quota_only(self) -> bool:
        """True when this driver can scale executors, and neither hold nor order stages."""
        return self.hello.capabilities.quota_only

    def state(self) -> DriverState:
        """The application as it is now."""
        return self._ask({"op": "state"}, DriverState)

    def apply(self, plan: SparkPlan) -> Applied:
        """Carries a plan out. The same plan again changes nothing.

        Raises:
            ActuationError: The driver refused it as a whole, or did not answer.
        """
        wishes: dict[str, Any] = msgspec.to_builtins(plan, str_keys=True)
        for told in ("reasons", "notes"):
            wishes.pop(told, None)
        return self._ask({"op": "apply", **wishes}, Applied)

    def release(self) -> None:
        """Gives everything back, at once."""
        self._ask({"op": "release"}, _Outcome)

    def set_lease(self, seconds: float) -> None:
        """Changes how long the driver waits for the next request before it gives all back."""
        self._ask({"op": "lease", "seconds": seconds}, _Outcome)

    def close(self) -> None:
        """Closes the connection; what was applied stays until the lease runs out."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
        self._socket, self._rest = None, b""

    def _ask(self, request: Mapping[str, Any], kind: type[T]) -> T:
        line = msgspec.json.encode({**request, "token": self._facts.token, "watch": self._watch})
        answer = self._exchange(line + b"\n", str(request["op"]))
        try:
            outcome = msgspec.json.decode(answer, type=_Outcome)
            if not outcome.ok:
                raise ActuationError(f"the driver refused: {outcome.error}")
            return msgspec.json.decode(answer, type=kind)
        except msgspec.DecodeError as error:
            self.close()
            raise ActuationError(f"the driver's answer makes no sense: {error}") from None

    def _exchange(self, line: bytes, what: str) -> bytes:
        try:
            return self._send_again_if_cut(line)
        except BaseException as error:
            # Whatever stopped it: an answer that is still to come is not that of the next request.
            self.close()
            # One that is late is no sign of an end; yet a TimeoutError is an OSError.
            if isinstance(error, TimeoutError):
                raise ActuationError(
                    f"the driver did not answer {what!r} within {self._timeout_s:g} s"
                ) from None
            if isinstance(error, OSError):
                raise DriverGone(self._farewell()) from None
            raise

    def _send_again_if_cut(self, line: bytes) -> bytes:
        """A connection that was good before may have been cut; requests can be sent twice."""
        if self._socket is not None:
            try:
                return self._send(line)
            except TimeoutError:
                raise
            except OSError:
                self.close()
        return self._send(line)

    def _send(self, line: bytes) -> bytes:
        if self._socket is None:
            address = (self._facts.host, self._facts.port)
            self._socket = socket.create_connection(address, timeout=self._timeout_s)
        deadline = time.monotonic() + self._timeout_s
        self._socket.settimeout(self._timeout_s)
        self._socket.sendall(line)
        while b"\n" not in self._rest:
            self._socket.settimeout(max(0.01, deadline - time.monotonic()))
            piece = self._socket.recv(1 << 16)
            if not piece:
                raise ConnectionResetError("closed")
            self._rest += piece
            if len(self._rest) > _LONGEST_ANSWER or time.monotonic() > deadline:
                raise TimeoutError
        answer, _, self._rest = self._rest.partition(b"\n")
        return answer

    def _farewell(self) -> str:
        name = self._facts.application or "the application"
        if not self._place.exists():
            return f"{name} has ended"
        return f"the driver of {name} cannot be reached"


def _read_handshake(place: Path) -> _Handshake:
    try:
        facts = place.stat()
        text = place.read_bytes()
    except OSError as error:
        raise InputError(
            error.strerror or str(error), where=str(place),
            hint="is the application running with gnomon's plugin (spark.gnomon.handshake)?",
        ) from None  # fmt: skip
    if facts.st_mode & 0o022 or facts.st_uid not in (os.getuid(), 0):
        raise InputError("somebody else could have written this", where=str(place))
    try:
        return msgspec.json.decode(text, type=_Handshake)
    except msgspec.DecodeError as error:
        raise InputError(f"not a driver's handshake: {error}", where=str(place)) from None
