"""Latency networks: shapes, learning, one look at the history, safe files."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.errors import InputError

pytest.importorskip("torch")
import torch

from gnomon.model.latency_net import FitOptions, Inputs, LatencyNet, NetShape, squeeze


def draw(count, shape, seed=0, past=None):
    rng = np.random.default_rng(seed)
    past = count if past is None else past
    sizes = [(past, shape.channels, shape.tiers, shape.windows),
             (past, shape.percentiles, shape.windows), (count, shape.options)]  # fmt: skip
    return Inputs(*(rng.normal(size=size).astype(np.float32) for size in sizes))


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(["cnn", "mlp", "lstm"]), st.integers(1, 40), st.integers(1, 9))
def test_prop_one_history_answers_as_the_same_history_for_each(kind, tiers, count):
    shape = NetShape(tiers, options=2 * tiers)
    net = LatencyNet(shape, kind, seed=tiers)
    shared = draw(count, shape, past=1)
    repeated = Inputs(np.repeat(shared.usage, count, 0), np.repeat(shared.latency, count, 0),
                      shared.candidate)  # fmt: skip
    for once, each in zip(net.predict_candidates(shared), net.predict(repeated)):
        assert once.shape[0] == count
        np.testing.assert_allclose(once, each, atol=1e-5)
    assert net.predict(repeated)[1].shape[1] == net.latent_size


def test_the_history_is_looked_at_once(monkeypatch):
    net, seen = LatencyNet(NetShape(28, 112)), []
    plain = net._past
    monkeypatch.setattr(net, "_past", lambda *a: (seen.append(len(a[0])), plain(*a))[1])
    net.predict_candidates(draw(230, net.shape, past=1))
    assert seen == [1]


@pytest.mark.parametrize(
    ("kind", "optimiser"), [("cnn", "adam"), ("mlp", "adam"), ("lstm", "adam"), ("mlp", "sgd")]
)
def test_they_learn_from_history_and_candidate(kind, optimiser):
    shape = NetShape(4, 4)
    inputs = draw(1000, shape, seed=1)
    # Latency is read off usage (a channel of all tiers) and off the candidate.
    level = 0.5 + 0.4 * inputs.usage[:, 3].mean(axis=(1, 2)) - 0.2 * inputs.candidate[:, 1]
    wanted = np.repeat(level[:, None], 5, axis=1).astype(np.float32)
    losses = []
    rate = 1e-2 if optimiser == "adam" else 0.05
    options = FitOptions(epochs=10, batch=64, learning_rate=rate, optimiser=optimiser)
    net = LatencyNet(shape, kind).fit(inputs.take(slice(800)), wanted[:800], options=options,
                                      on_epoch=lambda epoch, loss: losses.append(loss))  # fmt: skip
    error = net.predict(inputs.take(slice(800, None)))[0] - wanted[800:]
    assert len(losses) == 10
    assert losses[-1] < losses[0] / 2
    if optimiser == "adam":
        assert np.sqrt(np.mean(error**2)) < 0.7 * wanted.std()


def test_units_do_not_matter_since_scale_is_kept_with_the_weights(tmp_path):
    shape, options = NetShape(3, 3), FitOptions(epochs=3, batch=32)
    inputs = draw(200, shape, seed=2)
    wanted = np.abs(inputs.candidate[:, :1]).repeat(5, axis=1)
    large = Inputs(*(part * 1000 + 7000 for part in inputs))
    net = LatencyNet(shape).fit(inputs, wanted, options=options)
    scaled = LatencyNet(shape).fit(large, wanted, options=options)
    np.testing.assert_allclose(scaled.predict(large)[0], net.predict(inputs)[0], atol=2e-2)
    scaled.save(tmp_path / "net.pt")
    assert np.array_equal(LatencyNet.load(tmp_path / "net.pt").predict(large)[0],
                          scaled.predict(large)[0])  # fmt: skip


def test_the_same_seed_gives_the_same_weights_and_leaves_torch_alone():
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    shape = NetShape(3, 3)
    inputs, wanted = draw(100, shape), np.ones((100, 5), np.float32)
    answers = [
        LatencyNet(shape, seed=5).fit(inputs, wanted, options=FitOptions(epochs=2), seed=6)
        .predict(inputs)[0] for _ in range(2)
    ]  # fmt: skip
    assert np.array_equal(*answers)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == threads


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=20), st.floats(0.5, 2), st.floats(0.1, 10))
def test_prop_squeezing_keeps_order_and_what_is_under_the_knee(values, knee, alpha):
    x = np.sort(np.array(values))
    y = squeeze(x, knee, alpha)
    assert np.all(np.diff(y) >= -1e-9)
    assert np.array_equal(y[x <= knee], x[x <= knee])
    assert np.all(y <= knee + 1 / alpha + 1e-9)
    np.testing.assert_allclose(squeeze(torch.from_numpy(x), knee, alpha).numpy(), y, atol=1e-9)


def test_the_network_of_28_tiers_is_as_small_as_in_the_paper():
    assert 30_000 < LatencyNet(NetShape(28, 28)).parameters < 40_000
    assert LatencyNet(NetShape(28, 28)).latent_size == 64
    assert LatencyNet(NetShape(17, 17)).latent_size == 32


class _Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_broken_and_evil_files_are_refused(tmp_path):
    path = tmp_path / "net.pt"
    LatencyNet(NetShape(2, 2)).save(path)
    whole = path.read_bytes()
    for keep in (0, 10, len(whole) // 2):
        path.write_bytes(whole[:keep])
        with pytest.raises(InputError, match=r"net\.pt: holds no network") as caught:
            LatencyNet.load(path)
        assert "\n" not in str(caught.value)
    torch.save({"kind": "cnn", "shape": _Evil(tmp_path / "made")}, path)
    with pytest.raises(InputError, match="holds no network"):
        LatencyNet.load(path)
    path.write_bytes(pickle.dumps(_Evil(tmp_path / "made")))
    with pytest.raises(InputError, match="holds no network"):
        LatencyNet.load(path)
    assert not (tmp_path / "made").exists()
    with pytest.raises(InputError, match="No such file"):
        LatencyNet.load(tmp_path / "none.pt")


def test_wrong_inputs_are_refused():
    net = LatencyNet(NetShape(2, 2))
    with pytest.raises(InputError, match="inputs of shapes"):
        net.predict(draw(3, NetShape(3, 2)))
    with pytest.raises(InputError, match="1 samples to train on"):
        net.fit(draw(1, net.shape), np.ones((1, 5), np.float32))
    with pytest.raises(InputError, match="no network has such a shape"):
        NetShape(0, 1)
    with pytest.raises(InputError, match="batches of two"):
        FitOptions(batch=1)
    with pytest.raises(InputError, match="diverged"):
        net.fit(draw(50, net.shape), np.full((50, 5), np.nan, np.float32))
