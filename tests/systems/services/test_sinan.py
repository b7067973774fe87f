"""Sinan: features, the bandit, data files, training, explanation, and all of it end to end."""

import shutil

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.decide.services import ServiceState, SimTarget, manage
from gnomon.decide.services.sinan_model import (
    JUDGED,
    KEPT,
    PAST,
    Bound,
    History,
    SinanModel,
    Subject,
    load_model,
)
from gnomon.errors import InputError
from gnomon.graph.application import Application, Call, RequestClass, Service, Sla
from gnomon.ingest.services.application_file import read_application
from gnomon.sim.mesh import poisson_requests
from gnomon.systems.services import Setup, find_rate, simulate

pytest.importorskip("torch")
pytest.importorskip("lightgbm")
pytest.importorskip("pyarrow")
from gnomon.model.latency_net import FitOptions
from gnomon.model.trees import TreeOptions
from gnomon.systems.services import sinan
from gnomon.systems.services.sinan.bandit import Bandit
from gnomon.systems.services.sinan.collect import collect, explore, plan_runs
from gnomon.systems.services.sinan.dataset import AHEAD, read_dataset, read_run, samples_of, split
from gnomon.systems.services.sinan.explain import explain
from gnomon.systems.services.sinan.train import (
    TrainOptions,
    evaluate,
    fine_tune,
    learning_curve,
    threshold,
    train,
)
from tests.systems.services.faults import FAULTS, survives, target_of

STARTER = read_application("bundled:starter")
QUICK = TrainOptions(net=FitOptions(epochs=5, batch=128), trees=TreeOptions(rounds=80))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("sinan")
    collect(STARTER, plan_runs(STARTER, hours=1.6, seed=1, run_s=120.0), place / "data")
    train(read_dataset(place / "data"), options=QUICK).save(place / "model")
    return place


def history_of(rows, classes=1, services=2, **columns):
    """Quiet windows, but for what is given."""
    plain = {
        "limit": np.full((rows, services), 0.5), "replicas": np.ones((rows, services)),
        "usage": np.full((rows, services), 0.1), "peak": np.full((rows, services), 0.2),
        "queue": np.zeros((rows, services)), "throttled": np.zeros((rows, services)),
        "class_rate": np.full((rows, classes), 100.0), "class_ms": np.full((rows, 6, classes), 10.0),
        "class_failed": np.zeros((rows, classes)), "class_late": np.zeros((rows, classes)),
    }  # fmt: skip
    return History(**(plain | columns))


