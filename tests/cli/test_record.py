"""gnomon training record: real training scripts that know nothing of it."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="torch is not installed")

#: Two optimizers, a scheduler that wraps the first one's step; gloo ranks where a launcher says so.
SCRIPT = """
import os, sys, time
import torch

steps, fail_at, pause_at = (int(word) for word in (sys.argv[1:] + ["0"] * 3)[:3])
model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(3)])
if "RANK" in os.environ:
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
other = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
for number in range(1, steps + 1):
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    other.step()
    scheduler.step()
    optimizer.zero_grad()
    if number == fail_at:
        raise RuntimeError("mine")
    if number == pause_at:
        print("paused", flush=True)
        time.sleep(60)
if "RANK" in os.environ:
    torch.distributed.destroy_process_group()
print("trained", steps)
"""
COUNTS = ("--unprofiled", "3", "--steps", "2", "--warmup", "1", "--skip", "1")
TOTAL = 1 + 3 + 1 + 2 + 1 + 2


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def gnomon_record(*command, cwd, options=COUNTS, stdin=""):
    words = [sys.executable, "-m", "gnomon.cli", "training", "record", *options, "--", *command]
    child = subprocess.Popen(
        list(map(str, words)), cwd=cwd, text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        output, errors = child.communicate(stdin, timeout=240)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)  # launchers, and ranks that wait for one another
        raise
    return subprocess.CompletedProcess(words, child.returncode, output, errors)


def said(done):
    """What stderr says, without the lines that PyTorch's profiler writes there."""
    return [line for line in done.stderr.splitlines() if "ActivityProfiler" not in line]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def meta(folder):
    return json.loads((folder / "meta.json").read_text())


