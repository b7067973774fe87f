"""Ursa's decomposition and plan: bounds that hold, programs that are best, plans that explain."""

from __future__ import annotations

import itertools
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.decide.integer_program import IntegerProgram
from gnomon.decide.services.ursa import (
    Exploration,
    Explored,
    Latencies,
    Option,
    branch,
    joint,
    make_plan,
)
from gnomon.decide.services.ursa.exploration import Size, fingerprint, service_loads, size_for
from gnomon.decide.services.ursa.joint import Sampled, draw_ranks, ranks_of_samples
from gnomon.decide.services.ursa.paths import Paths
from gnomon.decide.services.ursa.plan import Allowed, Plan
from gnomon.decide.services.ursa.program import (
    Candidate,
    Promise,
    Target,
    solve,
    solve_with_highs,
    undominated,
)
from gnomon.decide.services.ursa.thresholds import Thresholds
from gnomon.errors import Infeasible, InputError
from gnomon.graph.application import Application, Call, RequestClass, Service, Sla, Work
from gnomon.model.welch import welch_greater


def chain(count, **sla):
    call = None
    for i in reversed(range(count)):
        call = Call(f"s{i}", then=() if call is None else ((call,),))
    services = {f"s{i}": Service(cpu_max=4.0, cpu_min=0.05) for i in range(count)}
    return Application("chain", services, {"get": RequestClass(call, sla=Sla(**sla))})


def lognormal(rng, count, calls, sigma, correlation):
    mood = rng.standard_normal((count, 1))
    own = rng.standard_normal((count, calls))
    return np.exp(sigma * (math.sqrt(correlation) * mood + math.sqrt(1 - correlation) * own))


# --- latencies -----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.01, 1e4), min_size=1, max_size=300), st.floats(0, 100))
def test_prop_a_percentile_of_buckets_is_never_too_low(values, percentile):
    seen = Latencies.from_samples(values)
    exact = np.quantile(values, percentile / 100, method="inverted_cdf")
    assert seen.samples == len(values)
    assert exact * (1 - 1e-6) <= seen.quantile_ms(percentile) <= exact * 1.0101 + 1e-6


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.01, 1e4), min_size=1, max_size=300))
def test_prop_promises_hold_on_their_own_samples(values):
    for residual, time_ms in Latencies.from_samples(values).choices((50.0, 90.0, 99.0, 99.9)):
        assert 100 * np.mean(np.array(values) > time_ms) <= residual + 1e-9


def test_few_samples_promise_only_the_greatest():
    seen = Latencies.from_samples([1.0, 2.0, 3.0])
    assert seen.choices((50.0, 99.0)) == [(100.0, pytest.approx(3.0, rel=0.011))]


# --- paths ---------------------------------------------------------------------------------------


def tree():
    below = (
        (Call("b", then=((Call("d"),),)), Call("c", probability=0.5)),
        (Call("e", mode="queue", then=((Call("f"),),)),),
    )
    return Call("a", then=below)


def slow_latency(call, times, made, at, until_all, network):
    """One request, call by call: reply and end of all; `at` counts calls in walk order."""
    mine = at[0]
    at[0] += 1
    passed, last = times[mine], 0.0
    for stage in call.then:
        longest = 0.0
        for below in stage:
            number = at[0]
            reply, whole = slow_latency(below, times, made, at, until_all, network)
            if not made[number]:
                continue
            longest = max(longest, 2 * network + (0.0 if below.mode == "queue" else reply))
            last = max(last, passed + network + whole)
        passed += longest
    return passed, max(passed, last) if until_all else passed


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([0.0, 0.5]))
def test_prop_latency_of_many_is_latency_of_each(seed, until_all, network):
    sla = Sla(100.0, until="all" if until_all else "reply")
    app = Application(
        "tree", {name: Service() for name in "abcdef"}, {"get": RequestClass(tree(), sla=sla)},
        network_ms=network,
    )  # fmt: skip
    paths = Paths.of(app, "get")
    rng = np.random.default_rng(seed)
    times = [rng.exponential(size=30) for _ in paths.steps]
    made = [rng.random(30) < step.chance for step in paths.steps]
    timing = paths.latency_ms(times, made)
    for i in range(30):
        one = [column[i] for column in times]
        reply, whole = slow_latency(tree(), one, [m[i] for m in made], [0], until_all, network)
        expected = (whole if until_all else reply) + 2 * network
        assert timing.total_ms[i] == pytest.approx(expected)
    # A call's own time is part of the latency exactly where the latency follows it.
    for at, critical in enumerate(timing.is_critical()):
        longer = [column + 1e-6 * (k == at) for k, column in enumerate(times)]
        grows = paths.latency_ms(longer, made).total_ms - timing.total_ms > 5e-7
        assert np.array_equal(critical, grows), paths.steps[at]


