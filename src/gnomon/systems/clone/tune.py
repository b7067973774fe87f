"""Correcting a clone by what the profiler sees of it: the runtime's work comes off the code."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from gnomon.errors import GnomonError, InputError
from gnomon.systems.clone.assembly import Code, Less, Quota
from gnomon.systems.clone.bundle import Bundle, EdgeProfile, make_bundle, per_request
from gnomon.systems.clone.instructions import INDEX
from gnomon.systems.clone.launch import fill, free_port
from gnomon.systems.clone.profile import Progress, record
from gnomon.systems.clone.project import Asked, as_it_is, total_variation, write_project
from gnomon.systems.clone.recording import bucket_of
from gnomon.systems.clone.refit import longer_by, refit
from gnomon.systems.clone.rejump import rejump
from gnomon.systems.clone.scaling import code_lines
from gnomon.systems.clone.skeleton import LOAD, SAVE, Skeleton
from gnomon.systems.clone.trim import Excess, Jumps, trim

#: Corrections.
ROUNDS = 8
#: Edges that fewer requests than this meet are not tuned to.
_RARE = 0.01
#: Share of the lines of code that blocks can be moved to.
_LEAST_CODE = 0.6
#: The share to take, by what misses are off; and a line beyond the smallest cache, in misses.
_BY_MISSES, _PER_LINE = -0.15, 0.2
#: Of what is off, so much is corrected at once; less after a round that made it worse.
_FIRST_SHARE, _SMALLER, _LEAST_SHARE = 0.8, 0.6, 0.15
#: Lines of caches whose misses are compared, and a share of accesses that does not matter.
_CACHES, _SLIGHT = (128, 256, 512, 768, 1024, 2048), 0.0005
#: Wake-ups a request, of which a difference does not matter.
_FEW_WAKEUPS = 0.01


class Compared(msgspec.Struct, frozen=True):
    """One figure of the original and of the clone, per request.

    Attributes:
        slight: A difference that does not matter, whatever the original's figure.
    """

    name: str
    original: float
    clone: float
    slight: float = 0.0

    @property
    def error_pct(self) -> float:
        return 100.0 * (self.clone - self.original) / self.original if self.original else 0.0

    @property
    def off(self) -> float:
        """0 to 1."""
        over = max(abs(self.clone - self.original) - self.slight, 0.0)
        return min(over / max(self.original, self.slight), 1.0) if over else 0.0


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
    words = [str(program), "--port", str(port)]
    recordings, seconds = record(words, load, caches=bundle.caches, progress=progress)
    return make_bundle(
        recordings, protocol=bundle.protocol, seconds=seconds, with_paths=False,
        caches=bundle.caches,
    )  # fmt: skip


def tune(
    bundle: Bundle,
    folder: Path,
    load: str | None = None,
    *,
    port: int | None = None,
    rounds: int = ROUNDS,
    progress: Progress = lambda _: None,
) -> Bundle:
    """Writes the clone that `tuned` finds, with the recipe of a morphed bundle.

    Args: See `tuned`.

    Returns:
        Its profile, without the recipe.
    """
    if rounds == 0:  # as it lies there
        port = free_port() if port is None else port
        return observe(bundle, folder, _load(folder, bundle, load, port), port, progress)
    asked, seen = tuned(bundle, folder, load, port=port, rounds=rounds, progress=progress)
    write_project(bundle, folder, asked=asked)
    build(folder)
    return seen


def tuned(
    bundle: Bundle, folder: Path, load: str | None = None, *, port: int | None = None,
    rounds: int = ROUNDS, progress: Progress = lambda _: None,
) -> tuple[Asked, Bundle]:  # fmt: skip
    """Profiles the clone and corrects it, round by round; the best, and its profile.

    The recipe of a morphed bundle is left out: it is the original that the clone is compared with.

    Args:
        load: A command; `{port}` becomes the clone's port. Its own load generator unless given.
        port: That the clone listens on; a free one unless given.
    """
    port = free_port() if port is None else port
    load = _load(folder, bundle, load, port)
    asked, rng = as_it_is(bundle), np.random.default_rng(0xF17)
    plain = msgspec.structs.replace(bundle, morphed=None)
    best: _Tried | None = None
    share = _FIRST_SHARE
    for number in range(rounds + 1):
        code = write_project(plain, folder, asked=asked)
        seen = observe(plain, folder, load, port, progress)
        tried = _Tried(distance(bundle, seen), asked, code, seen)
        progress(f"round {number} of {rounds}: off by {100 * tried.off:.1f} %")
        if best is None or tried.off < best.off:
            best = tried
        else:
            share = max(_SMALLER * share, _LEAST_SHARE)
        asked = correct(bundle, best, rng, share, is_first=number == 0)
    assert best is not None
    return best.asked, best.seen


def _load(folder: Path, bundle: Bundle, load: str | None, port: int) -> str:
    """The command, with the port filled in."""
    if load is None:
        connections = min(max(bundle.traffic.connections, 1), 64)
        load = shlex.join([str(folder.absolute() / "build" / "load"), "--port", str(port),
                           "--connections", str(connections), "--requests", "4000"])  # fmt: skip
    return fill(load, port=port)


class _Tried(msgspec.Struct, frozen=True):
    off: float
    asked: Asked
    code: Code
    seen: Bundle


def distance(wanted: Bundle, seen: Bundle) -> float:
    """How far a clone is off, as one number: the mean of relative errors, none more than whole."""
    rows = compare(wanted, seen, at_rates_of=wanted)
    return float(np.mean([*(one.off for one in rows), mix_distance(wanted, seen) / 100]))


def correct(
    wanted: Bundle, tried: _Tried, rng: np.random.Generator, share: float, *, is_first: bool
) -> Asked:
    """What to ask for next: first calls are left out for what the runtime adds, then the rest.

    Args:
        share: Of what is off, to be corrected at once.
    """
    seen, asked, code = tried.seen, tried.asked, tried.code
    both = _same_edges(wanted, seen)
    over = {
        what: sum(
            (
                want.per_request * np.subtract(getattr(one, what), getattr(want, what))
                for want, one in both.values()
            ),
            np.zeros(1),
        )
        for what in ("mix", "load", "store")
    }
    # What was dealt out, less what is too much: the rest is the runtime's and will be again.
    mix = tuple(np.maximum(np.array(code.mix) - over["mix"], 0.0).tolist())
    runtime = {i: max(one.lines - code.lines.get(i, 0.0), 0.0) for i, (_, one) in both.items()}
    if is_first:
        excess = {
            i: Excess(one.instructions - want.instructions, one.code_lines - want.code_lines)
            for i, (want, one) in both.items()
        }
        trimmed = trim(asked.skeleton, excess, _too_many(wanted, seen, both))
        return Asked(
            trimmed,
            Quota(mix, runtime_lines=runtime),
            _pack(trimmed, asked, both, is_first=True),
        )
    less = _next_less(asked.quota.less, code.unpaid, both)
    lines = {i: one.lines - want.lines for i, (want, one) in both.items()}
    data = [sum((pair[side].per_request * np.add(pair[side].load, pair[side].store)
                 for pair in both.values()), np.zeros(1)) for side in (0, 1)]  # fmt: skip
    fitted = refit(
        asked.skeleton, {LOAD: over["load"], SAVE: over["store"]}, lines, rng, share,
        longer=longer_by(data[0], data[1]),
    )  # fmt: skip
    jumps = _too_many(wanted, seen, both)
    jumping = rejump(
        fitted, -share * jumps.taken, -share * (jumps.branches - jumps.taken), rng,
        changing=-share * jumps.changed, edges=both,
    )  # fmt: skip
    return Asked(jumping, Quota(mix, less, runtime), _pack(jumping, asked, both, is_first=False))


def _too_many(
    wanted: Bundle, seen: Bundle, both: Mapping[int, tuple[EdgeProfile, EdgeProfile]]
) -> Jumps:
    """Branches and jumps that the runtime adds."""

    def count(*classes: str) -> list[float]:
        at = [INDEX[one] for one in classes]
        return [sum(pair[side].per_request * sum(pair[side].mix[i] for i in at)
                    for pair in both.values()) for side in (0, 1)]  # fmt: skip

    (want, have), (indirect, again) = count("branch"), count("jmp_indirect", "call_indirect")
    return Jumps(
        have - want,
        have * seen.taken - want * wanted.taken,
        have * seen.changed - want * wanted.changed,
        have * seen.changed / max(want * wanted.changed, 1e-9) - 1,
        again * seen.turned / max(indirect * wanted.turned, 1e-9) - 1,
    )


def _pack(
    skeleton: Skeleton, asked: Asked, both: Mapping[int, tuple[EdgeProfile, EdgeProfile]],
    *, is_first: bool,
) -> float:  # fmt: skip
    """The share of its lines of code that leaves room for the runtime's; then what brings misses
    of a cache with sets, which blocks that lie together share evenly, to the original's."""

    def both_sides(what: str) -> list[float]:
        return [sum(pair[side].per_request * getattr(pair[side], what) for pair in both.values())
                for side in (0, 1)]  # fmt: skip

    if not is_first:
        wanted, seen = (
            misses + _PER_LINE * sum(
                pair[side].per_request * sum(pair[side].code[bucket_of(_CACHES[0]) :])
                for pair in both.values())
            for side, misses in enumerate(both_sides("code_misses"))
        )  # fmt: skip
        slight = _SLIGHT * sum(one.per_request * one.instructions for one, _ in both.values())
        ratio = (seen + slight) / (wanted + slight)
        return float(np.clip(asked.pack * ratio**_BY_MISSES, _LEAST_CODE, 1.0))
    wanted, seen = both_sides("code_lines")
    of_runtime = max(seen - code_lines(asked.packed), 0.0)
    share = (wanted - of_runtime) / max(code_lines(skeleton), 1.0)
    return float(np.clip(share, _LEAST_CODE, 1.0))


