"""Blocks that Spark's own codecs wrote, and blocks of a slow encoder of ours for any bytes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.ingest.spark.block_codecs import BLOCK_CODECS, DamagedBlock

DATA = Path(__file__).parents[2] / "data" / "spark"
TEXT = (
    b"".join(
        b'{"Event":"SparkListenerTaskEnd","Stage ID":%d,"Task ID":%d,"Launch Time":%d}\n'
        % (i // 7, i, 1794766722946 + i * i)
        for i in range(40)
    )
    + b"a" * 400
)
LAST = b'{"Event":"Last"}\n'


def decode(raw):
    for magic, stream in BLOCK_CODECS.items():
        if raw.startswith(magic):
            return b"".join(stream(io.BytesIO(raw)))
    raise AssertionError("no codec begins so")


@pytest.mark.parametrize("codec", ["lz4", "snappy", "lzf"])
def test_what_spark_wrote(codec):
    assert decode((DATA / f"codec.{codec}").read_bytes()) == TEXT + LAST


@pytest.mark.parametrize("codec", ["lz4", "snappy", "lzf"])
def test_any_cut_is_told_or_ends_between_blocks(codec):
    raw = (DATA / f"codec.{codec}").read_bytes()
    whole = 0
    for size in range(8, len(raw)):
        try:
            found = decode(raw[:size])
        except DamagedBlock:
            continue
        assert (TEXT + LAST).startswith(found)
        whole += 1
    assert whole < 5


def matches(data, window, least, most):
    """Literals and copies by a slow search for the longest match."""
    at = begin = 0
    while at < len(data):
        best, distance = 0, 0
        for back in range(1, min(at, window) + 1):
            length = 0
            while (
                at + length < len(data)
                and length < most
                and data[at + length] == data[at - back + length % back]
            ):
                length += 1
            if length > best:
                best, distance = length, back
        if best >= least:
            yield data[begin:at], distance, best
            at += best
            begin = at
        else:
            at += 1
    yield data[begin:], 0, 0


def lz4(data):
    out = b""
    for literal, distance, length in matches(data, 300, 4, 700):
        low = length - 4 if distance else 0
        out += bytes([min(len(literal), 15) << 4 | min(low, 15)])
        out += extended(len(literal)) + literal
        if distance:
            out += distance.to_bytes(2, "little") + extended(low)
    sizes = len(out).to_bytes(4, "little") + len(data).to_bytes(4, "little")
    return b"LZ4Block\x25" + sizes + b"\0" * 4 + out


def extended(length):
    if length < 15:
        return b""
    full, rest = divmod(length - 15, 255)
    return b"\xff" * full + bytes([rest])


def snappy(data):
    size, out = len(data), b""
    while size >= 0x80:
        out += bytes([size & 0x7F | 0x80])
        size >>= 7
    out += bytes([size])
    for literal, distance, length in matches(data, 3000, 4, 64):
        for begin in range(0, len(literal), 300):
            part = literal[begin : begin + 300]
            short = len(part) <= 60
            out += (
                bytes([(len(part) - 1) << 2])
                if short
                else b"\xf4" + (len(part) - 1).to_bytes(2, "little")
            )
            out += part
        if distance and length <= 11 and distance < 2048:
            out += bytes([(distance >> 8) << 5 | (length - 4) << 2 | 1, distance & 255])
        elif distance:
            out += bytes([(length - 1) << 2 | 2]) + distance.to_bytes(2, "little")
    return b"\x82SNAPPY\0" + b"\0\0\0\1" * 2 + len(out).to_bytes(4, "big") + out


def lzf(data):
    out = b""
    for literal, distance, length in matches(data, 8000, 3, 264):
        for begin in range(0, len(literal), 32):
            part = literal[begin : begin + 32]
            out += bytes([len(part) - 1]) + part
        if distance:
            code = length - 2
            out += bytes([min(code, 7) << 5 | (distance - 1) >> 8])
            out += (bytes([code - 7]) if code >= 7 else b"") + bytes([(distance - 1) & 255])
    return b"ZV\1" + len(out).to_bytes(2, "big") + len(data).to_bytes(2, "big") + out


pieces = st.lists(st.binary(max_size=12) | st.sampled_from([b"abcd" * 20, b"z" * 300]), max_size=8)


@given(pieces.map(b"".join))
@pytest.mark.parametrize("encode", [lz4, snappy, lzf])
def test_prop_what_was_packed_comes_back(encode, data):
    assert decode(encode(data)) == data


@given(st.sampled_from([b"LZ4Block\x25", b"\x82SNAPPY\0\0\0\0\1\0\0\0\1", b"ZV\1"]), st.binary())
def test_prop_rubbish_is_told(magic, rubbish):
    try:
        found = decode(magic + rubbish)
    except DamagedBlock:
        return
    assert isinstance(found, bytes)


def test_a_block_of_impossible_size_is_not_made():
    with pytest.raises(DamagedBlock, match="bytes"):
        decode(b"\x82SNAPPY\0" + b"\0\0\0\1" * 2 + b"\x7f\xff\xff\xff" + b"x")
    with pytest.raises(DamagedBlock, match="bytes"):
        decode(b"LZ4Block\x25" + b"\4\0\0\0" + b"\xff\xff\xff\x7f" + b"\0" * 4 + b"abcd")
