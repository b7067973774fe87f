"""The manager `sinan`: candidates, the rule, safety, and models that do not fit."""

import math
import time

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.decide.services import ServiceState, service_policies
from gnomon.decide.services.policies import sinan as module
from gnomon.decide.services.policies.sinan import Sinan, candidate_factors
from gnomon.decide.services.sinan_model import Card, Forecast, SinanModel, Subject, load_model
from gnomon.decide.services.state import Window
from gnomon.errors import InputError
from gnomon.graph.application import Application, Call, RequestClass, Service, Sla

TIERS = 6
APP = Application(
    "row", {f"s{i}": Service(cpu_limit=0.5, cpu_min=0.05, cpu_max=2.0) for i in range(TIERS)},
    {"get": RequestClass(Call("s0", cpu_ms=1.0), sla=Sla(100.0))}, rate=1000.0,
)  # fmt: skip
CARD = Card("row", Subject.of(APP), 0.1, 0.05, 0.1, 100, {}, {})
RNG = np.random.default_rng(0)


class Stub:
    """A model that a test writes."""

    def __init__(self, ratio=lambda limits: np.full(len(limits), 0.5), chance=None):
        self.card, self.ratio, self.asked = CARD, ratio, []
        self.chance = chance or (lambda limits: np.zeros(len(limits)))

    def predict(self, history, limits):
        self.asked.append(limits)
        return Forecast(self.ratio(limits), self.chance(limits))


@pytest.fixture
def stub(monkeypatch):
    def use(**parts):
        model = Stub(**parts)
        monkeypatch.setattr(module, "load_model", lambda folder: model)
        monkeypatch.setattr(module, "read_card", lambda folder: CARD)
        return model

    return use


def window(limit=1.0, usage=0.1, rate=1000.0, late=0.0, second=1.0):
    full = np.ones(TIERS)
    return Window(
        now_s=second, duration_s=1.0, cpu_limit=limit * full, replicas=full.astype(np.int64),
        usage=usage * full, usage_samples=np.tile(usage * full, (10, 1)), throttled=0 * full,
        throttled_samples=np.zeros((10, TIERS)), queue=0 * full, rate=full,
        service_ms=np.ones((6, TIERS)), class_rate=np.array([rate]), class_ms=np.full((6, 1), 10.0),
        class_errors=np.zeros(1), class_violations=np.array([late]),
    )  # fmt: skip


def settle(policy, limit=1.0, usage=0.1):
    """The memory after the windows at the cap."""
    memory = None
    for second in range(5):
        state = ServiceState(APP, window(limit, usage, second=second), memory)
        answer = policy.decide(state, RNG)
        assert np.array_equal(answer.cpu_limit, np.full(TIERS, 2.0))
        memory = answer.memory
    return memory


def decide(policy, memory, **seen):
    return policy.decide(ServiceState(APP, window(**seen), memory), RNG)


def test_without_a_model_it_is_listed_and_stays_at_the_cap():
    policy = service_policies.create("sinan")
    answer = decide(policy, None)
    assert np.array_equal(answer.cpu_limit, np.full(TIERS, 2.0))
    assert "no model" in answer.reason
    assert "sinan" in service_policies.names()
    assert service_policies.describe("sinan").parameters[0].name == "model"


def test_the_cheapest_safe_reduction_is_taken(stub):
    stub()
    policy = Sinan(model="m")
    answer = decide(policy, settle(policy))
    np.testing.assert_allclose(answer.cpu_limit, 0.7)  # all down by the larger step
    assert np.all(answer.replicas == -1)


def test_only_tiers_that_may_shrink_do(stub):
    stub(ratio=lambda limits: np.where(limits[:, 2] < 1.0, 2.0, 0.5))
    policy = Sinan(model="m")
    answer = decide(policy, settle(policy))
    assert answer.cpu_limit[2] == 1.0
    assert answer.cpu_limit.sum() < TIERS


def test_reductions_need_more_certainty_than_holds(stub):
    stub(chance=lambda limits: np.full(len(limits), 0.07))  # between the two thresholds
    policy = Sinan(model="m")
    assert np.isnan(decide(policy, settle(policy)).cpu_limit).all()


def test_the_margin_is_kept(stub):
    stub(ratio=lambda limits: np.where(limits.sum(axis=1) < TIERS - 1e-9, 0.95, 0.85))
    policy = Sinan(model="m")
    assert np.isnan(decide(policy, settle(policy)).cpu_limit).all()
    assert np.nanmax(decide(Sinan(model="m", caution=2.0), settle(policy)).cpu_limit) == 2.0


