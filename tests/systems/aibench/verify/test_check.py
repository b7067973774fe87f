"""Does the check distinguish a clone that behaves from one that does not?"""

from __future__ import annotations

import gzip
import json
import sys
import textwrap

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon import report
from gnomon.datasets import bundled
from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.model.accelerator.operator_family import FRAMEWORK
from gnomon.systems.aibench.verify.check import check_bench, clone_profile, original_profile
from gnomon.systems.aibench.verify.check_result import to_result, to_script
from gnomon.systems.aibench.verify.clone_run import (
    CloneRun,
    clone_run_of,
    read_clone_run,
    run_clone,
)
from gnomon.systems.aibench.verify.comparison import Row, Tolerance, compare_profiles
from gnomon.systems.aibench.verify.profile import PLACEHOLDER, UNNAMED, Profile
from tests.sim.trace.traces import write_trace
from tests.systems.aibench.verify.test_profile import GPU, H200, lagging_steps

H200_TRACE = bundled("h200-gpt-l6") / "kineto.json.gz"
CPU_TRACE = bundled("cpu-gpt-pp4") / "rank0.json.gz"


def gpu_profile(step_ms=10.0, device="NVIDIA X1", step_from="measured", **kernel_ms):
    kernel_ms = kernel_ms or {"gemm": 6.0, "attention": 3.0, "copy": 0.1}
    step = step_ms if isinstance(step_ms, Estimate) else Estimate.exact(step_ms)
    return Profile(
        "t.json", device, True, step, step_from, 3, 2 * len(kernel_ms), kernel_ms,
        dict.fromkeys(kernel_ms, 2), {}, {}, (80.0, 20.0), 9.0, 90.0, 50, 2**30, 400.0,
    )  # fmt: skip


def cpu_profile(step_ms=10.0, **operator_ms):
    operator_ms = operator_ms or {"gemm": 6.0}
    return Profile(
        "t.json", "CPU", False, Estimate.exact(step_ms), "measured", 2, 0, {}, {}, operator_ms,
        dict.fromkeys(operator_ms, 2), (), None, None, 40,
    )  # fmt: skip


def row(check, name):
    return next(row for row in check.rows if row.name == name)


def family(check, name):
    return next(row for row in check.families if row.name == name)


# -- the verdict -----------------------------------------------------------------------------


def test_a_profile_agrees_with_itself():
    check = compare_profiles(gpu_profile(), gpu_profile())
    assert check.agrees is True
    assert check.against == check.notes == ()
    assert {row.difference_pct for row in check.every_row} == {0.0}
    assert {row.verdict for row in check.every_row} == {"agrees"}
    assert [row.name for row in check.every_row if row.decides] == ["step", "gemm", "attention"]


def test_the_step_decides():
    slow = compare_profiles(gpu_profile(10.0), gpu_profile(11.1))
    assert slow.agrees is False
    assert [row.name for row in slow.against] == ["step"]
    assert row(slow, "step").difference_pct == pytest.approx(11.0)
    lenient = Tolerance(step_pct=12.0)
    assert compare_profiles(gpu_profile(10.0), gpu_profile(11.1), tolerance=lenient).agrees


def test_families_that_matter_decide():
    one = gpu_profile(gemm=6.0, attention=3.0, copy=0.1)
    off = compare_profiles(one, gpu_profile(gemm=6.0, attention=3.4, copy=0.1))
    assert [row.name for row in off.against] == ["attention"]
    small = compare_profiles(one, gpu_profile(gemm=6.0, attention=3.0, copy=0.15))
    assert small.agrees is True
    assert family(small, "copy").verdict == "differs"
    strict = Tolerance(share_pct=1.0)
    again = compare_profiles(one, gpu_profile(gemm=6.0, attention=3.0, copy=0.15),
                             tolerance=strict)  # fmt: skip
    assert again.agrees is False


