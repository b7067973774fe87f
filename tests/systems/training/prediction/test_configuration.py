"""Configurations: what follows from what, what cannot be, and how they are spelled."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.systems.training.prediction.configuration import Configuration, parse_settings

BASE = Configuration(layers=12, hidden=2048, heads=16, seq=2048, batch=4)


def test_what_is_not_said_follows():
    assert (BASE.ffn, BASE.kv_heads, BASE.head_dim, BASE.v_dim) == (8192, 16, 128, 128)
    assert (BASE.world, BASE.tokens, BASE.global_batch) == (1, 8192, 4)


def test_a_wider_model_keeps_the_width_of_its_heads_and_its_proportions():
    wide = BASE.changed({"hidden": 3072})
    assert (wide.heads, wide.head_dim, wide.kv_heads, wide.ffn) == (24, 128, 24, 12288)


def test_more_heads_are_narrower_ones():
    many = BASE.changed({"heads": 32})
    assert (many.head_dim, many.v_dim, many.kv_heads, many.hidden) == (64, 64, 32, 2048)


def test_fewer_heads_of_keys_stay_in_proportion():
    grouped = BASE.changed({"kv_heads": 4})
    assert grouped.changed({"hidden": 4096}).kv_heads == 8
    assert grouped.changed({"heads": 32}).kv_heads == 8


def test_what_is_set_is_kept():
    target = BASE.changed({"hidden": 1024, "heads": 16, "ffn": 1000, "layers": 3})
    assert (target.heads, target.head_dim, target.ffn, target.layers) == (16, 64, 1000, 3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"layers": 0}, "layers has to be at least 1"),
        ({"heads": 3}, "does not divide into 3 heads"),
        ({"tp": 3}, "tp=3 does not divide 16 heads"),
        ({"pp": 13}, "12 layers cannot fill pp=13"),
        ({"pp": 4, "interleave": 4}, "pp=4 stages of 4 chunks"),
        ({"interleave": 2}, "needs a pipeline"),
        ({"experts": 6, "top_k": 7}, "top_k=7 of only 6"),
        ({"kv_heads": 5}, "cannot share 5"),
        ({"vocab": -1}, "vocab has to be at least 1"),
        ({"cp": 3}, "cp=3 does not divide"),
        ({"colour": 3}, "colour"),
    ],
)
def test_what_cannot_be_is_said(settings, words):
    with pytest.raises(InputError, match=words):
        BASE.changed(settings)


def test_settings_are_read():
    settings = parse_settings(["layers=24, tp=2", "gpu=a100,gated=yes", "micro_batches=8"])
    assert settings == {"layers": 24, "tp": 2, "gpu": "a100", "gated": True, "accumulation": 8}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("layers", "name=value"),
        ("layers=", "name=value"),
        ("=3", "knows no ''"),
        ("size=3", "knows no 'size'"),
        ("layers=two", "whole number"),
        ("layers=2.5", "whole number"),
        ("gated=perhaps", "yes or no"),
        ("layers=2,layers=3", "twice"),
    ],
)
def test_bad_settings_are_named(text, words):
    with pytest.raises(InputError, match=words):
        parse_settings([text])


@given(
    layers=st.integers(1, 8), heads=st.sampled_from([1, 2, 4, 8]),
    width=st.sampled_from([16, 64]), dp=st.integers(1, 4), batch=st.integers(1, 4),
)  # fmt: skip
def test_prop_it_reads_back_as_written(layers, heads, width, dp, batch):
    other = Configuration(
        layers=layers, hidden=heads * width, heads=heads, seq=32, batch=batch, dp=dp, vocab=100
    )
    assert set(BASE.differences(other)) >= {"seq", "vocab"}
    assert msgspec.convert(msgspec.to_builtins(other), Configuration) == other
