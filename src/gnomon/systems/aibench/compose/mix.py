"""One benchmark of several: each of them as often as its weight.

The programs do not touch one another: each keeps its own data and registers. They run one after
the other, spread evenly, so that a step of the mix is one round through all of them. Where a
program has several recorded steps, it goes on with the next one the next time it is its turn.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gnomon.errors import InputError
from gnomon.report import Figure, Manifest, Result
from gnomon.systems.aibench import folder as folders
from gnomon.systems.aibench.builder.schedule import registers_in
from gnomon.systems.aibench.program import Call, Made, Program, Signal
from gnomon.systems.aibench.stored import Stored, read_bench
from gnomon.table import Table
from gnomon.version import __version__

#: How far the ratio of whole numbers may be from the ratio that was asked for.
_NEAR = 0.01
_MOST_STEPS, _MOST_ROUNDS = 1000, 1000
_CUSTOM = re.compile(r'"custom\.(\d+)"')


class Mixed(msgspec.Struct, frozen=True, eq=False):
    """What was made.

    Attributes:
        rounds: After how many steps the mix repeats.
        calls: How many calls there are per step, on average.
    """

    folder: Path
    times: tuple[int, ...]
    rounds: int
    calls: float


def parse_weights(text: str, count: int) -> tuple[float, ...]:
    """Reads `3,1` or `0.7,0.3`: one for each benchmark.

    >>> parse_weights("3, 0.5", 2)
    (3.0, 0.5)
    """
    try:
        weights = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--weights {text}: no numbers", hint="such as 3,1") from None
    if len(weights) != count:
        raise InputError(f"--weights {text}: {len(weights)} weights for {count} benchmarks")
    whole_weights(weights)
    return weights


def mix(
    benches: Sequence[Path], weights: Sequence[float], out: Path, *, force: bool = False
) -> Mixed:
    """Writes a benchmark that runs several.

    Raises:
        InputError: A folder is no benchmark, or they do not fit together.
    """
    if len(benches) < 2:
        raise InputError("a mix is made of at least two benchmarks")
    if len(weights) != len(benches):
        raise InputError(f"{len(weights)} weights for {len(benches)} benchmarks")
    parts = [read_bench(folder) for folder in benches]
    times = whole_weights(weights)
    program, modules, kernels = merge(parts, times, [str(folder) for folder in benches])
    calls = sum(number * _calls(part.program) for number, part in zip(times, parts))
    facts = {
        "a mix of": f"{len(parts)} recorded workloads",
        "of which a step runs": ", ".join(f"{n} x the {_place(at)}" for at, n in enumerate(times)),
        "operators per step": round(calls),
        **folders.memory_and_device(program),
    }
    folders.write_bench(
        out, program, folders.describe(facts), kernels=kernels, modules=modules, force=force
    )
    return Mixed(out, times, len(program.order), calls)


def to_result(made: Mixed, command: str = "") -> Result:
    """What a step of the mix runs."""
    rows = [{"benchmark": at + 1, "times": number} for at, number in enumerate(made.times)]
    return Result(
        "aibench", "mix", f"Mix {made.folder.name}", "What does a step of the mix run?",
        figures=[
            Figure("calls", "Operators per step", round(made.calls)),
            Figure("rounds", "Different steps", made.rounds),
        ],
        tables=[Table.from_rows("A step runs", rows)],
        manifest=Manifest(command, {}, None, __version__),
    )  # fmt: skip


def to_script(made: Mixed) -> dict[str, Any]:
    """The same for scripts."""
    return {"bench": str(made.folder), "times": list(made.times), "ops": round(made.calls)}


def _calls(program: Program) -> float:
    """How many calls one round of a program makes; what only prepares them is not counted."""
    own = [
        sum(isinstance(item, Call) and not item.extra.get("g") for row in step for item in row)
        for step in program.steps
    ]
    return sum(own[step] for order in program.order for step in order) / len(program.order)


def _place(at: int) -> str:
    names = ("first", "second", "third", "fourth", "fifth", "sixth")
    return names[at] if at < len(names) else f"{at + 1}th"


# -- how often, and in which order ---------------------------------------------------------------


def whole_weights(weights: Sequence[float]) -> tuple[int, ...]:
    """Whole numbers in the same ratio, within a hundredth; whole numbers stay as they are.

    >>> whole_weights([4, 2]), whole_weights([0.7, 0.3]), whole_weights([1, 0.333])
    ((4, 2), (7, 3), (3, 1))
    """
    if not all(math.isfinite(weight) and weight > 0 for weight in weights):
        raise InputError("weights are greater than zero")
    if all(float(weight).is_integer() for weight in weights):
        return tuple(int(weight) for weight in weights)
    whole = sum(weights)
    for steps in range(len(weights), _MOST_STEPS + 1):
        times = tuple(max(round(weight * steps / whole), 1) for weight in weights)
        ratios = [number / weight for number, weight in zip(times, weights)]
        if max(ratios) <= min(ratios) * (1.0 + _NEAR):
            return times
    raise InputError(
        f"no round of up to {_MOST_STEPS} steps has the ratio "
        f"{':'.join(f'{weight:g}' for weight in weights)}",
        hint="give weights that are closer together",
    )


def rounds_of(times: Sequence[int], orders: Sequence[Sequence[Sequence[int]]]) -> list[list[int]]:
    """The steps of each round of a mix.

    Args:
        times: How often each program runs in a round.
        orders: The rounds of each program, with the numbers that its steps have in the mix.

    >>> rounds_of([2, 1], [[[0], [1], [2]], [[3]]])
    [[0, 3, 1], [2, 3, 0], [1, 3, 2]]
    """
    turns = list(_turns(times))
    rounds = math.lcm(*(
        len(order) // math.gcd(len(order), number) for order, number in zip(orders, times)
    ))  # fmt: skip
    done = [0] * len(orders)
    found: list[list[int]] = []
    for _ in range(min(rounds, _MOST_ROUNDS)):
        steps: list[int] = []
        for turn in turns:
            steps += orders[turn][done[turn] % len(orders[turn])]
            done[turn] += 1
        found.append(steps)
    return found


def _turns(times: Sequence[int]) -> Iterator[int]:
    """Whose turn it is: always that of the one furthest behind its share."""
    whole = sum(times)
    done = [0] * len(times)
    for at in range(1, whole + 1):
        turn = max(range(len(times)), key=lambda i: times[i] * at - done[i] * whole)
        done[turn] += 1
        yield turn


# -- putting together ----------------------------------------------------------------------------


def merge(
    parts: Sequence[Stored], times: Sequence[int], names: Sequence[str]
) -> tuple[Program, dict[str, str], list[str]]:
    """One program of several, with the sources of its modules and kernels."""
    sources = _Sources()
    settings = _settings([part.program for part in parts], names)
    mixed = Program([], [], [], [], [], settings, 1, 0, 0)
    orders: list[list[list[int]]] = []
    registers = 0
    for part in parts:
        renamed = sources.add(part)
        program = part.program
        shift = _Shift(
            len(mixed.storages), len(mixed.made), len(mixed.metas), registers, len(mixed.steps),
            renamed,
        )  # fmt: skip
        orders.append([[step + shift.steps for step in order] for order in program.order])
        mixed.storages += program.storages
        mixed.made += [
            Made(made.storage + shift.storages, made.offset, made.meta + shift.metas)
            for made in program.made
        ]
        mixed.metas += program.metas
        for step in program.steps:
            mixed.steps.append([[shift.item(item) for item in thread] for thread in step])
        # Steps of one program never run beside those of another: they take turns with signals,
        # events and streams, but not with registers, which may live from step to step.
        registers += _registers(program)
        mixed.streams = max(mixed.streams, program.streams)
        mixed.signals = max(mixed.signals, program.signals)
        mixed.events = max(mixed.events, program.events)
    mixed.order = rounds_of(times, orders)
    _set_precision(mixed, [part.program for part in parts], sources.modules)
    return mixed, sources.modules, sources.kernels


class _Shift(msgspec.Struct, frozen=True):
    """How the numbers of a program change when it comes behind others."""

    storages: int
    made: int
    metas: int
    registers: int
    steps: int
    renamed: dict[str, str]

    def item(self, item: Call | Signal) -> Call | Signal:
        if isinstance(item, Signal):
            return item
        return msgspec.structs.replace(
            item,
            does=self.renamed.get(item.does, item.does),
            args=[self.value(value) for value in item.args],
            kwargs={name: self.value(value) for name, value in item.kwargs.items()},
            outs=self.outs(item.outs),
            metas=[meta + self.metas for meta in item.metas],
            frees=[register + self.registers for register in item.frees],
        )

    def value(self, value: Any) -> Any:
        if not isinstance(value, list) or not value or not isinstance(value[0], str):
            return value
        if value[0] == "L":
            return ["L", *(self.value(part) for part in value[1:])]
        offset = {"r": self.registers, "x": self.made}.get(value[0])
        return value if offset is None else [value[0], value[1] + offset]

    def outs(self, outs: Any) -> Any:
        if isinstance(outs, list):
            return [self.outs(out) for out in outs]
        return None if outs is None else outs + self.registers


def _registers(program: Program) -> int:
    items = itertools.chain.from_iterable(itertools.chain.from_iterable(program.steps))
    outs = (registers_in(item.outs) for item in items if isinstance(item, Call))
    return max(itertools.chain.from_iterable(outs), default=-1) + 1


def _settings(programs: Sequence[Program], names: Sequence[str]) -> dict[str, Any]:
    keys = dict.fromkeys(key for program in programs for key in program.settings)
    settings: dict[str, Any] = {}
    for key in keys:
        if key in ("modules", "tf32"):
            continue
        values = [program.settings.get(key) for program in programs]
        if key == "lost":
            settings[key] = sum(value or 0 for value in values)
        elif key == "profiler":
            settings[key] = round(sum(value or 1.0 for value in values) / len(values), 2)
        elif key == "peak_bytes":
            # Data of all is there all the time; what lives beside it, of one program at a time.
            data = [sum(storage.nbytes for storage in one.storages) for one in programs]
            beside = [int(value or 0) - own for value, own in zip(values, data)]
            settings[key] = sum(data) + max(0, *beside)
        elif all(value == values[0] for value in values):
            settings[key] = values[0]
        else:
            at = next(at for at, value in enumerate(values) if value != values[0])
            raise InputError(
                f"its {key} is {values[at]}, that of {names[0]} is {values[0]}", where=names[at],
                hint="mix benchmarks that were recorded on the same kind of device"
                if key == "device" else None,
            )  # fmt: skip
    return settings


def _set_precision(mixed: Program, programs: Sequence[Program], modules: dict[str, str]) -> None:
    """Sets whether GEMMs use TF32: once where all agree, else at the start of every step."""
    wanted = [bool(program.settings.get("tf32")) for program in programs]
    if all(wanted):
        mixed.settings["tf32"] = 1
    if len(set(wanted)) == 1:
        return
    modules["precision"] = folders.read_template("precision.py")
    numbers = [number for number, program in enumerate(programs) for _ in program.steps]
    for step, number in zip(mixed.steps, numbers):
        for thread, items in enumerate(step):
            args = [int(wanted[number])]
            # It does no work, so it is not counted among the operators.
            call = Call("precision.tf32", args, {}, None, [], 0, thread, "", "", extra={"g": 1})
            items.insert(0, call)


class _Sources:
    """Modules and kernels of several benchmarks, under names that do not clash."""

    def __init__(self) -> None:
        self.modules: dict[str, str] = {}
        self.kernels: list[str] = []
        self._known_kernels: dict[str, int] = {}
        self._users: dict[str, dict[str, str]] = {}
        self._customs = 0
        self._templates = folders.templates()

    def add(self, part: Stored) -> dict[str, str]:
        """Takes in the sources of a benchmark; returns the new names of its operators."""
        renamed: dict[str, str] = {}
        for number, source in enumerate(part.kernels):
            renamed[f"kernel.{number}"] = f"kernel.{self._kernel(number, source)}"
        for name, source in part.modules.items():
            if f"{name}.py" in self._templates:
                # By the program's format this version can run it.
                self.modules[name] = self._templates[f"{name}.py"]
            else:
                renamed |= self._user(source)
        return renamed

    def _kernel(self, number: int, source: str) -> int:
        """The number of a kernel; the same source gets the same one."""
        plain = re.sub(rf"\bkernel_{number}\b", "kernel_#", source)
        if plain not in self._known_kernels:
            self._known_kernels[plain] = len(self.kernels)
            self.kernels.append(plain.replace("kernel_#", f"kernel_{len(self.kernels)}"))
        return self._known_kernels[plain]

    def _user(self, source: str) -> dict[str, str]:
        """New names for the operators of a user's file; the same file comes along once."""
        if source not in self._users:
            keys = sorted({int(number) for number in _CUSTOM.findall(source)})
            numbers = {key: self._customs + at for at, key in enumerate(keys)}
            self._customs += len(keys)
            count = len(self._users) + 1
            name = "user_ops" if count == 1 else f"user_ops_{count}"
            self.modules[name] = _CUSTOM.sub(
                lambda match: f'"custom.{numbers[int(match[1])]}"', source
            )
            self._users[source] = {f"custom.{a}": f"custom.{b}" for a, b in numbers.items()}
        return self._users[source]
