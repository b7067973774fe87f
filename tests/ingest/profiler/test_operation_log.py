"""Operation logs: what is read, and what is refused by name."""

from __future__ import annotations

import builtins
import csv
import gzip
import io

import numpy as np
import pytest

from gnomon.errors import InputError, MissingExtra
from gnomon.ingest.profiler.operation_log import looks_like_operation_log, read_operation_log

META = "trial_name: toy\ndp_size: 2\npp_size: 1\nworld_size: 2\n"


def row(**more):
    return {
        "dp_rank": 0, "stage": 0, "rank": 0, "step": 5, "optype": "forward-compute",
        "start_ts": 1.5, "duration": 0.25, "seq_id": 0, "mc": 0, "mb_id": 0, "gmc": 0, **more,
    }  # fmt: skip


ROWS = [
    row(optype="backward-compute", start_ts=101.75, duration=0.5),
    row(start_ts=101.5),
    row(start_ts=101.25, rank=1, dp_rank=1),
    row(start_ts=7.0, step=4, mc="", mb_id="", gmc=""),
]


def text_of(rows):
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def write(folder, rows=ROWS, meta=META, name="trace-toy.csv"):
    if meta is not None:
        (folder / "meta-toy.yaml").write_text(meta)
    (folder / name).write_text(text_of(rows))
    return folder / name


def write_parquet(folder, rows=ROWS, meta=META):
    pyarrow = pytest.importorskip("pyarrow", reason="the 'tables' extra is absent")
    parquet = pytest.importorskip("pyarrow.parquet", reason="the 'tables' extra is absent")
    if meta is not None:
        (folder / "meta-toy.yaml").write_text(meta)
    columns = {key: [None if r[key] == "" else r[key] for r in rows] for key in rows[0]}
    path = folder / "trace-toy.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    return path


def test_rows_come_by_step_rank_and_start(tmp_path):
    log = read_operation_log(write(tmp_path))
    assert log.layout.name == "toy"
    assert (log.layout.dp_size, log.layout.pp_size, log.layout.world_size) == (2, 1, 2)
    assert log.steps.tolist() == [4, 5]
    assert log.step.tolist() == [4, 5, 5, 5]
    assert log.rank.tolist() == [0, 0, 0, 1]
    names = [log.operations[code] for code in log.operation]
    assert names == ["forward-compute", "forward-compute", "backward-compute", "forward-compute"]
    assert log.chunk.tolist() == [-1, 0, 0, 0]


def test_times_count_from_the_start_of_their_step(tmp_path):
    log = read_operation_log(write(tmp_path))
    assert log.start_ns.tolist() == [0, 250_000_000, 500_000_000, 0]
    assert log.end_ns.tolist() == [250_000_000, 500_000_000, 1_000_000_000, 250_000_000]
    assert log.step_ns.tolist() == [250_000_000, 1_000_000_000]


def test_parquet_and_csv_say_the_same(tmp_path):
    from_parquet = read_operation_log(write_parquet(tmp_path))
    from_csv = read_operation_log(write(tmp_path))
    for column in ("operation", "rank", "step", "start_ns", "duration_ns", "micro_batch"):
        np.testing.assert_array_equal(getattr(from_parquet, column), getattr(from_csv, column))
    assert from_parquet.operations == from_csv.operations


def test_gzip_and_a_byte_order_mark(tmp_path):
    path = write(tmp_path)
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + path.read_bytes()))
    assert len(read_operation_log(path)) == 4
    assert looks_like_operation_log(path)


def test_chunks_may_be_absent(tmp_path):
    rows = [{k: v for k, v in r.items() if k not in ("mc", "mb_id", "gmc")} for r in ROWS]
    log = read_operation_log(write(tmp_path, rows))
    assert log.micro_batch.tolist() == log.global_chunk.tolist() == [-1] * 4


@pytest.mark.parametrize("name", ["meta.yaml", "log.yml", "meta-log.yaml"])
def test_the_layout_beside_the_log(name, tmp_path):
    (tmp_path / name).write_text("dp_size: 2\npp_size: 1\n")
    log = read_operation_log(write(tmp_path, meta=None, name="log.csv"))
    assert log.layout.name == "log"
    assert log.layout.world_size == 2


def test_only_some_steps(tmp_path):
    log = read_operation_log(write(tmp_path)).only([4])
    assert log.steps.tolist() == [4]
    assert len(log) == 1
    with pytest.raises(InputError, match="no step was asked for"):
        log.only([])