def test_queued_work_counts_only_when_the_sla_says_so():
    app = Application("tree", {name: Service() for name in "abcdef"},
                      {"get": RequestClass(tree(), sla=Sla(100.0))})  # fmt: skip
    names = [Paths.of(app, "get").steps[at].service for at in Paths.of(app, "get").counted()]
    assert sorted(names) == ["a", "b", "c", "d"]


# --- the program ---------------------------------------------------------------------------------


def random_program(rng, services, options):
    made = {}
    for i in range(services):
        slow, cost = rng.uniform(1, 5), rng.uniform(0.5, 3)
        made[f"s{i}"] = [
            Candidate(
                cost / (k + 1),
                {"get": tuple(Promise(r, slow * (k + 1) * t) for r, t in ((1.0, 1.0), (0.3, 1.4), (0.1, 2.0)))},
            )
            for k in range(options)
        ]  # fmt: skip
    return made


def cheapest_by_trying(candidates, bound_ms, left):
    """Every choice of options and percentiles."""
    best = math.inf
    names = list(candidates)
    for picks in itertools.product(*(range(len(candidates[name])) for name in names)):
        chosen = [candidates[name][k] for name, k in zip(names, picks)]
        cost = sum(one.cores for one in chosen)
        if cost >= best:
            continue
        for ways in itertools.product(*(one.promises["get"] for one in chosen)):
            total = sum(way.time_ms for way in ways)
            if total <= bound_ms and sum(way.residual for way in ways) <= left + 1e-9:
                best = cost
                break
    return best


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.floats(8, 60))
def test_prop_the_program_is_as_good_as_trying_everything(seed, bound_ms):
    candidates = random_program(np.random.default_rng(seed), 3, 3)
    expected = cheapest_by_trying(candidates, bound_ms, 1.0)
    target = Target(Paths.of(chain(3, bound_ms=bound_ms), "get"), bound_ms, 99.0)
    if math.isinf(expected):
        with pytest.raises(Infeasible):
            solve(candidates, [target])
    else:
        assert solve(candidates, [target]).cores == pytest.approx(expected, rel=2e-4)


def random_call(rng, services, depth):
    """A tree of calls in sequence, in parallel and by queues; services may recur."""
    stages = () if depth == 0 else tuple(
        tuple(random_call(rng, services, depth - 1) for _ in range(rng.integers(1, 4)))
        for _ in range(rng.integers(0, 3))
    )  # fmt: skip
    return Call(
        f"s{rng.integers(services)}", then=stages, probability=float(rng.choice((1.0, 1.0, 0.5))),
        mode="queue" if rng.random() < 0.2 else "call",
    )  # fmt: skip


def random_application(rng, services, classes):
    """An application and, for each service, options that are slower the cheaper they are."""
    made = {}
    for i in range(classes):
        root = Call(f"s{rng.integers(services)}", then=((random_call(rng, services, 2),),))
        until = str(rng.choice(("reply", "all")))
        made[f"c{i}"] = RequestClass(root, sla=Sla(float(rng.uniform(20, 160)), until=until))
    app = Application("random", {f"s{i}": Service() for i in range(services)}, made,
                      network_ms=float(rng.choice((0.0, 0.5))))  # fmt: skip
    candidates = {
        name: [
            Candidate(
                float(rng.uniform(0.5, 3) / (k + 1)),
                {
                    c: tuple(Promise(r, float(rng.uniform(1, 5) * (k + 1) * t))
                             for r, t in ((1.0, 1.0), (0.3, 1.4), (0.1, 2.0), (0.02, 3.0)))
                    for c in made if rng.random() < 0.97
                },
            )
            for k in range(rng.integers(1, 5))
        ]
        for name in app.services
    }  # fmt: skip
    targets = [Target(Paths.of(app, c), one.sla.bound_ms, 99.0) for c, one in made.items()]
    return candidates, targets


