from __future__ import annotations

import gzip
import json
import resource
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.ingest.spark.event_log import read_spark_log, read_spark_logs
from gnomon.ingest.spark.log_files import find_spark_logs, log_lines, looks_like_spark_log
from tests.ingest.spark.spark_events import (
    SMALL,
    app_start,
    executor,
    job,
    job_end,
    lines,
    log_start,
    removed,
    task,
)

DATA = Path(__file__).parents[2] / "data" / "spark"
CUT = "ends of files that were cut short"
NOT_EVENTS = "lines that are no event"
ODD = "events with missing or impossible values"


def write(tmp_path, raw, name="app-1"):
    file = tmp_path / name
    file.write_bytes(raw)
    return file


def check_small(log):
    assert (log.app_name, log.app_id, log.version) == ("test", "app-1", "3.5.3")
    assert (log.started_ms, log.ended_ms, log.in_progress) == (500, 1400, False)
    assert [(e.id, e.cores, e.added_ms) for e in log.executors] == [("0", 1, 900), ("1", 1, 950)]
    assert [(j.id, j.submitted_ms, j.ended_ms, j.succeeded) for j in log.jobs] == [
        (0, 1000, 1200, True),
        (1, 1300, 1340, True),
    ]
    assert [s.parents for s in log.jobs[0].stages] == [(), (), (0, 1)]
    assert log.jobs[0].name == "collect of job 0"
    assert log.tasks.stage.tolist() == [0, 0, 0, 1, 2, 2, 4, 4]
    assert log.tasks.executor.tolist() == [0, 1, 0, 1, 0, 1, 0, 1]
    assert log.tasks.finish_ms[:2].tolist() == [1110, 1120]
    assert log.tasks.cpu_ns.tolist() == [1000] * 8
    assert log.tasks.succeeded.all()
    assert log.dropped == {}


