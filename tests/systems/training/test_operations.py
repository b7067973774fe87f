"""From operation log to graph: exactly on made-up jobs, what-ifs too, and on the published ones."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.graph import scale
from gnomon.ingest.profiler.operation_log import read_operation_log
from gnomon.sim import replay
from gnomon.sim.trace.steps import step_estimate
from gnomon.systems.training.operations import COMPUTE, build_operations_graph, fence_tasks
from gnomon.systems.training.straggler import straggler_report, usual_durations
from tests.systems.training.pipeline_job import Job

CLOSE_S = 2e-6  # a rounding to nanoseconds an operation adds up


def steps_of(training, graph=None):
    line = replay(training.graph if graph is None else graph, causes=False)
    return np.diff(line.start_ns[fence_tasks(training)]) / 1e9


def built(job, folder, rows=None):
    log = read_operation_log(job.write(folder, rows))
    return log, build_operations_graph(log)


JOBS = [
    Job(pp=1, hidden=False),
    Job(pp=1, dp=3, hidden=False),
    Job(pp=2, dp=2, hidden=False),
    Job(pp=4, dp=2, micro=6, hidden=False),
    Job(pp=4, dp=1, micro=2, hidden=False),
    Job(pp=2, dp=2, vpp=2, micro=4, hidden=False),
    Job(pp=4, dp=2, vpp=2, micro=8, hidden=False),
    Job(pp=3, dp=1, vpp=3, micro=6, hidden=False),
]


@pytest.mark.parametrize("job", JOBS, ids=str)
def test_a_job_replays_exactly(job, tmp_path):
    truth = job.play()[1]
    log, training = built(job, tmp_path)
    np.testing.assert_allclose(log.step_ns / 1e9, truth, atol=CLOSE_S)
    np.testing.assert_allclose(steps_of(training), truth, atol=CLOSE_S)
    line = replay(training.graph)
    np.testing.assert_allclose(line.start_ns, training.recorded.start_ns, atol=1e9 * CLOSE_S)


@pytest.mark.parametrize("job", JOBS, ids=str)
@pytest.mark.parametrize("factor", [0.4, 2.5])
def test_a_what_if_is_what_would_have_been(job, factor, tmp_path):
    """One rank's compute faster or slower: others wait less or more, transfers stay."""
    slow = (job.pp * job.dp) // 2
    truth = job.play(lambda rank, step: factor if rank == slow else 1.0)[1]
    _, training = built(job, tmp_path)
    its_compute = training.graph.is_kind(*COMPUTE) & (training.graph.rank == slow)
    changed = scale(training.graph, its_compute, factor)
    np.testing.assert_allclose(steps_of(training, changed), truth, atol=CLOSE_S)


@pytest.mark.parametrize("factor", [0.4, 2.5])
def test_lateness_before_an_unseen_rendezvous_is_not_baked_in(factor, tmp_path):
    """How host time splits around it cannot be seen: exact but for two gaps."""
    job = Job(pp=2, dp=3, spread=1.0)
    truth = job.play(lambda rank, step: factor if rank == 4 else 1.0)[1]
    _, training = built(job, tmp_path)
    its_compute = training.graph.is_kind(*COMPUTE) & (training.graph.rank == 4)
    changed = scale(training.graph, its_compute, factor)
    np.testing.assert_allclose(steps_of(training, changed), truth, atol=4e-4)


