"""Blocks that Spark's own codecs wrote, and blocks of any bytes."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError, MissingExtra
from gnomon.ingest.formats import identify
from gnomon.ingest.spark.block_codecs import BLOCK_CODECS, DamagedBlock
from gnomon.ingest.spark.event_log import read_spark_log

cramjam = pytest.importorskip("cramjam", reason="the 'codecs' extra is absent")
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


@pytest.mark.parametrize("codec", ["lz4", "snappy"])
def test_what_spark_wrote(codec):
    assert decode((DATA / f"codec.{codec}").read_bytes()) == TEXT + LAST


@pytest.mark.parametrize("codec", ["lz4", "snappy"])
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


def lz4(data):
    out = bytes(cramjam.lz4.compress_block(data, store_size=False))
    sizes = len(out).to_bytes(4, "little") + len(data).to_bytes(4, "little")
    return b"LZ4Block\x25" + sizes + b"\0" * 4 + out


def snappy(data):
    out = bytes(cramjam.snappy.compress_raw(data))
    return b"\x82SNAPPY\0" + b"\0\0\0\1" * 2 + len(out).to_bytes(4, "big") + out


pieces = st.lists(st.binary(max_size=12) | st.sampled_from([b"abcd" * 20, b"z" * 300]), max_size=8)


@given(pieces.map(b"".join))
@pytest.mark.parametrize("encode", [lz4, snappy])
def test_prop_what_was_packed_comes_back(encode, data):
    assert decode(encode(data)) == data


@given(st.sampled_from([b"LZ4Block\x25", b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"]), st.binary())
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


def test_lzf_is_named_and_refused():
    with pytest.raises(InputError, match=r"codec\.lzf: is compressed with LZF.*codec to zstd"):
        read_spark_log(DATA / "codec.lzf")
    assert identify(DATA / "codec.lzf").format == "spark-log"


def test_without_the_extra_the_install_line_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(MissingExtra, match=r"pip install 'gnomon\[codecs\]'"):
        read_spark_log(DATA / "codec.lz4")
