"""gnomon.parallel in this process and on processes beside it."""

import contextlib
import functools
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import parallel_work as work
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.waiting import until

from gnomon.errors import InputError, MissingExtra, WorkerError
from gnomon.parallel import Failure, Place, Results, RichProgress, as_completed, parse_on, pmap

BACK_ENDS = ["serial", "local:1", "local:2"]


def numbered(folder, count):
    return [(str(folder), number) for number in range(count)]


def is_running(pid):
    """Whether the process still does something; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def pids_in(folder):
    return [int(path.name.removeprefix("pid-")) for path in Path(folder).glob("pid-*")]


# Results


@pytest.mark.parametrize("on", BACK_ENDS)
def test_results_are_in_order(on):
    assert pmap(work.square, range(40), on=on) == [n * n for n in range(40)]


def test_completion_order_differs_and_results_do_not(tmp_path):
    items = numbered(tmp_path, 4)
    with as_completed(work.last_first, items, on="local:2", chunk=1) as completed:
        arrived = [index for index, _ in completed]
    assert arrived[0] == 1
    assert sorted(arrived) == [0, 1, 2, 3]
    (tmp_path / "second").unlink()
    assert pmap(work.last_first, items, on="local:2", chunk=1) == [0, 1, 2, 3]


@pytest.mark.parametrize("on", BACK_ENDS)
def test_nothing_to_do(on):
    assert pmap(work.square, [], on=on) == []


@given(st.lists(st.integers() | st.text()))
def test_prop_serial_equals_builtin_map(items):
    assert pmap(repr, items, on="serial") == list(map(repr, items))


@given(st.lists(st.integers(0, 9)), st.sets(st.integers(0, 9)))
def test_prop_collect_keeps_every_place(items, bad):
    def function(item):
        if item in bad:
            raise KeyError(item)
        return item

    results = pmap(function, items, on="serial", errors="collect")
    assert len(results) == len(items)
    for index, (item, result) in enumerate(zip(items, results)):
        assert result.index == index if item in bad else result == item
    assert len(results.failures) == sum(item in bad for item in items)


def test_large_items_and_results_in_chunks_do_not_block():
    arrays = [np.full(200_000, n, dtype=np.int64) for n in range(8)]
    results = pmap(work.square, arrays, on="local:2", chunk=4)
    assert all((result == n * n).all() for n, result in enumerate(results))


def test_results_pickle_with_their_count():
    copy = pickle.loads(pickle.dumps(Results([1, 2], reused=2)))
    assert (copy, copy.reused, type(copy)) == ([1, 2], 2, Results)


# Randomness


def test_a_seed_gives_the_same_results_everywhere():
    serial = pmap(work.noise, range(12), on="serial", seed=7)
    assert pmap(work.noise, range(12), on="local:1", seed=7) == serial
    assert pmap(work.noise, range(12), on="local:2", seed=7, chunk=1) == serial
    assert pmap(work.noise, range(12), on="serial", seed=8) != serial


def test_generators_are_the_spawned_ones():
    children = np.random.SeedSequence(7).spawn(3)
    expected = [(n, *work.noise(n, np.random.default_rng(c))[1:]) for n, c in enumerate(children)]
    assert pmap(work.noise, range(3), on="serial", seed=7) == expected


# Workers that die


def test_a_killed_worker_loses_nothing(tmp_path):
    items = numbered(tmp_path, 8)
    assert pmap(work.die_once, items, on="local:2", chunk=4) == [n * n for _, n in items]
    log = work.read_log(tmp_path)
    assert {number: log.count(str(number)) for number in range(8)} == {
        number: 2 if number % 2 else 1 for number in range(8)
    }


@pytest.mark.parametrize("chunk", [1, 5])
def test_a_poisonous_item_harms_nobody(tmp_path, chunk):
    results = pmap(
        work.poison_three, numbered(tmp_path, 10), on="local:2", chunk=chunk, errors="collect"
    )
    (failure,) = results.failures
    assert failure.index == 3
    assert isinstance(failure.error, WorkerError)
    assert "died 3 times, lastly by SIGKILL" in str(failure.error)
    assert [r for r in results if not isinstance(r, Failure)] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    log = work.read_log(tmp_path)
    assert [log.count(str(n)) for n in range(10)] == [1, 1, 1, 3, 1, 1, 1, 1, 1, 1]
    assert log[-1] == "3", "the last attempt is made after everything else"


def test_no_retries_means_one_death():
    with pytest.raises(
        WorkerError, match=r"item 0 \('x'\): its worker died once.*SIGSEGV"
    ) as info:
        pmap(work.segfault, ["x"], on="local:1", retries=0)
    assert info.value.index == 0


def test_a_function_that_exits_is_an_error_not_a_loss():
    with pytest.raises(WorkerError, match="SystemExit: 0"):
        pmap(work.leave_quietly, [1], on="local:1")


# Errors of the function


@pytest.mark.parametrize("on", BACK_ENDS)
def test_an_error_names_item_and_cause(on):
    with pytest.raises(WorkerError, match=r"item 2 \(2\): ValueError: two is too many") as info:
        pmap(work.fail_on_two, range(4), on=on)
    error = info.value
    assert error.index == 2
    assert type(error.__cause__) is ValueError
    assert "in fail_on_two" in error.remote_traceback
    assert "call.py" not in error.remote_traceback


@pytest.mark.parametrize("on", ["serial", "local:1"])
def test_input_errors_keep_their_type(on):
    with pytest.raises(InputError, match=r"^trace\.json: event has no 'ts'; was it cut") as info:
        pmap(work.reject, [1], on=on)
    assert info.value.exit_code == 2
    assert any("in reject" in note for note in info.value.__notes__)


def test_an_error_that_does_not_pickle_still_tells_its_story():
    with pytest.raises(WorkerError, match="StubbornError: broken at 5") as info:
        pmap(work.fail_stubbornly, [5], on="local:1")
    assert info.value.__cause__ is None
    assert "in fail_stubbornly" in info.value.remote_traceback


def test_the_item_is_cut_in_messages():
    with pytest.raises(WorkerError) as info:
        pmap(int, ["x" * 10_000], on="serial")
    assert str(info.value).startswith("item 0 ('xxx")
    assert len(str(info.value).split("): ")[0]) < 220


@pytest.mark.parametrize("on", ["serial", "local:2"])
def test_retry_on(tmp_path, on):
    assert pmap(work.flaky, [(str(tmp_path), 1)], on=on, retry_on=(OSError,)) == [1]
    assert work.read_log(tmp_path) == ["1"] * 3


@pytest.mark.parametrize("on", ["serial", "local:1"])
def test_no_retry_of_ordinary_errors_unless_asked(tmp_path, on):
    with pytest.raises(WorkerError, match="OSError: try again"):
        pmap(work.flaky, [(str(tmp_path), 1)], on=on)
    assert work.read_log(tmp_path) == ["1"]


def test_a_result_that_does_not_pickle():
    with pytest.raises(WorkerError, match=r"item 0 \(0\): .*pickle"):
        pmap(work.unpicklable_result, [0], on="local:1")


def test_timeout_ends_the_item_and_only_it():
    results = pmap(
        work.sleep_if_one, range(4), on="local:2", chunk=4, timeout_s=2.0, errors="collect"
    )
    assert [results[n] for n in (0, 2, 3)] == [0, 2, 3]
    assert "item 1 (1): TimeoutError: ran longer than 2" in str(results[1].error)


def test_a_slow_reader_is_not_a_slow_item():
    with as_completed(
        work.square, range(6), on="local:1", timeout_s=2.0, errors="collect"
    ) as completed:
        first = next(completed)
        time.sleep(3.0)
        assert sorted([first, *completed]) == [(n, n * n) for n in range(6)]


# What cannot run


@pytest.mark.parametrize("function", [lambda n: n, functools.partial(lambda a, b: a, 1)])
def test_lambdas_get_one_clear_line(function):
    with pytest.raises(InputError, match="use a module-level function") as info:
        pmap(function, [1], on="local")
    assert "\n" not in str(info.value)
    assert pmap(lambda n: n + 1, [1], on="serial") == [2]


def test_an_item_that_does_not_pickle():
    with pytest.raises(InputError, match=r"item 1 .*cannot be pickled"):
        pmap(work.square, [1, lambda: None], on="local:1")


def test_a_function_that_workers_cannot_import():
    script = (
        "from gnomon.parallel import pmap\n"
        "def double(n): return 2 * n\n"
        "if __name__ == '__main__':\n"
        "    try: pmap(double, [1], on='local:1')\n"
        "    except Exception as error: print(type(error).__name__, error)\n"
    )
    out = subprocess.run([sys.executable, "-c", script], env=child_env(), capture_output=True)
    assert b"InputError a worker cannot load double" in out.stdout, out.stderr


def test_a_script_without_a_guard_is_told_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from gnomon.parallel import pmap\ndef double(n): return 2 * n\n"
        "pmap(double, [1], workers=1)\n"
    )
    out = subprocess.run([sys.executable, str(script)], env=child_env(), capture_output=True)
    assert b"is the script guarded by: if __name__ == '__main__'?" in out.stderr


def test_functions_of_a_script_work(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from gnomon.parallel import pmap\ndef double(n): return 2 * n\n"
        "if __name__ == '__main__': print(pmap(double, [1, 2], workers=1))\n"
    )
    out = subprocess.run([sys.executable, str(script)], env=child_env(), capture_output=True)
    assert out.stdout == b"[2, 4]\n", out.stderr


def test_workers_do_not_start_workers():
    with pytest.raises(InputError, match="use on='serial' inside a worker"):
        pmap(work.nested, [1], on="local:1")


def test_one_thread_each_and_our_environment_as_it_was(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert pmap(work.threads, [0], on="local:1") == ["1"]
    assert os.environ["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize(
    "options",
    [
        {"on": "local:2", "workers": 3},
        {"workers": 0},
        {"retries": -1},
        {"chunk": 0},
        {"timeout_s": 0},
        {"on": "serial", "timeout_s": 1},
        {"errors": "ignore"},
        {"on": "nowhere"},
    ],
)
def test_wrong_options_are_told_at_the_call(options):
    with pytest.raises(InputError):
        as_completed(work.square, [1], **options)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("serial", Place("serial", 1)),
        ("local", Place("local")),
        ("local:12", Place("local", 12)),
        ("ray", Place("ray")),
        ("ray://auto", Place("ray", address="auto")),
        ("ray://[::1]:10001", Place("ray", address="ray://[::1]:10001")),
    ],
)
def test_places(text, place):
    assert parse_on(text) == place


@pytest.mark.parametrize(
    "text",
    ["", "Local", "local:", "local:0", "local:-1", "ray://", "ray://h", "ray://h:99999", "x"],
)
def test_no_places(text):
    with pytest.raises(InputError) as info:
        parse_on(text)
    assert "\n" not in str(info.value)


def test_ray_missing_gives_the_install_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"--on ray needs ray.*pip install 'gnomon\[ray\]'"):
        pmap(work.square, [1], on="ray")


# Resume


def test_finished_items_are_reused(tmp_path):
    items = numbered(tmp_path, 6)
    first = pmap(work.logged, items[:4], on="serial", resume=tmp_path / "done")
    again = pmap(work.logged, items, on="local:2", resume=tmp_path / "done")
    assert (first.reused, again.reused) == (0, 4)
    assert again == [n * n for n in range(6)]
    assert sorted(work.read_log(tmp_path)) == list("012345")


def test_failures_are_not_kept(tmp_path):
    for _ in range(2):
        results = pmap(work.fail_on_two, range(4), on="serial", resume=tmp_path, errors="collect")
        assert len(results.failures) == 1
    assert results.reused == 3


def test_what_a_function_carries_is_part_of_the_key(tmp_path):
    items = numbered(tmp_path, 2)
    for factor, reused in [(2, 0), (3, 0), (2, 2)]:
        results = pmap(work.Scale(factor), items, on="serial", resume=tmp_path / "done")
        assert (results, results.reused) == ([0, factor], reused)


def test_seed_and_index_are_part_of_the_key(tmp_path):
    same = [5, 5]
    first = pmap(work.noise, same, on="serial", seed=1, resume=tmp_path)
    assert first[0] != first[1]
    assert pmap(work.noise, same, on="serial", seed=2, resume=tmp_path).reused == 0
    assert pmap(work.noise, same, on="serial", seed=1, resume=tmp_path) == first


def test_resume_needs_a_function_it_can_recognise(tmp_path):
    with pytest.raises(InputError, match="module-level"):
        pmap(lambda n: n, [1], on="serial", resume=tmp_path)


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "foreign"])
def test_corrupt_entries_are_computed_again(tmp_path, damage):
    items = numbered(tmp_path, 3)
    pmap(work.logged, items, on="serial", resume=tmp_path / "done")
    entry = sorted((tmp_path / "done").rglob("*.result"))[0]
    data = entry.read_bytes()
    entry.write_bytes(
        {
            "cut": data[:-1],
            "flip": data[:-2] + bytes([data[-2] ^ 1]) + data[-1:],
            "empty": b"",
            "foreign": pickle.dumps(666),
        }[damage]
    )
    again = pmap(work.logged, items, on="serial", resume=tmp_path / "done")
    assert (again, again.reused) == ([0, 1, 4], 2)
    assert pmap(work.logged, items, on="serial", resume=tmp_path / "done").reused == 3


def child_env():
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def interrupted_sweep(tmp_path, number):
    """Start a sweep of 20 in a process of its own, end it midway; the finished results."""
    script = tmp_path / "sweep.py"
    script.write_text(
        "import sys, parallel_work as work\n"
        "from gnomon.parallel import pmap\n"
        "if __name__ == '__main__':\n"
        "    items = [(sys.argv[1], n) for n in range(20)]\n"
        "    done = sys.argv[1] + '/done'\n"
        "    pmap(work.logged_when_told, items, on='local:2', chunk=3, resume=done)\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)], env=child_env(), stderr=subprocess.DEVNULL
    )
    done = tmp_path / "done"
    until(lambda: len(list(done.rglob("*.result"))) >= 4 or process.poll() is not None)
    workers = children_of(process.pid)
    process.send_signal(number)
    process.wait(240)
    until(lambda: not any(map(is_running, workers)))
    return len(list(done.rglob("*.result")))


def children_of(pid):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rsplit(")", 1)[1].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_sweep_goes_on(tmp_path, number):
    finished = interrupted_sweep(tmp_path, number)
    assert 4 <= finished < 20
    (tmp_path / "log").unlink()
    (tmp_path / "go").touch()
    results = pmap(
        work.logged_when_told, numbered(tmp_path, 20), on="local:2", resume=tmp_path / "done"
    )
    assert results == [n * n for n in range(20)]
    assert results.reused == finished
    assert len(work.read_log(tmp_path)) == 20 - finished, "finished items were computed again"


# Ends


def test_an_interrupt_ends_the_workers_and_what_they_started(tmp_path):
    def interrupt():
        until(lambda: len(pids_in(tmp_path)) == 4)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        pmap(work.forever_with_child, [str(tmp_path)] * 2, on="local:2", chunk=1)
    thread.join()
    until(lambda: not any(map(is_running, pids_in(tmp_path))))


def test_leaving_early_ends_the_workers(tmp_path):
    items = [None, str(tmp_path)]
    with as_completed(work.forever_unless_none, items, on="local:1", chunk=2) as completed:
        assert next(completed) == (0, None)
        until(lambda: pids_in(tmp_path))
    assert not any(map(is_running, pids_in(tmp_path)))
    assert list(completed) == []


# Progress


class Heard:
    def __init__(self):
        self.calls = []
        self.closed = 0

    def update(self, done, total):
        self.calls.append((done, total))

    def close(self):
        self.closed += 1


@pytest.mark.parametrize("on", BACK_ENDS)
def test_progress_counts_up_and_is_closed(on):
    heard = Heard()
    pmap(work.square, range(3), on=on, progress=heard)
    assert heard.calls == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert heard.closed == 1


def test_progress_is_closed_on_errors_too():
    heard = Heard()
    with pytest.raises(WorkerError):
        pmap(work.fail_on_two, [2], on="serial", progress=heard)
    assert heard.closed == 1


def test_progress_starts_with_what_was_reused(tmp_path):
    heard = Heard()
    pmap(work.square, range(2), on="serial", resume=tmp_path)
    pmap(work.square, range(3), on="serial", resume=tmp_path, progress=heard)
    assert heard.calls == [(2, 3), (3, 3)]


def test_the_bar_is_silent_without_a_terminal(capfd):
    pmap(work.square, range(3), on="serial", progress=RichProgress())
    assert capfd.readouterr() == ("", "")


def test_the_bar_is_drawn_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    pmap(work.square, range(3), on="serial", progress=RichProgress("sweep"))
    captured = capsys.readouterr()
    assert "sweep" in captured.err
    assert "3/3" in captured.err
    assert captured.out == ""