@given(
    pp=st.integers(1, 4), dp=st.integers(1, 3), vpp=st.integers(1, 2), rounds=st.integers(2, 3),
    seed=st.integers(0, 999), factor=st.floats(0.3, 3.0), data=st.data(),
)  # fmt: skip
@settings(max_examples=25)
def test_prop_any_pipeline_replays_and_answers(
    pp, dp, vpp, rounds, seed, factor, data, tmp_path_factory
):
    job = Job(pp, dp, vpp if pp > 1 else 1, micro=pp * rounds, seed=seed, hidden=False)
    slow = data.draw(st.integers(0, pp * dp - 1))
    _, training = built(job, tmp_path_factory.mktemp("job"))
    np.testing.assert_allclose(steps_of(training), job.play()[1], atol=CLOSE_S)
    truth = job.play(lambda rank, step: factor if rank == slow else 1.0)[1]
    its_compute = training.graph.is_kind(*COMPUTE) & (training.graph.rank == slow)
    changed = scale(training.graph, its_compute, factor)
    np.testing.assert_allclose(steps_of(training, changed), truth, atol=CLOSE_S)


def test_clocks_that_jitter_and_disagree_do_little_harm(tmp_path):
    """Ends seem to come after the next start, and sends to end before their receive."""
    job = Job(pp=4, dp=2, micro=6, hidden=False)
    rng = np.random.default_rng(5)
    off = rng.uniform(-3e-4, 3e-4, job.pp * job.dp)
    rows = [
        r
        | {
            "start_ts": float(np.float32(r["start_ts"] + 1.0 + off[r["rank"]])),
            "duration": float(np.float32(r["duration"] + rng.uniform(0, 3e-5))),
        }
        for r in job.play()[0]
    ]
    log, training = built(job, tmp_path, rows)
    np.testing.assert_allclose(steps_of(training), log.step_ns / 1e9, rtol=0.003)
    truth = job.play(lambda rank, step: 2.0 if rank == 3 else 1.0)[1]
    its_compute = training.graph.is_kind(*COMPUTE) & (training.graph.rank == 3)
    changed = scale(training.graph, its_compute, 2.0)
    np.testing.assert_allclose(steps_of(training, changed), truth, rtol=0.01)


def test_waits_are_no_part_of_a_transfer(tmp_path):
    job = Job(pp=4, dp=2, micro=6, spread=1.0)
    log, training = built(job, tmp_path)
    receives = training.graph.is_kind("forward-recv", "backward-recv")
    assert log.duration_ns[log.is_operation("forward-recv", "backward-recv")].max() > 20e6
    assert training.graph.duration_ns[receives].max() <= 2_000_001  # what the job was given
    reduces = training.graph.is_kind("grads-reduce-scatter")
    assert training.graph.duration_ns[reduces].max() <= 2_000_001


def test_an_unseen_rendezvous_is_found_and_told(tmp_path):
    _, training = built(Job(pp=2, dp=3, spread=1.0), tmp_path)
    assert [note for note in training.notes if "stage 1 wait for one another" in note]
    (tmp_path / "without").mkdir()
    _, training = built(Job(pp=2, dp=3, spread=1.0, hidden=False), tmp_path / "without")
    assert training.notes == ()
    assert not training.graph.is_kind("meeting").any()


def test_lanes_ranks_and_steps(tmp_path):
    job = Job(pp=2, dp=2)
    log, training = built(job, tmp_path)
    assert {"job/steps", "rank 0/compute", "rank 0/forward send", "rank 3/collectives"} <= set(
        training.graph.lanes
    )
    assert training.step_names == ("step 10", "step 13")
    for rank in range(4):
        of_rank = (training.graph.rank == rank) & training.graph.is_kind(*COMPUTE)
        assert np.count_nonzero(of_rank) == 2 * 2 * job.micro
    assert step_estimate(training, training.recorded).mid == pytest.approx(log.step_ns[1] / 1e6)


def test_steps_are_replayed_as_if_alone(tmp_path):
    job = Job(pp=2, dp=2, steps=3)
    log, training = built(job, tmp_path)
    each = [steps_of(build_operations_graph(log.only([s])))[0] for s in log.steps.tolist()]
    np.testing.assert_allclose(steps_of(training), each, atol=CLOSE_S)


def test_only_names_the_step_that_is_not_there(tmp_path):
    log, _ = built(Job(pp=1), tmp_path)
    with pytest.raises(ValueError, match="no step 11; its 2 run from 10 to 13"):
        log.only([11])


