"""Calibration and bench on real threads: what they report, not how fast this machine is."""

from __future__ import annotations

import os

import msgspec
import numpy as np
import pytest

from gnomon import _core
from gnomon.decide.threads import thread_policies
from gnomon.errors import InputError
from gnomon.sim.cores import NEVER_NS, CoreRequests, Mechanism, Scheduling, run_cores
from gnomon.systems.threads import bench as bench_module
from gnomon.systems.threads import find_workload
from gnomon.systems.threads.bench import BenchSetting, bench, compare_with_base
from gnomon.systems.threads.bench_result import (
    to_bench_result,
    to_bench_script,
    to_calibration_result,
)
from gnomon.systems.threads.calibrate import (
    Cores,
    Interruptions,
    Machine,
    calibrate,
    measure_source,
)


@pytest.fixture(scope="module")
def machine():
    return calibrate(repeats=2)


def test_every_source_is_measured_or_says_why_not(machine):
    names = [one.name for one in machine.sources]
    assert names == ["none", "safepoint", "clock", "signal", "sleeper", "posix_timer", "uintr"]
    for one in machine.sources[1:]:
        if one.why_not:
            assert one.name == "uintr" or Cores.choose().timer < 0
            continue
        assert one.per_s > 0
        assert one.late_ns
        assert list(one.late_ns) == sorted(one.late_ns)
    assert machine.chosen in ("safepoint", "clock")
    assert machine.chosen_unpolled in ("signal", "sleeper", "posix_timer")
    assert 0 < machine.switch_ns < 1e6
    assert msgspec.json.decode(msgspec.json.encode(machine), type=Machine) == machine
    result = to_calibration_result(machine)
    assert any("uintr" in note for note in result.notes)
    assert len(result.tables[0]) == 5 if not machine.source("signal").why_not else True


def test_unknown_sources_are_refused(machine):
    with pytest.raises(InputError, match="magic"):
        machine.source("magic")
    with pytest.raises(InputError, match="magic"):
        measure_source("magic", Cores.choose())


@pytest.mark.parametrize("source", ["safepoint", "signal"])
@pytest.mark.parametrize("policy", thread_policies.names())
def test_every_policy_runs_every_request(policy, source):
    workers = 2 if policy == "reserved" else 1
    requests = find_workload("A2").requests(0.5, count=400, workers=workers, seed=3)
    scheduling = thread_policies.create(policy).native(None)
    burst = _core.run_burst(
        source=source, requests=requests.to_native(), scheduling=scheduling.to_native(),
        workers=workers, cpus=[], timer_cpu=-1, realtime=0,
    )  # fmt: skip
    latency, attained = burst.take_latency(), burst.take_attained()
    assert len(latency) == len(requests)
    assert np.all(latency > 0)
    assert np.all(attained > 0)
    assert np.all(latency >= attained)  # from when it was due, so at least its time


def test_bench_reports_what_it_promises(machine, monkeypatch):
    # On a busy machine every burst is disturbed: here it is the report that is tried.
    monkeypatch.setattr(bench_module, "STALL_NS", 10**12)
    setting = BenchSetting(find_workload("A2"), machine, bursts=2, burst_ms=10)
    hard = "two-queue?hard_quantum_us=100"
    cells = bench(setting, ["fcfs", hard, "two-queue"], [0.5], [20.0], ["safepoint"])
    assert [(one.policy, one.quantum_us) for one in cells] == [
        ("fcfs", None), (hard, 20.0), ("two-queue", 20.0)
    ]  # fmt: skip
    for one in cells:
        assert (one.bursts_kept, one.bursts_dropped) == (2, 0)
        assert one.p99_low_us <= one.overall.p99_us <= one.p99_high_us
        assert one.simulated_p99_us > 0
    advice, _ = compare_with_base(cells)
    assert advice.cell.policy == hard
    assert advice.gain == cells[0].overall.p99_us / cells[1].overall.p99_us
    script = to_bench_script(setting, cells)
    wanted = {"policy", "source", "quantum_us", "load", "p50_us", "p99_us", "p999_us", "classes",
              "preemptions", "bursts_kept", "bursts_dropped"}  # fmt: skip
    assert all(wanted <= set(one) for one in script["cells"])
    result = to_bench_result(setting, cells)
    assert result.figures[0].value == cells[1].overall.p99_us
    assert [figure.label.split(",")[0] for figure in result.figures] == [
        f"Load 0.5: {hard}", "Load 0.5: two-queue"
    ]  # fmt: skip
    for factor, says in ((1.02, "as good as"), (0.98, "as good as"), (3.0, "3.0 times worse")):
        p99 = factor * cells[0].overall.p99_us
        other = msgspec.structs.replace(
            cells[1], overall=msgspec.structs.replace(cells[1].overall, p99_us=p99)
        )
        (figure,) = to_bench_result(setting, [cells[0], other]).figures
        assert figure.note.startswith(f"p99, {says}")