def test_else_the_cheapest_growth_else_the_cap(stub):
    stub(ratio=lambda limits: np.where(limits[:, 3] > 1.25, 0.5, 2.0))
    policy = Sinan(model="m")
    grown = decide(policy, settle(policy)).cpu_limit
    np.testing.assert_allclose(grown, [1, 1, 1, 1.3, 1, 1])
    stub(ratio=lambda limits: np.full(len(limits), 2.0))
    answer = decide(policy, settle(policy))
    assert np.array_equal(answer.cpu_limit, np.full(TIERS, 2.0))
    assert "nothing is safe" in answer.reason


def test_saturated_tiers_are_lifted_in_every_candidate(stub):
    model = stub()
    policy = Sinan(model="m")
    decide(policy, settle(policy, usage=0.9), usage=0.9)
    assert np.all(model.asked[0] >= 0.9 / policy.saturated - 1e-9)


def test_nothing_shrinks_while_the_rate_moves_and_noise_is_no_move(stub):
    stub()
    policy = Sinan(model="m")
    memory = settle(policy)
    assert decide(policy, memory, rate=1040.0).cpu_limit.max() < 1  # 4 %: noise at 1,000 a second
    assert np.isnan(decide(policy, memory, rate=1300.0).cpu_limit).all()
    assert np.isnan(decide(policy, memory, rate=700.0).cpu_limit).all()


def test_a_jump_of_the_rate_is_provided_for_at_once(stub):
    model = stub()
    policy = Sinan(model="m")
    decide(policy, settle(policy, usage=0.4), usage=0.5, rate=2500.0)
    assert np.all(model.asked[0] >= 0.4 * 2.5 / policy.saturated - 1e-9)


def test_every_candidate_has_room_for_the_greatest_rise_seen(stub):
    model = stub()
    room = {}
    for name, policy in {"at the start": Sinan(model="m"), "none": Sinan(model="m", rise=0),
                         "a third": Sinan(model="m", rise=0.3)}.items():  # fmt: skip
        memory = settle(policy, usage=0.2)
        room[name] = decide(policy, memory, usage=0.2).memory
        assert np.all(model.asked[-1] >= 0.2 * (1 + room[name].rise) / 0.85 - 1e-9)
        assert np.all(model.asked[-1] >= 0.2 / policy.saturated - 1e-9)
    assert room["at the start"].rise == pytest.approx(1.0, rel=0.01)
    assert room["none"].rise == 0.0
    # A jump is remembered when it is over.
    memory = decide(Sinan(model="m"), room["none"], usage=0.2, rate=3000.0).memory
    for _ in range(9):
        memory = decide(Sinan(model="m"), memory, usage=0.2).memory
    assert 1.4 < memory.rise < 1.5  # more than that is not learned
    assert np.all(model.asked[-1] >= 0.2 * 2.4 / 0.85)


def test_an_unexpected_violation_lifts_all_and_costs_trust(stub):
    stub()
    policy = Sinan(model="m")
    memory = decide(policy, settle(policy)).memory
    trust = []
    for _ in range(3):
        answer = decide(policy, memory, late=0.5)
        np.testing.assert_allclose(answer.cpu_limit, 1.5)
        trust.append(answer.memory.trust)
        # The model goes on to promise that all is well.
        memory = msgspec.structs.replace(answer.memory, is_safe=True)
    assert trust == sorted(trust, reverse=True)
    assert trust[-1] < policy.least_trust
    for _ in range(5):  # the violated windows leave the history
        answer = decide(policy, memory)
        memory = answer.memory
        assert np.isnan(answer.cpu_limit).all()  # no reduction with so little trust
    for _ in range(20):
        answer = decide(policy, memory)
        memory = answer.memory
    assert answer.cpu_limit.max() < 1


def test_an_expected_violation_costs_no_trust(stub):
    stub(ratio=lambda limits: np.full(len(limits), 2.0))
    policy = Sinan(model="m")
    memory = decide(policy, settle(policy)).memory
    assert decide(policy, memory, late=0.5).memory.trust == memory.trust


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.integers(0, 5), st.integers(0, 9))
def test_prop_candidates_hold_first_and_say_what_section_4_3_says(used, logged, seed):
    tiers = len(used)
    rng = np.random.default_rng(seed)
    log = tuple(rng.random(tiers) < 0.5 for _ in range(logged))
    factors = candidate_factors(np.array(used), log)
    assert np.all(factors[0] == 1)
    assert len(factors) <= 8 * tiers + 20
    changed = (factors != 1).sum(axis=1)
    assert not np.any(((factors > 1).any(axis=1)) & ((factors < 1).any(axis=1)))
    down = (factors < 1).sum(axis=1)
    assert {*down} >= {*range(1, tiers + 1)}
    for row in factors[(down > 1)]:  # those that shrink together are the least used
        chosen = np.array(used)[row < 1]
        assert chosen.max() <= np.array(used)[row == 1].min(initial=math.inf)
    if any(one.any() for one in log):
        assert np.any((factors > 1).sum(axis=1) == np.logical_or.reduce(log).sum())
    assert changed.max() == tiers


