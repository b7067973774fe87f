"""gnomon services: what it promises to scripts, and what it says to wrong input."""

from __future__ import annotations

import json
import re

import pytest
from tests.cli.refusal import answer, refused

from gnomon.cli import main
from gnomon.cli.services import app
from gnomon.cli.services.lab import parse_sweep
from gnomon.errors import InputError
from gnomon.ingest.services.application_file import read_application

SHORT = ["--duration", "20s"]
PROMISED = {"violation_pct", "cpu_mean", "cpu_p95", "p99_ms", "decisions", "energy_kwh", "carbon_g", "recovery_s",
            "manager_ms", "manager_max_ms", "late_pct"}  # fmt: skip


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
        for spent in ("manager_ms", "manager_max_ms"):
            got["managers"]["autothrottle"]["constant"].pop(spent)
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


def write_traces():
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


def test_spans_become_an_application_that_runs(capsys):
    write_traces()
    got = answer(
        capsys, "services", "import", "traces.json", "-o", "app.yaml", "--cpu-share", "0.5"
    )
    assert got["figures"]["services"] == 2
    assert abs(got["figures"]["error_pct"]) < 5
    app = read_application("app.yaml")
    assert set(app.services) == {"web", "db"}
    assert all(one.cpu_limit == 0.1 for one in app.services.values())
    assert not any("no CPU limit" in note for note in got["notes"])
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
        (["simulate", "bundled:starter", "--seed", "-1"], "a seed of -1"),
        (["simulate", "bundled:starter", "--rps", "0"], "--rps"),
        (["simulate", "bundled:starter", "--duration", "1m", "--minutes", "1"], "give one of"),
        (["simulate", "bundled:starter", "--duration", "5s", "--interval", "30s"], "--interval"),
        (["simulate", "bundled:starter", "--html", "nowhere/x.html"], "no such folder"),
        (["simulate", "bundled:starter", "--html", "."], "is a folder"),
        (["simulate", "bundled:starter", "--manager", "vpa?margin=nan"], "vpa: margin is nan"),
        (["compare", "bundled:starter", "--rates", ""], "which rate"),
        (["compare", "bundled:starter", "--rates", "constant,constant"], "named twice"),
        (["compare", "bundled:starter", "--seed", "-1"], "a seed of -1"),
        (["compare", "bundled:starter", "--duration", "5s", "--interval", "30s"], "--interval"),
        (["lab", "bundled:starter", "--manager", "static,hpa"], "--manager: one only"),
        (["lab", "bundled:starter", "--rate", "constant,surge"], "--rate: one only"),
        (["lab", "bundled:starter", "--otlp", "notaurl"], "'notaurl' is no address"),
        (["lab", "bundled:starter", "--spans", "nowhere/spans.jsonl"], "no such folder"),
        (["lab", "bundled:starter", "--prometheus", "nowhere/p.yml"], "no such folder"),
        (["lab", "bundled:starter", "--html", "nowhere/x.html"], "no such folder"),
        (["lab", "bundled:starter", "--seed", "-1"], "a seed of -1"),
        (["lab", "bundled:starter", "--row", "5s"], "--row and --repeats"),
        (["lab", "bundled:starter", "--sweep", "logic=0.5", "--rps", "0"], "--rps 0"),
        (["lab", "bundled:starter", "--sweep", "logic=0.5", "--scale", "nan"], "--scale"),
        (["lab", "bundled:starter", "--sweep", "logic=0.5", "--seed", "-1"], "a seed of -1"),
        *(
            (["lab", "bundled:starter", "--sweep", "logic=0.5", *more], f"{more[0]} mean nothing")
            for more in (
                ["--manager", "hpa"], ["--rate", "surge"], ["--log", "x"], ["--spans", "x"],
                ["--otlp", "http://x/"], ["--prometheus", "x"], ["--duration", "1m"],
                ["--minutes", "1"], ["--interval", "2s"], ["--guard"], ["--zone", "DE"],
                ["--watts", "7"],
            )
        ),
        (["lab", "bundled:starter", "--sweep", "logic"], "SERVICE=LIMIT"),
        (["lab", "bundled:starter", "--sweep", "nobody=0.5"], "there is no service 'nobody'"),
        (["lab", "bundled:starter", "--sweep", "logic=fast"], "is no limit"),
        (["import"], "which traces"),
        (["import", "nothing.json"], "nothing.json"),
        (["decisions", "nothing.jsonl"], "nothing.jsonl"),
        (["decisions", "nothing.jsonl", "--top", "0"], "--top 0"),
        (["decisions", "nothing.jsonl", "--top", "-3"], "--top -3"),
        (["control", "--app", "bundled:starter", "--prometheus", "ftp://x"], "address"),
    ],
)  # fmt: skip
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


