"""gnomon services explore and plan: promises to scripts, resuming, wrong input."""

from __future__ import annotations

import pytest
from tests.cli.refusal import answer, refused

from gnomon.cli import main

TWO = """
name: two
services:
  web: {workers: 2, cpu_limit: 0.5, cpu_min: 0.05, cpu_max: 1, pools: {db: 4}}
  db: {workers: 2, cpu_limit: 0.5, cpu_min: 0.05, cpu_max: 1}
classes:
  get:
    sla: {bound_ms: BOUND}
    call: {service: web, cpu_ms: 1, then: [{service: db, cpu_ms: 2}]}
"""


@pytest.fixture(scope="module")
def explored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explored")
    (folder / "two.yaml").write_text(TWO.replace("BOUND", "150"))
    assert (
        main(["services", "explore", str(folder / "two.yaml"), "-o", str(folder / "x.json")]) == 0
    )
    return folder


def test_a_plan_answers_what_it_promises(explored, capsys):
    got = answer(capsys, "services", "plan", str(explored / "two.yaml"), str(explored / "x.json"))
    assert got["binding"] == "get"
    assert 0.3 < got["cores"] <= got["union_cores"]
    assert set(got["services"]) == {"web", "db"}
    about = got["classes"]["get"]
    assert about["expected_ms"] <= about["bound_ms"] == 150
    assert sum(about["share_ms"].values()) == pytest.approx(about["expected_ms"], rel=0.15)


def test_a_second_exploration_finds_nothing_to_do(explored, capsys):
    args = ["services", "explore", str(explored / "two.yaml"), "-o", str(explored / "x.json")]
    assert main(args) == 0
    assert "1 of" not in capsys.readouterr().err
    assert main([*args, "--only", "db"]) == 0
    assert "1 of 1: db" in capsys.readouterr().err


def test_an_sla_that_cannot_be_met_is_a_no(explored, capsys, tmp_path):
    tight = tmp_path / "tight.yaml"
    tight.write_text(TWO.replace("BOUND", "3"))
    assert main(["services", "plan", str(tight), str(explored / "x.json")]) == 3
    assert "keep the SLA of get" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["plan", "APP", "none.json"], "No such file"),
        (["plan", "APP", "APP"], "is not an exploration"),
        (["plan", "bundled:starter", "FOUND"], "was not explored"),
        (["plan", "APP", "FOUND", "--rps", "0"], "--rps 0"),
        (["plan", "SLOWER", "FOUND"], "db changed since"),
        (["plan", "NO_SLA", "FOUND"], "no class has an SLA"),
        (["explore", "bundled:starter", "-o", "FOUND"], "is of two, not of starter"),
        (["simulate", "APP", "--manager", "ursa?explored="], "explored is empty"),
        (["simulate", "bundled:starter", "--manager", "ursa?explored=FOUND"], "was not explored"),
        (["simulate", "APP", "--manager", "ursa?rise=nan"], "rise is nan"),
        (["plan", "APP", "FOUND", "--traces", "none.json"], "none.json"),
        (["explore", "APP", "-o", "/nonexistent/x.json"], "/nonexistent"),
        (["explore", "APP", "-o", "y.json", "--levels", "0,x"], "--levels"),
        (["explore", "APP", "-o", "y.json", "--only", "nobody"], "there is no service 'nobody'"),
        (["simulate", "APP", "--manager", "ursa?explored=none.json"], "No such file"),
        (["simulate", "APP", "--manager", "ursa?decomposition=x"], "joint or union"),
    ],
)
def test_wrong_input_gets_one_line(explored, capsys, args, says, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    names = {"APP": str(explored / "two.yaml"), "FOUND": str(explored / "x.json"),
             "SLOWER": str(explored / "slower.yaml"), "NO_SLA": str(explored / "no-sla.yaml")}  # fmt: skip
    two = TWO.replace("BOUND", "150")
    (explored / "slower.yaml").write_text(two.replace("cpu_ms: 2", "cpu_ms: 3"))
    (explored / "no-sla.yaml").write_text(two.replace("sla: {bound_ms: 150}", "share: 1"))
    args = [one.replace("=FOUND", f"={names['FOUND']}") for one in args]
    error = refused(capsys, "services", *(names.get(one, one) for one in args))
    assert says in error


def test_a_wrapped_manager_is_prepared_too(capsys, monkeypatch, tmp_path, explored):
    monkeypatch.setenv("GNOMON_CACHE", str(tmp_path / "cache"))
    got = answer(capsys, "services", "simulate", explored / "two.yaml", "--manager", "relax?zone=DE:ursa",
                 "--duration", "60s")  # fmt: skip
    assert got["managers"]["relax?zone=DE:ursa"]["constant"]["cpu_mean"] < 1.5  # of a cap of 2


def test_ursa_explores_by_itself_once(capsys, monkeypatch, tmp_path, explored):
    monkeypatch.setenv("GNOMON_CACHE", str(tmp_path / "cache"))
    args = [
        "services",
        "simulate",
        str(explored / "two.yaml"),
        "--manager",
        "ursa",
        "--duration",
        "20s",
    ]
    assert main(args) == 0
    assert "exploring two" in capsys.readouterr().err
    assert main(args) == 0
    assert "exploring" not in capsys.readouterr().err
