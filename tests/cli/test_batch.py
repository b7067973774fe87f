"""gnomon batch: what it promises to scripts, and what it says to wrong input."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.act.fake_cluster import kubeconfig, serving
from tests.cli.refusal import answer, refused
from tests.waiting import until

from gnomon.cli import main
from gnomon.datasets import bundled

LOG = bundled("spark-diamonds")
SMALL = ["--njobs", "6", "--executors", "10", "--trials", "2", "--on", "serial", "--sizes", "2"]
PROMISED = ("carbon_kg", "carbon_pct", "work_pct", "intensity_pct", "placebo_pct", "jct_mean_s",
            "jct_p95_s", "ect_s")  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GNOMON_CARBON", raising=False)


def put_hours(name, hours=400):
    rows = [f"{1704067200 + 3600 * h},{200 + 100 * (h % 24 < 12)}" for h in range(hours)]
    Path(name).write_text("\n".join(["timestamp,carbon_gco2_kwh", *rows]) + "\n")


def test_run_answers_what_it_promises(capsys):
    got = answer(capsys, "batch", "run", "--grid", "DE", "--policy", "fifo,cap:fifo", *SMALL)
    assert list(got["policies"]) == ["fifo", "cap:fifo"]
    cap = got["policies"]["cap:fifo"]
    for name in PROMISED:
        assert cap[name]["low"] <= cap[name]["mid"] <= cap[name]["high"]
    both = (1 + cap["work_pct"]["mid"] / 100) * (1 + cap["intensity_pct"]["mid"] / 100)
    assert both == pytest.approx(1 + cap["carbon_pct"]["mid"] / 100)
    assert got["policies"]["fifo"]["carbon_pct"]["mid"] == 0.0
    assert set(got["bound"]["DE"]) == {"same_end", "end_10pct_later"}


def test_the_same_command_gives_the_same_bytes(capsys):
    words = ["batch", "run", "--grid", "ON", "--policy", "fair,pcaps:path-softmax", *SMALL]
    one, two = (answer(capsys, *words) for _ in range(2))
    assert one == two
    assert answer(capsys, *words, "--seed", "1") != one


def test_several_grids_and_a_page(capsys, tmp_path):
    page = tmp_path / "batch.html"
    words = ["batch", "run", "--grid", "DE,ON", "--policy", "fifo,pcaps+:fair", *SMALL]
    assert main([*words, "--html", str(page)]) == 0
    shown = capsys.readouterr()
    assert "pcaps+:fair" in shown.out
    assert "by cleaner hours" in page.read_text()


def test_real_hours_from_a_file(capsys):
    put_hours("grid.csv")
    words = [
        "batch",
        "run",
        "--grid",
        "DE",
        "--signal",
        "grid.csv",
        "--policy",
        "fifo,suspend",
        *SMALL,
    ]
    got = answer(capsys, *words)
    assert any("grid.csv" in note for note in got["notes"])
    assert got["policies"]["suspend"]["intensity_pct"]["mid"] <= 0.5


def test_your_own_log(capsys):
    got = answer(
        capsys, "batch", "whatif", LOG, "--grid", "CAISO", "--policy", "fifo,cap:fifo", "--hour",
        "10s", "--trials", "2", "--on", "serial",
    )  # fmt: skip
    assert abs(got["replay"]["error_pct"]) < 10.0
    assert got["policies"]["cap:fifo"]["ect_s"]["mid"] > 0
    drawn = answer(
        capsys, "batch", "whatif", LOG, "--grid", "CAISO", "--policy", "fifo", "--hour", "10s",
        "--trials", "1", "--njobs", "9", "--arrival", "5", "--executors", "4",
    )  # fmt: skip
    assert any("4 executors" in note for note in drawn["notes"])


def test_settings_of_the_cluster_count(capsys):
    words = ["batch", "run", "--grid", "DE", "--policy", "fifo", *SMALL]
    plain = answer(capsys, *words)["policies"]["fifo"]
    worse = answer(capsys, *words, "--failures", "0.2", "--stragglers", "0.2")["policies"]["fifo"]
    assert worse["ect_s"]["mid"] >= plain["ect_s"]["mid"]
    assert worse["carbon_kg"]["mid"] > plain["carbon_kg"]["mid"]
    idle = answer(capsys, *words, "--idle-watts", "10", "--pue", "1.5")["policies"]["fifo"]
    assert idle["carbon_kg"]["mid"] > 1.5 * plain["carbon_kg"]["mid"]


def test_policies_are_listed(capsys):
    assert main(["batch", "policies"]) == 0
    assert "pcaps+?" in capsys.readouterr().out
    assert main(["batch", "policies", "--json"]) == 0
    schemas = json.loads(capsys.readouterr().out)
    assert "gamma" in schemas["pcaps"]["parameters"]["properties"]
    assert schemas["cap"]["wraps"]


RUN = ["batch", "run", "--grid", "DE", "--policy", "fifo"]
WRONG = {
    "no grid": (["batch", "run", "--policy", "fifo"], "--grid: which grid?"),
    "unknown grid": (["batch", "run", "--grid", "XX"], "no grid zone is called 'XX'"),
    "flat grid": (["batch", "run", "--grid", "300"], "leaves nothing to decide"),
    "unknown policy": (["batch", "run", "--grid", "DE", "--policy", "fyfo"], "did you mean 'fifo'"),
    "pcaps over fifo": (
        ["batch", "run", "--grid", "DE", "--policy", "fifo,pcaps:fifo", *SMALL],
        "pcaps needs a policy that draws",
    ),
    "no jobs": ([*RUN, "--njobs", "0"], "--njobs 0"),
    "no time between": ([*RUN, "--arrival", "0"], "--arrival 0"),
    "no such file": ([*RUN, "--jobs", "none.json"], "none.json: no such file"),
    "rubbish file": ([*RUN, "--jobs", "rubbish.json"], "rubbish.json"),
    "no executors": ([*RUN, "--executors", "-1"], "--executors -1"),
    "no trials": ([*RUN, "--trials", "0"], "--trials 0"),
    "zero executors": ([*RUN, "--executors", "0"], "--executors 0"),
    "no hour": ([*RUN, "--hour", ""], "is no duration"),
    "a tiny hour": ([*RUN, "--hour", "1ns", *SMALL], "hour"),
    "a grid twice": (["batch", "run", "--grid", "DE,DE"], "named twice"),
    "a log twice": (["batch", "whatif", str(LOG), str(LOG), "--grid", "DE"], "named twice"),
    "nothing drawn": (
        ["batch", "whatif", str(LOG), "--grid", "DE", "--njobs", "0", "--arrival", "5"],
        "--njobs 0",
    ),
    "pue": ([*RUN, "--pue", "0.5"], "PUE lies from 1 to 10"),
    "within": ([*RUN, "--finish-within", "0.9"], "--finish-within 0.9"),
    "patience": ([*RUN, "--patience", "-1"], "--patience -1"),
    "hour": ([*RUN, "--hour", "soon"], "soon"),
    "chance": ([*RUN, "--failures", "1"], "--failures 1"),
    "missing signal": ([*RUN, "--signal", "none.csv"], "none.csv: cannot be read"),
    "two grids, one signal": (
        ["batch", "run", "--grid", "DE,ON", "--signal", "grid.csv"],
        "--signal is of one grid",
    ),
    "short signal": ([*RUN, "--signal", "short.csv"], "less than a day"),
    "no history": (
        [*RUN, "--signal", "grid.csv", "--forecast", "fitted", *SMALL],
        "too few for a 'fitted' forecast",
    ),
    "no log": (["batch", "whatif", "--grid", "DE"], "which event logs?"),
    "rubbish log": (["batch", "whatif", "rubbish.json", "--grid", "DE"], "rubbish.json"),
    "half a draw": (["batch", "whatif", str(LOG), "--grid", "DE", "--njobs", "3"], "belong together"),
    "agent without grid": (["batch", "spark-agent", "--policy", "cap:fifo"], "--zone: which grid?"),
    "agent without driver": (
        ["batch", "spark-agent", "--policy", "cap:fifo", "--zone", "DE"],
        "--handshake: which application?",
    ),
    "agent without carbon": (
        ["batch", "spark-agent", "--policy", "fifo", "--zone", "DE", "--handshake", "none.json"],
        "fifo does not look at the grid",
    ),
    "agent without file": (
        ["batch", "spark-agent", "--policy", "cap:fifo", "--zone", "DE", "--handshake",
         "none.json", "--wait", "0s", "--executors", "4"],
        "none.json",
    ),
    "a quota of what": (
        ["batch", "spark-agent", "--policy", "cap:fifo", "--zone", "DE", "--handshake", "h.json"],
        "of how many executors?",
    ),
    "training by no seed": (
        ["batch", "train-decima", "-o", "x.npz", "--seed", "-1"], "--seed -1: zero or more",
    ),
    "training on nothing": (
        ["batch", "train-decima", "-o", "x.npz", "--executors", "0"], "--executors 0",
    ),
    "training over a file": (
        ["batch", "train-decima", "-o", "grid.csv", "--iterations", "1"],
        "grid.csv: exists already",
    ),
    "no such binding": (
        ["batch", "run", "--grid", "DE", "--policy", "cap?binding=hour:fifo"], "binding",
    ),
    "more executors a job than there are numbers": (
        ["batch", "run", "--grid", "DE", "--policy", "kubernetes?per_job=3000000000"], "per_job",
    ),
    "a log that is a link to itself": (
        ["batch", "whatif", "loop", "--grid", "DE", "--policy", "fifo"], "loop",
    ),
    "a log that never ends": (
        ["batch", "whatif", "pipe", "--grid", "DE", "--policy", "fifo"],
        "pipe: is neither a file nor a folder",
    ),
    "agent for no such zone": (
        ["batch", "spark-agent", "--policy", "cap:fifo", "--zone", "ZZ", "--handshake", "h.json",
         "--executors", "4"],
        "no grid zone is called 'ZZ'",
    ),
    "agent with no such provider": (
        ["batch", "spark-agent", "--policy", "cap:fifo", "--zone", "DE", "--provider", "nope",
         "--handshake", "h.json", "--executors", "4"],
        "no live service is called 'nope'",
    ),
    "agent without its hours": (
        ["batch", "spark-agent", "--policy", "cap:fifo", "--signal", "nope.csv", "--handshake",
         "h.json", "--executors", "4"],
        "nope.csv",
    ),
    "agent of a driver that is gone": (
        ["batch", "spark-agent", "--policy", "cap:fifo", "--zone", "DE", "--handshake",
         "stale.json", "--wait", "0s", "--executors", "4"],
        "stale.json: the driver of app-1 cannot be reached",
    ),
    "pods of nothing": (
        ["batch", "spark-agent", "--policy", "cap:fifo", "--zone", "DE", "--kubernetes", "/x",
         "--executors", "4"],
        "is no name in Kubernetes",
    ),
    "pods and a driver": (
        ["batch", "spark-agent", "--policy", "cap:fifo", "--zone", "DE", "--kubernetes", "a/b",
         "--handshake", "h.json", "--executors", "4"],
        "--handshake and --kubernetes",
    ),
    "a handshake with a space": (
        ["batch", "spark-conf", "--handshake", "a b.json"], "without spaces",
    ),
    "pods without number": (
        ["batch", "spark-agent", "--policy", "cap:fifo", "--zone", "DE", "--kubernetes", "a/b"],
        "--executors: how many pods at most?",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_gets_one_line(case, capsys):
    put_hours("grid.csv")
    put_hours("short.csv", 20)
    Path("rubbish.json").write_bytes(b"\x00\xffnot a log\n" * 3)
    Path("loop").symlink_to("loop")
    os.mkfifo("pipe")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]  # and nobody's from here on
    facts = {"protocol": 1, "host": "127.0.0.1", "port": port, "token": "x" * 64,
             "application": "app-1", "spark": "4.3.0"}  # fmt: skip
    Path("stale.json").write_text(json.dumps(facts))
    Path("stale.json").chmod(0o600)
    words, said = WRONG[case]
    assert said in refused(capsys, *words)


def test_a_plan_for_pods_is_only_shown(capsys):
    put_hours("grid.csv")
    code = main([
        "batch", "spark-agent", "--policy", "cap:fifo", "--signal", "grid.csv", "--hour", "100ms",
        "--kubernetes", "spark/executors", "--executors", "10", "--period", "50ms", "--for", "2s",
    ])  # fmt: skip
    shown = capsys.readouterr()
    assert code == 0
    assert "dry run" in shown.err
    assert "pods 11" in shown.out  # ten executors and a driver
    assert "pods 3" in shown.out


def test_pods_of_an_unknown_cluster(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    words = ["batch", "spark-agent", "--policy", "cap:fifo", "--zone", "DE", "--kubernetes", "a/b",
             "--executors", "10", "--apply"]  # fmt: skip
    assert "no Kubernetes cluster found" in refused(capsys, *words)


def test_pods_that_could_not_be_limited_are_an_error(capsys, tmp_path, monkeypatch):
    put_hours("grid.csv")
    words = ["batch", "spark-agent", "--policy", "cap:fifo", "--signal", "grid.csv", "--hour",
             "100ms", "--kubernetes", "spark/executors", "--executors", "10", "--period", "50ms",
             "--for", "300ms", "--apply"]  # fmt: skip
    with serving() as cluster:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", cluster.url)))
        assert main(words) == 0
        events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert events[0]["event"] == "applied"
        assert events[-1] == {
            "event": "restored", "quota": "spark/executors", "hard": {"pods": "20"},
            "reason": "as it was before",
        }  # fmt: skip
        cluster.refuses_patches = True
        assert main(words) != 0
        shown = capsys.readouterr()
    assert shown.out == ""
    assert "403 cannot patch" in shown.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--grid", "DE", "--policy", "fifo", "--trials", "500", "--resume", "kept"],
         "trials that ended are kept in kept: the same command goes on"),
        (["train-decima", "-o", "model.npz"], "what was learned is kept"),
    ],
    ids=["run", "train"],
)  # fmt: skip
def test_who_interrupts_is_told_how_to_go_on(words, said):
    process = subprocess.Popen(
        [sys.executable, "-m", "gnomon.cli", "batch", *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        until(lambda: [*Path().glob("kept/**/*.result"), *Path().glob("*.training")], "it began")
        os.killpg(process.pid, signal.SIGINT)
        _, shown = process.communicate(timeout=240)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert said in " ".join(shown.split())
    assert "Traceback" not in shown


def test_one_trial_is_not_taken_for_sure(capsys):
    main(
        ["batch", "run", "--grid", "DE", "--policy", "fifo,fair", "--njobs", "3", "--trials", "1"]
    )
    assert "One trial per grid" in " ".join(capsys.readouterr().out.split())
