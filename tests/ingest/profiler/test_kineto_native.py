"""The native reader against the slow one, on real traces, random ones and damaged ones."""

from __future__ import annotations

import gzip
import json
import os
import random
import resource
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon import _core
from gnomon.datasets import bundled
from gnomon.errors import InputError
from gnomon.ingest.formats import identify
from gnomon.ingest.profiler import kineto
from gnomon.ingest.profiler.kineto import read_kineto
from tests.ingest.profiler.reference_kineto import reference_read_kineto

TRACE = bundled("h200-gpt-l6") / "kineto.json.gz"
COLUMNS = ("start_ns", "duration_ns", "correlation", "stream", "device", "bytes")
TEXTS = {"category": "categories", "name": "names", "thread": "threads", "shape": "shapes",
         "extra": "extras"}  # fmt: skip


def assert_same(native, slow):
    assert len(native) == len(slow)
    for column in COLUMNS:
        assert np.array_equal(getattr(native, column), getattr(slow, column)), column
    for code, table in TEXTS.items():
        ours = [getattr(native, table)[i] for i in getattr(native, code).tolist()]
        theirs = [getattr(slow, table)[i] for i in getattr(slow, code).tolist()]
        assert ours == theirs, table
    for fact in ("gpus", "rank", "world_size", "groups", "origin_ns", "dropped"):
        assert getattr(native, fact) == getattr(slow, fact), fact
    assert native.shapes[0] == native.extras[0] == ""


def test_the_bundled_trace_reads_the_same():
    assert_same(read_kineto(TRACE), reference_read_kineto(TRACE))


def public_traces(folder):
    paths = [
        path
        for part in ("hta", "kineto", "tracelens")
        for path in (folder / "public" / part).rglob("*.json.gz")
    ]
    paths += folder.glob("h200*/*/*.json.gz")
    paths += folder.glob("ranks/*/*.json.gz")
    return [path for path in paths if not path.name.endswith(("_et.json.gz", "et.json.gz"))]


@pytest.mark.data
def test_a_public_trace_of_each_folder_reads_the_same(public_data):
    """The smallest of each, unless it is large; all of them are among the slow tests."""
    smallest = {}
    for path in sorted(public_traces(public_data), key=lambda path: -path.stat().st_size):
        if path.stat().st_size < 250_000:
            smallest[path.parent] = path
    assert len(smallest) > 15
    for path in smallest.values():
        assert_same(read_kineto(path, cache=False), reference_read_kineto(path))


@pytest.mark.data
@pytest.mark.slow
def test_every_public_trace_reads_the_same(public_data):
    for path in public_traces(public_data):
        assert_same(read_kineto(path, cache=False), reference_read_kineto(path))


texts = st.text(max_size=8)
numbers = (
    st.integers(-(10**15), 10**15)
    | st.decimals(0, 10**12, places=3).map(float)
    | st.floats(0, 1e9)
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
keys = st.sampled_from(["correlation", "stream", "device", "bytes", "External id", "x"])
kept = st.sampled_from(["Input Dims", "Input dims", "Input type", "Concrete Inputs", "dtype", "Seq",
                        "Collective name", "Process Group Ranks", "wait_on_stream", "Dst Rank"])  # fmt: skip
args = st.dictionaries(
    keys | kept | texts,
    st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6),
    max_size=5,
)  # fmt: skip
events = st.fixed_dictionaries(
    {"ph": st.sampled_from(["X", "X", "X", "M", "B", "s"]), "ts": numbers},
    optional={
        "dur": st.integers(0, 10**9) | st.decimals(0, 10**6, places=3).map(float),
        "name": texts | st.sampled_from(["ProfilerStep#1", "gemm<\"x\">"]),
        "cat": st.sampled_from(["kernel", "Kernel", "cpu_op", "Operator", "gpu_user_annotation", "é"]),
        "pid": st.integers(0, 3) | texts, "tid": st.integers(0, 3) | texts, "args": args, "other": args,
    },
)  # fmt: skip


groups = st.fixed_dictionaries(
    {"pg_name": texts, "ranks": st.lists(st.integers(0, 9), max_size=3)},
    optional={"pg_desc": texts, "pg_size": st.integers(0, 9)},
)
abouts = st.fixed_dictionaries(
    {},
    optional={
        "baseTimeNanoseconds": st.integers(0, 2**61),
        "distributedInfo": st.fixed_dictionaries(
            {},
            optional={
                "rank": st.integers(0, 9), "world_size": st.integers(1, 9),
                "pg_config": st.lists(groups, max_size=3), "backend": texts,
            },
        ),
    },
)  # fmt: skip


