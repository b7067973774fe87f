"""Which files make a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnomon.errors import InputError
from gnomon.systems.training.pipeline import read_job
from gnomon.systems.training.sources import find_trace, find_traces, read_traces
from tests.sim.trace.traces import op, write_job, write_trace


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")


def names(found):
    files, others = found
    return [file.name for file in files], others


def test_a_file_is_itself(tmp_path):
    assert find_traces(tmp_path / "x.json") == ([tmp_path / "x.json"], 0)


def test_files_named_after_ranks_make_a_job_in_order_of_the_ranks(tmp_path):
    touch(tmp_path, "rank10.json.gz", "rank2.json.gz", "rank0.json.gz", "meta.json", "et.json.gz",
          "notes.txt")  # fmt: skip
    assert names(find_traces(tmp_path)) == (
        ["rank0.json.gz", "rank2.json.gz", "rank10.json.gz"],
        0,
    )
    touch(tmp_path, "kineto.json")
    assert names(find_traces(tmp_path))[1] == 1
    assert find_trace(tmp_path) == (tmp_path / "rank0.json.gz", 3)


def test_of_other_files_one_is_meant(tmp_path):
    touch(tmp_path, "b.json", "a.json.zst", "host.pt.trace.json")
    assert names(find_traces(tmp_path)) == (["host.pt.trace.json"], 2)
    touch(tmp_path, "kineto.json.gz")
    assert names(find_traces(tmp_path)) == (["kineto.json.gz"], 3)
    # Of two files of one rank the later by name is meant.
    folder = tmp_path / "twice"
    touch(folder, "rank0_a.json", "rank0_b.json", "rank1_a.json")
    assert names(find_traces(folder)) == (["rank0_b.json", "rank1_a.json"], 1)


def test_a_pattern_means_all_that_fit(tmp_path):
    touch(tmp_path, "a/rank0.json", "b/rank1.json", "b/deep/rank2.json", "b/x.txt")
    (tmp_path / "a" / "rank9.json").mkdir()
    assert names(find_traces(tmp_path / "*" / "rank*.json")) == (["rank0.json", "rank1.json"], 0)
    every = names(find_traces(Path(f"{tmp_path}/**/rank?.json")))
    assert every == (["rank0.json", "rank2.json", "rank1.json"], 0)
    with pytest.raises(InputError, match="no file fits this pattern"):
        find_traces(tmp_path / "rank[x].json")
    # A file that is really called so is no pattern.
    touch(tmp_path, "rank[0].json")
    assert find_traces(tmp_path / "rank[0].json") == ([tmp_path / "rank[0].json"], 0)


def test_a_folder_without_traces_is_told(tmp_path):
    with pytest.raises(InputError, match="no profiler trace in this folder"):
        find_traces(tmp_path)


def test_a_bad_rank_is_named(tmp_path):
    write_job(tmp_path)
    (tmp_path / "rank1.json").write_text('{"traceEvents": [')
    files, _ = find_traces(tmp_path)
    with pytest.raises(
        InputError, match=r"rank 1 of 2 cannot be used: the JSON ends early"
    ) as bad:
        read_traces(files)
    assert str(tmp_path / "rank1.json") in str(bad.value)
    # One file is one file.
    with pytest.raises(InputError, match=r"rank1\.json: the JSON ends early"):
        read_traces(files[1:])


def test_a_job_is_read_from_a_folder_or_a_pattern(tmp_path):
    write_job(tmp_path, ranks=3)
    write_trace(tmp_path / "kineto.json", op(0, 1))
    job, sources, passed_over = read_job(tmp_path)
    assert job.ranks == (0, 1, 2)
    assert [Path(source).name for source in sources] == ["rank0.json", "rank1.json", "rank2.json"]
    assert passed_over == 1
    job, _, passed_over = read_job(tmp_path / "rank[01].json", complete=False)
    assert (job.ranks, passed_over) == ((0, 1), 0)
