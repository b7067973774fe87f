"""The command line as a user meets it: a real process, real files, exit codes."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

from gnomon.cli import main
from gnomon.cli.commands import NOUNS, VERBS
from gnomon.datasets import bundled
from gnomon.graph import WorkGraph

TRACE = bundled("h200-gpt-l6") / "kineto.json.gz"


def run(*words, cwd=None):
    """One command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "gnomon.cli", *map(str, words)],
        capture_output=True, text=True, timeout=240, cwd=cwd, check=False,
    )  # fmt: skip


def one_line(text):
    assert text.startswith("gnomon: ")
    assert text.count("\n") == 1
    assert "Traceback" not in text
    return text


def event(**more):
    return {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1, **more}


def trace(*events):
    return json.dumps({"traceEvents": list(events)}).encode()


good = gzip.decompress(TRACE.read_bytes())
#: Everything a person may hand over by mistake: name, content, what the line must say.
BAD = {
    "empty.json": (b"", "is empty"),
    "empty.json.gz": (gzip.compress(b""), "holds nothing"),
    "wrong.json": (b'{"hello": 1}', "no 'traceEvents'"),
    "text.json": (b"this is not a trace\n", "not JSON"),
    "image.json": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "not JSON"),
    "truncated.json.gz": (TRACE.read_bytes()[:50_000], "gzip stream ends early"),
    "damaged.json.gz": (TRACE.read_bytes()[:50_000] + b"x" * 100 + TRACE.read_bytes()[50_100:],
                        "gzip stream is damaged"),
    "half.json": (good[: len(good) // 2], "JSON ends early"),
    "no_events.json": (trace(), "no events"),
    "nothing_complete.json": (trace({"ph": "M", "name": "x"}), "no complete events"),
    "no_ts.json": (b'{"traceEvents":[{"ph":"X","name":"gemm","cat":"kernel","dur":1}]}', "event 0 has no 'ts'"),
    "negative.json": (trace(event(dur=-5)), "impossible time: ts 1, dur -5"),
    "nan.json": (b'{"traceEvents":[{"ph":"X","ts":NaN,"dur":1}]}', "impossible time: ts NaN, dur 1"),
    "text_ts.json": (trace(event(ts="soon")), "impossible time"),
    "absurd.json": (trace(event(ts=1e300)), "impossible time"),
    "not_events.json": (b'{"traceEvents": 7}', "not a trace"),
    "only_marks.json": (trace(event(cat="user_annotation")), "neither operators nor kernels"),
    "binary.arrow": (b"ARROW1\0\0" + b"\xff" * 64, "arrow"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("verb", [("training", "replay"), ("report",)])
def test_bad_input_one_line_exit_2_nothing_left(tmp_path, capsys, name, verb):
    content, message = BAD[name]
    path = tmp_path / name
    path.write_bytes(content)
    made = tmp_path / "made"
    code = main([*verb, str(path), "--html", f"{made}.html", "--save", str(made)])
    line = one_line(capsys.readouterr().err)
    assert code == 2
    assert name in line
    if verb == ("training", "replay") and not name.endswith(".arrow"):
        assert re.search(message, line), line
    assert [p.name for p in tmp_path.iterdir()] == [name]


def graph_file(path, **columns):
    """A graph that nobody validated, as another program might write it."""
    good = WorkGraph.from_columns(
        ["a", "b", "a"], [1, 2, 3], name=["x", "y", "z"], edges=([0, 1], [1, 2])
    )
    good.replace(**columns).save(path)


BAD_GRAPHS = {
    "cycle": ({"edge_target": np.array([1, 0], np.int32)}, r"cycle: task 0 \('x' on 'a'\) -> task 1"),
    "negative duration": ({"duration_ns": np.array([1, -2, 3])}, "negative duration, -2 ns"),
    "absurd duration": ({"duration_ns": np.full(3, 2**61)}, "more than a century"),
    "dangling edge": ({"edge_target": np.array([1, 77], np.int32)}, "ends at task 77"),
    "group too large": ({"group": np.array([2**30, 2**30, -1], np.int32)}, "rendezvous group"),
    "wait on itself": ({"wait_task": np.array([0], np.int32), "wait_lane": np.array([0], np.int32)},
                       "its own lane"),
}  # fmt: skip


def test_a_lane_that_is_not_there_is_told(tmp_path, capsys):
    path = tmp_path / "bad.arrow"
    lane = np.array([3, 1, 2, 0, 2, 1, 3, 2], np.int32)
    WorkGraph.from_columns(lane, [1] * 8, lanes=["a", "b", "c", "d"]).save(path)
    content = path.read_bytes()
    assert content.count(lane.tobytes()) == 1
    path.write_bytes(content.replace(lane.tobytes(), (lane + 9).tobytes()))
    assert main(["report", str(path)]) == 2
    assert "column 'lane' has codes outside its 4 values" in one_line(capsys.readouterr().err)


@pytest.mark.parametrize("case", BAD_GRAPHS)
@pytest.mark.parametrize("verb", ["report", "export"])
def test_bad_graphs_one_line_exit_2_nothing_left(tmp_path, capsys, case, verb):
    columns, message = BAD_GRAPHS[case]
    path = tmp_path / "bad.arrow"
    graph_file(path, **columns)
    target = (
        ["--html", str(tmp_path / "made.html")]
        if verb == "report"
        else [str(tmp_path / "made.pftrace")]
    )
    assert main([verb, str(path), *target]) == 2
    line = one_line(capsys.readouterr().err)
    assert "bad.arrow" in line
    assert re.search(message, line), line
    assert [p.name for p in tmp_path.iterdir()] == ["bad.arrow"]


def test_a_real_process_gives_the_same(tmp_path):
    (tmp_path / "cut.json.gz").write_bytes(TRACE.read_bytes()[:1000])
    done = run("training", "replay", "cut.json.gz", cwd=tmp_path)
    assert done.returncode == 2
    assert one_line(done.stderr) == (
        "gnomon: cut.json.gz: the gzip stream ends early; was the file cut short?\n"
    )
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trainin"], 'Did you mean "training"'),
        (["training", "repla", "x"], 'Did you mean "replay"'),
        (["training", "replay"], "path"),
        (["training", "replay", "missing.json"], "check the path"),
        (["training", "replay", "bundled:nope"], "nothing bundled is called 'nope'"),
        (["training", "replay", str(TRACE), "--scale", "gemm"], "PATTERN=FACTOR"),
        (["training", "replay", str(TRACE), "--scale", "prduct=2"], "no task is called 'prduct'"),
        (["training", "replay", str(TRACE), "--perfetto", "x.txt"], "does not say which trace"),
        (["training", "sweep", str(TRACE), "--on", "moon"], "moon"),
        (["compare", str(TRACE), str(TRACE), "--max-regress", "lots"], "lots"),
        (["export", str(TRACE), "x.docx"], "possible are"),
        (["inspect", "missing"], "check the path"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert message in one_line(capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


def test_replay_as_json_and_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["training", "replay", "bundled:h200-gpt-l6", "--json", "--html", "r.html",
             "--save", "run", "--perfetto", "t.pftrace"]  # fmt: skip
    assert main(words) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["figures"]["step_ms"] == pytest.approx(46.2, abs=1.0)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.html", "run", "t.pftrace"]
    assert main(["report", "run"]) == 0
    assert "Where does the step go" in capsys.readouterr().out
    assert main(words) == 2  # a result that is there is not replaced unless told
    assert "run" in one_line(capsys.readouterr().err)
    assert main([*words, "--overwrite"]) == 0


def test_compare_is_a_gate(tmp_path, capsys):
    graph = WorkGraph.from_columns(["a", "b"], [1000, 2000], edges=([0], [1]))
    graph.save(tmp_path / "before.arrow")
    graph.with_durations([1000, 2100]).save(tmp_path / "after.arrow")
    paths = [str(tmp_path / "before.arrow"), str(tmp_path / "after.arrow")]
    assert main(["compare", *paths, "--max-regress", "3%"]) == 3
    assert main(["compare", *paths, "--max-regress", "5%"]) == 0
    assert main(["compare", *reversed(paths)]) == 0
    capsys.readouterr()
    assert main(["compare", *paths, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["figures"]


def test_inspect_tells_files_apart(tmp_path, capsys):
    WorkGraph.from_columns(["a"], [1]).save(tmp_path / "g.arrow")
    (tmp_path / "s.csv").write_text(
        "datetime,value\n2024-01-01T00:00:00Z,1\n2024-01-01T01:00:00Z,2\n"
    )
    for path, words in ((TRACE, "PyTorch profiler trace"), (tmp_path / "g.arrow", "work graph"),
                        (tmp_path / "s.csv", "table of values over time")):  # fmt: skip
        assert main(["inspect", str(path)]) == 0
        assert words in capsys.readouterr().out
    assert main(["inspect", str(TRACE), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["figures"]["events"] == 8977


@pytest.mark.parametrize(
    "target", ["t.pftrace", "t.json", "t.json.gz", "t.arrow", "t.parquet", "t.html", "t.prom"]
)
def test_export_then_read_again(tmp_path, capsys, target):
    if target.endswith(".parquet"):
        pytest.importorskip("pyarrow", reason="the 'tables' extra is absent")
    path = tmp_path / target
    assert main(["export", "bundled:h200-gpt-l6", str(path)]) == 0
    assert path.stat().st_size > 100
    assert main(["inspect", str(path)]) == 0
    if target == "t.json.gz":
        capsys.readouterr()
        assert main(["inspect", str(path), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["figures"]["events"] > 10_000


def test_sweep_resumes_and_runs_anywhere(tmp_path, capsys):
    words = ["training", "sweep", str(TRACE), "--kind", "gemm", "--factor", "0.5", "--factor", "1",
             "--resume", str(tmp_path / "kept"), "--json"]  # fmt: skip
    assert main([*words, "--on", "serial"]) == 0
    first = capsys.readouterr().out
    assert main([*words, "--on", "local:2"]) == 0
    assert capsys.readouterr().out == first
    steps = json.loads(first)["tables"]["Step by kind and factor"]["columns"]["step_ms"]
    # Without the profiler, as it was measured.
    assert steps[0] < steps[1] == pytest.approx(45.83, abs=0.1)


@pytest.mark.ray
def test_sweep_through_a_real_ray(capsys):
    words = [
        "training",
        "sweep",
        str(TRACE),
        "--kind",
        "gemm",
        "--factor",
        "0.5",
        "--factor",
        "2",
        "--json",
    ]
    assert main([*words, "--on", "serial"]) == 0
    alone = capsys.readouterr().out
    assert main([*words, "--on", "ray"]) == 0
    assert capsys.readouterr().out == alone


def test_doctor_tour_version_help(tmp_path, capsys):
    assert main(["doctor", "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)["tables"]["Parts"]["columns"]["part"]
    assert {"native core", "Ray", "GPU", "browser", "Java", "cgroups", "root"} <= set(parts)
    assert main(["tour", str(tmp_path / "report")]) == 0
    assert "What if" in capsys.readouterr().out
    assert (tmp_path / "report" / "index.html").is_file()
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("gnomon ")
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in (*NOUNS, *VERBS))


@pytest.mark.parametrize(
    "command", [[n, "--help"] for n in (*NOUNS, *VERBS)] + [["training", "replay", "--help"]]
)
def test_every_command_has_help(capsys, command):
    assert main(command) == 0
    assert "Usage" in capsys.readouterr().out


def test_help_names_every_option(capsys):
    assert main(["training", "replay", "--help"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("Usage: gnomon training replay PATH [OPTIONS]")
    for word in (
        "--scale TEXT",
        "--perfetto PATH",
        "--json",
        "--html PATH",
        "--save PATH",
        "Repeatable",
    ):
        assert word in page
    assert main(["training", "nonsense", "--help"]) == 2
    assert main(["training", "replay", "some.json", "--help"]) == 0


def test_help_says_what_holds_when_nothing_is_given(capsys):
    assert main(["batch", "run", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for part in (
        "Jobs of a trial. [50]", "[known]", "between two arrivals on average. [30]",
        "[on; --no-controls turns it off]",
    ):  # fmt: skip
        assert part in said
    assert "None" not in said
    assert "False" not in said


@pytest.mark.parametrize(
    "words", [["--help"], ["training", "--help"], ["training", "replay", "--help"]]
)
def test_help_does_not_import_numpy(words):
    """Help has to be quick: what it loads is counted, since seconds are noisy."""
    code = (
        f"import sys; from gnomon.cli import main; main({words!r}); "
        "print(sorted(m for m in ('numpy','jinja2','polars','rich','gnomon.graph') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")


def test_bash_accepts_the_completion_script(capsys):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    asked = "complete -p gnomon && COMP_WORDS=(gnomon tra) COMP_CWORD=1"
    done = subprocess.run(
        ["bash", "-c", f"{script}\n{asked}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "gnomon" in done.stdout
    assert "training" in script


def test_a_closed_pipe_is_no_error():
    command = f"{sys.executable} -m gnomon.cli inspect {TRACE} --json | head -c 10"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.parametrize("verb", ["training replay", "inspect", "doctor"])
def test_tables_survive_a_closed_pipe_and_an_ascii_terminal(verb):
    path = "" if verb == "doctor" else str(TRACE)
    command = f"{sys.executable} -m gnomon.cli {verb} {path}"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command} | head -n 1"],
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        command.split(), capture_output=True, text=True, env=ascii_only, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_outputs_replace_nothing_but_files(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "folder").mkdir()
    for name, message in (("pipe", "not a regular file"), ("folder", "is a folder"),
                          ("no/such", "there is no such folder")):  # fmt: skip
        assert main(["report", str(TRACE), "--html", str(tmp_path / name)]) == 2
        assert message in one_line(capsys.readouterr().err)
    assert main(["report", str(TRACE), "--html", str(tmp_path / "link")]) == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text().startswith("<!doctype html>")
    same = str(tmp_path / "same.json")
    capsys.readouterr()
    assert main(["training", "replay", str(TRACE), "--html", same, "--perfetto", same]) == 2
    assert "two outputs" in one_line(capsys.readouterr().err)
    assert main(["training", "replay", str(TRACE), "--html", ""]) == 2


def test_what_the_manifest_says_can_be_run_again(tmp_path, capsys):
    words = ["training", "replay", "bundled:h200-gpt-l6", "--scale", "gemm=1.1"]
    assert main([*words, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["manifest"]["config"]["changes"] == ["gemm x 1.1"]
    assert main([*first["manifest"]["command"].split()[1:], "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    for measured in ("load_s", "replay_s", "peak_mb"):
        assert first.pop(measured) > 0 < again.pop(measured)
    assert again == first


@pytest.mark.parametrize(
    "words",
    [
        ["carbon", "signal", "DE", "--from", "2024-01-01", "--to", "2024-01-03", "--seed", "3"],
        ["carbon", "buy", "--fleet", "bundled:two-servers", "--candidate", "EPYC 9334",
         "--zone", "SE", "--utilisation=40"],
        ["carbon", "place", "--fleet", "bundled:two-servers", "--zone", "DE", "--seed", "5"],
        ["batch", "run", "--grid", "DE", "--policy", "fifo,cap?min_share=0.4:fifo", "--njobs",
         "3", "--trials", "1", "--no-controls", "--seed", "7"],
    ],
    ids=lambda words: " ".join(words[:2]),
)  # fmt: skip
def test_every_option_is_in_the_manifest(words, tmp_path, capsys):
    assert main([*words, "--json", "--html", str(tmp_path / "page.html")]) in (0, 3)
    first = json.loads(capsys.readouterr().out)
    assert shlex.split(first["manifest"]["command"]) == ["gnomon", *words]
    if "--seed" in words:
        assert first["manifest"]["seed"] == int(words[words.index("--seed") + 1])


def test_folders_say_which_trace_was_read(tmp_path, capsys):
    zstandard = pytest.importorskip("zstandard", reason="the 'zstd' extra is absent")
    (tmp_path / "b.json.zst").write_bytes(zstandard.compress(trace(event())))
    (tmp_path / "a.json").write_bytes(trace(event()))
    assert main(["training", "replay", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "read a.json, 1 of 2 traces in its folder" in shown
    assert "no step marks" in shown
    assert main(["inspect", str(tmp_path / "b.json.zst")]) == 0
    assert "PyTorch profiler trace" in capsys.readouterr().out
    assert main(["inspect", str(tmp_path)]) == 0
    assert "traces in folder" in capsys.readouterr().out


def test_names_from_traces_cannot_drive_the_terminal(tmp_path, capsys):
    hostile = json.dumps(
        {"traceEvents": [event()], "deviceProperties": [{"name": "GPU\x1b[31m\nred"}]}
    )
    (tmp_path / "t.json").write_text(hostile)
    assert main(["training", "replay", str(tmp_path / "t.json")]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "GPU\\x1b[31m\\x0ared" in shown


def test_comparing_different_things_is_said(tmp_path, capsys):
    (tmp_path / "cpu.json").write_bytes(trace(event(cat="cpu_op", tid=1)))
    main(["compare", str(TRACE), str(tmp_path / "cpu.json")])
    assert "answers about different things" in capsys.readouterr().out


def test_internal_errors_are_ours(monkeypatch, capsys):
    import gnomon.cli.sources as sources

    def broken(path):
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(sources, "load_result", broken)
    assert main(["report", str(TRACE)]) == 1
    assert "internal error: ZeroDivisionError: boom" in one_line(capsys.readouterr().err)
    assert main(["report", str(TRACE), "--verbose"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_same_input_same_bytes(tmp_path):
    for name in ("a", "b"):
        assert main(["training", "replay", str(TRACE), "--save", str(tmp_path / name), "--html",
                     str(tmp_path / f"{name}.html"), "--perfetto", str(tmp_path / f"{name}.pftrace")]) == 0  # fmt: skip
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    assert (tmp_path / "a.pftrace").read_bytes() == (tmp_path / "b.pftrace").read_bytes()
    files = sorted(
        p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*") if p.is_file()
    )
    assert files
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
