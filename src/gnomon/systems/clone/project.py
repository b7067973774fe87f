"""A bundle as a project for a C compiler and CMake: a server that does as much as the original."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.systems.clone.body import Memory, Target, state_of, write_body
from gnomon.systems.clone.bundle import Bundle, EdgeProfile
from gnomon.systems.clone.recording import Floats
from gnomon.systems.clone.server import Script, Server, Step

#: Names of the runtime for system calls that scripts are made of.
_CALLS = {
    "read": "READ", "recvfrom": "RECVFROM", "recvmsg": "RECVMSG", "write": "WRITE",
    "writev": "WRITEV", "sendto": "SENDTO", "sendmsg": "SENDMSG", "sendfile": "SENDFILE",
    "openat": "OPEN", "close": "CLOSE", "newfstatat": "STAT", "fstat": "FSTAT", "lseek": "LSEEK",
    "pread64": "PREAD", "pwrite64": "PWRITE", "fsync": "FSYNC", "fdatasync": "FDATASYNC",
    "epoll_ctl": "EPOLL_CTL", "setsockopt": "SETSOCKOPT", "getsockname": "GETSOCKNAME",
    "getpeername": "GETPEERNAME", "fcntl": "FCNTL", "ioctl": "IOCTL", "madvise": "MADVISE",
    "getpid": "GETPID", "shutdown": "SHUTDOWN", "accept": "ACCEPT", "accept4": "ACCEPT",
}  # fmt: skip
_TARGETS = {"": "NONE", "connection": "CONNECTION", "file": "FILE", "log": "LOG", "event": "EVENT"}
_WAITS = {"epoll_wait": "EPOLL", "epoll_pwait": "EPOLL", "poll": "POLL", "ppoll": "POLL",
          "select": "SELECT", "pselect6": "SELECT", "blocking": "BLOCKING"}  # fmt: skip
PROTOCOLS = {"resp": "RESP", "memcached": "MEMCACHED", "http": "HTTP", "length": "LENGTH"}
#: Edges that follow the same call at least this often share what they have in common.
_SHARED = 0.01
_LEAST_FILE = 4096


class Pieces(msgspec.Struct, frozen=True):
    """Functions of a clone, and which of them an edge calls, one after the other."""

    targets: tuple[Target, ...]
    edges: dict[tuple[str, str], tuple[str, ...]]


def plan_pieces(edges: Sequence[EdgeProfile]) -> Pieces:
    """Edges that begin after the same call begin with the same code.

    What Redis does after a read, whatever follows, is to carry out the command. Copies of that for
    each edge would be code that the original does not have.
    """
    targets: list[Target] = []
    calls: dict[tuple[str, str], tuple[str, ...]] = {}
    for number, before in enumerate(dict.fromkeys(one.before for one in edges)):
        mine = [one for one in edges if one.before == before]
        total = sum(one.per_request for one in mine)
        often = [one for one in mine if one.per_request >= _SHARED * total]
        common = None
        if len(often) > 1:
            common = Target(
                f"gnc_after_{number}",
                mix=_in_common(often, "mix"), code=_in_common(often, "code"),
                load=_in_common(often, "load"), store=_in_common(often, "store"),
            )  # fmt: skip
            targets.append(common)
        for k, one in enumerate(mine):
            shared = common if one in often else None
            rest = Target(
                f"gnc_edge_{number}_{k}", mix=_rest(one, shared, "mix"),
                code=_rest(one, shared, "code"), load=_rest(one, shared, "load"),
                store=_rest(one, shared, "store"), repeats=one.repeats,
            )  # fmt: skip
            names = [] if shared is None else [shared.name]
            if sum(rest.mix) >= _LEAST:
                targets.append(rest)
                names.append(rest.name)
            calls[one.before, one.after] = tuple(names)
    return Pieces(tuple(targets), calls)


def _in_common(edges: Sequence[EdgeProfile], what: str) -> tuple[float, ...]:
    return tuple(np.min([getattr(one, what) for one in edges], axis=0).tolist())


def _rest(one: EdgeProfile, shared: Target | None, what: str) -> tuple[float, ...]:
    less = 0.0 if shared is None else np.array(getattr(shared, what))
    return tuple((np.array(getattr(one, what)) - less).tolist())


#: A function costs as much to enter and leave.
_LEAST = 35.0


def write_project(
    bundle: Bundle, folder: Path, *, seed: int = 0, edges: Sequence[EdgeProfile] | None = None
) -> None:
    """Sources of the clone.

    Args:
        edges: What the generated code is to do, if not what the bundle says: tuning corrects it by
            what the runtime adds.
    """
    if folder.exists() and not (folder / "model.c").exists() and any(folder.iterdir()):
        raise InputError("is not empty and no clone", where=str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    with as_file(files("gnomon.systems.clone") / "runtime") as runtime:
        shutil.copytree(
            runtime, folder / "runtime", dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("CMakeLists.txt", "__pycache__"),
        )  # fmt: skip
        shutil.copy(runtime / "CMakeLists.txt", folder / "CMakeLists.txt")
    pieces = plan_pieces(_in_order(bundle.edges if edges is None else edges, bundle.server))
    memory, rng = Memory(), np.random.default_rng([seed, 0xC10E])
    bodies = [
        write_body(one, bundle.branches, bundle.dependencies, memory, rng)
        for one in pieces.targets
    ]
    end = '    .section .note.GNU-stack,"",@progbits\n'
    (folder / "edges.S").write_text("    .text\n" + "".join(bodies) + end)
    (folder / "memory.c").write_text(state_of(memory))
    (folder / "model.c").write_text(_Model(bundle, pieces, memory).text())
    (folder / "README.md").write_text(_README.format(protocol=bundle.protocol))


def _in_order(edges: Sequence[EdgeProfile], server: Server) -> list[EdgeProfile]:
    """As a request meets them: functions share data, and distances depend on who comes before."""
    labels = [server.wait, *(step.label for one in server.scripts for step in one.steps)]
    return sorted(
        edges, key=lambda one: labels.index(one.before) if one.before in labels else len(labels)
    )


class _Model:
    """The model in C."""

    def __init__(self, bundle: Bundle, pieces: Pieces, memory: Memory) -> None:
        self._bundle, self._server, self._pieces, self._memory = (
            bundle,
            bundle.server,
            pieces,
            memory,
        )
        scripts = [*self._server.scripts, self._server.on_accept, self._server.on_close,
                   *(one for one, _ in self._server.timers)]  # fmt: skip
        labels = [step.label for one in scripts if one is not None for step in one.steps]
        self._keys = list(dict.fromkeys([self._server.wait, *labels]))
        # The clone may run a timer between other calls than the original: what follows is done all
        # the same.
        often = sorted(bundle.edges, key=lambda one: one.per_request)
        self._usual = {one.before: pieces.edges[one.before, one.after] for one in often}
        self._parts: list[str] = []

    def text(self) -> str:
        server = self._server
        requests = [self._script(f"request{i}", one) for i, one in enumerate(server.scripts)]
        accept = self._script("accepting", server.on_accept)
        close = self._script("closing", server.on_close)
        timers = [
            f"{{{self._bundle.seconds / max(count, 1):.4f}, {self._script(f'timer{i}', one)}}}"
            for i, (one, count) in enumerate(server.timers)
        ]
        names = "\n".join(f"void {one.name}(void);" for one in self._pieces.targets)
        workers = (
            "PROCESSES" if server.processes > 1 else "THREADS" if server.threads > 1 else "SINGLE"
        )
        count = server.processes if server.processes > 1 else server.threads
        sendfile = max(
            (one.size for s in server.scripts for one in s.steps if one.call == "sendfile"),
            default=0,
        )
        joined = "\n".join(self._parts)
        accepts = "MAIN" if server.accepts_in_main else "EACH"
        protocol = PROTOCOLS[self._bundle.protocol]
        return f"""/* Generated: what the clone does. */
