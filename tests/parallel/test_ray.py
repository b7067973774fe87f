"""gnomon.parallel on a real Ray of two cores."""

import importlib
import os
import subprocess
import sys

import numpy as np
import parallel_work as work
import pytest

from gnomon.errors import InputError, WorkerError
from gnomon.parallel import Failure, as_completed, pmap

pytestmark = [pytest.mark.ray]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """One Ray for the module, started the way that pmap starts its own."""
    ray = pytest.importorskip("ray")
    from gnomon.parallel.cluster import _connected

    with _connected(ray, "local", 2):
        yield ray


def numbered(folder, count):
    return [(str(folder), number) for number in range(count)]


def test_a_sweep_equals_the_serial_one():
    serial = pmap(work.noise, range(20), on="serial", seed=3)
    assert pmap(work.noise, range(20), on="ray", seed=3) == serial


def test_closures_travel():
    offset = 10
    assert pmap(lambda n: n + offset, range(3), on="ray") == [10, 11, 12]


def test_few_are_in_flight_and_all_arrive():
    with as_completed(work.square, range(9), on="ray", workers=2) as completed:
        assert sorted(completed) == [(n, n * n) for n in range(9)]


def test_a_killed_worker_loses_nothing(tmp_path):
    items = numbered(tmp_path, 4)
    assert pmap(work.die_once, items, on="ray") == [0, 1, 4, 9]
    log = work.read_log(tmp_path)
    assert [log.count(str(n)) for n in range(4)] == [1, 2, 1, 2]


def test_a_poisonous_item_is_named(tmp_path):
    results = pmap(work.poison_three, numbered(tmp_path, 5), on="ray", retries=1, errors="collect")
    (failure,) = results.failures
    assert failure.index == 3
    assert "its worker died 2 times" in str(failure.error)
    assert [r for r in results if not isinstance(r, Failure)] == [0, 1, 2, 4]
    assert work.read_log(tmp_path).count("3") == 2


def test_an_error_arrives_with_its_traceback():
    with pytest.raises(WorkerError, match=r"item 2 \(2\): ValueError: two is too many") as info:
        pmap(work.fail_on_two, range(4), on="ray")
    assert info.value.index == 2
    assert type(info.value.__cause__) is ValueError
    assert "in fail_on_two" in info.value.remote_traceback


def test_input_errors_keep_their_type():
    with pytest.raises(InputError, match="event has no 'ts'"):
        pmap(work.reject, [1], on="ray")


def test_an_error_that_does_not_pickle_still_tells_its_story():
    with pytest.raises(WorkerError, match="StubbornError: broken at 5"):
        pmap(work.fail_stubbornly, [5], on="ray")


def test_a_module_that_workers_cannot_import(tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def double(n): return 2 * n\n")
    monkeypatch.syspath_prepend(tmp_path)
    double = importlib.import_module("only_here").double
    with pytest.raises(InputError, match=r"a Ray worker cannot load double: .*'only_here'"):
        pmap(double, [1], on="ray")


def test_retry_on(tmp_path):
    assert pmap(work.flaky, [(str(tmp_path), 1)], on="ray", retry_on=(OSError,)) == [1]


def test_timeout():
    results = pmap(work.sleep_if_one, range(3), on="ray", timeout_s=0.5, errors="collect")
    assert (results[0], results[2]) == (0, 2)
    assert "TimeoutError: ran longer than 0.5 s" in str(results[1].error)


def test_items_are_writable_as_they_are_locally():
    assert pmap(work.mutate, [np.zeros(50_000)], on="ray") == [50_000.0]


def test_one_thread_each():
    assert pmap(work.threads, [0], on="ray") == ["1"]


def test_resume(tmp_path):
    items = numbered(tmp_path, 4)
    pmap(work.logged, items[:2], on="serial", resume=tmp_path / "done")
    again = pmap(work.logged, items, on="ray", resume=tmp_path / "done")
    assert (again, again.reused) == ([0, 1, 4, 9], 2)


def test_a_ray_that_is_there_is_left_running(cluster):
    pmap(work.square, [1], on="ray")
    assert cluster.is_initialized()


@pytest.mark.parametrize("on", ["ray", "ray://auto"])
def test_the_cluster_of_the_environment_is_joined_and_left_running(cluster, on):
    address = cluster.get_runtime_context().gcs_address
    script = (
        "import ray; from gnomon.parallel import pmap\n"
        f"print(pmap(lambda n: n + 1, [1, 2], on={on!r}), ray.is_initialized())\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"RAY_ADDRESS": address},
        capture_output=True,
        text=True,
    )
    assert out.stdout == "[2, 3] False\n", out.stderr
    assert out.stderr == ""
    assert pmap(work.square, [3], on="ray") == [9]


def test_our_own_ray_is_shut_down_and_nobody_there_is_told(cluster, monkeypatch):
    cluster.shutdown()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert pmap(work.square, [3], on="ray", workers=1) == [9]
    assert not cluster.is_initialized()
    with pytest.raises(InputError, match="cannot join Ray at 'auto'"):
        pmap(work.square, [3], on="ray://auto")
