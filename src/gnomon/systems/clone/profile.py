"""Running a service under the profiler while a load runs: in an emulator with a plugin."""

from __future__ import annotations

import ctypes
import mmap
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gnomon import _core
from gnomon.errors import GnomonError, InputError
from gnomon.systems.clone import procfs
from gnomon.systems.clone.bundle import Bundle, make_bundle
from gnomon.systems.clone.judge import Caches, machine_caches
from gnomon.systems.clone.launch import Service
from gnomon.systems.clone.project import PROTOCOLS
from gnomon.systems.clone.recording import Recording, read_recording

_EMULATOR = "qemu-x86_64"
#: As in the judge: fast repeated moves would hide the loops of string functions.
_CPU = "max,-erms,-fsrm"
_X86_64 = 62
#: Seconds: until it listens, for a TCP port after another one, until it serves, for the load, for
#: the timers after the load, until all is written.
_START_S, _ALONE_S, _READY_S, _LOAD_S, _IDLE_S, _WRITE_S = 60.0, 3.0, 8.0, 600.0, 1.2, 10.0

#: What the plugin is told.
_IDLE, _RECORDING, _WRITING, _WARMING = range(4)

_LIVE = "gnomon clone profile --pid looks at it as it runs"
_FOREGROUND = "keep it in the foreground, or look at it by gnomon clone profile --pid"

Progress = Callable[[str], None]


def find_emulator() -> str:
    """The path of qemu-user.

    Raises:
        InputError: It is not installed.
    """
    found = shutil.which(_EMULATOR)
    if found is None:
        raise InputError(
            f"{_EMULATOR} is not installed", hint="the distribution's package qemu-user"
        )
    return found


def profile(
    command: Sequence[str], load: str, *, protocol: str | None = None,
    progress: Progress = lambda _: None,
) -> Bundle:  # fmt: skip
    """Launches a service and profiles it while a load runs; the load runs twice, first to warm up.

    Args:
        command: Of the service; it has to stay in the foreground.
        load: A command that sends requests and ends.
    """
    if protocol is not None and protocol not in PROTOCOLS:
        raise InputError(f"protocol {protocol!r}", hint=", ".join(PROTOCOLS))
    recordings, seconds = record(command, load, progress=progress)
    progress("reading what was recorded")
    return make_bundle(recordings, protocol=protocol, seconds=seconds)