def row(optype, start, duration, rank=0, seq=0, stage=0, dp=0, mb=-1, mc=-1):
    return {
        "dp_rank": dp, "stage": stage, "rank": rank, "step": 1, "optype": optype,
        "start_ts": start, "duration": duration, "seq_id": seq, "mc": mc, "mb_id": mb, "gmc": -1,
    }  # fmt: skip


def by_name(training, column):
    graph = training.graph
    return {graph.names[n]: int(v) for n, v in zip(graph.name.tolist(), column.tolist())}


def test_gradients_beside_the_backward_do_not_hold_it_up(tmp_path):
    """Reduce-scatter of the second chunk runs beside the backward of the first."""
    rows = [
        row("forward-compute", 0.0, 0.1, seq=0, mb=0, mc=0),
        row("forward-compute", 0.1, 0.1, seq=1, mb=0, mc=1),
        row("backward-compute", 0.2, 0.2, seq=0, mb=0, mc=1),
        row("grads-reduce-scatter", 0.401, 0.15, seq=0, mc=1),
        row("backward-compute", 0.4, 0.2, seq=1, mb=0, mc=0),
        row("grads-reduce-scatter", 0.601, 0.01, seq=1, mc=0),
        row("optimizer", 0.62, 0.05),
    ]
    job = Job(pp=1, vpp=2)
    _, training = built(job, tmp_path, rows)
    assert steps_of(training)[0] == pytest.approx(0.67)
    ends = by_name(training, replay(training.graph).end_ns)
    assert ends["grads-reduce-scatter 0"] == 551_000_000
    slower = scale(training.graph, training.graph.is_kind("grads-reduce-scatter"), 4.0)
    ends = by_name(training, replay(slower).end_ns)
    assert ends["backward-compute 1"] == 600_000_000
    assert ends["grads-reduce-scatter 0"] == 1_001_000_000
    assert ends["optimizer 0"] > 1_050_000_000
    faster = scale(training.graph, training.graph.is_kind("backward-compute"), 0.5)
    ends = by_name(training, replay(faster).end_ns)
    assert ends["backward-compute 1"] == 400_000_000
    assert ends["grads-reduce-scatter 0"] == 451_000_000  # with its chunk's backward, 0.1 s sooner


def test_transfers_beside_the_compute(tmp_path):
    """Sends do not hold up the sender, receives are launched ahead."""
    rows = []
    for k in range(3):
        rows += [
            row("forward-compute", 0.1 * k, 0.1, seq=k, mb=k, mc=0),
            row("forward-send", 0.1 * k + 0.1, 0.05, seq=k),
            row("forward-recv", max(0.0, 0.1 * k + 0.05), 0.1 if k else 0.15, 1, k, 1),
            row("forward-compute", 0.1 * k + 0.15, 0.1, 1, k, 1, mb=k, mc=0),
        ]
    rows[2]["start_ts"] = 0.0
    _, training = built(Job(pp=2), tmp_path, rows)
    graph = training.graph
    np.testing.assert_array_equal(replay(graph).end_ns, training.recorded.end_ns)
    transfers = graph.duration_ns[graph.is_kind("forward-send", "forward-recv")]
    np.testing.assert_allclose(transfers, 50_000_000, atol=2)
    faster = scale(graph, graph.is_kind("forward-compute") & (graph.rank == 0), 0.5)
    assert steps_of(training, faster)[0] == pytest.approx(0.4, abs=CLOSE_S)


def pair(send, receive, *, compute=0.1):
    """Two stages, one micro-batch: the forward is sent from 0 to 1."""
    (s0, s1), (r0, r1) = send, receive
    return [
        row("forward-compute", 0.0, compute, mb=0, mc=0),
        row("forward-send", s0, s1 - s0),
        row("backward-compute", 0.5, 0.1, mb=0, mc=0),
        row("forward-recv", r0, r1 - r0, rank=1, stage=1),
        row("forward-compute", r1, 0.1, rank=1, stage=1, mb=0, mc=0),
        row("backward-compute", r1 + 0.1, 0.1, rank=1, stage=1, mb=0, mc=0),
    ]


