"""Benchmarks of small models, built and run for real."""

from __future__ import annotations

import json
import math

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from gnomon.systems.aibench.benchmark import build
from tests.systems.aibench.recordings import MODELS, build_and_run, execute, program_of, run


@pytest.mark.parametrize("name", [name for name in MODELS if name != "lstm"])
def test_every_model_is_replayed_whole(name, recorded, tmp_path):
    made, answer = build_and_run(recorded(name), tmp_path / "bench")
    assert made.coverage_ops_pct == 100.0, made.placeholders
    assert answer["placeholders"] == answer["skipped"] == 0, answer["placeholders_by_reason"]
    assert answer["differing"] == 0
    assert answer["ops"] == answer["replayed"] > 0
    assert answer["coverage_ops_pct"] == 100.0
    assert answer["coverage_time_pct"] == pytest.approx(100.0)
    assert len(answer["step_ms"]) == 2
    assert answer["median_ms"] > 0
    assert answer["peak_bytes"] > 0
    assert answer["device"] == "cpu"


def test_a_clone_calls_what_the_original_called(recorded, tmp_path):
    """The clone's own profile has the same operators that do work, as often."""
    from gnomon.ingest.profiler.kineto import read_kineto

    folder = recorded("gpt-adam")
    build(folder, tmp_path / "bench")
    run(tmp_path / "bench", "--profile", str(tmp_path / "clone.json.gz"))

    def counts(path):
        trace = read_kineto(path)
        names = [trace.name_of(i) for i in range(len(trace))]
        wanted = ("aten::mm", "aten::addmm", "aten::_foreach_addcdiv_", "aten::native_layer_norm")
        return {name: names.count(name) for name in wanted}

    original = counts(folder / "kineto.json.gz")
    assert original == counts(tmp_path / "clone.json.gz")
    assert min(original.values()) > 0


