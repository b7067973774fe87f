"""Every command that reads a file refuses one of another kind, in one line that says what it is."""

from __future__ import annotations

import gzip
import json

import pytest
from tests.cli.refusal import answer, refused
from tests.ingest.samples import FILES, write_sample

from gnomon.cli import main
from gnomon.ingest.formats import FORMATS

#: How each command of the list is called with a file; FILE is put in.
WORDS = {
    "training replay": "training replay FILE",
    "training whatif": "training whatif FILE",
    "training sweep": "training sweep FILE",
    "training stragglers": "training stragglers FILE",
    "training predict": "training predict FILE --set layers=2",
    "training search": "training search FILE --gpus 2",
    "report": "report FILE",
    "compare": "compare FILE FILE",
    "export": "export FILE made.html",
    "aibench build": "aibench build FILE -o made",
    "aibench build --kineto": "aibench build et.json --kineto FILE -o made",
    "aibench check": "aibench check FILE --trace kineto.json",
    "aibench check --trace": "aibench check bench --trace FILE",
    "aibench check --clone-trace": "aibench check bench --trace k.json --clone-trace FILE",
    "aibench audit": "aibench audit FILE --against k.json",
    "aibench audit --against": "aibench audit bench --against FILE",
    "aibench mix": "aibench mix FILE --weights 1 -o made",
    "batch whatif": "batch whatif FILE --grid DE",
    "batch run --jobs": "batch run --jobs FILE --grid DE",
    "batch train-decima --jobs": "batch train-decima --jobs FILE -o made.npz",
    "batch run --signal": "batch run --signal FILE",
    "batch whatif --signal": "batch whatif bundled:spark-diamonds --signal FILE",
    "batch spark-agent --signal": "batch spark-agent --signal FILE",
    "carbon account": "carbon account FILE --zone DE",
    "carbon account --signal": "carbon account jobs.csv --signal FILE",
    "carbon account --machines": "carbon account jobs.csv --zone DE --machines FILE",
    "carbon place --jobs": "carbon place --fleet bundled:mit-740 --zone DE --jobs FILE",
    "carbon place --fleet": "carbon place --fleet FILE --zone DE",
    "carbon place --signal": "carbon place --fleet bundled:mit-740 --signal FILE",
    "carbon signal --file": "carbon signal --file FILE",
    "carbon wait --signal": "carbon wait --signal FILE --within 2h --for 1h --plan",
    "clone topology": "clone topology FILE",
    "services import": "services import FILE",
    "services import --pod-metrics": "services import FILE --pod-metrics FILE",
    "services simulate": "services simulate FILE",
    "services compare": "services compare FILE",
    "services lab": "services lab FILE",
    "services explore": "services explore FILE -o made.json",
    "services plan": "services plan FILE explored.json",
    "services plan --traces": "services plan bundled:starter explored.json --traces FILE",
    "services collect": "services collect FILE -o made",
    "services control --app": "services control --app FILE --prometheus http://127.0.0.1:9",
    "services decisions --app": "services decisions FILE --app FILE",
    "threads simulate --samples": "threads simulate --samples FILE",
    "carbon buy --fleet": "carbon buy --fleet FILE --candidate x --zone DE",
    "carbon buy --candidate": "carbon buy --fleet bundled:mit-740 --candidate FILE --zone DE",
}


def test_every_command_of_the_list_is_tried():
    assert set(WORDS) == {command for format in FORMATS for command in format.commands}


@pytest.mark.parametrize("command", WORDS)
def test_another_file_is_refused(tmp_path, capsys, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    clear = [f for f in FORMATS if not f.is_vague and command not in f.commands]
    for number, format in enumerate(clear):
        if (command, format.name) == ("carbon place --jobs", "sacct"):
            continue  # it is read as a table of jobs too
        folder = tmp_path / str(number)
        folder.mkdir()
        path = write_sample(format.name, folder)
        words = [str(path) if word == "FILE" else word for word in WORDS[command].split()]
        line = refused(capsys, *words)
        assert f"{path}: this is {format.about}; {format.used_by}" in line
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("name", [*FILES, "result", "benchmark", "recording"])
def test_inspect_describes_everything(tmp_path, capsys, name):
    path = write_sample(name, tmp_path)
    titles = {format.name: format.title for format in FORMATS} | {
        "recording": "PyTorch profiler trace"
    }
    figures = answer(capsys, "inspect", path)["figures"]
    assert figures["format"] == titles[name]
    assert "problem" not in figures


def test_inspect_says_what_is_in_an_operation_log(tmp_path, capsys):
    figures = answer(capsys, "inspect", write_sample("operation-log", tmp_path))["figures"]
    assert (figures["ranks"], figures["steps"], figures["operations"]) == (2, 2, 4)
    assert figures["span"] == "1.25 s"


def test_inspect_reads_what_sacct_prints(tmp_path, capsys):
    figures = answer(capsys, "inspect", write_sample("sacct", tmp_path))["figures"]
    assert figures["format"] == "Slurm accounting table (sacct)"
    assert (figures["jobs"], figures["read_by"]) == (1, "carbon account")


def test_inspect_says_what_is_wrong_with_a_table(tmp_path, capsys):
    path = tmp_path / "grid.csv"
    path.write_text("datetime,lca_gco2_kwh\n2024-01-01T00:00Z,300\n2024-01-01T01:00Z,\n")
    assert "line 3" in answer(capsys, "inspect", path)["figures"]["problem"]


@pytest.mark.parametrize("ending", [".json", ".json.gz", ".csv", ""])
def test_empty_files_are_refused_alike(tmp_path, capsys, ending):
    path = tmp_path / f"empty{ending}"
    path.write_bytes(gzip.compress(b"") if ending.endswith("gz") else b"")
    assert refused(capsys, "inspect", path) == f"gnomon: {path}: is empty\n"


def test_an_archive_member_and_a_pattern_are_no_files_to_look_at(tmp_path, capsys):
    (tmp_path / "rank0.json").write_text(json.dumps({"traceEvents": []}))
    assert main(["training", "replay", str(tmp_path / "rank*.json")]) == 2
    assert "no events" in capsys.readouterr().err