def test_a_family_that_only_one_has_is_seen():
    one, two = gpu_profile(gemm=6.0, attention=3.0), gpu_profile(gemm=6.0)
    missing, added = compare_profiles(one, two), compare_profiles(two, one)
    assert family(missing, "attention").difference_pct == pytest.approx(-100.0)
    assert family(added, "attention").difference_pct is None
    for check in (missing, added):
        assert [row.name for row in check.against] == ["attention"]
    assert "attention (only one has it)" in to_result(added).notes[0]


def test_what_the_host_wraps_around_operators_decides_nothing():
    one = cpu_profile(gemm=6.0, **{FRAMEWORK: 3.0})
    check = compare_profiles(one, cpu_profile(gemm=6.0))
    assert family(check, FRAMEWORK).verdict == "differs"
    assert check.agrees is True


def test_an_estimated_step_is_not_held_against_the_clone():
    guess = Estimate(9.0, 10.0, 12.0)
    estimated = gpu_profile(guess, step_from="estimated")
    assert compare_profiles(estimated, gpu_profile(13.0)).agrees is True  # 8 % above the range
    assert compare_profiles(estimated, gpu_profile(13.3)).agrees is False
    assert compare_profiles(estimated, gpu_profile(8.2)).agrees is True
    assert compare_profiles(estimated, gpu_profile(8.0)).agrees is False
    assert compare_profiles(gpu_profile(13.0), estimated).agrees is True
    # The spread of steps that were measured excuses nothing.
    spread = gpu_profile(guess)
    assert compare_profiles(spread, gpu_profile(11.5)).agrees is False
    (note,) = compare_profiles(estimated, gpu_profile()).notes
    assert note == (
        "the original's step was not measured without the profiler: 10 ms is estimated from its "
        "profile, 9 to 12"
    )


def test_placeholders_are_reported():
    check = compare_profiles(
        gpu_profile(gemm=6.0, elementwise=1.0), gpu_profile(gemm=6.0, **{PLACEHOLDER: 1.0})
    )
    assert {row.name for row in check.against} == {"elementwise", PLACEHOLDER}
    assert "1 ms of the clone's step are placeholder kernels" in check.notes[0]


def test_percentages_differ_in_points():
    one, two = gpu_profile(), msgspec.structs.replace(gpu_profile(), busy_pct=81.0)
    busy = row(compare_profiles(one, two), "device busy, profiled")
    assert busy.difference_pct == pytest.approx(-9.0)
    assert busy.verdict == "agrees"


def test_what_one_does_not_know_is_not_judged():
    unknown = msgspec.structs.replace(gpu_profile(), power_w=None)
    check = compare_profiles(gpu_profile(), unknown)
    power = row(check, "power")
    assert (power.original, power.clone) == (400.0, None)
    assert (power.difference_pct, power.verdict) == (None, "not judged")
    assert check.agrees is True
    neither = compare_profiles(unknown, unknown)
    assert "power" not in [row.name for row in neither.rows]


@pytest.mark.parametrize("bad", [{"step_pct": -1.0}, {"family_pct": float("nan")}])
def test_tolerances_are_numbers(bad):
    with pytest.raises(InputError, match="has to be zero or more"):
        Tolerance(**bad)


# -- other devices ---------------------------------------------------------------------------


def test_between_gpu_and_cpu_only_the_host_is_compared():
    check = compare_profiles(gpu_profile(), cpu_profile())
    assert (check.basis, check.agrees) == ("another kind of device", None)
    assert [row.name for row in check.every_row] == ["host operators per step"]
    assert "not comparable" in check.notes[0]
    result = to_result(check)
    assert result.figure("verdict").value == "not judged"
    assert "step_difference_pct" not in [figure.name for figure in result.figures]
    assert result.charts == []


def test_between_two_gpus_differences_are_shown_and_not_judged():
    check = compare_profiles(gpu_profile(), gpu_profile(5.0, device="NVIDIA X2"))
    assert (check.basis, check.agrees, check.against) == ("another device", None, ())
    assert row(check, "step").difference_pct == pytest.approx(-50.0)
    assert {row.verdict for row in check.every_row} == {"not judged"}
    assert "the original ran on NVIDIA X1, the clone on NVIDIA X2" in check.notes[0]


