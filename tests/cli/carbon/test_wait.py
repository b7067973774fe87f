"""gnomon carbon wait, for real: seconds instead of hours, and commands that run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.cli.refusal import refused

from gnomon.cli import main
from gnomon.cli.carbon import wait as carbon_wait

MARK = [sys.executable, "-c", "import pathlib; pathlib.Path('ran').write_text('yes')"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNOMON_CACHE", str(tmp_path / "cache"))
    return tmp_path


def seconds(clean_after, *, before=2, after=30, clean_for=10):
    """A signal by the second around now: 500 g, and 100 g from so many seconds on; and now."""
    now = time.time_ns() // 10**9
    rows = [
        f"{now + s},{100 if clean_after <= s < clean_after + clean_for else 500}"
        for s in range(-before, after)
    ]
    Path("grid.csv").write_text("\n".join(["time,carbon_gco2_kwh", *rows]) + "\n")
    return now


def wait(*words):
    return main(["carbon", "wait", *map(str, words)])


def test_it_waits_runs_and_says_what_was_saved(capsys, monkeypatch):
    now = seconds(2, after=240, clean_for=120)
    # The plan is of that second, however long the machine takes to make it; the wait is real.
    monkeypatch.setattr(carbon_wait, "time", SimpleNamespace(time_ns=lambda: now * 10**9))
    code = wait("--signal", "grid.csv", "--within", "6s", "--for", "1s", "--watts", "3.6e6",
                "--json", "--", *MARK)  # fmt: skip
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    assert code == 0
    assert Path("ran").read_text() == "yes"
    assert time.time() >= told["start_s"] == now + 2
    assert told["delay_s"] == 2.0
    assert told["at_once_g_kwh"] == pytest.approx(500)
    assert told["then_g_kwh"] == pytest.approx(100)
    assert told["expected_saved_pct"] > 50
    assert told["exit_code"] == 0
    assert told["saved_g"] > 0
    assert "instead of" in shown.err
    assert "by the forecast" in shown.err


@pytest.mark.parametrize("code", [0, 3, 77])
def test_the_commands_exit_code_is_ours(code):
    seconds(0, before=5)
    words = ["--signal", "grid.csv", "--within", "3s", "--for", "1s", "--"]
    assert wait(*words, sys.executable, "-c", f"raise SystemExit({code})") == code


def test_only_the_plan(capsys):
    seconds(20)
    assert wait("--signal", "grid.csv", "--within", "25s", "--for", "2s", "--plan") == 0
    assert "starting at" in capsys.readouterr().out
    assert not Path("ran").exists()
    assert wait("--zone", "DE", "--within", "12h", "--for", "2h", "--plan", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["basis"].startswith("usual hours of DE-LU")
    assert "exit_code" not in told


@pytest.mark.parametrize("case", ["old", "later", "short", "provider"])
def test_without_a_forecast_it_starts_at_once(case, capsys, monkeypatch):
    monkeypatch.delenv("ELECTRICITYMAPS_TOKEN", raising=False)
    words = ["--signal", "grid.csv"]
    if case == "old":
        rows = [f"2020-01-01T{h:02}:00Z,{h}" for h in range(24)]
        Path("grid.csv").write_text("\n".join(["time,carbon_gco2_kwh", *rows]) + "\n")
        said = "too long to go by"
    elif case == "later":
        seconds(0, before=-20, after=40)
        said = "begins only at"
    elif case == "short":
        seconds(0, before=30, after=-5)
        said = "a forecast needs 2 days of history"
    else:
        words, said = ["--zone", "DE", "--provider", "electricitymaps"], "ELECTRICITYMAPS_TOKEN"
    began = time.time()
    assert wait(*words, "--within", "60s", "--for", "1s", "--", *MARK) == 0
    assert time.time() - began < 30  # a wait would take up to sixty
    shown = capsys.readouterr().err
    assert "starting at once" in shown
    assert said in shown
    assert Path("ran").exists()


def test_past_hours_are_forecast_from(capsys):
    hour = time.time_ns() // 10**9 // 3600
    rows = [f"{(hour - 24 * 10 + h) * 3600},{200 if h % 24 < 12 else 400}" for h in range(24 * 10)]
    Path("past.csv").write_text("\n".join(["time,carbon_gco2_kwh", *rows]) + "\n")
    words = ["--signal", "past.csv", "--within", "24h", "--for", "2h", "--plan", "--json"]
    assert wait(*words) == 0
    told = json.loads(capsys.readouterr().out)
    assert "forecast (seasonal) from past.csv" in told["basis"]
    assert told["then_g_kwh"] < 260


def test_bad_files_and_options_are_one_line(capsys):
    Path("bad.csv").write_text("time,carbon_gco2_kwh\n2024-01-01T00:00Z,1\n2024-01-01T01:00Z,-1\n")
    ask = ["carbon", "wait", "--within", "2h", "--for", "1h"]
    assert "bad.csv: line 3: -1" in refused(capsys, *ask, "--signal", "bad.csv", "--", "true")
    assert "no live service is called 'who'" in refused(
        capsys, *ask, "--zone", "DE", "--provider", "who", "--", "true"
    )
    assert "which grid?" in refused(capsys, *ask, "--", "true")
    assert "which command?" in refused(capsys, *ask, "--zone", "DE")
    assert "do not fit" in refused(
        capsys, "carbon", "wait", "--within", "1h", "--for", "2h", "--zone", "DE", "--", "true"
    )


def test_interrupted_while_waiting_nothing_is_started():
    seconds(600, after=700)
    program = "import sys; from gnomon.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["carbon", "wait", "--signal", "grid.csv", "--within", "650s", "--for", "1s"]
    with subprocess.Popen(
        [sys.executable, "-c", program, *words, "--", *MARK],
        stderr=subprocess.PIPE, text=True, env=os.environ,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert "starting at" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert "the command was not started" in process.stderr.read()
    assert not Path("ran").exists()
