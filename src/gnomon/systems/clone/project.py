"""A bundle as a project for a C compiler and CMake: a server that does as much as the original."""

from __future__ import annotations

import itertools
import shutil
from importlib.resources import as_file, files
from pathlib import Path

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.systems.clone.assembly import Code, Quota, generate
from gnomon.systems.clone.bundle import Bundle, per_request
from gnomon.systems.clone.deploy import Deployment, write_deployment
from gnomon.systems.clone.kinds import EVENT_KINDS, kinds_of, word_of
from gnomon.systems.clone.morph import Morph, Parts, exchanged, morphed_traffic, parts_of
from gnomon.systems.clone.recording import Floats
from gnomon.systems.clone.scaling import packed, scaled
from gnomon.systems.clone.server import Script, Step
from gnomon.systems.clone.skeleton import Skeleton
from gnomon.systems.clone.threads import READS
from gnomon.systems.clone.traffic import traffic_c

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
PROTOCOLS = {"resp": "RESP", "memcached": "MEMCACHED", "http": "HTTP", "length": "LENGTH",
             "raw": "RAW"}  # fmt: skip
_LEAST_FILE = 4096
_LEAST_DATA = 1 / 16


class Asked(msgspec.Struct, frozen=True):
    """Of the generated code: what the bundle says, less what the runtime itself executes.

    Attributes:
        pack: Share of the lines of code to take: blocks are moved together, for the runtime's.
    """

    skeleton: Skeleton
    quota: Quota
    pack: float = 1.0

    @property
    def packed(self) -> Skeleton:
        return packed(self.skeleton, self.pack) if self.pack < 1 else self.skeleton


def as_it_is(bundle: Bundle) -> Asked:
    """What the bundle says."""
    return Asked(bundle.skeleton, Quota(tuple(per_request(bundle, "mix").tolist())))


def write_project(
    bundle: Bundle, folder: Path, *, seed: int = 0, asked: Asked | None = None
) -> Code:
    """Sources of the clone; returns what was generated of them.

    Args:
        asked: Of the generated code, if not what the bundle says: from tuning.
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
    code = morphed_code(bundle, as_it_is(bundle) if asked is None else asked, seed)
    morph = bundle.morphed or Morph()
    parts = parts_of(morph)
    (folder / "edges.S").write_text(code.assembly)
    (folder / "edges-aarch64.S").write_text(code.aarch64)
    (folder / "edges.c").write_text(code.portable)
    (folder / "memory.c").write_text(code.memory)
    (folder / "model.c").write_text(_Model(bundle, code, parts).text())
    (folder / "traffic.c").write_text(traffic_c(morphed_traffic(bundle.traffic, morph)))
    write_deployment(folder, Deployment(data_bytes=code.data_bytes * max(parts.memories)))
    note = "" if bundle.morphed is None else f"\n{_MORPHED}{morph}.\n"
    (folder / "README.md").write_text(_README.format(protocol=bundle.protocol) + note)
    return code


def morphed_code(bundle: Bundle, asked: Asked, seed: int = 0) -> Code:
    """What is generated, by the bundle's recipe if it has one."""
    morph, kinds = bundle.morphed or Morph(), len(kinds_of(bundle.traffic))
    kinds = kinds if parts_of(morph).copies == 1 else max(kinds, EVENT_KINDS)
    parts = _beside_the_runtime(bundle, asked.quota, parts_of(morph))
    return generate(
        scaled(asked.packed, parts, kinds), exchanged(asked.quota, morph.instructions),
        bundle.dependencies, np.random.default_rng([seed, 0xC10E]), kinds=kinds * parts.copies,
        connections=bundle.traffic.connections,
        waits={i for i, one in enumerate(bundle.edges) if one.before == bundle.server.wait},
    )  # fmt: skip


def _beside_the_runtime(bundle: Bundle, quota: Quota, parts: Parts) -> Parts:
    """With less data, the lines of the runtime stay: there are fewer left for the code."""
    if parts.data == 1 or max(parts.memories) > 1:
        return parts
    whole = sum(one.per_request * one.lines for one in bundle.edges)
    runtime = sum(bundle.edges[i].per_request * n for i, n in quota.runtime_lines.items())
    left = (parts.data * whole - runtime) / max(whole - runtime, 1.0)
    return msgspec.structs.replace(parts, data=max(left, _LEAST_DATA)) if runtime else parts


def _after_the_read(closing: Script | None) -> Script | None:
    """The runtime closes a connection once a read has found its end."""
    if closing is None or closing.steps[0].call not in READS:
        return closing
    return Script(closing.share, (tuple(closing.steps[1:]),))