class TestFeatures:
    def test_the_worst_class_counts_each_by_its_own_bound_and_percentile(self):
        ms = np.empty((1, 6, 3))
        ms[0, :, 0] = [10, 20, 30, 40, 50, 60]  # p99 of 50 ms
        ms[0, :, 1] = [10, 20, 30, 40, 500, 600]  # judged by its median
        ms[0, :, 2] = 1e6  # no SLA
        classes = (Bound("a", 100.0, 99.0), Bound("b", 100.0, 50.0), Bound("c", 0.0, 99.0))
        ratios = history_of(1, classes=3, class_ms=ms).ratios(classes)
        np.testing.assert_allclose(ratios[0], [0.2, 0.3, 0.4, 0.5, 0.6], rtol=1e-6)

    def test_an_sla_past_p99_is_read_where_p99_is(self):
        ms = np.array([10, 20, 30, 40, 50, 90.0]).reshape(1, 6, 1)
        ratios = history_of(1, class_ms=ms).ratios((Bound("a", 100.0, 99.9),))
        np.testing.assert_allclose(ratios[0], [0.2, 0.3, 0.4, 0.9, 0.9], rtol=1e-6)

    def test_a_class_without_answers_keeps_its_latency_for_a_while(self):
        ms = np.full((8, 6, 1), np.nan)
        ms[0] = 50.0
        ratios = history_of(8, class_ms=ms).ratios((Bound("a", 100.0, 99.0),))[:, JUDGED]
        assert ratios.tolist() == [0.5] * PAST + [0.0] * 3

    def test_failures_are_late(self):
        failing = history_of(1, class_failed=np.array([[2.0]]))
        assert failing.ratios((Bound("a", 100.0, 99.0),))[0, JUDGED] == 2.0
        assert history_of(1, class_failed=np.array([[0.5]])).ratios(
            (Bound("a", 100.0, 99.0),))[0, JUDGED] == pytest.approx(0.1)  # fmt: skip

    def test_windows_are_judged_together(self):
        late = np.zeros((12, 1))
        late[3] = 0.04  # 4 of 100 in one window: 0.8 % of five, 1.3 % of three
        late[4] = 0.02
        found = history_of(12, class_late=late).violated((Bound("a", 100.0, 99.0),))
        assert np.flatnonzero(found).tolist() == [4, 5, 6, 7]  # 6 of 500

    @settings(max_examples=30, deadline=None)
    @given(st.integers(0, 2**31), st.integers(PAST, 12))
    def test_prop_a_decision_sees_what_training_saw(self, seed, now):
        rng = np.random.default_rng(seed)
        rows, classes = now + AHEAD + 2, 2
        ms = rng.uniform(1, 200, (rows, 6, classes))
        ms[
            rng.random((rows, classes)).repeat(6, 1).reshape(rows, classes, 6).swapaxes(1, 2) < 0.3
        ] = np.nan
        history = history_of(
            rows, classes=classes, limit=rng.uniform(0.1, 2, (rows, 2)), class_ms=ms,
            usage=rng.uniform(0, 1, (rows, 2)), class_late=rng.random((rows, classes)) / 20,
            class_rate=rng.uniform(0, 50, (rows, classes)),
        )  # fmt: skip
        subject = Subject(("x", "y"), (Bound("a", 100.0, 99.0), Bound("b", 50.0, 95.0)))
        head = msgspec.structs.replace(HEAD, subject=subject)
        data = samples_of(head, history)
        # What the manager holds in its memory after the window `now`.
        seen = history.last(rows)
        kept = History(*(getattr(seen, f)[: now + 1][-KEPT:] for f in History.__struct_fields__))
        model = SinanModel(msgspec.structs.replace(CARD, subject=subject), None, None)
        online = model.inputs(kept, kept.candidates(history.limit[now + 1][None]))
        row = now - PAST + 1
        if now >= KEPT - 1:  # gaps at the very start of a run are filled from fewer windows
            np.testing.assert_array_equal(online.latency[0], data.inputs.latency[row])
        np.testing.assert_array_equal(online.usage[0], data.inputs.usage[row])
        np.testing.assert_allclose(online.candidate[0], data.inputs.candidate[row], atol=1e-6)
        assert bool(data.is_violated[row]) == bool(history.violated(subject.classes)[now + AHEAD])