def check_solution(candidates, targets, found):
    """Promises are those of the options, and keep every SLA."""
    assert found.cores == pytest.approx(
        sum(candidates[n][k].cores for n, k in found.chosen.items())
    )
    for target in targets:
        paths, left = target.paths, 100.0 - target.percentile
        mine = {step.service: found.promised[step.service].get(paths.name) for step in paths.steps}
        for name, one in mine.items():
            assert one is None or one in candidates[name][found.chosen[name]].promises[paths.name]
        counted = paths.counted()
        spent = sum(
            paths.steps[at].visits * mine[paths.steps[at].service].residual for at in counted
        )
        assert spent <= left + 1e-6
        times = [np.array([mine[step.service].time_ms if at in counted else 0.0])
                 for at, step in enumerate(paths.steps)]  # fmt: skip
        made = [np.array([True])] * len(times)
        assert paths.latency_ms(times, made).total_ms[0] <= target.bound_ms + 1e-6


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 3))
def test_prop_the_search_is_as_good_as_highs(seed, services, classes):
    candidates, targets = random_application(np.random.default_rng(seed), services, classes)
    try:
        expected = solve_with_highs(candidates, targets)
    except Infeasible:
        with pytest.raises(Infeasible):
            solve(candidates, targets)
        return
    found = solve(candidates, targets)
    assert found.cores == pytest.approx(expected.cores, rel=2e-4)
    assert found.gap <= 1e-4
    check_solution(candidates, targets, found)


def test_what_the_search_gives_up_is_left_to_highs(monkeypatch):
    candidates = random_program(np.random.default_rng(1), 3, 3)
    target = Target(Paths.of(chain(3, bound_ms=20.0), "get"), 20.0, 99.0)
    expected = solve(candidates, [target])
    monkeypatch.setattr(branch, "_MOST_ROUTES", 0)
    assert branch.solve(candidates, [target], gap=1e-4) is None
    assert solve(candidates, [target]).cores == pytest.approx(expected.cores, rel=2e-4)


def test_a_large_program_needs_no_highs():
    rng = np.random.default_rng(0)
    candidates = random_program(rng, 12, 8)
    target = Target(Paths.of(chain(12, bound_ms=400.0), "get"), 400.0, 97.0)
    found = branch.solve(candidates, [target], gap=1e-4)
    assert found is not None
    check_solution(candidates, [target], found)
    assert found.cores == pytest.approx(solve_with_highs(candidates, [target]).cores, rel=2e-4)


def test_parallel_calls_take_the_longest_and_rare_ones_count_less():
    call = Call("a", then=((Call("b"), Call("c", probability=0.1)),))
    app = Application("fork", {name: Service() for name in "abc"},
                      {"get": RequestClass(call, sla=Sla(30.0))})  # fmt: skip
    promise = {"get": (Promise(0.45, 10.0),)}
    # a + max(b, c) = 20 <= 30; residuals 0.45 + 0.45 + 0.1 * 0.45 <= 1.
    made = {name: [Candidate(1.0, promise)] for name in "abc"}
    assert solve(made, [Target(Paths.of(app, "get"), 30.0, 99.0)]).cores == 3.0
    with pytest.raises(Infeasible):
        solve(made, [Target(Paths.of(app, "get"), 19.0, 99.0)])
    with pytest.raises(Infeasible):
        solve(made, [Target(Paths.of(app, "get"), 30.0, 99.1)])