def _next_less(
    asked: Mapping[int, Less], unpaid: Mapping[int, Less],
    both: Mapping[int, tuple[EdgeProfile, EdgeProfile]],
) -> dict[int, Less]:  # fmt: skip
    """What to leave out of each edge next: what was, and what is still too much.

    What could not be left out, as of edges that are shorter than the runtime's part of them, is
    left out of the longest one.
    """

    def total(edge: EdgeProfile, what: str) -> float:
        return float(sum(getattr(edge, what)))

    found = {}
    longest = max(both, key=lambda i: both[i][0].per_request * both[i][0].instructions)
    for what, of in (("instructions", "mix"), ("loads", "load"), ("stores", "store")):
        mine = {i: getattr(asked.get(i, Less()), what) - getattr(unpaid.get(i, Less()), what)
                + want.per_request * (total(one, of) - total(want, of))
                for i, (want, one) in both.items()}  # fmt: skip
        mine[longest] += sum(getattr(one, what) for i, one in unpaid.items() if i != longest)
        found[what] = mine
    return {i: Less(*(mine[i] for mine in found.values())) for i in both}


#: Calls that clones make in place of others.
_MADE_AS = {"epoll_pwait": "epoll_wait", "ppoll": "poll", "pselect6": "select",
            "nanosleep": "clock_nanosleep"}  # fmt: skip


