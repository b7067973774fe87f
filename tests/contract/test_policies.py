"""Every policy of a cluster that has a name keeps the contract, and every check can fail."""

import atexit
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest

from gnomon import checks
from gnomon.checks import clusters as module
from gnomon.decide.cluster import ClusterPolicy, Serve, Wait, cluster_policies
from gnomon.decide.cluster.policies.orders import Fifo
from gnomon.errors import InputError
from gnomon.model.decima.network import DecimaWeights

FOLDER = Path(tempfile.mkdtemp(prefix="gnomon-test-decima-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
DecimaWeights.initial(np.random.default_rng(3)).save(FOLDER / "untrained.npz")

#: What draws, for those that need it inside.
DRAWING = ("pcaps",)


def specs():
    """Each registered name as it is used: a wrapper around a policy that needs nothing."""
    for name in cluster_policies.names():
        if name == "decima":
            yield name, f"decima?model={FOLDER / 'untrained.npz'}"
        elif cluster_policies.describe(name).is_wrapper:
            yield name, f"{name}:{'path-softmax' if name in DRAWING else 'fifo'}"
        else:
            yield name, name
    yield "kept-few", "kubernetes?per_job=1"
    yield "nested", "guard?patience_h=2:cap?min_share=0.1:wait-awhile:fair"


CASES = [
    pytest.param(check, id=f"{name}-{check.name}")
    for name, spec in specs()
    for check in checks.policy_checks(spec)
]


@pytest.mark.parametrize("check", CASES)
def test_every_policy_keeps_the_contract(check):
    check()


class Obedient(ClusterPolicy, frozen=True):
    """Right in everything; the bad ones below are wrong in one thing each."""

    def decide(self, state, rng):
        return Serve(int(rng.integers(len(state))), state.executors)


class Slow(Obedient, frozen=True):
    leave: ClassVar[threading.Event] = threading.Event()

    def decide(self, state, rng):
        Slow.leave.wait(0.3)
        return super().decide(state, rng)

    def __deepcopy__(self, memo):
        return Slow()


class OwnDice(Obedient):
    def decide(self, state, rng):
        return super().decide(state, np.random.default_rng())


class NeedsOne(Obedient):
    """Refuses where nobody is there to be served: such a cluster never asks."""

    def native(self, setting):
        if setting.executors.count == 2:
            raise IndexError("two are too few")
        return Fifo().native(setting)


class NeedsTwo(Obedient):
    def decide(self, state, rng):
        if state.executors == 1:
            raise IndexError("no second executor")
        return super().decide(state, rng)


class Overwhelmed(Obedient):
    def decide(self, state, rng):
        if len(state.job) > 20:
            raise MemoryError("too many")
        return super().decide(state, rng)


class Lazy(Obedient):
    def decide(self, state, rng):
        return Wait()


class Locked(Obedient, frozen=True):
    lock: Any = msgspec.field(default_factory=threading.Lock)


class Meddler(Obedient, frozen=True):
    """Writes to what it was given."""

    def native(self, setting):
        setting.grid.seen[:] = 0.0
        return super().native(setting)


class Forgetful(ClusterPolicy, frozen=True):
    """Comes out of a pickle as somebody else."""

    most: int = 1

    def decide(self, state, rng):
        return Serve(0, self.most)

    def __reduce__(self):
        return Forgetful, ()


class Laconic(ClusterPolicy, frozen=True):
    depth: int = 3

    def native(self, setting):
        return Fifo().native(setting)

    def __repr__(self):
        return "Laconic()"


@pytest.mark.parametrize(
    ("bad", "name", "why"),
    [
        (Slow, "check_time_bounded", "within 0.05 s"),
        (OwnDice, "check_same_seed_same_answer", "same seed"),
        (Lazy, "check_every_task_runs_once", "never served"),
        (NeedsOne, "check_survives_empty", "IndexError: two are too few"),
        (NeedsTwo, "check_survives_single", "IndexError: no second executor"),
        (Overwhelmed, "check_survives_overloaded", "MemoryError: too many"),
        (Locked, "check_pickles", "TypeError: cannot pickle"),
        (Meddler, "check_input_not_mutated", "was changed"),
        (lambda: Forgetful(7), "check_pickles", "unpickled"),
        (Laconic(4), "check_repr_evaluates_back", "makes another"),
    ],
)
def test_every_check_can_fail(bad, name, why):
    limit_s = 0.05 if bad is Slow else 20.0
    found = {check.name: check for check in checks.policy_checks(bad, time_limit_s=limit_s)}
    with pytest.raises(checks.CheckFailed, match=rf"^{name}: (?s:.*){why}") as info:
        found[name]()
    Slow.leave.set()
    assert info.value.check == name


@pytest.mark.parametrize(
    ("change", "name", "why"),
    [
        ({"start_ns": 0}, "check_precedence", "starts too early"),
        ({"executor": 0}, "check_one_task_at_a_time", "runs two tasks"),
    ],
)
def test_what_a_simulator_does_wrong_is_found(monkeypatch, change, name, why):
    """No policy can break these on our simulator; a log that lies shows that they are looked at."""
    real = module.simulate

    def lying(*arguments, **options):
        run = real(*arguments, **options)
        columns = {c: np.full_like(getattr(run.log, c), value) for c, value in change.items()}
        return msgspec.structs.replace(run, log=msgspec.structs.replace(run.log, **columns))

    monkeypatch.setattr(module, "simulate", lying)
    found = {check.name: check for check in checks.policy_checks("fifo")}
    with pytest.raises(checks.CheckFailed, match=why):
        found[name]()


def test_the_lists_above_name_every_check():
    names = {check.name for check in checks.policy_checks(Fifo())}
    shown = {
        row[1]
        for test in (test_every_check_can_fail, test_what_a_simulator_does_wrong_is_found)
        for mark in test.pytestmark
        for row in mark.args[1]
    }
    assert names == shown


def test_a_good_outsider_passes():
    outcomes = checks.policy(Obedient)
    assert {outcome.status for outcome in outcomes} == {"passed"}


def test_no_policy_at_all():
    with pytest.raises(InputError, match=r"is no policy"):
        checks.policy(3)
