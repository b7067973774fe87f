from __future__ import annotations

import gzip

import numpy as np
import pytest

from gnomon.errors import InputError
from gnomon.ingest.jobs.jobs_csv import read_jobs_csv
from gnomon.ingest.moment import find_timezone, parse_instant


def write(tmp_path, text, name="jobs.csv"):
    file = tmp_path / name
    file.write_text(text)
    return file


GOOD = """\
id,start,duration,cores,gpus,machine,utilisation_pct,energy_wh,deadline,price_usd_kwh,work,comment
a,2024-03-01T00:00Z,2h,16,0,own-server,80,500,12h,0.2,10,x
b,2024-03-01T01:00Z,5400,32,4,,,,2024-03-02T00:00Z,,,y
"""


def test_all_columns(tmp_path):
    jobs = read_jobs_csv(write(tmp_path, GOOD))
    start = parse_instant("2024-03-01T00:00Z")
    assert jobs.id == ("a", "b")
    assert jobs.line.tolist() == [2, 3]
    assert jobs.start_ns.tolist() == [start, start + 3600 * 10**9]
    assert ((jobs.end_ns - jobs.start_ns) // 10**9).tolist() == [7200, 5400]
    assert jobs.cores.tolist() == [16, 32]
    assert jobs.gpus.tolist() == [0, 4]
    assert jobs.machine == ("own-server", "")
    assert jobs.utilisation[0] == pytest.approx(0.8)
    assert np.isnan(jobs.utilisation[1])
    assert jobs.energy_kwh[0] == pytest.approx(0.5)
    assert jobs.price_usd_kwh[0] == pytest.approx(0.2)
    assert jobs.work[0] == 10
    assert ((jobs.deadline_ns - start) // (3600 * 10**9)).tolist() == [12, 24]
    assert jobs.notes == (
        "Columns not read: comment.",
        "Numbers in column 'duration' without a unit count as seconds.",
    )
    assert jobs.at(1).endswith("jobs.csv line 3")


@pytest.mark.parametrize(
    "text",
    [
        "arrival,end,cpus\n1709251200,1709254800,4\n",
        "Start Time;Duration [h];Cores\n2024-03-01;1;4\n",
        "start_ms\tduration_min\tvcpus\n1709251200000\t60\t4\n",
        "submit,runtime_s,ncpus\n1709251200000,3600,4\n",
        "# a comment\nstart,elapsed,AllocCPUS\n\n2024-03-01T00:00:00+00:00,01:00:00,4\n",
    ],
    ids=["end", "brackets", "units", "epoch-ms", "clock"],
)
def test_columns_by_many_names(tmp_path, text):
    jobs = read_jobs_csv(write(tmp_path, text))
    assert jobs.start_ns.tolist() == [1709251200 * 10**9]
    assert jobs.end_ns.tolist() == [1709254800 * 10**9]
    assert jobs.cores.tolist() == [4]
    assert jobs.deadline_ns.tolist() == [-1]


def test_seconds_of_a_run_local_times_and_gzip(tmp_path):
    jobs = read_jobs_csv(
        write(tmp_path, "arrival,duration,cores,deadline\n0,60,1,100\n0.5,1,2,\n")
    )
    assert jobs.start_ns.tolist() == [0, 500_000_000]
    assert jobs.deadline_ns.tolist() == [100 * 10**9, -1]
    assert jobs.id == ("2", "3")
    local = write(tmp_path, "start,duration,cores\n2024-03-01T01:00,1h,1\n")
    moved = read_jobs_csv(local, zone=find_timezone("+01:00"))
    assert moved.start_ns[0] == 1709251200 * 10**9
    packed = tmp_path / "jobs.csv.gz"
    packed.write_bytes(gzip.compress(GOOD.encode()))
    assert read_jobs_csv(packed).id == ("a", "b")


def test_nanoseconds_survive(tmp_path):
    jobs = read_jobs_csv(
        write(tmp_path, "start_ns,end_ns,cores\n1709251200000000001,1709251200000000003,1\n")
    )
    assert jobs.start_ns.tolist() == [1709251200000000001]
    assert jobs.end_ns.tolist() == [1709251200000000003]


def test_an_end_and_a_duration_may_both_be_there(tmp_path):
    text = "start,end,duration_h,cores\n0,3600,1,1\n0,3601,1,1\n"
    jobs = read_jobs_csv(write(tmp_path, text))
    assert (jobs.end_ns // 10**9).tolist() == [3600, 3601]


@pytest.mark.parametrize(
    ("name", "kwh"),
    [
        ("energy_mWh", 500e-6),
        ("energy_MWh", 500e3),
        ("Energy [MWh]", 500e3),
        ("ENERGY_MWH", 500e3),
        ("energy_mJ", 500e-3 / 3.6e6),
        ("energy_MJ", 500e6 / 3.6e6),
        ("energy_kwh", 500),
    ],
)
def test_a_thousandth_is_no_million(tmp_path, name, kwh):
    jobs = read_jobs_csv(write(tmp_path, f"start,duration,{name}\n0,1,500\n"))
    assert jobs.energy_kwh[0] == pytest.approx(kwh)


def test_a_unit_that_may_be_either_is_refused_where_it_is_read(tmp_path):
    for unit, words in (("mwh", "mwh may be MWh or mWh"), ("mj", "mj may be MJ or mJ")):
        file = write(tmp_path, f"start,duration,energy_{unit}\n0,1,500\n")
        with pytest.raises(InputError, match=f"{words}; write it with its capitals"):
            read_jobs_csv(file)
    # Nobody prices thousandths of a watt-hour.
    priced = write(tmp_path, "start,duration,cores,price_usd_mwh\n0,1,1,50\n")
    assert read_jobs_csv(priced).price_usd_kwh[0] == pytest.approx(0.05)


def test_times_before_1970_are_times(tmp_path):
    text = "start,duration,cores,deadline\n-7200,3600,1,\n1969-12-31T23:00Z,1h,1,3h\n"
    jobs = read_jobs_csv(write(tmp_path, text))
    assert (jobs.start_ns // 10**9).tolist() == [-7200, -3600]
    assert (jobs.end_ns // 10**9).tolist() == [-3600, 0]
    assert jobs.deadline_ns.tolist() == [-1, 2 * 3600 * 10**9]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("start,duration,cores\n", "nothing below it"),
        ("1,2,3\n4,5,6\n", "first line holds values"),
        ("when,duration,cores\n1,2,3\n", "no column says when"),
        ("start,cores\n1,2\n", "how long jobs take"),
        ("start,duration\n1,2\n", "what jobs take"),
        ("start,duration,cores\n1,2\n", "line 2: 2 cells where the header has 3"),
        ("start,duration,cores\n1,2,x\n", "line 2: cores: 'x' is not a number"),
        ("start,duration,cores\n1,2,-1\n", "line 2: cores is negative"),
        ("start,duration,cores\n1,,1\n", "line 2: duration is missing"),
        ("start,duration,cores\n1,-2,1\n", "line 2: duration: .* zero or more"),
        ("start,duration,cores\nsoon,2,1\n", "line 2: start: 'soon' is no time"),
        ("start,end,cores\n5,2,1\n", "line 2: the job ends before it starts"),
        ("start,duration,cores,utilisation\n1,2,1,1.5\n", "line 2: utilisation is above 1"),
        ("start,duration,cores,util_pct\n1,2,1,150\n", "line 2: util_pct is above 100"),
        ("start,duration,cores,deadline\n5,2,1,3\n", "line 2: the deadline lies before the start"),
        ("start,duration,cores,deadline\n-1800,600,1,\n-1800,600,1,-900\n", "line 3: the deadline lies before 1970"),
        ("start,duration,cores,deadline\n-7200,600,1,1h\n", "line 2: the deadline lies before 1970"),
        ("start_ns,duration,cores,deadline_ns\n-5,1,1,-1\n", "line 2: the deadline lies before 1970"),
        ("start,end,duration_h,cores\n0,3600,1,1\n0,3600,50,1\n", "line 3: from start to end it is 1 h 0 min, and the duration says 2 d 2 h 0 min"),
        ("start,duration,cores\n1,2,1\n1,2,x\n3,x,1\n4,1,1\n5,1,y\n", r"line 3: .*\(2 more wrong: lines 4, 6\)"),
    ],
    ids=[
        "empty", "header", "values", "start", "length", "takes", "cells", "number", "negative",
        "missing", "backwards", "time", "order", "busy", "per-cent", "deadline", "negative-deadline", "relative-deadline",
        "minus-one", "disagree", "many",
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_line(tmp_path, text, words):
    with pytest.raises(InputError, match=words) as caught:
        read_jobs_csv(write(tmp_path, text))
    assert "jobs.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_binary_and_absent_files(tmp_path):
    file = tmp_path / "jobs.csv"
    file.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InputError, match="not a text file"):
        read_jobs_csv(file)
    with pytest.raises(InputError, match="check the path"):
        read_jobs_csv(tmp_path / "none.csv")


def test_comments_and_empty_rows_inside_a_table_are_passed_over(tmp_path):
    file = tmp_path / "jobs.csv"
    rows = ["# made by hand", "start,duration,cores", "0,60,8", "# a, note", ",,,,", "", "90,60,4"]
    file.write_text("\n".join(rows))
    jobs = read_jobs_csv(file)
    assert (jobs.line.tolist(), jobs.cores.tolist()) == ([3, 7], [8.0, 4.0])
