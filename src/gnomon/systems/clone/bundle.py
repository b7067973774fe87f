"""What a profile hands over: counts, sizes and the shape of paths; no names, code or payloads."""

from __future__ import annotations

import hashlib
import math
import shutil
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.random import Generator

from gnomon.errors import InputError
from gnomon.systems.clone.judge import Caches, machine_caches
from gnomon.systems.clone.kinds import events_kind, kinds_of, nearest_kind
from gnomon.systems.clone.morph import Morph
from gnomon.systems.clone.recording import Edge, Floats, Key, Recording, Sample
from gnomon.systems.clone.server import Server, infer_server, name_of, serving_calls
from gnomon.systems.clone.shape import make_skeleton
from gnomon.systems.clone.skeleton import (
    FILES,
    Skeleton,
    read_skeleton,
    write_skeleton,
)  # fmt: skip
from gnomon.systems.clone.threads import CALLS, READS, SENDS, TARGETS
from gnomon.systems.clone.traffic import OTHER, Traffic, infer_traffic, verb_of
from gnomon.systems.clone.walks import Chosen

VERSION = 6
#: What was seen less often tells about single events, not about the service.
FEWEST = 5
#: Paths of an edge; of edges that hardly matter; and instructions of all paths of one.
_MOST_PATHS, _FEW_PATHS, _MATTERS, _MOST_INSTRUCTIONS = 48, 6, 0.01, 400_000
#: By how much the longest executions of an edge may count more than the shortest, over their own.
_MOST_TILT = 20.0
#: The emulator slows requests down, and not the clock: what a thread does by the clock is done so
#: many times as often for a request.
SLOWER = 60.0
_MANIFEST = "manifest.json"


class EdgeProfile(msgspec.Struct, frozen=True):
    """Between two system calls: executions per request, and what one execution does.

    Attributes:
        lines, code_lines: Different lines of data and of code that it touches.
        code_misses, data_misses: Of the bundle's first-level caches.
    """

    before: str
    after: str
    per_request: float
    mix: tuple[float, ...]
    code: tuple[float, ...]
    load: tuple[float, ...]
    store: tuple[float, ...]
    clocks: float = 0.0
    repeats: float = 0.0
    lines: float = 0.0
    code_lines: float = 0.0
    code_misses: float = 0.0
    data_misses: float = 0.0

    @property
    def instructions(self) -> float:
        return sum(self.mix)


class Bundle(msgspec.Struct, frozen=True):
    """A service without its code.

    Attributes:
        taken, changed: Of conditional branches: how often they were, and went another way than
            the time before.
        turned: Of indirect jumps and calls: how often one went elsewhere than the time before.
        left_out: Instructions per request on edges that were seen too rarely to be handed over, or
            of threads that neither serve anybody nor sleep in between.
        morphed: What the clone is to do otherwise. All other figures are those of the original.
        caches: Whose misses were counted: those of the machine that it was profiled on.
    """

    version: int
    protocol: str
    server: Server
    traffic: Traffic
    edges: tuple[EdgeProfile, ...]
    taken: float
    changed: float
    dependencies: tuple[float, ...]
    seconds: float
    skeleton: Skeleton
    left_out: float = 0.0
    morphed: Morph | None = None
    caches: Caches = Caches.of_kib(32, 32, 1024)
    turned: float = 0.0

    def is_background(self, edge: EdgeProfile) -> bool:
        """Of a thread that works by the clock: counted a sixtieth."""
        calls = {one.call for one in self.server.background}
        return _is_background(edge.before, edge.after, calls)

    @property
    def instructions(self) -> float:
        """Per request."""
        return sum(one.per_request * one.instructions for one in self.edges)

    @property
    def on_paths(self) -> float:
        """Of these, what a clone executes: edges that have paths, as long as these are."""
        length = [len(one.ops) + (one.ends != "fall") for one in self.skeleton.blocks]
        work, weight = defaultdict[int, float](float), defaultdict[int, float](float)
        for path in self.skeleton.paths:
            work[path.edge] += path.weight * sum(length[number] for number in path.blocks)
            weight[path.edge] += path.weight
        return sum(self.edges[edge].per_request * much / weight[edge]
                   for edge, much in work.items())  # fmt: skip


