from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon import _core
from gnomon.errors import InputError
from gnomon.model.decima.network import (
    NETS,
    PARAMETERS,
    DecimaView,
    DecimaWeights,
    decima_probabilities,
)
from tests.conftest import load_benchmark
from tests.model.decima.reference_decima import decima_reference

CHECKPOINT = "batch/pcaps-artifact/decima-tf-checkpoint/model_ep_20000"


def random_weights(seed: int) -> DecimaWeights:
    """Biases too: with none, a layer that forgets its bias would not be found out."""
    rng = np.random.default_rng(seed)
    initial = DecimaWeights.initial(rng).parameters
    return DecimaWeights((initial + rng.normal(0, 0.1, PARAMETERS)).astype(np.float32))


def random_view(seed: int, jobs: int, most_nodes: int = 12) -> DecimaView:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most_nodes + 1, jobs)
    children: list[list[int]] = []
    for size in sizes:
        base = len(children)
        for i in range(size):
            later = np.arange(base + i + 1, base + size)
            wanted = min(len(later), int(rng.integers(0, 4)))
            children.append(sorted(rng.choice(later, wanted, replace=False).tolist()))
    nodes = len(children)
    ready = rng.permutation(nodes)[: rng.integers(1, nodes + 1)] if nodes else np.zeros(0)
    return DecimaView(
        job_first=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32),
        job_executors=rng.integers(0, 60, jobs).astype(np.float32),
        source_job=int(rng.integers(-1, jobs)),
        free_executors=float(rng.integers(1, 100)),
        work_ms=rng.exponential(2e5, nodes).astype(np.float32),
        tasks=rng.integers(0, 400, nodes).astype(np.float32),
        child_first=np.cumsum([0] + [len(c) for c in children]).astype(np.int32),
        child=np.array([c for own in children for c in own], dtype=np.int32),
        ready=ready.astype(np.int32),
    )


def test_the_layers_fill_the_parameters() -> None:
    layers = list(random_weights(1).layers())
    assert sum(layer.weight.size + layer.bias.size for layer in layers) == PARAMETERS == 4770
    assert len(layers) == sum(len(sizes) - 1 for sizes in NETS.values())


@given(seed=st.integers(0, 10_000), jobs=st.integers(1, 40))
def test_native_is_the_reference(seed: int, jobs: int) -> None:
    weights, view = random_weights(seed), random_view(seed, jobs)
    native = decima_probabilities(weights, view, jobs // 2, 3, 40)
    slow = decima_reference(weights, view, jobs // 2, 3, 40)
    for fast, obvious in zip(native, slow, strict=True):
        assert fast.dtype == np.float32
        np.testing.assert_allclose(fast, obvious, atol=1e-5, rtol=1e-3)
        assert float(fast.sum(dtype=float)) == pytest.approx(1.0, abs=1e-5)


def test_jobs_deeper_than_eight_levels_are_gone_through() -> None:
    chain = DecimaView(
        job_first=np.array([0, 30], dtype=np.int32),
        job_executors=np.array([4], dtype=np.float32),
        source_job=0,
        free_executors=2.0,
        work_ms=np.linspace(1e3, 5e5, 30, dtype=np.float32),
        tasks=np.arange(1, 31, dtype=np.float32),
        child_first=np.minimum(np.arange(31), 29).astype(np.int32),
        child=np.arange(1, 30, dtype=np.int32),
        ready=np.array([0, 5, 29], dtype=np.int32),
    )
    weights = random_weights(3)
    native = decima_probabilities(weights, chain, 0, 1, 2)
    for fast, obvious in zip(native, decima_reference(weights, chain, 0, 1, 2), strict=True):
        np.testing.assert_allclose(fast, obvious, atol=1e-5)


def test_one_ready_stage_is_certain() -> None:
    view = random_view(5, 1, most_nodes=1)
    stages, limits = decima_probabilities(random_weights(5), view, 0, 7, 7)
    assert stages.tolist() == limits.tolist() == [1.0]


def test_the_order_of_jobs_changes_only_the_order_of_answers() -> None:
    """The summaries are sums: a job's place in the list says nothing about it."""
    one, two = random_view(8, 1), random_view(9, 1)
    weights = random_weights(8)
    first = decima_probabilities(weights, _joined(one, two), 0, 1, 9)
    swapped = decima_probabilities(weights, _joined(two, one), 1, 1, 9)
    split = len(one.ready)
    np.testing.assert_allclose(first[0][:split], swapped[0][-split:], atol=1e-6)
    np.testing.assert_allclose(first[1], swapped[1], atol=1e-6)


def _joined(a: DecimaView, b: DecimaView) -> DecimaView:
    n, e = len(a.tasks), len(a.child)
    return DecimaView(
        job_first=np.concatenate([a.job_first, b.job_first[1:] + np.int32(n)]),
        job_executors=np.concatenate([a.job_executors, b.job_executors]),
        source_job=-1,
        free_executors=5.0,
        work_ms=np.concatenate([a.work_ms, b.work_ms]),
        tasks=np.concatenate([a.tasks, b.tasks]),
        child_first=np.concatenate([a.child_first, b.child_first[1:] + np.int32(e)]),
        child=np.concatenate([a.child, b.child + np.int32(n)]),
        ready=np.concatenate([a.ready, b.ready + np.int32(n)]),
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ready", [99]),
        ("child", [99]),
        ("child", [0]),  # itself
        ("height", [0, 0]),
        ("job_first", [0, 3]),
        ("job_first", [1, 2]),
        ("child_first", [0, 2, 1]),
        ("tasks", [1.0]),
        ("source_job", 1),
        ("job", 1),
        ("highest", 0),
        ("parameters", [0.0]),
    ],
)
def test_the_border_refuses_what_would_be_out_of_bounds(field: str, value: object) -> None:
    ints, floats = np.int32, np.float32
    given: dict[str, object] = {
        "job_first": np.array([0, 2], ints),
        "job_executors": np.array([1], floats),
        "source_job": -1,
        "free_executors": 1.0,
        "work_ms": np.ones(2, floats),
        "tasks": np.ones(2, floats),
        "child_first": np.array([0, 1, 1], ints),
        "child": np.array([1], ints),
        "height": np.array([1, 0], ints),
        "ready": np.array([0], ints),
    }
    asked: dict[str, object] = {
        "parameters": random_weights(0).parameters, "job": 0, "lowest": 1, "highest": 3,
    }  # fmt: skip

    def ask(changes: dict[str, object]) -> None:
        view = _core.DecimaView(**{name: changes.get(name, given[name]) for name in given})  # type: ignore[arg-type]
        rest = {name: changes.get(name, asked[name]) for name in asked}
        _core.decima_probabilities(view=view, **rest)  # type: ignore[arg-type]

    ask({})
    if isinstance(value, list):
        value = np.array(value, dtype=(given | asked)[field].dtype)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"\w"):
        ask({field: value})