def test_an_import_cannot_lose_its_file(capsys):
    write_traces()
    assert "no such folder" in refused(
        capsys, "services", "import", "traces.json", "-o", "nowhere/app.yaml"
    )
    assert "a seed of" in refused(capsys, "services", "import", "traces.json", "--seed", "-1")


def test_an_import_cannot_be_ranked_before_its_next_step(capsys):
    write_traces()
    got = answer(capsys, "services", "import", "traces.json", "-o", "app.yaml")
    assert any("gnomon services compare app.yaml" in note for note in got["notes"])
    found = answer(capsys, "services", "compare", "app.yaml", "--managers", "static,hpa", "--rates",
                   "constant", "--on", "serial", *SHORT)  # fmt: skip
    best = found["figures"]["best_0"]
    assert best == "nobody is ranked: no class has an SLA and no call takes CPU time"


def test_no_manager_within_the_sla_is_exit_code_3(capsys):
    words = [
        "services",
        "compare",
        "tight.yaml",
        "--managers",
        "static",
        "--rates",
        "constant",
        *SHORT,
    ]
    text = "services:\n  web: {cpu_limit: 0.1}\nclasses:\n  get: {sla: {bound_ms: BOUND}, call: {service: web, cpu_ms: 0.5}}\n"
    for bound, code, best in (("0.1", 3, "no manager"), ("1000", 0, "static: 0.10 cores")):
        with open("tight.yaml", "w") as file:
            file.write(text.replace("BOUND", bound))
        assert answer(capsys, *words, code=code)["figures"]["best_0"] == best


def test_rates_of_one_name_are_two_rates(capsys, tmp_path):
    for folder in "ab":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").write_text("50\n" * 12)
    got = answer(capsys, "services", "compare", "bundled:starter", "--managers", "static", "--rates",
                 "a/x.txt,b/x.txt", "--on", "serial")  # fmt: skip
    assert set(got["managers"]["static"]) == {"a/x.txt", "b/x.txt"}


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        (["--seed", "1"], 60), (["--rps", "50"], 60), (["--duration", "5s"], 5), (["--minutes", "0.2"], 12),
        (["--rate", "own.txt"], 90), (["--rate", "own.txt", "--duration", "20s"], 20),
    ],
)  # fmt: skip
def test_the_lab_runs_a_minute_or_the_file(monkeypatch, tmp_path, words, seconds):
    class Asked(Exception):
        pass

    def run_lab(setup, name, rate, **options):
        raise Asked(len(rate.per_s))

    monkeypatch.setattr("gnomon.systems.services.lab.run_lab", run_lab)
    (tmp_path / "own.txt").write_text("50\n" * 90)
    with pytest.raises(Asked, match=f"^{seconds}$"):
        app(["lab", "bundled:starter", *words], exit_on_error=False)


def test_every_option_has_a_help_text(capsys):
    for verb in ("import", "simulate", "compare", "lab", "control", "decisions"):
        assert main(["services", verb, "--help"]) == 0
        for line in capsys.readouterr().out.splitlines():
            assert not re.fullmatch(r"  --\S+( [A-Z]+)?\s*(\[.*\])?", line), line


def test_a_damaged_log_gets_one_line(capsys):
    assert main(["services", "simulate", "bundled:starter", "--log", "log.jsonl", *SHORT]) == 0
    capsys.readouterr()
    with open("log.jsonl") as file:
        head, row, *_ = file
    window = json.dumps(json.loads(row) | {"window": {}})
    with open("log.jsonl", "w") as file:
        file.write(head + window + "\n")
    for more in ([], ["--app", "bundled:starter"]):
        assert "line 2: the window lacks" in refused(
            capsys, "services", "decisions", "log.jsonl", *more
        )


def test_sweeps_are_parsed():
    assert parse_sweep("logic = none, 0.5 ,1") == ("logic", [None, 0.5, 1.0])
    with pytest.raises(InputError):
        parse_sweep("logic=0")
