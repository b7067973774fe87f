"""One lease, several who want it: at no time do two of them act."""

from __future__ import annotations

import kubernetes_validate
import pytest

from gnomon.act.kubernetes.lease import Lease
from gnomon.errors import ActuationError


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def pair(cluster, clock):
    return [
        Lease(cluster, "shop", "gnomon-shop", who, duration_s=15, clock=clock)
        for who in ("a", "b")
    ]


def test_the_first_gets_it_and_the_second_waits_until_it_expires(api, pair, clock):
    a, b = pair
    assert not a.is_held
    assert (a.renew(), b.renew()) == (True, False)
    found = api.get("leases", "gnomon-shop")
    assert found["spec"]["holderIdentity"] == "a"
    kubernetes_validate.validate(found, "1.33", strict=True)
    clock.now_s += 9
    assert a.renew()
    clock.now_s += 9
    assert not b.renew()  # 18 s since b saw the lease first, 9 since it was renewed
    assert a.is_held
    clock.now_s += 1.1
    assert not a.is_held  # it could not renew in time, and stops before b may begin
    clock.now_s += 13
    assert not b.renew()
    clock.now_s += 1
    assert b.renew()
    assert api.get("leases", "gnomon-shop")["spec"]["leaseTransitions"] == 2
    assert not a.renew()
    assert [one.is_held for one in pair] == [False, True]


def test_who_releases_lets_others_begin_at_once(api, pair):
    a, b = pair
    a.renew()
    acquired = api.get("leases", "gnomon-shop")["spec"]["acquireTime"]
    a.renew()
    assert api.get("leases", "gnomon-shop")["spec"]["acquireTime"] == acquired
    a.release()
    assert not a.is_held
    assert b.renew()
    a.release()  # not its own any more
    assert api.get("leases", "gnomon-shop")["spec"]["holderIdentity"] == "b"
    api.delete("leases", "gnomon-shop")
    b.release()


def test_who_is_slower_does_not_get_it(api, pair):
    """Both see it free; the second write meets another version."""
    a, b = pair
    seen = []

    def meanwhile(method, path):
        if method in ("POST", "PUT") and not seen:
            seen.append(path)
            assert b.renew()

    api.before = meanwhile
    assert not a.renew()
    assert [one.is_held for one in pair] == [False, True]
    b.release()
    seen.clear()
    assert not a.renew()


def test_a_cluster_that_does_not_answer_ends_it_in_time(api, pair, clock):
    a, _ = pair
    a.renew()
    api.instead = lambda method, path: "drop"
    with pytest.raises(ActuationError):
        a.renew()
    assert a.is_held  # until its time is over
    clock.now_s += 10.1
    assert not a.is_held


def test_one_who_may_not_write_leases(api, pair):
    api.instead = lambda method, path: (
        (403, {"message": "no leases for you"}) if method == "POST" else None
    )
    with pytest.raises(ActuationError, match="403 no leases for you"):
        pair[0].renew()
    assert not pair[0].is_held
