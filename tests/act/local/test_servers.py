"""Real servers in a tier."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from gnomon.act.local import servers
from gnomon.act.local.client import OK
from gnomon.act.local.lab import Lab
from gnomon.act.local.servers import find_program
from gnomon.errors import InputError
from gnomon.graph.application import Application, Call, RequestClass, Service
from tests.act.local.loads import app_of, get, ok_latency_ms, send
from tests.waiting import until


def needs(*names):
    for name in names:
        try:
            find_program(name)
        except InputError as error:
            pytest.skip(str(error))


def test_nginx_before_cells_before_stores():
    needs("nginx", "redis", "memcached")
    logic = Call(
        "logic",
        cpu_ms=0.2,
        then=((Call("cache", operation="get"), Call("db", operation="set x")),),
    )
    app = Application(
        "web",
        {
            "web": Service(server="nginx"),
            "logic": Service(replicas=2),
            "cache": Service(server="memcached", workers=2),
            "db": Service(server="redis"),
        },
        {"a": RequestClass(Call("web", then=((logic,),))), "b": RequestClass(Call("web"))},
    )
    with Lab(app) as lab:
        load = send(lab, 120, class_index=[0, 0, 1] * 40)
        assert (load.outcome == OK).all()
        now = lab.read()
        # nginx counts nothing; stores are counted by those who call them.
        assert now.ok.tolist() == [[0, 0], [80, 0], [80, 0], [80, 0]]
        assert now.arrived.tolist() == [0, 80, 80, 80]
        assert now.usage_ns.min() > 0
        assert get(lab.addresses("web")[0], "/call/0") == "ok\n"
        first = lab.tiers["logic"].replicas[0]
        assert 20 < sum_ok(first) < 60, "nginx takes its upstreams in turns"
        load = lab.load((np.arange(400) * 2e6).astype(np.int64), np.zeros(400))
        until(lambda: np.count_nonzero(load.outcome) > 50)
        lab.set_replicas("logic", 1)
        until(lambda: np.count_nonzero(load.outcome) > 150)
        lab.set_replicas("logic", 3)
        load.wait()
        ok_latency_ms(load)
        lab.set_replicas("db", 2)
        lab.set_replicas("db", 1)
        ok_latency_ms(send(lab, 20))


def sum_ok(replica) -> int:
    text = get(replica.address, "/metrics")
    return int(text.split('gnomon_requests_total{class="a",outcome="ok"} ')[1].split()[0])


def test_a_cell_calls_nginx():
    needs("nginx")
    app = app_of(
        Call("front", then=((Call("proxy", then=((Call("back", cpu_ms=0.1),),)),),)),
        proxy=Service(server="nginx"),
    )
    with Lab(app, sample_share=1.0) as lab:
        ok_latency_ms(send(lab, 20))
        assert lab.read().ok[:, 0].tolist() == [20, 0, 20]


def test_a_missing_server(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(InputError, match=r"no redis-server on this machine.*redis-server"):
        Lab(app_of(Call("db"), db=Service(server="redis")))
    assert servers  # the module under test


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (Call("odd", then=((Call("a"), Call("b")),)), "one cell"),
        (Call("odd", then=((Call("a", mode="queue"),),)), "one cell"),
        (Call("front", then=((Call("odd", mode="queue"),),)), "queued"),
    ],
)
def test_what_nginx_cannot_do(call, what):
    with pytest.raises(InputError, match=what):
        Lab(app_of(call, odd=Service(server="nginx")))


def test_stores_make_no_calls():
    with pytest.raises(InputError, match="redis makes no calls"):
        Lab(app_of(Call("odd", then=((Call("a"),),)), odd=Service(server="redis")))