class TestBandit:
    def state(self, ratio, usage=0.1, limit=0.5, memory=None):
        window = SimTarget(CHAIN, poisson_requests(CHAIN, [50.0], seed=1)).observe(1.0)
        window = msgspec.structs.replace(
            window, class_ms=np.full((6, 1), 100.0 * ratio), usage=np.full(2, usage),
            cpu_limit=np.full(2, limit), usage_samples=np.full((1, 2), usage),
        )  # fmt: skip
        return ServiceState(CHAIN, window, memory)

    def test_a_fresh_one_shrinks(self):
        answer = Bandit(explore=0, rest=0).decide(self.state(0.3), np.random.default_rng(0))
        assert np.all(answer.cpu_limit < 0.5)

    def test_past_the_region_only_growth_then_a_pause(self):
        bandit, rng = Bandit(explore=0, rest=0), np.random.default_rng(0)
        answer = bandit.decide(self.state(1.5), rng)
        assert np.all(answer.cpu_limit > 0.5)
        for _ in range(3):
            answer = bandit.decide(self.state(0.3, memory=answer.memory), rng)
            assert np.isnan(answer.cpu_limit).all()
        answer = bandit.decide(self.state(0.3, memory=answer.memory), rng)
        assert np.all(answer.cpu_limit < 0.5)

    @settings(max_examples=30, deadline=None)
    @given(st.floats(0.81, 1.0), st.floats(0.0, 1.1), st.integers(0, 100))
    def test_prop_a_busy_tier_is_raised_and_never_shrunk(self, share, ratio, seed):
        state = self.state(ratio, usage=0.5 * share)
        answer = Bandit(explore=0, rest=0).decide(state, np.random.default_rng(seed))
        assert np.all(answer.cpu_limit >= 0.5 * share / 0.8 - 1e-9)

    def test_blame_and_credit(self):
        bandit, rng, memory = Bandit(explore=0, rest=0), np.random.default_rng(0), None
        for _ in range(6):
            memory = bandit.decide(self.state(0.3, memory=memory), rng).memory
        met = sum(one[..., 0].sum() - 0.1 * one[..., 0].size for one in memory.counts.values())
        assert met == pytest.approx(2)  # one success, two tiers: known after five windows
        memory = bandit.decide(self.state(1.1, memory=memory), rng).memory
        blamed = sum(one[..., 1].sum() - 0.1 * one[..., 1].size for one in memory.counts.values())
        assert blamed == pytest.approx(2 * 5)

    def test_it_settles_near_the_border(self):
        """Where shrinking has always violated, holding says more."""
        bandit, rng = Bandit(explore=0, rest=0), np.random.default_rng(0)
        fresh = bandit.decide(self.state(0.3), rng)
        key = fresh.memory.taken[0].state
        counts = np.full((2, 60, 2), 0.1)
        low = np.round(np.log(0.05) / np.log(1.1)).astype(int)
        now = np.round(np.log(0.5) / np.log(1.1)).astype(int) - low
        counts[:, :now, 1] = 500.0
        counts[:, now, :] = 3.0
        memory = msgspec.structs.replace(fresh.memory, counts={key: counts}, taken=(), idle=0)
        answer = bandit.decide(self.state(0.3, memory=memory), rng)
        assert np.all(answer.cpu_limit > 0.45)


CHAIN = Application(
    "chain", {"web": Service(cpu_limit=0.5, cpu_min=0.05), "db": Service(cpu_limit=0.5, cpu_min=0.05)},
    {"get": RequestClass(Call("web", cpu_ms=1.0, then=((Call("db", cpu_ms=1.0),),)), sla=Sla(100.0))},
    rate=50.0,
)  # fmt: skip


def _head_and_card():
    from gnomon.decide.services.sinan_model import Card
    from gnomon.systems.services.sinan.collect import RunHead

    subject = Subject.of(CHAIN)
    return RunHead("chain", subject, 1.0, 0), Card("chain", subject, 0.1, 0.05, 0.1, 1, {}, {})


HEAD, CARD = _head_and_card()


class TestCollect:
    def test_files_are_the_same_by_seed_and_runs_are_not_repeated(self, tmp_path):
        plans = plan_runs(CHAIN, hours=0.05, seed=3, run_s=60.0)
        assert len({plan.name for plan in plans}) == len(plans) == 3
        first = collect(CHAIN, plans, tmp_path / "a")
        second = collect(CHAIN, plans, tmp_path / "b")
        assert [one.read_bytes() for one in first] == [one.read_bytes() for one in second]
        first[1].unlink()
        kept = first[0].stat().st_mtime_ns
        seen = []

        class Steps:
            def update(self, done, total):
                seen.append((done, total))

        def refuse(plan):
            assert plan.name == plans[1].name
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            collect(CHAIN, plans, tmp_path / "a", open_target=refuse)
        collect(CHAIN, plans, tmp_path / "a", progress=Steps())
        assert first[0].stat().st_mtime_ns == kept
        assert first[1].read_bytes() == second[1].read_bytes()
        assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]
        assert {path.suffix for path in (tmp_path / "a").iterdir()} == {".parquet"}

    def test_another_application_is_collected_anew(self):
        dearer = msgspec.structs.replace(CHAIN, network_ms=1.0)
        names = [plan_runs(app, hours=0.1)[0].name for app in (CHAIN, dearer)]
        assert names[0] != names[1]

    def test_a_run_in_long_violation_ends(self):
        hopeless = msgspec.structs.replace(
            CHAIN, services={k: msgspec.structs.replace(s, cpu_max=0.06, cpu_limit=0.05)
                             for k, s in CHAIN.services.items()})  # fmt: skip
        plan = plan_runs(hopeless, hours=0.1, run_s=300.0, loads=(4.0,))[0]
        arrivals = poisson_requests(hopeless, plan.rate.per_s, seed=1)
        assert 30 <= len(explore(SimTarget(hopeless, arrivals, seed=1), plan)) < 60

    def test_what_cannot_be_planned(self):
        silent = msgspec.structs.replace(
            CHAIN, classes={"get": msgspec.structs.replace(CHAIN.classes["get"], sla=None)}
        )
        with pytest.raises(InputError, match="no class has an SLA"):
            plan_runs(silent, hours=1)
        for hours in (0.0, -1.0, float("nan")):
            with pytest.raises(InputError, match="over 0, at most"):
                plan_runs(CHAIN, hours=hours)


