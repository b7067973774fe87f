"""Trials and what is made of them: paired, guarded, controlled, the same for the same seed."""

from __future__ import annotations

import functools

import msgspec
import numpy as np
import pytest

from gnomon.datasets.batch_jobs import sample_jobs, tpch_like
from gnomon.decide.cluster import ClusterPolicy, Serve, cluster_policies
from gnomon.errors import InputError
from gnomon.report import to_json
from gnomon.sim.cluster import Executors, Guard
from gnomon.systems.batch import Experiment, hours_of_zone, parse_policies, run_experiment
from gnomon.systems.batch.run_result import to_result, to_script
from gnomon.systems.batch.trial import Trial, run_trial

MINUTE_NS = 60 * 10**9
KINDS = tpch_like(np.random.default_rng(3), queries=6, sizes_gb=(2, 10))


def experiment(policies, **changes):
    plain = Experiment(
        policies=parse_policies(policies),
        make_jobs=functools.partial(sample_jobs, KINDS, 12, mean_s=30.0),
        executors=Executors(count=20),
    )
    return msgspec.structs.replace(plain, **changes)


@pytest.fixture(scope="module")
def grid():
    return hours_of_zone("DE")


def test_the_same_seed_gives_the_same_trial(grid):
    tried = experiment("fifo,cap:fifo,pcaps:path-softmax")
    one, two = (run_trial(tried, Trial(grid, 4, 7)) for _ in range(2))
    assert msgspec.json.encode(one) == msgspec.json.encode(two)
    assert run_trial(tried, Trial(grid, 5, 7)).start != one.start


def test_jobs_are_the_same_on_every_grid(grid):
    tried = experiment("fifo")
    here = run_trial(tried, Trial(grid, 1, 0)).policies["fifo"].measured
    there = run_trial(tried, Trial(hours_of_zone("ON"), 1, 0)).policies["fifo"].measured
    assert here.work_s == there.work_s
    assert here.carbon_g != there.carbon_g


def test_controls_stand_beside_what_knows_the_grid(grid):
    outcome = run_trial(experiment("fifo,quota:fifo,cap:fifo,pcaps+:fair"), Trial(grid, 1))
    fifo, quota, cap, plus = outcome.policies.values()
    assert fifo.placebo is None is quota.placebo
    assert cap.placebo is not None
    assert cap.placebo.carbon_g != cap.measured.carbon_g
    assert cap.quota_share == pytest.approx(cap.measured.quota_share)
    # A policy without a quota is set beside one that costs as much executor time.
    assert plus.quota.work_s == pytest.approx(plus.measured.work_s, rel=0.25)
    assert all(o.bound <= o.measured.carbon_g / o.measured.energy_kwh + 1e-9
               for o in outcome.policies.values())  # fmt: skip


def test_a_deadline_is_kept(grid):
    policies = "fair,pcaps+?window_h=48:fair,suspend:fair,wait-awhile:fair,cap:fair,green-hadoop"
    for number in range(4):
        outcome = run_trial(experiment(policies, finish_within=1.25), Trial(grid, number))
        fair, *others = [own.measured.ect_s for own in outcome.policies.values()]
        # What hurries still has to run: how long it takes is an estimate.
        assert max(others) <= 1.25 * fair + 20.0


def test_what_is_its_base_has_controls_that_are_its_base(grid):
    outcome = run_trial(
        experiment("path-softmax,pcaps?gamma=0:path-softmax,cap?min_share=1:path-softmax"),
        Trial(grid, 0),
    )
    base, *same = outcome.policies.values()
    for own in same:
        assert own.measured == base.measured
        assert own.quota.carbon_g == base.measured.carbon_g
        assert own.placebo.carbon_g == base.measured.carbon_g


class Widest(ClusterPolicy, frozen=True):
    """A policy of somebody else's, in Python."""

    def decide(self, state, rng):
        return Serve(int(np.argmax(state.stage_tasks)), limit=10)


def test_a_policy_in_python_is_tried_with_a_placebo(grid):
    cluster_policies.register("widest-for-this-test", Widest)
    outcome = run_trial(experiment("fifo,widest-for-this-test"), Trial(grid, 0))
    own = outcome.policies["widest-for-this-test"]
    assert own.placebo is not None
    assert own.quota is not None


def test_patience_bounds_how_long_jobs_wait(grid):
    held = run_trial(experiment("fair,suspend?patience_h=500&quantile=0.1:fair"), Trial(grid, 0))
    bound = run_trial(
        experiment(
            "fair,suspend?patience_h=500&quantile=0.1:fair", guard=Guard(patience_ns=2 * MINUTE_NS)
        ),
        Trial(grid, 0),
    )
    wait = [
        own.policies["suspend?patience_h=500&quantile=0.1:fair"].measured for own in (held, bound)
    ]
    assert wait[1].jct_p95_s < wait[0].jct_p95_s
    assert wait[1].jct_p95_s < bound.policies["fair"].measured.jct_p95_s + 5 * 60


