"""Policies beside a running application, on states that were made up."""

from __future__ import annotations

import threading

import msgspec
import numpy as np
import pytest
from msgspec import UNSET

from gnomon import _core
from gnomon.act.spark.state import ExecutorState, JobState
from gnomon.decide.cluster.live import GridNow, decima_view
from gnomon.decide.cluster.policies.decima import Decima
from gnomon.errors import InputError
from gnomon.graph.jobs import BatchJobs, JobKinds, Stage, Waves
from gnomon.ingest.intensity.outlook import Outlook
from gnomon.model.decima.network import DecimaWeights
from gnomon.series import Signal
from gnomon.sim.cluster import Executors, run_cluster
from gnomon.systems.batch.live.grid import LiveGrid
from gnomon.systems.batch.live.policy import LivePolicy
from gnomon.systems.batch.live.stages import live_cluster
from tests.act.spark.states import stage, state
from tests.waiting import until

HOUR_NS = 3_600 * 10**9
T0 = 1_700_000_000


def grid(values, *, hour_s=3600.0, high=None):
    line = Signal.regular(
        T0 * 10**9, HOUR_NS, values, unit="gCO2e/kWh", kind="carbon-intensity",
        low=None if high is None else values, high=high,
    )  # fmt: skip
    return LiveGrid(lambda a, b: Outlook(line, "a file"), hour_s=hour_s, start_ns=T0 * 10**9)


def application(*stages, submitted_s=0.0):
    job = JobState(0, int((T0 + submitted_s) * 1e3), tuple(s.stage for s in stages))
    return state(
        *stages, jobs=(job,), time_ms=T0 * 1000,
        executors=tuple(ExecutorState(str(i), "h", 1, 0, False) for i in range(4)),
    )  # fmt: skip


def seen(spark):
    now = GridNow(100.0, np.zeros(0), np.zeros(0))
    return live_cluster(spark, now, now_s=T0, hour_s=3600.0, executors=4)


#: Stage 1 has a long way before it, stage 2 a short one.
PAIR = (
    stage(1, tasks=40, mean_task_ms=1000.0, timed_tasks=1),
    stage(2, tasks=2, mean_task_ms=1000.0, timed_tasks=1),
    stage(3, tasks=40, mean_task_ms=1000.0, timed_tasks=1, parents=(1,), submitted=False),
)


def test_cap_follows_the_grid():
    rule = LivePolicy("cap:fifo", grid([500.0, 100.0, 300.0, *[200.0] * 60]), 10)
    quotas = [rule.decide(application(*PAIR), T0 + 3600 * h).quota for h in range(3)]
    assert quotas[0] == 2  # a fifth of ten at the dirtiest
    assert quotas[1] is None  # all at the cleanest: Spark has what it would have
    assert 2 <= quotas[2] < 10
    assert "executors" in rule.decide(application(*PAIR), T0).reasons["quota"]


def test_pcaps_holds_what_is_less_important():
    rule = LivePolicy("pcaps?gamma=0.9:path-softmax", grid([500.0, *[100.0] * 60]), 4)
    dirty = rule.decide(application(*PAIR), T0)
    assert dirty.hold == {2}
    assert dirty.order == (1, 2)
    assert "importance" in dirty.reasons["2"]
    assert rule.decide(application(*PAIR), T0 + 3600).hold == frozenset()
    careless = LivePolicy("pcaps?gamma=0:path-softmax", grid([500.0, *[100.0] * 60]), 4)
    assert careless.decide(application(*PAIR), T0).hold == frozenset()


def test_pcaps_plus_waits_for_cleaner_hours_that_are_in_time():
    values = [500.0, 400.0, 100.0, *[500.0] * 60]
    rule = LivePolicy("pcaps+?window_h=6&caution=0:path-softmax", grid(values), 4)
    assert rule.decide(application(*PAIR), T0).hold == {1, 2}
    assert rule.decide(application(*PAIR), T0 + 2 * 3600).hold == frozenset()
    # Only an hour is left of the window, and the clean one is two hours off.
    late = application(*PAIR, submitted_s=-5 * 3600)
    assert rule.decide(late, T0).hold == {1, 2}  # the next hour is cleaner by enough
    assert rule.decide(application(*PAIR, submitted_s=-6 * 3600), T0).hold == frozenset()


