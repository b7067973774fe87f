"""Boosted trees: they learn, stop, repeat, and survive a file."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.errors import InputError

pytest.importorskip("lightgbm")
from gnomon.model.trees import TreeOptions, Trees

RNG = np.random.default_rng(3)
X = RNG.uniform(-1, 1, (1200, 3))
Y = X[:, 0] * X[:, 1] > 0  # no single feature tells


@pytest.fixture(scope="module")
def trees():
    return Trees.fit(X[:900], Y[:900], X[900:], Y[900:], seed=1)


def test_they_learn_what_no_single_feature_tells(trees):
    x = np.random.default_rng(4).uniform(-1, 1, (500, 3))
    is_right = (trees.predict(x) > 0.5) == (x[:, 0] * x[:, 1] > 0)
    assert is_right.mean() > 0.93


def test_growing_stops_when_validation_gains_no_more():
    noise = np.random.default_rng(5).random(1200) < 0.5
    options = TreeOptions(rounds=200, patience=5)
    assert Trees.fit(X[:900], noise[:900], X[900:], noise[900:], options=options).count < 50


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(*[st.floats(-2, 2, width=32)] * 3), min_size=0, max_size=20))
def test_prop_a_text_gives_the_same_trees(trees, rows):
    table = np.array(rows, float).reshape(-1, 3)
    chance = trees.predict(table)
    assert chance.shape == (len(rows),)
    assert np.all((chance >= 0) & (chance <= 1))
    assert np.array_equal(Trees.from_text(trees.text()).predict(table), chance)


def test_the_same_seed_gives_the_same_trees(trees, tmp_path):
    again = Trees.fit(X[:900], Y[:900], X[900:], Y[900:], seed=1)
    again.save(tmp_path / "trees.txt")
    assert np.array_equal(Trees.load(tmp_path / "trees.txt").predict(X), trees.predict(X))


def test_new_trees_are_added_to_old_ones(trees):
    few = Trees.fit(X[:900], Y[:900], X[900:], Y[900:], options=TreeOptions(rounds=20))
    moved = X[:, 0] * X[:, 1] > 0.15
    tuned = Trees.fit(X[:900], moved[:900], X[900:], moved[900:], before=few)

    def right(one):
        return ((one.predict(X[900:]) > 0.5) == moved[900:]).mean()

    assert few.count == 20 < tuned.count
    assert right(tuned) > max(right(few), right(trees)) + 0.05


def test_what_is_known_to_fall_falls_where_data_is_thin():
    rng = np.random.default_rng(6)
    x = np.abs(rng.normal(1, 0.3, (600, 1)))
    y = rng.random(600) < 0.5 - 0.2 * np.tanh(x[:, 0])
    fallen = Trees.fit(x[:500], y[:500], x[500:], y[500:], monotone=[-1])
    assert np.all(np.diff(fallen.predict(np.linspace(-3, 5, 200)[:, None])) <= 1e-12)


@pytest.mark.parametrize("keep", [0, 3, 200, 2000])
def test_a_cut_file_is_refused(trees, tmp_path, keep):
    path = tmp_path / "trees.txt"
    path.write_text(trees.text()[:keep])
    with pytest.raises(InputError, match=r"trees\.txt: holds no trees"):
        Trees.load(path)


def test_wrong_tables_are_refused(trees, tmp_path):
    with pytest.raises(InputError, match="2 features; the trees know 3"):
        trees.predict(np.zeros((4, 2)))
    with pytest.raises(InputError, match="a table"):
        trees.predict(np.zeros(3))
    with pytest.raises(InputError, match="3 rows and 2 answers"):
        Trees.fit(np.zeros((3, 1)), [0, 1], np.zeros((0, 1)), [])
    with pytest.raises(InputError, match="No such file"):
        Trees.load(tmp_path / "none.txt")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="holds no trees"):
        Trees.load(tmp_path / "binary")
    with pytest.raises(InputError, match="leaves 2 or more"):
        TreeOptions(leaves=1)