def test_the_same_seed_gives_the_same_data(recorded, tmp_path):
    build(recorded("mlp"), tmp_path / "a")
    build(recorded("mlp"), tmp_path / "b")
    for name in ("run.py", "data.py", "measure.py", "program.json.gz", "README.md"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize("how", ["uniform", "zipf:1.2", "histogram"])
def test_indices_stay_in_range(how, recorded, tmp_path):
    build(recorded("recommender"), tmp_path / "bench")
    if how == "histogram":
        (tmp_path / "weights").write_text("5\n1\n0\n2\n")
        how = f"histogram:{tmp_path / 'weights'}"
    answer = run(tmp_path / "bench", "--indices", how)
    assert answer["placeholders"] == 0


def test_recorded_indices_and_offsets_are_told_apart(recorded, tmp_path):
    build(recorded("recommender"), tmp_path / "bench")
    fills = [fill for _, _, fill in program_of(tmp_path / "bench")["storages"] if fill]
    assert ["i", 0, 30] in fills
    assert ["o", 12, 0] in fills


def fills_of(program, at, *operators):
    """What the storages behind an argument of some operators are filled with, call by call."""
    fills = []
    for row in (row for step in program["steps"] for thread in step for row in thread):
        if not isinstance(row[0], str) and program["operators"][row[0]] in operators:
            _, made = row[1][at]
            fills.append(program["storages"][program["made"][made][0]][2])
    return fills


@pytest.mark.parametrize(
    ("model", "weight", "operators"),
    [
        ("gpt-adamw", 2, ["aten.native_layer_norm.default"]),
        # Chance reuse of memory decides whether this one is opened.
        ("cnn", 1, ["aten._batch_norm_impl_index.default", "aten.native_batch_norm.default"]),
        ("cnn", 1, ["aten.native_group_norm.default"]),
    ],
)
def test_normalisations_begin_as_in_a_training(model, weight, operators, recorded, tmp_path):
    build(recorded(model), tmp_path / "bench")
    program = program_of(tmp_path / "bench")
    weights, biases = (fills_of(program, at, *operators) for at in (weight, weight + 1))
    assert weights == [["c", 1.0]] * len(weights)
    assert biases == [["c", 0.0]] * len(biases)
    assert len(weights) == len(biases) > 0


def test_other_weights_are_drawn(recorded, tmp_path):
    build(recorded("gpt-adamw"), tmp_path / "bench")
    program = program_of(tmp_path / "bench")
    assert fills_of(program, 0, "aten.embedding.default") == [[]]
    fills = [fill for _, _, fill in program["storages"]]
    assert fills.count(["c", 1.0]) == 2  # of its 15 parameters, those of the normalisations


def test_a_distribution_shapes_the_draws():
    """Zipf draws the first far more often than the last; a histogram follows its weights."""
    import importlib.util
    from pathlib import Path

    import torch

    import gnomon.systems.aibench as package

    path = Path(package.__file__).with_name("runtime") / "data.py"
    spec = importlib.util.spec_from_file_location("aibench_data", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    data = module.Data.__new__(module.Data)
    data.seeds = {"cpu": torch.Generator().manual_seed(0)}
    data.how, data.weights = "zipf", 1.0
    counts = torch.bincount(
        data.indices(torch.empty(20_000, dtype=torch.int64), 0, 100), minlength=100
    )
    assert counts[0] > 20 * counts[99]
    data.how, data.weights = "histogram", torch.tensor([3.0, 1.0])
    drawn = data.indices(torch.empty(20_000, dtype=torch.int64), 10, 20)
    assert (drawn >= 10).all()
    assert (drawn < 20).all()
    assert (drawn < 15).float().mean().item() == pytest.approx(0.75, abs=0.02)


def test_pacing_holds_the_host_back(recorded, tmp_path):
    build(recorded("mlp"), tmp_path / "bench")
    import gzip

    path = tmp_path / "bench" / "program.json.gz"
    program = program_of(tmp_path / "bench")
    for step in program["steps"]:
        for thread in step:
            for row in thread:
                if not isinstance(row[0], str):
                    row[5] = 1000  # tenths of a microsecond
    path.write_bytes(gzip.compress(json.dumps(program).encode()))
    calls = sum(not isinstance(r[0], str) for s in program["steps"] for t in s for r in t)
    paced = run(tmp_path / "bench", "--pace", "on")
    assert min(paced["step_ms"]) >= calls * 0.1 * 0.99
    slower = run(tmp_path / "bench", "--pace", "on", "--host-scale", "2")
    assert min(slower["step_ms"]) >= 2 * calls * 0.1 * 0.99


def test_without_a_profiler_trace_times_are_not_known(recorded, tmp_path):
    made = build(recorded("mlp") / "et.json.gz", tmp_path / "bench")
    assert made.coverage_time_pct is None
    answer = run(tmp_path / "bench")
    assert answer["coverage_time_pct"] is None
    assert any("without a profiler trace" in note for note in made.built.notes)


def test_the_answer_on_a_terminal(recorded, tmp_path):
    build(recorded("mlp"), tmp_path / "bench")
    done = execute(tmp_path / "bench", "--device", "cpu", "--steps", "2")
    assert done.returncode == 0, done.stderr
    assert "0 placeholder kernels, 0 skipped (100.00 %)" in done.stdout
    assert "100.00 % of the recorded device time is replayed" in done.stdout


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--steps", "0"], "--steps has to be at least 1"),
        (["--indices", "normal"], "uniform, zipf:EXPONENT or histogram:FILE"),
        (["--indices", "histogram:/nowhere"], "No such file"),
        (["--indices", "zipf:much"], "could not convert"),
        (["--device", "tpu"], "tpu"),
    ],
)
def test_wrong_usage_is_one_line(options, what, recorded, tmp_path):
    build(recorded("mlp"), tmp_path / "bench")
    done = execute(
        tmp_path / "bench", *(["--device", "cpu"] if "--device" not in options else []), *options
    )
    assert done.returncode != 0
    assert what in done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_of_another_format_is_refused(recorded, tmp_path):
    import gzip

    build(recorded("mlp"), tmp_path / "bench")
    program = program_of(tmp_path / "bench") | {"format": 99}
    (tmp_path / "bench" / "program.json.gz").write_bytes(
        gzip.compress(json.dumps(program).encode())
    )
    done = execute(tmp_path / "bench")
    assert done.returncode != 0
    assert "format 99" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_fails_gets_a_stand_in_and_a_name(recorded, tmp_path):
    import gzip

    build(recorded("mlp"), tmp_path / "bench")
    program = program_of(tmp_path / "bench")
    program["operators"] = [
        "aten.no_such_thing.default" if name == "aten.mm.default" else name
        for name in program["operators"]
    ]
    (tmp_path / "bench" / "program.json.gz").write_bytes(
        gzip.compress(json.dumps(program).encode())
    )
    answer = run(tmp_path / "bench")
    assert answer["placeholders"] > 0
    assert answer["skipped"] == 0
    assert answer["coverage_ops_pct"] < 100.0
    assert answer["coverage_time_pct"] < 100.0
    assert any("aten.no_such_thing" in reason for reason in answer["placeholders_by_reason"])
    assert all(math.isfinite(ms) for ms in answer["step_ms"])