def test_a_gpu_without_a_name_is_taken_for_the_same():
    check = compare_profiles(gpu_profile(), gpu_profile(device=UNNAMED))
    assert check.agrees is True
    assert "does not name its GPU" in check.notes[0]


# -- properties ------------------------------------------------------------------------------

times = st.dictionaries(
    st.sampled_from(["gemm", "attention", "copy", "other"]), st.floats(0.01, 100), min_size=1
)
profiles = st.builds(
    lambda step, kernel_ms, peak, power: msgspec.structs.replace(
        gpu_profile(step, **kernel_ms), peak_bytes=peak, power_w=power
    ),
    st.floats(0.1, 1000), times, st.floats(1, 1e12), st.floats(1, 1000) | st.none(),
)  # fmt: skip


@given(profiles, profiles)
def test_prop_the_sign_turns_when_the_two_are_swapped(one, two):
    there, back = compare_profiles(one, two), compare_profiles(two, one)
    other = {
        (kind, row.name): row
        for kind in ("rows", "families", "counts") for row in getattr(back, kind)
    }  # fmt: skip
    assert len(other) == len(there.every_row)
    for kind in ("rows", "families", "counts"):
        for row in getattr(there, kind):
            twin = other[kind, row.name]
            assert row.decides == twin.decides
            a, b = row.difference_pct, twin.difference_pct
            if a is None or b is None:
                # None of both: one of them lacks it; -100 % the other way round.
                assert {a, b} <= {None, -100.0}
            else:
                assert (a > 0) == (b < 0)
                assert (a == 0) == (b == 0)


@given(profiles)
def test_prop_nothing_differs_from_itself(one):
    check = compare_profiles(one, one, tolerance=Tolerance(0.0, 0.0, 0.0))
    assert check.agrees is True
    assert all(row.difference_pct in (0.0, None) for row in check.every_row)


@given(st.floats(0.1, 1e6), st.floats(0.1, 1e6), st.floats(0, 100))
def test_prop_a_row_agrees_within_its_tolerance(original, clone, tolerance):
    row = Row("x", original, clone, "ms", tolerance)
    assert (row.verdict == "agrees") == (abs(row.difference_pct) <= tolerance)


# -- real traces -----------------------------------------------------------------------------


@pytest.mark.data
@pytest.mark.parametrize("workload", H200)
def test_real_traces_agree_with_themselves(public_data, workload):
    profile = original_profile(public_data / "h200" / workload / "kineto.json.gz")
    assert profile.step_from == "measured"
    check = compare_profiles(profile, profile)
    assert check.agrees is True
    assert {row.difference_pct for row in check.every_row} == {0.0}
    assert {"peak memory", "power", "streams", "device busy"} <= {r.name for r in check.rows}


@pytest.mark.data
@pytest.mark.parametrize("workload", ["pair-overlap", "pair-cpubound"])
def test_the_same_job_profiled_otherwise_agrees(public_data, workload):
    """What slows the host, frames and shapes, must not show in the kernels."""
    folder = public_data / "h200-pairs" / workload
    check = compare_profiles(
        original_profile(folder / "plain.json.gz"), original_profile(folder / "stack.json.gz"),
        tolerance=Tolerance(1.0, 1.0, 1.0),
    )  # fmt: skip
    assert check.agrees is True
    assert all(row.difference_pct == 0.0 for row in check.counts)


@pytest.mark.data
def test_different_jobs_differ(public_data):
    one, two = (
        original_profile(public_data / "h200" / name / "kineto.json.gz")
        for name in ("gpt-base", "gpt-h1024")
    )
    assert compare_profiles(one, two).agrees is False


def test_the_bundled_cpu_trace_agrees_with_itself():
    profile = original_profile(CPU_TRACE)
    check = compare_profiles(profile, profile)
    assert check.agrees is True
    assert family(check, "gemm").decides
    assert "device time per step" not in [row.name for row in check.rows]
    result = to_result(check)
    assert result.charts[0].title == "Operator time by family per step"