class TestDataset:
    def test_what_was_written_is_read(self, tmp_path):
        plan = plan_runs(CHAIN, hours=0.01, run_s=40.0)[0]
        (path,) = collect(CHAIN, [plan], tmp_path)
        head, history = read_run(path)
        again = explore(SimTarget(CHAIN, poisson_requests(CHAIN, plan.rate.per_s, seed=plan.seed),
                                  seed=plan.seed), plan)  # fmt: skip
        assert head.subject == Subject.of(CHAIN)
        for name in History.__struct_fields__:
            np.testing.assert_array_equal(getattr(history, name), getattr(again, name))

    def test_splits_hold_back_runs_or_windows(self, folder):
        data = read_dataset(folder / "data")
        by_run, by_window = split(data, "run"), split(data, "random")
        for one in (by_run, by_window):
            assert sorted([*one.train, *one.check]) == list(range(len(data)))
            assert 0.03 < len(one.check) / len(data) < 0.25
        assert not {*data.run[by_run.train]} & {*data.run[by_run.check]}
        assert {*data.run[by_window.train]} & {*data.run[by_window.check]}

    @pytest.mark.parametrize("keep", [0, 8, 0.5, 0.98])
    def test_a_cut_file_is_one_line(self, tmp_path, keep):
        (path,) = collect(CHAIN, plan_runs(CHAIN, hours=0.01, run_s=40.0), tmp_path)
        whole = path.read_bytes()
        path.write_bytes(whole[: int(keep * len(whole)) if isinstance(keep, float) else keep])
        with pytest.raises(InputError, match=r"\.parquet: ") as caught:
            read_dataset(tmp_path)
        assert "\n" not in str(caught.value)

    def test_rubbish_is_one_line(self, tmp_path, folder):
        import pyarrow
        from pyarrow import parquet

        with pytest.raises(InputError, match="no data files there"):
            read_dataset(tmp_path / "none")
        parquet.write_table(pyarrow.table({"limit": [1.0]}), tmp_path / "x.parquet")
        with pytest.raises(InputError, match="is no data file of a run"):
            read_dataset(tmp_path)
        (tmp_path / "x.parquet").unlink()
        good = next((folder / "data").glob("*.parquet"))
        table = parquet.read_table(good)
        for column, what in (("usage", "not 4 numbers a window"), ("class_ms", "not 6 numbers")):
            worse = table.set_column(
                table.column_names.index(column), column, [[[1.0]] * table.num_rows]
            )
            parquet.write_table(worse, tmp_path / "x.parquet")
            with pytest.raises(InputError, match=what):
                read_dataset(tmp_path)
        (tmp_path / "x.parquet").write_bytes(good.read_bytes())
        collect(CHAIN, plan_runs(CHAIN, hours=0.01, run_s=40.0), tmp_path / "other")
        other = next((tmp_path / "other").iterdir())
        with pytest.raises(InputError, match="is for other services"):
            read_dataset([other, tmp_path / "x.parquet"])