def test_which_policies_know_the_grid():
    specs = {"fifo": False, "decima": False, "quota:fifo": False, "cap:fifo": True,
             "guard?patience_h=3:fair": False, "guard?patience_h=3:cap:fair": True,
             "pcaps+:fair": True}  # fmt: skip
    assert {spec: cluster_policies.create(spec).is_carbon_aware for spec in specs} == specs
    assert repr(cluster_policies.create("cap:pcaps:path-softmax").innermost).startswith("PathSoft")


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "which policies"), ("fifo,fifo", "named twice"), ("fifo,capp:fifo", "did you mean 'cap'"),
     ("cap", "wraps another"), ("fifo:fair", "does not wrap"), ("cap?min_share=2:fifo", "from 0 to 1")],
)  # fmt: skip
def test_wrong_policies_are_told(text, said):
    with pytest.raises(InputError, match=said):
        parse_policies(text)


def test_an_answer_says_what_it_is_made_of(grid):
    answer = run_experiment(
        experiment("fifo,fair,cap:fifo,pcaps+:fair"), [grid, hours_of_zone("ON")], trials=3,
        on="serial",
    )  # fmt: skip
    for comparisons in (*answer.by_grid.values(), answer.overall):
        assert [own.policy for own in comparisons] == list(answer.experiment.policies)
        first = comparisons[0].figures
        assert first["carbon_pct"].mid == first["work_pct"].mid == first["jct_pct"].mid == 0.0
        for own in comparisons:
            f = own.figures
            both = (1 + f["work_pct"].mid / 100) * (1 + f["intensity_pct"].mid / 100)
            assert both == pytest.approx(1 + f["carbon_pct"].mid / 100)
            assert all(v.low <= v.mid <= v.high for v in f.values())
            assert f["oracle_pct"].mid <= f["intensity_pct"].mid + 1e-9
    script = to_script(answer)
    assert set(script["grids"]) == {"DE", "ON"}
    cap = script["policies"]["cap:fifo"]
    assert {"low", "mid", "high"} == set(cap["carbon_kg"])
    assert script["policies"]["fifo"]["placebo_pct"] is None
    result = to_result(answer, "gnomon batch run")
    assert len(result.table("policies").to_json_rows()) == 8
    assert to_json(result, extra=script) == to_json(
        to_result(answer, "gnomon batch run"), extra=script
    )
    held = result.table("held").to_json_rows()
    assert {row["policy"] for row in held} == {"cap:fifo", "pcaps+:fair"}
    assert all(row["because"] for row in held)


def test_trials_on_other_processes_are_the_same(grid):
    tried = experiment("fifo,cap:fifo")
    here, there = (
        run_experiment(tried, [grid], trials=3, on=on, explain=False)
        for on in ("serial", "local:2")
    )
    assert msgspec.json.encode(here.outcomes) == msgspec.json.encode(there.outcomes)


def test_trials_go_on_where_they_stopped(grid, tmp_path):
    tried = experiment("fifo")
    first = run_experiment(tried, [grid], trials=2, on="serial", resume=tmp_path, explain=False)
    kept = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    again = run_experiment(tried, [grid], trials=2, on="serial", resume=tmp_path, explain=False)
    assert msgspec.json.encode(first.outcomes) == msgspec.json.encode(again.outcomes)
    assert kept == sorted(path.name for path in tmp_path.rglob("*") if path.is_file())


def test_nothing_to_try_is_told(grid):
    with pytest.raises(InputError, match="0 trials"):
        run_experiment(experiment("fifo"), [grid], trials=0)
    with pytest.raises(InputError, match="which grid"):
        run_experiment(experiment("fifo"), [], trials=1)


@pytest.mark.parametrize("words", ["narrows=false&binding=decision", "counts=held"])
def test_a_control_is_like_what_it_controls(grid, words):
    spec = f"cap?{words}:decima"
    outcome = run_trial(experiment(f"fifo,{spec}"), Trial(grid, 1)).policies[spec]
    share = outcome.quota_share
    same = f"quota?share={share!r}&{words}:decima"
    strict = f"quota?share={share!r}:decima"
    alone = run_trial(experiment(f"fifo,{same},{strict}"), Trial(grid, 1)).policies
    assert outcome.quota.work_s == alone[same].measured.work_s
    assert outcome.quota.work_s != alone[strict].measured.work_s


def test_a_forecast_does_not_move_the_start(grid):
    starts = {
        forecast: run_trial(
            msgspec.structs.replace(experiment("fifo"), forecast=forecast), Trial(grid, 3)
        ).start
        for forecast in ("known", "persistence")
    }
    assert starts["known"] == starts["persistence"]
