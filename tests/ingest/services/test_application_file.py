from __future__ import annotations

import random
import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.graph.application import Application, Call, RequestClass, Service, Sla, Work
from gnomon.ingest.services.application_file import (
    bundled_applications,
    parse_application,
    read_application,
    to_yaml,
    write_application,
)
from tests.strategies_applications import application_file, applications, random_application

SHOP = """\
rate: 50
services:
  web: {workers: 4, cpu_limit: 1}
  cart: {pools: {store: 8}}
  store:
classes:
  browse:
    sla: {bound_ms: 100}
    call:
      service: web
      cpu_ms: {mean: 1, cv: 0.5}
      then:
        - {service: store, cpu_ms: 5e-2}
        - parallel:
            - {service: cart, cpu_ms: {quantiles: {0: 1, 50: 2, 100: 9}}}
            - {service: store, mode: queue}
"""


def test_what_people_write_is_read(tmp_path):
    (tmp_path / "shop.yaml").write_text(SHOP)
    app = read_application(tmp_path / "shop.yaml")
    assert app.name == "shop"
    assert list(app.services) == ["web", "cart", "store"]
    assert app.services["store"] == Service()
    (store,), (cart, queued) = app.classes["browse"].call.then
    assert store.cpu_ms == 0.05
    assert cart.cpu_ms == Work(quantiles={0: 1.0, 50: 2.0, 100: 9.0})
    assert queued.mode == "queue"


def test_json_is_yaml():
    app = parse_application(
        '{"services": {"a": {}}, "classes": {"g": {"call": {"service": "a"}}}}'
    )
    assert app.classes["g"].call == Call("a")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("workers: 4", "workers: four", r"line 3, \$.services.web.workers: expected a whole number, got a text"),
        ("workers: 4", "wrokers: 4", r"line 3, \$.services.web: unknown key 'wrokers'; did you mean 'workers'\?"),
        ("workers: 4", "workers: 0", r"line 3, \$.services.web.workers: 0 is out of range; at least 1"),
        ("workers: 4", "server: apache", r"\$.services.web.server: cannot be 'apache'; it is cell or nginx"),
        ("store: 8", "stroe: 8", r"line 4, \$.services.cart.pools: there is no service 'stroe'"),
        ("{service: cart,", "{service: crat,", r"line 15, \$.classes.browse.call.then\[1\].parallel\[0\].service: there is no service 'crat'"),
        ("50: 2", "50: 20", r"line 15, .*cpu_ms.quantiles.100: 9 is out of range"),
        ("50: 2", "half: 2", r"line 15, .*cpu_ms.quantiles: expected a number, got a text"),
        ("- parallel:", "- cpu_ms: 2\n          parallel:", "line 14, .*cpu_ms: stands beside 'parallel'"),
        ("mode: queue", "then: {service: web}", r"line 16, .*parallel\[1\].then: expected a list of calls, got a table"),
        ("rate: 50", "rate: 50\nrate: 60", "line 2: 'rate' is given twice"),
        ("rate: 50", "rate: &r 50", "line 1: anchors and aliases are not supported"),
        ("rate: 50", "rate: !!float 50", "line 1: the tag .* is not supported"),
        ("rate: 50", "--- 1\n---", "line 2: has more than one document"),
        ("rate: 50", "rate: fast", r"line 1, \$.rate: expected a number, got a text"),
        ("rate: 50", "rate: .inf", r"line 1, \$.rate: expected a number"),
        ("rate: 50", "? [a]\n: 1", "line 1: a key is not a text"),
        ("rate: 50", "rate: [", "is no YAML"),
        ("classes:", "clases:", r"\$: there is no 'classes'|unknown key 'clases'; did you mean 'classes'"),
        ("    call:", "    kall:", r"\$.classes.browse: "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(old, new, message):
    with pytest.raises(InputError, match=message) as caught:
        parse_application(SHOP.replace(old, new), where="shop.yaml")
    assert str(caught.value).startswith("shop.yaml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"), (b"# nothing\n", "is empty"), (b"\xff\xfe\x00", "not a text file"), (b"7", "expected a table"),
        (b"a: " + b"[" * 5000, "nests too deep"), (b"[" * 100_000, "nests too deep"),
        (b"\x00", "is no YAML"), (b"x" * (11 << 20), "more than 10 MiB"),
    ],
)  # fmt: skip
def test_what_is_no_application_is_refused(tmp_path, content, message):
    (tmp_path / "a.yaml").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_application(tmp_path / "a.yaml")


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_application(tmp_path / "nowhere.yaml")
    with pytest.raises(
        InputError, match=r"no bundled application is called 'nowhere'; there are: .*starter"
    ):
        read_application("bundled:nowhere")
    with pytest.raises(InputError, match="cannot be written"):
        write_application(read_application("bundled:starter"), tmp_path / "no" / "folder.yaml")


