"""On real traces: every step comes back, one step foretells another, ranks wait for one another."""

from __future__ import annotations

import tarfile

import numpy as np
import pytest

from gnomon.errors import GnomonError, InputError
from gnomon.sim import replay
from gnomon.sim.trace.steps import held_out, step_rows
from gnomon.systems.training.pipeline import read_job
from gnomon.systems.training.whatif import DelayRank, play, usual_questions
from tests.conftest import data_folder

pytestmark = pytest.mark.data

H200 = [
    "gpt-b2",
    "gpt-base",
    "gpt-cpubound",
    "gpt-h1024",
    "gpt-l6",
    "linear",
    "overlap",
    "resnet50",
]
RANKS = {"dp1-pp4-l8-h512-m8": 4, "dp2-pp1-l8-h512-m8": 2, "dp2-pp2-l8-h512-m8": 4}


def check_foretold(training):
    rows = held_out(training)
    for row in rows:
        assert abs(row.error_pct) <= 5, row
    return len(rows)


def check_steps(training):
    rows = step_rows(training, replay(training.graph, causes=False))
    for row in rows:
        assert abs(row.error_pct) <= 1, row
    return len(rows)


@pytest.mark.parametrize("workload", H200)
def test_steps_on_one_gpu(public_data, workload):
    job, _, _ = read_job(public_data / "h200" / workload)
    assert len(job.training.step_names) == 3
    assert check_steps(job.training) == check_foretold(job.training) == 3


@pytest.mark.parametrize("workload", RANKS)
def test_steps_of_whole_jobs(public_data, workload):
    job, sources, _ = read_job(public_data / "ranks" / workload)
    assert len(sources) == len(job.ranks) == RANKS[workload]
    assert check_steps(job.training) == 2 * (len(job.ranks) + 1)
    assert check_foretold(job.training) == 2
    # Nearly everything that was sent was also received.
    met, exchanged = len(job.rendezvous.task), job.training.graph.is_kind("communication").sum()
    assert met >= 0.95 * exchanged
    for row in play(job.training, usual_questions(job.training), job.training.graph,
                    job.training.recorded):  # fmt: skip
        assert row.step_ms > 0


def test_steps_of_public_traces(public_data):
    marked = foretold = 0
    for part in ("hta", "kineto", "tracelens"):
        for path in sorted((public_data / "public" / part).rglob("*.json.gz")):
            try:
                job, _, _ = read_job(path)
            except InputError as error:
                assert "not a profiler trace" in str(error) or "neither operators" in str(error)
                continue
            marked += check_steps(job.training) > 0
            foretold += check_foretold(job.training) > 1
    assert marked >= 15
    assert foretold >= 7


@pytest.mark.parametrize("workload", ["gpt-cpubound", "overlap"])
def test_the_usual_questions_can_be_asked(public_data, workload):
    job, _, _ = read_job(public_data / "h200" / workload)
    base = replay(job.training.graph)
    rows = play(job.training, usual_questions(job.training), job.training.graph, base)
    assert len(rows) >= 5
    for row in rows:
        # What is faster makes no step slower; taking turns makes none faster.
        wanted = 1 if row.label == "no overlap of communication" else -1
        assert row.change * wanted >= -0.005, row.label


# -- DLRM on eight GPUs ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def dlrm(tmp_path_factory):
    data = data_folder()
    if data is None:
        pytest.skip("public data is absent: set GNOMON_DATA to its folder")
    folder = tmp_path_factory.mktemp("dlrm")
    with tarfile.open(data / "public" / "param" / "dlrm_kineto.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    job, sources, _ = read_job(next(folder.rglob("*.json")).parent)
    assert len(sources) == 8
    return job


def ends_ms(job, line):
    rank = job.training.graph.rank
    return np.asarray([line.end_ns[rank == number].max() / 1e6 for number in job.ranks])


def test_every_rank_comes_back(dlrm):
    rows = step_rows(dlrm.training, replay(dlrm.training.graph))
    assert [row.rank for row in rows] == [None, *range(8)]
    for row in rows:
        assert abs(row.error_pct) <= 3, row


def test_eight_communications_of_eight_ranks(dlrm):
    rendezvous = dlrm.rendezvous
    assert np.bincount(rendezvous.group).tolist() == [8] * 8
    graph = dlrm.training.graph
    for number in range(8):
        ranks = graph.rank[rendezvous.task[rendezvous.group == number]]
        assert sorted(ranks.tolist()) == list(range(8))


def test_waiting_is_not_transfer(dlrm):
    """Rank 1 shows 7.6 ms for the first all-to-all, rank 7 shows 10 us: it came last."""
    line, rendezvous = dlrm.training.recorded, dlrm.rendezvous
    starts = [line.start_ns[rendezvous.task[rendezvous.group == n]].max() for n in range(8)]
    first = rendezvous.group == int(np.argmin(starts))
    recorded = (line.end_ns - line.start_ns)[rendezvous.task[first]]
    assert recorded.max() > 7_600_000
    assert rendezvous.transfer_ns[first].max() <= 15_000


def test_the_last_to_arrive_delays_everybody_and_the_first_nobody(dlrm):
    graph = dlrm.training.graph
    base = ends_ms(dlrm, replay(graph))

    def moved(rank):
        late = replay(DelayRank(rank, 5).apply(dlrm.training, graph))
        return ends_ms(dlrm, late) - base

    others = np.arange(8) != 7
    assert np.all((moved(7)[others] >= 4) & (moved(7)[others] <= 5 + 1e-9))
    assert np.all(np.abs(moved(1)) < 0.05)


def test_a_rank_that_is_not_there_cannot_be_late(dlrm):
    with pytest.raises(GnomonError, match="no rank 8: there are 0 to 7"):
        DelayRank(8, 5).apply(dlrm.training, dlrm.training.graph)
