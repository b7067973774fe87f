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
    answer = json.loads(done.stdout)
    assert answer["base"]["layers"] == 6
    assert answer["target"]["layers"] == 12
    assert answer["target"]["heads"] == 8
    assert answer["low_ms"] < answer["predicted_ms"] < answer["high_ms"]
    assert answer["fits"] is True
    assert answer["memory_gib"] > 1
    assert [row["change"] for row in answer["waterfall"]] == ["layers", "shape"]
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
    answer = asked(capsys, "predict", "--model", MODEL, "--gpu", "a100", "--set", "dp=8,tp=2")
    assert answer["target"]["gpu"] == "A100"
    assert answer["target"]["dp"] == 8
    assert answer["predicted_ms"] > 0


def test_what_does_not_fit_is_an_answer_of_its_own(capsys):
    answer = asked(capsys, "predict", TRACE, "--set", "layers=96,hidden=8192", code=3)
    assert answer["fits"] is False
    assert answer["over_gib"] > 0


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
        (["predict", TRACE, "--model", MODEL], "a trace or --model"),
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
    answer = capsys.readouterr().err
    assert answer.startswith("gnomon: ")
    assert answer.count("\n") == 1
    assert line in answer


def test_a_search_ranks_what_fits_and_says_what_does_not(capsys):
    answer = asked(
        capsys, "search", TRACE, "--gpus", "16", "--memory", "40", "--set",
        "layers=32,hidden=4096", "--global-batch", "64", "--on", "serial", "--zone", "300",
    )  # fmt: skip
    rows = answer["rows"]
    assert answer["evaluated"] == len(rows) > 3
    assert answer["dropped"]
    assert all(row["memory_gib"] <= 40 for row in rows)
    assert all(one["over_gib"] > 0 and "GiB" in one["reason"] for one in answer["dropped"])
    for row in rows + answer["dropped"]:
        assert row["tp"] * row["pp"] * row["dp"] == 16
        assert row["batch"] * row["accumulation"] * row["dp"] == 64
    assert [row["step_ms"] for row in rows] == sorted(row["step_ms"] for row in rows)
    assert answer["best"]["step_ms"] == rows[0]["step_ms"]
    assert rows[0] in answer["pareto"]
    assert answer["best"]["low_ms"] < answer["best"]["full_ms"] < answer["best"]["high_ms"]
    assert rows[0]["carbon_g"] == pytest.approx(rows[0]["energy_kwh"] * 300, rel=1e-2)


def test_a_search_without_a_trace_and_its_page(capsys, tmp_path):
    page = tmp_path / "s.html"
    words = ["search", "--model", MODEL, "--gpu", "h100", "--gpus", "8", "--price", "2.5",
             "--html", str(page), "--on", "serial"]  # fmt: skip
    assert main(["training", *words]) == 0
    text = capsys.readouterr().out
    assert "Pareto front" in text
    assert "Layouts per second" in text
    assert "Step against memory" in page.read_text()


def test_what_nobody_gave_is_not_zero(capsys):
    answer = asked(capsys, "search", TRACE, "--gpus", "4", "--gpu", "a100", "--on", "serial")
    assert {row["cost_usd"] for row in answer["rows"]} == {None}
    assert {row["carbon_g"] for row in answer["rows"]} == {None}


def test_experts_are_shared_out_in_a_search(capsys):
    answer = asked(
        capsys, "search", "--model", f"{MODEL},experts=8,top_k=2", "--gpu", "h100", "--gpus", "8",
        "--set", "ep=4", "--on", "serial",
    )  # fmt: skip
    assert answer["configuration"]["ep"] == 4
    assert answer["rows"]
    assert all(row["dp"] * row["tp"] % 4 == 0 for row in answer["rows"])


def test_a_search_in_which_nothing_fits(capsys):
    answer = asked(
        capsys, "search", TRACE, "--gpus", "2", "--memory", "1", "--on", "serial", code=3
    )
    assert answer["evaluated"] == 0
    assert answer["best"] is None
    assert answer["dropped"]


def again(capsys, manifest):
    return asked(capsys, *manifest["command"].split()[2:])


def test_what_a_search_and_a_prediction_record_makes_them_again(capsys):
    first = asked(
        capsys, "search", "--model", MODEL, "--gpu", "a100", "--gpus", "4", "--top", "2",
        "--price", "2", "--on", "serial",
    )  # fmt: skip
    assert "--top 2" in first["manifest"]["command"]
    assert first["manifest"]["seed"] == 0  # of the range of the best
    second = again(capsys, first["manifest"])
    assert [second[key] for key in ("rows", "best", "pareto")] == [
        first[key] for key in ("rows", "best", "pareto")
    ]
    assert second["manifest"] == first["manifest"]
    predicted = asked(capsys, "predict", "--model", MODEL, "--gpu", "a100", "--set", "dp=2")
    assert again(capsys, predicted["manifest"]) == predicted


def test_a_seed_that_was_chosen_is_recorded():
    from gnomon.datasets import bundled
    from gnomon.systems.training.prediction.predict import predict
    from gnomon.systems.training.prediction.predict_result import to_result
    from gnomon.systems.training.prediction.source import read_recorded

    source, _ = read_recorded(bundled("h200-gpt-l6"))
    prediction = predict(source, {"layers": 8}, samples=20, seed=7, explain=False)
    assert to_result(prediction).manifest.seed == 7