def zstd(raw, *, parts=1):
    size = -(-len(raw) // parts)
    packed = zstandard.ZstdCompressor()
    return b"".join(packed.compress(raw[at : at + size]) for at in range(0, len(raw), size))


def raw_lz4(raw):
    """Blocks that are not packed, and the empty one that ends a stream."""
    size = len(raw).to_bytes(4, "little")
    return b"LZ4Block\x15" + size + size + b"\0" * 4 + raw + b"LZ4Block\x15" + b"\0" * 12


@pytest.mark.parametrize(
    "pack",
    [bytes, gzip.compress, zstd, lambda raw: zstd(raw, parts=3), raw_lz4],
    ids=["plain", "gzip", "zstd", "zstd-frames", "lz4"],
)
@pytest.mark.parametrize("compact", [True, False], ids=["compact", "spaced"])
def test_all_packings_say_the_same(tmp_path, pack, compact):
    check_small(read_spark_log(write(tmp_path, pack(lines(SMALL, compact)))))


def test_a_rolling_folder(tmp_path):
    folder = tmp_path / "eventlog_v2_app-1"
    folder.mkdir()
    raw = lines(SMALL).splitlines(keepends=True)
    write(folder, b"", "appstatus_app-1")
    write(folder, b"junk", ".events_1_app-1.crc")
    write(folder, b"".join(raw[:9]), "events_2_app-1")
    write(folder, zstd(b"".join(raw[9:12])), "events_10_app-1.zstd")
    write(folder, b"".join(raw[12:]), "events_11_app-1")
    check_small(read_spark_log(folder))
    # Older ones that a compact file stands for are not read again.
    write(folder, b"".join(raw[:9]), "events_2_app-1.compact")
    write(folder, lines([job(7, 1, {70: (1, [])})]), "events_1_app-1")
    check_small(read_spark_log(folder))


def test_a_rolling_folder_that_grows(tmp_path):
    folder = tmp_path / "eventlog_v2_app-1"
    folder.mkdir()
    write(folder, b"", "appstatus_app-1.inprogress")
    write(folder, lines(SMALL[:-1]), "events_1_app-1")
    write(folder, b"", "events_2_app-1")
    log = read_spark_log(folder)
    assert log.in_progress
    assert log.dropped == {CUT: 1}
    assert len(log.jobs) == 2


def test_a_folder_of_logs(tmp_path):
    write(tmp_path, lines(SMALL), "app-b")
    write(tmp_path, zstd(lines(SMALL)), "app-a.zstd")
    write(tmp_path, b"a,b\n1,2\n", "notes.csv")
    write(tmp_path, b"", "empty")
    write(tmp_path, b"xx", ".app-b.crc")
    rolling = tmp_path / "eventlog_v2_app-c"
    rolling.mkdir()
    write(rolling, lines(SMALL), "events_1_app-c")
    (tmp_path / "folder").mkdir()
    found = find_spark_logs(tmp_path)
    assert [path.name for path in found] == ["app-a.zstd", "app-b", "eventlog_v2_app-c"]
    logs = read_spark_logs([tmp_path, tmp_path / "app-b"])
    assert len(logs) == 4
    for log in logs:
        check_small(log)


def test_folders_of_folders(tmp_path):
    day = tmp_path / "2026" / "11"
    rolling = day / "eventlog_v2_app-b"
    rolling.mkdir(parents=True)
    write(day, lines(SMALL), "app-a")
    write(rolling, lines(SMALL), "events_1_app-b")
    (day / "again").symlink_to(tmp_path)
    (tmp_path / ".trash").mkdir()
    write(tmp_path / ".trash", lines(SMALL), "app-old")
    assert find_spark_logs(tmp_path) == [day / "app-a", rolling]


@pytest.mark.parametrize(
    ("pack", "cut"), [(bytes, 30), (gzip.compress, 60), (zstd, 30)], ids=["plain", "gzip", "zstd"]
)
def test_a_log_that_is_still_written(tmp_path, pack, cut):
    many = [*SMALL[:5], *(task(0, n, n % 2, 1000 + n, 1003 + n) for n in range(3000))]
    log = read_spark_log(write(tmp_path, pack(lines(many))[:-cut], "app-1.inprogress"))
    assert log.in_progress
    assert sum(log.dropped.values()) >= 1
    assert set(log.dropped) <= {CUT, NOT_EVENTS}
    if pack is bytes:
        assert len(log.tasks) == 2999
    assert log.executors


def test_an_application_without_an_end_is_in_progress(tmp_path):
    assert read_spark_log(write(tmp_path, lines(SMALL[:-1]))).in_progress


def test_damage_in_the_middle_is_counted(tmp_path):
    raw = lines(SMALL).splitlines(keepends=True)
    raw.insert(7, b"}{ rubbish\n")
    raw.insert(8, b'{"Event":"SparkListenerTaskEnd","Stage ID":"x"}\n')
    raw.insert(9, b'{"Event":"SparkListenerTaskEnd","Stage \n')
    raw.insert(10, b"\n")
    raw.insert(11, lines([task(0, 9, 0, 50, 20), task(0, 9, 0, -5, 20), job(5, 1 << 60, {})]))
    log = read_spark_log(write(tmp_path, b"".join(raw)))
    assert log.dropped == {NOT_EVENTS: 2, ODD: 4}
    assert len(log.tasks) == 8


def test_fields_of_other_versions(tmp_path):
    """2.4 has no resource profiles; failed tasks may have no metrics; jobs may lack properties."""
    old_job = job(0, 10, {0: (1, [])})
    del old_job["Properties"]
    lost = task(0, 0, 0, 12, 13, reason="ExecutorLostFailure")
    del lost["Task Metrics"]
    newer = task(0, 0, 0, 14, 19)
    newer["Task Info"]["Partition ID"] = 0
    newer["Task Metrics"]["Executor Deserialize CPU Time"] = 500
    newer["Task Executor Metrics"] = {"JVMHeapMemory": 1}
    killed = task(0, 0, 0, 14, 15, reason="TaskKilled", copy=True)
    killed["Task Metrics"] = None
    events = [
        log_start("2.4.8"),
        app_start(),
        executor(0, 5, cores=4),
        old_job,
        lost,
        newer,
        killed,
        removed(0, 30),
        removed("gone", 31),
        job_end(0, 20),
        job_end(9, 20),
    ]
    log = read_spark_log(write(tmp_path, lines(events)))
    assert log.version == "2.4.8"
    assert log.tasks.succeeded.tolist() == [False, True, False]
    assert log.tasks.speculative.tolist() == [False, False, True]
    assert log.tasks.cpu_ns.tolist() == [0, 1500, 0]
    assert log.executors[0].removed_ms == 30
    assert log.dropped == {"ends of jobs whose start is not there": 1}


def test_an_executor_whose_start_is_not_there(tmp_path):
    log = read_spark_log(write(tmp_path, lines([task(0, 0, 7, 100, 200)])))
    assert [(e.id, e.cores, e.added_ms) for e in log.executors] == [("7", 0, 100)]


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "is empty"),
        (b"\x00\x01\xff" * 1000, "is no Spark event log"),
        (b'{"traceEvents": []}\n', "is no Spark event log"),
        (b"[1, 2]\n" * 200, "is no Spark event log"),
        (b'{"Event":"SparkListenerLogStart"', "is no Spark event log"),
        (b"\x1f\x8brubbish", "gzip"),
        (b"\x28\xb5\x2f\xfdrubbish", "stream is damaged"),
        (b"LZ4Blockrubbish", "stream is damaged"),
        (b"\x82SNAPPY\0rubbish", "stream is damaged"),
    ],
    ids=["empty", "binary", "kineto", "json", "cut", "gzip", "zstd", "lz4", "snappy"],
)
def test_rubbish_gets_one_line(tmp_path, raw, says):
    with pytest.raises(InputError, match=says) as caught:
        read_spark_log(write(tmp_path, raw))
    assert "\n" not in str(caught.value)