@given(
    st.lists(events, max_size=6), st.booleans(), st.booleans(), st.integers(1, 40), args, abouts
)
def test_prop_any_trace_in_any_pieces(
    tmp_path_factory, found, ascii_only, bare, piece, more, about
):
    path = tmp_path_factory.mktemp("traces") / "t.json"
    whole = found if bare else {"x": more, "traceEvents": found, "y": more, **about}
    content = json.dumps(whole, ensure_ascii=ascii_only, indent=1 if piece % 2 else None).encode(
        "utf-8", "surrogatepass"
    )
    path.write_bytes(content)
    try:
        slow = reference_read_kineto(path)
    except InputError:
        with pytest.raises(InputError):
            read_kineto(path)
        return
    native = read_kineto(path)
    assert_same(native, slow)
    reader = _core.TraceReader()
    for at in range(0, len(content), piece):
        reader.feed(content[at : at + piece])
    columns = reader.finish()
    assert np.array_equal(
        np.sort(columns.take_start_ns()), np.sort(native.start_ns + reader_base(found))
    )


def reader_base(found) -> int:
    """The earliest start, which the columns count from."""
    from decimal import Decimal

    whole = [e for e in found if e["ph"] == "X" and "dur" in e]
    return min((int(Decimal(repr(e["ts"])).scaleb(3)) for e in whole), default=0)


def mutate(content: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(damaged))
        kind = rng.randrange(5)
        if kind == 0:
            damaged[at] = rng.randrange(256)
        elif kind == 1:
            del damaged[at : at + rng.randrange(1, 30)]
        elif kind == 2:
            damaged[at:at] = rng.choice(
                [b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"NaN", b"1e99999", b"\\ud800"]
            )
        elif kind == 3:
            other = rng.randrange(len(damaged))
            damaged[at:at] = damaged[other : other + rng.randrange(1, 200)]
        else:
            del damaged[at:]
        if not damaged:
            return b""
    return bytes(damaged)


#: What the bundled trace has none of: shapes, collectives, waits for events.
RICH = [
    {"ph": "X", "cat": "cpu_op", "name": "c10d::send", "pid": 1, "tid": 2, "ts": 5, "dur": 2,
     "args": {"Input Dims": [[[4, 8]], []], "Input type": ["float", "Int"],
              "Concrete Inputs": ["", "1"]}},
    {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32", "pid": 0, "tid": 20,
     "ts": 9, "dur": 3,
     "args": {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 9,
              "Out msg nelems": 9, "Group size": 2, "Process Group Name": "0", "Seq": 4,
              "Process Group Ranks": "[0, 1]", "stream": 20, "correlation": 7}},
    {"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "pid": 0, "tid": 7, "ts": 9,
     "dur": 1,
     "args": {"wait_on_stream": 20, "wait_on_cuda_event_record_corr_id": 3, "stream": 7,
              "wait_on_cuda_event_id": 2, "correlation": 9}},
]  # fmt: skip
ABOUT = {
    "baseTimeNanoseconds": 1790857026000000000,
    "distributedInfo": {"rank": 1, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]},
}  # fmt: skip


def damaged_traces(seed: int, rounds: int):
    rng = random.Random(seed)
    whole = json.loads(gzip.decompress(TRACE.read_bytes()))
    about = {key: value for key, value in whole.items() if key != "traceEvents"} | ABOUT
    for _ in range(rounds):
        at = rng.randrange(len(whole["traceEvents"]) - 20)
        some = whole["traceEvents"][at : at + rng.randrange(1, 20)]
        some += rng.sample(RICH, rng.randrange(3))
        yield mutate(json.dumps({**about, "traceEvents": some}).encode(), rng)


def fuzz(seed: int, rounds: int) -> int:
    """Feeds damaged pieces of real traces; returns how many were still read."""
    read = 0
    for content in damaged_traces(seed, rounds):
        reader = _core.TraceReader()
        try:
            for begin in range(0, len(content), 1000):
                reader.feed(content[begin : begin + 1000])
            reader.finish()
            read += 1
        except ValueError as error:
            assert "\n" not in str(error) or "name" in str(error)
    return read