class TestTraining:
    def test_it_beats_guessing_on_runs_it_has_not_seen(self, folder):
        model, data = load_model(folder / "model"), read_dataset(folder / "data")
        rows = split(data, "run").check
        spread = float(np.std(np.minimum(data.latency[rows], 1.2)))
        found = model.card.metrics["run"]
        assert found.rmse < spread
        assert found.accuracy_pct >= found.majority_pct - 1
        assert 0 < model.card.p_down <= model.card.p_up <= 0.25
        chance = model.predict(_one_history(data_folder=folder), _limits(0.3, 3.0))
        assert chance.probability[0] > 2 * chance.probability[1]
        assert chance.ratio[0] > chance.ratio[1]

    def test_training_repeats(self, folder, tmp_path):
        data = read_dataset(folder / "data")
        data = data.take(np.flatnonzero(data.run < 12))
        options = msgspec.structs.replace(QUICK, net=FitOptions(epochs=1, batch=128))
        first, second = (train(data, options=options) for _ in range(2))
        first.save(tmp_path / "a")
        second.save(tmp_path / "b")
        for name in ("model.json", "trees.txt"):
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
        assert np.array_equal(*(one.net.predict(data.inputs)[0] for one in (first, second)))

    @settings(max_examples=50, deadline=None)
    @given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60),
           st.floats(0, 0.5))  # fmt: skip
    def test_prop_a_threshold_misses_no_more_than_it_may(self, samples, missed):
        chance = np.array([one for one, _ in samples])
        is_so = np.array([one for _, one in samples])
        limit = threshold(chance, is_so, missed)
        assert 0 <= limit <= 0.25
        assert np.sum(is_so & (chance < limit)) <= missed * len(samples) + 1e-6

    def test_tuning_moves_towards_new_data(self, folder, tmp_path):
        slower = msgspec.structs.replace(STARTER, network_ms=15.0)
        collect(slower, plan_runs(slower, hours=0.3, seed=2, run_s=120.0), tmp_path)
        model, data = load_model(folder / "model"), read_dataset(tmp_path)
        curve = learning_curve(model, data, [0, 800])
        assert curve[1].metrics.rmse < curve[0].metrics.rmse
        before = evaluate(model, data)
        tuned = fine_tune(model, data, 800)
        assert evaluate(tuned, data).rmse < before.rmse
        assert evaluate(model, data) == before  # the model itself is as it was
        few = fine_tune(model, data, 60)  # six windows are held back: no ground for a threshold
        assert (few.card.p_down, few.card.p_up) == (model.card.p_down, model.card.p_up)
        with pytest.raises(InputError, match="too few"):
            fine_tune(model, data, 5)

    def test_data_without_a_border_is_refused(self, folder):
        data = read_dataset(folder / "data")
        calm = msgspec.structs.replace(data, is_violated=np.zeros(len(data), bool))
        with pytest.raises(InputError, match="no window violates"):
            train(calm)
        with pytest.raises(InputError, match="too few to train on"):
            train(data.take(np.flatnonzero(data.run < 2)[::8]))
        with pytest.raises(InputError, match="two runs or more"):
            train(data.take(np.flatnonzero(data.run == 0)))
        other = msgspec.structs.replace(data, subject=Subject.of(CHAIN))
        with pytest.raises(InputError, match="is for other services"):
            fine_tune(load_model(folder / "model"), other)


def _one_history(data_folder):
    _, history = read_run(sorted((data_folder / "data").glob("*constant*.parquet"))[2])
    return History(*(getattr(history, f)[20 : 20 + KEPT] for f in History.__struct_fields__))


def _limits(*factors):
    demand = np.array([STARTER.cpu_demand(name) for name in STARTER.services])
    return np.maximum(np.array(factors)[:, None] * demand, 0.01)