def _same_edges(wanted: Bundle, seen: Bundle) -> dict[int, tuple[EdgeProfile, EdgeProfile]]:
    """Edges of both, by number. Rare ones tell little: timers come more often in an emulator.

    Raises:
        GnomonError: There are none.
    """

    def name(edge: EdgeProfile) -> tuple[str, str]:
        return _MADE_AS.get(edge.before, edge.before), _MADE_AS.get(edge.after, edge.after)

    found = {name(one): one for one in seen.edges}
    both = {i: (one, found[name(one)]) for i, one in enumerate(wanted.edges)
            if one.per_request >= _RARE and name(one) in found}  # fmt: skip
    if not both:
        raise GnomonError("the clone made none of the original's calls: is --load the profile's?")
    return both


def compare(
    original: Bundle, clone: Bundle, *, at_rates_of: Bundle | None = None
) -> list[Compared]:
    """Per request: instructions, accesses, lines by distance, branches, system calls, bytes.

    Args:
        at_rates_of: Count edges of both as often as they are here, and rare ones not at all.
    """
    if at_rates_of is not None:
        both = _same_edges(at_rates_of, clone)
        clone = msgspec.structs.replace(
            clone,
            edges=tuple(
                msgspec.structs.replace(one, per_request=want.per_request)
                for want, one in both.values()
            ),
        )
        original = msgspec.structs.replace(
            original, edges=tuple(want for want, _ in both.values())
        )
    rows = [Compared("instructions", original.instructions, clone.instructions)]
    for what in ("load", "store"):
        rows.append(Compared(f"{what}s", float(per_request(original, what).sum()),
                             float(per_request(clone, what).sum())))  # fmt: skip
    data = [per_request(one, "load") + per_request(one, "store") for one in (original, clone)]
    code = [per_request(one, "code") for one in (original, clone)]
    here = original.caches
    for lines in _CACHES:
        at, size = bucket_of(lines), f"beyond {lines * 64 // 1024} KiB"
        for name, seen, of, cache in (
            ("code", code, original.instructions, here.code),
            ("data", data, float(data[0].sum()), here.data),
        ):
            if lines == cache.lines:  # a cache with sets tells more
                continue
            rows.append(Compared(f"{name} lines {size}", float(seen[0][at:].sum()),
                                 float(seen[1][at:].sum()), _SLIGHT * of))  # fmt: skip
    for name, what, of in (("code", "code_misses", original.instructions),
                           ("data", "data_misses", float(data[0].sum()))):  # fmt: skip
        wanted, seen_here = (
            float(sum(edge.per_request * getattr(edge, what) for edge in one.edges))
            for one in (original, clone)
        )
        rows.append(Compared(f"{name} misses here", wanted, seen_here, _SLIGHT * of))
    branches = [float(per_request(one, "mix")[INDEX["branch"]]) for one in (original, clone)]
    rows.append(Compared("conditional branches", *branches))
    rows.append(Compared("branches taken", 100 * original.taken, 100 * clone.taken))
    rows.append(Compared("branches changed", 100 * original.changed, 100 * clone.changed))
    rows.append(Compared("indirect jumps turned", 100 * original.turned, 100 * clone.turned))
    rows.append(Compared("wake-ups", original.server.wakeups, clone.server.wakeups, _FEW_WAKEUPS))
    return rows


def mix_distance(original: Bundle, clone: Bundle) -> float:
    """Total variation of the instruction mixes, in percent."""
    return 100.0 * total_variation(per_request(original, "mix"), per_request(clone, "mix"))
