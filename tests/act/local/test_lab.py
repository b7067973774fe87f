"""Semantics of a running application: what a request does, and what is counted."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

from gnomon.act.local import lab as lab_module
from gnomon.act.local.client import ERROR, OK, TIMEOUT
from gnomon.act.local.lab import Lab
from gnomon.act.local.reading import percentiles_ms
from gnomon.errors import ActuationError, InputError
from gnomon.graph.application import Application, Call, RequestClass, Service, Work
from tests.act.local.loads import app_of, get, ok_latency_ms, read_spans, send
from tests.waiting import until


def test_two_tiers_answer_and_counts_conserve():
    app = app_of(Call("front", cpu_ms=0.5, then=((Call("store", cpu_ms=1.0),),)))
    with Lab(app) as lab:
        load = send(lab, 200)
        assert (load.outcome == OK).all()
        now = lab.read()
        assert now.ok.tolist() == [[200], [200]]
        assert now.errors.sum() == now.refused.sum() == now.waiting.sum() == 0
        assert now.arrived.tolist() == [200, 200]
        assert (
            now.exclusive.sum(axis=2).tolist() == now.total.sum(axis=2).tolist() == [[200], [200]]
        )
        # All CPU time is spent, and the machine's own cost per request is small beside it.
        assert now.usage_ns[0] >= 0.1e9
        assert 0.2e9 <= now.usage_ns[1] <= 0.4e9
        # The callee's time is no part of the caller's own.
        front, store = percentiles_ms(now.exclusive[:, 0], [50.0])[:, 0]
        assert percentiles_ms(now.total[0, 0], [50.0])[0] > store
        assert front >= 0.5
        assert store >= 1.0
        assert load.latency_ns.min() >= 1.5e6
        before = now
        send(lab, 10)
        assert lab.read().since(before).ok.tolist() == [[10], [10]]
    assert not lab.folder.exists()


def test_a_stage_is_parallel_stages_are_not():
    wait = Call("store", wait_ms=30.0)
    together = app_of(Call("front", then=((wait, wait, wait),)))
    one_by_one = app_of(Call("front", then=((wait,), (wait,), (wait,))))
    with Lab(together) as lab:
        parallel = ok_latency_ms(send(lab, 20))
    with Lab(one_by_one) as lab:
        sequential = ok_latency_ms(send(lab, 20))
    assert parallel.min() >= 30
    assert sequential.min() >= 90
    assert np.median(parallel) < 90


def test_queued_calls_are_not_waited_for():
    app = app_of(Call("front", then=((Call("mail", wait_ms=500.0, mode="queue"),),)))
    with Lab(app) as lab:
        load = send(lab, 20, every_ms=1.0)
        assert np.median(ok_latency_ms(load)) < 400
        until(lambda: lab.read().ok[1, 0] == 20, "queued work is done too")
        until(lambda: (load.whole_latency_ns() >= 500e6).all(), "and its end is known")
        assert (load.whole_latency_ns() > load.latency_ns).all()


def test_probability_and_error_share():
    app = app_of(
        Call("front", then=((Call("half", probability=0.5), Call("never", probability=0.0)),))
    )
    with Lab(app) as lab:
        send(lab, 400, every_ms=0.5)
        calls = lab.read().arrived
    assert calls[0] == 400
    assert 140 < calls[1] < 260  # 6 sigma
    assert calls[2] == 0
    with Lab(app_of(Call("front", error_share=0.5))) as lab:
        load = send(lab, 400, every_ms=0.5)
        failed = lab.read().errors[0, 0]
    assert 140 < failed < 260
    assert failed == np.count_nonzero(load.outcome == ERROR)


def test_a_pool_holds_calls_back_by_priority():
    call = Call("front", then=((Call("store", wait_ms=40.0),),))
    app = Application(
        "pooled",
        {"front": Service(pools={"store": 1}), "store": Service()},
        {"low": RequestClass(call), "high": RequestClass(call, priority=5)},
    )
    with Lab(app) as lab:
        load = send(lab, 20, every_ms=0.0, class_index=[0] * 10 + [1] * 10)
        latency = ok_latency_ms(load)
        now = lab.read()
    assert latency.max() >= 20 * 40, "one connection: one call at a time"
    # The first low one had the connection already; all high ones come before the others.
    assert np.sort(latency[10:])[-1] < np.sort(latency[:10])[1:].min()
    assert now.pool_wait_ns[0] / now.pool_waits[0] > 100e6
    assert now.pool[0].sum() == now.pool_waits[0] == 20
    # Waiting for a connection is the caller's own time; the call is not.
    assert percentiles_ms(now.exclusive[0].sum(axis=0), [99.0])[0] > 200


def test_a_call_that_times_out_is_tried_again():
    slow = Call("slow", wait_ms=300.0, timeout_ms=20.0, retries=2)
    with Lab(app_of(Call("front", then=((slow,),)))) as lab:
        load = send(lab, 5)
        assert (load.outcome == ERROR).all()
        assert (np.asarray(load.latency_ns) >= 60e6).all()
        # The callee goes on working.
        until(lambda: lab.read().ok[1, 0] == 15, "three attempts each")


def test_a_failed_call_is_tried_again_and_fails_the_request():
    broken = Call("broken", error_share=1.0, retries=1)
    with Lab(app_of(Call("front", then=((broken,), (Call("after"),))))) as lab:
        load = send(lab, 5)
        assert (load.outcome == ERROR).all()
        now = lab.read()
    assert now.arrived.tolist() == [5, 10, 0]
    assert now.errors[:2, 0].tolist() == [5, 10]


def test_a_call_that_times_out_waiting_for_a_connection():
    app = Application(
        "pooled",
        {"front": Service(pools={"slow": 1}), "slow": Service()},
        {
            "holds": RequestClass(Call("front", then=((Call("slow", wait_ms=1000.0),),))),
            "waits": RequestClass(Call("front", then=((Call("slow", timeout_ms=50.0),),))),
        },
    )
    with Lab(app) as lab:
        load = send(lab, 6, every_ms=10.0, class_index=[0] + [1] * 5)
        assert load.outcome.tolist() == [OK] + [ERROR] * 5
        assert lab.read().arrived[1] == 1


def test_the_client_gives_up():
    with Lab(app_of(Call("slow", wait_ms=2000.0), timeout_ms=30.0)) as lab:
        load = send(lab, 5)
    assert (load.outcome == TIMEOUT).all()
    assert (np.asarray(load.latency_ns) >= 30e6).all()


def test_what_is_open_at_the_end_has_timed_out():
    with Lab(app_of(Call("slow", wait_ms=60_000.0))) as lab:
        load = send(lab, 3, grace_s=0.1)
    assert (load.outcome == TIMEOUT).all()


def test_past_its_connections_the_client_still_counts_from_the_due_time():
    with Lab(app_of(Call("slow", wait_ms=50.0))) as lab:
        load = send(lab, 6, every_ms=0.0, connections=2)
    assert ok_latency_ms(load).max() >= 150
    assert np.median(load.lateness_ns) < 50e6


def test_a_blocking_worker_is_held_to_the_end():
    wait = Call("store", wait_ms=40.0)
    for blocking in (True, False):
        service = Service(workers=1, blocking=blocking)
        with Lab(app_of(Call("front", then=((wait,),)), front=service)) as lab:
            latency = ok_latency_ms(send(lab, 8, every_ms=0.0))
            waited = lab.read().waiting_ns[0]
        if blocking:
            assert latency.max() >= 8 * 40
            assert waited >= 0.9 * 40e6 * sum(range(8))
        else:
            assert latency.max() < 8 * 40


def test_priorities_at_the_workers():
    call = Call("front", cpu_ms=5.0)
    app = Application(
        "ranked",
        {"front": Service(workers=1)},
        {"low": RequestClass(call), "high": RequestClass(call, priority=1)},
    )
    with Lab(app) as lab:
        latency = ok_latency_ms(send(lab, 30, every_ms=0.0, class_index=[0] * 15 + [1] * 15))
    assert np.median(latency[15:]) < np.median(latency[:15])


def test_a_full_queue_refuses():
    service = Service(workers=1, blocking=True, queue_limit=3)
    with Lab(app_of(Call("front", wait_ms=150.0), front=service)) as lab:
        load = send(lab, 10, every_ms=0.0)
        now = lab.read()
    assert np.count_nonzero(load.outcome == OK) == 4  # one works, three wait
    assert now.refused[0] == np.count_nonzero(load.outcome == ERROR) == 6


def test_drawn_times():
    app = app_of(Call("front", wait_ms=Work(quantiles={0: 20.0, 50: 30.0, 100: 60.0})))
    with Lab(app) as lab:
        latency = ok_latency_ms(send(lab, 200, every_ms=1.0))
    assert latency.min() >= 20
    assert np.quantile(latency, 0.5) >= 29


def test_two_entries():
    app = Application(
        "two",
        {"a": Service(), "b": Service()},
        {"to-a": RequestClass(Call("a")), "to-b": RequestClass(Call("b"))},
    )
    with Lab(app) as lab:
        ok_latency_ms(send(lab, 30, class_index=[0, 1, 1] * 10))
        assert lab.read().ok.tolist() == [[10, 0], [0, 20]]


def test_odd_names():
    app = Application(
        "odd",
        {"größe+1": Service(), "x" * 200: Service()},
        {'a "b" \\ c\n': RequestClass(Call("größe+1", operation='"', then=((Call("x" * 200),),)))},
    )
    with Lab(app, sample_share=1.0) as lab:
        ok_latency_ms(send(lab, 3))
        assert r'{class="a \"b\" \\ c\n",outcome="ok"} 3' in get(
            lab.addresses("größe+1")[0], "/metrics"
        )
        until(lambda: {s["name"] for s in read_spans(lab)} == {'"', "x" * 200})


def test_replicas_come_and_go_without_lost_requests():
    app = app_of(Call("front", cpu_ms=0.2, then=((Call("store", wait_ms=20.0),),)))
    with Lab(app) as lab:
        due_ns = (np.arange(1500) * 2e6).astype(np.int64)
        load = lab.load(due_ns, np.zeros(1500))
        for done, count in ((100, 3), (500, 1), (900, 2)):
            until(lambda done=done: np.count_nonzero(load.outcome) > done)
            lab.set_replicas("store", count)
            lab.set_replicas("front", count)
            assert len(lab.addresses("store")) == lab.read().replicas[1] == count
        load.wait()
        assert (load.outcome == OK).all()
        now = lab.read()
        assert now.ok.tolist() == [[1500], [1500]], "the counts of replicas that left are kept"
        assert now.usage_ns.min() > 0


def test_replicas_outlive_the_thread_that_adds_them():
    """Cells ask the kernel to die with their parent, which for it is a thread."""
    with Lab(app_of(Call("front"))) as lab:
        thread = threading.Thread(target=lab.set_replicas, args=("front", 2))
        thread.start()
        thread.join()
        ok_latency_ms(send(lab, 20))
        assert lab.read().replicas[0] == 2


def test_nobody_answers_without_replicas():
    with Lab(app_of(Call("front", then=((Call("store"),),)))) as lab:
        lab.set_replicas("store", 0)
        assert (send(lab, 3).outcome == ERROR).all()
        lab.set_replicas("store", 1)
        assert (send(lab, 3).outcome == OK).all()


def test_a_limit_changes_live():
    with Lab(app_of(Call("front", cpu_ms=5.0))) as lab:
        if lab.note:
            pytest.skip(lab.note)
        send(lab, 40, every_ms=10.0)
        assert lab.read().periods[0] == lab.read().throttled[0] == 0
        lab.set_limit("front", 0.2)
        before = lab.read()
        send(lab, 40, every_ms=10.0)
        held = lab.read().since(before)
        assert held.cpu_limit[0] == 0.2
        assert 0 < held.throttled[0] <= held.periods[0]
        assert held.throttled_ns[0] > 0
        assert held.usage_ns[0] / held.elapsed_ns < 0.25
        lab.set_limit("front", None)
        before = lab.read()
        send(lab, 40, every_ms=10.0)
        free = lab.read().since(before)
        assert free.throttled[0] <= 1  # a period may have been under way
        assert free.cpu_limit[0] == np.inf
        sample = lab.sample_usage()
        assert sample.throttled[0] >= held.throttled[0]


def test_new_replicas_have_the_limit():
    with Lab(app_of(Call("front", cpu_ms=1.0))) as lab:
        if lab.note:
            pytest.skip(lab.note)
        lab.set_limit("front", 0.05)
        lab.set_replicas("front", 2)
        before = lab.read()
        send(lab, 60, every_ms=5.0)
        assert lab.read().since(before).periods[0] > 0
        lab.set_request("front", 4.0)


def test_plain_processes_where_there_are_no_groups(monkeypatch):
    def refuse():
        raise ActuationError("no groups here")

    monkeypatch.setattr(lab_module, "root_group", refuse)
    with Lab(app_of(Call("front", cpu_ms=5.0))) as lab:
        assert lab.note == "limits are not enforced: no groups here"
        lab.set_limit("front", 0.01)
        ok_latency_ms(send(lab, 40, every_ms=10.0))
        now = lab.read()
    assert now.usage_ns[0] >= 0.15e9
    assert now.throttled[0] == 0
    assert now.own_ns >= now.usage_ns[0]


def test_foreign_work_shows():
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "while :; do :; done"], {})
    try:
        with Lab(app_of(Call("front"))) as lab:
            now = until(lambda: (r := lab.read()).foreign_ns > 0.1e9 and r, "a busy neighbour")
            assert now.foreign_ns == now.busy_ns - now.own_ns + now.steal_ns
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_dead_replica_is_an_error():
    with Lab(app_of(Call("front"))) as lab:
        victim = lab.tiers["front"].replicas[0]
        victim.process.kill()
        until(victim.has_ended)
        with pytest.raises(ActuationError, match=r"0-front\.0 ended with -9"):
            lab.read()


def test_a_cell_that_does_not_start(monkeypatch):
    monkeypatch.setenv("GNOMON_CELL", "/bin/false")
    lab = Lab(app_of(Call("front")))
    with pytest.raises(ActuationError, match=r"0-front\.0 ended with 1"), lab:
        pass
    assert not lab.folder.exists()
    monkeypatch.setenv("GNOMON_CELL", "/nowhere")
    with pytest.raises(InputError, match="/nowhere"), Lab(app_of(Call("front"))):
        pass


def test_wrong_input():
    app = app_of(Call("front"))
    with pytest.raises(InputError, match="share"):
        Lab(app, sample_share=2.0)
    with Lab(app) as lab:
        with pytest.raises(InputError, match="no service 'back'"):
            lab.set_limit("back", 1.0)
        with pytest.raises(InputError, match="-1 replicas"):
            lab.set_replicas("front", -1)
        for due_ns, classes, what in (
            ([], [], "at least one"),
            ([2, 1], [0, 0], "ascend"),
            ([1], [0, 0], "a class for each"),
            ([1], [7], "no class 7"),
        ):
            with pytest.raises(InputError, match=what):
                lab.load(due_ns, classes)


def test_an_idle_cell_takes_no_cpu_time():
    with Lab(app_of(Call("front"))) as lab:
        send(lab, 3)
        before = lab.read()
        until(lambda: time.monotonic_ns() - before.now_ns > 0.5e9)
        assert lab.read().since(before).usage_ns[0] < 20e6


def test_the_client_of_a_closed_load_stops():
    with Lab(app_of(Call("front"))) as lab:
        load = lab.load([0, 3_600_000_000_000], [0, 0])
        until(lambda: load.outcome[0] == OK)
        load.close()
        assert load.outcome.tolist() == [OK, 0]
        assert get(lab.addresses("front")[0], "/healthz") == "ok\n"
