"""Damage, by a seed: what wires, disks, other programs and people do to files."""

from __future__ import annotations

import copy
import json
import random

__all__ = ["mutate"]

ODD = [
    10**20, -(10**20), 2**63, 2**64, -1, 0, 1e308, -1e308, 0.5, float("nan"), float("inf"), None,
    True, "", "x", "NaN", "1e999", "99999999999999999999", "\u2028\0\ud7ff", [], {}, [[]], [None],
    {"a": {"b": []}}, [1] * 50,
]  # fmt: skip
CELLS = [b"", b"NaN", b"-1", b"99999999999999999999", b"1e400", b"-inf", b'"', b"x" * 300, b"\xff",
         b"0" * 50, b"9999-12-31T23:59:59Z", b"0001-01-01", b"[" * 3000, b"{}", b"null", b"\x00",
         b"\n\n", b",,,", b"|", b"1" * 25, "\u0664\u00b2".encode()]  # fmt: skip


def mutate(content: bytes, rng: random.Random) -> bytes:
    """The content with one to four things wrong."""
    if rng.random() < 0.5:
        content = _replace_values(content, rng)
    for _ in range(rng.randint(0 if rng.random() < 0.3 else 1, 3)):
        content = rng.choice((_flip, _cut, _put_cell, _drop, _repeat, _nest))(content, rng)
    return content


def _replace_values(content: bytes, rng: random.Random) -> bytes:
    """Values of a JSON document, or of one line of many, become something else."""
    lines = content.split(b"\n") if b'\n{"' in content else [content]
    at = rng.randrange(len(lines))
    try:
        value = json.loads(lines[at])
    except ValueError:
        return _put_cell(content, rng)
    for _ in range(rng.randint(1, 3)):
        value = _odd_inside(value, rng)
    lines[at] = json.dumps(value).encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def _odd_inside(value, rng):
    if not isinstance(value, dict | list) or not value or rng.random() < 0.1:
        return copy.deepcopy(rng.choice(ODD))
    keys = list(value) if isinstance(value, dict) else range(len(value))
    key = rng.choice(list(keys))
    if isinstance(value, dict) and rng.random() < 0.1:
        del value[key]
    else:
        value[key] = _odd_inside(value[key], rng)
    return value


def _flip(content, rng):
    changed = bytearray(content)
    for _ in range(rng.randint(1, 6)):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(content, rng):
    return content[: rng.randrange(len(content) + 1)]


def _put_cell(content, rng):
    """Some run between marks becomes an odd cell."""
    begin = rng.randrange(len(content) + 1)
    marks = b',;|:\n "[]{}='
    while begin and content[begin - 1] not in marks:
        begin -= 1
    end = begin
    while end < len(content) and content[end] not in marks:
        end += 1
    return content[:begin] + rng.choice(CELLS) + content[end:]


def _drop(content, rng):
    begin = rng.randrange(len(content) + 1)
    return content[:begin] + content[begin + rng.randint(1, 40) :]


def _repeat(content, rng):
    begin = rng.randrange(len(content) + 1)
    end = begin + rng.randint(1, 200)
    return content[:end] + content[begin:end] + content[end:]


def _nest(content, rng):
    if rng.random() < 0.8:
        return content
    at = rng.randrange(len(content) + 1)
    depth = rng.choice((10, 1000, 100_000))
    return content[:at] + rng.choice((b"[", b'{"a":', b"(")) * depth + content[at:]
