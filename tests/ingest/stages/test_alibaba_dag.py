from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.ingest.stages.alibaba_dag import looks_like_alibaba, read_alibaba

HEADER = "task_name,task_count,job_id,none1,status,start_time,end_time,none2,none3\n"
ROWS = """\
M1,10,j_1,1,Terminated,1000,1030,100,0.2
R2_1,3,j_1,1,Terminated,1030,1030,100,0.2
J3_1_2,1,j_1,1,Terminated,1031,1091,50,0.1
task_Nzg3ODAwMDgwMzkzNTc=,5,j_2,3,Terminated,900,910,100,0.2
MergeTask,1,j_2,3,Terminated,905,915,100,0.2
J1_3_2,1,j_3,1,Terminated,1200,1300,50,0.1
M3_Stg4,2,j_3,1,Terminated,1100,1110,50,0.1
R2_3_Stg4,2,j_3,1,Terminated,1110,1120,50,0.1
"""


def write(tmp_path, text, name="batch_task.csv"):
    file = tmp_path / name
    raw = text if isinstance(text, bytes) else text.encode()
    file.write_bytes(gzip.compress(raw) if name.endswith("gz") else raw)
    return file


@pytest.mark.parametrize(
    ("text", "name"),
    [(ROWS, "a.csv"), (HEADER + ROWS, "a.csv"), (ROWS, "a.csv.gz"), ("\ufeff" + ROWS, "a.csv")],
    ids=["plain", "header", "gzip", "mark"],
)
def test_whole_jobs(tmp_path, text, name):
    trace = read_alibaba(write(tmp_path, text, name))
    assert trace.left_out == {}
    assert trace.kinds.names == ("j_2", "j_1", "j_3")
    assert (trace.jobs.arrival_ns // 10**9).tolist() == [0, 100, 200]
    kinds = trace.kinds
    names = [[kinds.stage_names[s] for s in kinds.stages_of(k)] for k in range(3)]
    assert names[1] == ["M1", "R2_1", "J3_1_2"]
    assert names[2] == ["M3_Stg4", "R2_3_Stg4", "J1_3_2"]  # numbers are no order
    assert [kinds.parents_of(s).tolist() for s in kinds.stages_of(1)] == [[], [2], [2, 3]]
    assert [kinds.parents_of(s).tolist() for s in kinds.stages_of(2)] == [[], [5], [5, 6]]
    assert [kinds.parents_of(s).tolist() for s in kinds.stages_of(0)] == [[], []]
    assert kinds.tasks[kinds.stages_of(1)].tolist() == [10, 3, 1]
    assert (kinds.typical_ns / 1e9)[kinds.stages_of(1)].tolist() == [30.0, 0.5, 60.0]


BROKEN = {
    "jobs whose parents are missing": "R2_1,1,j_9,1,Terminated,5,6,1,1\n",
    "jobs that failed or did not end": "M1,1,j_9,1,Failed,5,6,1,1\n",
    "jobs with a name that was cut off": "M3_2_4_5_6_7_8_9_10_11_12_13_14_15_16_17_18_19_20_,1,"
    "j_9,1,Terminated,5,6,1,1\n",
    "jobs with two stages of one number": "M1,1,j_9,1,Terminated,5,6,1,1\n"
    "R1,1,j_9,1,Terminated,5,6,1,1\n",
    "jobs whose stages wait for one another": "M1_2,1,j_9,1,Terminated,5,6,1,1\n"
    "R2_1,1,j_9,1,Terminated,5,6,1,1\n",
    "jobs with a stage whose name says nothing": "what,1,j_9,1,Terminated,5,6,1,1\n",
    "jobs with a stage without instances, or that ends before it starts": "M1,1,j_9,1,"
    "Terminated,9,6,1,1\n",
    "rows without a job": "M1,1,,1,Terminated,5,6,1,1\n",
}


@pytest.mark.parametrize("why", BROKEN, ids=lambda why: why.replace(" ", "-").replace(",", ""))
def test_what_is_not_whole_is_counted(tmp_path, why):
    trace = read_alibaba(write(tmp_path, ROWS + BROKEN[why]))
    assert trace.left_out == {why: 1}
    assert len(trace.jobs) == 3


def test_a_stage_that_waits_takes_its_job_out(tmp_path):
    trace = read_alibaba(write(tmp_path, ROWS + "M4,,j_1,1,Waiting,,,,\n"))
    assert trace.left_out == {"jobs that failed or did not end": 1}
    assert trace.kinds.names == ("j_2", "j_3")


def test_only_so_many_jobs(tmp_path):
    trace = read_alibaba(write(tmp_path, ROWS), most_jobs=2)
    assert trace.kinds.names == ("j_2", "j_1")
    assert trace.left_out == {"jobs beyond the number asked for": 1}


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "is empty"),
        (HEADER.encode(), "no job is whole"),
        (b"\x00\xff\xfe" * 50, "not a text file"),
        (b"{}\n", "1 cells, not 9"),
        ((ROWS + "M1,1,j_5,1,Termi").encode(), "cut short"),
        (b"M1,x,j_1,1,Terminated,1,2,3,4\n", "number of instances is 'x'"),
        (b"M1,1,j_1,1,Terminated,1,1e99,3,4\n", "the time is"),
        (b"M1,1.5,j_1,1,Terminated,1,2,3,4\n", "number of instances"),
        (b"M1,1,j_1,1,Terminated,nan,2,3,4\n", "the time is"),
        (b"R2_1,1,j_1,1,Terminated,1,2,3,4\n", "1 jobs whose parents are missing"),
        (gzip.compress(ROWS.encode() * 50)[:-30], "ends early"),
    ],
    ids=[
        "empty",
        "header",
        "binary",
        "json",
        "cut",
        "number",
        "far",
        "part",
        "nan",
        "orphans",
        "gz",
    ],
)
def test_rubbish_gets_one_line(tmp_path, raw, says):
    with pytest.raises(InputError, match=says) as caught:
        read_alibaba(write(tmp_path, raw))
    assert "\n" not in str(caught.value)


