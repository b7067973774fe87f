"""The lab as a target: real processes, real limits; and the simulator that predicts them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from gnomon.act.local.cgroup import root_group
from gnomon.decide.services import Allocation, Rails
from gnomon.errors import ActuationError
from gnomon.graph.application import Application, Call, RequestClass, Service, Sla
from gnomon.sim.mesh import poisson_requests
from gnomon.systems.services import Rate, Setup
from gnomon.systems.services.lab import LabRun, run_lab
from gnomon.systems.services.lab_result import run_to_result, sweep_to_result, sweep_to_script
from gnomon.systems.services.sweep import longest_pass_s, sweep
from tests.waiting import until


def has_limits():
    try:
        root_group()
    except ActuationError:
        return False
    return os.geteuid() == 0


needs_limits = pytest.mark.skipif(not has_limits(), reason="control groups cannot be written")

APP = Application(
    "pair", {"web": Service(workers=1, pools={"logic": 8}), "logic": Service(workers=1, cpu_max=2.0)},
    {"get": RequestClass(Call("web", cpu_ms=0.5, then=((Call("logic", cpu_ms=2.0),),)), sla=Sla(500.0))},
    rate=80.0,
)  # fmt: skip


@needs_limits
def test_a_limit_throttles_and_its_release_does_not():
    with LabRun(APP, poisson_requests(APP, [80.0] * 60, seed=1), seed=1) as run:
        free = run.target.observe(1.5)
        run.target.apply(Allocation(np.array([np.nan, 0.1]), np.array([-1, -1])))
        tight = run.target.observe(2.0)
        run.target.apply(Allocation(np.array([np.nan, np.inf]), np.array([-1, 2])))
        run.target.observe(1.5)
        after = run.target.observe(1.0)
    assert free.throttled[1] == 0
    assert tight.cpu_limit[1] == 0.1
    assert tight.throttled[1] > 0.5
    assert tight.usage[1] < 0.13
    assert tight.utilisation[1] > 0.7
    assert after.replicas.tolist() == [1, 2]
    assert after.throttled[1] == 0
    assert free.class_rate[0] == pytest.approx(80, rel=0.4)
    assert free.class_ms[0, 0] >= 2.5
    assert free.usage_samples.shape[1] == 2


@needs_limits
def test_a_manager_runs_in_the_lab():
    setup = Setup(APP, interval_s=0.5)
    starts = []
    done = run_lab(
        setup, "autoscale-cons", Rate("flat", np.full(5, 80.0)), rails=Rails(), sample_share=1.0,
        on_start=lambda lab: lab.set_limit("logic", 0.3), on_end=lambda lab: starts.extend(lab.span_files()),
    )  # fmt: skip
    result = run_to_result(setup, done)
    assert result.figure("cpu_used").number > 0.1
    assert done.outcome.score.classes[0].requests > 300
    assert done.outcome.score.classes[0].error_pct == 0
    assert starts
    limits = [row[1] for row in done.outcome.series.limits]
    assert max(limits[1:]) > 0.3  # more than half used: it grew


@needs_limits
def test_a_sweep_measures_calibrates_and_predicts():
    found = sweep(
        APP, "logic", [None, 0.12], row_s=2.0, cores=os.cpu_count() or 1, foreign_cores=1e9
    )
    assert [row.limit for row in found.measured] == [None, 0.12]
    assert found.measured[1].throttled_pct > 50
    assert found.predicted[1].throttled_pct > 50
    assert found.measured[1].p50_ms > 3 * found.measured[0].p50_ms
    assert found.predicted[1].p50_ms > 3 * found.predicted[0].p50_ms
    assert all(one.overhead_ms < 2 for one in found.app.services.values())
    table = sweep_to_result(found).table("limits")
    assert list(table["limit"]) == ["none", "0.12"]
    assert len(sweep_to_script(found)["predicted"]) == 2


@pytest.mark.parametrize(("limits", "row_s"), [(1, 2.0), (6, 12.0), (3, 60.0)])
def test_the_load_of_a_sweep_outlasts_its_slowest_pass(limits, row_s):
    """Every row measured three times, each with the longest drain and the longest wait."""
    assert longest_pass_s(limits, row_s) >= limits * 3 * (10 + 1 + row_s + 20)


def lab_command(tmp_path, *words, **options):
    whole = [sys.executable, "-m", "gnomon.cli", "services", "lab", "bundled:starter", *words]
    return subprocess.Popen(
        whole, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def test_a_terminated_lab_leaves_nothing(tmp_path):
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    process = lab_command(tmp_path, "--prometheus", "prometheus.yml", "--seed", "1", env=env)
    until((tmp_path / "prometheus.yml").exists, "the lab runs")
    (folder,) = tmp_path.glob("gnomon-lab-*")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert not folder.exists()
    if has_limits():
        assert folder.name not in [group.cpu.name for group in root_group().children()]


def test_a_collector_that_refuses_does_not_cost_the_answer(tmp_path):
    address = "http://127.0.0.1:9/v1/traces"
    process = lab_command(tmp_path, "--duration", "2s", "--rps", "50", "--otlp", address)
    shown, said = process.communicate(timeout=200)
    assert process.returncode == 1
    assert "does not take spans" in said
    assert "SLA violations" in shown


def test_the_command_runs(tmp_path):
    """As a user starts it, with everything it can write."""
    words = [sys.executable, "-m", "gnomon.cli", "services", "lab", "bundled:starter", "--duration", "3s",
             "--spans", "spans.jsonl", "--log", "log.jsonl", "--prometheus", "prometheus.yml", "--json"]  # fmt: skip
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert '"static"' in done.stdout
    assert "scrape_configs" in (tmp_path / "prometheus.yml").read_text()
    assert (tmp_path / "log.jsonl").read_text().count("\n") == 4
    again = subprocess.run(
        [sys.executable, "-m", "gnomon.cli", "services", "import", "spans.jsonl", "--json"],
        cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert '"services": 4' in again.stdout