def test_an_unchanged_script(tmp_path, script):
    done = gnomon_record(sys.executable, script, TOTAL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"trained {TOTAL}\n"
    assert names(tmp_path / "run") == ["kineto.json.gz", "meta.json"]
    assert meta(tmp_path / "run")["missing"] == []
    assert len(meta(tmp_path / "run")["step_ms"]) == 3
    summary, following = said(done)
    assert summary.startswith("run/kineto.json.gz (")
    assert "ms with the profiler" in summary
    assert following == "next: gnomon training replay run"

    trace = json.loads(gzip.decompress((tmp_path / "run" / "kineto.json.gz").read_bytes()))
    marks = sorted(
        (event["ts"], event["ts"] + event["dur"], event["name"])
        for event in trace["traceEvents"] if event.get("cat") == "user_annotation"
    )  # fmt: skip
    steps = [mark for mark in marks if mark[2].startswith("ProfilerStep")]
    assert len(steps) == 2
    for begin, end, name in marks:
        # The marks of steps lie around the optimizers' own, never across them.
        assert any(b <= begin <= end <= e for b, e, _ in steps), name

    refused = gnomon_record(sys.executable, "-c", "print(1)", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert "run: already holds a recording" in refused.stderr
    again = gnomon_record(
        sys.executable, script, TOTAL, cwd=tmp_path, options=(*COUNTS, "--overwrite")
    )
    assert again.returncode == 0
    replayed = subprocess.run(
        [sys.executable, "-m", "gnomon.cli", "training", "replay", "run", "--json"],
        capture_output=True, text=True, cwd=tmp_path, check=True,
    )  # fmt: skip
    assert str(meta(tmp_path / "run")["step_ms_median"])[:6] in replayed.stdout


def test_ranks_under_torchrun(tmp_path, script):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = gnomon_record(*launcher, "--nproc-per-node", "2", script, TOTAL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained") == 2
    assert names(tmp_path / "run") == ["meta.json", "rank0.json.gz", "rank1.json.gz"]
    assert meta(tmp_path / "run")["world_size"] == 2
    for rank in (0, 1):
        trace = json.loads(
            gzip.decompress((tmp_path / "run" / f"rank{rank}.json.gz").read_bytes())
        )
        assert trace["distributedInfo"]["rank"] == trace["gnomon"]["rank"] == rank
        assert trace["distributedInfo"]["world_size"] == 2
        assert len(trace["gnomon"]["step_ms"]) == 3
    assert any("run/rank0.json.gz and 1 more" in line for line in said(done))


def test_a_script_that_fails(tmp_path, script):
    done = gnomon_record(sys.executable, script, TOTAL, 5, cwd=tmp_path)
    assert done.returncode == 1
    assert "RuntimeError: mine" in done.stderr
    assert f"the loop ended after 5 of {TOTAL} steps; missing: the trace" in done.stderr
    assert names(tmp_path / "run") == ["meta.json"]
    assert len(meta(tmp_path / "run")["step_ms"]) == 3


def test_a_script_that_ends_early(tmp_path, script):
    done = gnomon_record(sys.executable, script, 3, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == "trained 3\n"
    complaint, summary = said(done)
    assert "missing: 1 of the unprofiled steps, the trace" in complaint
    assert summary.startswith("run: no trace, ")
    # The trace is there, only the drift is not known: nothing to fail for.
    options = (*COUNTS, "--out", "second")
    done = gnomon_record(sys.executable, script, TOTAL - 1, cwd=tmp_path, options=options)
    assert done.returncode == 0
    assert names(tmp_path / "second") == ["kineto.json.gz", "meta.json"]


def test_a_program_that_never_steps(tmp_path):
    code = "import sys; print(sys.stdin.read(), sys.argv[1:]); sys.exit(int(sys.argv[-1]))"
    words = ("--help", "--verbose", "--", "0")
    done = gnomon_record(sys.executable, "-c", code, *words, cwd=tmp_path, stdin="typed")
    assert done.returncode == 2
    assert done.stdout == "typed ['--help', '--verbose', '--', '0']\n"
    assert done.stderr.count("\n") == 1
    assert "no step of a PyTorch optimizer was seen; call" in done.stderr
    done = gnomon_record(sys.executable, "-c", code, "7", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (7, "")
    done = gnomon_record("no-such-program", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gnomon: no-such-program: there is no such program\n"
    assert names(tmp_path) == []


def test_the_site_of_the_program_is_its_own(tmp_path, script):
    """Its sitecustomize runs, its path is as it was, and it need not have anything of ours."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text(
        "import sys\n"
        "for name in ('msgspec', 'cyclopts', 'gnomon._core'): sys.modules[name] = None\n"
        "print('theirs', [p for p in sys.path if '_inject' in p])\n"
    )
    script.write_text("import sitecustomize; print(sitecustomize.__file__)\n" + SCRIPT)
    path = {"PYTHONPATH": str(theirs)}
    # Only the command gets their path: our own command line needs what it blocks.
    command = ["env", f"PYTHONPATH={theirs}", sys.executable]
    plain = subprocess.run(
        [sys.executable, str(script), "1"], env=os.environ | path,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    shell = 'PYTHONPATH="$PYTHONPATH:$1" exec "$2" "$3" "$4"'
    done = gnomon_record(
        "sh", "-c", shell, "sh", theirs, sys.executable, script, TOTAL, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout.replace("trained 1", f"trained {TOTAL}")
    assert names(tmp_path / "run") == ["kineto.json.gz", "meta.json"]
    # A command that throws our path away is simply not seen.
    done = gnomon_record(*command, script, TOTAL, cwd=tmp_path, options=("--out", "unseen"))
    assert done.returncode == 2
    assert "no step" in done.stderr


def test_one_process_of_many_records(tmp_path, script):
    again = f'"{sys.executable}" "{script}" {TOTAL} && "{sys.executable}" "{script}" 2'
    done = gnomon_record("sh", "-c", again, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"trained {TOTAL}\ntrained 2\n"
    assert len(said(done)) == 2
    assert names(tmp_path / "run") == ["kineto.json.gz", "meta.json"]


#: Where the script waits; the signal and who gets it; the exit code; what is kept.
SIGNALS = {
    "Ctrl-C while tracing": (6, signal.SIGINT, True, 130, ["kineto.json.gz", "meta.json"]),
    "terminated": (6, signal.SIGTERM, False, 143, ["meta.json"]),
}


@pytest.mark.parametrize("case", SIGNALS)
def test_a_script_that_is_stopped(tmp_path, script, case):
    pause_at, number, to_all, code, kept = SIGNALS[case]
    words = [
        "training",
        "record",
        *COUNTS,
        "--",
        sys.executable,
        str(script),
        "99",
        "0",
        str(pause_at),
    ]
    child = subprocess.Popen(
        [sys.executable, "-m", "gnomon.cli", *words], cwd=tmp_path, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout.readline() == "paused\n"
    if to_all:
        os.killpg(child.pid, number)
    else:
        child.send_signal(number)
    _, errors = child.communicate(timeout=240)
    assert child.returncode == code, errors
    assert names(tmp_path / "run") == kept
    assert len(meta(tmp_path / "run")["step_ms"]) == 3
    if to_all:
        assert "KeyboardInterrupt" in errors
        assert (
            f"the loop ended after 6 of {TOTAL} steps; missing: 1 of the trace's steps" in errors
        )