def test_weights_come_back_from_their_file_and_are_the_same_bytes(tmp_path: Path) -> None:
    weights = DecimaWeights(random_weights(2).parameters, "by hand")
    weights.save(tmp_path / "a.npz")
    again = DecimaWeights.load(tmp_path / "a.npz")
    again.save(tmp_path / "b.npz")
    assert again.about == "by hand"
    assert np.array_equal(again.parameters, weights.parameters)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    with pytest.raises(ValueError, match="read-only"):
        again.parameters[0] = 1.0


def test_wrong_weights_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="4770 parameters"):
        DecimaWeights(np.zeros(3, np.float32))
    with pytest.raises(InputError, match="not a number"):
        DecimaWeights(np.full(PARAMETERS, np.nan, np.float32))
    path = tmp_path / "w.npz"
    for bad in (b"", b"no weights", b"PK\x03\x04 cut"):
        path.write_bytes(bad)
        with pytest.raises(InputError, match=r"w\.npz: not a file of Decima's weights; "):
            DecimaWeights.load(path)
    np.savez(path, parameters=np.zeros(5, np.float32), about="short")
    with pytest.raises(InputError, match=r"w\.npz: Decima has 4770"):
        DecimaWeights.load(path)
    with pytest.raises(InputError, match="No such file"):
        DecimaWeights.load(tmp_path / "absent.npz")


def test_stages_in_a_circle_are_refused() -> None:
    view = DecimaView(
        job_first=np.array([0, 2], dtype=np.int32),
        job_executors=np.ones(1, np.float32),
        source_job=-1,
        free_executors=1.0,
        work_ms=np.ones(2, np.float32),
        tasks=np.ones(2, np.float32),
        child_first=np.array([0, 1, 2], dtype=np.int32),
        child=np.array([1, 0], dtype=np.int32),
        ready=np.array([0], dtype=np.int32),
    )
    with pytest.raises(InputError, match="circle"):
        decima_probabilities(random_weights(0), view, 0, 1, 2)


checkpoints = load_benchmark("decima_checkpoint")


@pytest.mark.data
def test_the_authors_checkpoint_is_read(public_data: Path) -> None:
    weights = checkpoints.decima_from_checkpoint(public_data / CHECKPOINT)
    # The first weights of the data file are those of the variable that was made first.
    raw = (public_data / f"{CHECKPOINT}.data-00000-of-00001").read_bytes()
    assert weights.parameters[:80].tobytes() == raw[:320]
    view = random_view(4, 20)
    native = decima_probabilities(weights, view, 3, 1, 100)
    # Sums over twenty jobs are large: float32 has fewer digits left for their differences.
    for fast, obvious in zip(native, decima_reference(weights, view, 3, 1, 100), strict=True):
        np.testing.assert_allclose(fast, obvious, atol=1e-5, rtol=1e-3)


@pytest.mark.data
def test_a_damaged_checkpoint_is_refused(public_data: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "model"
    index = Path(f"{public_data / CHECKPOINT}.index").read_bytes()
    data = Path(f"{public_data / CHECKPOINT}.data-00000-of-00001").read_bytes()
    (tmp_path / "model.data-00000-of-00001").write_bytes(data)
    rng = np.random.default_rng(0)
    for _ in range(200):
        damaged = bytearray(index)
        damaged[rng.integers(len(index))] ^= 1 << rng.integers(8)
        (tmp_path / "model.index").write_bytes(damaged)
        try:
            checkpoints.decima_from_checkpoint(prefix)
        except InputError as error:
            assert "model" in str(error)
    (tmp_path / "model.index").write_bytes(index)
    (tmp_path / "model.data-00000-of-00001").write_bytes(data[:500])
    with pytest.raises(InputError, match="not where the table says"):
        checkpoints.read_tf_checkpoint(prefix)
    with pytest.raises(InputError, match=r"a checkpoint is a \.index and a \.data"):
        checkpoints.read_tf_checkpoint(tmp_path / "absent")
    (tmp_path / "model.index").write_bytes(b"x" * 100)
    with pytest.raises(InputError, match="not the index of a checkpoint"):
        checkpoints.read_tf_checkpoint(prefix)
