"""The simulator of services: closed forms, a slow reference, and promises on random input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.errors import SimulationError
from gnomon.graph.application import Application, Call, Host, RequestClass, Service, Sla, Work
from gnomon.sim.mesh import STATUS, Arrivals, MeshSim, poisson_requests
from gnomon.units import SECOND_NS
from tests.sim.reference_mesh import Reference


def one_service(cpu_ms, rate=100.0, **service):
    hosts = {"h": Host(cores=1.0)} if service.get("host") else {}
    return Application(
        "one", {"web": Service(**service)}, {"get": RequestClass(Call("web", cpu_ms=cpu_ms))},
        hosts=hosts, rate=rate,
    )  # fmt: skip


def play(app, rate, seconds=400, seed=1):
    sim = MeshSim(
        app, poisson_requests(app, [rate] * seconds, seed=seed), seed=seed, keep_requests=True
    )
    sim.advance(10**4 * seconds * SECOND_NS)
    return sim


def mean_ms(app, rate, seconds=300, seeds=range(8)):
    """Mean latency with a 99.9 % confidence interval over independent runs."""
    means = [play(app, rate, seconds, seed).request_latency_ns.mean() / 1e6 for seed in seeds]
    half = 5.4 * np.std(means, ddof=1) / math.sqrt(len(means))  # t, 7 degrees of freedom
    return float(np.mean(means)), float(half)


EXPONENTIAL = Work(mean=1.0, shape="exponential")


def test_m_m_1():
    mean, half = mean_ms(one_service(EXPONENTIAL, workers=1), 700.0)
    assert abs(mean - 1 / (1 - 0.7)) < half < 0.5


@pytest.mark.parametrize(("servers", "rate"), [(2, 1500.0), (5, 4000.0)])
def test_m_m_c(servers, rate):
    load = rate / 1e3
    head = sum(load**k / math.factorial(k) for k in range(servers))
    tail = load**servers / math.factorial(servers) * servers / (servers - load)
    expected = 1.0 + tail / (head + tail) / (servers - load)
    mean, half = mean_ms(one_service(EXPONENTIAL, workers=servers), rate, seconds=120)
    assert abs(mean - expected) < half < 0.3


def test_m_g_1_processor_sharing_depends_on_the_mean_alone():
    for cv in (0.5, 2.0):
        app = one_service(Work(mean=1.0, cv=cv), workers=100_000, host="h")
        mean, half = mean_ms(app, 600.0, seconds=200)
        assert abs(mean - 1 / (1 - 0.6)) < half < 0.5


def test_m_g_1_first_come_first_served():
    mean, half = mean_ms(one_service(Work(mean=1.0, cv=2.0), workers=1), 500.0)
    assert abs(mean - (1.0 + 0.5 * (1 + 4) / (2 * (1 - 0.5)))) < half < 0.8


def test_a_tandem_is_two_queues_by_jackson():
    faster = Work(mean=0.5, shape="exponential")
    row = ((Call("a", cpu_ms=EXPONENTIAL),), (Call("b", cpu_ms=faster),))
    app = Application(
        "tandem", {"door": Service(), "a": Service(workers=1), "b": Service(workers=1)},
        {"get": RequestClass(Call("door", then=row))},
    )  # fmt: skip
    mean, half = mean_ms(app, 600.0)
    assert abs(mean - (1 / (1 - 0.6) + 0.5 / (1 - 0.3))) < half < 0.5


def test_fork_join_lies_between_its_bounds():
    leaves = tuple(Call(name, cpu_ms=EXPONENTIAL) for name in "bcd")
    app = Application(
        "fork", {"a": Service(), **{name: Service(workers=1) for name in "bcd"}},
        {"get": RequestClass(Call("a", then=(leaves,)))},
    )  # fmt: skip
    mean, half = mean_ms(app, 500.0)
    single, harmonic = 1 / (1 - 0.5), 1 + 1 / 2 + 1 / 3
    # Nelson and Tantawi (1988): at least the greatest of three unloaded, at most independent.
    assert harmonic - half < mean < harmonic * single + half
    assert mean > single


@pytest.mark.parametrize("limit", [0.3, 0.5, 0.8])
def test_a_quota_bounds_the_usage(limit):
    app = one_service(2.0, workers=4, cpu_limit=limit)
    sim = MeshSim(app, poisson_requests(app, [1000.0] * 20, seed=2), seed=2)
    sim.advance(20 * SECOND_NS)
    seen = sim.observe()
    assert seen.used[0] / (20 * SECOND_NS) == pytest.approx(limit, rel=0.01)
    assert seen.throttled[0] / seen.periods[0] > 0.99


def test_a_request_longer_than_its_quota_waits_for_periods():
    app = one_service(30.0, workers=1, cpu_limit=0.1)
    sim = MeshSim(app, Arrivals(np.array([0]), np.array([0], np.int32)), keep_requests=True)
    sim.advance(SECOND_NS)
    # 30 ms of work at 10 ms a period: the first period is cut by the phase.
    assert 110 < sim.request_latency_ns[0] / 1e6 <= 300
    assert sim.observe().throttled[0] in (2, 3)


def test_a_quota_of_zero_stops_and_a_later_one_starts_it():
    app = one_service(2.0, cpu_limit=0.0)
    sim = MeshSim(app, poisson_requests(app, [50.0] * 5, seed=1), keep_requests=True)
    sim.advance(100 * SECOND_NS)
    assert sim.observe().answered[0] == 0
    assert sim.pending == len(sim.arrivals.time_ns)
    sim.set_limit(0, 4.0)
    sim.advance(200 * SECOND_NS)
    assert sim.pending == 0
    assert sim.observe().answered[0] == len(sim.arrivals.time_ns)


def test_a_limit_acts_at_once_and_is_undone_at_once():
    app = one_service(3.0, workers=1, rate=100.0)
    sim = MeshSim(app, poisson_requests(app, [100.0] * 30, seed=5), seed=5)
    shares = []
    for limit in (math.inf, 0.25, 1.0):
        sim.set_limit(0, limit)
        sim.advance(sim.now_ns + 10 * SECOND_NS)
        seen = sim.observe()
        shares.append(seen.throttled[0] / max(int(seen.periods[0]), 1))
    assert shares[0] == 0
    assert shares[1] > 0.9
    assert shares[2] < 0.2


def test_a_full_pool_delays_the_caller_not_the_callee():
    slow = Call("b", cpu_ms=0.1, wait_ms=20.0)
    app = Application(
        "pool", {"a": Service(pools={"b": 2}), "b": Service()},
        {"get": RequestClass(Call("a", then=((slow,),)))},
    )  # fmt: skip
    sim = play(app, 200.0, seconds=5)
    spent = {int(s): e for s, e in zip(sim.spent().service, sim.spent().exclusive_ms)}
    assert spent[0] > 200
    assert spent[1] == pytest.approx(20.1, rel=0.01)


def test_priorities_go_first():
    app = Application(
        "two", {"web": Service(workers=1)},
        {"low": RequestClass(Call("web", cpu_ms=1.0), share=0.5),
         "high": RequestClass(Call("web", cpu_ms=1.0), share=0.5, priority=1)},
    )  # fmt: skip
    sim = play(app, 950.0, seconds=20)
    latency, kind = sim.request_latency_ns, sim.arrivals.request_class
    assert latency[kind == 1].mean() * 4 < latency[kind == 0].mean()


def test_a_timed_out_call_is_tried_again_and_its_work_goes_on():
    call = Call("b", cpu_ms=10.0, timeout_ms=5.0, retries=2)
    app = Application(
        "retry", {"a": Service(), "b": Service(workers=100)},
        {"get": RequestClass(Call("a", then=((call,),)))},
    )  # fmt: skip
    sim = MeshSim(app, Arrivals(np.array([0]), np.array([0], np.int32)), keep_requests=True)
    sim.advance(SECOND_NS)
    assert STATUS[sim.request_status[0]] == "failed"
    assert sim.observe().calls.tolist() == [1, 3]
    # Three attempts of 5 ms with pauses of 1 and 2 ms.
    assert sim.request_latency_ns[0] == 18_000_000


def test_refused_and_failing_calls_fail_requests():
    app = one_service(10.0, workers=1, queue_limit=1)
    sim = MeshSim(app, Arrivals(np.zeros(5, np.int64), np.zeros(5, np.int32)), keep_requests=True)
    sim.advance(SECOND_NS)
    assert [STATUS[s] for s in sim.request_status] == ["answered", "answered", *["failed"] * 3]
    app = Application(
        "bad", {"web": Service()}, {"get": RequestClass(Call("web", error_share=0.25))}
    )
    sim = play(app, 1000.0, seconds=4)
    assert np.mean(sim.request_status == 2) == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize(("waiting", "refused"), [(0, 0.6 / 1.6), (1, 0.36 / 1.96)])
def test_a_bounded_queue_loses_what_erlang_says(waiting, refused):
    app = one_service(EXPONENTIAL, workers=1, queue_limit=waiting)
    sim = play(app, 600.0, 200)
    assert np.mean(sim.request_status == 2) == pytest.approx(refused, abs=0.01)


def test_a_client_gives_up():
    app = Application("slow", {"web": Service()},
                      {"get": RequestClass(Call("web", wait_ms=50.0), timeout_ms=20.0)})  # fmt: skip
    sim = play(app, 100.0, seconds=1)
    assert {STATUS[s] for s in sim.request_status} == {"timed out"}
    assert set(sim.request_latency_ns) == {20_000_000}


def test_replicas_start_and_drain():
    app = one_service(20.0, workers=1, startup_s=2.0)
    sim = MeshSim(app, poisson_requests(app, [40.0] * 30, seed=3), seed=3, keep_requests=True)
    sim.set_replicas(0, 3)
    sim.advance(SECOND_NS)
    assert sim.observe().replicas[0] == 1
    sim.advance(3 * SECOND_NS)
    assert sim.observe().replicas[0] == 3
    sim.set_replicas(0, 0)
    sim.advance(10 * SECOND_NS)
    assert sim.observe().replicas[0] == 0
    sim.set_replicas(0, 2)
    sim.advance(100 * SECOND_NS)
    assert sim.pending == 0
    assert np.all(sim.request_status == 1)


def test_noisy_neighbours_slow_a_host_down():
    def host(noise):
        return Application(
            "n", {"web": Service(workers=8, host="h")}, {"get": RequestClass(Call("web", cpu_ms=2.0))},
            hosts={"h": Host(cores=1.0, noise_cores=noise)},
        )  # fmt: skip

    quiet, noisy = (play(host(n), 300.0, 60).request_latency_ns.mean() for n in (0.0, 2.0))
    assert noisy > 1.5 * quiet


def test_the_same_seed_gives_the_same_bytes():
    app = one_service(Work(mean=2.0, cv=1.0), cpu_limit=0.5)
    first, second, other = (play(app, 150.0, 20, seed) for seed in (1, 1, 2))
    assert first.request_latency_ns.tobytes() == second.request_latency_ns.tobytes()
    assert first.request_latency_ns.tobytes() != other.request_latency_ns.tobytes()


def test_retries_of_retries_are_stopped():
    call = Call("web", error_share=1.0)
    for _ in range(30):
        call = Call("web", then=((call,),), retries=10)
    app = Application("storm", {"web": Service()}, {"get": RequestClass(call)})
    sim = MeshSim(app, poisson_requests(app, [100.0], seed=1), most_events=200_000)
    with pytest.raises(SimulationError, match="too many events"):
        sim.advance(10**6 * SECOND_NS)


# --- random applications ---------------------------------------------------------------------

times = st.integers(0, 20_000).map(lambda us: us * 0.00137)
names = st.sampled_from(["a", "b", "c"])


@st.composite
def calls(draw, depth=0):
    stages = (
        draw(st.lists(st.lists(calls(depth + 1), min_size=1, max_size=3), max_size=2))
        if depth < 2
        else []
    )
    return Call(
        draw(names), cpu_ms=draw(times), wait_ms=draw(times.map(lambda t: t if t > 10 else 0.0)),
        then=tuple(tuple(stage) for stage in stages),
        mode=draw(st.sampled_from(["rpc", "rpc", "rpc", "queue"])) if depth else "rpc",
    )  # fmt: skip


@st.composite
def applications(draw):
    hosts = (
        {"h": Host(cores=draw(st.sampled_from([1.0, 1.5, 2.0])))} if draw(st.booleans()) else {}
    )
    services = {
        name: Service(
            replicas=draw(st.integers(1, 2)),
            workers=draw(st.integers(1, 4)),
            blocking=draw(st.booleans()),
            cpu_limit=draw(st.sampled_from([None, None, 0.05, 0.31, 0.77, 1.9])),
            cpu_request=draw(st.sampled_from([0.5, 1.0, 2.0])),
            pools=draw(st.dictionaries(names, st.integers(1, 3), max_size=2)),
            host=draw(st.sampled_from(["", *hosts])),
            overhead_ms=draw(st.sampled_from([0.0, 0.013])),
        )
        for name in "abc"
    }
    classes = {
        f"class{i}": RequestClass(
            draw(calls()),
            priority=draw(st.integers(0, 1)),
            sla=Sla(100.0, until=draw(st.sampled_from(["reply", "all"]))),
        )
        for i in range(draw(st.integers(1, 2)))
    }
    return Application("any", services, classes, hosts, network_ms=draw(st.sampled_from([0.0, 0.0531])),
                       period_ms=draw(st.sampled_from([10.0, 100.0])),
                       tick_ms=draw(st.sampled_from([0.0, 1.0, 4.0])),)  # fmt: skip


# The same examples every time: where two things end within a nanosecond, rounding decides.
@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    app=applications(),
    gaps=st.lists(st.integers(0, 20_000_000), min_size=1, max_size=12),
    seed=st.integers(0, 5),
)
def test_prop_equals_the_slow_reference(app, gaps, seed):
    classes = np.arange(len(gaps), dtype=np.int32) % len(app.classes)
    # Times of work are multiples of 5 ns: nothing arrives in the very nanosecond in which something
    # ends, where rounding would decide who is first.
    arrivals = Arrivals(np.cumsum(np.array(gaps, np.int64) // 5 * 5) + 3, classes.astype(np.int32))
    sim = MeshSim(app, arrivals, seed=seed, keep_requests=True)
    until = 3 * SECOND_NS
    sim.advance(until)
    expected = Reference(app, arrivals, seed).run(until)
    found = [None if latency < 0 else latency for latency in sim.request_latency_ns.tolist()]
    assert [latency is None for latency in found] == [latency is None for latency in expected]
    # Both round CPU times up to whole ns, at different moments.
    for mine, theirs in zip(found, expected):
        assert mine is None or mine == pytest.approx(theirs, abs=2000)


@settings(max_examples=60, deadline=None)
@given(app=applications(), seed=st.integers(0, 100))
def test_prop_requests_are_conserved(app, seed):
    sim = MeshSim(app, poisson_requests(app, [60.0] * 3, seed=seed), seed=seed, keep_requests=True)
    answered = failed = arrived = 0
    used = 0.0
    for second in range(1, 6):
        sim.advance(second * SECOND_NS)
        seen = sim.observe()
        answered += int(seen.answered.sum())
        failed += int(seen.failed.sum())
        arrived += int(seen.arrived.sum())
        used += float(seen.used.sum())
        assert seen.used_slices.sum() == pytest.approx(seen.used.sum(), rel=1e-9, abs=1.0)
        # A period may begin in one window and be throttled in the next.
        counts = [service.replicas for service in app.services.values()]
        assert np.all(seen.throttled <= seen.periods + counts)
    assert arrived == len(sim.arrivals.time_ns)
    assert answered + failed + sim.pending == arrived
    assert sim.spent().calls.sum() <= sim.events
    cpu = (sim.spent().cpu_ms * np.maximum(sim.spent().calls, 1)).sum() * 1e6
    assert used <= cpu * (1 + 1e-9) + 1e4
