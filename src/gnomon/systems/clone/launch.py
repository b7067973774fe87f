"""Starting a service, waiting until it listens, and ending it: nothing else is ever signalled."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gnomon.errors import GnomonError, InputError

#: Seconds: until it listens, until it has ended. An emulator or a simulator is slow.
_START_S, _END_S = 120.0, 60.0
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_LISTENS = "0A"


class Service:
    """A service that was started here, with all processes it has started since."""

    def __init__(self, child: subprocess.Popen[bytes], log: Path) -> None:
        self._child, self._log = child, log

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def is_running(self) -> bool:
        return self._child.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Below 0: killed by that signal."""
        return self._child.poll()

    @property
    def last_words(self) -> str:
        """Its last line, as the end of a message."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return f": {lines[-1][:200]}" if lines else ""

    def processes(self) -> list[int]:
        """It and its descendants."""
        children: dict[int, list[int]] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                children.setdefault(int(_fields(path)[1]), []).append(int(path.parent.name))
        found = [self.pid]
        for one in found:
            found += children.get(one, [])
        return found

    def ports(self) -> set[int]:
        """TCP ports that any of its processes listens on."""
        held = {link for pid in self.processes() for link in _links(pid)}
        found = set()
        for table in ("tcp", "tcp6"):
            with suppress(OSError):
                for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                    row = line.split()
                    if row[3] == _LISTENS and f"socket:[{row[9]}]" in held:
                        found.add(int(row[1].rsplit(":", 1)[1], 16))
        return found

    def wait_until_listening(self, port: int | None = None) -> int:
        """The port: the one that is waited for, or the only one.

        Raises:
            GnomonError: It has ended, or does not listen; with its last words.
        """
        until = time.monotonic() + _START_S
        while True:
            found = self.ports()
            if port is None and len(found) > 1:
                ports = ", ".join(map(str, sorted(found)))
                raise InputError(f"the service listens on {ports}", hint="name one by {port}")
            if found and port in (None, *found):
                return port or found.pop()
            if not self.is_running:
                raise GnomonError(f"the service has ended before it listened{self.last_words}")
            if time.monotonic() > until:
                raise GnomonError(
                    f"the service does not listen after {_START_S:.0f} s{self.last_words}"
                )
            time.sleep(0.005)

    def cpu_s(self) -> tuple[float, float]:
        """CPU time so far, of all its processes: user and system."""
        user = system = 0.0
        for pid in self.processes():
            with suppress(OSError):
                fields = _fields(Path(f"/proc/{pid}/stat"))
                user += _TICK_S * (int(fields[11]) + int(fields[13]))
                system += _TICK_S * (int(fields[12]) + int(fields[14]))
        return user, system

    def end(self) -> bool:
        """By SIGTERM; whether that was enough. What is left of it after a minute is killed."""
        if not self.is_running:
            return True
        family = self.processes()
        self._child.send_signal(signal.SIGTERM)
        try:
            self._child.wait(_END_S)
        except subprocess.TimeoutExpired:
            for pid in reversed(family):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._child.wait()
            return False
        return True


@contextmanager
def launched(words: Sequence[str], *, open_files: int | None = None) -> Iterator[Service]:
    """Starts a command, which is ended when the block is left.

    Args:
        words: The command.
        open_files: A limit for its descriptors, which it may raise.
    """
    if open_files is not None:
        words = ["sh", "-c", f'ulimit -Sn {open_files}; exec "$@"', "sh", *words]
    with tempfile.NamedTemporaryFile(prefix="gnomon-service-") as log:
        try:
            child = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise InputError(f"cannot be started: {error.strerror}", where=words[0]) from None
        service = Service(child, Path(log.name))
        try:
            yield service
        finally:
            service.end()


@contextmanager
def serving(
    command: str, *, prefix: Sequence[str] = (), open_files: int | None = None
) -> Iterator[tuple[Service, int]]:
    """Starts a service and waits until it listens; on a free port if it says `{port}`.

    Args:
        command: It stays in the foreground and ends on SIGTERM.
        prefix: A program that runs it, with options.
        open_files: As of `launched`.
    """
    port = free_port() if "{port}" in command else None
    words = [fill(word, port=port) for word in shlex.split(command)]
    if not words or shutil.which(words[0]) is None:
        raise InputError(f"there is no program {command!r}")
    with launched([*prefix, *words], open_files=open_files) as service:
        yield service, service.wait_until_listening(port)


def find_port(command: str) -> int:
    """A free port for a command that says `{port}`; otherwise it is started to see its own."""
    if "{port}" in command:
        return free_port()
    with serving(command) as (_, port):
        return port


@contextmanager
def naming(side: str) -> Iterator[None]:
    """Messages say which of two services they are about."""
    try:
        yield
    except GnomonError as error:
        error.args = (f"the {side}: {error}",)
        raise


def fill(text: str, **values: object) -> str:
    """Replaces `{name}`; other braces are left as they are.

    >>> fill("-p {port} {x}", port=7001)
    '-p 7001 {x}'
    """
    return re.sub(r"\{(\w+)\}", lambda one: str(values.get(one[1], one[0])), text)


def free_port() -> int:
    """Of loopback; nothing listens there now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _fields(path: Path) -> list[str]:
    """Of /proc/PID/stat, from the state on: names may hold spaces and brackets."""
    return path.read_text(errors="replace").rsplit(")", 1)[1].split()


def _links(pid: int) -> list[str]:
    found = []
    with suppress(OSError):
        for one in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.append(os.readlink(one))
    return found