def test_nothing_is_written_into_the_folder_by_running_it(recorded, tmp_path):
    build(recorded("mlp"), tmp_path / "bench")
    before = sorted(path.name for path in (tmp_path / "bench").rglob("*"))
    run(tmp_path / "bench")
    assert sorted(path.name for path in (tmp_path / "bench").rglob("*")) == before


def runner(monkeypatch):
    """`run.py` as a module, beside its own files."""
    import importlib.util
    import sys
    from pathlib import Path

    import gnomon.systems.aibench as package

    folder = Path(package.__file__).with_name("runtime")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    spec = importlib.util.spec_from_file_location("aibench_run", folder / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["gpt-adamw", "gpt-adam"])
def test_weights_stay_numbers(name, monkeypatch, recorded, tmp_path):
    """Rows of a table that nobody reads have no gradient: what keeps them from 0 / 0 is needed."""
    from types import SimpleNamespace

    import torch

    build(recorded(name), tmp_path / "bench")
    module, program = runner(monkeypatch), program_of(tmp_path / "bench")
    args = SimpleNamespace(indices="uniform", seed=0, host_scale=0.0, pace="off")
    with torch.inference_mode():
        bench = module.Bench(program, module.Machine("cpu", program, args), args)
        # Counters of steps aside: what `torch.tensor` puts into memory is in no trace.
        own = [tensor for tensor in bench.tensors.made if tensor.numel() > 1]
        before = [tensor.clone() for tensor in own]
        for number in range(4):
            bench.step(number)
    assert all(torch.isfinite(tensor).all() for tensor in own)
    moved = [not torch.equal(one, other) for one, other in zip(before, own)]
    assert sum(moved) >= 3 * 15  # parameters, and two moments of each


def test_under_the_profiler_the_host_is_as_slow_as_in_the_recording(monkeypatch, tmp_path):
    from types import SimpleNamespace

    scales = []
    machine = SimpleNamespace(is_cuda=False, scale=0.5, synchronize=lambda: None)
    bench = SimpleNamespace(
        machine=machine, program={"settings": {"profiler": 3.0}},
        step=lambda _: scales.append(machine.scale),
    )  # fmt: skip
    runner(monkeypatch).measure.profile(bench, str(tmp_path / "trace.json"))
    assert scales == [1.5] * 6


def script(module, rows, operators):
    from types import SimpleNamespace

    bench = module.Bench.__new__(module.Bench)
    device = SimpleNamespace(type="cuda")
    bench.machine = SimpleNamespace(device=device, is_cuda=True, streams=[0, 1])
    bench.args = SimpleNamespace(pace="on")
    bench.program = {"settings": {"device": "cuda"}}
    items = [r if isinstance(r[0], str) else module.Call(r, operators) for r in rows]
    return bench.script(items, 0).split("\n")


