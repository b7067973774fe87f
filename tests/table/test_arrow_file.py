"""Arrow files: what we write is read back, by us and by others; damage is named, never a crash."""

import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.table import ArrowTable, Dictionary, ListOf, equal_columns, read_arrow, write_arrow

NUMBERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "?"]


def mixed(rows: int = 5) -> dict:
    """A table with each kind of column."""
    rng = np.random.default_rng(7)
    columns: dict = {f"c_{t}": (rng.random(rows) * 100).astype(t) for t in NUMBERS}
    columns["name"] = [f"void k<{i}, 'ä'>" for i in range(rows)]
    columns["lane"] = Dictionary(np.arange(rows, dtype=np.int16) % 2, ["cpu", "流"])
    offsets = np.arange(rows + 1) * 2
    columns["waits"] = ListOf(offsets, np.arange(2 * rows, dtype=np.uint32))
    columns["edges"] = ListOf(
        offsets,
        {
            "to": np.arange(2 * rows),
            "kind": Dictionary(np.zeros(2 * rows, np.int8), ["sync"]),
            "note": [str(i) for i in range(2 * rows)],
        },
    )
    inner = ListOf(np.arange(2 * rows + 1), np.ones(2 * rows, bool))
    columns["nested"] = ListOf(offsets, inner)
    return columns


def same(table: ArrowTable, columns: dict) -> bool:
    return list(table.columns) == list(columns) and all(
        equal_columns(table[name], np.asarray(c) if isinstance(c, np.ndarray) else c)
        for name, c in columns.items()
    )


@pytest.mark.parametrize("rows", [0, 1, 5, 1000])
def test_round_trip_of_each_kind(tmp_path, rows):
    path = tmp_path / "t.arrow"
    columns = mixed(rows)
    write_arrow(path, columns, {"unit": "ns", "π": "3 <b>"})
    table = read_arrow(path)
    assert same(table, columns)
    assert table.metadata == {"unit": "ns", "π": "3 <b>"}
    assert len(table) == rows


def test_views_are_read_only_aligned_and_not_copies(tmp_path):
    write_arrow(tmp_path / "t", {"a": np.arange(10), "b": np.arange(10.0)})
    table = read_arrow(tmp_path / "t")
    for name in "ab":
        array = table[name]
        assert not array.flags.writeable
        assert not array.flags.owndata
        assert array.ctypes.data % 64 == 0
    assert table["b"][3] == 3.0


def test_same_input_gives_the_same_bytes(tmp_path):
    for name in "ab":
        write_arrow(tmp_path / name, mixed(), {"k": "v"})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_strided_swapped_and_text_arrays(tmp_path):
    columns = {
        "strided": np.arange(20)[::-2],
        "big": np.arange(10, dtype=">i4"),
        "text": np.array(["a", "bc", ""] + ["é"] * 7),
    }
    write_arrow(tmp_path / "t", columns)
    table = read_arrow(tmp_path / "t")
    assert table["strided"].tolist() == list(range(19, -1, -2))
    assert table["big"].tolist() == list(range(10))
    assert table["text"] == ["a", "bc", ""] + ["é"] * 7


def test_no_columns_and_no_rows(tmp_path):
    write_arrow(tmp_path / "t", {})
    table = read_arrow(tmp_path / "t")
    assert (table.columns, table.rows) == ({}, 0)


def test_the_table_is_not_copied_to_be_written(tmp_path):
    import tracemalloc

    columns = {
        "a": np.zeros(4_000_000),
        "b": np.zeros(4_000_000, bool),
        "c": np.zeros((4000000, 2))[:, 0],
    }
    tracemalloc.start()
    write_arrow(tmp_path / "t", columns)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6  # one step of the strided column, not the 32 MB of any


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"a": np.zeros(2), "b": np.zeros(3)}, "'b' has 3 rows, column 'a' has 2"),
        ({"a": np.zeros((2, 2))}, "2 dimensions"),
        ({"a": np.array([None])}, "object"),
        ({"a": np.zeros(2, "c16")}, "complex128"),
        ({"a": ["x", 3]}, "row 1: 3 is not text"),
        ({"a": "xyz"}, "one string"),
        ({"a": ["\ud800"]}, "surrogate"),
        ({"a": Dictionary(np.array([0, 2]), ["x", "y"])}, "codes outside"),
        ({"a": Dictionary(np.array([-1]), ["x", "y"])}, "codes outside"),
    ],
)
def test_wrong_columns_are_refused_and_leave_nothing(tmp_path, columns, words):
    with pytest.raises(InputError, match=words) as error:
        write_arrow(tmp_path / "t", columns)
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "t"
    write_arrow(path, {"a": np.arange(3)})
    with pytest.raises(InputError):
        write_arrow(path, {"a": np.zeros((1, 1))})
    assert read_arrow(path)["a"].tolist() == [0, 1, 2]
    with pytest.raises(InputError, match="folder"):
        write_arrow(tmp_path / "no" / "t", {"a": np.arange(3)})
    with pytest.raises(InputError):
        write_arrow(tmp_path, {"a": np.arange(3)})
    assert [p.name for p in tmp_path.iterdir()] == ["t"]


