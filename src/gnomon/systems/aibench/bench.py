"""The folder that is handed over: a program, what runs it, and a page that says what it is."""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path
from typing import Any

from gnomon.errors import InputError
from gnomon.systems.aibench.program import Program, write
from gnomon.version import __version__

__all__ = ["RUNTIME", "describe", "folder_bytes", "read_template", "templates", "write_bench"]

#: What every benchmark has; other modules come along where a program needs them.
RUNTIME = ("run.py", "data.py")
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
        program: What it runs.
        readme: What it is.
        kernels: Sources of compiled kernels.
        modules: Other modules, by name, with their sources; they are loaded in this order.
        force: Whether an older benchmark is replaced.
    """
    if folder.exists() and not (force and (folder / _PROGRAM).is_file()):
        hint = "choose another name" if not (folder / _PROGRAM).is_file() else "add --force"
        raise InputError("is already there", where=str(folder), hint=hint)
    sources = dict(modules or {})
    if kernels:
        sources["kernels"] = read_template("kernels.py")
    program.settings["modules"] = list(sources)
    new = folder.with_name(f".{folder.name}.new")
    if new.exists():
        shutil.rmtree(new)
    try:
        new.mkdir(parents=True)
        for name in RUNTIME:
            (new / name).write_text(read_template(name), encoding="utf-8")
        for name, source in sources.items():
            (new / f"{name}.py").write_text(source, encoding="utf-8")
        for number, source in enumerate(kernels or []):
            place = new / "compiled" / f"kernel_{number}.py"
            place.parent.mkdir(exist_ok=True)
            place.write_text(source, encoding="utf-8")
        write(program, new / _PROGRAM)
        (new / "README.md").write_text(readme, encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        new.rename(folder)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(folder)) from None
    finally:
        if new.exists():
            shutil.rmtree(new)


def folder_bytes(folder: Path) -> int:
    """What a benchmark weighs."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def describe(facts: dict[str, Any]) -> str:
    """The README of a benchmark."""
    lines = [f"- {name}: {value}" for name, value in facts.items()]
    return _README.format(facts="\n".join(lines), version=__version__)


_README = """# A recorded AI workload, as a benchmark

The operators of a PyTorch job, with their shapes, types, order, threads and streams, and the time
its host took between them. Data is made up; names, code and values of the original are not here.

    python run.py [--device cuda|cpu] [--steps 30] [--json]

needs torch and nothing else. `--help` lists the rest. What cannot be rebuilt is replaced by a
stand-in that occupies the device for the recorded time; `run.py` counts and names them.

{facts}

Made with gnomon {version}.
"""