@settings(max_examples=40, deadline=None)
@given(
    st.floats(0.05, 2.0), st.floats(0, 3.0), st.floats(0, 1e5), st.floats(0, 1), st.integers(0, 99)
)
def test_prop_answers_stay_within_bounds(limit, usage, rate, late, seed):
    rng = np.random.default_rng(seed)
    model = Stub(ratio=lambda limits: rng.uniform(0, 2, len(limits)),
                 chance=lambda limits: rng.uniform(0, 0.2, len(limits)))  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "load_model", lambda folder: model)
        patch.setattr(module, "read_card", lambda folder: CARD)
        policy = Sinan(model="m")
        memory = settle(policy, limit, usage)
        for _ in range(3):
            answer = decide(policy, memory, limit=limit, usage=usage, rate=rate, late=late)
            memory = answer.memory
            known = answer.cpu_limit[~np.isnan(answer.cpu_limit)]
            assert np.all((known >= 0.05) & (known <= 2.0))


@pytest.mark.parametrize(
    "spec", ["sinan?caution=0", "sinan?saturated=2", "sinan?least_trust=nan", "sinan?model=/none"]
)
def test_wrong_parameters_are_refused_when_it_is_made(spec):
    with pytest.raises(InputError):
        service_policies.create(spec)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("torch")
    pytest.importorskip("lightgbm")
    from gnomon.model.latency_net import LatencyNet, NetShape
    from gnomon.model.trees import Trees

    place = tmp_path_factory.mktemp("model")
    net = LatencyNet(NetShape(TIERS, 4 * TIERS))
    x = np.random.default_rng(1).normal(size=(200, net.latent_size + 4 * TIERS))
    SinanModel(CARD, net, Trees.fit(x, x[:, 0] > 0, x, x[:, 0] > 0)).save(place)
    return place


class TestFolders:
    def test_a_model_is_read_once_and_again_when_it_changed(self, folder):
        first = load_model(folder)
        assert load_model(folder) is first
        card = folder / "model.json"
        card.write_bytes(card.read_bytes())
        time.sleep(0.01)
        card.touch()
        assert load_model(folder) is not first

    def test_it_decides(self, folder):
        policy = service_policies.create(f"sinan?model={folder}")
        answer = decide(policy, settle(policy))
        assert "cores" in answer.reason or "cap" in answer.reason

    def test_a_model_of_another_application_is_refused(self, folder):
        services = {**APP.services, "extra": Service()}
        other = msgspec.structs.replace(APP, services=services)
        policy = Sinan(model=str(folder))
        with pytest.raises(InputError, match="is for other services: extra"):
            policy.decide(ServiceState(other, window()), RNG)
        stricter = RequestClass(Call("s0", cpu_ms=1.0), sla=Sla(50.0))
        tight = msgspec.structs.replace(APP, classes={"get": stricter})
        with pytest.raises(InputError, match="other classes or SLAs"):
            policy.decide(ServiceState(tight, window()), RNG)

    @pytest.mark.parametrize(
        ("name", "content"),
        [("model.json", b""), ("model.json", b"{}"), ("model.json", b"\xff\xff"),
         ("net.pt", b"junk"), ("trees.txt", b"tree\n")],
    )  # fmt: skip
    def test_broken_folders_are_one_line(self, folder, tmp_path, name, content):
        for path in folder.iterdir():
            (tmp_path / path.name).write_bytes(path.read_bytes())
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError) as caught:
            load_model(tmp_path)
        assert "\n" not in str(caught.value)
        assert name in str(caught.value)

    def test_parts_that_do_not_fit_are_refused(self, folder, tmp_path):
        from gnomon.model.latency_net import LatencyNet, NetShape

        for path in folder.iterdir():
            (tmp_path / path.name).write_bytes(path.read_bytes())
        LatencyNet(NetShape(TIERS + 1, 4)).save(tmp_path / "net.pt")
        with pytest.raises(InputError, match="do not fit one another"):
            load_model(tmp_path)