def compare_damaged(path, seed: int, rounds: int) -> int:
    """Whatever of damaged traces the slow reader takes, the native one takes as the same."""
    taken = 0
    for content in damaged_traces(seed, rounds):
        path.write_bytes(content)
        try:
            slow = reference_read_kineto(path)
        except InputError:
            continue
        assert_same(read_kineto(path), slow)
        taken += 1
    return taken


def test_damaged_traces_are_read_or_refused():
    assert 0 < fuzz(seed=1, rounds=3000) < 3000


def test_damaged_traces_read_the_same(tmp_path):
    assert compare_damaged(tmp_path / "t.json", seed=3, rounds=2000) > 100


@pytest.mark.slow
def test_a_hundred_thousand_damaged_traces(tmp_path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert 0 < fuzz(seed=2, rounds=100_000) < 100_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024
    assert compare_damaged(tmp_path / "t.json", seed=4, rounds=20_000) > 1000


def test_endless_strings_and_depths_are_refused(tmp_path):
    (tmp_path / "deep.json").write_bytes(b'{"traceEvents":[{"ph":"X","args":' + b"[" * 10_000_000)
    with pytest.raises(InputError, match="ends early"):
        read_kineto(tmp_path / "deep.json")
    (tmp_path / "long.json").write_bytes(b'{"traceEvents":[{"ph":"' + b"x" * (70 << 20))
    with pytest.raises(InputError, match="64 MiB"):
        read_kineto(tmp_path / "long.json")


def test_memory_is_that_of_the_columns(tmp_path):
    """A trace of some 100 MB is read by a process that grows by far less."""
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "dur": 1.5,
             "args": {"correlation": 1, "stream": 7, "note": "n" * 250}}  # fmt: skip
    with open(tmp_path / "big.json", "w") as file:
        file.write('{"traceEvents": [')
        file.write(",".join(json.dumps(event | {"ts": i, "tid": i % 9}) for i in range(250_000)))
        file.write("]}")
    code = (
        "import sys, resource\n"
        "from gnomon.ingest.profiler.kineto import read_kineto\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "trace = read_kineto(sys.argv[1])\n"
        "print(len(trace), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "big.json")],
                          capture_output=True, text=True, check=True)  # fmt: skip
    events_read, grown_mb = map(int, done.stdout.split())
    size_mb = (tmp_path / "big.json").stat().st_size >> 20
    assert events_read == 250_000
    assert size_mb > 80
    assert grown_mb < size_mb


# --- the columnar copy ---------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GNOMON_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_second_read_maps_the_copy_and_gives_the_same(cache):
    first = read_kineto(TRACE)
    assert [p.suffix for p in cache.iterdir()] == [".arrow"]
    second = read_kineto(TRACE)
    assert not second.start_ns.flags.owndata
    assert_same(second, first)


def test_a_changed_file_is_read_again(cache, tmp_path):
    path = tmp_path / "t.json"
    event = {"ph": "X", "ts": 1, "dur": 1, "name": "n" * 300_000}
    path.write_text(json.dumps([event]))
    assert len(read_kineto(path)) == 1
    path.write_text(json.dumps([event, event]))
    assert len(read_kineto(path)) == 2


