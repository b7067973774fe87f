from __future__ import annotations

import numpy as np
import pytest

from gnomon.errors import InputError
from gnomon.ingest.jobs.sacct import is_sacct, read_sacct
from gnomon.ingest.moment import find_timezone, parse_instant

HEADER = "JobID|JobName|State|Start|End|Elapsed|AllocCPUS|CPUTimeRAW|TotalCPU|ConsumedEnergyRaw|AllocTRES|NodeList\n"
ROWS = """\
101|a|COMPLETED|2024-01-05T10:00:00|2024-01-05T12:00:00|02:00:00|16|115200|1-00:00:00|0|billing=16,cpu=16,mem=64G,node=1|n001
101.batch|batch|COMPLETED|2024-01-05T10:00:00|2024-01-05T12:00:00|02:00:00|16|115200|1-00:00:00|720000|cpu=16,mem=64G,node=1|n001
101.0|x|COMPLETED|2024-01-05T10:00:00|2024-01-05T11:00:00|01:00:00|16|57600|10:00:00|300000|cpu=16|n001
102_3|b|RUNNING|2024-01-05T11:30:00|Unknown|1-01:30:00|32|0|00:00:00||billing=32,cpu=32,gres/gpu:a100=4,gres/gpu=4,node=2|n[002-003]
103|c|PENDING|Unknown|Unknown|00:00:00|0|0|00:00:00|||None assigned
104|d|CANCELLED by 5|2024-01-05T13:00:00|2024-01-05T13:00:00|00:00:00|4|0|00:00:00|||
105.0|e|COMPLETED|2024-01-05T10:00:00|2024-01-05T10:30:00|00:30:00|8|14400|01:00:00|1.8M|cpu=8|n004
"""


def write(tmp_path, text):
    file = tmp_path / "sacct.txt"
    file.write_text(text)
    return file


def test_steps_are_folded_and_what_is_left_out_is_told(tmp_path):
    jobs = read_sacct(write(tmp_path, HEADER + ROWS))
    assert jobs.id == ("101", "102_3", "105")
    assert jobs.line.tolist() == [2, 5, 8]
    assert ((jobs.end_ns - jobs.start_ns) / 3.6e12).tolist() == [2, 25.5, 0.5]
    assert jobs.cores.tolist() == [16, 32, 8]
    assert jobs.gpus.tolist() == [0, 4, 0]
    assert jobs.gpu == ("", "a100", "")
    assert jobs.utilisation[0] == pytest.approx(86400 / 115200)
    assert np.isnan(jobs.utilisation[1])
    assert jobs.utilisation[2] == pytest.approx(3600 / 14400)
    # The batch step spans the others: their energy is not added to its.
    assert jobs.energy_kwh[0] == pytest.approx(0.2)
    assert np.isnan(jobs.energy_kwh[1])
    assert jobs.energy_kwh[2] == pytest.approx(0.5)
    said = " ".join(jobs.notes)
    for words in (
        "read as UTC",
        "Not started, left out: 1",
        "Ran for no time, left out: 1",
        "Still running",
        "put together from their steps: 1",
        "2 of 3 jobs",
    ):
        assert words in said


def test_local_time_and_trailing_bars(tmp_path):
    lines = "JobID|Start|End|NCPUS|\n1|2024-01-05T10:00:00|2024-01-05T12:00:00|2|\n"
    jobs = read_sacct(write(tmp_path, lines), zone=find_timezone("Europe/Berlin"))
    assert jobs.start_ns[0] == parse_instant("2024-01-05T09:00Z")
    assert jobs.notes == ()
    assert is_sacct(lines.encode())
    assert not is_sacct(b"id,start\n")
    assert not is_sacct(b"")


def hours_of(jobs):
    return ((jobs.end_ns - jobs.start_ns) / 3.6e12).tolist()


def test_every_run_of_a_requeued_job_counts(tmp_path):
    lines = """\
JobID|State|Start|End|AllocCPUS|ConsumedEnergyRaw
1|NODE_FAIL|2024-01-05T10:00:00|2024-01-05T20:00:00|2|
1.batch|CANCELLED|2024-01-05T10:00:00|2024-01-05T20:00:00|2|3600000
2|COMPLETED|2024-01-05T10:00:00|2024-01-05T11:00:00|2|
1|COMPLETED|2024-01-06T13:00:00|2024-01-06T14:00:00|4|
1.batch|COMPLETED|2024-01-06T13:00:00|2024-01-06T14:00:00|4|360000
1|PENDING|Unknown|Unknown|0|
"""
    jobs = read_sacct(write(tmp_path, lines))
    assert jobs.id == ("1", "1 run 2", "2")
    assert jobs.line.tolist() == [2, 5, 4]
    assert hours_of(jobs) == [10, 1, 1]
    assert jobs.cores.tolist() == [2, 4, 2]
    assert jobs.energy_kwh[:2].tolist() == pytest.approx([1.0, 0.1])
    assert "Further runs of jobs that were requeued, each a row: 1." in jobs.notes