def test_telling_it_apart(tmp_path):
    assert looks_like_operation_log(write(tmp_path))
    assert looks_like_operation_log(write_parquet(tmp_path))
    assert not looks_like_operation_log(tmp_path / "meta-toy.yaml")
    assert not looks_like_operation_log(tmp_path / "nowhere.csv")
    assert not looks_like_operation_log(tmp_path)
    other = tmp_path / "other.csv"
    other.write_text("time,value\n1,2\n")
    assert not looks_like_operation_log(other)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(b"PAR1")
    assert not looks_like_operation_log(cut)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (dict(duration=-0.5), "row 2 has a duration of -0.5 s"),
        (dict(duration="nan"), "row 2 has duration nan"),
        (dict(start_ts="inf"), "row 2 has start_ts inf"),
        (dict(start_ts=""), "row 2 has start_ts nan"),
        (dict(start_ts=1e12), "row 2 has start_ts 1e\\+12; times are in seconds"),
        (dict(duration="soon"), "line 3: duration is 'soon', not a number"),
        (dict(rank=0.5), "row 2 has rank 0.5, not a small whole number"),
        (dict(step=-7), "row 2 has step -7"),
        (dict(optype=" "), "row 2 names no operation"),
        (dict(stage=1), "row 2 has stage 1; the layout has 1"),
        (dict(dp_rank=-1), "row 2 has dp_rank -1"),
        (dict(rank=2), "row 2 has rank 2; the layout has 2"),
        (dict(dp_rank=1), "rank 0 has two places"),
        (dict(optype="backward-compute"), "backward-compute 0 of rank 0 is there twice in step 5"),
    ],
)
def test_what_is_wrong_is_named(change, what, tmp_path):
    rows = list(ROWS)
    rows[1] = row(start_ts=101.5) | change
    with pytest.raises(InputError, match=what):
        read_operation_log(write(tmp_path, rows))


def test_two_ranks_in_one_place(tmp_path):
    rows = [row(), row(rank=1, start_ts=2.0)]
    with pytest.raises(InputError, match="2 ranks are at dp_rank 0, stage 0; log one rank"):
        read_operation_log(write(tmp_path, rows))


@pytest.mark.parametrize("missing", ["optype", "rank", "duration", "seq_id"])
@pytest.mark.parametrize("writer", [write, write_parquet])
def test_a_missing_column(missing, writer, tmp_path):
    rows = [{k: v for k, v in r.items() if k != missing} for r in ROWS]
    path = writer(tmp_path, rows)
    with pytest.raises(InputError, match=f"has no column '{missing}'"):
        read_operation_log(path)
    assert not looks_like_operation_log(path)


@pytest.mark.parametrize("text", ["", text_of(ROWS).split("\n")[0] + "\n"])
def test_an_empty_log(text, tmp_path):
    path = write(tmp_path)
    path.write_text(text)
    with pytest.raises(InputError, match=r"is empty|has no rows"):
        read_operation_log(path)


def test_a_csv_that_was_cut(tmp_path):
    path = write(tmp_path)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(InputError, match=r"line 5: .* cells.*was the file cut short"):
        read_operation_log(path)


def test_neither_parquet_nor_csv(tmp_path):
    path = write(tmp_path)
    path.write_bytes(b"\xff\xfe\x00\x00" * 9)
    with pytest.raises(InputError, match="expected Parquet or CSV"):
        read_operation_log(path)


def test_a_damaged_parquet_file(tmp_path):
    path = write_parquet(tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="the Parquet file cannot be read"):
        read_operation_log(path)


def test_text_where_numbers_should_be(tmp_path):
    rows = [r | {"start_ts": "noon"} for r in ROWS]
    with pytest.raises(InputError, match="'start_ts' does not hold numbers"):
        read_operation_log(write_parquet(tmp_path, rows))


@pytest.mark.parametrize(
    ("meta", "what"),
    [
        (None, "the layout of the job is not there; put meta-toy.yaml"),
        ("pp_size: 1\n", "is not the layout of a job .*dp_size"),
        ("dp_size: two\npp_size: 1\n", "is not the layout of a job"),
        ("dp_size: [\n", "is not the layout of a job"),
        ("", "is not the layout of a job"),
        ("dp_size: 0\npp_size: 1\n", "every size of a layout is at least 1"),
        ("dp_size: 2\npp_size: 1\nworld_size: 3\n", "world_size is 3.*multiply to 2"),
    ],
)
def test_a_wrong_layout(meta, what, tmp_path):
    with pytest.raises(InputError, match=what):
        read_operation_log(write(tmp_path, meta=meta))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_operation_log(tmp_path / "nowhere.parquet")


def test_without_pyarrow_the_install_line_is_given(tmp_path, monkeypatch):
    path = write_parquet(tmp_path)
    found = builtins.__import__

    def absent(name, *args, **kwargs):
        if name.split(".")[0] == "pyarrow":
            raise ImportError(name)
        return found(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingExtra, match=r"pip install 'gnomon\[tables\]'"):
        read_operation_log(path)


@pytest.mark.data
@pytest.mark.parametrize(
    ("job", "rows", "ranks", "steps"), [("SE", 107_328, 64, 43), ("ST", 6_784, 8, 32)]
)
def test_published_logs(job, rows, ranks, steps, public_data):
    pytest.importorskip("pyarrow", reason="the 'tables' extra is absent")
    path = public_data / "public" / "straggler" / f"trace-{job}.parquet"
    assert looks_like_operation_log(path)
    log = read_operation_log(path)
    assert (len(log), len(np.unique(log.rank)), len(log.steps)) == (rows, ranks, steps)
    assert log.layout.name == job
