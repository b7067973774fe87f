"""The protocol of the plugin in a driver: requests and answers, lines of JSON on loopback."""

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

_PROTOCOL = 1
_MAX_ANSWER_BYTES = 64 << 20
T = TypeVar("T")


class DriverGone(ActuationError):
    """The application has ended, or its driver cannot be reached any more."""


class Applied(msgspec.Struct, frozen=True):
    """The result of a plan.

    Attributes:
        items: Each item of the plan, with "" where it was applied, and otherwise why not.
    """

    items: dict[str, str] = {}

    @property
    def refused(self) -> dict[str, str]:
        """Items that were not applied, and why."""
        return {item: why for item, why in self.items.items() if why}


class _Handshake(msgspec.Struct, frozen=True):
    """The file that the driver writes."""

    host: str
    port: int
    token: str
    application: str = ""
    spark: str = ""


class _Outcome(msgspec.Struct, frozen=True):
    """Whether a request succeeded."""

    ok: bool
    error: str = ""


class SparkDriver:
    """A connection to the plugin in a driver.

    Every request renews the lease, unless it only watches. After a timeout or a broken connection
    nothing is assumed to have happened; the driver releases what was applied when the lease runs
    out.
    """

    def __init__(
        self, handshake: _Handshake, path: Path, *, timeout_s: float, watch: bool
    ) -> None:
        self._handshake, self._path = handshake, path
        self._timeout_s, self._watch = timeout_s, watch
        self._socket: socket.socket | None = None
        self._rest = b""
        try:
            self.hello = self._greet()
        except BaseException:
            self.close()
            raise

    def _greet(self) -> Hello:
        hello = self._request({"op": "hello"}, Hello)
        if hello.protocol != _PROTOCOL:
            raise ActuationError(
                f"the driver's plugin has protocol {hello.protocol}, gnomon {_PROTOCOL}: "
                "build the plugin again"
            )
        return msgspec.structs.replace(hello, spark=self._handshake.spark)

    @classmethod
    def connect(
        cls, handshake_path: Path | str, *, wait_s: float = 0.0, timeout_s: float = 10.0,
        watch: bool = False, clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> SparkDriver:  # fmt: skip
        """Connects to the driver that wrote a handshake file.

        Args:
            handshake_path: The file that `spark.gnomon.handshake` names.
            wait_s: How long an application may take to write it, also over the file of one that
                has ended.
            timeout_s: How long an answer may take.
            watch: Read only: requests do not renew the lease of the agent that acts.
            clock: Seconds that pass.
            sleep: Waits seconds.

        Raises:
            InputError: There is no such file, or another user could have written it.
            DriverGone: No driver listens at its address.
        """
        path = Path(handshake_path)
        deadline = clock() + wait_s
        while True:
            try:
                return cls(_read_handshake(path), path, timeout_s=timeout_s, watch=watch)
            except (DriverGone, InputError) as error:
                # The file of a dead driver counts as none.
                may_come = isinstance(error, DriverGone) or not path.exists()
                if not may_come or clock() >= deadline:
                    raise
            sleep(0.1)

    def __enter__(self) -> SparkDriver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def state(self) -> DriverState:
        """The application as it is now."""
        return self._request({"op": "state"}, DriverState)

    def apply(self, plan: SparkPlan) -> Applied:
        """Applies a plan. The same plan again changes nothing.

        Raises:
            ActuationError: The driver refused it as a whole, or did not answer.
        """
        sent = msgspec.structs.replace(plan, reasons={}, notes=())
        return self._request({"op": "apply", **msgspec.to_builtins(sent, str_keys=True)}, Applied)

    def release(self) -> None:
        """Releases everything at once."""
        self._request({"op": "release"}, _Outcome)

    def set_lease(self, seconds: float) -> None:
        """Changes how long the driver waits for a request before it releases everything."""
        self._request({"op": "lease", "seconds": seconds}, _Outcome)

    def close(self) -> None:
        """Closes the connection; what was applied stays until the lease runs out."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
        self._socket, self._rest = None, b""

    def _request(self, request: Mapping[str, Any], kind: type[T]) -> T:
        line = msgspec.json.encode(
            {**request, "token": self._handshake.token, "watch": self._watch}
        )
        answer = self._exchange(line + b"\n", str(request["op"]))
        try:
            outcome = msgspec.json.decode(answer, type=_Outcome)
            if not outcome.ok:
                raise ActuationError(f"the driver refused: {outcome.error}")
            return msgspec.json.decode(answer, type=kind)
        except msgspec.DecodeError as error:
            self.close()
            raise ActuationError(f"the driver's answer is not valid: {error}") from None

    def _exchange(self, line: bytes, what: str) -> bytes:
        try:
            return self._send_again_if_cut(line)
        except BaseException as error:
            # A late answer must not be taken for that of the next request.
            self.close()
            # A timeout does not mean that the driver has ended; yet TimeoutError is an OSError.
            if isinstance(error, TimeoutError):
                raise ActuationError(
                    f"the driver did not answer {what!r} within {self._timeout_s:g} s"
                ) from None
            if isinstance(error, OSError):
                raise DriverGone(self._why_gone()) from None
            raise

    def _send_again_if_cut(self, line: bytes) -> bytes:
        """A connection may have been cut since the last request; requests are idempotent."""
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
            address = (self._handshake.host, self._handshake.port)
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
            if len(self._rest) > _MAX_ANSWER_BYTES or time.monotonic() > deadline:
                raise TimeoutError
        answer, _, self._rest = self._rest.partition(b"\n")
        return answer

    def _why_gone(self) -> str:
        name = self._handshake.application or "the application"
        is_there = self._path.exists()
        return f"the driver of {name} cannot be reached" if is_there else f"{name} has ended"


def _read_handshake(path: Path) -> _Handshake:
    try:
        status = path.stat()
        text = path.read_bytes()
    except OSError as error:
        raise InputError(
            error.strerror or str(error), where=str(path),
            hint="is the application running with gnomon's plugin (spark.gnomon.handshake)?",
        ) from None  # fmt: skip
    if status.st_mode & 0o022 or status.st_uid not in (os.getuid(), 0):
        raise InputError("another user could have written this", where=str(path))
    try:
        return msgspec.json.decode(text, type=_Handshake)
    except msgspec.DecodeError as error:
        raise InputError(f"not a driver's handshake: {error}", where=str(path)) from None