def test_undominated_promises_trade_time_for_residual():
    kept = undominated(
        [Promise(1.0, 5.0), Promise(0.5, 6.0), Promise(0.7, 7.0), Promise(2.0, 5.0)]
    )
    assert kept == (Promise(1.0, 5.0), Promise(0.5, 6.0))


def test_integer_programs_have_an_answer_or_say_so():
    program = IntegerProgram()
    x = program.binary(1.0)
    program.row({x: 1.0}, at_least=2.0)
    with pytest.raises(Infeasible):
        program.solve()


# --- the two decompositions ----------------------------------------------------------------------


@pytest.mark.parametrize(("count", "sigma", "true"), [(3, 0.3, (4.66, 5.39)), (5, 0.6, (11.3, 16.0)),
                                                      (10, 0.6, (19.1, 30.6))])  # fmt: skip
@pytest.mark.parametrize("which", [0, 1])
def test_both_decompositions_hold_and_the_joint_one_is_tighter(count, sigma, true, which):
    correlation = (0.0, 0.5)[which]
    app = chain(count, bound_ms=1e6)
    paths = Paths.of(app, "get")
    chosen = {f"s{i}": 0 for i in range(count)}
    held = union_held = 0
    excess = []
    for seed in range(20):
        rng = np.random.default_rng([seed, count])
        times = lognormal(rng, 20_000, count, sigma, correlation)
        seen = [Latencies.from_samples(times[:, i]) for i in range(count)]
        sampled = Sampled.of(
            Target(paths, 1e6, 99.0), ranks_of_samples(times),
            {f"s{i}": [seen[i]] for i in range(count)},
        )  # fmt: skip
        said = sampled.percentile_ms(chosen)
        fresh = np.quantile(lognormal(rng, 50_000, count, sigma, correlation).sum(axis=1), 0.99)
        held += said >= fresh
        share = 100.0 - 1.0 / count
        union_held += sum(one.quantile_ms(share) for one in seen) >= fresh
        excess.append(said / true[which] - 1)
    assert held == union_held == 20
    assert 0 < np.median(excess) < 0.08


def test_a_copula_gives_the_correlation_it_was_asked_for():
    paths = Paths.of(chain(2, bound_ms=1.0), "get")
    ranks = draw_ranks(paths, 0.6, samples=20_000).ranks
    assert np.corrcoef(ranks[0], ranks[1])[0, 1] == pytest.approx(0.58, abs=0.03)
    assert np.array_equal(np.sort(ranks[0]), (np.arange(20_000) + 0.5) / 20_000)


def explored(app, rng, *, utilisations=(0.3, 0.5, 0.7, 0.85), load=100.0):
    """Operating points of M/M/1 servers: the higher the utilisation, the slower."""
    services = {}
    for name in app.services:
        options = tuple(
            Option(
                0.1 / u, {"get": load}, u,
                {"get": Latencies.from_samples(rng.exponential(1.0 / (1 - u), 5000))},
            )
            for u in utilisations
        )  # fmt: skip
        services[name] = Explored(fingerprint(app, name), 0.9, options, 4, 60.0)
    return Exploration(app.name, services)


def test_plans_keep_the_sla_and_the_joint_one_is_cheaper():
    app = chain(5, bound_ms=60.0)
    found = explored(app, np.random.default_rng(1))
    plan = make_plan(app, found, {"get": 100.0})
    assert plan.classes["get"].expected_ms <= 60.0
    assert plan.classes["get"].union_ms > plan.classes["get"].expected_ms
    assert plan.cores < 0.85 * plan.union_cores
    assert plan.binding == "get"
    shares = sum(plan.classes["get"].share_ms.values())
    assert shares == pytest.approx(plan.classes["get"].expected_ms, rel=0.1)
    by_union = make_plan(app, found, {"get": 100.0}, decomposition="union")
    assert by_union.cores == pytest.approx(plan.union_cores)
    assert by_union.classes["get"].union_ms <= 60.0 * 1.001
    # Measured anew, with other samples of the same servers, it holds.
    rng = np.random.default_rng(2)
    total = sum(rng.exponential(1 / (1 - one.option.utilisation), 100_000)
                for one in plan.services.values())  # fmt: skip
    assert np.quantile(total, 0.99) <= 60.0


