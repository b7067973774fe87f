"""One replica of a service: a process in its own group."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnomon.act.local.cgroup import Group, ProcessGroup
from gnomon.errors import ActuationError, InputError

#: A process that is not up after so long will not come up.
START_TIMEOUT_S = 30.0
#: A throttled cell may take seconds to answer.
_ANSWER_TIMEOUT_S = 60.0

Start = Callable[..., "subprocess.Popen[str]"]


def find_cell() -> Path:
    """Our own service program; GNOMON_CELL names another build of it."""
    if given := os.environ.get("GNOMON_CELL"):
        path = Path(given)
    else:
        from gnomon import _core

        path = Path(_core.__file__).with_name("gnomon-cell")
    if not os.access(path, os.X_OK):
        raise InputError("the program of the lab's services is missing", where=str(path),
                         hint="install gnomon again")  # fmt: skip
    return path


class Replica:
    """A process, its group, and where it answers.

    Args:
        name: Unique in the lab; names the group and the files.
        folder: Of the lab.
        group: Its own.
        start: Starts processes; the lab's.
    """

    def __init__(self, name: str, folder: Path, group: Group, start: Start) -> None:
        self.name, self.folder, self.group, self._start = name, folder, group, start
        self.port = 0
        self.process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def page(self) -> Path:
        """Its counters; only cells have some."""
        return self.folder / f"{self.name}.stats"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def launch(self, argv: Sequence[str | Path]) -> None:
        """Starts a command in the group. It dies with us."""
        entries = [str(path) for path in self.group.entry_files]
        whole = [find_cell(), "run", str(os.getpid()), *entries, "--", *argv]
        with self.log.open("ab") as log:
            self.process = self._start(
                list(map(str, whole)),
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for us: we end them in order
            )
        if isinstance(self.group, ProcessGroup):
            self.group.add(self.process.pid)

    def start_cell(self, config: Mapping[str, Any]) -> None:
        path = self.folder / f"{self.name}.json"
        own = {
            "stats": str(self.page),
            "spans": str(self.folder / f"{self.name}.spans.jsonl"),
            "completions": str(self.folder / f"{self.name}.completions"),
        }
        path.write_text(json.dumps({**config, **own}))
        self.launch([find_cell(), "serve", path])
        self.port = int(self.read_line())

    def read_line(self) -> str:
        """The next line that it prints."""
        assert self.process is not None
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], START_TIMEOUT_S)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            # It closed its output: its end is near, and its code says more than silence.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1.0)
            raise self.failure()
        return line

    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def failure(self) -> ActuationError:
        """Why it does not answer, in its own words."""
        code = self.process.poll() if self.process is not None else None
        state = "does not answer" if code is None else f"ended with {code}"
        lines = (
            self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        )
        return ActuationError(f"{self.name} {state}: {lines[-1] if lines else 'it said nothing'}")

    def ask(self, method: str, path: str, body: object = None) -> str:
        """One HTTP request of its control paths."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_ANSWER_TIMEOUT_S)
        try:
            connection.request(method, path, None if body is None else json.dumps(body),
                               {"Connection": "close"})  # fmt: skip
            answer = connection.getresponse()
            text = answer.read().decode()
        except OSError as error:
            raise self.failure() from error
        finally:
            connection.close()
        if answer.status != 200:
            raise ActuationError(f"{self.name} refused {method} {path}: {text.strip()}")
        return text

    def stop(self) -> None:
        """Asks it to end; `end` waits."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()

    def end(self, timeout_s: float = 5.0) -> None:
        """Waits for its end, forces it if need be, and removes the group."""
        if self.process is not None:
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    pipe.close()
        self.group.remove()


def wait_until(happened: Callable[[], bool], replica: Replica) -> None:
    """Waits for something that a replica does soon after its start."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not happened():
        if replica.has_ended() or time.monotonic() > deadline:
            raise replica.failure()
        time.sleep(0.01)
