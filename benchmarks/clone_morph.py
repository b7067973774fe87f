"""Clones of Redis that differ from it on purpose, in simulated caches.

    python benchmarks/clone_morph.py

Redis is profiled and its clone tuned once. Then clones with recipes are generated and compared with the one without:
twice the data in a cache twice as large should miss as often, and so on. Other mixes are also sent to Redis itself.
Last, what a clone and its load generator do in a cycle of phases. Needs redis-server, qemu-user, valgrind, CMake and a C compiler; takes some nine minutes.
"""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path

import msgspec

from gnomon.systems.clone import Bundle, profile, write_project
from gnomon.systems.clone.bundle import per_request
from gnomon.systems.clone.client import Load
from gnomon.systems.clone.generator import load_command, run_load
from gnomon.systems.clone.instructions import INDEX
from gnomon.systems.clone.judge import Caches, Counts, judge
from gnomon.systems.clone.launch import free_port, serving
from gnomon.systems.clone.morph import Morph, Phase
from gnomon.systems.clone.project import Asked
from gnomon.systems.clone.tune import build, observe, tuned

LOAD = "redis-benchmark -p {port} -t set,get -n 8000 -r 1000 -d 256 -c 16 -q"
REDIS = "redis-server --port {port} --save ''"
CONNECTIONS = 16
#: KiB of the cache that is varied; the other first level has 32.
SIZES = (8, 16, 32, 64, 128, 256)
RECIPES = {
    "as the original": Morph(),
    "data x 2": Morph(data=2),
    "data x 0.5": Morph(data=0.5),
    "code x 2": Morph(code=2),
    "code x 0.5": Morph(code=0.5),
    "90 % get": Morph(mix={"get": 0.9}),
    "10 % get": Morph(mix={"get": 0.1}),
    "vector x 3": Morph(instructions={"vector": 3}),
}
PHASES = (Phase(0.5), Phase(0.5, rate=3, mix={"get": 0.9}))


class Lab:
    """One profile, one tuning, and clones of both by recipe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        port = free_port()
        command = shlex.split(REDIS.format(port=port))
        self._bundle: Bundle = profile(command, LOAD.format(port=port))
        self._asked: Asked = tuned(self._bundle, folder / "tuned", LOAD)[0]

    def clone(self, morph: Morph) -> Path:
        to = self._folder / "".join(c if c.isalnum() else "-" for c in f"clone-{morph}"[:60])
        write_project(msgspec.structs.replace(self._bundle, morphed=morph), to, asked=self._asked)
        build(to)
        return to / "build"

    def judge(
        self, clone: Path, *, command: str | None = None, code: int = 32, data: int = 32,
        second: int = 2048, requests: int = 3000,
    ) -> Counts:  # fmt: skip
        load = f"{clone}/load --port {{port}} --connections {{connections}} --requests {{requests}} --json"
        caches = Caches.of_kib(code, data, second)
        command = command or f"{clone}/clone --port {{port}}"
        return judge(command, Load(load), caches=caches, connections=CONNECTIONS,
                     requests=requests)  # fmt: skip

    def vector(self, clone: Path) -> float:
        """Instructions a request, under the profiler."""
        port = free_port()
        load = LOAD.format(port=port).replace("8000", "2000")
        found = observe(self._bundle, clone.parent, load, port, lambda _: None)
        return float(per_request(found, "mix")[INDEX["vector"]])


def sweep(lab: Lab, what: str) -> None:
    print(f"{what} misses a request, by size of the cache")
    print("".join(f"{cell:>17}" for cell in ("", *(f"{size} KiB" for size in SIZES))))
    for name, morph in RECIPES.items():
        if name != "as the original" and not name.startswith(what):
            continue
        clone = lab.clone(morph)
        row = []
        for size in SIZES:
            seen = lab.judge(clone, data=size) if what == "data" else lab.judge(clone, code=size)
            row.append(
                seen.l1d_read_misses + seen.l1d_write_misses if what == "data" else seen.l1i_misses
            )
        print(
            "".join(f"{cell:>17}" for cell in (name, *(f"{one:.1f}" for one in row))), flush=True
        )


def second_level(lab: Lab) -> None:
    """Sixteen times the data in sixteen times the cache."""
    for morph in (Morph(), Morph(data=16)):
        clone = lab.clone(morph)
        for kib in (128, 2048):
            seen = lab.judge(clone, second=kib, requests=6000)
            misses = seen.l2_read_misses + seen.l2_write_misses
            print(
                f"{f'data x {morph.data:g}':>17}: {misses:.2f} data misses in {kib} KiB, second level"
            )


def mixes(lab: Lab) -> None:
    """Instructions a request of the clone, and of Redis itself under the load of the clone."""
    heads = "", "instructions", "of Redis", "vector ones", "sent bytes", "received bytes"
    print("".join(f"{cell:>17}" for cell in heads))
    for name, morph in RECIPES.items():
        if "%" not in name and "vector" not in name and morph != Morph():
            continue
        clone = lab.clone(morph)
        seen, original = lab.judge(clone), lab.judge(clone, command=REDIS)
        with serving(f"{clone}/clone --port {{port}}") as (_, port):
            sent = run_load(load_command(clone / "load", port, requests=20_000))
        row = (seen.instructions, original.instructions, lab.vector(clone), sent.request_bytes,
               sent.reply_bytes)  # fmt: skip
        print(
            "".join(f"{cell:>17}" for cell in (name, *(f"{one:.0f}" for one in row))), flush=True
        )


def phases(lab: Lab) -> None:
    clone = lab.clone(Morph(phases=PHASES))
    with serving(f"{clone}/clone --port {{port}}") as (_, port):
        done = run_load(load_command(clone / "load", port, requests=8000, rate=2000))
    for phase, one in zip(PHASES, done.phases, strict=True):
        print(
            f"{'rate x ' + format(phase.rate, 'g'):>17}: {one.requests / one.seconds:.0f} requests per second, "
            f"asked for {2000 * phase.rate:.0f}"
        )


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        lab = Lab(Path(name))
        sweep(lab, "data")
        sweep(lab, "code")
        second_level(lab)
        mixes(lab)
        phases(lab)


if __name__ == "__main__":
    main()