def test_list_offsets_are_checked():
    for offsets in ([1, 2], [0, 2, 1], [0, 1]):
        with pytest.raises(InputError):
            ListOf(np.array(offsets), np.zeros(2))
    with pytest.raises(InputError):
        ListOf(np.array([0, 2], np.int32), np.zeros(2))  # type: ignore[arg-type]


# --- others read ours, we read theirs ---------------------------------------------------------


def as_python(column):
    if isinstance(column, ListOf):
        rows = [column[i] for i in range(len(column))]
        if isinstance(column.child, dict):
            return [
                [dict(zip(r, v)) for v in zip(*(as_python(c) for c in r.values()))] for r in rows
            ]
        return [as_python(row) for row in rows]
    if isinstance(column, Dictionary):
        return column.decode()
    return column.tolist() if isinstance(column, np.ndarray) else list(column)


@pytest.mark.parametrize("rows", [0, 5, 100])
def test_pyarrow_reads_ours(tmp_path, rows):
    pa = pytest.importorskip("pyarrow")
    columns = mixed(rows)
    write_arrow(tmp_path / "t", columns, {"unit": "ns"})
    with pa.ipc.open_file(tmp_path / "t") as file:
        theirs = file.read_all()
    theirs.validate(full=True)
    assert theirs.schema.metadata == {b"unit": b"ns"}
    assert pa.types.is_large_list(theirs.schema.field("waits").type)
    assert theirs.schema.field("lane").type == pa.dictionary(pa.int16(), pa.utf8())
    for name, column in columns.items():
        assert theirs[name].to_pylist() == as_python(column), name
    with pa.ipc.open_stream(pa.BufferReader((tmp_path / "t").read_bytes()[8:])) as stream:
        assert stream.read_all().equals(theirs)


def test_polars_reads_ours(tmp_path):
    pl = pytest.importorskip("polars")
    columns = mixed(5)
    write_arrow(tmp_path / "t", columns)
    frame = pl.read_ipc(tmp_path / "t")
    for name, column in columns.items():
        assert frame[name].to_list() == as_python(column), name


def write_with_pyarrow(path, table, batch_rows=None, **options):
    import pyarrow as pa

    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as file:
        file.write_table(table, max_chunksize=batch_rows)


@pytest.mark.parametrize("batch_rows", [None, 2])
def test_we_read_pyarrow(tmp_path, batch_rows):
    pa = pytest.importorskip("pyarrow")
    records = pa.struct([("to", pa.int32()), ("why", pa.dictionary(pa.int8(), pa.utf8()))])
    table = pa.table(
        {
            "i": pa.array([1, 2, 3, 4, 5], pa.int32()),
            "f": pa.array([1.5, None, 3.0, None, 5.0]),
            "b": pa.array([True, False, True, True, False]),
            "s": pa.array(["a", "bé", "", "d", "e"]),
            "ls": pa.array(["a", "b", "c", "d", "e"], pa.large_utf8()),
            "d": pa.array(["x", "y", "x", "x", "y"]).dictionary_encode(),
            "l": pa.array([[1], [], [2, 3], [4], []], pa.list_(pa.int64())),
            "ll": pa.array([["q"], [], ["r", "s"], [], []], pa.large_list(pa.utf8())),
            "r": pa.array(
                [[{"to": 1, "why": "w"}], [], [], [{"to": 2, "why": "v"}] * 2, []],
                pa.large_list(records),
            ),
        }
    ).replace_schema_metadata({"who": "them"})
    write_with_pyarrow(tmp_path / "t", table, batch_rows)
    ours = read_arrow(tmp_path / "t")
    assert ours.metadata == {"who": "them"}
    for name in table.column_names:
        expected = table[name].to_pylist()
        if name == "f":
            assert np.isnan(ours["f"][[1, 3]]).all()
            assert ours["f"][[0, 2, 4]].tolist() == [1.5, 3.0, 5.0]
        else:
            assert as_python(ours[name]) == expected, name


