"""Training Decima: it learns, goes on where it stopped, and is the same for the same seed."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from gnomon import _core
from gnomon.cli import main
from gnomon.errors import InputError
from gnomon.graph.jobs import JobKinds, Stage, Waves
from gnomon.model.decima.network import DecimaWeights
from gnomon.systems.batch.decima.train import Training, _episode, train_decima, usual_arrival_s
from tests.cli.refusal import refused

S = 10**9
#: Long and short jobs, one stage each, of tasks that never wait for each other.
KINDS = JobKinds.build(
    {
        "long": [Stage(40, {4: Waves(first=[10 * S])})],
        "short": [Stage(2, {4: Waves(first=[S])})],
    }
)
SMALL = Training(iterations=4, rollouts=3, executors=4, first_jobs=4, last_jobs=6, decisions=50)


def test_the_same_seed_trains_the_same_network(tmp_path):
    one, two = (train_decima(KINDS, tmp_path / f"{n}.npz", SMALL) for n in "ab")
    np.testing.assert_array_equal(one.parameters, two.parameters)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert not (tmp_path / "a.npz.training").exists()
    np.testing.assert_array_equal(
        DecimaWeights.load(tmp_path / "a.npz").parameters, one.parameters
    )


class Stopped(Exception):
    pass


def test_what_was_stopped_goes_on(tmp_path):
    whole = train_decima(KINDS, tmp_path / "whole.npz", SMALL)
    seen = []

    def stop(progress):
        seen.append(progress.iteration)
        if progress.iteration == 2:
            raise Stopped

    with pytest.raises(Stopped):
        train_decima(KINDS, tmp_path / "part.npz", SMALL, on_iteration=stop)
    rest = train_decima(
        KINDS, tmp_path / "part.npz", SMALL, on_iteration=lambda p: seen.append(p.iteration)
    )
    assert seen == [1, 2, 3, 4]
    np.testing.assert_array_equal(rest.parameters, whole.parameters)


def test_another_training_is_not_mixed_up(tmp_path):
    def stop(progress):
        raise Stopped

    with pytest.raises(Stopped):
        train_decima(KINDS, tmp_path / "a.npz", SMALL, on_iteration=stop)
    with pytest.raises(InputError, match="other settings"):
        train_decima(KINDS, tmp_path / "a.npz", msgspec.structs.replace(SMALL, seed=1))
    other = JobKinds.build({"other": [Stage(3, {4: Waves(first=[S])})]})
    with pytest.raises(InputError, match="other settings or jobs"):
        train_decima(other, tmp_path / "a.npz", SMALL)
    begin = DecimaWeights.initial(np.random.default_rng(9))
    with pytest.raises(InputError, match="other settings or jobs"):
        train_decima(KINDS, tmp_path / "a.npz", SMALL, start=begin)
    (tmp_path / "a.npz.training").write_bytes(b"rubbish")
    with pytest.raises(InputError, match="no training to go on with") as caught:
        train_decima(KINDS, tmp_path / "a.npz", SMALL)
    assert "pickle" not in str(caught.value)


def test_a_file_that_is_there_stays(tmp_path):
    (tmp_path / "a.npz").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        train_decima(KINDS, tmp_path / "a.npz", SMALL)
    assert (tmp_path / "a.npz").read_text() == "mine"


def test_the_weight_of_entropy_falls_to_nothing(tmp_path, monkeypatch):
    real, weights = _core.decima_gradient, []

    def noted(parameters, record, some, advantage, weight):
        weights.append(weight)
        return real(parameters, record, some, advantage, weight)

    monkeypatch.setattr(_core, "decima_gradient", noted)
    how = msgspec.structs.replace(SMALL, entropy=0.3)
    train_decima(KINDS, tmp_path / "a.npz", how)
    by_iteration = np.array(weights).reshape(how.iterations, how.rollouts)[:, 0]
    assert by_iteration == pytest.approx(np.linspace(0.3, 0.0, how.iterations))


def test_some_episodes_have_all_jobs_at_once():
    how = Training(mean_s=10.0)
    spans = [
        _episode(KINDS, how, 20, np.random.default_rng(seed)).arrival_ns.max() / S
        for seed in range(200)
    ]
    assert 0.2 < np.mean(np.array(spans) == 0) < 0.4
    assert np.min([span for span in spans if span]) > 0.2 * 10 * 19 * 0.3


def test_half_of_the_executors_have_work_by_default():
    kinds = JobKinds.build({"a": [Stage(20, {4: Waves(first=[10 * S])})]})
    assert usual_arrival_s([kinds], 4) == pytest.approx(200 / 4 / 0.54, rel=0.05)


def test_it_learns_to_serve_the_short_jobs(tmp_path):
    """Long jobs first cost everybody: after some steps the short ones wait less."""
    told = []
    training = Training(
        iterations=40, rollouts=8, executors=4, first_jobs=8, last_jobs=8, mean_s=1.0,
        learning_rate=5e-3, decisions=200, entropy=0.0,
    )  # fmt: skip
    train_decima(KINDS, tmp_path / "a.npz", training, on_iteration=told.append)
    ratio = [progress.jct_s / progress.fair_s for progress in told]
    assert np.mean(ratio[-10:]) < 0.95 * np.mean(ratio[:10])


def test_it_begins_where_it_is_told_to(tmp_path):
    start = DecimaWeights.initial(np.random.default_rng(5))
    one = msgspec.structs.replace(SMALL, iterations=1)
    near = train_decima(KINDS, tmp_path / "a.npz", one, start=start)
    # Adam's first step moves every parameter by no more than the learning rate.
    assert np.abs(near.parameters - start.parameters).max() <= 1.001 * one.learning_rate
    assert not np.array_equal(near.parameters, start.parameters)


def test_several_sets_of_kinds_are_all_learned_on(tmp_path):
    only_long = JobKinds.build({"long": [Stage(40, {4: Waves(first=[10 * S])})]})
    only_short = JobKinds.build({"short": [Stage(2, {4: Waves(first=[S])})]})
    told, more = [], msgspec.structs.replace(SMALL, iterations=12)
    train_decima([only_long, only_short], tmp_path / "a.npz", more, on_iteration=told.append)
    times = [progress.fair_s for progress in told]
    assert max(times) > 10 * min(times)
    with pytest.raises(InputError, match="no jobs to learn on"):
        train_decima([], tmp_path / "b.npz", SMALL)


@pytest.mark.parametrize(
    "wrong",
    [{"rollouts": 1}, {"iterations": 0}, {"last_jobs": 1}, {"reach_s": 0.0}, {"mean_s": -1.0}],
    ids=str,
)
def test_settings_are_checked(wrong):
    with pytest.raises(InputError):
        Training(**wrong)


def test_by_its_command(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["batch", "train-decima", "-o", "m.npz", "--iterations", "2", "--rollouts", "2",
             "--executors", "10"]  # fmt: skip
    assert main(words) == 0
    assert "decima" in capsys.readouterr().out
    assert len(DecimaWeights.load("m.npz").parameters) == 4770
    assert "none.json: no such file" in refused(capsys, *words, "--jobs", "none.json")