@settings(max_examples=8, deadline=None)
@given(st.floats(14, 60), st.integers(0, 1000))
def test_prop_a_looser_sla_never_costs_more(bound_ms, seed):
    rng = np.random.default_rng(seed)
    tight, loose = chain(3, bound_ms=bound_ms), chain(3, bound_ms=bound_ms * 1.5)
    found = explored(tight, rng)
    try:
        cores = make_plan(tight, found, {"get": 100.0}, explain=False).cores
    except Infeasible:
        return
    more = make_plan(loose, found, {"get": 100.0}, explain=False)
    assert more.cores <= cores * 1.05  # a search, not a proof


def test_what_cannot_be_met_says_by_how_much():
    app = chain(3, bound_ms=1.0)
    found = explored(app, np.random.default_rng(1))
    with pytest.raises(Infeasible, match=r"get \(p99 \d+ ms, bound 1 ms\)"):
        make_plan(app, found, {"get": 100.0})
    with pytest.raises(Infeasible, match="carries this load"):
        make_plan(chain(3, bound_ms=50.0), found, {"get": 1e6})


def two_levels(rng, services=3, steps=6):
    """Cores and latencies of options, numbered level by level of load as exploration does."""
    utilisations = np.sort(rng.uniform(0.1, 0.92, steps))
    cores, options = {}, {}
    for i in range(services):
        cost, mean_ms = rng.uniform(0.05, 1), rng.uniform(0.5, 4)
        cores[f"s{i}"], options[f"s{i}"] = [], []
        for slow in (rng.uniform(0.7, 1.3), 1.0):
            for u in utilisations * rng.uniform(0.95, 1.0):
                times_ms = rng.exponential(mean_ms * slow / (1 - u), 3000)
                cores[f"s{i}"].append(cost / u)
                options[f"s{i}"].append(Latencies.from_samples(times_ms))
    return cores, options


def test_halfway_between_options_is_by_cost_across_levels_of_load():
    # 0 to 2 are one level of load, 3 to 5 the next: the number halfway is cheaper than both ends.
    cores = {"s0": [4.0, 2.0, 1.0, 3.9, 1.9, 1.5]}
    halfway = joint._between(cores, {"s0": 0}, {"s0": 5})["s0"]
    assert 1.5 < cores["s0"][halfway] < 4.0
    assert joint._between(cores, {"s0": 4}, {"s0": 4}) == {"s0": 4}


def cheapest_that_keeps(cores, one):
    names = list(cores)
    choices = [dict(zip(names, picks)) for picks in itertools.product(
        *(range(len(cores[name])) for name in names))]  # fmt: skip
    for chosen in sorted(choices, key=lambda chosen: joint._cost(cores, chosen)):
        if one.percentile_ms(chosen) <= one.target.bound_ms:
            return joint._cost(cores, chosen)
    return math.inf


@pytest.mark.parametrize(("seed", "looseness"), [(4, 3.2), (13, 2.2), (43, 1.3), (46, 1.3)])
def test_the_search_across_levels_of_load_is_near_the_best(seed, looseness):
    cores, options = two_levels(np.random.default_rng(seed))
    paths = Paths.of(chain(3, bound_ms=1.0), "get")
    ranks = draw_ranks(paths, 0.2, samples=2000)
    any_bound = Sampled.of(Target(paths, 1e6, 99.0), ranks, options)
    start = joint.fastest(cores, [any_bound])
    bound_ms = looseness * any_bound.percentile_ms(start)
    one = Sampled.of(Target(paths, bound_ms, 99.0), ranks, options)
    found = joint.search(cores, [one], start)
    assert joint.keeps([one], found)
    assert joint._cost(cores, found) <= 1.03 * cheapest_that_keeps(cores, one)


