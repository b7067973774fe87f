"""Kinds of requests: what a clone tells apart, to do for each what the original did for it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gnomon.systems.clone.traffic import Traffic

_MOST = 8
#: Requests of one command whose sizes differ by less are of one kind.
_ALIKE = 1.25


class Kind(msgspec.Struct, frozen=True):
    """Requests with the same command and about the same size, and how long their replies were."""

    verb: str
    request_bytes: int
    replies: tuple[tuple[int, float], ...]  # bytes and weight


def kinds_of(traffic: Traffic) -> list[Kind]:
    """The most frequent; replies of the others are given to the nearest."""
    found: list[Kind] = []
    for one in sorted(traffic.classes, key=lambda each: -each.weight):
        i = nearest_kind(found, one.verb, one.request_bytes)
        reply = one.reply_bytes, one.weight
        if found and (len(found) == _MOST or _is_alike(found[i], one.verb, one.request_bytes)):
            found[i] = msgspec.structs.replace(found[i], replies=(*found[i].replies, reply))
        else:
            found.append(Kind(one.verb, one.request_bytes, (reply,)))
    return found


def _is_alike(kind: Kind, verb: str, size: int) -> bool:
    small, large = sorted((max(kind.request_bytes, 1), max(size, 1)))
    return word_of(kind.verb) == word_of(verb) and large <= _ALIKE * small


def nearest_kind(kinds: Sequence[Kind], verb: str, size: int) -> int:
    """The number of a kind, the command first; 0 if there is none."""
    word = word_of(verb)
    return min(
        range(len(kinds)), default=0,
        key=lambda i: (word_of(kinds[i].verb) != word, abs(kinds[i].request_bytes - size)),
    )  # fmt: skip


#: Kinds of wake-ups.
EVENT_KINDS = 18


def events_kind(events: int) -> int:
    """Of a wake-up with so many events: what is done first depends on how many there are.

    >>> [events_kind(n) for n in (1, 2, 3, 4, 6, 8, 512)]
    [0, 1, 2, 3, 4, 5, 17]
    """
    width = max(events, 1).bit_length() - 1
    return min(2 * width - 1 + (events >> width - 1 & 1), EVENT_KINDS - 1) if width else 0


def word_of(verb: str) -> int:
    """The first four letters, small, as the runtime compares them."""
    letters = verb[:4].lower().encode().ljust(4, b"\0")
    return int.from_bytes(bytes(one | 0x20 for one in letters), "little")
