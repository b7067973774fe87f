"""One HdrHistogram as its libraries encode it, decoded to values and counts.

The encodings of versions 0, 1 and 2, compressed or not, of whole and of floating-point values
(hdrhistogram.org). All numbers are big-endian. A header tells the digits that are kept and the
least value; then come counts by bucket, as words (0 and 1) or as ZigZag LEB128, in which a
negative number is a run of zeros (2).
"""

from __future__ import annotations

import math
import struct
import zlib

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError

Ints = NDArray[np.int64]

#: Cookies by version, with the word size masked out: packed by zlib, and plain.
_PACKED = {0x1C849309: 0, 0x1C849302: 1, 0x1C849304: 2}
_PLAIN = {0x1C849308: 0, 0x1C849301: 1, 0x1C849303: 2}
#: Around a histogram of floating-point values: cookie, digits, ratio.
_DOUBLE, _DOUBLE_BYTES = (0x0C72124E, 0x0C72124F), 16
#: Cookie, length, offset, digits, least and greatest value, ratio; in version 0 a total count.
_HEADER, _HEADER_0 = struct.Struct(">IIiiqqd"), struct.Struct(">Iiqqq")
_MOST_BYTES = 1 << 24


class Histogram(msgspec.Struct, frozen=True, eq=False):
    """Buckets that hold something.

    Attributes:
        value: The middle of each.
        top: The greatest value that each holds.
        counts: Of each.
    """

    value: NDArray[np.float64]
    top: NDArray[np.float64]
    counts: Ints


def decode_histogram(raw: bytes) -> Histogram:
    """The buckets of an encoded histogram that hold something, in rising order."""
    if _word(raw, 0) in _DOUBLE:
        raw = raw[_DOUBLE_BYTES:]
    if _base(raw) in _PACKED:
        raw = _inflate(raw[8 : 8 + _word(raw, 4)])
    version = _PLAIN.get(_base(raw))
    if version is None:
        raise InputError("no encoded HdrHistogram (its cookie is unknown)")
    header = _HEADER if version else _HEADER_0
    if len(raw) < header.size:
        raise _cut_short()
    if version:
        cookie, size, _, digits, least, _, ratio = header.unpack_from(raw)
        payload = raw[header.size : header.size + size]
        if len(payload) < size:
            raise _cut_short()
    else:
        cookie, digits, least, _, _ = header.unpack_from(raw)
        payload, ratio = raw[header.size :], 1.0
    if not 0 <= digits <= 5 or not 1 <= least < 1 << 53 or not 0 < ratio < math.inf:
        raise InputError("the header of the histogram is damaged")
    index, counts = _unzigzag(payload) if version == 2 else _words(payload, cookie >> 4 & 0xE)
    return _place(index, counts, digits, least, ratio)


def _place(index: Ints, counts: Ints, digits: int, least: int, ratio: float) -> Histogram:
    """Buckets double in width: each has half a set of sub-buckets, the first one a whole set."""
    half = max(math.ceil(math.log2(2 * 10**digits)), 1) - 1
    unit = least.bit_length() - 1
    bucket = np.maximum((index >> half) - 1, 0)
    if len(index) and int(bucket.max()) + unit + half + 1 > 62:
        raise InputError("the histogram is damaged (a value out of range)")
    shift = bucket + unit
    value = (index - (bucket << half)) << shift
    width = np.int64(1) << shift
    return Histogram((value + width // 2) * ratio, (value + width - 1) * ratio, counts)


def _words(payload: bytes, size: int) -> tuple[Ints, Ints]:
    if size not in (2, 4, 8) or len(payload) % size:
        raise _cut_short()
    words = np.frombuffer(payload, f">i{size}").astype(np.int64)
    if (words < 0).any():
        raise InputError("the histogram is damaged (a negative count)")
    return _filled(words)


def _unzigzag(payload: bytes) -> tuple[Ints, Ints]:
    raw = np.frombuffer(payload, np.uint8).astype(np.int64)
    ends = np.flatnonzero(raw < 0x80)
    if not len(raw):
        return ends, ends
    if not len(ends) or ends[-1] != len(raw) - 1:
        raise _cut_short()
    begins = np.append(0, ends[:-1] + 1)
    lengths = ends - begins + 1
    if lengths.max() > 8:  # from 2^55 on, where a ninth byte has a rule of its own
        raise InputError("the histogram is damaged (a count out of range)")
    place = np.arange(len(raw)) - np.repeat(begins, lengths)
    coded = np.add.reduceat((raw & 0x7F) << 7 * place, begins)
    return _filled((coded >> 1) ^ -(coded & 1))


def _filled(coded: Ints) -> tuple[Ints, Ints]:
    """Places and counts of what is not zero; a negative number stands for so many zeros."""
    widths = np.where(coded < 0, -coded, 1)
    if len(coded) and widths.max() > 1 << 31:
        raise InputError("the histogram is damaged (too many buckets)")
    places = np.cumsum(widths) - widths
    return places[coded > 0], coded[coded > 0]


def _inflate(packed: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(packed, _MOST_BYTES)
    except zlib.error as error:
        raise InputError(f"the histogram is damaged ({error})") from None
    if not stream.eof:
        raise _cut_short()
    return raw


def _word(raw: bytes, at: int) -> int:
    if len(raw) < at + 4:
        raise _cut_short()
    return int.from_bytes(raw[at : at + 4])


def _base(raw: bytes) -> int:
    return _word(raw, 0) & ~0xF0


def _cut_short() -> InputError:
    return InputError("the histogram ends early", hint="was the line cut short?")
