"""gnomon services: what it promises to scripts, and what it says to wrong input."""

from __future__ import annotations

import json

import pytest
from tests.cli.refusal import answer, refused

from gnomon.cli import main
from gnomon.cli.services.lab import parse_sweep
from gnomon.errors import InputError
from gnomon.ingest.services.application_file import read_application

SHORT = ["--duration", "20s"]
PROMISED = {"violation_pct", "cpu_mean", "cpu_p95", "p99_ms", "decisions", "energy_kwh", "carbon_g", "recovery_s",
            "manager_ms", "late_pct"}  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_simulate_answers_what_it_promises(capsys):
    got = answer(
        capsys,
        "services",
        "simulate",
        "bundled:starter",
        "--rate",
        "diurnal",
        "--manager",
        "hpa",
        *SHORT,
    )
    found = got["managers"]["hpa"]["diurnal"]
    assert set(found) >= PROMISED
    assert found["carbon_g"] is None
    assert found["p99_ms"]["get"] > 4


def test_compare_answers_for_each_manager_and_rate(capsys):
    got = answer(capsys, "services", "compare", "bundled:starter", "--managers", "static,autothrottle",
                 "--rates", "diurnal,bursty", "--zone", "DE", "--on", "serial", *SHORT)  # fmt: skip
    assert set(got["managers"]) == {"static", "autothrottle"}
    for found in got["managers"].values():
        assert set(found) == {"diurnal", "bursty"}
        assert found["diurnal"]["carbon_g"] > 0


def test_the_same_command_gives_the_same_bytes(capsys):
    def once():
        got = answer(
            capsys, "services", "simulate", "bundled:starter", "--manager", "autothrottle", *SHORT
        )
        got["managers"]["autothrottle"]["constant"].pop("manager_ms")  # a time
        return got["managers"], got["tables"]["classes"]

    assert once() == once()


def test_a_log_is_explained_and_replayed(capsys):
    assert (
        main(
            [
                "services",
                "simulate",
                "bundled:starter",
                "--manager",
                "hpa",
                "--log",
                "log.jsonl",
                *SHORT,
            ]
        )
        == 0
    )
    capsys.readouterr()
    assert answer(capsys, "services", "decisions", "log.jsonl")["figures"]["decisions"] == 20
    again = answer(capsys, "services", "decisions", "log.jsonl", "--app", "bundled:starter")
    assert again["figures"]["same_pct"] == 100
    other = answer(capsys, "services", "decisions", "log.jsonl", "--app", "bundled:starter", "--manager",
                   "autoscale-cons")  # fmt: skip
    assert other["figures"]["same_pct"] < 100
    line = refused(capsys, "services", "decisions", "log.jsonl", "--app", "bundled:social-network")
    assert "another application" in line


def test_spans_become_an_application_that_runs(capsys):
    spans = [
        {"traceId": f"{i:032x}", "spanId": f"{2 * i + j:016x}", "parentSpanId": "" if j == 0 else f"{2 * i:016x}",
         "name": ("GET /", "query")[j], "kind": 2,
         "startTimeUnixNano": str(10**9 * i + 10**6 * j), "endTimeUnixNano": str(10**9 * i + 10**7 - 2 * 10**6 * j)}
        for i in range(1, 30) for j in range(2)
    ]  # fmt: skip
    resources = [
        {"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": name}}]},
         "scopeSpans": [{"spans": spans[j::2]}]}
        for j, name in enumerate(("web", "db"))
    ]  # fmt: skip
    with open("traces.json", "w") as file:
        json.dump({"resourceSpans": resources}, file)
    got = answer(
        capsys, "services", "import", "traces.json", "-o", "app.yaml", "--cpu-share", "0.5"
    )
    assert got["figures"]["services"] == 2
    assert abs(got["figures"]["error_pct"]) < 5
    app = read_application("app.yaml")
    assert set(app.services) == {"web", "db"}
    assert answer(capsys, "services", "simulate", "app.yaml", *SHORT)["managers"]["static"][
        "constant"
    ]["p99_ms"]