def test_it_is_told_from_its_first_lines():
    assert looks_like_alibaba(ROWS.encode())
    assert looks_like_alibaba((HEADER + ROWS).encode())
    assert not looks_like_alibaba(b"id,start,duration,cores\na,1,2,3\n")
    assert not looks_like_alibaba(b"")


@given(st.lists(st.sets(st.integers(1, 6)), min_size=6, max_size=6), st.randoms())
def test_prop_any_order_of_rows_gives_the_same_graph(tmp_path_factory, parents, random):
    names = [
        "_".join([f"M{n}", *map(str, sorted(p for p in of_one if p < n))])
        for n, of_one in enumerate(parents, 1)
    ]
    rows = [f"{name},1,j_1,1,Terminated,{n},{n + 1},1,1\n" for n, name in enumerate(names)]
    random.shuffle(rows)
    file = tmp_path_factory.mktemp("rows") / "batch_task.csv"
    file.write_text("".join(rows))
    kinds = read_alibaba(file).kinds
    edges = {
        (kinds.stage_names[p].split("_")[0], kinds.stage_names[s].split("_")[0])
        for s in range(6)
        for p in kinds.parents_of(s)
    }
    assert edges == {(f"M{p}", f"M{n}") for n, of in enumerate(parents, 1) for p in of if p < n}


@pytest.mark.data
def test_the_public_sample(public_data):
    trace = read_alibaba(public_data / "batch/alibaba-dag/sorted_batch_task.csv")
    # It keeps each task name once, so that hardly a job is whole.
    assert len(trace.jobs) == 8
    assert np.diff(trace.kinds.first_stage).max() == 3
    assert trace.left_out["jobs whose parents are missing"] == 6089
    assert sum(trace.left_out.values()) + len(trace.jobs) == 6420
