"""What a profile hands over: counts and sizes, no names, paths or payloads."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.systems.clone.body import BranchBin, bin_branches
from gnomon.systems.clone.recording import Edge, Floats, Recording
from gnomon.systems.clone.server import Server, infer_server, name_of, serving_calls

VERSION = 1
#: Edges that were seen less often tell about single events, not about the service.
_FEWEST = 5


class EdgeProfile(msgspec.Struct, frozen=True):
    """Between two system calls: executions per request, and what one execution does."""

    before: str
    after: str
    per_request: float
    mix: tuple[float, ...]
    code: tuple[float, ...]
    load: tuple[float, ...]
    store: tuple[float, ...]
    clocks: float = 0.0
    repeats: float = 0.0

    @property
    def instructions(self) -> float:
        return sum(self.mix)


class Bundle(msgspec.Struct, frozen=True):
    """A service without its code.

    Attributes:
        left_out: Instructions per request on edges that were seen too rarely to be handed over, or
            of threads that serve nobody.
    """

    version: int
    protocol: str
    server: Server
    edges: tuple[EdgeProfile, ...]
    branches: tuple[BranchBin, ...]
    dependencies: tuple[float, ...]
    seconds: float
    left_out: float = 0.0
    checksum: str = ""

    @property
    def instructions(self) -> float:
        """Per request."""
        return sum(one.per_request * one.instructions for one in self.edges)


def make_bundle(recordings: Sequence[Recording], *, protocol: str, seconds: float) -> Bundle:
    """From all processes of a service; those that served nobody are left out."""
    if any(one.calls_left_out for one in recordings):
        raise InputError("it made over two million system calls while it was recorded",
                         hint="a few thousand requests are enough")  # fmt: skip
    server = infer_server(recordings)
    serving = [one for one in recordings if _serves(one)]
    requests = server.requests
    busy = serving_calls(serving)
    by_name: dict[tuple[str, str], list[Edge]] = {}
    for recording in serving:
        for edge in recording.edges:
            by_name.setdefault((name_of(edge.before).rstrip("!"), name_of(edge.after)), []).append(
                edge
            )
    edges, left_out = [], 0.0
    for (before, after), same in sorted(by_name.items()):
        count = sum(one.count for one in same)
        if before not in busy or count < _FEWEST:
            left_out += sum(one.instructions for one in same) / requests
            continue
        edges.append(EdgeProfile(
            before, after, count / requests,
            mix=_mean(same, "mix", count), code=_mean(same, "code", count),
            load=_mean(same, "load", count), store=_mean(same, "store", count),
            clocks=sum(one.clocks for one in same) / count,
            repeats=sum(one.repeats for one in same) / count,
        ))  # fmt: skip
    bins = bin_branches(*(
        np.concatenate([getattr(one.branches, what) for one in serving]).astype(float)
        for what in ("executed", "taken", "changed")
    ))  # fmt: skip
    weights = [one.instructions for one in serving]
    dependencies = np.average([one.dependencies for one in serving], axis=0, weights=weights)
    return Bundle(
        VERSION,
        protocol,
        server,
        tuple(edges),
        tuple(bins),
        tuple(dependencies.tolist()),
        seconds,
        left_out,
    )


def _mean(edges: Sequence[Edge], what: str, count: int) -> tuple[float, ...]:
    return tuple((np.sum([getattr(one, what) for one in edges], axis=0) / count).tolist())


def _serves(one: Recording) -> bool:
    return any("read" in name_of(edge.before) or "recv" in name_of(edge.before)
               for edge in one.edges if edge.before.target == 1)  # fmt: skip


def write_bundle(bundle: Bundle, path: Path) -> None:
    """JSON with a checksum of the rest."""
    unsealed = msgspec.structs.replace(bundle, checksum="")
    plain = msgspec.json.decode(msgspec.json.encode(unsealed), type=Bundle)  # as it will be read
    sealed = msgspec.structs.replace(plain, checksum=_digest(plain))
    partial = path.with_name(path.name + ".part")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(sealed), indent=1))
    partial.replace(path)


def read_bundle(path: Path) -> Bundle:
    """Raises InputError if it is none, of another version, or was changed by hand."""
    try:
        bundle = msgspec.json.decode(path.read_bytes(), type=Bundle)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"not a bundle: {error}", where=str(path),
                         hint="gnomon clone profile writes one") from None  # fmt: skip
    if bundle.version != VERSION:
        raise InputError(
            f"a bundle of version {bundle.version}, this is {VERSION}", where=str(path)
        )
    if bundle.checksum != _digest(msgspec.structs.replace(bundle, checksum="")):
        raise InputError(
            "the bundle was changed, or cut short: its checksum is wrong", where=str(path)
        )
    return bundle


def _digest(bundle: Bundle) -> str:
    return hashlib.sha256(msgspec.json.encode(bundle, order="deterministic")).hexdigest()


def per_request(bundle: Bundle, what: str) -> Floats:
    """A histogram or the mix, of one request."""
    total: Floats = np.sum(
        [np.array(getattr(one, what)) * one.per_request for one in bundle.edges], axis=0
    )
    return total
