"""The native cluster against the slow, obvious one, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon import _core
from gnomon.errors import InputError, SimulationError
from gnomon.graph.jobs import BatchJobs, JobKinds, Stage, Waves
from gnomon.model.decima.network import DecimaWeights
from gnomon.sim.cluster import NEVER_NS, Executors, GridSteps, Guard, run_cluster
from tests.sim import cluster_cases as cases
from tests.sim.reference_cluster import ReferenceCluster, Rules

ALL = 2**31 - 1
ORDERS = {
    "fifo": (Rules(), lambda: _core.fifo_order(ALL, False)),
    "two-each": (Rules(per_job=2), lambda: _core.fifo_order(2, False)),
    "kubernetes": (Rules(per_job=2, keeps=True), lambda: _core.fifo_order(2, True)),
    "fair": (Rules(order="fair"), lambda: _core.fair_order(0.0)),
    "weighted-fair": (Rules(order="fair", exponent=-1.0), lambda: _core.fair_order(-1.0)),
    "shortest-job": (Rules(order="shortest"), _core.shortest_order),
    "critical-path": (Rules(order="critical-path"), _core.critical_path_order),
}


def check_equal(run, reference):
    expected = [
        (t.job, t.stage, t.executor, t.wave, t.failed, t.start_ns, t.end_ns) for t in reference.log
    ]
    assert cases.log_of(run) == expected
    assert dict(enumerate(run.finish_ns.tolist())) == reference.finish_ns
    assert dict(enumerate(run.start_ns.tolist())) == reference.start_ns
    counted = run.decisions, run.moves, run.starts
    assert counted == (reference.decisions, reference.moves, reference.starts)


def check_both(name, jobs, many, rules, seed, *gates, **options):
    """Both ways the same tasks; both are stuck, or neither."""
    reference = ReferenceCluster(jobs, many, rules, seed).run()
    stuck = sorted(set(range(len(jobs))) - set(reference.finish_ns))
    try:
        run = run_cluster(
            jobs, many, ORDERS[name][1](), gates, seed=seed, log_tasks=True, **options
        )
    except SimulationError as error:
        # Executors that are kept for jobs which wait for others' that get none.
        assert rules.keeps
        assert error.blocked == tuple(stuck[:8])
        return
    assert not stuck
    check_equal(run, reference)
    cases.check_run(jobs, many.count, run)


@pytest.mark.parametrize("name", ORDERS)
@given(jobs=cases.batches(), many=cases.executors(), seed=st.integers(0, 2**64 - 1))
def test_prop_tasks_equal_the_reference(name, jobs, many, seed):
    check_both(name, jobs, many, ORDERS[name][0], seed)


@st.composite
def limited(draw, name):
    """Rules with a quota, and the native gate, grid and guard of the same."""
    many = draw(cases.executors())
    quota = draw(st.lists(st.integers(0, many.count + 1), min_size=1, max_size=8))
    narrows, each_task, of_held = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    step_ns = draw(st.integers(1, 15))
    patience_ns = draw(st.sampled_from([NEVER_NS, 0, 5, 40]))
    finish_by_ns = draw(st.sampled_from([NEVER_NS, 60]))
    base = ORDERS[name][0]
    rules = Rules(
        base.order, base.per_job, base.keeps, base.exponent, quota, narrows, step_ns, patience_ns,
        finish_by_ns, each_task, of_held,
    )  # fmt: skip
    gate = _core.quota_gate(np.array(quota, np.int32), narrows, each_task, of_held)
    grid = GridSteps.known(np.zeros(len(quota)), step_ns, horizon=1)
    guard = Guard(patience_ns=patience_ns, finish_by_ns=finish_by_ns)
    return many, rules, gate, grid, guard


@pytest.mark.parametrize("name", ORDERS)
@given(data=st.data(), jobs=cases.batches(), seed=st.integers(0, 2**32))
def test_prop_tasks_under_a_quota_equal_the_reference(name, data, jobs, seed):
    many, rules, gate, grid, guard = data.draw(limited(name))
    check_both(name, jobs, many, rules, seed, gate, grid=grid, guard=guard)


@pytest.mark.parametrize("of_held", [False, True])
@pytest.mark.parametrize("name", ORDERS)
@given(data=st.data(), jobs=cases.batches(with_after=False), seed=st.integers(0, 99))
def test_prop_jobs_that_may_not_wait_run_as_without_a_quota(name, of_held, data, jobs, seed):
    # An application of several jobs may have none for a while: the quota then has its executors.
    jobs = BatchJobs.of(jobs.kinds, jobs.kind, jobs.arrival_ns, weight=jobs.weight)
    many = data.draw(cases.executors())
    quota = data.draw(st.lists(st.integers(0, many.count), min_size=1, max_size=8))
    gate = _core.quota_gate(np.array(quota, np.int32), True, data.draw(st.booleans()), of_held)
    grid = GridSteps.known(np.zeros(len(quota)), data.draw(st.integers(1, 15)), horizon=1)
    runs = [
        run_cluster(
            jobs, many, ORDERS[name][1](), gates, grid=grid, seed=seed, log_tasks=True,
            guard=Guard(patience_ns=0),
        )
        for gates in ([], [gate])
    ]  # fmt: skip
    assert cases.log_of(runs[0]) == cases.log_of(runs[1])


@given(
    jobs=cases.batches(min_jobs=1),
    many=cases.executors(),
    grid=cases.grids(),
    seed=st.integers(0, 99),
)
def test_prop_sums_by_step_equal_the_log(jobs, many, grid, seed):
    run = run_cluster(jobs, many, _core.fair_order(0.0), grid=grid, seed=seed, log_tasks=True)
    steps = len(run.busy_at_ns)
    inside = cases.busy_between(run, grid.step_ns, steps)
    assert run.busy_at_ns.tolist() == inside.sum(axis=0).tolist()
    stage = jobs.kinds.first_stage[jobs.kind[run.log.job]] + run.log.stage
    cpu = jobs.kinds.cpu_ns[stage]
    took = run.log.end_ns - run.log.start_ns
    share = np.where((cpu == 0) | (took == 0), 1.0, np.minimum(1.0, cpu / np.maximum(took, 1)))
    assert run.cpu_at_ns == pytest.approx((inside * share[:, None]).sum(axis=0))
    intensity = grid.actual[np.minimum(np.arange(steps), grid.actual.size - 1)]
    weighted = np.bincount(run.log.job, inside @ intensity, len(jobs))
    assert run.weighted == pytest.approx(weighted)
    assert run.busy_ns.tolist() == np.bincount(run.log.job, took, len(jobs)).astype(int).tolist()
    failed = run.log.failed > 0
    assert run.wasted_ns == took[failed].sum()
    assert (run.failed_tasks, run.tasks) == (failed.sum(), (~failed).sum())


@given(
    jobs=cases.batches(), many=cases.executors(), steps=st.tuples(*[st.integers(1, 50)] * 2),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_prop_any_split_of_time_adds_up(jobs, many, steps, seed):
    one, two = (
        run_cluster(jobs, many, _core.fifo_order(ALL, False), step_ns=step_ns, seed=seed)
        for step_ns in steps
    )
    for column in ("busy_at_ns", "cpu_at_ns", "moving_at_ns", "on_at_ns"):
        left, right = getattr(one, column), getattr(two, column)
        assert left.sum() == pytest.approx(right.sum())
    assert one.busy_at_ns.sum() == one.work_ns
    if many.off_after_ns is None and not many.from_ns:
        assert one.on_at_ns.sum() == many.count * one.end_ns
    else:
        assert one.on_at_ns.sum() >= one.work_ns


@given(
    jobs=cases.batches(), many=cases.executors(), grid=cases.grids(), seed=st.integers(0, 99),
    quota=st.lists(st.integers(0, 6), min_size=1, max_size=12),
)  # fmt: skip
def test_prop_quota_by_step_is_what_was_allowed(jobs, many, grid, seed, quota):
    gate = _core.quota_gate(np.array(quota, np.int32), True)
    run = run_cluster(jobs, many, _core.fifo_order(ALL, False), [gate], grid=grid, seed=seed)
    steps = grid.seen.size
    allowed = np.minimum(np.array(quota)[np.minimum(np.arange(steps), len(quota) - 1)], many.count)
    length = np.diff(np.minimum(np.arange(steps + 1) * grid.step_ns, run.end_ns))
    after = max(0, run.end_ns - steps * grid.step_ns) * many.count
    assert run.quota_at_ns.sum() == (allowed * length).sum() + after


@pytest.mark.parametrize("name", ORDERS)
@given(jobs=cases.batches(with_after=False), many=cases.executors(), seed=st.integers(0, 99))
def test_prop_same_seed_same_bytes(name, jobs, many, seed):
    one, two = (
        run_cluster(jobs, many, ORDERS[name][1](), seed=seed, log_tasks=True) for _ in range(2)
    )
    assert one.log.start_ns.tobytes() == two.log.start_ns.tobytes()
    assert cases.log_of(one) == cases.log_of(two)
    assert one.busy_at_ns.tobytes() == two.busy_at_ns.tobytes()
    assert (one.events, one.decisions, one.end_ns) == (two.events, two.decisions, two.end_ns)


@given(jobs=cases.batches(), many=cases.executors(), seed=st.integers(0, 99))
def test_prop_a_log_changes_nothing(jobs, many, seed):
    plain, logged = (
        run_cluster(jobs, many, _core.fair_order(0.0), seed=seed, log_tasks=log, log_holds=log)
        for log in (False, True)
    )
    assert plain.finish_ns.tolist() == logged.finish_ns.tolist()
    assert len(plain.log) == 0
    assert len(logged.log) == logged.tasks + logged.failed_tasks


@given(jobs=cases.batches(), seed=st.integers(0, 99))
def test_prop_a_draw_belongs_to_its_task(jobs, seed):
    """With one wave and one level the nth task of a stage takes as long under every order."""
    rng = np.random.default_rng(seed)
    flat = JobKinds.build(
        {
            f"k{kind}": [
                Stage(int(jobs.kinds.tasks[s]), {1: Waves(first=cases.durations(rng))})
                for s in jobs.kinds.stages_of(kind)
            ]
            for kind in range(len(jobs.kinds))
        }
    )
    same = BatchJobs.of(flat, jobs.kind, np.zeros(len(jobs)))
    times = []
    for order in (_core.fifo_order(ALL, False), _core.fair_order(0.0), _core.shortest_order()):
        log = run_cluster(same, Executors(count=3), order, seed=seed, log_tasks=True).log
        rows = zip(log.job.tolist(), log.stage.tolist(), (log.end_ns - log.start_ns).tolist())
        times.append(sorted(rows))
    assert times[0] == times[1] == times[2]


def one_kind(*stages):
    return JobKinds.build({"only": stages})


def test_waves_and_the_way_to_another_application():
    kinds = one_kind(
        Stage(4, {2: Waves(fresh=[100], first=[10], rest=[5])}),
        Stage(1, {2: Waves(fresh=[200], first=[20], rest=[7])}, parents=(0,)),
    )
    jobs = BatchJobs.of(kinds, [0, 0], [0, 0])
    order = _core.fifo_order(ALL, False)
    run = run_cluster(jobs, Executors(count=1, moving_delay_ns=3), order, log_tasks=True)
    # It comes in 3, is fresh, goes on with the rest, and is first at the second stage; then again.
    once = [0, 2, 2, 2, 1]
    assert run.log.wave.tolist() == once * 2
    took = (run.log.end_ns - run.log.start_ns).tolist()
    assert took == [100, 5, 5, 5, 20] * 2
    assert run.finish_ns.tolist() == [3 + 135, 2 * (3 + 135)]
    assert run.moves == 2
    assert run.moving_at_ns.sum() == 6


def test_jobs_of_one_application_share_warm_executors():
    kinds = one_kind(Stage(1, {1: Waves(fresh=[100], first=[10], rest=[5])}))
    jobs = BatchJobs.of(kinds, [0, 0], [0, 0], after=[-1, 0], application=[0, 0])
    many = Executors(count=1, moving_delay_ns=3)
    run = run_cluster(jobs, many, _core.fifo_order(ALL, False), log_tasks=True)
    assert run.log.wave.tolist() == [0, 1]
    assert run.finish_ns.tolist() == [103, 113]
    assert run.moves == 1


def test_levels_between_two_are_drawn_by_how_near_they_are():
    kinds = one_kind(Stage(3, {2: Waves(first=[10]), 6: Waves(first=[50])}))
    jobs = BatchJobs.of(kinds, np.zeros(4_000), np.arange(4_000) * 1_000)
    many = Executors(count=3, moving_delay_ns=1)
    log = run_cluster(jobs, many, _core.fifo_order(ALL, False), log_tasks=True).log
    # Three executors lie a quarter of the way from 2 to 6.
    assert np.mean(log.end_ns - log.start_ns == 50) == pytest.approx(0.25, abs=0.02)


def test_an_executor_that_is_off_has_to_start():
    kinds = one_kind(Stage(1, {1: Waves(first=[10])}))
    jobs = BatchJobs.of(kinds, [0, 0], [0, 100])
    many = Executors(count=1, moving_delay_ns=3, startup_ns=7, off_after_ns=20)
    run = run_cluster(jobs, many, _core.fifo_order(ALL, False))
    # It starts, is brought to the application, and works.
    assert run.finish_ns.tolist() == [20, 120]
    assert (run.starts, run.moves) == (2, 2)
    # On all the while, and for the twenty that it waits.
    assert run.on_at_ns.sum() == 40 + 20


def test_what_breaks_is_done_again_elsewhere():
    kinds = one_kind(Stage(20, {1: Waves(first=[10])}))
    jobs = BatchJobs.of(kinds, [0], [0])
    many = Executors(count=2, moving_delay_ns=1, startup_ns=100, failures_per_hour=3.6e12 / 40)
    run = run_cluster(jobs, many, _core.fifo_order(ALL, False), seed=1, log_tasks=True)
    assert run.failed_executors == run.failed_tasks > 0
    assert run.tasks == 20
    assert len(run.log) == 20 + run.failed_tasks
    broken = run.log.end_ns[run.log.failed > 0]
    again = run.log.executor[run.log.failed > 0]
    for at, executor in zip(broken, again):
        later = run.log.start_ns[(run.log.executor == executor) & (run.log.start_ns >= at)]
        assert (later > at + 100).all()


@pytest.mark.parametrize(
    ("of_held", "waves", "end_ns"),
    # A warm one is left; or it was sent away at 20, comes again in 3 at 43, and is fresh.
    [(False, [0, 0, 1, 1, 1], 53), (True, [0, 0, 1, 1, 0], 146)],
)
def test_a_quota_of_held_executors_sends_idle_ones_away(of_held, waves, end_ns):
    kinds = one_kind(
        Stage(2, {1: Waves(fresh=[10], first=[10])}),
        Stage(1, {1: Waves(fresh=[30], first=[30])}, parents=(0,)),
        Stage(2, {1: Waves(fresh=[100], first=[10])}, parents=(1,)),
    )
    jobs = BatchJobs.of(kinds, [0], [0])
    gate = _core.quota_gate(np.array([2, 1, 2], np.int32), False, True, of_held)
    run = run_cluster(
        jobs, Executors(count=2, moving_delay_ns=3), _core.fifo_order(ALL, False), [gate],
        grid=GridSteps.known([1.0] * 10, step_ns=20), log_tasks=True,
    )  # fmt: skip
    assert run.log.wave.tolist() == waves
    assert run.end_ns == end_ns


@pytest.mark.parametrize(("keeps", "end_ns"), [(False, [93, 123]), (True, [63, 123])])
def test_pods_that_are_kept_outlive_a_quota(keeps, end_ns):
    """Where applications keep executors, a quota lets no new one come: none is taken away."""
    kinds = one_kind(
        Stage(2, {1: Waves(first=[30])}),
        Stage(2, {1: Waves(first=[30])}, parents=(0,)),
    )
    jobs = BatchJobs.of(kinds, [0, 0], [0, 1])
    gate = _core.quota_gate(np.array([2, 1, 1, 4], np.int32), False, True, True)
    run = run_cluster(
        jobs, Executors(count=4, moving_delay_ns=3), _core.fifo_order(2, keeps), [gate],
        grid=GridSteps.known([1.0] * 10, step_ns=20), log_tasks=True,
    )  # fmt: skip
    assert run.finish_ns.tolist() == end_ns


def test_a_hold_ends_where_others_keep_what_is_idle():
    """One executor of the first job idles, the second job may not have it, and a quota is met."""
    kinds = one_kind(
        Stage(2, {1: Waves(first=[10])}), Stage(1, {1: Waves(first=[1000])}, parents=(0,))
    )
    gate = _core.quota_gate(np.array([2], np.int32), False, True, True)
    run = run_cluster(
        BatchJobs.of(kinds, [0, 0], [0, 15]), Executors(count=4, moving_delay_ns=0),
        _core.fifo_order(2, True), [gate], grid=GridSteps.known([1.0] * 200, step_ns=20),
        guard=Guard(longest_hold_ns=50), log_holds=True,
    )  # fmt: skip
    assert run.start_ns.tolist() == [0, 15 + 50]
    assert run.held.job.tolist() == [1]


def test_urgent_jobs_run_over_the_quota():
    kinds = one_kind(Stage(2, {1: Waves(first=[10])}))
    jobs = BatchJobs.of(kinds, [0, 0], [0, 0])
    none = _core.quota_gate(np.zeros(1, np.int32), False)
    grid = GridSteps.known([100.0] * 50, 10)
    many = Executors(count=4, moving_delay_ns=0)
    order = _core.fifo_order(ALL, False)
    run = run_cluster(jobs, many, order, [none], grid=grid, guard=Guard(patience_ns=33))
    assert run.start_ns.tolist() == [33, 33]
    # Without a guard they wait until nothing is known any more.
    run = run_cluster(jobs, many, order, [none], grid=grid)
    assert run.start_ns.tolist() == [500, 500]


def test_no_jobs():
    kinds = one_kind(Stage(1, {1: Waves(first=[10])}))
    run = run_cluster(
        BatchJobs.of(kinds, [], []), Executors(count=2), _core.fifo_order(ALL, False)
    )
    assert (run.tasks, run.end_ns, len(run.finish_ns)) == (0, 0, 0)


def test_an_order_that_never_serves_is_told():
    kinds = one_kind(Stage(1, {1: Waves(first=[10])}))
    jobs = BatchJobs.of(kinds, [0, 0], [0, 5])
    with pytest.raises(SimulationError, match="2 of 2 jobs were never served; the first is job 0"):
        run_cluster(jobs, Executors(count=1), _core.asked_order(lambda _: None))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"count": 0}, "from 1 to 16 million"),
        ({"count": 2, "speed": (1.0,)}, "a speed above zero"),
        ({"count": 1, "speed": (0.0,)}, "a speed above zero"),
        ({"count": 1, "moving_delay_ns": -1}, "delays are not below zero"),
        ({"count": 1, "task_failure_chance": 1.0}, "up to but not at 1"),
        ({"count": 1, "straggler_factor": 0.0}, "up to but not at 1"),
        ({"count": 1, "failures_per_hour": -1.0}, "up to but not at 1"),
        ({"count": 1, "straggler_chance": float("nan")}, "up to but not at 1"),
    ],
)
def test_settings_out_of_range(settings, why):
    jobs = BatchJobs.of(one_kind(Stage(1, {1: Waves(first=[10])})), [0], [0])
    with pytest.raises(InputError, match=why):
        run_cluster(jobs, Executors(**settings), _core.fifo_order(ALL, False))


def test_executors_that_are_kept_can_starve_others():
    """The first application holds the only executor for a job that waits for the second's."""
    kinds = one_kind(Stage(1, {1: Waves(first=[10])}))
    jobs = BatchJobs.of(kinds, [0, 0, 0], [0, 1, 0], after=[-1, -1, 1], application=[0, 1, 0])
    with pytest.raises(SimulationError, match="2 of 3 jobs were never served") as info:
        run_cluster(jobs, Executors(count=1), _core.fifo_order(1, True))
    assert info.value.blocked == (1, 2)