def test_managers_are_listed(capsys):
    assert main(["services", "managers"]) == 0
    text = capsys.readouterr().out
    for name in (
        "static",
        "hpa",
        "vpa",
        "autoscale-opt",
        "autoscale-cons",
        "autothrottle",
        "powerchief",
    ):
        assert f"\n{name}" in f"\n{text}"
    assert main(["services", "managers", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hpa"]["parameters"]["properties"]["target"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["simulate", "nothing.yaml"], "nothing.yaml"),
        (["simulate", "bundled:nothing"], "bundled"),
        (["simulate", "bundled:starter", "--manager", "hap"], "did you mean 'hpa'"),
        (["simulate", "bundled:starter", "--manager", "hpa?taget=1"], "target"),
        (["simulate", "bundled:starter", "--manager", "hpa,vpa"], "one only"),
        (["simulate", "bundled:starter", "--rate", "weekly"], "diurnal"),
        (["simulate", "bundled:starter", "--duration", "fast"], "--duration"),
        (["simulate", "bundled:starter", "--duration", "0s"], "a second at least"),
        (["simulate", "bundled:starter", "--rps", "-5"], "--rps"),
        (["simulate", "bundled:starter", "--rps", "1e12"], "--rps"),
        (["simulate", "bundled:starter", "--rps", "9e6", "--duration", "1h"], "too many"),
        (["simulate", "bundled:starter", "--interval", "1ms"], "0.1 s"),
        (["simulate", "bundled:starter", "--watts", "-1"], "--watts"),
        (["simulate", "bundled:starter", "--zone", "Atlantis"], "Atlantis"),
        (["compare", "bundled:starter", "--managers", ""], "which managers"),
        (["compare", "bundled:starter", "--rates", ""], "which rate"),
        (["lab", "bundled:starter", "--sweep", "logic"], "SERVICE=LIMIT"),
        (["lab", "bundled:starter", "--sweep", "nobody=0.5"], "there is no service 'nobody'"),
        (["lab", "bundled:starter", "--sweep", "logic=fast"], "is no limit"),
        (["import"], "which traces"),
        (["import", "nothing.json"], "nothing.json"),
        (["decisions", "nothing.jsonl"], "nothing.jsonl"),
        (["control", "--app", "bundled:starter", "--prometheus", "ftp://x"], "address"),
    ],
)
def test_wrong_input_gets_one_line(capsys, monkeypatch, words, says):
    monkeypatch.setenv("KUBECONFIG", "nowhere")
    assert says in refused(capsys, "services", *words)


@pytest.mark.parametrize(
    "text",
    [
        "services: {}", "name: x\nservices:\n  web: {}\nclasses: {}",
        "services:\n  web: {}\nclasses:\n  get: {call: {service: db}}",
        "services:\n  web: {workers: 0}\nclasses:\n  get: {call: {service: web}}",
        "services:\n  web: {cpu_limit: -1}\nclasses:\n  get: {call: {service: web}}",
        "services:\n  web: {colour: red}\nclasses:\n  get: {call: {service: web}}",
        "services:\n  web: {}\nclasses:\n  get: {call: {service: web, cpu_ms: fast}}",
        "services:\n  web: {}\nclasses:\n  get: {share: 0, call: {service: web}}",
        "- 1\n- 2", "\t", "a: &a [*a]",
    ],
)  # fmt: skip
def test_wrong_applications_get_one_line(capsys, tmp_path, text):
    (tmp_path / "app.yaml").write_text(text)
    assert "app.yaml" in refused(capsys, "services", "simulate", "app.yaml")


def test_sweeps_are_parsed():
    assert parse_sweep("logic = none, 0.5 ,1") == ("logic", [None, 0.5, 1.0])
    with pytest.raises(InputError):
        parse_sweep("logic=0")