def test_a_send_that_waited_waits_no_more_when_its_receive_comes_early(tmp_path):
    """The receiver was late by 0.2 s; that is not in the sender's duration."""
    _, training = built(Job(pp=2), tmp_path, pair((0.1, 0.31), (0.3, 0.31)))
    took = by_name(training, training.graph.duration_ns)
    assert took["forward-send 0"] == took["forward-recv 0"] == 10_000_000
    early = training.graph.duration_ns.copy()
    early[training.graph.is_kind("gap")] = 0
    ends = by_name(training, replay(training.graph.with_durations(early)).end_ns)
    assert ends["forward-send 0"] == 110_000_000


def test_an_eager_send_ends_before_its_receive_is_launched(tmp_path):
    _, training = built(Job(pp=2), tmp_path, pair((0.1, 0.12), (0.3, 0.31)))
    assert steps_of(training)[0] == pytest.approx(0.6)
    assert any("left their rendezvous before all had come" in note for note in training.notes)
    # It need not wait, but the receive does: a slower forward delays it.
    graph = training.graph
    forward = graph.is_kind("forward-compute") & (graph.rank == 0)
    ends = by_name(training, replay(scale(graph, forward, 4.0)).end_ns)
    assert ends["forward-recv 0"] == 430_000_000


def test_what_is_alone_or_unknown_is_counted(tmp_path):
    rows = pair((0.1, 0.31), (0.3, 0.31))
    rows = [r for r in rows if r["rank"] == 0] + [row("weather-report", 0.7, 0.1)]
    _, training = built(Job(pp=2), tmp_path, rows)
    assert steps_of(training)[0] == pytest.approx(0.8)
    said = " / ".join(training.notes)
    assert "1 places of the layout have no rank in the log" in said
    assert "1 sends and receives have nobody at the other end" in said
    assert "'weather-report' are of an unknown kind" in said


@pytest.mark.parametrize("late", [-1e-6, 0.0, 5e-6])
def test_sends_and_receives_that_were_never_launched(late, tmp_path):
    """Some logs have one for each compute, at the first and the last stage too."""
    job = Job(pp=2, dp=1, steps=1)
    rows = job.play()[0]
    seen = {0: ("forward-recv", "backward-send"), 1: ("forward-send", "backward-recv")}
    for stage, names in seen.items():
        for name in names:
            kind = "forward-compute" if name.startswith("forward") else "backward-compute"
            made = [r for r in rows if r["optype"] == kind and r["stage"] == stage]
            for seq, r in enumerate(made):
                end = r["start_ts"] + r["duration"]
                at = r["start_ts"] + late if name.endswith("recv") else end
                rows.append(row(name, at, 0.0, rank=stage, stage=stage, seq=seq) | {"step": 10})
    _, training = built(job, tmp_path, rows)
    assert training.notes == ()
    np.testing.assert_allclose(steps_of(training), job.play()[1], atol=CLOSE_S)
    kinds = training.graph.is_kind(*seen[0]) & (training.graph.rank == 0)
    assert np.all(training.graph.group[kinds] == -1)


# -- stragglers ----------------------------------------------------------------------------------


def test_a_job_without_stragglers_has_no_slowdown(tmp_path):
    log, training = built(Job(pp=2, dp=2, spread=0.0), tmp_path)
    report = straggler_report(log, training)
    assert report.straggler_slowdown == pytest.approx(1.0, abs=0.02)
    assert report.replay_error < 1e-6
    assert report.delay_slowdown >= 1.0