def make_bundle(
    recordings: Sequence[Recording], *, protocol: str | None = None, seconds: float, seed: int = 0,
    with_paths: bool = True, caches: Caches | None = None,
) -> Bundle:  # fmt: skip
    """From all processes of a service; those that served nobody are left out."""
    if any(one.calls_left_out for one in recordings):
        raise InputError("it made over two million system calls while it was recorded",
                         hint="a few thousand requests are enough")  # fmt: skip
    server = infer_server(recordings)
    serving = [one for one in recordings if _serves(one)]
    requests = server.requests
    busy = serving_calls(serving)
    background = {one.call for one in server.background}
    by_name: dict[tuple[str, str], list[tuple[Recording, int]]] = {}
    for recording in serving:
        for number, edge in enumerate(recording.edges):
            name = name_of(edge.before).rstrip("!"), name_of(edge.after)
            by_name.setdefault(name, []).append((recording, number))
    edges: list[EdgeProfile] = []
    found: list[Chosen] = []
    left_out = 0.0
    traffic = _traffic(serving, protocol)
    rng = np.random.default_rng([seed, 0xC10E])
    for (before, after), where in sorted(by_name.items()):
        same = [recording.edges[number] for recording, number in where]
        count = sum(one.count for one in same)
        is_background = _is_background(before, after, background)
        if not (before in busy or is_background) or count < FEWEST:
            left_out += sum(one.instructions for one in same) / requests
            continue
        rate = count / requests / (SLOWER if is_background else 1.0)
        if with_paths:
            found += _choose(len(edges), where, rate, traffic, rng, is_wait=before == server.wait)
        lines, code_lines = _mean_lines(where)
        edges.append(EdgeProfile(
            before, after, rate,
            mix=_mean(same, "mix", count), code=_mean(same, "code", count),
            load=_mean(same, "load", count), store=_mean(same, "store", count),
            clocks=sum(one.clocks for one in same) / count,
            repeats=sum(one.repeats for one in same) / count,
            lines=lines, code_lines=code_lines,
            code_misses=sum(one.code_misses for one in same) / count,
            data_misses=sum(one.data_misses for one in same) / count,
        ))  # fmt: skip
    taken, changed, turned = _outcomes(serving, background)
    weights = [one.instructions for one in serving]
    dependencies = np.average([one.dependencies for one in serving], axis=0, weights=weights)
    return Bundle(
        VERSION, traffic.protocol, server, traffic, tuple(edges),
        taken, changed, tuple(dependencies.tolist()),
        seconds,
        make_skeleton(found) if with_paths else Skeleton([], [], []), left_out,
        caches=caches or machine_caches(), turned=turned,
    )  # fmt: skip


def _is_background(before: str, after: str, background: Collection[str]) -> bool:
    return before == after and before in background


def _outcomes(
    serving: Sequence[Recording], background: Collection[str]
) -> tuple[float, float, float]:
    """Shares of conditional branches that are taken and that change, and of indirect jumps that
    change; what is done by the clock counts less, as with edges."""
    branches, jumps = np.zeros(3), np.zeros(3)
    for one in serving:
        slow = [
            i for i, edge in enumerate(one.edges)
            if _is_background(name_of(edge.before).rstrip("!"), name_of(edge.after), background)
        ]  # fmt: skip
        rows = one.by_edge[np.isin(one.by_edge[:, 0], slow)]
        by_clock = np.bincount(rows[:, 1], rows[:, 2], len(one.executed))
        counts = 1 - by_clock / np.maximum(one.executed, 1) * (1 - 1 / SLOWER)
        for into, kind in ((branches, one.branches), (jumps, one.indirect)):
            into += [
                counts[kind.block] @ each for each in (kind.executed, kind.taken, kind.changed)
            ]
    executed, taken, changed = branches.tolist()
    indirect, _, turned = jumps.tolist()
    return taken / max(executed, 1), changed / max(executed, 1), turned / max(indirect, 1)