def test_paths_of_deep_files_take_no_memory_and_little_time():
    deep = "services: {a: }\nclasses: {g: {call: " + "{service: a, then: [" * 199
    text = deep + "{service: a, operation: x}, " * 20_000 + "]}" * 199 + "}}"
    begun = time.process_time()
    with pytest.raises(InputError, match=r"then\[0\]") as caught:
        parse_application(text.replace("operation: x}, ]", "operation: 7}, ]"))
    assert len(str(caught.value)) < 1100
    assert time.process_time() - begun < 30


def test_calls_as_deep_as_allowed_are_read_and_written():
    call = Call("a")
    for _ in range(199):
        call = Call("a", then=((call, Call("a")),))
    app = Application("deep", {"a": Service()}, {"g": RequestClass(call)})
    assert parse_application(to_yaml(app)) == app
    one_more = to_yaml(app).replace("call:", "call: {service: a, then: [", 1)
    nested = "{service: a, then: [" * 300 + "]}" * 300
    with pytest.raises(InputError, match="nest"):
        parse_application(f"services: {{a: }}\nclasses: {{g: {{call: {nested}}}}}")
    assert one_more


@given(applications())
def test_prop_what_was_written_is_read_back(app):
    text = to_yaml(app)
    assert parse_application(text) == app
    assert to_yaml(parse_application(text)) == text


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_prop_any_text_is_written_so_that_it_is_read_back(text):
    app = Application(text, {"a": Service()}, {text: RequestClass(Call("a", operation=text))})
    assert parse_application(to_yaml(app)) == app


def _read_or_refuse(count: int, seed: int) -> tuple[int, int]:
    """How many of random files could be read, and how many were refused."""
    rng = random.Random(seed)
    read = 0
    for number in range(count):
        content = application_file(rng)
        try:
            app = parse_application(content.decode("utf-8", "replace"), where="a.yaml")
            read += 1
            assert parse_application(to_yaml(app)) == app
        except InputError as error:
            assert "\n" not in str(error), (seed, number)
        except Exception as error:
            raise AssertionError(f"{seed} {number}: {error!r} for {content!r}") from error
    return read, count - read


def test_random_files_are_read_or_refused():
    read, refused = _read_or_refuse(500, seed=1)
    assert read > 150
    assert refused > 150


@pytest.mark.slow
def test_ten_thousand_random_files_are_read_or_refused():
    read, refused = _read_or_refuse(10_000, seed=2)
    assert read > 3000
    assert refused > 3000


def test_random_applications_differ_and_repeat():
    one, other = (random_application(random.Random(seed)) for seed in (1, 2))
    assert one != other
    assert one == random_application(random.Random(1))


@pytest.mark.parametrize("name", bundled_applications())
def test_bundled_applications_are_half_used(name):
    app = read_application(f"bundled:{name}")
    assert app.name == name
    for service, one in app.services.items():
        allocated = one.cpu_limit * one.replicas
        used = app.cpu_demand(service) / allocated
        assert used < 0.6, service
        assert used > 0.3 or allocated <= 0.05, service
        assert one.cpu_min <= one.cpu_limit <= one.cpu_max
        assert sum(service in visits for visits in app.visits().values())
    assert all(one.sla is not None for one in app.classes.values())


def test_bundled_applications_are_those_promised():
    assert bundled_applications() == (
        "hotel-reservation", "media-pipeline", "social-network", "starter", "starter-servers",
    )  # fmt: skip
    social = read_application("bundled:social-network")
    assert len(social.services) == 28
    assert social.shares() == {
        "compose-post": 0.1,
        "read-home-timeline": 0.6,
        "read-user-timeline": 0.3,
    }
    pipeline = read_application("bundled:media-pipeline")
    assert pipeline.classes["upload"].sla == Sla(5000.0, 50.0, until="all")


def test_files_are_what_yaml_says_elsewhere():
    """Where YAML 1.1 and 1.2 agree, the strict reader and PyYAML agree."""
    for name in bundled_applications():
        app = read_application(f"bundled:{name}")
        assert yaml.safe_load(to_yaml(app))["services"].keys() == app.services.keys()
