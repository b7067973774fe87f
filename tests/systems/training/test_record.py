"""A recording: what is timed, what is kept when the loop ends in some other way, what is refused."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import time
import types

import pytest

from gnomon.errors import InputError, MissingExtra
from gnomon.systems.training import record, replay_trace
from gnomon.systems.training.recording import autostep
from gnomon.systems.training.recording.folder import Recording, pack_trace
from gnomon.systems.training.recording.recorder import Recorder, RecordOptions, _Laps

SMALL = dict(skip=1, unprofiled=3, warmup=1, steps=2, after=2)
TOTAL = 1 + 3 + 1 + 2 + 1 + 2  # one step after the trace is left alone


@pytest.fixture
def training_step():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(3)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(4, 8)

    def step():
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def events(trace):
    return json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]


def marked_steps(trace):
    names = [event["name"] for event in events(trace) if event.get("ph") == "X"]
    return [name for name in names if name.startswith("ProfilerStep#")]


def run_loop(folder, step, count=TOTAL, **options):
    with record(folder, **(SMALL | options)) as recorder:
        ends = []
        for _ in range(count):
            step()
            ends.append(recorder.step())
    return recorder, ends


def test_a_whole_recording(tmp_path, training_step):
    recorder, ends = run_loop(tmp_path / "run", training_step, TOTAL + 2)
    assert ends == [False] * (TOTAL - 1) + [True] * 3
    assert recorder.missing == []
    assert sorted(p.name for p in recorder.folder.iterdir()) == ["kineto.json.gz", "meta.json"]
    assert marked_steps(recorder.trace) == ["ProfilerStep#1", "ProfilerStep#2"]

    meta = json.loads((recorder.folder / "meta.json").read_text())
    assert (len(meta["step_ms"]), len(meta["step_ms_2"])) == (3, 2)
    assert meta["step_ms_median"] == sorted(meta["step_ms"])[1]
    assert meta["step_ms_wall"] >= sum(meta["step_ms"]) / 3 * (1 - 1e-6)
    assert meta["profiled_step_ms"] > 0
    assert meta["name"] == "run"
    assert meta["gpu"] is None
    assert meta["missing"] == []
    assert meta["options"]["unprofiled"] == 3

    run = replay_trace(recorder.folder)
    assert run.unprofiled.measured_ms == meta["step_ms_median"]
    assert run.passed_over == 0
    assert len(run.training.step_names) == 2


def test_times_are_those_of_the_steps(tmp_path, training_step):
    def slow():
        training_step()
        time.sleep(0.02)

    recorder, _ = run_loop(tmp_path, slow)
    meta = Recording.open(recorder.folder).meta
    for times in (meta["step_ms"], meta["step_ms_2"], [meta["profiled_step_ms"]]):
        assert min(times) >= 20
    assert meta["step_ms_wall"] >= 20
    assert "per step (" in Recording.open(recorder.folder).summary()


@pytest.mark.parametrize("asked", [False, True])
def test_shapes_are_noted_when_asked_for(tmp_path, training_step, asked):
    recorder, _ = run_loop(tmp_path, training_step, shapes=asked, sync_events=True)
    gemms = [e for e in events(recorder.trace) if e.get("name") == "aten::addmm"]
    assert gemms
    assert all(("Input Dims" in event["args"]) == asked for event in gemms)


def test_neither_machine_nor_folder_is_named(tmp_path, training_step):
    recorder, _ = run_loop(tmp_path / "secret-folder", training_step, name="public")
    trace = json.loads(gzip.decompress(recorder.trace.read_bytes()))
    assert trace["traceName"] == trace["host_name"] == ""
    assert (
        trace["gnomon"]["step_ms_median"] == Recording.open(recorder.folder).meta["step_ms_median"]
    )
    for path in recorder.folder.iterdir():
        content = path.read_bytes()
        text = gzip.decompress(content) if path.suffix == ".gz" else content
        assert b"secret-folder" not in text


#: Steps until the loop ends; what is kept; what the line says is missing.
ENDINGS = {
    1: ([], "3 of the unprofiled steps, the trace, the unprofiled steps after it"),
    3: (["meta.json"], "1 of the unprofiled steps, the trace, the unprofiled steps after it"),
    4: (["meta.json"], "the trace, the unprofiled steps after it"),
    5: (["meta.json"], "the trace, the unprofiled steps after it"),
    6: (["kineto.json.gz", "meta.json"], "1 of the trace's steps, the unprofiled steps after it"),
    7: (["kineto.json.gz", "meta.json"], "the unprofiled steps after it"),
    9: (["kineto.json.gz", "meta.json"], "the unprofiled steps after it"),
}


@pytest.mark.parametrize("count", ENDINGS)
def test_a_loop_that_ends_early_leaves_what_there_is(tmp_path, training_step, count):
    kept, missing = ENDINGS[count]
    line = f"the loop ended after {count} of {TOTAL} steps; missing: {re.escape(missing)}"
    with pytest.warns(UserWarning, match=line):
        recorder, ends = run_loop(tmp_path, training_step, count)
    assert not any(ends)
    assert sorted(p.name for p in tmp_path.iterdir()) == kept
    if "kineto.json.gz" in kept:
        assert marked_steps(recorder.trace)[0] == "ProfilerStep#1"
        assert replay_trace(tmp_path).unprofiled.measured_ms > 0


@pytest.mark.parametrize("count", [0, 2, 4, 6, 9])
def test_an_exception_of_the_loop_passes_untouched(tmp_path, training_step, capsys, count):
    mine = KeyError("mine")

    def interrupted():
        with record(tmp_path, **SMALL) as recorder:
            for _ in range(count):
                training_step()
                recorder.step()
            training_step()
            raise mine

    with pytest.raises(KeyError) as caught:
        interrupted()
    assert caught.value is mine
    assert caught.value.__context__ is None
    assert f"the loop ended after {count} of {TOTAL} steps" in capsys.readouterr().err
    assert (tmp_path / "meta.json").exists() == (count >= 2)
    assert (tmp_path / "kineto.json.gz").exists() == (count >= 6)


def test_another_recording_is_refused_or_replaced_whole(tmp_path, training_step):
    run_loop(tmp_path, training_step)
    for rank in (0, 7):
        (tmp_path / f"rank{rank}.json.gz").write_bytes(b"an older job's")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match=r"already holds a recording.*overwrite=True"):
        record(tmp_path, **SMALL).start()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    # Nothing is taken away before there is something to put in its place.
    with pytest.warns(UserWarning, match="kept: nothing"):
        run_loop(tmp_path, training_step, 1, overwrite=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    run_loop(tmp_path, training_step, overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kineto.json.gz", "meta.json"]
    assert (tmp_path / "kineto.json.gz").read_bytes() != before["kineto.json.gz"]


def test_ranks_write_side_by_side(tmp_path, training_step, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in (1, 0):
        monkeypatch.setenv("RANK", str(rank))
        recorder, _ = run_loop(tmp_path, training_step)
        assert recorder.rank == rank
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["meta.json", "rank0.json.gz", "rank1.json.gz"]
    assert Recording.open(tmp_path).meta["rank"] == 0
    assert [p.name for p in Recording.open(tmp_path).traces] == names[1:]
    with pytest.raises(InputError, match=r"rank0\.json\.gz"):
        record(tmp_path, **SMALL).start()


def test_a_profiler_of_the_program_is_left_alone(tmp_path, training_step):
    torch = pytest.importorskip("torch")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs:
        with pytest.warns(UserWarning, match="a profiler of the program's own is running"):
            recorder, ends = run_loop(tmp_path, training_step)
        assert ends[4:] == [True] * (TOTAL - 4)
    assert any(event.key == "aten::addmm" for event in theirs.key_averages())
    assert [p.name for p in tmp_path.iterdir()] == ["meta.json"]
    assert Recording.open(tmp_path).meta["step_ms_median"] > 0


def test_training_goes_on_when_nothing_can_be_written(tmp_path, training_step):
    folder = tmp_path / "run"
    done = 0

    def step():
        nonlocal done
        training_step()
        done += 1
        if done == 2:
            folder.rmdir()

    with pytest.warns(UserWarning, match="FileNotFoundError.*kept: nothing"):
        run_loop(folder, step)
    assert done == TOTAL


def test_a_trace_that_could_not_be_written_is_missing(tmp_path, training_step, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    module = sys.modules["gnomon.systems.training.recording.recorder"]
    monkeypatch.setattr(module, "pack_trace", full)
    with pytest.warns(UserWarning, match="No space left.*missing: the trace, .*kept: meta.json"):
        run_loop(tmp_path, training_step)
    assert [p.name for p in tmp_path.iterdir()] == ["meta.json"]
    assert "the trace" in Recording.open(tmp_path).meta["missing"]


def test_a_forked_child_records_nothing(tmp_path, training_step, monkeypatch):
    recorder = record(tmp_path, **SMALL)
    recorder.start()
    monkeypatch.setattr("os.getpid", lambda: -1)
    assert not any(recorder.step() for _ in range(TOTAL))
    recorder.finish()
    assert recorder.seen == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("option", "value"), [("skip", -1), ("unprofiled", 0), ("warmup", 0), ("steps", 0), ("after", -1)])  # fmt: skip
def test_counts_that_make_no_sense(option, value):
    with pytest.raises(InputError, match=f"{option}: is {value}, at least"):
        RecordOptions(**{option: value})


def test_without_torch_the_install_line(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"pip install 'gnomon\[torch\]'"):
        record(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_recording_needs_nothing_but_the_standard_library():
    """On a machine where gnomon is only a folder on the path, beside torch."""
    code = (
        "import sys\n"
        "for name in ('numpy', 'msgspec', 'cyclopts', 'gnomon._core'): sys.modules[name] = None\n"
        "from gnomon.systems.training import record\n"
        "from gnomon.systems.training.recording.autostep import AutoStep\n"
        "print(callable(record), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_what_a_trace_says_of_its_machine_is_taken_out(tmp_path):
    raw = tmp_path / "raw"
    raw.write_text(
        '{\n  "host_name": "node \\"7\\"",\n  "traceEvents": [\n  {"name": "traceName"},\n'
        '  {"args": {"host_name": "kept"}}\n  ],"traceName": "/home/me/x.json" }'
    )
    for name in ("a.json.gz", "b.json.gz"):
        pack_trace(raw, tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
    packed = json.loads(gzip.decompress((tmp_path / "a.json.gz").read_bytes()))
    assert packed["host_name"] == packed["traceName"] == ""
    assert packed["traceEvents"] == [{"name": "traceName"}, {"args": {"host_name": "kept"}}]


class FakeCuda:
    """A device whose clock runs ten times as fast as the order of calls."""

    def __init__(self, initialized=True):
        self.calls, self.initialized = [], initialized
        self.Event = lambda enable_timing: self.Mark(self)

    class Mark:
        def __init__(self, cuda):
            self.cuda = cuda

        def record(self):
            self.at = len(self.cuda.calls)
            self.cuda.calls.append("event")

        def elapsed_time(self, other):
            return 10.0 * (other.at - self.at)

    def is_available(self):
        return True

    def is_initialized(self):
        return self.initialized

    def synchronize(self):
        assert self.initialized, "would have made a context on a device nobody uses"
        self.calls.append("synchronize")


def test_on_a_gpu_events_lie_between_two_synchronisations():
    cuda = FakeCuda()
    laps = _Laps(types.SimpleNamespace(cuda=cuda))
    laps.start()
    laps.lap()
    laps.lap()
    laps.stop()
    assert cuda.calls == ["synchronize", "event", "event", "event", "synchronize"]
    assert laps.step_ms == [10.0, 10.0]
    assert laps.key == "step_ms_event"
    assert laps.wall_ms > 0


def test_a_gpu_that_nobody_uses_is_not_touched():
    cuda = FakeCuda(initialized=False)
    laps = _Laps(types.SimpleNamespace(cuda=cuda))
    laps.start()
    laps.lap()
    laps.stop()
    assert cuda.calls == []
    assert len(laps) == 1
    assert laps.key == "step_ms"


def test_the_time_around_all_steps_is_that_of_all(monkeypatch):
    seconds = iter([1.0, 1.0, 1.2, 1.5, 1.6, 1.6])  # begin, four marks, end
    clock = types.SimpleNamespace(perf_counter=lambda: next(seconds))
    monkeypatch.setattr("gnomon.systems.training.recording.recorder.time", clock)
    laps = _Laps(types.SimpleNamespace(cuda=FakeCuda(initialized=False)))
    laps.start()
    for _ in range(3):
        laps.lap()
    laps.stop()
    assert laps.step_ms == pytest.approx([200, 300, 100])
    assert laps.wall_ms == pytest.approx(200)


class FakeOptimizer:
    """Wraps `step` of each class once, as torch does."""

    @staticmethod
    def profile_hook_step(step):
        return lambda *args: step(*args)

    def __init__(self):
        if not hasattr(type(self).step, "hooked"):
            type(self).step = self.profile_hook_step(type(self).step)
            type(self).step.hooked = True

    def step(self):
        return "stepped"


def fake_optimizers():
    class Parent(FakeOptimizer):
        def step(self):
            return "parent"

    class Child(Parent):
        def step(self):
            return f"child of {super().step()}"

    return types.SimpleNamespace(Optimizer=FakeOptimizer), Parent, Child


def test_a_step_inside_a_step_counts_once(monkeypatch):
    pytest.importorskip("torch", reason="torch is not installed")
    module, parent, child = fake_optimizers()
    monkeypatch.setattr(FakeOptimizer, "profile_hook_step", FakeOptimizer.profile_hook_step)
    seen = []
    autostep.watch_optimizers(module, seen.append)
    one, two = parent(), child()
    assert two.step() == "child of parent"
    assert seen == [two]
    assert one.step() == "parent"
    assert seen == [two, one]


def test_torch_without_that_wrapper_has_a_hook():
    seen, hooks = [], []
    module = types.SimpleNamespace(
        Optimizer=object, register_optimizer_step_post_hook=hooks.append
    )
    autostep.watch_optimizers(module, seen.append)
    hooks[0]("optimizer", (), {})
    assert seen == ["optimizer"]


@pytest.fixture
def automatic(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    steps = []

    class Counting(autostep.AutoStep):
        def _step(self):
            steps.append(self._first())

    return Counting(str(tmp_path), "run", {}), steps


def test_only_the_first_optimizer_counts(automatic):
    watch, steps = automatic
    first, second = FakeOptimizer(), FakeOptimizer()
    for optimizer in (first, second, first, second):
        watch(optimizer)
    assert steps == [first, first]
    steps.clear()
    del first, optimizer  # it is gone: the next one takes its place
    watch(second)
    assert steps == [second]


def test_only_one_process_may_record(tmp_path):
    claim, trace = tmp_path / ".claim-kineto.json.gz", tmp_path / "kineto.json.gz"
    assert autostep._claim(claim, trace)
    assert not autostep._claim(claim, trace)  # we are alive
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    claim.write_text(str(ended.pid))
    assert autostep._claim(claim, trace)  # it died before it had a trace
    claim.write_text(str(ended.pid))
    trace.touch()
    assert not autostep._claim(claim, trace)


def test_recorder_is_what_record_returns(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    assert isinstance(record(tmp_path), Recorder)
    assert RecordOptions().total == 24