def record(
    command: Sequence[str], load: str, *, caches: Caches | None = None,
    progress: Progress = lambda _: None,
) -> tuple[list[Recording], float]:  # fmt: skip
    """What each process of a service did, and for how long it was watched.

    Args:
        caches: Whose misses are counted; this machine's unless given.
    """
    words = shlex.split(load)
    if not words or shutil.which(words[0]) is None:
        raise InputError(
            f"the load {load!r} is no command", hint="such as 'wrk -d2s http://127.0.0.1:7001/'"
        )
    command = _program(command)
    emulator = find_emulator()
    plugin = Path(_core.__file__).parent / "lib" / "libgnomon_profile.so"
    first = caches or machine_caches()
    sizes = f"code={first.code.lines}:{first.code.ways},data={first.data.lines}:{first.data.ways}"
    with tempfile.TemporaryDirectory(prefix="gnomon-profile-") as name:
        folder = Path(name)
        folder.chmod(0o777)  # a server that gives up its rights writes here, too
        control = folder / "control"
        control.write_bytes(bytes(4096))
        with (folder / "log").open("wb") as log:
            child = subprocess.Popen(
                [emulator, "-cpu", _CPU, "-plugin",
                 f"{plugin},out={folder}/out,control={control},{sizes}", *command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        service, family = Service(child, folder / "log"), _Family(child.pid)
        try:
            progress("waiting for the service to listen")
            _wait_for_listening(service)
            _check_is_emulated(service, emulator)
            progress("warming up")
            with _watching(control, _WARMING):
                _warm_up(words, service)
            progress("recording")
            began = time.monotonic()
            with _watching(control, _RECORDING):
                _run_load(words, service)
                time.sleep(_IDLE_S)  # timers run also while nobody asks
            seconds = time.monotonic() - began
            _write(control, folder, service)
        finally:
            service.end()
            family.end()
        found = [
            read_recording(path) for path in sorted(folder.glob("out.*")) if path.suffix != ".part"
        ]
    if not found:
        raise GnomonError(
            "the service left no recording: it was killed; "
            "gnomon clone profile --pid needs no launch"
        )
    return found, seconds


def _program(command: Sequence[str]) -> list[str]:
    """The command with the path of its program; a script is run by `env`.

    The plugin follows programs that run others in their place: `env` runs the interpreter, a
    script at last the service.
    """
    if not command:
        raise InputError("no command", hint="gnomon clone profile ... -- redis-server --port 7001")
    found = shutil.which(command[0])
    if found is None:
        raise InputError(f"there is no program {command[0]!r}")
    path = os.path.abspath(found)  # not what it links to: some look at their own name
    try:
        with open(path, "rb") as file:
            header = file.read(20)
    except PermissionError:
        raise InputError("may be run, but not read", where=path, hint=_LIVE) from None
    if header[:2] == b"#!":
        return [shutil.which("env") or "/usr/bin/env", path, *command[1:]]
    if header[:4] != b"\x7fELF":
        raise InputError("is neither a program nor a script that begins with #!", where=path)
    if int.from_bytes(header[18:20], "little") != _X86_64:
        raise InputError("is not for x86-64: only such programs are profiled so far", where=path)
    return [path, *command[1:]]


def _check_is_emulated(service: Service, emulator: str) -> None:
    """Raises GnomonError if all that is left of it runs outside the emulator."""
    found = set()
    for pid in service.processes():
        with suppress(OSError):
            found.add(os.readlink(f"/proc/{pid}/exe"))
    if found and os.path.realpath(emulator) not in found:
        raise GnomonError(f"{', '.join(sorted(found))} runs outside the emulator; {_LIVE}")


@contextmanager
def _watching(control: Path, how: int) -> Iterator[None]:
    _tell(control, how)
    try:
        yield
    finally:
        _tell(control, _IDLE)


def _tell(control: Path, what: int) -> None:
    with control.open("r+b") as file, mmap.mmap(file.fileno(), 4096) as page:
        page[0] = what


def _write(control: Path, folder: Path, service: Service) -> None:
    """Has each process write what it recorded; one that runs outside the emulator never does."""
    _tell(control, _WRITING)
    until = time.monotonic() + _WRITE_S
    while any(not (folder / f"out.{pid}").exists() for pid in service.processes()):
        if time.monotonic() > until or not service.is_running:
            return
        time.sleep(0.01)


def _wait_for_listening(service: Service) -> None:
    """Until any of its processes listens; on a Unix socket alone if no port follows."""
    until = time.monotonic() + _START_S
    alone: float | None = None  # since when it has had something else than TCP
    while not service.ports():
        held = procfs.descriptors(service.processes())
        if held and (held.ports or held.listens_on_unix):
            alone = alone or time.monotonic()
            if time.monotonic() > alone + _ALONE_S:
                if held.listens_on_unix:
                    return
                raise InputError("the service listens on UDP alone: only what comes by "
                                 "connections is profiled so far", hint=_LIVE)  # fmt: skip
        if not service.is_running and service.exit_code == 0:
            raise InputError("the service has ended before it listened, or went to the background",
                             hint=_FOREGROUND)  # fmt: skip
        if not service.is_running:
            raise GnomonError(f"the service has ended before it listened{service.last_words}")
        if time.monotonic() > until:
            raise GnomonError(
                f"the service does not listen after {_START_S:.0f} s{service.last_words}"
            )
        time.sleep(0.05)


class _Family:
    """Processes that a service leaves behind: they become children of this one, and are ended."""

    def __init__(self, pid: int) -> None:
        self._pid, self._before = pid, self._children()
        _adopt(True)

    def end(self) -> None:
        left = self._children() - self._before - {self._pid}
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for pid in left:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        _adopt(False)

    def _children(self) -> set[int]:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
        return {int(one) for one in text.split()}


def _adopt(is_on: bool) -> None:
    """Whether orphans of our descendants become our children, by prctl(PR_SET_CHILD_SUBREAPER)."""
    ctypes.CDLL(None).prctl(36, int(is_on), 0, 0, 0)


def _warm_up(words: Sequence[str], service: Service) -> None:
    """Runs the load, once more where it fails soon: databases listen before they serve."""
    until = time.monotonic() + _READY_S
    while True:
        try:
            return _run_load(words, service)
        except _LoadFailed:
            if time.monotonic() > until:
                raise
        time.sleep(0.2)


class _LoadFailed(GnomonError):
    pass


def _run_load(words: Sequence[str], service: Service) -> None:
    try:
        done = subprocess.run(words, capture_output=True, timeout=_LOAD_S, check=False)
    except subprocess.TimeoutExpired:
        raise GnomonError(
            f"the load did not end in {_LOAD_S:.0f} s; the service is some 60 times slower here: "
            "let it send a few thousand requests"
        ) from None
    if service.exit_code == 0:
        raise InputError("the service has ended while the load ran, or went to the background",
                         hint=_FOREGROUND)  # fmt: skip
    if not service.is_running:
        raise GnomonError(f"the service has ended while the load ran{service.last_words}")
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise _LoadFailed(
            f"the load failed with {done.returncode}{': ' + said[-1][:200] if said else ''}"
        )