def _choose(
    edge: int, where: list[tuple[Recording, int]], rate: float, traffic: Traffic,
    rng: Generator, *, is_wait: bool,
) -> list[Chosen]:  # fmt: skip
    """Executions that stand for all of an edge: equally many short and long ones of each kind.

    Args:
        is_wait: Its kinds are those of wake-ups.
    """
    groups: dict[int, list[tuple[Recording, Sample]]] = {}
    weights: dict[int, list[float]] = {}
    for recording, number in where:
        samples = [one for one in recording.samples if one.edge == number]
        usual = [one for one in samples if _is_usual(recording, one)]
        kept = Counter(one.stratum for one in usual)
        heads = dict(recording.heads)
        for one in usual:
            kind = events_kind(one.result) if is_wait else _kind_of(recording, one, heads, traffic)
            groups.setdefault(kind, []).append((recording, one))
            weights.setdefault(kind, []).append(one.like_it / kept[one.stratum])
    edges = [recording.edges[number] for recording, number in where]
    mean = sum(one.instructions for one in edges) / max(sum(one.count for one in edges), 1)
    lengths = {kind: np.array([max(recording.length_of(one), 1.0) for recording, one in mine])
               for kind, mine in groups.items()}  # fmt: skip
    tilted = as_long(lengths, {kind: np.array(mine) for kind, mine in weights.items()}, mean)
    total = sum(float(mine.sum()) for mine in tilted.values())
    return [
        Chosen(edge, kind, *groups[kind][i], share)
        for kind in sorted(groups)
        for i, share in _spread(lengths[kind], tilted[kind], rate / total, total, rng)
    ]


def as_long(
    lengths: Mapping[int, Floats], weights: Mapping[int, Floats], mean: float
) -> dict[int, Floats]:
    """Weights with which kept executions are as long, on average, as all of their edge are.

    Those with code that was seldom seen are not kept, and these are the long ones. Weights change
    by a power of the length, none by more than `_MOST_TILT`; the sum over a kind stays.

    Args:
        lengths, weights: Of each execution, by kind.
    """
    spread = max((float(one.max() / one.min()) for one in lengths.values()), default=1.0)
    if spread <= 1.0:
        return dict(weights)

    def tilted(power: float) -> dict[int, Floats]:
        raw = {kind: weights[kind] * (one / one.mean()) ** power for kind, one in lengths.items()}
        return {kind: one * (weights[kind].sum() / one.sum()) for kind, one in raw.items()}

    def is_short(power: float) -> bool:
        found = tilted(power)
        total = sum(float(one.sum()) for one in found.values())
        return sum(float(one @ lengths[kind]) for kind, one in found.items()) < mean * total

    low, high = (sign * math.log(_MOST_TILT) / math.log(spread) for sign in (-1, 1))
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if is_short(middle) else (low, middle)
    return tilted((low + high) / 2)


def _spread(
    lengths: Floats, weights: Floats, rate: float, total: float, rng: Generator
) -> list[tuple[int, float]]:
    """Of one kind, numbers of executions and how often each is to be.

    Args:
        rate: Of a weight of one.
        total: The weight of all kinds.
    """
    weight, mean = float(weights.sum()), float(lengths.mean())
    most = _MOST_PATHS if rate * total * mean >= _MATTERS * 1000 else _FEW_PATHS
    most = min(most, math.ceil(most * weight / total) + 1)
    most = int(np.clip(_MOST_INSTRUCTIONS / mean, 2, most))
    order = np.lexsort((rng.random(len(lengths)), lengths))
    count = min(most, len(lengths))
    picked = np.searchsorted(np.cumsum(weights[order]), (np.arange(count) + 0.5) / count * weight)
    return [(int(order[i]), rate * weight / count) for i in picked]


def _kind_of(
    recording: Recording, sample: Sample, heads: dict[int, bytes], traffic: Traffic
) -> int:
    head = heads.get(sample.read)
    if head is None:
        return 0
    size = int(recording.calls[sample.read, 5])
    return nearest_kind(kinds_of(traffic), verb_of(traffic.protocol, head[:size]) or OTHER, size)


def _is_usual(recording: Recording, sample: Sample) -> bool:
    return bool(np.all(recording.executed[sample.blocks()] >= FEWEST))