class _Model:
    """The model in C."""

    def __init__(self, bundle: Bundle, code: Code, parts: Parts) -> None:
        self._turned = parts
        self._bundle, self._server, self._code = bundle, bundle.server, code
        scripts = [*self._server.scripts, self._server.on_accept, self._server.on_close,
                   *(one for one, _ in self._server.timers)]  # fmt: skip
        labels = [step.label for one in scripts if one is not None for step in one.steps]
        self._keys = list(dict.fromkeys([self._server.wait, *labels]))
        # The clone may run a timer between other calls than the original: what follows is done all
        # the same.
        self._functions = {(bundle.edges[i].before, bundle.edges[i].after): f"gnc_edge_{i}"
                           for i in code.edges}  # fmt: skip
        often = sorted(code.edges, key=lambda i: bundle.edges[i].per_request)
        self._usual = {bundle.edges[i].before: f"gnc_edge_{i}" for i in often}
        self._parts: list[str] = []

    def text(self) -> str:
        server = self._server
        requests = [self._script(f"request{i}", one) for i, one in enumerate(server.scripts)]
        accept = self._script("accepting", server.on_accept)
        close = self._script("closing", _after_the_read(server.on_close))
        timers = [
            f"{{{self._bundle.seconds / max(count, 1):.4f}, {self._script(f'timer{i}', one)}}}"
            for i, (one, count) in enumerate(server.timers)
        ]
        names = "\n".join(
            f"void {one}(uint32_t, uint32_t, uint32_t);" for one in self._functions.values()
        )
        workers = (
            "PROCESSES" if server.processes > 1 else "THREADS" if server.threads > 1 else "SINGLE"
        )
        count = server.processes if server.processes > 1 else server.threads
        sendfile = max(
            (one.size for s in server.scripts for one in s.steps if one.call == "sendfile"),
            default=0,
        )
        kinds = self._kinds()
        background = self._background()
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
static const gnc_kind_of_request kinds[] = {{{kinds}}};
static const gnc_timer timers[] = {{{", ".join(timers) or "{0}"}}};
static const gnc_background background[] = {{{", ".join(background) or "{0}"}}};

const gnc_model gnc_the_model = {{
    .keys = {len(self._keys)}, .edges = edges, .wait = GNC_{_WAITS[server.wait]}, \
.workers = GNC_{workers},
    .accepts = GNC_ACCEPT_{accepts}, .protocol = GNC_{protocol},
    .worker_count = {count}, .wait_events = 512, .wait_timeout_ms = -1,
    .on_accept = {accept}, .on_close = {close},
    .request_scripts = {len(requests)}, .requests = requests, .timers = {len(timers)}, \
.timer = timers, .backgrounds = {len(background)}, .background = background,
    .kinds = {len(kinds_of(self._bundle.traffic))}, .kind = kinds,
    .reads_on = {int(server.reads_on)}, .file_bytes = {max(sendfile, _LEAST_FILE)},
    .data_bytes = {self._code.data_bytes},
{self._turns()}}};
"""

    def _background(self) -> list[str]:
        return [
            f"{{{self._functions[one.call, one.call]}, {max(round(1000 * one.busy_ms), 1)}, "
            f"{max(round(1000 * one.idle_ms), 1)}}}"
            for one in self._server.background if (one.call, one.call) in self._functions
        ]  # fmt: skip

    def _turns(self) -> str:
        parts = self._turned
        if parts.copies == max(parts.memories) == 1:
            return ""
        morph = self._bundle.morphed or Morph()
        seconds = [one.seconds for one in morph.phases] or [1.0]
        cycle = ", ".join(
            f"{{{round(1e9 * length)}u, {memories}}}"
            for length, memories in zip(seconds, parts.memories, strict=True)
        )
        return (
            f"    .turns = &(const gnc_turns){{{max(parts.memories)}, {parts.copies}, "
            f"{len(seconds)}, (const gnc_phase[]){{{cycle}}}}},\n"
        )

    def _kinds(self) -> str:
        rows = []
        for one in kinds_of(self._bundle.traffic):
            sizes = ", ".join(str(size) for size, _ in one.replies)
            weights = ", ".join(str(max(round(1e6 * weight), 1)) for _, weight in one.replies)
            rows.append(
                f"{{{word_of(one.verb)}u, {one.request_bytes}, {len(one.replies)}, "
                f"(const uint32_t[]){{{sizes}}}, (const uint32_t[]){{{weights}}}}}"
            )
        return ", ".join(rows)

    def _edges(self) -> str:
        table = []
        for before, after in itertools.product(self._keys, self._keys):
            name = self._functions.get((before, after)) or self._usual.get(before)
            if name is not None:
                at = self._keys.index(before) * len(self._keys) + self._keys.index(after)
                table.append(f"    [{at}] = {name},")
        return "\n".join(
            [f"static const gnc_edge edges[{len(self._keys) ** 2}] = {{", *table, "};"]
        )

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
        call = "WAIT" if one.call in _WAITS else _CALLS.get(one.call, "OTHER")
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

On x86-64 and AArch64 the code is assembly, elsewhere C; -DGNC_PORTABLE=ON takes C anywhere.
"""


_MORPHED = "It differs from the original on purpose: "


def morphed_note(folder: Path) -> str | None:
    """What a project says about how it differs from its original."""
    try:
        lines = (folder / "README.md").read_text().splitlines()
    except OSError:
        return None
    return next((one for one in lines if one.startswith(_MORPHED)), None)


def total_variation(a: Floats, b: Floats) -> float:
    """Of two mixes: the share of instructions that would have to change their class."""
    return float(np.abs(a / max(a.sum(), 1e-9) - b / max(b.sum(), 1e-9)).sum() / 2)
