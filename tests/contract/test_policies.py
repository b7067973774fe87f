"""Every policy that has a name keeps the contract, and every check can fail."""

import threading
import time

import msgspec
import numpy as np
import pytest

from gnomon import checks
from gnomon.decide import Fifo, Hold, Pick, StateSpace, policies
from gnomon.errors import InputError


def specs():
    """Each registered name as it is used: a wrapper around a policy that needs nothing."""
    for name in policies.names():
        yield f"{name}:fifo" if policies.describe(name).is_wrapper else name


CASES = [
    pytest.param(check, id=f"{spec}-{check.name}")
    for spec in specs()
    for check in checks.policy_checks(spec)
]


@pytest.mark.parametrize("check", CASES)
def test_every_policy_keeps_the_contract(check):
    check()


class Obedient:
    """Right in everything; the bad ones below are wrong in one thing each."""

    def decide(self, state, rng):
        return Pick(int(rng.integers(len(state)))) if state.can_start else Hold()


class Slow(Obedient):
    def decide(self, state, rng):
        time.sleep(0.06)
        return super().decide(state, rng)


class OwnDice(Obedient):
    def decide(self, state, rng):
        return super().decide(state, np.random.default_rng())


class Meddler(Obedient):
    def decide(self, state, rng):
        if len(state):
            state.size_ns.flags.writeable = True
            state.size_ns[0] += 1
        return super().decide(state, rng)


class Blunt(Obedient):
    """Writes where it may not, and is stopped."""

    def decide(self, state, rng):
        state.size_ns[:1] = 0
        return super().decide(state, rng)


class OutOfRange(Obedient):
    def decide(self, state, rng):
        return Pick(len(state) - 1) if state.free else Pick(len(state))


class NeedsOne(Obedient):
    def decide(self, state, rng):
        return Pick(int(np.argmin(state.arrival_ns))) if state.free else Hold()


class NeedsTwo(Obedient):
    def decide(self, state, rng):
        if len(state) == 1:
            raise IndexError("no second item")
        return super().decide(state, rng)


class Overwhelmed(Obedient):
    def decide(self, state, rng):
        if len(state) > 1000:
            raise MemoryError("too many")
        return super().decide(state, rng)


class Locked(Obedient):
    def __init__(self):
        self.lock = threading.Lock()


class Forgetful(msgspec.Struct):
    """Comes out of a pickle as somebody else."""

    offset: int = 1

    def decide(self, state, rng):
        return Pick(self.offset % len(state)) if state.can_start else Hold()

    def __reduce__(self):
        return Forgetful, ()


class Laconic(msgspec.Struct, frozen=True):
    depth: int = 3

    def decide(self, state, rng):
        return Hold()

    def __repr__(self):
        return "Laconic()"


class Mute(Laconic, frozen=True):
    def __repr__(self):
        return "<a policy>"


@pytest.mark.parametrize(
    ("bad", "name", "why"),
    [
        (Slow, "check_time_bounded", "within 0.05 s"),
        (OwnDice, "check_same_seed_same_answer", "same seed"),
        (Meddler, "check_input_not_mutated", "was changed"),
        (Blunt, "check_input_not_mutated", "read-only"),
        (OutOfRange, "check_answer_in_action_space", "is no answer to"),
        (NeedsOne, "check_survives_empty", "empty"),
        (NeedsTwo, "check_survives_single", "IndexError: no second item"),
        (Overwhelmed, "check_survives_overloaded", "MemoryError: too many"),
        (Locked, "check_pickles", "TypeError: cannot pickle"),
        (lambda: Forgetful(7), "check_pickles", "unpickled"),
        (Laconic(4), "check_repr_evaluates_back", "makes another"),
        (Mute, "check_repr_evaluates_back", "SyntaxError"),
    ],
)
def test_every_check_can_fail(bad, name, why):
    found = {check.name: check for check in checks.policy_checks(bad, time_limit_s=0.05)}
    with pytest.raises(checks.CheckFailed, match=rf"^{name}: (?s:.*){why}") as info:
        found[name]()
    assert info.value.check == name


def test_the_list_above_names_every_check():
    names = {check.name for check in checks.policy_checks(Fifo())}
    shown = {
        mark.args[1][number][1]
        for mark in test_every_check_can_fail.pytestmark
        for number in range(len(mark.args[1]))
    }
    assert names == shown


def test_a_good_outsider_passes():
    outcomes = checks.policy(Obedient)
    assert {outcome.status for outcome in outcomes} == {"passed"}
    assert "check_repr_evaluates_back" not in {outcome.check for outcome in outcomes}


def test_all_outcomes_or_the_first_failure():
    with pytest.raises(checks.CheckFailed, match="check_pickles"):
        checks.policy(Locked)
    outcomes = {outcome.check: outcome for outcome in checks.policy(Locked, raises=False)}
    assert outcomes["check_pickles"].status == "failed"
    assert "lock" in outcomes["check_pickles"].why
    assert outcomes["check_survives_empty"].status == "passed"


def test_a_policy_that_hangs_does_not_hang_the_checks():
    leave = threading.Event()

    class Hanging(Obedient):
        def decide(self, state, rng):
            leave.wait(60)
            return Hold()

    first, *others = checks.policy(Hanging, time_limit_s=0.02, raises=False)
    leave.set()
    assert (first.check, first.status) == ("check_time_bounded", "failed")
    assert {outcome.status for outcome in others} == {"skipped"}


def test_states_of_another_kind():
    class Doubler:
        @classmethod
        def check_states(cls):
            return StateSpace({"single": 1, "large": 10**9}, lambda s, a: a == 2 * s)

        def decide(self, state, rng):
            return 2 * state

    names = [check.name for check in checks.policy_checks(Doubler())]
    assert "check_survives_single" in names
    assert "check_survives_empty" not in names
    found = {check.name: check for check in checks.policy_checks(Doubler)}
    found["check_answer_in_action_space"]()
    elsewhere = StateSpace({"single": 1}, lambda s, a: a == 3 * s)
    with pytest.raises(checks.CheckFailed, match="check_answer_in_action_space"):
        checks.policy(Doubler(), elsewhere)


def test_no_policy_at_all():
    with pytest.raises(InputError, match=r"has no decide\(\)"):
        checks.policy(3)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), True),
        (np.array([1]), np.array([1.0]), False),
        ((1, [np.array([2])]), (1, [np.array([2])]), True),
        ({"a": 1}, {"b": 1}, False),
        (float("nan"), float("nan"), True),
        (Locked, Locked, True),
        (Obedient(), Obedient(), True),
        (Fifo(), Hold(), False),
    ],
)
def test_is_same(left, right, same):
    assert checks.is_same(left, right) is same