def test_a_run_that_two_exports_share_counts_once(tmp_path):
    lines = """\
JobID|Start|End|Elapsed|NCPUS|TotalCPU
1|2024-01-05T10:00:00|Unknown|01:00:00|2|
1.0|2024-01-05T10:00:00|Unknown|01:00:00|2|01:00:00
1|2024-01-05T10:00:00|2024-01-05T12:00:00|02:00:00|2|
1.0|2024-01-05T10:00:00|2024-01-05T12:00:00|02:00:00|2|02:00:00
"""
    jobs = read_sacct(write(tmp_path, lines))
    assert jobs.id == ("1",)
    assert hours_of(jobs) == [2]
    assert jobs.utilisation[0] == pytest.approx(0.5)
    assert "Rows that repeat a run, of which the last counts: 1." in jobs.notes


def test_elapsed_goes_before_an_end_on_a_clock_that_was_set_back(tmp_path):
    lines = """\
JobID|Start|End|Elapsed|NCPUS
1|2024-10-27T02:45:00|2024-10-27T02:15:00|00:30:00|4
2|2024-10-27T01:45:00|2024-10-27T02:45:00|02:00:00|4
3|2024-10-27T12:00:00|2024-10-27T13:00:00|01:00:00|4
4|2024-10-27T12:00:00|2024-10-27T13:00:00||4
"""
    jobs = read_sacct(write(tmp_path, lines), zone=find_timezone("Europe/Berlin"))
    assert hours_of(jobs) == [0.5, 2, 1, 1]
    (note,) = jobs.notes
    assert note.startswith("Whose End is not Start + Elapsed")
    assert note.endswith(": 2.")


def test_what_slurm_calls_invalid_is_unknown(tmp_path):
    lines = """\
JobID|Start|End|Elapsed|NCPUS|TotalCPU
1|2024-10-01T00:00:00|2024-10-01T10:00:00|10:00:00|4|INVALID
2|2024-10-01T00:00:00|2024-10-01T10:00:00|INVALID|4|20:00:00
"""
    jobs = read_sacct(write(tmp_path, lines), zone=find_timezone("+01:00"))
    assert hours_of(jobs) == [10, 10]
    assert np.isnan(jobs.utilisation[0])
    assert jobs.utilisation[1] == pytest.approx(0.5)
    assert jobs.notes == ("With a time that Slurm calls INVALID, taken as unknown: 2.",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("a|b\n1|2\n", "no field JobID"),
        ("JobID|End|NCPUS\n1|2|3\n", "when jobs ran"),
        ("JobID|Start|End\n1|2|3\n", "what jobs held"),
        ("JobID|Start|End|NCPUS\n", "no job below it"),
        ("JobID|Start|End|NCPUS\n1|2\n", "line 2: 2 cells where the header has 4"),
        ("JobID|Start|End|NCPUS\n|2024-01-05|2024-01-06|1\n", "line 2: JobID is missing"),
        ("JobID|Start|End|NCPUS\n1|soon|2024-01-06|1\n", "line 2: start: 'soon' is no time"),
        ("JobID|Start|End|NCPUS\n1|2024-01-06|2024-01-05|1\n", "line 2: the job ends before it starts"),
        ("JobID|Start|End|NCPUS\n1|2024-01-05|Unknown|1\n", "line 2: the job has no End and no Elapsed"),
        ("JobID|Start|End|NCPUS\n1|2024-01-05|2024-01-06|many\n", "line 2: 'many' is not a number"),
        ("JobID|Start|Elapsed|NCPUS\n1|2024-01-05|long|1\n", "line 2: elapsed: 'long' is no duration"),
        ("JobID|Start|End|AllocTRES\n1|2024-01-05|2024-01-06|cpu=x\n", "line 2: AllocTRES"),
        ("JobID|Start|End|NCPUS\n1|Unknown|Unknown|1\n", "no job in it has run"),
    ],
    ids=[
        "empty", "id", "when", "held", "header", "fields", "no-id", "time", "order", "open",
        "number", "elapsed", "tres", "pending",
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_line(tmp_path, text, words):
    with pytest.raises(InputError, match=words) as caught:
        read_sacct(write(tmp_path, text))
    assert "\n" not in str(caught.value)
