"""What clients send to a service: classes of requests with their sizes, and when they arrive.

Inferred from the first bytes of each request. Of those only a word is kept, and only if it is one
of the protocol's public commands; keys are counted and forgotten.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from gnomon.errors import InputError
from gnomon.systems.clone.vocabulary import HTTP, MEMCACHED, RESP, STORES

PROTOCOLS = ("resp", "memcached", "http", "length", "raw")
#: What is not in the vocabulary of its protocol.
OTHER = "OTHER"
#: Classes and bins of fewer requests tell about single events.
FEWEST = 5
_MOST_CLASSES = 64
_MOST_GAPS = 64
_MOST_BYTES = 1 << 30

_ARRAY = re.compile(rb"\*(\d{1,7})\r\n(?:\$(\d{1,9})\r\n)?")
_BULK = re.compile(rb"\$(\d{1,9})\r\n")
_REQUEST_LINE = re.compile(rb"([A-Za-z]{1,20}) [^\s]")
_HTTP_VERSION = re.compile(rb" HTTP/1\.[01]\r?\n")
_WORD = re.compile(rb"([A-Za-z_]{1,32})(?: |\r?\n)")
#: Redis and memcached share commands, but memcached's are in small letters and take a key.
_MEMCACHED_ALONE = frozenset(("stats", "version", "flush_all", "quit", "mn"))
#: As many bytes of a request are looked at.
_HEAD = 64
_LONGEST_MESSAGE = 64 << 20


class RequestClass(msgspec.Struct, frozen=True):
    """Requests that are alike: their share, a public word of the protocol, bytes on the wire."""

    weight: float
    verb: str
    request_bytes: int
    reply_bytes: int


class LoadPhase(msgspec.Struct, frozen=True):
    """A part of the cycle that the load goes through: a factor of the rate, weights of classes."""

    seconds: float
    rate: float
    weights: tuple[float, ...]


class Traffic(msgspec.Struct, frozen=True):
    """What clients send.

    Attributes:
        keys: Distinct ones; an estimate where more exist than were seen.
        gaps: Between arrivals, in means of them: each stands for an equal share. None were
            recorded: exponential ones are sent.
        pipeline: Requests that a client sends at once.
        left_out: Share of requests in no class: too few were alike, or their begin was not seen.
        phases: Of a morphed clone.
    """

    protocol: str
    classes: tuple[RequestClass, ...]
    keys: int = 1
    gaps: tuple[float, ...] = ()
    connections: int = 1
    pipeline: int = 1
    left_out: float = 0.0
    phases: tuple[LoadPhase, ...] = ()


# --- one request ---------------------------------------------------------------------------------


def classify(head: bytes) -> tuple[str, str]:
    r"""The protocol and the command of a request, by its first bytes.

    >>> classify(b"*2\r\n$3\r\nget\r\n$7\r\nuser:42\r\n")
    ('resp', 'GET')
    >>> classify(b"get user:42\r\n")
    ('memcached', 'get')
    >>> classify(b"POST /login HTTP/1.1\r\nHost: a")
    ('http', 'POST')
    >>> classify(b"\x00\x00\x00\x05hello"), classify(b"SSH-2.0-x")
    (('length', 'OTHER'), ('raw', 'OTHER'))
    """
    if array := _ARRAY.match(head):
        word = head[array.end() :][: int(array[2] or 0)]
        return "resp", _known(word.upper(), RESP)
    if line := _REQUEST_LINE.match(head):
        verb = line[1].decode()
        # The version may be beyond the first bytes: then the path must look like one.
        if verb in HTTP and (_HTTP_VERSION.search(head) or head[line.end() - 1 :][:1] in b"/*"):
            return "http", verb
    is_line = b"\n" in head or len(head) >= _HEAD
    if is_line and (found := _WORD.match(head)):
        word = found[1]
        if word.decode() in MEMCACHED and (b" " in head or word.decode() in _MEMCACHED_ALONE):
            return "memcached", word.decode()
        if word.upper().decode() in RESP:
            return "resp", word.upper().decode()
    if len(head) >= 4 and 0 < int.from_bytes(head[:4], "big") <= _LONGEST_MESSAGE:
        return "length", OTHER
    return "raw", OTHER


def _known(word: bytes, words: frozenset[str]) -> str:
    text = word.decode("ascii", errors="replace")
    return text if text in words else OTHER


def wire_size(protocol: str, head: bytes) -> int | None:
    r"""Bytes of the whole request, if its begin says so.

    A read may end before the request does, or hold several.

    >>> wire_size("resp", b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\nxxxx")
    100031
    >>> wire_size("http", b"GET / HTTP/1.1\r\n") is None
    True
    """
    if protocol == "resp":
        return _resp_size(head)
    if protocol == "memcached":
        return _memcached_size(head)
    if protocol == "length" and len(head) >= 4:
        return 4 + int.from_bytes(head[:4], "big")
    if protocol == "http" and (end := head.find(b"\r\n\r\n")) >= 0:
        return None if b"ontent-" in head[:end] else end + 4
    return None


def _resp_size(head: bytes) -> int | None:
    array = re.match(rb"\*(\d{1,7})\r\n", head)
    if array is None:
        end = head.find(b"\n")
        return end + 1 or None
    at = array.end()
    for _ in range(int(array[1])):
        bulk = _BULK.match(head, at)
        if bulk is None:
            return None
        at = bulk.end() + int(bulk[1]) + 2
    return at


def _memcached_size(head: bytes) -> int | None:
    end = head.find(b"\n") + 1
    words = head[:end].split()
    if not words:
        return None
    verb = words[0].decode("ascii", errors="replace")
    at = 4 if verb in STORES else 2 if verb == "ms" else 0
    if not at:
        return end
    return end + int(words[at]) + 2 if len(words) > at and words[at].isdigit() else None


def _key(protocol: str, head: bytes) -> bytes | None:
    """The first argument of a command; None where there is none, or it is not all there."""
    if protocol == "resp" and head[:1] == b"*":
        parts = head.split(b"\r\n")
        return parts[4] if len(parts) > 5 else None
    if protocol in ("resp", "memcached"):
        words = head.partition(b"\n")[0].split()
        return words[1] if len(words) > 1 and b"\n" in head else None
    return None


# --- many requests -------------------------------------------------------------------------------


class _Seen(msgspec.Struct, frozen=True):
    verb: str
    request_bytes: int
    reply_bytes: int


def infer_traffic(
    reads: Sequence[tuple[int, bytes]],
    reply_sizes: Sequence[int],
    *,
    gaps: ArrayLike = (),
    connections: int = 1,
    protocol: str | None = None,
) -> Traffic:
    """Classes of what was read from connections.

    Args:
        reads: Of each request the bytes that were read, and the first of them.
        reply_sizes: Bytes that were sent back, one for each read.
        gaps: Times between arrivals, in any unit.
        connections: That were open.
        protocol: That the service speaks, if known; otherwise the one of most reads.

    Raises:
        InputError: Nothing was read, or too little to say anything about it.
    """
    if len(reads) != len(reply_sizes):
        raise InputError(f"{len(reads)} reads and {len(reply_sizes)} replies")
    if protocol is not None and protocol not in PROTOCOLS:
        raise InputError(f"protocol {protocol!r}", hint=", ".join(PROTOCOLS))
    if protocol is None:
        protocol = _usual_protocol([head for _, head in reads])
    seen: Counter[_Seen] = Counter()
    keys: Counter[bytes] = Counter()
    batches: list[int] = []
    for (size, head), reply in zip(reads, reply_sizes, strict=True):
        verb = verb_of(protocol, head)
        if verb is None:
            continue
        whole = wire_size(protocol, head) or size
        batch = max(round(size / whole), 1) if 0 < whole <= size else 1
        batches.append(batch)
        each = min(round(reply / batch), _MOST_BYTES)
        seen[_Seen(verb, min(whole, _MOST_BYTES), each)] += batch
        if (key := _key(protocol, head)) is not None:
            keys[key] += 1
    if not seen:
        raise InputError("no request was seen")
    classes = _classes(_answered(seen))
    if not classes:
        raise InputError(f"fewer than {FEWEST} requests are alike",
                         hint="record some thousand requests")  # fmt: skip
    total = sum(seen.values())
    kept = sum(one.weight for one in classes)
    return Traffic(
        protocol,
        tuple(msgspec.structs.replace(one, weight=one.weight / kept) for one in classes),
        keys=_estimate_distinct(keys), gaps=gap_bins(gaps), connections=max(connections, 1),
        pipeline=max(int(np.median(batches)), 1), left_out=1.0 - kept / total,
    )  # fmt: skip


def _usual_protocol(heads: Sequence[bytes]) -> str:
    """Of most reads; any bytes can be of `raw`, and many of `length`."""
    counts = Counter(classify(head)[0] for head in heads)
    most = max(("resp", "memcached", "http"), key=lambda one: counts[one])
    # Most reads may go on with requests that others began.
    if counts[most] * 10 > len(heads):
        return most
    return "length" if counts["length"] * 2 > len(heads) else "raw"


def verb_of(protocol: str, head: bytes) -> str | None:
    """None: what was read goes on with a request that an earlier read began."""
    found, verb = classify(head)
    if protocol == "raw":
        return OTHER
    if protocol == "resp" and found == "memcached" and verb.upper() in RESP:
        return verb.upper()  # a command on a line looks like memcached's
    return verb if found == protocol else None


def _answered(seen: Counter[_Seen]) -> Counter[_Seen]:
    """Requests without a reply were answered together with others: by what those usually got."""
    found: Counter[_Seen] = Counter()
    for one, count in seen.items():
        alike = {other: seen[other] for other in seen
                 if other.verb == one.verb and other.reply_bytes > 0}  # fmt: skip
        if one.reply_bytes == 0 and alike:
            size = one.request_bytes
            near = min(alike, key=lambda other: (abs(other.request_bytes - size), -alike[other]))
            one = _Seen(one.verb, size, near.reply_bytes)
        found[one] += count
    return found


def _classes(seen: Counter[_Seen]) -> list[RequestClass]:
    """Sizes that are frequent for themselves, others with their neighbours; weights are counts."""
    often = [one for one, count in seen.most_common(_MOST_CLASSES // 2) if count >= FEWEST]
    found = [RequestClass(seen[one], one.verb, one.request_bytes, one.reply_bytes)
             for one in often]  # fmt: skip
    rest: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for one, count in seen.items():
        if one not in often:
            rest[one.verb] += [(one.request_bytes, one.reply_bytes)] * count
    few = [pair for pairs in rest.values() if len(pairs) < FEWEST for pair in pairs]
    rest = {verb: pairs for verb, pairs in rest.items() if len(pairs) >= FEWEST}
    if len(few) >= FEWEST:
        rest[OTHER] = rest.get(OTHER, []) + few
    room = max((_MOST_CLASSES - len(found)) // max(len(rest), 1), 1)
    for verb, pairs in sorted(rest.items()):
        found += _together(verb, sorted(pairs), room)
    return sorted(found, key=lambda one: -one.weight)[:_MOST_CLASSES]


def _together(verb: str, pairs: list[tuple[int, int]], most: int) -> Iterator[RequestClass]:
    for part in np.array_split(np.array(pairs), max(min(len(pairs) // FEWEST, most), 1)):
        request, reply = part.mean(axis=0)
        yield RequestClass(len(part), verb, round(float(request)), round(float(reply)))


def _estimate_distinct(keys: Counter[bytes]) -> int:
    """Chao's estimate: many keys that were seen once, and few that were seen twice, mean more."""
    once = sum(count == 1 for count in keys.values())
    twice = sum(count == 2 for count in keys.values())
    return max(len(keys) + once * (once - 1) // (2 * (twice + 1)), 1)


def gap_bins(gaps: ArrayLike) -> tuple[float, ...]:
    """Equal shares of the gaps between arrivals, each by its mean; their mean is 1.

    Exact about the mean and about bursts, silent about single arrivals.
    """
    values = np.sort(np.asarray(gaps, float))
    values = values[np.isfinite(values) & (values >= 0)]
    bins = min(len(values) // FEWEST, _MOST_GAPS)
    if bins < 2 or values.sum() <= 0:
        return ()
    means = np.array([part.mean() for part in np.array_split(values, bins)])
    return tuple((means / means.mean()).tolist())


# --- as C ----------------------------------------------------------------------------------------


def traffic_c(traffic: Traffic) -> str:
    """The file `traffic.c` of a project: what its program `load` sends."""
    if traffic.protocol not in PROTOCOLS:
        raise InputError(f"protocol {traffic.protocol!r}", hint=", ".join(PROTOCOLS))
    if not traffic.classes:
        raise InputError("traffic without a class of requests")
    rows = "\n".join(
        f'    {{{one.weight:.9g}, "{_public(one.verb)}", {one.request_bytes}, {one.reply_bytes}}},'
        for one in traffic.classes
    )
    gaps = ", ".join(f"{one:.6g}" for one in traffic.gaps) or "1"
    cycle = ",\n".join(
        f"    {{{round(1e9 * one.seconds)}u, {one.rate:.9g}, (const double[]){{"
        + ", ".join(f"{weight:.9g}" for weight in one.weights) + "}}"
        for one in traffic.phases
    )  # fmt: skip
    phase = f"static const gnc_load_phase phase[] = {{\n{cycle},\n}};\n" if cycle else ""
    in_phases = f"    .phases = {len(traffic.phases)}, .phase = phase,\n" if cycle else ""
    return f"""/* Generated: what clients send. */
#include "traffic.h"

static const gnc_request_class requests[] = {{
{rows}
}};
static const double gap[] = {{{gaps}}};
{phase}
const gnc_traffic gnc_the_traffic = {{
    .protocol = GNC_TRAFFIC_{traffic.protocol.upper()},
    .classes = {len(traffic.classes)}, .requests = requests, .keys = {max(traffic.keys, 1)},
    .gaps = {len(traffic.gaps)}, .gap = gap,
    .connections = {max(traffic.connections, 1)}, .pipeline = {max(traffic.pipeline, 1)},
{in_phases}}};
"""


def _public(verb: str) -> str:
    return verb if verb in RESP | MEMCACHED | HTTP else OTHER