def _traffic(recordings: Sequence[Recording], protocol: str | None) -> Traffic:
    """What clients sent: the begin of each request, and how much was sent back."""
    reads: list[tuple[int, bytes]] = []
    replies: list[int] = []
    connections = 0
    for recording in recordings:
        heads = dict(recording.heads)
        # By descriptor, whichever thread answers: place in the lists.
        answered: dict[int, int] = {}
        descriptors = set()
        for number, (_, packed, first, _, _, result) in enumerate(recording.calls.tolist()):
            key = Key.of(packed)
            if key.target != TARGETS.index("connection"):
                continue
            if number in heads:
                answered[first] = len(reads)
                descriptors.add(first)
                reads.append((result, heads[number][:result]))
                replies.append(0)
            elif CALLS.get(key.number) in READS:
                answered.pop(first, None)
            elif CALLS.get(key.number) in SENDS and first in answered and result > 0:
                replies[answered[first]] += result
        connections += len(descriptors)
    return infer_traffic(reads, replies, connections=max(connections, 1), protocol=protocol)


def _mean(edges: Sequence[Edge], what: str, count: int) -> tuple[float, ...]:
    return tuple((np.sum([getattr(one, what) for one in edges], axis=0) / count).tolist())


def _mean_lines(where: list[tuple[Recording, int]]) -> tuple[float, float]:
    """That one execution of an edge touches: of data, and of code."""
    rows = []
    for recording, number in where:
        mine = [one for one in recording.samples if one.edge == number]
        kept = Counter(one.stratum for one in mine)
        rows += [(len(one.lines()), len(recording.code_lines_of(one)),
                  one.like_it / kept[one.stratum]) for one in mine]  # fmt: skip
    if not rows:
        return 0.0, 0.0
    data, code, weights = zip(*rows, strict=True)
    return float(np.average(data, weights=weights)), float(np.average(code, weights=weights))


def _serves(one: Recording) -> bool:
    return any("read" in name_of(edge.before) or "recv" in name_of(edge.before)
               for edge in one.edges if edge.before.target == 1)  # fmt: skip


# --- on disk -------------------------------------------------------------------------------------


class _Manifest(msgspec.Struct):
    format: str
    bundle: msgspec.Raw
    files: dict[str, str]


def write_bundle(bundle: Bundle, folder: Path) -> None:
    """A folder: a manifest in JSON, the paths as Arrow files, and their checksums."""
    if folder.exists() and not (folder / _MANIFEST).exists():
        raise InputError("exists, and is no bundle", where=str(folder))
    partial = folder.with_name(folder.name + ".part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    files = write_skeleton(bundle.skeleton, partial)
    rest = msgspec.json.encode(msgspec.structs.replace(bundle, skeleton=Skeleton([], [], [])))
    sums = {"bundle": hashlib.sha256(rest).hexdigest()}
    sums |= {name: hashlib.sha256((partial / name).read_bytes()).hexdigest() for name in files}
    manifest = _Manifest("gnomon-clone-bundle", msgspec.Raw(rest), sums)
    (partial / _MANIFEST).write_bytes(msgspec.json.encode(manifest))
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def read_bundle(folder: Path) -> Bundle:
    """Raises InputError if it is none, of another version, or was changed by hand."""
    where = str(folder)
    hint = "gnomon clone profile writes one"
    try:
        manifest = msgspec.json.decode((folder / _MANIFEST).read_bytes(), type=_Manifest)
        version = msgspec.json.decode(manifest.bundle)["version"]
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=where, hint=hint) from None
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise InputError(f"not a bundle: {error}", where=where, hint=hint) from None
    if version != VERSION:
        raise InputError(f"a bundle of version {version}, this is {VERSION}", where=where)
    if set(manifest.files) != {"bundle", *FILES}:
        raise InputError("its manifest does not list the files of a bundle", where=where)
    for name, wanted in manifest.files.items():
        try:
            data = bytes(manifest.bundle) if name == "bundle" else (folder / name).read_bytes()
        except OSError as error:
            raise InputError(f"{name} cannot be read: {error.strerror}", where=where) from None
        if hashlib.sha256(data).hexdigest() != wanted:
            raise InputError(
                f"{name} was changed, or cut short: its checksum is wrong", where=where
            )
    try:
        bundle = msgspec.json.decode(manifest.bundle, type=Bundle)
    except msgspec.DecodeError as error:
        raise InputError(f"not a bundle: {error}", where=where, hint=hint) from None
    return msgspec.structs.replace(bundle, skeleton=read_skeleton(folder))


def per_request(bundle: Bundle, what: str) -> Floats:
    """A histogram or the mix, of one request."""
    total: Floats = np.sum(
        [np.array(getattr(one, what)) * one.per_request for one in bundle.edges], axis=0
    )
    return total