def test_a_plan_starts_from_what_is_fastest_not_least_utilised():
    """At a lower level of load the same utilisation is a smaller replica: it may be slower."""
    app = chain(1, bound_ms=10.0)
    # Too few samples for the union bound: the search begins without an answer.
    small, large = (Latencies.from_samples(np.full(100, ms)) for ms in (20.0, 5.0))
    options = (Option(0.5, {"get": 50.0}, 0.10, {"get": small}),
               Option(1.25, {"get": 125.0}, 0.11, {"get": large}))  # fmt: skip
    found = Exploration(app.name, {"s0": Explored(fingerprint(app, "s0"), 0.9, options, 2, 60.0)})
    plan = make_plan(app, found, {"get": 100.0})
    assert math.isinf(plan.union_cores)
    assert plan.services["s0"].option is options[1]


def without_times(exploration, service, *places):
    """Operating points of a service at which nobody was timed."""
    one = exploration.services[service]
    options = [
        msgspec.structs.replace(option, latencies={"get": Latencies()}) if k in places else option
        for k, option in enumerate(one.options)
    ]
    changed = msgspec.structs.replace(one, options=tuple(options))
    return msgspec.structs.replace(
        exploration, services={**exploration.services, service: changed}
    )


@pytest.mark.parametrize("decomposition", ["joint", "union"])
def test_what_was_never_timed_does_not_take_no_time(decomposition):
    app = chain(2, bound_ms=60.0)
    found = explored(app, np.random.default_rng(1))
    # The cheapest point of s1 is of no use, whatever it costs.
    plan = make_plan(app, without_times(found, "s1", 3), {"get": 100.0},
                     decomposition=decomposition)  # fmt: skip
    assert plan.services["s1"].option.latencies["get"].count
    assert plan.classes["get"].expected_ms <= 60.0
    with pytest.raises(Infeasible, match=r"get \(its calls to s1 were never timed"):
        make_plan(app, without_times(found, "s1", 0, 1, 2, 3), {"get": 100.0},
                  decomposition=decomposition)  # fmt: skip


@pytest.mark.parametrize("decomposition", ["joint", "union"])
def test_a_call_that_is_rarer_than_an_sla_misses_need_not_be_timed(decomposition):
    def plan(probability):
        call = Call("s0", then=((Call("s1", probability=probability),),))
        app = Application("chain", {name: Service(cpu_max=4.0) for name in ("s0", "s1")},
                          {"get": RequestClass(call, sla=Sla(60.0))})  # fmt: skip
        found = without_times(explored(app, np.random.default_rng(1)), "s1", 0, 1, 2, 3)
        return make_plan(app, found, {"get": 100.0}, decomposition=decomposition)

    assert plan(0.001).classes["get"].expected_ms <= 60.0
    with pytest.raises(Infeasible, match="never timed"):
        plan(0.05)


