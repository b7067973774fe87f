"""What lies in a profiler trace beside the times of calls: who waited, and how slow the host was."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from gnomon.datasets import bundled
from gnomon.systems.aibench import pipeline
from gnomon.systems.aibench.benchmark import build
from tests.systems.aibench.recordings import program_of


@pytest.mark.parametrize("name", ["cpu-gpt-mini", "h200-gpt-l6"])
def test_the_profiler_slowed_the_recorded_host(name, tmp_path):
    made = build(bundled(name), tmp_path / "bench")
    assert 1.2 < program_of(tmp_path / "bench")["settings"]["profiler"] < 3.0
    build(bundled(name) / "et.json.gz", tmp_path / "alone")
    assert "profiler" not in program_of(tmp_path / "alone")["settings"]
    assert made.coverage_time_pct == pytest.approx(100.0)


@pytest.fixture
def asked(monkeypatch):
    """What is asked of `schedule.order`, which answers as ever."""
    order, asked = pipeline.order, []

    def listen(calls, times, seen):
        asked.append((calls, seen))
        return order(calls, times, seen)

    monkeypatch.setattr(pipeline, "order", listen)
    return asked


@pytest.mark.data
def test_streams_were_seen_to_wait(asked, public_data, tmp_path):
    """Only for calls of the other stream, that came before."""
    build(public_data / "h200" / "overlap", tmp_path / "bench")
    [(calls, seen)] = asked
    stream_of = {call.at: call.stream for call in calls}
    pairs = [(one, other) for one, others in seen.items() for other in others]
    assert len(pairs) > 10
    assert all(other < one for one, other in pairs)
    assert all(stream_of[one] != stream_of[other] for one, other in pairs)


@pytest.mark.data
@pytest.mark.parametrize("name", ["gpt-base", "linear"])
def test_one_stream_waits_for_nobody(name, asked, public_data, tmp_path):
    build(public_data / "h200" / name, tmp_path / "bench")
    assert asked[0][1] == {}