# -- the original's step ---------------------------------------------------------------------


def test_the_step_is_the_given_the_measured_or_the_estimated_one(tmp_path):
    measured = original_profile(H200_TRACE)
    assert measured.step_from == "measured"
    assert measured.step_ms.low < measured.step_ms.mid < measured.step_ms.high
    assert measured.power_w is not None
    assert measured.peak_bytes is not None
    given_ = original_profile(H200_TRACE, 50.0)
    assert (given_.step_from, given_.step_ms) == ("given", Estimate.exact(50.0))
    assert given_.peak_bytes == measured.peak_bytes
    (tmp_path / "alone.json.gz").write_bytes(H200_TRACE.read_bytes())
    estimated = original_profile(tmp_path / "alone.json.gz")
    assert estimated.step_from == "estimated"
    assert estimated.step_ms.contains(measured.step_ms.mid)
    assert estimated.power_w is estimated.peak_bytes is None


@pytest.mark.parametrize("step_ms", [0.0, -1.0, float("nan"), float("inf")])
def test_a_given_step_takes_some_time(step_ms):
    with pytest.raises(InputError, match="it has to take some time"):
        original_profile(H200_TRACE, step_ms)


def test_what_lies_beside_the_clones_profile_is_not_its_own():
    clone = clone_profile(H200_TRACE, None)
    assert (clone.step_from, clone.peak_bytes, clone.power_w) == ("estimated", None, None)
    run = CloneRun([40.0, 50.0, 60.0], 50.0, peak_bytes=7.0, power_w=[1.0, 3.0, 2.0])
    clone = clone_profile(H200_TRACE, run)
    assert (clone.step_from, clone.step_ms.mid) == ("measured", 50.0)
    assert (clone.peak_bytes, clone.power_w) == (7.0, 2.0)


# -- running a clone -------------------------------------------------------------------------

PROGRAM = """
    import argparse, json, shutil, sys
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--profile")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--device", default="cuda")
    asked = parser.parse_args()
    print("measuring", file=sys.stderr)
    shutil.copy({trace!r}, asked.profile)
    print(json.dumps({{
        "step_ms": [{step}] * asked.steps, "median_ms": {step}, "ops": 9, "replayed": 8,
        "placeholders": 1, "skipped": 0, "coverage_ops_pct": 88.9, "coverage_time_pct": 99.5,
        "peak_bytes": 1073741824, "power_w": [300, 400, 500], "torch": "2.0",
        "device": asked.device,
    }}))
"""


def bench(folder, program=PROGRAM, **values):
    folder.mkdir(exist_ok=True)
    text = textwrap.dedent(program)
    (folder / "run.py").write_text(text.format(**values) if values else text)
    return folder


@pytest.fixture
def recorded(tmp_path):
    """A trace and what was measured beside it."""
    folder = tmp_path / "original"
    trace = folder / "kineto.json.gz"
    folder.mkdir()
    plain = write_trace(tmp_path / "plain.json", *lagging_steps(), **GPU)
    trace.write_bytes(gzip.compress(plain.read_bytes()))
    (folder / "meta.json").write_text('{"step_ms_median": 0.11, "peak_bytes": 1073741824}')
    return trace


def rewritten(trace, path, factor):
    """The trace with its products' durations scaled: a clone that is off in one family."""
    content = json.loads(gzip.decompress(trace.read_bytes()))
    for event in content["traceEvents"]:
        if event["name"] == "gemm":
            event["dur"] *= factor
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return path


def test_a_clone_is_run_and_compared(tmp_path, recorded, capfd):
    folder = bench(tmp_path / "bench", trace=str(recorded), step=0.112)
    check = check_bench(folder, recorded, steps=5)
    assert check.agrees is True
    assert row(check, "step").difference_pct == pytest.approx(1.818, abs=1e-3)
    assert row(check, "peak memory").difference_pct == 0.0
    assert check.run is not None
    assert len(check.run.step_ms) == 5
    assert [file.name for file in check.inputs] == ["bench", "kineto.json.gz"]
    assert capfd.readouterr().err == "measuring\n"
    assert [path.name for path in folder.iterdir()] == ["run.py"]