def test_we_read_sliced_and_empty_pyarrow(tmp_path):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"l": [[1], [2, 3], [4]], "s": ["a", "b", "c"], "b": [True, False, True]})
    write_with_pyarrow(tmp_path / "t", table.slice(1, 2))
    ours = read_arrow(tmp_path / "t")
    assert [as_python(ours[n]) for n in "lsb"] == [[[2, 3], [4]], ["b", "c"], [False, True]]
    with pa.ipc.new_file(tmp_path / "e", table.schema):
        pass  # no batch at all
    assert read_arrow(tmp_path / "e").rows == 0
    write_with_pyarrow(tmp_path / "z", table.slice(0, 0))
    assert as_python(read_arrow(tmp_path / "z")["l"]) == []


def test_delta_dictionaries(tmp_path):
    pa = pytest.importorskip("pyarrow")
    kind = pa.dictionary(pa.int8(), pa.utf8())
    schema = pa.schema([("d", kind)])
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with pa.ipc.new_file(tmp_path / "t", schema, options=options) as file:
        for values in (["a"], ["a", "b"]):
            array = pa.DictionaryArray.from_arrays(pa.array([len(values) - 1], pa.int8()), values)
            file.write_batch(pa.record_batch([array], schema))
    assert read_arrow(tmp_path / "t")["d"].decode() == ["a", "b"]


def test_we_read_polars(tmp_path):
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"i": [1, 2], "s": ["a", "b"], "l": [[1.0], [2.0, 3.0]]})
    frame.write_ipc(tmp_path / "t", compression=None, compat_level=pl.CompatLevel.oldest())
    ours = read_arrow(tmp_path / "t")
    assert [as_python(ours[n]) for n in "isl"] == [[1, 2], ["a", "b"], [[1.0], [2.0, 3.0]]]


def test_what_has_no_column_is_refused_by_name(tmp_path):
    pa = pytest.importorskip("pyarrow")
    cases = {
        "timestamp": pa.array([1], pa.timestamp("ns")),
        "utf8_view": pa.array(["a"], pa.string_view()),
        "binary": pa.array([b"a"]),
        "struct": pa.array([{"a": 1}]),
        "int64 values|int values": pa.array([1, 1]).dictionary_encode(),
        "float16": pa.array([np.float16(1)]),
        "1 missing values": pa.array([1, None]),
        "missing values": pa.array(["a", None]),
        "2 missing values": pa.array(["a", None, None]).dictionary_encode(),
    }
    for words, array in cases.items():
        write_with_pyarrow(tmp_path / "t", pa.table({"col": array}))
        with pytest.raises(InputError, match=words) as error:
            read_arrow(tmp_path / "t")
        assert "'col'" in str(error.value)
        assert "\n" not in str(error.value)


def test_compressed_and_doubled_names_are_refused(tmp_path):
    pa = pytest.importorskip("pyarrow")
    write_with_pyarrow(tmp_path / "t", pa.table({"a": [1] * 1000}), compression="zstd")
    with pytest.raises(InputError, match="compressed"):
        read_arrow(tmp_path / "t")
    array = pa.array([1])
    write_with_pyarrow(tmp_path / "t", pa.Table.from_arrays([array, array], names=["a", "a"]))
    with pytest.raises(InputError, match="two columns are named 'a'"):
        read_arrow(tmp_path / "t")


# --- damage -----------------------------------------------------------------------------------


