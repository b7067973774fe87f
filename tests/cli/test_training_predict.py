"""gnomon training predict and search, as a user meets them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gnomon.cli import main

TRACE = "bundled:h200-gpt-l6"
MODEL = "layers=8,hidden=1024,heads=16,seq=1024,batch=4"


def run(*words, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "gnomon.cli", "training", *map(str, words)],
        capture_output=True, text=True, timeout=240, cwd=cwd, check=False,
    )  # fmt: skip


def asked(capsys, *words, code=0):
    assert main(["training", *words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_prediction_has_what_was_promised(tmp_path):
    done = run("predict", TRACE, "--set", "layers=12", "--set", "hidden=1024", "--json",
               "--html", "p.html", "--perfetto", "p.pftrace", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["base"]["layers"] == 6
    assert told["target"]["layers"] == 12
    assert told["target"]["heads"] == 8
    assert told["low_ms"] < told["predicted_ms"] < told["high_ms"]
    assert told["fits"] is True
    assert told["memory_gib"] > 1
    assert [row["change"] for row in told["waterfall"]] == ["layers", "shape"]
    page = (tmp_path / "p.html").read_text()
    assert "From base to prediction" in page
    assert "Predicted step" in page
    assert (tmp_path / "p.pftrace").stat().st_size > 10_000


def test_a_table_is_what_people_get(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["training", "predict", TRACE, "--set", "tp=2,dp=4", "--zone", "DE"]) == 0
    text = capsys.readouterr().out
    for words in ("Step, predicted", "Peak memory of a rank", "tensor parallelism", "alpha-beta",
                  "Carbon of a million tokens"):  # fmt: skip
        assert words in text


def test_no_trace_is_needed(capsys):
    told = asked(capsys, "predict", "--model", MODEL, "--gpu", "a100", "--set", "dp=8,tp=2")
    assert told["target"]["gpu"] == "A100"
    assert told["target"]["dp"] == 8
    assert told["predicted_ms"] > 0


def test_what_does_not_fit_is_an_answer_of_its_own(capsys):
    told = asked(capsys, "predict", TRACE, "--set", "layers=96,hidden=8192", code=3)
    assert told["fits"] is False
    assert told["over_gib"] > 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["predict"], "nothing to predict from"),
        (["predict", TRACE, "--set", "hiden=3"], "knows no 'hiden'"),
        (["predict", TRACE, "--set", "layers=many"], "layers is a whole number"),
        (["predict", TRACE, "--set", "heads=7"], "does not divide into 7 heads"),
        (["predict", TRACE, "--set", "gpu=abacus"], "abacus"),
        (["predict", TRACE, "--set", "dp=16,network=string"], "string"),
        (["predict", TRACE, "--base", "layers=0"], "layers has to be at least 1"),
        (["predict", TRACE, "--model", MODEL], "one or the other"),
        (["predict", TRACE, "--zone", "Atlantis"], "no grid zone is called 'Atlantis'"),
        (["predict", "--model", "layers=3", "--gpu", "a100"], "needs hidden, heads, seq, batch"),
        (["predict", "--model", MODEL], "needs --gpu"),
        (["predict", "--model", MODEL, "--gpu", "a100", "--style", "baroque"], "baroque"),
        (["predict", "missing.json"], "check the path"),
        (["search", TRACE, "--gpus", "0"], "at least one"),
        (["search", TRACE, "--gpus", "8", "--rank-by", "beauty"], "beauty"),
        (["search", TRACE, "--gpus", "8", "--on", "moon"], "moon"),
    ],
)
def test_mistakes_are_told_in_one_line(words, line, capsys):
    assert main(["training", *words]) == 2
    told = capsys.readouterr().err
    assert told.startswith("gnomon: ")
    assert told.count("\n") == 1
    assert line in told


def test_a_search_ranks_what_fits_and_says_what_does_not(capsys):
    told = asked(
        capsys, "search", TRACE, "--gpus", "16", "--memory", "40", "--set",
        "layers=32,hidden=4096", "--global-batch", "64", "--on", "serial", "--zone", "300",
    )  # fmt: skip
    rows = told["rows"]
    assert told["evaluated"] == len(rows) > 3
    assert told["dropped"]
    assert all(row["memory_gib"] <= 40 for row in rows)
    assert all(one["over_gib"] > 0 and "GiB" in one["reason"] for one in told["dropped"])
    for row in rows + told["dropped"]:
        assert row["tp"] * row["pp"] * row["dp"] == 16
        assert row["batch"] * row["accumulation"] * row["dp"] == 64
    assert [row["step_ms"] for row in rows] == sorted(row["step_ms"] for row in rows)
    assert told["best"]["step_ms"] == rows[0]["step_ms"]
    assert rows[0] in told["pareto"]
    assert told["best"]["low_ms"] < told["best"]["full_ms"] < told["best"]["high_ms"]
    assert rows[0]["carbon_g"] == pytest.approx(rows[0]["energy_kwh"] * 300, rel=1e-2)


def test_a_search_without_a_trace_and_its_page(capsys, tmp_path):
    page = tmp_path / "s.html"
    words = ["search", "--model", MODEL, "--gpu", "h100", "--gpus", "8", "--price", "2.5",
             "--html", str(page), "--on", "serial"]  # fmt: skip
    assert main(["training", *words]) == 0
    text = capsys.readouterr().out
    assert "Pareto front" in text
    assert "Layouts a second" in text
    assert "Step against memory" in page.read_text()


def test_what_nobody_gave_is_not_zero(capsys):
    told = asked(capsys, "search", TRACE, "--gpus", "4", "--gpu", "a100", "--on", "serial")
    assert {row["cost_usd"] for row in told["rows"]} == {None}
    assert {row["carbon_g"] for row in told["rows"]} == {None}


def test_experts_are_shared_out_in_a_search(capsys):
    told = asked(
        capsys, "search", "--model", f"{MODEL},experts=8,top_k=2", "--gpu", "h100", "--gpus", "8",
        "--set", "ep=4", "--on", "serial",
    )  # fmt: skip
    assert told["configuration"]["ep"] == 4
    assert told["rows"]
    assert all(row["dp"] * row["tp"] % 4 == 0 for row in told["rows"])


def test_a_search_in_which_nothing_fits(capsys):
    told = asked(capsys, "search", TRACE, "--gpus", "2", "--memory", "1", "--on", "serial", code=3)
    assert told["evaluated"] == 0
    assert told["best"] is None
    assert told["dropped"]
