"""Strings in files: what is there is found, what is packed is unpacked, public words are let through."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.ingest.search import SHORTEST, find_place, find_present, read_files, unpacked


@given(st.lists(st.binary(max_size=12), max_size=20), st.binary(max_size=300))
def test_prop_those_are_present_that_a_slow_search_finds(strings, whole):
    assert find_present(strings, whole) == {
        one for one in strings if len(one) >= SHORTEST and one in whole
    }


def test_files_of_a_folder_are_read_unpacked(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.gz").write_bytes(gzip.compress(gzip.compress(b"twice")))
    (tmp_path / "c").write_bytes(b"\x1f\x8bnot packed")
    assert dict(read_files(tmp_path, what="a folder")) == {
        "a/b.gz": b"twice",
        "c": b"\x1f\x8bnot packed",
    }
    assert unpacked(b"plain") == b"plain"


def test_what_is_no_folder_gets_a_line(tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "none", tmp_path / "empty"):
        with pytest.raises(InputError, match="give a clone"):
            list(read_files(path, what="a clone"))


def test_parts_of_public_words_are_no_places():
    public = {"handles", "one"}.__contains__
    assert find_place(b"handle", b"handles and handled", public) == 12
    assert find_place(b"handle", b"handles", public) is None
    assert find_place(b"absent", b"handles", public) is None