def test_a_cautious_rule_does_not_wait_for_what_is_unsure():
    values = np.array([300.0, 200.0, *[400.0] * 60])
    unsure = grid(values, high=values + 150.0)
    bold, careful = (f"pcaps+?window_h=6&caution={c}:path-softmax" for c in (0, 1))
    assert LivePolicy(bold, unsure, 4).decide(application(*PAIR), T0).hold
    assert not LivePolicy(careful, unsure, 4).decide(application(*PAIR), T0).hold


def test_guards_end_a_hold():
    values = [500.0] * 30 + [100.0] * 60
    rule = LivePolicy(
        "guard?longest_hold_h=2:suspend?patience_h=400&quantile=0.2:fifo", grid(values), 4
    )
    assert rule.decide(application(*PAIR), T0).hold == {1, 2}
    assert rule.decide(application(*PAIR), T0 + 3600).hold == {1, 2}
    assert rule.decide(application(*PAIR), T0 + 2 * 3600 + 1).hold == frozenset()
    patient = LivePolicy(
        "guard?patience_h=3:suspend?patience_h=400&quantile=0.2:fifo", grid(values), 4
    )
    assert patient.decide(application(*PAIR, submitted_s=-4 * 3600), T0).hold == frozenset()


def test_a_rule_answers_with_a_plan():
    rule = LivePolicy("cap:pcaps?gamma=0.9:path-softmax", grid([500.0, *[100.0] * 60]), 10)
    plan = rule(application(*PAIR), T0)
    assert plan.target == 2
    assert plan.hold == (2,)
    assert "500 g/kWh" in plan.describe()
    calm = LivePolicy("pcaps?gamma=0:path-softmax", grid([500.0, *[100.0] * 60]), 10)
    assert calm(application(*PAIR), T0).target is UNSET


def test_an_empty_application_is_left_alone():
    rule = LivePolicy("cap:pcaps:path-softmax", grid([300.0] * 60), 4)
    decision = rule.decide(application(), T0)
    assert (decision.hold, decision.order) == (frozenset(), ())


def test_an_hour_may_be_played_faster():
    fast = grid([500.0, 100.0, *[300.0] * 60], hour_s=2.0)
    assert [fast.now(T0 + s).intensity for s in (0.0, 1.9, 2.0, 4.0)] == [500, 500, 100, 300]


def test_a_grid_that_nobody_knows_is_an_error_and_asked_for_again():
    answers = [Outlook(None, "the service is down"), None]
    line = Signal.regular(T0 * 10**9, HOUR_NS, [100.0] * 60, unit="gCO2e/kWh", kind="c")
    answers[1] = Outlook(line, "up again")
    live = LiveGrid(lambda a, b: answers.pop(0), refresh_s=300.0)
    with pytest.raises(InputError, match="the service is down"):
        live.now(T0)
    assert live.now(T0 + 5).intensity == 100.0
    assert live.now(T0 + 200).intensity == 100.0  # not asked: it would have nothing to say


def test_hours_that_end_are_told():
    live = grid([100.0, 200.0])
    assert live.now(T0).intensity == 100.0
    with pytest.raises(InputError, match="do not reach to now"):
        live.now(T0 + 3 * 3600)


@pytest.mark.parametrize(
    ("spec", "said"),
    [("fifo", "does not look at the grid"), ("wait-awhile:fifo", "no live form"),
     ("green-hadoop", "no live form"), ("carbon-scaler:fair", "no live form"),
     ("pcaps:shortest-job", "ShortestJob has no live form"),
     ("pcaps:decima?model=none.npz", "none.npz")],
)  # fmt: skip
def test_policies_without_a_live_form_are_told(spec, said):
    with pytest.raises(InputError, match=said):
        LivePolicy(spec, grid([100.0] * 60), 4)


