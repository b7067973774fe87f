"""gnomon aibench: what is printed, what is written, what is refused."""

from __future__ import annotations

import gzip
import json

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from tests.cli.refusal import answer, refused

from gnomon.cli import main
from gnomon.datasets import bundled

TRACES = bundled("cpu-gpt-mini")


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    folder = tmp_path_factory.mktemp("aibench") / "bench"
    assert main(["aibench", "build", "bundled:cpu-gpt-mini", "-o", str(folder)]) == 0
    return folder


def test_build_gives_scripts_what_it_promises(tmp_path, capsys):
    found = answer(capsys, "aibench", "build", "bundled:cpu-gpt-mini", "-o", tmp_path / "b")
    assert found["coverage_ops_pct"] == 100.0
    assert found["coverage_time_pct"] == pytest.approx(100.0)
    assert found["placeholders"] == {}
    assert found["ops"] == 270
    assert found["bytes"] == sum(p.stat().st_size for p in (tmp_path / "b").rglob("*"))
    assert {p.name for p in (tmp_path / "b").iterdir()} >= {
        "run.py",
        "README.md",
        "program.json.gz",
    }


def test_build_names_traces_in_a_folder_or_one_by_one(tmp_path, capsys):
    whole = answer(capsys, "aibench", "build", TRACES, "-o", tmp_path / "a")
    parts = answer(
        capsys, "aibench", "build", TRACES / "et.json.gz", "--kineto", TRACES / "kineto.json.gz",
        "-o", tmp_path / "b",
    )  # fmt: skip
    assert whole["ops"] == parts["ops"]
    same = [(tmp_path / name / "program.json.gz").read_bytes() for name in "ab"]
    assert same[0] == same[1]


def test_a_benchmark_is_not_replaced_unasked(bench, tmp_path, capsys):
    before = (bench / "program.json.gz").read_bytes()
    assert "add --force" in refused(capsys, "aibench", "build", TRACES, "-o", bench)
    assert (bench / "program.json.gz").read_bytes() == before
    other = tmp_path / "mine"
    other.mkdir()
    (other / "thesis.txt").write_text("years")
    assert "already there" in refused(capsys, "aibench", "build", TRACES, "-o", other, "--force")
    assert (other / "thesis.txt").read_text() == "years"


def test_audit_is_clean_and_finds_what_was_left(bench, tmp_path, capsys):
    clean = answer(capsys, "aibench", "audit", bench, "--against", TRACES)
    assert clean["clean"]
    assert clean["searched"] > 100
    import shutil

    leaking = tmp_path / "leaking"
    shutil.copytree(bench, leaking)
    with (leaking / "README.md").open("a") as readme:
        readme.write("recorded inside Optimizer.step#AdamW.step\n")
    found = answer(capsys, "aibench", "audit", leaking, "--against", TRACES, code=3)
    assert found["found"][0]["file"] == "README.md"


def test_check_runs_the_clone_and_tells(bench, capsys):
    """Another machine, another speed; what is called is the same."""
    code = main(["aibench", "check", str(bench), "--trace", str(TRACES), "--steps", "3", "--json"])
    assert code in (0, 3)
    found = json.loads(capsys.readouterr().out)
    products = next(row for row in found["counts"] if "gemm" in row.values())
    assert products["difference_pct"] == 0.0
    assert found["agrees"] is (code == 0)


def rewritten(tmp_path, change):
    trace = json.loads(gzip.decompress((TRACES / "et.json.gz").read_bytes()))
    change(trace)
    path = tmp_path / "et.json"
    path.write_text(json.dumps(trace))
    return path


def cut(tmp_path):
    path = tmp_path / "et.json.gz"
    path.write_bytes((TRACES / "et.json.gz").read_bytes()[:9_000])
    return path


def cut_plain(tmp_path):
    path = tmp_path / "et.json"
    path.write_bytes(gzip.decompress((TRACES / "et.json.gz").read_bytes())[:90_000])
    return path


def without_a_parent(trace):
    parents = {node["ctrl_deps"] for node in trace["nodes"] if node["id"] > 50}
    gone = min(p for p in parents if p > 20)
    trace["nodes"] = [node for node in trace["nodes"] if node["id"] != gone]


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (cut, "cut short"),
        (cut_plain, "cut short"),
        (lambda t: rewritten(t, lambda d: d.update(schema="9.9.9")), "'9.9.9' is not known"),
        (lambda t: rewritten(t, without_a_parent), "which is not there"),
        (lambda t: rewritten(t, lambda d: d.update(nodes=[])), "no nodes"),
        (lambda t: TRACES / "kineto.json.gz", "this is a PyTorch profiler trace"),
        (lambda t: t / "nothing.json", "cannot be read"),
        (lambda t: t, "no et.json"),
    ],
)
def test_malformed_traces_are_one_line(make, what, tmp_path, capsys):
    line = refused(capsys, "aibench", "build", make(tmp_path), "-o", tmp_path / "bench")
    assert what in line
    assert not (tmp_path / "bench").exists()


def test_traces_of_two_jobs_do_not_fit(tmp_path, capsys):
    line = refused(
        capsys, "aibench", "build", TRACES / "et.json.gz",
        "--kineto", bundled("cpu-gpt-pp4") / "rank0.json.gz", "-o", tmp_path / "bench",
    )  # fmt: skip
    assert "is it of the same job" in line


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--emulate-world", "0"], "a job of 0 ranks"),
        (["--kernels", "/nowhere"], "is not a folder"),
        (["--constructors", "/nowhere.py"], "/nowhere.py"),
    ],
)
def test_wrong_options_are_one_line(options, what, tmp_path, capsys):
    assert what in refused(capsys, "aibench", "build", TRACES, "-o", tmp_path / "bench", *options)
