"""What an event costs: from stretches laid out by hand, and the file the constants live in."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.model.accelerator.profiler_cost import (
    ProfilerCost,
    default_profiler_cost,
    group_by,
    load_profiler_cost,
    price_events,
    save_profiler_cost,
)

ONES = ProfilerCost(
    operator=1.0, launch=1.0, call=1.0, frame=1.0, kernel_ns=300.0, lone=0.8, unsteady_ns=1e4,
    enter_ns=700.0, exit_ns=200.0, launch_ns=4000.0, host_spread=0.2, device_spread=0.05,
)  # fmt: skip


class Events:
    """Operators with one child each and a launch behind them, in a row."""

    def __init__(self):
        self.rows = []

    def add(self, n, enter, exit, launch, thread=0):
        at = 0
        for _ in range(n):
            self.rows.append((at, at + enter + 50 + exit, thread, True, False))
            self.rows.append((at + enter, at + enter + 50, thread, True, False))
            at += enter + 50 + exit + 300
            if launch:
                self.rows.append((at, at + launch, thread, False, True))
                at += launch + 300
        return self

    def price(self, cost, threads):
        rows = sorted(self.rows, key=lambda row: (row[0], -row[1]))
        start, end, thread, operator, launch = (np.asarray(column) for column in zip(*rows))
        return price_events(cost, start, end, thread.astype(np.int32), operator, launch, threads)


def test_prices_are_the_shortest_stretches_of_the_thread():
    events = Events().add(80, 500, 200, 4000).add(80, 900, 300, 6000, thread=1)
    prices = events.price(ONES, 2)
    assert prices.enter.tolist() == [500, 900]
    assert prices.exit.tolist() == [200, 300]
    assert prices.launch.tolist() == [4000, 6000]
    assert prices.call.tolist() == prices.frame.tolist() == [200, 300]


def test_every_multiple_counts():
    cost = msgspec.structs.replace(ONES, operator=2.0, launch=0.5, call=3.0, frame=4.0)
    prices = Events().add(80, 500, 200, 4000).price(cost, 1)
    found = [prices.enter[0], prices.exit[0], prices.launch[0], prices.call[0], prices.frame[0]]
    assert found == [1000, 400, 2000, 600, 800]


def test_a_few_slow_ones_do_not_make_it_dear():
    events = Events().add(100, 500, 200, 0)
    slow = Events().add(60, 5000, 2000, 0)
    shift = max(row[1] for row in events.rows) + 1000
    events.rows += [(a + shift, b + shift, *rest) for a, b, *rest in slow.rows]
    assert events.price(ONES, 1).enter[0] == 500


def test_a_thread_with_few_events_takes_the_others_prices():
    prices = Events().add(80, 500, 200, 4000).add(3, 9000, 9000, 9000, thread=1).price(ONES, 2)
    assert prices.enter[1] == prices.enter[0] == 500
    assert prices.launch[1] == prices.launch[0] == 4000


def test_what_no_thread_shows_is_usual_at_the_pace_of_the_rest():
    # Launches alone, twice as slow as usual.
    start = np.arange(100) * 10_000
    none, every = np.zeros(100, bool), np.ones(100, bool)
    prices = price_events(ONES, start, start + 8000, np.zeros(100, np.int32), none, every, 1)
    assert prices.launch[0] == 8000
    assert (prices.enter[0], prices.exit[0]) == (1400, 400)


def test_without_any_events_prices_are_the_usual_ones():
    empty = np.empty(0, np.int64)
    prices = price_events(
        ONES, empty, empty, empty.astype(np.int32), empty > 0, empty > 0, 2
    )  # fmt: skip
    assert prices.enter.tolist() == [700, 700]
    assert prices.launch.tolist() == [4000, 4000]


def test_siblings_and_calls_between_are_no_stretches():
    # Two operators side by side, and a launch before the second ends: nothing nests directly.
    rows = []
    for at in range(0, 100_000, 1000):
        rows += [(at, at + 100, True, False), (at + 200, at + 800, True, False)]
        rows += [(at + 300, at + 500, False, True)]
    start, end, operator, launch = (np.asarray(column) for column in zip(*rows))
    prices = price_events(
        ONES, start, end, np.zeros(len(rows), np.int32), operator, launch, 1
    )  # fmt: skip
    # Only launches were seen, 20 times as fast as usual.
    assert prices.launch[0] == 200
    assert prices.enter[0] == pytest.approx(700 / 20)


@given(
    st.integers(1, 2000), st.integers(1, 2000), st.integers(1, 9000), st.integers(2, 9)
)  # fmt: skip
def test_prop_prices_follow_the_pace(enter, exit, launch, factor):
    once = Events().add(60, enter, exit, launch)
    slower = Events()
    slower.rows = [(a * factor, b * factor, *rest) for a, b, *rest in once.rows]
    one, other = once.price(ONES, 1), slower.price(ONES, 1)
    for kind in ("enter", "exit", "launch", "call", "frame"):
        assert getattr(other, kind)[0] == factor * getattr(one, kind)[0]


@given(st.lists(st.integers(0, 5)))
def test_prop_groups_hold_every_row_once_in_order(groups):
    group = np.asarray(groups, np.int32)
    rows, first = group_by(np.arange(len(group)), group, 6)
    for number in range(6):
        own = rows[first[number] : first[number + 1]].tolist()
        assert own == [row for row, value in enumerate(groups) if value == number]
    assert first[-1] == len(groups)


# -- the file --------------------------------------------------------------------------------


def test_constants_survive_their_file(tmp_path):
    save_profiler_cost(ONES, tmp_path / "cost.toml", "measured by hand\non one machine")
    assert load_profiler_cost(tmp_path / "cost.toml") == ONES
    assert (tmp_path / "cost.toml").read_text().startswith("# measured by hand\n# on one")


def test_a_file_may_name_some_and_keep_the_rest(tmp_path):
    (tmp_path / "cost.toml").write_text("operator = 3\n")
    cost = load_profiler_cost(tmp_path / "cost.toml")
    assert cost == msgspec.structs.replace(default_profiler_cost(), operator=3.0)


def test_shipped_constants_are_what_the_fit_writes(tmp_path):
    save_profiler_cost(default_profiler_cost(), tmp_path / "cost.toml")
    assert load_profiler_cost(tmp_path / "cost.toml") == default_profiler_cost()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("operators = 1.0\n", "operators"),
        ("operator = 'much'\n", "operator"),
        ("operator = -1.0\n", "from zero up"),
        ("operator = nan\n", "from zero up"),
        ("exit_ns = 0.0\n", "above zero"),
        ("lone = 1.5\n", "share"),
        ("operator 1.0\n", "not TOML"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(tmp_path, text, says):
    (tmp_path / "cost.toml").write_text(text)
    with pytest.raises(InputError, match=says) as raised:
        load_profiler_cost(tmp_path / "cost.toml")
    assert "cost.toml" in str(raised.value.where)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.toml"):
        load_profiler_cost(tmp_path / "nowhere.toml")