def test_a_family_that_is_off_is_flagged(tmp_path, recorded):
    off = rewritten(recorded, tmp_path / "clone.json.gz", 0.85)
    folder = bench(tmp_path / "bench", trace=str(off), step=0.11)
    check = check_bench(folder, recorded)
    assert check.agrees is False
    (product,) = check.against
    assert (product.name, product.difference_pct) == ("gemm", pytest.approx(-15.0))
    near = rewritten(recorded, tmp_path / "near.json.gz", 0.95)
    again = check_bench(bench(tmp_path / "bench", trace=str(near), step=0.11), recorded)
    assert again.agrees is True


def test_a_scaled_real_trace_is_flagged(tmp_path):
    """Products of the bundled trace a fifth longer, everything else as it was."""
    content = json.loads(gzip.decompress(H200_TRACE.read_bytes()))
    for event in content["traceEvents"]:
        if event.get("cat") == "kernel" and "nvjet" in event["name"]:
            event["dur"] *= 1.2
    off = tmp_path / "clone.json"
    off.write_text(json.dumps(content))
    original = original_profile(H200_TRACE)
    step = CloneRun([original.step_ms.mid])
    check = compare_profiles(original, clone_profile(off, step))
    assert [row.name for row in check.against] == ["gemm"]
    assert check.against[0].difference_pct == pytest.approx(20.0, abs=1.0)


def test_a_profile_from_elsewhere_is_compared_without_running(tmp_path, recorded):
    (tmp_path / "bench").mkdir()  # nothing in it that could be run
    answer = tmp_path / "clone.json"
    answer.write_text('{"step_ms": [0.1, 0.2], "median_ms": 0.15, "skipped": 2}')
    check = check_bench(tmp_path / "bench", recorded, clone_trace=recorded, clone_json=answer)
    assert check.clone.step_ms.mid == 0.15
    assert [file.name for file in check.inputs][-1] == "clone.json"
    assert to_result(check).figure("skipped").value == 2
    check = check_bench(tmp_path / "bench", recorded, clone_trace=recorded, step_ms=0.1)
    assert (check.run, check.clone.step_from) == (None, "estimated")
    with pytest.raises(InputError, match="but not its profile"):
        check_bench(tmp_path / "bench", recorded, clone_json=answer)


def test_what_is_asked_of_the_clone_reaches_it(tmp_path, recorded):
    folder = bench(tmp_path / "bench", trace=str(recorded), step=1.0)
    answer, trace = run_clone(folder, device="cpu", steps=2, folder=tmp_path)
    assert (answer["device"], len(answer["step_ms"])) == ("cpu", 2)
    assert trace.parent == tmp_path
    answer, trace = run_clone(folder, steps=1, extra=["--device", "other"], folder=tmp_path)
    assert answer["device"] == "other"
    assert trace.is_file()


FAILS = [
    ("import sys; sys.exit('no such device: cuda')", "the benchmark failed: no such device: cuda"),
    ("raise RuntimeError('out of memory')", "the benchmark failed: RuntimeError: out of memory"),
    ("import nothing_like_it", "'nothing_like_it'; give a Python that has it"),
    ("import os; os._exit(7)", "the benchmark failed: exit code 7, no message"),
    ("print('{}')", "the benchmark wrote no profile"),
    ("import sys; open(sys.argv[3], 'w'); print('done')", "no JSON"),
    ("import sys; open(sys.argv[3], 'w'); print([1])", "the benchmark printed no JSON object"),
]


