"""Every policy on small random clusters: what must hold whoever decides."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sim import cluster_cases as cases

from gnomon.decide.cluster import cluster_policies, simulate
from gnomon.decide.cluster.policies.cap import Cap
from gnomon.decide.cluster.policies.guard import Guarded
from gnomon.decide.cluster.policies.orders import Fifo
from gnomon.decide.cluster.policies.path_softmax import PathSoftmax
from gnomon.decide.cluster.policies.pcaps import Pcaps
from gnomon.decide.cluster.rules import cap_quota, pcaps_threshold
from gnomon.errors import InputError
from gnomon.graph.jobs import BatchJobs, JobKinds, Stage, Waves
from gnomon.model.decima.network import DecimaWeights
from gnomon.sim.cluster import NEVER_NS, Executors, GridSteps, Guard

ORDERS = (
    "fifo", "kubernetes?per_job=2", "fair", "weighted-fair", "shortest-job", "critical-path",
    "path-softmax", "decima",
)  # fmt: skip
WRAPPED = (
    "cap:fifo", "cap?min_share=0.5:fair", "cap:decima", "quota?share=0.3:fifo", "suspend", "suspend?patience_h=2:fair",
    "green-hadoop", "green-hadoop?theta=0:critical-path", "wait-awhile", "wait-awhile?whole=false",
    "carbon-scaler", "carbon-scaler:fair", "pcaps", "pcaps?gamma=1&narrowing=literal",
    "pcaps?narrowing=released:decima", "pcaps+", "pcaps+?waste=0.2&spread=1:fair",
    "guard?patience_h=1:suspend", "guard?longest_hold_h=1:pcaps", "guard?longest_hold_h=2:cap:wait-awhile",
    "cap:pcaps:path-softmax",
)  # fmt: skip
seeds = st.integers(0, 2**32)


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    """Weights by chance: what must hold does not depend on training."""
    path = tmp_path_factory.mktemp("decima") / "untrained.npz"
    DecimaWeights.initial(np.random.default_rng(5)).save(path)
    return path


@pytest.fixture
def create(untrained):
    def make(spec):
        return cluster_policies.create(spec.replace("decima", f"decima?model={untrained}"))

    return make


@pytest.mark.parametrize("spec", ORDERS + WRAPPED)
def test_prop_every_run_is_a_schedule(spec, create):
    policy = create(spec)

    @given(
        cases.batches(with_after="kubernetes" not in spec), cases.executors(), cases.grids(), seeds
    )
    def check(jobs, many, grid, seed):
        run, again = (
            simulate(policy, jobs, many, grid=grid, seed=seed, log_tasks=True) for _ in range(2)
        )
        cases.check_run(jobs, many.count, run)
        assert cases.log_of(run) == cases.log_of(again)
        assert run.weighted.tobytes() == again.weighted.tobytes()
        inside = cases.busy_between(run, grid.step_ns, len(run.busy_at_ns))
        assert run.busy_at_ns.tolist() == inside.sum(axis=0).tolist()

    check()


@pytest.mark.parametrize("spec", WRAPPED)
def test_prop_a_log_changes_nothing(spec, create):
    policy = create(spec)

    @given(cases.batches(), cases.executors(), cases.grids(), seeds)
    def check(jobs, many, grid, seed):
        plain, logged = (
            simulate(policy, jobs, many, grid=grid, seed=seed, log_tasks=log, log_holds=log)
            for log in (False, True)
        )
        assert plain.finish_ns.tolist() == logged.finish_ns.tolist()
        assert plain.events == logged.events
        held = logged.held
        assert (held.resumed_ns > held.held_ns).all()

    check()


def held_by(run, job, at_ns, moving_ns):
    """Executors that work for a job, or are on their way to it."""
    log = run.log
    return int(
        ((log.job == job) & (log.start_ns - moving_ns <= at_ns) & (log.end_ns > at_ns)).sum()
    )


@given(cases.batches(with_after=False), cases.executors(faults=False), seeds, st.integers(1, 3))
def test_prop_a_job_never_holds_more_than_its_limit(jobs, many, seed, per_job):
    run = simulate(f"kubernetes?per_job={per_job}", jobs, many, seed=seed, log_tasks=True)
    for job, start in zip(run.log.job.tolist(), run.log.start_ns.tolist()):
        assert held_by(run, job, start, 0) <= per_job


@st.composite
def quotas(draw):
    many = draw(cases.executors(faults=False))
    return many, draw(cases.grids()), draw(st.sampled_from([0.0, 0.3, 0.7]))


@pytest.mark.parametrize("inner", ["fifo", "fair", "critical-path", "path-softmax"])
@given(jobs=cases.batches(), place=quotas(), seed=seeds)
def test_prop_no_task_starts_over_the_quota(inner, jobs, place, seed):
    many, grid, share = place
    jobs = msgspec.structs.replace(jobs, deadline_ns=np.full(len(jobs), NEVER_NS))
    many = msgspec.structs.replace(many, moving_delay_ns=0, startup_ns=0)
    run = simulate(
        f"cap?min_share={share}:{inner}", jobs, many, grid=grid, seed=seed, log_tasks=True
    )
    least = max(1, round(share * many.count))
    quota = cap_quota(grid.seen, grid.low, grid.high, min_executors=least, executors=many.count)
    log = run.log
    for start in set(log.start_ns.tolist()):
        step, into = divmod(start, grid.step_ns)
        if step >= quota.size:
            continue  # past the grid
        # What runs when the quota falls goes on; a task that ends as the hour does, ends before.
        allowed = quota[max(step - 1, 0) : step + 1].max() if into == 0 else quota[step]
        busy = ((log.start_ns <= start) & (log.end_ns > start)).sum()
        assert busy <= allowed


@pytest.mark.parametrize("inner", ["path-softmax", "decima"])
def test_prop_careless_pcaps_is_its_base(inner, create):
    base = create(inner)
    careless = Pcaps(base, gamma=0.0)

    @given(cases.batches(), cases.executors(), cases.grids(), seeds)
    def check(jobs, many, grid, seed):
        one, two = (
            simulate(policy, jobs, many, grid=grid, seed=seed, log_tasks=True)
            for policy in (base, careless)
        )
        assert cases.log_of(one) == cases.log_of(two)
        assert two.holds == 0

    check()


@pytest.mark.parametrize("inner", [spec for spec in ORDERS if spec != "kubernetes?per_job=2"])
def test_prop_a_quota_of_all_is_none(inner, create):
    base = create(inner)

    @given(cases.batches(), cases.executors(), cases.grids(), seeds)
    def check(jobs, many, grid, seed):
        one, two = (
            simulate(policy, jobs, many, grid=grid, seed=seed, log_tasks=True)
            for policy in (base, Cap(base, min_share=1.0))
        )
        assert cases.log_of(one) == cases.log_of(two)

    check()


def check_patience(policy, jobs, many, grid, patience_ns, seed):
    """After its patience a job has started, or all executors were busy until it did."""
    run = simulate(
        policy, jobs, many, grid=grid, guard=Guard(patience_ns=patience_ns), seed=seed,
        log_tasks=True,
    )  # fmt: skip
    log, moving_ns = run.log, many.moving_delay_ns + many.startup_ns
    for job, arrival in enumerate(run.arrival_ns.tolist()):
        late = run.start_ns[job] - moving_ns - (arrival + patience_ns)
        if late <= 0:
            continue
        for at in range(arrival + patience_ns, int(run.start_ns[job]) - moving_ns):
            busy = (log.start_ns - moving_ns <= at) & (log.end_ns > at)
            assert len(set(log.executor[busy].tolist())) == many.count, f"job {job} waits at {at}"


@pytest.mark.parametrize(
    "spec",
    [
        "suspend:fifo",
        "cap?min_share=0:fifo",
        "wait-awhile",
        "pcaps?gamma=1",
        "pcaps+",
        "cap:pcaps",
    ],
)
@given(
    jobs=cases.batches(with_after=False), many=cases.executors(faults=False, all_there=True),
    grid=cases.grids(), patience_ns=st.integers(0, 40), seed=seeds,
)  # fmt: skip
def test_prop_no_job_is_held_past_its_patience(spec, jobs, many, grid, patience_ns, seed):
    check_patience(cluster_policies.create(spec), jobs, many, grid, patience_ns, seed)


def dirty_then_clean(dirty_h=5):
    return GridSteps.known([500.0] * dirty_h + [100.0] * 40, 10)


def two_stages(jobs=1):
    kinds = JobKinds.build(
        {
            "only": [
                Stage(2, {1: Waves(first=[10])}),
                Stage(1, {1: Waves(first=[4])}),
                Stage(1, {1: Waves(first=[10])}, parents=(0,)),
            ]
        }
    )
    return BatchJobs.of(kinds, np.zeros(jobs, int), np.zeros(jobs, int))


MANY = Executors(count=4, moving_delay_ns=0)


def test_suspend_waits_for_clean_hours():
    run = simulate("suspend", two_stages(), MANY, grid=dirty_then_clean(), log_holds=True)
    assert run.start_ns.tolist() == [50]
    assert set(run.held.held_ns.tolist()) == {0}
    assert set(run.held.resumed_ns.tolist()) == {50}
    assert set(run.held.intensity.tolist()) == {500.0}


def test_wait_awhile_starts_where_the_window_is_cleanest():
    grid = GridSteps.known([500, 500, 300, 100, 100, 400] + [500.0] * 40, 10)
    run = simulate("wait-awhile?window_h=6", two_stages(), MANY, grid=grid)
    assert run.start_ns.tolist() == [30]
    assert run.finish_ns.tolist() == [50]


def test_pcaps_holds_what_matters_less_than_the_hour_is_dirty():
    policy = Pcaps(PathSoftmax(sharpness=3.0), gamma=1.0, narrowing="none")
    run = simulate(
        policy, two_stages(8), Executors(count=64, moving_delay_ns=0), grid=dirty_then_clean(9),
        log_holds=True, log_tasks=True,
    )  # fmt: skip
    held = run.held
    assert run.holds > 0
    assert (held.importance < 1.0).all()
    assert (held.threshold < held.intensity).all()
    expected = [pcaps_threshold(share, 1.0, 100, 500) for share in held.importance.tolist()]
    assert held.threshold.tolist() == pytest.approx(expected)
    # Short stages matter less; of those that lead on, some always runs.
    assert 1 in held.stage
    assert run.log.start_ns[run.log.stage == 0].min() == 0


def test_a_stage_is_held_no_longer_than_said():
    policy = Pcaps(PathSoftmax(sharpness=3.0), gamma=1.0, narrowing="none")
    grid, many = dirty_then_clean(20), Executors(count=64, moving_delay_ns=0)
    longest = []
    for asked in (policy, Guarded(policy, longest_hold_h=0.7)):
        held = simulate(asked, two_stages(8), many, grid=grid, log_holds=True).held
        longest.append(int((held.resumed_ns - held.held_ns).max()))
    assert longest[0] > 7 >= longest[1]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("cap?min_share=2:fifo", "cap: min_share=2"),
        ("cap?min_share=nan:fifo", "cap: min_share=nan"),
        ("quota?share=-1:fifo", "quota: share=-1"),
        ("quota?binding=hour:fifo", "binding"),
        ("cap?binding=stage:fifo", "binding"),
        ("cap?counts=idle:fifo", "counts"),
        ("guard?patience_h=0:fifo", "guard without a bound"),
        ("suspend?quantile=1.5", "suspend: quantile=1.5"),
        ("suspend?patience_h=0", "suspend: patience_h=0"),
        ("green-hadoop?theta=9", "theta=9"),
        ("wait-awhile?window_h=0", "window_h=0"),
        ("carbon-scaler?window_h=-4", "window_h=-4"),
        ("pcaps?gamma=1.01", "gamma=1.01"),
        ("pcaps?narrowing=sideways", "sideways"),
        ("pcaps+?spread=0", "spread"),
        ("pcaps+?careful=0", "careful"),
        ("pcaps+?margin=2", "margin=2"),
        ("guard?patience_h=-1:fifo", "patience_h=-1"),
        ("kubernetes?per_job=0", "per_job=0"),
        ("weighted-fair?exponent=nan", "exponent"),
        ("path-softmax?sharpness=inf", "sharpness"),
        ("cap", "cap"),
        ("fifi", "did you mean 'fifo'"),
        ("fifo?per_job=3", "per_job"),
    ],
)
def test_bad_parameters_are_told(spec, why):
    with pytest.raises(InputError) as info:
        cluster_policies.create(spec)
    assert why in str(info.value)


@pytest.mark.parametrize("spec", [s for s in WRAPPED if "decima" not in s])
def test_what_knows_the_grid_needs_one(spec):
    with pytest.raises(InputError, match="needs a grid"):
        simulate(spec, two_stages(), MANY)


def test_pcaps_needs_a_policy_that_draws():
    with pytest.raises(InputError, match="a policy that draws, not Fifo"):
        simulate(Pcaps(Fifo()), two_stages(), MANY, grid=dirty_then_clean())


def test_a_stage_is_held_no_longer_than_the_guard_says_whatever_holds_it():
    """By a quota too: what is due goes over it, all of its tasks."""
    kinds = JobKinds.build({"one": [Stage(6, {1: Waves(first=[10])})]})
    jobs = BatchJobs.of(kinds, [0], [0])
    grid = GridSteps.known([500.0] * 20 + [100.0] * 28, step_ns=10)
    plain, guarded = (
        simulate(f"{guard}suspend?patience_h=1000&quantile=0.1", jobs, Executors(count=2, moving_delay_ns=0),
                 grid=grid, log_tasks=True)
        for guard in ("", "guard?longest_hold_h=3:")
    )  # fmt: skip
    assert plain.start_ns.tolist() == [200]
    assert guarded.start_ns.tolist() == [30]
    assert guarded.finish_ns.tolist() == [60]


def test_a_quota_before_decisions_alone_may_be_passed():
    """As in the authors' program: of none busy, a decision may give all there are."""
    kinds = JobKinds.build({"wide": [Stage(40, {8: Waves(first=[10])})]})
    jobs = BatchJobs.of(kinds, [0], [0])
    grid = GridSteps.known(np.full(60, 500.0), 5, horizon=2)
    most, many = {}, Executors(count=8, moving_delay_ns=0)
    for spec in ("quota?share=0.25:fifo", "quota?share=0.25&narrows=false&binding=decision:fifo"):
        log = simulate(spec, jobs, many, grid=grid, seed=0, log_tasks=True).log
        most[spec] = max(
            int(((log.start_ns <= t) & (log.end_ns > t)).sum()) for t in log.start_ns.tolist()
        )
    assert list(most.values()) == [2, 8]


def test_a_share_of_no_whole_number_is_kept_over_time():
    grid = GridSteps.known(np.full(100, 500.0), 5, horizon=2)
    kinds = JobKinds.build({"wide": [Stage(4_000, {8: Waves(first=[5])})]})
    jobs = BatchJobs.of(kinds, [0], [0])
    many = Executors(count=8, moving_delay_ns=0)
    for share, mean in ((0.3, 2.4), (0.29, 2.32), (0.25, 2.0), (0.01, 1.0)):
        run = simulate(f"quota?share={share}:fifo", jobs, many, grid=grid, seed=0)
        allowed = run.quota_at_ns[:100] / 5
        assert allowed.mean() == pytest.approx(mean)
        assert set(allowed.tolist()) <= {np.floor(mean), np.ceil(mean)}