def test_the_slow_rank_is_named_and_explains_the_slowdown(tmp_path):
    job = Job(pp=2, dp=4, spread=0.02, steps=3)
    rows = job.play(lambda rank, step: 1.8 if rank == 6 else 1.0)[0]
    log, training = built(job, tmp_path, rows)
    report = straggler_report(log, training)
    assert report.worst_ranks[0] == 6
    assert report.worst_share.removed > 0.8
    assert report.straggler_slowdown > 1.2
    assert next(iter(report.by_stage.as_dict())) == "1"
    assert next(iter(report.by_dp_rank.as_dict())) == "2"
    assert report.by_dp_rank.by_step.shape == (4, 3)
    assert set(report.by_rank) == set(range(8))


def test_usual_durations_are_means_of_compute_and_medians_of_transfers(tmp_path):
    log, training = built(Job(pp=2, dp=2, spread=1.0), tmp_path)
    usual = usual_durations(training)
    graph = training.graph
    assert not usual[graph.is_kind("gap")].any()
    forward, send = graph.is_kind("forward-compute"), graph.is_kind("forward-send")
    mean = log.duration_ns[log.is_operation("forward-compute")].mean()
    assert np.unique(usual[forward]).tolist() == [round(mean)]
    assert np.unique(usual[send]) == round(float(np.median(graph.duration_ns[send])))


# -- the published jobs --------------------------------------------------------------------------


@pytest.fixture(params=["SE", "ST"])
def published(request, public_data):
    pytest.importorskip("pyarrow", reason="the 'tables' extra is absent")
    folder = public_data / "public" / "straggler"
    log = read_operation_log(folder / f"trace-{request.param}.parquet")
    result = json.loads(gzip.decompress((folder / f"result-{request.param}.json.gz").read_bytes()))
    shares = [json.loads((folder / f"{m}-{request.param}.json").read_text()) for m in ("ms", "mw")]
    return straggler_report(log), result, shares


def per_step(report, table):
    return np.asarray([table[str(step)] for step in report.steps.tolist()])


@pytest.mark.data
def test_published_jobs_replay_and_agree_with_the_published_what_ifs(published):
    report, theirs, (last_stage, worst) = published
    np.testing.assert_allclose(
        report.recorded_s, per_step(report, theirs["step_t_base"]), rtol=1e-6
    )
    assert report.replay_error < 1e-5
    their_error = np.mean(
        np.abs(per_step(report, theirs["step_t_nodelay"]) / report.recorded_s - 1)
    )
    assert report.no_delay_error < their_error
    close = {"rtol": 0.03}
    np.testing.assert_allclose(
        report.no_delay_s, per_step(report, theirs["step_t_nodelay"]), **close
    )
    np.testing.assert_allclose(report.ideal_s, per_step(report, theirs["step_t_noblk"]), **close)
    np.testing.assert_allclose(report.straggler_slowdown, theirs["blocking_slowdown"], **close)
    np.testing.assert_allclose(report.delay_slowdown, theirs["launch_slowdown"], **close)
    for mine, name in (
        (report.by_dp_rank, "dp_rank"),
        (report.by_stage, "stage"),
        (report.by_operation, "optype"),
    ):
        whole, each = (theirs[f"blocking_decompose_by_{name}{end}"] for end in ("", "_per_step"))
        assert set(mine.labels) == set(whole)
        np.testing.assert_allclose(mine.slowdown, [whole[label] for label in mine.labels], **close)
        expected = [
            per_step(report, {s: t[label] for s, t in each.items()}) for label in mine.labels
        ]
        np.testing.assert_allclose(mine.by_step, expected, **close)
    for share, published_share in ((report.last_stage, last_stage), (report.worst_share, worst)):
        for field, key in (
            ("removed_s", "trem"),
            ("added_s", "tadd"),
            ("removed", "rem"),
            ("added", "add"),
        ):
            np.testing.assert_allclose(getattr(share, field), published_share[key], **close)