@pytest.mark.parametrize(("program", "what"), FAILS)
def test_a_failing_clone_gives_one_clear_line(tmp_path, program, what):
    with pytest.raises(InputError) as raised:
        run_clone(bench(tmp_path / "bench", program), folder=tmp_path)
    assert what in str(raised.value)
    assert "run.py" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_nothing_to_run(tmp_path):
    with pytest.raises(InputError, match=r"there is no run\.py here"):
        run_clone(tmp_path, folder=tmp_path)
    with pytest.raises(InputError, match="cannot be started"):
        run_clone(bench(tmp_path / "bench", "pass"), folder=tmp_path, python="/no/such/python")


def test_a_much_talking_clone_does_not_block(tmp_path, recorded, capfd):
    talk = "import sys\nsys.stderr.write('x' * 99 + '\\n')\n" * 3000
    folder = bench(tmp_path / "bench", talk + "sys.exit('enough')")
    with pytest.raises(InputError, match="enough"):
        run_clone(folder, folder=tmp_path)
    assert len(capfd.readouterr().err) > 300_000


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[", "no JSON"),
        ("{}", "not the answer of a benchmark"),
        ('{"step_ms": []}', "have to take some time"),
        ('{"step_ms": [1.0, 0.0]}', "have to take some time"),
        ('{"step_ms": [1.0], "median_ms": -1.0}', "have to take some time"),
        ('{"step_ms": "fast"}', "not the answer of a benchmark"),
    ],
)
def test_another_file_than_a_clones_answer(tmp_path, text, what):
    path = tmp_path / "clone.json"
    path.write_text(text)
    with pytest.raises(InputError, match=what) as raised:
        read_clone_run(path)
    assert "clone.json" in str(raised.value)
    with pytest.raises(InputError, match="cannot be read"):
        read_clone_run(tmp_path / "absent.json")


def test_a_line_before_the_answer_is_not_the_end_of_it(tmp_path):
    path = tmp_path / "clone.json"
    path.write_text('hello\n{\n "step_ms": [2, 1, 3], "power_w": [], "more": 1}\n')
    run = read_clone_run(path)
    assert (run.step.mid, run.median_power_w) == (2.0, None)
    assert clone_run_of({"step_ms": [1.0], "power_w": 250.0}, "x").median_power_w == 250.0


# -- as a result -----------------------------------------------------------------------------


def test_the_answer_has_both_in_every_form(tmp_path, recorded, capsys):
    off = rewritten(recorded, tmp_path / "clone.json.gz", 0.5)
    folder = bench(tmp_path / "bench", trace=str(off), step=0.11)
    check = check_bench(folder, recorded)
    result = to_result(check, "gnomon aibench check bench --trace kineto.json.gz")
    assert result.figure("verdict").value == "differs"
    assert result.notes[0] == "out of tolerance: gemm (-50.0 %)"
    assert result.figure("coverage_time_pct").value == 99.5
    chart = result.charts[0]
    assert chart.categories == ["gemm", "elementwise"]
    assert [bars.name for bars in chart.series] == ["original", "clone"]
    assert chart.series[0].values == pytest.approx([0.06, 0.02])
    assert chart.series[1].values == pytest.approx([0.03, 0.02])
    page = report.render_html(result)
    assert "original: 0.06 ms" in page
    assert "clone: 0.03 ms" in page
    assert "Kernels by family, number per step" in page
    answer = json.loads(report.to_json(result, extra=to_script(check)))
    assert answer["agrees"] is False
    assert answer["against"] == ["gemm"]
    assert answer["families"][0]["difference_pct"] == -50.0
    report.print_result(result)
    assert "gemm" in capsys.readouterr().out


def test_the_same_files_give_the_same_bytes(recorded):
    checks = [
        check_bench(recorded.parent, recorded, clone_trace=recorded, step_ms=1.0) for _ in range(2)
    ]
    one, two = (report.render_html(to_result(check)) for check in checks)
    assert one == two


def test_the_python_that_runs_us_runs_the_clone(tmp_path):
    program = "import sys; sys.exit(sys.executable)"
    with pytest.raises(InputError) as raised:
        run_clone(bench(tmp_path / "bench", program), folder=tmp_path)
    assert sys.executable in str(raised.value)
