"""The common judge: a service and its clone in the same simulator of caches and branches.

Callgrind counts from the start of a process to its end. A short and a long load are counted, and
the difference is divided by the requests in between: see
`count_per_request`.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gnomon.errors import GnomonError, InputError
from gnomon.systems.clone.client import Load, count_per_request
from gnomon.systems.clone.launch import Service

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
#: Under valgrind a limit of descriptors cannot be lowered, which memcached does to 1,024.
_OPEN_FILES = 1024
#: Each round of a repeated string instruction counts as an instruction here, and on no machine:
#: string functions take their loops, as in the profiler's emulator.
_LOOPS = "GLIBC_TUNABLES=glibc.cpu.hwcaps=-ERMS,-FSRM"
_EVENTS = {
    "Ir": "instructions", "Dr": "loads", "Dw": "stores", "I1mr": "l1i_misses",
    "D1mr": "l1d_read_misses", "D1mw": "l1d_write_misses", "ILmr": "l2_code_misses",
    "DLmr": "l2_read_misses", "DLmw": "l2_write_misses", "Bc": "branches",
    "Bcm": "mispredicts", "Bi": "indirect_branches", "Bim": "indirect_mispredicts",
}  # fmt: skip


class Cache(msgspec.Struct, frozen=True):
    """A cache that the simulator can have: its number of sets is a power of two."""

    size_bytes: int
    ways: int
    line_bytes: int = 64

    def __post_init__(self) -> None:
        sets, rest = divmod(self.size_bytes, self.ways * self.line_bytes)
        if rest or sets < 1 or sets & (sets - 1):
            raise InputError(
                f"a cache of {self.size_bytes} bytes in {self.ways} ways: the number of sets has "
                "to be a power of two"
            )

    @property
    def lines(self) -> int:
        return self.size_bytes // self.line_bytes

    def __str__(self) -> str:
        return f"{self.size_bytes},{self.ways},{self.line_bytes}"


class Caches(msgspec.Struct, frozen=True):
    """Two levels: what the simulator calls the last one is the second here.

    >>> Caches.of_kib(32, 48, 2048, ways=(8, 12, 16)).name
    '32K/48K/2048K'
    """

    code: Cache
    data: Cache
    second: Cache

    @classmethod
    def of_kib(
        cls, code: int, data: int, second: int, *, ways: tuple[int, int, int] = (8, 8, 8)
    ) -> Caches:
        sizes = (code, data, second)
        return cls(*(Cache(1024 * size, way) for size, way in zip(sizes, ways, strict=True)))

    @property
    def name(self) -> str:
        return "/".join(
            f"{one.size_bytes // 1024}K" for one in (self.code, self.data, self.second)
        )


#: Besides those of this machine, for what a clone was not tuned to.
HELD_OUT = (Caches.of_kib(8, 8, 256), Caches.of_kib(16, 16, 512), Caches.of_kib(64, 64, 4096))


class Counts(msgspec.Struct, frozen=True):
    """Per request; the second level also holds what the first one misses."""

    instructions: float = 0.0
    loads: float = 0.0
    stores: float = 0.0
    l1i_misses: float = 0.0
    l1d_read_misses: float = 0.0
    l1d_write_misses: float = 0.0
    l2_code_misses: float = 0.0
    l2_read_misses: float = 0.0
    l2_write_misses: float = 0.0
    branches: float = 0.0
    mispredicts: float = 0.0
    indirect_branches: float = 0.0
    indirect_mispredicts: float = 0.0

    @property
    def l1i_miss_pct(self) -> float:
        return _pct(self.l1i_misses, self.instructions)

    @property
    def l1d_miss_pct(self) -> float:
        """Of loads and stores."""
        return _pct(self.l1d_read_misses + self.l1d_write_misses, self.loads + self.stores)

    @property
    def l2_miss_pct(self) -> float:
        """Of all references, not of those that missed before: so it does not depend on L1."""
        misses = self.l2_code_misses + self.l2_read_misses + self.l2_write_misses
        return _pct(misses, self.instructions + self.loads + self.stores)

    @property
    def mispredicted_pct(self) -> float:
        return _pct(self.mispredicts, self.branches)

    @property
    def indirect_mispredicted_pct(self) -> float:
        return _pct(self.indirect_mispredicts, self.indirect_branches)


def _pct(part: float, whole: float) -> float:
    return 100.0 * part / whole if whole else 0.0


def machine_caches() -> Caches:
    """The first two levels of this machine; a size that the simulator cannot have is lowered."""
    found = {}
    for index in sorted(_CACHES.glob("index*")):
        level, kind, size, ways, line = (
            (index / name).read_text().strip()
            for name in ("level", "type", "size", "ways_of_associativity", "coherency_line_size")
        )
        width = int(ways) * int(line)
        sets = int(size.rstrip("K")) * 1024 // width if width else 0
        if sets:
            whole = width << (sets.bit_length() - 1)
            found[level, kind] = Cache(whole, int(ways), int(line))
    try:
        return Caches(found["1", "Instruction"], found["1", "Data"], found["2", "Unified"])
    except KeyError:
        return Caches.of_kib(32, 32, 1024)


def judge(
    command: str, load: Load, *, caches: Caches, connections: int, requests: int = 3000
) -> Counts:
    """What a request of a service costs in simulated caches.

    Args:
        command: It stays in the foreground and ends on SIGTERM; `{port}` is filled in.
        load: Is sent to it.
        requests: That are counted.

    Raises:
        InputError: Valgrind is not installed.
    """
    if shutil.which("valgrind") is None:
        raise InputError("valgrind is not installed", hint="the distribution's package valgrind")
    found = count_per_request(
        command, load, connections=connections, requests=requests, open_files=_OPEN_FILES,
        prefix=lambda folder: [
            "env", _LOOPS, "valgrind", "--tool=callgrind", "--trace-children=yes", "--vgdb=no",
            "--cache-sim=yes", "--branch-sim=yes", f"--I1={caches.code}", f"--D1={caches.data}",
            f"--LL={caches.second}", f"--callgrind-out-file={folder}/out.%p",
        ], finish=_finish,
    )  # fmt: skip
    return Counts(**{name: found.get(event, 0.0) for event, name in _EVENTS.items()})


def _finish(folder: Path, service: Service) -> Counter[str]:
    for path in folder.glob("out.*"):  # made at the start, before the service gave up its rights
        path.chmod(0o666)
    if not service.end():
        raise GnomonError("the service did not end on SIGTERM: its counts are lost")
    return read_counts([path.read_text() for path in folder.glob("out.*")])


def read_counts(texts: Sequence[str]) -> Counter[str]:
    """Totals of callgrind's files, one a process, by event; zeros at a line's end are left out.

    >>> read_counts(["events: Ir Dr Dw\\ntotals: 100 20\\n", "events: Ir Dr Dw\\ntotals: 7\\n"])
    Counter({'Ir': 107, 'Dr': 20})
    """
    found: Counter[str] = Counter()
    for text in texts:
        lines = dict(line.partition(":")[::2] for line in text.splitlines() if ":" in line)
        if "events" not in lines or "totals" not in lines:
            raise GnomonError("callgrind's counts were cut short: was the service killed?")
        for event, count in zip(lines["events"].split(), lines["totals"].split(), strict=False):
            found[event] += int(count)
    return found