class TestExplain:
    def test_a_known_dependence_is_found(self):
        class Net:
            """Latency grows with the usage of y and falls with its limit."""

            def predict(self, inputs):
                slope = 0.5 * inputs.usage[:, 3, 1].mean(axis=-1) - 0.3 * inputs.candidate[:, 1]
                return np.repeat(slope[:, None], 5, axis=1), None

        subject = Subject(("x", "y"), (Bound("a", 100.0, 99.0),))
        model = SinanModel(msgspec.structs.replace(CARD, subject=subject), Net(), None)
        found = explain(model, history_of(KEPT), np.array([0.5, 0.5]))
        assert [(one.service, one.what) for one in found[:2]] == [("y", "usage"), ("y", "limit")]
        assert found[0].change == pytest.approx(0.5 * np.log(1.1), rel=0.1)
        assert found[1].change == pytest.approx(-0.3 * np.log(1.1), rel=0.1)
        assert abs(found[2].change) < 0.005
        with pytest.raises(InputError, match="needs 5 windows"):
            explain(model, history_of(2), np.array([0.5, 0.5]))


class TestEndToEnd:
    def test_it_manages_the_starter_well(self, folder):
        rate = find_rate("diurnal", STARTER.rate, duration_s=200, seed=5)
        spec = f"sinan?model={folder / 'model'}"
        ours = simulate(Setup(STARTER, seed=5), spec, rate).score
        rule = simulate(Setup(STARTER, seed=5), "autoscale-cons", rate).score
        assert ours.violation_pct <= 5.0
        # The first windows run at the cap of 4 cores, as in the paper.
        assert ours.cpu_mean < 0.9 * rule.cpu_mean
        assert simulate(Setup(STARTER, seed=5), spec, rate).score.cpu_mean == ours.cpu_mean

    @pytest.mark.parametrize("spoil", FAULTS)
    def test_faults_are_survived_with_a_reason(self, folder, spoil):
        survives(STARTER, f"sinan?model={folder / 'model'}", spoil)

    def test_a_class_that_no_model_has_seen_gets_the_cap(self, folder):
        more = STARTER.classes | {"new": RequestClass(Call("web", cpu_ms=1.0), sla=Sla(50.0))}
        grown = msgspec.structs.replace(STARTER, classes=more)
        run = manage(target_of(grown, 50.0, 10), f"sinan?model={folder / 'model'}", duration_s=10)
        assert run.decisions[-1].reason == "no model has seen class new: all at their cap"
        most = [one.cpu_max for one in grown.services.values()]
        assert run.decisions[-1].window.cpu_limit.tolist() == most

    def test_a_broken_model_is_refused_before_the_run(self, folder, tmp_path):
        shutil.copytree(folder / "model", tmp_path / "model")
        (tmp_path / "model" / "trees.txt").write_text("")
        with pytest.raises(InputError):
            manage(target_of(STARTER, 50.0, 3), f"sinan?model={tmp_path / 'model'}", duration_s=3)

    def test_a_run_that_was_cut_short_is_collected_again(self, tmp_path):
        plans = plan_runs(STARTER, hours=0.04, seed=1, run_s=60.0)
        files = collect(STARTER, plans, tmp_path)
        whole = files[0].read_bytes()
        files[0].write_bytes(whole[:100])
        collect(STARTER, plans, tmp_path)
        assert files[0].read_bytes() == whole
        with pytest.raises(InputError, match="another application"):
            collect(CHAIN, plan_runs(CHAIN, hours=0.04, seed=1, run_s=60.0), tmp_path)

    def test_prepare_goes_on_where_it_stopped(self, tmp_path):
        first = sinan.prepare(STARTER, tmp_path, seed=2, hours=0.4, epochs=1)
        files = sorted((tmp_path / "data").iterdir())
        files[0].unlink()
        times = [file.stat().st_mtime_ns for file in files[1:]]
        second = sinan.prepare(STARTER, tmp_path, seed=2, hours=0.4, epochs=1)
        assert [file.stat().st_mtime_ns for file in files[1:]] == times
        assert (first.samples, first.metrics) == (second.samples, second.metrics)
        target = SimTarget(STARTER, poisson_requests(STARTER, [50.0] * 20, seed=1), seed=1)
        run = manage(target, f"sinan?model={second.folder}", duration_s=20)
        assert not any("failed" in one.reason for one in run.decisions)
