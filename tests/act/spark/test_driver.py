"""The client against a plugin that is made up: refusals, timeouts, cut connections."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading

import msgspec
import pytest

from gnomon.act.spark import DriverGone, SparkDriver, SparkPlan, spark_conf
from gnomon.errors import ActuationError, InputError
from tests.act.spark.states import HELLO, stage, state

TOKEN = "secret"


class PretendPlugin:
    """Answers each line by what `answers` says for its operation."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.asked = []
        self.cut_next = self.silent = self.silent_after_a_cut = False
        self.connections = 0
        self.answers = {
            "hello": {"ok": True, **msgspec.to_builtins(HELLO)},
            "state": {"ok": True, **msgspec.to_builtins(state(stage(3)))},
            "apply": {"ok": True, "items": {"target": "", "hold 3": "kept: nothing else would run"}},
            "release": {"ok": True},
            "lease": {"ok": True},
        }  # fmt: skip
        self.open = []
        self.threads = [threading.Thread(target=self.listen)]
        self.threads[0].start()

    def listen(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            self.open.append(connection)
            self.threads.append(threading.Thread(target=self.serve, args=(connection,)))
            self.threads[-1].start()

    def serve(self, connection):
        with connection, connection.makefile("rb") as lines, contextlib.suppress(OSError):
            for line in lines:
                request = json.loads(line)
                self.asked.append(request)
                if self.cut_next:
                    self.cut_next, self.silent = False, self.silent_after_a_cut
                    return
                if self.silent:
                    continue
                answer = self.answers[request["op"]]
                raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode() + b"\n"
                connection.sendall(raw)

    def close(self):
        with contextlib.suppress(OSError):  # closed before
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in self.open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(5)


@pytest.fixture
def plugin():
    pretend = PretendPlugin()
    yield pretend
    pretend.close()


@pytest.fixture
def handshake(plugin, tmp_path):
    return write_handshake(tmp_path / "h.json", plugin.listener.getsockname()[1])


def write_handshake(path, port):
    facts = {
        "host": "127.0.0.1",
        "port": port,
        "token": TOKEN,
        "application": "app-1",
        "spark": "4.3.0",
    }
    path.write_text(json.dumps(facts))
    path.chmod(0o600)
    return path


def test_who_is_there_and_what_is_seen(plugin, handshake):
    with SparkDriver.connect(handshake) as driver:
        assert driver.hello == HELLO
        assert driver.hello.describe() == (
            "app-1 on Spark 4.3.0 can: set_target, decommission, priority, hold"
        )
        assert driver.state() == state(stage(3))
    assert plugin.connections == 1
    assert [each["op"] for each in plugin.asked] == ["hello", "state"]
    assert all(each["token"] == TOKEN for each in plugin.asked)


def test_a_plan_is_sent_without_its_explanations(plugin, handshake):
    with SparkDriver.connect(handshake) as driver:
        plan = SparkPlan(
            target=None, hold=(3,), priority={3: -1, 4: None}, reasons={"3": "why"}, notes=("n",)
        )
        applied = driver.apply(plan)
        assert applied.refused == {"hold 3": "kept: nothing else would run"}
        driver.release()
        driver.set_lease(30)
    assert plugin.asked[1] == {
        "op": "apply", "target": None, "hold": [3], "priority": {"3": -1, "4": None},
        "token": TOKEN, "watch": False,
    }  # fmt: skip
    assert plugin.asked[3]["seconds"] == 30


def test_a_watcher_does_not_renew_the_lease(plugin, handshake):
    with SparkDriver.connect(handshake, watch=True) as driver:
        driver.state()
    assert plugin.asked[1]["watch"] is True


def test_a_refusal(plugin, handshake):
    with SparkDriver.connect(handshake) as driver:
        plugin.answers["apply"] = {"ok": False, "error": "degraded: it broke; release first"}
        with pytest.raises(ActuationError, match="the driver refused: degraded: it broke"):
            driver.apply(SparkPlan(target=2))


@pytest.mark.parametrize(
    "answer",
    [b"rubbish\n", b'{"ok": true}\n', b'{"ok": "yes"}\n', b"[]\n"],
    ids=["no-json", "nothing-in-it", "wrong-kind", "no-object"],
)
def test_answers_that_make_no_sense(plugin, handshake, answer):
    with SparkDriver.connect(handshake) as driver:
        plugin.answers["state"] = answer
        with pytest.raises(ActuationError, match="is not valid"):
            driver.state()
        plugin.answers["state"] = {"ok": True, **msgspec.to_builtins(state())}
        assert driver.state() == state()


def test_a_late_answer_is_not_taken_for_the_next_one(plugin, handshake):
    with SparkDriver.connect(handshake, timeout_s=0.3) as driver:
        plugin.silent = True
        with pytest.raises(ActuationError, match=r"did not answer 'state' within 0\.3 s"):
            driver.state()
        plugin.silent = False
        assert driver.state() == state(stage(3))
    assert plugin.connections == 2


def test_a_cut_connection_is_made_again(plugin, handshake):
    with SparkDriver.connect(handshake) as driver:
        plugin.cut_next = True
        assert driver.state() == state(stage(3))
    assert plugin.connections == 2


def test_a_cut_connection_and_a_late_answer_are_no_end(plugin, handshake):
    """A driver in a long collection of garbage is there, whatever became of the connection."""
    with SparkDriver.connect(handshake, timeout_s=0.3) as driver:
        plugin.cut_next = plugin.silent_after_a_cut = True
        with pytest.raises(ActuationError, match=r"did not answer 'state' within 0\.3 s") as late:
            driver.state()
        assert not isinstance(late.value, DriverGone)
        assert driver._socket is None  # its answer may still come


@pytest.mark.parametrize("cuts", [0, 1], ids=["first", "again"])
def test_a_request_that_is_stopped_leaves_no_answer_behind(plugin, handshake, monkeypatch, cuts):
    with SparkDriver.connect(handshake) as driver:
        real, breaks = driver._send, [ConnectionResetError] * cuts + [KeyboardInterrupt]

        def send(line):
            if not breaks:
                return real(line)
            if driver._socket is None:
                real(line)
            driver._socket.sendall(line)  # asked, and the answer is not waited for
            raise breaks.pop(0)

        monkeypatch.setattr(driver, "_send", send)
        with pytest.raises(KeyboardInterrupt):
            driver.release()
        assert driver._socket is None
        assert driver.state() == state(stage(3))


def test_an_application_that_has_ended(plugin, handshake):
    with SparkDriver.connect(handshake) as driver:
        plugin.close()
        with pytest.raises(DriverGone, match="the driver of app-1 cannot be reached"):
            driver.state()
        handshake.unlink()
        with pytest.raises(DriverGone, match="app-1 has ended"):
            driver.state()


def test_an_old_plugin(plugin, handshake):
    plugin.answers["hello"] = {"ok": True, **msgspec.to_builtins(HELLO), "protocol": 7}
    with pytest.raises(ActuationError, match="has protocol 7, gnomon 1: build the plugin again"):
        SparkDriver.connect(handshake)


def test_a_handshake_that_comes_later(plugin, tmp_path):
    place = tmp_path / "h.json"
    times = iter(range(100))

    def sleep(_):
        if not place.exists():
            write_handshake(place, plugin.listener.getsockname()[1])

    with SparkDriver.connect(place, wait_s=5, clock=lambda: next(times), sleep=sleep) as driver:
        assert driver.hello == HELLO


@pytest.fixture
def dead_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def test_a_handshake_of_a_dead_driver_is_waited_over(plugin, tmp_path, dead_port):
    """It is still there, then gone, then that of the driver which was waited for."""
    place = write_handshake(tmp_path / "h.json", dead_port)
    steps = iter([
        lambda: None,
        place.unlink,
        lambda: write_handshake(place, plugin.listener.getsockname()[1]),
    ])  # fmt: skip

    def sleep(_):
        next(steps)()

    with SparkDriver.connect(place, wait_s=5, clock=lambda: 0.0, sleep=sleep) as driver:
        assert driver.hello == HELLO
    assert next(steps, None) is None


def test_a_handshake_of_a_dead_driver_is_an_error_in_the_end(tmp_path, dead_port):
    place = write_handshake(tmp_path / "h.json", dead_port)
    times, waits = iter([0.0, 3.0, 6.0]), []
    with pytest.raises(DriverGone, match="the driver of app-1 cannot be reached"):
        SparkDriver.connect(place, wait_s=5, clock=lambda: next(times), sleep=waits.append)
    assert len(waits) == 1


def test_handshakes_that_do_not_do(plugin, handshake, tmp_path):
    with pytest.raises(InputError, match=r"No such file.*gnomon's plugin"):
        SparkDriver.connect(tmp_path / "none")
    handshake.chmod(0o666)
    with pytest.raises(InputError, match="another user could have written this"):
        SparkDriver.connect(handshake)
    os.chmod(handshake, 0o600)
    handshake.write_text("{}")
    with pytest.raises(InputError, match="not a driver's handshake"):
        SparkDriver.connect(handshake)


def test_no_driver_behind_a_handshake(tmp_path, dead_port):
    with pytest.raises(DriverGone, match="cannot be reached"):
        SparkDriver.connect(write_handshake(tmp_path / "h.json", dead_port))


def test_settings(tmp_path):
    jar = tmp_path / "p.jar"
    conf = spark_conf(
        handshake=tmp_path / "h", plugin=jar, lease_s=2.5, disable=("hold",), jars="/x.jar",
        class_path="/y.jar",
    )  # fmt: skip
    assert conf["spark.plugins"] == "gnomon.spark.GnomonPlugin"
    assert conf["spark.driver.extraClassPath"] == f"{jar}:/y.jar"
    assert conf["spark.jars"] == f"{jar},/x.jar"
    assert conf["spark.gnomon.lease"] == "2500ms"
    assert conf["spark.gnomon.disable"] == "hold"
    assert conf["spark.decommission.enabled"] == "true"
    plain = spark_conf(handshake="h", plugin=jar, decommission=False)
    assert not any("decommission" in key for key in plain)
    assert all(isinstance(value, str) for value in conf.values())
    with pytest.raises(InputError, match="lease_s"):
        spark_conf(handshake="h", plugin=jar, lease_s=0)