@pytest.mark.parametrize("damage", [b"", b"ARROW1", None])
def test_a_damaged_copy_is_read_past(cache, damage):
    first = read_kineto(TRACE)
    (copy,) = cache.iterdir()
    content = copy.read_bytes()
    copy.unlink()  # the first trace still has it mapped
    copy.write_bytes(content[: len(content) // 2] if damage is None else damage)
    assert_same(read_kineto(TRACE), first)


def test_no_copy_where_none_is_wanted_or_possible(cache, monkeypatch, tmp_path):
    read_kineto(TRACE, cache=False)
    monkeypatch.setenv("GNOMON_CACHE", "off")
    read_kineto(TRACE)
    assert not cache.exists()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GNOMON_CACHE", str(tmp_path / "file" / "below"))
    assert len(read_kineto(TRACE)) == 8977


def test_a_kill_while_copying_leaves_no_half_copy(cache):
    """Stopped at every write in turn: afterwards there is a whole copy or none."""
    code = (
        "import os, sys\n"
        "import gnomon.table.atomic as atomic\n"
        "replace = os.replace\n"
        "os.replace = lambda *a: os.kill(os.getpid(), 9)\n"
        "from gnomon.ingest.profiler.kineto import read_kineto\n"
        "read_kineto(sys.argv[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(TRACE)], check=False)
    assert done.returncode == -9
    assert [p for p in cache.iterdir() if p.suffix == ".arrow"] == []
    assert len(read_kineto(TRACE)) == 8977
    assert len([p for p in cache.iterdir() if p.suffix == ".arrow"]) == 1


def test_a_broken_file_is_not_copied(cache, tmp_path):
    (tmp_path / "cut.json.gz").write_bytes(TRACE.read_bytes()[:-100_00])
    with pytest.raises(InputError, match="ends early"):
        read_kineto(tmp_path / "cut.json.gz")
    assert not cache.exists() or list(cache.iterdir()) == []


def test_a_file_replaced_while_it_is_read_is_not_remembered_as_the_new_one(
    cache, tmp_path, monkeypatch
):
    path = tmp_path / "t.json"

    def write(name):
        path.write_text(
            json.dumps([{"ph": "X", "ts": 1, "dur": 1, "name": name, "pad": "p" * 300_000}])
        )

    write("old")
    real = kineto.read_pieces

    def replaced_meanwhile(place):
        pieces = list(real(place))
        write("new")
        yield from pieces

    monkeypatch.setattr(kineto, "read_pieces", replaced_meanwhile)
    assert read_kineto(path).names == ("old",)
    monkeypatch.setattr(kineto, "read_pieces", real)
    assert read_kineto(path).names == ("new",)


def test_a_copy_with_the_same_size_and_date_is_another_file(cache, tmp_path):
    path = tmp_path / "t.json"
    path.write_text(
        json.dumps([{"ph": "X", "ts": 1, "dur": 1, "name": "a", "pad": "p" * 300_000}])
    )
    date = path.stat().st_mtime_ns
    assert read_kineto(path).names == ("a",)
    path.write_text(path.read_text().replace('"a"', '"b"'))
    os.utime(path, ns=(date, date))
    assert read_kineto(path).names == ("b",)


def test_users_without_a_home_have_no_cache_and_no_trouble(monkeypatch):
    monkeypatch.delenv("GNOMON_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("pathlib.Path.home", homeless)
    assert len(read_kineto(TRACE)) == 8977
    monkeypatch.setenv("GNOMON_CACHE", "/" + "x" * 300)
    assert len(read_kineto(TRACE)) == 8977


@pytest.mark.parametrize(
    "extra",
    [
        '"distributedInfo": null', '"distributedInfo": {"rank": "3"}', '"deviceProperties": null',
        '"deviceProperties": [{"name": null}]', '"distributedInfo": 7',
    ],
)  # fmt: skip
def test_odd_words_about_the_machine_do_not_cost_the_trace(tmp_path, extra):
    events = (
        r'[{"ph":"X","ts":"1.5","dur":1,"name":null},{"ph":"X","ts":2,"dur":1,"name":"\ud800x"}]'
    )
    (tmp_path / "t.json").write_text(f'{{{extra}, "traceEvents": {events}}}')
    trace = read_kineto(tmp_path / "t.json")
    assert trace.names == ("", "\ufffdx")
    assert trace.start_ns.tolist() == [0, 500]
    assert trace.rank in (None, 3)


def test_events_a_century_apart_are_refused(tmp_path):
    far = '[{"ph":"X","ts":-4500000000000000,"dur":1}, {"ph":"X","ts":4500000000000000,"dur":1}]'
    (tmp_path / "t.json").write_text(far)
    with pytest.raises(InputError, match="century apart"):
        read_kineto(tmp_path / "t.json")


@pytest.mark.parametrize(
    "text",
    [
        '\ufeff{"traceEvents": []}', '{"pad": "%s", "traceEvents": []}' % ("x" * 9000),
        " " * 5000 + '{"traceEvents": []}', '{"traceEvents": [{"name": "nodes chakra"}]}',
        '[{"args": {"x": "%s"}, "ph": "X"}]' % ("y" * 9000),
    ],
)  # fmt: skip
def test_whatever_can_be_read_is_recognised(tmp_path, text):
    (tmp_path / "t.json").write_text(text)
    assert identify(tmp_path / "t.json").format == "chrome-trace"
