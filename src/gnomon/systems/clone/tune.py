"""Correcting a clone by what the profiler sees of it: the runtime's work comes off the code."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from gnomon.errors import GnomonError, InputError
from gnomon.systems.clone.bundle import Bundle, EdgeProfile, make_bundle, per_request
from gnomon.systems.clone.profile import Progress, record
from gnomon.systems.clone.project import total_variation, write_project

_WHAT = ("mix", "code", "load", "store")
#: Of what is off, so much is corrected at once.
_DAMPED = 0.8


class Compared(msgspec.Struct, frozen=True):
    """One figure of the original and of the clone, per request."""

    name: str
    original: float
    clone: float

    @property
    def error_pct(self) -> float:
        return 100.0 * (self.clone - self.original) / self.original if self.original else 0.0


def build(folder: Path) -> Path:
    """The clone's program.

    Raises:
        GnomonError: It cannot be built; the compiler's last line.
    """
    if not (folder / "model.c").exists():
        raise InputError(
            "is no clone", where=str(folder), hint="gnomon clone generate BUNDLE -o FOLDER"
        )
    for words in (
        ["cmake", "-S", str(folder), "-B", str(folder / "build")],
        ["cmake", "--build", str(folder / "build")],
    ):
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise InputError("cmake is not installed") from None
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise GnomonError(
                f"the clone does not build: {lines[-1] if lines else done.returncode}"
            )
    return folder / "build" / "clone"


def observe(bundle: Bundle, folder: Path, load: str, port: int, progress: Progress) -> Bundle:
    """The clone, profiled as the original was."""
    program = build(folder)
    recordings, seconds = record([str(program), "--port", str(port)], load, progress=progress)
    return make_bundle(recordings, protocol=bundle.protocol, seconds=seconds)


def tune(
    bundle: Bundle,
    folder: Path,
    load: str,
    *,
    port: int,
    rounds: int = 3,
    progress: Progress = lambda _: None,
) -> Bundle:
    """Profiles the clone and corrects it, round by round; returns the last profile of it."""
    asked = list(bundle.edges)
    seen = observe(bundle, folder, load, port, progress)
    for number in range(rounds):
        off = 100 * (seen.instructions / bundle.instructions - 1)
        progress(f"round {number + 1} of {rounds}: {off:+.1f} % instructions")
        asked = correct(bundle.edges, seen.edges, asked)
        write_project(bundle, folder, edges=asked)
        seen = observe(bundle, folder, load, port, progress)
    return seen


def correct(
    wanted: Sequence[EdgeProfile], seen: Sequence[EdgeProfile], asked: Sequence[EdgeProfile]
) -> list[EdgeProfile]:
    """What to ask for next, so that what is seen becomes what is wanted."""
    found = {(one.before, one.after): one for one in seen}
    corrected = []
    for want, ask in zip(wanted, asked, strict=True):
        one = found.get((want.before, want.after))
        if one is None:
            corrected.append(ask)
            continue
        changed = {
            what: tuple(np.maximum(
                np.array(getattr(ask, what))
                + _DAMPED * (np.array(getattr(want, what)) - np.array(getattr(one, what))), 0.0
            ).tolist()) for what in _WHAT
        }  # fmt: skip
        corrected.append(msgspec.structs.replace(ask, **changed))
    return corrected


def compare(original: Bundle, clone: Bundle) -> list[Compared]:
    """Per request: instructions, accesses, lines by distance, branches, system calls, bytes."""
    rows = [Compared("instructions", original.instructions, clone.instructions)]
    for what in ("load", "store"):
        rows.append(Compared(f"{what}s", float(per_request(original, what).sum()),
                             float(per_request(clone, what).sum())))  # fmt: skip
    for lines in (128, 512, 2048):
        for what, name in (("code", "code"), ("load", "load"), ("store", "store")):
            at = lines.bit_length()
            rows.append(Compared(f"{name} lines beyond {lines * 64 // 1024} KiB",
                                 float(per_request(original, what)[at:].sum()),
                                 float(per_request(clone, what)[at:].sum())))  # fmt: skip
    taken = [sum(one.share * one.taken for one in each.branches) for each in (original, clone)]
    rows.append(Compared("branches taken", 100 * taken[0], 100 * taken[1]))
    rows.append(Compared("wake-ups", original.server.wakeups, clone.server.wakeups))
    return rows


def mix_distance(original: Bundle, clone: Bundle) -> float:
    """Total variation of the instruction mixes, in percent."""
    return 100.0 * total_variation(per_request(original, "mix"), per_request(clone, "mix"))
