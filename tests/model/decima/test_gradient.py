from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon import _core
from gnomon.model.decima.network import DecimaView
from tests.model.decima.decima_torch import TorchDecima
from tests.model.decima.test_network import random_view, random_weights


def record_of(views: list[DecimaView], seed: int) -> dict[str, np.ndarray]:
    """A record of choices drawn by hand."""
    rng = np.random.default_rng(seed)
    columns: dict[str, list[np.ndarray]] = {
        name: []
        for name in (
            "job_nodes", "job_executors", "work_ms", "tasks", "height", "edge_parent",
            "edge_child", "ready",
        )
    }  # fmt: skip
    single: dict[str, list[float]] = {
        name: []
        for name in (
            "source_job", "free_executors", "chosen", "job", "limit", "lowest", "highest",
        )
    }  # fmt: skip
    for view in views:
        nodes = len(view.tasks)
        columns["job_nodes"].append(np.diff(view.job_first))
        columns["job_executors"].append(view.job_executors)
        columns["work_ms"].append(view.work_ms)
        columns["tasks"].append(view.tasks)
        columns["height"].append(view.heights())
        columns["edge_parent"].append(np.repeat(np.arange(nodes), np.diff(view.child_first)))
        columns["edge_child"].append(view.child)
        columns["ready"].append(view.ready)
        chosen = int(rng.integers(len(view.ready)))
        lowest, highest = sorted(map(int, rng.integers(1, 60, 2)))
        single["source_job"].append(view.source_job)
        single["free_executors"].append(view.free_executors)
        single["chosen"].append(chosen)
        single["job"].append(
            int(np.searchsorted(view.job_first, view.ready[chosen], side="right")) - 1
        )
        single["lowest"].append(lowest)
        single["highest"].append(highest)
        single["limit"].append(int(rng.integers(lowest, highest + 1)))

    def first(name: str) -> np.ndarray:
        return np.cumsum([0] + [len(part) for part in columns[name]]).astype(np.int64)

    floats = {"job_executors", "work_ms", "tasks", "free_executors"}
    record = {
        name: np.concatenate(parts).astype(np.float32 if name in floats else np.int32)
        for name, parts in columns.items()
    }
    for name, values in single.items():
        record[name] = np.array(values, dtype=np.float32 if name in floats else np.int32)
    return record | {
        "first_job": first("job_nodes"),
        "first_node": first("tasks"),
        "first_edge": first("edge_child"),
        "first_ready": first("ready"),
    }


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), jobs=st.integers(1, 25), weight=st.sampled_from([0.0, 0.7]))
def test_native_is_torchs_gradient(seed: int, jobs: int, weight: float) -> None:
    parameters = random_weights(seed).parameters
    record = record_of([random_view(seed + i, jobs) for i in range(3)], seed)
    advantage = np.random.default_rng(seed).normal(size=3).astype(np.float32)
    native, log_p, entropy = _core.decima_gradient(
        parameters, record, np.arange(3), advantage, weight
    )
    oracle = TorchDecima(parameters)
    oracle.loss(record, advantage, weight).backward()
    expected = oracle.parameters.grad.numpy()
    assert np.abs(native - expected).max() <= 1e-3 * np.abs(expected).max()
    taken = [
        float(part.detach()[place])
        for d in range(3)
        for part, place in zip(
            oracle.log_chances(record, d),
            (record["chosen"][d], record["limit"][d] - record["lowest"][d]),
            strict=True,
        )
    ]
    assert log_p == pytest.approx(sum(taken), rel=1e-3)
    assert 0.0 <= entropy <= 6.0 + 1e-6


def test_decisions_add_up() -> None:
    parameters = random_weights(1).parameters
    record = record_of([random_view(i, 7) for i in range(6)], 1)
    advantage = np.linspace(-1, 1, 6, dtype=np.float32)
    whole = _core.decima_gradient(parameters, record, np.arange(6), advantage, 0.1)
    even = _core.decima_gradient(
        parameters, record, np.arange(0, 6, 2), advantage[::2].copy(), 0.1
    )
    odd = _core.decima_gradient(
        parameters, record, np.arange(1, 6, 2), advantage[1::2].copy(), 0.1
    )
    scale = np.abs(whole[0]).max()
    np.testing.assert_allclose(even[0] + odd[0], whole[0], atol=1e-5 * scale)
    assert even[1] + odd[1] == pytest.approx(whole[1])
    assert even[2] + odd[2] == pytest.approx(whole[2])


@pytest.mark.parametrize(
    ("column", "place", "value"),
    [
        ("chosen", 0, 999),
        ("job", 0, -1),
        ("limit", 0, 1000),
        ("ready", 0, 999),
        ("edge_child", 0, 999),
        ("edge_parent", -1, 0),
        ("job_nodes", 0, 999),
        ("first_node", 1, 10**6),
        ("first_job", 0, 1),
        ("height", 0, -1),
    ],
)
def test_a_damaged_record_is_refused(column: str, place: int, value: int) -> None:
    record = record_of([random_view(i, 7) for i in range(3)], 3)
    record[column][place] = value
    parameters = random_weights(1).parameters
    with pytest.raises(ValueError, match=r"\w"):
        _core.decima_gradient(parameters, record, np.arange(3), np.ones(3, np.float32), 0.0)