def test_requests_of_one_length_are_not_preempted(machine, monkeypatch):
    """The controller, fed by real bursts of an exponential workload, says no preemption."""
    monkeypatch.setattr(bench_module, "STALL_NS", 10**12)
    setting = BenchSetting(find_workload("B"), machine, bursts=4, burst_ms=20)
    requests = find_workload("B").requests(0.7, count=3000)
    plan = bench_module._Plan("two-queue", "safepoint", 0.7, True, [])
    for _ in range(3):
        bench_module._adapt(setting, plan, requests, requests.service_ns)
    assert plan.quantum_ns == NEVER_NS
    assert "worth" in plan.reason


def test_more_workers_than_cores_are_refused(machine):
    workers = len(os.sched_getaffinity(0))
    setting = BenchSetting(find_workload("A2"), machine, workers=workers)
    with pytest.raises(InputError, match=r"and a timer need \d+ cores"):
        bench(setting, ["fcfs"], [0.5], [], ["clock"])


def test_without_a_source_nothing_is_preempted(machine):
    setting = BenchSetting(find_workload("A2"), machine, bursts=2, burst_ms=20)
    alone = bench_module.predict(setting, "fcfs", "none", 0.6)
    assert bench_module.predict(setting, "two-queue?quantum_us=5", "none", 0.6) == alone


def test_interruptions_make_requests_longer():
    requests = CoreRequests(np.arange(1000), np.full(1000, 1_000_000))
    longer = Interruptions(1000.0, (50_000,)).extend(requests, seed=1)
    added = (longer.service_ns - requests.service_ns) / 50_000
    assert 0.8 < added.mean() < 1.2  # one a millisecond
    assert np.array_equal(Interruptions().extend(requests).service_ns, requests.service_ns)


@pytest.mark.parametrize("rule", ["fcfs", "round-robin", "two-queue", "least-attained"])
def test_queues_of_their_own_lose_nothing_and_are_no_better(rule):
    """A queue a worker, with stealing: the same work, and the mean is that of one queue or more."""
    rng = np.random.default_rng(5)
    service = np.where(rng.random(20_000) < 0.95, 5_000, 200_000)
    arrival = np.cumsum(rng.exponential(service.mean() / (4 * 0.7), 20_000)).astype(np.int64)
    requests = CoreRequests(arrival, service)
    scheduling = Scheduling(rule, quantum_ns=10_000)
    own = run_cores(requests, scheduling, workers=4, is_shared=False)
    shared = run_cores(requests, scheduling, workers=4)
    assert np.all(own.latency_ns >= service)
    assert own.latency_ns.mean() > 0.98 * shared.latency_ns.mean()
    alone = run_cores(requests, scheduling, workers=1, is_shared=False).latency_ns
    assert np.array_equal(alone, run_cores(requests, scheduling, workers=1).latency_ns)


def test_best_effort_gets_its_share_and_no_more():
    """Urgent requests at 0.6 of a worker, endless other work: the share is kept, urgent ones are quick."""
    rng = np.random.default_rng(2)
    urgent = np.cumsum(rng.exponential(10_000, 30_000)).astype(np.int64)
    arrival = np.concatenate([[0], urgent])
    service = np.concatenate([[10**9], np.full(30_000, 6_000)])
    kind = np.concatenate([[1], np.zeros(30_000, int)]).astype(np.int32)
    requests = CoreRequests(arrival, service, kind)
    for share in (0.0, 0.2):
        policy = thread_policies.create(f"best-effort?share={share}").native(None)
        run = run_cores(requests, policy, mechanism=Mechanism(100, 0, (100,)))
        fcfs = run_cores(requests, Scheduling("fcfs"))
        assert np.percentile(run.latency_ns[1:], 99) < np.percentile(fcfs.latency_ns[1:], 99) / 100
        # Urgent ones end by then; what is left of the long request shows what it had.
        had = 10**9 - (run.end_ns - urgent[-1])
        assert had >= share * urgent[-1] * 0.9


def test_a_controller_follows_the_load():
    """Workload C: heavy-tailed, then light: preemption with a short quantum, then none."""
    requests = find_workload("C").requests(0.7, count=400_000, seed=1)
    mechanism = Mechanism(250, 0, (200,))
    run = run_cores(
        requests, Scheduling("two-queue", 10_000), mechanism=mechanism, control="cost",
        control_period_ns=50_000_000,
    )  # fmt: skip
    half = requests.arrival_ns[200_000]
    then = run.quanta_ns[: half // 50_000_000]
    after = run.quanta_ns[half // 50_000_000 + 3 :]
    assert np.median(then) < 30_000
    assert np.median(after) >= NEVER_NS
    steps = run_cores(
        requests, Scheduling("two-queue", 50_000), mechanism=mechanism, control="paper",
        control_period_ns=50_000_000,
    ).quanta_ns  # fmt: skip
    assert steps.min() >= 3_000
    assert np.all(np.abs(np.diff(steps)) <= 10_000)
