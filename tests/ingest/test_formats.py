"""The list of formats: every one is recognised by its content, under any name, and nothing else is."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import subprocess
import sys

import pytest

from gnomon.errors import InputError
from gnomon.ingest.formats import FORMATS, check_input, identify, with_command
from tests.ingest.samples import CHROME, FILES, FOLDERS, JAX, KINETO, VIZTRACER, write_sample

NAMES = [format.name for format in FORMATS]


def test_every_format_has_a_sample():
    assert set(FILES) | set(FOLDERS) == set(NAMES)


@pytest.mark.parametrize("name", FILES)
def test_files_are_recognised_under_any_name(tmp_path, name):
    path = write_sample(name, tmp_path)
    assert identify(path).format == name
    if name not in ("operation-log", "perfetto", "parquet", "arrow", "graph", "timeline"):
        misnamed = tmp_path / "misnamed.txt"
        mark = b"" if name == "spark-log" else b"\xef\xbb\xbf"
        misnamed.write_bytes(gzip.compress(mark + path.read_bytes()))
        assert identify(misnamed).format == name


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_are_recognised(tmp_path, name):
    FOLDERS[name](tmp_path / "sample")
    assert identify(tmp_path / "sample").format == name


def test_recognisers_and_readers_exist():
    for format in FORMATS:
        for target in (format.recognise, format.reader):
            if target:
                module, _, name = target.partition(":")
                assert hasattr(importlib.import_module(module), name.split(".")[0]), target


def test_whoever_wrote_a_chrome_trace_is_named(tmp_path):
    path = tmp_path / "trace.json"
    for written, name in ((KINETO, "kineto"), (JAX, "jax-trace"), (VIZTRACER, "viztracer"),
                          (CHROME, "chrome-trace")):  # fmt: skip
        path.write_text(json.dumps(written))
        assert identify(path).format == name
        pad = [{"ph": "M", "name": "pad", "pid": 0, "args": {"name": "x" * 8000}}]
        events = written if isinstance(written, list) else written["traceEvents"]
        path.write_text(json.dumps({"traceEvents": pad + events}))  # its marks come late
        assert identify(path).format == name


@pytest.mark.parametrize("content", [b"", gzip.compress(b"", mtime=0), b"\xef\xbb\xbf"])
@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.csv"])
def test_what_is_empty_is_refused(tmp_path, content, name):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match="is empty"):
        identify(tmp_path / name)


def test_damaged_archives_say_so(tmp_path):
    (tmp_path / "a.gz").write_bytes(b"\x1f\x8b" + b"\xff" * 50)
    with pytest.raises(InputError, match="gzip stream is damaged"):
        identify(tmp_path / "a.gz")


def test_a_file_for_another_command_is_refused(tmp_path):
    path = write_sample("spark-log", tmp_path)
    check_input(path, "batch whatif")
    with pytest.raises(
        InputError, match=r"sample: this is a Spark event log; `gnomon batch whatif`"
    ):
        check_input(path, "training replay")


def test_what_may_be_two_things_is_not_refused(tmp_path):
    path = tmp_path / "both.csv"
    path.write_text("start,end,energy_kwh,datetime,carbon_intensity\n1,2,3,2024-01-01,300\n")
    assert identify(path).format == "job-table"
    check_input(path, "carbon signal --file")


def test_what_is_not_there_or_unknown_is_left_to_the_reader(tmp_path):
    check_input(None, "training replay")
    check_input(tmp_path / "nowhere", "training replay")
    (tmp_path / "x.json").write_text("{}")
    check_input(tmp_path / "x.json", "training replay")


def test_commands_of_the_list_exist():
    from gnomon.cli.app import app

    for command in {command for format in FORMATS for command in format.commands}:
        words = command.split()
        option = words.pop() if words[-1].startswith("--") else None
        found = app[words[0]] if len(words) == 1 else app[words[0]][words[1]]
        names = {n for a in found.assemble_argument_collection() for n in a.names}
        assert option is None or option in names, command
        assert with_command(command)


def test_the_list_costs_nothing_to_load():
    code = "import sys, gnomon.ingest.formats; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.data
@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("public/tracelens/h100/*.json.gz", "kineto"),
        ("public/hta/critical_path/*/*.json.gz", "kineto"),
        ("public/kineto/*/*.json.gz", "kineto"),
        ("public/param/*_et.json.gz", "execution-trace"),
        ("public/straggler/*.parquet", "operation-log"),
        ("carbon/carboncast-hourly-2020-2021/*.csv.gz", "intensity-csv"),
        ("carbon/electricitymaps-hourly-2021-2024/*.csv.gz", "intensity-csv"),
        ("carbon/boavizta-embodied/*.csv", "boavizta"),
        ("batch/alibaba-dag/*.csv", "alibaba"),
        ("batch/decima-tpch/*.json.gz", "tpch"),
        ("ranks/dp2-*", "recording"),
        ("services/mubench/**/*.json", "mubench"),
        ("services/deathstarbench/*.json.gz", "jaeger"),
        ("services/deathstarbench/*.csv", "span-table"),
        ("services/cilantro/*.csv.gz", "cilantro"),
    ],
)
def test_public_files_are_what_they_are(public_data, pattern, name):
    found = sorted(public_data.glob(pattern))
    if not found:
        pytest.skip(f"{pattern} is absent from the public data")
    assert {identify(path).format for path in found} == {name}


def test_a_pipe_is_not_looked_at(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for a writer for ever
    check_input(tmp_path / "pipe", "batch whatif")
    with pytest.raises(InputError, match="neither a file nor a folder"):
        identify(tmp_path / "pipe")
