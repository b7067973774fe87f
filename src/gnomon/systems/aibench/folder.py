"""The folder that is handed over: a program, what runs it, and a page about it."""

from __future__ import annotations

import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

from gnomon.errors import InputError
from gnomon.systems.aibench.program import Program, write
from gnomon.version import __version__

#: What every benchmark has; other modules come along where a program needs them.
_RUNTIME = ("run.py", "data.py", "measure.py")
_PROGRAM = "program.json.gz"


def read_template(name: str) -> str:
    """One of the files that benchmarks are made of."""
    return (resources.files(__package__) / "runtime" / name).read_text(encoding="utf-8")


def templates() -> dict[str, str]:
    """All files that benchmarks are made of, by name."""
    folder = resources.files(__package__) / "runtime"
    found = {
        f.name: f.read_text(encoding="utf-8") for f in folder.iterdir() if f.name[-3:] == ".py"
    }
    return {**found, "README.md": _README}


def write_bench(
    folder: Path, program: Program, readme: str, *, kernels: list[str] | None = None,
    modules: dict[str, str] | None = None, force: bool = False,
) -> None:  # fmt: skip
    """Writes a benchmark; the folder appears whole or not at all.

    Args:
        folder: Where; it may not be there yet, unless it is a benchmark and `force` is set.
        modules: Other modules, by name, with their sources; they are loaded in this order.
    """
    folder = folder.resolve()
    _check_place(folder, force)
    sources = dict(modules or {})
    if kernels:
        sources["kernels"] = read_template("kernels.py")
    program.settings["modules"] = list(sources)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
            new = Path(scratch) / "new"
            new.mkdir()
            _write_files(new, program, readme, sources, kernels or [])
            if folder.exists():
                folder.rename(Path(scratch) / "old")  # gone only when the new one is there
            new.rename(folder)
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise InputError(what, where=str(folder), hint="choose another place") from None


def _check_place(folder: Path, force: bool) -> None:
    """Refuses to replace anything but a benchmark, and that only when asked to."""
    if not folder.exists():
        return
    if not folder.is_dir() or not (folder / _PROGRAM).is_file():
        raise InputError("is already there", where=str(folder), hint="choose another name")
    known = {*templates(), _PROGRAM, "user_ops.py", "compiled", "__pycache__"}
    others = sorted(path.name for path in folder.iterdir() if path.name not in known)
    if others:
        what = f"holds more than a benchmark: {', '.join(others[:3])}"
        raise InputError(what, where=str(folder), hint="choose another name")
    if not force:
        raise InputError("is already there", where=str(folder), hint="add --force")


def _write_files(
    new: Path, program: Program, readme: str, sources: dict[str, str], kernels: list[str]
) -> None:
    for name in _RUNTIME:
        (new / name).write_text(read_template(name), encoding="utf-8")
    for name, source in sources.items():
        (new / f"{name}.py").write_text(source, encoding="utf-8")
    for number, source in enumerate(kernels):
        place = new / "compiled" / f"kernel_{number}.py"
        place.parent.mkdir(exist_ok=True)
        place.write_text(source, encoding="utf-8")
    write(program, new / _PROGRAM)
    (new / "README.md").write_text(readme, encoding="utf-8")


def memory_and_device(program: Program) -> dict[str, str]:
    """Two facts of every README."""
    nbytes = sum(storage.nbytes for storage in program.storages)
    on_gpu = program.settings["device"] == "cuda"
    return {
        "memory before the first step": f"{nbytes / 2**20:,.0f} MiB",
        "recorded on": "a GPU" if on_gpu else "a CPU",
    }


def describe(facts: dict[str, Any]) -> str:
    """The README of a benchmark."""
    lines = [f"- {name}: {value}" for name, value in facts.items()]
    return _README.format(facts="\n".join(lines), version=__version__)


_README = """# A recorded AI workload, as a benchmark

The operators of a PyTorch job, with their shapes, types, order, threads and streams, and the time
its host took between them. Data is made up; names, code and values of the original are not here.

    python run.py [--device cuda|cpu] [--steps 30] [--json]

needs torch and nothing else. `--help` lists the rest. What cannot be rebuilt is replaced by a
placeholder kernel that occupies the device for the recorded time; `run.py` counts and names them.

{facts}

Made with gnomon {version}.
"""