#include <stddef.h>

#include "model.h"

{names}

{self._edges()}
{joined}
static const gnc_script requests[] = {{{", ".join(requests)}}};
static const gnc_timer timers[] = {{{", ".join(timers) or "{0}"}}};

const gnc_model gnc_the_model = {{
    .keys = {len(self._keys)}, .edges = edges, .wait = GNC_{_WAITS[server.wait]}, \
.workers = GNC_{workers},
    .accepts = GNC_ACCEPT_{accepts}, .protocol = GNC_{protocol},
    .worker_count = {count}, .wait_events = 512, .wait_timeout_ms = -1,
    .on_accept = {accept}, .on_close = {close},
    .request_scripts = {len(requests)}, .requests = requests, .timers = {len(timers)}, \
.timer = timers,
    .file_bytes = {max(sendfile, _LEAST_FILE)}, .data_bytes = {64 * self._memory.lines},
}};
"""

    def _edges(self) -> str:
        functions, table = [], []
        for before, after in itertools.product(self._keys, self._keys):
            names = self._pieces.edges.get((before, after)) or self._usual.get(before)
            if not names:
                continue
            at = self._keys.index(before), self._keys.index(after)
            calls = " ".join(f"{name}();" for name in names)
            functions.append(f"static void edge_{at[0]}_{at[1]}(void) {{ {calls} }}")
            table.append(f"    [{at[0]} * {len(self._keys)} + {at[1]}] = edge_{at[0]}_{at[1]},")
        size = len(self._keys) ** 2
        return "\n".join([*functions, f"static const gnc_edge edges[{size}] = {{", *table, "};"])

    def _script(self, name: str, script: Script | None) -> str:
        if script is None or not script.steps:
            return "{0}"
        steps = ",\n".join(f"    {self._step(one)}" for one in script.steps)
        self._parts.append(f"static const gnc_step {name}[] = {{\n{steps},\n}};")
        counts = ", ".join(str(len(phase)) for phase in script.phases)
        sizes = script.reply_sizes
        size, weight = (", ".join(str(one[i]) for one in sizes) for i in (0, 1))
        reply = (
            f", .sizes = {len(sizes)}, .size = (const uint32_t[]){{{size}}}, "
            f".weight = (const uint32_t[]){{{weight}}}"
        ) if sizes else ""  # fmt: skip
        return (
            f"{{.share = {script.share:.6f}, .phases = {len(script.phases)}, "
            f".counts = (const uint16_t[]){{{counts}}}, .steps = {name}{reply}}}"
        )

    def _step(self, one: Step) -> str:
        call = _CALLS.get(one.call, "OTHER")
        if one.call == "newfstatat" and one.target == "file":
            call = "FSTAT"
        target = "CONNECTION" if one.call == "epoll_ctl" else _TARGETS[one.target]
        return (
            f"{{.key = {self._keys.index(one.label)}, .call = GNC_{call}, "
            f".target = GNC_{target}, .bytes = {one.size}, "
            f".is_reply = {int(one.is_reply)}, .clocks = {self._clocks(one.label)}}}"
        )

    def _clocks(self, label: str) -> int:
        mine = [one for one in self._bundle.edges if one.after == label]
        total = sum(one.per_request for one in mine)
        return round(sum(one.clocks * one.per_request for one in mine) / total) if total else 0


_README = """# A clone

It answers as a service of the protocol `{protocol}` does, with made-up data, and does \
as much as the original did.

    cmake -B build && cmake --build build
    build/clone --port 7000
"""


def total_variation(a: Floats, b: Floats) -> float:
    """Of two mixes: the share of instructions that would have to change their class."""
    return float(np.abs(a / max(a.sum(), 1e-9) - b / max(b.sum(), 1e-9)).sum() / 2)