def test_executors_come_and_leave():
    kinds = one_kind(Stage(6, {1: Waves(first=[10])}))
    jobs = BatchJobs.of(kinds, [0], [0])
    many = Executors(count=2, moving_delay_ns=0, from_ns=(0, 15), until_ns=(NEVER_NS, 20))
    run = run_cluster(jobs, many, _core.fifo_order(ALL, False), log_tasks=True)
    log = run.log
    assert log.end_ns[log.executor == 0].tolist() == [10, 20, 30, 40, 50]
    # It is asked to leave at 20 and does when its task is done.
    assert log.start_ns[log.executor == 1].tolist() == [15]
    assert run.on_at_ns.sum() == 50 + 10


WEIGHTS = DecimaWeights.initial(np.random.default_rng(2)).parameters
MAKERS = {
    **{name: make for name, (_, make) in ORDERS.items()},
    "decima": lambda: _core.decima_order(WEIGHTS),
    "decima-enough": lambda: _core.decima_order(WEIGHTS, False, True),
    "pcaps": lambda: _core.pcaps_order(_core.decima_order(WEIGHTS), 0.5, 3),
    "pcaps-enough": lambda: _core.pcaps_order(_core.decima_order(WEIGHTS, False, True), 0.5, 3),
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("wrapped", [False, True])
def test_executors_stay_with_a_job_that_waits_for_its_own_stage(seed, wrapped):
    """Nothing of it can start for 100: whoever left would have to come back."""
    slow, quick = Stage(1, {4: Waves(first=[100])}), Stage(3, {4: Waves(first=[10])})
    last = Stage(4, {4: Waves(first=[10])}, parents=(0, 1))
    kinds = JobKinds.build({"waits": [slow, quick, last], "wide": [quick]})
    jobs = BatchJobs.of(kinds, [0, 1, 1], [0, 30, 31])
    order = _core.decima_order(WEIGHTS, False, True)
    if wrapped:
        order = _core.pcaps_order(order, 0.5, 3)
    many = Executors(count=4, moving_delay_ns=1)
    run = run_cluster(jobs, many, order, seed=seed, log_tasks=True)
    served = run.log.executor[(run.log.job == 0) & (run.log.stage < 2)]
    left = (run.log.job > 0) & (run.log.start_ns < 100) & np.isin(run.log.executor, served)
    assert not left.any()
    assert (run.log.job == 0).sum() == 8
    # As in the paper, all that is idle goes to whoever can use it.
    greedy = run_cluster(jobs, many, _core.decima_order(WEIGHTS), seed=seed, log_tasks=True)
    assert greedy.log.start_ns[greedy.log.job > 0].min() == 31


WAITS_AND_WIDE = JobKinds.build(
    {
        "waits": [
            Stage(1, {4: Waves(first=[100])}),
            Stage(3, {4: Waves(first=[10])}),
            Stage(4, {4: Waves(first=[10])}, parents=(0, 1)),
        ],
        "wide": [Stage(3, {4: Waves(first=[10])})],
    }
)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("wrapped", [False, True])
def test_executors_that_are_off_start_before_kept_ones_leave(seed, wrapped):
    jobs = BatchJobs.of(WAITS_AND_WIDE, [0, 1, 1], [0, 30, 31])
    order = _core.decima_order(WEIGHTS, False, True)
    if wrapped:
        order = _core.pcaps_order(order, 0.5, 3)
    many = Executors(count=8, moving_delay_ns=1, startup_ns=1, off_after_ns=50)
    log = run_cluster(jobs, many, order, seed=seed, log_tasks=True).log
    served = log.executor[(log.job == 0) & (log.stage < 2)]
    assert not np.isin(log.executor[(log.job > 0) & (log.start_ns < 80)], served).any()


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_kept_from_a_job_that_may_be_held_no_longer(seed):
    jobs = BatchJobs.of(WAITS_AND_WIDE, [0, 1], [0, 30])
    many, order = Executors(count=4, moving_delay_ns=1), _core.decima_order(WEIGHTS, False, True)
    patient = run_cluster(jobs, many, order, seed=seed)
    pressing = run_cluster(jobs, many, order, seed=seed, guard=Guard(patience_ns=0))
    assert pressing.start_ns[1] == 31
    assert patient.start_ns[1] >= 31


@pytest.mark.parametrize("name", ["decima-enough", "pcaps-enough"])
@given(data=st.data(), jobs=cases.batches(), seed=st.integers(0, 2**32))
def test_prop_jobs_end_whatever_is_kept(name, data, jobs, seed):
    many, _, gate, grid, guard = data.draw(limited("fifo"))
    run = run_cluster(
        jobs, many, MAKERS[name](), [gate], grid=grid, guard=guard, seed=seed, log_tasks=True
    )
    cases.check_run(jobs, many.count, run)


@pytest.mark.parametrize("name", MAKERS)
def test_prop_an_order_forgets_earlier_runs(name):
    """One order for many runs, of other kinds and sizes, decides as a new one does."""
    used = MAKERS[name]()

    @settings(max_examples=30)
    @given(jobs=cases.batches(with_after=False), many=cases.executors(), seed=st.integers(0, 9))
    def check(jobs, many, seed):
        one, two = (
            run_cluster(jobs, many, order, seed=seed, log_tasks=True)
            for order in (MAKERS[name](), used)
        )
        assert cases.log_of(one) == cases.log_of(two)

    check()


def test_a_gate_needs_a_grid():
    jobs = BatchJobs.of(one_kind(Stage(1, {1: Waves(first=[10])})), [0], [0])
    gate = _core.quota_gate(np.ones(1, np.int32), True)
    with pytest.raises(InputError, match="a gate needs a grid"):
        run_cluster(jobs, Executors(count=1), _core.fifo_order(ALL, False), [gate])


@pytest.mark.parametrize(
    ("values", "step_ns", "horizon"), [([], 1, 1), ([-1.0], 1, 1), ([np.nan], 1, 1),
                                       ([1.0], 0, 1), ([1.0], 1, 0)],
)  # fmt: skip
def test_grids_out_of_range(values, step_ns, horizon):
    with pytest.raises(InputError):
        GridSteps.known(values, step_ns, horizon=horizon)
