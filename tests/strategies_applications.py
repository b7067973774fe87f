"""Random applications for property tests: whole ones, and files of them with something wrong."""

from __future__ import annotations

import copy
import json
import random

from hypothesis import strategies as st

from gnomon.graph.application import Application, Call, Host, RequestClass, Service, Sla, Work
from gnomon.ingest.services.application_file import to_yaml
from gnomon.ingest.services.strict_yaml import YamlDocument, emit_yaml
from tests.ingest.mutate import mutate

NAMES = (
    "web",
    "logic-2",
    "db.main",
    "cache_1",
    "404",
    "null",
    "yes",
    "1e3",
    "größe",
    "a:b",
    "-",
    "#x",
)
ODD = (
    None, True, False, -1, 0, 1e308, -1e-308, 10**30, "", "x", "1e999", float("nan"), float("inf"), [], {},
    [[]], {"parallel": []}, {"parallel": 1}, [1] * 9, {"a": {"b": []}}, "*a", "&a 1", "\u2028\0", {"mean": "x"},
)  # fmt: skip


def random_application(rng: random.Random, *, calls: int = 12, rate: float = 200.0) -> Application:
    """A valid application of a few services and classes, small enough to be simulated quickly."""
    names = rng.sample(NAMES, rng.randint(1, 6))
    hosts = {f"host{i}": _host(rng) for i in range(rng.randint(0, 2))}
    services = {name: _service(rng, names, list(hosts)) for name in names}
    classes = {
        name: RequestClass(
            call=_call(
                rng, names, [rng.randint(1, calls)], depth=rng.choice((1, 3, 8)), is_root=True
            ),
            share=rng.choice((1.0, 0.5, 10.0)),
            priority=rng.randint(-2, 2),
            sla=rng.choice((None, Sla(100.0), Sla(rng.uniform(1, 1e4), 50.0, until="all"))),
            timeout_ms=rng.choice((None, None, rng.uniform(1, 2000))),
        )
        for name in rng.sample(("get", "put item", "x: y", "0"), rng.randint(1, 3))
    }
    return Application(
        rng.choice(("app", "a b", "7")), services, classes, hosts,
        network_ms=rng.choice((0.0, 0.05, Work(mean=0.1, cv=1.0))),
        period_ms=rng.choice((100.0, 10.0)),
        rate=rng.uniform(1.0, rate),
    )  # fmt: skip


def _host(rng):
    return Host(
        rng.choice((1.0, 2.5, 16.0)),
        rng.choice((0.0, 1.0)),
        rng.uniform(0.1, 2),
        rng.uniform(0.1, 2),
    )


def _service(rng, names, hosts):
    return Service(
        replicas=rng.randint(1, 3),
        cpu_limit=rng.choice((None, 0.1, 0.5, 1.0, 4.0)),
        cpu_request=rng.choice((1.0, 0.2)),
        workers=rng.choice((1, 2, 16)),
        blocking=rng.random() < 0.3,
        pools={rng.choice(names): rng.randint(1, 16)} if rng.random() < 0.3 else {},
        queue_limit=rng.choice((None, None, 0, 10)),
        startup_s=rng.choice((0.0, 1.0)),
        host=rng.choice(("", *hosts)),
        server=rng.choice(("cell", "cell", "nginx", "redis")),
        overhead_ms=rng.choice((0.0, 0.1)),
        cpu_min=rng.choice((0.05, 0.1)),
        cpu_max=rng.choice((1.0, 8.0)),
        replicas_max=rng.randint(1, 10),
    )


def _time(rng):
    return rng.choice((
        0.0, rng.uniform(0, 5), Work(mean=rng.uniform(0, 5), cv=rng.uniform(0, 2)),
        Work(mean=rng.uniform(0, 5), shape="exponential"),
        Work(quantiles={0: 0.0, 50: rng.uniform(0, 1), 99.9: 2.0, 100: rng.uniform(2, 9)}),
    ))  # fmt: skip


def _call(rng, names, left, depth, is_root=False):
    left[0] -= 1
    then = []
    while depth > 1 and left[0] > 0 and rng.random() < 0.7:
        stage = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            if left[0] > 0:
                stage.append(_call(rng, names, left, depth - 1))
        then.append(tuple(stage))
    mode = "rpc" if is_root or rng.random() < 0.85 else "queue"
    return Call(
        rng.choice(names), cpu_ms=_time(rng), wait_ms=_time(rng) if rng.random() < 0.3 else 0.0,
        then=tuple(then), mode=mode,
        probability=1.0 if is_root else rng.choice((1.0, 0.5, rng.random())),
        timeout_ms=rng.choice((None, None, rng.uniform(1, 500))),
        retries=0 if is_root else rng.choice((0, 0, 2)), error_share=rng.choice((0.0, 0.0, 0.1)),
        operation=rng.choice(("", "get", "GET /x", "12", "true")),
    )  # fmt: skip


def application_file(rng: random.Random) -> bytes:
    """The file of a random application; two of three have something wrong."""
    text = to_yaml(random_application(rng))
    kind = rng.randrange(3)
    if kind == 1:
        tree = YamlDocument(text, "").data
        for _ in range(rng.randint(1, 3)):
            tree = _odd_inside(tree, rng)
        text = json.dumps(tree, indent=1) if rng.random() < 0.3 else emit_yaml(tree)
    content = text.encode()
    return mutate(content, rng) if kind == 2 else content


def _odd_inside(tree, rng):
    if not isinstance(tree, dict | list) or not tree or rng.random() < 0.05:
        return copy.deepcopy(rng.choice(ODD))
    key = rng.choice(list(tree) if isinstance(tree, dict) else range(len(tree)))
    if rng.random() < 0.1:
        del tree[key]
    elif isinstance(tree, dict) and rng.random() < 0.1:
        tree[rng.choice(("wrokers", "then", "x", ""))] = copy.deepcopy(rng.choice(ODD))
    else:
        tree[key] = _odd_inside(tree[key], rng)
    return tree


def applications(**sizes) -> st.SearchStrategy[Application]:
    """Valid applications, by a seed that Hypothesis draws."""
    return st.integers(0, 2**32 - 1).map(
        lambda seed: random_application(random.Random(seed), **sizes)
    )
