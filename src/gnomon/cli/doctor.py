"""gnomon doctor: what does this machine allow?"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from gnomon.cli.output import Output, show
from gnomon.cli.typed import typed_command

_PATIENCE_S = 10


def doctor(*, output: Output = Output()) -> None:  # noqa: B008
    """List what this machine has, what each part is for, and what to install when it is missing.

    Args:
        output: Where the answer goes.
    """
    from gnomon.report import Figure, Manifest, Result
    from gnomon.table import Table

    rows = []
    for part, purpose, probe, remedy in _PARTS:
        found = probe()
        status = "yes" if found else "no"
        rows.append({"part": part, "here": status, "found": found or remedy, "for": purpose})
    here = sum(row["here"] == "yes" for row in rows)
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    show(
        Result(
            "gnomon",
            "doctor",
            f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
            "What does this machine allow?",
            figures=[
                Figure("parts_here", "Parts here", f"{here} of {len(rows)}"),
                Figure("cores", "Cores", len(os.sched_getaffinity(0))),
                Figure("memory_gib", "Memory", round(memory_gib, 1), "GiB"),
            ],
            tables=[Table.from_rows("Parts", rows)],
            manifest=Manifest.of(typed_command()),
        ),
        output,
    )


def _first_line(*command: str) -> str:
    """The first line a program prints about itself; empty when it is absent or broken."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    return lines[0].strip() if lines and done.returncode == 0 else ""


def _any_of(*commands: tuple[str, ...]) -> Callable[[], str]:
    def probe() -> str:
        return next((line for command in commands if (line := _first_line(*command))), "")

    return probe


def _module(name: str) -> Callable[[], str]:
    def probe() -> str:
        if find_spec(name) is None:
            return ""
        from importlib.metadata import PackageNotFoundError, version

        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            return name

    return probe


def _native_core() -> str:
    try:
        from gnomon import _core
    except ImportError:
        return ""
    return Path(_core.__file__ or "").name


def _bpftrace() -> str:
    """Tracepoints are found in tracefs, which need not be mounted; programs need root."""
    version = _first_line("bpftrace", "--version")
    if not version or "tracefs" not in Path("/proc/filesystems").read_text().split():
        return ""
    return version if os.geteuid() == 0 else f"{version}, for root"


def _counters() -> str:
    try:
        from gnomon.systems.clone.counters import EVENTS, why_no_counters
    except ImportError:
        return ""
    return "" if why_no_counters() else ", ".join(EVENTS)


def _cgroups() -> str:
    if Path("/sys/fs/cgroup/cgroup.controllers").is_file():
        version = "v2"
    elif Path("/sys/fs/cgroup/cpu").is_dir():
        version = "v1"
    else:
        return ""
    folder = Path("/sys/fs/cgroup") / ("cpu" if version == "v1" else "")
    return f"{version}, {'writable' if os.access(folder, os.W_OK) else 'read-only'}"


def _apt(package: str) -> str:
    return f"install the distribution's '{package}'"


_PARTS: list[tuple[str, str, Callable[[], str], str]] = [
    ("native core", "every simulator", _native_core, "reinstall gnomon with a C++ compiler"),
    ("C++ compiler", "building gnomon", _any_of(("c++", "--version"), ("g++", "--version")),
     _apt("g++")),
    ("Ray", "--on ray", _module("ray"), "pip install 'gnomon[ray]'"),
    ("polars", "data frames", _module("polars"), "pip install 'gnomon[tables]'"),
    ("pyarrow", "Parquet", _module("pyarrow"), "pip install 'gnomon[tables]'"),
    ("zstandard", ".zst traces", _module("zstandard"), "pip install 'gnomon[zstd]'"),
    ("cramjam", "Spark logs in lz4 or snappy", _module("cramjam"), "pip install 'gnomon[codecs]'"),
    ("PyTorch", "recording traces", _module("torch"), "pip install torch"),
    ("GPU", "GPU figures", _any_of(("nvidia-smi", "-L"), ("rocm-smi", "--showproductname")),
     "none found by nvidia-smi or rocm-smi"),
    ("browser", "report tests",
     _any_of(("chromium", "--version"), ("chromium-browser", "--version"),
             ("google-chrome", "--version")), _apt("chromium")),
    ("Java", "Spark", _any_of(("java", "-version"),), _apt("openjdk-17-jre-headless")),
    ("javac", "attaching to a Spark driver", _any_of(("javac", "-version"),),
     _apt("openjdk-17-jdk-headless")),
    ("PySpark", "attaching to a Spark driver", _module("pyspark"), "pip install 'gnomon[spark]'"),
    ("qemu-user", "clone profile, tune", _any_of(("qemu-x86_64", "--version"),),
     _apt("qemu-user")),
    ("capstone", "clone profile, tune", _module("capstone"), "pip install 'gnomon[clone]'"),
    ("C compiler", "building clones", _any_of(("cc", "--version"),), _apt("gcc")),
    ("CMake", "building clones", _any_of(("cmake", "--version"),), _apt("cmake")),
    ("valgrind", "clone validate", _any_of(("valgrind", "--version"),), _apt("valgrind")),
    ("strace", "clone validate; clone profile --pid without bpftrace",
     _any_of(("strace", "--version"),), _apt("strace")),
    ("bpftrace", "clone profile --pid", _bpftrace,
     f"{_apt('bpftrace')}; the kernel needs tracefs"),
    ("hardware counters", "IPC and cache misses in clone validate and profile --pid", _counters,
     "not counted by perf: is 'linux-perf' installed? Many virtual machines have none"),
    ("cgroups", "CPU limits of local services", _cgroups, "not mounted"),
    ("root", "cgroups, network namespaces", lambda: "yes" if os.geteuid() == 0 else "",
     "run as root where limits are to be set"),
]  # fmt: skip