def test_a_stream_waits_for_events_itself(monkeypatch):
    """Whoever holds is the stream of the call that follows, not that of the call before."""
    module = runner(monkeypatch)
    rows = [
        [0, [], 0, [0], [], 0, 10, {"s": 1}],
        ["mark", 0],
        ["hold", 0],
        [1, [["r", 0]], None, [], [0], 0, 10],
    ]
    lines = script(module, rows, ["a", "b"])
    assert lines == [
        "restart0()", "on(1)", "r0 = o0()", "mark(0)", "on(0)", "hold(0)", "o1(r0)", "keep(r0)",
        "del r0",
    ]  # fmt: skip


def test_host_time_passes_in_portions_and_before_signals(monkeypatch):
    module = runner(monkeypatch)
    rows = [[0, [], None, [], [], 150, 0], [0, [], None, [], [], 60, 0], ["post", 3],
            [0, [], None, [], [], 40, 0], ["need", 4], [0, [], None, [], [], 7, 0]]  # fmt: skip
    lines = script(module, rows, ["a"])
    assert lines == [
        "restart0()", "o0()", "o0()", "pace0(210)", "post3()", "o0()", "pace0(40)", "need4()",
        "restart0()", "o0()", "pace0(7)",
    ]  # fmt: skip


def test_a_thread_that_fails_ends_the_run(recorded, tmp_path):
    """Nobody waits for ever for a thread that is gone."""
    import gzip

    build(recorded("mlp"), tmp_path / "bench")
    program = program_of(tmp_path / "bench")
    only = program["steps"][0][0]
    call = next(row for row in only if not isinstance(row[0], str))
    # A second thread whose call works in the rehearsal, and is given what is not there later on.
    program["operators"].append("aten.relu.default")
    broken = [len(program["operators"]) - 1, [["x", 0]], None, [], [], 0, 0]
    program["steps"] = [[[*only, ["need", 0], call], [broken, ["post", 0]]]]
    program["signals"] = 1
    (tmp_path / "bench" / "program.json.gz").write_bytes(
        gzip.compress(json.dumps(program).encode())
    )
    script = (tmp_path / "bench" / "run.py").read_text()
    script = script.replace(
        "    def step(self, number):",
        "    def step(self, number):\n        self.names['x0'] = None",
        1,
    )
    (tmp_path / "bench" / "run.py").write_text(script)
    done = execute(tmp_path / "bench", "--device", "cpu", "--steps", "2")
    assert done.returncode != 0


def test_streams_wait_for_one_another_and_for_the_end(monkeypatch, recorded, tmp_path):
    """On two streams and two threads, each event is waited for by the other stream."""
    import subprocess
    import sys
    from pathlib import Path

    from gnomon.ingest.execution.trace import read_execution_trace
    from gnomon.systems.aibench import pipeline
    from gnomon.systems.aibench.folder import describe, write_bench

    order = pipeline.order

    def spread(calls, _times, _seen):
        for at, call in enumerate(calls):
            call.stream, call.thread = at // 3 % 2, 1 if at < len(calls) // 2 else 2
        return order(calls, {})

    monkeypatch.setattr(pipeline, "order", spread)
    built = pipeline.build_program(read_execution_trace(recorded("gpt-adamw") / "et.json.gz"))
    built.program.streams = 2
    built.program.settings["device"] = "cuda"
    write_bench(tmp_path / "bench", built.program, describe({}))
    script = Path(__file__).with_name("pretended_device.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "bench")],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    waits = [(who, whom) for kind, who, whom in summary["asked"] if kind == "wait"]
    assert len(waits) == built.program.events > 10
    assert all(who != whom for who, whom in waits)
    assert [kind for kind, *_ in summary["asked"]][-1] == "join"
    assert summary["placeholders"] == 0