# --- sizes and files -----------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.floats(0.1, 5000), st.floats(0.05, 2.0), st.integers(1, 20), st.integers(1, 16))
def test_prop_a_size_is_at_least_as_good_as_its_option(calls, limit, now, workers):
    about = Service(cpu_min=0.05, cpu_max=2.0, replicas_max=20, workers=workers)
    app = Application("one", {"web": about}, {"get": RequestClass(Call("web"))})
    option = Option(limit, {"get": 50.0}, 0.5, {})
    size = size_for(app, "web", option, {"get": calls}, now)
    if size is None:
        assert calls / 50.0 * limit / max(min(2.0, workers), limit) > 20 - 1e-6
        return
    assert 1 <= size.replicas <= 20
    assert size.cpu_limit <= 2.0
    # Load per core is not above the option's, and no replica is smaller than the option's.
    assert calls / size.cores <= 50.0 / limit * (1 + 1e-6)
    assert size.cpu_limit >= limit * (1 - 1e-6)
    assert size.cores <= max(calls / 50.0 * limit, limit) * 2 + 1e-6


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_prop_thresholds_are_the_slow_loop(seed):
    rng = np.random.default_rng(seed)
    calls = (Call("b", probability=float(rng.uniform(0.2, 1))), Call("c"))
    app = Application(
        "three",
        {name: Service(cpu_min=0.05, cpu_max=float(rng.uniform(0.5, 3)), workers=int(rng.integers(1, 5)),
                       replicas_max=int(rng.integers(1, 6))) for name in "abc"},
        {"get": RequestClass(Call("a", then=(calls,))), "put": RequestClass(Call("c"))},
    )  # fmt: skip

    def option(name):
        load = {"get": float(rng.uniform(5, 200)), "put": float(rng.uniform(5, 200))}
        known = load if name == "c" else {"get": load["get"]}
        return Option(float(rng.uniform(0.05, 0.5)), known, float(rng.uniform(0.1, 0.9)), {})

    services = {
        name: Allowed(option(name), tuple(option(name) for _ in range(rng.integers(0, 4))), 1.0)
        for name in "abc"
    }
    rates = {"get": float(rng.uniform(0, 400)), "put": float(rng.uniform(0, 400))}
    plan = Plan(rates, "joint", services, {}, 1.0, 1.0)
    now = rng.integers(1, 6, 3)
    sizes = Thresholds.of(app, plan).sizes(np.array(list(rates.values())), now)
    for s, (name, load) in enumerate(service_loads(app, rates).items()):
        options = [services[name].option, *services[name].also]
        found = [size_for(app, name, one, load, int(now[s])) for one in options]
        fits = [one for one in found if one is not None]
        about = app.services[name]
        if not any(load.values()):
            assert (sizes.replicas[s], sizes.cpu_limit[s]) == (1, about.cpu_min)
            continue
        assert bool(sizes.is_lacking[s]) == (not fits)
        best = min(
            fits, key=lambda one: one.cores, default=Size(about.replicas_max, about.cpu_max)
        )
        assert sizes.replicas[s] == best.replicas <= about.replicas_max
        assert sizes.cpu_limit[s] == pytest.approx(best.cpu_limit, abs=1e-4)


def test_a_class_that_was_never_seen_has_no_size():
    app = Application("one", {"web": Service()}, {"get": RequestClass(Call("web"))})
    assert size_for(app, "web", Option(1.0, {"get": 5.0}, 0.5, {}), {"put": 1.0}, 1) is None
    assert service_loads(app, {"get": 2.0}) == {"web": {"get": 2.0}}


def test_files_come_back_and_rubbish_is_named(tmp_path):
    app = chain(2, bound_ms=50.0)
    found = explored(app, np.random.default_rng(1))
    path = tmp_path / "explored.json"
    found.write(path)
    assert Exploration.read(path) == found
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match="is not an exploration"):
        Exploration.read(path)
    with pytest.raises(InputError, match="No such file"):
        Exploration.read(tmp_path / "none.json")
    with pytest.raises(InputError, match="was not explored"):
        make_plan(chain(3, bound_ms=50.0), found, {"get": 10.0})


def test_a_changed_service_has_another_fingerprint():
    app = chain(2, bound_ms=50.0)
    slower = Application("chain", app.services,
                         {"get": RequestClass(Call("s0", cpu_ms=2.0, then=((Call("s1"),),)))})  # fmt: skip
    assert fingerprint(app, "s0") != fingerprint(slower, "s0")
    assert fingerprint(app, "s1") == fingerprint(slower, "s1")


def test_measured_times_have_a_fingerprint_too():
    """Times of imported applications are percentiles: keys that are numbers."""
    measured = Work(quantiles={0.0: 1.0, 50.0: 2.0, 100.0: 9.0})
    one = Application("one", {"web": Service()}, {"get": RequestClass(Call("web", measured))})
    other = msgspec.structs.replace(measured, quantiles={0.0: 1.0, 50.0: 3.0, 100.0: 9.0})
    two = Application("one", {"web": Service()}, {"get": RequestClass(Call("web", other))})
    assert fingerprint(one, "web") == fingerprint(one, "web") != fingerprint(two, "web")


def test_welch_knows_noise_from_a_rise():
    rng = np.random.default_rng(3)
    same = [welch_greater(rng.normal(5, 1, 8), rng.normal(5, 1, 8)) for _ in range(400)]
    assert 0.02 < np.mean(np.array(same) < 0.05) < 0.09
    assert welch_greater(rng.normal(9, 1, 8), rng.normal(5, 1, 8)) < 1e-3