def test_decima_sees_an_application_as_it_sees_a_simulated_cluster():
    """Two jobs, nothing started: the view is what the native order recorded of its first look."""
    s = 10**9
    kinds = JobKinds.build(
        {
            "a": [
                Stage(40, {4: Waves(first=[2 * s])}),
                Stage(3, {4: Waves(first=[5 * s])}),
                Stage(9, {4: Waves(first=[s])}, parents=(0, 1)),
                Stage(2, {4: Waves(first=[s])}, parents=(2,)),
            ],
            "b": [
                Stage(7, {4: Waves(first=[3 * s])}),
                Stage(1, {4: Waves(first=[s])}, parents=(0,)),
            ],
        }
    )
    weights = DecimaWeights.initial(np.random.default_rng(3))
    order = _core.decima_order(weights.parameters, True, True)
    jobs = BatchJobs.of(kinds, [0, 1], [0, 0])
    run_cluster(jobs, Executors(count=4), order, seed=0)
    record = order.record()

    def like(number, tasks, seconds, job, parents=(), submitted=True):
        return stage(number, tasks=tasks, mean_task_ms=seconds * 1e3, timed_tasks=1, jobs=(job,),
                     parents=parents, submitted=submitted)  # fmt: skip

    spark = state(
        like(0, 40, 2, 0), like(1, 3, 5, 0), like(2, 9, 1, 0, (0, 1), False),
        like(3, 2, 1, 0, (2,), False), like(4, 7, 3, 1), like(5, 1, 1, 1, (4,), False),
        jobs=(JobState(0, 0, (0, 1, 2, 3)), JobState(1, 0, (4, 5))),
        executors=tuple(ExecutorState(str(i), "h", 2, 0, False) for i in range(2)),
    )  # fmt: skip
    view, numbers = decima_view(seen(spark))
    assert numbers == [0, 1, 4]
    first = slice(0, len(view.tasks))
    assert np.diff(view.job_first).tolist() == record["job_nodes"][:2].tolist()
    assert view.work_ms == pytest.approx(record["work_ms"][first])
    assert view.tasks.tolist() == record["tasks"][first].tolist()
    assert view.heights().tolist() == record["height"][first].tolist()
    assert view.ready.tolist() == record["ready"][:3].tolist()
    assert view.job_executors.tolist() == record["job_executors"][:2].tolist()
    assert (view.source_job, view.free_executors) == (-1, record["free_executors"][0])


def test_decima_weighs_the_stages_of_an_application():
    rule = LivePolicy("pcaps?gamma=1:decima", grid([500.0, *[100.0] * 60]), 4)
    short = msgspec.structs.replace(PAIR[1], jobs=(1,))
    running = msgspec.structs.replace(PAIR[0], running=3, finished=5)
    shared = msgspec.structs.replace(PAIR[2], jobs=(0, 1))
    nobodys = stage(9, tasks=4, jobs=(7,))
    spark = msgspec.structs.replace(
        application(running, short, shared, nobodys),
        jobs=(JobState(0, T0 * 1000, (1, 3)), JobState(1, T0 * 1000 + 5, (2, 3))),
    )
    view, _ = decima_view(seen(spark))
    # The third stage is needed by both jobs, and the first one's; three of four slots work.
    assert view.job_first.tolist() == [0, 2, 3]
    assert view.tasks.tolist() == [32, 40, 2]
    assert view.work_ms.tolist() == [32_000, 40_000, 2_000]
    assert (view.job_executors.tolist(), view.free_executors) == ([3, 0], 1)
    chances = Decima().stage_weights(seen(spark))
    assert set(chances) == {1, 2}
    assert sum(chances.values()) == pytest.approx(1.0, abs=1e-5)
    decision = rule.decide(spark, T0)
    most = max(chances, key=chances.get)
    assert decision.order == (most, ({1, 2} - {most}).pop())
    assert decision.hold == {1, 2} - {most}  # the likeliest runs at any hour
    assert rule.decide(spark, T0 + 3600).hold == frozenset()
    assert "Decima's probabilities" in rule.describe()
    assert rule.decide(application(), T0).order == ()


def test_pods_need_cap():
    with pytest.raises(InputError, match="needs cap"):
        LivePolicy("pcaps:path-softmax", grid([100.0] * 60), 4).pods(T0)
    pods, why = LivePolicy("cap:fifo", grid([100.0, 500.0, *[200.0] * 50]), 10).pods(T0)
    assert pods == 10
    assert "100 g/kWh" in why