def test_absent_empty_and_foreign_files(tmp_path):
    for name, data, words in [
        ("absent", None, "No such file"),
        ("empty", b"", "empty"),
        ("text", b"hello, this is not a table at all", "not an Arrow"),
        ("short", b"ARROW1", "no footer"),
        ("tail", b"ARROW1\0\0" + b"\xff" * 40 + b"ARROW1", "impossible size"),
        ("zeros", b"ARROW1\0\0" + bytes(40) + struct.pack("<i", 24) + b"ARROW1", "Arrow|header"),
    ]:
        if data is not None:
            (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=words) as error:
            read_arrow(tmp_path / name)
        assert "\n" not in str(error.value)
    with pytest.raises(InputError):
        read_arrow(tmp_path)


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("arrow") / "t"
    write_arrow(path, mixed(6), {"k": "v"})
    return path.read_bytes()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "t"


def open_damaged(path: Path, data: bytes) -> None:
    """An InputError of one line, or a table that can be walked: nothing else."""
    path.unlink(missing_ok=True)  # never cut a mapped file: the reader would be killed
    path.write_bytes(data)
    try:
        table = read_arrow(path)
    except InputError as error:
        message = str(error)
    else:
        message = ""
        for column in table.columns.values():
            assert len(column) == table.rows
            as_python(column)
    assert "\n" not in message


def test_truncated_anywhere(sound, scratch):
    for size in range(0, len(sound), 7):
        scratch.unlink(missing_ok=True)
        scratch.write_bytes(sound[:size])
        with pytest.raises(InputError):
            read_arrow(scratch)


FUZZ = settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@FUZZ
@given(
    flips=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4
    )
)
def test_prop_flipped_bytes_never_crash(sound, scratch, flips):
    data = bytearray(sound)
    for place, value in flips:
        data[int(place * len(data))] = value
    open_damaged(scratch, bytes(data))


@FUZZ
@given(
    place=st.integers(0, 4000),
    value=st.sampled_from([-1, 0, 1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**40]),
    width=st.sampled_from("iq"),
)
@example(place=0, value=-1, width="i")
def test_prop_absurd_numbers_in_the_footer(sound, scratch, place, value, width):
    low, high = {"i": (-(2**31), 2**31), "q": (-(2**63), 2**63)}[width]
    if not low <= value < high:
        return
    data = bytearray(sound)
    at = len(data) - 14 - place % (len(data) - 24)
    struct.pack_into("<" + width, data, at, value)
    open_damaged(scratch, bytes(data))


@FUZZ
@given(st.binary(max_size=300))
def test_prop_garbage_between_the_magic(scratch, middle):
    size = struct.pack("<i", len(middle))
    open_damaged(scratch, b"ARROW1\0\0" + middle + size + b"ARROW1")


# --- properties ---------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def arrays(rows: int):
    return st.sampled_from(NUMBERS).flatmap(
        lambda t: st.binary(min_size=rows * 8, max_size=rows * 8).map(
            lambda raw: (
                (np.frombuffer(raw, "u1")[:rows] % 2).astype(bool)
                if t == "?"
                else np.frombuffer(raw, t)[:rows]
            )
        )
    )


def dictionaries(rows: int):
    return st.lists(texts, min_size=1, max_size=5, unique=True).flatmap(
        lambda values: st.tuples(
            st.sampled_from(["i1", "i4", "u2", "i8"]),
            st.lists(st.integers(0, len(values) - 1), min_size=rows, max_size=rows),
        ).map(lambda pair: Dictionary(np.array(pair[1], pair[0]), values))
    )


def lists(rows: int):
    return st.lists(st.integers(0, 3), min_size=rows, max_size=rows).flatmap(
        lambda sizes: st.one_of(
            flat(sum(sizes)),
            st.dictionaries(st.sampled_from("xyz"), flat(sum(sizes)), min_size=1),
        ).map(lambda child: ListOf(np.cumsum([0, *sizes]), child))
    )


def flat(rows: int):
    return st.one_of(
        arrays(rows), dictionaries(rows), st.lists(texts, min_size=rows, max_size=rows)
    )


tables = st.integers(0, 12).flatmap(
    lambda rows: st.dictionaries(texts, st.one_of(flat(rows), lists(rows)), max_size=5)
)


@settings(max_examples=200, deadline=None)
@given(columns=tables, metadata=st.dictionaries(texts, texts, max_size=3))
def test_prop_reading_gives_back_what_was_written(tmp_path_factory, columns, metadata):
    path = tmp_path_factory.getbasetemp() / f"prop-{os.getpid()}"
    write_arrow(path, columns, metadata)
    table = read_arrow(path)
    assert same(table, columns)
    assert table.metadata == metadata