def test_nothing_there(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_spark_logs(tmp_path / "none")
    with pytest.raises(InputError, match="holds no Spark event logs"):
        read_spark_logs(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        read_spark_log(tmp_path / "none")


def test_rubbish_is_given_up_early(tmp_path):
    """A large file of something else is not read to its end."""
    file = write(tmp_path, b"a,b,c\n" * 2_000_000)
    tracemalloc.start()
    with pytest.raises(InputError, match="no Spark"):
        read_spark_log(file)
    assert tracemalloc.get_traced_memory()[1] < 200_000_000
    tracemalloc.stop()


def test_memory_does_not_grow_with_what_is_not_needed(tmp_path):
    """60 MB of plans and metrics around a few tasks."""
    plan = lines([{"Event": "org.apache.spark.sql.SomePlan", "plan": "z" * 200_000}])
    with open(tmp_path / "app", "wb") as file:
        for at in range(300):
            file.write(plan + lines([task(0, at, 0, at, at + 1)]))
    tracemalloc.start()
    log = read_spark_log(tmp_path / "app")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(log.tasks) == 300
    assert peak < 12_000_000


@settings(max_examples=60)
@given(st.integers(0, 3000), st.binary(max_size=40))
def test_prop_any_cut_and_any_rubbish_is_survived(tmp_path_factory, at, rubbish):
    raw = lines(SMALL)
    file = tmp_path_factory.mktemp("cut") / "app"
    file.write_bytes(raw[:at] + rubbish)
    try:
        log = read_spark_log(file)
    except InputError as error:
        assert "\n" not in str(error)
        return
    assert len(log.tasks) <= 8


def test_it_is_told_from_its_first_bytes(tmp_path):
    assert looks_like_spark_log(write(tmp_path, lines(SMALL)))
    assert looks_like_spark_log(write(tmp_path, raw_lz4(lines(SMALL))))
    assert not looks_like_spark_log(write(tmp_path, b'{"traceEvents": []}'))
    assert not looks_like_spark_log(tmp_path / "none")


def test_what_a_real_spark_wrote():
    """Spark 4.3 standalone, two executors: an RDD job, one of a cached shuffle, an SQL query."""
    log = read_spark_log(DATA / "small.gz")
    assert log.version == "4.3.0"
    assert not log.in_progress
    assert log.dropped == {}
    assert [len(job.stages) for job in log.jobs] == [3, 2, 1, 2, 2, 3]
    assert all(job.succeeded for job in log.jobs)
    assert len(log.tasks) == 29
    assert log.tasks.succeeded.all()
    assert (log.tasks.cpu_ns > 0).all()


def test_zstd_as_spark_writes_it():
    """The codec's own stream, which was flushed before its last line."""
    counted = Counter()
    found = list(log_lines(DATA / "codec.zstd", counted))
    assert len(found) == 41
    assert found[0].startswith(b'{"Event":"SparkListenerTaskEnd","Stage ID":0')
    assert found[-1].endswith(b'{"Event":"Last"}')
    assert not counted


def test_resources_are_let_go(tmp_path):
    """Looking at many files leaves none open."""
    file = write(tmp_path, lines(SMALL))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    for _ in range(min(limit, 300)):
        assert looks_like_spark_log(file)
    assert json.loads(file.read_bytes().splitlines()[0])["Event"] == "SparkListenerLogStart"
