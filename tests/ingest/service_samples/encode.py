"""HdrHistograms as its libraries encode them, slowly: what the decoder has to undo."""

from __future__ import annotations

import base64
import struct
import zlib

__all__ = ["as_log", "base64_of", "bucket_of", "encode"]


def bucket_of(value: int, digits: int, unit: int = 0) -> tuple[int, int, int]:
    """Place of a value among the counts, and the least and greatest that share it."""
    whole = 1
    while whole < max(2 * 10**digits, 2):
        whole *= 2
    doublings, part = 0, value >> unit
    while part >= whole:
        part >>= 1
        doublings += 1
    width = 1 << (unit + doublings)
    return (
        doublings * (whole // 2) + part,
        value // width * width,
        value // width * width + width - 1,
    )


def _zigzag(number: int) -> bytes:
    left = (number << 1) ^ (number >> 63)
    made = bytearray()
    while left >= 0x80:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*made, left])


def _runs(places: dict[int, int]) -> bytes:
    """Counts in order; of more than one place without, how many, as a negative number."""
    made, at = b"", 0
    for place in sorted(places):
        gap = place - at
        made += (b"" if not gap else _zigzag(-gap) if gap > 1 else _zigzag(0)) + _zigzag(
            places[place]
        )
        at = place + 1
    return made


def encode(
    values: dict[int, int], digits: int = 3, *, version: int = 2, unit: int = 0, word: int = 8,
    is_packed: bool = True, ratio: float | None = None,
) -> bytes:  # fmt: skip
    """Counts by value; a ratio makes it a histogram of floating-point values."""
    places = {}
    for value, count in values.items():
        place = bucket_of(value, digits, unit)[0]
        places[place] = places.get(place, 0) + count
    least, greatest = 1 << unit, max(values, default=2)
    if version == 2:
        payload = _runs(places)
        head = struct.pack(">IIiiqqd", 0x1C849313, len(payload), 0, digits, least, greatest,
                           ratio or 1.0)  # fmt: skip
    else:
        counts = [places.get(i, 0) for i in range(max(places, default=-1) + 1)]
        payload = struct.pack(f">{len(counts)}{ {2: 'h', 4: 'i', 8: 'q'}[word] }", *counts)
        head = (
            struct.pack(">IIiiqqd", 0x1C849301 | word << 4, len(payload), 0, digits, least,
                        greatest, ratio or 1.0)
            if version else
            struct.pack(">Iiqqq", 0x1C849308 | word << 4, digits, least, greatest, sum(counts))
        )  # fmt: skip
    made = head + payload
    if is_packed:
        packed = zlib.compress(made)
        cookie = (0x1C849309, 0x1C849302, 0x1C849304)[version] | (
            word << 4 if version < 2 else 0x10
        )
        made = struct.pack(">II", cookie, len(packed)) + packed
    if ratio is not None:
        made = struct.pack(">Iiq", 0x0C72124F if is_packed else 0x0C72124E, digits, 1000) + made
    return made


def base64_of(values: dict[int, int], **how: object) -> str:
    return base64.b64encode(encode(values, **how)).decode()


def as_log(*intervals: tuple[str, dict[int, int]], shown: float = 1e6, comment: str = "") -> str:
    """A log of tags and counts by value; maxima are shown in so many of the values' unit."""
    lines = ["#[Logged with a test]", "#[Histogram log format version 1.3]", *([comment] if comment else []),
             "#[BaseTime: 1441812279.474 (seconds since epoch)]",
             "#[StartTime: 1441812279.474 (seconds since epoch), Wed Sep 09 08:24:39 PDT 2015]",
             '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"']  # fmt: skip
    for at, (tag, values) in enumerate(intervals):
        top = max((bucket_of(value, 3)[2] for value in values), default=0)
        lines.append(
            f"{f'Tag={tag},' if tag else ''}{at}.127,1.007,{top / shown:.3f},{base64_of(values)}"
        )
    return "\n".join(lines) + "\n"