def test_a_quota_is_of_a_known_number():
    with pytest.raises(InputError, match="of how many executors"):
        LivePolicy("cap:fifo", grid([100.0] * 60), None)
    rule = LivePolicy("pcaps:path-softmax", grid([100.0] * 60), None)
    assert rule.decide(application(*PAIR), T0).quota is None
    assert "sharpness 5" in rule.describe()


def test_the_least_of_two_quotas_counts():
    values = [500.0, *[100.0] * 60]
    for spec in (
        "cap?min_share=0.5:cap?min_share=0.2:fifo",
        "cap?min_share=0.2:cap?min_share=0.5:fifo",
    ):
        assert LivePolicy(spec, grid(values), 10).decide(application(*PAIR), T0).quota == 2


def test_hours_that_are_played_fast_are_asked_for_in_time():
    asked = []

    def ask(start_ns, end_ns):
        asked.append(start_ns)
        hours = (end_ns - start_ns) // HOUR_NS
        line = Signal.regular(start_ns, HOUR_NS, [100.0] * hours, unit="gCO2e/kWh", kind="c")
        return Outlook(line, "a profile")

    live = LiveGrid(ask, hour_s=1.0, start_ns=0)
    for now_s in range(T0, T0 + 200, 7):
        assert live.now(now_s).coming.size >= 40
        until(lambda now_s=now_s: live.now(now_s).coming.size == 48, "hours from now on")
    assert asked == [HOUR_NS * s for s in range(0, 200, 7)]


class SlowProvider:
    """Answers when it is told to, with what it is told to."""

    def __init__(self):
        self.asked = threading.Semaphore(0)
        self.may_answer = threading.Semaphore(0)
        self.answers = []

    def __call__(self, start_ns, _end_ns):
        self.asked.release()
        assert self.may_answer.acquire(timeout=240)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, str):
            return Outlook(None, answer)
        line = Signal.regular(
            T0 * 10**9, HOUR_NS, [answer] * 60, unit="gCO2e/kWh", kind="carbon-intensity"
        )
        return Outlook(line, "a provider")

    def answer(self, what):
        self.answers.append(what)
        self.may_answer.release()


@pytest.fixture
def provider():
    slow = SlowProvider()
    yield slow
    slow.answer("the test is over")


def test_hours_that_are_known_serve_while_the_provider_takes_its_time(provider):
    live = LiveGrid(provider, refresh_s=300.0)
    provider.answer(500.0)
    assert live.now(T0).intensity == 500.0
    assert provider.asked.acquire(timeout=240)
    for later_s in range(300, 3600, 5):  # it hangs, and nobody waits for it
        assert live.now(T0 + later_s).intensity == 500.0
    assert provider.asked.acquire(timeout=240)
    assert not provider.asked.acquire(blocking=False)  # once, not at each look
    provider.answer(100.0)
    until(lambda: live.now(T0 + 3600).intensity == 100.0, "the hours that came")


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [("the service is down", InputError, "the grid is not known: the service is down"),
     (OSError("no disk"), OSError, "no disk")],
    ids=["told", "raised"],
)  # fmt: skip
def test_an_error_of_the_provider_is_told_and_old_hours_do_not_return(provider, error, kind, said):
    live = LiveGrid(provider, refresh_s=300.0)
    provider.answer(500.0)
    live.now(T0)
    provider.answer(error)

    def fails():
        try:
            return not live.now(T0 + 300)
        except kind as told:
            return said in str(told)

    until(fails, "the error")
    # It is asked again, and hangs: what was known before does not serve in between.
    with pytest.raises(InputError, match="not known yet"):
        live.now(T0 + 305, wait_s=0.0)
    provider.answer(100.0)
    assert live.now(T0 + 310).intensity == 100.0


def test_a_provider_that_does_not_answer_keeps_nobody(provider):
    rule = LivePolicy("cap:fifo", LiveGrid(provider), 10)
    hurried = msgspec.structs.replace(application(*PAIR), lease_s=0.01)
    for now_s in (T0, T0 + 5):
        with pytest.raises(InputError, match="the grid is not known yet"):
            rule(hurried, now_s)
    assert provider.asked.acquire(timeout=240)
    assert not provider.asked.acquire(blocking=False)
    provider.answer(100.0)
    assert rule.pods(T0 + 10)[0] == 10
